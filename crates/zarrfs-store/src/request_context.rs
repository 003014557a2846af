//! The context of a request: time limit, permission to wait, age of its answers.
//!
//! A request that exceeds its time limit is refused, and its program is told that nothing was done; it must modify
//! nothing from then on. Code that makes a change therefore takes a permit right before the change, after all waiting.
//! While the permit is held the request cannot be refused, and after the change it never is, so that the program learns
//! the outcome.
//!
//! An event loop must not block. It tries with `WITHOUT_WAITING` first: code that would need a request to a store, or
//! another thread's result, returns `WouldWait`, and a pool thread repeats the request. `WouldWait` is not an answer:
//! it is never cached, counted or reported.
//!
//! Several layers over a store cache its answers, and so do their callers, each with the store's TTL. These TTLs must
//! not add up: an answer from a cache records the time of its request to the store, and a caller that caches the answer
//! counts its TTL from that time (`StoreInfo::ask`). An answer or an error may depend on many cached answers. The
//! context collects their ages, since functions that return the ages would forget some.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};

use zarr_format::error::{Error, Kind, Result};

/// The time limit of one FUSE request, after which it is refused.
pub trait RequestLimit: Send + Sync {
    /// Pauses the time limit while a change is made. Returns false if the request was refused already.
    fn suspend(&self) -> bool;

    /// Ends one pause of the time limit, if nothing was changed.
    fn resume(&self);

    /// Whether the request is still unanswered, so that its work is still needed.
    fn is_waited_for(&self) -> bool;
}

/// The request for which a thread works: its time limit, whether it may wait, and the age of the answers it uses.
#[derive(Clone)]
pub struct RequestContext {
    limit: Option<Arc<dyn RequestLimit>>,
    may_wait: bool,
    /// Time of the oldest request to the store whose answer the innermost `timed` query has used.
    oldest: Option<Arc<Mutex<Instant>>>,
}

/// The context of work without a time limit: commands and background work.
pub static UNLIMITED: RequestContext = RequestContext {
    limit: None,
    may_wait: true,
    oldest: None,
};

/// The context of a request that must be answered without waiting.
pub static WITHOUT_WAITING: RequestContext = RequestContext {
    limit: None,
    may_wait: false,
    oldest: None,
};

impl RequestContext {
    /// Builds the context of a request with a time limit.
    pub fn new(limit: Arc<dyn RequestLimit>) -> RequestContext {
        RequestContext {
            limit: Some(limit),
            may_wait: true,
            oldest: None,
        }
    }

    /// Returns the context for a part of the request's work that must not wait for a store or another thread.
    pub fn without_waiting(&self) -> RequestContext {
        RequestContext {
            may_wait: false,
            ..self.clone()
        }
    }

    /// Whether the work may wait for a store or another thread.
    pub fn may_wait(&self) -> bool {
        self.may_wait
    }

    /// Returns `WouldWait` if the request may not wait. Called before a request to a store and before waiting for
    /// another thread.
    pub fn check_may_wait(&self) -> Result<()> {
        if self.may_wait {
            return Ok(());
        }
        Err(would_wait())
    }

    /// Takes a lock that another thread may hold while it waits for a store. Returns `WouldWait` if the lock is not
    /// free and the request may not wait.
    pub fn lock<'a, T>(&self, lock: &'a Mutex<T>) -> Result<MutexGuard<'a, T>> {
        match lock.try_lock() {
            Some(guard) => Ok(guard),
            None => self.check_may_wait().map(|()| lock.lock()),
        }
    }

    /// Records that the request uses a cached answer, which was requested from the store at `request_time`.
    pub fn record_age(&self, request_time: Instant) {
        if let Some(oldest) = &self.oldest {
            let mut oldest = oldest.lock();
            *oldest = request_time.min(*oldest);
        }
    }

    /// Runs a query that begins at `now`. Returns the answer and the time of its oldest request to the store: `now`, or
    /// the earliest time that caches recorded in the query's context.
    pub(crate) fn timed<T>(
        &self,
        now: Instant,
        query: impl FnOnce(&RequestContext) -> T,
    ) -> (T, Instant) {
        let oldest = Arc::new(Mutex::new(now));
        let context = RequestContext {
            limit: self.limit.clone(),
            may_wait: self.may_wait,
            oldest: Some(oldest.clone()),
        };
        let answer = query(&context);
        let request_time = *oldest.lock();
        // An outer query uses this query's answer, so it is at least as old.
        self.record_age(request_time);
        (answer, request_time)
    }

    /// Takes the permit to make a change. The error is `Unavailable` if the request was refused already.
    pub fn permit_change(&self) -> Result<ChangePermit> {
        if self.limit.as_ref().is_none_or(|limit| limit.suspend()) {
            Ok(ChangePermit(self.limit.clone()))
        } else {
            let why = "the request waited longer than --timeout; nothing was changed";
            Err(Error::unavailable("", why))
        }
    }

    /// Whether the request is still unanswered, so that its work is still needed. Always true without a time limit.
    pub fn is_waited_for(&self) -> bool {
        self.limit
            .as_ref()
            .is_none_or(|limit| limit.is_waited_for())
    }
}

