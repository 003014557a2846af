//! Bytes after a compressed stream that decoding ignores, and a counter of them.
//!
//! Readers do not ask, and then nothing is counted: for some codecs that takes a checksum of all that was decoded.

use std::cell::Cell;

thread_local! {
    /// The bytes that this thread has ignored since it began to count, if it counts.
    static IGNORED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Calls `decode`; returns as well how many bytes were ignored in it.
pub(in crate::codec) fn counted<T>(decode: impl FnOnce() -> T) -> (T, u64) {
    let outer = IGNORED.replace(Some(0));
    let decoded = decode();
    let ignored = IGNORED.replace(outer);
    (decoded, ignored.unwrap_or_default())
}

/// Whether this thread counts.
pub(super) fn is_counting() -> bool {
    IGNORED.get().is_some()
}

/// Counts bytes that are ignored.
pub(super) fn note(bytes: usize) {
    IGNORED.set(IGNORED.get().map(|counted| counted + bytes as u64));
}
