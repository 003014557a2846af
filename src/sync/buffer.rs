//! Buffers that are used again.
//!
//! Memory fresh from the kernel costs a fault and a clearing for every page, as much as decoding it. So
//! buffers of encoded chunks, of answers and of chunks that left the cache go to a small stock, and the next
//! buffer is taken from there. What a taken buffer holds is of no meaning.

use parking_lot::{Mutex, MutexGuard};
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut, Range};

use crate::sync::allocator;

/// Buffers below this length are not worth keeping.
const LEAST: usize = 64 << 10;
/// Bytes that are kept in all; they stand beside the memory budget.
const MOST: usize = 32 << 20;

static STOCK: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

fn stock() -> MutexGuard<'static, Vec<Vec<u8>>> {
    STOCK.lock()
}

/// Returns a buffer of the stock that fits, or one without room.
fn kept(length: usize) -> Vec<u8> {
    if length < LEAST {
        return Vec::new();
    }
    let mut stock = stock();
    // A much larger buffer would hold memory that nobody counts.
    let fits = |kept: &Vec<u8>| kept.capacity() >= length && kept.capacity() / 2 <= length;
    let place = stock.iter().rposition(fits);
    place
        .map(|place| stock.swap_remove(place))
        .unwrap_or_default()
}

/// Asks for the memory of a fresh buffer.
fn prepare(spare: &mut [MaybeUninit<u8>]) {
    if spare.len() >= LEAST {
        allocator::prepare(spare);
    }
}

/// Returns an empty buffer with room for `capacity` bytes; without room if memory is out.
pub fn with_capacity(capacity: usize) -> Vec<u8> {
    let mut buffer = kept(capacity);
    buffer.clear();
    // A reservation that fails leaves a buffer without room, which the caller sees.
    if capacity > buffer.capacity() && buffer.try_reserve_exact(capacity).is_ok() {
        prepare(buffer.spare_capacity_mut());
    }
    buffer
}

/// Returns a buffer of `length` bytes that hold anything.
pub fn of_length(length: usize) -> Vec<u8> {
    let mut buffer = kept(length);
    if buffer.is_empty() {
        buffer = Vec::with_capacity(length);
        prepare(buffer.spare_capacity_mut());
    }
    buffer.resize(length, 0);
    buffer
}

/// Keeps a buffer for the next one that is needed.
pub fn give(buffer: Vec<u8>) {
    if !(LEAST..=MOST / 2).contains(&buffer.capacity()) {
        return;
    }
    let mut dropped = Vec::new();
    let mut stock = stock();
    stock.push(buffer);
    while stock.iter().map(Vec::capacity).sum::<usize>() > MOST {
        dropped.push(stock.remove(0));
    }
    // Memory goes back to the kernel without the lock.
    drop(stock);
}

/// A buffer that goes back to the stock when it is dropped.
#[derive(Default)]
pub struct Buffer(Vec<u8>);

impl Buffer {
    /// Returns a buffer of `length` bytes that hold anything.
    pub fn of_length(length: usize) -> Buffer {
        Buffer(of_length(length))
    }

    /// Keeps only the bytes of a range.
    pub fn cut(&mut self, range: Range<usize>) {
        self.0.truncate(range.end);
        self.0.drain(..range.start.min(self.0.len()));
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Buffer {
        Buffer(bytes)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        give(std::mem::take(&mut self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_has_the_length_that_was_asked_for() {
        for length in [0, 1, LEAST, LEAST + 7, 1 << 20, 3 << 20, LEAST] {
            let buffer = Buffer::of_length(length);
            assert_eq!(buffer.len(), length);
            assert!(with_capacity(length).capacity() >= length);
        }
    }

    #[test]
    fn the_stock_is_bounded() {
        let many: Vec<Buffer> = (0..50).map(|_| Buffer::of_length(1 << 20)).collect();
        drop(many);
        assert!(stock().iter().map(Vec::capacity).sum::<usize>() <= MOST);
    }

    #[test]
    fn a_cut_keeps_the_range() {
        let mut buffer = Buffer::from(vec![1, 2, 3, 4, 5]);
        buffer.cut(1..3);
        assert_eq!(&buffer[..], [2, 3]);
    }
}
