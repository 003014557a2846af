//! Sample stores with known elements: `uint16` arrays in each storage form, and one complete hierarchy.

use std::path::Path;

use serde_json::{Value, json};
use zarrfs_store::Key;
use zarrfs_store::backend::memory::MemoryStore;

/// A destination for the keys of a sample store, such as a folder.
pub trait Keys {
    fn put(&self, key: &str, bytes: &[u8]);
}

impl Keys for MemoryStore {
    fn put(&self, key: &str, bytes: &[u8]) {
        self.set(Key::new(key).unwrap(), bytes.to_vec());
    }
}

impl Keys for Path {
    fn put(&self, key: &str, bytes: &[u8]) {
        let path = self.join(key);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

pub const GROUP: &str = r#"{"zarr_format": 3, "node_type": "group", "attributes": {"made": 1}}"#;

/// The fill value of sample arrays, which no element has.
const FILL: u16 = 0xffff;

/// How the chunks of a sample array are stored.
#[derive(Clone, Debug)]
pub enum Form {
    Plain,
    Packed,
    /// The chunks are shards, with inner chunks of this shape, compressed with zstd.
    Sharded(Vec<u64>),
}

/// A sample array of `uint16`, whose elements are computed from their indices.
#[derive(Clone, Debug)]
pub struct Sample {
    pub shape: Vec<u64>,
    pub chunk: Vec<u64>,
    pub form: Form,
    /// Whether about every third chunk is missing.
    pub sparse: bool,
}

/// Returns the indices of all elements of a box in C order.
pub fn places(shape: &[u64]) -> impl Iterator<Item = Vec<u64>> + '_ {
    (0..shape.iter().product()).map(move |number: u64| {
        let mut rest = number;
        let mut place: Vec<u64> = shape
            .iter()
            .rev()
            .map(|&length| {
                let index = rest % length;
                rest /= length;
                index
            })
            .collect();
        place.reverse();
        place
    })
}

impl Sample {
    pub fn new(shape: &[u64], chunk: &[u64], form: Form) -> Sample {
        let (shape, chunk, sparse) = (shape.to_vec(), chunk.to_vec(), false);
        Sample {
            shape,
            chunk,
            form,
            sparse,
        }
    }

    pub fn sparse(self) -> Sample {
        Sample {
            sparse: true,
            ..self
        }
    }

    pub fn counts(&self) -> Vec<u64> {
        let lengths = self.shape.iter().zip(&self.chunk);
        lengths
            .map(|(length, chunk)| length.div_ceil(*chunk))
            .collect()
    }

    pub fn is_stored(&self, chunk: &[u64]) -> bool {
        !self.sparse || !chunk.iter().sum::<u64>().is_multiple_of(3)
    }

    fn element(&self, place: &[u64]) -> u16 {
        let lengths = place.iter().zip(&self.shape);
        if lengths.clone().any(|(index, length)| index >= length) {
            return FILL;
        }
        let chunk: Vec<u64> = place
            .iter()
            .zip(&self.chunk)
            .map(|(index, length)| index / length)
            .collect();
        if !self.is_stored(&chunk) {
            return FILL;
        }
        let number = lengths.fold(0, |number, (index, length)| number * length + index);
        (number * 7919 % u64::from(FILL)) as u16
    }

    /// Returns the elements of a box in C order, little-endian; elements beyond the array are the fill value.
    fn elements(&self, start: &[u64], shape: &[u64]) -> Vec<u8> {
        places(shape)
            .flat_map(|place| {
                let place: Vec<u64> = place
                    .iter()
                    .zip(start)
                    .map(|(index, start)| index + start)
                    .collect();
                self.element(&place).to_le_bytes()
            })
            .collect()
    }

    /// Returns all elements of the array, as its raw file shows them.
    pub fn whole(&self) -> Vec<u8> {
        self.elements(&vec![0; self.shape.len()], &self.shape)
    }

    /// Returns the elements of a chunk, without those beyond the edge of the array.
    pub fn clipped(&self, chunk: &[u64]) -> Vec<u8> {
        let start: Vec<u64> = chunk
            .iter()
            .zip(&self.chunk)
            .map(|(index, length)| index * length)
            .collect();
        let ends = start.iter().zip(&self.chunk).zip(&self.shape);
        let shape: Vec<u64> = ends
            .map(|((start, chunk), length)| *chunk.min(&(length - start)))
            .collect();
        self.elements(&start, &shape)
    }

