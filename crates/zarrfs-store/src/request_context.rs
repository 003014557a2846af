//! What a request hands down to all that works for it: its time limit, whether it may wait, how old its answers are.
//!
//! A request that has waited for too long is refused, and its program is told that nothing was done: from then on it must
//! change nothing. So what makes a change takes a permit right before it, after everything that had to be waited for.
//! While the permit is held the request is not refused, and once the change is made it is never refused any more: its
//! program learns what became of the change.
//!
//! An event loop may not wait. It asks with `WITHOUT_WAITING` first: whoever would then have to ask a store, or to wait for
//! another thread, returns `WouldWait`, and a thread of a pool asks the same again. `WouldWait` is no answer: nothing
//! remembers, counts or reports it.
//!
//! Several layers over a store remember its answers, and so do their callers; each lets an answer count for the store's
//! freshness. These times must not add up: who answers from memory notes when the store was asked, and who remembers the
//! answer in turn has it count from then (`StoreInfo::ask`). An answer is made of many, and so is an error: noted on
//! the way, their ages need not be handed up through every function, one of which would forget to.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};

use zarr_format::error::{Error, Kind, Result};

/// The time limit of one request.
pub trait RequestLimit: Send + Sync {
    /// Stops the request from being refused from now on; false if it was refused before.
    fn suspend(&self) -> bool;

    /// Takes back one `suspend`, if nothing was changed.
    fn resume(&self);

    /// Whether the request was not answered yet.
    fn is_waited_for(&self) -> bool;
}

/// The request that work is done for.
#[derive(Clone)]
pub struct RequestContext {
    limit: Option<Arc<dyn RequestLimit>>,
    may_wait: bool,
    /// When the oldest part was asked for of the answer to the question that this is part of.
    oldest: Option<Arc<Mutex<Instant>>>,
}

/// The context of work that no program waits for within a limited time: that of a command, or in the background.
pub static UNLIMITED: RequestContext = RequestContext {
    limit: None,
    may_wait: true,
    oldest: None,
};

/// The context of a request that is answered only if that takes no waiting.
pub static WITHOUT_WAITING: RequestContext = RequestContext {
    limit: None,
    may_wait: false,
    oldest: None,
};

impl RequestContext {
    /// The context of a request with a time limit.
    pub fn new(limit: Arc<dyn RequestLimit>) -> RequestContext {
        RequestContext {
            limit: Some(limit),
            may_wait: true,
            oldest: None,
        }
    }

    /// Returns the same context for a part of the work that must not wait.
    pub fn without_waiting(&self) -> RequestContext {
        RequestContext {
            may_wait: false,
            ..self.clone()
        }
    }

    /// Whether the answer may be waited for.
    pub fn may_wait(&self) -> bool {
        self.may_wait
    }

    /// Fails with `WouldWait` if the request may not wait: called before a request to a store, and before waiting for
    /// another thread.
    pub fn check_may_wait(&self) -> Result<()> {
        if self.may_wait {
            return Ok(());
        }
        Err(would_wait())
    }

    /// Locks what another thread may hold while it waits.
    pub fn lock<'a, T>(&self, lock: &'a Mutex<T>) -> Result<MutexGuard<'a, T>> {
        match lock.try_lock() {
            Some(guard) => Ok(guard),
            None => self.check_may_wait().map(|()| lock.lock()),
        }
    }

    /// Notes that an answer which is given now out of memory was asked of the store at `asked`.
    pub fn note_memory(&self, asked: Instant) {
        if let Some(oldest) = &self.oldest {
            let mut oldest = oldest.lock();
            *oldest = asked.min(*oldest);
        }
    }

    /// Asks a question that begins at `now`; returns the answer, and when the oldest part of it was asked of the store.
    /// What is not noted in the context that the question gets was asked of the store now.
    pub(crate) fn timed<T>(
        &self,
        now: Instant,
        question: impl FnOnce(&RequestContext) -> T,
    ) -> (T, Instant) {
        let oldest = Arc::new(Mutex::new(now));
        let context = RequestContext {
            limit: self.limit.clone(),
            may_wait: self.may_wait,
            oldest: Some(oldest.clone()),
        };
        let answer = question(&context);
        let asked = *oldest.lock();
        // The answer is part of that to the question in which it was asked.
        self.note_memory(asked);
        (answer, asked)
    }

    /// Takes the right to make a change; `Unavailable` if the request was refused before.
    pub fn permit_change(&self) -> Result<ChangePermit> {
        if self.limit.as_ref().is_none_or(|limit| limit.suspend()) {
            Ok(ChangePermit(self.limit.clone()))
        } else {
            let why = "the request had waited too long (--timeout); nothing was changed";
            Err(Error::unavailable("", why))
        }
    }

    /// Whether the request was not answered yet; work without a time limit is waited for.
    pub fn is_waited_for(&self) -> bool {
        self.limit
            .as_ref()
            .is_none_or(|limit| limit.is_waited_for())
    }
}

/// Whether a request has its answer; false if that has to be waited for.
pub fn is_answer<T>(answer: &Result<T>) -> bool {
    !matches!(answer, Err(error) if error.kind() == Kind::WouldWait)
}

/// Returns the error of a request that may not wait and would have to.
pub fn would_wait() -> Error {
    Error::new(Kind::WouldWait, "", "has to be waited for")
}

/// Returns the error of work that has ended because nobody waited for it any more. It is no answer for others.
pub fn abandoned() -> Error {
    Error::new(
        Kind::Interrupted,
        "",
        "nobody waits for the answer any more",
    )
}

/// The right to make a change now. Dropped, it leaves the request without a limit.
#[must_use]
pub struct ChangePermit(Option<Arc<dyn RequestLimit>>);

impl ChangePermit {
    /// Gives the right back where nothing was changed: the time limit counts again.
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

    /// Counts how often it is suspended; `None` once the request was refused.
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
    fn a_request_that_was_refused_changes_nothing() {
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
    fn who_may_not_wait_waits_for_no_lock() {
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
        let (answer, asked) = UNLIMITED.timed(at(9), |_| 7);
        assert_eq!((answer, asked), (7, at(9)), "asked just now");
        let outer = |context: &RequestContext| {
            context.note_memory(at(5));
            let inner = context.timed(at(10), |context| context.note_memory(at(4)));
            assert_eq!(inner, ((), at(4)));
            // Parts may be asked for in other threads.
            thread::scope(|scope| {
                scope.spawn(|| context.note_memory(at(3)));
            });
            context.timed(at(11), |context| context.note_memory(at(6)))
        };
        assert_eq!(UNLIMITED.timed(at(10), outer), (((), at(6)), at(3)));
        UNLIMITED.note_memory(at(1));
        assert_eq!(UNLIMITED.timed(at(12), |_| ()), ((), at(12)));
    }
}
