//! Records faults that decoding tolerates: ignored bytes, padding, a wrong container, a smaller block.
//!
//! Only calls inside `recorded` record them. Normal reads do not, since some codecs find these faults only by a
//! checksum of all decoded bytes.

use std::cell::RefCell;

/// Faults that decoding of a chunk tolerated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leniency {
    /// Number of ignored bytes after the end of the compressed stream.
    pub bytes: u64,
    /// Number of zeros after the end of a stream, where the format allows them as padding.
    pub padding: u64,
    /// The codec that the metadata state and the codec that wrote the chunk, if the two differ.
    pub wrapper: Option<(&'static str, &'static str)>,
    /// The shape in the header of an N5 block, if it is smaller than the chunk.
    pub block: Option<Vec<u64>>,
}

thread_local! {
    /// Faults recorded on this thread; `None` outside `recorded`.
    static LENIENCY: RefCell<Option<Leniency>> = const { RefCell::new(None) };
}

/// Calls `decode`, and returns its result together with the faults that decoding tolerated.
pub(in crate::codec) fn recorded<T>(decode: impl FnOnce() -> T) -> (T, Leniency) {
    let outer = LENIENCY.replace(Some(Leniency::default()));
    let decoded = decode();
    let record = LENIENCY.replace(outer);
    (decoded, record.unwrap_or_default())
}

pub(super) fn is_recording() -> bool {
    LENIENCY.with_borrow(Option::is_some)
}

fn record(add: impl FnOnce(&mut Leniency)) {
    LENIENCY.with_borrow_mut(|record| record.as_mut().map(add));
}

pub(super) fn record_trailing_bytes(bytes: usize) {
    record(|leniency| leniency.bytes += bytes as u64);
}

pub(super) fn record_padding(bytes: usize) {
    record(|leniency| leniency.padding += bytes as u64);
}

pub(super) fn record_wrapper(stated: &'static str, actual: &'static str) {
    record(|leniency| leniency.wrapper = Some((stated, actual)));
}

pub(super) fn record_block(shape: &[u64]) {
    record(|leniency| leniency.block = Some(shape.to_vec()));
}
