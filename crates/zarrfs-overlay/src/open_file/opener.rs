//! Opens the file of a key, or finds it open, and counts its handles.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::derived;
use crate::derived::DerivedDocument;
use crate::layer_dir::{inode_of, os_error};
use crate::layered_store::{LayeredStore, Resolved};
use crate::open_file::OpenFile;
use crate::open_file::state::{ContentSource, OpenedAs};
use crate::overlay_core::{OverlayCore, wrong_kind};
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::file_limits::Permit;
use zarrfs_store::tree::{AttrChange, Stat, TreeFile};
use zarrfs_store::{EntryKind, Key, LogPosition, Meta, Reader};

/// Maximum number of attempts to open a file that is being replaced.
const MAX_ATTEMPTS: usize = 64;

/// Opens the file of a key. Fails with `NotFound` if it is missing, with `IsADirectory` if it is a folder.
pub(crate) fn open(
    core: &Arc<OverlayCore>,
    context: &RequestContext,
    key: &Key,
) -> Result<Arc<OpenFile>> {
    let opener = FileOpener { core, context, key };
    opener.open()
}

/// Changes the file of a key with `change`. If the file is replaced before `change` succeeds, opens the new file and
/// retries.
pub(crate) fn change(
    core: &Arc<OverlayCore>,
    context: &RequestContext,
    key: &Key,
    change: impl Fn(&OpenFile) -> Result<()>,
) -> Result<()> {
    for _ in 0..MAX_ATTEMPTS {
        let file = open(core, context, key)?;
        match change(&file) {
            Err(error) if error.kind() == Kind::ReadOnly && file.key().is_none() => {}
            done => return done,
        }
    }
    let why = "another program keeps replacing the file";
    Err(Error::new(Kind::Changed, key, why))
}

/// Registers a newly created file in the table of open files. `inode` is the inode of the file.
pub(crate) fn register_created(
    core: &Arc<OverlayCore>,
    key: &Key,
    file: File,
    inode: u64,
    permit: Permit,
) -> Arc<OpenFile> {
    let source = ContentSource::Upper(Arc::new(file));
    let mut open = core.open.lock();
    let id = open.ids.new_id();
    let file = OpenFile::new(core, key, id, source, OpenedAs::Upper, permit);
    let file = Arc::new(file);
    let mut state = file.lock();
    (state.is_incomplete, state.is_dirty) = (true, true);
    drop(state);
    open.files.register(key, &file);
    open.ids.set(key, id, inode);
    file
}

/// Finds the open file of a key, or opens it if it is not open or has a content that is not visible any more.
struct FileOpener<'a> {
    core: &'a Arc<OverlayCore>,
    context: &'a RequestContext,
    key: &'a Key,
}

