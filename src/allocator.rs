//! What the C library does with freed memory.
//!
//! Left alone, glibc learns from large chunks to keep tens of MiB in each of its arenas, which nobody counts
//! and no budget holds. Told here, once, before threads start; the only `unsafe` beside the codecs. Buffers
//! that are worth keeping are kept by `buffer`, and counted there.

/// Blocks from this length on are the kernel's again when they are freed, in bytes.
#[cfg(target_env = "gnu")]
const LARGE: libc::c_int = 256 << 10;

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
