//! Probes of a server: whether it enforces conditions, and refuses missing keys.
//!
//! The first probe, once per store, makes changes to a key of its own. The second probe is for S3, which responds 403
//! for a missing key if the user may not list names; web servers in front of S3 respond the same. A refused key of such
//! a store is missing if the server still returns a metadata document of the root, but refuses a key that cannot exist.
//! Without the document, the server may refuse everything, for example because credentials have expired.

use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::time::Instant;

use parking_lot::Mutex;

use crate::request_context::RequestContext;
use crate::{Condition, ETag, Key};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::document;

/// A well-formed ETag that no object has, to test whether a server refuses a wrong condition.
pub(crate) const UNUSED_ETAG: &str = "\"0123456789abcdef0123456789abcdef\"";

/// Whether a server enforces the conditions (such as `If-Match`) of puts and of removals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EnforcedConditions {
    pub(crate) puts: bool,
    pub(crate) removals: bool,
}

/// The result of the probe of a server's conditional requests, once the probe has succeeded.
#[derive(Default)]
pub(crate) struct ConditionProbe {
    enforced: Mutex<Option<EnforcedConditions>>,
}

impl ConditionProbe {
    /// Returns for which changes the server enforces conditions. The first call runs the probe, and concurrent calls
    /// wait for its result. A probe that fails is run again by the next call.
    pub(crate) fn get_or_run(
        &self,
        context: &RequestContext,
        trial: &dyn ConditionTrial,
    ) -> Result<EnforcedConditions> {
        let mut known = self.enforced.lock();
        if let Some(enforced) = *known {
            return Ok(enforced);
        }
        let enforced = run(context, trial)?;
        *known = Some(enforced);
        Ok(enforced)
    }
}

/// Puts and removes the object that the probe of conditional requests uses. Each call sends a single request with its
/// condition.
pub(crate) trait ConditionTrial {
    /// Puts the probe's object. The error is `Unsupported` if a request cannot express the condition.
    fn put(
        &self,
        context: &RequestContext,
        bytes: &'static [u8],
        condition: &Condition,
    ) -> Result<ETag>;

    /// Removes the probe's object. The error is `NotFound` if it is missing, or `Unsupported` if a request cannot
    /// express the condition.
    fn remove(&self, condition: &Condition) -> Result<()>;

    fn unused_etag(&self) -> String;
}

/// Probes which conditions a server enforces, and removes the object that the probe has put.
fn run(context: &RequestContext, trial: &dyn ConditionTrial) -> Result<EnforcedConditions> {
    let enforced = try_changes(context, trial);
    let is_removed = matches!(enforced, Ok(enforced) if enforced.removals);
    let removed = if is_removed {
        Ok(())
    } else {
        trial.remove(&Condition::Any)
    };
    match (&enforced, removed) {
        (Ok(_), Err(error)) if error.kind() != Kind::NotFound => {
            log::warn!("cannot remove a test object: {error}");
        }
        _ => {}
    }
    let enforced = enforced?;
    if !enforced.puts {
        log::warn!(
            "the server ignores If-Match: zarrfs checks each key just before a change instead"
        );
    } else if !enforced.removals {
        log::info!(
            "the server ignores If-Match of removals: zarrfs checks each key just before instead"
        );
    }
    Ok(enforced)
}

fn try_changes(context: &RequestContext, trial: &dyn ConditionTrial) -> Result<EnforcedConditions> {
    let mut etag = match trial.put(context, b"1", &Condition::Absent) {
        // A server without conditional requests rejects the header of the condition.
        Err(error) if matches!(error.kind(), Kind::Invalid | Kind::Unsupported) => {
            return Ok(EnforcedConditions::default());
        }
        first => first?,
    };
    let wrong = Condition::Match(trial.unused_etag());
    let mut puts = true;
    for condition in [&Condition::Absent, &wrong] {
        if let Some(put) = unless_refused(trial.put(context, b"2", condition))? {
            (etag, puts) = (put, false);
        }
    }
    if puts {
        match unless_refused(trial.put(context, b"3", &Condition::Match(etag.text.clone())))? {
            Some(put) => etag = put,
            None => puts = false,
        }
    }
    let removals = try_removals(trial, &wrong, &Condition::Match(etag.text))?;
    Ok(EnforcedConditions { puts, removals })
}

