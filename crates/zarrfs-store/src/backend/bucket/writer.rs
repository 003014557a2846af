//! Puts and removes objects in a bucket.
//!
//! Conditions are sent to servers that enforce them. For other servers, and at the end of a multipart upload, the
//! condition is checked just before the change. zarrfs retries failed changes itself, since object_store retries only
//! puts without a condition.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::header::IF_MATCH;
use http::{HeaderName, HeaderValue, Method};
use object_store::azure::{AzureAuthorizer, AzureCredentialProvider};
use object_store::client::{HttpClient, HttpConnector, HttpRequest, HttpRequestBody};
use object_store::path::Path;
use object_store::{
    ClientOptions, ObjectMeta, ObjectStoreExt, PutMode, PutPayload, PutResult, UpdateVersion,
};
use url::Url;

use super::BucketReader;
use super::address::CloudKind;
use super::client::{Client, describe, version};
use super::settings::{self, ClientSettings, CloudHandles};
use super::upload::MultipartUpload;
use crate::backend::is_a_directory;
use crate::backend::remote::connector::{Connector, with_removal_header};
use crate::backend::remote::headers::opaque_tag;
use crate::backend::remote::probes::{
    ConditionProbe, ConditionTrial, EnforcedConditions, UNUSED_ETAG, trial_key,
};
use crate::backend::remote::retry::{self, ConditionalPut, RemoteKey};
use crate::request_context::{RequestContext, UNLIMITED};
use crate::{Condition, ETag, EntryKind, Key, Meta, PutBody, Reader, Version};
use zarr_format::error::{Error, Kind, Result};

/// The name and value of the header of a conditional request.
type ConditionHeader = (HeaderName, HeaderValue);

/// Separates an ETag from Google's generation number in the text of a version.
const GENERATION: &str = " generation ";

/// The object of a put or removal: its key, and its path in the bucket.
pub(super) struct ObjectTarget<'a> {
    pub(super) key: &'a Key,
    pub(super) path: Path,
}

impl<'a> ObjectTarget<'a> {
    /// Returns the object of a put or removal. The error is `Invalid` or `IsADirectory` if no object can have the key.
    pub(super) fn of(client: &Client, key: &'a Key) -> Result<ObjectTarget<'a>> {
        if key.is_root() {
            return Err(is_a_directory(key));
        }
        let why = "a bucket cannot store this key, which is not UTF-8 or has a control character";
        let path = client.path(key).ok_or_else(|| Error::invalid(key, why))?;
        Ok(ObjectTarget { key, path })
    }
}

/// Builds the writer of a bucket for the first put or removal.
pub(super) struct LazyWriter {
    settings: ClientSettings,
    built: OnceLock<Result<Writer>>,
}

impl LazyWriter {
    pub(super) fn new(settings: ClientSettings) -> LazyWriter {
        LazyWriter {
            settings,
            built: OnceLock::new(),
        }
    }

    pub(super) fn kind(&self) -> CloudKind {
        self.settings.address.kind
    }

    /// Returns the bucket's writer. The first call builds it, with `client` for reads.
    pub(super) fn get(&self, client: &Arc<Client>) -> Result<&Writer> {
        let built = self.built.get_or_init(|| {
            let never = settings::retries(0, self.settings.config.timeout);
            Ok(Writer {
                client: client.clone(),
                once: self.settings.connect(never)?,
                kind: self.settings.address.kind,
                conditions: ConditionProbe::default(),
            })
        });
        built.as_ref().map_err(Error::clone)
    }
}

pub(super) struct Writer {
    pub(super) client: Arc<Client>,
    /// Clients that never retry, because zarrfs itself decides which puts and removals to retry.
    pub(super) once: CloudHandles,
    pub(super) kind: CloudKind,
    conditions: ConditionProbe,
}

impl Writer {
    pub(super) fn etag(&self, target: &ObjectTarget<'_>) -> Result<Option<ETag>> {
        let current = self.client.head(&UNLIMITED, target.key)?;
        Ok(current.map(|meta| etag_of(self.kind, &meta)))
    }

