//! Puts and removes objects: one request each, several for large ones (`upload`).
//!
//! Conditions are sent to servers that enforce them (`conditions`). For other servers, and at the end of a multipart
//! upload, the key is checked just before the change. `write_retry` retries failed changes. object_store itself retries
//! only puts without a condition.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt, PutMode, PutPayload, PutResult};

use super::client::{Client, describe, version};
use super::conditions::{ConditionHeader, etag_text, put_mode, removal_header, unused_etag};
use super::reader::BucketReader;
use super::refusal::BucketAbsence;
use super::settings::{ClientSettings, Clients};
use super::{BucketStore, address, settings};
use crate::backend::remote::condition_probe::{ConditionProbe, ConditionTrial, EnforcedConditions};
use crate::backend::remote::connector::with_removal_header;
use crate::backend::remote::headers::opaque_tag;
use crate::backend::remote::write_retry;
use crate::backend::remote::write_retry::{ConditionalPut, RemoteKey};
use crate::request_context::{RequestContext, UNLIMITED};
use crate::{Condition, ETag, EntryKind, Key, Meta, PutBody, Reader, Version};
use zarr_format::error::{Error, Kind, Result};

/// Maximum size of an object that is put in one request, in bytes.
const MAX_SINGLE_PUT: u64 = 16 << 20;

/// A key, and its path in the bucket.
pub(super) struct ObjectTarget<'a> {
    pub(super) key: &'a Key,
    pub(super) path: Path,
}

/// The writer of a bucket, built for the first change.
pub(super) struct WriteClients {
    settings: ClientSettings,
    built: OnceLock<Result<Writer>>,
}

impl WriteClients {
    pub(super) fn new(settings: ClientSettings) -> WriteClients {
        WriteClients {
            settings,
            built: OnceLock::new(),
        }
    }

    /// Returns the kind of the bucket.
    pub(super) fn kind(&self) -> address::CloudKind {
        self.settings.address.kind
    }

    /// Returns the writer, built for the first call. `client` reads, `absence` recognizes missing keys, and `trial` is
    /// the target of the condition probe.
    pub(super) fn get(
        &self,
        client: &Arc<Client>,
        absence: &Option<Arc<BucketAbsence>>,
        trial: (Key, Path),
    ) -> Result<&Writer> {
        let built = self.built.get_or_init(|| {
            let never = settings::retries(0, self.settings.config.timeout);
            Ok(Writer {
                client: client.clone(),
                absence: absence.clone(),
                once: self.settings.clients(never)?,
                kind: self.settings.address.kind,
                conditions: ConditionProbe::default(),
                trial,
            })
        });
        built.as_ref().map_err(Error::clone)
    }
}

impl BucketStore {
    /// Returns the target of a change. The error is `Invalid` or `IsADirectory` if no object can have this key.
    pub(super) fn target<'a>(&self, key: &'a Key) -> Result<ObjectTarget<'a>> {
        if key.is_root() {
            return Err(Error::new(Kind::IsADirectory, key, "is a directory"));
        }
        let why = "cannot be a key of a bucket: it is not UTF-8, or has a control character";
        let path = self.path(key).ok_or_else(|| Error::invalid(key, why))?;
        Ok(ObjectTarget { key, path })
    }
}

/// Puts and removes objects.
pub(super) struct Writer {
    pub(super) client: Arc<Client>,
    /// Decides whether a refused key is missing; `None` if names can be listed.
    absence: Option<Arc<BucketAbsence>>,
    /// A client without retries.
    pub(super) once: Clients,
    pub(super) kind: address::CloudKind,
    pub(super) conditions: ConditionProbe,
    /// The object that the condition probe changes.
    pub(super) trial: (Key, Path),
}

impl Writer {
    /// Returns the ETag of an object, or `None` if it is missing.
    pub(super) fn etag(&self, target: &ObjectTarget<'_>) -> Result<Option<ETag>> {
        let found = self.head(target)?;
        Ok(found.map(|meta| etag_of(self.kind, &meta)))
    }

    /// Requests the metadata of an object, or returns `None` if it is missing.
    fn head(&self, target: &ObjectTarget<'_>) -> Result<Option<ObjectMeta>> {
        let found = self.client.head(&UNLIMITED, target.key, &target.path);
        match &self.absence {
            Some(absence) => absence.or_missing(&UNLIMITED, found),
            None => found,
        }
    }

