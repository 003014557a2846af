//! Lists the names in a directory or all objects below a prefix, page by page.
//!
//! A page that cannot be fetched, or a continuation token that does not advance, is an error, never the end of the
//! listing.

use std::mem;
use std::sync::Arc;
use std::thread;

use object_store::list::{PaginatedListOptions, PaginatedListResult};

use super::client::{Client, describe};
use super::listing_page;
use crate::backend::remote::retry::Attempts;
use crate::request_context::RequestContext;
use crate::{EntryKind, FlatListing, Key, Listing, Meta, Name};
use zarr_format::error::{Error, Kind, Result};

pub(super) const PAGE_SIZE: usize = 1000;

#[derive(Clone)]
struct ListedName {
    name: Vec<u8>,
    meta: Meta,
}

impl ListedName {
    fn is_directory(&self) -> bool {
        self.meta.kind == EntryKind::Directory
    }
}

/// Where the next page of a bucket listing starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum NextPage {
    #[default]
    First,
    /// The page that has this continuation token.
    At(String),
    /// The last page was returned, so no page follows.
    End,
}

impl NextPage {
    fn after(token: Option<String>) -> NextPage {
        token.map_or(NextPage::End, NextPage::At)
    }

    fn token(&self) -> Option<String> {
        match self {
            NextPage::At(token) => Some(token.clone()),
            NextPage::First | NextPage::End => None,
        }
    }

    /// Returns the page if the listing can continue after it. The error is `Corrupt` if the next page has the same
    /// token as this page, so that the listing would never end, or if the token says why the listing cannot continue.
    pub(super) fn check(
        &self,
        key: &Key,
        page: PaginatedListResult,
    ) -> Result<PaginatedListResult> {
        let Some(token) = &page.page_token else {
            return Ok(page);
        };
        if let Some(fault) = listing_page::fault(token) {
            return Err(Error::corrupt(key, fault));
        }
        if self.token().as_ref() == Some(token) {
            let text = "endless listing: the server sends the same page token again";
            return Err(Error::corrupt(key, text));
        }
        Ok(page)
    }
}

/// Number of names on a listing page, and its first and last name. Two equal values reveal a repeated page.
#[derive(Clone, PartialEq, Eq)]
struct PageNames {
    count: usize,
    first: String,
    last: String,
}

impl PageNames {
    fn of(page: &PaginatedListResult) -> Option<PageNames> {
        let objects = page.result.objects.iter().map(|object| &object.location);
        let names = || objects.clone().chain(&page.result.common_prefixes);
        Some(PageNames {
            count: names().count(),
            first: names().next()?.to_string(),
            last: names().last()?.to_string(),
        })
    }
}

/// Fetches the pages of a bucket listing, each with the continuation token of the page before it.
#[derive(Clone, Default)]
pub(super) struct Pages {
    next: NextPage,
    first: Option<PageNames>,
    last: Option<PageNames>,
    /// Number of consecutive listing pages that had no new name.
    empty: usize,
    /// The error of an endless listing, after which no further page is requested.
    failed: Option<Error>,
}

impl Pages {
    pub(super) fn has_ended(&self) -> bool {
        self.next == NextPage::End
    }

