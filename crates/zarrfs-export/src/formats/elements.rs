//! Reads single decoded elements as numbers and texts.

use half::f16;

/// Converts a little-endian integer of at most 16 bytes.
pub(crate) fn integer(element: &[u8], is_signed: bool) -> i128 {
    let is_negative = is_signed && element.last().is_some_and(|&last| last >= 0x80);
    let mut bytes = [if is_negative { 0xff } else { 0 }; 16];
    for (byte, &stored) in bytes.iter_mut().zip(element) {
        *byte = stored;
    }
    i128::from_le_bytes(bytes)
}

/// Converts a little-endian float of 2, 4 or 8 bytes; returns `None` for other lengths.
pub(crate) fn float(element: &[u8]) -> Option<f64> {
    match *element {
        [a, b] => Some(f16::from_le_bytes([a, b]).to_f64()),
        [a, b, c, d] => Some(f64::from(f32::from_le_bytes([a, b, c, d]))),
        [a, b, c, d, e, f, g, h] => Some(f64::from_le_bytes([a, b, c, d, e, f, g, h])),
        _ => None,
    }
}

/// Removes the zeros that pad bytes of a fixed length.
pub(crate) fn unpadded(element: &[u8]) -> &[u8] {
    let last = element.iter().rposition(|&byte| byte != 0);
    element
        .get(..last.map_or(0, |last| last + 1))
        .unwrap_or_default()
}

/// Converts fixed-length UTF-32 text without the zeros that pad it. Invalid code points become U+FFFD.
pub(crate) fn text(element: &[u8]) -> String {
    let points = element.as_chunks::<4>().0.iter();
    let letters = points.map(|point| char::from_u32(u32::from_le_bytes(*point)));
    let mut text: String = letters
        .map(|letter| letter.unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect();
    text.truncate(text.trim_end_matches('\0').len());
    text
}