/// Whether the server enforces the conditions of removals: refuses a wrong condition, accepts the right one, and
/// refuses a condition for a missing object.
fn try_removals(trial: &dyn ConditionTrial, wrong: &Condition, right: &Condition) -> Result<bool> {
    for (condition, should_remove) in [(wrong, false), (right, true), (right, false)] {
        match trial.remove(condition) {
            Ok(()) if should_remove => {}
            Err(error) if !should_remove && is_refusal(&error) => {}
            Err(error) if error.kind() == Kind::Unavailable => return Err(error),
            Ok(()) | Err(_) => return Ok(false),
        }
    }
    Ok(true)
}

fn unless_refused(put: Result<ETag>) -> Result<Option<ETag>> {
    match put {
        Ok(etag) => Ok(Some(etag)),
        Err(error) if is_refusal(&error) || error.kind() == Kind::Unsupported => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether an error means that the server refused a change because its condition does not hold.
fn is_refusal(error: &Error) -> bool {
    matches!(error.kind(), Kind::Changed | Kind::Exists | Kind::NotFound)
}

/// Returns the key of the object that the probe of conditional requests puts. The key differs between machines and
/// users, so that their probes do not disturb each other, and never changes, so that the next probe removes the object
/// of a killed one.
pub(crate) fn trial_key() -> Result<Key> {
    let mut hasher = DefaultHasher::new();
    // Machines without a host name share a key. If their probes disturb each other, the only result is that conditions
    // count as not enforced.
    let machine = std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
    machine.hash(&mut hasher);
    rustix::process::geteuid().as_raw().hash(&mut hasher);
    Key::new(format!(".zarrfs-trial-{:016x}", hasher.finish()))
}

/// What is known about a store without listings: whether it refuses missing keys, and when it last returned its root
/// document.
#[derive(Default)]
pub(crate) struct RefusalProbe(tokio::sync::Mutex<ProbeAnswers>);

#[derive(Default)]
struct ProbeAnswers {
    /// Whether the server refuses a request for a missing key with 403, instead of 404.
    refuses_missing: Option<bool>,
    /// The metadata document of the root that the server returned last, and the time of its request.
    root_document: Option<(Key, Instant)>,
}

impl RefusalProbe {
    /// Whether a key that the server has just refused is missing, not forbidden. `exists` requests a key: it returns
    /// false if the key is missing, or `Denied` if the server refuses it.
    pub(crate) async fn is_missing(
        &self,
        exists: impl AsyncFn(&Key) -> Result<bool>,
    ) -> Result<bool> {
        let refused = Instant::now();
        let mut known = self.0.lock().await;
        if known.refuses_missing == Some(false) {
            return Ok(false);
        }
        // The server returned a root document after it had refused the key, so the credentials are valid and the key is
        // missing.
        let has_document = known
            .root_document
            .as_ref()
            .is_some_and(|(_, requested)| *requested > refused);
        if !has_document && !known.has_root_document(&exists).await? {
            return Ok(false);
        }
        if known.refuses_missing.is_none() {
            known.refuses_missing = match exists(&impossible_key()?).await {
                Ok(_) => Some(false),
                Err(error) if error.kind() == Kind::Denied => Some(true),
                Err(error) => return Err(error),
            };
        }
        Ok(known.refuses_missing == Some(true))
    }
}

impl ProbeAnswers {
    /// Whether the server now returns a metadata document of the store's root.
    async fn has_root_document(
        &mut self,
        exists: &impl AsyncFn(&Key) -> Result<bool>,
    ) -> Result<bool> {
        let known = self.root_document.take().map(|(key, _)| key);
        let others = document::at_root().filter_map(|name| Key::new(name).ok());
        for key in known.into_iter().chain(others) {
            let requested = Instant::now();
            match exists(&key).await {
                Ok(true) => {
                    self.root_document = Some((key, requested));
                    return Ok(true);
                }
                Ok(false) => {}
                Err(error) if error.kind() == Kind::Denied => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}

/// Returns a random key that no object has, to test how the server answers for a missing key.
pub(crate) fn impossible_key() -> Result<Key> {
    Key::new(format!(
        "zarrfs-no-such-key-{:016x}",
        RandomState::new().hash_one(0)
    ))
}
