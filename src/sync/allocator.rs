//! How large blocks of memory come from the kernel, and go back to it.
//!
//! Left alone, glibc learns from large chunks to keep tens of MiB in each of its arenas, which nobody counts
//! and no budget holds. Told here, once, before threads start. A block that will be
//! filled at once is asked for page by page in one call, or in huge pages, since a fault for each costs as much
//! as decoding into it. The only `unsafe` beside the codecs. Buffers that are worth keeping are kept by
//! `buffer`, and counted there.

use std::mem::MaybeUninit;

/// Blocks from this length on are the kernel's again when they are freed, in bytes. The HTTP client takes a new
/// block of up to 408 KiB for each piece of an answer: were those the kernel's, each page would be a fault each time.
#[cfg(target_env = "gnu")]
const LARGE: libc::c_int = 512 << 10;

/// Arenas for smaller blocks; each may hold what it once had.
#[cfg(target_env = "gnu")]
const ARENAS: libc::c_int = 2;

/// Has freed memory given back. Other C libraries do so of themselves.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    for (setting, value) in [
        (libc::M_MMAP_THRESHOLD, LARGE),
        (libc::M_TRIM_THRESHOLD, LARGE),
        (libc::M_ARENA_MAX, ARENAS),
    ] {
        // SAFETY: mallopt takes two numbers, touches no memory of ours, and locks its own state.
        let done = unsafe { libc::mallopt(setting, value) };
        debug_assert_eq!(done, 1, "glibc knows the settings");
    }
}

/// Blocks from this length on are asked for in huge pages, in bytes; numpy begins there too.
const HUGE: usize = 4 << 20;

/// The longest block that is asked for before it is filled: of a longer one perhaps little is.
const LONGEST: usize = 32 << 20;

/// No machine has smaller pages, in bytes. Larger ones make the kernel refuse, which costs only speed.
const PAGE: usize = 4 << 10;

/// Has the kernel give the memory of a fresh block that will soon be filled. What it holds stays as it is.
pub fn prepare(block: &mut [MaybeUninit<u8>]) {
    let start = block.as_mut_ptr();
    let (skipped, length) = (start.align_offset(PAGE), block.len());
    let whole = length.saturating_sub(skipped) / PAGE * PAGE;
    if whole == 0 || length > LONGEST {
        return;
    }
    let huge = (length >= HUGE).then_some(libc::MADV_HUGEPAGE);
    for advice in huge.into_iter().chain([libc::MADV_POPULATE_WRITE]) {
        // SAFETY: the range lies in the block, which is ours alone, and neither advice changes what it holds.
        // An old kernel says that it does not know the advice; then pages come as they are touched.
        unsafe { libc::madvise(start.add(skipped).cast(), whole, advice) };
    }
}
