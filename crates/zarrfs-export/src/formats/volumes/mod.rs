//! Formats of images in space, and what their headers share.

pub(crate) mod fits;
pub(crate) mod metaimage;
pub(crate) mod mrc;
pub(crate) mod nifti;
pub(crate) mod nrrd;
pub(crate) mod placement;
pub(crate) mod vti;

/// A header of text, and the facts that it omits.
struct TextHeader {
    text: String,
    left_out: Vec<String>,
}

/// The bytes of a header.
pub(crate) struct HeaderBytes(pub(crate) Vec<u8>);

impl HeaderBytes {
    /// Returns a header of zeros.
    pub(crate) fn new(length: usize) -> HeaderBytes {
        HeaderBytes(vec![0; length])
    }

    /// Writes bytes at an offset, unless they would exceed the end of the header.
    pub(crate) fn put(&mut self, place: usize, bytes: &[u8]) {
        let field = self.0.get_mut(place..place + bytes.len());
        if let Some(field) = field {
            field.copy_from_slice(bytes);
        }
    }
}

/// Returns a number as a little-endian 32-bit float.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the header has floats of four bytes"
)]
pub(crate) fn single(number: f64) -> [u8; 4] {
    (number as f32).to_le_bytes()
}
