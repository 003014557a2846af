//! Requests to one place on the web: blocking, limited in number and in time, repeated where that may help.
//!
//! These are requests of our own over object_store's HTTP client, not its `HttpStore`: that one takes keys as
//! UTF-8 only, loses the query, does not tell a redirection, refuses a server without ranges, and repeats what no
//! server will ever do. A body that breaks off is gone on with by a range of the same content, or is an error.

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

/// How many time limits a whole body may take.
const LONGEST_BODY: u32 = 20;

/// Pauses before a request is repeated.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The most room that is made for a body before it comes.
const MOST_ROOM: u64 = 64 << 20;

/// A server, a folder on it, and how it may be asked.
pub(super) struct HttpEndpoint {
    pub(super) place: UrlSpace,
    pub(super) http: HttpClient,
    /// How long an answer, or a piece of one, may take.
    pub(super) limit: Duration,
    /// How often a request is repeated.
    pub(super) repeats: usize,
    pub(super) permits: Semaphore,
}

/// What is asked.
#[derive(Clone)]
pub(super) struct RequestSpec<'a> {
    pub(super) method: http::Method,
    pub(super) key: &'a Key,
    /// Ask for the folder of the key's name.
    pub(super) as_folder: bool,
    pub(super) header: Option<(&'static str, String)>,
    /// XML that says more; mostly empty.
    pub(super) body: &'static str,
    /// An object that is put.
    pub(super) payload: Option<PutPayload>,
    /// Whether to ask once only, whatever comes of it.
    pub(super) once: bool,
}

impl<'a> RequestSpec<'a> {
    /// Asks for a key.
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

    /// Asks for the head of the answer only.
    pub(super) fn head(key: &'a Key) -> RequestSpec<'a> {
        RequestSpec {
            method: http::Method::HEAD,
            ..RequestSpec::get(key)
        }
    }

    /// Asks for a part, as the header `Range` names it.
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
    /// What is known of the whole.
    pub(super) meta: Meta,
    /// Whether the server sent all there is, whatever was asked for.
    pub(super) is_whole: bool,
}

impl HttpEndpoint {
    /// Waits for work about `subject`, which has its permit to ask.
    pub(super) fn wait<T>(
        &self,
        subject: &dyn Display,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let (done, _) = wait(self.limit.saturating_mul(LONGEST_BODY), async {
            let _permit = self.permits.acquire().await;
            work.await
        })?;
        done.unwrap_or_else(|| Err(self.late(subject)))
    }

    fn late(&self, subject: impl Display) -> Error {
        fault::late(subject, self.limit.as_secs_f32())
    }

    fn request(&self, question: &RequestSpec<'_>) -> Result<HttpRequest> {
        let url = self.place.url(question.key, question.as_folder)?;
        let mut request = http::Request::builder()
            .method(question.method.clone())
            .uri(url)
            // What is packed on the way has another length, and no parts.
            .header("accept-encoding", "identity");
        if let Some(authorization) = &self.place.authorization {
            request = request.header("authorization", authorization);
        }
        if let Some((name, value)) = &question.header {
            let value = HeaderValue::from_str(value);
            request = request.header(*name, value.map_err(|_| unaskable(question.key))?);
        }
        if let Some(payload) = &question.payload {
            let request = request
                .header("content-type", "application/octet-stream")
                // Not every server takes a body whose length it is not told.
                .header("content-length", payload.content_length())
                .body(HttpRequestBody::from(payload.clone()));
            return request.map_err(|_| unaskable(question.key));
        }
        if question.body.is_empty() {
            let request = request.body(HttpRequestBody::empty());
            return request.map_err(|_| unaskable(question.key));
        }
        let request = request.header("content-type", "application/xml");
        let request = request.body(HttpRequestBody::from(question.body.to_string()));
        request.map_err(|_| unaskable(question.key))
    }

