//! Checks that arrays still have the metadata that changed chunks were encoded with.
//!
//! Chunks are compared with the document that the store will have after the commit: the one that the commit puts, or
//! else the store's own. Chunks may also fit a document that was changed on the mount but is left out of this commit,
//! because a program has it open: a later commit puts it. Another program may replace the store's document while chunks
//! are put, so a commit or a write-through checks again afterwards; otherwise only the next commit would find out.

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

/// The arrays of changed chunks, by the documents that describe them.
#[derive(Default)]
pub(crate) struct ChangedArrays(HashMap<Key, ChangedArray>);

/// Digests of the metadata of an array; `None` if a document describes no array.
struct ChangedArray {
    /// The metadata that the store has, or will have.
    stored: Option<u128>,
    /// Whether the commit does not change the document, so that the store's own document is compared.
    is_of_store: bool,
    /// The metadata that the mount shows, if the document was changed on it.
    visible: Option<u128>,
    /// The metadata that the chunks of an earlier, interrupted commit of the layer were encoded with.
    put_before: HashSet<u128>,
}

/// The descriptions of conflicts between a chunk and its array.
const REPLACED: &str = "the array was replaced in the store: data type, chunks, \
    codecs or fill value differ from those of this chunk";
const REMOVED: &str = "the array was removed from the store";

/// Whether a conflict with this description is between a chunk and its array. Such a chunk is wrong in every store that
/// has the present array, also in a new copy of this store.
pub fn is_of_array(why: &str) -> bool {
    [REPLACED, REMOVED].contains(&why)
}

impl ChangedArrays {
    /// Reads the metadata of the arrays of these changes. `visible` has the contents.
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

    /// Returns the reason why a chunk does not fit its array, or `None` if it fits.
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

    /// Checks again after the chunks of these changes were put; returns the documents of arrays that were replaced in
    /// the meantime, or while an earlier commit of the layer put chunks.
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

/// Returns the keys that an interrupted commit of a frozen layer has put.
fn put_before(commit: &Commit<'_>) -> Vec<Key> {
    // With write-through, each change was checked when it was made.
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

/// Returns the digest of the store's current metadata.
fn stored_metadata(commit: &Commit<'_>, document: &Key) -> Result<Option<u128>> {
    let store = &*commit.core.store;
    // Asking for the ETag makes caches drop an older version of the document.
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
