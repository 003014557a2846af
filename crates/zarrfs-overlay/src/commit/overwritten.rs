//! Finds keys that an interrupted commit put and that others changed since.
//!
//! To the other programs this is a change like any other. To the commit that continues it is a conflict, because the
//! rest of its changes belong to the content that was put. With `force`, the key is put again.

use std::collections::HashSet;
use std::sync::Arc;

use super::parallel_keys;
use crate::OverlayCore;
use crate::changes::{BaseState, ChangeAction, ChangedKey};
use crate::layered_store::LayeredStore;
use zarr_format::error::Result;
use zarrfs_store::Key;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::pool::parallel_map;

impl OverlayCore {
    /// Returns these changes, and a put of each key that the frozen layer's commit has put and that has another version
    /// in the store now.
    pub(super) fn with_overwritten(
        &self,
        context: &RequestContext,
        frozen: &LayeredStore,
        mut changes: Vec<ChangedKey>,
    ) -> Result<Vec<ChangedKey>> {
        let look = |change: ChangedKey| -> Result<Option<ChangedKey>> {
            let now = self
                .store
                .etag(context, &change.key)?
                .map(|etag| etag.version);
            Ok((!change.base.is(now)).then_some(change))
        };
        let mut put = frozen.committed()?;
        let others: HashSet<&Key> = changes.iter().map(|change| &change.key).collect();
        put.retain(|change| !others.contains(&change.key));
        for found in parallel_map(parallel_keys(&*self.store), put, &look) {
            changes.extend(found?);
        }
        Ok(changes)
    }

    /// Does the same for the frozen layer, if there is one.
    pub(super) fn with_all_overwritten(
        &self,
        context: &RequestContext,
        changes: Vec<ChangedKey>,
    ) -> Result<Vec<ChangedKey>> {
        let frozen: Option<Arc<LayeredStore>> = self.top().frozen.clone();
        match frozen {
            Some(frozen) => self.with_overwritten(context, &frozen, changes),
            None => Ok(changes),
        }
    }
}

impl LayeredStore {
    /// Returns the puts that a commit of the layer has completed.
    fn committed(&self) -> Result<Vec<ChangedKey>> {
        let bases = self.layer.lock().records.bases_below(&Key::root());
        let mut committed = Vec::new();
        for (key, base) in bases.into_iter().filter(|(_, base)| base.is_committed) {
            if let Some(size) = self.layer.complete_file_size(&key)? {
                committed.push(ChangedKey {
                    key,
                    action: ChangeAction::Put(size),
                    base: BaseState::Known(base.version),
                });
            }
        }
        Ok(committed)
    }
}
