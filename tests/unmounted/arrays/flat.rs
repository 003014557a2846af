//! Tests that any range of a flat file equals the same slice of the array.

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use zarr_format::codec::Pipeline;
use zarr_format::grid::{Grid, Layout, Region, Runs};
use zarr_format::model::{Array, Node, document};
use zarrfs_array::hierarchy::Hierarchy;
use zarrfs_store::Key;
use zarrfs_store::backend::memory::MemoryStore;

use crate::common;
use zarrfs_store::request_context::{UNLIMITED, WITHOUT_WAITING};

/// A random array, with a flag per chunk that says whether the chunk is stored.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) shape: Vec<u64>,
    pub(crate) chunk: Vec<u64>,
    /// Inner chunks along each dimension of a shard, or `None` without sharding.
    pub(crate) inner: Option<Vec<u64>>,
    /// For a rectilinear grid, the runs of equally long chunks along each dimension as (length, count); `None` for a
    /// regular grid. With sharding, lengths are counted in inner chunks. An empty list makes all chunks along a
    /// dimension equally long.
    pub(crate) edges: Option<Vec<Vec<(u64, u64)>>>,
    pub(crate) data_type: &'static str,
    pub(crate) fortran: bool,
    pub(crate) big: bool,
    pub(crate) compressed: bool,
    pub(crate) stored: Vec<bool>,
}

pub(crate) fn cases() -> impl Strategy<Value = Case> {
    let types = prop::sample::select(vec!["uint8", "int16", "float32", "complex128", "r24"]);
    (0usize..=6).prop_flat_map(move |rank| {
        (
            prop::collection::vec(prop_oneof![9 => 1u64..5, 1 => Just(0)], rank),
            prop::collection::vec(1u64..4, rank),
            prop::option::of(prop::collection::vec(1u64..3, rank)),
            prop::option::of(prop::collection::vec(
                prop::collection::vec((1u64..4, 1u64..3), 0..4),
                rank,
            )),
            types.clone(),
            any::<[bool; 3]>(),
            prop::collection::vec(any::<bool>(), 16),
        )
            .prop_map(
                |(shape, chunk, inner, edges, data_type, [fortran, big, compressed], stored)| {
                    Case {
                        shape,
                        chunk,
                        inner,
                        edges,
                        data_type,
                        fortran,
                        big,
                        compressed,
                        stored,
                    }
                },
            )
    })
}

/// Returns the metadata of a chunk grid with chunks or shards of shape `chunk`.
fn chunk_grid(case: &Case, chunk: &[u64]) -> Value {
    let Some(edges) = &case.edges else {
        return json!({"name": "regular", "configuration": {"chunk_shape": chunk}});
    };
    let axes = edges.iter().enumerate().map(|(axis, runs)| {
        if runs.is_empty() {
            return json!(chunk[axis]);
        }
        let unit = case.inner.as_ref().map_or(1, |_| case.chunk[axis]);
        let covered: u64 = runs
            .iter()
            .map(|(length, count)| length * unit * count)
            .sum();
        let mut list: Vec<Value> = runs
            .iter()
            .map(|&(length, count)| match count {
                1 => json!(length * unit),
                _ => json!([length * unit, count]),
            })
            .collect();
        if covered < case.shape[axis] {
            list.push(json!([unit, (case.shape[axis] - covered).div_ceil(unit)]));
        }
        Value::Array(list)
    });
    let shapes: Vec<Value> = axes.collect();
    json!({"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": shapes}})
}

pub(crate) fn metadata(case: &Case) -> Value {
    let endian = if case.big { "big" } else { "little" };
    let mut codecs = Vec::new();
    if case.fortran {
        codecs.push(json!({"name": "transpose", "configuration": {"order": (0..case.shape.len()).rev().collect::<Vec<_>>()}}));
    }
    codecs.push(json!({"name": "bytes", "configuration": {"endian": endian}}));
    if case.compressed {
        codecs.push(json!({"name": "zstd", "configuration": {"level": 1, "checksum": true}}));
    }
    let mut chunk = case.chunk.clone();
    if let Some(inner) = &case.inner {
        let index = json!([{"name": "bytes", "configuration": {"endian": "little"}}, "crc32c"]);
        let configuration =
            json!({"chunk_shape": case.chunk, "codecs": codecs, "index_codecs": index});
        codecs = vec![json!({"name": "sharding_indexed", "configuration": configuration})];
        chunk
            .iter_mut()
            .zip(inner)
            .for_each(|(chunk, count)| *chunk *= count);
    }
    let fill = match case.data_type {
        "r24" => json!([1, 2, 3]),
        "complex128" => json!([1.5, "NaN"]),
        _ => json!(7),
    };
    json!({
        "zarr_format": 3, "node_type": "array", "shape": case.shape, "data_type": case.data_type,
        "chunk_grid": chunk_grid(case, &chunk),
        "chunk_key_encoding": "default", "fill_value": fill, "codecs": codecs,
    })
}

/// Parses the metadata of an array by storing and opening them.
fn model(metadata: &Value) -> Array {
    let memory = MemoryStore::default();
    memory.set(
        Key::new(document::ZARR_JSON).unwrap(),
        metadata.to_string().into_bytes(),
    );
    let found = Hierarchy::new(Arc::new(memory))
        .node(&UNLIMITED, &Key::root())
        .unwrap()
        .unwrap();
    match found.node().unwrap() {
        Node::Array(array) => (**array).clone(),
        Node::Group(_) => panic!("a group"),
    }
}