    pub fn metadata(&self) -> Value {
        let bytes = json!({"name": "bytes", "configuration": {"endian": "little"}});
        let zstd = json!({"name": "zstd", "configuration": {"level": 1, "checksum": true}});
        let codecs = match &self.form {
            Form::Plain => json!([bytes]),
            Form::Packed => json!([bytes, zstd]),
            Form::Sharded(inner) => json!([{"name": "sharding_indexed", "configuration": {
                "chunk_shape": inner, "codecs": [bytes, zstd], "index_codecs": [bytes, {"name": "crc32c"}],
            }}]),
        };
        json!({
            "zarr_format": 3, "node_type": "array", "shape": self.shape, "data_type": "uint16",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": self.chunk}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": FILL, "codecs": codecs, "attributes": {"unit": "1"},
        })
    }

    fn encoded(&self, chunk: &[u64]) -> Vec<u8> {
        let start: Vec<u64> = chunk
            .iter()
            .zip(&self.chunk)
            .map(|(index, length)| index * length)
            .collect();
        match &self.form {
            Form::Plain => self.elements(&start, &self.chunk),
            Form::Packed => zstd(&self.elements(&start, &self.chunk)),
            Form::Sharded(inner) => self.shard(&start, inner),
        }
    }

    /// Returns the bytes of a shard: inner chunks in order, then the index and its checksum.
    fn shard(&self, start: &[u64], inner: &[u64]) -> Vec<u8> {
        let counts: Vec<u64> = self
            .chunk
            .iter()
            .zip(inner)
            .map(|(shard, inner)| shard / inner)
            .collect();
        let (mut bytes, mut index) = (Vec::new(), Vec::new());
        for place in places(&counts) {
            let corner = place.iter().zip(inner).zip(start);
            let corner: Vec<u64> = corner
                .map(|((place, inner), start)| place * inner + start)
                .collect();
            let encoded = zstd(&self.elements(&corner, inner));
            index.extend((bytes.len() as u64).to_le_bytes());
            index.extend((encoded.len() as u64).to_le_bytes());
            bytes.extend(encoded);
        }
        let checksum = crc32c::crc32c(&index);
        [bytes, index, checksum.to_le_bytes().to_vec()].concat()
    }

    pub fn chunk_key(chunk: &[u64]) -> String {
        let indices = chunk.iter().map(|index| format!("/{index}"));
        indices.fold("c".to_string(), |key, index| key + &index)
    }

    /// Writes the metadata and the stored chunks of the sample array under a path.
    pub fn put(&self, keys: &(impl Keys + ?Sized), path: &str) {
        let metadata = self.metadata().to_string();
        keys.put(&format!("{path}/zarr.json"), metadata.as_bytes());
        for chunk in places(&self.counts()).filter(|chunk| self.is_stored(chunk)) {
            let key = format!("{path}/{}", Sample::chunk_key(&chunk));
            keys.put(&key, &self.encoded(&chunk));
        }
    }
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(bytes, 1).unwrap()
}

/// Returns the arrays of the sample store by path: every storage form, chunks cut by the edge, zero dimensions, zero
/// elements, and rows long enough to be read directly from the store.
pub fn arrays() -> Vec<(&'static str, Sample)> {
    vec![
        ("plain", Sample::new(&[37, 53], &[10, 16], Form::Plain)),
        (
            "rows",
            Sample::new(&[9, 700], &[4, 256], Form::Plain).sparse(),
        ),
        (
            "deep/er/packed",
            Sample::new(&[9, 20, 31], &[4, 7, 11], Form::Packed).sparse(),
        ),
        (
            "deep/shards",
            Sample::new(&[50, 70], &[32, 32], Form::Sharded(vec![8, 16])).sparse(),
        ),
        ("point", Sample::new(&[], &[], Form::Packed)),
        ("nothing", Sample::new(&[0, 5], &[2, 5], Form::Plain)),
    ]
}

/// Writes the sample store: the arrays of `arrays`, an array with an unknown codec (`strange`), a node whose metadata
/// are not valid JSON (`broken`), groups without metadata (`deep`), and a v2 group whose child is named `metadata.json`
/// (`own`).
pub fn put_store(keys: &(impl Keys + ?Sized)) {
    keys.put("zarr.json", GROUP.as_bytes());
    for (path, sample) in arrays() {
        sample.put(keys, path);
    }
    let strange = Sample::new(&[4, 4], &[2, 2], Form::Plain);
    strange.put(keys, "strange");
    let mut metadata = strange.metadata();
    metadata["codecs"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "nobody-knows"}));
    keys.put("strange/zarr.json", metadata.to_string().as_bytes());
    keys.put("broken/zarr.json", b"{\"zarr_format\": 3,");
    keys.put("broken/c/0", b"1234");
    keys.put("own/.zgroup", br#"{"zarr_format": 2}"#);
    keys.put("own/metadata.json/.zgroup", br#"{"zarr_format": 2}"#);
    keys.put("own/metadata.json/.zattrs", br#"{"child": true}"#);
}
