//! Records the metadata that changed chunks were encoded with.
//!
//! A chunk must not be put into an array with another data type, shape of chunks or codec. So the first change of a
//! chunk records the array's metadata that it was encoded with, once for all chunks of an array. A commit compares this
//! record with the store's current metadata (`commit/arrays`). For a decoded file, zarrfs knows the metadata that it
//! encodes with (`Store::put_chunk`). A program that writes chunks itself has usually read or written the array's
//! metadata, so the metadata that it last read or wrote is recorded. Otherwise the metadata that is visible at the
//! chunk's first change is recorded.
//!
//! If a program replaces an array on the mount, the records of the array's earlier chunks are dropped, because the
//! program is responsible for them.

use std::collections::HashSet;
use std::sync::Arc;

use lru::LruCache;

use crate::Overlay;
use crate::journal_record::JournalRecord;
use crate::layer::ChangeLayer;
use crate::overlay_core::OverlayCore;
use crate::records::{Records, renamed};
use zarr_format::dialect::consolidated::MAX_DOCUMENT;
use zarr_format::dialect::encoding;
use zarr_format::error::{Kind, Result};
use zarr_format::model::document::{
    ATTRIBUTES_JSON, ZARR_JSON, ZARRAY, ZGROUP, describes_node, is_consolidated, is_draft_document,
};
use zarr_format::model::is_like_chunk;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::locks::Mutex;
use zarrfs_store::{EncodedBy, Key, Object, Store};

/// The metadata that programs have last read or written of up to 65,536 arrays, by their folders. The least recently
/// used metadata is evicted.
pub(crate) struct EncodingCache(Mutex<LruCache<Key, CachedEncoding>>);

/// An array's metadata, as far as the encoding of its chunks depends on it.
#[derive(Clone)]
struct CachedEncoding {
    by: EncodedBy,
    /// Whether only zarrfs has read the metadata, when a chunk was changed, and no program has.
    is_found: bool,
}

impl Default for EncodingCache {
    fn default() -> EncodingCache {
        EncodingCache(Mutex::new(LruCache::unbounded()))
    }
}

impl EncodingCache {
    /// Returns the cached metadata of the array in the nearest folder above a key, which may be a chunk of it.
    fn above(&self, key: &Key) -> Option<CachedEncoding> {
        let mut cached = self.0.lock();
        let mut folders = std::iter::successors(key.parent(), Key::parent);
        folders.find_map(|folder| cached.get(&folder).cloned())
    }

    /// Caches metadata that a program has read or written; returns the metadata of the array that was cached before.
    fn put(&self, by: EncodedBy) -> Option<EncodedBy> {
        self.put_if_newer(CachedEncoding {
            by,
            is_found: false,
        })
    }

    fn put_if_newer(&self, now: CachedEncoding) -> Option<EncodedBy> {
        let mut cached = self.0.lock();
        let folder = now.by.folder.clone();
        let is_read = |cached: &CachedEncoding| !cached.is_found;
        if now.is_found && cached.peek(&folder).is_some_and(is_read) {
            return None;
        }
        let before = cached.put(folder, now);
        if cached.len() > 1 << 16 {
            cached.pop_lru();
        }
        before.map(|before| before.by)
    }

    /// Drops the cached metadata of a document, which no longer describes an array; returns that metadata.
    fn remove(&self, document: &Key) -> Option<EncodedBy> {
        let mut cached = self.0.lock();
        let is_it = |cached: &CachedEncoding| cached.by.document == *document;
        let folder = if is_draft_document(document.name()) {
            let mut all = cached.iter();
            let found = all.find(|(_, cached)| is_it(cached));
            found.map(|(folder, _)| folder.clone())?
        } else {
            document.parent().unwrap_or_default()
        };
        let removed = cached
            .peek(&folder)
            .is_some_and(is_it)
            .then(|| cached.pop(&folder));
        removed.flatten().map(|cached| cached.by)
    }

    /// Renames the cached arrays at and below a folder. If only an array's document or only its chunks are renamed, the
    /// array is dropped from the cache.
    pub(crate) fn rename(&self, from: &Key, to: &Key) {
        let mut cached = self.0.lock();
        let is_moved = |cached: &CachedEncoding| cached.by.folder.below(from).is_some();
        let has_moved =
            |cached: &CachedEncoding| is_moved(cached) || cached.by.document.below(from).is_some();
        let moved = cached.iter().filter(|(_, cached)| has_moved(cached));
        let moved: Vec<Key> = moved.map(|(folder, _)| folder.clone()).collect();
        let moved: Vec<CachedEncoding> = moved.iter().filter_map(|at| cached.pop(at)).collect();
        for CachedEncoding { by, is_found } in moved {
            if let Some(by) = renamed_encoding(by, from, to) {
                cached.put(by.folder.clone(), CachedEncoding { by, is_found });
            }
        }
    }

