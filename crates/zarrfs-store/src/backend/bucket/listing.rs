//! Lists the names under a prefix, in the server's pages.
//!
//! A cursor is the number of a name in the listing, counted from 1. The token of each page is kept (one per thousand
//! names), so that a seek needs one request. A page that cannot be fetched, or a token that does not advance, is an
//! error, never the end of the listing. An object is returned once it is certain that it is not a prefix as well, which
//! may need a later page.

use std::mem;
use std::sync::Arc;
use std::thread;

use object_store::list::{PaginatedListOptions, PaginatedListResult};

use super::client::{Client, describe};
use super::page_token;
use crate::backend::remote::retry::Attempts;
use crate::request_context::RequestContext;
use crate::{EntryKind, Key, Listing, Meta, Name};
use zarr_format::error::{Error, Kind, Result};

/// Maximum number of names on a page.
pub(super) const PAGE_SIZE: usize = 1000;

/// How often the request for a page is retried. object_store does not retry if a body breaks off.
const REPEATS: usize = 3;

/// Maximum number of consecutive pages without a new name. Servers send some when they skip removed objects or many
/// keys of one prefix.
const MAX_EMPTY_PAGES: usize = 100;

/// A name, its kind, and the metadata that `head` would return.
type ListedObjectMeta = (Vec<u8>, EntryKind, Meta);

/// The next page of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum NextPage {
    #[default]
    First,
    /// The page with this token.
    At(String),
    /// There is none: the last page was returned.
    End,
}

impl NextPage {
    /// Returns the page that follows a page with this token.
    fn after(token: Option<String>) -> NextPage {
        token.map_or(NextPage::End, NextPage::At)
    }

    fn token(&self) -> Option<String> {
        match self {
            NextPage::At(token) => Some(token.clone()),
            NextPage::First | NextPage::End => None,
        }
    }
}

/// The number of names on a page, and the first and last name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PageNames(usize, String, String);

impl PageNames {
    fn of(page: &PaginatedListResult) -> Option<PageNames> {
        let objects = page.result.objects.iter().map(|object| &object.location);
        let names = || objects.clone().chain(&page.result.common_prefixes);
        let (first, last) = (names().next()?, names().last()?);
        Some(PageNames(
            names().count(),
            first.to_string(),
            last.to_string(),
        ))
    }
}

/// The pages of a listing, each requested with the token of the one before.
#[derive(Clone, Default)]
pub(super) struct Pages {
    next: NextPage,
    first: Option<PageNames>,
    last: Option<PageNames>,
    /// Number of consecutive pages without a new name.
    empty: usize,
    /// The error after which no further page is requested.
    failed: Option<Error>,
}

impl Pages {
    /// Whether the last page was received.
    pub(super) fn has_ended(&self) -> bool {
        self.next == NextPage::End
    }

    /// Fetches the next page, or returns `None` after the last one. If the listing does not advance, the error is
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
        let fetched = page(context, client, key, wanted, &self.next);
        let fetched = fetched.and_then(|page| self.note(key, &page).map(|()| page));
        if let Err(error) = &fetched
            && error.kind() == Kind::Corrupt
        {
            self.failed = Some(error.clone());
        }
        let page = fetched?;
        self.next = NextPage::after(page.page_token.clone());
        Ok(Some(page))
    }

    /// Records the names of a page. The error is `Corrupt` if the server starts again from the beginning.
    fn note(&mut self, key: &Key, page: &PaginatedListResult) -> Result<()> {
        let names = PageNames::of(page);
        // A server that limits the keys of a page, hidden ones included, repeats a prefix that has many keys.
        let is_prefix_again = page.result.objects.is_empty()
            && page.result.common_prefixes.len() == 1
            && names == self.last;
        let is_again = names == self.first || names == self.last;
        if names.is_some() && is_again && !is_prefix_again {
            let text = "the listing does not end: the server sends the same page again";
            return Err(Error::corrupt(key, text));
        }
        self.empty = if names.is_none() || is_prefix_again {
            self.empty + 1
        } else {
            0
        };
        if self.empty > MAX_EMPTY_PAGES && page.page_token.is_some() {
            let text = format!(
                "the listing does not end: {} pages have no new name",
                self.empty
            );
            return Err(Error::corrupt(key, text));
        }
        self.first = self.first.take().or_else(|| names.clone());
        self.last = names.or(self.last.take());
        Ok(())
    }
}

/// The state of a listing at the start of a page.
#[derive(Clone, Default)]
struct PageStart {
    /// The number of names before this page.
    cursor: u64,
    pages: Pages,
    undecided: Vec<ListedObjectMeta>,
    split: Option<Vec<u8>>,
}

