//! Marks the answers of a store as valid for good.
//!
//! Some objects never change once written, such as the chunks of an Icechunk repository. Over such objects the caches
//! need no TTL: they return what they have without a request.

use std::sync::Arc;

use crate::layer::Layer;
use crate::{FOREVER, Store, StoreInfo};

/// A store whose objects never change.
pub(crate) struct ImmutableStore {
    inner: Arc<dyn Store>,
    info: StoreInfo,
}

impl ImmutableStore {
    /// Wraps a store.
    pub(crate) fn new(inner: Arc<dyn Store>) -> ImmutableStore {
        let info = StoreInfo {
            freshness: FOREVER,
            ..inner.info().clone()
        };
        ImmutableStore { inner, info }
    }
}

impl Layer for ImmutableStore {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }

    fn info(&self) -> &StoreInfo {
        &self.info
    }
}
