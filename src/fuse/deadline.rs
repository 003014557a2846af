//! Every request that had to wait is answered in time.
//!
//! A reply lies in a slot, and whoever comes first takes it: the job that has the answer, or the watcher,
//! which says that there is none. So each reply is used exactly once. Costs one lock and one entry in an
//! ordered map per request; the watcher sleeps until the oldest one is due, and for good when there is none.
//! A job that is late goes on: ending it is the store's business.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::Kind;
use crate::stats::Stats;

/// A reply that can say no.
pub(super) trait ReplyError: Send + 'static {
    /// Answers with an errno.
    fn refuse(self, errno: i32);
}

/// The replies that are still owed, and when they are due.
pub(super) struct Deadlines {
    limit: Duration,
    owed: Arc<PendingReplies>,
}

struct PendingReplies {
    replies: Mutex<Replies>,
    wake: Condvar,
    stats: Arc<Stats>,
}

#[derive(Default)]
struct Replies {
    /// By number; the limit is the same for all, so the first is due first.
    due: BTreeMap<u64, (Instant, Arc<dyn Expire>)>,
    next: u64,
    /// The watcher sleeps without a limit and must be woken.
    asleep: bool,
    closed: bool,
}

trait Expire: Send + Sync {
    /// Refuses the reply unless it was taken; returns whether it was still there.
    fn expire(&self) -> bool;
    /// Says which request it is.
    fn describe(&self) -> String;
}

struct PendingReply<R> {
    name: &'static str,
    inode: u64,
    reply: Mutex<Option<R>>,
}

/// The right to answer one request, unless time runs out first. Dropped unused, it refuses with EIO.
pub(super) struct ReplyGuard<R: ReplyError> {
    slot: Arc<PendingReply<R>>,
    number: u64,
    owed: Arc<PendingReplies>,
}

impl Deadlines {
    /// Starts the watcher; every reply is due `limit` after it was handed in.
    pub(super) fn new(limit: Duration, stats: Arc<Stats>) -> io::Result<Deadlines> {
        let owed = Arc::new(PendingReplies {
            replies: Mutex::default(),
            wake: Condvar::new(),
            stats,
        });
        let watched = owed.clone();
        thread::Builder::new()
            .name("zarrfs-deadline".to_string())
            .spawn(move || watched.watch(limit))?;
        Ok(Deadlines { limit, owed })
    }

    /// Takes a reply into a slot that is never due: for work that has limits of its own, step by step.
    pub(super) fn begin_unlimited<R: ReplyError>(
        &self,
        name: &'static str,
        inode: u64,
        reply: R,
    ) -> ReplyGuard<R> {
        let slot = Arc::new(PendingReply {
            name,
            inode,
            reply: Mutex::new(Some(reply)),
        });
        let mut replies = self.owed.lock();
        let number = replies.next;
        replies.next += 1;
        drop(replies);
        let owed = self.owed.clone();
        ReplyGuard { slot, number, owed }
    }

    /// Takes a reply into a slot; `name` and `inode` are for the log.
    pub(super) fn begin<R: ReplyError>(
        &self,
        name: &'static str,
        inode: u64,
        reply: R,
    ) -> ReplyGuard<R> {
        let slot = Arc::new(PendingReply {
            name,
            inode,
            reply: Mutex::new(Some(reply)),
        });
        let due = Instant::now() + self.limit;
        let mut replies = self.owed.lock();
        let number = replies.next;
        replies.next += 1;
        replies.due.insert(number, (due, slot.clone()));
        if replies.asleep {
            replies.asleep = false;
            self.owed.wake.notify_one();
        }
        drop(replies);
        ReplyGuard {
            slot,
            number,
            owed: self.owed.clone(),
        }
    }
}

impl Drop for Deadlines {
    fn drop(&mut self) {
        self.owed.lock().closed = true;
        self.owed.wake.notify_one();
    }
}