/// A listing in progress.
pub(super) struct BucketListing {
    client: Arc<Client>,
    /// The prefix of all names in the bucket, with a final slash unless it is empty.
    prefix: String,
    key: Key,
    /// The states at the starts of all pages so far.
    starts: Vec<PageStart>,
    page: std::vec::IntoIter<ListedObjectMeta>,
    cursor: u64,
    pages: Pages,
    /// Objects that may turn out to be prefixes as well.
    undecided: Vec<ListedObjectMeta>,
    /// The last directory of the previous page, which the next page may repeat.
    split: Option<Vec<u8>>,
    /// Whether the prefix is itself an object: a folder marker.
    has_marker: bool,
}

impl BucketListing {
    /// Starts a listing of the names under `prefix`.
    pub(super) fn new(client: Arc<Client>, prefix: String, key: Key) -> BucketListing {
        BucketListing {
            client,
            prefix,
            key,
            starts: Vec::new(),
            page: Vec::new().into_iter(),
            cursor: 0,
            pages: Pages::default(),
            undecided: Vec::new(),
            split: None,
            has_marker: false,
        }
    }

    /// Whether the pages so far have the folder's marker. Then the folder exists even if it is empty.
    pub(super) fn has_marker(&self) -> bool {
        self.has_marker
    }

