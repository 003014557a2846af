//! Inode numbers that hold a name made of numbers.
//!
//! A chunk's name (`0.3.1`, `c.4`, `0.3.1.npy`) is written into its number beside the number of its directory, so
//! that a directory of a million chunks costs nothing.

/// Set in numbers that are computed.
pub(super) const COMPUTED: u64 = 1 << 63;
/// Bits of a computed number that hold the name.
const NAME_BITS: u32 = 43;
/// Bits of those that hold the indices.
const INDEX_BITS: u32 = 37;
/// The most indices of a name that is written into a number.
const MOST_INDICES: usize = 6;
/// What a name may have around its indices; the place in this list is written into the number.
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

/// Returns the number of a name, by its code, in a directory; nothing if there have been too many directories.
pub(super) fn number_of(directory: u64, code: u64) -> Option<u64> {
    let fits = directory < 1 << (63 - NAME_BITS);
    fits.then_some(COMPUTED | directory << NAME_BITS | code)
}

/// Returns a name that is made of numbers as `NAME_BITS` bits, if it fits.
pub(super) fn code_of(name: &[u8]) -> Option<u64> {
    let name = std::str::from_utf8(name).ok()?;
    let (before, rest) = name.split_at(name.find(|c: char| c.is_ascii_digit())?);
    let end = rest
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(rest.len());
    let middle = rest[..end].trim_end_matches('.');
    let frame = FRAMES
        .iter()
        .position(|frame| *frame == (before, &rest[middle.len()..]))?;
    let indices: Option<Vec<u64>> = middle.split('.').map(shortest).collect();
    let indices = indices.filter(|indices| indices.len() <= MOST_INDICES)?;
    let bits = INDEX_BITS / indices.len() as u32;
    let mut code = 0;
    for index in &indices {
        if *index >= 1 << bits {
            return None;
        }
        code = code << bits | index;
    }
    Some(((frame as u64) << 3 | indices.len() as u64) << INDEX_BITS | code)
}

/// Reads a number in its only, shortest spelling.
fn shortest(digits: &str) -> Option<u64> {
    let number: u64 = digits.parse().ok()?;
    (number.to_string() == digits).then_some(number)
}

/// Returns the directory's number and the name that a computed number holds.
pub(super) fn computed_name(ino: u64) -> Option<(u64, String)> {
    if ino & COMPUTED == 0 {
        return None;
    }
    let parent = (ino & !COMPUTED) >> NAME_BITS;
    let code = ino & ((1 << NAME_BITS) - 1);
    let head = code >> INDEX_BITS;
    let (before, after) = FRAMES.get((head >> 3) as usize)?;
    let count = (head & 7) as u32;
    let bits = INDEX_BITS.checked_div(count)?;
    let indices: Vec<String> = (0..count)
        .rev()
        .map(|place| (code >> (place * bits) & ((1 << bits) - 1)).to_string())
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
            match code_of(name.as_bytes()) {
                Some(code) => prop_assert_eq!(computed_name(number_of(5, code).unwrap()), Some((5, name))),
                None => prop_assert!(indices.iter().any(|&index| index >= 1 << (37 / indices.len() as u32))),
            }
        }
    }
}
