//! Requests to one web server: blocking, limited in number and in time, repeated after transient failures.
//!
//! They use object_store's HTTP client, not its `HttpStore`, which accepts only UTF-8 keys, drops the query, hides
//! redirections, refuses servers without ranges, and repeats requests that the server does not support. A body that
//! breaks off is resumed by a range of the same content, or is an error.

use std::fmt::Display;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use futures_util::StreamExt;
use http::HeaderValue;
use object_store::PutPayload;
use object_store::client::{HttpClient, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::response::{ResponseHead, ResponseKind, refusal};
use super::urls::UrlSpace;
use crate::error::{Error, Kind, Result};
use crate::store::backend::remote::fault;
use crate::store::backend::remote::runtime::wait;
use crate::store::{Key, Meta};
use crate::sync::buffer;

/// The time for a whole body, as a multiple of the time limit of an answer.
const BODY_TIME_FACTOR: u32 = 20;

/// Pauses before a request is repeated.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// The largest buffer, in bytes, that is allocated before the body arrives.
const MAX_PREALLOCATED: u64 = 64 << 20;

/// A folder of a web server, and the client and limits of its requests.
pub(super) struct HttpEndpoint {
    pub(super) place: UrlSpace,
    pub(super) http: HttpClient,
    /// Time limit of an answer, or of a piece of its body.
    pub(super) limit: Duration,
    /// How often a failed request is repeated.
    pub(super) repeats: usize,
    pub(super) permits: Semaphore,
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
        let (done, _) = wait(self.limit.saturating_mul(BODY_TIME_FACTOR), async {
            let _permit = self.permits.acquire().await;
            work.await
        })?;
        done.unwrap_or_else(|| Err(self.late(subject)))
    }

    fn late(&self, subject: impl Display) -> Error {
        fault::late(subject, self.limit.as_secs_f32())
    }

    fn request(&self, spec: &RequestSpec<'_>) -> Result<HttpRequest> {
        let url = self.place.url(spec.key, spec.as_folder)?;
        let mut request = http::Request::builder()
            .method(spec.method.clone())
            .uri(url)
            // A compressed answer has another length, and its ranges are useless.
            .header("accept-encoding", "identity");
        if let Some(authorization) = &self.place.authorization {
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

    /// Sends a request, and again after transient failures; returns the last answer with any status.
    pub(super) async fn send(&self, spec: &RequestSpec<'_>) -> Result<ResponseHead> {
        let deadline = Instant::now() + self.limit;
        let mut attempt = 0;
        loop {
            let request = self.http.execute(self.request(spec)?);
            let answer = tokio::time::timeout_at(deadline, request).await;
            let answer = answer.map_err(|_| self.late(spec.key))?;
            let pause = pause(attempt);
            let is_last =
                spec.once || attempt >= self.repeats || Instant::now() + pause >= deadline;
            match answer {
                Ok(response) if is_last || !is_transient_status(response.status().as_u16()) => {
                    return Ok(ResponseHead::new(response, &self.place, spec.key));
                }
                Err(fault) if is_last || !is_transient(&fault) => {
                    return Err(Error::unavailable(spec.key, fault::innermost(&fault)));
                }
                Ok(_) | Err(_) => {}
            }
            tokio::time::sleep(pause).await;
            attempt += 1;
        }
    }

    /// Reads the body of an answer that is an object or a part of one; `TooLarge` beyond `most` bytes.
    pub(super) async fn read_body(
        &self,
        key: &Key,
        answer: ResponseHead,
        most: u64,
    ) -> Result<RequestedRange> {
        let is_whole = answer.status != 206;
        let (start, end, size) = match (answer.status, answer.length()) {
            (206, _) => {
                let part = answer
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
        let mut meta = answer.meta(size);
        let room = length.unwrap_or_default().min(MAX_PREALLOCATED);
        let mut bytes = buffer::with_capacity(usize::try_from(room).unwrap_or_default());
        let mut broken = self.append_body(key, answer, &mut bytes, most).await;
        let Some(end) = end else {
            broken?;
            meta = Meta {
                size: bytes.len() as u64,
                stored: bytes.len() as u64,
                ..meta
            };
            return Ok(RequestedRange {
                bytes,
                start,
                meta,
                is_whole,
            });
        };
        let mut attempt = 0;
        while start + (bytes.len() as u64) < end {
            let fault = broken
                .err()
                .unwrap_or_else(|| Error::unavailable(key, "the answer breaks off"));
            if attempt >= self.repeats || fault.kind() != Kind::Unavailable {
                return Err(fault);
            }
            tokio::time::sleep(pause(attempt)).await;
            attempt += 1;
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
        let answer = self.send(&RequestSpec::part(key, range)).await?;
        match (answer.response_kind(key)?, answer.part()) {
            (ResponseKind::There | ResponseKind::Page, Some((start, end, size)))
                if answer.status == 206 =>
            {
                if answer.meta(size).version != meta.version {
                    return Err(changed(key));
                }
                if (start, end) == (span.start, span.end) {
                    return Ok(answer);
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

    /// Appends the body of an answer to `bytes`; `TooLarge` beyond `most` bytes in all.
    async fn append_body(
        &self,
        key: &Key,
        answer: ResponseHead,
        bytes: &mut Vec<u8>,
        most: u64,
    ) -> Result<()> {
        let mut pieces = answer.body.bytes_stream();
        loop {
            let piece = tokio::time::timeout(self.limit, pieces.next()).await;
            let piece = match piece.map_err(|_| self.late(key))? {
                None => return Ok(()),
                Some(piece) => piece,
            };
            let piece = piece.map_err(|fault| Error::unavailable(key, fault::innermost(&fault)))?;
            if (bytes.len() + piece.len()) as u64 > most {
                return Err(too_large(key, (bytes.len() + piece.len()) as u64, most));
            }
            bytes.extend_from_slice(&piece);
        }
    }

    /// Fetches a document that the server generates, such as a listing, again from its beginning if it breaks off.
    /// The bytes are empty for an answer without success.
    pub(super) async fn fetch_document(
        &self,
        spec: &RequestSpec<'_>,
        most: u64,
    ) -> Result<(ResponseHead, Vec<u8>)> {
        let mut attempt = 0;
        loop {
            let mut answer = self.send(spec).await?;
            if !(200..300).contains(&answer.status) {
                return Ok((answer, Vec::new()));
            }
            let body = std::mem::replace(&mut answer.body, String::new().into());
            let mut bytes = Vec::new();
            let whole = ResponseHead {
                body,
                headers: answer.headers.clone(),
                ..answer
            };
            match self.append_body(spec.key, whole, &mut bytes, most).await {
                Ok(()) => return Ok((answer, bytes)),
                Err(fault) if attempt >= self.repeats || fault.kind() != Kind::Unavailable => {
                    return Err(fault);
                }
                Err(_) => tokio::time::sleep(pause(attempt)).await,
            }
            attempt += 1;
        }
    }
}

/// Returns the error of an answer without success.
pub(super) fn refused(key: &Key, answer: &ResponseHead) -> Error {
    refusal(key, answer.status)
}

pub(super) fn changed(key: &Key) -> Error {
    Error::new(Kind::Changed, key, "was changed while it was open")
}

fn too_large(key: &Key, found: u64, most: u64) -> Error {
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

/// Returns the pause before another attempt: doubled each time, varied at random by up to a half, so that many
/// clients do not repeat at the same moment.
fn pause(attempt: usize) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(1 << attempt.min(10));
    let chance = RandomState::new().hash_one(attempt) % 1000;
    doubled.min(MAX_PAUSE).mul_f64(0.5 + chance as f64 / 1000.0)
}
