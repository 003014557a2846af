//! Bytes fetched before anybody asked for them, within a limit.
//!
//! What is on its way counts as well. Bytes count until their last holder is gone; what nobody took makes room
//! for the next, the oldest first.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;

use crate::error::{Error, Result};
use crate::store::{Key, Object};

/// Which bytes: an object, and which block of it, or all of it.
pub(super) type BlockId = (Key, Option<u64>);

/// Fetched pieces, and those on their way.
pub(super) struct PrefetchBuffer {
    limit: u64,
    state: Mutex<BufferState>,
}

struct BufferState {
    held: u64,
    pieces: LruCache<BlockId, Arc<BlockFetch>>,
}

/// A piece on its way, or there.
pub(super) struct BlockFetch {
    landed: Mutex<Option<Result<Option<Arc<BufferedBytes>>>>>,
    signal: Condvar,
}

/// Bytes and the room that they take.
pub(super) struct BufferedBytes {
    pub(super) object: Object,
    _room: BufferReservation,
}

/// Room in a stock; given back when dropped.
pub(super) struct BufferReservation {
    stock: Arc<PrefetchBuffer>,
    bytes: u64,
}

impl Drop for BufferReservation {
    fn drop(&mut self) {
        let mut state = self.stock.lock();
        state.held = state.held.saturating_sub(self.bytes);
    }
}

impl BlockFetch {
    fn lock(&self) -> MutexGuard<'_, Option<Result<Option<Arc<BufferedBytes>>>>> {
        self.landed.lock()
    }

    /// Gives those who wait what there is; nothing if the object is missing.
    pub(super) fn land(&self, fetched: Result<Option<Object>>, room: BufferReservation) {
        let held = fetched.map(|found| {
            found.map(|object| {
                Arc::new(BufferedBytes {
                    object,
                    _room: room,
                })
            })
        });
        *self.lock() = Some(held);
        self.signal.notify_all();
    }

    /// Waits for the piece; `Unavailable` if it does not come within `limit`.
    pub(super) fn wait(&self, limit: Duration) -> Result<Option<Arc<BufferedBytes>>> {
        let end = Instant::now() + limit;
        let mut landed = self.lock();
        loop {
            if let Some(held) = &*landed {
                return held.clone();
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::unavailable("", "no answer within the time limit"));
            }
            self.signal.wait_for(&mut landed, left);
        }
    }
}

impl PrefetchBuffer {
    /// Builds an empty stock of at most `limit` bytes.
    pub(super) fn new(limit: u64) -> Arc<PrefetchBuffer> {
        Arc::new(PrefetchBuffer {
            limit,
            state: Mutex::new(BufferState {
                held: 0,
                pieces: LruCache::unbounded(),
            }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, BufferState> {
        self.state.lock()
    }

    /// Returns the most bytes there may be.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns a piece that is there or on its way.
    pub(super) fn get(&self, piece: &BlockId) -> Option<Arc<BlockFetch>> {
        self.lock().pieces.get(piece).cloned()
    }

    /// Takes a piece out; it counts until its last holder is gone.
    pub(super) fn take(&self, piece: &BlockId) -> Option<Arc<BlockFetch>> {
        self.lock().pieces.pop(piece)
    }

    /// Drops all pieces of an object.
    pub(super) fn forget(&self, key: &Key) {
        let mut state = self.lock();
        let pieces = state.pieces.iter().map(|(piece, _)| piece);
        let pieces: Vec<BlockId> = pieces.filter(|piece| piece.0 == *key).cloned().collect();
        let dropped: Vec<_> = pieces.iter().map(|piece| state.pieces.pop(piece)).collect();
        // Dropping them gives room back, which takes the lock.
        drop(state);
        drop(dropped);
    }

    /// Begins a piece of `bytes` that is not there; nothing if it is, or if there is no room.
    pub(super) fn begin(
        self: &Arc<PrefetchBuffer>,
        piece: &BlockId,
        bytes: u64,
    ) -> Option<(Arc<BlockFetch>, BufferReservation)> {
        // What makes room is dropped without the lock, since dropping it gives the room back.
        let mut dropped = Vec::new();
        let mut state = self.lock();
        if state.pieces.contains(piece) {
            return None;
        }
        let mut freed = 0;
        while state.held.saturating_add(bytes) > self.limit.saturating_add(freed) {
            let (_, flight) = state.pieces.pop_lru()?;
            freed += flight.lone_bytes();
            dropped.push(flight);
        }
        state.held += bytes;
        let flight = Arc::new(BlockFetch {
            landed: Mutex::default(),
            signal: Condvar::new(),
        });
        state.pieces.put(piece.clone(), flight.clone());
        drop(state);
        let stock = self.clone();
        Some((flight, BufferReservation { stock, bytes }))
    }
}

impl BlockFetch {
    /// Returns the bytes that nobody else holds.
    fn lone_bytes(&self) -> u64 {
        match &*self.lock() {
            Some(Ok(Some(held))) if Arc::strong_count(held) == 1 => held._room.bytes,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Version;

    fn piece(name: &str) -> BlockId {
        (Key::new(name).unwrap(), None)
    }

    fn object(length: usize) -> Object {
        Object {
            bytes: vec![7; length],
            size: length as u64,
            version: Version(1),
            modified: None,
        }
    }

    fn put(stock: &Arc<PrefetchBuffer>, name: &str) -> bool {
        let Some((flight, room)) = stock.begin(&piece(name), 10) else {
            return false;
        };
        flight.land(Ok(Some(object(10))), room);
        true
    }

    #[test]
    fn the_oldest_makes_room_unless_it_is_held() {
        let stock = PrefetchBuffer::new(20);
        assert!(put(&stock, "a") && put(&stock, "b") && !put(&stock, "b") && put(&stock, "c"));
        assert!(stock.get(&piece("a")).is_none());
        let held = stock
            .take(&piece("b"))
            .unwrap()
            .wait(Duration::ZERO)
            .unwrap()
            .unwrap();
        assert!(put(&stock, "d") && stock.get(&piece("c")).is_none());
        assert_eq!((stock.lock().held, held.object.size), (20, 10));
        drop(held);
        assert_eq!(stock.lock().held, 10);
    }

    #[test]
    fn what_is_on_its_way_counts() {
        let stock = PrefetchBuffer::new(20);
        let first = stock.begin(&piece("a"), 15).unwrap();
        assert!(stock.begin(&piece("b"), 15).is_none());
        drop(first);
        assert!(put(&stock, "b"));
    }

    #[test]
    fn waiting_ends() {
        let stock = PrefetchBuffer::new(20);
        let (flight, _room) = stock.begin(&piece("a"), 5).unwrap();
        assert!(flight.wait(Duration::from_millis(5)).is_err());
    }
}
