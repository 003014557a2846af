//! Flat listings: all objects below a prefix, in the server's pages.
//!
//! Names that cannot be keys are left out, as in other listings. object_store drops the slash at the end of a folder
//! marker, so an empty object may be a marker; the caller decides.

use std::sync::Arc;

use super::client::{Client, describe};
use super::listing::{PAGE_SIZE, PageRange, Pages};
use crate::request_context::RequestContext;
use crate::{EntryKind, FlatListing, Key, Meta};
use zarr_format::error::Result;

/// A flat listing in progress.
pub(super) struct BucketFlatListing {
    pub(super) client: Arc<Client>,
    /// The prefix of all names in the bucket, with a final slash unless it is empty.
    pub(super) prefix: String,
    /// The same prefix as a key.
    pub(super) key: Key,
    /// The name in the bucket after which the listing begins.
    pub(super) after: Option<String>,
    pub(super) pages: Pages,
}

impl BucketFlatListing {
    /// Returns the key of an object, or `None` for the prefix itself and for names that cannot be keys.
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
