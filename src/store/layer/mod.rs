//! Stores around a store: each adds one property to the store that it wraps and is a store itself.
//!
//! `store/stack.rs` puts them on each other; a layer does not know which one is below it. A layer implements
//! `Layer` and names only the methods that it changes: all others are those of the store below.

use std::sync::Arc;

use crate::error::Result;
use crate::store::{
    ByteRange, Condition, ETag, EncodedBy, FlatListing, Key, Listing, Meta, Object, PutBody,
    Reader, Store, StoreInfo, Version,
};

pub mod counting;
pub mod disk_cache;
pub mod liveness;
pub mod metadata_cache;
pub mod readahead;

/// A store over a store; what it does not define is done by the store below.
#[allow(missing_docs, reason = "each method is that of `Store`")]
pub trait Layer: Send + Sync {
    /// Returns the store below.
    fn below(&self) -> &dyn Store;

    fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>> {
        self.below().get(key, limit)
    }

    fn get_range(&self, key: &Key, range: ByteRange) -> Result<Option<Object>> {
        self.below().get_range(key, range)
    }

    fn head(&self, key: &Key) -> Result<Option<Meta>> {
        self.below().head(key)
    }

    fn version(&self, key: &Key) -> Result<Option<Version>> {
        self.below().version(key)
    }

    fn open(&self, key: &Key, known: Option<&Meta>) -> Result<Arc<dyn Reader>> {
        self.below().open(key, known)
    }

    fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>> {
        self.below().list(prefix)
    }

    fn list_all(&self, prefix: &Key, from: &Key) -> Result<Option<Box<dyn FlatListing>>> {
        self.below().list_all(prefix, from)
    }

    fn read_link(&self, key: &Key) -> Result<Vec<u8>> {
        self.below().read_link(key)
    }

    fn leads_back(&self, key: &Key) -> Result<bool> {
        self.below().leads_back(key)
    }

    fn etag(&self, key: &Key) -> Result<Option<ETag>> {
        self.below().etag(key)
    }

    fn put(&self, key: &Key, body: PutBody<'_>, condition: &Condition) -> Result<ETag> {
        self.below().put(key, body, condition)
    }

    fn put_chunk(
        &self,
        key: &Key,
        body: PutBody<'_>,
        condition: &Condition,
        _encoded_by: Option<&EncodedBy>,
    ) -> Result<ETag> {
        Layer::put(self, key, body, condition)
    }

    fn erase(&self, key: &Key, condition: &Condition) -> Result<()> {
        self.below().erase(key, condition)
    }

    fn erase_folder(&self, prefix: &Key) -> Result<()> {
        self.below().erase_folder(prefix)
    }

    fn sync(&self) -> Result<()> {
        self.below().sync()
    }

    fn info(&self) -> &StoreInfo {
        self.below().info()
    }
}

#[deny(clippy::missing_trait_methods)]
impl<L: Layer> Store for L {
    fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>> {
        Layer::get(self, key, limit)
    }

    fn get_range(&self, key: &Key, range: ByteRange) -> Result<Option<Object>> {
        Layer::get_range(self, key, range)
    }

    fn head(&self, key: &Key) -> Result<Option<Meta>> {
        Layer::head(self, key)
    }

    fn version(&self, key: &Key) -> Result<Option<Version>> {
        Layer::version(self, key)
    }

    fn open(&self, key: &Key, known: Option<&Meta>) -> Result<Arc<dyn Reader>> {
        Layer::open(self, key, known)
    }

    fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>> {
        Layer::list(self, prefix)
    }

    fn list_all(&self, prefix: &Key, from: &Key) -> Result<Option<Box<dyn FlatListing>>> {
        Layer::list_all(self, prefix, from)
    }

    fn read_link(&self, key: &Key) -> Result<Vec<u8>> {
        Layer::read_link(self, key)
    }

    fn leads_back(&self, key: &Key) -> Result<bool> {
        Layer::leads_back(self, key)
    }

    fn etag(&self, key: &Key) -> Result<Option<ETag>> {
        Layer::etag(self, key)
    }

    fn put(&self, key: &Key, body: PutBody<'_>, condition: &Condition) -> Result<ETag> {
        Layer::put(self, key, body, condition)
    }

    fn put_chunk(
        &self,
        key: &Key,
        body: PutBody<'_>,
        condition: &Condition,
        encoded_by: Option<&EncodedBy>,
    ) -> Result<ETag> {
        Layer::put_chunk(self, key, body, condition, encoded_by)
    }

    fn erase(&self, key: &Key, condition: &Condition) -> Result<()> {
        Layer::erase(self, key, condition)
    }

    fn erase_folder(&self, prefix: &Key) -> Result<()> {
        Layer::erase_folder(self, prefix)
    }

    fn sync(&self) -> Result<()> {
        Layer::sync(self)
    }

    fn info(&self) -> &StoreInfo {
        Layer::info(self)
    }
}
