//! Reads and writes buckets of S3, Google Cloud Storage and Azure, through object_store.
//!
//! An object is one key. A prefix of keys is a directory, even if an object has the same name. Keys that are not valid
//! paths are hidden (`listing_page`). A key that is not UTF-8 cannot be requested and counts as missing. Every request
//! has a time limit. Nothing is cached here.
//!
//! `address` parses URLs; `settings`, `cloud_builder`, `aws_profile` and `credentials` configure object_store for them.
//! `connector` is the HTTP client below object_store, and `listing_page` repairs listings. `client` sends all requests
//! of `listing`, `writer` and readers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use object_store::list::PaginatedListResult;
use object_store::path::Path;
use object_store::{GetOptions, GetRange};
use parking_lot::Mutex;

use crate::backend::remote::connector::Connector;
use crate::backend::remote::limits::RequestLimits;
use crate::backend::remote::probes::RefusalProbe;
use crate::backend::remote::retry::once_ready;
use crate::backend::remote::{OPEN_RETRIES, OPEN_TIME_LIMIT, RETRIES, errors};
use crate::backend::{cannot_list, changed, not_a_directory};
use crate::request_context::{RequestContext, UNLIMITED};
use crate::stats::Stats;
use crate::{
    ByteRange, Condition, ETag, EntryKind, FlatListing, Key, Listing, Meta, Object, PutBody,
    Reader, RemoteConfig, Store, StoreInfo, Version, check_length,
};
use address::{Address, CloudKind};
use client::{Client, describe};
use listing::{BucketFlatListing, BucketListing, NextPage, PAGE_SIZE, PageRange, Pages};
use settings::ClientSettings;
use writer::{LazyWriter, ObjectTarget, Writer, etag_of};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::document;

mod address;
mod aws_profile;
mod client;
mod cloud_builder;
mod connector;
mod credentials;
mod listing;
mod listing_page;
mod settings;
#[cfg(test)]
mod tests;
mod upload;
mod writer;

/// Whether a URL scheme is that of a bucket, such as `s3`.
pub(super) fn has_scheme(scheme: &str) -> bool {
    CloudKind::of_scheme(scheme).is_some()
}

/// A Zarr store in a bucket, below a key prefix.
pub(super) struct BucketStore {
    client: Arc<Client>,
    writer: LazyWriter,
    /// Whether the store may be opened if no key has its prefix.
    may_be_empty: bool,
    /// Whether the server lists keys in the order of their bytes. S3 directory buckets list them in another order.
    is_ordered: bool,
    info: StoreInfo,
    /// The root's listing from the opening of the store, and the time of its request.
    opened_by: Mutex<Option<(Instant, BucketListing)>>,
}

impl BucketStore {
    /// Opens the bucket at the URL `scheme:rest`; messages call it `display_name`. Fails within seconds with `Denied`,
    /// `NotFound`, `Invalid` or `Unavailable` if the store is missing or cannot be read.
    pub(super) fn open(
        scheme: &str,
        rest: &str,
        display_name: &str,
        config: &RemoteConfig,
        stats: &Arc<Stats>,
    ) -> Result<BucketStore> {
        let kind = CloudKind::of_scheme(scheme).ok_or_else(|| {
            Error::unsupported(display_name, format!("unsupported URL scheme {scheme}://"))
        })?;
        let address = Address::parse(scheme, kind, rest, display_name)?;
        BucketStore::open_address(&address, display_name, config, stats)
    }

    /// Opens the bucket that an HTTPS URL of its cloud names, or returns `None` if the URL names no bucket or the
    /// bucket cannot be read.
    pub(super) fn open_cloud_url(
        url: &str,
        display_name: &str,
        config: &RemoteConfig,
        stats: &Arc<Stats>,
    ) -> Option<BucketStore> {
        let (address, region) = Address::of_cloud_url(url)?;
        let config = RemoteConfig {
            region: region.or_else(|| config.region.clone()),
            ..config.clone()
        };
        BucketStore::open_address(&address, display_name, &config, stats).ok()
    }

