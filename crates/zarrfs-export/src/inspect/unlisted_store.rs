//! A store that is known not to list all of its keys, though the store below does not say so.
//!
//! The store view of a mount is a folder of this machine, and lists what it has met so far. Where the store behind the
//! mount cannot list, absence from such a listing means nothing.

use std::sync::Arc;

use zarrfs_store::layer::Layer;
use zarrfs_store::{Store, StoreInfo};

/// A store whose listings do not count.
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
