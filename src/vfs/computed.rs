//! Inode numbers that hold a name made of indices.
//!
//! The name of a chunk file (`0.3.1`, `c.4`, `0.3.1.npy`) is encoded in its inode number beside the number of its
//! directory, so that a directory of a million chunks takes no memory.

use crate::grid::NumberedName;

/// Set in inode numbers that are computed.
pub(super) const COMPUTED: u64 = 1 << 63;
/// Bits of a computed number that hold the name.
const NAME_BITS: u32 = 43;
/// Bits of those that hold the indices.
const INDEX_BITS: u32 = 37;
/// The most indices of a name that fit a number.
const MAX_INDICES: usize = 6;
/// What a name may have before and after its indices; the position in this list goes into the number.
const FRAMES: [(&str, &str); 8] = [
    ("", ""),
    ("c", ""),
    ("c.", ""),
    ("", ".npy"),
    ("", ".raw"),
    ("", ".npy.tmp"),
    ("", ".partial"),
    ("", ".json"),
];

/// The number of directories from which on a number has no room for them.
pub(super) const MAX_DIRECTORIES: u32 = 1 << (63 - NAME_BITS);

/// Returns the inode number of a name, by its code, in one of the first directories.
pub(super) fn number_of(directory: u32, code: u64) -> u64 {
    COMPUTED | u64::from(directory % MAX_DIRECTORIES) << NAME_BITS | code
}

/// Encodes a name made of indices in `NAME_BITS` bits; nothing if it does not fit.
pub(super) fn code_of(name: &NumberedName<'_>) -> Option<u64> {
    let frame = (name.prefix, name.suffix);
    let frame = FRAMES.iter().position(|known| *known == frame)? as u64;
    if name.indices.len() > MAX_INDICES {
        return None;
    }
    let count = name.indices.len() as u64;
    let bits = u64::from(INDEX_BITS) / count;
    let mut code = 0;
    for &index in &name.indices {
        if index >= 1 << bits {
            return None;
        }
        code = code << bits | index;
    }
    Some((frame << 3 | count) << INDEX_BITS | code)
}

/// Returns the number of the directory and the name that a computed inode number holds.
pub(super) fn computed_name(ino: u64) -> Option<(u32, String)> {
    if ino & COMPUTED == 0 {
        return None;
    }
    let parent = u32::try_from((ino & !COMPUTED) >> NAME_BITS).ok()?;
    let code = ino & ((1 << NAME_BITS) - 1);
    let head = code >> INDEX_BITS;
    let (before, after) = FRAMES.get(usize::try_from(head >> 3).ok()?)?;
    let count = head & 7;
    let bits = u64::from(INDEX_BITS).checked_div(count)?;
    let indices: Vec<String> = (0..count)
        .rev()
        .map(|position| (code >> (position * bits) & ((1 << bits) - 1)).to_string())
        .collect();
    Some((parent, format!("{before}{}{after}", indices.join("."))))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn computed_numbers_hold_their_names(
            indices in prop::collection::vec(0u64..70, 1..7),
            frame in 0usize..FRAMES.len(),
        ) {
            let numbers: Vec<_> = indices.iter().map(u64::to_string).collect();
            let name = format!("{}{}{}", FRAMES[frame].0, numbers.join("."), FRAMES[frame].1);
            match code_of(&NumberedName::parse(name.as_bytes()).unwrap()) {
                Some(code) => prop_assert_eq!(computed_name(number_of(5, code)), Some((5, name))),
                None => prop_assert!(indices.iter().any(|&index| index >= 1 << (37 / indices.len() as u32))),
            }
        }
    }
}
