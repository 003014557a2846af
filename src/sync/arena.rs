//! The allocator of the program: large blocks lie side by side in huge pages, and are used again.
//!
//! A page fault for each 4 KiB costs as much as decoding into them, and C libraries give each block that they free to the
//! kernel or keep it for themselves. So blocks of the length of chunks come from regions that the kernel fills with huge pages.
//! What is freed is the next to be used; of that, little stays the program's (`KEPT_BYTES`), the rest goes back to the
//! kernel. Blocks of other lengths are the C library's, and so are those that are to be zero, most of which stay empty.
//! Nothing here panics, and what is allocated while the lock is held is short: neither may come back here. Which
//! buffers the program itself keeps is up to `buffer`, and how many up to `budget`.

#![expect(unsafe_code, reason = "an allocator hands out addresses")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::sync::extents::Extents;

/// The shortest block that lies in a region, in bytes.
const MIN_BLOCK: usize = 64 << 10;
/// The longest one; the C library gives one that is longer back to the kernel when it is freed.
const MAX_BLOCK: usize = 32 << 20;
/// The unit of blocks: the largest page of all machines, since the kernel takes back whole pages, those at the end of a
/// range too.
const UNIT: usize = 64 << 10;
/// The length of a huge page on most machines; elsewhere more of one may stay resident than is in use.
const HUGE_PAGE: usize = 2 << 20;
/// The length of a region.
const REGION: usize = 128 << 20;
/// Bytes that are free and resident at most, as C libraries keep some, too.
pub const MAX_KEPT_BYTES: usize = 8 << 20;

/// The allocator, to be set as `#[global_allocator]`. All values are the same one.
pub struct Arena;

/// The addresses of all regions, and what of them is free.
struct Regions {
    /// The end of each region by its start.
    bounds: BTreeMap<usize, usize>,
    /// Free memory that holds what was written to it.
    resident: Extents,
    /// Free memory that the kernel has, or that shares a huge page with some that was in use.
    returned: Extents,
}

static REGIONS: Mutex<Regions> = Mutex::new(Regions {
    bounds: BTreeMap::new(),
    resident: Extents::new(),
    returned: Extents::new(),
});

/// How many bytes may be free and resident.
static KEPT_BYTES: AtomicUsize = AtomicUsize::new(MAX_KEPT_BYTES);

/// Returns the regions; no panic leaves them half changed, since there is none.
fn regions() -> MutexGuard<'static, Regions> {
    REGIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has at most `bytes` stay resident that are free, from the next block that is freed on.
pub fn keep_at_most(bytes: usize) {
    KEPT_BYTES.fetch_min(bytes, Ordering::Relaxed);
}

/// Gives all free memory of the regions back to the kernel.
pub fn trim() {
    give_back(0);
}

impl Regions {
    /// Returns where a block of `length` bytes starts, in a new region if need be; nothing if there is no memory.
    fn take(&mut self, length: usize) -> Option<usize> {
        let free = |regions: &mut Regions| {
            let resident = regions.resident.take(length);
            resident.or_else(|| regions.returned.take(length))
        };
        free(self).or_else(|| {
            let region = map_region()?;
            self.bounds.insert(region.start, region.end);
            self.returned.insert(region);
            self.returned.take(length)
        })
    }

    /// Whether a block lies in a region.
    fn has(&self, start: usize) -> bool {
        let before = self.bounds.range(..=start).next_back();
        before.is_some_and(|(_, &end)| start < end)
    }
}