    /// Fetches the next page, or returns `None` after the last page. If the listing does not advance, the error is
    /// `Corrupt`, and later calls make no requests.
    pub(super) fn fetch(
        &mut self,
        context: &RequestContext,
        client: &Client,
        key: &Key,
        wanted: &PageRange<'_>,
    ) -> Result<Option<PaginatedListResult>> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.has_ended() {
            return Ok(None);
        }
        let fetched = wanted.fetch(context, client, key, &self.next);
        let fetched = fetched.and_then(|page| self.record(key, &page).map(|()| page));
        if let Err(error) = &fetched
            && error.kind() == Kind::Corrupt
        {
            self.failed = Some(error.clone());
        }
        let page = fetched?;
        self.next = NextPage::after(page.page_token.clone());
        Ok(Some(page))
    }

    /// Records the names of a listing page. The error is `Corrupt` if the server starts the listing again.
    fn record(&mut self, key: &Key, page: &PaginatedListResult) -> Result<()> {
        let names = PageNames::of(page);
        // Some servers count the keys behind a prefix toward the page's limit, so they repeat a prefix with many keys
        // on the next page.
        let is_prefix_again = page.result.objects.is_empty()
            && page.result.common_prefixes.len() == 1
            && names == self.last;
        let is_again = names == self.first || names == self.last;
        if names.is_some() && is_again && !is_prefix_again {
            let text = "endless listing: the server sends the same page again";
            return Err(Error::corrupt(key, text));
        }
        self.empty = if names.is_none() || is_prefix_again {
            self.empty + 1
        } else {
            0
        };
        // Servers send some pages without a new name, because they skip removed objects or keys of a prefix already
        // listed. More than 100 such pages are taken for an endless listing.
        if self.empty > 100 && page.page_token.is_some() {
            let text = format!("endless listing: {} pages have no new name", self.empty);
            return Err(Error::corrupt(key, text));
        }
        self.first = self.first.take().or_else(|| names.clone());
        self.last = names.or(self.last.take());
        Ok(())
    }
}

/// A position in a listing, from which the listing can be resumed.
#[derive(Clone, Default)]
struct Position {
    cursor: u64,
    pages: Pages,
    /// Objects not returned yet, because a later page may show that their names are directories too.
    undecided: Vec<ListedName>,
    /// The last directory on the previous page. The next page may repeat it.
    split: Option<Vec<u8>>,
}

/// Lists one directory of a bucket.
///
/// A cursor (the position that a caller may seek to) is the number of a name in the listing, counted from 1. The
/// continuation token of each page is stored, so that a seek needs one request. An object is returned only when no
/// later page can have keys below it, since such keys make its name a directory.
pub(super) struct BucketListing {
    client: Arc<Client>,
    /// The prefix of all names in the bucket, with a final slash unless it is empty.
    prefix: String,
    key: Key,
    /// The position at the start of each page so far, for seeks.
    starts: Vec<Position>,
    page: std::vec::IntoIter<ListedName>,
    position: Position,
    /// Whether an object has the name of the listed directory (a folder marker).
    has_marker: bool,
}

impl BucketListing {
    pub(super) fn new(client: Arc<Client>, prefix: String, key: Key) -> BucketListing {
        BucketListing {
            client,
            prefix,
            key,
            starts: Vec::new(),
            page: Vec::new().into_iter(),
            position: Position::default(),
            has_marker: false,
        }
    }

    /// Replaces the client that requests the next pages of the listing.
    pub(super) fn with_client(self, client: Arc<Client>) -> BucketListing {
        BucketListing { client, ..self }
    }

    /// Whether the pages so far contain the directory's marker object. With a marker, an empty directory exists.
    pub(super) fn has_marker(&self) -> bool {
        self.has_marker
    }

