//! Changes objects on a web server with PUT, DELETE and MKCOL (WebDAV, RFC 4918).
//!
//! If-Match and If-None-Match are sent to servers that enforce them. For other servers, the condition is checked just
//! before the change. Only 201 and 204 prove a put. Another success may come from a redirect, and is accepted if the
//! object exists. DELETE removes a directory with its contents, so it is sent only for a key that was an object, or an
//! empty directory, just before.

use std::sync::Arc;
use std::time::Duration;

use object_store::PutPayload;

use super::HttpReader;
use super::ListingMethod;
use super::endpoint::RequestSpec;
use super::object_client::{LookupResult, ObjectClient};
use super::response::ResponseHead;
use crate::backend::is_a_directory;
use crate::backend::remote::probes::{
    ConditionProbe, ConditionTrial, EnforcedConditions, UNUSED_ETAG, trial_key,
};
use crate::backend::remote::retry::{self, ConditionalPut, RemoteKey};
use crate::request_context::{RequestContext, UNLIMITED};
use crate::{Condition, ETag, Key, Meta, PutBody, Reader};
use zarr_format::error::{Error, Kind, Result};

/// Maximum length, in bytes, of an object that is put, because it is sent from memory in one request.
const MAX_PUT: u64 = 2 << 30;

const TAKES_NO_CHANGES: &str = "the server is read-only; only WebDAV servers accept changes";

type RequestHeader = (&'static str, String);

/// Returns the header for the condition of a put or removal, or `None` if there is no condition or no header can
/// express it.
fn header(condition: &Condition) -> Option<RequestHeader> {
    match condition {
        Condition::Any | Condition::Version(_) => None,
        Condition::Absent => Some(("if-none-match", "*".to_string())),
        // A weak ETag never matches in If-Match (RFC 9110), so it is not sent.
        Condition::Match(text) if text.starts_with('"') => Some(("if-match", text.clone())),
        Condition::Match(_) => None,
    }
}

/// A put or removal of a key that can be retried.
struct KeyChange<'a> {
    writer: &'a HttpWriter,
    key: &'a Key,
}

impl RemoteKey for KeyChange<'_> {
    fn key(&self) -> &Key {
        self.key
    }

    fn limit(&self) -> Duration {
        self.writer.objects.endpoint.limits.time
    }

    fn probe(&self) -> Result<Option<(ETag, Meta)>> {
        self.writer
            .objects
            .endpoint
            .wait(&UNLIMITED, self.key, self.writer.etag_and_meta(self.key))
    }

    fn reader(&self, meta: &Meta) -> Arc<dyn Reader> {
        let (endpoint, key) = (self.writer.objects.endpoint.clone(), self.key.clone());
        Arc::new(HttpReader::new(endpoint, key, *meta))
    }
}

pub(super) struct HttpWriter {
    objects: Arc<ObjectClient>,
    /// Finds out by a trial whether the server enforces conditions.
    conditions: ConditionProbe,
}

impl HttpWriter {
    pub(super) fn new(objects: Arc<ObjectClient>) -> HttpWriter {
        HttpWriter {
            objects,
            conditions: ConditionProbe::default(),
        }
    }

    /// Returns the ETag of an object as the server spells it, or a text of its time and size if it has no usable ETag.
    /// Returns `None` if the object is missing.
    pub(super) fn etag(&self, context: &RequestContext, key: &Key) -> Result<Option<ETag>> {
        if key.is_root() {
            return Ok(None);
        }
        let current = self
            .objects
            .endpoint
            .wait(context, key, self.etag_and_meta(key))?;
        Ok(current.map(|(etag, _)| etag))
    }

    async fn etag_and_meta(&self, key: &Key) -> Result<Option<(ETag, Meta)>> {
        let (result, tag) = self.objects.probe_object_with_tag(key).await?;
        let LookupResult::Object(meta) = result else {
            return Ok(None);
        };
        let since = meta.modified.duration_since(std::time::UNIX_EPOCH);
        let (seconds, size) = (since.unwrap_or_default().as_secs(), meta.size);
        let etag = ETag {
            text: tag.unwrap_or_else(|| format!("modified {seconds}, size {size}")),
            version: meta.version,
        };
        Ok(Some((etag, meta)))
    }

