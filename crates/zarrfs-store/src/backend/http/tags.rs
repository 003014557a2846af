//! Detects servers whose ETags differ from response to response for the same content.
//!
//! Behind a load balancer, each server may make ETags from inode and time, so that an object gets another one in each
//! response. ETags are trusted until this is proved: a response has another ETag than the one before, with the same
//! length and Last-Modified; then the first ETag comes back, followed by another one; and the bytes are equal under all
//! of them. An object that was replaced never gets its first ETag back. After that, versions are made of size and
//! Last-Modified, as for a server without ETags.

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

/// Maximum number of keys whose last ETag is remembered.
const MAX_SEEN: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// Maximum number of tested ETag pairs that are remembered per key. Each pair is tested once, so that an object which
/// is replaced several times in one second costs one trial per version.
const MAX_TRIED: usize = 16;

/// The warning, which is logged once.
const DIFFER: &str = "the server's ETags differ from answer to answer for the same content, so they are not used: size and \
    Last-Modified tell contents apart";

/// The ETags of one server.
pub(super) struct TagWatch {
    stats: Arc<Stats>,
    are_dropped: AtomicBool,
    seen: Mutex<LruCache<Key, SeenKey>>,
    /// Held during a trial. Others that see the same pair wait for its end.
    pub(super) trial: tokio::sync::Mutex<()>,
}

/// The record of a key.
#[derive(Default)]
struct SeenKey {
    last: Option<SeenTag>,
    /// Pairs of ETags that were tested.
    tried: VecDeque<[Version; 2]>,
}

/// What to do after a response with another ETag than the one before.
pub(super) enum Suspicion {
    /// Test this earlier ETag against the new one.
    Trial(SeenTag),
    /// Wait for the end of the trial, if it is still running.
    Tried,
}

/// The validators and size in a response that has both validators.
#[derive(Clone, Copy)]
pub(super) struct SeenTag {
    /// A hash of the ETag.
    pub(super) tag: Version,
    pub(super) modified: SystemTime,
    pub(super) size: u64,
}

impl SeenTag {
    /// Returns the record of a response with these validators, or `None` unless there are both.
    pub(super) fn of(validators: &Validators, size: u64) -> Option<SeenTag> {
        Some(SeenTag {
            tag: Version::of(validators.name()?.as_bytes()),
            modified: validators.modified?,
            size,
        })
    }

    /// Whether two responses differ only in the ETag.
    fn differs_by_tag(&self, other: &SeenTag) -> bool {
        self.tag != other.tag && (self.modified, self.size) == (other.modified, other.size)
    }
}

impl TagWatch {
    /// Creates the watch of a server whose ETags are trusted so far.
    pub(super) fn new(stats: Arc<Stats>) -> TagWatch {
        TagWatch {
            stats,
            are_dropped: AtomicBool::new(false),
            seen: Mutex::new(LruCache::new(MAX_SEEN)),
            trial: tokio::sync::Mutex::default(),
        }
    }

    /// Whether ETags are no longer used.
    pub(super) fn are_dropped(&self) -> bool {
        self.are_dropped.load(Ordering::Relaxed)
    }

    /// Returns the validators without the ETag if ETags are no longer used.
    pub(super) fn counting(&self, validators: Validators) -> Validators {
        let tag = validators.tag.filter(|_| !self.are_dropped());
        Validators { tag, ..validators }
    }

    /// Stops using ETags, and reports it once.
    pub(super) fn drop_all(&self, key: &Key) {
        if !self.are_dropped.swap(true, Ordering::Relaxed) {
            let error = Error::unsupported(key, DIFFER);
            self.stats.failures.report("read", &key.to_string(), &error);
            self.seen.lock().clear();
        }
    }

    /// Records a response. Returns what to do if only its ETag differs from the response before, or `None` otherwise.
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
