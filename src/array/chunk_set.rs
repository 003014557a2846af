//! A set of chunks in 512 bytes, which may say of others that it has them, and never that it lacks one of its own.
//!
//! A chunk is one bit. What follows from a chunk that was never added is as right as if it had been, and only slower.

const WORDS: usize = 64;

/// Spreads numbers that follow each other over all bits: 2^64 by the golden ratio.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// Some chunks of an array, by their number in the grid.
#[derive(Default)]
pub(super) struct ChunkSet(Option<Box<[u64; WORDS]>>);

impl ChunkSet {
    /// Adds a chunk.
    pub(super) fn add(&mut self, number: u64) {
        let (word, bit) = place(number);
        let words = self.0.get_or_insert_with(|| Box::new([0; WORDS]));
        words[word] |= bit;
    }

    /// Whether a chunk may have been added: always if it was.
    pub(super) fn may_have(&self, number: u64) -> bool {
        let (word, bit) = place(number);
        let words = self.0.as_ref();
        words.is_some_and(|words| words[word] & bit != 0)
    }

    /// Whether no chunk was added.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

/// Returns the word and the bit of a chunk.
fn place(number: u64) -> (usize, u64) {
    let spread = number.wrapping_mul(SPREAD);
    let word = (spread >> 58) as usize;
    (word, 1 << (spread >> 52 & 63))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_chunk_that_was_added_is_there_and_few_others() {
        let mut set = ChunkSet::default();
        assert!(set.is_empty() && !set.may_have(0));
        let added = [0, 1, 2, 3, 500, 1 << 40, u64::MAX];
        added.into_iter().for_each(|number| set.add(number));
        assert!(added.into_iter().all(|number| set.may_have(number)));
        let others = (1000..2000).filter(|&number| set.may_have(number)).count();
        assert!(others < 20, "{others}");
    }
}
