//! What decoding passes over in an encoded chunk: bytes after a stream, padding, the wrapper or the shape of another writer.
//!
//! Readers do not ask, and then nothing is noted: for some codecs that takes a checksum of all that was decoded.

use std::cell::RefCell;

/// What decoding passed over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PassedOver {
    /// Bytes after a stream.
    pub bytes: u64,
    /// Zeros after a stream that its format takes for padding.
    pub padding: u64,
    /// The name of the codec that is stated, and that of the one that the bytes are of.
    pub wrapper: Option<(&'static str, &'static str)>,
    /// The shape that a block of N5 states, if it is smaller than the chunk.
    pub block: Option<Vec<u64>>,
}

thread_local! {
    /// What this thread has passed over since it began to take notes, if it does.
    static PASSED_OVER: RefCell<Option<PassedOver>> = const { RefCell::new(None) };
}

/// Calls `decode`; returns as well what was passed over in it.
pub(in crate::codec) fn noted<T>(decode: impl FnOnce() -> T) -> (T, PassedOver) {
    let outer = PASSED_OVER.replace(Some(PassedOver::default()));
    let decoded = decode();
    let found = PASSED_OVER.replace(outer);
    (decoded, found.unwrap_or_default())
}

/// Whether this thread takes notes.
pub(super) fn is_noting() -> bool {
    PASSED_OVER.with_borrow(Option::is_some)
}

fn note(add: impl FnOnce(&mut PassedOver)) {
    PASSED_OVER.with_borrow_mut(|found| found.as_mut().map(add));
}

/// Counts bytes that are ignored.
pub(super) fn note_bytes(bytes: usize) {
    note(|found| found.bytes += bytes as u64);
}

/// Counts zeros that are padding.
pub(super) fn note_padding(bytes: usize) {
    note(|found| found.padding += bytes as u64);
}

/// Notes that the bytes are of another codec than the one that is stated.
pub(super) fn note_wrapper(stated: &'static str, other: &'static str) {
    note(|found| found.wrapper = Some((stated, other)));
}

/// Notes that a block is smaller than the chunk.
pub(super) fn note_block(shape: &[u64]) {
    note(|found| found.block = Some(shape.to_vec()));
}
