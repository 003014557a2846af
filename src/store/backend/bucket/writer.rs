//! Changes of a bucket: one request for each object, or several for a big one (`upload`).
//!
//! Conditions are sent to servers that enforce them (`condition_probe`). For other servers, and to remove an object or
//! to complete a big one, for which object_store has no conditions, the key is checked just before. `write_retry`
//! repeats failed changes; only a put without a condition is repeated by the client itself.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use object_store::path::Path;
use object_store::{
    GetOptions, ObjectMeta, ObjectStoreExt, PutMode, PutPayload, PutResult, UpdateVersion,
};

use super::address::Address;
use super::client::{Client, describe, version};
use super::reader::BucketReader;
use super::settings::Clients;
use super::{BucketStore, address, settings};
use crate::error::{Error, Kind, Result};
use crate::store::backend::remote::condition_probe::{ConditionProbe, is_refusal};
use crate::store::backend::remote::connector::Connector;
use crate::store::backend::remote::write_retry;
use crate::store::backend::remote::write_retry::RemoteKey;
use crate::store::{Condition, ETag, EntryKind, Key, Meta, PutBody, Reader, RemoteConfig, Version};

/// The longest object that is put in one request, in bytes.
const WHOLE: u64 = 16 << 20;

/// Separates an ETag from Google's generation number.
const GENERATION: &str = " generation ";

/// A key, and its path in the bucket.
pub(super) struct ObjectTarget<'a> {
    pub(super) key: &'a Key,
    pub(super) path: Path,
}

/// The writer of a bucket, built at the first change.
pub(super) struct WriteClients {
    address: Address,
    config: RemoteConfig,
    connector: Connector,
    made: OnceLock<Result<Writer>>,
}

impl WriteClients {
    pub(super) fn new(
        address: &Address,
        config: &RemoteConfig,
        connector: &Connector,
    ) -> WriteClients {
        WriteClients {
            address: address.clone(),
            config: config.clone(),
            connector: connector.clone(),
            made: OnceLock::new(),
        }
    }

    /// Returns the writer beside a client that reads.
    pub(super) fn get(&self, client: &Arc<Client>) -> Result<&Writer> {
        let made = self.made.get_or_init(|| {
            let never = settings::retries(0, self.config.timeout);
            let once = settings::client(&self.address, &self.config, &self.connector, never)?;
            Ok(Writer {
                client: client.clone(),
                once,
                kind: self.address.kind,
                conditions: ConditionProbe::default(),
            })
        });
        made.as_ref().map_err(Error::clone)
    }
}

impl BucketStore {
    /// Returns a key as an object that can be changed; `Invalid` or `IsADirectory` if no object can have its name.
    pub(super) fn target<'a>(&self, key: &'a Key) -> Result<ObjectTarget<'a>> {
        if key.is_root() {
            return Err(Error::new(Kind::IsADirectory, key, "is a directory"));
        }
        let why = "cannot be the name of an object: only UTF-8 without control characters";
        let path = self.path(key).ok_or_else(|| Error::invalid(key, why))?;
        Ok(ObjectTarget { key, path })
    }
}

/// Puts and removes.
pub(super) struct Writer {
    pub(super) client: Arc<Client>,
    /// A client that repeats nothing.
    pub(super) once: Clients,
    kind: address::CloudKind,
    /// Whether the server enforces conditions.
    conditions: ConditionProbe,
}

impl Writer {
    /// Returns the ETag of an object; nothing if it is missing.
    pub(super) fn etag(&self, target: &ObjectTarget<'_>) -> Result<Option<ETag>> {
        Ok(self.look(target)?.map(|meta| self.etag_of(&meta)))
    }

