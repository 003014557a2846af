//! In-memory state of the files view: scratch files beside `attributes.json`, documents that a program has taken away to
//! make them anew, and what programs have seen of documents.
//!
//! Programs save a document by another file that gets its name, or remove it and make it anew. Nothing of that reaches the
//! store before the new text does. A scratch file lives until it is unlinked, becomes the document, or the mount ends.

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

/// The most scratch files, and the most documents that are taken away.
const MAX_FILES: usize = 256;

/// The most documents of which is known what was seen of them.
const MAX_SEEN: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// How long a truncation by path waits for the open that follows it.
const TRUNCATION_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a document that was removed is missing if nobody makes it anew: programs do so at once.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(5);

/// A file beside a document.
struct ScratchFile {
    scratch: Arc<Scratch>,
    /// The document that the bytes are of, as it was then; `None` once they are written to. A program that could not save
    /// the document gives such a file its name again.
    origin: Option<SeenDocument>,
    /// The document that the file was to replace, and the error that this was refused with since the document has
    /// changed. It stays refused until other bytes are written to the file.
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

/// Why a document does not show the attributes of its node.
enum TakenAway {
    /// It was removed, or got another name, at this time.
    Removed(Instant),
    /// It was made anew; what is written counts once it is closed. Only its handles hold the file.
    MadeAnew(Weak<Scratch>),
}

impl TakenAway {
    /// Whether the document shows the attributes again, since nobody has made it anew in time, or nobody has the new file
    /// open any more.
    fn is_over(&self) -> bool {
        match self {
            TakenAway::Removed(since) => since.elapsed() >= REMOVAL_TIMEOUT,
            TakenAway::MadeAnew(scratch) => scratch.strong_count() == 0,
        }
    }
}

/// What a path has instead of a document.
pub(super) enum Instead {
    /// Nothing.
    Nothing,
    /// A new file, which will be the document.
    File(Arc<Scratch>),
}

/// The files that are not stored, and the documents that they stand for.
#[derive(Default)]
struct UnstoredFiles {
    scratch: HashMap<Key, ScratchFile>,
    taken: HashMap<Key, TakenAway>,
}

impl UnstoredFiles {
    /// Fails with `NoSpace` if there are too many scratch files to make one at a path.
    fn check_scratch(&self, path: &Key) -> Result<()> {
        check_count(path, &self.scratch, "files are kept beside documents")
    }

    /// Notes that a document is removed; `NoSpace` if too many are.
    fn remove_document(&mut self, path: &Key) -> Result<()> {
        self.taken.retain(|_, taken| !taken.is_over());
        check_count(path, &self.taken, "documents can be removed at a time")?;
        let removed = TakenAway::Removed(Instant::now());
        self.taken.insert(path.clone(), removed);
        Ok(())
    }

    /// Returns the file that was made in the place of a document and is still open.
    fn made_anew(&self, path: &Key) -> Option<Arc<Scratch>> {
        match self.taken.get(path)? {
            TakenAway::MadeAnew(scratch) => scratch.upgrade(),
            TakenAway::Removed(_) => None,
        }
    }
}

/// Fails with `NoSpace` if a table has no room for one more path.
fn check_count<T>(path: &Key, table: &HashMap<Key, T>, what: &str) -> Result<()> {
    if table.len() < MAX_FILES || table.contains_key(path) {
        return Ok(());
    }
    let why = format!("at most {MAX_FILES} {what}");
    Err(Error::new(Kind::NoSpace, path, why))
}

/// The state that all clones of a view share.
pub(super) struct UnstoredState {
    files: Mutex<UnstoredFiles>,
    /// How many bytes scratch files take.
    room: Arc<ScratchRoom>,
    /// What programs saw last of documents.
    seen: Mutex<LruCache<Key, SeenDocument>>,
    /// Lengths that documents are to have when they are opened next, and since when.
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

