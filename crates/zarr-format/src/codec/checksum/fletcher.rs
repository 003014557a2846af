//! The checksum `fletcher32` as HDF5 takes it: over 16-bit words, most significant byte first.
//!
//! A last odd byte counts as the upper half of a word. The checksum of no bytes is 0.

/// Words after which the sums are folded, so that they cannot overflow 32 bits.
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

/// Makes a sum smaller that counts modulo 65535: to 16 bits, or one more.
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