    /// Returns the ETag from the response to a put. If the response has none, a HEAD request asks for it.
    pub(super) fn etag_of_response(
        &self,
        target: &ObjectTarget<'_>,
        response: &PutResult,
    ) -> Result<ETag> {
        let (tag, version) = (response.e_tag.as_deref(), response.version.as_deref());
        let name = tag.and_then(opaque_tag);
        match (name, etag_text(self.kind, tag, version)) {
            (Some(name), Some(text)) => Ok(ETag {
                text,
                version: Version::of(name.as_bytes()),
            }),
            _ => self.etag(target)?.ok_or_else(|| {
                Error::new(
                    Kind::Changed,
                    target.key,
                    "another program removed the object right after the upload",
                )
            }),
        }
    }

    /// Puts an object if the condition on the old object holds.
    pub(super) fn put(
        &self,
        context: &RequestContext,
        target: &ObjectTarget<'_>,
        body: PutBody<'_>,
        condition: &Condition,
    ) -> Result<ETag> {
        // An object of more than 16 MiB is uploaded in parts.
        if body.len() > 16 << 20 {
            return MultipartUpload::put(context, self, target, body, condition);
        }
        let _reservation = self.client.limits.uploads.reserve(body.len());
        let bytes = body.read().map_err(|error| error.about(target.key))?;
        let payload = PutPayload::from(bytes);
        if *condition == Condition::Any {
            let attempt = |_| {
                let request = self.client.cloud.objects.put(&target.path, payload.clone());
                let response = self.client.send(target.key, request)?;
                self.etag_of_response(target, &response)
            };
            let put = ConditionalPut {
                target: &self.change(target),
                body,
                condition,
                checks_first: false,
            };
            return retry::put(context, &put, attempt);
        }
        self.put_if(context, target, body, payload, condition)
    }

    /// Puts an object under a condition. If the server does not enforce the condition, it is checked just before the
    /// put.
    fn put_if(
        &self,
        context: &RequestContext,
        target: &ObjectTarget<'_>,
        body: PutBody<'_>,
        payload: PutPayload,
        condition: &Condition,
    ) -> Result<ETag> {
        // If it is unknown whether the server enforces conditions, the condition is checked first and sent too.
        let enforced = self
            .enforced_conditions(context)
            .ok()
            .map(|enforced| enforced.puts);
        let mode = put_mode(self.kind, condition).filter(|_| enforced != Some(false));
        let checks_first = enforced != Some(true) || mode.is_none();
        let mode = mode.unwrap_or(PutMode::Overwrite);
        let attempt = |asks| {
            let objects = &self.once.objects;
            let mode = if asks {
                mode.clone()
            } else {
                PutMode::Overwrite
            };
            let request = objects.put_opts(&target.path, payload.clone(), mode.into());
            let response = self.client.send(target.key, request)?;
            self.etag_of_response(target, &response)
        };
        let put = ConditionalPut {
            target: &self.change(target),
            body,
            condition,
            checks_first,
        };
        retry::put(context, &put, attempt)
    }

    /// Removes an object if the condition on it holds.
    pub(super) fn erase(
        &self,
        context: &RequestContext,
        target: &ObjectTarget<'_>,
        condition: &Condition,
    ) -> Result<()> {
        let header = self.removal_header(condition);
        // If it is unknown whether the server enforces conditions, the condition is checked first and sent too.
        let enforced = match &header {
            Some(_) => self
                .enforced_conditions(context)
                .ok()
                .map(|enforced| enforced.removals),
            None => Some(false),
        };
        let header = header.filter(|_| enforced != Some(false));
        let checks_first = *condition != Condition::Any && enforced != Some(true);
        retry::erase(&self.change(target), condition, checks_first, || {
            self.delete(target, header.clone())
        })
    }

    /// Returns the header for a conditional removal, or `None` if the request cannot express the condition.
    fn removal_header(&self, condition: &Condition) -> Option<ConditionHeader> {
        let is_possible = self.kind != CloudKind::Azure || self.once.azure.is_some();
        removal_header(self.kind, condition).filter(|_| is_possible)
    }

    /// Returns whether the server enforces the conditions of puts and of removals. The first call finds out by a trial.
    pub(super) fn enforced_conditions(
        &self,
        context: &RequestContext,
    ) -> Result<EnforcedConditions> {
        let key = trial_key()?;
        let trial = BucketTrial {
            writer: self,
            target: ObjectTarget::of(&self.client, &key)?,
        };
        self.conditions.get_or_run(context, &trial)
    }