    /// Fetches pages until one has a name. Returns false if the directory has no names.
    pub(super) fn has_names(&mut self, context: &RequestContext) -> Result<bool> {
        while self.page.as_slice().is_empty() {
            if !self.next_page(context)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Fetches the next page of the listing. Returns false after the last page.
    fn next_page(&mut self, context: &RequestContext) -> Result<bool> {
        let wanted = PageRange {
            prefix: &self.prefix,
            delimiter: true,
            after: None,
            max_names: PAGE_SIZE,
        };
        let start = self.position.clone();
        let pages = &mut self.position.pages;
        let Some(page) = pages.fetch(context, &self.client, &self.key, &wanted)? else {
            return Ok(false);
        };
        self.starts.push(start);
        // object_store drops the final slash of a folder marker's name, so the slash is dropped from the prefix too.
        let marker = self.prefix.strip_suffix('/').unwrap_or(&self.prefix);
        let mut objects = page.result.objects.iter();
        self.has_marker |= objects.any(|object| object.location.as_ref() == marker);
        let names = self.names(page);
        self.page = names.into_iter();
        Ok(true)
    }

    /// Returns the names on a page, sorted. A name that is both an object and a prefix is returned once, as a
    /// directory.
    fn names(&mut self, page: PaginatedListResult) -> Vec<ListedName> {
        let mut names = mem::take(&mut self.position.undecided);
        for object in &page.result.objects {
            match listed(&self.prefix, object.location.as_ref()) {
                Some((name, EntryKind::File)) => {
                    let meta = describe(object, EntryKind::File);
                    names.push(ListedName { name, meta });
                }
                // A listed name contains a slash, because the server ignored the delimiter: the name is a directory.
                Some((name, _)) => names.push(ListedName {
                    name,
                    meta: Meta::prefix(),
                }),
                None => {}
            }
        }
        for folder in &page.result.common_prefixes {
            if let Some((name, _)) = listed(&self.prefix, folder.as_ref()) {
                let meta = Meta::prefix();
                names.push(ListedName { name, meta });
            }
        }
        let last = self.last_directory(&page);
        let split = mem::replace(&mut self.position.split, last);
        let was_returned =
            |name: &ListedName| name.is_directory() && split.as_ref() == Some(&name.name);
        names.retain(|name| !was_returned(name));
        // If a name is both an object and a directory, the object sorts first and the directory takes its size and
        // version.
        names.sort_by(|one, other| {
            (&one.name, one.is_directory()).cmp(&(&other.name, other.is_directory()))
        });
        names.dedup_by(|later, earlier| {
            if later.name != earlier.name {
                return false;
            }
            earlier.meta.kind = later.meta.kind;
            true
        });
        if !self.position.pages.has_ended() {
            self.take_undecided(&mut names);
        }
        names
    }

    /// Returns the directory of the last key on a page, or `None` if the key is directly below the prefix. The next
    /// page may repeat the directory, because some servers ignore the delimiter or start a page after a key.
    fn last_directory(&self, page: &PaginatedListResult) -> Option<Vec<u8>> {
        let objects = page.result.objects.iter().map(|object| &object.location);
        let last = objects.chain(&page.result.common_prefixes);
        let last = last.max_by(|one, other| one.as_ref().cmp(other.as_ref()))?;
        let is_prefix = page.result.common_prefixes.contains(last);
        let (name, kind) = listed(&self.prefix, last.as_ref())?;
        (is_prefix || kind == EntryKind::Directory).then_some(name)
    }

    /// Moves objects whose names a later page may show as directories from `names` to `undecided`. After `a` and `a-b`,
    /// for example, the next page may have `a/c`, since `/` sorts after `-`.
    fn take_undecided(&mut self, names: &mut Vec<ListedName>) {
        let last = names
            .last()
            .map(|last| last.name.clone())
            .unwrap_or_default();
        let is_undecided =
            |listed: &mut ListedName| !listed.is_directory() && last.starts_with(&listed.name);
        self.position.undecided = names.extract_if(.., is_undecided).collect();
    }
}

/// Returns the first path component after the prefix: a directory if more components follow, else a file. Returns
/// `None` for the prefix itself and for names that cannot be part of a key.
fn listed(prefix: &str, location: &str) -> Option<(Vec<u8>, EntryKind)> {
    let name = location.strip_prefix(prefix)?.trim_end_matches('/');
    let (name, kind) = match name.split_once('/') {
        Some((directory, _)) => (directory, EntryKind::Directory),
        None => (name, EntryKind::File),
    };
    Key::root().child(name.as_bytes()).ok()?;
    Some((name.as_bytes().to_vec(), kind))
}

/// Which names a listing request asks for.
pub(super) struct PageRange<'a> {
    /// The prefix of all names.
    pub(super) prefix: &'a str,
    /// Whether names that are equal up to the next slash are combined into one prefix.
    pub(super) delimiter: bool,
    /// The name after which the first page starts.
    pub(super) after: Option<&'a str>,
    pub(super) max_names: usize,
}

impl<'a> PageRange<'a> {
    /// Returns a range that asks for one name only, to test whether the prefix has any.
    pub(super) fn first_name(prefix: &'a str) -> PageRange<'a> {
        PageRange {
            prefix,
            delimiter: true,
            after: None,
            max_names: 1,
        }
    }

    pub(super) fn options(&self, next: &NextPage) -> PaginatedListOptions {
        let token = next.token();
        let is_first = token.is_none();
        PaginatedListOptions {
            offset: self.after.filter(|_| is_first).map(str::to_string),
            delimiter: self.delimiter.then_some("/".into()),
            max_keys: Some(self.max_names),
            page_token: token,
            ..PaginatedListOptions::default()
        }
    }

    pub(super) fn fetch(
        &self,
        context: &RequestContext,
        client: &Client,
        key: &Key,
        next: &NextPage,
    ) -> Result<PaginatedListResult> {
        // If a response's body breaks off, the page is requested again, because object_store only retries whole
        // requests.
        let mut attempts = Attempts::new(client.limits.time, 3);
        loop {
            let prefix = (!self.prefix.is_empty()).then_some(self.prefix);
            let request = client
                .cloud
                .pages
                .list_paginated(prefix, self.options(next));
            match client.request(context, key, request) {
                Err(error) if error.kind() == Kind::Unavailable => match attempts.next_pause() {
                    Some(pause) => thread::sleep(pause),
                    None => return Err(error),
                },
                page => return next.check(key, page?),
            }
        }
    }
}

impl Listing for BucketListing {
    fn next(&mut self, context: &RequestContext) -> Result<Option<Name>> {
        loop {
            if let Some(ListedName { name, meta }) = self.page.next() {
                self.position.cursor += 1;
                return Ok(Some(Name {
                    name,
                    kind: meta.kind,
                    cursor: self.position.cursor,
                    meta: Some(meta),
                }));
            }
            if !self.next_page(context)? {
                return Ok(None);
            }
        }
    }