    /// Requests the metadata of an object; nothing if it is missing.
    fn look(&self, target: &ObjectTarget<'_>) -> Result<Option<ObjectMeta>> {
        let head = GetOptions::new().with_head(true);
        let request = self.client.objects.get_opts(&target.path, head);
        match self.client.ask(target.key, request) {
            Ok(answer) => Ok(Some(answer.meta)),
            Err(error) if error.kind() == Kind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn etag_of(&self, meta: &ObjectMeta) -> ETag {
        let tagged = self.text(meta.e_tag.as_deref(), meta.version.as_deref());
        let (seconds, size) = (meta.last_modified.timestamp(), meta.size);
        ETag {
            text: tagged.unwrap_or_else(|| format!("modified {seconds}, size {size}")),
            version: version(meta),
        }
    }

    /// Returns the ETag of an object that was put, requesting it where the answer does not have it.
    pub(super) fn etag_of_answer(
        &self,
        target: &ObjectTarget<'_>,
        answer: &PutResult,
    ) -> Result<ETag> {
        match (
            &answer.e_tag,
            self.text(answer.e_tag.as_deref(), answer.version.as_deref()),
        ) {
            (Some(tag), Some(text)) => Ok(ETag {
                text,
                version: Version::of(tag.trim_matches('"').as_bytes()),
            }),
            _ => self
                .etag(target)?
                .ok_or_else(|| Error::new(Kind::Changed, target.key, "was removed once put")),
        }
    }

    /// Returns the text of an ETag as a condition needs it, with Google's generation number; nothing without them.
    fn text(&self, tag: Option<&str>, version: Option<&str>) -> Option<String> {
        let tag = tag?;
        // Some servers quote it in one answer and not in the next.
        let tag = if tag.ends_with('"') {
            tag.to_string()
        } else {
            format!("\"{tag}\"")
        };
        match (self.kind, version) {
            (address::CloudKind::Google, Some(version)) => Some(tag + GENERATION + version),
            (address::CloudKind::Google, None) => None,
            _ => Some(tag),
        }
    }

    /// Returns the put mode of a condition; nothing if a request cannot express it.
    fn mode(&self, condition: &Condition) -> Option<PutMode> {
        match condition {
            Condition::Any | Condition::Version(_) => None,
            Condition::Absent => Some(PutMode::Create),
            Condition::Held(text) => {
                let (tag, version) = match text.split_once(GENERATION) {
                    Some((tag, version)) => (tag, Some(version.to_string())),
                    None => (text.as_str(), None),
                };
                let can = tag.ends_with('"')
                    && version.is_some() == (self.kind == address::CloudKind::Google);
                can.then(|| {
                    PutMode::Update(UpdateVersion {
                        e_tag: Some(tag.to_string()),
                        version,
                    })
                })
            }
        }
    }

    /// Puts an object if the condition holds. `trial` is a key on which it may be tried whether the server holds
    /// to conditions.
    pub(super) fn put(
        &self,
        target: &ObjectTarget<'_>,
        trial: &ObjectTarget<'_>,
        body: PutBody<'_>,
        condition: &Condition,
    ) -> Result<ETag> {
        if body.len() > WHOLE {
            return self.put_parts(target, body, condition);
        }
        let bytes = body.read().map_err(|error| error.about(target.key))?;
        let payload = PutPayload::from(bytes);
        if *condition == Condition::Any {
            let attempt = |_| {
                let request = self.client.objects.put(&target.path, payload.clone());
                let answer = self.client.ask(target.key, request)?;
                self.etag_of_answer(target, &answer)
            };
            return write_retry::put(&self.at(target), body, (condition, false), attempt);
        }
        // If the probe fails, the condition is sent and the key is checked as well.
        let honours = self.honours(trial).ok();
        let mode = self.mode(condition).filter(|_| honours != Some(false));
        let checks_first = honours != Some(true) || mode.is_none();
        let mode = mode.unwrap_or(PutMode::Overwrite);
        let attempt = |asks| {
            let objects = &self.once.objects;
            let mode = if asks {
                mode.clone()
            } else {
                PutMode::Overwrite
            };
            let request = objects.put_opts(&target.path, payload.clone(), mode.into());
            let answer = self.client.ask(target.key, request)?;
            self.etag_of_answer(target, &answer)
        };
        write_retry::put(&self.at(target), body, (condition, checks_first), attempt)
    }

    /// Removes an object. The condition is checked just before, since object_store's deletes have none.
    pub(super) fn erase(&self, target: &ObjectTarget<'_>, condition: &Condition) -> Result<()> {
        write_retry::erase(&self.at(target), condition, false, || {
            let request = self.once.objects.delete(&target.path);
            self.client.ask(target.key, request)
        })
    }

    pub(super) fn at<'a>(&'a self, target: &'a ObjectTarget<'a>) -> ObjectChange<'a> {
        ObjectChange {
            writer: self,
            target,
        }
    }

    /// Whether the server enforces the conditions `Absent` and `Held`.
    pub(super) fn honours(&self, trial: &ObjectTarget<'_>) -> Result<bool> {
        self.conditions.get_or_run(|| {
            let enforced = self.try_conditions(trial);
            let removed = self.erase(trial, &Condition::Any);
            if let (Ok(_), Err(error)) = (&enforced, removed) {
                log::warn!("{error}: a trial of conditions is left there");
            }
            let enforced = enforced?;
            if !enforced {
                log::warn!("the store does not hold to conditions: keys are looked at just before");
            }
            Ok(enforced)
        })
    }

    fn try_conditions(&self, trial: &ObjectTarget<'_>) -> Result<bool> {
        let put = |body: &'static str, mode: PutMode| {
            let request = self
                .once
                .objects
                .put_opts(&trial.path, body.into(), mode.into());
            self.client.ask(trial.key, request)
        };
        let first = match put("1", PutMode::Create) {
            // The server does not know conditions.
            Err(error) if matches!(error.kind(), Kind::Invalid | Kind::Unsupported) => {
                return Ok(false);
            }
            first => self.etag_of_answer(trial, &first?)?,
        };
        let wrong = UpdateVersion {
            e_tag: Some("\"0123456789abcdef0123456789abcdef\"".to_string()),
            version: Some(i64::MAX.to_string()),
        };
        for mode in [PutMode::Create, PutMode::Update(wrong)] {
            match put("2", mode) {
                Ok(_) => return Ok(false),
                Err(error) if is_refusal(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let Some(right) = self.mode(&Condition::Held(first.text)) else {
            return Ok(false);
        };
        match put("3", right) {
            Ok(_) => Ok(true),
            Err(error) if is_refusal(&error) => Ok(false),
            Err(error) => Err(error),
        }
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
        self.writer.client.limit
    }

    fn probe(&self) -> Result<Option<(ETag, Meta)>> {
        let found = self.writer.look(self.target)?;
        Ok(found.map(|found| {
            let etag = self.writer.etag_of(&found);
            (etag, describe(&found, EntryKind::File))
        }))
    }

    fn reader(&self, meta: &Meta) -> Arc<dyn Reader> {
        Arc::new(BucketReader {
            client: self.writer.client.clone(),
            path: self.target.path.clone(),
            key: self.target.key.clone(),
            meta: *meta,
        })
    }
}
