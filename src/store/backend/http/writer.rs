//! Changes of a folder on the web: PUT, DELETE, and MKCOL for the folders on the way (WebDAV, RFC 4918).
//!
//! A server that holds to If-Match and If-None-Match (tried once) is asked with them; for any other the key is looked
//! at just before. Only 201 and 204 say that something was put: another success may be that of a request that was
//! redirected, and counts if the object is there. DELETE removes a folder with all in it, so only what was just
//! seen to be an object, or a folder with nothing in it, is removed.

use std::sync::Arc;
use std::time::Duration;

use object_store::PutPayload;

use super::endpoint::RequestSpec;
use super::reader::HttpReader;
use super::response::{ResponseHead, refusal};
use super::{HttpStore, ListingMethod, ProbeResult};
use crate::error::{Error, Kind, Result};
use crate::store::backend::remote::condition_probe::{is_refusal, probe_key};
use crate::store::backend::remote::write_retry;
use crate::store::backend::remote::write_retry::RemoteKey;
use crate::store::{Condition, ETag, Key, Listing, Meta, PutBody, Reader};

/// The longest object that is put, in bytes: it goes as one request, out of memory.
const LONGEST: u64 = 2 << 30;

/// An ETag that no content has.
const WRONG: &str = "\"0123456789abcdef0123456789abcdef\"";

type RequestHeader = (&'static str, String);

/// Returns the header that says a condition; nothing if there is none, or none that a server would understand.
fn header(condition: &Condition) -> Option<RequestHeader> {
    match condition {
        Condition::Any => None,
        Condition::Absent => Some(("if-none-match", "*".to_string())),
        // What is called weak does not count in conditions.
        Condition::Held(text) if text.starts_with('"') => Some(("if-match", text.clone())),
        Condition::Held(_) => None,
    }
}

/// Returns the error of a change that the server refuses.
fn refused(key: &Key, status: u16) -> Error {
    let (kind, why) = match status {
        405 | 501 => (
            Kind::ReadOnly,
            "the server takes no changes: a WebDAV server does",
        ),
        401 | 403 | 407 => (Kind::Denied, "the server refused the change"),
        413 => (Kind::TooLarge, "the server takes no object of that size"),
        423 => (Kind::Unavailable, "somebody else has locked it"),
        409 => (Kind::NotADirectory, "the folder above it cannot be made"),
        507 => (Kind::NoSpace, "the server has no room for it"),
        _ => return refusal(key, status),
    };
    Error::new(kind, key, format!("{why} ({status})"))
}

/// A key that is changed.
struct KeyChange<'a> {
    web: &'a HttpStore,
    key: &'a Key,
}

impl RemoteKey for KeyChange<'_> {
    fn key(&self) -> &Key {
        self.key
    }

    fn limit(&self) -> Duration {
        self.web.site.limit
    }

    fn look(&self) -> Result<Option<(ETag, Meta)>> {
        self.web.site.wait(self.key, self.web.stamped(self.key))
    }

    fn reader(&self, meta: &Meta) -> Arc<dyn Reader> {
        let (site, key) = (self.web.site.clone(), self.key.clone());
        Arc::new(HttpReader::new(site, key, *meta))
    }
}

impl HttpStore {
    /// Names the content of an object: by its ETag as the server spells it, else by time and size.
    pub(super) fn stamp_now(&self, key: &Key) -> Result<Option<ETag>> {
        if key.is_root() {
            return Ok(None);
        }
        let found = KeyChange { web: self, key }.look()?;
        Ok(found.map(|(stamp, _)| stamp))
    }

    async fn stamped(&self, key: &Key) -> Result<Option<(ETag, Meta)>> {
        let (found, tag) = self.described_with_tag(key).await?;
        let ProbeResult::Object(meta) = found else {
            return Ok(None);
        };
        let since = meta.modified.duration_since(std::time::UNIX_EPOCH);
        let (seconds, size) = (since.unwrap_or_default().as_secs(), meta.size);
        let stamp = ETag {
            text: tag.unwrap_or_else(|| format!("modified {seconds}, size {size}")),
            version: meta.version,
        };
        Ok(Some((stamp, meta)))
    }

    /// Puts an object if the condition holds.
    pub(super) fn put_now(
        &self,
        key: &Key,
        body: PutBody<'_>,
        condition: &Condition,
    ) -> Result<ETag> {
        if key.is_root() {
            return Err(Error::new(Kind::IsADirectory, key, "is a directory"));
        }
        if body.len() > LONGEST {
            let why = format!("{} bytes, at most {LONGEST} are put over HTTP", body.len());
            return Err(Error::too_large(key, why));
        }
        let payload = PutPayload::from(body.read().map_err(|error| error.about(key))?);
        // A trial that is refused tells nothing: then both is done.
        let honours = match condition {
            Condition::Any => None,
            _ => self.honours().ok(),
        };
        let header = header(condition).filter(|_| honours != Some(false));
        let looks = *condition != Condition::Any && (honours != Some(true) || header.is_none());
        write_retry::put(
            &KeyChange { web: self, key },
            body,
            (condition, looks),
            |_| self.send(key, &payload, body, header.as_ref()),
        )
    }

