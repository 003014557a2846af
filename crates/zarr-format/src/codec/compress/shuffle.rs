//! Byte and bit shuffling as c-blosc does it, and codec `numcodecs.shuffle`.
//!
//! blosc frames of snappy blocks are shuffled here, since c-blosc is built without snappy; `numcodecs.shuffle` has only
//! the byte shuffle. Shuffling and its inverse write every byte of a target as long as the source. Bytes after the last
//! whole element are copied; a bit shuffle copies all bytes if the number of elements is not a multiple of eight.

use std::borrow::Cow;

use crate::buffer;
use crate::codec::config::Configuration;
use crate::codec::traits::{BytesToBytes, ChainPosition, Codec, Data, Length};
use crate::error::Result;
use crate::grid::element_blocks::BLOCK;
use crate::model::DataType;

/// Codec `numcodecs.shuffle` for elements of `width` bytes; a width of 1 disables shuffling.
#[derive(Debug)]
struct ShuffleCodec {
    width: usize,
}

/// Builds `numcodecs.shuffle` from `elementsize`, by default the size of the data type.
pub(crate) fn build(config: Configuration<'_>, position: &ChainPosition<'_>) -> Result<Codec> {
    let element = position.repr.data_type.size().unwrap_or(1).max(1);
    // `elementsize` 0 means the size of the data type in netcdf-c, which writes only numbers, and no shuffling in
    // numcodecs.
    let number = matches!(
        position.repr.data_type,
        DataType::Int(_) | DataType::UInt(_) | DataType::Float(_)
    );
    let width = match config.integer("elementsize", 0..=i64::from(u32::MAX))? {
        None => element,
        Some(0) if number => element,
        Some(width) => usize::try_from(width).unwrap_or(1).max(1),
    };
    Ok(Codec::BytesToBytes(Box::new(ShuffleCodec { width })))
}

impl ShuffleCodec {
    fn apply<'a>(&self, data: Data<'a>, shuffle: fn(usize, &[u8], &mut [u8])) -> Data<'a> {
        if self.width == 1 {
            return data;
        }
        let mut out = buffer::of_length(data.len());
        shuffle(self.width, &data, &mut out);
        Cow::Owned(out)
    }
}

impl BytesToBytes for ShuffleCodec {
    fn encoded_length(&self, decoded: Length) -> Length {
        decoded
    }

    fn decode<'a>(&self, encoded: Data<'a>, want: Length) -> Result<Data<'a>> {
        want.check("shuffle", encoded.len())?;
        Ok(self.apply(encoded, unshuffle))
    }

    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>> {
        Ok(self.apply(decoded, shuffle))
    }
}

/// Shuffles elements of `width` bytes: first byte 0 of all elements, then byte 1 of all elements, and so on.
pub(super) fn shuffle(width: usize, source: &[u8], target: &mut [u8]) {
    let count = source.len() / width.max(1);
    let (elements, rest) = source.split_at(count * width);
    let (rows, tail) = target.split_at_mut(elements.len());
    match width {
        2 => shuffle_2(elements, rows),
        4 => shuffle_4(elements, rows),
        8 => shuffle_8(elements, rows),
        _ => shuffle_any(width, elements, rows),
    }
    tail.copy_from_slice(rest);
}

fn shuffle_any(width: usize, elements: &[u8], rows: &mut [u8]) {
    let count = elements.len() / width.max(1);
    for (byte, row) in rows.chunks_exact_mut(count.max(1)).enumerate() {
        for (out, element) in row.iter_mut().zip(elements.chunks_exact(width)) {
            *out = element[byte];
        }
    }
}

pub(super) fn unshuffle(width: usize, source: &[u8], target: &mut [u8]) {
    let count = source.len() / width.max(1);
    let (rows, rest) = source.split_at(count * width);
    let (elements, tail) = target.split_at_mut(rows.len());
    match width {
        2 => unshuffle_2(rows, elements),
        4 => unshuffle_4(rows, elements),
        8 => unshuffle_8(rows, elements),
        _ => unshuffle_any(width, rows, elements),
    }
    tail.copy_from_slice(rest);
}