impl FileOpener<'_> {
    fn open(&self) -> Result<Arc<OpenFile>> {
        for _ in 0..MAX_ATTEMPTS {
            if let Some(file) = self.core.registered(self.key) {
                if file.key().is_none() {
                    // Another thread has just removed the key from this file, and has not removed the file from the
                    // table yet.
                    self.core.open.lock().files.unregister(self.key, &file);
                } else if self.is_visible(&file)? {
                    return Ok(file);
                } else {
                    // The open file has an old content. Its handles keep that content, and the key gets a new open
                    // file.
                    self.core.revoke_unwritten(self.key, &file);
                }
            }
            let (file, place) = match self.open_current() {
                // Look the key up again: it was renamed or committed between the lookup and the open.
                Err(error) if error.kind() == Kind::NotFound && self.shows()? => {
                    continue;
                }
                opened => opened?,
            };
            let file = Arc::new(file);
            self.restore_incomplete(&file);
            if self.register_if_current(&file, &place)? {
                return Ok(file);
            }
            file.detach();
        }
        let why = "another program keeps replacing the file";
        Err(Error::new(Kind::Changed, self.key, why))
    }

    fn shows(&self) -> Result<bool> {
        self.core
            .with_top(|top| Ok(top.find(self.context, self.key)?.is_some()))
    }

    /// Whether an open file still has the content that the mount shows at its key.
    fn is_visible(&self, file: &Arc<OpenFile>) -> Result<bool> {
        let derived = derived::document(self.core, self.context, self.key)?
            .map(|derived| derived.meta.version);
        match (file.derived_version(), derived) {
            (None, None) => self.is_content_of_store(file),
            (own, derived) if own == derived => Ok(true),
            _ => {
                // A file that programs have open only for reading can lose its key, because no writes can be lost.
                let is_upper = file.upper_file().is_some();
                if is_upper && !file.is_being_written() {
                    self.core.open.lock().files.unregister(self.key, file);
                    file.detach();
                }
                Ok(is_upper && file.is_being_written())
            }
        }
    }

    /// Whether the store still has the version that a file was opened on. A file that was written is never stale.
    fn is_content_of_store(&self, file: &OpenFile) -> Result<bool> {
        let Some(opened) = file.unwritten_version() else {
            return Ok(true);
        };
        let now = self
            .core
            .with_top(|top| top.lower.head(self.context, &opened.key))?;
        Ok(now.is_some_and(|meta| meta.version.may_be(opened.version.into())))
    }

    /// Opens the current content of a key; also returns where it was found.
    fn open_current(&self) -> Result<(OpenFile, FoundPlace)> {
        let permit = Permit::take().map_err(|error| error.about(self.key))?;
        let (top, position) = (self.core.top(), self.core.info.changes.position());
        let found = top
            .find(self.context, self.key)?
            .ok_or_else(|| Error::not_found(self.key))?;
        let place = FoundPlace {
            lower: lower_key(&found),
            top: top.clone(),
            position,
        };
        let file = match derived::document(self.core, self.context, self.key)? {
            Some(derived) => self.open_derived(derived, opened_as(&top, &found)?, permit),
            None => match (LayeredStore::kind(&found), found) {
                (EntryKind::Directory, _) => return Err(wrong_kind(self.key, true)),
                (EntryKind::File, Resolved::Upper(_)) => {
                    let file = Arc::new(open_upper(&top, self.key)?);
                    let inode = inode_of(self.key, &file)?;
                    let id = self.core.open.lock().ids.of_upper(self.key, inode);
                    let source = ContentSource::Upper(file);
                    OpenFile::new(self.core, self.key, id, source, OpenedAs::Upper, permit)
                }
                (_, Resolved::Upper(_)) => {
                    return Err(Error::invalid(self.key, "not a regular file"));
                }
                (_, Resolved::Lower(lower, meta)) => {
                    self.open_lower(&top, &lower, &meta, permit)?
                }
            },
        };
        Ok((file, place))
    }

    /// Opens consolidated metadata whose copies differ from those in the stored text.
    fn open_derived(
        &self,
        derived: Arc<DerivedDocument>,
        opened_as: OpenedAs,
        permit: Permit,
    ) -> OpenFile {
        let source = ContentSource::Lower(derived.clone());
        let id = derived.stat().content;
        let file = OpenFile::new(self.core, self.key, id, source, opened_as, permit);
        file.lock().derived = Some(derived);
        file
    }

    /// Opens the object of the store or the frozen layer at `lower`, because the mount shows it at `key`.
    fn open_lower(
        &self,
        top: &LayeredStore,
        lower: &Key,
        meta: &Meta,
        permit: Permit,
    ) -> Result<OpenFile> {
        let frozen = match &top.frozen {
            Some(frozen) => frozen.frozen_file(lower)?,
            None => None,
        };
        if let Some((file, number)) = frozen {
            let inode = inode_of(self.key, &file)?;
            let id = self.core.open.lock().ids.of_upper(self.key, inode);
            let source = ContentSource::Frozen(Arc::new(file), number);
            let file = OpenFile::new(self.core, self.key, id, source, OpenedAs::Frozen, permit);
            return Ok(file);
        }
        let reader = top.lower.open(self.context, lower, Some(meta))?;
        let version = reader.meta(self.context)?.version;
        let id = self.core.open.lock().ids.of_stored(self.key, version);
        let id = id.unwrap_or(version.number());
        // The error makes the caller retry: a commit has copied the object to the frozen layer after the lookup there.
        let stored = version.stored().ok_or_else(|| Error::not_found(self.key))?;
        let opened_as = OpenedAs::Stored(lower.clone(), stored);
        let source = ContentSource::Lower(reader);
        Ok(OpenFile::new(
            self.core, self.key, id, source, opened_as, permit,
        ))
    }

    /// Marks an open file as incomplete if the journal says so, because it was created and closed before it was
    /// complete.
    fn restore_incomplete(&self, file: &OpenFile) {
        if self.core.top().layer.lock().records.is_incomplete(self.key) {
            let failed_writes = self.core.open.lock().failed_writes.get(self.key).cloned();
            let mut state = file.lock();
            (state.is_incomplete, state.is_dirty) = (true, true);
            state.failed_writes = failed_writes;
        }
    }

    /// Whether a newly opened file still has the content of its key, so that it can be registered.
    fn is_current(&self, file: &OpenFile, found: &FoundPlace) -> Result<bool> {
        let top = self.core.top();
        if !Arc::ptr_eq(&top, &found.top) {
            return Ok(false);
        }
        match (file.source(), top.layer.dir.stat(self.key)?) {
            (ContentSource::Upper(file), Some(_)) => top.layer.is_file_of(self.key, &file),
            (ContentSource::Lower(_), Some(_)) if file.derived_version().is_some() => Ok(!self
                .core
                .info
                .changes
                .changed_since(found.position, self.key)),
            (ContentSource::Lower(_) | ContentSource::Frozen(..), None) => {
                // The key still shows the same key of the store, but that may have another content after a change and a
                // commit. Ask the log of changes.
                let is_same = !self
                    .core
                    .info
                    .changes
                    .changed_since(found.position, self.key);
                Ok(is_same && top.layer.lower_key(self.key) == found.lower)
            }
            _ => Ok(false),
        }
    }

    /// Registers a newly opened file under its key; returns whether it was registered. It is not if the key has another
    /// content or another open file by now. The lock of the names is held, so that later changes find the file in the
    /// table.
    fn register_if_current(&self, file: &Arc<OpenFile>, found: &FoundPlace) -> Result<bool> {
        let _names = self.core.names.lock();
        if !self.is_current(file, found)? {
            return Ok(false);
        }
        let mut open = self.core.open.lock();
        let is_first = open.files.is_free(self.key);
        if is_first {
            open.files.register(self.key, file);
        }
        Ok(is_first)
    }
}