    fn open_address(
        address: &Address,
        display_name: &str,
        config: &RemoteConfig,
        stats: &Arc<Stats>,
    ) -> Result<BucketStore> {
        let connector = Connector::new(stats.clone(), config.timeout);
        let limit = config.timeout.min(OPEN_TIME_LIMIT);
        let first = BucketStore::build(address, config, &connector, OPEN_RETRIES, limit)?;
        let asked = Instant::now();
        let probed = once_ready(limit, || first.probe(display_name));
        let listing = probed.map_err(|error| match &config.endpoint {
            Some(endpoint)
                if error.kind() == Kind::Unavailable && !errors::names_server(error.detail()) =>
            {
                let server = crate::redacted(endpoint);
                Error::unavailable(display_name, format!("{server}: {}", error.detail()))
            }
            _ => error,
        })?;
        let mut store = BucketStore::build(address, config, &connector, RETRIES, config.timeout)?;
        store.info.lists = listing.is_some();
        if listing.is_none()
            && let Some(client) = Arc::get_mut(&mut store.client)
        {
            client.refusals = Some(RefusalProbe::default());
        }
        let listing = listing.map(|listing| (asked, listing.with_client(store.client.clone())));
        store.opened_by = Mutex::new(listing);
        Ok(store)
    }

    fn build(
        address: &Address,
        config: &RemoteConfig,
        connector: &Connector,
        retries: usize,
        limit: Duration,
    ) -> Result<BucketStore> {
        let info = StoreInfo {
            concurrency: config.concurrency,
            ..StoreInfo::new(config.metadata_ttl)
        };
        let settings = ClientSettings {
            address: address.clone(),
            config: config.clone(),
            connector: connector.clone(),
            not_shown: info.hidden_entries.clone(),
        };
        let cloud = settings.connect(settings::retries(retries, limit))?;
        let info = StoreInfo {
            server: Some(cloud.server.as_str().into()),
            ..info
        };
        Ok(BucketStore {
            client: Arc::new(Client {
                cloud,
                limits: RequestLimits::new(limit, config.concurrency),
                region: config.region.clone(),
                suffixes: address.kind != CloudKind::Azure,
                prefix: address.prefix.clone(),
                refusals: None,
            }),
            writer: LazyWriter::new(settings),
            may_be_empty: config.may_be_empty,
            is_ordered: !address.bucket.ends_with("--x-s3"),
            info,
            opened_by: Mutex::new(None),
        })
    }

    /// Checks that the store exists. Returns the listing of its root, or `None` if names cannot be listed.
    fn probe(&self, display_name: &str) -> Result<Option<BucketListing>> {
        let root = Key::root();
        let prefix = self.client.prefix_below(&root);
        let mut listing = BucketListing::new(self.client.clone(), prefix, root);
        let refused = match listing.has_names(&UNLIMITED) {
            Ok(true) => return Ok(Some(listing)),
            Ok(false) if self.may_be_empty => return Ok(Some(listing)),
            Ok(false) => {
                let why = "nothing is stored here: check the bucket and the prefix";
                return Err(Error::new(Kind::NotFound, display_name, why));
            }
            Err(error) if error.kind() == Kind::Denied => error,
            Err(error) => return Err(Error::new(error.kind(), display_name, error.detail())),
        };
        // Many public buckets permit reading but not listing, so metadata at the root also proves that the store
        // exists.
        for name in document::at_root() {
            if let Ok(Some(_)) = self.object(&UNLIMITED, &Key::new(name)?) {
                return Ok(None);
            }
        }
        Err(Error::new(Kind::Denied, display_name, refused.detail()))
    }

    /// Returns the root's listing from the opening of the store, so that the metadata cache need not request it again.
    /// Returns `None` to later callers, and once the listing is too old.
    fn opening_listing(&self) -> Option<BucketListing> {
        let (asked, listing) = self.opened_by.lock().take()?;
        let limit = Duration::from_secs(1).min(self.info.freshness / 10);
        (asked.elapsed() < limit).then_some(listing)
    }

    fn writer(&self) -> Result<&Writer> {
        self.writer.get(&self.client)
    }

    /// Records that a key has changed. A failed put or removal is recorded too, since the server may have carried it
    /// out.
    fn changed<T>(&self, key: &Key, done: Result<T>) -> Result<T> {
        self.opened_by.lock().take();
        self.info.changes.record(key);
        done
    }

