//! Computes HDF5's `fletcher32` checksum over 16-bit words, most significant byte first.
//!
//! An odd last byte is the upper half of a word. The checksum of empty data is 0.

/// The number of words after which the sums are folded, so that 32 bits do not overflow.
const BLOCK_WORDS: usize = 360;

/// Returns the checksum of `data`.
pub(super) fn fletcher32(data: &[u8]) -> u32 {
    let (mut first, mut second) = (0, 0);
    for block in data.chunks(2 * BLOCK_WORDS) {
        for word in block.chunks(2) {
            let low = word.get(1).copied().unwrap_or(0);
            first += u32::from(word[0]) << 8 | u32::from(low);
            second += first;
        }
        (first, second) = (fold(first), fold(second));
    }
    fold(second) << 16 | fold(first)
}

/// Reduces a sum modulo 65535, to at most 17 bits.
fn fold(sum: u32) -> u32 {
    (sum & 0xffff) + (sum >> 16)
}

#[cfg(test)]
mod tests {
    use super::fletcher32;

    #[test]
    fn sums_that_numcodecs_gives() {
        for (data, sum) in [
            (b"a".as_slice(), [0, b'a', 0, b'a']),
            (b"abc", [b'b', 0xc4, 0xc5, b'%']),
            (b"abcd", [0xc6, 0xc4, b')', b'&']),
            (&[0xff; 7], [0, 0xff, 0, 0xff]),
        ] {
            assert_eq!(fletcher32(data).to_le_bytes(), sum, "{data:?}");
        }
    }

    #[test]
    fn long_input_does_not_overflow() {
        assert_eq!(fletcher32(&[0xff; 100_000]), 0xffff_ffff);
        assert_eq!(fletcher32(&[]), 0);
    }
}
