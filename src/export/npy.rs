//! `.npy`: numpy's own format, version 1.0 (numpy.lib.format).

use crate::export::Format;
use crate::model::Array;

/// Elements in C order behind a header that `numpy.load` maps.
pub const FORMAT: Format = Format {
    extension: "npy",
    header,
};

/// The header's length is a multiple of this, so that elements are aligned in a map.
const ALIGNMENT: usize = 64;

fn header(array: &Array, shape: &[u64]) -> Option<Vec<u8>> {
    let descr = array.data_type.npy_descr()?;
    let lengths: Vec<String> = shape.iter().map(u64::to_string).collect();
    let comma = if shape.len() == 1 { "," } else { "" };
    let shape = format!("({}{comma})", lengths.join(", "));
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    // Magic, version, length of the text: 10 bytes before it, a newline at its end.
    let length = (10 + text.len() + 1).next_multiple_of(ALIGNMENT) - 10;
    while text.len() < length - 1 {
        text.push(' ');
    }
    text.push('\n');
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend_from_slice(&u16::try_from(length).ok()?.to_le_bytes());
    header.extend_from_slice(text.as_bytes());
    Some(header)
}
