//! Converts decoded elements to another form, such as another byte order or data type.
//!
//! A conversion handles each element by itself. So reading a range of a file requires only the elements in this range.
//! The conversions in this module preserve every value, except that invalid code points in text become U+FFFD.

use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use half::f16;

use zarr_format::grid::element_blocks;

/// A conversion of each decoded element to its form in a file.
pub trait Conversion: Debug + Send + Sync {
    /// Returns the size of a converted element in bytes.
    fn written_size(&self) -> usize;
    /// Converts whole decoded elements. `written` must have room for all converted elements; every byte of it is
    /// overwritten.
    fn convert(&self, decoded: &[u8], written: &mut [u8]);
    /// Converts decoded elements like `convert`, for conversions that depend on the element's number. `first` is the
    /// number of the first element in the file.
    fn convert_at(&self, _first: u64, decoded: &[u8], written: &mut [u8]) {
        self.convert(decoded, written);
    }
    /// Returns a number that differs between different conversions, so that caches can tell their results apart.
    fn digest(&self) -> u64;
}

/// Returns a hash of all settings of a conversion, so that different conversions can be told apart.
pub(super) fn digest_of(conversion: &impl Debug) -> u64 {
    let mut hasher = DefaultHasher::new();
    format!("{conversion:?}").hash(&mut hasher);
    hasher.finish()
}

/// Converts integers and floats to big-endian. If the file format lacks integers of this signedness, also inverts the
/// highest bit, which shifts the values by half of the range.
#[derive(Debug)]
pub(crate) struct BigEndian {
    pub size: usize,
    /// Size in bytes of a word: the part of an element whose bytes are reversed (half of a complex number).
    pub word: usize,
    /// Whether the highest bit is inverted, to make signed integers unsigned or the reverse.
    pub inverts_top: bool,
}

impl Conversion for BigEndian {
    fn written_size(&self) -> usize {
        self.size
    }

    fn convert(&self, decoded: &[u8], written: &mut [u8]) {
        let top = if self.inverts_top { 0x80 } else { 0 };
        match self.word {
            1 => swap::<1>(decoded, written, top),
            2 => swap::<2>(decoded, written, top),
            4 => swap::<4>(decoded, written, top),
            8 => swap::<8>(decoded, written, top),
            word => {
                let words = decoded.chunks_exact(word);
                for (from, to) in words.zip(written.chunks_exact_mut(word)) {
                    to.copy_from_slice(from);
                    to.reverse();
                    if let Some(first) = to.first_mut() {
                        *first ^= top;
                    }
                }
            }
        }
    }

    fn digest(&self) -> u64 {
        (self.size << 8 | self.word << 1 | usize::from(self.inverts_top)) as u64
    }
}

/// Reverses the bytes of words whose size is known at compile time, and XORs the first byte of each result with `top`.
fn swap<const N: usize>(decoded: &[u8], written: &mut [u8], top: u8) {
    element_blocks::convert(decoded, written, |mut word: [u8; N]| {
        word.reverse();
        if let Some(first) = word.first_mut() {
            *first ^= top;
        }
        word
    });
}

/// Converts small numbers to a wider type, for file formats that lack the small type.
#[derive(Debug)]
pub(crate) enum Widened {
    /// Half floats become big-endian 32-bit floats.
    HalfFloat,
    /// bfloat16 (the upper half of a 32-bit float) become big-endian 32-bit floats.
    BrainFloat,
    /// Bytes become little-endian 16-bit integers.
    Byte,
}

impl Conversion for Widened {
    fn written_size(&self) -> usize {
        match self {
            Widened::HalfFloat | Widened::BrainFloat => 4,
            Widened::Byte => 2,
        }
    }

    fn convert(&self, decoded: &[u8], written: &mut [u8]) {
        match self {
            Widened::HalfFloat => element_blocks::convert(decoded, written, |half| {
                f16::from_le_bytes(half).to_f32().to_be_bytes()
            }),
            Widened::BrainFloat => {
                element_blocks::convert(decoded, written, |[low, high]: [u8; 2]| [high, low, 0, 0]);
            }
            Widened::Byte => element_blocks::convert(decoded, written, |[byte]| [byte, 0]),
        }
    }

    fn digest(&self) -> u64 {
        match self {
            Widened::HalfFloat => 1,
            Widened::Byte => 2,
            Widened::BrainFloat => 3,
        }
    }
}

/// Writes unsigned integers as big-endian integers of twice their size.
#[derive(Debug)]
pub(crate) struct WidenedUnsigned {
    pub width: usize,
}

impl Conversion for WidenedUnsigned {
    fn written_size(&self) -> usize {
        2 * self.width
    }

    fn convert(&self, decoded: &[u8], written: &mut [u8]) {
        let words = decoded.chunks_exact(self.width);
        for (from, to) in words.zip(written.chunks_exact_mut(2 * self.width)) {
            let (high, low) = to.split_at_mut(self.width);
            high.fill(0);
            low.copy_from_slice(from);
            low.reverse();
        }
    }

    fn digest(&self) -> u64 {
        4 << 8 | self.width as u64
    }
}

/// Size in bytes of the buffer between two chained conversions, unless a single element is larger.
const BETWEEN: usize = 32 << 10;

/// Two conversions, one after the other.
#[derive(Debug)]
pub(crate) struct Chained {
    /// Converts the decoded elements.
    pub first: Arc<dyn Conversion>,
    /// Converts the results of the first conversion.
    pub second: Arc<dyn Conversion>,
    pub size: usize,
}

impl Conversion for Chained {
    fn written_size(&self) -> usize {
        self.second.written_size()
    }

