//! In-memory state of the files view: scratch files, unlinked documents, versions that were read.
//!
//! Programs save a document by renaming another file onto it, or unlink it and create it again. None of these steps
//! reaches the store before the new text does. A scratch file lives until it is unlinked, becomes the document, or the
//! mount ends.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use lru::LruCache;

use crate::view::files::scratch::{Scratch, ScratchRoom};
use crate::view::files::seen::SeenDocument;
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::Key;
use zarrfs_store::tree::RenameMode;

/// Maximum number of scratch files, and of documents that are taken away.
const MAX_FILES: usize = 256;

/// Maximum number of documents whose last-read version is kept.
const MAX_SEEN: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// How long a truncation by path waits for the open that follows it.
const TRUNCATION_TIMEOUT: Duration = Duration::from_secs(5);

/// How long an unlinked document is missing if it is not created again: programs do so at once.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(5);

/// A file next to a document.
struct ScratchFile {
    scratch: Arc<Scratch>,
    /// The version of the document that the bytes are copied from; `None` after a write. A program that fails to save
    /// the document renames such a backup to it again.
    origin: Option<SeenDocument>,
    /// The document that the file was renamed to, and the `Changed` error of that rename. The rename stays refused
    /// until other bytes are written to the file.
    refusal: Option<(Key, Error)>,
}

impl ScratchFile {
    fn new(scratch: Arc<Scratch>, origin: Option<SeenDocument>) -> ScratchFile {
        ScratchFile {
            scratch,
            origin,
            refusal: None,
        }
    }
}

/// The reason why a document does not show the attributes of its node.
enum TakenAway {
    /// It was unlinked or renamed at this time.
    Removed(Instant),
    /// It was created again; the writes take effect at close. Only open handles hold the file.
    MadeAnew(Weak<Scratch>),
}

impl TakenAway {
    /// Whether the document shows the attributes again: it was not created again in time, or no handle has the new file
    /// open any more.
    fn is_over(&self) -> bool {
        match self {
            TakenAway::Removed(since) => since.elapsed() >= REMOVAL_TIMEOUT,
            TakenAway::MadeAnew(scratch) => scratch.strong_count() == 0,
        }
    }
}

/// The replacement of a document that was taken away.
pub(super) enum Instead {
    /// Nothing.
    Nothing,
    /// A new file that will become the document.
    File(Arc<Scratch>),
}

/// The scratch files and the documents that are taken away.
#[derive(Default)]
struct UnstoredFiles {
    scratch: HashMap<Key, ScratchFile>,
    taken: HashMap<Key, TakenAway>,
}

impl UnstoredFiles {
    /// Fails with `NoSpace` if no scratch file can be added at a path.
    fn check_scratch(&self, path: &Key) -> Result<()> {
        check_count(path, &self.scratch, "files are kept beside documents")
    }

    /// Records that a document is unlinked; `NoSpace` if there are too many of them.
    fn remove_document(&mut self, path: &Key) -> Result<()> {
        self.taken.retain(|_, taken| !taken.is_over());
        check_count(path, &self.taken, "documents can be removed at a time")?;
        let removed = TakenAway::Removed(Instant::now());
        self.taken.insert(path.clone(), removed);
        Ok(())
    }

    /// Returns the file that was created in place of a document, or `None` if it is not open any more.
    fn made_anew(&self, path: &Key) -> Option<Arc<Scratch>> {
        match self.taken.get(path)? {
            TakenAway::MadeAnew(scratch) => scratch.upgrade(),
            TakenAway::Removed(_) => None,
        }
    }
}

/// Fails with `NoSpace` if a table is full.
fn check_count<T>(path: &Key, table: &HashMap<Key, T>, what: &str) -> Result<()> {
    if table.len() < MAX_FILES || table.contains_key(path) {
        return Ok(());
    }
    let why = format!("at most {MAX_FILES} {what}");
    Err(Error::new(Kind::NoSpace, path, why))
}

