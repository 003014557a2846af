//! The arrays of a hierarchy that are open, and what was written to them.
//!
//! An array is the same `OpenArray` for all who use it, as long as its metadata mean the same files: a change of its
//! attributes disturbs none of them, and what was read for one serves the others. What was written stays while the
//! metadata change, as long as chunks keep their meaning.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Weak};

use lru::LruCache;

use crate::array::dirty_chunks::DirtyChunks;
use crate::array::{Engine, OpenArray, array_of};
use crate::error::Result;
use crate::hierarchy::{Hierarchy, NodeEntry};
use crate::store::Key;

/// The open arrays of a hierarchy.
pub struct Arrays {
    hierarchy: Arc<Hierarchy>,
    engine: Arc<Engine>,
    open: Mutex<OpenArrays>,
    /// What was written to arrays and is not stored yet, by their paths.
    dirty: Mutex<HashMap<Key, Arc<DirtyChunks>>>,
}

/// The arrays that are open, by their paths.
struct OpenArrays {
    /// Those that were used last, kept open whether somebody uses them or not.
    kept: LruCache<Key, Arc<OpenArray>>,
    /// Those that are in use, and some that no longer are.
    used: HashMap<Key, Weak<OpenArray>>,
    /// The number of arrays in use at which the others among them are dropped.
    most_used: usize,
}

impl OpenArrays {
    fn new() -> OpenArrays {
        OpenArrays {
            kept: LruCache::new(MAX_OPEN_ARRAYS),
            used: HashMap::new(),
            most_used: MOST_USED,
        }
    }

    /// Returns the array at a path, if it is open.
    fn get(&mut self, path: &Key) -> Option<Arc<OpenArray>> {
        if let Some(array) = self.kept.get(path) {
            return Some(array.clone());
        }
        let array = self.used.get(path)?.upgrade()?;
        self.kept.put(path.clone(), array.clone());
        Some(array)
    }

    fn put(&mut self, path: &Key, array: &Arc<OpenArray>) {
        self.kept.put(path.clone(), array.clone());
        self.used.insert(path.clone(), Arc::downgrade(array));
        if self.used.len() > self.most_used {
            self.used.retain(|_, array| array.strong_count() > 0);
            self.most_used = MOST_USED.max(2 * self.used.len());
        }
    }
}

/// The least number of arrays in use at which those are dropped that no longer are.
const MOST_USED: usize = 2 * MAX_OPEN_ARRAYS.get();

/// Number of arrays that are kept open.
const MAX_OPEN_ARRAYS: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

impl Arrays {
    /// Builds the set of arrays of a hierarchy; none is open yet.
    pub fn new(hierarchy: Arc<Hierarchy>, engine: Arc<Engine>) -> Arrays {
        Arrays {
            hierarchy,
            engine,
            open: Mutex::new(OpenArrays::new()),
            dirty: Mutex::default(),
        }
    }

    /// Returns what was written to an array through any handle.
    fn dirty(&self, entry: &NodeEntry) -> Result<Arc<DirtyChunks>> {
        let array = array_of(entry)?;
        let mut all = self.dirty.lock();
        if let Some(dirty) = all.get(&entry.path)
            && dirty.fits(array)
        {
            return Ok(dirty.clone());
        }
        if all.len() >= 2 * MAX_OPEN_ARRAYS.get() {
            all.retain(|_, dirty| Arc::strong_count(dirty) > 1 || !dirty.is_empty());
        }
        let dirty = Arc::new(DirtyChunks::new(array, self.engine.dirty_bytes.clone()));
        all.insert(entry.path.clone(), dirty.clone());
        Ok(dirty)
    }

    /// Stores all that was written to the arrays at a path and below it.
    pub fn flush_below(&self, path: &Key) -> Result<()> {
        let mut outcome = Ok(());
        for array in self.written_below(path) {
            outcome = outcome.and(array.flush());
        }
        outcome
    }

    /// Drops all that was written to the arrays at a path and below it, and is not stored.
    pub fn discard_below(&self, path: &Key) {
        for array in self.written_below(path) {
            array.discard();
        }
    }

    /// Whether something was written that is not stored yet.
    pub fn are_written(&self) -> bool {
        let writers = self.engine.writers();
        let mut open = writers.iter().filter_map(Weak::upgrade);
        open.any(|array| !array.dirty.is_empty())
    }

    fn written_below(&self, path: &Key) -> Vec<Arc<OpenArray>> {
        let writers = self.engine.writers();
        let writers = writers.iter().filter_map(Weak::upgrade);
        writers
            .filter(|array| array.entry.path.below(path).is_some())
            .collect()
    }

    /// Opens the array that a node is; `Invalid` if it is none.
    pub fn open(&self, entry: &Arc<NodeEntry>) -> Result<Arc<OpenArray>> {
        let mut open = self.open.lock();
        if let Some(array) = open.get(&entry.path)
            && array.is_same(entry)
        {
            return Ok(array);
        }
        let array = Arc::new(OpenArray::new(
            entry.clone(),
            self.dirty(entry)?,
            self.hierarchy.clone(),
            self.engine.clone(),
        )?);
        if !array.dirty.is_empty() {
            self.engine.note_writer(&array);
        }
        open.put(&entry.path, &array);
        Ok(array)
    }
}
