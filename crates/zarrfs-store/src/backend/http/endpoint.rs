//! Sends blocking requests to one web server and reads the response bodies.
//!
//! Requests are limited in number and time, and are retried. zarrfs does not use object_store's `HttpStore`, because
//! that accepts only UTF-8 keys, drops the query, hides redirects, refuses servers without ranges, and retries requests
//! that the server does not support.
//!
//! If a body breaks off, the rest is requested as a range of the same version, or the read fails. A truncated body is
//! never taken for a whole one.

use std::fmt::Display;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::StreamExt;
use http::{HeaderValue, StatusCode};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponseBody,
};
use object_store::{ClientOptions, PutPayload};

use super::etag_watch::ETagWatch;
use super::response::{ResponseHead, ResponseKind, SizedRange, Validators};
use super::urls::UrlSpace;
use super::webdav;
use crate::backend::remote::connector::Connector;
use crate::backend::remote::headers::retry_after;
use crate::backend::remote::limits::{Purpose, RequestLimits};
use crate::backend::remote::probes::RefusalProbe;
use crate::backend::remote::retry::{Attempts, is_transient_status};
use crate::backend::remote::runtime::{record_arrival, record_bytes, wait, wait_for_change};
use crate::backend::remote::{OPEN_RETRIES, OPEN_TIME_LIMIT, errors, http_client};
use crate::backend::{changed, too_long};
use crate::request_context::RequestContext;
use crate::stats::Stats;
use crate::{ByteRange, Key, Meta, RemoteConfig, check_length};
use zarr_format::buffer;
use zarr_format::error::{Error, Kind, Result};

/// Sends requests to the URLs below a directory of a web server.
pub(super) struct HttpEndpoint {
    pub(super) urls: UrlSpace,
    http: HttpClient,
    pub(super) limits: RequestLimits,
    pub(super) retries: usize,
    /// Whether the server is known to support range requests.
    pub(super) sends_parts: Arc<AtomicBool>,
    /// The error status, in addition to 404, with which the server answers requests for missing keys.
    missing_is: Option<u16>,
    /// Decides whether a refused key is missing; `None` if the server lists names or has no Zarr metadata at the root.
    pub(super) refusals: Option<RefusalProbe>,
    /// A digest of the credentials, to distinguish stores that have the same URL.
    pub(super) login_identity: Option<Arc<str>>,
    /// Watches whether the server's ETags can be trusted.
    pub(super) etags: ETagWatch,
}

/// The method, URL, header and body of a request about a key.
#[derive(Clone)]
pub(super) struct RequestSpec<'a> {
    pub(super) method: http::Method,
    pub(super) key: &'a Key,
    /// Whether the URL ends with a slash, like the URL of a directory.
    pub(super) as_folder: bool,
    pub(super) header: Option<(&'static str, String)>,
    /// The XML body of a WebDAV request; empty for other requests.
    pub(super) body: &'static str,
    /// The object that a PUT request sends.
    pub(super) payload: Option<PutPayload>,
    /// Whether the request is never retried.
    pub(super) once: bool,
}

impl<'a> RequestSpec<'a> {
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

