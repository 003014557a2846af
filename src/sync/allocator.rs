//! How large blocks of memory come from the kernel and go back to it.
//!
//! By default glibc adapts to large chunks and keeps tens of MiB in each of its arenas, which no budget counts;
//! `configure` prevents that. The pages of a block that will be filled at once are requested in one call, or as huge
//! pages, since a page fault each costs as much as decoding into them. The only `unsafe` beside the codecs. Which
//! buffers are used again is up to `buffer`.

#![expect(unsafe_code, reason = "advice about memory takes addresses")]

use std::mem::MaybeUninit;

/// Blocks from this length on go back to the kernel when they are freed, in bytes. More than the 408 KiB that the
/// HTTP client allocates for each piece of an answer, which would cost a page fault for each page each time.
#[cfg(target_env = "gnu")]
const MMAP_THRESHOLD: libc::c_int = 512 << 10;

/// Arenas for smaller blocks; each may keep as much memory as it ever used.
#[cfg(target_env = "gnu")]
const MAX_ARENAS: libc::c_int = 2;

/// Has glibc give freed memory back to the kernel; to be called once, before threads start. Other C libraries do so
/// by default.
pub fn configure() {
    #[cfg(target_env = "gnu")]
    for (setting, value) in [
        (libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD),
        (libc::M_TRIM_THRESHOLD, MMAP_THRESHOLD),
        (libc::M_ARENA_MAX, MAX_ARENAS),
    ] {
        // SAFETY: mallopt takes two numbers, touches no memory of ours, and locks its own state.
        let done = unsafe { libc::mallopt(setting, value) };
        debug_assert_eq!(done, 1, "glibc has these settings");
    }
}

/// Gives back to the kernel what was freed of smaller blocks, wherever it lies.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes a number, and locks the state of the allocator.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Blocks from this length on are requested as huge pages, in bytes; numpy does so from there on too.
const HUGE_PAGE_THRESHOLD: usize = 4 << 20;

/// The longest block whose pages are requested before it is filled, in bytes: a longer one may stay mostly empty.
const MAX_PREPARED: usize = 32 << 20;

/// The smallest page size of all machines, in bytes. Where pages are larger the kernel refuses the advice, which
/// costs only speed.
const PAGE: usize = 4 << 10;

/// Has the kernel provide the pages of a fresh block that will soon be filled. Its content stays as it is.
pub fn prepare(block: &mut [MaybeUninit<u8>]) {
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
