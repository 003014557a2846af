//! `.raw`: the elements and nothing else.

use crate::formats::{FileParts, Format, Ragged};

/// Elements in C order, little-endian, without a header; those without a fixed length each as a count of
/// bytes (u32, little-endian) and the bytes.
pub const FORMAT: Format = Format {
    extension: "raw",
    needs: "elements that decode",
    parts: Some(|subject| {
        let size = subject.array.data_type.size();
        size.map(|_| FileParts::plain(Vec::new()))
    }),
    ragged: Some(Ragged::Records),
    is_basic: true,
};
