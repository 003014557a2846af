//! Records faults that decoding tolerates: ignored bytes, padding, another wrapper, a smaller block.
//!
//! Only `recorded` keeps a record. Normal reads keep none, since some codecs find these faults only by a checksum of
//! all decoded bytes.

use std::cell::RefCell;

/// Data that decoding ignored or accepted leniently.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leniency {
    /// Bytes after a stream.
    pub bytes: u64,
    /// Zeros after a stream that the format defines as padding.
    pub padding: u64,
    /// The codec that the metadata name, and the codec that encoded the bytes, if these differ.
    pub wrapper: Option<(&'static str, &'static str)>,
    /// The shape that a block of N5 states, if it is smaller than the chunk.
    pub block: Option<Vec<u64>>,
}

thread_local! {
    /// The record of this thread, if it keeps one.
    static LENIENCY: RefCell<Option<Leniency>> = const { RefCell::new(None) };
}

/// Calls `decode`, and also returns the data that it accepted leniently.
pub(in crate::codec) fn recorded<T>(decode: impl FnOnce() -> T) -> (T, Leniency) {
    let outer = LENIENCY.replace(Some(Leniency::default()));
    let decoded = decode();
    let record = LENIENCY.replace(outer);
    (decoded, record.unwrap_or_default())
}

/// Whether this thread keeps a record.
pub(super) fn is_recording() -> bool {
    LENIENCY.with_borrow(Option::is_some)
}

fn record(add: impl FnOnce(&mut Leniency)) {
    LENIENCY.with_borrow_mut(|record| record.as_mut().map(add));
}

/// Records ignored bytes.
pub(super) fn record_trailing_bytes(bytes: usize) {
    record(|leniency| leniency.bytes += bytes as u64);
}

/// Records zeros of padding.
pub(super) fn record_padding(bytes: usize) {
    record(|leniency| leniency.padding += bytes as u64);
}

/// Records that the bytes belong to another codec than the one in the metadata.
pub(super) fn record_wrapper(stated: &'static str, actual: &'static str) {
    record(|leniency| leniency.wrapper = Some((stated, actual)));
}

/// Records that a block is smaller than the chunk.
pub(super) fn record_block(shape: &[u64]) {
    record(|leniency| leniency.block = Some(shape.to_vec()));
}