    /// Sends one request to remove an object, without retries.
    fn delete(&self, target: &ObjectTarget<'_>, header: Option<ConditionHeader>) -> Result<()> {
        let removal = self.once.objects.delete(&target.path);
        match (header, &self.once.azure) {
            (header, Some(azure)) => {
                let etag = header.map(|(_, etag)| etag);
                self.client
                    .change(target.key, azure.delete(&target.path, etag))
            }
            (None, None) => self.client.change(target.key, removal),
            (Some(header), None) => {
                let removal = with_removal_header(header, removal);
                self.client.change(target.key, removal)
            }
        }
    }

    pub(super) fn change<'a>(&'a self, target: &'a ObjectTarget<'a>) -> ObjectChange<'a> {
        ObjectChange {
            writer: self,
            target,
        }
    }
}

/// Returns the ETag of an object, or a text of its time and size if the metadata has no usable ETag.
pub(super) fn etag_of(kind: CloudKind, meta: &ObjectMeta) -> ETag {
    let tagged = etag_text(kind, meta.e_tag.as_deref(), meta.version.as_deref());
    let (seconds, size) = (meta.last_modified.timestamp(), meta.size);
    ETag {
        text: tagged.unwrap_or_else(|| format!("modified {seconds}, size {size}")),
        version: version(meta),
    }
}

/// A put or removal that can be retried.
pub(super) struct ObjectChange<'a> {
    writer: &'a Writer,
    target: &'a ObjectTarget<'a>,
}

impl RemoteKey for ObjectChange<'_> {
    fn key(&self) -> &Key {
        self.target.key
    }

    fn limit(&self) -> Duration {
        self.writer.client.limits.time
    }

    fn probe(&self) -> Result<Option<(ETag, Meta)>> {
        let current = self.writer.client.head(&UNLIMITED, self.target.key)?;
        Ok(current.map(|current| {
            let etag = etag_of(self.writer.kind, &current);
            (etag, describe(&current, EntryKind::File))
        }))
    }

    fn reader(&self, meta: &Meta) -> Arc<dyn Reader> {
        Arc::new(BucketReader {
            client: self.writer.client.clone(),
            key: self.target.key.clone(),
            meta: *meta,
        })
    }
}

/// The trial object by which zarrfs finds out which conditions the server enforces.
struct BucketTrial<'a> {
    writer: &'a Writer,
    target: ObjectTarget<'a>,
}

impl BucketTrial<'_> {
    fn inexpressible(&self) -> Error {
        Error::unsupported(
            self.target.key,
            "the server cannot check the condition of this change",
        )
    }
}

impl ConditionTrial for BucketTrial<'_> {
    fn put(
        &self,
        _context: &RequestContext,
        bytes: &'static [u8],
        condition: &Condition,
    ) -> Result<ETag> {
        let (writer, target) = (self.writer, &self.target);
        let mode = put_mode(writer.kind, condition);
        let mode = mode.ok_or_else(|| self.inexpressible())?;
        let objects = &writer.once.objects;
        let request = objects.put_opts(&target.path, bytes.into(), mode.into());
        let response = writer.client.change(target.key, request)?;
        writer.etag_of_response(target, &response)
    }

    fn remove(&self, condition: &Condition) -> Result<()> {
        let header = self.writer.removal_header(condition);
        if header.is_none() && *condition != Condition::Any {
            return Err(self.inexpressible());
        }
        self.writer.delete(&self.target, header)
    }

    fn unused_etag(&self) -> String {
        unused_etag(self.writer.kind)
    }
}

/// Returns the version text for conditional requests, from an ETag and, for Google, a generation number. Returns `None`
/// if either is missing or unusable.
fn etag_text(kind: CloudKind, tag: Option<&str>, generation: Option<&str>) -> Option<String> {
    let tag = tag.filter(|tag| opaque_tag(tag).is_some())?;
    // Some servers quote the ETag in one response and not in the next.
    let tag = if tag.ends_with('"') {
        tag.to_string()
    } else {
        format!("\"{tag}\"")
    };
    match (kind, generation) {
        (CloudKind::Google, Some(generation)) => Some(tag + GENERATION + generation),
        (CloudKind::Google, None) => None,
        _ => Some(tag),
    }
}

