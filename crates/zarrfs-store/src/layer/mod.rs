//! Layers: stores that wrap another store and add one property each.
//!
//! `stack.rs` combines them; a layer does not know which store it wraps. A layer implements only the methods of `Layer`
//! that it changes, and passes the others through.
//!
//! The backend and the overlay log each change in the change log (`StoreInfo::changes`). A layer that caches an answer
//! about a key also stores the position that the log had before its request. If the key has changed since that
//! position, the layer does not return the answer but requests it again. A layer that compares versions anyway does not
//! need the log. An answer from memory records its age in the context (`RequestContext::record_age`). A layer holds no
//! lock during a request to the wrapped store.

use std::sync::Arc;

use crate::request_context::RequestContext;
use crate::{
    ByteRange, Condition, ETag, EncodedBy, FOREVER, FlatListing, Key, Listing, Meta, Object,
    PutBody, Reader, Store, StoreInfo, Version,
};
use zarr_format::error::Result;

pub mod counting;
pub mod disk_cache;
pub(crate) mod liveness;
pub mod metadata_cache;
pub mod name_sequence;
pub mod readahead;

/// A store that wraps another store. Methods that it does not define call the wrapped store.
#[allow(missing_docs, reason = "each method is that of `Store`")]
pub trait Layer: Send + Sync {
    /// Returns the wrapped store.
    fn below(&self) -> &dyn Store;

    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        self.below().get(context, key, limit)
    }

    fn get_range(
        &self,
        context: &RequestContext,
        key: &Key,
        range: ByteRange,
    ) -> Result<Option<Object>> {
        self.below().get_range(context, key, range)
    }

    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        self.below().head(context, key)
    }

    fn version(&self, context: &RequestContext, key: &Key) -> Result<Option<Version>> {
        self.below().version(context, key)
    }

    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>> {
        self.below().open(context, key, known)
    }

    fn list(&self, context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>> {
        self.below().list(context, prefix)
    }

    fn list_all(
        &self,
        context: &RequestContext,
        prefix: &Key,
        from: &Key,
    ) -> Result<Option<Box<dyn FlatListing>>> {
        self.below().list_all(context, prefix, from)
    }

    fn read_link(&self, context: &RequestContext, key: &Key) -> Result<Vec<u8>> {
        self.below().read_link(context, key)
    }

    fn is_symlink_cycle(&self, context: &RequestContext, key: &Key) -> Result<bool> {
        self.below().is_symlink_cycle(context, key)
    }

    fn etag(&self, context: &RequestContext, key: &Key) -> Result<Option<ETag>> {
        self.below().etag(context, key)
    }

    fn put(
        &self,
        context: &RequestContext,
        key: &Key,
        body: PutBody<'_>,
        condition: &Condition,
    ) -> Result<ETag> {
        self.below().put(context, key, body, condition)
    }

    fn put_chunk(
        &self,
        context: &RequestContext,
        key: &Key,
        body: PutBody<'_>,
        condition: &Condition,
        _encoded_by: Option<&EncodedBy>,
    ) -> Result<ETag> {
        Layer::put(self, context, key, body, condition)
    }

    fn erase(&self, context: &RequestContext, key: &Key, condition: &Condition) -> Result<()> {
        self.below().erase(context, key, condition)
    }

    fn erase_folder(&self, context: &RequestContext, prefix: &Key) -> Result<()> {
        self.below().erase_folder(context, prefix)
    }

    fn sync(&self, context: &RequestContext) -> Result<()> {
        self.below().sync(context)
    }

    fn drop_cached(&self, key: &Key, range: Option<&ByteRange>) {
        self.below().drop_cached(key, range);
    }

    fn info(&self) -> &StoreInfo {
        self.below().info()
    }
}

#[deny(clippy::missing_trait_methods)]
impl<L: Layer> Store for L {
    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        Layer::get(self, context, key, limit)
    }

    fn get_range(
        &self,
        context: &RequestContext,
        key: &Key,
        range: ByteRange,
    ) -> Result<Option<Object>> {
        Layer::get_range(self, context, key, range)
    }

    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        Layer::head(self, context, key)
    }

    fn version(&self, context: &RequestContext, key: &Key) -> Result<Option<Version>> {
        Layer::version(self, context, key)
    }

    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>> {
        Layer::open(self, context, key, known)
    }

    fn list(&self, context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>> {
        Layer::list(self, context, prefix)
    }

    fn list_all(
        &self,
        context: &RequestContext,
        prefix: &Key,
        from: &Key,
    ) -> Result<Option<Box<dyn FlatListing>>> {
        Layer::list_all(self, context, prefix, from)
    }

    fn read_link(&self, context: &RequestContext, key: &Key) -> Result<Vec<u8>> {
        Layer::read_link(self, context, key)
    }

    fn is_symlink_cycle(&self, context: &RequestContext, key: &Key) -> Result<bool> {
        Layer::is_symlink_cycle(self, context, key)
    }

    fn etag(&self, context: &RequestContext, key: &Key) -> Result<Option<ETag>> {
        Layer::etag(self, context, key)
    }

    fn put(
        &self,
        context: &RequestContext,
        key: &Key,
        body: PutBody<'_>,
        condition: &Condition,
    ) -> Result<ETag> {
        Layer::put(self, context, key, body, condition)
    }

    fn put_chunk(
        &self,
        context: &RequestContext,
        key: &Key,
        body: PutBody<'_>,
        condition: &Condition,
        encoded_by: Option<&EncodedBy>,
    ) -> Result<ETag> {
        Layer::put_chunk(self, context, key, body, condition, encoded_by)
    }

    fn erase(&self, context: &RequestContext, key: &Key, condition: &Condition) -> Result<()> {
        Layer::erase(self, context, key, condition)
    }

    fn erase_folder(&self, context: &RequestContext, prefix: &Key) -> Result<()> {
        Layer::erase_folder(self, context, prefix)
    }

    fn sync(&self, context: &RequestContext) -> Result<()> {
        Layer::sync(self, context)
    }

    fn drop_cached(&self, key: &Key, range: Option<&ByteRange>) {
        Layer::drop_cached(self, key, range);
    }

    fn info(&self) -> &StoreInfo {
        Layer::info(self)
    }
}

/// A store whose objects never change once written, such as the chunks of an Icechunk repository. The caches over this
/// store return a cached object at any age, without a request.
pub(crate) struct ImmutableStore {
    inner: Arc<dyn Store>,
    info: StoreInfo,
}

impl ImmutableStore {
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
