//! Looks up a key with HEAD, GET, WebDAV or an index page.
//!
//! A key is missing only if a response says so, or if the server refuses it and is known to refuse missing keys.

use std::sync::atomic::Ordering;

use super::endpoint::{RequestSpec, refused};
use super::reader::MAX_WHOLE_OBJECT;
use super::response::{ResponseHead, ResponseKind, ResponseOrigin, refusal};
use super::webdav::Resource;
use super::{HttpStore, ListingMethod, webdav};
use crate::request_context::RequestContext;
use crate::{Key, Meta};
use zarr_format::error::{Error, Kind, Result};

/// The result of a lookup.
pub(super) enum ProbeResult {
    Object(Meta),
    Folder,
    Missing,
}

impl HttpStore {
    /// Returns the result of `head` for a key other than the root.
    pub(super) fn head_entry(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        if self.listing_method == ListingMethod::WebDav {
            match self.endpoint.wait(context, key, self.resource(key))? {
                None => return Ok(None),
                Some(found) => {
                    if let Some(meta) = found.meta(&self.endpoint.tags) {
                        return Ok(Some(meta));
                    }
                }
            }
        }
        match self.head_object(context, key)? {
            ProbeResult::Object(meta) => Ok(Some(meta)),
            ProbeResult::Folder => Ok(Some(Meta::prefix())),
            ProbeResult::Missing
                if self.listing_method == ListingMethod::IndexPages
                    && self.has_folder(context, key)? =>
            {
                Ok(Some(Meta::prefix()))
            }
            ProbeResult::Missing => Ok(None),
        }
    }

    /// Whether a key is a folder, for servers that do not redirect a folder to its URL with a slash.
    fn has_folder(&self, context: &RequestContext, key: &Key) -> Result<bool> {
        if self.redirects.load(Ordering::Relaxed) {
            return Ok(false);
        }
        self.endpoint.wait(context, key, self.has_index(key))
    }

    /// Whether a key has an index page. Fails if the response does not answer that.
    async fn has_index(&self, key: &Key) -> Result<bool> {
        match self.index(key).await? {
            (_, Some(_)) => Ok(true),
            (response, None) if matches!(response.status, 405 | 500..) => {
                Err(refused(key, &response))
            }
            (_, None) => Ok(false),
        }
    }

    /// Returns the meaning of a response about an object. Ambiguous responses need further requests.
    pub(super) async fn response_kind(
        &self,
        key: &Key,
        response: &ResponseHead,
    ) -> Result<ResponseKind> {
        let kind = match response.response_kind(key) {
            Err(error) if error.kind() == Kind::Denied => {
                if self.endpoint.is_refused_as_missing(&error).await {
                    return Ok(ResponseKind::Missing);
                }
                return Err(self.with_hint(error, response.status));
            }
            // WebDAV servers send this for a GET of a folder.
            Err(error)
                if response.status == 405 && self.listing_method == ListingMethod::WebDav =>
            {
                return match self.resource(key).await? {
                    Some(found) if found.is_folder => Ok(ResponseKind::Folder),
                    Some(_) => Err(error),
                    None => Ok(ResponseKind::Missing),
                };
            }
            Err(error) => return Err(self.failure(error, response.status).await),
            Ok(kind) => kind,
        };
        match kind {
            ResponseKind::Folder => {
                self.redirects.store(true, Ordering::Relaxed);
                Ok(ResponseKind::Folder)
            }
            ResponseKind::Page if self.is_shown_folder(key).await? => Ok(ResponseKind::Folder),
            ResponseKind::Page => Ok(ResponseKind::There),
            other => Ok(other),
        }
    }

    /// Returns the error of a refusal. It suggests `--missing-is` unless it is known whether the server refuses missing
    /// keys.
    fn with_hint(&self, error: Error, status: u16) -> Error {
        let is_known = self.info.lists || self.endpoint.absence.is_some();
        if is_known || !matches!(status, 401 | 403) {
            return error;
        }
        let text = format!(
            "{}; if it does so for keys that it does not have: --missing-is {status}",
            error.detail()
        );
        Error::new(error.kind(), error.subject(), text)
    }

    /// Whether the page that was returned for a key is the index of a folder. Fails if the server may send such pages
    /// for missing keys.
    async fn is_shown_folder(&self, key: &Key) -> Result<bool> {
        match self.listing_method {
            ListingMethod::WebDav => {
                Ok(matches!(self.resource(key).await?, Some(found) if found.is_folder))
            }
            ListingMethod::IndexPages if self.has_index(key).await? => Ok(true),
            ListingMethod::IndexPages | ListingMethod::None => {
                let is_page = key.name().ends_with(b".html") || key.name().ends_with(b".htm");
                if !is_page {
                    // Some servers send this content type for every object.
                    self.check_page(key).await?;
                }
                Ok(false)
            }
        }
    }

