//! Counts requests, bytes and time of the store below.
//!
//! The layer updates the counters `store_*` and returns answers unchanged, so that no backend needs to count.

use std::io::IoSliceMut;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::layer::Layer;
use crate::request_context::RequestContext;
use crate::stats::Stats;
use crate::{
    ByteRange, Condition, ETag, FlatListing, Key, Listing, Meta, Object, PutBody, Reader, Store,
    Version,
};
use zarr_format::error::Result;

/// A store that counts the requests to the store below it in the counters `store_*`.
pub struct CountingStore {
    inner: Arc<dyn Store>,
    stats: Arc<Stats>,
}

impl CountingStore {
    /// Wraps a store, and counts its requests in `stats`.
    pub fn new(inner: Arc<dyn Store>, stats: Arc<Stats>) -> CountingStore {
        CountingStore { inner, stats }
    }
}

/// Runs a request to the store and counts the time that it takes. The error is `WouldWait` if the caller may not wait
/// for requests.
fn timed<T>(
    context: &RequestContext,
    stats: &Stats,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    context.check_may_wait()?;
    let start = Instant::now();
    let answer = work();
    let nanoseconds = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    stats.store_nanoseconds.add(nanoseconds);
    answer
}

fn counted(stats: &Stats, answer: Result<Option<Object>>) -> Result<Option<Object>> {
    stats.store_get_requests.add(1);
    if let Ok(Some(object)) = &answer {
        stats.store_get_bytes.add(object.bytes.len() as u64);
    }
    answer
}

impl Layer for CountingStore {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }

    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        counted(
            &self.stats,
            timed(context, &self.stats, || self.inner.get(context, key, limit)),
        )
    }

    fn get_range(
        &self,
        context: &RequestContext,
        key: &Key,
        range: ByteRange,
    ) -> Result<Option<Object>> {
        counted(
            &self.stats,
            timed(context, &self.stats, || {
                self.inner.get_range(context, key, range)
            }),
        )
    }

    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        if !context.may_wait() {
            // If the caller may not wait, the answer comes from memory, so no request is counted.
            return self.inner.head(context, key);
        }
        self.stats.store_head_requests.add(1);
        timed(context, &self.stats, || self.inner.head(context, key))
    }

    fn version(&self, context: &RequestContext, key: &Key) -> Result<Option<Version>> {
        self.stats.store_head_requests.add(1);
        timed(context, &self.stats, || self.inner.version(context, key))
    }

    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>> {
        let inner = timed(context, &self.stats, || {
            self.inner.open(context, key, known)
        })?;
        let stats = self.stats.clone();
        Ok(Arc::new(CountingReader { inner, stats }))
    }

    fn list(&self, context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>> {
        self.stats.store_list_requests.add(1);
        timed(context, &self.stats, || self.inner.list(context, prefix))
    }

    fn list_all(
        &self,
        context: &RequestContext,
        prefix: &Key,
        from: &Key,
    ) -> Result<Option<Box<dyn FlatListing>>> {
        let listing = timed(context, &self.stats, || {
            self.inner.list_all(context, prefix, from)
        })?;
        let Some(inner) = listing else {
            return Ok(None);
        };
        self.stats.store_list_requests.add(1);
        let stats = self.stats.clone();
        Ok(Some(Box::new(CountingFlatListing { inner, stats })))
    }

    fn read_link(&self, context: &RequestContext, key: &Key) -> Result<Vec<u8>> {
        context.check_may_wait()?;
        self.inner.read_link(context, key)
    }

    fn etag(&self, context: &RequestContext, key: &Key) -> Result<Option<ETag>> {
        self.stats.store_head_requests.add(1);
        timed(context, &self.stats, || self.inner.etag(context, key))
    }

    fn put(
        &self,
        context: &RequestContext,
        key: &Key,
        body: PutBody<'_>,
        condition: &Condition,
    ) -> Result<ETag> {
        self.stats.store_put_requests.add(1);
        let etag = timed(context, &self.stats, || {
            self.inner.put(context, key, body, condition)
        })?;
        self.stats.store_put_bytes.add(body.len());
        Ok(etag)
    }

    fn erase(&self, context: &RequestContext, key: &Key, condition: &Condition) -> Result<()> {
        self.stats.store_erase_requests.add(1);
        timed(context, &self.stats, || {
            self.inner.erase(context, key, condition)
        })
    }

    fn erase_folder(&self, context: &RequestContext, prefix: &Key) -> Result<()> {
        timed(context, &self.stats, || {
            self.inner.erase_folder(context, prefix)
        })
    }
}

/// A recursive listing whose time is counted. Its request was counted when the listing began.
struct CountingFlatListing {
    inner: Box<dyn FlatListing>,
    stats: Arc<Stats>,
}

#[deny(clippy::missing_trait_methods)]
impl FlatListing for CountingFlatListing {
    fn next(&mut self, context: &RequestContext) -> Result<Option<Vec<(Key, Meta)>>> {
        timed(context, &self.stats, || self.inner.next(context))
    }

    fn has_ended(&self) -> bool {
        self.inner.has_ended()
    }
}

struct CountingReader {
    inner: Arc<dyn Reader>,
    stats: Arc<Stats>,
}

#[deny(clippy::missing_trait_methods)]
impl Reader for CountingReader {
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>> {
        let answer = timed(context, &self.stats, || {
            self.inner.read_at(context, offset, len)
        });
        self.stats.store_get_requests.add(1);
        if let Ok(bytes) = &answer {
            self.stats.store_get_bytes.add(bytes.len() as u64);
        }
        answer
    }

    fn read_vectored(
        &self,
        context: &RequestContext,
        offset: u64,
        parts: &mut [IoSliceMut<'_>],
    ) -> Result<usize> {
        let answer = timed(context, &self.stats, || {
            self.inner.read_vectored(context, offset, parts)
        });
        self.stats.store_get_requests.add(1);
        if let Ok(read) = &answer {
            self.stats.store_get_bytes.add(*read as u64);
        }
        answer
    }

    fn read_ranges(&self, context: &RequestContext, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let answer = timed(context, &self.stats, || {
            self.inner.read_ranges(context, ranges)
        });
        self.stats.store_get_requests.add(1);
        // The store is assumed to read the gaps between the ranges as well.
        if let (true, Some(first), Some(last)) = (answer.is_ok(), ranges.first(), ranges.last()) {
            let bytes = last.end.saturating_sub(first.start);
            self.stats.store_get_bytes.add(bytes);
        }
        answer
    }

    fn meta(&self, context: &RequestContext) -> Result<Meta> {
        self.inner.meta(context)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }
}
