//! Converts the elements of two buffers in blocks of a constant length.
//!
//! The program is compiled for size; the compiler then vectorizes only loops of a constant length. The last block is
//! padded with zeros, and the results of the padding are dropped.

/// Number of elements in a block, for loops that the compiler vectorizes.
pub(crate) const BLOCK: usize = 64;

/// Applies `value` to each element of `from` and writes the result to `to`; stops at the end of the shorter buffer.
pub fn convert<const N: usize, const M: usize>(
    from: &[u8],
    to: &mut [u8],
    value: impl Fn([u8; N]) -> [u8; M],
) {
    let from = from.as_chunks::<N>().0.chunks(BLOCK);
    let to = to.as_chunks_mut::<M>().0.chunks_mut(BLOCK);
    for (from, to) in from.zip(to) {
        if let (Some(from), Some(to)) = (from.first_chunk(), to.first_chunk_mut()) {
            convert_block(from, to, &value);
            continue;
        }
        let (mut last, mut results) = ([[0; N]; BLOCK], [[0; M]; BLOCK]);
        let count = from.len().min(to.len());
        last[..count].copy_from_slice(&from[..count]);
        convert_block(&last, &mut results, &value);
        to[..count].copy_from_slice(&results[..count]);
    }
}

fn convert_block<const N: usize, const M: usize>(
    from: &[[u8; N]; BLOCK],
    to: &mut [[u8; M]; BLOCK],
    value: impl Fn([u8; N]) -> [u8; M],
) {
    for (element, out) in from.iter().zip(to) {
        *out = value(*element);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_elements_are_converted_and_other_bytes_are_kept() {
        for count in [0, 1, 63, 64, 65, 127, 128, 200] {
            let from: Vec<u8> = (0..2 * count + 1).map(|n| (n % 251) as u8).collect();
            let mut to = vec![7; 3 * count + 2];
            convert::<2, 3>(&from, &mut to, |[a, b]| [b, a, 1]);
            let mut expected: Vec<u8> = from
                .chunks_exact(2)
                .flat_map(|pair| [pair[1], pair[0], 1])
                .collect();
            expected.extend([7, 7]);
            assert_eq!(to, expected, "{count}");
        }
        let mut short = [0; 3];
        convert::<1, 1>(&[1; 200], &mut short, |[byte]| [byte + 1]);
        assert_eq!(short, [2; 3]);
        let mut long = [0; 70];
        convert::<1, 1>(&[1; 66], &mut long, |[byte]| [byte + 1]);
        assert_eq!((long[65], long[66]), (2, 0));
    }
}
