//! The core of the model: what `src/overlay/mod.rs`, `namespace/` and `commit/` do under which lock.
//!
//! `names` is held while names change and while layers are exchanged, never during a request to the store. Other
//! programs do not change the store here, so that bases and conflicts are left out, and so is the journal.

use std::sync::Arc;

use loom::sync::{Mutex, RwLock};

use crate::Protection;
use crate::layers::{ChangeLayer, File, Key, LayeredStore, Located, Store};
use crate::open_file::{ContentSource, OpenFile, OpenFileTable, OpenedAs};

pub(crate) struct Core {
    pub(crate) names: Mutex<()>,
    top: RwLock<Arc<LayeredStore>>,
    pub(crate) store: Arc<Store>,
    pub(crate) open_files: Mutex<OpenFileTable>,
    without: Option<Protection>,
}

impl Core {
    /// Builds an overlay with these files in its layer, over a store of these objects.
    pub(crate) fn new(
        files: &[(Key, Arc<File>)],
        objects: &[(Key, u8)],
        without: Option<Protection>,
    ) -> Arc<Core> {
        let store = Arc::new(Store::new(objects));
        let layer = ChangeLayer {
            files: Mutex::new(files.iter().cloned().collect()),
            ..ChangeLayer::default()
        };
        let top = LayeredStore {
            layer: Arc::new(layer),
            store: store.clone(),
            frozen: None,
            without,
        };
        Arc::new(Core {
            names: Mutex::new(()),
            top: RwLock::new(Arc::new(top)),
            store,
            open_files: Mutex::default(),
            without,
        })
    }

    pub(crate) fn has(&self, protection: Protection) -> bool {
        self.without != Some(protection)
    }

    pub(crate) fn top(&self) -> Arc<LayeredStore> {
        self.top.read().unwrap().clone()
    }

    pub(crate) fn look<T>(&self, find: impl Fn(&Arc<LayeredStore>) -> T) -> T {
        loop {
            let top = self.top();
            let found = find(&top);
            if !self.has(Protection::LookAgain) || Arc::ptr_eq(&self.top(), &top) {
                return found;
            }
        }
    }

    /// Whether a key shows something.
    pub(crate) fn is_there(&self, key: Key) -> bool {
        self.look(|top| top.find(key)).is_some()
    }

    /// Reads a key as an object.
    pub(crate) fn get(self: &Arc<Self>, key: Key) -> Option<u8> {
        let file = self.registered(key);
        let is_pending = |file: Arc<OpenFile>| file.state.lock().unwrap().pending.is_some();
        let found = if file.is_some_and(is_pending) {
            None
        } else {
            self.look(|top| match top.layer.locate(key) {
                Located::Lower(lower) => Some(top.get_below(lower)),
                Located::Upper | Located::Hidden => None,
            })
        };
        found.unwrap_or_else(|| Some(self.open_file(key)?.read()))
    }

    /// Makes a change of names; it returns `None` if what shows below a key was not asked about. `keys` are asked about
    /// before the names are locked.
    fn change_names<T>(
        &self,
        keys: &[Key],
        change: impl Fn(&LayeredStore, &dyn Fn(Key) -> Option<Option<Key>>) -> Option<T>,
    ) -> T {
        loop {
            let top = self.top();
            let ask = |&key: &Key| {
                let lower = top.layer.lower_key(key)?;
                Some((lower, top.head_below(lower).is_some()))
            };
            let answers: Vec<(Key, bool)> = keys.iter().filter_map(ask).collect();
            let _names = self.names.lock().unwrap();
            if !Arc::ptr_eq(&self.top(), &top) {
                continue;
            }
            let find_lower = |key: Key| {
                let Some(lower) = top.layer.lower_key(key) else {
                    return Some(None);
                };
                let answer = answers.iter().find(|answer| answer.0 == lower)?;
                Some(answer.1.then_some(lower))
            };
            if let Some(done) = change(&top, &find_lower) {
                return done;
            }
        }
    }

    /// Publishes an object under a key.
    pub(crate) fn publish(&self, key: Key, content: u8) {
        let file = File::new(content, false);
        let _names = self.names.lock().unwrap();
        let top = self.top();
        top.layer.files.lock().unwrap().insert(key, file);
        let file = self.open_files.lock().unwrap().remove(&key);
        if let Some(file) = file.and_then(|file| file.upgrade()) {
            let mut state = file.state.lock().unwrap();
            (state.key, state.is_revoked) = (None, true);
        }
    }

    /// Removes a key; false if it was not there.
    pub(crate) fn remove(&self, key: Key) -> bool {
        self.change_names(&[key], |top, find_lower| {
            let lower = find_lower(key)?;
            let is_in_upper = top.layer.file(key).is_some();
            if lower.is_some() {
                top.layer.record(vec![(key, None)]);
            }
            if is_in_upper {
                top.layer.files.lock().unwrap().remove(&key);
            }
            self.detach(key);
            Some(is_in_upper || lower.is_some())
        })
    }

