//! What this session knows of the files view beyond what is stored: files that programs make beside a document
//! before they rename them onto it, and which of a node's files were removed.
//!
//! A node's own files are made from what is stored, so removing one alone changes nothing; the directory can be
//! removed once all of them were. Chunks are the exception: a chunk that is removed is erased at once.

use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, Kind, Result};
use crate::store::Key;

/// The most files beside documents.
const MOST_FILES: usize = 256;

/// For how long the next to open a document is taken for who truncated it.
const TRUNCATED: Duration = Duration::from_secs(5);

/// A file that only this session has.
pub(super) type Scratch = Arc<Mutex<Vec<u8>>>;

/// What was removed of a node.
#[derive(Default)]
struct Removed {
    names: HashSet<Vec<u8>>,
    chunks: IdRanges,
}

/// A set of numbers, as ranges: removing a directory goes through it in order.
#[derive(Default)]
struct IdRanges(BTreeMap<u64, u64>);

impl IdRanges {
    fn insert(&mut self, number: u64) {
        if self.contains(number) {
            return;
        }
        let Range { mut start, mut end } = number..number + 1;
        if let Some((&first, &last)) = self.0.range(..number).next_back()
            && last == number
        {
            start = first;
        }
        if let Some(last) = self.0.remove(&end) {
            end = last;
        }
        self.0.insert(start, end);
    }

    fn contains(&self, number: u64) -> bool {
        let before = self.0.range(..=number).next_back();
        before.is_some_and(|(_, &end)| number < end)
    }

    fn len(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }
}

/// What all handles of a view share.
#[derive(Default)]
pub(super) struct UnstoredState {
    scratch: Mutex<HashMap<Key, Scratch>>,
    removed: Mutex<HashMap<Key, Removed>>,
    /// Lengths that documents are to have when they are opened next, and when that was said.
    truncated: Mutex<HashMap<Key, (u64, Instant)>>,
}

impl UnstoredState {
    /// Returns a file that only this session has.
    pub(super) fn scratch(&self, path: &Key) -> Option<Scratch> {
        self.scratch.lock().get(path).cloned()
    }

    /// Makes such a file, or empties it; `NoSpace` if there are too many.
    pub(super) fn make_scratch(&self, path: &Key, bytes: Vec<u8>) -> Result<Scratch> {
        let mut files = self.scratch.lock();
        if files.len() >= MOST_FILES && !files.contains_key(path) {
            let why = format!("at most {MOST_FILES} files are kept beside documents");
            return Err(Error::new(Kind::NoSpace, path, why));
        }
        let file = Arc::new(Mutex::new(bytes));
        files.insert(path.clone(), file.clone());
        Ok(file)
    }

    /// Takes such a file away.
    pub(super) fn take_scratch(&self, path: &Key) -> Option<Scratch> {
        self.scratch.lock().remove(path)
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
        if truncated.len() >= MOST_FILES {
            truncated.clear();
        }
        truncated.insert(path.clone(), (length, Instant::now()));
    }

    /// Returns the length that a document is to have.
    pub(super) fn take_truncated(&self, path: &Key) -> Option<u64> {
        let (length, since) = self.truncated.lock().remove(path)?;
        (since.elapsed() < TRUNCATED).then_some(length)
    }

    /// Notes that one of a node's files was removed.
    pub(super) fn remove(&self, node: &Key, name: &[u8]) {
        let mut removed = self.removed.lock();
        let removed = removed.entry(node.clone()).or_default();
        removed.names.insert(name.to_vec());
    }

    /// Notes that a chunk of an array was removed; returns whether it had been already.
    pub(super) fn remove_chunk(&self, node: &Key, chunk: u64) -> bool {
        let mut removed = self.removed.lock();
        let chunks = &mut removed.entry(node.clone()).or_default().chunks;
        let is_known = chunks.contains(chunk);
        chunks.insert(chunk);
        is_known
    }

    /// Whether one of a node's files was removed.
    pub(super) fn is_removed(&self, node: &Key, name: &[u8]) -> bool {
        let removed = self.removed.lock();
        let removed = removed.get(node);
        removed.is_some_and(|removed| removed.names.contains(name))
    }

    /// Returns how many chunks of an array were removed.
    pub(super) fn removed_chunks(&self, node: &Key) -> u64 {
        let removed = self.removed.lock();
        removed.get(node).map_or(0, |removed| removed.chunks.len())
    }

    /// Forgets what was removed of a node: it is in use again, or is gone.
    pub(super) fn keep(&self, node: &Key) {
        self.removed.lock().remove(node);
    }

    /// Forgets all that is known of the paths below a node that is gone.
    pub(super) fn forget_below(&self, node: &Key) {
        self.removed
            .lock()
            .retain(|path, _| path.below(node).is_none());
        self.scratch
            .lock()
            .retain(|path, _| path.below(node).is_none());
        self.truncated
            .lock()
            .retain(|path, _| path.below(node).is_none());
    }
}

/// Whether a name is one that programs give a file that they write before it replaces another, or in which they
/// keep what they replace.
pub(super) fn is_temporary(name: &[u8]) -> bool {
    let holds = |word: &[u8]| name.windows(word.len()).any(|part| part == word);
    let starts = |words: &[&[u8]]| words.iter().any(|word| name.starts_with(word));
    let ends = |words: &[&[u8]]| words.iter().any(|word| name.ends_with(word));
    let is_number = name.iter().all(u8::is_ascii_digit);
    holds(b"attributes.json")
        || holds(b"zarr.json")
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
    fn numbers_in_order_are_one_range() {
        let mut numbers = IdRanges::default();
        for number in [5, 1, 2, 0, 3, 3, 7, 6] {
            numbers.insert(number);
        }
        assert_eq!(numbers.len(), 7);
        assert_eq!(numbers.0.len(), 2);
        assert!(numbers.contains(3) && !numbers.contains(4) && !numbers.contains(8));
    }

    #[test]
    fn names_of_editors_are_temporary() {
        for name in [
            "sedAb12xY",
            ".attributes.json.swp",
            "4913",
            "attributes.json~",
            ".zarr.json.Ax3Fq1",
            "zarr.json.8f3.partial",
            "tmpk3x",
        ] {
            assert!(is_temporary(name.as_bytes()), "{name}");
        }
        for name in ["data.csv", "a.npy", "temp", "README"] {
            assert!(!is_temporary(name.as_bytes()), "{name}");
        }
    }
}