    /// Returns the WebDAV properties of a key, or `None` if it is missing.
    pub(super) async fn resource(&self, key: &Key) -> Result<Option<Resource>> {
        let spec = RequestSpec::propfind(key, false, '0');
        let (response, bytes) = self.endpoint.fetch_document(&spec).await?;
        match response.status {
            404 => return Ok(None),
            207 => {}
            _ => return Err(refused(key, &response)),
        }
        let found = webdav::resources(&bytes).map_err(|error| error.about(key))?;
        let found = found.into_iter().next();
        let found =
            found.ok_or_else(|| Error::corrupt(key, "the server's WebDAV answer is empty"))?;
        match found.status {
            None => Ok(Some(found)),
            Some(404) => Ok(None),
            Some(status) => Err(refusal(key, status)),
        }
    }

    /// Requests the metadata of an object and waits for them.
    pub(super) fn head_object(&self, context: &RequestContext, key: &Key) -> Result<ProbeResult> {
        self.endpoint.wait(context, key, self.probe_object(key))
    }

    pub(super) async fn probe_object(&self, key: &Key) -> Result<ProbeResult> {
        Ok(self.probe_object_with_tag(key).await?.0)
    }

    /// Requests the metadata of an object, and its ETag as the server spells it. If HEAD is refused, a GET of one byte
    /// is sent.
    pub(super) async fn probe_object_with_tag(
        &self,
        key: &Key,
    ) -> Result<(ProbeResult, Option<String>)> {
        if !self.refuses_heads.load(Ordering::Relaxed) {
            let response = self.endpoint.send(&RequestSpec::head(key)).await?;
            let tells = match response.status {
                // This status may concern only HEAD, or leave out the length of a generated body. The 416 refuses a
                // range that was not requested.
                400 | 401 | 403 | 405 | 416 | 501 => response.origin == ResponseOrigin::Folder,
                200..=299 => {
                    self.knows_heads.store(true, Ordering::Relaxed);
                    response.length().is_some() || response.origin == ResponseOrigin::Folder
                }
                404 => self.knows_heads.load(Ordering::Relaxed),
                _ => true,
            };
            if tells {
                let found = self.found(key, &response, response.length()).await?;
                return Ok((found, self.counting_tag(&response)));
            }
        }
        self.probe_by_part(key).await
    }

    /// Returns the ETag of a response as the server spells it, or `None` if the server's ETags are not used.
    fn counting_tag(&self, response: &ResponseHead) -> Option<String> {
        self.endpoint.tags.counting(response.validators()).tag
    }

    /// Requests the metadata and ETag with a GET of one byte.
    async fn probe_by_part(&self, key: &Key) -> Result<(ProbeResult, Option<String>)> {
        let response = self
            .endpoint
            .send(&RequestSpec::part(key, "bytes=0-0".to_string()))
            .await?;
        if response.status < 300 && response.origin != ResponseOrigin::Folder {
            self.refuses_heads.store(true, Ordering::Relaxed);
        }
        let size = match response.status {
            206 if response.is_part_without_size() => {
                // The body of this response is not read.
                let whole = self.endpoint.send(&RequestSpec::get(key)).await?;
                whole.length().filter(|_| whole.status == 200)
            }
            206 => response.part().map(|(.., size)| size),
            416 => response.size_beside_range(),
            _ => response.length(),
        };
        if response.status == 200
            && size.is_none()
            && self.response_kind(key, &response).await? == ResponseKind::There
        {
            // The length is known only after the body.
            let tag = self.counting_tag(&response);
            let read = self.endpoint.read_body(key, response, MAX_WHOLE_OBJECT);
            return Ok((ProbeResult::Object(read.await?.meta), tag));
        }
        let found = self.found(key, &response, size).await?;
        Ok((found, self.counting_tag(&response)))
    }

    /// Converts a response to the result of a lookup; an object has `size` bytes.
    async fn found(
        &self,
        key: &Key,
        response: &ResponseHead,
        size: Option<u64>,
    ) -> Result<ProbeResult> {
        match (self.response_kind(key, response).await?, size) {
            (ResponseKind::There | ResponseKind::OutOfRange, Some(size)) => {
                let validators = response.validators();
                Ok(ProbeResult::Object(
                    self.endpoint.meta(key, validators, size).await,
                ))
            }
            (ResponseKind::There | ResponseKind::OutOfRange, None) => {
                let text = "the server does not say how long it is";
                Err(Error::unavailable(key, text))
            }
            (ResponseKind::Folder, _) => Ok(ProbeResult::Folder),
            (ResponseKind::Missing, _) => Ok(ProbeResult::Missing),
            (ResponseKind::Page, _) => Ok(ProbeResult::Missing),
        }
    }
}
