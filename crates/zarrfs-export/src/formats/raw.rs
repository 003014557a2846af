//! `.raw`: only the elements.

use crate::formats::{FileParts, Format, Ragged};

/// Elements in C order, little-endian, without a header. Elements without a fixed length each follow their length in
/// bytes (u32, little-endian).
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
