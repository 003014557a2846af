//! Records data that decoding ignores or that another writer's format explains.
//!
//! Bytes after a stream, padding, the wrapper of another codec, the shape of a smaller block. Normal reads record
//! nothing, since for some codecs that takes a checksum of all decoded bytes.

use std::cell::RefCell;

/// Data that decoding ignored or accepted leniently.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PassedOver {
    /// Bytes after a stream.
    pub bytes: u64,
    /// Zeros after a stream that the format defines as padding.
    pub padding: u64,
    /// The name of the codec in the metadata, and of the codec that the bytes belong to.
    pub wrapper: Option<(&'static str, &'static str)>,
    /// The shape that a block of N5 states, if it is smaller than the chunk.
    pub block: Option<Vec<u64>>,
}

thread_local! {
    /// The record of this thread, if it keeps one.
    static PASSED_OVER: RefCell<Option<PassedOver>> = const { RefCell::new(None) };
}

/// Calls `decode`, and also returns the data that it passed over.
pub(in crate::codec) fn noted<T>(decode: impl FnOnce() -> T) -> (T, PassedOver) {
    let outer = PASSED_OVER.replace(Some(PassedOver::default()));
    let decoded = decode();
    let found = PASSED_OVER.replace(outer);
    (decoded, found.unwrap_or_default())
}

/// Whether this thread keeps a record.
pub(super) fn is_noting() -> bool {
    PASSED_OVER.with_borrow(Option::is_some)
}

fn note(add: impl FnOnce(&mut PassedOver)) {
    PASSED_OVER.with_borrow_mut(|found| found.as_mut().map(add));
}

/// Records ignored bytes.
pub(super) fn note_bytes(bytes: usize) {
    note(|found| found.bytes += bytes as u64);
}

/// Records zeros of padding.
pub(super) fn note_padding(bytes: usize) {
    note(|found| found.padding += bytes as u64);
}

/// Records that the bytes belong to another codec than the one in the metadata.
pub(super) fn note_wrapper(stated: &'static str, other: &'static str) {
    note(|found| found.wrapper = Some((stated, other)));
}

/// Records that a block is smaller than the chunk.
pub(super) fn note_block(shape: &[u64]) {
    note(|found| found.block = Some(shape.to_vec()));
}
