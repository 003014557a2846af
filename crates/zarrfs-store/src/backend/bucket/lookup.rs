//! Looks up a key: as an object, as a prefix of other keys, or both.

use object_store::GetResult;
use object_store::list::PaginatedListResult;
use object_store::path::Path;

use super::BucketStore;
use super::client::describe;
use super::listing::{NextPage, PAGE_SIZE, PageRange, checked, options, page};
use crate::request_context::RequestContext;
use crate::{EntryKind, Key, Meta};
use zarr_format::error::{Kind, Result};

impl BucketStore {
    /// Returns the prefix of the names of all objects below a key.
    pub(super) fn prefix_below(&self, key: &Key) -> String {
        let name = self.name(key).unwrap_or_default();
        if name.is_empty() { name } else { name + "/" }
    }

    /// Returns the name of an object in the bucket, or `None` if the key is not a valid name.
    pub(super) fn name(&self, key: &Key) -> Option<String> {
        name_below(&self.prefix, key)
    }

    /// Returns the object_store path of an object, or `None` if no object can have the key.
    pub(super) fn path(&self, key: &Key) -> Option<Path> {
        path_below(&self.prefix, key)
    }

    /// Returns the metadata of an object, or `None` if it is missing.
    pub(super) fn object(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        let Some(path) = self.path(key) else {
            return Ok(None);
        };
        let found = self.or_missing(context, self.client.head(context, key, &path))?;
        Ok(found.map(|meta| describe(&meta, EntryKind::File)))
    }

    /// Returns the result of a lookup, with `None` also if the server refuses missing keys (403) and this key is one of
    /// them.
    pub(super) fn or_missing<T>(
        &self,
        context: &RequestContext,
        answer: Result<Option<T>>,
    ) -> Result<Option<T>> {
        match &self.absence {
            Some(absence) => absence.or_missing(context, answer),
            None => answer,
        }
    }

    /// Whether there are keys below this one.
    pub(super) fn is_prefix(&self, context: &RequestContext, key: &Key) -> Result<bool> {
        if key.is_root() {
            return Ok(true);
        }
        if !self.info.lists || self.name(key).is_none() {
            return Ok(false);
        }
        let prefix = self.prefix_below(key);
        let wanted = one_name(&prefix);
        let page = page(context, &self.client, key, &wanted, &NextPage::First)?;
        self.begins_listing(context, key, page)
    }

    /// Whether there are keys below a key, judged by the first page of a listing. A page without names that says that
    /// more pages follow proves nothing, so the next one is requested. The error is `Corrupt` if the listing does not
    /// advance.
    fn begins_listing(
        &self,
        context: &RequestContext,
        key: &Key,
        first: PaginatedListResult,
    ) -> Result<bool> {
        let prefix = self.prefix_below(key);
        let Some(token) = &first.page_token else {
            return Ok(has_names(&prefix, &first));
        };
        if has_names(&prefix, &first) {
            return Ok(true);
        }
        let wanted = PageRange {
            max_names: PAGE_SIZE,
            ..one_name(&prefix)
        };
        let next = NextPage::At(token.clone());
        let page = page(context, &self.client, key, &wanted, &next)?;
        Ok(has_names(&prefix, &page) || page.page_token.is_some())
    }

    /// Requests an object and, concurrently, the first name below it.
    pub(super) fn object_and_prefix(
        &self,
        context: &RequestContext,
        key: &Key,
        path: &Path,
    ) -> Result<(Option<Meta>, bool)> {
        let prefix = self.prefix_below(key);
        let one = options(&one_name(&prefix), &NextPage::First);
        let (object, page) = self.client.ask_two(
            context,
            key,
            self.client.object_head(path),
            self.client.pages.list_paginated(Some(&prefix), one),
        )?;
        let is_prefix = match page {
            Ok(page) => {
                let page = checked(key, &NextPage::First, page)?;
                self.begins_listing(context, key, page)?
            }
            Err(error) if error.kind() == Kind::Unavailable => self.is_prefix(context, key)?,
            Err(error) => return Err(error),
        };
        Ok((described(object)?, is_prefix))
    }
}

/// Returns the name of an object below a prefix, or `None` if the key is not a valid name.
fn name_below(prefix: &str, key: &Key) -> Option<String> {
    if key.is_root() {
        return Some(prefix.to_string());
    }
    let key = str::from_utf8(key.as_bytes()).ok()?;
    Some(match prefix {
        "" => key.to_string(),
        prefix => format!("{prefix}/{key}"),
    })
}

/// Returns the object_store path of an object below a prefix, or `None` if no object can have the key.
pub(super) fn path_below(prefix: &str, key: &Key) -> Option<Path> {
    let name = name_below(prefix, key).filter(|_| !key.is_root())?;
    Path::parse(name).ok()
}

/// Returns the metadata from the response about an object, or `None` if it is missing.
fn described(response: Result<GetResult>) -> Result<Option<Meta>> {
    match response {
        Ok(response) => Ok(Some(describe(&response.meta, EntryKind::File))),
        Err(error) if error.kind() == Kind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The range for the first name below a prefix.
fn one_name(prefix: &str) -> PageRange<'_> {
    PageRange {
        prefix,
        delimiter: true,
        after: None,
        max_names: 1,
    }
}

/// Whether a page has a name below the prefix, or the folder's marker, whose final slash object_store drops.
fn has_names(prefix: &str, page: &PaginatedListResult) -> bool {
    let below = |name: &str| name.len() > prefix.len();
    let mut prefixes = page.result.common_prefixes.iter();
    !page.result.objects.is_empty() || prefixes.any(|prefix| below(prefix.as_ref()))
}
