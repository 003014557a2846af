//! How far ahead of a reader that looks up names in order its next ones are asked for.
//!
//! No more names are asked for ahead than it has looked up, so a wrong guess costs at most what the reader asked for
//! itself. Which names come next is up to those who follow a reader.

/// How many names are looked up in order before others are asked for.
const MIN_IN_ORDER: usize = 3;

/// Returns how many names may be asked for ahead of a reader that has looked up `count` in order, where `most` may be asked
/// for at a time.
pub(crate) fn window(count: usize, most: usize) -> usize {
    if count < MIN_IN_ORDER {
        0
    } else {
        count.min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_asked_for_as_were_looked_up() {
        let windows = [1, 2, 3, 8, 100].map(|count| window(count, 16));
        assert_eq!(windows, [0, 0, 3, 8, 16]);
        assert_eq!(window(usize::MAX, 0), 0);
    }
}