/// Whether a result answers the request. Only `WouldWait` does not: the request is repeated by another thread.
pub fn is_answer<T>(answer: &Result<T>) -> bool {
    !matches!(answer, Err(error) if error.kind() == Kind::WouldWait)
}

/// Returns the error for a request that would have to wait for a store or another thread, but may not.
pub fn would_wait() -> Error {
    Error::new(Kind::WouldWait, "", "the response is not ready")
}

/// Returns the error for work that was stopped because its request was already answered. Other callers that joined the
/// work must retry.
pub fn abandoned() -> Error {
    Error::new(
        Kind::Interrupted,
        "",
        "the program no longer waits for the response",
    )
}

/// The permit to make a change now. After it is dropped, the request has no time limit any more.
#[must_use]
pub struct ChangePermit(Option<Arc<dyn RequestLimit>>);

impl ChangePermit {
    /// Returns the permit without having changed anything, so that the time limit applies again.
    pub fn give_back(self) {
        if let Some(limit) = &self.0 {
            limit.resume();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// A test limit that counts the pauses, with `None` for a request that was refused.
    struct Counted(Mutex<Option<usize>>);

    impl RequestLimit for Counted {
        fn suspend(&self) -> bool {
            let mut count = self.0.lock();
            *count = count.map(|count| count + 1);
            count.is_some()
        }

        fn resume(&self) {
            let mut count = self.0.lock();
            *count = count.map(|count| count - 1);
        }

        fn is_waited_for(&self) -> bool {
            self.0.lock().is_some()
        }
    }

    #[test]
    fn a_refused_request_gets_no_permit_to_change() {
        let limit = Arc::new(Counted(Mutex::new(Some(0))));
        let context = RequestContext::new(limit.clone());
        context.permit_change().unwrap().give_back();
        assert_eq!(*limit.0.lock(), Some(0));
        drop(context.permit_change().unwrap());
        assert_eq!(*limit.0.lock(), Some(1));
        assert!(context.is_waited_for());
        *limit.0.lock() = None;
        assert!(!context.is_waited_for() && UNLIMITED.is_waited_for());
        assert!(context.permit_change().is_err());
        drop(UNLIMITED.permit_change().unwrap());
    }

    #[test]
    fn without_waiting_a_held_lock_gives_no_answer() {
        let lock = Mutex::new(1);
        assert_eq!(*WITHOUT_WAITING.lock(&lock).unwrap(), 1);
        let held = lock.lock();
        let (part, _) = UNLIMITED
            .without_waiting()
            .timed(Instant::now(), |context| {
                assert!(!context.may_wait());
                context.lock(&lock).map(|guard| *guard)
            });
        assert!(!is_answer(&part));
        drop(held);
        assert!(UNLIMITED.check_may_wait().is_ok());
    }

    #[test]
    fn an_answer_is_as_old_as_its_oldest_part() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let (answer, request_time) = UNLIMITED.timed(at(9), |_| 7);
        assert_eq!((answer, request_time), (7, at(9)), "asked just now");
        let outer = |context: &RequestContext| {
            context.record_age(at(5));
            let inner = context.timed(at(10), |context| context.record_age(at(4)));
            assert_eq!(inner, ((), at(4)));
            // Ages that other threads record for the query count too.
            thread::scope(|scope| {
                scope.spawn(|| context.record_age(at(3)));
            });
            context.timed(at(11), |context| context.record_age(at(6)))
        };
        assert_eq!(UNLIMITED.timed(at(10), outer), (((), at(6)), at(3)));
        UNLIMITED.record_age(at(1));
        assert_eq!(UNLIMITED.timed(at(12), |_| ()), ((), at(12)));
    }
}