/// Where the content of a key was found, and when.
struct FoundPlace {
    top: Arc<LayeredStore>,
    /// The key of the store or of the frozen layer that has the content, or `None` if the top layer has it.
    lower: Option<Key>,
    /// Position in the log of changes before the lookup.
    position: LogPosition,
}

/// Returns the key below the top layer that has the content, or `None` if the top layer has it.
fn lower_key(found: &Resolved) -> Option<Key> {
    match found {
        Resolved::Upper(_) => None,
        Resolved::Lower(lower, _) => Some(lower.clone()),
    }
}

/// Returns the version of the stored text that a consolidated document was opened on.
fn opened_as(top: &LayeredStore, found: &Resolved) -> Result<OpenedAs> {
    let Resolved::Lower(lower, meta) = found else {
        return Ok(OpenedAs::Upper);
    };
    let is_frozen = match &top.frozen {
        Some(frozen) => frozen.layer.is_changed(lower)?,
        None => false,
    };
    Ok(match meta.version.stored().filter(|_| !is_frozen) {
        Some(version) => OpenedAs::Stored(lower.clone(), version),
        None => OpenedAs::Frozen,
    })
}

fn open_upper(top: &LayeredStore, key: &Key) -> Result<File> {
    let safe = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let dir = &top.layer.dir;
    let opened = match dir.open_key(key, OFlags::RDWR | safe) {
        // Open the file for reading only, because it is not writable or the file system is read-only.
        Err(Errno::ACCESS | Errno::ROFS) => dir.open_key(key, OFlags::RDONLY | safe),
        opened => opened,
    };
    Ok(File::from(opened.map_err(|error| os_error(key, error))?))
}

