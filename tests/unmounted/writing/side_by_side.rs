//! Tests that one write reads its partially written chunks in parallel.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use zarr_format::error::Result;
use zarrfs_array::array::Limits;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::layer::Layer;
use zarrfs_store::{ByteRange, Key, Meta, Object, Reader, Store};

use crate::writing::array_spec::ArraySpec;
use crate::writing::fixture::{Fixture, all, limits};
use zarrfs_store::request_context::{RequestContext, UNLIMITED};

/// Maximum time that a read of a chunk waits for other reads.
const PATIENCE: Duration = Duration::from_secs(10);

/// A store that delays reads of chunks until `party` of them are waiting.
struct MeetingStore {
    memory: MemoryStore,
    /// The number of concurrent reads of chunks for which each of them waits.
    party: usize,
    waiting: Mutex<usize>,
    came: Condvar,
    /// The maximum number of concurrent reads of chunks.
    most: AtomicUsize,
}

impl MeetingStore {
    fn meet(&self, key: &Key) {
        if !key.as_bytes().starts_with(b"a/c/") {
            return;
        }
        let mut waiting = self.waiting.lock();
        *waiting += 1;
        self.most.fetch_max(*waiting, Ordering::SeqCst);
        self.came.notify_all();
        let are_few = |_: &mut usize| self.most.load(Ordering::SeqCst) < self.party;
        self.came.wait_while_for(&mut waiting, are_few, PATIENCE);
        *waiting -= 1;
    }
}

impl Layer for MeetingStore {
    fn below(&self) -> &dyn Store {
        &self.memory
    }

    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        self.meet(key);
        self.memory.get(context, key, limit)
    }

    fn get_range(
        &self,
        context: &RequestContext,
        key: &Key,
        range: ByteRange,
    ) -> Result<Option<Object>> {
        self.meet(key);
        self.memory.get_range(context, key, range)
    }

    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>> {
        self.meet(key);
        self.memory.open(context, key, known)
    }
}

/// Writes the first of an array's two rows, which is divided into four chunks of `width` columns. Returns the maximum
/// number of concurrent reads of chunks.
fn read_at_a_time(party: usize, width: usize, memory: u64) -> usize {
    let spec = ArraySpec {
        shape: vec![2, 4 * width as u64],
        chunk: vec![2, width as u64],
        inner: Vec::new(),
        uneven: false,
        data_type: "uint8",
        big: false,
        compressed: true,
        index_at_start: false,
    };
    let stored = spec.store();
    let fixture = Fixture::of(&stored);
    let written = fixture.file("a", "raw");
    written
        .write_at(&UNLIMITED, 0, &vec![2; 8 * width])
        .unwrap();
    fixture.array("a").flush(&UNLIMITED).unwrap();
    let store = Arc::new(MeetingStore {
        memory: stored,
        party,
        waiting: Mutex::new(0),
        came: Condvar::new(),
        most: AtomicUsize::new(0),
    });
    let limits = Limits {
        fetches: 4,
        ..limits(memory)
    };
    let fixture = Fixture::new(store.clone(), limits);
    let file = fixture.file("a", "raw");
    file.write_at(&UNLIMITED, 0, &vec![3; 4 * width]).unwrap();
    assert!(all(&file) == [vec![3; 4 * width], vec![2; 4 * width]].concat());
    fixture.array("a").flush(&UNLIMITED).unwrap();
    assert!(Fixture::of(&store.memory).read("a") == all(&file));
    store.most.load(Ordering::SeqCst)
}

#[test]
fn chunks_of_one_write_are_read_concurrently() {
    assert_eq!(read_at_a_time(4, 2, 64 << 20), 4);
}

#[test]
fn little_memory_reads_one_chunk_at_a_time() {
    assert_eq!(read_at_a_time(1, 64 << 10, 1 << 20), 1);
}
