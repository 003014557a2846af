//! Sends blocking requests to one bucket or container, limited in number and time.
//!
//! Every request of a store goes through `Client`, so that the number of concurrent requests, their time limits and
//! their error messages are decided in one place. A whole body has no time limit, but the wait for each piece of it has
//! one.

use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::join;
use object_store::path::Path;
use object_store::{Attribute, GetOptions, GetRange, GetResult, ObjectMeta};

use super::settings::CloudHandles;
use crate::backend::remote::errors;
use crate::backend::remote::headers;
use crate::backend::remote::headers::opaque_tag;
use crate::backend::remote::limits::{Purpose, RequestLimits};
use crate::backend::remote::probes::RefusalProbe;
use crate::backend::remote::runtime::{
    LastResponse, last_status, record_bytes, spawn_and_wait, wait, wait_for_change,
    with_last_response,
};
use crate::backend::too_long;
use crate::request_context::RequestContext;
use crate::{EntryKind, Key, Meta, Object, Version};
use zarr_format::buffer;
use zarr_format::error::{Error, Kind, Result};

/// An object_store client for one bucket, and the limits of its requests.
pub(super) struct Client {
    pub(super) cloud: CloudHandles,
    pub(super) limits: RequestLimits,
    /// The bucket's region, if the settings give one.
    pub(super) region: Option<String>,
    /// Whether the server supports range requests for the last N bytes of an object.
    pub(super) suffixes: bool,
    /// The prefix of the store in the bucket, without a slash at either end.
    pub(super) prefix: String,
    /// Decides whether a key whose request was refused (403) is a missing key. `None` if the server permits listing.
    pub(super) refusals: Option<RefusalProbe>,
}

struct ResponseBody {
    bytes: Vec<u8>,
    meta: ObjectMeta,
}

impl Client {
    /// Returns the name of an object in the bucket, or `None` if the key is not a valid name.
    pub(super) fn name(&self, key: &Key) -> Option<String> {
        if key.is_root() {
            return Some(self.prefix.clone());
        }
        let key = str::from_utf8(key.as_bytes()).ok()?;
        Some(match self.prefix.as_str() {
            "" => key.to_string(),
            prefix => format!("{prefix}/{key}"),
        })
    }

    /// Returns the prefix of the names of all objects below a key.
    pub(super) fn prefix_below(&self, key: &Key) -> String {
        let name = self.name(key).unwrap_or_default();
        if name.is_empty() { name } else { name + "/" }
    }

    /// Returns the object_store path of a key's object, or `None` if no object can have the key.
    pub(super) fn path(&self, key: &Key) -> Option<Path> {
        let name = self.name(key).filter(|_| !key.is_root())?;
        Path::parse(name).ok()
    }

    /// Returns the result of a lookup, or `None` if the key is missing. Some servers refuse requests for missing keys
    /// (403) instead of answering 404.
    fn or_missing<T>(
        &self,
        context: &RequestContext,
        answer: Result<Option<T>>,
    ) -> Result<Option<T>> {
        let (error, refusals) = match (answer, &self.refusals) {
            (Err(error), Some(refusals)) if error.kind() == Kind::Denied => (error, refusals),
            (answer, _) => return answer,
        };
        let is_missing = refusals.is_missing(async |key: &Key| self.exists(key).await);
        let is_missing = self.limits.with_permit(Purpose::Metadata, is_missing);
        match wait(context, self.limits.time, is_missing)? {
            (Some(Some(Ok(true))), _) => Ok(None),
            _ => Err(error),
        }
    }