    /// Renames a key, over what has the other one; false if it was not there.
    pub(crate) fn rename(&self, from: Key, to: Key) -> bool {
        self.change_names(&[from, to], |top, find_lower| {
            let lower = find_lower(from)?;
            find_lower(to)?;
            let layer = &top.layer;
            if lower.is_none() && layer.file(from).is_none() {
                return Some(false);
            }
            if let Some(file) = self.registered(from) {
                file.publish(top);
            }
            let in_upper = layer.file(from).is_some();
            let shape = self.has(Protection::Reshape);
            let shape = shape.then(|| layer.shape.write().unwrap());
            if lower.is_some() {
                layer.record(vec![(to, lower), (from, None)]);
            }
            let mut files = layer.files.lock().unwrap();
            match files.remove(&from) {
                Some(file) if in_upper => files.insert(to, file),
                _ => files.remove(&to),
            };
            drop((files, shape));
            self.detach(to);
            self.rename_open_file(from, to);
            Some(true)
        })
    }

    fn rename_open_file(&self, from: Key, to: Key) {
        let Some(file) = self.registered(from) else {
            return;
        };
        self.unregister(from, &file);
        let mut open = self.open_files.lock().unwrap();
        open.insert(to, Arc::downgrade(&file));
        drop(open);
        file.state.lock().unwrap().key = Some(to);
    }

    /// Commits what was complete when it began.
    pub(crate) fn commit(&self) {
        if let Some(frozen) = self.freeze() {
            self.apply(&frozen);
            self.thaw(&frozen);
        }
    }

    /// Puts an empty layer over the one on top, with what is left out in it.
    fn freeze(&self) -> Option<Arc<LayeredStore>> {
        let _names = self.names.lock().unwrap();
        let top = self.top();
        let open = self.all_registered();
        let left_out: Vec<Key> = open.iter().filter_map(|file| file.written_key()).collect();
        let files = top.layer.files.lock().unwrap();
        let is_empty = files.keys().all(|key| left_out.contains(key));
        if is_empty && top.layer.records.lock().unwrap().whiteouts.is_empty() {
            return None;
        }
        drop((files, open));
        for file in self.all_registered() {
            freeze_file(&file, &top.layer, &left_out);
        }
        let shape = self.has(Protection::ReshapeInFreeze);
        let shape = shape.then(|| top.layer.shape.write().unwrap());
        let mut files = top.layer.files.lock().unwrap();
        let moved = left_out.iter();
        let moved = moved.filter_map(|key| Some((*key, files.remove(key)?)));
        let layer = ChangeLayer {
            files: Mutex::new(moved.collect()),
            ..ChangeLayer::default()
        };
        drop(files);
        *self.top.write().unwrap() = Arc::new(LayeredStore {
            layer: Arc::new(layer),
            store: self.store.clone(),
            frozen: Some(top.clone()),
            without: self.without,
        });
        drop(shape);
        Some(top)
    }

    /// Brings a frozen layer into the store: what was renamed is fetched, then come puts, then removals.
    fn apply(&self, frozen: &LayeredStore) {
        let layer = &frozen.layer;
        let whiteouts = layer.records.lock().unwrap().whiteouts.clone();
        for (&at, source) in &whiteouts {
            if let (Some(source), None) = (source, layer.file(at))
                && let Some(object) = self.store.get(*source)
            {
                let file = File::new(object.content, false);
                layer.files.lock().unwrap().insert(at, file);
            }
        }
        let files = layer.files.lock().unwrap().clone();
        for (&key, file) in &files {
            let version = self.store.put(key, file.read());
            layer.records.lock().unwrap().committed.insert(key, version);
        }
        for key in whiteouts.keys().filter(|key| !files.contains_key(key)) {
            self.store.erase(*key);
        }
    }

    /// Drops a frozen layer that is in the store.
    fn thaw(&self, frozen: &LayeredStore) {
        let _names = self.names.lock().unwrap();
        let layer = self.top().layer.clone();
        *self.top.write().unwrap() = Arc::new(LayeredStore {
            layer,
            store: self.store.clone(),
            frozen: None,
            without: self.without,
        });
        for file in self.all_registered() {
            self.show_version(&file, &frozen.layer);
        }
    }

    /// Has an open file know which version of the store its content is.
    fn show_version(&self, file: &OpenFile, frozen: &ChangeLayer) {
        let mut state = file.state.lock().unwrap();
        let Some(key) = state.key.filter(|_| state.opened_as == OpenedAs::Frozen) else {
            return;
        };
        let committed = frozen.records.lock().unwrap().committed.get(&key).copied();
        match (committed, &state.source) {
            (_, ContentSource::Lower(_)) => {
                (state.key, state.is_revoked) = (None, true);
                drop(state);
                if self.has(Protection::UnregisterRevoked) {
                    self.unregister(key, file);
                }
            }
            (Some(version), _) => state.opened_as = OpenedAs::Stored(key, version),
            (None, _) => state.opened_as = OpenedAs::Upper,
        }
    }
}

/// Has an open file know that its content is frozen.
fn freeze_file(file: &OpenFile, layer: &ChangeLayer, left_out: &[Key]) {
    let mut state = file.state.lock().unwrap();
    let Some(key) = state.key.filter(|key| !left_out.contains(key)) else {
        return;
    };
    if let (ContentSource::Upper(content), None) = (&state.source, &state.pending) {
        state.source = ContentSource::Frozen(content.clone());
    }
    if layer.is_changed(key) {
        state.opened_as = OpenedAs::Frozen;
    }
}