/// The unstored state of a view; clones share it.
pub(super) struct UnstoredState {
    files: Mutex<UnstoredFiles>,
    /// Total size of the scratch files.
    room: Arc<ScratchRoom>,
    /// The versions of documents that programs read last.
    seen: Mutex<LruCache<Key, SeenDocument>>,
    /// Lengths that documents get at the next open, and the times of the truncations.
    truncated: Mutex<HashMap<Key, (u64, Instant)>>,
}

impl Default for UnstoredState {
    fn default() -> UnstoredState {
        UnstoredState {
            files: Mutex::default(),
            room: Arc::default(),
            seen: Mutex::new(LruCache::new(MAX_SEEN)),
            truncated: Mutex::default(),
        }
    }
}

impl UnstoredState {
    /// Returns the scratch file at a path.
    pub(super) fn scratch(&self, path: &Key) -> Option<Arc<Scratch>> {
        let files = self.files.lock();
        files.scratch.get(path).map(|file| file.scratch.clone())
    }

    /// Returns the names of the scratch files in a directory.
    pub(super) fn names_in(&self, folder: &Key) -> Vec<Vec<u8>> {
        let files = self.files.lock();
        let paths = files.scratch.keys();
        let inside = paths.filter(|path| path.parent().as_ref() == Some(folder));
        let mut names: Vec<Vec<u8>> = inside.map(|path| path.name().to_vec()).collect();
        names.sort();
        names
    }

    /// Returns the replacement of a document, or `None` if the document is not taken away.
    pub(super) fn instead(&self, path: &Key) -> Option<Instead> {
        let mut files = self.files.lock();
        if files.taken.get(path)?.is_over() {
            files.taken.remove(path);
            return None;
        }
        let made_anew = files.made_anew(path);
        Some(made_anew.map_or(Instead::Nothing, Instead::File))
    }

    /// Creates a scratch file; `Exists` if the path has one, `NoSpace` above a limit. `origin` is the version of the
    /// document that the bytes are copied from.
    pub(super) fn make_scratch(
        &self,
        path: &Key,
        bytes: Vec<u8>,
        origin: Option<SeenDocument>,
    ) -> Result<Arc<Scratch>> {
        let scratch = Scratch::new(&self.room, bytes).map_err(|error| error.about(path))?;
        let mut files = self.files.lock();
        if files.scratch.contains_key(path) {
            return Err(Error::new(Kind::Exists, path, "is there already"));
        }
        files.check_scratch(path)?;
        let file = ScratchFile::new(scratch.clone(), origin);
        files.scratch.insert(path.clone(), file);
        Ok(scratch)
    }

    /// Removes a scratch file; returns whether it existed.
    pub(super) fn remove_scratch(&self, path: &Key) -> bool {
        self.files.lock().scratch.remove(path).is_some()
    }

    /// Renames an unstored file to a scratch file.
    pub(super) fn rename_scratch(&self, from: &Key, to: &Key, onto: RenameMode) -> Result<()> {
        let mut files = self.files.lock();
        if onto == RenameMode::NoReplace && files.scratch.contains_key(to) {
            return Err(Error::new(Kind::Exists, to, "is there already"));
        }
        if let Some(file) = files.scratch.remove(from) {
            files.scratch.insert(to.clone(), file);
            return Ok(());
        }
        let made_anew = files.made_anew(from);
        let scratch = made_anew.ok_or_else(|| Error::not_found(from))?;
        files.check_scratch(to)?;
        files.remove_document(from)?;
        let file = ScratchFile::new(scratch, None);
        files.scratch.insert(to.clone(), file);
        Ok(())
    }

    /// Renames a document with this text to a scratch file.
    pub(super) fn rename_document(
        &self,
        from: &Key,
        text: Vec<u8>,
        origin: SeenDocument,
        to: &Key,
        onto: RenameMode,
    ) -> Result<()> {
        let scratch = Scratch::new(&self.room, text).map_err(|error| error.about(to))?;
        let mut files = self.files.lock();
        if onto == RenameMode::NoReplace && files.scratch.contains_key(to) {
            return Err(Error::new(Kind::Exists, to, "is there already"));
        }
        files.check_scratch(to)?;
        files.remove_document(from)?;
        let file = ScratchFile::new(scratch, Some(origin));
        files.scratch.insert(to.clone(), file);
        Ok(())
    }

