//! Prefetches answers for programs that read or look up keys in sequence.
//!
//! A program that reads a document of one directory probably reads the same document of the next directories. A program
//! that looks up files whose listing has no sizes probably looks up the next files.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;

use super::cached_dir::{DirEntry, Slot};
use super::key_queries::KeyQueries;
use super::lister::DirLister;
use crate::layer::name_sequence::NameSequence;
use crate::request_context::UNLIMITED;
use crate::sync::pool::ThreadPool;
use crate::{EntryKind, Key};
use zarr_format::model::document::is_document;

/// A sequence of keys that a program may read or look up in order.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Sequence {
    /// The files of one directory.
    Files(Key),
    /// The same metadata document in each subdirectory of `above`.
    Documents { above: Key, name: Vec<u8> },
}

impl Sequence {
    fn of(key: &Key) -> Option<Sequence> {
        let directory = key.parent()?;
        if !is_document(key.name()) {
            return Some(Sequence::Files(directory));
        }
        Some(Sequence::Documents {
            above: directory.parent()?,
            name: key.name().to_vec(),
        })
    }
}

/// How far programs have gone in the sequences of keys that were used last.
type SequenceTable = Mutex<LruCache<Sequence, NameSequence>>;

/// Prefetches metadata documents, sizes and listings in other threads. Errors are ignored: a reader repeats the request
/// and gets the error itself.
pub(super) struct Lookahead {
    queries: Arc<KeyQueries>,
    lister: Arc<DirLister>,
    /// The sequences of metadata documents that programs read.
    read_documents: SequenceTable,
    /// The sequences of keys that programs look up by `head`.
    looked_up: SequenceTable,
    pool: ThreadPool,
    window: usize,
}

impl Lookahead {
    /// Prefetches with at most `concurrency` requests at a time.
    pub(super) fn new(
        queries: Arc<KeyQueries>,
        lister: Arc<DirLister>,
        concurrency: usize,
    ) -> Lookahead {
        let window = concurrency.max(1);
        let table = || Mutex::new(LruCache::new(const { NonZeroUsize::new(256).unwrap() }));
        Lookahead {
            queries,
            lister,
            read_documents: table(),
            looked_up: table(),
            pool: ThreadPool::new("zarrfs-ahead", window, window.saturating_mul(4)),
            window,
        }
    }

    /// Prefetches a metadata document, unless the listing of its directory lacks the name. A web server may hide an
    /// existing `.zarray` from its listing; such a document is not prefetched.
    pub(super) fn prefetch_document(&self, key: Key) {
        let answers = &self.queries.answers;
        let is_unlikely = || {
            let dir = key.parent().and_then(|dir| answers.dirs.get(&dir));
            dir.is_some_and(|dir| dir.is_unlisted(key.name()))
        };
        if !answers.is_on() || answers.document(&key).is_some() || is_unlikely() {
            return;
        }
        let queries = self.queries.clone();
        self.pool.submit(move || {
            let limit = queries.answers.keys.max_document_bytes();
            let _ = queries.document(&UNLIMITED, &key, limit);
        });
    }

    fn prefetch_head(&self, key: Key) {
        if self.queries.answers.head(&key).is_some() {
            return;
        }
        let queries = self.queries.clone();
        self.pool.submit(move || {
            let _ = queries.head(&UNLIMITED, &key);
        });
    }

    /// Prefetches the listing of a directory, at most `limit` names of it.
    pub(super) fn prefetch_listing(&self, dir: Key, limit: usize) {
        let lister = self.lister.clone();
        self.pool.submit(move || {
            let Ok(dir) = lister.list(&UNLIMITED, &dir) else {
                return;
            };
            let is_name =
                |index: &usize| matches!(dir.slot_at(&UNLIMITED, *index), Ok(Slot::Entry(_)));
            (0..limit).take_while(is_name).for_each(drop);
        });
    }

    /// Records that a program looks up a key. From the third lookup of a sequence on, prefetches the answers for the
    /// next keys. Only a lookup that is not answered from the cache (`is_requested`) starts a sequence.
    pub(super) fn record_lookup(&self, key: &Key, is_requested: bool) {
        let sequence = Sequence::of(key).filter(|sequence| {
            let is_tracked = || self.looked_up.lock().contains(sequence);
            self.queries.answers.is_on() && (is_requested || is_tracked())
        });
        let Some(sequence) = sequence else { return };
        let window = |count, _| match count {
            0..3 => 0,
            count => self.window.min(count),
        };
        for key in self.next_keys(&self.looked_up, sequence, key, window) {
            self.prefetch_head(key);
        }
    }

    /// Records that a program reads a key. If the key is a metadata document, prefetches the same document of the next
    /// directories, once the program has read it in the first directory or in two directories.
    pub(super) fn record_read(&self, key: &Key) {
        let is_tracked = self.queries.answers.is_on() && is_document(key.name());
        let Some(sequence) = Sequence::of(key).filter(|_| is_tracked) else {
            return;
        };
        let window = |count, is_first: bool| match count {
            1 if !is_first => 0,
            _ => self.window,
        };
        for document in self.next_keys(&self.read_documents, sequence, key, window) {
            self.prefetch_document(document);
        }
    }

    /// Records the use of a key, and returns the next keys to prefetch. `window` returns how many, given the number of
    /// keys used in sequence and whether this key is the first one of the directory.
    fn next_keys(
        &self,
        table: &SequenceTable,
        sequence: Sequence,
        key: &Key,
        window: impl Fn(usize, bool) -> usize,
    ) -> Vec<Key> {
        let (directory, document) = match &sequence {
            Sequence::Files(directory) => (directory.clone(), None),
            Sequence::Documents { above, name } => (above.clone(), Some(name.clone())),
        };
        let is_wanted = |entry: &DirEntry| match document {
            None => entry.is_without_size(),
            Some(_) => entry.kind == EntryKind::Directory,
        };
        let Some(dir) = self.queries.answers.dirs.get(&directory) else {
            return Vec::new();
        };
        let name = key.below(&directory);
        let Some(index) = name.and_then(|below| dir.index_of(below.names().next()?, is_wanted))
        else {
            return Vec::new();
        };
        let mut table = table.lock();
        let progress = table.get_or_insert_mut(sequence, NameSequence::default);
        progress.record(index);
        let count = progress.count();
        let is_first = count == 1 && dir.first_index(is_wanted) == Some(index);
        let next = progress.take_window(window(count, is_first));
        drop(table);
        let names = dir.names_at(next, is_wanted).into_iter();
        let keys = names.map(|name| {
            let child = directory.child(&name)?;
            match &document {
                None => Ok(child),
                Some(document) => child.child(document),
            }
        });
        keys.flatten().collect()
    }
}
