//! Pools large buffers, so that fresh memory is rarely taken from the kernel.
//!
//! The kernel faults and clears every page of fresh memory, which costs as much as decoding a chunk into that memory.
//! So buffers of encoded chunks, of responses and of evicted chunks go to a small pool, and the next large buffer is
//! taken from the pool. The old content of a buffer has no meaning. `set_aside` reserves memory of a mount for the
//! pool, and for freed memory that the allocator has not yet returned to the kernel, before any other budget is
//! computed. `empty_pool` frees all pooled buffers when the program has been idle.

#![expect(unsafe_code, reason = "advice about memory takes addresses")]

use parking_lot::Mutex;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Smallest capacity, in bytes, of a buffer that is worth pooling.
pub const MIN_POOLED_BYTES: usize = 64 << 10;
/// Maximum sum of the capacities of all pooled buffers, in bytes.
const MAX_POOL_BYTES: usize = 32 << 20;
/// Maximum number of bytes that `set_aside` reserves: for the buffer pool, and for memory that was freed within the
/// last second.
const MAX_ASIDE: u64 = MAX_POOL_BYTES as u64 + (8 << 20);
/// `set_aside` reserves 1/8 of a mount's memory, but at most `MAX_ASIDE`.
const ASIDE_SHARE: u64 = 8;

/// Smallest page size of all machines, in bytes. On a machine with larger pages the kernel may refuse `madvise`; the
/// pages of the buffer are then populated on first access, which is only slower.
const PAGE: usize = 4 << 10;

static POOL: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
static POOL_LIMIT: AtomicUsize = AtomicUsize::new(MAX_POOL_BYTES);

/// Reserves a part of the memory of a mount (`memory`, in bytes) for pooled buffers, and returns the rest. If it is
/// called more than once, the smallest `memory` limits the pool.
pub fn set_aside(memory: u64) -> u64 {
    let aside = aside_of(memory);
    let pool = usize::try_from(aside * MAX_POOL_BYTES as u64 / MAX_ASIDE);
    POOL_LIMIT.fetch_min(pool.unwrap_or(MAX_POOL_BYTES), Ordering::Relaxed);
    memory - aside
}

fn aside_of(memory: u64) -> u64 {
    MAX_ASIDE.min(memory / ASIDE_SHARE)
}

/// Returns how much memory a mount needs so that `set_aside` leaves at least `left` bytes of it, the inverse of
/// `set_aside`.
pub fn memory_for(left: u64) -> u64 {
    left.saturating_add(MAX_ASIDE.min(left.div_ceil(ASIDE_SHARE - 1)))
}

/// Frees all buffers of the buffer pool.
pub fn empty_pool() {
    drop(std::mem::take(&mut *POOL.lock()));
}

/// Whether a pooled buffer has a capacity of at least `length` bytes and at most about twice as many: no memory budget
/// counts the unused rest.
fn fits(buffer: &Vec<u8>, length: usize) -> bool {
    buffer.capacity() >= length && buffer.capacity() / 2 <= length
}

/// Takes a buffer for which `fits` is true from the pool; without such a buffer, returns a `Vec` without capacity.
fn pooled(length: usize, fits: impl Fn(&Vec<u8>, usize) -> bool) -> Vec<u8> {
    if length < MIN_POOLED_BYTES {
        return Vec::new();
    }
    let mut pool = POOL.lock();
    let place = pool.iter().rposition(|buffer| fits(buffer, length));
    place
        .map(|place| pool.swap_remove(place))
        .unwrap_or_default()
}

/// Whether the buffer pool has a buffer that fits `length` bytes.
pub fn is_pooled(length: usize) -> bool {
    length >= MIN_POOLED_BYTES && POOL.lock().iter().any(|buffer| fits(buffer, length))
}

/// Has the kernel populate the pages of a fresh block of memory that will soon be filled, without a change to its
/// content. Otherwise every 4 KiB cause a page fault, and the faults cost as much as decoding into the block.
fn request_pages(block: &mut [MaybeUninit<u8>]) {
    let start = block.as_mut_ptr();
    let (skipped, length) = (start.align_offset(PAGE), block.len());
    let whole = length.saturating_sub(skipped) / PAGE * PAGE;
    // A block of more than 32 MiB may never be filled; populating all its pages would waste memory.
    if whole == 0 || length > 32 << 20 {
        return;
    }
    let huge = (length >= 1 << 20).then_some(libc::MADV_HUGEPAGE);
    for advice in huge.into_iter().chain([libc::MADV_POPULATE_WRITE]) {
        // SAFETY: the range is inside the block, which is borrowed mutably, and neither `madvise` changes its content.
        // A kernel that does not know the advice returns an error; the pages are then populated on first access.
        unsafe { libc::madvise(start.add(skipped).cast(), whole, advice) };
    }
}

fn prepare(spare: &mut [MaybeUninit<u8>]) {
    if spare.len() >= MIN_POOLED_BYTES {
        request_pages(spare);
    }
}