    /// Puts an object if the condition on the old object holds.
    pub(super) fn put(
        &self,
        context: &RequestContext,
        key: &Key,
        body: PutBody<'_>,
        condition: &Condition,
    ) -> Result<ETag> {
        if key.is_root() {
            return Err(is_a_directory(key));
        }
        if body.len() > MAX_PUT {
            let why = format!(
                "{} bytes exceed the limit of {MAX_PUT} for uploads over HTTP",
                body.len()
            );
            return Err(Error::too_large(key, why));
        }
        let _reservation = self.objects.endpoint.limits.uploads.reserve(body.len());
        let payload = PutPayload::from(body.read().map_err(|error| error.about(key))?);
        // If it is unknown whether the server enforces conditions, the condition is checked first and sent too.
        let enforced = match condition {
            Condition::Any => None,
            _ => self
                .enforced_conditions(context)
                .ok()
                .map(|enforced| enforced.puts),
        };
        let header = header(condition).filter(|_| enforced != Some(false));
        let checks_first =
            *condition != Condition::Any && (enforced != Some(true) || header.is_none());
        let put = ConditionalPut {
            target: &KeyChange { writer: self, key },
            body,
            condition,
            checks_first,
        };
        retry::put(context, &put, |_| {
            self.send(context, key, &payload, body, header.as_ref())
        })
    }

    /// Sends a PUT request. If directories above the key are missing, creates them and sends the request again.
    fn send(
        &self,
        context: &RequestContext,
        key: &Key,
        payload: &PutPayload,
        body: PutBody<'_>,
        header: Option<&RequestHeader>,
    ) -> Result<ETag> {
        let put = || {
            let spec = RequestSpec {
                method: http::Method::PUT,
                header: header.cloned(),
                payload: Some(payload.clone()),
                once: true,
                ..RequestSpec::get(key)
            };
            self.objects.endpoint.change(key, &spec)
        };
        let mut response = put()?;
        if matches!(response.status, 404 | 409) {
            self.make_folder(&key.parent().unwrap_or_default())?;
            response = put()?;
        }
        let is_put = match response.status {
            201 | 204 => true,
            200..=299 => false,
            405 if self.is_folder(key)? => {
                return Err(is_a_directory(key));
            }
            _ => return Err(self.change_refusal(key, &response)),
        };
        let change = KeyChange { writer: self, key };
        match change.probe()? {
            Some((etag, _)) if is_put => Ok(etag),
            Some((etag, meta)) if retry::has_content(context, &change, &meta, body)? => Ok(etag),
            _ => Err(self.ignored(key, response.status, "but did not store the object")),
        }
    }

    pub(super) fn is_folder(&self, key: &Key) -> Result<bool> {
        if self.objects.listing_method != ListingMethod::WebDav {
            return Ok(false);
        }
        let resource = self
            .objects
            .endpoint
            .wait(&UNLIMITED, key, self.objects.resource(key))?;
        Ok(resource.is_some_and(|resource| resource.is_folder))
    }

    /// Creates a WebDAV directory and the missing directories above it.
    fn make_folder(&self, key: &Key) -> Result<()> {
        if key.is_root() {
            return Ok(());
        }
        let make = || -> Result<ResponseHead> {
            let spec = RequestSpec {
                // MKCOL is a valid method name, so the fallback is never used.
                method: http::Method::from_bytes(b"MKCOL").unwrap_or(http::Method::OPTIONS),
                as_folder: true,
                ..RequestSpec::get(key)
            };
            self.objects.endpoint.change(key, &spec)
        };
        let mut response = make()?;
        if matches!(response.status, 404 | 409) {
            self.make_folder(&key.parent().unwrap_or_default())?;
            response = make()?;
        }
        match response.status {
            // MKCOL has the status 405 if the directory already exists.
            200..=299 | 405 => Ok(()),
            _ => Err(self.change_refusal(key, &response)),
        }
    }

    /// Returns the error for a put or removal that the server refused. On a WebDAV server, 404 means a race with
    /// another program. A plain file server, such as Caddy, may send 404 for every method that it does not support.
    fn change_refusal(&self, key: &Key, response: &ResponseHead) -> Error {
        let status = response.status;
        if status == 404 && self.objects.listing_method != ListingMethod::WebDav {
            return Error::new(Kind::ReadOnly, key, format!("{TAKES_NO_CHANGES} (404)"));
        }
        let (kind, why) = match status {
            405 | 501 => (Kind::ReadOnly, TAKES_NO_CHANGES),
            401 | 403 | 407 => (Kind::Denied, "the server refused the change"),
            413 => (Kind::TooLarge, "the object is too large for the server"),
            423 => (Kind::Unavailable, "another client has locked the object"),
            409 => (
                Kind::NotADirectory,
                "the server cannot create the parent directory",
            ),
            507 => (Kind::NoSpace, "the server is out of space"),
            _ => return response.refusal(key),
        };
        let detail = format!("{why} ({status})");
        match status {
            401 | 403 => Error::new(kind, key, response.with_login_hint(&detail)),
            _ => Error::new(kind, key, detail),
        }
    }

