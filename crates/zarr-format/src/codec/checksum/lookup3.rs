//! Computes Bob Jenkins' hash `lookup3` with a 32-bit result (`hashlittle`), byte by byte.
//!
//! HDF5 protects its own structures with it. The result does not depend on the machine's byte order.

/// Returns the hash of `data`, with `initial` as the initial value.
pub fn lookup3(data: &[u8], initial: u32) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the length counts modulo 2^32"
    )]
    let length = data.len() as u32;
    let start = 0xdead_beef_u32.wrapping_add(length).wrapping_add(initial);
    let mut state = [start; 3];
    if data.is_empty() {
        return start;
    }
    // The last block, of 1 to 12 bytes, is mixed differently.
    let (blocks, last) = data.split_at((data.len() - 1) / 12 * 12);
    for block in blocks.chunks_exact(12) {
        add(&mut state, block);
        mix(&mut state);
    }
    add(&mut state, last);
    mix_last(&mut state);
    state[2]
}

/// Adds up to 12 bytes; missing bytes count as zeros.
fn add(state: &mut [u32; 3], bytes: &[u8]) {
    let mut words = [0; 12];
    words[..bytes.len()].copy_from_slice(bytes);
    for (value, word) in state.iter_mut().zip(words.as_chunks::<4>().0) {
        *value = value.wrapping_add(u32::from_le_bytes(*word));
    }
}

fn mix(state: &mut [u32; 3]) {
    for (n, turn) in [4, 6, 8, 16, 19, 4].into_iter().enumerate() {
        let (a, b, c) = (n % 3, (n + 1) % 3, (n + 2) % 3);
        state[a] = state[a].wrapping_sub(state[c]) ^ state[c].rotate_left(turn);
        state[c] = state[c].wrapping_add(state[b]);
    }
}

fn mix_last(state: &mut [u32; 3]) {
    for (n, turn) in [14, 11, 25, 16, 4, 14, 24].into_iter().enumerate() {
        let (target, source) = ((n + 2) % 3, (n + 1) % 3);
        state[target] =
            (state[target] ^ state[source]).wrapping_sub(state[source].rotate_left(turn));
    }
}

#[cfg(test)]
mod tests {
    use super::lookup3;

    #[test]
    fn hashes_that_its_author_gives() {
        let score = b"Four score and seven years ago";
        assert_eq!(lookup3(b"", 0), 0xdead_beef);
        assert_eq!(lookup3(b"", 0xdead_beef), 0xbd5b_7dde);
        assert_eq!(lookup3(score, 0), 0x1777_0551);
        assert_eq!(lookup3(score, 1), 0xcd62_8161);
    }

    #[test]
    fn all_lengths_differ() {
        let mut hashes: Vec<u32> = (0..40)
            .map(|length| lookup3(&[0; 40][..length], 0))
            .collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), 40);
    }
}
