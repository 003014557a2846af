//! Reads a web object by ranges, or as a whole without range support.
//!
//! The version in each response is compared. Another version is the error `Changed`; content is never mixed.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::UNIX_EPOCH;

use super::endpoint::{HttpEndpoint, RequestSpec, wrong_range};
use super::response::ResponseKind;
use crate::backend::{changed, slice};
use crate::request_context::RequestContext;
use crate::{ByteRange, Key, Meta, Reader, Version, check_length};
use zarr_format::error::Result;

/// Maximum length of an object, in bytes, that is kept in memory if the server has no ranges.
pub(super) const MAX_WHOLE_OBJECT: u64 = 256 << 20;

/// An object, in the version that it had when it was opened.
pub(super) struct HttpReader {
    endpoint: Arc<HttpEndpoint>,
    key: Key,
    meta: Meta,
    /// The metadata without the ETag, for use once the server's ETags are found to be unreliable.
    untagged: OnceLock<Meta>,
    /// Whether the server has sent a range for a range request.
    has_ranges: AtomicBool,
    whole: Mutex<Option<Whole>>,
}

/// All bytes of an object.
type Whole = Arc<Vec<u8>>;

impl HttpReader {
    /// Creates the reader of an object with the metadata `meta`.
    pub(super) fn new(endpoint: Arc<HttpEndpoint>, key: Key, meta: Meta) -> HttpReader {
        HttpReader {
            endpoint,
            key,
            meta,
            untagged: OnceLock::new(),
            has_ranges: AtomicBool::new(false),
            whole: Mutex::new(None),
        }
    }

    /// Fetches a range. Also returns the whole object if the server sent that instead.
    fn fetch(
        &self,
        context: &RequestContext,
        start: u64,
        end: u64,
    ) -> Result<(Vec<u8>, Option<Whole>)> {
        let range = ByteRange::Span(start..end);
        let piece = self.endpoint.read(context, &self.key, async {
            let spec = RequestSpec::range(&self.key, &range);
            let mut response = self.endpoint.send(&spec).await?;
            match response.response_kind(&self.key) {
                Ok(ResponseKind::There | ResponseKind::Page) => {}
                Ok(_) => return Err(changed(&self.key)),
                Err(error)
                    if self
                        .endpoint
                        .is_refused_as_missing(&error, response.status)
                        .await =>
                {
                    return Err(changed(&self.key));
                }
                Err(error) => return Err(error),
            }
            let most = if response.status == 206 {
                end - start
            } else {
                MAX_WHOLE_OBJECT
            };
            response.set_size(self.meta.size);
            self.endpoint.read_body(&self.key, response, most).await
        })?;
        check_length(&self.key, piece.meta.content(), self.meta.content())?;
        if !piece.meta.may_be_of(&self.meta) {
            return Err(changed(&self.key));
        }
        if piece.is_whole {
            let whole = Arc::new(piece.bytes);
            return Ok((slice(&whole, start, end), Some(whole)));
        }
        if (piece.start, piece.bytes.len() as u64) != (start, end - start) {
            return Err(wrong_range(&self.key));
        }
        Ok((piece.bytes, None))
    }
}

impl Reader for HttpReader {
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>> {
        let end = offset.saturating_add(len as u64).min(self.meta.size);
        if offset >= end {
            return Ok(Vec::new());
        }
        if self.has_ranges.load(Ordering::Relaxed) {
            return Ok(self.fetch(context, offset, end)?.0);
        }
        // Until range support is known, only one request at a time is sent: its response may be the whole object.
        let mut cached = self.whole.lock();
        if let Some(whole) = &*cached {
            return Ok(slice(whole, offset, end));
        }
        if self.has_ranges.load(Ordering::Relaxed) {
            drop(cached);
            return Ok(self.fetch(context, offset, end)?.0);
        }
        let (bytes, whole) = self.fetch(context, offset, end)?;
        self.has_ranges.store(whole.is_none(), Ordering::Relaxed);
        *cached = whole;
        Ok(bytes)
    }

    fn meta(&self, _context: &RequestContext) -> Result<Meta> {
        if !self.meta.version.is_lasting() || !self.endpoint.etags.are_ignored() {
            return Ok(self.meta);
        }
        // The server's ETags are not used any more.
        let untagged = || {
            let modified = Some(self.meta.modified).filter(|time| *time != UNIX_EPOCH);
            let version = Version::transient(self.meta.size, modified);
            Meta {
                version,
                ..self.meta
            }
        };
        Ok(*self.untagged.get_or_init(untagged))
    }
}
