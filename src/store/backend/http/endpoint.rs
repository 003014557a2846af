//! Requests to one web server: blocking, limited in number and in time, repeated after transient failures.
//!
//! They use object_store's HTTP client, not its `HttpStore`, which accepts only UTF-8 keys, drops the query, hides
//! redirections, refuses servers without ranges, and repeats requests that the server does not support. A body that
//! breaks off is resumed by a range of the same content, or is an error.

use std::fmt::Display;
use std::future::Future;

use futures_util::StreamExt;
use http::HeaderValue;
use object_store::PutPayload;
use object_store::client::{HttpClient, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody};

use super::response::{ResponseHead, ResponseKind, refusal};
use super::urls::UrlSpace;
use super::webdav;
use crate::error::{Error, Kind, Result};
use crate::store::backend::remote::fault;
use crate::store::backend::remote::limits::{Attempts, RequestLimits};
use crate::store::backend::remote::runtime::wait;
use crate::store::{Key, Meta, check_length};
use crate::sync::buffer;

/// The largest buffer, in bytes, that is allocated before the body arrives.
const MAX_PREALLOCATED: u64 = 64 << 20;

/// The longest document that the server generates, in bytes.
const MAX_DOCUMENT: u64 = 256 << 20;

/// A folder of a web server, and the client and limits of its requests.
pub(super) struct HttpEndpoint {
    pub(super) urls: UrlSpace,
    pub(super) http: HttpClient,
    pub(super) limits: RequestLimits,
    /// How often a failed request is repeated.
    pub(super) repeats: usize,
}

/// A request about a key.
#[derive(Clone)]
pub(super) struct RequestSpec<'a> {
    pub(super) method: http::Method,
    pub(super) key: &'a Key,
    /// Whether the URL ends with a slash, as that of a folder.
    pub(super) as_folder: bool,
    pub(super) header: Option<(&'static str, String)>,
    /// An XML body; empty for most requests.
    pub(super) body: &'static str,
    /// The body of a put.
    pub(super) payload: Option<PutPayload>,
    /// Whether the request is never repeated.
    pub(super) once: bool,
}

