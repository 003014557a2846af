//! An object on the web, read range by range, or whole and once where the server has no ranges.
//!
//! Every answer says which content it is of; one of another content is `Changed`, never mixed with the first.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::endpoint::{HttpEndpoint, RequestSpec, changed};
use super::response::ResponseKind;
use crate::error::{Error, Result};
use crate::store::{Key, Meta, Reader};

/// The longest object that is kept in memory because the server has no ranges.
pub(super) const LONGEST_WHOLE: u64 = 256 << 20;

/// An object as it was when it was opened.
pub(super) struct HttpReader {
    site: Arc<HttpEndpoint>,
    key: Key,
    meta: Meta,
    /// Whether the server was seen to answer a range with a range.
    has_ranges: AtomicBool,
    whole: Mutex<Option<Whole>>,
}

/// All bytes of an object.
type Whole = Arc<Vec<u8>>;

impl HttpReader {
    /// Opens an object of which `meta` is known.
    pub(super) fn new(site: Arc<HttpEndpoint>, key: Key, meta: Meta) -> HttpReader {
        HttpReader {
            site,
            key,
            meta,
            has_ranges: AtomicBool::new(false),
            whole: Mutex::new(None),
        }
    }

    /// Fetches a part; with it, or instead of it, the whole if that is what came.
    fn fetch(&self, start: u64, end: u64) -> Result<(Vec<u8>, Option<Whole>)> {
        let range = format!("bytes={start}-{}", end - 1);
        let piece = self.site.wait(&self.key, async {
            let question = RequestSpec::part(&self.key, range);
            let answer = self.site.ask(&question).await?;
            match answer.standing(&self.key)? {
                ResponseKind::There | ResponseKind::Page => {}
                _ => return Err(changed(&self.key)),
            }
            let most = if answer.status == 206 {
                end - start
            } else {
                LONGEST_WHOLE
            };
            self.site.piece(&self.key, answer, most).await
        })?;
        if piece.meta.version != self.meta.version || piece.meta.size != self.meta.size {
            return Err(changed(&self.key));
        }
        if piece.is_whole {
            let whole = Arc::new(piece.bytes);
            return Ok((slice(&whole, start, end), Some(whole)));
        }
        if (piece.start, piece.bytes.len() as u64) != (start, end - start) {
            let text = "the server sends another part than asked for";
            return Err(Error::unavailable(&self.key, text));
        }
        Ok((piece.bytes, None))
    }
}

fn slice(whole: &[u8], start: u64, end: u64) -> Vec<u8> {
    let clip = |place: u64| {
        usize::try_from(place)
            .unwrap_or(usize::MAX)
            .min(whole.len())
    };
    whole
        .get(clip(start)..clip(end))
        .unwrap_or_default()
        .to_vec()
}

impl Reader for HttpReader {
    fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        let end = offset.saturating_add(len as u64).min(self.meta.size);
        if offset >= end {
            return Ok(Vec::new());
        }
        if self.has_ranges.load(Ordering::Relaxed) {
            return Ok(self.fetch(offset, end)?.0);
        }
        // Until the server has shown what it can do, one asks and the others wait: what comes may be the whole.
        let mut kept = self.whole.lock();
        if let Some(whole) = &*kept {
            return Ok(slice(whole, offset, end));
        }
        if self.has_ranges.load(Ordering::Relaxed) {
            drop(kept);
            return Ok(self.fetch(offset, end)?.0);
        }
        let (bytes, whole) = self.fetch(offset, end)?;
        self.has_ranges.store(whole.is_none(), Ordering::Relaxed);
        *kept = whole;
        Ok(bytes)
    }

    fn meta(&self) -> Result<Meta> {
        Ok(self.meta)
    }
}
