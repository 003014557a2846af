//! Changes over a network that loses answers: made once, or known not to have been made.
//!
//! A request that failed may have been carried out. What the key holds then tells: what was to be put, byte for
//! byte, is a success; what breaks the condition is `Changed`; and only where neither is so is the request made
//! again, so that nobody's later object is overwritten.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Kind, Result};
use crate::store::{Condition, ETag, Key, Meta, PutBody, Reader};

/// Pauses before a request is repeated.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// How much is compared at once, in bytes.
const PIECE: u64 = 8 << 20;

/// A key that is changed.
pub(crate) trait RemoteKey {
    fn key(&self) -> &Key;
    /// How long attempts are made.
    fn limit(&self) -> Duration;
    /// Asks what the key holds.
    fn look(&self) -> Result<Option<(ETag, Meta)>>;
    /// Opens what it was found to hold.
    fn reader(&self, meta: &Meta) -> Arc<dyn Reader>;
}

/// Attempts, with a pause between them.
struct Attempts {
    end: Instant,
    pause: Duration,
}

impl Attempts {
    fn new(limit: Duration) -> Attempts {
        let now = Instant::now();
        Attempts {
            end: now.checked_add(limit).unwrap_or(now),
            pause: FIRST_PAUSE,
        }
    }

    /// Waits for the next one; false if it would come too late.
    fn again(&mut self) -> bool {
        if Instant::now() + self.pause > self.end {
            return false;
        }
        thread::sleep(self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        true
    }
}

/// Whether a request may have been carried out though it failed.
fn may_be_made(error: &Error) -> bool {
    error.kind() == Kind::Unavailable
}

/// How often a server may refuse a condition that holds before it is not asked to any more.
const MOST_REFUSALS: usize = 2;

/// Puts an object, each attempt being one request. With `looks` the key is looked at before each. An attempt is
/// told whether to ask the server for the condition: one that takes a folder for an object never finds that nothing
/// is there, and the key has just been looked at.
pub(crate) fn put(
    spot: &dyn RemoteKey,
    body: PutBody<'_>,
    (condition, looks): (&Condition, bool),
    attempt: impl Fn(bool) -> Result<ETag>,
) -> Result<ETag> {
    let mut attempts = Attempts::new(spot.limit());
    let mut was_lost = false;
    let mut refusals = 0;
    loop {
        if looks {
            let found = spot.look()?.map(|(stamp, _)| stamp);
            condition.check(spot.key(), found.as_ref())?;
        }
        let error = match attempt(refusals < MOST_REFUSALS) {
            Ok(stamp) => return Ok(stamp),
            Err(error) => error,
        };
        let is_refusal = matches!(error.kind(), Kind::Changed | Kind::Exists);
        if !is_refusal && !may_be_made(&error) {
            return Err(error);
        }
        was_lost |= !is_refusal;
        refusals += usize::from(is_refusal && *condition == Condition::Absent);
        let found = spot.look().map_err(|_| error.clone())?;
        if let Some((stamp, meta)) = &found
            && was_lost
            && is_there(spot, meta, body)?
        {
            return Ok(stamp.clone());
        }
        condition.check(spot.key(), found.map(|(stamp, _)| stamp).as_ref())?;
        // It holds after all: what was in the way is gone, or nothing came of the attempt.
        if !attempts.again() {
            let why = "the server refuses the condition, though it holds";
            return Err(match is_refusal {
                true => Error::unavailable(spot.key(), why),
                false => error,
            });
        }
    }
}

/// Removes an object, each attempt being one request. With `looks` the key is looked at before the first one too;
/// what is no object is not asked for.
pub(crate) fn erase(
    spot: &dyn RemoteKey,
    condition: &Condition,
    looks: bool,
    attempt: impl Fn() -> Result<()>,
) -> Result<()> {
    let mut attempts = Attempts::new(spot.limit());
    let mut was_lost = false;
    loop {
        if looks || was_lost || *condition != Condition::Any {
            let found = spot.look()?.map(|(stamp, _)| stamp);
            let is_gone = found.is_none() && (was_lost || *condition == Condition::Any);
            if is_gone {
                return Ok(());
            }
            condition.check(spot.key(), found.as_ref())?;
            if found.is_none() {
                return Ok(());
            }
        }
        let error = match attempt() {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == Kind::NotFound => return Ok(()),
            Err(error) => error,
        };
        if !may_be_made(&error) || !attempts.again() {
            return Err(error);
        }
        was_lost = true;
    }
}

/// Whether a key holds, byte for byte, what was to be put.
pub(crate) fn is_there(spot: &dyn RemoteKey, found: &Meta, body: PutBody<'_>) -> Result<bool> {
    if found.size != body.len() {
        return Ok(false);
    }
    let reader = spot.reader(found);
    let mut place = 0;
    while place < body.len() {
        let end = body.len().min(place + PIECE);
        let ours = body.part(place..end)?;
        match reader.read_at(place, ours.len()) {
            Ok(theirs) if theirs == ours => place = end,
            Ok(_) => return Ok(false),
            Err(error) if error.kind() == Kind::Changed => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}
