//! Whether the arrays of changed chunks are still those that the chunks were encoded for.
//!
//! The document that the store will have after the commit is compared: the one that it puts, or else the store's own. A
//! document that is changed on the mount and left out, since a program has it open, comes with a later commit, and so is
//! no conflict either. The store's may be replaced while chunks are put, so a commit or a write-through looks again when it has
//! put them; nothing but the next look would tell.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::{Commit, Conflicts, parallel_keys};
use crate::changes::ChangedKey;
use crate::encodings::{MAX_DOCUMENT, may_be_chunk, readable};
use crate::layered_store::LayeredStore;
use crate::{Overlay, OverlayCore};
use zarr_format::dialect::encoding;
use zarr_format::error::Result;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::pool::parallel_map;
use zarrfs_store::{Key, Store};

/// What the arrays of changed chunks are, by the documents that describe them.
#[derive(Default)]
pub(super) struct ChangedArrays(HashMap<Key, ChangedArray>);

/// Digests of the metadata of an array; `None` if a document describes no array.
struct ChangedArray {
    /// Those that the store has, or will have.
    stored: Option<u128>,
    /// Whether the document is not part of the changes.
    is_of_store: bool,
    /// Those that the mount shows, if it has changed the document.
    shown: Option<u128>,
    /// Those by which chunks were encoded that an earlier commit of the layer has put.
    put_before: HashSet<u128>,
}

/// Why a chunk is in conflict.
const REPLACED: &str = "its array was replaced by somebody else: \
    data type, chunks, codecs or fill value differ from those that it was encoded by";
const REMOVED: &str = "its array was removed by somebody else";
const REPLACED_MEANWHILE: &str = "was replaced by somebody else while chunks of it were put: \
    they are in the store, and may not be read by it";

/// Whether a chunk that is in conflict for this reason would be wrong in any store that has its array.
pub fn is_of_array(why: &str) -> bool {
    [REPLACED, REMOVED].contains(&why)
}

impl ChangedArrays {
    /// Returns the reason why a chunk does not fit its array, if it does not.
    pub(super) fn conflict(&self, layered: &LayeredStore, key: &Key) -> Option<&'static str> {
        if !may_be_chunk(key) {
            return None;
        }
        let encoded = layered.encoded_by(key).into_iter();
        let found = encoded.map(|by| {
            let array = self.0.get(&by.document)?;
            let is_it = [array.stored, array.shown].contains(&Some(by.digest));
            let why = array.stored.map_or(REMOVED, |_| REPLACED);
            (!is_it).then_some(why)
        });
        found.flatten().next()
    }

    /// Looks again, after the chunks of these changes were put; returns the documents of arrays that were replaced
    /// meanwhile, or while an earlier commit of the layer put chunks.
    pub(super) fn replaced_meanwhile(
        &self,
        context: &RequestContext,
        commit: &Commit<'_>,
    ) -> Result<Conflicts> {
        let documents = self.0.iter().filter(|(_, array)| array.is_of_store);
        let documents = documents.map(|(document, _)| document.clone()).collect();
        let look = |document: Key| {
            let now = commit.core.stored_metadata(context, &document)?;
            let Some(array) = self.0.get(&document) else {
                return Ok(None);
            };
            let fits = |digest: &u128| [now, array.shown].contains(&Some(*digest));
            let is_same = now == array.stored && array.put_before.iter().all(fits);
            Ok((!is_same).then_some(document))
        };
        let found = parallel_map(parallel_keys(&*commit.core.store), documents, &look);
        let found: Result<Vec<Option<Key>>> = found.into_iter().collect();
        let replaced = found?.into_iter().flatten();
        Ok(replaced
            .map(|document| (document, REPLACED_MEANWHILE.to_string()))
            .collect())
    }
}

impl OverlayCore {
    /// Looks at the arrays of these changes. `shown` has the contents, `layered` the names; `is_live` if they are paths of
    /// the layer on top, of which each is committed for itself.
    pub(super) fn changed_arrays(
        self: &Arc<Self>,
        context: &RequestContext,
        shown: &Arc<dyn Store>,
        layered: &LayeredStore,
        changes: &[ChangedKey],
        is_live: bool,
    ) -> Result<ChangedArrays> {
        let mut documents: HashMap<Key, HashSet<u128>> = HashMap::new();
        let chunks = changes.iter().filter(|change| may_be_chunk(&change.key));
        for by in chunks.flat_map(|change| layered.encoded_by(&change.key)) {
            documents.entry(by.document).or_default();
        }
        let put_before = if is_live {
            Vec::new()
        } else {
            self.put_before(layered)
        };
        let put_before = put_before.iter().filter(|key| may_be_chunk(key));
        for by in put_before.flat_map(|key| layered.encoded_by(key)) {
            documents.entry(by.document).or_default().insert(by.digest);
        }
        let changed: HashSet<&Key> = changes.iter().map(|change| &change.key).collect();
        let look = |(document, put_before): (Key, HashSet<u128>)| -> Result<(Key, ChangedArray)> {
            let is_of_store = !changed.contains(&document);
            let stored = if is_of_store {
                self.stored_metadata(context, &document)?
            } else {
                digest(context, &**shown, &document)?
            };
            let is_changed = !is_live && self.top().stored_key(&document).is_none();
            let shown = if is_changed {
                digest(context, &Overlay(self.clone()), &document)?
            } else {
                None
            };
            let array = ChangedArray {
                stored,
                is_of_store,
                shown,
                put_before,
            };
            Ok((document, array))
        };
        let documents = documents.into_iter().collect();
        let found = parallel_map(parallel_keys(&*self.store), documents, &look);
        found.into_iter().collect::<Result<_>>().map(ChangedArrays)
    }

    /// Returns the keys that a commit of a frozen layer has put which ended early.
    fn put_before(&self, layered: &LayeredStore) -> Vec<Key> {
        // What was written through was looked at when it was.
        if self.config.write_through {
            return Vec::new();
        }
        let bases = layered.layer.lock().records.bases_below(&Key::root());
        let put = bases.into_iter().filter(|(_, base)| base.is_committed);
        put.map(|(key, _)| key).collect()
    }

    /// Returns the digest of the metadata that the store has now.
    fn stored_metadata(&self, context: &RequestContext, document: &Key) -> Result<Option<u128>> {
        // Caches forget another version then.
        self.store.etag(context, document)?;
        digest(context, &*self.store, document)
    }
}

/// Returns the digest of an array's metadata in a document; nothing if it describes no array.
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