    fn convert(&self, decoded: &[u8], written: &mut [u8]) {
        self.convert_at(0, decoded, written);
    }

    fn convert_at(&self, first: u64, decoded: &[u8], written: &mut [u8]) {
        let (size, middle, end) = (
            self.size.max(1),
            self.first.written_size(),
            self.second.written_size().max(1),
        );
        // A small buffer is still in the processor's cache when the second conversion reads it.
        let count = (BETWEEN / middle.max(1)).min(decoded.len() / size).max(1);
        let mut between = vec![0; count * middle];
        let blocks = decoded
            .chunks(count * size)
            .zip(written.chunks_mut(count * end));
        for ((from, to), at) in blocks.zip((first..).step_by(count)) {
            let between = &mut between[..from.len() / size * middle];
            self.first.convert_at(at, from, between);
            self.second.convert_at(at, between, to);
        }
    }

    fn digest(&self) -> u64 {
        self.first.digest().rotate_left(1) ^ self.second.digest()
    }
}

/// Converts text of a fixed number of code points from UTF-32 to UTF-8. Zeros pad the result to the size in UTF-32.
#[derive(Debug)]
pub(crate) struct Utf8 {
    pub size: usize,
}

impl Conversion for Utf8 {
    fn written_size(&self) -> usize {
        self.size
    }

    fn convert(&self, decoded: &[u8], written: &mut [u8]) {
        let texts = decoded.chunks_exact(self.size);
        for (from, to) in texts.zip(written.chunks_exact_mut(self.size)) {
            to.fill(0);
            let (mut rest, (points, _)) = (to, from.as_chunks::<4>());
            let is_padding = |point: &[u8; 4]| *point == [0; 4];
            let length = points.iter().rposition(|point| !is_padding(point));
            for point in points.iter().take(length.map_or(0, |last| last + 1)) {
                let letter = char::from_u32(u32::from_le_bytes(*point));
                let letter = letter.unwrap_or(char::REPLACEMENT_CHARACTER);
                // The buffer of four bytes per code point is large enough, because UTF-8 takes at most four.
                let (place, after) = rest.split_at_mut(letter.len_utf8());
                letter.encode_utf8(place);
                rest = after;
            }
        }
    }

    fn digest(&self) -> u64 {
        1 << 63 | self.size as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_floats_keep_their_values_as_32_bit_floats() {
        for half in 0..=u16::MAX {
            let (sign, exponent) = (half >> 15, i32::from(half >> 10 & 31));
            let mantissa = f64::from(half & 0x3ff);
            let value = match exponent {
                0 => mantissa * 2f64.powi(-24),
                31 if mantissa == 0.0 => f64::INFINITY,
                31 => f64::NAN,
                _ => (1.0 + mantissa / 1024.0) * 2f64.powi(exponent - 15),
            };
            let mut single = [0; 4];
            Widened::HalfFloat.convert(&half.to_le_bytes(), &mut single);
            let single = f64::from(f32::from_be_bytes(single));
            assert_eq!(single.is_nan(), value.is_nan(), "{half:04x}");
            if !value.is_nan() {
                let value = if sign == 1 { -value } else { value };
                assert_eq!(single.to_bits(), value.to_bits(), "{half:04x}");
            }
        }
    }

    #[test]
    fn the_bytes_of_words_of_any_size_are_reversed() {
        for word in [1, 2, 3, 4, 8] {
            let decoded: Vec<u8> = (0..word * 131).map(|byte| byte as u8).collect();
            for (inverts_top, top) in [(false, 0), (true, 0x80)] {
                let conversion = BigEndian {
                    size: word,
                    word,
                    inverts_top,
                };
                let mut written = vec![9; decoded.len()];
                conversion.convert(&decoded, &mut written);
                let expected = decoded.chunks(word).flat_map(|word| {
                    let mut word: Vec<u8> = word.iter().rev().copied().collect();
                    word[0] ^= top;
                    word
                });
                assert_eq!(written, expected.collect::<Vec<_>>(), "{word}");
            }
        }
    }

    /// Adds an element's number in the file to each of its bytes, to test conversions that depend on the number.
    #[derive(Debug)]
    struct Numbered;

    impl Conversion for Numbered {
        fn written_size(&self) -> usize {
            1
        }

        fn convert(&self, _: &[u8], _: &mut [u8]) {}

        fn convert_at(&self, first: u64, decoded: &[u8], written: &mut [u8]) {
            for ((from, to), number) in decoded.iter().zip(written).zip(first..) {
                *to = from.wrapping_add(number as u8);
            }
        }

        fn digest(&self) -> u64 {
            0
        }
    }

    #[test]
    fn chained_conversions_get_the_element_numbers() {
        for count in [0, 1, BETWEEN - 1, BETWEEN, 2 * BETWEEN + 5] {
            let chained = Chained {
                first: Arc::new(Numbered),
                second: Arc::new(Widened::Byte),
                size: 1,
            };
            let mut written = vec![9; 2 * count];
            chained.convert_at(3, &vec![1; count], &mut written);
            let expected = (0..count).flat_map(|number| [(number as u8).wrapping_add(4), 0]);
            assert!(expected.eq(written), "{count}");
        }
    }

    #[test]
    fn words_become_big_endian_with_the_top_bit_inverted() {
        let biased = BigEndian {
            size: 2,
            word: 2,
            inverts_top: true,
        };
        let mut written = [0; 4];
        biased.convert(&[0x34, 0x12, 0xff, 0xff], &mut written);
        assert_eq!(written, [0x92, 0x34, 0x7f, 0xff]);
    }
}
