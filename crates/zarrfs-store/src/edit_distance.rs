//! Suggests the known word nearest to a misspelt one, for error messages.

/// Returns the known word with the smallest edit distance, or `None` if more than about a quarter of the letters
/// differ.
pub fn nearest<'a>(written: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|word| (distance(written, word), word))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, _)| *distance <= 1 + written.len() / 4)
        .map(|(_, word)| word)
}

/// Returns the Levenshtein distance of two words, in bytes.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (place, letter) in one.bytes().enumerate() {
        let mut diagonal = place;
        let mut left = place + 1;
        for (cell, target) in row.iter_mut().skip(1).zip(other.bytes()) {
            let changed = diagonal + usize::from(letter != target);
            diagonal = *cell;
            left = changed.min(left + 1).min(*cell + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = place + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_counts_edits() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("ro", "ro"), 0);
    }

    #[test]
    fn the_nearest_word_is_found() {
        let known = ["memory", "view"];
        assert_eq!(nearest("memmory", known.into_iter()), Some("memory"));
        assert_eq!(nearest("colour", known.into_iter()), None);
    }
}