/// Returns an empty buffer with a capacity of `capacity` bytes, or with less if the allocation fails.
pub fn with_capacity(capacity: usize) -> Vec<u8> {
    let mut buffer = pooled(capacity, fits);
    buffer.clear();
    // After a failed allocation the capacity is too small; the caller checks it.
    if capacity > buffer.capacity() && buffer.try_reserve_exact(capacity).is_ok() {
        prepare(buffer.spare_capacity_mut());
    }
    buffer
}

/// Returns a buffer of `length` bytes with arbitrary content.
pub fn of_length(length: usize) -> Vec<u8> {
    filled(pooled(length, fits), length)
}

/// Sets the length of a pooled buffer to `length` bytes of arbitrary content; allocates a fresh buffer if `buffer` is
/// empty.
fn filled(mut buffer: Vec<u8>, length: usize) -> Vec<u8> {
    if buffer.is_empty() {
        buffer = Vec::with_capacity(length);
        prepare(buffer.spare_capacity_mut());
    }
    buffer.resize(length, 0);
    buffer
}

/// Puts a buffer into the pool; the oldest pooled buffers are freed when the pool is full.
pub fn recycle(buffer: Vec<u8>) {
    let limit = POOL_LIMIT.load(Ordering::Relaxed);
    if !(MIN_POOLED_BYTES..=limit).contains(&buffer.capacity()) {
        return;
    }
    let mut freed = Vec::new();
    let mut pool = POOL.lock();
    pool.push(buffer);
    while pool.iter().map(Vec::capacity).sum::<usize>() > limit {
        freed.push(pool.remove(0));
    }
    // Release the lock before the buffers are freed, so that other threads do not wait for the kernel.
    drop(pool);
}

/// A buffer that goes to the pool when it is dropped.
#[derive(Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    /// Number of bytes at the start of `bytes` that are hidden, since the buffer was cut to a range.
    skipped: usize,
}

impl Buffer {
    /// Returns a buffer of `length` bytes with arbitrary content.
    pub fn of_length(length: usize) -> Buffer {
        of_length(length).into()
    }

    /// Returns a buffer of `length` bytes with arbitrary content and a spare capacity of at most 1/32 of `length`, for
    /// data that stay in memory for long.
    pub fn exact(length: usize) -> Buffer {
        let is_exact = |buffer: &Vec<u8>, length: usize| {
            (length..=length + length / 32).contains(&buffer.capacity())
        };
        filled(pooled(length, is_exact), length).into()
    }

    /// Restricts the buffer to a range of its bytes, without moving them.
    pub fn cut(&mut self, range: Range<usize>) {
        self.bytes.truncate(self.skipped.saturating_add(range.end));
        let start = self.skipped.saturating_add(range.start);
        self.skipped = start.min(self.bytes.len());
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Buffer {
        Buffer { bytes, skipped: 0 }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(self.skipped..).unwrap_or_default()
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.skipped..).unwrap_or_default()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        recycle(std::mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_has_the_requested_length() {
        for length in [
            0,
            1,
            MIN_POOLED_BYTES,
            MIN_POOLED_BYTES + 7,
            1 << 20,
            3 << 20,
            MIN_POOLED_BYTES,
        ] {
            let buffer = Buffer::of_length(length);
            assert_eq!(buffer.len(), length);
            assert!(with_capacity(length).capacity() >= length);
        }
    }

    /// Invariant of `memory_for_leaves_the_requested_memory_after_set_aside`.
    #[test]
    fn the_buffer_pool_stays_within_its_limit() {
        let many: Vec<Buffer> = (0..50).map(|_| Buffer::of_length(1 << 20)).collect();
        drop(many);
        assert!(POOL.lock().iter().map(Vec::capacity).sum::<usize>() <= MAX_POOL_BYTES);
    }

    /// Invariant (caches): Memory use never exceeds the budget. The budget covers chunks, versions, nodes with their
    /// attributes, open arrays and names. Spare buffers have their own share of it.
    #[test]
    fn memory_for_leaves_the_requested_memory_after_set_aside() {
        for memory in [0, 1, 1 << 20, 64 << 20, 320 << 20, 1 << 30, 1 << 40] {
            let left = memory - aside_of(memory);
            let wanted = memory_for(left);
            assert!(wanted - aside_of(wanted) >= left);
            assert!(wanted.abs_diff(memory) <= 1);
        }
        assert_eq!(aside_of(1 << 30), MAX_ASIDE);
    }

    #[test]
    fn cut_keeps_only_the_given_range() {
        let mut buffer = Buffer::from(vec![1, 2, 3, 4, 5]);
        buffer.cut(1..4);
        assert_eq!(&buffer[..], [2, 3, 4]);
        buffer[0] = 7;
        buffer.cut(0..2);
        assert_eq!(&buffer[..], [7, 3]);
        buffer.cut(1..9);
        assert_eq!(&buffer[..], [3]);
        buffer.cut(5..9);
        assert!(buffer.is_empty());
    }
}