    /// Records that a program has put or removed a document. If the document described another array before, returns
    /// records that drop the metadata of earlier changed chunks, because the program is responsible for them.
    pub(crate) fn record_document(
        &self,
        layer: &ChangeLayer,
        key: &Key,
        content: &NewContent,
    ) -> Vec<JournalRecord> {
        if !may_describe_array(key) {
            return Vec::new();
        }
        let (now, before) = match content {
            NewContent::Array(by) => (Some(by), self.put(by.clone())),
            NewContent::Other | NewContent::Nothing => (None, self.remove(key)),
        };
        let folder = now.or(before.as_ref()).map(|by| by.folder.clone());
        let folder = folder.or_else(|| key.parent()).unwrap_or_default();
        let recorded = {
            let records = &layer.lock().records;
            if is_draft_document(key.name()) {
                // In drafts of Zarr v3, an array's chunks are in another folder than its document, so they are found by
                // the document.
                records.encoded_by_document_below(key)
            } else {
                records.encoded_below(&folder)
            }
        };
        let is_removed = matches!(content, NewContent::Nothing);
        let is_replaced = |recorded: &(Key, Option<EncodedBy>)| {
            let (at, by) = recorded;
            let has_read_it = before.is_none() || before == *by;
            let is_own = is_removed || (*at == folder && has_read_it);
            by.as_ref()
                .is_some_and(|by| by.document == *key && Some(by) != now && is_own)
        };
        let replaced = recorded.into_iter().filter(is_replaced);
        let forgotten = replaced.map(|(at, _)| JournalRecord::EncodedBy { at, by: None });
        forgotten.collect()
    }

    /// Returns the records of the metadata that changed chunks were encoded with. `list` has the changes. The metadata
    /// is `explicit` for chunks that zarrfs itself encoded, or else the metadata that programs have read or written.
    pub(crate) fn records_of(
        &self,
        layer: &ChangeLayer,
        list: &[JournalRecord],
        explicit: Option<&EncodedBy>,
    ) -> Vec<JournalRecord> {
        let recorded = |record: &JournalRecord| match record {
            JournalRecord::EncodedBy { at, .. } => Some(at.clone()),
            _ => None,
        };
        let mut done: HashSet<Key> = list.iter().filter_map(recorded).collect();
        let mut records = Vec::new();
        for record in list {
            let (JournalRecord::Base { key, .. } | JournalRecord::Written { key, .. }) = record
            else {
                continue;
            };
            let cached = || self.above(key).map(|cached| cached.by);
            let by = explicit.cloned().or_else(cached);
            let Some(by) = by.filter(|_| may_be_chunk(key)) else {
                continue;
            };
            if done.contains(key) {
                continue;
            }
            let folder = by.folder.clone();
            let is_done = done.contains(&folder);
            records.extend(records_of_chunk(layer, key, by, is_done));
            done.insert(folder);
        }
        records
    }
}

/// Returns records that a chunk is encoded with the metadata `by`. `is_done` tells that pending records already have
/// the array's metadata.
fn records_of_chunk(
    layer: &ChangeLayer,
    key: &Key,
    by: EncodedBy,
    is_done: bool,
) -> Vec<JournalRecord> {
    let folder = by.folder.clone();
    let state = layer.lock();
    let (records, mut list) = (&state.records, Vec::new());
    if records.is_encoded_at(key) {
        let (at, by) = (key.clone(), Some(by.clone()));
        list.push(JournalRecord::EncodedBy { at, by });
    }
    let old = records.encoded_by(&folder).filter(|(at, _)| *at == folder);
    let old = old.map(|(_, old)| old);
    if is_done || old == Some(&by) {
        return list;
    }
    // The array was replaced, and the program writes chunks of the new array. Record the old metadata for each chunk
    // that was changed before.
    for (other, base) in old.iter().flat_map(|_| records.bases_below(&folder)) {
        let is_changed = !base.is_committed && other != *key && may_be_chunk(&other);
        let is_of_array = records
            .encoded_by(&other)
            .is_some_and(|(at, _)| at == folder);
        if is_changed && is_of_array {
            let (at, by) = (other, old.cloned());
            list.push(JournalRecord::EncodedBy { at, by });
        }
    }
    let by = Some(by);
    list.push(JournalRecord::EncodedBy { at: folder, by });
    list
}