/// Parses the version text of a condition, or returns `None` if a request cannot express it.
fn update_version(kind: CloudKind, text: &str) -> Option<UpdateVersion> {
    let (tag, version) = match text.split_once(GENERATION) {
        Some((tag, version)) => (tag, Some(version.to_string())),
        None => (text, None),
    };
    let can = tag.ends_with('"') && version.is_some() == (kind == CloudKind::Google);
    can.then(|| UpdateVersion {
        e_tag: Some(tag.to_string()),
        version,
    })
}

/// Returns object_store's put mode for a condition, or `None` if a request cannot express the condition.
fn put_mode(kind: CloudKind, condition: &Condition) -> Option<PutMode> {
    match condition {
        Condition::Any | Condition::Version(_) => None,
        Condition::Absent => Some(PutMode::Create),
        Condition::Match(text) => update_version(kind, text).map(PutMode::Update),
    }
}

/// Returns the header for a conditional removal, or `None` if there is no condition or no header can express it.
fn removal_header(kind: CloudKind, condition: &Condition) -> Option<ConditionHeader> {
    let Condition::Match(text) = condition else {
        return None;
    };
    let UpdateVersion { e_tag, version } = update_version(kind, text)?;
    let (name, value) = match kind {
        CloudKind::S3 | CloudKind::Azure => (IF_MATCH, e_tag),
        CloudKind::Google => (
            HeaderName::from_static("x-goog-if-generation-match"),
            version,
        ),
    };
    Some((name, HeaderValue::from_str(&value?).ok()?))
}

/// Returns a version text that no object has, for requests that must fail.
fn unused_etag(kind: CloudKind) -> String {
    match kind {
        CloudKind::Google => format!("{UNUSED_ETAG}{GENERATION}{}", i64::MAX),
        CloudKind::S3 | CloudKind::Azure => UNUSED_ETAG.to_string(),
    }
}

/// Removes single blobs from an Azure container. object_store removes blobs only in batches, which have no conditions
/// and whose errors are not returned.
pub(super) struct AzureContainer {
    pub(super) url: Url,
    pub(super) account: String,
    pub(super) credentials: AzureCredentialProvider,
    pub(super) connector: Connector,
    pub(super) settings: ClientOptions,
    /// The HTTP client, built for the first removal.
    pub(super) http: OnceLock<HttpClient>,
}

impl AzureContainer {
    /// Removes an Azure blob; with `etag`, only if the blob has that ETag. Errors are `Generic`; the status of the last
    /// response says why the request failed.
    pub(super) async fn delete(
        &self,
        path: &Path,
        etag: Option<HeaderValue>,
    ) -> object_store::Result<()> {
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.method_mut() = Method::DELETE;
        *request.uri_mut() = self.blob(path)?;
        if let Some(etag) = etag {
            request.headers_mut().insert(IF_MATCH, etag);
        }
        let credential = self.credentials.get_credential().await?;
        AzureAuthorizer::new(&credential, &self.account).try_authorize(&mut request)?;
        let response = self.http()?.execute(request).await.map_err(failed)?;
        match response.status() {
            status if status.is_success() => Ok(()),
            status => Err(failed(format!("status {}", status.as_u16()))),
        }
    }

    fn http(&self) -> object_store::Result<&HttpClient> {
        if let Some(http) = self.http.get() {
            return Ok(http);
        }
        let http = self.connector.connect(&self.settings)?;
        Ok(self.http.get_or_init(|| http))
    }

    fn blob(&self, path: &Path) -> object_store::Result<http::Uri> {
        let mut url = self.url.clone();
        match url.path_segments_mut() {
            Ok(mut segments) => segments.extend(path.parts()),
            Err(()) => return Err(failed("the URL is not the URL of a container")),
        };
        url.as_str().parse().map_err(failed)
    }
}

fn failed(
    source: impl Into<Box<dyn std::error::Error + Send + Sync + 'static>>,
) -> object_store::Error {
    object_store::Error::Generic {
        store: "MicrosoftAzure",
        source: source.into(),
    }
}
