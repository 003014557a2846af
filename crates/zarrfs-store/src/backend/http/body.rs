//! Reads response bodies: an object, a range of one, or a generated document.
//!
//! If a body breaks off, the rest is requested as a range of the same version, or the read fails. A truncated body is
//! never taken for the whole.

use futures_util::StreamExt;

use super::endpoint::{HttpEndpoint, RequestSpec, changed, too_large};
use super::response::{ResponseHead, ResponseKind};
use crate::backend::remote::errors;
use crate::backend::remote::retry::Attempts;
use crate::backend::remote::runtime::record_bytes;
use crate::{Key, Meta, check_length};
use zarr_format::buffer;
use zarr_format::error::{Error, Kind, Result};

/// Maximum size of the buffer, in bytes, that is allocated before the body arrives.
const MAX_PREALLOCATED: u64 = 64 << 20;

/// Maximum length of a generated document, in bytes.
const MAX_DOCUMENT: u64 = 256 << 20;

/// An object or a range of it.
pub(super) struct RequestedRange {
    pub(super) bytes: Vec<u8>,
    /// The offset in the object.
    pub(super) start: u64,
    /// Metadata of the whole object.
    pub(super) meta: Meta,
    /// Whether the server ignored the range and sent the whole object.
    pub(super) is_whole: bool,
}

/// The range of an object that a body has.
struct BodyExtent {
    start: u64,
    /// `None` if the server does not state the length of the body.
    end: Option<u64>,
    /// The length of the whole object, or 0 if the server does not state it.
    size: u64,
}

impl BodyExtent {
    fn of(key: &Key, response: &ResponseHead) -> Result<BodyExtent> {
        if response.status != 206 {
            let end = response.length();
            let size = end.unwrap_or_default();
            return Ok(BodyExtent {
                start: 0,
                end,
                size,
            });
        }
        let why = "the server does not say which part it sends";
        let part = response.part();
        let (start, end, size) = part.ok_or_else(|| Error::unavailable(key, why))?;
        Ok(BodyExtent {
            start,
            end: Some(end),
            size,
        })
    }
}

impl HttpEndpoint {
    /// Reads the body of a response with an object or a range of it. The error is `TooLarge` beyond `most` bytes.
    pub(super) async fn read_body(
        &self,
        key: &Key,
        response: ResponseHead,
        most: u64,
    ) -> Result<RequestedRange> {
        response.check_encoding(key)?;
        let is_whole = response.status != 206;
        let extent = BodyExtent::of(key, &response)?;
        let start = extent.start;
        let (bytes, meta) = match extent.end {
            Some(end) => {
                let meta = self.meta(key, response.validators(), extent.size).await;
                let bytes = self
                    .read_part(key, response, start..end, &meta, most)
                    .await?;
                (bytes, meta)
            }
            None => {
                let validators = response.validators();
                let mut bytes = buffer::with_capacity(0);
                self.append_body(key, response, &mut bytes, most).await?;
                let meta = self.meta(key, validators, bytes.len() as u64).await;
                (bytes, meta)
            }
        };
        Ok(RequestedRange {
            bytes,
            start,
            meta,
            is_whole,
        })
    }

    /// Reads a body with the known range `part`. If the body breaks off, the rest is requested.
    async fn read_part(
        &self,
        key: &Key,
        response: ResponseHead,
        part: std::ops::Range<u64>,
        meta: &Meta,
        most: u64,
    ) -> Result<Vec<u8>> {
        let length = part.end - part.start;
        if length > most {
            return Err(too_large(key, length, most));
        }
        let room = usize::try_from(length.min(MAX_PREALLOCATED)).unwrap_or_default();
        let mut bytes = buffer::with_capacity(room);
        let mut broken = self.append_body(key, response, &mut bytes, most).await;
        let mut attempts = self.attempts();
        let mut known = 0;
        while (bytes.len() as u64) < length {
            if bytes.len() > known {
                known = bytes.len();
                attempts.extend(self.limits.time);
            }
            let breaks_off = || Error::unavailable(key, "the answer breaks off");
            let fault = broken.err().unwrap_or_else(breaks_off);
            self.pause(&mut attempts, fault).await?;
            let rest = part.start + bytes.len() as u64..part.end;
            let rest = self.resume(key, rest, meta).await?;
            broken = self.append_body(key, rest, &mut bytes, most).await;
        }
        if bytes.len() as u64 != length {
            let text = "more bytes came than the server said";
            return Err(Error::unavailable(key, text));
        }
        Ok(bytes)
    }

