//! Looks up and fetches objects on a web server.
//!
//! A key is missing only if a response says so, or if the server refuses the key and is known to refuse missing keys.
//! For a missing key, some servers send a page with status 200, or status 400 or 500, as if the key existed or could
//! not be read. After such a response, zarrfs requests a key that cannot exist and compares the two responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio::sync::Mutex;

use super::MAX_WHOLE_OBJECT;
use super::endpoint::{HttpEndpoint, RequestSpec, RequestedRange, wrong_range};
use super::index_page::LinkedNames;
use super::response::{ResponseHead, ResponseKind, ResponseOrigin, refusal};
use super::webdav::Resource;
use super::{ListingMethod, index_page, webdav};
use crate::backend::changed;
use crate::backend::remote::probes::impossible_key;
use crate::request_context::RequestContext;
use crate::{ByteRange, Key, Meta, Object};
use zarr_format::error::{Error, Kind, Result};

pub(super) enum LookupResult {
    Object(Meta),
    Folder,
    Missing,
}

enum Fetched {
    Range(RequestedRange),
    OutOfRange,
    Missing,
}

pub(super) struct ObjectClient {
    pub(super) endpoint: Arc<HttpEndpoint>,
    pub(super) listing_method: ListingMethod,
    /// Whether the server has refused HEAD where it permits GET, as it does for signed URLs.
    refuses_heads: AtomicBool,
    /// Whether a HEAD has ever found an object or a folder. Before that, a 404 may only mean that HEAD is not
    /// supported.
    supports_heads: AtomicBool,
    /// Whether the server has redirected a folder to its URL with a slash.
    redirects_folders: AtomicBool,
    /// The status with which the server last answered a request for a key that cannot exist, and the time of the
    /// request.
    missing_status: Mutex<Option<(u16, Instant)>>,
}

impl ObjectClient {
    /// Creates a client for a web server about which nothing is known yet.
    pub(super) fn new(endpoint: HttpEndpoint) -> ObjectClient {
        ObjectClient {
            endpoint: Arc::new(endpoint),
            listing_method: ListingMethod::None,
            refuses_heads: AtomicBool::new(false),
            supports_heads: AtomicBool::new(false),
            redirects_folders: AtomicBool::new(false),
            missing_status: Mutex::default(),
        }
    }

