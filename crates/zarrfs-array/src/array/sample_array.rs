//! Builds an array in memory for the tests of this folder.
//!
//! The array's type is `uint8`, and each element is computed from its position and a seed.
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

/// A store in memory whose answers have a TTL of a minute.
struct MinuteStore(Arc<dyn Store>, StoreInfo);

impl Layer for MinuteStore {
    fn below(&self) -> &dyn Store {
        &*self.0
    }

    fn info(&self) -> &StoreInfo {
        &self.1
    }
}

/// An array of known elements, and the store in memory that contains it.
pub(super) struct SampleArray {
    shape: Vec<u64>,
    grid: Grid,
    store: MemoryStore,
}

impl SampleArray {
    /// Creates the array and stores all its chunks, with elements computed from seed 0.
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

    /// Puts the metadata document of an array of the given shape; returns the document's key.
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

    /// Puts a chunk with elements computed from `seed`; returns the chunk's key.
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

    pub(super) fn open(&self, memory: u64) -> Arc<OpenArray> {
        self.arrays(memory).1
    }

    /// Opens the array with a memory budget of `memory` bytes; returns also the set of open arrays.
    pub(super) fn arrays(&self, memory: u64) -> (Arrays, Arc<OpenArray>) {
        SampleArray::arrays_of(Arc::new(self.store.clone()), memory)
    }

    /// Returns the store in memory that contains the array.
    pub(super) fn store(&self) -> MemoryStore {
        self.store.clone()
    }

    /// Opens the array at the root of a store with a memory budget of `memory` bytes.
    pub(super) fn arrays_of(store: Arc<dyn Store>, memory: u64) -> (Arrays, Arc<OpenArray>) {
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
        let store = MinuteStore(store, info);
        let hierarchy = Arc::new(Hierarchy::new(Arc::new(store)));
        let root = hierarchy.root(&UNLIMITED).unwrap().unwrap();
        let arrays = Arrays::new(hierarchy, Engine::new(limits, Arc::default()));
        let array = arrays.open(&root).unwrap();
        (arrays, array)
    }
}

pub(super) fn values(range: Range<u64>, seed: u64) -> Vec<u8> {
    range.map(|place| value(place, seed)).collect()
}

fn value(place: u64, seed: u64) -> u8 {
    ((place ^ seed << 40).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

/// Reads a range of a file as the daemon does for the kernel: first without waiting, then with requests to the store.
pub(super) fn read(file: &FlatFile, range: Range<u64>) -> Vec<u8> {
    let cached = file.read(&WITHOUT_WAITING, range.clone());
    cached
        .unwrap_or_else(|_| file.read(&UNLIMITED, range).unwrap())
        .to_vec()
}
