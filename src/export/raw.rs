//! `.raw`: the elements and nothing else.

use crate::export::Format;

/// Elements in C order, little-endian, without a header.
pub const FORMAT: Format = Format {
    extension: "raw",
    header: |array, _| array.data_type.size().map(|_| Vec::new()),
};
