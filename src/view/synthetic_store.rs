//! Adds listings made from metadata to a store that cannot list its keys.
//!
//! An overlay uses it as its lower layer, so that its listings have these names and the names of the upper folder,
//! without the names that a whiteout hides. A node is known, and listed, once it or one of its documents was looked up.
//! `StoreInfo::lists` stays false: a key that no listing shows may exist.

use std::sync::Arc;

use crate::view::synthetic_listing::{KnownDir, SyntheticListing};
use zarr_format::error::Result;
use zarr_format::model::document::is_in_node_folder;
use zarrfs_array::hierarchy::Hierarchy;
use zarrfs_store::layer::Layer;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{Condition, ETag, Hints, Key, Listing, Meta, Object, PutBody, Store};

/// A store whose directories come from its metadata.
pub struct SyntheticStore {
    inner: Arc<dyn Store>,
    hints: Arc<dyn Hints>,
    names: SyntheticListing,
}

impl SyntheticStore {
    /// Builds listings for the store of `hierarchy`; `hints` belong to the same store.
    pub fn new(hierarchy: Arc<Hierarchy>, hints: Arc<dyn Hints>) -> SyntheticStore {
        let inner = hierarchy.store().clone();
        SyntheticStore {
            names: SyntheticListing::new(inner.clone(), hierarchy, true),
            inner,
            hints,
        }
    }

    /// Reads the node that a document describes, so that it is listed.
    fn learn_node_of(&self, context: &RequestContext, key: &Key) {
        if is_in_node_folder(key.name())
            && let Some(folder) = key.parent()
        {
            self.names.learn_node(context, &folder);
        }
    }
}

/// Returns the metadata of a folder for `head`.
fn meta_of(folder: &KnownDir) -> Meta {
    Meta {
        modified: folder.modified(),
        ..Meta::prefix()
    }
}

impl Layer for SyntheticStore {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }

    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        let found = self.inner.get(context, key, limit)?;
        if found.is_some() {
            self.learn_node_of(context, key);
        }
        Ok(found)
    }

    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        let found = self.inner.head(context, key)?;
        if found.is_some() || is_in_node_folder(key.name()) {
            return Ok(found);
        }
        Ok(self.names.folder(context, key)?.as_ref().map(meta_of))
    }

    fn list(&self, context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>> {
        self.names.list(context, prefix)
    }

    fn put(
        &self,
        context: &RequestContext,
        key: &Key,
        body: PutBody<'_>,
        condition: &Condition,
    ) -> Result<ETag> {
        let etag = self.inner.put(context, key, body, condition)?;
        self.learn_node_of(context, key);
        Ok(etag)
    }
}

impl Hints for SyntheticStore {
    fn prefetch(&self, keys: &[Key]) {
        self.hints.prefetch(keys);
    }
}