    /// Sends an object once; once more after the folders on the way were made.
    fn send(
        &self,
        key: &Key,
        payload: &PutPayload,
        body: PutBody<'_>,
        header: Option<&RequestHeader>,
    ) -> Result<ETag> {
        let put = || {
            let question = RequestSpec {
                method: http::Method::PUT,
                header: header.cloned(),
                payload: Some(payload.clone()),
                once: true,
                ..RequestSpec::get(key)
            };
            self.site.wait(key, self.site.ask(&question))
        };
        let mut answer = put()?;
        if matches!(answer.status, 404 | 409) {
            self.make_folder(&key.parent().unwrap_or_default())?;
            answer = put()?;
        }
        let is_put = match answer.status {
            201 | 204 => true,
            200..=299 => false,
            405 if self.is_folder(key)? => {
                return Err(Error::new(Kind::IsADirectory, key, "is a directory"));
            }
            status => return Err(refused(key, status)),
        };
        let spot = KeyChange { web: self, key };
        match spot.look()? {
            Some((stamp, _)) if is_put => Ok(stamp),
            Some((stamp, meta)) if write_retry::is_there(&spot, &meta, body)? => Ok(stamp),
            _ => {
                let why = format!(
                    "the server answered {}, but holds none of it",
                    answer.status
                );
                Err(Error::unavailable(key, why))
            }
        }
    }

    fn is_folder(&self, key: &Key) -> Result<bool> {
        if self.shape != ListingMethod::Dav {
            return Ok(false);
        }
        let found = self.site.wait(key, self.resource(key))?;
        Ok(found.is_some_and(|found| found.is_folder))
    }

    /// Makes a folder and those above it.
    fn make_folder(&self, key: &Key) -> Result<()> {
        if key.is_root() {
            return Ok(());
        }
        let make = || -> Result<ResponseHead> {
            let question = RequestSpec {
                // The name is a valid one.
                method: http::Method::from_bytes(b"MKCOL").unwrap_or(http::Method::OPTIONS),
                as_folder: true,
                ..RequestSpec::get(key)
            };
            self.site.wait(key, self.site.ask(&question))
        };
        let mut status = make()?.status;
        if matches!(status, 404 | 409) {
            self.make_folder(&key.parent().unwrap_or_default())?;
            status = make()?.status;
        }
        match status {
            // Or it is there already.
            200..=299 | 405 => Ok(()),
            _ => Err(refused(key, status)),
        }
    }

    /// Removes an object if the condition holds. It is looked at just before in any case.
    pub(super) fn erase_now(&self, key: &Key, condition: &Condition) -> Result<()> {
        if key.is_root() {
            return condition.check(key, None);
        }
        let honours = match condition {
            Condition::Held(_) => self.honours().unwrap_or(false),
            _ => false,
        };
        let header = header(condition).filter(|_| honours);
        write_retry::erase(&KeyChange { web: self, key }, condition, true, || {
            self.delete(key, false, header.clone())
        })
    }

    fn delete(&self, key: &Key, as_folder: bool, header: Option<RequestHeader>) -> Result<()> {
        let question = RequestSpec {
            method: http::Method::DELETE,
            as_folder,
            header,
            once: true,
            ..RequestSpec::get(key)
        };
        let answer = self.site.wait(key, self.site.ask(&question))?;
        let is_there = || match as_folder {
            true => self.is_folder(key),
            false => Ok(self.stamp_now(key)?.is_some()),
        };
        match answer.status {
            204 | 404 | 410 => Ok(()),
            // So answers a server that removed it, and one that was asked for something else by a redirection.
            200..=299 if is_there()? => {
                let why = format!("the server answered {}, but still has it", answer.status);
                Err(Error::unavailable(key, why))
            }
            200..=299 => Ok(()),
            status => Err(refused(key, status)),
        }
    }

    /// Removes a folder of WebDAV in which nothing was seen just before.
    pub(super) fn erase_folder_now(&self, prefix: &Key) -> Result<()> {
        if self.shape != ListingMethod::Dav || prefix.is_root() || !self.is_folder(prefix)? {
            return Ok(());
        }
        let Some(mut names) = self.dav_names(prefix)? else {
            return Ok(());
        };
        match names.next()? {
            Some(_) => Ok(()),
            None => self.delete(prefix, true, None),
        }
    }

    /// Whether the server holds to conditions: of what is absent, and of what another or the same content is.
    pub(super) fn honours(&self) -> Result<bool> {
        self.conditions.get_or_run(|| {
            let trial = probe_key()?;
            let enforced = self.try_conditions(&trial)?;
            if let Err(error) = self.delete(&trial, false, None) {
                log::warn!("{error}: a trial of conditions is left there");
            }
            if !enforced {
                log::warn!(
                    "the server does not hold to conditions: keys are looked at just before"
                );
            }
            Ok(enforced)
        })
    }

    fn try_conditions(&self, trial: &Key) -> Result<bool> {
        let put = |bytes: &'static [u8], condition: &Condition| {
            let header = header(condition);
            let payload = PutPayload::from_static(bytes);
            self.send(trial, &payload, PutBody::Bytes(bytes), header.as_ref())
        };
        let first = put(b"1", &Condition::Absent)?;
        for condition in [Condition::Absent, Condition::Held(WRONG.to_string())] {
            match put(b"2", &condition) {
                Ok(_) => return Ok(false),
                Err(error) if is_refusal(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let right = Condition::Held(first.text);
        if header(&right).is_none() {
            return Ok(false);
        }
        match put(b"3", &right) {
            Ok(_) => Ok(true),
            Err(error) if is_refusal(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
