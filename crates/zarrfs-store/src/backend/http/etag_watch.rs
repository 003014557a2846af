//! Detects servers whose ETags differ from response to response for the same content.
//!
//! Behind a load balancer, each server may make ETags from inode and time, so that an object gets another one in each
//! response. ETags are trusted until a trial proves that they differ for equal content. A trial begins if only the ETag
//! of an object differs from the response before, with equal length and Last-Modified. It requests the object several
//! times, and succeeds if the first ETag comes back, another one follows it, and all bytes are equal: an object that
//! was replaced never gets its first ETag back. From then on versions are made of size and Last-Modified, as for a
//! server without ETags.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use lru::LruCache;
use parking_lot::Mutex;

use super::endpoint::{HttpEndpoint, RequestSpec};
use super::response::Validators;
use crate::stats::Stats;
use crate::{ByteRange, Key, Version};
use zarr_format::error::Error;

/// The ETags of one server.
pub(super) struct ETagWatch {
    stats: Arc<Stats>,
    are_ignored: AtomicBool,
    keys: Mutex<LruCache<Key, WatchedKey>>,
    /// Held during a trial. Requests that see the same pair of ETags wait for its end.
    trial: tokio::sync::Mutex<()>,
}

/// The record of a key.
#[derive(Default)]
struct WatchedKey {
    last: Option<ObservedETag>,
    /// Pairs of ETags that were tested.
    tried: VecDeque<[Version; 2]>,
}

/// What to do after a response with another ETag than the one before.
enum Suspicion {
    /// Test this earlier ETag against the new one.
    Trial(ObservedETag),
    /// Wait for the end of the trial, if it is still running.
    Tried,
}

/// The validators and size in a response that has both validators.
#[derive(Clone, Copy)]
struct ObservedETag {
    /// A hash of the ETag.
    tag: Version,
    modified: SystemTime,
    size: u64,
}

impl ObservedETag {
    /// Returns the record of a response with these validators, or `None` if the ETag or the time is missing.
    fn of(validators: &Validators, size: u64) -> Option<ObservedETag> {
        Some(ObservedETag {
            tag: Version::of(validators.opaque_tag()?.as_bytes()),
            modified: validators.modified?,
            size,
        })
    }

    /// Whether two responses differ only in the ETag.
    fn differs_by_tag(&self, other: &ObservedETag) -> bool {
        self.tag != other.tag && (self.modified, self.size) == (other.modified, other.size)
    }
}

impl ETagWatch {
    /// Creates the watch of a server whose ETags are trusted so far.
    pub(super) fn new(stats: Arc<Stats>) -> ETagWatch {
        ETagWatch {
            stats,
            are_ignored: AtomicBool::new(false),
            keys: Mutex::new(LruCache::new(const { NonZeroUsize::new(1024).unwrap() })),
            trial: tokio::sync::Mutex::default(),
        }
    }

    /// Records a response about an object of `size` bytes. If it arouses suspicion, waits for a trial.
    pub(super) async fn observe(
        &self,
        endpoint: &HttpEndpoint,
        key: &Key,
        validators: &Validators,
        size: u64,
    ) {
        if !self.are_ignored()
            && let Some(now) = ObservedETag::of(validators, size)
            && let Some(suspicion) = self.record(key, &now)
        {
            let _trial = self.trial.lock().await;
            if let Suspicion::Trial(before) = suspicion
                && !self.are_ignored()
                && has_both_etags(endpoint, key, &before, &now).await
            {
                self.ignore_all(key);
            }
        }
    }

    /// Whether ETags are no longer used.
    pub(super) fn are_ignored(&self) -> bool {
        self.are_ignored.load(Ordering::Relaxed)
    }

    /// Returns the validators without the ETag if ETags are no longer used.
    pub(super) fn usable(&self, validators: Validators) -> Validators {
        let tag = validators.tag.filter(|_| !self.are_ignored());
        Validators { tag, ..validators }
    }

    /// Stops using ETags, and reports it once.
    fn ignore_all(&self, key: &Key) {
        if !self.are_ignored.swap(true, Ordering::Relaxed) {
            let why = "the server sends different ETags for the same content, so zarrfs ignores ETags and compares size \
                 and Last-Modified instead";
            let error = Error::unsupported(key, why);
            self.stats.failures.report("read", &key.to_string(), &error);
            self.keys.lock().clear();
        }
    }

    /// Records a response. Returns what to do if only its ETag differs from the response before, or `None` otherwise.
    fn record(&self, key: &Key, now: &ObservedETag) -> Option<Suspicion> {
        let mut keys = self.keys.lock();
        let watched = keys.get_or_insert_mut(key.clone(), WatchedKey::default);
        let before = watched.last.replace(*now)?;
        if !before.differs_by_tag(now) {
            return None;
        }
        let mut pair = [before.tag, now.tag];
        pair.sort_by_key(|tag| tag.number());
        // Each pair is tested once. An object that is replaced several times in one second thus costs one trial per
        // version.
        if watched.tried.contains(&pair) {
            return Some(Suspicion::Tried);
        }
        // The last 16 pairs of a key are remembered.
        if watched.tried.len() == 16 {
            watched.tried.pop_front();
        }
        watched.tried.push_back(pair);
        Some(Suspicion::Trial(before))
    }
}

/// Whether an object has the same content under both ETags. Returns false if a request fails, since that proves
/// nothing.
async fn has_both_etags(
    endpoint: &HttpEndpoint,
    key: &Key,
    before: &ObservedETag,
    now: &ObservedETag,
) -> bool {
    // The first 64 KiB of each response are compared.
    let end = now.size.min(64 << 10);
    if end == 0 {
        return false;
    }
    let mut first: Option<Vec<u8>> = None;
    let mut is_back = false;
    // If two servers respond at random, 1 trial in 28 ends after 8 responses without a proof.
    for _ in 0..8 {
        let Some((answer, bytes)) = first_bytes(endpoint, key, end).await else {
            return false;
        };
        if (answer.modified, answer.size) != (now.modified, now.size)
            || first.as_ref().is_some_and(|first| *first != bytes)
        {
            return false;
        }
        if is_back && answer.tag != before.tag {
            return true;
        }
        is_back |= answer.tag == before.tag;
        first.get_or_insert(bytes);
    }
    false
}

/// Fetches the first `end` bytes of an object. Returns `None` if the response is not exactly that range, or lacks a
/// validator.
async fn first_bytes(
    endpoint: &HttpEndpoint,
    key: &Key,
    end: u64,
) -> Option<(ObservedETag, Vec<u8>)> {
    let spec = RequestSpec::range(key, &ByteRange::Span(0..end));
    let response = endpoint.send(&spec).await.ok()?;
    let sized = response.sized_range()?;
    let observed = ObservedETag::of(&response.validators(), sized.size)?;
    if response.status != 206 || sized.range != (0..end) {
        return None;
    }
    let mut bytes = Vec::new();
    endpoint
        .append_body(key, response.body, &mut bytes, end)
        .await
        .ok()?;
    (bytes.len() as u64 == end).then_some((observed, bytes))
}