fn unshuffle_any(width: usize, rows: &[u8], elements: &mut [u8]) {
    let count = rows.len() / width.max(1);
    for (byte, row) in rows.chunks_exact(count.max(1)).enumerate() {
        for (element, &value) in elements.chunks_exact_mut(width).zip(row) {
            element[byte] = value;
        }
    }
}

/// Defines shuffling and its inverse for elements that are machine words, in blocks of elements (`element_blocks`).
macro_rules! word_shuffles {
    ($shuffle:ident, $unshuffle:ident, $word:ty, $width:literal) => {
        fn $shuffle(elements: &[u8], rows: &mut [u8]) {
            let count = elements.len() / $width;
            let elements = elements.as_chunks::<$width>().0.chunks(BLOCK);
            for (number, block) in elements.enumerate() {
                let mut words = [[0; $width]; BLOCK];
                words[..block.len()].copy_from_slice(block);
                let words = words.map(<$word>::from_le_bytes);
                for byte in 0..$width {
                    let mut row = [0; BLOCK];
                    for (out, word) in row.iter_mut().zip(&words) {
                        *out = (word >> (8 * byte)).to_le_bytes()[0];
                    }
                    let start = byte * count + number * BLOCK;
                    rows[start..start + block.len()].copy_from_slice(&row[..block.len()]);
                }
            }
        }

        fn $unshuffle(rows: &[u8], elements: &mut [u8]) {
            let count = rows.len() / $width;
            let elements = elements.as_chunks_mut::<$width>().0.chunks_mut(BLOCK);
            for (number, block) in elements.enumerate() {
                let mut words: [$word; BLOCK] = [0; BLOCK];
                for byte in 0..$width {
                    let mut row = [0; BLOCK];
                    let start = byte * count + number * BLOCK;
                    row[..block.len()].copy_from_slice(&rows[start..start + block.len()]);
                    for (word, value) in words.iter_mut().zip(row) {
                        *word |= <$word>::from(value) << (8 * byte);
                    }
                }
                let words = words.map(<$word>::to_le_bytes);
                block.copy_from_slice(&words[..block.len()]);
            }
        }
    };
}

word_shuffles!(shuffle_2, unshuffle_2, u16, 2);
word_shuffles!(shuffle_4, unshuffle_4, u32, 4);
word_shuffles!(shuffle_8, unshuffle_8, u64, 8);

/// Shuffles the bits of elements of `width` bytes: first bit 0 of all elements, then bit 1 of all elements, and so on.
pub(super) fn bit_shuffle(width: usize, source: &[u8], target: &mut [u8]) {
    let length = bit_shuffled_length(width, source.len());
    let (elements, rest) = source.split_at(length);
    let (rows, tail) = target.split_at_mut(length);
    let row = length / width.max(1) / 8;
    for (group, eight) in elements.chunks_exact(8 * width.max(1)).enumerate() {
        for byte in 0..width {
            let mut bytes = [0; 8];
            for (k, out) in bytes.iter_mut().enumerate() {
                *out = eight[k * width + byte];
            }
            for (bit, value) in transpose_bits(bytes).into_iter().enumerate() {
                rows[(byte * 8 + bit) * row + group] = value;
            }
        }
    }
    tail.copy_from_slice(rest);
}

pub(super) fn bit_unshuffle(width: usize, source: &[u8], target: &mut [u8]) {
    let length = bit_shuffled_length(width, source.len());
    let (rows, rest) = source.split_at(length);
    let (elements, tail) = target.split_at_mut(length);
    let row = length / width.max(1) / 8;
    for (byte, rows) in rows.chunks_exact((8 * row).max(1)).enumerate() {
        let rows: [&[u8]; 8] = std::array::from_fn(|bit| &rows[bit * row..(bit + 1) * row]);
        for (group, eight) in elements.chunks_exact_mut(8 * width).enumerate() {
            let transposed = transpose_bits(rows.map(|row| row[group]));
            for (element, value) in eight.chunks_exact_mut(width).zip(transposed) {
                element[byte] = value;
            }
        }
    }
    tail.copy_from_slice(rest);
}

