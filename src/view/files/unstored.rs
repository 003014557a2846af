//! In-memory state of the files view: files that programs make beside `attributes.json` before they rename them onto it,
//! and what programs have seen of that document.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;

use crate::error::{Error, Kind, Result};
use crate::store::Key;
use crate::view::files::seen::SeenDocument;

/// The most files that are kept beside documents.
const MAX_FILES: usize = 256;

/// The most documents of which is known what was seen of them.
const MAX_SEEN: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// How long a truncation by path waits for the open that follows it.
const TRUNCATION_TIMEOUT: Duration = Duration::from_secs(5);

/// The bytes of a file that is not stored.
pub(super) type Scratch = Arc<Mutex<Vec<u8>>>;

/// Returns the number that tells such a file from others.
pub(super) fn content_of(scratch: &Scratch) -> u64 {
    Arc::as_ptr(scratch).addr() as u64
}

/// A file beside a document.
struct ScratchFile {
    bytes: Scratch,
    /// The document that the file was to replace, and the error that this was refused with since the document has
    /// changed. It stays refused until other bytes are written to the file.
    refusal: Option<(Key, Error)>,
}

/// The state that all clones of a view share.
pub(super) struct UnstoredState {
    scratch: Mutex<HashMap<Key, ScratchFile>>,
    /// What programs saw last of documents.
    seen: Mutex<LruCache<Key, SeenDocument>>,
    /// Lengths that documents are to have when they are opened next, and since when.
    truncated: Mutex<HashMap<Key, (u64, Instant)>>,
}

impl Default for UnstoredState {
    fn default() -> UnstoredState {
        UnstoredState {
            scratch: Mutex::default(),
            seen: Mutex::new(LruCache::new(MAX_SEEN)),
            truncated: Mutex::default(),
        }
    }
}

impl UnstoredState {
    /// Returns a file that is not stored.
    pub(super) fn scratch(&self, path: &Key) -> Option<Scratch> {
        let files = self.scratch.lock();
        files.get(path).map(|file| file.bytes.clone())
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

    /// Returns the error with which a file beside a document was refused as the document, as it is now.
    pub(super) fn refusal(&self, from: &Key, to: &Key) -> Option<Error> {
        let files = self.scratch.lock();
        let (refused, error) = files.get(from)?.refusal.as_ref()?;
        (refused == to).then(|| error.clone())
    }

    /// Notes that a file beside a document was refused as the document because that has changed.
    pub(super) fn note_refusal(&self, from: &Key, to: &Key, error: &Error) {
        if let Some(file) = self.scratch.lock().get_mut(from)
            && error.kind() == Kind::Changed
        {
            file.refusal = Some((to.clone(), error.clone()));
        }
    }

    /// Notes that a file beside a document is written.
    pub(super) fn note_written(&self, path: &Key) {
        if let Some(file) = self.scratch.lock().get_mut(path) {
            file.refusal = None;
        }
    }

    /// Makes such a file, or replaces its bytes; `NoSpace` if there are too many.
    pub(super) fn make_scratch(&self, path: &Key, bytes: Vec<u8>) -> Result<Scratch> {
        let mut files = self.scratch.lock();
        if files.len() >= MAX_FILES && !files.contains_key(path) {
            let why = format!("at most {MAX_FILES} files are kept beside documents");
            return Err(Error::new(Kind::NoSpace, path, why));
        }
        let bytes = Arc::new(Mutex::new(bytes));
        let file = ScratchFile {
            bytes: bytes.clone(),
            refusal: None,
        };
        files.insert(path.clone(), file);
        Ok(bytes)
    }

    /// Removes such a file; returns whether there was one.
    pub(super) fn remove_scratch(&self, path: &Key) -> bool {
        self.scratch.lock().remove(path).is_some()
    }

    /// Gives such a file another name.
    pub(super) fn rename_scratch(&self, from: &Key, to: &Key) {
        let mut files = self.scratch.lock();
        if let Some(file) = files.remove(from) {
            files.insert(to.clone(), file);
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

/// Whether a name is one that programs give to a file that will replace another, or to the old content of one that
/// they replace.
pub(super) fn is_temporary(name: &[u8]) -> bool {
    let holds = |word: &[u8]| name.windows(word.len()).any(|part| part == word);
    let starts = |words: &[&[u8]]| words.iter().any(|word| name.starts_with(word));
    let ends = |words: &[&[u8]]| words.iter().any(|word| name.ends_with(word));
    let is_number = name.iter().all(u8::is_ascii_digit);
    holds(b"attributes.json")
        || starts(&[b"sed", b"tmp", b".tmp", b".nfs", b".fuse_hidden"])
        || ends(&[
            b"~",
            b".tmp",
            b".swp",
            b".swx",
            b".part",
            b".partial",
            b".bak",
        ])
        || is_number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_editors_are_temporary() {
        for name in [
            "sedAb12xY",
            ".attributes.json.swp",
            "4913",
            "attributes.json~",
            ".attributes.json.Ax3Fq1",
            "attributes.json.8f3.partial",
            "tmpk3x",
        ] {
            assert!(is_temporary(name.as_bytes()), "{name}");
        }
        for name in ["data.csv", "a.npy", "temp", "README"] {
            assert!(!is_temporary(name.as_bytes()), "{name}");
        }
    }
}