    pub(super) fn head(key: &'a Key) -> RequestSpec<'a> {
        RequestSpec {
            method: http::Method::HEAD,
            ..RequestSpec::get(key)
        }
    }

    /// Creates a PROPFIND request, WebDAV's request for properties. With depth `1`, it asks for the direct children
    /// too.
    pub(super) fn propfind(key: &'a Key, as_folder: bool, depth: char) -> RequestSpec<'a> {
        RequestSpec {
            // PROPFIND is a valid method name, so the fallback is never used.
            method: http::Method::from_bytes(b"PROPFIND").unwrap_or(http::Method::OPTIONS),
            as_folder,
            header: Some(("depth", depth.to_string())),
            body: webdav::PROPFIND_BODY,
            ..RequestSpec::get(key)
        }
    }

    /// Creates a GET request for a range, which must not be empty.
    pub(super) fn range(key: &'a Key, range: &ByteRange) -> RequestSpec<'a> {
        let range = match range {
            ByteRange::Span(span) => format!("bytes={}-{}", span.start, span.end.saturating_sub(1)),
            ByteRange::Suffix(length) => format!("bytes=-{length}"),
        };
        RequestSpec {
            header: Some(("range", range)),
            ..RequestSpec::get(key)
        }
    }

    pub(super) fn first_byte(key: &'a Key) -> RequestSpec<'a> {
        RequestSpec::range(key, &ByteRange::Span(0..1))
    }

    /// Whether the request reads an object or its metadata.
    fn is_of_object(&self) -> bool {
        [http::Method::GET, http::Method::HEAD].contains(&self.method) && !self.as_folder
    }
}

/// The bytes that a GET request returned: an object or a range of it.
pub(super) struct RequestedRange {
    pub(super) bytes: Vec<u8>,
    /// The offset of `bytes` in the object.
    pub(super) start: u64,
    /// Metadata of the whole object.
    pub(super) meta: Meta,
    /// Whether the server ignored the range and sent the whole object.
    pub(super) is_whole: bool,
}

/// The range of an object that a response body contains.
struct BodyExtent {
    start: u64,
    /// The end of the range; `None` if the server does not state the length of the body.
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
        let why = "the response has no valid Content-Range";
        let sized = response.sized_range();
        let SizedRange { range, size } = sized.ok_or_else(|| Error::unavailable(key, why))?;
        Ok(BodyExtent {
            start: range.start,
            end: Some(range.end),
            size,
        })
    }
}

impl HttpEndpoint {
    /// Creates the client for a directory of a web server, with the time limit and number of retries for opening a
    /// store.
    pub(super) fn connect(
        urls: UrlSpace,
        config: &RemoteConfig,
        stats: &Arc<Stats>,
    ) -> Result<HttpEndpoint> {
        let mut options = ClientOptions::new().with_allow_http(urls.is_plain());
        for (key, value) in http_client::defaults(config) {
            options = options.with_config(key, value);
        }
        for (name, value) in &config.options {
            http_client::check_option(name)?;
            let key = name.to_ascii_lowercase().parse();
            let key = key.map_err(|_| {
                Error::invalid(format!("--storage-option {name}"), "no such option")
            })?;
            options = options.with_config(key, value);
        }
        let login = Arc::new(urls.bound_login(&config.login));
        let identity = urls.login_identity(&login);
        let connector = Connector::new(stats.clone(), config.timeout).with_login(login);
        // The error's text is not reported, since it may contain the value of a secret option.
        let http = connector
            .connect(&options)
            .map_err(|_| Error::invalid("--storage-option", "invalid value for the HTTP client"))?;
        Ok(HttpEndpoint {
            urls,
            http,
            limits: RequestLimits::new(config.timeout.min(OPEN_TIME_LIMIT), config.concurrency),
            retries: OPEN_RETRIES,
            sends_parts: Arc::default(),
            missing_is: config.missing_is,
            refusals: None,
            login_identity: identity,
            etags: ETagWatch::new(stats.clone()),
        })
    }

    /// Runs metadata requests under one permit of the request limit, and waits for the result. Errors name `subject`.
    pub(super) fn wait<T>(
        &self,
        context: &RequestContext,
        subject: &dyn Display,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.wait_under(Purpose::Metadata, context, subject, work)
    }

    /// Runs requests that read an object under one permit of the request limit, and waits for the result.
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
        let work = self.limits.with_permit(purpose, work);
        let (done, _) = wait(context, self.limits.body_time_limit(), work)?;
        done.flatten()
            .unwrap_or_else(|| Err(self.limits.timeout_error(subject)))
    }

    /// Sends a put or removal of `key`, and waits for its response.
    pub(super) fn change(&self, key: &Key, spec: &RequestSpec<'_>) -> Result<ResponseHead> {
        let work = self.limits.change_with_permit(self.send(spec));
        let (done, _) = wait_for_change(self.limits.body_time_limit(), work)?;
        done.unwrap_or_else(|| Err(self.limits.timeout_error(key)))
    }

    /// Counts attempts to read a body, up to the maximum number of retries.
    pub(super) fn attempts(&self) -> Attempts {
        Attempts::new(self.limits.time, self.retries)
    }

    fn request(&self, spec: &RequestSpec<'_>) -> Result<HttpRequest> {
        let url = self.urls.url(spec.key, spec.as_folder)?;
        let mut request = http::Request::builder()
            .method(spec.method.clone())
            .uri(url)
            // A compressed response has another length than the object, and ranges of it are useless.
            .header("accept-encoding", "identity");
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

    /// Records whether the server answers range requests with ranges. That counts more than its header `Accept-Ranges`.
    fn record_range_support(&self, spec: &RequestSpec<'_>, response: &ResponseHead) {
        let is_of_part = spec
            .header
            .as_ref()
            .is_some_and(|(name, _)| *name == "range");
        let sends_parts = match response.status {
            206 => true,
            200 if is_of_part => false,
            200 if response.accepts_ranges() => true,
            _ => return,
        };
        self.sends_parts.store(sends_parts, Ordering::Relaxed);
    }

    /// Sends a request, and retries it after transient failures. Returns the last response, whatever its status.
    pub(super) async fn send(&self, spec: &RequestSpec<'_>) -> Result<ResponseHead> {
        let retries = if spec.once { 0 } else { self.retries };
        let mut attempts = Attempts::new(self.limits.time, retries);
        loop {
            let request = self.request(spec)?;
            let host = request.uri().host().map(str::to_string);
            let request = self.http.execute(request);
            let response = match spec.payload {
                Some(_) => self.limits.within_send_time(request).await,
                None => tokio::time::timeout(attempts.time_left(), request)
                    .await
                    .ok(),
            };
            let mut response = response.ok_or_else(|| self.limits.timeout_error(spec.key))?;
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
            let retry_pause = match &response {
                Ok(response) => retry_after(response.status(), response.headers()),
                Err(_) => None,
            };
            if retry_pause.is_some() {
                record_arrival();
            }
            let pause = if is_transient {
                attempts.next_pause_at_least(retry_pause.unwrap_or_default())
            } else {
                None
            };
            match (pause, response) {
                (Some(pause), _) => tokio::time::sleep(pause).await,
                (None, Ok(response)) => {
                    let head = ResponseHead::new(response, &self.urls, spec.key);
                    self.record_range_support(spec, &head);
                    return Ok(head);
                }
                (None, Err(fault)) => {
                    let cause = errors::with_host(host.as_deref(), errors::innermost(&fault));
                    return Err(Error::unavailable(spec.key, cause));
                }
            }
        }
    }

    /// Whether the refusal of a key means that the key is missing, on a server that refuses missing keys. A 401 never
    /// means that, since it asks for a login: the metadata may be public while the chunks are not.
    pub(super) async fn is_refused_as_missing(&self, error: &Error, status: u16) -> bool {
        let Some(refusals) = &self.refusals else {
            return false;
        };
        if error.kind() != Kind::Denied || status == 401 {
            return false;
        }
        let exists = async |key: &Key| {
            let spec = RequestSpec::first_byte(key);
            let response = self.send(&spec).await?;
            match response.status {
                200 | 206 | 416 => Ok(true),
                404 => Ok(false),
                _ => Err(response.refusal(key)),
            }
        };
        matches!(refusals.is_missing(exists).await, Ok(true))
    }

    /// Returns the metadata of an object of `size` bytes. ETags that are known to be unreliable are left out.
    pub(super) async fn meta(&self, key: &Key, validators: Validators, size: u64) -> Meta {
        self.etags.observe(self, key, &validators, size).await;
        self.etags.usable(validators).meta(size)
    }

    /// Reads a response body with an object or a range of it. The error is `TooLarge` if the body exceeds `most` bytes.
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
                self.append_body(key, response.body, &mut bytes, most)
                    .await?;
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

    /// Reads a response body with the range `part` of an object. If the body breaks off, requests the rest.
    async fn read_part(
        &self,
        key: &Key,
        response: ResponseHead,
        part: Range<u64>,
        meta: &Meta,
        most: u64,
    ) -> Result<Vec<u8>> {
        let length = part.end - part.start;
        if length > most {
            return Err(too_long(key, length, most));
        }
        // A body of up to 64 MiB is allocated at once. A longer body is allocated as it arrives, since its stated
        // length may be wrong.
        let room = usize::try_from(length.min(64 << 20)).unwrap_or_default();
        let mut bytes = buffer::with_capacity(room);
        let mut broken = self.append_body(key, response.body, &mut bytes, most).await;
        let mut attempts = self.attempts();
        let mut known = 0;
        while (bytes.len() as u64) < length {
            if bytes.len() > known {
                known = bytes.len();
                attempts.extend(self.limits.time);
            }
            let breaks_off = || Error::unavailable(key, "the response is cut off");
            let fault = broken.err().unwrap_or_else(breaks_off);
            self.pause(&mut attempts, fault).await?;
            let rest = part.start + bytes.len() as u64..part.end;
            let rest = self.resume(key, rest, meta).await?;
            broken = self.append_body(key, rest.body, &mut bytes, most).await;
        }
        if bytes.len() as u64 != length {
            let text = "the response is longer than its Content-Length";
            return Err(Error::unavailable(key, text));
        }
        Ok(bytes)
    }

    /// Requests the rest of a body that broke off. The error is `Changed` if the object has changed since.
    async fn resume(&self, key: &Key, span: Range<u64>, meta: &Meta) -> Result<ResponseHead> {
        let spec = RequestSpec::range(key, &ByteRange::Span(span.clone()));
        let mut response = self.send(&spec).await?;
        response.set_size(meta.size);
        match (response.response_kind(key)?, response.sized_range()) {
            (ResponseKind::There | ResponseKind::Page, Some(sized)) if response.status == 206 => {
                let rest = self.meta(key, response.validators(), sized.size).await;
                check_length(key, rest.content(), meta.content())?;
                if !rest.may_be_of(meta) {
                    return Err(changed(key));
                }
                if sized.range == span {
                    return Ok(response);
                }
                Err(wrong_range(key))
            }
            (ResponseKind::Missing | ResponseKind::Folder, _) => Err(changed(key)),
            _ => Err(Error::unavailable(
                key,
                "the response is cut off, and the server does not support ranges",
            )),
        }
    }

    /// Appends a response body to `bytes`. The error is `TooLarge` if `bytes` would exceed `most` bytes.
    pub(super) async fn append_body(
        &self,
        key: &Key,
        body: HttpResponseBody,
        bytes: &mut Vec<u8>,
        most: u64,
    ) -> Result<()> {
        let mut pieces = body.bytes_stream();
        loop {
            let Some(piece) = pieces.next().await else {
                return Ok(());
            };
            let piece =
                piece.map_err(|fault| Error::unavailable(key, errors::innermost(&fault)))?;
            record_bytes(piece.len());
            if (bytes.len() + piece.len()) as u64 > most {
                return Err(too_long(key, (bytes.len() + piece.len()) as u64, most));
            }
            bytes.extend_from_slice(&piece);
        }
    }

    /// Fetches a document that the server generates, such as a listing. If the body breaks off, the document is fetched
    /// again from the beginning. The returned bytes are empty if the status is an error.
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
            // 256 MiB is the maximum length of a generated document.
            let read = self.append_body(spec.key, body, &mut bytes, 256 << 20);
            match read.await {
                Ok(()) => return Ok((response, bytes)),
                Err(fault) => self.pause(&mut attempts, fault).await?,
            }
        }
    }

    /// Waits before a broken body is requested again. Returns the error `fault` if there may be no retry.
    async fn pause(&self, attempts: &mut Attempts, fault: Error) -> Result<()> {
        let pause = match fault.kind() {
            Kind::Unavailable => attempts.next_pause(),
            _ => None,
        };
        tokio::time::sleep(pause.ok_or(fault)?).await;
        Ok(())
    }
}

pub(super) fn wrong_range(key: &Key) -> Error {
    Error::unavailable(key, "the server sends another range than requested")
}

fn invalid_request(key: &Key) -> Error {
    Error::invalid(key, "cannot be requested over HTTP")
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