    /// Fetches a range after requesting the size, since some servers refuse an empty range or one past the end.
    fn get_sized_range(
        &self,
        context: &RequestContext,
        key: &Key,
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
        self.client.fetch(context, key, options, u64::MAX)
    }

    fn object(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        let found = self.client.head(context, key)?;
        Ok(found.map(|meta| describe(&meta, EntryKind::File)))
    }

    /// Whether there are other keys below this key, so that it is a directory.
    fn is_prefix(&self, context: &RequestContext, key: &Key) -> Result<bool> {
        if key.is_root() {
            return Ok(true);
        }
        if !self.info.lists || self.client.name(key).is_none() {
            return Ok(false);
        }
        let prefix = self.client.prefix_below(key);
        let first = PageRange::first_name(&prefix);
        let page = first.fetch(context, &self.client, key, &NextPage::First)?;
        self.begins_listing(context, key, page)
    }

    /// Whether there are keys below a key. If the first page of the listing has no names but says that more pages
    /// follow, the next pages are requested. The error is `Corrupt` if the listing does not advance.
    fn begins_listing(
        &self,
        context: &RequestContext,
        key: &Key,
        first: PaginatedListResult,
    ) -> Result<bool> {
        let prefix = self.client.prefix_below(key);
        let Some(token) = &first.page_token else {
            return Ok(has_names(&prefix, &first));
        };
        if has_names(&prefix, &first) {
            return Ok(true);
        }
        let wanted = PageRange {
            max_names: PAGE_SIZE,
            ..PageRange::first_name(&prefix)
        };
        let next = NextPage::At(token.clone());
        let page = wanted.fetch(context, &self.client, key, &next)?;
        Ok(has_names(&prefix, &page) || page.page_token.is_some())
    }

    /// Requests an object and, concurrently, the first name below its key, which shows whether it is a directory too.
    fn object_and_prefix(
        &self,
        context: &RequestContext,
        key: &Key,
        path: &Path,
    ) -> Result<(Option<Meta>, bool)> {
        let prefix = self.client.prefix_below(key);
        let first = PageRange::first_name(&prefix).options(&NextPage::First);
        let (object, page) = self.client.request_both(
            context,
            key,
            self.client.object_head(path),
            self.client.cloud.pages.list_paginated(Some(&prefix), first),
        )?;
        let is_prefix = match page {
            Ok(page) => {
                let page = NextPage::First.check(key, page)?;
                self.begins_listing(context, key, page)?
            }
            Err(error) if error.kind() == Kind::Unavailable => self.is_prefix(context, key)?,
            Err(error) => return Err(error),
        };
        let object = match object {
            Ok(response) => Some(describe(&response.meta, EntryKind::File)),
            Err(error) if error.kind() == Kind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok((object, is_prefix))
    }
}

/// Whether a listing page has a name below the prefix, or the folder marker itself.
fn has_names(prefix: &str, page: &PaginatedListResult) -> bool {
    let below = |name: &str| name.len() > prefix.len();
    let mut prefixes = page.result.common_prefixes.iter();
    !page.result.objects.is_empty() || prefixes.any(|prefix| below(prefix.as_ref()))
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
        self.client.fetch(context, key, GetOptions::new(), limit)
    }

    fn get_range(
        &self,
        context: &RequestContext,
        key: &Key,
        range: ByteRange,
    ) -> Result<Option<Object>> {
        let requested = match &range {
            ByteRange::Suffix(length) if *length > 0 && self.client.suffixes => {
                Some(GetRange::Suffix(*length))
            }
            // Servers store offsets as signed 64-bit numbers, so a range beyond that is not sent.
            ByteRange::Span(span) if !span.is_empty() && span.end <= i64::MAX as u64 => {
                Some(GetRange::Bounded(span.clone()))
            }
            _ => None,
        };
        if requested.is_some() {
            let options = GetOptions::new().with_range(requested);
            match self.client.fetch(context, key, options, u64::MAX) {
                // Servers refuse a range outside the object in several ways, so the size is requested to find out.
                Err(error) if is_range_refusal(&error) => {}
                object => return object,
            }
        }
        self.get_sized_range(context, key, &range)
    }

    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        let (object, is_prefix) = match self.client.path(key) {
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
        if self.client.path(key).is_none() {
            return Err(Error::not_found(key));
        }
        Ok(Arc::new(BucketReader {
            client: self.client.clone(),
            key: key.clone(),
            meta,
        }))
    }