    /// Fetches pages up to the first name. Returns whether there is one.
    pub(super) fn has_names(&mut self, context: &RequestContext) -> Result<bool> {
        while self.page.as_slice().is_empty() {
            if !self.next_page(context)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Fetches the next page. Returns false after the last one.
    fn next_page(&mut self, context: &RequestContext) -> Result<bool> {
        let wanted = PageRange {
            prefix: &self.prefix,
            delimiter: true,
            after: None,
            max_names: PAGE_SIZE,
        };
        let start = PageStart {
            cursor: self.cursor,
            pages: self.pages.clone(),
            undecided: self.undecided.clone(),
            split: self.split.clone(),
        };
        let Some(page) = self
            .pages
            .fetch(context, &self.client, &self.key, &wanted)?
        else {
            return Ok(false);
        };
        self.starts.push(start);
        // object_store drops the slash at the end of the marker's name.
        let marker = self.prefix.strip_suffix('/').unwrap_or(&self.prefix);
        let mut objects = page.result.objects.iter();
        self.has_marker |= objects.any(|object| object.location.as_ref() == marker);
        let names = self.names(page);
        self.page = names.into_iter();
        Ok(true)
    }

    /// Returns the names of a page in order. If a name is both an object and a prefix, it is returned once, as a
    /// directory.
    fn names(&mut self, page: PaginatedListResult) -> Vec<ListedObjectMeta> {
        let mut names = mem::take(&mut self.undecided);
        for object in &page.result.objects {
            match listed(&self.prefix, object.location.as_ref()) {
                Some((name, EntryKind::File)) => {
                    let meta = describe(object, EntryKind::File);
                    names.push((name, EntryKind::File, meta));
                }
                // The server ignored the delimiter.
                Some((name, kind)) => names.push((name, kind, Meta::prefix())),
                None => {}
            }
        }
        for folder in &page.result.common_prefixes {
            if let Some((name, _)) = listed(&self.prefix, folder.as_ref()) {
                names.push((name, EntryKind::Directory, Meta::prefix()));
            }
        }
        let last = self.last_directory(&page);
        let split = mem::replace(&mut self.split, last);
        let was_returned =
            |name: &[u8], kind| kind == EntryKind::Directory && split.as_deref() == Some(name);
        names.retain(|(name, kind, _)| !was_returned(name, *kind));
        // Of equal names the object comes first. The merged directory keeps the size and version of the object.
        names.sort_by(|one, other| {
            (&one.0, one.1 != EntryKind::File).cmp(&(&other.0, other.1 != EntryKind::File))
        });
        names.dedup_by(|later, earlier| {
            if later.0 != earlier.0 {
                return false;
            }
            earlier.1 = later.1;
            earlier.2.kind = later.1;
            true
        });
        if !self.pages.has_ended() {
            self.take_undecided(&mut names);
        }
        names
    }

    /// Returns the directory of the last key on a page, or `None` if that key is directly below the prefix. The next
    /// page may repeat it if the server ignores the delimiter or continues after a key.
    fn last_directory(&self, page: &PaginatedListResult) -> Option<Vec<u8>> {
        let objects = page.result.objects.iter().map(|object| &object.location);
        let last = objects.chain(&page.result.common_prefixes);
        let last = last.max_by(|one, other| one.as_ref().cmp(other.as_ref()))?;
        let is_prefix = page.result.common_prefixes.contains(last);
        let (name, kind) = listed(&self.prefix, last.as_ref())?;
        (is_prefix || kind == EntryKind::Directory).then_some(name)
    }

    /// Removes the objects that the next page may show to be prefixes: names that are a prefix of the last name, since
    /// `/` may sort after the character that follows there.
    fn take_undecided(&mut self, names: &mut Vec<ListedObjectMeta>) {
        let last = names
            .last()
            .map(|(name, ..)| name.clone())
            .unwrap_or_default();
        let is_undecided = |(name, kind, _): &mut ListedObjectMeta| {
            *kind == EntryKind::File && last.starts_with(name)
        };
        self.undecided = names.extract_if(.., is_undecided).collect();
    }
}

/// Returns the name after the prefix, and whether it is an object or a directory above it; `None` for the prefix itself
/// and for names that cannot be part of a key.
fn listed(prefix: &str, location: &str) -> Option<(Vec<u8>, EntryKind)> {
    let name = location.strip_prefix(prefix)?.trim_end_matches('/');
    let (name, kind) = match name.split_once('/') {
        Some((directory, _)) => (directory, EntryKind::Directory),
        None => (name, EntryKind::File),
    };
    Key::root().child(name.as_bytes()).ok()?;
    Some((name.as_bytes().to_vec(), kind))
}

/// The range of names that pages are requested for.
pub(super) struct PageRange<'a> {
    /// The prefix of all names.
    pub(super) prefix: &'a str,
    /// Whether names that are equal up to the next slash are combined into one prefix.
    pub(super) delimiter: bool,
    /// The name after which the first page starts.
    pub(super) after: Option<&'a str>,
    /// Maximum number of names on the page.
    pub(super) max_names: usize,
}

/// Builds the request for a page.
pub(super) fn options(wanted: &PageRange<'_>, next: &NextPage) -> PaginatedListOptions {
    let token = next.token();
    let is_first = token.is_none();
    PaginatedListOptions {
        offset: wanted.after.filter(|_| is_first).map(str::to_string),
        delimiter: wanted.delimiter.then_some("/".into()),
        max_keys: Some(wanted.max_names),
        page_token: token,
        ..PaginatedListOptions::default()
    }
}

/// Fetches a page.
pub(super) fn page(
    context: &RequestContext,
    client: &Client,
    key: &Key,
    wanted: &PageRange<'_>,
    next: &NextPage,
) -> Result<PaginatedListResult> {
    let mut attempts = Attempts::new(client.limits.time, REPEATS);
    loop {
        let options = options(wanted, next);
        let prefix = (!wanted.prefix.is_empty()).then_some(wanted.prefix);
        match client.ask(context, key, client.pages.list_paginated(prefix, options)) {
            Err(error) if error.kind() == Kind::Unavailable => match attempts.next_pause() {
                Some(pause) => thread::sleep(pause),
                None => return Err(error),
            },
            page => return checked(key, next, page?),
        }
    }
}

/// Returns the page if the listing can continue. The error is `Corrupt` if its token is the one that it was requested
/// with, or states a fault (see `page_token`).
pub(super) fn checked(
    key: &Key,
    next: &NextPage,
    page: PaginatedListResult,
) -> Result<PaginatedListResult> {
    let Some(token) = &page.page_token else {
        return Ok(page);
    };
    if let Some(fault) = page_token::fault(token) {
        return Err(Error::corrupt(key, fault));
    }
    if next.token().as_ref() == Some(token) {
        let text = "the listing does not end: the server sends the same page token again";
        return Err(Error::corrupt(key, text));
    }
    Ok(page)
}

impl Listing for BucketListing {
    fn next(&mut self, context: &RequestContext) -> Result<Option<Name>> {
        loop {
            if let Some((name, kind, meta)) = self.page.next() {
                self.cursor += 1;
                return Ok(Some(Name {
                    name,
                    kind,
                    cursor: self.cursor,
                    meta: Some(meta),
                }));
            }
            if !self.next_page(context)? {
                return Ok(None);
            }
        }
    }

    fn seek(&mut self, context: &RequestContext, cursor: u64) -> Result<()> {
        if cursor == self.cursor {
            return Ok(());
        }
        let pages = self.starts.partition_point(|start| start.cursor <= cursor);
        let page = pages.saturating_sub(1);
        let start = self.starts.get(page).cloned().unwrap_or_default();
        self.starts.truncate(page);
        self.page = Vec::new().into_iter();
        self.cursor = start.cursor;
        (self.pages, self.undecided) = (start.pages, start.undecided);
        self.split = start.split;
        while self.cursor < cursor && self.next(context)?.is_some() {}
        Ok(())
    }
}
