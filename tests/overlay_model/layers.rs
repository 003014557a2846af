//! The layers of the model, as `src/overlay/layer.rs` and `layered_store.rs` have them: files under keys, whiteouts, a
//! store below. A file is a number; the file system's and the store's calls are one step each.

use std::collections::BTreeMap;
use std::sync::Arc;

use loom::sync::{Mutex, RwLock};

use crate::Protection;

/// A key: one name.
pub(crate) type Key = char;

/// An object of the store: its content and its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) content: u8,
    pub(crate) version: u32,
}

/// The store that commits write to.
pub(crate) struct Store(Mutex<(BTreeMap<Key, Object>, u32)>);

impl Store {
    pub(crate) fn new(objects: &[(Key, u8)]) -> Store {
        let store = Store(Mutex::default());
        for &(key, content) in objects {
            store.put(key, content);
        }
        store
    }

    pub(crate) fn get(&self, key: Key) -> Option<Object> {
        self.0.lock().unwrap().0.get(&key).copied()
    }

    pub(crate) fn put(&self, key: Key, content: u8) -> u32 {
        let mut state = self.0.lock().unwrap();
        state.1 += 1;
        let version = state.1;
        state.0.insert(key, Object { content, version });
        version
    }

    /// Returns all contents.
    pub(crate) fn all(&self) -> Vec<(Key, u8)> {
        let objects = &self.0.lock().unwrap().0;
        let all = objects.iter().map(|(key, object)| (*key, object.content));
        all.collect()
    }

    pub(crate) fn erase(&self, key: Key) {
        self.0.lock().unwrap().0.remove(&key);
    }
}

/// A file of the upper folder. A large one is changed in place.
pub(crate) struct File {
    pub(crate) content: Mutex<u8>,
    pub(crate) is_large: bool,
}

impl File {
    pub(crate) fn new(content: u8, is_large: bool) -> Arc<File> {
        Arc::new(File {
            content: Mutex::new(content),
            is_large,
        })
    }

    pub(crate) fn read(&self) -> u8 {
        *self.content.lock().unwrap()
    }
}

/// What the journal of a layer says.
#[derive(Default)]
pub(crate) struct Records {
    pub(crate) whiteouts: BTreeMap<Key, Option<Key>>,
    /// The versions that a commit has put.
    pub(crate) committed: BTreeMap<Key, u32>,
}

/// A layer of changes.
#[derive(Default)]
pub(crate) struct ChangeLayer {
    pub(crate) shape: RwLock<()>,
    pub(crate) files: Mutex<BTreeMap<Key, Arc<File>>>,
    pub(crate) records: Mutex<Records>,
}

/// Where a layer finds a key.
pub(crate) enum Located {
    Upper,
    Lower(Key),
    Hidden,
}

impl ChangeLayer {
    pub(crate) fn locate(&self, key: Key) -> Located {
        let _shape = self.shape.read().unwrap();
        if self.file(key).is_some() {
            return Located::Upper;
        }
        self.lower_key(key).map_or(Located::Hidden, Located::Lower)
    }

    pub(crate) fn file(&self, key: Key) -> Option<Arc<File>> {
        self.files.lock().unwrap().get(&key).cloned()
    }

    pub(crate) fn lower_key(&self, key: Key) -> Option<Key> {
        let records = self.records.lock().unwrap();
        records.whiteouts.get(&key).copied().unwrap_or(Some(key))
    }

    pub(crate) fn is_changed(&self, key: Key) -> bool {
        !matches!(self.locate(key), Located::Lower(lower) if lower == key)
    }

    pub(crate) fn record(&self, whiteouts: Vec<(Key, Option<Key>)>) {
        if !whiteouts.is_empty() {
            self.records.lock().unwrap().whiteouts.extend(whiteouts);
        }
    }
}

/// Where a key's content is, with the version of an object.
#[derive(Clone, Copy)]
pub(crate) enum Resolved {
    Upper,
    Lower(Key, u32),
}

/// What a layer shows over a frozen one, or over the store.
pub(crate) struct LayeredStore {
    pub(crate) layer: Arc<ChangeLayer>,
    pub(crate) store: Arc<Store>,
    pub(crate) frozen: Option<Arc<LayeredStore>>,
    pub(crate) without: Option<Protection>,
}

impl LayeredStore {
    /// Returns the version of what lies below; 0 for a file of the frozen layer, whose object comes later.
    pub(crate) fn head_below(&self, lower: Key) -> Option<u32> {
        match &self.frozen {
            None => self.store.get(lower).map(|object| object.version),
            Some(frozen) => frozen.find(lower).map(|found| match found {
                Resolved::Upper => 0,
                Resolved::Lower(_, version) => version,
            }),
        }
    }

    pub(crate) fn find(&self, key: Key) -> Option<Resolved> {
        loop {
            let lower = match self.layer.locate(key) {
                Located::Upper => return Some(Resolved::Upper),
                Located::Hidden => return None,
                Located::Lower(lower) => lower,
            };
            let version = self.head_below(lower);
            if self.is_located_still(Protection::RelocateInFind, key, lower) {
                return version.map(|version| Resolved::Lower(lower, version));
            }
        }
    }

    /// Whether a key still is what `lower` is below; so is each one without this protection.
    fn is_located_still(&self, protection: Protection, key: Key, lower: Key) -> bool {
        self.without == Some(protection)
            || matches!(self.layer.locate(key), Located::Lower(now) if now == lower)
    }

    /// Returns the content of a key, as a commit's readers and `get` of the overlay read it.
    pub(crate) fn get(&self, key: Key) -> Option<u8> {
        loop {
            let lower = match self.layer.locate(key) {
                Located::Upper => return self.layer.file(key).map(|file| file.read()),
                Located::Hidden => return None,
                Located::Lower(lower) => lower,
            };
            let found = self.get_below(lower);
            if self.is_located_still(Protection::RelocateInGet, key, lower) {
                return found;
            }
        }
    }

    pub(crate) fn get_below(&self, lower: Key) -> Option<u8> {
        match &self.frozen {
            Some(frozen) => frozen.get(lower),
            None => self.store.get(lower).map(|object| object.content),
        }
    }

    /// Opens what the store has; which key that is, the frozen layer tells.
    pub(crate) fn open_below(&self, lower: Key) -> Option<Object> {
        match &self.frozen {
            None => self.store.get(lower),
            Some(frozen) => match frozen.layer.locate(lower) {
                Located::Lower(stored) => frozen.store.get(stored),
                Located::Upper => frozen.layer.file(lower).map(|file| Object {
                    content: file.read(),
                    version: 0,
                }),
                Located::Hidden => None,
            },
        }
    }

    /// Returns the file of a key, if this layer has it.
    pub(crate) fn frozen_file(&self, key: Key) -> Option<Arc<File>> {
        match self.layer.locate(key) {
            Located::Upper => self.layer.file(key),
            _ => None,
        }
    }
}
