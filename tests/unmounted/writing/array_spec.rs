//! Generates random arrays with every chunk and shard layout, without stored chunks.

use proptest::prelude::*;
use serde_json::{Value, json};
use zarrfs_store::Key;
use zarrfs_store::backend::memory::MemoryStore;

#[derive(Clone, Debug)]
pub struct ArraySpec {
    pub shape: Vec<u64>,
    pub chunk: Vec<u64>,
    /// The number of inner chunks along each dimension of a shard. A second entry nests these shards in larger ones.
    /// Empty without sharding.
    pub inner: Vec<Vec<u64>>,
    /// Whether the last chunk along each dimension is longer than the other chunks.
    pub uneven: bool,
    pub data_type: &'static str,
    pub big: bool,
    pub compressed: bool,
    pub index_at_start: bool,
}

pub fn array_specs() -> impl Strategy<Value = ArraySpec> {
    let types = prop::sample::select(vec!["uint8", "int16", "float64", "r24"]);
    (0usize..=3).prop_flat_map(move |rank| {
        let lengths = move |most| prop::collection::vec(1u64..most, rank);
        (
            lengths(9),
            lengths(4),
            prop::collection::vec(lengths(3), 0..3),
            types.clone(),
            any::<[bool; 4]>(),
        )
            .prop_map(|(shape, chunk, inner, data_type, flags)| {
                let [uneven, big, compressed, index_at_start] = flags;
                ArraySpec {
                    shape,
                    chunk,
                    inner,
                    uneven,
                    data_type,
                    big,
                    compressed,
                    index_at_start,
                }
            })
    })
}

impl ArraySpec {
    fn codecs(&self) -> (Vec<u64>, Value) {
        let endian = if self.big { "big" } else { "little" };
        let bytes = |endian| json!({"name": "bytes", "configuration": {"endian": endian}});
        let mut codecs = json!([bytes(endian)]);
        if self.compressed {
            let zstd = json!({"name": "zstd", "configuration": {"level": 1, "checksum": true}});
            codecs = json!([bytes(endian), zstd, "crc32c"]);
        }
        let mut chunk = self.chunk.clone();
        let location = if self.index_at_start { "start" } else { "end" };
        for counts in &self.inner {
            codecs = json!([{"name": "sharding_indexed", "configuration": {
                "chunk_shape": chunk, "codecs": codecs, "index_location": location,
                "index_codecs": [bytes("little"), "crc32c"],
            }}]);
            let both = chunk.iter_mut().zip(counts);
            both.for_each(|(chunk, count)| *chunk *= count);
        }
        (chunk, codecs)
    }

    fn grid(&self, chunk: &[u64]) -> Value {
        if !self.uneven || self.shape.is_empty() {
            return json!({"name": "regular", "configuration": {"chunk_shape": chunk}});
        }
        let axes = self.shape.iter().zip(chunk);
        let axes = axes.map(|(length, chunk)| json!([chunk, [2 * chunk, length.div_ceil(*chunk)]]));
        let shapes: Vec<Value> = axes.collect();
        let configuration = json!({"kind": "inline", "chunk_shapes": shapes});
        json!({"name": "rectilinear", "configuration": configuration})
    }

    pub fn metadata(&self) -> Value {
        let (chunk, codecs) = self.codecs();
        let fill = match self.data_type {
            "r24" => json!([1, 2, 3]),
            _ => json!(7),
        };
        json!({
            "zarr_format": 3, "node_type": "array", "shape": self.shape, "data_type": self.data_type,
            "chunk_grid": self.grid(&chunk), "chunk_key_encoding": {"name": "default"},
            "fill_value": fill, "codecs": codecs, "attributes": {},
        })
    }

    pub fn store(&self) -> MemoryStore {
        let memory = MemoryStore::default();
        let document = self.metadata().to_string().into_bytes();
        memory.set(Key::new("a/zarr.json").unwrap(), document);
        memory
    }
}