impl<'a> RequestSpec<'a> {
    /// A GET of a key.
    pub(super) fn get(key: &'a Key) -> RequestSpec<'a> {
        RequestSpec {
            method: http::Method::GET,
            key,
            as_folder: false,
            header: None,
            body: "",
            payload: None,
            once: false,
        }
    }

    /// A HEAD of a key.
    pub(super) fn head(key: &'a Key) -> RequestSpec<'a> {
        RequestSpec {
            method: http::Method::HEAD,
            ..RequestSpec::get(key)
        }
    }

    /// A PROPFIND of a key, with depth `1` also of its direct children.
    pub(super) fn propfind(key: &'a Key, as_folder: bool, depth: char) -> RequestSpec<'a> {
        RequestSpec {
            // The name is a valid one.
            method: http::Method::from_bytes(b"PROPFIND").unwrap_or(http::Method::OPTIONS),
            as_folder,
            header: Some(("depth", depth.to_string())),
            body: webdav::WANTED,
            ..RequestSpec::get(key)
        }
    }

    /// A GET of the part that `range`, a value of the header `Range`, names.
    pub(super) fn part(key: &'a Key, range: String) -> RequestSpec<'a> {
        RequestSpec {
            header: Some(("range", range)),
            ..RequestSpec::get(key)
        }
    }
}

/// An object, or a part of it.
pub(super) struct RequestedRange {
    pub(super) bytes: Vec<u8>,
    /// Where it begins in the object.
    pub(super) start: u64,
    /// Metadata of the whole object.
    pub(super) meta: Meta,
    /// Whether the server sent the whole object, ignoring the range.
    pub(super) is_whole: bool,
}

impl HttpEndpoint {
    /// Runs requests about `subject` under one permit and waits for their result.
    pub(super) fn wait<T>(
        &self,
        subject: &dyn Display,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let work = self.limits.permitted(work);
        let (done, _) = wait(self.limits.time_of_body(), work)?;
        done.unwrap_or_else(|| Err(self.limits.late(subject)))
    }

    /// Returns the attempts of a request with its whole body.
    fn attempts(&self) -> Attempts {
        Attempts::new(self.limits.time_of_body(), self.repeats)
    }

    fn request(&self, spec: &RequestSpec<'_>) -> Result<HttpRequest> {
        let url = self.urls.url(spec.key, spec.as_folder)?;
        let mut request = http::Request::builder()
            .method(spec.method.clone())
            .uri(url)
            // A compressed response has another length, and its ranges are useless.
            .header("accept-encoding", "identity");
        if let Some(authorization) = &self.urls.authorization {
            request = request.header("authorization", authorization);
        }
        if let Some((name, value)) = &spec.header {
            let value = HeaderValue::from_str(value);
            request = request.header(*name, value.map_err(|_| invalid_request(spec.key))?);
        }
        if let Some(payload) = &spec.payload {
            let request = request
                .header("content-type", "application/octet-stream")
                // Not every server accepts a body without a stated length.
                .header("content-length", payload.content_length())
                .body(HttpRequestBody::from(payload.clone()));
            return request.map_err(|_| invalid_request(spec.key));
        }
        if spec.body.is_empty() {
            let request = request.body(HttpRequestBody::empty());
            return request.map_err(|_| invalid_request(spec.key));
        }
        let request = request.header("content-type", "application/xml");
        let request = request.body(HttpRequestBody::from(spec.body.to_string()));
        request.map_err(|_| invalid_request(spec.key))
    }

    /// Sends a request, and again after transient failures; returns the last response with any status.
    pub(super) async fn send(&self, spec: &RequestSpec<'_>) -> Result<ResponseHead> {
        let repeats = if spec.once { 0 } else { self.repeats };
        let mut attempts = Attempts::new(self.limits.time, repeats);
        loop {
            let request = self.request(spec)?;
            let host = request.uri().host().map(str::to_string);
            let request = self.http.execute(request);
            let response = tokio::time::timeout(attempts.time_left(), request).await;
            let response = response.map_err(|_| self.limits.late(spec.key))?;
            let is_transient = match &response {
                Ok(response) => is_transient_status(response.status().as_u16()),
                Err(fault) => is_transient(fault),
            };
            let pause = if is_transient {
                attempts.next_pause()
            } else {
                None
            };
            match (pause, response) {
                (Some(pause), _) => tokio::time::sleep(pause).await,
                (None, Ok(response)) => {
                    return Ok(ResponseHead::new(response, &self.urls, spec.key));
                }
                (None, Err(fault)) => {
                    let cause = fault::with_host(host.as_deref(), fault::innermost(&fault));
                    return Err(Error::unavailable(spec.key, cause));
                }
            }
        }
    }

    /// Reads the body of a response that is an object or a part of one; `TooLarge` beyond `most` bytes.
    pub(super) async fn read_body(
        &self,
        key: &Key,
        response: ResponseHead,
        most: u64,
    ) -> Result<RequestedRange> {
        response.check_encoding(key)?;
        let is_whole = response.status != 206;
        let (start, end, size) = match (response.status, response.length()) {
            (206, _) => {
                let part = response
                    .part()
                    .map(|(start, end, size)| (start, Some(end), size));
                part.ok_or_else(|| {
                    Error::unavailable(key, "the server does not say which part it sends")
                })?
            }
            (_, length) => (0, length, length.unwrap_or_default()),
        };
        let length = end.map(|end| end - start);
        if length.is_some_and(|length| length > most) {
            return Err(too_large(key, length.unwrap_or_default(), most));
        }
        let (meta, head) = (response.meta(size), response.without_body());
        let room = length.unwrap_or_default().min(MAX_PREALLOCATED);
        let mut bytes = buffer::with_capacity(usize::try_from(room).unwrap_or_default());
        let mut broken = self.append_body(key, response, &mut bytes, most).await;
        let Some(end) = end else {
            broken?;
            let meta = head.meta(bytes.len() as u64);
            return Ok(RequestedRange {
                bytes,
                start,
                meta,
                is_whole,
            });
        };
        let mut attempts = self.attempts();
        while start + (bytes.len() as u64) < end {
            let fault = broken
                .err()
                .unwrap_or_else(|| Error::unavailable(key, "the answer breaks off"));
            self.pause(&mut attempts, fault).await?;
            let at = start + bytes.len() as u64;
            let rest = self.resume(key, at..end, &meta).await?;
            broken = self.append_body(key, rest, &mut bytes, most).await;
        }
        if bytes.len() as u64 != end - start {
            let text = "more bytes came than the server said";
            return Err(Error::unavailable(key, text));
        }
        Ok(RequestedRange {
            bytes,
            start,
            meta,
            is_whole,
        })
    }

    /// Requests the rest of a body that broke off; `Changed` if it is of another content.
    async fn resume(
        &self,
        key: &Key,
        span: std::ops::Range<u64>,
        meta: &Meta,
    ) -> Result<ResponseHead> {
        let range = format!("bytes={}-{}", span.start, span.end - 1);
        let response = self.send(&RequestSpec::part(key, range)).await?;
        match (response.response_kind(key)?, response.part()) {
            (ResponseKind::There | ResponseKind::Page, Some((start, end, size)))
                if response.status == 206 =>
            {
                let rest = response.meta(size);
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

    /// Appends the body of a response to `bytes`; `TooLarge` beyond `most` bytes in all.
    async fn append_body(
        &self,
        key: &Key,
        response: ResponseHead,
        bytes: &mut Vec<u8>,
        most: u64,
    ) -> Result<()> {
        let mut pieces = response.body.bytes_stream();
        loop {
            let piece = self.limits.in_time(pieces.next()).await;
            let Some(piece) = piece.ok_or_else(|| self.limits.late(key))? else {
                return Ok(());
            };
            let piece = piece.map_err(|fault| Error::unavailable(key, fault::innermost(&fault)))?;
            if (bytes.len() + piece.len()) as u64 > most {
                return Err(too_large(key, (bytes.len() + piece.len()) as u64, most));
            }
            bytes.extend_from_slice(&piece);
        }
    }

    /// Fetches a document that the server generates, such as a listing, again from its beginning if it breaks off.
    /// The bytes are empty for a response without success.
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

    /// Waits before a body that broke off is requested again; its error if it may not be.
    async fn pause(&self, attempts: &mut Attempts, fault: Error) -> Result<()> {
        let pause = match fault.kind() {
            Kind::Unavailable => attempts.next_pause(),
            _ => None,
        };
        tokio::time::sleep(pause.ok_or(fault)?).await;
        Ok(())
    }
}

/// Returns the error of a response without success.
pub(super) fn refused(key: &Key, response: &ResponseHead) -> Error {
    refusal(key, response.status)
}

pub(super) fn changed(key: &Key) -> Error {
    Error::new(Kind::Changed, key, "was changed while it was open")
}

pub(super) fn too_large(key: &Key, found: u64, most: u64) -> Error {
    Error::too_large(key, format!("{found} bytes, at most {most} are read"))
}

fn invalid_request(key: &Key) -> Error {
    Error::invalid(key, "cannot be asked for over HTTP")
}

/// Whether a status is transient; 501 (not implemented) is not.
fn is_transient_status(status: u16) -> bool {
    matches!(status, 408 | 429 | 500 | 502 | 503 | 504)
}

fn is_transient(fault: &HttpError) -> bool {
    matches!(
        fault.kind(),
        HttpErrorKind::Connect
            | HttpErrorKind::Request
            | HttpErrorKind::Timeout
            | HttpErrorKind::Interrupted
    )
}
