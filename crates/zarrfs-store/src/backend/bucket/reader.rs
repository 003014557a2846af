//! Reads ranges of one object in one version.
//!
//! The version in each response is compared. Another version is the error `Changed`; content is never mixed.

use std::sync::Arc;

use object_store::{GetOptions, GetRange};

use super::client::Client;
use crate::backend::changed;
use crate::request_context::RequestContext;
use crate::{Key, Meta, Reader, check_length};
use zarr_format::error::{Error, Result};

/// An object, in the version that it had when it was opened.
pub(super) struct BucketReader {
    pub(super) client: Arc<Client>,
    pub(super) key: Key,
    pub(super) meta: Meta,
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
