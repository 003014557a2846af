//! Builds an array in memory for the tests of this folder.
//!
//! Its type is `uint8`, and each element is computed from its place and a seed.
//!
//! The TTL of the store is a minute, so that reads are answered from memory; its clock is stopped.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::array::flat_file::FlatFile;
use crate::array::{Arrays, Engine, Limits, OpenArray};
use crate::hierarchy::Hierarchy;
use zarr_format::grid::{ChunkIndex, Grid, Region};
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::layer::Layer;
use zarrfs_store::request_context::{UNLIMITED, WITHOUT_WAITING};
use zarrfs_store::sync::clock::Clock;
use zarrfs_store::{Key, Store, StoreInfo};

/// A store with a TTL of a minute.
struct MinuteStore(MemoryStore, StoreInfo);

impl Layer for MinuteStore {
    fn below(&self) -> &dyn Store {
        &self.0
    }

    fn info(&self) -> &StoreInfo {
        &self.1
    }
}

/// The array and its store.
pub(super) struct SampleArray {
    shape: Vec<u64>,
    grid: Grid,
    store: MemoryStore,
}

impl SampleArray {
    /// Creates an array and stores chunks whose elements are computed with seed 0.
    pub(super) fn new(shape: &[u64], chunk: &[u64]) -> SampleArray {
        let sample = SampleArray {
            shape: shape.to_vec(),
            grid: Grid::new(shape, chunk).unwrap(),
            store: MemoryStore::default(),
        };
        sample.put_document(shape);
        for number in 0..sample.grid.len() {
            sample.put(number, 0);
        }
        sample
    }

    /// Puts the document of an array of this shape; returns its key.
    pub(super) fn put_document(&self, shape: &[u64]) -> Key {
        let document = serde_json::json!({
            "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": "uint8",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": self.grid.chunk_shape()}},
            "chunk_key_encoding": {"name": "default"}, "fill_value": 0, "codecs": ["bytes"]
        });
        let key = Key::new("zarr.json").unwrap();
        self.store
            .set(key.clone(), document.to_string().into_bytes());
        key
    }

    /// Puts a chunk with the elements of a seed; returns its key.
    pub(super) fn put(&self, number: u64, seed: u64) -> Key {
        let indices = self.grid.indices(ChunkIndex(number));
        let place = |(&index, &length): (&u64, &u64)| index * length;
        let starts = indices.iter().zip(self.grid.chunk_shape()).map(place);
        let region = Region {
            start: starts.collect(),
            shape: self.grid.chunk_shape().into(),
        };
        let names = indices.iter().map(|index| format!("/{index}"));
        let key = Key::new(format!("c{}", names.collect::<String>())).unwrap();
        self.store.set(key.clone(), self.elements(&region, seed));
        key
    }

    /// Returns the elements of a box in C order.
    pub(super) fn elements(&self, region: &Region, seed: u64) -> Vec<u8> {
        let (mut at, mut bytes) = (region.start.clone(), Vec::new());
        loop {
            let place = at.iter().zip(&self.shape);
            let place = place.fold(0, |place: u64, (at, length)| place * length + at);
            bytes.push(value(place, seed));
            if !region.step(&mut at) {
                return bytes;
            }
        }
    }

    /// Opens the array with `memory` bytes of memory.
    pub(super) fn open(&self, memory: u64) -> Arc<OpenArray> {
        self.arrays(memory).1
    }

    /// Opens the array with `memory` bytes of memory; returns the arrays of its store too.
    pub(super) fn arrays(&self, memory: u64) -> (Arrays, Arc<OpenArray>) {
        let limits = Limits {
            memory,
            max_chunk: 1 << 20,
            timeout: Duration::from_secs(20),
            fetches: 0,
            lossy: false,
        };
        let info = StoreInfo {
            clock: Clock::stopped(),
            ..StoreInfo::new(Duration::from_secs(60))
        };
        let store = MinuteStore(self.store.clone(), info);
        let hierarchy = Arc::new(Hierarchy::new(Arc::new(store)));
        let root = hierarchy.root(&UNLIMITED).unwrap().unwrap();
        let arrays = Arrays::new(hierarchy, Engine::new(limits, Arc::default()));
        let array = arrays.open(&root).unwrap();
        (arrays, array)
    }
}

/// Returns the elements of a range of the whole array.
pub(super) fn values(range: Range<u64>, seed: u64) -> Vec<u8> {
    range.map(|place| value(place, seed)).collect()
}

fn value(place: u64, seed: u64) -> u8 {
    ((place ^ seed << 40).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

/// Returns the bytes of a range, read as for the kernel.
pub(super) fn read(file: &FlatFile, range: Range<u64>) -> Vec<u8> {
    let cached = file.read(&WITHOUT_WAITING, range.clone());
    cached
        .unwrap_or_else(|_| file.read(&UNLIMITED, range).unwrap())
        .to_vec()
}
