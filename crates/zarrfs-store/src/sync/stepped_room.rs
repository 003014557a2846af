//! Reserves memory for many small items, a batch at a time.
//!
//! No lock is held during a reservation, since it may evict items of the caller.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::sync::budget::{MemoryBudget, Reservation};

/// Maximum number of items per reservation.
const MAX_STEP: usize = 1 << 10;

/// Reserved memory for a number of items.
pub struct SteppedRoom {
    memory: Arc<MemoryBudget>,
    /// Bytes per item.
    item: u64,
    max_items: usize,
    step: usize,
    rooms: Mutex<Vec<Reservation>>,
    /// Number of items with reserved memory, readable without the lock.
    covered: AtomicUsize,
}

impl SteppedRoom {
    /// Reserves nothing yet; `max_items` items of `item` bytes each limit the part of the budget.
    pub fn new(memory: &Arc<MemoryBudget>, item: u64, max_items: usize) -> SteppedRoom {
        let step = (max_items / 8).clamp(1, MAX_STEP);
        let limit = item.saturating_mul(max_items.saturating_add(step) as u64);
        SteppedRoom {
            memory: memory.part(limit),
            item,
            max_items,
            step,
            rooms: Mutex::default(),
            covered: AtomicUsize::new(0),
        }
    }

    /// Returns the part of the budget for the items.
    pub fn memory(&self) -> &Arc<MemoryBudget> {
        &self.memory
    }

    /// Whether memory for this many items is reserved already.
    pub fn covers(&self, items: usize) -> bool {
        items <= self.covered.load(Ordering::Relaxed)
    }

    /// Reserves memory until it suffices; returns whether it does. `items` counts again after each reservation, which
    /// may evict some of the items.
    pub fn cover(&self, items: impl Fn() -> usize) -> bool {
        loop {
            let items = items();
            if items > self.max_items {
                return false;
            }
            if self.covers(items) {
                return true;
            }
            let Some(room) = self.memory.try_reserve(self.item * self.step as u64) else {
                return false;
            };
            let mut rooms = self.rooms.lock();
            rooms.push(room);
            self.note(&rooms);
        }
    }

    fn note(&self, rooms: &[Reservation]) {
        let covered = (rooms.len() * self.step).min(self.max_items);
        self.covered.store(covered, Ordering::Relaxed);
    }

    /// Releases the reservations that this many items do not need.
    pub fn shrink(&self, items: usize) {
        let needed = items.div_ceil(self.step);
        let mut rooms = self.rooms.lock();
        let kept = needed.min(rooms.len());
        let spare = rooms.split_off(kept);
        self.note(&rooms);
        drop(rooms);
        drop(spare);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Stats;

    #[test]
    fn room_follows_the_number_of_items() {
        let memory = MemoryBudget::new(100_000, Arc::new(Stats::default()));
        let room = SteppedRoom::new(&memory, 10, 80_000);
        assert!(room.cover(|| 1500) && room.cover(|| 1000));
        assert_eq!(memory.held(), 20 * 1024);
        room.shrink(1024);
        assert_eq!(memory.held(), 10 * 1024);
        assert!(!room.cover(|| 80_001) && !room.cover(|| 20_000));
        room.shrink(0);
        assert_eq!(memory.held(), 0);
    }

    #[test]
    fn few_items_take_little_room() {
        let memory = MemoryBudget::new(100_000, Arc::new(Stats::default()));
        let room = SteppedRoom::new(&memory, 10, 16);
        assert!(room.cover(|| 16) && !room.cover(|| 17));
        assert_eq!(memory.held(), 160);
    }
}