/// Whether a key looks like a chunk, so that a commit checks its array's metadata.
pub(crate) fn may_be_chunk(key: &Key) -> bool {
    is_like_chunk(key.name())
}

/// Whether a key names a metadata document of an array, or consolidated metadata.
fn has_metadata(key: &Key) -> bool {
    may_describe_array(key) || is_consolidated(key.name())
}

/// Whether a key names a document that may describe an array.
pub(crate) fn may_describe_array(key: &Key) -> bool {
    describes_node(key.name()) || is_draft_document(key.name())
}

/// Returns an array's metadata with its keys after a rename. Returns `None` if the rename separates the array's
/// document from its chunks.
fn renamed_encoding(by: EncodedBy, from: &Key, to: &Key) -> Option<EncodedBy> {
    match (
        renamed(&by.document, from, to),
        renamed(&by.folder, from, to),
    ) {
        (Some(document), Some(folder)) => Some(EncodedBy {
            document,
            folder,
            ..by
        }),
        (None, None) => Some(by),
        _ => None,
    }
}

/// Finds the metadata that chunks are encoded with, in the documents that the mount shows.
pub(crate) struct EncodingFinder<'a> {
    pub(crate) core: &'a Arc<OverlayCore>,
    pub(crate) context: &'a RequestContext,
}

impl EncodingFinder<'_> {
    /// Caches the metadata in a document that a program has read. `is_complete` tells whether `bytes` are the whole
    /// document.
    pub(crate) fn record_read(&self, key: &Key, bytes: &[u8], is_complete: bool) {
        if !has_metadata(key) {
            return;
        }
        let rest = if is_complete {
            None
        } else {
            self.document(key).ok().flatten()
        };
        let bytes = rest.as_ref().map_or(bytes, |object| &object.bytes);
        let read = |key: &Key| self.bytes(key);
        match encoding::of_document(key, bytes, &read) {
            Ok(Some(by)) => drop(self.core.encoding_cache.put(by)),
            Ok(None) => drop(self.core.encoding_cache.remove(key)),
            Err(error) => log::debug!("{key}: the entry point above is not known: {error}"),
        }
        for by in encoding::of_copies(key, bytes, &read) {
            self.core.encoding_cache.put(by);
        }
    }

    /// Returns whether the object `from` will describe an array when it is renamed to `to`, with the array's metadata.
    pub(crate) fn content_as(&self, from: &Key, to: &Key) -> Result<NewContent> {
        if !may_describe_array(to) {
            return Ok(NewContent::Other);
        }
        match self.document(from)? {
            Some(object) => self.new_content(to, &object.bytes),
            None => Ok(NewContent::Other),
        }
    }

    /// Returns whether `bytes` describe an array when they are put under a key, with the array's metadata.
    pub(crate) fn new_content(&self, key: &Key, bytes: &[u8]) -> Result<NewContent> {
        let read = |key: &Key| self.bytes(key);
        let by = encoding::of_document(key, bytes, &read)?;
        Ok(by.map_or(NewContent::Other, NewContent::Array))
    }

    /// Finds and caches the metadata of a chunk's array, before the chunk is changed. Nothing is done if the metadata
    /// is already known, from a program or from an earlier chunk. The array's folder is the nearest folder whose name
    /// does not look like a chunk, or a folder inside it.
    pub(crate) fn find(&self, key: &Key) -> Result<()> {
        if !may_be_chunk(key) {
            return Ok(());
        }
        let cached = self.core.encoding_cache.above(key);
        let is_valid =
            |cached: &CachedEncoding| !cached.is_found || self.is_still_valid(&cached.by);
        if cached.as_ref().is_some_and(is_valid) {
            return Ok(());
        }
        let found = self.look_up(key)?;
        let document = found.as_ref().map(|by| &by.document);
        if let Some(gone) = cached.filter(|cached| document != Some(&cached.by.document)) {
            self.core.encoding_cache.remove(&gone.by.document);
        }
        if let Some(by) = found {
            let is_found = true;
            self.core
                .encoding_cache
                .put_if_newer(CachedEncoding { by, is_found });
        }
        Ok(())
    }

    fn look_up(&self, key: &Key) -> Result<Option<EncodedBy>> {
        let above = |folder: &Key| folder.parent().filter(|_| is_like_chunk(folder.name()));
        let mut folders: Vec<Key> = std::iter::successors(key.parent(), above).collect();
        folders.reverse();
        match self.look_in_folders(&folders)? {
            None => self.look_in_drafts(&folders),
            found => Ok(found),
        }
    }

    /// Looks for an array's metadata document in `folders`, the outermost folder first.
    fn look_in_folders(&self, folders: &[Key]) -> Result<Option<EncodedBy>> {
        let read = |key: &Key| self.bytes(key);
        for (depth, folder) in folders.iter().enumerate() {
            let mut is_node = false;
            // The documents are in the order of their likelihood, to save requests.
            for name in [ZARR_JSON, ZARRAY, ZGROUP, ATTRIBUTES_JSON] {
                let document = folder.child(name.as_bytes())?;
                let Some(object) = self.document(&document)? else {
                    continue;
                };
                is_node = true;
                let by = encoding::of_document(&document, &object.bytes, &read)?;
                if by.is_some() {
                    return Ok(by);
                }
            }
            if depth > 0 && !is_node {
                break;
            }
        }
        Ok(None)
    }

    /// Looks for a document as drafts of Zarr v3 place it, for an array whose chunks are in one of `folders`.
    fn look_in_drafts(&self, folders: &[Key]) -> Result<Option<EncodedBy>> {
        let read = |key: &Key| self.bytes(key);
        for folder in folders {
            for document in encoding::draft_documents(folder, &read)? {
                let Some(object) = self.document(&document)? else {
                    continue;
                };
                let by = encoding::of_document(&document, &object.bytes, &read)?;
                if by.is_some() {
                    return Ok(by);
                }
            }
        }
        Ok(None)
    }

    /// Whether cached metadata that no program has read may be used for another chunk. It may if it is recorded for an
    /// earlier chunk, since a commit then checks it.
    fn is_still_valid(&self, by: &EncodedBy) -> bool {
        let is_recorded = || {
            self.core
                .top()
                .layer
                .lock()
                .records
                .is_encoded_at(&by.folder)
        };
        !self.core.config.write_through && is_recorded()
    }

    fn document(&self, key: &Key) -> Result<Option<Object>> {
        readable(Overlay(self.core.clone()).get(self.context, key, MAX_DOCUMENT))
    }

    fn bytes(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        let object = self.document(key)?;
        Ok(object.map(|object| object.bytes))
    }
}