    /// Takes a document away; it shows its old text again if it is not created again in time. `NoSpace` if there are
    /// too many.
    pub(super) fn remove_document(&self, path: &Key) -> Result<()> {
        self.files.lock().remove_document(path)
    }

    /// Creates an unlinked document again; `Exists` if it shows its old text again, or was already created again.
    pub(super) fn make_document(&self, path: &Key) -> Result<Arc<Scratch>> {
        let scratch = Scratch::new(&self.room, Vec::new()).map_err(|error| error.about(path))?;
        let mut files = self.files.lock();
        match files.taken.get_mut(path).filter(|taken| !taken.is_over()) {
            Some(taken @ TakenAway::Removed(_)) => {
                *taken = TakenAway::MadeAnew(Arc::downgrade(&scratch));
                Ok(scratch)
            }
            _ => Err(Error::new(Kind::Exists, path, "is there already")),
        }
    }

    /// Whether a new file is still in place of a document: neither removed nor replaced.
    pub(super) fn is_in_place(&self, path: &Key, scratch: &Arc<Scratch>) -> bool {
        let found = self.files.lock().made_anew(path);
        found.is_some_and(|found| Arc::ptr_eq(&found, scratch))
    }

    /// Records that a document was stored: it shows its new text.
    pub(super) fn show_document(&self, path: &Key) {
        self.files.lock().taken.remove(path);
    }

    /// Records the version of a document that a program reads.
    pub(super) fn note_seen(&self, path: &Key, seen: SeenDocument) {
        self.seen.lock().put(path.clone(), seen);
    }

    /// Returns the version of a document that a program read last.
    pub(super) fn seen(&self, path: &Key) -> Option<SeenDocument> {
        self.seen.lock().get(path).cloned()
    }

    /// Records that a document was saved: its handles have the new version.
    pub(super) fn note_saved(&self, path: &Key, saved: &SeenDocument) {
        if let Some(seen) = self.seen.lock().get_mut(path) {
            *seen = saved.clone();
        }
    }

    /// Forgets the last-read version of a document that has changed since.
    pub(super) fn forget_seen(&self, path: &Key) {
        self.seen.lock().pop(path);
    }

    /// Returns the version of the document that a scratch file is a copy of.
    pub(super) fn origin(&self, path: &Key) -> Option<SeenDocument> {
        self.files.lock().scratch.get(path)?.origin.clone()
    }

    /// Returns the error with which a scratch file, with its current bytes, was refused as the document.
    pub(super) fn refusal(&self, from: &Key, to: &Key) -> Option<Error> {
        let files = self.files.lock();
        let (refused, error) = files.scratch.get(from)?.refusal.as_ref()?;
        (refused == to).then(|| error.clone())
    }

    /// Records that a scratch file was refused because the document has changed.
    pub(super) fn note_refusal(&self, from: &Key, to: &Key, error: &Error) {
        if let Some(file) = self.files.lock().scratch.get_mut(from)
            && error.kind() == Kind::Changed
        {
            file.refusal = Some((to.clone(), error.clone()));
        }
    }

    /// Records a write to a scratch file.
    pub(super) fn note_written(&self, path: &Key) {
        if let Some(file) = self.files.lock().scratch.get_mut(path) {
            (file.refusal, file.origin) = (None, None);
        }
    }

    /// Records the length that a document gets at its next open.
    pub(super) fn truncate(&self, path: &Key, length: u64) {
        let mut truncated = self.truncated.lock();
        if truncated.len() >= MAX_FILES {
            truncated.clear();
        }
        truncated.insert(path.clone(), (length, Instant::now()));
    }

    /// Takes the length that a document gets at its open.
    pub(super) fn take_truncated(&self, path: &Key) -> Option<u64> {
        let (length, since) = self.truncated.lock().remove(path)?;
        (since.elapsed() < TRUNCATION_TIMEOUT).then_some(length)
    }
}
