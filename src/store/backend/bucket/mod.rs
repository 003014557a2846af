//! Buckets and containers of S3, Google Cloud Storage and Azure, by the object_store crate.
//!
//! An object is one key; a prefix of keys is a directory, also if an object has the same name. A key that is not
//! UTF-8, or has control characters, cannot be requested and is missing. Every request ends within its time limit;
//! nothing is cached here.

use std::sync::Arc;
use std::time::Duration;

use object_store::list::PaginatedListResult;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, GetResult};
use tokio::sync::Semaphore;

use crate::error::{Error, Kind, Result};
use crate::model::document;
use crate::stats::Stats;
use crate::store::backend::remote::connector::Connector;
use crate::store::backend::remote::{FIRST_LIMIT, FIRST_RETRIES, RETRIES, condition_probe};
use crate::store::{
    ByteRange, Condition, ETag, EntryKind, FlatListing, Key, Listing, Meta, Object, PutBody,
    Reader, RemoteConfig, Store, StoreInfo, Version, not_a_link,
};
use address::Address;
use client::{Client, describe};
use listing::{PageRange, Pages};
use reader::BucketReader;
use walk::BucketFlatListing;
use writer::WriteClients;

mod address;
mod client;
mod cloud_urls;
mod listing;
mod option_names;
mod profile;
mod reader;
mod settings;
#[cfg(test)]
mod tests;
mod upload;
mod walk;
mod writer;

/// Whether URLs of a scheme name buckets.
pub(super) fn has_scheme(scheme: &str) -> bool {
    address::kind(scheme).is_some()
}

/// A prefix of a bucket.
pub struct BucketStore {
    client: Arc<Client>,
    /// Without a slash at either end.
    prefix: String,
    writer: WriteClients,
    /// Whether an empty prefix is a store as well.
    may_be_empty: bool,
    /// Whether keys are listed in order: those of S3's directory buckets are not.
    is_ordered: bool,
    info: StoreInfo,
}

impl BucketStore {
    /// Opens `scheme:rest`; messages call it `shown`. One request finds out whether it is there and can be listed; `Denied`, `NotFound`, `Invalid` or `Unavailable` within seconds if not.
    pub fn open(
        (scheme, rest): (&str, &str),
        shown: &str,
        config: &RemoteConfig,
        stats: &Arc<Stats>,
    ) -> Result<BucketStore> {
        let kind = address::kind(scheme)
            .ok_or_else(|| Error::unsupported(shown, format!("no stores of kind {scheme}:")))?;
        let address = address::read(kind, rest, shown)?;
        BucketStore::open_address(&address, shown, config, stats)
    }

    /// Opens the bucket behind a plain HTTPS address of its cloud; nothing if there is none that can be read.
    pub(super) fn open_cloud_url(
        url: &str,
        shown: &str,
        config: &RemoteConfig,
        stats: &Arc<Stats>,
    ) -> Option<BucketStore> {
        let (address, region) = cloud_urls::bucket(url)?;
        let config = RemoteConfig {
            region: region.or_else(|| config.region.clone()),
            ..config.clone()
        };
        BucketStore::open_address(&address, shown, &config, stats).ok()
    }

    fn open_address(
        address: &Address,
        shown: &str,
        config: &RemoteConfig,
        stats: &Arc<Stats>,
    ) -> Result<BucketStore> {
        let connector = Connector::new(stats.clone());
        let limit = config.timeout.min(FIRST_LIMIT);
        let first = BucketStore::build(address, config, &connector, (FIRST_RETRIES, limit))?;
        let lists = first.probe(shown).map_err(|error| match &config.endpoint {
            Some(endpoint) if error.kind() == Kind::Unavailable => {
                let server = crate::store::shown(endpoint);
                Error::unavailable(shown, format!("{server}: {}", error.detail()))
            }
            _ => error,
        })?;
        let mut store = BucketStore::build(address, config, &connector, (RETRIES, config.timeout))?;
        store.info.lists = lists;
        Ok(store)
    }

    fn build(
        address: &Address,
        config: &RemoteConfig,
        connector: &Connector,
        (retries, limit): (usize, Duration),
    ) -> Result<BucketStore> {
        let retry = settings::retries(retries, limit);
        let clients = settings::client(address, config, connector, retry)?;
        Ok(BucketStore {
            client: Arc::new(Client {
                objects: clients.objects,
                pages: clients.pages,
                parts: clients.parts,
                limit,
                permits: Semaphore::new(config.concurrency.max(1)),
                suffixes: address.kind != address::CloudKind::Azure,
            }),
            prefix: address.prefix.clone(),
            writer: WriteClients::new(address, config, connector),
            may_be_empty: config.may_be_empty,
            is_ordered: !address.bucket.ends_with("--x-s3"),
            info: StoreInfo::new(config.metadata_ttl),
        })
    }

