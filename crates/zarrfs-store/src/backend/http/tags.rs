//! Whether the ETags of a server tell contents apart, or differ by server behind one name.
//!
//! Behind a load balancer each server may make ETags of inode and time, so that an object has another one in each answer.
//! They count until that is proved: an answer has another ETag than the one before while length and Last-Modified are the
//! same, then the first ETag comes again and another one after it, and the bytes are equal under all of them. An object
//! that was replaced has its first ETag never again. From then on size and Last-Modified count, as of a server without
//! ETags.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use lru::LruCache;
use parking_lot::Mutex;

use super::response::Validators;
use crate::stats::Stats;
use crate::{Key, Version};
use zarr_format::error::Error;

/// Of how many keys the last ETag is remembered.
const MAX_SEEN: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// How many pairs of ETags of a key are remembered that were tried: each is tried once, so that an object which is replaced
/// all the time within its second costs one trial for each of its contents.
const MAX_TRIED: usize = 16;

/// What is said once.
const DIFFER: &str = "the server's ETags differ from answer to answer for the same content, so they are not used: size and \
    Last-Modified tell contents apart";

/// The ETags of one server.
pub(super) struct TagWatch {
    stats: Arc<Stats>,
    are_dropped: AtomicBool,
    seen: Mutex<LruCache<Key, SeenKey>>,
    /// Held during a trial: who sees the same pair waits for its end.
    pub(super) trial: tokio::sync::Mutex<()>,
}

/// What answers told of a key.
#[derive(Default)]
struct SeenKey {
    last: Option<SeenTag>,
    /// Pairs of ETags that were tried.
    tried: VecDeque<[Version; 2]>,
}

/// What is to be done after an answer with another ETag than the one before.
pub(super) enum Suspicion {
    /// A trial of this ETag and that of the answer.
    Trial(SeenTag),
    /// To wait for the end of that trial, if it is not over.
    Tried,
}

/// What an answer told of an object that has both validators.
#[derive(Clone, Copy)]
pub(super) struct SeenTag {
    /// A number that the ETag names.
    pub(super) tag: Version,
    pub(super) modified: SystemTime,
    pub(super) size: u64,
}

impl SeenTag {
    /// Returns what an answer with these validators told; nothing without both.
    pub(super) fn of(validators: &Validators, size: u64) -> Option<SeenTag> {
        Some(SeenTag {
            tag: Version::of(validators.name()?.as_bytes()),
            modified: validators.modified?,
            size,
        })
    }

    /// Whether only the ETags of two answers differ.
    fn differs_by_tag(&self, other: &SeenTag) -> bool {
        self.tag != other.tag && (self.modified, self.size) == (other.modified, other.size)
    }
}

impl TagWatch {
    /// Builds the watch of a server whose ETags count so far.
    pub(super) fn new(stats: Arc<Stats>) -> TagWatch {
        TagWatch {
            stats,
            are_dropped: AtomicBool::new(false),
            seen: Mutex::new(LruCache::new(MAX_SEEN)),
            trial: tokio::sync::Mutex::default(),
        }
    }

    /// Whether ETags do not count any more.
    pub(super) fn are_dropped(&self) -> bool {
        self.are_dropped.load(Ordering::Relaxed)
    }

    /// Returns the validators that count.
    pub(super) fn counting(&self, validators: Validators) -> Validators {
        let tag = validators.tag.filter(|_| !self.are_dropped());
        Validators { tag, ..validators }
    }

    /// Drops the ETags from now on.
    pub(super) fn drop_all(&self, key: &Key) {
        if !self.are_dropped.swap(true, Ordering::Relaxed) {
            let error = Error::unsupported(key, DIFFER);
            self.stats.failures.report("read", &key.to_string(), &error);
            self.seen.lock().clear();
        }
    }

    /// Notes an answer; returns what is to be done if only its ETag differs from that of the one before.
    pub(super) fn note(&self, key: &Key, now: &SeenTag) -> Option<Suspicion> {
        let mut seen = self.seen.lock();
        let seen = seen.get_or_insert_mut(key.clone(), SeenKey::default);
        let before = seen.last.replace(*now)?;
        if !before.differs_by_tag(now) {
            return None;
        }
        let mut pair = [before.tag, now.tag];
        pair.sort_by_key(|tag| tag.number());
        if seen.tried.contains(&pair) {
            return Some(Suspicion::Tried);
        }
        if seen.tried.len() == MAX_TRIED {
            seen.tried.pop_front();
        }
        seen.tried.push_back(pair);
        Some(Suspicion::Trial(before))
    }
}
