//! A pool of buffers that are used again.
//!
//! Memory fresh from the kernel costs a fault and a clearing for every page, as much as decoding into it. So
//! buffers of encoded chunks, of answers and of chunks that left the cache go to a small pool, and the next
//! buffer is taken from there. The old content of a buffer means nothing. What the pool keeps, and
//! what the allocator holds beside the memory in use, is set aside from the memory of a mount before anything else has a
//! part of it (`set_aside`). The pool is empty once no thread had work for a while (`pool`).

#![expect(unsafe_code, reason = "advice about memory takes addresses")]

use parking_lot::Mutex;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Shorter buffers are not pooled, in bytes.
pub const MIN_POOLED_BYTES: usize = 64 << 10;
/// Bytes that the pool holds at most.
const MAX_POOL_BYTES: usize = 32 << 20;
/// Bytes that are set aside at most, for the pool and for what was freed within the last second.
const MAX_ASIDE: u64 = MAX_POOL_BYTES as u64 + (8 << 20);
/// The part of an exact buffer's length that its capacity may have beside it: one in so many bytes.
const EXACT_SHARE: usize = 32;
/// The part of the memory that is set aside: one in so many bytes.
const ASIDE_SHARE: u64 = 8;

static POOL: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
static POOL_LIMIT: AtomicUsize = AtomicUsize::new(MAX_POOL_BYTES);

/// Sets a part of the `memory` of a mount aside for buffers that are kept, and returns what is left for all else, in bytes.
/// No more is kept than the smallest memory of the process allows.
pub fn set_aside(memory: u64) -> u64 {
    let aside = aside_of(memory);
    let pool = usize::try_from(aside * MAX_POOL_BYTES as u64 / MAX_ASIDE);
    POOL_LIMIT.fetch_min(pool.unwrap_or(MAX_POOL_BYTES), Ordering::Relaxed);
    memory - aside
}

fn aside_of(memory: u64) -> u64 {
    MAX_ASIDE.min(memory / ASIDE_SHARE)
}

/// Returns the memory that leaves `left` bytes beside what is set aside of it.
pub fn memory_for(left: u64) -> u64 {
    left.saturating_add(MAX_ASIDE.min(left.div_ceil(ASIDE_SHARE - 1)))
}

/// Frees all buffers of the pool.
pub fn empty_pool() {
    drop(std::mem::take(&mut *POOL.lock()));
}

/// Whether a buffer serves for `length` bytes: the rest of a much larger one would be memory that no budget counts.
fn fits(buffer: &Vec<u8>, length: usize) -> bool {
    buffer.capacity() >= length && buffer.capacity() / 2 <= length
}

/// Returns a pooled buffer of which `fits` is true, or one without capacity.
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

/// Whether a buffer of `length` bytes would be one of the pool.
pub fn is_pooled(length: usize) -> bool {
    length >= MIN_POOLED_BYTES && POOL.lock().iter().any(|buffer| fits(buffer, length))
}

/// Blocks from this length on are requested as huge pages, in bytes.
const HUGE_PAGE_THRESHOLD: usize = 1 << 20;

/// The longest block whose pages are requested before it is filled, in bytes: a longer one may stay mostly empty.
const MAX_PREPARED: usize = 32 << 20;

/// The smallest page size of all machines, in bytes. Where pages are larger the kernel refuses the advice, which
/// costs only speed.
const PAGE: usize = 4 << 10;

/// Has the kernel provide the pages of a fresh block that will soon be filled: a page fault for each 4 KiB costs as much as
/// decoding into them. The content of the block stays as it is.
fn request_pages(block: &mut [MaybeUninit<u8>]) {
    let start = block.as_mut_ptr();
    let (skipped, length) = (start.align_offset(PAGE), block.len());
    let whole = length.saturating_sub(skipped) / PAGE * PAGE;
    if whole == 0 || length > MAX_PREPARED {
        return;
    }
    let huge = (length >= HUGE_PAGE_THRESHOLD).then_some(libc::MADV_HUGEPAGE);
    for advice in huge.into_iter().chain([libc::MADV_POPULATE_WRITE]) {
        // SAFETY: the range lies in the block, which is borrowed mutably, and neither advice changes its content.
        // A kernel without the advice returns an error; then pages come as they are touched.
        unsafe { libc::madvise(start.add(skipped).cast(), whole, advice) };
    }
}

/// Has the kernel provide the pages of a fresh buffer.
fn prepare(spare: &mut [MaybeUninit<u8>]) {
    if spare.len() >= MIN_POOLED_BYTES {
        request_pages(spare);
    }
}

/// Returns an empty buffer with a capacity of `capacity` bytes, or of less if memory is out.
pub fn with_capacity(capacity: usize) -> Vec<u8> {
    let mut buffer = pooled(capacity, fits);
    buffer.clear();
    // The caller sees by the capacity that an allocation failed.
    if capacity > buffer.capacity() && buffer.try_reserve_exact(capacity).is_ok() {
        prepare(buffer.spare_capacity_mut());
    }
    buffer
}

/// Returns a buffer of `length` bytes of any content.
pub fn of_length(length: usize) -> Vec<u8> {
    filled(pooled(length, fits), length)
}

/// Returns a pooled buffer with `length` bytes of any content, or a fresh one in place of one without capacity.
fn filled(mut buffer: Vec<u8>, length: usize) -> Vec<u8> {
    if buffer.is_empty() {
        buffer = Vec::with_capacity(length);
        prepare(buffer.spare_capacity_mut());
    }
    buffer.resize(length, 0);
    buffer
}

/// Puts a buffer into the pool; the oldest ones are freed when the pool is full.
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
    // Memory goes back to the kernel after the lock is released.
    drop(pool);
}

/// A buffer that goes to the pool when it is dropped.
#[derive(Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    /// Bytes before the first one of the buffer.
    skipped: usize,
}

impl Buffer {
    /// Returns a buffer of `length` bytes of any content.
    pub fn of_length(length: usize) -> Buffer {
        of_length(length).into()
    }

    /// Returns a buffer of `length` bytes of any content which takes hardly more memory, for one that is kept for long.
    pub fn exact(length: usize) -> Buffer {
        let is_exact = |buffer: &Vec<u8>, length: usize| {
            (length..=length + length / EXACT_SHARE).contains(&buffer.capacity())
        };
        filled(pooled(length, is_exact), length).into()
    }

    /// Keeps only the bytes of a range, where they are.
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

    #[test]
    fn the_pool_is_bounded() {
        let many: Vec<Buffer> = (0..50).map(|_| Buffer::of_length(1 << 20)).collect();
        drop(many);
        assert!(POOL.lock().iter().map(Vec::capacity).sum::<usize>() <= MAX_POOL_BYTES);
    }

    #[test]
    fn what_is_left_of_a_memory_tells_the_memory() {
        for memory in [0, 1, 1 << 20, 64 << 20, 320 << 20, 1 << 30, 1 << 40] {
            let left = memory - aside_of(memory);
            let wanted = memory_for(left);
            assert!(wanted - aside_of(wanted) >= left);
            assert!(wanted.abs_diff(memory) <= 1);
        }
        assert_eq!(aside_of(1 << 30), MAX_ASIDE);
    }

    #[test]
    fn a_cut_keeps_the_range() {
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
