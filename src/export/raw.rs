//! `.raw`: the elements and nothing else.

use crate::export::{Format, Ragged};

/// Elements in C order, little-endian, without a header; those without a fixed length each as a count of
/// bytes (u32, little-endian) and the bytes.
pub const FORMAT: Format = Format {
    extension: "raw",
    header: Some(|array, _| array.data_type.size().map(|_| Vec::new())),
    ragged: Ragged::Records,
};
