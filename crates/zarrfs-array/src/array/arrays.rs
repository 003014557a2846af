//! Opens the arrays of a hierarchy, and owns their write buffers.
//!
//! All users of an array share one `OpenArray` as long as its metadata describe the same files: a change of its
//! attributes does not invalidate it, and cached chunks serve all users. Dirty chunks survive a change of the metadata
//! as long as a stored chunk still decodes to the same elements. The memory of an open array is charged to a budget
//! until its last holder drops the array. An array stays open after its last use until the budget needs the memory; if
//! the budget had no room for it, it closes at once.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;

use crate::array::stored_array::StoredArray;
use crate::array::write_buffer::WriteBuffer;
use crate::array::writers::{CLOSE_WAIT, WrittenKey, WrittenKeys, busy};
use crate::array::{Engine, OpenArray};
use crate::hierarchy::{Hierarchy, NodeEntry};
use zarr_format::error::{Error, Result};
use zarr_format::model::Array;
use zarrfs_store::Key;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::aged_map::{AgedMap, Minute};
use zarrfs_store::sync::budget::{Evict, MemoryBudget, Priority};

/// The open arrays of a hierarchy.
pub struct Arrays {
    hierarchy: Arc<Hierarchy>,
    engine: Arc<Engine>,
    open: Arc<OpenArrays>,
    /// Lock that is held while an array is opened, so that two threads do not open the same array twice.
    opening: Mutex<()>,
    buffers: Mutex<WriteBuffers>,
    written_keys: Arc<WrittenKeys>,
}

/// The write buffers (dirty chunks) of all arrays, by the path of the array.
struct WriteBuffers {
    by_path: HashMap<Key, Arc<WriteBuffer>>,
    /// Number of write buffers from which on those without dirty chunks and without open files are dropped.
    swept_at: usize,
}

const MIN_SWEPT: usize = 1 << 10;

impl WriteBuffers {
    fn sweep(&mut self) {
        if self.by_path.len() < self.swept_at {
            return;
        }
        self.by_path
            .retain(|_, dirty| Arc::strong_count(dirty) > 1 || !dirty.is_empty());
        self.by_path.shrink_to_fit();
        self.swept_at = MIN_SWEPT.max(2 * self.by_path.len());
    }
}

impl Arrays {
    /// Creates the set of arrays of a hierarchy; none is open yet.
    pub fn new(hierarchy: Arc<Hierarchy>, engine: Arc<Engine>) -> Arrays {
        Arrays {
            hierarchy,
            open: OpenArrays::new(&engine.metadata),
            engine,
            opening: Mutex::default(),
            buffers: Mutex::new(WriteBuffers {
                by_path: HashMap::new(),
                swept_at: MIN_SWEPT,
            }),
            written_keys: Arc::default(),
        }
    }

    /// Returns the memory budget of decoded chunks and of all other cached data of the store.
    pub fn memory(&self) -> &Arc<MemoryBudget> {
        self.engine.cache.budget()
    }

    /// Returns the write buffer of an array, which all open files of the array share.
    fn write_buffer(&self, entry: &NodeEntry, array: &Arc<Array>) -> Arc<WriteBuffer> {
        let mut all = self.buffers.lock();
        if let Some(buffer) = all.by_path.get(&entry.path)
            && buffer.fits(array)
        {
            return buffer.clone();
        }
        all.sweep();
        let buffer = Arc::new(WriteBuffer::new(
            array,
            self.engine.write_budget.dirty.clone(),
        ));
        all.by_path.insert(entry.path.clone(), buffer.clone());
        buffer
    }

    /// Stores the dirty chunks of all arrays at a path or below it.
    pub fn flush_below(&self, context: &RequestContext, path: &Key) -> Result<()> {
        let mut outcome = Ok(());
        for writer in self.engine.write_budget.writers() {
            if writer.array.path.below(path).is_some() {
                outcome = outcome.and(writer.flush(context));
            }
        }
        // An array whose metadata have become invalid may have dirty chunks but has no writer; flushing it returns its
        // error.
        for array in self.unflushed() {
            if array.below(path).is_some() && outcome.is_ok() {
                outcome = self.flush_closed(context, &array);
            }
        }
        outcome
    }

    /// Whether any array has dirty chunks.
    pub fn has_dirty_chunks(&self) -> bool {
        let is_written = |buffer: &Arc<WriteBuffer>| !buffer.is_empty();
        if self.buffers.lock().by_path.values().any(is_written) {
            return true;
        }
        let writers = self.engine.write_budget.writers();
        writers.iter().any(|writer| is_written(&writer.buffer))
    }