    /// Asks, and asks again while that may help; what the server says at last is the answer, whatever it is.
    pub(super) async fn ask(&self, question: &RequestSpec<'_>) -> Result<ResponseHead> {
        let deadline = Instant::now() + self.limit;
        let mut attempt = 0;
        loop {
            let request = self.http.execute(self.request(question)?);
            let answer = tokio::time::timeout_at(deadline, request).await;
            let answer = answer.map_err(|_| self.late(question.key))?;
            let pause = pause(attempt);
            let is_last =
                question.once || attempt >= self.repeats || Instant::now() + pause >= deadline;
            match answer {
                Ok(response) if is_last || !passes(response.status().as_u16()) => {
                    return Ok(ResponseHead::new(response, &self.place, question.key));
                }
                Err(fault) if is_last || !may_pass(&fault) => {
                    return Err(Error::unavailable(question.key, fault::innermost(&fault)));
                }
                Ok(_) | Err(_) => {}
            }
            tokio::time::sleep(pause).await;
            attempt += 1;
        }
    }

    /// Reads the rest of an answer that has an object, or a part of one, of at most `most` bytes (`TooLarge`).
    pub(super) async fn piece(
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
        let room = length.unwrap_or_default().min(MOST_ROOM);
        let mut bytes = buffer::with_capacity(room as usize);
        let mut broken = self.drain(key, answer, &mut bytes, most).await;
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
            let rest = self.rest(key, at..end, &meta).await?;
            broken = self.drain(key, rest, &mut bytes, most).await;
        }
        match bytes.len() as u64 == end - start {
            true => Ok(RequestedRange {
                bytes,
                start,
                meta,
                is_whole,
            }),
            false => Err(Error::unavailable(
                key,
                "more bytes came than the server said",
            )),
        }
    }

    /// Asks for the rest of a body that broke off; `Changed` if that is of another content.
    async fn rest(
        &self,
        key: &Key,
        span: std::ops::Range<u64>,
        meta: &Meta,
    ) -> Result<ResponseHead> {
        let range = format!("bytes={}-{}", span.start, span.end - 1);
        let answer = self.ask(&RequestSpec::part(key, range)).await?;
        match (answer.standing(key)?, answer.part()) {
            (ResponseKind::There | ResponseKind::Page, Some((start, end, size)))
                if answer.status == 206 =>
            {
                if answer.meta(size).version != meta.version {
                    return Err(changed(key));
                }
                match (start, end) == (span.start, span.end) {
                    true => Ok(answer),
                    false => Err(Error::unavailable(
                        key,
                        "the server sends another part than asked for",
                    )),
                }
            }
            (ResponseKind::Missing | ResponseKind::Folder, _) => Err(changed(key)),
            _ => Err(Error::unavailable(
                key,
                "the answer breaks off, and the server has no ranges",
            )),
        }
    }

    /// Adds the pieces of a body to what there is of it.
    async fn drain(
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

    /// Reads a document that a server makes for a question, with all that belongs to it; asks again if it breaks
    /// off. Nothing but the head comes of an answer without success.
    pub(super) async fn document(
        &self,
        question: &RequestSpec<'_>,
        most: u64,
    ) -> Result<(ResponseHead, Vec<u8>)> {
        let mut attempt = 0;
        loop {
            let mut answer = self.ask(question).await?;
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
            match self.drain(question.key, whole, &mut bytes, most).await {
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

fn unaskable(key: &Key) -> Error {
    Error::invalid(key, "cannot be asked for over HTTP")
}

/// Whether a status may be another one soon; what a server cannot do at all (501) stays.
fn passes(status: u16) -> bool {
    matches!(status, 408 | 429 | 500 | 502 | 503 | 504)
}

fn may_pass(fault: &HttpError) -> bool {
    matches!(
        fault.kind(),
        HttpErrorKind::Connect
            | HttpErrorKind::Request
            | HttpErrorKind::Timeout
            | HttpErrorKind::Interrupted
    )
}

/// Returns how long to wait before another attempt: twice as long each time, give or take a half, so that many
/// clients do not come back at once.
fn pause(attempt: usize) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(1 << attempt.min(10));
    let chance = RandomState::new().hash_one(attempt) % 1000;
    doubled
        .min(LONGEST_PAUSE)
        .mul_f64(0.5 + chance as f64 / 1000.0)
}