    fn seek(&mut self, context: &RequestContext, cursor: u64) -> Result<()> {
        if cursor == self.position.cursor {
            return Ok(());
        }
        let pages = self.starts.partition_point(|start| start.cursor <= cursor);
        let page = pages.saturating_sub(1);
        self.position = self.starts.get(page).cloned().unwrap_or_default();
        self.starts.truncate(page);
        self.page = Vec::new().into_iter();
        while self.position.cursor < cursor && self.next(context)?.is_some() {}
        Ok(())
    }
}

/// Lists all objects below a prefix in one listing, without directories.
///
/// Names that cannot be keys are left out. object_store drops the slash at the end of a folder marker, so an empty
/// object may be a marker; the caller decides.
pub(super) struct BucketFlatListing {
    pub(super) client: Arc<Client>,
    /// The prefix of all names in the bucket, with a final slash unless it is empty.
    pub(super) prefix: String,
    pub(super) key: Key,
    /// The object name after which the listing begins.
    pub(super) after: Option<String>,
    pub(super) pages: Pages,
}

impl BucketFlatListing {
    /// Returns the key of a listed object, or `None` for the prefix itself and for names that cannot be keys.
    fn key(&self, location: &str) -> Option<Key> {
        let rest = location.strip_prefix(&self.prefix)?;
        if rest.is_empty() {
            return None;
        }
        let prefix = self.key.as_bytes();
        let separator: &[u8] = if prefix.is_empty() { b"" } else { b"/" };
        Key::new([prefix, separator, rest.as_bytes()].concat()).ok()
    }
}

impl FlatListing for BucketFlatListing {
    fn next(&mut self, context: &RequestContext) -> Result<Option<Vec<(Key, Meta)>>> {
        let wanted = PageRange {
            prefix: &self.prefix,
            delimiter: false,
            after: self.after.as_deref(),
            max_names: PAGE_SIZE,
        };
        let Some(page) = self
            .pages
            .fetch(context, &self.client, &self.key, &wanted)?
        else {
            return Ok(None);
        };
        let objects = page.result.objects.iter().filter_map(|object| {
            let key = self.key(object.location.as_ref())?;
            Some((key, describe(object, EntryKind::File)))
        });
        Ok(Some(objects.collect()))
    }

    fn has_ended(&self) -> bool {
        self.pages.has_ended()
    }
}