/// Encodes a chunk, or a shard of inner chunks with its index at the end.
fn encode(pipeline: &Pipeline, array: &Array, chunk: &[u8]) -> Vec<u8> {
    let [level] = pipeline.shards() else {
        return pipeline.encode(chunk).unwrap();
    };
    let size = array.element_size().unwrap();
    let shard = Region::whole(&array.chunk_shape);
    let (mut encoded, mut ranges) = (Vec::new(), Vec::new());
    Grid::new(&array.chunk_shape, level.inner_shape())
        .unwrap()
        .visit(&shard, |_, start, part| {
            let from = Layout {
                start: &shard.start,
                shape: &shard.shape,
                skipped: 0,
            };
            let to = Layout {
                start,
                shape: level.inner_shape(),
                skipped: 0,
            };
            let mut inner = vec![0; pipeline.chunk_bytes()];
            Runs::new(part, from, to, size).copy(chunk, &mut inner);
            let bytes = pipeline.encode(&inner).unwrap();
            ranges.push(Some(
                encoded.len() as u64..(encoded.len() + bytes.len()) as u64,
            ));
            encoded.extend_from_slice(&bytes);
            true
        });
    encoded.extend_from_slice(&level.encode_index(&ranges).unwrap());
    encoded
}

/// Writes the store of a random array into a folder. Returns the decoded bytes of the array.
pub(crate) fn write(case: &Case, folder: &Path) -> Vec<u8> {
    let metadata = metadata(case);
    let array = model(&metadata);
    let size = array.element_size().unwrap();
    std::fs::write(folder.join("zarr.json"), metadata.to_string()).unwrap();
    let total = array.byte_length().unwrap() as usize;
    let fill = &array.fill_value.bytes;
    let mut whole: Vec<u8> = fill.iter().copied().cycle().take(total).collect();
    let grid = Grid::of(&array).unwrap();
    let region = Region::whole(&array.shape);
    let mut number = 0;
    grid.visit(&region, |index, start, part| {
        number += 1;
        if !case.stored[index.0 as usize % case.stored.len()] {
            return true;
        }
        // The codec pipeline needs a regular grid, so each chunk is encoded as one of an array whose chunks all have
        // its shape.
        let alike = Array {
            chunk_shape: grid.shape_of(index).to_vec(),
            chunk_edges: Vec::new(),
            ..array.clone()
        };
        let pipeline = Pipeline::new(&alike, 1 << 20).unwrap();
        let bytes = alike.chunk_shape.iter().product::<u64>() as usize * size;
        let chunk: Vec<u8> = (0..bytes)
            .map(|i| ((i * 31 + number * 7) % 253) as u8)
            .collect();
        let from = Layout {
            start,
            shape: &alike.chunk_shape,
            skipped: 0,
        };
        let to = Layout {
            start: &region.start,
            shape: &region.shape,
            skipped: 0,
        };
        Runs::new(part, from, to, size).copy(&chunk, &mut whole);
        let encoded = encode(&pipeline, &alike, &chunk);
        let key = array.keys.candidates(&grid.indices(index)).remove(0);
        let path = folder.join(String::from_utf8(key).unwrap());
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, encoded).unwrap();
        true
    });
    whole
}

#[test]
fn chunks_of_one_byte_are_read_in_bounded_parts() {
    let case = Case {
        shape: vec![40_000],
        chunk: vec![1],
        inner: None,
        edges: None,
        data_type: "uint8",
        fortran: false,
        big: false,
        compressed: false,
        // Only one of the 100 chunks is stored.
        stored: (0..100).map(|number| number == 41).collect(),
    };
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("a.zarr");
    std::fs::create_dir(&store).unwrap();
    let whole = write(&case, &store);
    let view = common::files(&store);
    assert!(common::read(&view, "a.raw").unwrap() == whole);
    let file = view
        .open(&UNLIMITED, &Key::new("a.raw").unwrap())
        .unwrap()
        .file;
    assert!(file.read_at(&UNLIMITED, 11, 39_000).unwrap()[..] == whole[11..39_011]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Invariant (reading): Any range of a flat file is that slice of the whole file.
    #[test]
    fn any_range_is_the_slice_of_the_whole(
        case in cases(),
        ranges in prop::collection::vec((any::<u64>(), any::<u64>()), 24),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("a.zarr");
        std::fs::create_dir(&store).unwrap();
        let whole = write(&case, &store);
        let view = common::files(&store);
        prop_assert_eq!(&common::read(&view, "a.raw").unwrap(), &whole);
        let npy = common::read(&view, "a.npy").unwrap();
        let header = npy.len() - whole.len();
        prop_assert_eq!(header % 64, 0);
        prop_assert_eq!(&npy[header..], &whole[..]);
        let file = view.open(&UNLIMITED, &Key::new("a.npy").unwrap()).unwrap().file;
        for (a, b) in ranges {
            let (a, b) = (a % (npy.len() as u64 + 9), b % (npy.len() as u64 + 9));
            let (start, end) = (a.min(b), a.max(b));
            let expected = &npy[npy.len().min(start as usize)..npy.len().min(end as usize)];
            let read = file.read_at(&UNLIMITED, start, (end - start) as usize).unwrap();
            prop_assert_eq!(&read[..], expected);
            if let Ok(now) = file.read_at(&WITHOUT_WAITING, start, (end - start) as usize) {
                prop_assert_eq!(&now[..], expected);
            }
        }
    }
}
