//! Limits the memory for the bodies of puts; later puts wait in order.
//!
//! A put reserves its memory once, before its first request, so a put that has a reservation never waits for one that
//! has none.

use parking_lot::{Condvar, Mutex};

/// Maximum total size of the bodies in flight, in bytes. A larger body is sent alone.
const MAX_BYTES: u64 = 128 << 20;

/// The memory for the bodies of one store.
pub(crate) struct BodyRoom {
    left: Mutex<u64>,
    freed: Condvar,
    /// Held by the first put in the queue, so that small bodies cannot starve a large one.
    turn: Mutex<()>,
}

impl Default for BodyRoom {
    fn default() -> BodyRoom {
        BodyRoom {
            left: Mutex::new(MAX_BYTES),
            freed: Condvar::new(),
            turn: Mutex::new(()),
        }
    }
}

impl BodyRoom {
    /// Returns the total size of the bodies in flight.
    pub(crate) fn held(&self) -> u64 {
        MAX_BYTES - *self.left.lock()
    }

    /// Reserves `bytes` bytes, and waits until they are free.
    pub(crate) fn take(&self, bytes: u64) -> TakenRoom<'_> {
        let bytes = bytes.min(MAX_BYTES);
        let _turn = self.turn.lock();
        let mut left = self.left.lock();
        while *left < bytes {
            self.freed.wait(&mut left);
        }
        *left -= bytes;
        TakenRoom { room: self, bytes }
    }
}

/// A reservation, released on drop.
pub(crate) struct TakenRoom<'a> {
    room: &'a BodyRoom,
    bytes: u64,
}

impl Drop for TakenRoom<'_> {
    fn drop(&mut self) {
        *self.room.left.lock() += self.bytes;
        self.room.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn bodies_have_room_together_or_wait() {
        let (room, held, most) = (BodyRoom::default(), AtomicU64::new(0), AtomicU64::new(0));
        let put = |bytes: u64| {
            for _ in 0..200 {
                let taken = room.take(bytes);
                let now = held.fetch_add(taken.bytes, Ordering::SeqCst) + taken.bytes;
                most.fetch_max(now, Ordering::SeqCst);
                thread::yield_now();
                held.fetch_sub(taken.bytes, Ordering::SeqCst);
            }
        };
        thread::scope(|scope| {
            for bytes in [1, 50 << 20, 50 << 20, 60 << 20, MAX_BYTES, u64::MAX] {
                scope.spawn(move || put(bytes));
            }
        });
        assert!(most.into_inner() <= MAX_BYTES);
        assert_eq!(room.left.into_inner(), MAX_BYTES);
    }
}
