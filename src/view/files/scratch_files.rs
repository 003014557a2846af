//! In-memory state of the files view: scratch files, unlinked documents, versions that were read.
//!
//! To save `attributes.json`, programs rename another file onto it, or unlink it and create it again. Of these steps,
//! only the one that gives the document its new text reaches the store. Other files that programs create in a node's
//! directory are scratch files, which stay in memory until they are unlinked or renamed onto the document.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use lru::LruCache;

use crate::view::files::node_documents::DocumentVersion;
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::Key;
use zarrfs_store::tree::RenameMode;

/// Maximum number of scratch files in a view, and of documents that are unlinked or renamed at a time.
const MAX_FILES: usize = 256;

/// Maximum total size in bytes of a view's scratch files: four documents of the maximum length.
const MAX_BYTES: u64 = 64 << 20;

/// The total size in bytes of a view's scratch files.
#[derive(Default)]
pub(super) struct ScratchBudget(AtomicU64);

impl ScratchBudget {
    /// Adds the size of new bytes. Fails with `NoSpace` if the total size would exceed the maximum.
    fn reserve(&self, bytes: u64) -> Result<()> {
        let add = |used: u64| used.checked_add(bytes).filter(|all| *all <= MAX_BYTES);
        match self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, add)
        {
            Ok(_) => Ok(()),
            Err(used) => {
                let why = format!(
                    "temporary files have {used} bytes of at most {MAX_BYTES}; remove some files"
                );
                Err(Error::new(Kind::NoSpace, "", why))
            }
        }
    }

    fn release(&self, bytes: u64) {
        self.0.fetch_sub(bytes, Ordering::AcqRel);
    }
}

/// A file whose bytes are only in memory.
pub(super) struct ScratchFile {
    content: Mutex<Content>,
    /// Whether the file was created after `attributes.json` was unlinked, and its bytes were stored as the attributes.
    is_stored: AtomicBool,
    budget: Arc<ScratchBudget>,
}

struct Content {
    bytes: Vec<u8>,
    modified: SystemTime,
}

impl ScratchFile {
    /// Creates a file in memory. Fails with `NoSpace` if the view's scratch files would be too large in total.
    pub(super) fn new(budget: &Arc<ScratchBudget>, bytes: Vec<u8>) -> Result<Arc<ScratchFile>> {
        budget.reserve(bytes.len() as u64)?;
        Ok(ScratchFile::with_bytes(
            budget.clone(),
            bytes,
            SystemTime::now(),
        ))
    }

    /// Creates a handle's copy of a document's text, which does not count for the size of the view's scratch files.
    pub(super) fn of_document(text: &[u8], modified: SystemTime) -> Arc<ScratchFile> {
        let budget = ScratchBudget(AtomicU64::new(text.len() as u64));
        ScratchFile::with_bytes(Arc::new(budget), text.to_vec(), modified)
    }

    fn with_bytes(
        budget: Arc<ScratchBudget>,
        bytes: Vec<u8>,
        modified: SystemTime,
    ) -> Arc<ScratchFile> {
        Arc::new(ScratchFile {
            content: Mutex::new(Content { bytes, modified }),
            is_stored: AtomicBool::new(false),
            budget,
        })
    }

    /// Returns a number that identifies the scratch file for the inode table.
    pub(super) fn id(self: &Arc<Self>) -> u64 {
        Arc::as_ptr(self).addr() as u64
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        self.content.lock().bytes.clone()
    }

    pub(super) fn len(&self) -> u64 {
        self.content.lock().bytes.len() as u64
    }

    pub(super) fn modified(&self) -> SystemTime {
        self.content.lock().modified
    }

    pub(super) fn set_modified(&self, modified: SystemTime) {
        self.content.lock().modified = modified;
    }

    /// Returns up to `len` bytes at `offset`, and fewer only at the end of the file.
    pub(super) fn read_at(&self, offset: u64, len: usize) -> Vec<u8> {
        let content = self.content.lock();
        let bytes = &content.bytes;
        let start = usize::try_from(offset).map_or(bytes.len(), |start| start.min(bytes.len()));
        let end = start.saturating_add(len).min(bytes.len());
        bytes.get(start..end).unwrap_or_default().to_vec()
    }

    /// Writes bytes that end at offset `end`. Extends the file with zeros if they begin after its end.
    pub(super) fn write(&self, end: usize, new: &[u8]) -> Result<()> {
        let mut content = self.content.lock();
        if content.bytes.len() < end {
            self.set_length(&mut content, end)?;
        }
        content.bytes[end - new.len()..end].copy_from_slice(new);
        content.modified = SystemTime::now();
        Ok(())
    }

