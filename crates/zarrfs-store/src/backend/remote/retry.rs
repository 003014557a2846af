//! Decides which requests are retried, and repeats changes without doing them twice.
//!
//! If the response to a change is lost, the change may have been carried out. So the key is read after a failed
//! request. If it has the bytes of the put, the put succeeded. If its content breaks the condition, the error is
//! `Changed`. Only in other cases is the request retried, so that it never overwrites a later object of another writer.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::time::Instant;

use super::errors;
use crate::request_context::RequestContext;
use crate::{Condition, ETag, Key, Meta, PutBody, Reader};
use zarr_format::error::{Error, Kind, Result};

/// The first and the longest pause before a retry.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Counts the attempts of one request, and limits their number and their total time.
pub(crate) struct Attempts {
    end: Instant,
    retries: usize,
    max_retries: usize,
}

impl Attempts {
    pub(crate) fn new(time: Duration, max_retries: usize) -> Attempts {
        let now = Instant::now();
        Attempts {
            end: now.checked_add(time).unwrap_or(now),
            retries: 0,
            max_retries,
        }
    }

    /// Sets the time limit of all further attempts to `time` from now.
    pub(crate) fn extend(&mut self, time: Duration) {
        let now = Instant::now();
        self.end = now.checked_add(time).unwrap_or(now);
    }

    pub(crate) fn time_left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// Counts a failed attempt. Returns the pause before the next attempt, or `None` if no further attempt is allowed.
    pub(crate) fn next_pause(&mut self) -> Option<Duration> {
        self.next_pause_at_least(Duration::ZERO)
    }

    /// Counts a failed attempt. Returns the pause before the next attempt, at least `least`, or `None` if no further
    /// attempt is allowed.
    pub(crate) fn next_pause_at_least(&mut self, least: Duration) -> Option<Duration> {
        let pause = pause(self.retries).max(least);
        if self.retries >= self.max_retries || pause >= self.time_left() {
            return None;
        }
        self.retries += 1;
        Some(pause)
    }
}

/// Whether a response's status allows a retry of the request. 501 (not implemented) is permanent.
pub(crate) fn is_transient_status(status: u16) -> bool {
    matches!(status, 408 | 429 | 500 | 502 | 503 | 504)
}

/// Opens a store, with retries for at most `time` while the server says that it is busy.
pub(crate) fn once_ready<T>(time: Duration, mut open: impl FnMut() -> Result<T>) -> Result<T> {
    let mut attempts = Attempts::new(time, usize::MAX);
    loop {
        match open() {
            Err(error) if errors::is_busy(error.detail()) => match attempts.next_pause() {
                Some(pause) => thread::sleep(pause),
                None => return Err(error),
            },
            opened => return opened,
        }
    }
}

/// Returns the pause before another retry: doubled each time, with up to 50 % of jitter so that many clients do not
/// retry at the same moment.
fn pause(retries: usize) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(1 << retries.min(10));
    let chance = RandomState::new().hash_one(retries) % 1000;
    doubled.min(MAX_PAUSE).mul_f64(0.5 + chance as f64 / 1000.0)
}

/// The object of a remote store that a put or a removal changes.
pub(crate) trait RemoteKey {
    fn key(&self) -> &Key;
    fn limit(&self) -> Duration;
    /// Requests the current ETag and metadata of the object, or `None` if it is missing.
    fn probe(&self) -> Result<Option<(ETag, Meta)>>;
    /// Opens the object version that `probe` has found, to compare its content.
    fn reader(&self, meta: &Meta) -> Arc<dyn Reader>;
}

/// Waits before the next attempt of a request. Returns false if no further attempt is allowed.
fn wait_for_next(attempts: &mut Attempts) -> bool {
    let pause = attempts.next_pause();
    pause.map(thread::sleep).is_some()
}

/// Whether a request with this error may have changed the object: its response may have been lost.
fn may_have_succeeded(error: &Error) -> bool {
    error.kind() == Kind::Unavailable
}

/// A put of an object that must only succeed if a condition holds.
pub(crate) struct ConditionalPut<'a> {
    pub(crate) target: &'a dyn RemoteKey,
    pub(crate) body: PutBody<'a>,
    pub(crate) condition: &'a Condition,
    /// Whether the condition is checked by a request of its own before each put.
    pub(crate) checks_first: bool,
}

/// Puts an object, with retries. Each call of `attempt` sends one request; its argument is whether to send the
/// condition. Some servers take a folder for an object and always refuse the condition `Absent`. So the condition is
/// left out if the server refused it twice although it holds.
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
        // The condition is left out after two refusals of `Absent`, since the key was just found missing.
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
        // The object still meets the condition, so the put can be retried: the conflicting object was removed, or the
        // last attempt had no effect.
        if !wait_for_next(&mut attempts) {
            let refused = || Error::unavailable(target.key(), REFUSED);
            return Err(if is_refusal { refused() } else { error });
        }
    }
}

/// Removes an object. Each call of `attempt` sends one request. With `checks_first` the key is checked before each
/// attempt. After an attempt that was refused or may have been carried out, the key is checked in any case. If an
/// attempt may have been carried out and the object is missing, that attempt has removed it.
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

/// The error message if the server refuses a change each time although the condition of the change holds.
const REFUSED: &str =
    "the server rejects the condition of the change, although the condition holds";

/// Checks the condition of a removal against the present object. Returns false if there is no object to remove.
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

/// Checks the condition of a removal after its key was found missing. `was_lost` means that the response to an earlier
/// attempt was lost, so that attempt may have removed the object.
fn check_missing(key: &Key, condition: &Condition, was_lost: bool) -> Result<()> {
    if was_lost || *condition == Condition::Any {
        return Ok(());
    }
    condition.check(key, None)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_end_after_their_number_or_time() {
        let mut attempts = Attempts::new(Duration::from_secs(3600), 2);
        assert!(attempts.next_pause().is_some() && attempts.next_pause().is_some());
        assert_eq!(attempts.next_pause(), None);
        assert_eq!(Attempts::new(Duration::ZERO, 2).next_pause(), None);
        let (long, short) = (Duration::from_secs(7), Duration::from_secs(5));
        assert_eq!(
            Attempts::new(long, 2).next_pause_at_least(short),
            Some(short)
        );
        assert_eq!(Attempts::new(short, 2).next_pause_at_least(long), None);
    }

    #[test]
    fn pauses_grow_up_to_a_limit() {
        assert!(pause(0) <= FIRST_PAUSE * 2 && pause(3) > FIRST_PAUSE * 3);
        assert!(pause(1000) <= MAX_PAUSE * 2);
    }
}
