//! Checks that arrays still have the metadata that changed chunks were encoded with.
//!
//! Chunks are compared with the array's metadata document that the store will have after the commit: the document that
//! the commit puts, or else the store's own. A program may have a changed document open, so that only a later commit
//! can put it; chunks may also match that document. Another program may replace the store's document while chunks are
//! put. A commit or a write-through therefore checks again at its end, since otherwise only the next commit would
//! notice.

use std::collections::{HashMap, HashSet};

use crate::Overlay;
use crate::changes::ChangedKey;
use crate::commit::{Commit, Conflicts, parallel_keys};
use crate::encodings::{may_be_chunk, readable};
use crate::layered_store::LayeredStore;
use zarr_format::dialect::consolidated::MAX_DOCUMENT;
use zarr_format::dialect::encoding;
use zarr_format::error::Result;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::pool::parallel_map;
use zarrfs_store::{Key, Store};

/// The arrays whose chunks were changed, by the keys of their metadata documents.
#[derive(Default)]
pub(crate) struct ChangedArrays(HashMap<Key, ChangedArray>);

/// Digests of an array's metadata in its versions; `None` if the document describes no array.
struct ChangedArray {
    /// The digest of the metadata that the store will have after the commit.
    stored: Option<u128>,
    /// Whether the commit leaves the array's metadata document as the store has it.
    is_of_store: bool,
    /// The digest of the metadata that the mount shows, if the document was changed on the mount.
    visible: Option<u128>,
    /// Digests of the metadata of chunks that an earlier, interrupted commit of the layer has put.
    put_before: HashSet<u128>,
}

/// Conflicts of a chunk whose array no longer has the metadata that the chunk was encoded with.
const REPLACED: &str = "the array was replaced in the store: data type, chunks, \
    codecs or fill value differ from those of this chunk";
const REMOVED: &str = "the array was removed from the store";

/// Whether a conflict with the description `why` means that a chunk does not match its array. The chunk is then also
/// wrong in every copy of the store.
pub fn is_of_array(why: &str) -> bool {
    [REPLACED, REMOVED].contains(&why)
}

impl ChangedArrays {
    /// Reads the metadata of the arrays whose chunks are in `changes`. `visible` is the store as the mount shows it.
    pub(crate) fn read(
        commit: &Commit<'_>,
        visible: &dyn Store,
        changes: &[ChangedKey],
    ) -> Result<ChangedArrays> {
        let mut documents: HashMap<Key, HashSet<u128>> = HashMap::new();
        let chunks = changes.iter().filter(|change| may_be_chunk(&change.key));
        for by in chunks.flat_map(|change| commit.layered.encoded_by(&change.key)) {
            documents.entry(by.document).or_default();
        }
        let put_before = put_before(commit);
        let put_before = put_before.iter().filter(|key| may_be_chunk(key));
        for by in put_before.flat_map(|key| commit.layered.encoded_by(key)) {
            documents.entry(by.document).or_default().insert(by.digest);
        }
        let changed: HashSet<&Key> = changes.iter().map(|change| &change.key).collect();
        let look = |array: (Key, HashSet<u128>)| -> Result<(Key, ChangedArray)> {
            let (document, put_before) = array;
            let is_of_store = !changed.contains(&document);
            let stored = if is_of_store {
                stored_metadata(commit, &document)?
            } else {
                digest(commit.context, visible, &document)?
            };
            let is_changed = !commit.is_live && commit.core.top().stored_key(&document).is_none();
            let visible = if is_changed {
                digest(commit.context, &Overlay(commit.core.clone()), &document)?
            } else {
                None
            };
            let array = ChangedArray {
                stored,
                is_of_store,
                visible,
                put_before,
            };
            Ok((document, array))
        };
        let documents = documents.into_iter().collect();
        let found = parallel_map(parallel_keys(&*commit.core.store), documents, &look);
        found.into_iter().collect::<Result<_>>().map(ChangedArrays)
    }

    /// Returns the reason why a chunk does not match its array's metadata, or `None` if it matches.
    pub(crate) fn conflict(&self, layered: &LayeredStore, key: &Key) -> Option<&'static str> {
        if !may_be_chunk(key) {
            return None;
        }
        let encoded = layered.encoded_by(key).into_iter();
        let found = encoded.map(|by| {
            let array = self.0.get(&by.document)?;
            let is_it = [array.stored, array.visible].contains(&Some(by.digest));
            let why = array.stored.map_or(REMOVED, |_| REPLACED);
            (!is_it).then_some(why)
        });
        found.flatten().next()
    }

    /// Checks the arrays' metadata again after their chunks were put. Returns the documents that another program
    /// replaced in the meantime, or after an earlier, interrupted commit had put chunks.
    pub(crate) fn replaced_meanwhile(&self, commit: &Commit<'_>) -> Result<Conflicts> {
        let documents = self.0.iter().filter(|(_, array)| array.is_of_store);
        let documents = documents.map(|(document, _)| document.clone()).collect();
        let look = |document: Key| {
            let now = stored_metadata(commit, &document)?;
            let Some(array) = self.0.get(&document) else {
                return Ok(None);
            };
            let fits = |digest: &u128| [now, array.visible].contains(&Some(*digest));
            let is_same = now == array.stored && array.put_before.iter().all(fits);
            Ok((!is_same).then_some(document))
        };
        let found = parallel_map(parallel_keys(&*commit.core.store), documents, &look);
        let found: Result<Vec<Option<Key>>> = found.into_iter().collect();
        let replaced = found?.into_iter().flatten();
        let why = "the array was replaced in the store while its chunks were written: \
    the new array may not be able to read these chunks";
        Ok(replaced
            .map(|document| (document, why.to_string()))
            .collect())
    }
}

/// Returns the keys that an earlier, interrupted commit has put.
fn put_before(commit: &Commit<'_>) -> Vec<Key> {
    // Skip the check with write-through, because each change was checked when it was made.
    if commit.is_live || commit.core.config.write_through {
        return Vec::new();
    }
    let bases = commit
        .layered
        .layer
        .lock()
        .records
        .bases_below(&Key::root());
    let put = bases.into_iter().filter(|(_, base)| base.is_committed);
    put.map(|(key, _)| key).collect()
}

/// Returns the digest of an array's current metadata in the store, or `None` if there is no array.
fn stored_metadata(commit: &Commit<'_>, document: &Key) -> Result<Option<u128>> {
    let store = &*commit.core.store;
    // Request the ETag first, because this makes caches drop an older version of the document.
    store.etag(commit.context, document)?;
    digest(commit.context, store, document)
}

/// Returns the digest of an array's metadata in a document, or `None` if the document describes no array.
fn digest(context: &RequestContext, store: &dyn Store, document: &Key) -> Result<Option<u128>> {
    let object = readable(store.get(context, document, MAX_DOCUMENT))?;
    let Some(object) = object else {
        return Ok(None);
    };
    let read = |key: &Key| {
        let found = readable(store.get(context, key, MAX_DOCUMENT))?;
        Ok(found.map(|object| object.bytes))
    };
    let by = encoding::of_document(document, &object.bytes, &read)?;
    Ok(by.map(|by| by.digest))
}