    /// Returns the arrays that are open for writing through decoded files, or have dirty chunks that could not be
    /// stored, sorted by path; the flag says whether the array is open for writing.
    pub fn written_arrays(&self) -> Vec<(Key, bool)> {
        let mut arrays = Vec::new();
        for (path, buffer) in &self.buffers.lock().by_path {
            let is_open = buffer.writers.is_open();
            if is_open || !buffer.is_empty() {
                arrays.push((path.clone(), is_open));
            }
        }
        arrays.sort();
        arrays
    }

    /// Returns the write buffer of the array that a chunk key belongs to, if the array is open for writing.
    fn open_buffer_of(&self, key: &Key) -> Option<Arc<WriteBuffer>> {
        let buffers = self.buffers.lock();
        let mut buffers = buffers.by_path.values();
        let open = buffers.find(|buffer| buffer.writers.is_open() && buffer.has_key(key));
        open.cloned()
    }

    /// Refuses all further writes to decoded files, because the process is about to end. The dirty chunks can still be
    /// stored; a later write fails, since it would be lost.
    pub fn refuse_writes(&self) {
        self.engine.write_budget.dirty.close();
    }

    /// Flushes the arrays that have dirty chunks and are not open for writing: their last close could not store these
    /// chunks. Chunks that still cannot be stored stay dirty; the errors are logged and returned.
    pub fn flush_closed_arrays(&self, context: &RequestContext) -> Vec<(Key, Error)> {
        let mut failed = Vec::new();
        for path in self.unflushed() {
            if let Err(error) = self.flush_closed(context, &path) {
                log::error!("{path}: changes could not be stored: {error}");
                failed.push((path, error));
            }
        }
        failed
    }

    /// Drops the dirty chunks whose keys are at a path or below it, and returns their number. A program that has a file
    /// of one of these arrays open for writing gets `Changed` at the next fsync or close.
    pub fn discard_dirty(&self, path: &Key) -> u64 {
        // The buffers are copied out of the table, because `discard` waits for other users of a chunk and the lock of
        // the table must not be held that long.
        let buffers: Vec<_> = {
            let table = self.buffers.lock();
            let buffers = table.by_path.values();
            buffers.filter(|it| !it.is_empty()).cloned().collect()
        };
        buffers.iter().map(|buffer| buffer.discard(path)).sum()
    }

    /// Returns the arrays that have dirty chunks and are not open for writing.
    fn unflushed(&self) -> Vec<Key> {
        let written = self.written_arrays().into_iter();
        let closed = written.filter(|(_, is_open)| !is_open);
        closed.map(|(path, _)| path).collect()
    }

    fn flush_closed(&self, context: &RequestContext, path: &Key) -> Result<()> {
        match self.hierarchy.node(context, path)? {
            Some(entry) => self.open(&entry)?.flush(context),
            None => Err(Error::not_found(path)),
        }
    }

    /// Opens the array of a node; `Invalid` if the node is not an array.
    pub fn open(&self, entry: &Arc<NodeEntry>) -> Result<Arc<OpenArray>> {
        let is_same = |array: &Arc<OpenArray>| array.stored.is_same(entry);
        if let Some(array) = self.open.get(&entry.path).filter(is_same) {
            return Ok(array);
        }
        let array = entry.array();
        let array = array.ok_or_else(|| {
            Error::invalid(&entry.path, "not an array; 'zarrfs tree' lists the arrays")
        })?;
        let array = Arc::new(array.without_attributes());
        let room = self.engine.room_of(&array);
        let _opening = self.opening.lock();
        if let Some(array) = self.open.get(&entry.path).filter(is_same) {
            return Ok(array);
        }
        let buffer = self.write_buffer(entry, &array);
        let (hierarchy, engine) = (self.hierarchy.clone(), self.engine.clone());
        let stored = StoredArray::new(entry, array, hierarchy, engine);
        let array = Arc::new(OpenArray::new(stored, buffer, room));
        if let Ok(writer) = array.writer()
            && !writer.buffer.is_empty()
        {
            self.engine.write_budget.register(writer);
        }
        self.open.put(&array);
        Ok(array)
    }

