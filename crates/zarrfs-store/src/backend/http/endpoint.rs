//! Blocking requests to one web server, limited in number and time, with retries.
//!
//! They use object_store's HTTP client, not its `HttpStore`, which accepts only UTF-8 keys, drops the query, hides
//! redirects, refuses servers without ranges, and retries requests that the server does not support.

use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{HeaderValue, StatusCode};
use object_store::PutPayload;
use object_store::client::{HttpClient, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody};

use super::response::{ResponseHead, refusal};
use super::tags::TagWatch;
use super::urls::UrlSpace;
use super::webdav;
use crate::Key;
use crate::backend::remote::errors;
use crate::backend::remote::headers::retry_after;
use crate::backend::remote::limits::{Purpose, RequestLimits};
use crate::backend::remote::refusal_probe::RefusalProbe;
use crate::backend::remote::retry::{Attempts, is_transient_status};
use crate::backend::remote::runtime::{record_arrival, wait, wait_for_change};
use crate::request_context::RequestContext;
use zarr_format::error::{Error, Kind, Result};

/// A folder of a web server, with the client and limits for its requests.
pub(super) struct HttpEndpoint {
    pub(super) urls: UrlSpace,
    pub(super) http: HttpClient,
    pub(super) limits: RequestLimits,
    /// Maximum number of retries of a failed request.
    pub(super) repeats: usize,
    /// Whether the server is known to support ranges (`StoreInfo::sends_parts`).
    pub(super) sends_parts: Arc<AtomicBool>,
    /// The status besides 404 that means that an object is missing.
    pub(super) missing_is: Option<u16>,
    /// Decides whether a refused key is missing; `None` if the server lists names or has no document at the root.
    pub(super) absence: Option<RefusalProbe>,
    /// Watches whether the server's ETags can be trusted.
    pub(super) tags: TagWatch,
}

