//! Fetches objects and ranges, and cuts longer responses to the requested range.

use super::HttpStore;
use super::body::RequestedRange;
use super::endpoint::{RequestSpec, changed};
use super::lookup::ProbeResult;
use super::reader::MAX_WHOLE_OBJECT;
use super::response::ResponseKind;
use crate::request_context::RequestContext;
use crate::{ByteRange, Key, Meta, Object};
use zarr_format::error::{Error, Result};

/// Every server understands offsets and lengths below this.
const MAX_OFFSET: u64 = 1 << 53;

/// The result of a request for bytes.
enum Fetched {
    Piece(RequestedRange),
    OutOfRange,
    Nothing,
}

impl HttpStore {
    /// Fetches a whole object, or returns `None` if it is missing. The error is `TooLarge` beyond `limit` bytes.
    pub(super) fn get_whole(
        &self,
        context: &RequestContext,
        key: &Key,
        limit: u64,
    ) -> Result<Option<Object>> {
        self.endpoint
            .read(context, key, self.fetch_whole(key, limit))
    }

    /// Like `get_whole`, but asynchronous.
    pub(super) async fn fetch_whole(&self, key: &Key, limit: u64) -> Result<Option<Object>> {
        match self.fetch(key, None, limit).await? {
            Fetched::Piece(piece) => Ok(Some(Object {
                size: piece.meta.size,
                version: piece.meta.version,
                modified: Some(piece.meta.modified),
                bytes: piece.bytes,
            })),
            Fetched::Nothing => Ok(None),
            Fetched::OutOfRange => Err(Error::unavailable(
                key,
                "the server refuses a range, though none was asked for",
            )),
        }
    }

    /// Fetches a range, or returns `None` if the object is missing.
    pub(super) fn get_part(
        &self,
        context: &RequestContext,
        key: &Key,
        range: &ByteRange,
    ) -> Result<Option<Object>> {
        let is_plain = match range {
            ByteRange::Span(span) => span.start < span.end && span.end < MAX_OFFSET,
            ByteRange::Suffix(length) => (1..MAX_OFFSET).contains(length),
        };
        if !is_plain {
            return self.get_sized_range(context, key, range);
        }
        match self.part(context, key, range)? {
            Fetched::Nothing => Ok(None),
            Fetched::Piece(piece) => cut(key, piece, range).map(Some),
            Fetched::OutOfRange => self.get_sized_range(context, key, range),
        }
    }

    /// Fetches at most `most` bytes: a whole object, or the range in a `Range` header value.
    async fn fetch(&self, key: &Key, range: Option<String>, most: u64) -> Result<Fetched> {
        let spec = match range {
            Some(range) => RequestSpec::part(key, range),
            None => RequestSpec::get(key),
        };
        let mut response = self.endpoint.send(&spec).await?;
        match self.response_kind(key, &response).await? {
            // Some servers send this response for a suffix range of an empty object.
            ResponseKind::There if response.is_of_no_part() => return Ok(Fetched::OutOfRange),
            ResponseKind::There => {}
            ResponseKind::OutOfRange => return Ok(Fetched::OutOfRange),
            ResponseKind::Folder | ResponseKind::Missing | ResponseKind::Page => {
                return Ok(Fetched::Nothing);
            }
        }
        if response.is_part_without_size() {
            let ProbeResult::Object(whole) = self.probe_object(key).await? else {
                return Err(changed(key));
            };
            response.note_size(whole.size);
            let validators = response.validators();
            let meta = self.endpoint.meta(key, validators, whole.size).await;
            if !meta.may_be_of(&whole) {
                return Err(changed(key));
            }
        }
        self.endpoint
            .read_body(key, response, most)
            .await
            .map(Fetched::Piece)
    }

    /// Fetches a range that is not empty.
    fn part(&self, context: &RequestContext, key: &Key, range: &ByteRange) -> Result<Fetched> {
        let header = match range {
            ByteRange::Span(span) => format!("bytes={}-{}", span.start, span.end.saturating_sub(1)),
            ByteRange::Suffix(length) => format!("bytes=-{length}"),
        };
        let most = match range {
            ByteRange::Span(span) => span.end.saturating_sub(span.start),
            ByteRange::Suffix(length) => *length,
        };
        self.endpoint.read(
            context,
            key,
            self.fetch(key, Some(header), most.max(MAX_WHOLE_OBJECT)),
        )
    }

    /// Fetches a range, limited to the object's length, which is requested first.
    fn get_sized_range(
        &self,
        context: &RequestContext,
        key: &Key,
        range: &ByteRange,
    ) -> Result<Option<Object>> {
        let ProbeResult::Object(meta) = self.head_object(context, key)? else {
            return Ok(None);
        };
        let span = range.within(meta.size);
        if span.is_empty() {
            return Ok(Some(Object::without_bytes(&meta)));
        }
        let range = ByteRange::Span(span);
        match self.part(context, key, &range)? {
            Fetched::Nothing => Ok(None),
            Fetched::Piece(piece) => cut(key, piece, &range).map(Some),
            Fetched::OutOfRange => Err(Error::unavailable(
                key,
                "the server refuses a range that is there",
            )),
        }
    }
}

/// Cuts the received bytes to the requested range.
fn cut(key: &Key, piece: RequestedRange, range: &ByteRange) -> Result<Object> {
    let Meta {
        size,
        version,
        modified,
        ..
    } = piece.meta;
    let span = range.within(size);
    let start = span.start.checked_sub(piece.start);
    let length = span.end - span.start;
    let bytes = start.and_then(|start| {
        let start = usize::try_from(start).ok()?;
        let end = start.checked_add(usize::try_from(length).ok()?)?;
        if start == 0 && end == piece.bytes.len() {
            return Some(piece.bytes);
        }
        piece.bytes.get(start..end).map(<[u8]>::to_vec)
    });
    let bytes = bytes
        .ok_or_else(|| Error::unavailable(key, "the server sends another part than asked for"))?;
    Ok(Object {
        bytes,
        size,
        version,
        modified: Some(modified),
    })
}