    /// Returns the metadata of an object or directory other than the root, or `None` if it is missing.
    pub(super) fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        if self.listing_method == ListingMethod::WebDav {
            match self.endpoint.wait(context, key, self.resource(key))? {
                None => return Ok(None),
                Some(resource) => {
                    if let Some(meta) = resource.meta(&self.endpoint.etags) {
                        return Ok(Some(meta));
                    }
                }
            }
        }
        match self.head_object(context, key)? {
            LookupResult::Object(meta) => Ok(Some(meta)),
            LookupResult::Folder => Ok(Some(Meta::prefix())),
            LookupResult::Missing
                if self.listing_method == ListingMethod::IndexPages
                    && self.has_folder(context, key)? =>
            {
                Ok(Some(Meta::prefix()))
            }
            LookupResult::Missing => Ok(None),
        }
    }

    /// Whether a key is a directory. This asks for its index page, on servers that do not redirect to a URL with a
    /// slash.
    fn has_folder(&self, context: &RequestContext, key: &Key) -> Result<bool> {
        if self.redirects_folders.load(Ordering::Relaxed) {
            return Ok(false);
        }
        self.endpoint.wait(context, key, self.has_index(key))
    }

    /// Whether a key has an index page. Fails if the server's error does not tell.
    async fn has_index(&self, key: &Key) -> Result<bool> {
        match self.index(key).await? {
            (_, Some(_)) => Ok(true),
            (response, None) if matches!(response.status, 405 | 500..) => {
                Err(response.refusal(key))
            }
            (_, None) => Ok(false),
        }
    }

    /// Returns what a response says about an object. An ambiguous response leads to further requests.
    async fn response_kind(&self, key: &Key, response: &ResponseHead) -> Result<ResponseKind> {
        let kind = match response.response_kind(key) {
            Err(error) if error.kind() == Kind::Denied => {
                if self
                    .endpoint
                    .is_refused_as_missing(&error, response.status)
                    .await
                {
                    return Ok(ResponseKind::Missing);
                }
                return Err(self.with_option_hint(error, response.status));
            }
            // WebDAV servers send 405 for a GET of a directory, so its properties are requested.
            Err(error)
                if response.status == 405 && self.listing_method == ListingMethod::WebDav =>
            {
                return match self.resource(key).await? {
                    Some(resource) if resource.is_folder => Ok(ResponseKind::Folder),
                    Some(_) => Err(error),
                    None => Ok(ResponseKind::Missing),
                };
            }
            Err(error) => return Err(self.with_missing_hint(error, response.status).await),
            Ok(kind) => kind,
        };
        match kind {
            ResponseKind::Folder => {
                self.redirects_folders.store(true, Ordering::Relaxed);
                Ok(ResponseKind::Folder)
            }
            ResponseKind::Page if self.is_index_page(key).await? => Ok(ResponseKind::Folder),
            ResponseKind::Page => Ok(ResponseKind::There),
            other => Ok(other),
        }
    }

    /// Returns the error of a refused request. The error suggests `--missing-is` if it is unknown whether the server
    /// refuses requests for missing keys.
    fn with_option_hint(&self, error: Error, status: u16) -> Error {
        let is_settled =
            self.listing_method != ListingMethod::None || self.endpoint.refusals.is_some();
        if is_settled || status != 403 {
            return error;
        }
        let text = format!(
            "{}; if the server sends {status} for missing keys, use --missing-is {status}",
            error.detail()
        );
        Error::new(error.kind(), error.subject(), text)
    }

    /// Whether the page that was sent for a key is a directory's index page. Fails if the server may send such a page
    /// for missing keys.
    async fn is_index_page(&self, key: &Key) -> Result<bool> {
        match self.listing_method {
            ListingMethod::WebDav => {
                Ok(matches!(self.resource(key).await?, Some(resource) if resource.is_folder))
            }
            ListingMethod::IndexPages if self.has_index(key).await? => Ok(true),
            ListingMethod::IndexPages | ListingMethod::None => {
                let is_page = key.name().ends_with(b".html") || key.name().ends_with(b".htm");
                if !is_page {
                    // Some servers send the content type HTML for every object, so the page may be an object.
                    self.check_page(key).await?;
                }
                Ok(false)
            }
        }
    }

    /// Returns the WebDAV properties of a key, or `None` if the key is missing.
    pub(super) async fn resource(&self, key: &Key) -> Result<Option<Resource>> {
        let spec = RequestSpec::propfind(key, false, '0');
        let (response, bytes) = self.endpoint.fetch_document(&spec).await?;
        match response.status {
            404 => return Ok(None),
            207 => {}
            _ => return Err(response.refusal(key)),
        }
        let resource = webdav::resources(&bytes).map_err(|error| error.about(key))?;
        let resource = resource.into_iter().next();
        let resource =
            resource.ok_or_else(|| Error::corrupt(key, "the WebDAV response is empty"))?;
        match resource.status {
            None => Ok(Some(resource)),
            Some(404) => Ok(None),
            Some(status) => Err(refusal(key, status)),
        }
    }

    pub(super) fn head_object(&self, context: &RequestContext, key: &Key) -> Result<LookupResult> {
        self.endpoint.wait(context, key, self.probe_object(key))
    }

    pub(super) async fn probe_object(&self, key: &Key) -> Result<LookupResult> {
        Ok(self.probe_object_with_tag(key).await?.0)
    }

    /// Looks up an object, and returns its ETag as the server spells it. If the server refuses HEAD requests, a GET
    /// request for one byte is sent.
    pub(super) async fn probe_object_with_tag(
        &self,
        key: &Key,
    ) -> Result<(LookupResult, Option<String>)> {
        if !self.refuses_heads.load(Ordering::Relaxed) {
            let response = self.endpoint.send(&RequestSpec::head(key)).await?;
            let is_conclusive = match response.status {
                // The statuses 400, 401, 403, 405, 416 and 501 may concern only HEAD requests, so they prove nothing
                // about the object.
                400 | 401 | 403 | 405 | 416 | 501 => response.origin == ResponseOrigin::Folder,
                200..=299 => {
                    self.supports_heads.store(true, Ordering::Relaxed);
                    response.length().is_some() || response.origin == ResponseOrigin::Folder
                }
                404 => self.supports_heads.load(Ordering::Relaxed),
                _ => true,
            };
            if is_conclusive {
                let result = self
                    .to_lookup_result(key, &response, response.length())
                    .await?;
                return Ok((result, self.usable_etag(&response)));
            }
        }
        self.probe_by_byte(key).await
    }

    /// Returns the ETag of a response as the server spells it, or `None` if the server's ETags are unreliable.
    fn usable_etag(&self, response: &ResponseHead) -> Option<String> {
        self.endpoint.etags.usable(response.validators()).tag
    }

    /// Looks up an object with a GET request for one byte.
    async fn probe_by_byte(&self, key: &Key) -> Result<(LookupResult, Option<String>)> {
        let response = self.endpoint.send(&RequestSpec::first_byte(key)).await?;
        if response.status < 300 && response.origin != ResponseOrigin::Folder {
            self.refuses_heads.store(true, Ordering::Relaxed);
        }
        let size = match response.status {
            206 if response.is_range_without_size() => {
                // The range's header lacks the object's length, so the length is taken from the headers of a whole
                // response.
                let whole = self.endpoint.send(&RequestSpec::get(key)).await?;
                whole.length().filter(|_| whole.status == 200)
            }
            206 => response.sized_range().map(|sized| sized.size),
            416 => response.object_size(),
            _ => response.length(),
        };
        if response.status == 200
            && size.is_none()
            && self.response_kind(key, &response).await? == ResponseKind::There
        {
            // The server does not state the length, so the whole body is read to find it.
            let tag = self.usable_etag(&response);
            let read = self.endpoint.read_body(key, response, MAX_WHOLE_OBJECT);
            return Ok((LookupResult::Object(read.await?.meta), tag));
        }
        let result = self.to_lookup_result(key, &response, size).await?;
        Ok((result, self.usable_etag(&response)))
    }

    /// Converts a response to the result of a lookup, with `size` bytes as the size if there is an object.
    async fn to_lookup_result(
        &self,
        key: &Key,
        response: &ResponseHead,
        size: Option<u64>,
    ) -> Result<LookupResult> {
        match (self.response_kind(key, response).await?, size) {
            (ResponseKind::There | ResponseKind::OutOfRange, Some(size)) => {
                let validators = response.validators();
                Ok(LookupResult::Object(
                    self.endpoint.meta(key, validators, size).await,
                ))
            }
            (ResponseKind::There | ResponseKind::OutOfRange, None) => {
                let text = "the server does not send the size";
                Err(Error::unavailable(key, text))
            }
            (ResponseKind::Folder, _) => Ok(LookupResult::Folder),
            (ResponseKind::Missing, _) => Ok(LookupResult::Missing),
            (ResponseKind::Page, _) => Ok(LookupResult::Missing),
        }
    }

    /// Requests the index page of a directory.
    pub(super) async fn fetch_index(&self, folder: &Key) -> Result<(ResponseHead, Vec<u8>)> {
        let spec = RequestSpec {
            as_folder: true,
            // A JSON listing is preferred to an HTML page.
            header: Some((
                "accept",
                "application/json, text/html;q=0.9, */*;q=0.5".to_string(),
            )),
            ..RequestSpec::get(folder)
        };
        self.endpoint.fetch_document(&spec).await
    }

    /// Returns the response to a request for an index page, and the names if the response is an index page.
    pub(super) async fn index(&self, folder: &Key) -> Result<(ResponseHead, Option<LinkedNames>)> {
        let (response, bytes) = self.fetch_index(folder).await?;
        // Some servers redirect a URL with an extra slash to the object itself, so the response's URL is checked.
        let names = match (response.status, response.origin) {
            (200, ResponseOrigin::Folder) => {
                index_page::names(&self.endpoint.urls, folder, response.content_type(), &bytes)
                    .map_err(|error| error.about(folder))?
            }
            _ => None,
        };
        Ok((response, names))
    }

    /// Fetches a whole object, or returns `None` if it is missing. The error is `TooLarge` beyond `limit` bytes.
    pub(super) fn get(
        &self,
        context: &RequestContext,
        key: &Key,
        limit: u64,
    ) -> Result<Option<Object>> {
        self.endpoint
            .read(context, key, self.fetch_whole(key, limit))
    }

    /// Fetches a whole object, asynchronously. The error is `TooLarge` beyond `limit` bytes.
    pub(super) async fn fetch_whole(&self, key: &Key, limit: u64) -> Result<Option<Object>> {
        match self.fetch(key, None, limit).await? {
            Fetched::Range(piece) => Ok(Some(Object {
                size: piece.meta.size,
                version: piece.meta.version,
                modified: Some(piece.meta.modified),
                bytes: piece.bytes,
            })),
            Fetched::Missing => Ok(None),
            Fetched::OutOfRange => Err(Error::unavailable(
                key,
                "the server rejects a range, but none was requested",
            )),
        }
    }

    /// Fetches a range of an object, or returns `None` if the object is missing.
    pub(super) fn get_range(
        &self,
        context: &RequestContext,
        key: &Key,
        range: &ByteRange,
    ) -> Result<Option<Object>> {
        // Every server understands offsets and lengths below 2^53. Beyond that the object's length is requested first.
        let is_understood = match range {
            ByteRange::Span(span) => span.start < span.end && span.end < 1 << 53,
            ByteRange::Suffix(length) => (1..1 << 53).contains(length),
        };
        if !is_understood {
            return self.get_sized_range(context, key, range);
        }
        match self.fetch_range(context, key, range)? {
            Fetched::Missing => Ok(None),
            Fetched::Range(piece) => cut(key, piece, range).map(Some),
            Fetched::OutOfRange => self.get_sized_range(context, key, range),
        }
    }

    /// Fetches a whole object, or a range that is not empty. The error is `TooLarge` beyond `most` bytes.
    async fn fetch(&self, key: &Key, range: Option<&ByteRange>, most: u64) -> Result<Fetched> {
        let spec = match range {
            Some(range) => RequestSpec::range(key, range),
            None => RequestSpec::get(key),
        };
        let mut response = self.endpoint.send(&spec).await?;
        match self.response_kind(key, &response).await? {
            // Some servers send an invalid range for the last N bytes of an empty object.
            ResponseKind::There if response.is_invalid_range() => return Ok(Fetched::OutOfRange),
            ResponseKind::There => {}
            ResponseKind::OutOfRange => return Ok(Fetched::OutOfRange),
            ResponseKind::Folder | ResponseKind::Missing | ResponseKind::Page => {
                return Ok(Fetched::Missing);
            }
        }
        if response.is_range_without_size() {
            let LookupResult::Object(whole) = self.probe_object(key).await? else {
                return Err(changed(key));
            };
            response.set_size(whole.size);
            let validators = response.validators();
            let meta = self.endpoint.meta(key, validators, whole.size).await;
            if !meta.may_be_of(&whole) {
                return Err(changed(key));
            }
        }
        self.endpoint
            .read_body(key, response, most)
            .await
            .map(Fetched::Range)
    }

    /// Fetches a range of an object. The range must not be empty.
    fn fetch_range(
        &self,
        context: &RequestContext,
        key: &Key,
        range: &ByteRange,
    ) -> Result<Fetched> {
        let most = match range {
            ByteRange::Span(span) => span.end.saturating_sub(span.start),
            ByteRange::Suffix(length) => *length,
        };
        let fetched = self.fetch(key, Some(range), most.max(MAX_WHOLE_OBJECT));
        self.endpoint.read(context, key, fetched)
    }

    /// Fetches a range of an object, limited to the object's length, which is requested first.
    fn get_sized_range(
        &self,
        context: &RequestContext,
        key: &Key,
        range: &ByteRange,
    ) -> Result<Option<Object>> {
        let LookupResult::Object(meta) = self.head_object(context, key)? else {
            return Ok(None);
        };
        let span = range.within(meta.size);
        if span.is_empty() {
            return Ok(Some(Object::without_bytes(&meta)));
        }
        let range = ByteRange::Span(span);
        match self.fetch_range(context, key, &range)? {
            Fetched::Missing => Ok(None),
            Fetched::Range(piece) => cut(key, piece, &range).map(Some),
            Fetched::OutOfRange => Err(Error::unavailable(key, "the server rejects a valid range")),
        }
    }

    /// Returns the status that the server sends for a key that cannot exist. With `since`, the status comes from a
    /// request after that time.
    async fn status_of_missing(&self, since: Option<Instant>) -> Result<u16> {
        let mut last = self.missing_status.lock().await;
        if let Some((status, requested)) = *last
            && since.is_none_or(|since| requested > since)
        {
            return Ok(status);
        }
        let (requested, key) = (Instant::now(), impossible_key()?);
        let spec = RequestSpec {
            once: true,
            ..RequestSpec::first_byte(&key)
        };
        let status = self.endpoint.send(&spec).await?.status;
        *last = Some((status, requested));
        Ok(status)
    }

    /// Fails if the web page that the server sent for `key` may be what it sends for missing keys. To find out, zarrfs
    /// requests a key that cannot exist.
    async fn check_page(&self, key: &Key) -> Result<()> {
        let page = "the server sent a web page instead of an object";
        match self.status_of_missing(Some(Instant::now())).await? {
            401 | 403 | 404 | 410 => Ok(()),
            200..=299 => Err(Error::unavailable(
                key,
                format!(
                    "{page}, and does so (200) for missing keys too: configure the server to send 404 for missing keys"
                ),
            )),
            _ => Err(Error::unavailable(key, page)),
        }
    }

    /// Adds a hint to the error of a response if the server sends the same status for missing keys.
    async fn with_missing_hint(&self, error: Error, status: u16) -> Error {
        if !is_ambiguous(status) || self.status_of_missing(None).await.ok() != Some(status) {
            return error;
        }
        let option = match status {
            500.. => String::new(),
            _ => format!(", or use --missing-is {status}"),
        };
        let text = format!(
            "{}, as for a key that cannot exist: configure the server to send 404 for missing keys{option}",
            error.detail()
        );
        Error::unavailable(error.subject(), text)
    }
}

/// Cuts the received bytes of an object to the requested range.
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
    let bytes = bytes.ok_or_else(|| wrong_range(key))?;
    Ok(Object {
        bytes,
        size,
        version,
        modified: Some(modified),
    })
}

/// Whether some servers send the status for missing keys. Other error statuses only say why a key cannot be read now.
fn is_ambiguous(status: u16) -> bool {
    matches!(
        status,
        400 | 402 | 405 | 406 | 409 | 410 | 418..=428 | 451 | 500 | 501
    )
}