    /// Removes an object if the condition on it holds. The condition is always checked just before the request.
    pub(super) fn erase(
        &self,
        context: &RequestContext,
        key: &Key,
        condition: &Condition,
    ) -> Result<()> {
        if key.is_root() {
            return condition.check(key, None);
        }
        let header = header(condition).filter(|_| {
            let enforced = self.enforced_conditions(context);
            matches!(condition, Condition::Match(_))
                && enforced.is_ok_and(|enforced| enforced.removals)
        });
        retry::erase(&KeyChange { writer: self, key }, condition, true, || {
            self.delete(key, false, header.clone())
        })
    }

    /// Sends a DELETE request for an object or directory. The error is `NotFound` if the server says that it is
    /// missing.
    fn delete(&self, key: &Key, as_folder: bool, header: Option<RequestHeader>) -> Result<()> {
        let spec = RequestSpec {
            method: http::Method::DELETE,
            as_folder,
            header,
            once: true,
            ..RequestSpec::get(key)
        };
        let response = self.objects.endpoint.change(key, &spec)?;
        let exists = || {
            if as_folder {
                return self.is_folder(key);
            }
            Ok(self.etag(&UNLIMITED, key)?.is_some())
        };
        match response.status {
            204 => Ok(()),
            // On a WebDAV server the object was missing at the time of the request, even if another program has put it
            // again since.
            404 | 410 if self.objects.listing_method == ListingMethod::WebDav || !exists()? => {
                Err(Error::not_found(key))
            }
            // A success other than 204 proves no removal: a server that removed the object may send it, but so may a
            // server that only followed a redirect.
            200..=299 if exists()? => {
                Err(self.ignored(key, response.status, "but still has the object"))
            }
            200..=299 => Ok(()),
            _ => Err(self.change_refusal(key, &response)),
        }
    }

    /// Returns the error for a change that the server reported as done although it had no effect. On a WebDAV server a
    /// retry may succeed. Other servers respond so because they treat every method as GET.
    fn ignored(&self, key: &Key, status: u16, effect: &str) -> Error {
        let kind = match self.objects.listing_method {
            ListingMethod::WebDav => Kind::Unavailable,
            _ => Kind::ReadOnly,
        };
        Error::new(kind, key, format!("the server answered {status}, {effect}"))
    }

    /// Removes a WebDAV folder with all its contents.
    pub(super) fn erase_folder(&self, prefix: &Key) -> Result<()> {
        match self.delete(prefix, true, None) {
            Err(error) if error.kind() == Kind::NotFound => Ok(()),
            done => done,
        }
    }

    /// Returns whether the server enforces the conditions of puts and of removals. The first call finds out by a trial.
    fn enforced_conditions(&self, context: &RequestContext) -> Result<EnforcedConditions> {
        let key = &trial_key()?;
        self.conditions
            .get_or_run(context, &KeyChange { writer: self, key })
    }
}

impl ConditionTrial for KeyChange<'_> {
    fn put(
        &self,
        context: &RequestContext,
        bytes: &'static [u8],
        condition: &Condition,
    ) -> Result<ETag> {
        let header = expressed(self.key, condition)?;
        let (payload, body) = (PutPayload::from_static(bytes), PutBody::Bytes(bytes));
        self.writer
            .send(context, self.key, &payload, body, header.as_ref())
    }

    fn remove(&self, condition: &Condition) -> Result<()> {
        let header = expressed(self.key, condition)?;
        self.writer.delete(self.key, false, header)
    }

    fn unused_etag(&self) -> String {
        UNUSED_ETAG.to_string()
    }
}

/// Returns the header for a condition, or `None` if there is no condition. The error is `Unsupported` if no header can
/// express the condition.
fn expressed(key: &Key, condition: &Condition) -> Result<Option<RequestHeader>> {
    match (condition, header(condition)) {
        (Condition::Absent | Condition::Match(_), None) => {
            let why = "the server cannot check the condition of this change";
            Err(Error::unsupported(key, why))
        }
        (_, header) => Ok(header),
    }
}