    /// Returns what a path has instead of its document; `None` if the document is not taken away.
    pub(super) fn instead(&self, path: &Key) -> Option<Instead> {
        let mut files = self.files.lock();
        if files.taken.get(path)?.is_over() {
            files.taken.remove(path);
            return None;
        }
        let made_anew = files.made_anew(path);
        Some(made_anew.map_or(Instead::Nothing, Instead::File))
    }

    /// Makes a scratch file; `Exists` if there is one, `NoSpace` if there is no room. `origin` is the document that the
    /// bytes are of.
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

    /// Removes a scratch file; returns whether there was one.
    pub(super) fn remove_scratch(&self, path: &Key) -> bool {
        self.files.lock().scratch.remove(path).is_some()
    }

    /// Gives a file that is not stored the name of a scratch file.
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

    /// Gives a document that has this text the name of a scratch file.
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

    /// Takes a document away; it shows its old text again if nobody makes it anew in time. `NoSpace` if too many are.
    pub(super) fn remove_document(&self, path: &Key) -> Result<()> {
        self.files.lock().remove_document(path)
    }

    /// Makes a document anew that was removed; `Exists` if it shows its old text again, or was made anew already.
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

    /// Whether a new file is still in the place of a document: neither removed nor replaced.
    pub(super) fn is_in_place(&self, path: &Key, scratch: &Arc<Scratch>) -> bool {
        let found = self.files.lock().made_anew(path);
        found.is_some_and(|found| Arc::ptr_eq(&found, scratch))
    }

    /// Notes that a document was stored: it shows its new text.
    pub(super) fn show_document(&self, path: &Key) {
        self.files.lock().taken.remove(path);
    }

    /// Notes what a program sees of a document.
    pub(super) fn note_seen(&self, path: &Key, seen: SeenDocument) {
        self.seen.lock().put(path.clone(), seen);
    }

    /// Returns what a program saw last of a document.
    pub(super) fn seen(&self, path: &Key) -> Option<SeenDocument> {
        self.seen.lock().get(path).cloned()
    }

    /// Notes that a document was saved: its handles have seen what is in it now.
    pub(super) fn note_saved(&self, path: &Key, saved: &SeenDocument) {
        if let Some(seen) = self.seen.lock().get_mut(path) {
            *seen = saved.clone();
        }
    }

    /// Drops what was seen of a document that has changed since.
    pub(super) fn forget_seen(&self, path: &Key) {
        self.seen.lock().pop(path);
    }

    /// Returns the document, as it was then, that a scratch file has the bytes of.
    pub(super) fn origin(&self, path: &Key) -> Option<SeenDocument> {
        self.files.lock().scratch.get(path)?.origin.clone()
    }

    /// Returns the error with which a scratch file was refused as the document, as it is now.
    pub(super) fn refusal(&self, from: &Key, to: &Key) -> Option<Error> {
        let files = self.files.lock();
        let (refused, error) = files.scratch.get(from)?.refusal.as_ref()?;
        (refused == to).then(|| error.clone())
    }

    /// Notes that a scratch file was refused as the document because that has changed.
    pub(super) fn note_refusal(&self, from: &Key, to: &Key, error: &Error) {
        if let Some(file) = self.files.lock().scratch.get_mut(from)
            && error.kind() == Kind::Changed
        {
            file.refusal = Some((to.clone(), error.clone()));
        }
    }

    /// Notes that a scratch file is written.
    pub(super) fn note_written(&self, path: &Key) {
        if let Some(file) = self.files.lock().scratch.get_mut(path) {
            (file.refusal, file.origin) = (None, None);
        }
    }

    /// Notes that a document is to have a length when it is opened next.
    pub(super) fn truncate(&self, path: &Key, length: u64) {
        let mut truncated = self.truncated.lock();
        if truncated.len() >= MAX_FILES {
            truncated.clear();
        }
        truncated.insert(path.clone(), (length, Instant::now()));
    }

    /// Returns, once, the length that a document is to have when it is opened.
    pub(super) fn take_truncated(&self, path: &Key) -> Option<u64> {
        let (length, since) = self.truncated.lock().remove(path)?;
        (since.elapsed() < TRUNCATION_TIMEOUT).then_some(length)
    }
}