/// Returns how many of `length` bytes a bit shuffle moves: all whole elements, or none if their number is not a
/// multiple of eight.
fn bit_shuffled_length(width: usize, length: usize) -> usize {
    let count = length / width.max(1);
    if count.is_multiple_of(8) {
        count * width
    } else {
        0
    }
}

/// Transposes a matrix of eight by eight bits, one row per byte (Hacker's Delight, section 7-3).
fn transpose_bits(bytes: [u8; 8]) -> [u8; 8] {
    let mut x = u64::from_le_bytes(bytes);
    for (shift, mask) in [
        (7, 0x00aa_00aa_00aa_00aa),
        (14, 0x0000_cccc_0000_cccc),
        (28, 0x0000_0000_f0f0_f0f0),
    ] {
        let moved = (x ^ (x >> shift)) & mask;
        x ^= moved ^ (moved << shift);
    }
    x.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::tests::{pipeline, sample};
    use serde_json::{Value, json};

    fn encoded(data_type: &str, elementsize: Value) -> Vec<u8> {
        let codec =
            json!({ "name": "numcodecs.shuffle", "configuration": { "elementsize": elementsize } });
        let pipeline = pipeline(data_type, &[2], json!(["bytes", codec])).unwrap();
        let data: Vec<u8> = (0..pipeline.chunk_bytes() as u8).collect();
        let encoded = pipeline.encode(&data).unwrap();
        assert_eq!(pipeline.decode(encoded.clone()).unwrap(), data);
        encoded
    }

    #[test]
    fn elementsize_sets_the_width_of_the_shuffle() {
        assert_eq!(encoded("uint32", json!(4)), [0, 4, 1, 5, 2, 6, 3, 7]);
        assert_eq!(encoded("uint32", json!(2)), [0, 2, 4, 6, 1, 3, 5, 7]);
        assert_eq!(encoded("uint32", json!(3)), [0, 3, 1, 4, 2, 5, 6, 7]);
        assert_eq!(encoded("uint32", json!(1)), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(encoded("uint32", json!(99)), [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn elementsize_0_or_null_means_the_size_of_the_data_type() {
        for none in [json!(0), json!(null)] {
            assert_eq!(encoded("uint32", none), [0, 4, 1, 5, 2, 6, 3, 7]);
        }
        // netcdf-c writes no `r32`, so the chunk is read as numcodecs reads it: unshuffled.
        assert_eq!(encoded("r32", json!(0)), [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn shuffle_groups_the_nth_bytes_of_all_elements() {
        let mut out = [0; 7];
        shuffle(3, &[1, 2, 3, 4, 5, 6, 7], &mut out);
        assert_eq!(out, [1, 4, 2, 5, 3, 6, 7]);
    }

    #[test]
    fn bit_shuffle_groups_the_nth_bits_of_all_elements() {
        let mut out = [0; 16];
        let source: Vec<u8> = (0..8).flat_map(|k| [1 << k, 0x80]).collect();
        bit_shuffle(2, &source, &mut out);
        assert_eq!(out, [1, 2, 4, 8, 16, 32, 64, 128, 0, 0, 0, 0, 0, 0, 0, 255]);
    }

    #[test]
    fn all_element_widths_and_lengths_round_trip() {
        for width in [1, 2, 3, 4, 8, 16, 17, 255] {
            for length in [0, 1, 7, 8, 64, 130, 24 * 255, 4096, 5000] {
                let source = sample(length);
                let mut there = vec![0xee; length];
                let mut back = vec![0xee; length];
                shuffle(width, &source, &mut there);
                let count = length / width;
                for (at, byte) in source.iter().enumerate().take(count * width) {
                    let moved = there[at % width * count + at / width];
                    assert_eq!(moved, *byte, "{width}, {length}, {at}");
                }
                unshuffle(width, &there, &mut back);
                assert_eq!(back, source, "bytes, {width}, {length}");
                bit_shuffle(width, &source, &mut there);
                bit_unshuffle(width, &there, &mut back);
                assert_eq!(back, source, "bits, {width}, {length}");
            }
        }
    }
}