    /// Truncates the file, or extends it with zeros.
    pub(super) fn resize(&self, length: usize) -> Result<()> {
        let mut content = self.content.lock();
        self.set_length(&mut content, length)?;
        content.modified = SystemTime::now();
        Ok(())
    }

    fn set_length(&self, content: &mut Content, length: usize) -> Result<()> {
        let old = content.bytes.len() as u64;
        let new = length as u64;
        if new > old {
            self.budget.reserve(new - old)?;
        }
        content.bytes.resize(length, 0);
        if new < old {
            content.bytes.shrink_to_fit();
            self.budget.release(old - new);
        }
        Ok(())
    }

    /// Whether the bytes were stored as the attributes of the node.
    pub(super) fn is_stored(&self) -> bool {
        self.is_stored.load(Ordering::Acquire)
    }

    pub(super) fn mark_stored(&self) {
        self.is_stored.store(true, Ordering::Release);
    }
}

impl Drop for ScratchFile {
    fn drop(&mut self) {
        self.budget.release(self.len());
    }
}

/// A scratch file at a path next to `attributes.json`.
struct ScratchEntry {
    scratch: Arc<ScratchFile>,
    /// The version of the document of which the file is an unmodified copy, or `None`. A program that fails to save the
    /// document renames its copy back.
    origin: Option<DocumentVersion>,
    /// The path of the document that the file could not replace, and the `Changed` error of that rename. A repeated
    /// rename fails with the same error until other bytes are written to the file.
    refusal: Option<(Key, Error)>,
}

impl ScratchEntry {
    fn new(scratch: Arc<ScratchFile>, origin: Option<DocumentVersion>) -> ScratchEntry {
        ScratchEntry {
            scratch,
            origin,
            refusal: None,
        }
    }
}

/// The reason why an `attributes.json` does not show the attributes of its node.
enum Removal {
    /// A program unlinked or renamed the document at this time.
    Removed(Instant),
    /// A program created the document again after an unlink, and its bytes are stored when the file is closed. Only
    /// open handles keep the file in memory.
    Recreated(Weak<ScratchFile>),
}

impl Removal {
    /// Whether the document shows the node's attributes again, because it was not created again within five seconds, or
    /// because the file that was created in its place is closed.
    fn is_over(&self) -> bool {
        match self {
            // Programs that replace a document create it again at once.
            Removal::Removed(since) => since.elapsed() >= Duration::from_secs(5),
            Removal::Recreated(scratch) => scratch.strong_count() == 0,
        }
    }
}

/// What a lookup finds at the path of an `attributes.json` that was unlinked or renamed.
pub(super) enum Replacement {
    /// The path of the document does not exist.
    Nothing,
    /// A new file, whose bytes become the attributes when it is closed.
    File(Arc<ScratchFile>),
}

/// The scratch files of a view, and the documents that were unlinked or renamed, by path.
#[derive(Default)]
struct ScratchTables {
    scratch: HashMap<Key, ScratchEntry>,
    taken: HashMap<Key, Removal>,
}

impl ScratchTables {
    /// Fails with `Exists` if a scratch file at a path must not be replaced.
    fn check_free(&self, path: &Key, onto: RenameMode) -> Result<()> {
        if onto == RenameMode::NoReplace && self.scratch.contains_key(path) {
            return Err(exists(path));
        }
        Ok(())
    }

    /// Fails with `NoSpace` if the view has too many scratch files for one more at the path.
    fn check_scratch(&self, path: &Key) -> Result<()> {
        check_count(
            path,
            &self.scratch,
            "temporary files are possible next to metadata files",
        )
    }

    /// Removes the document at `from`, and adds `file` with its bytes as the scratch file at `to`.
    fn rename_document(&mut self, from: &Key, to: &Key, file: ScratchEntry) -> Result<()> {
        self.check_scratch(to)?;
        self.remove_document(from)?;
        self.scratch.insert(to.clone(), file);
        Ok(())
    }

    /// Records that a document is unlinked. Fails with `NoSpace` if too many documents are unlinked.
    fn remove_document(&mut self, path: &Key) -> Result<()> {
        self.taken.retain(|_, taken| !taken.is_over());
        check_count(path, &self.taken, "metadata files can be removed at a time")?;
        let removed = Removal::Removed(Instant::now());
        self.taken.insert(path.clone(), removed);
        Ok(())
    }

    /// Returns the file that was created in place of an unlinked document, or `None` if it is closed.
    fn recreated(&self, path: &Key) -> Option<Arc<ScratchFile>> {
        match self.taken.get(path)? {
            Removal::Recreated(scratch) => scratch.upgrade(),
            Removal::Removed(_) => None,
        }
    }
}

/// Returns the error for creating a file at a path that exists.
pub(super) fn exists(path: &Key) -> Error {
    Error::new(Kind::Exists, path, "already exists")
}

