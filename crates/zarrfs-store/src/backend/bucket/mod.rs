//! Buckets and containers of S3, Google Cloud Storage and Azure, through object_store.
//!
//! An object is one key. A prefix of keys is a directory, even if an object has the same name. Keys that are not valid
//! paths are hidden (`plain_listing`). A key that is not UTF-8 cannot be requested and counts as missing. Every request
//! has a time limit. Nothing is cached here.
//! its time limit; nothing is cached here.

use std::sync::Arc;

use object_store::path::Path;
use object_store::{GetOptions, GetRange};

use crate::backend::remote::condition_probe::trial_key;
use crate::request_context::RequestContext;
use crate::{
    ByteRange, Condition, ETag, EntryKind, FlatListing, Key, Listing, Meta, Object, PutBody,
    Reader, Store, StoreInfo, Version, not_a_link,
};
use client::Client;
use flat_listing::BucketFlatListing;
use listing::{BucketListing, Pages};
use reader::BucketReader;
use refusal::BucketAbsence;
use writer::{WriteClients, Writer, etag_of};
use zarr_format::error::{Error, Kind, Result};

mod address;
mod aws_client;
mod azure_removal;
mod client;
mod cloud_builder;
mod cloud_urls;
mod conditions;
mod credential_issuer;
mod flat_listing;
mod listing;
mod lookup;
mod metadata_service;
mod open;
mod option_names;
mod page_token;
mod plain_listing;
mod profile;
mod reader;
mod refusal;
mod rotation;
mod server_address;
mod settings;
#[cfg(test)]
mod tests;
mod upload;
mod writer;

/// Whether this is the URL scheme of a bucket.
pub(super) fn has_scheme(scheme: &str) -> bool {
    address::kind(scheme).is_some()
}

/// A store in a bucket, below a prefix.
pub struct BucketStore {
    client: Arc<Client>,
    /// Without a slash at either end.
    prefix: String,
    writer: WriteClients,
    /// Decides whether a refused key is missing; `None` if names can be listed.
    absence: Option<Arc<BucketAbsence>>,
    /// Whether an empty prefix is a valid store.
    may_be_empty: bool,
    /// Whether keys are listed in order. S3 directory buckets do not list them so.
    is_ordered: bool,
    info: StoreInfo,
}

impl BucketStore {
    fn writer(&self) -> Result<&Writer> {
        let key = trial_key()?;
        let path = self.target(&key)?.path;
        self.writer.get(&self.client, &self.absence, (key, path))
    }

    /// Records a change. A failed change counts too, since it may have been made.
    fn changed<T>(&self, key: &Key, done: Result<T>) -> Result<T> {
        self.info.changes.record(key);
        done
    }

    /// Fetches a range after requesting the size, since some servers refuse an empty range or one past the end.
    fn get_sized_range(
        &self,
        context: &RequestContext,
        key: &Key,
        path: &Path,
        range: &ByteRange,
    ) -> Result<Option<Object>> {
        let Some(meta) = self.object(context, key)? else {
            return Ok(None);
        };
        let part = range.within(meta.size);
        if part.is_empty() {
            return Ok(Some(Object::without_bytes(&meta)));
        }
        let options = GetOptions::new().with_range(Some(GetRange::Bounded(part)));
        self.or_missing(
            context,
            self.client.fetch(context, key, path, options, u64::MAX),
        )
    }
}

/// Whether the error of a range request may mean that the range is outside the object or has an unsupported form.
fn is_range_refusal(error: &Error) -> bool {
    matches!(
        error.kind(),
        Kind::Invalid | Kind::Unavailable | Kind::Unsupported
    )
}

