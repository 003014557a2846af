//! Names under a prefix, page by page as the server gives them.
//!
//! A cursor is the number of a name in the listing, counted from 1. The tokens of the pages are kept, one for a
//! thousand names, so that a listing goes on anywhere with one request. A page that does not come is an error,
//! never the end.

use std::sync::Arc;

use object_store::list::PaginatedListOptions;
use object_store::list::PaginatedListResult;

use super::client::Client;
use super::client::describe;
use crate::error::Kind;
use crate::error::Result;
use crate::store::EntryKind;
use crate::store::Key;
use crate::store::Listing;
use crate::store::Meta;
use crate::store::Name;

/// Names of a page.
const PAGE: usize = 1000;

/// How often a page is asked for; the client itself does not repeat what breaks off in the body.
const ATTEMPTS: usize = 4;

/// A page under way through a prefix.
pub(super) struct Pages {
    client: Arc<Client>,
    /// What stands before each name, with a slash at the end unless it is empty.
    prefix: String,
    key: Key,
    /// For each page that was begun: the names before it, and its token.
    begun: Vec<(u64, Option<String>)>,
    page: std::vec::IntoIter<(Vec<u8>, EntryKind, Option<Meta>)>,
    place: u64,
    /// The token of the next page; nothing after the last.
    next: Option<Option<String>>,
    /// The objects of which a prefix of the same name may still come.
    objects: Vec<Vec<u8>>,
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
            objects: Vec::new(),
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
        let page = match page(&self.client, &self.key, &self.prefix, token.clone(), PAGE) {
            Ok(page) => page,
            Err(error) => {
                self.next = Some(token);
                return Err(error);
            }
        };
        self.begun.push((self.place, token));
        self.next = page.page_token.clone().map(Some);
        let names = self.names(page);
        self.page = names.into_iter();
        Ok(true)
    }

    /// Returns the names of a page in order; one that is an object and a prefix is there once, a directory.
    fn names(&mut self, page: PaginatedListResult) -> Vec<(Vec<u8>, EntryKind, Option<Meta>)> {
        let mut names = Vec::new();
        for object in &page.result.objects {
            if let Some(name) = name(&self.prefix, object.location.as_ref()) {
                let meta = describe(object, EntryKind::File);
                names.push((name, EntryKind::File, Some(meta)));
            }
        }
        for prefix in &page.result.common_prefixes {
            if let Some(name) = name(&self.prefix, prefix.as_ref()) {
                names.push((name, EntryKind::Directory, None));
            }
        }
        // Of equal names the directory comes first, and stays.
        names.sort_by(|one, other| {
            (&one.0, one.1 == EntryKind::File).cmp(&(&other.0, other.1 == EntryKind::File))
        });
        names.dedup_by(|later, earlier| later.0 == earlier.0);
        names.retain(|(name, kind, _)| *kind == EntryKind::File || !self.objects.contains(name));
        let last = names
            .last()
            .map(|(name, ..)| name.clone())
            .unwrap_or_default();
        let files = names.iter().filter(|(_, kind, _)| *kind == EntryKind::File);
        let open = files.map(|(name, ..)| name).chain(&self.objects);
        self.objects = open
            .filter(|name| last.starts_with(name))
            .cloned()
            .collect();
        names
    }
}

/// Returns the name that follows the prefix; nothing for the prefix itself or for what cannot be a name.
fn name(prefix: &str, location: &str) -> Option<Vec<u8>> {
    let name = location.strip_prefix(prefix)?.trim_end_matches('/');
    Key::root().child(name.as_bytes()).ok()?;
    Some(name.as_bytes().to_vec())
}

/// Fetches a page of names; `token` says which.
pub(super) fn page(
    client: &Client,
    key: &Key,
    prefix: &str,
    token: Option<String>,
    names: usize,
) -> Result<PaginatedListResult> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let options = PaginatedListOptions {
            delimiter: Some("/".into()),
            max_keys: Some(names),
            page_token: token.clone(),
            ..PaginatedListOptions::default()
        };
        let prefix = (!prefix.is_empty()).then_some(prefix);
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
                    meta,
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
        let pages = self.begun.partition_point(|(before, _)| *before <= cursor);
        let (place, token) = match pages.checked_sub(1).and_then(|page| self.begun.get(page)) {
            Some(begun) => begun.clone(),
            None => (0, None),
        };
        self.begun.truncate(pages.saturating_sub(1));
        self.page = Vec::new().into_iter();
        self.objects.clear();
        (self.place, self.next) = (place, Some(token));
        while self.place < cursor && self.next()?.is_some() {}
        Ok(())
    }
}
