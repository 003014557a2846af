//! Open files of the model, as `src/overlay/open_file/` has them: the table of those that are open, opening, writes to a
//! pending file or in place, publication under the lock of the names.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use loom::sync::Mutex;
use loom::sync::atomic::{AtomicUsize, Ordering};

use crate::Protection;
use crate::core::Core;
use crate::layers::{File, Key, LayeredStore, Object, Resolved};

/// The open files by their keys.
pub(crate) type OpenFileTable = BTreeMap<Key, Weak<OpenFile>>;

#[derive(Clone)]
pub(crate) enum ContentSource {
    Lower(Object),
    Frozen(Arc<File>),
    Upper(Arc<File>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenedAs {
    Upper,
    Stored(Key, u32),
    Frozen,
}

pub(crate) struct FileState {
    pub(crate) key: Option<Key>,
    pub(crate) source: ContentSource,
    pub(crate) pending: Option<Arc<File>>,
    pub(crate) is_dirty: bool,
    pub(crate) is_revoked: bool,
    pub(crate) opened_as: OpenedAs,
}

pub(crate) struct OpenFile {
    core: Arc<Core>,
    writers: AtomicUsize,
    pub(crate) state: Mutex<FileState>,
}

/// What was opened, and where it was found.
type Opened = (OpenFile, Arc<LayeredStore>, Option<Key>);

impl OpenFile {
    fn new(core: &Arc<Core>, key: Key, source: ContentSource, opened_as: OpenedAs) -> OpenFile {
        OpenFile {
            core: core.clone(),
            writers: AtomicUsize::new(0),
            state: Mutex::new(FileState {
                key: Some(key),
                source,
                pending: None,
                is_dirty: false,
                is_revoked: false,
                opened_as,
            }),
        }
    }

    /// Returns the key if a program has the file open for writing, or something of it is not published.
    pub(crate) fn written_key(&self) -> Option<Key> {
        let is_written = self.writers.load(Ordering::SeqCst) > 0;
        let state = self.state.lock().unwrap();
        state.key.filter(|_| is_written || state.is_dirty)
    }

    pub(crate) fn read(&self) -> u8 {
        let source = self.state.lock().unwrap().source.clone();
        match source {
            ContentSource::Lower(object) => object.content,
            ContentSource::Frozen(file) | ContentSource::Upper(file) => file.read(),
        }
    }

    /// Writes the whole content; false if that is refused.
    pub(crate) fn write(&self, content: u8) -> bool {
        let mut state = self.state.lock().unwrap();
        if state.is_revoked {
            return false;
        }
        let file = match &state.source {
            ContentSource::Upper(file)
                if state.pending.is_some() || state.key.is_none() || file.is_large =>
            {
                file.clone()
            }
            _ => {
                let file = File::new(0, false);
                state.pending = Some(file.clone());
                state.source = ContentSource::Upper(file.clone());
                file
            }
        };
        state.is_dirty = true;
        *file.content.lock().unwrap() = content;
        true
    }

    fn flush(&self) {
        let state = self.state.lock().unwrap();
        let is_changed = state.is_dirty && state.key.is_some();
        drop(state);
        if is_changed {
            let _names = self.core.names.lock().unwrap();
            self.publish(&self.core.top());
        }
    }

    /// Gives what was written its key. The names must be locked.
    pub(crate) fn publish(&self, top: &LayeredStore) {
        let mut state = self.state.lock().unwrap();
        let Some(key) = state.key else { return };
        if let Some(file) = state.pending.take() {
            top.layer.files.lock().unwrap().insert(key, file);
        }
        state.is_dirty = false;
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let key = self.state.lock().unwrap().key.take();
        if let Some(key) = key {
            self.core.unregister(key, self);
        }
    }
}

/// A handle for writing.
pub(crate) struct Writer(Arc<OpenFile>);

impl Writer {
    pub(crate) fn write(&self, content: u8) -> bool {
        self.0.write(content)
    }

    pub(crate) fn close(self) {
        self.0.flush();
        self.0.writers.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Core {
    pub(crate) fn registered(&self, key: Key) -> Option<Arc<OpenFile>> {
        self.open_files.lock().unwrap().get(&key)?.upgrade()
    }

    pub(crate) fn all_registered(&self) -> Vec<Arc<OpenFile>> {
        let open = self.open_files.lock().unwrap();
        open.values().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn unregister(&self, key: Key, file: &OpenFile) {
        let mut open = self.open_files.lock().unwrap();
        let found = open.get(&key);
        let is_itself = |found: &Weak<OpenFile>| std::ptr::eq(found.as_ptr(), file);
        if !self.has(Protection::UnregisterItself) || found.is_some_and(is_itself) {
            open.remove(&key);
        }
    }

    /// Takes the key away from its open file.
    pub(crate) fn detach(&self, key: Key) {
        let file = self.open_files.lock().unwrap().remove(&key);
        if let Some(file) = file.and_then(|file| file.upgrade()) {
            file.state.lock().unwrap().key = None;
        }
    }

    pub(crate) fn open_writer(self: &Arc<Self>, key: Key) -> Option<Writer> {
        let file = self.open_file(key)?;
        file.writers.fetch_add(1, Ordering::SeqCst);
        Some(Writer(file))
    }

    /// Opens the file of a key; `None` if there is none.
    pub(crate) fn open_file(self: &Arc<Self>, key: Key) -> Option<Arc<OpenFile>> {
        loop {
            if let Some(file) = self.registered(key) {
                if self.is_content_of_store(&file) {
                    return Some(file);
                }
                self.revoke_if(key, &file);
            }
            let Some((file, top, lower)) = self.open_current(key) else {
                if self.look(|top| top.find(key).is_some()) {
                    continue;
                }
                return None;
            };
            let file = Arc::new(file);
            if self.register_if_current(key, &file, &top, lower) {
                return Some(file);
            }
        }
    }

    /// Enters a file that was opened if it still is the content of its key, and no other one is there.
    fn register_if_current(
        &self,
        key: Key,
        file: &Arc<OpenFile>,
        top: &Arc<LayeredStore>,
        lower: Option<Key>,
    ) -> bool {
        let is_current =
            || !self.has(Protection::IsCurrent) || self.is_current(key, file, top, lower);
        if self.has(Protection::RegisterUnderNames) {
            let _names = self.names.lock().unwrap();
            return is_current() && self.register_if_first(key, file).is_none();
        }
        if self.register_if_first(key, file).is_some() {
            return false;
        }
        let is_current = is_current();
        if !is_current {
            file.state.lock().unwrap().key = None;
            self.unregister(key, file);
        }
        is_current
    }

    fn is_content_of_store(&self, file: &OpenFile) -> bool {
        let state = self.state_of(file);
        let (ContentSource::Lower(_) | ContentSource::Frozen(_), OpenedAs::Stored(lower, version)) =
            state
        else {
            return true;
        };
        self.look(|top| top.head_below(lower)) == Some(version)
    }

    fn state_of(&self, file: &OpenFile) -> (ContentSource, OpenedAs) {
        let state = file.state.lock().unwrap();
        (state.source.clone(), state.opened_as)
    }

    fn revoke_if(&self, key: Key, file: &OpenFile) {
        let mut state = file.state.lock().unwrap();
        if !matches!(state.source, ContentSource::Upper(_)) {
            (state.key, state.is_revoked) = (None, true);
            drop(state);
            self.unregister(key, file);
        }
    }

    fn open_current(self: &Arc<Self>, key: Key) -> Option<Opened> {
        let top = self.top();
        let lower = match top.find(key)? {
            Resolved::Upper => {
                let source = ContentSource::Upper(top.layer.file(key)?);
                let file = OpenFile::new(self, key, source, OpenedAs::Upper);
                return Some((file, top, None));
            }
            Resolved::Lower(lower, _) => lower,
        };
        let frozen = top.frozen.as_ref();
        let (source, opened_as) = match frozen.and_then(|frozen| frozen.frozen_file(lower)) {
            Some(file) => (ContentSource::Frozen(file), OpenedAs::Frozen),
            None => {
                let object = top.open_below(lower)?;
                let opened_as = OpenedAs::Stored(lower, object.version);
                (ContentSource::Lower(object), opened_as)
            }
        };
        let file = OpenFile::new(self, key, source, opened_as);
        Some((file, top, Some(lower)))
    }

    fn register_if_first(&self, key: Key, file: &Arc<OpenFile>) -> Option<Arc<OpenFile>> {
        let mut open = self.open_files.lock().unwrap();
        let other = open.get(&key).and_then(Weak::upgrade);
        if other.is_none() {
            open.insert(key, Arc::downgrade(file));
        }
        other
    }

    fn is_current(
        &self,
        key: Key,
        file: &OpenFile,
        found: &Arc<LayeredStore>,
        lower: Option<Key>,
    ) -> bool {
        let top = self.top();
        if !Arc::ptr_eq(&top, found) {
            return false;
        }
        match (self.state_of(file).0, top.layer.file(key)) {
            (ContentSource::Upper(own), Some(now)) => Arc::ptr_eq(&own, &now),
            (ContentSource::Lower(_) | ContentSource::Frozen(_), None) => {
                top.layer.lower_key(key) == lower
            }
            _ => false,
        }
    }
}
