//! A store that cannot list its keys, with listings made from its metadata.
//!
//! An overlay lies over it, so that its listings have both these names and those of the upper folder, and none that a
//! whiteout hides. Nodes are known once they or their documents were asked for, and are listed from then on.
//! `StoreInfo::lists` stays false: a key that no listing has may exist.

use std::sync::Arc;

use crate::view::synthetic_listing::{KnownDir, SyntheticListing};
use zarr_format::error::Result;
use zarr_format::model::document::is_in_node_folder;
use zarrfs_array::hierarchy::Hierarchy;
use zarrfs_store::layer::Layer;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{Condition, ETag, Hints, Key, Listing, Meta, Object, PutBody, Store};

/// A store whose directories follow from the metadata.
pub struct SyntheticStore {
    inner: Arc<dyn Store>,
    hints: Arc<dyn Hints>,
    names: SyntheticListing,
}

impl SyntheticStore {
    /// Lists the store of `hierarchy` by its nodes; `hints` are those of that store.
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

/// Returns what `head` shows of a folder.
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