/// A program's handle of an open file. Handles for writing are counted, because a commit leaves out files that are open
/// for writing.
pub(crate) struct OpenFileHandle {
    file: Arc<OpenFile>,
    is_writer: bool,
}

impl OpenFileHandle {
    pub(crate) fn new(file: Arc<OpenFile>, is_writer: bool) -> OpenFileHandle {
        if is_writer {
            file.writers.fetch_add(1, Ordering::SeqCst);
        }
        OpenFileHandle { file, is_writer }
    }
}

impl Drop for OpenFileHandle {
    fn drop(&mut self) {
        if self.is_writer {
            self.file.writers.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl TreeFile for OpenFileHandle {
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>> {
        let bytes = Reader::read_at(&*self.file, context, offset, len)?;
        if offset == 0
            && let Some(key) = self.file.key()
        {
            let is_complete = bytes.len() < len;
            self.file
                .core
                .encodings(context)
                .record_read(&key, &bytes, is_complete);
        }
        Ok(bytes)
    }

    fn write_at(&self, context: &RequestContext, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_at(context, offset, bytes)
    }

    fn append(&self, context: &RequestContext, bytes: &[u8]) -> Result<()> {
        self.file.append(context, bytes)
    }

    fn allocate(
        &self,
        context: &RequestContext,
        mode: i32,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        self.file.allocate(context, mode, offset, length)
    }

    fn flush(&self, context: &RequestContext) -> Result<()> {
        self.file.flush(context)
    }

    fn sync(&self, context: &RequestContext) -> Result<()> {
        self.file.sync(context)
    }

    /// Fails if the file has unpublished writes when the mount ends, because they are not part of the overlay then.
    fn end(&self, _context: &RequestContext) -> Result<()> {
        self.file.check_published()
    }

    fn stat(&self, context: &RequestContext) -> Result<Stat> {
        self.file.stat(context)
    }

    fn change(&self, context: &RequestContext, change: &AttrChange) -> Result<()> {
        self.file.change(context, change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use zarrfs_store::backend::memory::MemoryStore;
    use zarrfs_store::request_context::UNLIMITED;
    use zarrfs_store::tree::Tree;

    /// A file has lost its key and is still in the table of open files. An open of the key must return another file.
    #[test]
    fn a_registered_file_that_lost_its_key_is_not_returned() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(MemoryStore::default());
        let key = testing::key("a");
        store.set(key.clone(), b"old".to_vec());
        let overlay = testing::open(&folder.path().join("upper"), &store);
        let detached = open(&overlay.0, &UNLIMITED, &key).unwrap();
        detached.detach();
        let opened = open(&overlay.0, &UNLIMITED, &key).unwrap();
        assert_eq!(opened.key().as_ref(), Some(&key));
        let mode = AttrChange {
            mode: Some(0o600),
            ..AttrChange::default()
        };
        Tree::change(&overlay, &UNLIMITED, &key, &mode).unwrap();
    }

    #[test]
    fn a_file_that_lost_its_key_gets_none_by_a_rename() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(MemoryStore::default());
        store.set(testing::key("a"), b"old".to_vec());
        let overlay = testing::open(&folder.path().join("upper"), &store);
        let file = open(&overlay.0, &UNLIMITED, &testing::key("a")).unwrap();
        file.rename(testing::key("b"));
        assert_eq!(file.key(), Some(testing::key("b")));
        file.revoke();
        file.rename(testing::key("c"));
        assert_eq!(file.key(), None);
    }
}