    /// Registers a chunk key that is being changed or opened for writing. `Busy` if it is a chunk of an array whose
    /// decoded file stays open for writing.
    pub fn begin_writing_key(&self, key: &Key) -> Result<WrittenKey> {
        let end = Instant::now() + CLOSE_WAIT;
        loop {
            if let Some(array) = self.open_buffer_of(key) {
                array.writers.wait_for_none(key, end)?;
            }
            let written = self.written_keys.add(key);
            // The array's decoded file may have been opened after the check above. It waits until no chunk key is open
            // for writing, so the key is unregistered again, and the loop waits until the decoded file is closed.
            if self.open_buffer_of(key).is_none() {
                return Ok(written);
            }
        }
    }

    /// Fails with `Busy` if a program has a chunk key of the array open for writing.
    pub fn check_no_open_key(&self, array: &OpenArray) -> Result<()> {
        let is_chunk = |key: &Key| array.buffer.has_key(key);
        match self.written_keys.wait_for_none(is_chunk) {
            Some(key) => Err(busy(array.path(), &key.to_string())),
            None => Ok(()),
        }
    }
}

/// The open arrays of a hierarchy, by path: all that are in use, and the most recently used ones.
pub(super) struct OpenArrays {
    state: Mutex<CachedArrays>,
}

struct CachedArrays {
    /// The most recently used arrays, which stay open even if no program uses them.
    cached: AgedMap<Key, Arc<OpenArray>>,
    /// The arrays that a program uses; entries of arrays that were closed are removed later.
    used: HashMap<Key, Weak<OpenArray>>,
    /// The length of `used` at which the entries of closed arrays are removed.
    swept_at: usize,
}

impl OpenArrays {
    /// Creates an empty set of open arrays; the memory budget closes unused ones when memory is short.
    pub(super) fn new(memory: &Arc<MemoryBudget>) -> Arc<OpenArrays> {
        let arrays = Arc::new(OpenArrays {
            state: Mutex::new(CachedArrays {
                cached: AgedMap::default(),
                used: HashMap::new(),
                swept_at: MIN_SWEPT,
            }),
        });
        let weak: Weak<OpenArrays> = Arc::downgrade(&arrays);
        memory.register(Priority::OpenArrays, weak);
        arrays
    }

    pub(super) fn get(&self, path: &Key) -> Option<Arc<OpenArray>> {
        let mut state = self.state.lock();
        if let Some(array) = state.cached.get(path) {
            return Some(array.clone());
        }
        let array = state.used.get(path)?.upgrade()?;
        // The array was not in the cache, so putting it there replaces no other array.
        let _ = state.keep(&array);
        Some(array)
    }

    pub(super) fn put(&self, array: &Arc<OpenArray>) {
        let mut state = self.state.lock();
        let replaced = state.keep(array);
        state
            .used
            .insert(array.path().clone(), Arc::downgrade(array));
        state.sweep();
        drop(state);
        drop(replaced);
    }
}

impl CachedArrays {
    /// Caches an open array if its memory is charged to the budget; returns the array that had the same path in the
    /// cache.
    fn keep(&mut self, array: &Arc<OpenArray>) -> Option<Arc<OpenArray>> {
        array.room.as_ref()?;
        self.cached.put(array.path().clone(), array.clone())
    }

    fn sweep(&mut self) {
        if self.used.len() > self.swept_at {
            self.used.retain(|_, array| array.strong_count() > 0);
            self.used.shrink_to_fit();
            self.swept_at = MIN_SWEPT.max(2 * self.used.len());
        }
    }
}

impl Evict for OpenArrays {
    fn evict_one(&self, before: Minute) -> bool {
        let evicted = self.state.lock().cached.pop_unused(before);
        evicted.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::array::sample_array::SampleArray;

    /// Invariant of `one_file_of_an_array_is_open_for_writing_at_a_time`.
    ///
    /// The decoded file is opened after a writer of a chunk key found it closed, and before the chunk key is
    /// registered.
    #[test]
    fn writing_a_chunk_key_waits_for_a_decoded_file_being_opened() {
        let (arrays, array) = SampleArray::new(&[4], &[2]).arrays(1 << 20);
        let key = Key::new("c/0").unwrap();
        thread::scope(|scope| {
            let registering = arrays.written_keys.open.lock();
            let key = scope.spawn(|| arrays.begin_writing_key(&key).map(drop));
            thread::sleep(Duration::from_millis(20));
            array.begin_writing("a.npy").unwrap();
            drop(registering);
            thread::sleep(Duration::from_millis(20));
            assert!(!key.is_finished());
            array.end_writing();
            key.join().unwrap().unwrap();
        });
    }
}