    fn list(&self, context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>> {
        if !self.info.lists {
            return Err(cannot_list(prefix));
        }
        if self.client.name(prefix).is_none() {
            return Err(Error::not_found(prefix));
        }
        let opening = self.opening_listing().filter(|_| prefix.is_root());
        let mut listing = opening.unwrap_or_else(|| {
            let names = self.client.prefix_below(prefix);
            BucketListing::new(self.client.clone(), names, prefix.clone())
        });
        if listing.has_names(context)? || (listing.has_marker() && !prefix.is_root()) {
            return Ok(Box::new(listing));
        }
        if prefix.is_root() {
            return Err(Error::not_found(prefix));
        }
        match self.object(context, prefix)? {
            Some(_) => Err(not_a_directory(prefix)),
            None => Err(Error::not_found(prefix)),
        }
    }

    fn list_all(
        &self,
        _context: &RequestContext,
        prefix: &Key,
        from: &Key,
    ) -> Result<Option<Box<dyn FlatListing>>> {
        if !self.info.lists || !self.is_ordered || self.client.name(prefix).is_none() {
            return Ok(None);
        }
        // A listing of the whole prefix needs no start name, since all keys below the prefix sort after it.
        let after = self.client.name(from).filter(|_| from != prefix);
        Ok(Some(Box::new(BucketFlatListing {
            client: self.client.clone(),
            prefix: self.client.prefix_below(prefix),
            key: prefix.clone(),
            after: after.map(|name| name + "/"),
            pages: Pages::default(),
        })))
    }

    /// Returns the ETag of an object, in the form that conditional requests use.
    fn etag(&self, context: &RequestContext, key: &Key) -> Result<Option<ETag>> {
        let found = self.client.head(context, key)?;
        Ok(found.map(|meta| etag_of(self.writer.kind(), &meta)))
    }

    fn put(
        &self,
        context: &RequestContext,
        key: &Key,
        body: PutBody<'_>,
        condition: &Condition,
    ) -> Result<ETag> {
        let (target, writer) = (ObjectTarget::of(&self.client, key)?, self.writer()?);
        let condition = condition.for_server(key, || writer.etag(&target));
        let put = condition.and_then(|condition| writer.put(context, &target, body, &condition));
        self.changed(key, put)
    }

    /// Removes an object by a conditional request. If the server does not enforce the condition, it is checked just
    /// before the request.
    fn erase(&self, context: &RequestContext, key: &Key, condition: &Condition) -> Result<()> {
        let Ok(target) = ObjectTarget::of(&self.client, key) else {
            return condition.check(key, None);
        };
        let writer = self.writer()?;
        let condition = condition.for_server(key, || writer.etag(&target));
        let erased = condition.and_then(|condition| writer.erase(context, &target, &condition));
        self.changed(key, erased)
    }

    fn info(&self) -> &StoreInfo {
        &self.info
    }
}

/// Reads ranges of an object, in the version that it had when it was opened. If a response has another version, the
/// error is `Changed`.
struct BucketReader {
    client: Arc<Client>,
    key: Key,
    meta: Meta,
}

impl Reader for BucketReader {
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>> {
        let end = offset.saturating_add(len as u64).min(self.meta.size);
        if offset >= end {
            return Ok(Vec::new());
        }
        let options = GetOptions::new().with_range(Some(GetRange::Bounded(offset..end)));
        let fetched = self
            .client
            .fetch(context, &self.key, options, end - offset)?;
        let object = fetched.ok_or_else(|| changed(&self.key))?;
        check_length(&self.key, object.content(), self.meta.content())?;
        if !object.meta().may_be_of(&self.meta) {
            return Err(changed(&self.key));
        }
        let (length, expected) = (object.bytes.len() as u64, end - offset);
        if length == expected {
            return Ok(object.bytes);
        }
        let text = format!("the response has {length} bytes instead of {expected}");
        Err(Error::unavailable(&self.key, text))
    }

    fn meta(&self, _context: &RequestContext) -> Result<Meta> {
        Ok(self.meta)
    }
}