impl PendingReplies {
    fn lock(&self) -> MutexGuard<'_, Replies> {
        self.replies.lock()
    }

    fn watch(&self, limit: Duration) {
        while let Some(late) = self.next_late(limit) {
            if late.expire() {
                self.stats.error_requests.add(1);
                log::error!(
                    "{}: no answer within {} s",
                    late.describe(),
                    limit.as_secs_f64()
                );
            }
        }
    }

    /// Returns the next reply that is overdue, or nothing when the session is over.
    fn next_late(&self, limit: Duration) -> Option<Arc<dyn Expire>> {
        let mut quiet = false;
        let mut replies = self.lock();
        loop {
            if replies.closed {
                return None;
            }
            let wait = match replies.due.first_key_value() {
                Some((_, (due, _))) => due.saturating_duration_since(Instant::now()),
                // Nobody waits: sleep for one more limit, then until woken. Under load nobody need wake us.
                None => limit,
            };
            if wait.is_zero() {
                return replies.due.pop_first().map(|(_, (_, late))| late);
            }
            if replies.due.is_empty() && quiet {
                replies.asleep = true;
                self.wake.wait(&mut replies);
                replies.asleep = false;
                quiet = false;
                continue;
            }
            quiet = replies.due.is_empty();
            self.wake.wait_for(&mut replies, wait);
        }
    }
}

impl<R: ReplyError> Expire for PendingReply<R> {
    fn expire(&self) -> bool {
        let reply = self.take();
        let owed = reply.is_some();
        if let Some(reply) = reply {
            reply.refuse(Kind::Unavailable.errno());
        }
        owed
    }

    fn describe(&self) -> String {
        format!("{} of inode {}", self.name, self.inode)
    }
}

impl<R> PendingReply<R> {
    fn take(&self) -> Option<R> {
        self.reply.lock().take()
    }
}

impl<R: ReplyError> ReplyGuard<R> {
    /// Returns the reply, or nothing if time has run out.
    pub(super) fn take(&self) -> Option<R> {
        self.slot.take()
    }
}

impl<R: ReplyError> Drop for ReplyGuard<R> {
    fn drop(&mut self) {
        self.owed.lock().due.remove(&self.number);
        self.slot.expire();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    struct Heard(mpsc::Sender<i32>);

    impl ReplyError for Heard {
        fn refuse(self, errno: i32) {
            self.0.send(errno).unwrap();
        }
    }

    fn deadlines(millis: u64) -> Deadlines {
        Deadlines::new(Duration::from_millis(millis), Arc::default()).unwrap()
    }

    #[test]
    fn a_late_reply_is_refused_once() {
        let deadlines = deadlines(30);
        let (heard, replies) = mpsc::channel();
        let ticket = deadlines.begin("read", 7, Heard(heard));
        assert_eq!(
            replies.recv_timeout(Duration::from_secs(5)),
            Ok(Kind::Unavailable.errno())
        );
        assert!(ticket.take().is_none());
        drop(ticket);
        assert!(replies.recv().is_err());
        assert!(deadlines.owed.lock().due.is_empty());
    }

    #[test]
    fn a_reply_in_time_is_left_alone() {
        let deadlines = deadlines(20);
        let (heard, replies) = mpsc::channel();
        let ticket = deadlines.begin("read", 7, Heard(heard));
        let reply = ticket.take().unwrap();
        thread::sleep(Duration::from_millis(80));
        drop((ticket, reply));
        assert!(replies.recv().is_err());
    }

    #[test]
    fn a_reply_forgotten_is_refused() {
        let deadlines = deadlines(10_000);
        let (heard, replies) = mpsc::channel();
        drop(deadlines.begin("read", 7, Heard(heard)));
        assert_eq!(replies.recv(), Ok(Kind::Unavailable.errno()));
    }

    #[test]
    fn the_watcher_wakes_for_the_first_after_a_long_quiet() {
        let deadlines = deadlines(20);
        thread::sleep(Duration::from_millis(120));
        let (heard, replies) = mpsc::channel();
        let _ticket = deadlines.begin("read", 7, Heard(heard));
        assert!(replies.recv_timeout(Duration::from_secs(5)).is_ok());
    }
}