/// What a program puts under a key that may be a metadata document.
pub(crate) enum NewContent {
    /// A document that describes an array.
    Array(EncodedBy),
    /// Any content that describes no array.
    Other,
    /// No content, because the key is removed.
    Nothing,
}

/// Returns the records of the metadata that changed chunks were encoded with, as they must be after a rename.
pub(crate) fn records_after_rename(records: &Records, from: &Key, to: &Key) -> Vec<JournalRecord> {
    let replaced = records.encoded_below(to).into_iter();
    let moved = records.encoded_below(from);
    let gone = replaced.chain(moved.clone()).map(|(at, _)| (at, None));
    let moved = moved.into_iter().filter_map(|(at, by)| {
        let at = renamed(&at, from, to)?;
        Some((at, by.and_then(|by| renamed_encoding(by, from, to))))
    });
    // In drafts of Zarr v3, a rename may leave an array's chunks behind. Their metadata is then treated as removed.
    let may_leave = from.names().any(|name| name == b"meta");
    let left_behind = may_leave.then(|| records.encoded_by_document_below(from));
    let left_behind = left_behind.into_iter().flatten();
    let left_behind = left_behind.filter(|(at, _)| at.below(from).is_none());
    let left_behind = left_behind.map(|(at, _)| (at, None));
    gone.chain(left_behind)
        .chain(moved)
        .map(|(at, by)| JournalRecord::EncodedBy { at, by })
        .collect()
}

/// Treats a document that can never be read as missing, because it describes no array.
pub(crate) fn readable(answer: Result<Option<Object>>) -> Result<Option<Object>> {
    match answer {
        Err(error) => match error.kind() {
            Kind::TooLarge | Kind::Corrupt | Kind::Denied | Kind::Unsupported => Ok(None),
            Kind::NameTooLong => Ok(None),
            _ => Err(error),
        },
        answer => answer,
    }
}