    /// Checks that something is there; returns whether names can be listed.
    fn probe(&self, shown: &str) -> Result<bool> {
        let root = Key::root();
        let refused = match Pages::new(self.client.clone(), self.before(&root), root).has_names() {
            Ok(true) => return Ok(true),
            // An object of exactly this name is no store, but is reported more precisely.
            Ok(false) if self.may_be_empty => return Ok(true),
            Ok(false) => return Err(Error::not_found(shown)),
            Err(error) if error.kind() == Kind::Denied => error,
            Err(error) => return Err(Error::new(error.kind(), shown, error.detail())),
        };
        // Many public buckets permit reading and not listing.
        for name in document::at_root() {
            if let Ok(Some(_)) = self.object(&Key::new(name)?) {
                return Ok(false);
            }
        }
        Err(Error::new(Kind::Denied, shown, refused.detail()))
    }

    /// Returns what the names of all keys below this one begin with.
    fn before(&self, key: &Key) -> String {
        let name = self.name(key).unwrap_or_default();
        if name.is_empty() { name } else { name + "/" }
    }

    /// Returns the name of an object in the bucket; nothing if no object can have it.
    fn name(&self, key: &Key) -> Option<String> {
        let key = str::from_utf8(key.as_bytes()).ok()?;
        Some(match (self.prefix.as_str(), key) {
            (prefix, "") => prefix.to_string(),
            ("", key) => key.to_string(),
            (prefix, key) => format!("{prefix}/{key}"),
        })
    }

    fn path(&self, key: &Key) -> Option<Path> {
        if key.is_root() {
            return None;
        }
        Path::parse(self.name(key)?).ok()
    }

    /// Returns the metadata of an object; nothing if it is missing.
    fn object(&self, key: &Key) -> Result<Option<Meta>> {
        let Some(path) = self.path(key) else {
            return Ok(None);
        };
        let head = GetOptions::new().with_head(true);
        let request = self.client.objects.get_opts(&path, head);
        described(self.client.ask(key, request))
    }

    /// Whether keys lie below this one.
    fn is_prefix(&self, key: &Key) -> Result<bool> {
        if key.is_root() {
            return Ok(true);
        }
        if !self.info.lists || self.name(key).is_none() {
            return Ok(false);
        }
        let before = self.before(key);
        let page = listing::page(&self.client, key, &one_name(&before), None)?;
        Ok(has_names(&before, &page))
    }

    /// Requests an object and the first name below it concurrently.
    fn look(&self, key: &Key, path: &Path) -> Result<(Option<Meta>, bool)> {
        let before = self.before(key);
        let head = GetOptions::new().with_head(true);
        let one = listing::options(&one_name(&before), None);
        let (object, page) = self.client.ask_two(
            key,
            self.client.objects.get_opts(path, head),
            self.client.pages.list_paginated(Some(&before), one),
        )?;
        let is_prefix = match page {
            Ok(page) => has_names(&before, &page),
            Err(error) if error.kind() == Kind::Unavailable => self.is_prefix(key)?,
            Err(error) => return Err(error),
        };
        Ok((described(object)?, is_prefix))
    }
}

impl BucketStore {
    /// Whether the server refuses a put whose condition does not hold: tried once, on a key that is removed again.
    pub fn honours_conditions(&self) -> Result<bool> {
        let name = condition_probe::probe_key()?;
        self.writer.get(&self.client)?.honours(&self.target(&name)?)
    }

    /// Notes a change, also a failed one: it may have been made.
    fn changed<T>(&self, key: &Key, done: Result<T>) -> Result<T> {
        self.info.changes.note(key);
        done
    }

    /// Fetches a range once the size is known: an empty one, or one past the end, is refused by some servers.
    fn get_sized_range(&self, key: &Key, path: &Path, range: &ByteRange) -> Result<Option<Object>> {
        let Some(meta) = self.object(key)? else {
            return Ok(None);
        };
        let part = range.within(meta.size);
        if part.is_empty() {
            return Ok(Some(Object {
                bytes: Vec::new(),
                size: meta.size,
                version: meta.version,
                modified: Some(meta.modified),
            }));
        }
        let options = GetOptions::new().with_range(Some(GetRange::Bounded(part)));
        self.client.fetch(key, path, options, u64::MAX)
    }
}