    /// Returns the ETag of an object after a put. It is requested if the response has none.
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
            _ => self
                .etag(target)?
                .ok_or_else(|| Error::new(Kind::Changed, target.key, "was removed once put")),
        }
    }

    /// Puts an object if the condition holds.
    pub(super) fn put(
        &self,
        context: &RequestContext,
        target: &ObjectTarget<'_>,
        body: PutBody<'_>,
        condition: &Condition,
    ) -> Result<ETag> {
        if body.len() > MAX_SINGLE_PUT {
            return self.put_parts(context, target, body, condition);
        }
        let _room = self.client.limits.uploads.reserve(body.len());
        let bytes = body.read().map_err(|error| error.about(target.key))?;
        let payload = PutPayload::from(bytes);
        if *condition == Condition::Any {
            let attempt = |_| {
                let request = self.client.objects.put(&target.path, payload.clone());
                let response = self.client.send(target.key, request)?;
                self.etag_of_response(target, &response)
            };
            let put = ConditionalPut {
                target: &self.change(target),
                body,
                condition,
                checks_first: false,
            };
            return write_retry::put(context, &put, attempt);
        }
        self.put_if(context, target, body, payload, condition)
    }

    /// Puts an object under a condition, which the server enforces or which is checked before.
    fn put_if(
        &self,
        context: &RequestContext,
        target: &ObjectTarget<'_>,
        body: PutBody<'_>,
        payload: PutPayload,
        condition: &Condition,
    ) -> Result<ETag> {
        // If the probe fails, the condition is both sent and checked first.
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
        write_retry::put(context, &put, attempt)
    }

    /// Removes an object if the condition holds.
    pub(super) fn erase(
        &self,
        context: &RequestContext,
        target: &ObjectTarget<'_>,
        condition: &Condition,
    ) -> Result<()> {
        let header = self.removal_header(condition);
        // If the probe fails, the condition is both sent and checked first.
        let enforced = match &header {
            Some(_) => self
                .enforced_conditions(context)
                .ok()
                .map(|enforced| enforced.removals),
            None => Some(false),
        };
        let header = header.filter(|_| enforced != Some(false));
        let checks_first = *condition != Condition::Any && enforced != Some(true);
        write_retry::erase(&self.change(target), condition, checks_first, || {
            self.delete(target, header.clone())
        })
    }

    /// Returns the header for the condition of a removal, or `None` if the request cannot carry it.
    fn removal_header(&self, condition: &Condition) -> Option<ConditionHeader> {
        let is_possible = self.kind != address::CloudKind::Azure || self.once.azure.is_some();
        removal_header(self.kind, condition).filter(|_| is_possible)
    }

    /// Returns which conditions the server enforces.
    pub(super) fn enforced_conditions(
        &self,
        context: &RequestContext,
    ) -> Result<EnforcedConditions> {
        let (key, path) = &self.trial;
        let path = path.clone();
        let trial = BucketTrial {
            writer: self,
            target: ObjectTarget { key, path },
        };
        self.conditions.get_or_run(context, &trial)
    }

    /// Removes an object with one request.
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

/// Returns the ETag of an object from its metadata.
pub(super) fn etag_of(kind: address::CloudKind, meta: &ObjectMeta) -> ETag {
    let tagged = etag_text(kind, meta.e_tag.as_deref(), meta.version.as_deref());
    let (seconds, size) = (meta.last_modified.timestamp(), meta.size);
    ETag {
        text: tagged.unwrap_or_else(|| format!("modified {seconds}, size {size}")),
        version: version(meta),
    }
}

/// An object of a bucket, for `write_retry`.
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
        let found = self.writer.head(self.target)?;
        Ok(found.map(|found| {
            let etag = etag_of(self.writer.kind, &found);
            (etag, describe(&found, EntryKind::File))
        }))
    }

    fn reader(&self, meta: &Meta) -> Arc<dyn Reader> {
        Arc::new(BucketReader {
            absence: self.writer.absence.clone(),
            client: self.writer.client.clone(),
            path: self.target.path.clone(),
            key: self.target.key.clone(),
            meta: *meta,
        })
    }
}

/// The object that the condition probe changes.
struct BucketTrial<'a> {
    writer: &'a Writer,
    target: ObjectTarget<'a>,
}

impl BucketTrial<'_> {
    fn inexpressible(&self) -> Error {
        Error::unsupported(self.target.key, "no request can express the condition")
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
