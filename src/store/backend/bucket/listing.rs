//! Names under a prefix, page by page as the server gives them.
//!
//! A cursor is the number of a name in the listing, counted from 1. The tokens of the pages are kept, one for a
//! thousand names, so that a listing goes on anywhere with one request. A page that does not come is an error,
//! never the end. A name is told once it is certain what it is: an object of which the prefix may still come is
//! held back until then.

use std::sync::Arc;

use object_store::list::{PaginatedListOptions, PaginatedListResult};

use super::client::{Client, describe};
use crate::error::{Kind, Result};
use crate::store::{EntryKind, Key, Listing, Meta, Name};

/// Names of a page.
pub(super) const PAGE: usize = 1000;

/// How often a page is asked for; the client itself does not repeat what breaks off in the body.
const ATTEMPTS: usize = 4;

/// A name, what it is, and what `head` would say.
type ListedObjectMeta = (Vec<u8>, EntryKind, Meta);

/// Where a page began.
#[derive(Clone, Default)]
struct Begun {
    /// The names told before it.
    before: u64,
    token: Option<String>,
    held: Vec<ListedObjectMeta>,
}

/// A page under way through a prefix.
pub(super) struct Pages {
    client: Arc<Client>,
    /// What stands before each name, with a slash at the end unless it is empty.
    prefix: String,
    key: Key,
    begun: Vec<Begun>,
    page: std::vec::IntoIter<ListedObjectMeta>,
    place: u64,
    /// The token of the next page; nothing after the last.
    next: Option<Option<String>>,
    /// The objects of which a prefix of the same name may still come.
    held: Vec<ListedObjectMeta>,
}

impl Pages {
    /// Begins a listing of what stands after `prefix`.
    pub(super) fn new(client: Arc<Client>, prefix: String, key: Key) -> Pages {
        Pages {
            client,
            prefix,
            key,
            begun: Vec::new(),
            page: Vec::new().into_iter(),
            place: 0,
            next: Some(None),
            held: Vec::new(),
        }
    }

    /// Fetches the first page; returns whether it has a name.
    pub(super) fn has_names(&mut self) -> Result<bool> {
        while self.page.as_slice().is_empty() {
            if !self.turn()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Turns to the next page; false after the last.
    fn turn(&mut self) -> Result<bool> {
        let Some(token) = self.next.take() else {
            return Ok(false);
        };
        let wanted = PageRange {
            prefix: &self.prefix,
            delimiter: true,
            after: None,
            names: PAGE,
        };
        let page = match page(&self.client, &self.key, &wanted, token.clone()) {
            Ok(page) => page,
            Err(error) => {
                self.next = Some(token);
                return Err(error);
            }
        };
        self.begun.push(Begun {
            before: self.place,
            token,
            held: self.held.clone(),
        });
        self.next = page.page_token.clone().map(Some);
        let names = self.names(page);
        self.page = names.into_iter();
        Ok(true)
    }

    /// Returns the names of a page in order; one that is an object and a prefix is there once, a directory.
    fn names(&mut self, page: PaginatedListResult) -> Vec<ListedObjectMeta> {
        let mut names = std::mem::take(&mut self.held);
        for object in &page.result.objects {
            if let Some(name) = name(&self.prefix, object.location.as_ref()) {
                let meta = describe(object, EntryKind::File);
                names.push((name, EntryKind::File, meta));
            }
        }
        for prefix in &page.result.common_prefixes {
            if let Some(name) = name(&self.prefix, prefix.as_ref()) {
                names.push((name, EntryKind::Directory, Meta::prefix()));
            }
        }
        // Of equal names the object comes first; what is told is a directory with its size and version.
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
        if self.next.is_some() {
            self.hold_back(&mut names);
        }
        names
    }

    /// Takes the objects away of which a prefix of the same name may still come: those that the last name begins
    /// with, since `/` sorts after what may follow them there.
    fn hold_back(&mut self, names: &mut Vec<ListedObjectMeta>) {
        let last = names
            .last()
            .map(|(name, ..)| name.clone())
            .unwrap_or_default();
        let is_open = |(name, kind, _): &mut ListedObjectMeta| {
            *kind == EntryKind::File && last.starts_with(name)
        };
        self.held = names.extract_if(.., is_open).collect();
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
    /// What each begins with.
    pub(super) prefix: &'a str,
    /// Whether those with a further slash are told as one.
    pub(super) delimiter: bool,
    /// After which name they begin, where there is no token.
    pub(super) after: Option<&'a str>,
    /// How many at most.
    pub(super) names: usize,
}

/// Returns how a page is asked for.
pub(super) fn options(wanted: &PageRange<'_>, token: Option<String>) -> PaginatedListOptions {
    let is_first = token.is_none();
    PaginatedListOptions {
        offset: wanted.after.filter(|_| is_first).map(str::to_string),
        delimiter: wanted.delimiter.then_some("/".into()),
        max_keys: Some(wanted.names),
        page_token: token,
        ..PaginatedListOptions::default()
    }
}

/// Fetches a page of names; `token` says which.
pub(super) fn page(
    client: &Client,
    key: &Key,
    wanted: &PageRange<'_>,
    token: Option<String>,
) -> Result<PaginatedListResult> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let options = options(wanted, token.clone());
        let prefix = (!wanted.prefix.is_empty()).then_some(wanted.prefix);
        match client.ask(key, client.pages.list_paginated(prefix, options)) {
            Err(error) if error.kind() == Kind::Unavailable && attempt < ATTEMPTS => {}
            answer => return answer,
        }
    }
}

impl Listing for Pages {
    fn next(&mut self) -> Result<Option<Name>> {
        loop {
            if let Some((name, kind, meta)) = self.page.next() {
                self.place += 1;
                return Ok(Some(Name {
                    name,
                    kind,
                    cursor: self.place,
                    meta: Some(meta),
                }));
            }
            if !self.turn()? {
                return Ok(None);
            }
        }
    }

    fn seek(&mut self, cursor: u64) -> Result<()> {
        if cursor == self.place {
            return Ok(());
        }
        let pages = self.begun.partition_point(|begun| begun.before <= cursor);
        let page = pages.saturating_sub(1);
        let begun = self.begun.get(page).cloned().unwrap_or_default();
        self.begun.truncate(page);
        self.page = Vec::new().into_iter();
        (self.place, self.next, self.held) = (begun.before, Some(begun.token), begun.held);
        while self.place < cursor && self.next()?.is_some() {}
        Ok(())
    }
}