/// Converts the answer about an object; nothing if it is missing.
fn described(answer: Result<GetResult>) -> Result<Option<Meta>> {
    match answer {
        Ok(answer) => Ok(Some(describe(&answer.meta, EntryKind::File))),
        Err(error) if error.kind() == Kind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn one_name(before: &str) -> PageRange<'_> {
    PageRange {
        prefix: before,
        delimiter: true,
        after: None,
        names: 1,
    }
}

/// Whether a page shows that something lies below the prefix.
fn has_names(before: &str, page: &PaginatedListResult) -> bool {
    let below = |name: &str| name.len() > before.len();
    let mut objects = page.result.objects.iter();
    let mut prefixes = page.result.common_prefixes.iter();
    objects.any(|object| below(object.location.as_ref()))
        || prefixes.any(|prefix| below(prefix.as_ref()))
        || page.page_token.is_some()
}

impl Store for BucketStore {
    fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>> {
        match self.path(key) {
            Some(path) => self.client.fetch(key, &path, GetOptions::new(), limit),
            None => Ok(None),
        }
    }

    fn get_range(&self, key: &Key, range: ByteRange) -> Result<Option<Object>> {
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
            match self.client.fetch(key, &path, options, u64::MAX) {
                // The range lies outside the object; servers report that in several ways.
                Err(error) if matches!(error.kind(), Kind::Invalid | Kind::Unavailable) => {}
                answer => return answer,
            }
        }
        self.get_sized_range(key, &path, &range)
    }

    fn head(&self, key: &Key) -> Result<Option<Meta>> {
        let (object, is_prefix) = match self.path(key) {
            Some(path) if self.info.lists => self.look(key, &path)?,
            _ => (self.object(key)?, self.is_prefix(key)?),
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

    fn version(&self, key: &Key) -> Result<Option<Version>> {
        Ok(self.object(key)?.map(|meta| meta.version))
    }

    fn open(&self, key: &Key, known: Option<&Meta>) -> Result<Arc<dyn Reader>> {
        let meta = match known {
            Some(meta) => *meta,
            None => self.object(key)?.ok_or_else(|| Error::not_found(key))?,
        };
        let path = self.path(key).ok_or_else(|| Error::not_found(key))?;
        Ok(Arc::new(BucketReader {
            client: self.client.clone(),
            path,
            key: key.clone(),
            meta,
        }))
    }

    fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>> {
        if !self.info.lists {
            return Err(Error::unsupported(
                prefix,
                "this store does not tell its names",
            ));
        }
        if self.name(prefix).is_none() {
            return Err(Error::not_found(prefix));
        }
        let mut pages = Pages::new(self.client.clone(), self.before(prefix), prefix.clone());
        if pages.has_names()? || prefix.is_root() {
            return Ok(Box::new(pages));
        }
        match self.object(prefix)? {
            Some(_) => Err(Error::new(
                Kind::NotADirectory,
                prefix,
                "is an object, not a directory",
            )),
            None => Err(Error::not_found(prefix)),
        }
    }

    fn list_all(&self, prefix: &Key, from: &Key) -> Result<Option<Box<dyn FlatListing>>> {
        if !self.info.lists || !self.is_ordered || self.name(prefix).is_none() {
            return Ok(None);
        }
        // What sorts right before the slash that all keys in the folder have.
        let after = self.name(from).filter(|_| from != prefix);
        Ok(Some(Box::new(BucketFlatListing {
            client: self.client.clone(),
            prefix: self.before(prefix),
            key: prefix.clone(),
            after: after.map(|name| name + "."),
            next: Some(None),
        })))
    }

    fn read_link(&self, key: &Key) -> Result<Vec<u8>> {
        Err(not_a_link(key))
    }

    /// The ETag as it stands in a condition, and Google's generation.
    fn etag(&self, key: &Key) -> Result<Option<ETag>> {
        match self.target(key) {
            Ok(target) => self.writer.get(&self.client)?.etag(&target),
            Err(_) => Ok(None),
        }
    }

    fn put(&self, key: &Key, body: PutBody<'_>, condition: &Condition) -> Result<ETag> {
        let (target, name) = (self.target(key)?, condition_probe::probe_key()?);
        let trial = self.target(&name)?;
        let writer = self.writer.get(&self.client)?;
        let condition = condition.in_words(key, || writer.etag(&target));
        let put = condition.and_then(|condition| writer.put(&target, &trial, body, &condition));
        self.changed(key, put)
    }

    /// Removes an object. What the condition asks for is looked at just before, also where a put is refused in
    /// one step: there are no requests to remove that have a condition.
    fn erase(&self, key: &Key, condition: &Condition) -> Result<()> {
        let Ok(target) = self.target(key) else {
            return condition.check(key, None);
        };
        let writer = self.writer.get(&self.client)?;
        self.changed(key, writer.erase(&target, condition))
    }

    fn erase_folder(&self, _prefix: &Key) -> Result<()> {
        Ok(())
    }

    fn info(&self) -> &StoreInfo {
        &self.info
    }
}