    /// Requests the rest of a body that broke off. The error is `Changed` if the object has another version.
    async fn resume(
        &self,
        key: &Key,
        span: std::ops::Range<u64>,
        meta: &Meta,
    ) -> Result<ResponseHead> {
        let range = format!("bytes={}-{}", span.start, span.end - 1);
        let mut response = self.send(&RequestSpec::part(key, range)).await?;
        response.note_size(meta.size);
        match (response.response_kind(key)?, response.part()) {
            (ResponseKind::There | ResponseKind::Page, Some((start, end, size)))
                if response.status == 206 =>
            {
                let rest = self.meta(key, response.validators(), size).await;
                check_length(key, rest.content(), meta.content())?;
                if !rest.may_be_of(meta) {
                    return Err(changed(key));
                }
                if (start, end) == (span.start, span.end) {
                    return Ok(response);
                }
                let text = "the server sends another part than asked for";
                Err(Error::unavailable(key, text))
            }
            (ResponseKind::Missing | ResponseKind::Folder, _) => Err(changed(key)),
            _ => Err(Error::unavailable(
                key,
                "the answer breaks off, and the server has no ranges",
            )),
        }
    }

    /// Appends the body of a response to `bytes`. The error is `TooLarge` if `bytes` would exceed `most` bytes.
    pub(super) async fn append_body(
        &self,
        key: &Key,
        response: ResponseHead,
        bytes: &mut Vec<u8>,
        most: u64,
    ) -> Result<()> {
        let mut pieces = response.body.bytes_stream();
        loop {
            let Some(piece) = pieces.next().await else {
                return Ok(());
            };
            let piece =
                piece.map_err(|fault| Error::unavailable(key, errors::innermost(&fault)))?;
            record_bytes(piece.len());
            if (bytes.len() + piece.len()) as u64 > most {
                return Err(too_large(key, (bytes.len() + piece.len()) as u64, most));
            }
            bytes.extend_from_slice(&piece);
        }
    }

    /// Fetches a generated document, such as a listing. If it breaks off, it is fetched again from the beginning. The
    /// bytes are empty if the status is an error.
    pub(super) async fn fetch_document(
        &self,
        spec: &RequestSpec<'_>,
    ) -> Result<(ResponseHead, Vec<u8>)> {
        let mut attempts = self.attempts();
        loop {
            let mut response = self.send(spec).await?;
            if !(200..300).contains(&response.status) {
                return Ok((response, Vec::new()));
            }
            let body = std::mem::replace(&mut response.body, String::new().into());
            let mut bytes = Vec::new();
            let whole = ResponseHead {
                body,
                headers: response.headers.clone(),
                ..response
            };
            let read = self.append_body(spec.key, whole, &mut bytes, MAX_DOCUMENT);
            match read.await {
                Ok(()) => return Ok((response, bytes)),
                Err(fault) => self.pause(&mut attempts, fault).await?,
            }
        }
    }

    /// Waits before a retry of a body that broke off. Returns `fault` if there may be no retry.
    async fn pause(&self, attempts: &mut Attempts, fault: Error) -> Result<()> {
        let pause = match fault.kind() {
            Kind::Unavailable => attempts.next_pause(),
            _ => None,
        };
        tokio::time::sleep(pause.ok_or(fault)?).await;
        Ok(())
    }
}
