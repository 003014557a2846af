//! Whether a request may still change something.
//!
//! A request that has waited for too long is refused, and its program told that nothing was done: from then on it must
//! change nothing. So what makes a change takes a permit right before it, after all that had to be waited for. While
//! the permit is held the request is not refused, and once the change is made it is never refused any more: its program
//! gets to know what became of the change. The limit is that of the request which the thread is at work on; other threads
//! that do a part of it have to be given it (`current`).

use std::cell::RefCell;
use std::sync::Arc;

use crate::error::{Error, Result};

/// The time limit of one request.
pub trait RequestLimit: Send + Sync {
    /// Has the request not be refused from now on; false if it was refused before.
    fn suspend(&self) -> bool;

    /// Takes back one `suspend`, if nothing was changed.
    fn resume(&self);
}

thread_local! {
    /// The limit of the request that this thread is at work on; none for work without a reply.
    static CURRENT: RefCell<Option<Arc<dyn RequestLimit>>> = const { RefCell::new(None) };
}

/// Does work under the limit of a request, or under none.
pub fn under<T>(limit: Option<Arc<dyn RequestLimit>>, work: impl FnOnce() -> T) -> T {
    let _outer = Outer(CURRENT.replace(limit));
    work()
}

/// Returns the limit that this thread works under.
pub fn current() -> Option<Arc<dyn RequestLimit>> {
    CURRENT.with_borrow(Option::clone)
}

/// The limit that counts again afterwards, also after a panic.
struct Outer(Option<Arc<dyn RequestLimit>>);

impl Drop for Outer {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// The right to make a change now. Dropped, it leaves the request without a limit.
#[must_use]
pub struct ChangePermit(Option<Arc<dyn RequestLimit>>);

impl ChangePermit {
    /// Takes the right; `Unavailable` if the request was refused before.
    pub fn take() -> Result<ChangePermit> {
        let limit = current();
        if limit.as_ref().is_none_or(|limit| limit.suspend()) {
            Ok(ChangePermit(limit))
        } else {
            let why = "the request had waited too long (--timeout); nothing was changed";
            Err(Error::unavailable("", why))
        }
    }

    /// Gives the right back where nothing was changed: the time limit counts again.
    pub fn give_back(self) {
        if let Some(limit) = &self.0 {
            limit.resume();
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    /// How often it is suspended; nothing once the request was refused.
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
    }

    #[test]
    fn what_was_refused_changes_nothing() {
        let limit = Arc::new(Counted(Mutex::new(Some(0))));
        under(Some(limit.clone()), || {
            ChangePermit::take().unwrap().give_back();
            assert_eq!(*limit.0.lock(), Some(0));
            drop(ChangePermit::take().unwrap());
            assert_eq!(*limit.0.lock(), Some(1));
            *limit.0.lock() = None;
            assert!(ChangePermit::take().is_err());
            under(None, || drop(ChangePermit::take().unwrap()));
            assert!(ChangePermit::take().is_err());
        });
        assert!(current().is_none());
        drop(ChangePermit::take().unwrap());
    }
}
