//! Detects servers whose ETags differ from response to response for the same content.
//!
//! Behind a load balancer, each server may make its own ETag for the same object. ETags are trusted until a trial
//! proves that they differ for equal content. A trial begins if only an object's ETag differs from the response before,
//! with equal length and Last-Modified. The trial requests the object several times. It succeeds if the first ETag
//! comes back, another ETag follows it, and all bytes are equal: an object that was replaced never gets its first ETag
//! back. After a success, object versions are made of size and Last-Modified, as for a server without ETags.

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

/// Watches whether one server's ETags can be trusted.
pub(super) struct ETagWatch {
    stats: Arc<Stats>,
    are_ignored: AtomicBool,
    keys: Mutex<LruCache<Key, WatchedKey>>,
    /// Held during a trial, so that requests which see the same pair of ETags wait for its result.
    trial: tokio::sync::Mutex<()>,
}

/// The last response about a key, and the trials of its ETags.
#[derive(Default)]
struct WatchedKey {
    last: Option<ObservedETag>,
    /// Pairs of ETags that trials have compared.
    tried: VecDeque<[Version; 2]>,
}

/// What to do after a response with another ETag than the response before.
enum Suspicion {
    /// Start a trial: compare the content under this earlier ETag and the new one.
    Trial(ObservedETag),
    /// A trial of this pair of ETags was started: wait for its end if it is still running.
    Tried,
}

/// ETag, Last-Modified and size of an object, from a response that has all of them.
#[derive(Clone, Copy)]
struct ObservedETag {
    /// A hash of the ETag.
    tag: Version,
    modified: SystemTime,
    size: u64,
}

impl ObservedETag {
    /// Returns the ETag, time and size of a response, or `None` if the ETag or the time is missing.
    fn of(validators: &Validators, size: u64) -> Option<ObservedETag> {
        Some(ObservedETag {
            tag: Version::of(validators.opaque_tag()?.as_bytes()),
            modified: validators.modified?,
            size,
        })
    }

    fn differs_by_tag(&self, other: &ObservedETag) -> bool {
        self.tag != other.tag && (self.modified, self.size) == (other.modified, other.size)
    }
}

impl ETagWatch {
    pub(super) fn new(stats: Arc<Stats>) -> ETagWatch {
        ETagWatch {
            stats,
            are_ignored: AtomicBool::new(false),
            keys: Mutex::new(LruCache::new(const { NonZeroUsize::new(1024).unwrap() })),
            trial: tokio::sync::Mutex::default(),
        }
    }

    /// Records a response about an object of `size` bytes. If only its ETag is new, runs a trial or waits for one.
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

    /// Whether the server's ETags are known to be unreliable.
    pub(super) fn are_ignored(&self) -> bool {
        self.are_ignored.load(Ordering::Relaxed)
    }

    /// Removes the ETag from a response's validators if the server's ETags are unreliable.
    pub(super) fn usable(&self, validators: Validators) -> Validators {
        let tag = validators.tag.filter(|_| !self.are_ignored());
        Validators { tag, ..validators }
    }

    /// Ignores the server's ETags from now on, and reports that once.
    fn ignore_all(&self, key: &Key) {
        if !self.are_ignored.swap(true, Ordering::Relaxed) {
            let why = "the server sends different ETags for the same content, so zarrfs ignores ETags and compares size \
                 and Last-Modified instead";
            let error = Error::unsupported(key, why);
            self.stats.failures.report("read", &key.to_string(), &error);
            self.keys.lock().clear();
        }
    }

    /// Records a response. Returns what to do if only the ETag differs from the response before, or `None` otherwise.
    fn record(&self, key: &Key, now: &ObservedETag) -> Option<Suspicion> {
        let mut keys = self.keys.lock();
        let watched = keys.get_or_insert_mut(key.clone(), WatchedKey::default);
        let before = watched.last.replace(*now)?;
        if !before.differs_by_tag(now) {
            return None;
        }
        let mut pair = [before.tag, now.tag];
        pair.sort_by_key(|tag| tag.number());
        // Each pair of ETags of an object is tested only once, because the test needs requests. An object that is
        // replaced several times in one second costs one test per version.
        if watched.tried.contains(&pair) {
            return Some(Suspicion::Tried);
        }
        // Only the last 16 pairs are stored for each key, to limit memory.
        if watched.tried.len() == 16 {
            watched.tried.pop_front();
        }
        watched.tried.push_back(pair);
        Some(Suspicion::Trial(before))
    }
}

/// Whether responses with both ETags have the same content. Returns false if a request fails, since a failure proves
/// nothing.
async fn has_both_etags(
    endpoint: &HttpEndpoint,
    key: &Key,
    before: &ObservedETag,
    now: &ObservedETag,
) -> bool {
    // Only the first 64 KiB of each response are compared.
    let end = now.size.min(64 << 10);
    if end == 0 {
        return false;
    }
    let mut first: Option<Vec<u8>> = None;
    let mut is_back = false;
    // Eight responses suffice: if two servers respond at random, only 1 trial in 28 ends without a proof.
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

/// Fetches the first `end` bytes of an object and its validators. Returns `None` if the response has another range or
/// lacks a validator.
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