impl Store for BucketStore {
    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        match self.path(key) {
            Some(path) => self.or_missing(
                context,
                self.client
                    .fetch(context, key, &path, GetOptions::new(), limit),
            ),
            None => Ok(None),
        }
    }

    fn get_range(
        &self,
        context: &RequestContext,
        key: &Key,
        range: ByteRange,
    ) -> Result<Option<Object>> {
        let Some(path) = self.path(key) else {
            return Ok(None);
        };
        let range_now = match &range {
            ByteRange::Suffix(length) if *length > 0 && self.client.suffixes => {
                Some(GetRange::Suffix(*length))
            }
            // Servers use signed offsets.
            ByteRange::Span(span) if !span.is_empty() && span.end <= i64::MAX as u64 => {
                Some(GetRange::Bounded(span.clone()))
            }
            _ => None,
        };
        if range_now.is_some() {
            let options = GetOptions::new().with_range(range_now);
            match self.or_missing(
                context,
                self.client.fetch(context, key, &path, options, u64::MAX),
            ) {
                // The range may be outside the object; servers report that in several ways.
                Err(error) if is_range_refusal(&error) => {}
                object => return object,
            }
        }
        self.get_sized_range(context, key, &path, &range)
    }

    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        let (object, is_prefix) = match self.path(key) {
            Some(path) if self.info.lists => self.object_and_prefix(context, key, &path)?,
            _ => (self.object(context, key)?, self.is_prefix(context, key)?),
        };
        Ok(match (is_prefix, object) {
            (true, Some(object)) => Some(Meta {
                kind: EntryKind::Directory,
                ..object
            }),
            (true, None) => Some(Meta::prefix()),
            (false, object) => object,
        })
    }

    fn version(&self, context: &RequestContext, key: &Key) -> Result<Option<Version>> {
        Ok(self.object(context, key)?.map(|meta| meta.version))
    }

    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>> {
        let meta = match known {
            Some(meta) => *meta,
            None => self
                .object(context, key)?
                .ok_or_else(|| Error::not_found(key))?,
        };
        let path = self.path(key).ok_or_else(|| Error::not_found(key))?;
        Ok(Arc::new(BucketReader {
            client: self.client.clone(),
            absence: self.absence.clone(),
            path,
            key: key.clone(),
            meta,
        }))
    }

    fn list(&self, context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>> {
        if !self.info.lists {
            return Err(Error::unsupported(
                prefix,
                "this store does not tell its names",
            ));
        }
        if self.name(prefix).is_none() {
            return Err(Error::not_found(prefix));
        }
        let names = self.prefix_below(prefix);
        let mut listing = BucketListing::new(self.client.clone(), names, prefix.clone());
        if listing.has_names(context)? || (listing.has_marker() && !prefix.is_root()) {
            return Ok(Box::new(listing));
        }
        if prefix.is_root() {
            return Err(Error::not_found(prefix));
        }
        match self.object(context, prefix)? {
            Some(_) => Err(Error::new(
                Kind::NotADirectory,
                prefix,
                "is an object, not a directory",
            )),
            None => Err(Error::not_found(prefix)),
        }
    }

    fn list_all(
        &self,
        _context: &RequestContext,
        prefix: &Key,
        from: &Key,
    ) -> Result<Option<Box<dyn FlatListing>>> {
        if !self.info.lists || !self.is_ordered || self.name(prefix).is_none() {
            return Ok(None);
        }
        // All keys in the folder sort after this one. Servers that sort folder by folder need the slash too.
        let after = self.name(from).filter(|_| from != prefix);
        Ok(Some(Box::new(BucketFlatListing {
            client: self.client.clone(),
            prefix: self.prefix_below(prefix),
            key: prefix.clone(),
            after: after.map(|name| name + "/"),
            pages: Pages::default(),
        })))
    }

    fn read_link(&self, _context: &RequestContext, key: &Key) -> Result<Vec<u8>> {
        Err(not_a_link(key))
    }

    /// Returns the ETag in the form that conditions use, with Google's generation.
    fn etag(&self, context: &RequestContext, key: &Key) -> Result<Option<ETag>> {
        let Some(path) = self.path(key) else {
            return Ok(None);
        };
        let found = self.or_missing(context, self.client.head(context, key, &path))?;
        Ok(found.map(|meta| etag_of(self.writer.kind(), &meta)))
    }

    fn put(
        &self,
        context: &RequestContext,
        key: &Key,
        body: PutBody<'_>,
        condition: &Condition,
    ) -> Result<ETag> {
        let (target, writer) = (self.target(key)?, self.writer()?);
        let condition = condition.for_server(key, || writer.etag(&target));
        let put = condition.and_then(|condition| writer.put(context, &target, body, &condition));
        self.changed(key, put)
    }

    /// Removes an object. The request carries the condition. If the server does not enforce it, the key is checked just
    /// before.
    fn erase(&self, context: &RequestContext, key: &Key, condition: &Condition) -> Result<()> {
        let Ok(target) = self.target(key) else {
            return condition.check(key, None);
        };
        let writer = self.writer()?;
        let condition = condition.for_server(key, || writer.etag(&target));
        let erased = condition.and_then(|condition| writer.erase(context, &target, &condition));
        self.changed(key, erased)
    }

    fn erase_folder(&self, _context: &RequestContext, _prefix: &Key) -> Result<()> {
        Ok(())
    }

    fn info(&self) -> &StoreInfo {
        &self.info
    }
}