/// Fails with `NoSpace` if a table has no room for one more path.
fn check_count<T>(path: &Key, table: &HashMap<Key, T>, what: &str) -> Result<()> {
    if table.len() < MAX_FILES || table.contains_key(path) {
        return Ok(());
    }
    let why = format!("at most {MAX_FILES} {what}");
    Err(Error::new(Kind::NoSpace, path, why))
}

/// The state of a view that exists only in memory and that clones of the view share.
pub(super) struct ScratchFiles {
    files: Mutex<ScratchTables>,
    budget: Arc<ScratchBudget>,
    /// The versions of generated documents that programs read last.
    last_read: Mutex<LruCache<Key, DocumentVersion>>,
    /// The lengths to which documents are truncated when they are opened next, and the times of the truncations.
    truncations: Mutex<HashMap<Key, (u64, Instant)>>,
}

impl Default for ScratchFiles {
    fn default() -> ScratchFiles {
        ScratchFiles {
            files: Mutex::default(),
            budget: Arc::default(),
            last_read: Mutex::new(LruCache::new(const { NonZeroUsize::new(1024).unwrap() })),
            truncations: Mutex::default(),
        }
    }
}

impl ScratchFiles {
    pub(super) fn scratch(&self, path: &Key) -> Option<Arc<ScratchFile>> {
        let files = self.files.lock();
        files.scratch.get(path).map(|file| file.scratch.clone())
    }

    pub(super) fn names_in(&self, folder: &Key) -> Vec<Vec<u8>> {
        let files = self.files.lock();
        let paths = files.scratch.keys();
        let inside = paths.filter(|path| path.parent().as_ref() == Some(folder));
        let mut names: Vec<Vec<u8>> = inside.map(|path| path.name().to_vec()).collect();
        names.sort();
        names
    }

    /// Returns what a lookup finds at the path of a document that was unlinked or renamed, or `None` if it was neither.
    pub(super) fn replacement(&self, path: &Key) -> Option<Replacement> {
        let mut files = self.files.lock();
        if files.taken.get(path)?.is_over() {
            files.taken.remove(path);
            return None;
        }
        let recreated = files.recreated(path);
        Some(recreated.map_or(Replacement::Nothing, Replacement::File))
    }

    /// Creates a scratch file. Fails with `Exists` if the path has one, and with `NoSpace` above a limit. `origin` is
    /// the version of the document of which the bytes are a copy.
    pub(super) fn make_scratch(
        &self,
        path: &Key,
        bytes: Vec<u8>,
        origin: Option<DocumentVersion>,
    ) -> Result<Arc<ScratchFile>> {
        let scratch = ScratchFile::new(&self.budget, bytes).map_err(|error| error.about(path))?;
        let mut files = self.files.lock();
        files.check_free(path, RenameMode::NoReplace)?;
        files.check_scratch(path)?;
        let file = ScratchEntry::new(scratch.clone(), origin);
        files.scratch.insert(path.clone(), file);
        Ok(scratch)
    }

    /// Removes a scratch file. Returns whether the path had one.
    pub(super) fn remove_scratch(&self, path: &Key) -> bool {
        self.files.lock().scratch.remove(path).is_some()
    }

    /// Renames a scratch file.
    pub(super) fn rename_scratch(&self, from: &Key, to: &Key, onto: RenameMode) -> Result<()> {
        let mut files = self.files.lock();
        files.check_free(to, onto)?;
        if let Some(file) = files.scratch.remove(from) {
            files.scratch.insert(to.clone(), file);
            return Ok(());
        }
        let recreated = files.recreated(from);
        let scratch = recreated.ok_or_else(|| Error::not_found(from))?;
        files.rename_document(from, to, ScratchEntry::new(scratch, None))
    }

    /// Renames a document to a scratch file with the document's `text`. The attributes of the node are still stored.
    pub(super) fn rename_document(
        &self,
        from: &Key,
        text: Vec<u8>,
        origin: DocumentVersion,
        to: &Key,
        onto: RenameMode,
    ) -> Result<()> {
        let scratch = ScratchFile::new(&self.budget, text).map_err(|error| error.about(to))?;
        let mut files = self.files.lock();
        files.check_free(to, onto)?;
        files.rename_document(from, to, ScratchEntry::new(scratch, Some(origin)))
    }

    /// Hides a document, which appears again if it is not created again within five seconds. Fails with `NoSpace` if
    /// too many documents are hidden.
    pub(super) fn remove_document(&self, path: &Key) -> Result<()> {
        self.files.lock().remove_document(path)
    }

