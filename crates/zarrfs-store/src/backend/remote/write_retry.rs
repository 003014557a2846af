//! Retries changes over a network that loses responses, without doing them twice.
//!
//! A failed request may have been carried out, so the content of the key decides. If it has the bytes of the put, the
//! put succeeded. If it breaks the condition, the error is `Changed`. Only otherwise is the request retried, so that a
//! later object of another writer is not overwritten.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::retry::Attempts;
use crate::request_context::RequestContext;
use crate::{Condition, ETag, Key, Meta, PutBody, Reader};
use zarr_format::error::{Error, Kind, Result};

/// A key of a remote store that is changed.
pub(crate) trait RemoteKey {
    fn key(&self) -> &Key;
    /// The time limit for all attempts.
    fn limit(&self) -> Duration;
    /// Requests the ETag and metadata of the key's object.
    fn probe(&self) -> Result<Option<(ETag, Meta)>>;
    /// Opens the object that `probe` has found.
    fn reader(&self, meta: &Meta) -> Arc<dyn Reader>;
}

/// Waits before the next attempt. Returns false if there may be none.
fn wait_for_next(attempts: &mut Attempts) -> bool {
    let pause = attempts.next_pause();
    pause.map(thread::sleep).is_some()
}

/// Whether a failed request may have been carried out.
fn may_have_succeeded(error: &Error) -> bool {
    error.kind() == Kind::Unavailable
}

/// A put under a condition.
pub(crate) struct ConditionalPut<'a> {
    pub(crate) target: &'a dyn RemoteKey,
    pub(crate) body: PutBody<'a>,
    pub(crate) condition: &'a Condition,
    /// Whether the key is checked before each attempt.
    pub(crate) checks_first: bool,
}

/// Puts an object; each attempt is one request. The argument of `attempt` is whether to send the condition: a server
/// that takes a folder for an object always refuses `Absent`, and the key has just been checked.
pub(crate) fn put(
    context: &RequestContext,
    put: &ConditionalPut<'_>,
    attempt: impl Fn(bool) -> Result<ETag>,
) -> Result<ETag> {
    let ConditionalPut {
        target,
        body,
        condition,
        checks_first,
    } = *put;
    let mut attempts = Attempts::new(target.limit(), usize::MAX);
    let mut was_lost = false;
    let mut refusals = 0;
    loop {
        if checks_first {
            let current = target.probe()?.map(|(etag, _)| etag);
            condition.check(target.key(), current.as_ref())?;
        }
        // If a server refuses a condition twice that holds, the condition is left out.
        let error = match attempt(refusals < 2) {
            Ok(etag) => return Ok(etag),
            Err(error) => error,
        };
        let is_refusal = matches!(error.kind(), Kind::Changed | Kind::Exists);
        if !is_refusal && !may_have_succeeded(&error) {
            return Err(error);
        }
        was_lost |= !is_refusal;
        refusals += usize::from(is_refusal && *condition == Condition::Absent);
        let current = target.probe().map_err(|_| error.clone())?;
        if let Some((etag, meta)) = &current
            && was_lost
            && has_content(context, target, meta, body)?
        {
            return Ok(etag.clone());
        }
        condition.check(target.key(), current.map(|(etag, _)| etag).as_ref())?;
        // The condition holds: the conflicting object is gone, or the attempt had no effect.
        if !wait_for_next(&mut attempts) {
            let refused = || Error::unavailable(target.key(), REFUSED);
            return Err(if is_refusal { refused() } else { error });
        }
    }
}

/// Removes an object; each attempt is one request. With `checks_first` the key is checked before each attempt. A check
/// always follows an attempt that was refused or may have been carried out. If the object is then missing, that attempt
/// has removed it.
pub(crate) fn erase(
    target: &dyn RemoteKey,
    condition: &Condition,
    checks_first: bool,
    attempt: impl Fn() -> Result<()>,
) -> Result<()> {
    let mut attempts = Attempts::new(target.limit(), usize::MAX);
    let mut was_lost = false;
    let checks_first = checks_first || *condition == Condition::Absent;
    loop {
        if (checks_first || was_lost) && !has_object_to_erase(target, condition, was_lost)? {
            return Ok(());
        }
        let error = match attempt() {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == Kind::NotFound => {
                return check_missing(target.key(), condition, was_lost);
            }
            Err(error) => error,
        };
        let is_refusal = matches!(condition, Condition::Match(_))
            && matches!(error.kind(), Kind::Changed | Kind::Exists);
        if !is_refusal && !may_have_succeeded(&error) {
            return Err(error);
        }
        was_lost |= !is_refusal;
        if is_refusal && !has_object_to_erase(target, condition, was_lost)? {
            return Ok(());
        }
        if !wait_for_next(&mut attempts) {
            return Err(if is_refusal {
                Error::unavailable(target.key(), REFUSED)
            } else {
                error
            });
        }
    }
}

/// Why a change fails if the server refuses its condition each time.
const REFUSED: &str =
    "the server rejects the condition of the change, although the condition holds";

/// Checks a key before its removal. Returns false if there is nothing to remove.
fn has_object_to_erase(
    target: &dyn RemoteKey,
    condition: &Condition,
    was_lost: bool,
) -> Result<bool> {
    match target.probe()? {
        Some((etag, _)) => condition.check(target.key(), Some(&etag)).map(|()| true),
        None => check_missing(target.key(), condition, was_lost).map(|()| false),
    }
}

/// Checks the condition of a removal whose key is missing. With `was_lost` an earlier attempt may have removed it.
fn check_missing(key: &Key, condition: &Condition, was_lost: bool) -> Result<()> {
    if was_lost || *condition == Condition::Any {
        return Ok(());
    }
    condition.check(key, None)
}

/// Whether a key has exactly the bytes of `body`.
pub(crate) fn has_content(
    context: &RequestContext,
    target: &dyn RemoteKey,
    current: &Meta,
    body: PutBody<'_>,
) -> Result<bool> {
    if current.size != body.len() {
        return Ok(false);
    }
    let reader = target.reader(current);
    let mut place = 0;
    while place < body.len() {
        let end = body.len().min(place + (8 << 20));
        let ours = body.part(place..end)?;
        match reader.read_at(context, place, ours.len()) {
            Ok(theirs) if theirs == ours => place = end,
            Ok(_) => return Ok(false),
            Err(error) if error.kind() == Kind::Changed => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}