    /// Returns whether an object exists. Sends a HEAD request without a permit, since the caller's request holds one.
    async fn exists(&self, key: &Key) -> Result<bool> {
        let Some(path) = self.path(key) else {
            return Ok(false);
        };
        let (answer, last) = with_last_response(self.object_head(&path)).await;
        match answer.map_err(|error| errors::request_error(&error, &last, key)) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == Kind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Runs a read request and waits for its response. Errors name `subject`, for example the key.
    pub(super) fn request<T>(
        &self,
        context: &RequestContext,
        subject: &dyn Display,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T> {
        let request = self.limits.with_permit(Purpose::Metadata, request);
        let (done, last) = wait(context, self.limits.time, request)?;
        self.to_result(subject, done.flatten(), &last, false)
    }

    /// Runs a put or removal and waits for its response. Errors name `subject`, for example the key.
    pub(super) fn change<T>(
        &self,
        subject: &dyn Display,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T> {
        let (done, last) =
            wait_for_change(self.limits.time, self.limits.change_with_permit(request))?;
        self.to_result(subject, done, &last, true)
    }

    /// Runs a request that uploads a body and waits for its response. Errors name `subject`, for example the key.
    pub(super) fn send<T>(
        &self,
        subject: &dyn Display,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T> {
        let request = self.limits.change_with_permit(request);
        let request = self.limits.within_send_time(request);
        let (done, last) = wait_for_change(self.limits.body_time_limit(), request)?;
        self.to_result(subject, done.flatten(), &last, true)
    }

    /// Runs two read requests concurrently and waits for both responses. Errors name `subject`, for example the key.
    pub(super) fn request_both<A, B>(
        &self,
        context: &RequestContext,
        subject: &dyn Display,
        one: impl Future<Output = object_store::Result<A>>,
        other: impl Future<Output = object_store::Result<B>>,
    ) -> Result<(Result<A>, Result<B>)> {
        let both = join(
            with_last_response(self.limits.with_permit(Purpose::Metadata, one)),
            with_last_response(self.limits.with_permit(Purpose::Metadata, other)),
        );
        let (done, _) = wait(context, self.limits.time, both)?;
        let Some(((one, last_of_one), (other, last_of_other))) = done else {
            return Err(self.limits.timeout_error(subject));
        };
        Ok((
            self.to_result(subject, one, &last_of_one, false),
            self.to_result(subject, other, &last_of_other, false),
        ))
    }

    fn to_result<T>(
        &self,
        subject: &dyn Display,
        done: Option<object_store::Result<T>>,
        last: &LastResponse,
        is_change: bool,
    ) -> Result<T> {
        match done {
            Some(response) => {
                response.map_err(|error| self.error(&error, last, subject, is_change))
            }
            None => Err(self.limits.timeout_error(subject)),
        }
    }

    /// Converts an error of object_store to one of zarrfs; `is_change` is true for a put or a removal. The message
    /// names the bucket's region only if the region differs from the one in the settings.
    fn error(
        &self,
        fault: &object_store::Error,
        last: &LastResponse,
        subject: &dyn Display,
        is_change: bool,
    ) -> Error {
        let mut last = last.clone();
        if last.region == self.region {
            last.region = None;
        }
        let error = errors::request_error(fault, &last, subject);
        match &self.cloud.access {
            Some(access) if error.kind() == Kind::Denied => {
                let hint = access.hint(error.detail(), is_change);
                let why = format!("{}; {hint}", error.detail());
                Error::new(Kind::Denied, subject, why)
            }
            _ => error,
        }
    }

    /// Requests the metadata of an object, or returns `None` if it is missing.
    pub(super) fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<ObjectMeta>> {
        let Some(path) = self.path(key) else {
            return Ok(None);
        };
        let answer = match self.request(context, key, self.object_head(&path)) {
            Ok(response) => Ok(Some(response.meta)),
            Err(error) if error.kind() == Kind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
        self.or_missing(context, answer)
    }

    /// Requests the metadata of an object. The response to a HEAD has no body to explain a refusal, so after status 400
    /// one byte is requested.
    pub(super) async fn object_head(&self, path: &Path) -> object_store::Result<GetResult> {
        let head = GetOptions::new().with_head(true);
        match self.cloud.objects.get_opts(path, head).await {
            Err(error) if last_status() == Some(400) => {
                let byte = GetOptions::new().with_range(Some(GetRange::Bounded(0..1)));
                Err(self
                    .cloud
                    .objects
                    .get_opts(path, byte)
                    .await
                    .err()
                    .unwrap_or(error))
            }
            answer => answer,
        }
    }

    /// Fetches an object or a range of it, or returns `None` if it is missing. The error is `TooLarge` if the response
    /// has more than `limit` bytes.
    pub(super) fn fetch(
        self: &Arc<Self>,
        context: &RequestContext,
        key: &Key,
        options: GetOptions,
        limit: u64,
    ) -> Result<Option<Object>> {
        let Some(path) = self.path(key) else {
            return Ok(None);
        };
        let client = self.clone();
        let purpose = Purpose::of(path.filename().unwrap_or_default().as_bytes());
        let (done, last) = spawn_and_wait(context, self.limits.body_time_limit(), async move {
            let body = client.collect(&path, options, limit);
            client.limits.with_permit(purpose, body).await
        })?;
        let body = match done.flatten() {
            Some(Ok(body)) => body?,
            Some(Err(fault)) => {
                let error = self.error(&fault, &last, key, false);
                return match error.kind() {
                    Kind::NotFound => Ok(None),
                    _ => self.or_missing(context, Err(error)),
                };
            }
            None => return Err(self.limits.timeout_error(key)),
        };
        Ok(Some(Object {
            size: body.meta.size,
            version: version(&body.meta),
            modified: Some(body.meta.last_modified.into()),
            bytes: body.bytes,
        }))
    }

    /// Requests an object and reads the response's body. The outer error is object_store's; the inner error says why
    /// the body is unusable.
    async fn collect(
        &self,
        path: &Path,
        options: GetOptions,
        limit: u64,
    ) -> object_store::Result<Result<ResponseBody>> {
        let response = self.cloud.objects.get_opts(path, options).await?;
        if let Some(coding) = response.attributes.get(&Attribute::ContentEncoding)
            && let Err(error) = headers::check_content_encoding(coding, path)
        {
            return Ok(Err(error));
        }
        let length = response.range.end - response.range.start;
        if length > limit {
            return Ok(Err(too_long(path, length, limit)));
        }
        let length_here = usize::try_from(length).unwrap_or(usize::MAX);
        let body = drain(response, length_here).await?;
        let received = body.bytes.len() as u64;
        if received == length {
            return Ok(Ok(body));
        }
        let text = format!("the response has {received} bytes instead of {length}");
        Ok(Err(Error::unavailable(path, text)))
    }
}

/// Reads a response body of `length` bytes, and stops if the body is longer.
async fn drain(response: GetResult, length: usize) -> object_store::Result<ResponseBody> {
    let meta = response.meta.clone();
    let mut bytes = buffer::with_capacity(length);
    let mut pieces = response.into_stream();
    while bytes.len() <= length
        && let Some(piece) = pieces.next().await
    {
        let piece = piece?;
        record_bytes(piece.len());
        bytes.extend_from_slice(&piece);
    }
    Ok(ResponseBody { bytes, meta })
}

/// Returns the version of an object: a hash of its ETag, or of its size and time if it has no ETag.
pub(super) fn version(meta: &ObjectMeta) -> Version {
    match meta.e_tag.as_deref().and_then(opaque_tag) {
        Some(name) => Version::of(name.as_bytes()),
        None => Version::transient(meta.size, Some(meta.last_modified.into())),
    }
}

pub(super) fn describe(meta: &ObjectMeta, kind: EntryKind) -> Meta {
    Meta {
        kind,
        size: meta.size,
        stored: meta.size,
        modified: meta.last_modified.into(),
        version: version(meta),
    }
}