    /// Creates an unlinked document again. Fails with `Exists` if the old document has appeared again, or another new
    /// one exists.
    pub(super) fn recreate_document(&self, path: &Key) -> Result<Arc<ScratchFile>> {
        let scratch =
            ScratchFile::new(&self.budget, Vec::new()).map_err(|error| error.about(path))?;
        let mut files = self.files.lock();
        match files.taken.get_mut(path).filter(|taken| !taken.is_over()) {
            Some(taken @ Removal::Removed(_)) => {
                *taken = Removal::Recreated(Arc::downgrade(&scratch));
                Ok(scratch)
            }
            _ => Err(exists(path)),
        }
    }

    /// Whether a file that was created in place of a document has neither been removed nor replaced.
    pub(super) fn is_in_place(&self, path: &Key, scratch: &Arc<ScratchFile>) -> bool {
        let recreated = self.files.lock().recreated(path);
        recreated.is_some_and(|recreated| Arc::ptr_eq(&recreated, scratch))
    }

    /// Records that a document was stored, so that lookups find it again.
    pub(super) fn show_document(&self, path: &Key) {
        self.files.lock().taken.remove(path);
    }

    /// Records the version of a document that a program has read.
    pub(super) fn record_read(&self, path: &Key, version: DocumentVersion) {
        self.last_read.lock().put(path.clone(), version);
    }

    /// Returns the version of a document that a program read last.
    pub(super) fn last_read(&self, path: &Key) -> Option<DocumentVersion> {
        self.last_read.lock().get(path).cloned()
    }

    /// Replaces the version that a program read last, if any, by the saved one, since the program may save the document
    /// again.
    pub(super) fn record_saved(&self, path: &Key, saved: &DocumentVersion) {
        if let Some(version) = self.last_read.lock().get_mut(path) {
            *version = saved.clone();
        }
    }

    /// Forgets the version of a document that a program read last, because the document has changed since.
    pub(super) fn forget_read(&self, path: &Key) {
        self.last_read.lock().pop(path);
    }

    /// Returns the version of the document of which a scratch file is an unmodified copy, or `None`.
    pub(super) fn origin(&self, path: &Key) -> Option<DocumentVersion> {
        self.files.lock().scratch.get(path)?.origin.clone()
    }

    /// Returns the error of an earlier, failed rename of a scratch file onto the document `to`, or `None` if there was
    /// none or the file was written since.
    pub(super) fn refusal(&self, from: &Key, to: &Key) -> Option<Error> {
        let files = self.files.lock();
        let (store_view_only, error) = files.scratch.get(from)?.refusal.as_ref()?;
        (store_view_only == to).then(|| error.clone())
    }

    /// Records that a scratch file could not replace the document `to`, because the document has changed.
    pub(super) fn record_refusal(&self, from: &Key, to: &Key, error: &Error) {
        if let Some(file) = self.files.lock().scratch.get_mut(from)
            && error.kind() == Kind::Changed
        {
            file.refusal = Some((to.clone(), error.clone()));
        }
    }

    /// Records that a scratch file was written and is no copy of a document any more.
    pub(super) fn record_write(&self, path: &Key) {
        if let Some(file) = self.files.lock().scratch.get_mut(path) {
            (file.refusal, file.origin) = (None, None);
        }
    }

    /// Records that a document is truncated to `length` when it is opened next.
    pub(super) fn truncate(&self, path: &Key, length: u64) {
        let mut truncations = self.truncations.lock();
        if truncations.len() >= MAX_FILES {
            truncations.clear();
        }
        truncations.insert(path.clone(), (length, Instant::now()));
    }

    /// Removes and returns the length to which a document is truncated at its open, or `None`.
    pub(super) fn take_truncated(&self, path: &Key) -> Option<u64> {
        let (length, since) = self.truncations.lock().remove(path)?;
        // A program opens the document right after the truncation, so an older truncation belongs to another program.
        (since.elapsed() < Duration::from_secs(5)).then_some(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_files_take_a_bounded_number_of_bytes() {
        let budget = Arc::<ScratchBudget>::default();
        let whole = usize::try_from(MAX_BYTES).unwrap();
        let file = ScratchFile::new(&budget, b"ab".to_vec()).unwrap();
        file.resize(whole).unwrap();
        let error = file.write(whole + 1, b"c").unwrap_err();
        assert_eq!(error.kind(), Kind::NoSpace);
        assert_eq!(file.len(), MAX_BYTES);
        assert!(ScratchFile::new(&budget, b"c".to_vec()).is_err());
        file.resize(1).unwrap();
        assert_eq!(file.read_at(0, 10), b"a");
        file.write(3, b"c").unwrap();
        assert_eq!(file.bytes(), b"a\0c");
        drop(file);
        assert_eq!(budget.0.load(Ordering::Relaxed), 0);
    }
}
