//! Marks a store as unable to list all of its keys.
//!
//! The store view of a mount is a local folder that lists only the keys seen so far. If the store behind the mount
//! cannot list, a key that is missing in such a listing may exist.

use std::sync::Arc;

use zarrfs_store::layer::Layer;
use zarrfs_store::{Store, StoreInfo};

/// A store whose listings are incomplete.
pub(super) struct UnlistedStore {
    below: Arc<dyn Store>,
    info: StoreInfo,
}

impl UnlistedStore {
    pub(super) fn new(below: Arc<dyn Store>) -> UnlistedStore {
        let info = StoreInfo {
            lists: false,
            ..below.info().clone()
        };
        UnlistedStore { below, info }
    }
}

impl Layer for UnlistedStore {
    fn below(&self) -> &dyn Store {
        &*self.below
    }

    fn info(&self) -> &StoreInfo {
        &self.info
    }
}