/// A request about a key.
#[derive(Clone)]
pub(super) struct RequestSpec<'a> {
    pub(super) method: http::Method,
    pub(super) key: &'a Key,
    /// Whether the URL ends with a slash, like that of a folder.
    pub(super) as_folder: bool,
    pub(super) header: Option<(&'static str, String)>,
    /// An XML body; empty for most requests.
    pub(super) body: &'static str,
    /// The body of a put.
    pub(super) payload: Option<PutPayload>,
    /// Whether the request is never retried.
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

    /// A PROPFIND of a key; with depth `1`, of its direct children too.
    pub(super) fn propfind(key: &'a Key, as_folder: bool, depth: char) -> RequestSpec<'a> {
        RequestSpec {
            // The name is always valid.
            method: http::Method::from_bytes(b"PROPFIND").unwrap_or(http::Method::OPTIONS),
            as_folder,
            header: Some(("depth", depth.to_string())),
            body: webdav::WANTED,
            ..RequestSpec::get(key)
        }
    }

    /// A GET with `range` as the value of the header `Range`.
    pub(super) fn part(key: &'a Key, range: String) -> RequestSpec<'a> {
        RequestSpec {
            header: Some(("range", range)),
            ..RequestSpec::get(key)
        }
    }
}

impl RequestSpec<'_> {
    /// Whether the request is a GET or HEAD of an object.
    fn is_of_object(&self) -> bool {
        [http::Method::GET, http::Method::HEAD].contains(&self.method) && !self.as_folder
    }
}

impl HttpEndpoint {
    /// Runs requests for metadata about `subject` under one permit, and waits for the result.
    pub(super) fn wait<T>(
        &self,
        context: &RequestContext,
        subject: &dyn Display,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.wait_under(Purpose::Metadata, context, subject, work)
    }

    /// Runs requests that read an object, like `wait`.
    pub(super) fn read<T>(
        &self,
        context: &RequestContext,
        key: &Key,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.wait_under(Purpose::of(key.name()), context, key, work)
    }

    fn wait_under<T>(
        &self,
        purpose: Purpose,
        context: &RequestContext,
        subject: &dyn Display,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let work = self.limits.permitted(purpose, work);
        let (done, _) = wait(context, self.limits.time_of_body(), work)?;
        done.flatten()
            .unwrap_or_else(|| Err(self.limits.late(subject)))
    }

    /// Sends a request that changes `key`, and waits for its response.
    pub(super) fn change(&self, key: &Key, spec: &RequestSpec<'_>) -> Result<ResponseHead> {
        let work = self.limits.permitted_change(self.send(spec));
        let (done, _) = wait_for_change(self.limits.time_of_body(), work)?;
        done.unwrap_or_else(|| Err(self.limits.late(key)))
    }

    /// Returns the counter of attempts to read a body.
    pub(super) fn attempts(&self) -> Attempts {
        Attempts::new(self.limits.time, self.repeats)
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
                // Not every server accepts a body without a Content-Length.
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

    /// Records whether the server supports ranges. Its behavior overrides its headers.
    fn note_parts(&self, spec: &RequestSpec<'_>, response: &ResponseHead) {
        let is_of_part = spec
            .header
            .as_ref()
            .is_some_and(|(name, _)| *name == "range");
        let sends_parts = match response.status {
            206 => true,
            200 if is_of_part => false,
            200 if response.offers_parts() => true,
            _ => return,
        };
        self.sends_parts.store(sends_parts, Ordering::Relaxed);
    }

    /// Sends a request, with retries after transient failures. Returns the last response, with any status.
    pub(super) async fn send(&self, spec: &RequestSpec<'_>) -> Result<ResponseHead> {
        let repeats = if spec.once { 0 } else { self.repeats };
        let mut attempts = Attempts::new(self.limits.time, repeats);
        loop {
            let request = self.request(spec)?;
            let host = request.uri().host().map(str::to_string);
            let request = self.http.execute(request);
            let response = match spec.payload {
                Some(_) => self.limits.in_time_to_send(request).await,
                None => tokio::time::timeout(attempts.time_left(), request)
                    .await
                    .ok(),
            };
            let mut response = response.ok_or_else(|| self.limits.late(spec.key))?;
            if let Ok(response) = &mut response
                && Some(response.status().as_u16()) == self.missing_is
                && spec.is_of_object()
            {
                *response.status_mut() = StatusCode::NOT_FOUND;
            }
            let is_transient = match &response {
                Ok(response) => is_transient_status(response.status().as_u16()),
                Err(fault) => is_transient(fault),
            };
            let asked_for = match &response {
                Ok(response) => retry_after(response.status(), response.headers()),
                Err(_) => None,
            };
            if asked_for.is_some() {
                record_arrival();
            }
            let pause = if is_transient {
                attempts.next_pause_of(asked_for.unwrap_or_default())
            } else {
                None
            };
            match (pause, response) {
                (Some(pause), _) => tokio::time::sleep(pause).await,
                (None, Ok(response)) => {
                    let head = ResponseHead::new(response, &self.urls, spec.key);
                    self.note_parts(spec, &head);
                    return Ok(head);
                }
                (None, Err(fault)) => {
                    let cause = errors::with_host(host.as_deref(), errors::innermost(&fault));
                    return Err(Error::unavailable(spec.key, cause));
                }
            }
        }
    }
}

impl HttpEndpoint {
    /// Whether an error is a refusal (`Denied`) that means that the key is missing.
    pub(super) async fn is_refused_as_missing(&self, error: &Error) -> bool {
        let Some(absence) = self
            .absence
            .as_ref()
            .filter(|_| error.kind() == Kind::Denied)
        else {
            return false;
        };
        let is_there = async |key: &Key| {
            let spec = RequestSpec::part(key, "bytes=0-0".to_string());
            match self.send(&spec).await?.status {
                200 | 206 | 416 => Ok(true),
                404 => Ok(false),
                status => Err(refusal(key, status)),
            }
        };
        matches!(absence.is_missing(is_there).await, Ok(true))
    }
}

/// Returns the error for a response with an error status.
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

fn is_transient(fault: &HttpError) -> bool {
    matches!(
        fault.kind(),
        HttpErrorKind::Connect
            | HttpErrorKind::Request
            | HttpErrorKind::Timeout
            | HttpErrorKind::Interrupted
    )
}