/// Maps memory that the kernel fills with huge pages when it is touched; nothing if it refuses. No other region touches it.
fn map_region() -> Option<Range<usize>> {
    // SAFETY: the kernel chooses the addresses, so that nothing else is mapped there.
    let start = unsafe {
        libc::mmap(
            ptr::null_mut(),
            REGION + HUGE_PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return None;
    }
    let start = start.expose_provenance() + 1;
    let start = start.next_multiple_of(HUGE_PAGE);
    let region: *mut libc::c_void = ptr::with_exposed_provenance_mut(start);
    // SAFETY: the range was mapped above. Without the advice there are short pages.
    unsafe { libc::madvise(region, REGION, libc::MADV_HUGEPAGE) };
    Some(start..start + REGION)
}

/// Gives free memory back to the kernel until at most `kept` bytes of it are resident.
fn give_back(kept: usize) {
    loop {
        let mut free = regions();
        if free.resident.total() <= kept {
            return;
        }
        let Some(range) = free.resident.take_longest() else {
            return;
        };
        // Memory that the kernel is taking must not be handed out.
        let all = free.returned.take_neighbours(range.clone());
        drop(free);
        // A huge page goes only as a whole.
        let start = (range.start / HUGE_PAGE * HUGE_PAGE).max(all.start);
        let end = range.end.next_multiple_of(HUGE_PAGE).min(all.end);
        let address: *mut libc::c_void = ptr::with_exposed_provenance_mut(start);
        // SAFETY: the range is free memory of a region, and in neither set, so that it is not in use.
        unsafe { libc::madvise(address, end - start, libc::MADV_DONTNEED) };
        regions().returned.insert(all);
    }
}

/// Whether blocks of a layout lie in regions.
fn is_large(layout: Layout) -> bool {
    (MIN_BLOCK..=MAX_BLOCK).contains(&layout.size()) && layout.align() <= UNIT
}

/// Returns the bytes that a block takes.
fn taken(layout: Layout) -> usize {
    layout.size().next_multiple_of(UNIT)
}

// SAFETY: a block of a region is a range that was in a set of free ones and is in none until it is freed; the sets have
// ranges of whole units alone, so that it is aligned. All other blocks are those of the C library, which gets them back.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let start = is_large(layout).then(|| regions().take(taken(layout)));
        match start.flatten() {
            Some(start) => ptr::with_exposed_provenance_mut(start),
            // SAFETY: the caller's promises are the same.
            None => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if is_large(layout) {
            let start = block.expose_provenance();
            let mut free = regions();
            if free.has(start) {
                free.resident.insert(start..start + taken(layout));
                drop(free);
                return give_back(KEPT_BYTES.load(Ordering::Relaxed));
            }
        }
        // SAFETY: the block lies in no region, so that the C library allocated it.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, length: usize) -> *mut u8 {
        // SAFETY: the caller promises that the length is one of a layout.
        let wanted = unsafe { Layout::from_size_align_unchecked(length, layout.align()) };
        if !is_large(layout) && !is_large(wanted) {
            // SAFETY: blocks of such lengths are the C library's.
            return unsafe { System.realloc(block, layout, length) };
        }
        if is_large(layout) && is_large(wanted) && taken(wanted) <= taken(layout) {
            let start = block.expose_provenance();
            let mut free = regions();
            if free.has(start) {
                let spare = start + taken(wanted)..start + taken(layout);
                if !spare.is_empty() {
                    free.resident.insert(spare);
                }
                return block;
            }
        }
        // SAFETY: both blocks have the bytes that are copied, and are not the same one.
        unsafe {
            let moved = self.alloc(wanted);
            if !moved.is_null() {
                ptr::copy_nonoverlapping(block, moved, length.min(layout.size()));
                self.dealloc(block, layout);
            }
            moved
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of random lengths, each filled with a number of its own.
    struct Blocks {
        seed: u64,
        held: Vec<(*mut u8, Layout, u8)>,
    }

    impl Blocks {
        fn random(&mut self) -> usize {
            self.seed = self
                .seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (self.seed >> 33) as usize
        }

        fn length(&mut self) -> usize {
            match self.random() % 20 {
                0 => MAX_BLOCK - 10 + self.random() % 20,
                1..5 => MIN_BLOCK - 10 + self.random() % 20,
                _ => 1 + self.random() % (3 << 20),
            }
        }

        fn add(&mut self) {
            let layout = Layout::from_size_align(self.length(), 1 << (self.random() % 14)).unwrap();
            let fill = self.random() as u8;
            // SAFETY: the layout has a length.
            let block = unsafe { Arena.alloc(layout) };
            assert!(!block.is_null() && block.addr() % layout.align() == 0);
            // SAFETY: the block has so many bytes, and is used here alone.
            unsafe { block.write_bytes(fill, layout.size()) };
            self.held.push((block, layout, fill));
        }

        fn resize(&mut self) {
            let place = self.random() % self.held.len();
            let (block, layout, fill) = self.held.swap_remove(place);
            let wanted = Layout::from_size_align(self.length(), layout.align()).unwrap();
            // SAFETY: the block was allocated with the layout.
            let block = unsafe { Arena.realloc(block, layout, wanted.size()) };
            assert!(!block.is_null() && block.addr() % layout.align() == 0);
            check(block, layout.size().min(wanted.size()), fill);
            // SAFETY: the block has so many bytes, and is used here alone.
            unsafe { block.write_bytes(fill, wanted.size()) };
            self.held.push((block, wanted, fill));
        }

        fn remove(&mut self) {
            let place = self.random() % self.held.len();
            let (block, layout, fill) = self.held.swap_remove(place);
            check(block, layout.size(), fill);
            // SAFETY: the block was allocated with the layout, and is not used again.
            unsafe { Arena.dealloc(block, layout) };
        }
    }

    fn check(block: *mut u8, length: usize, fill: u8) {
        // SAFETY: the block has so many bytes, and all were written.
        let bytes = unsafe { std::slice::from_raw_parts(block, length) };
        assert!(bytes.iter().all(|&byte| byte == fill));
    }

    #[test]
    fn no_block_changes_while_others_come_and_go() {
        let many = |seed| {
            let mut blocks = Blocks {
                seed,
                held: Vec::new(),
            };
            for _ in 0..1500 {
                match blocks.random() % 8 {
                    0..3 => blocks.add(),
                    _ if blocks.held.is_empty() => blocks.add(),
                    3 => blocks.resize(),
                    4 if seed == 0 => trim(),
                    _ => blocks.remove(),
                }
            }
            while !blocks.held.is_empty() {
                blocks.remove();
            }
        };
        std::thread::scope(|threads| {
            for seed in 0..4 {
                threads.spawn(move || many(seed));
            }
        });
        trim();
        let free = regions();
        assert_eq!(free.resident.total(), 0);
        assert_eq!(free.returned.total(), free.bounds.len() * REGION);
    }
}
