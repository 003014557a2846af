//! Names under a prefix, page by page as the server returns them.
//!
//! A cursor is the number of a name in the listing, counted from 1. The token of each page is kept, one per thousand
//! names, so that a seek makes one request. A page that cannot be fetched is an error, never the end. An object is
//! returned once it is certain that it is not a prefix as well, for which a later page may be needed.

use std::mem;
use std::sync::Arc;
use std::thread;

use object_store::list::{PaginatedListOptions, PaginatedListResult};

use super::client::{Client, describe};
use crate::error::{Kind, Result};
use crate::request_context::RequestContext;
use crate::store::backend::remote::limits::Attempts;
use crate::store::{EntryKind, Key, Listing, Meta, Name};

/// The most names of a page.
pub(super) const PAGE_SIZE: usize = 1000;

/// How often the request of a page is repeated; object_store does not repeat one whose body breaks off.
const REPEATS: usize = 3;

/// A name, its kind, and its metadata as `head` would return them.
type ListedObjectMeta = (Vec<u8>, EntryKind, Meta);

/// Which page of a listing is next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum NextPage {
    #[default]
    First,
    /// The one of this token.
    At(String),
    /// None: the last one was returned.
    End,
}

impl NextPage {
    /// Returns the page after one that came with this token.
    pub(super) fn after(token: Option<String>) -> NextPage {
        token.map_or(NextPage::End, NextPage::At)
    }

    fn token(&self) -> Option<String> {
        match self {
            NextPage::At(token) => Some(token.clone()),
            NextPage::First | NextPage::End => None,
        }
    }
}

/// The state of a listing before a page.
#[derive(Clone, Default)]
struct PageStart {
    /// How many names were returned before it.
    cursor: u64,
    next: NextPage,
    undecided: Vec<ListedObjectMeta>,
}

/// A listing under way.
pub(super) struct BucketListing {
    client: Arc<Client>,
    /// The prefix of all names in the bucket, with a slash at the end unless it is empty.
    prefix: String,
    key: Key,
    /// The starts of all pages up to the current one.
    starts: Vec<PageStart>,
    page: std::vec::IntoIter<ListedObjectMeta>,
    cursor: u64,
    next: NextPage,
    /// The objects that may turn out to be prefixes as well.
    undecided: Vec<ListedObjectMeta>,
    /// Whether the prefix is an object itself: the marker of a folder.
    has_marker: bool,
}

impl BucketListing {
    /// Begins a listing of the names after `prefix`.
    pub(super) fn new(client: Arc<Client>, prefix: String, key: Key) -> BucketListing {
        BucketListing {
            client,
            prefix,
            key,
            starts: Vec::new(),
            page: Vec::new().into_iter(),
            cursor: 0,
            next: NextPage::First,
            undecided: Vec::new(),
            has_marker: false,
        }
    }

    /// Whether the pages so far have the marker of the folder, which is there then though it has no names.
    pub(super) fn has_marker(&self) -> bool {
        self.has_marker
    }

    /// Fetches the first page; returns whether it has a name.
    pub(super) fn has_names(&mut self) -> Result<bool> {
        while self.page.as_slice().is_empty() {
            if !self.next_page()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Fetches the next page; false after the last.
    fn next_page(&mut self) -> Result<bool> {
        if self.next == NextPage::End {
            return Ok(false);
        }
        let wanted = PageRange {
            prefix: &self.prefix,
            delimiter: true,
            after: None,
            max_names: PAGE_SIZE,
        };
        let page = page(&self.client, &self.key, &wanted, &self.next)?;
        let next = NextPage::after(page.page_token.clone());
        self.starts.push(PageStart {
            cursor: self.cursor,
            next: mem::replace(&mut self.next, next),
            undecided: self.undecided.clone(),
        });
        // object_store drops the slash at the end of its name.
        let marker = self.prefix.strip_suffix('/').unwrap_or(&self.prefix);
        let mut objects = page.result.objects.iter();
        self.has_marker |= objects.any(|object| object.location.as_ref() == marker);
        let names = self.names(page);
        self.page = names.into_iter();
        Ok(true)
    }

    /// Returns the names of a page in order; one that is an object and a prefix is there once, a directory.
    fn names(&mut self, page: PaginatedListResult) -> Vec<ListedObjectMeta> {
        let mut names = mem::take(&mut self.undecided);
        for object in &page.result.objects {
            if let Some(name) = name(&self.prefix, object.location.as_ref()) {
                let meta = describe(object, EntryKind::File);
                names.push((name, EntryKind::File, meta));
            }
        }
        for folder in &page.result.common_prefixes {
            if let Some(name) = name(&self.prefix, folder.as_ref()) {
                names.push((name, EntryKind::Directory, Meta::prefix()));
            }
        }
        // Of equal names the object comes first; they become a directory with its size and version.
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
        if self.next != NextPage::End {
            self.take_undecided(&mut names);
        }
        names
    }

    /// Removes the objects that may turn out to be prefixes on the next page: those that the last name begins with,
    /// since `/` may sort after the letter that follows them there.
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

/// Returns the name that follows the prefix; nothing for the prefix itself or for what cannot be a name.
fn name(prefix: &str, location: &str) -> Option<Vec<u8>> {
    let name = location.strip_prefix(prefix)?.trim_end_matches('/');
    Key::root().child(name.as_bytes()).ok()?;
    Some(name.as_bytes().to_vec())
}

/// Which names a page has.
pub(super) struct PageRange<'a> {
    /// The beginning of all names.
    pub(super) prefix: &'a str,
    /// Whether names that are equal up to the next slash come as one prefix.
    pub(super) delimiter: bool,
    /// The name after which the first page begins.
    pub(super) after: Option<&'a str>,
    /// The most names of the page.
    pub(super) max_names: usize,
}

/// Builds the request of a page.
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

/// Fetches a page of names.
pub(super) fn page(
    client: &Client,
    key: &Key,
    wanted: &PageRange<'_>,
    next: &NextPage,
) -> Result<PaginatedListResult> {
    let mut attempts = Attempts::new(client.limits.time, REPEATS);
    loop {
        let options = options(wanted, next);
        let prefix = (!wanted.prefix.is_empty()).then_some(wanted.prefix);
        match client.ask(key, client.pages.list_paginated(prefix, options)) {
            Err(error) if error.kind() == Kind::Unavailable => match attempts.next_pause() {
                Some(pause) => thread::sleep(pause),
                None => return Err(error),
            },
            page => return page,
        }
    }
}

impl Listing for BucketListing {
    fn next(&mut self, _context: &RequestContext) -> Result<Option<Name>> {
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
            if !self.next_page()? {
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
        (self.next, self.undecided) = (start.next, start.undecided);
        while self.cursor < cursor && self.next(context)?.is_some() {}
        Ok(())
    }
}
