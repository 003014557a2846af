//! Parses and formats file names made of chunk indices: `0.3.1`, `c.4`, `0.3.1.npy`.

use crate::model::parse_index;

use super::Coordinates;

/// A file name that contains chunk indices joined by dots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberedName<'a> {
    /// Text of the file name before the chunk indices; it has no digits.
    pub prefix: &'a str,
    /// Chunk indices in the file name, at least one.
    pub indices: Coordinates,
    /// Text of the file name after the chunk indices, with its leading dot.
    pub suffix: &'a str,
}

impl NumberedName<'_> {
    /// Parses a file name with chunk indices. Returns `None` if the name has no indices, or an index with leading
    /// zeros.
    pub fn parse(name: &[u8]) -> Option<NumberedName<'_>> {
        let name = std::str::from_utf8(name).ok()?;
        let (prefix, rest) = name.split_at(name.find(|c: char| c.is_ascii_digit())?);
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
        let (indices, _) = rest.split_at(end.unwrap_or(rest.len()));
        let (indices, suffix) = rest.split_at(indices.trim_end_matches('.').len());
        Some(NumberedName {
            prefix,
            indices: indices.split('.').map(parse_index).collect::<Option<_>>()?,
            suffix,
        })
    }
}

/// Formats chunk indices as in file names. A chunk without dimensions is `0`.
pub fn join_indices(indices: &[u64]) -> String {
    if indices.is_empty() {
        return "0".to_string();
    }
    let indices: Vec<String> = indices.iter().map(u64::to_string).collect();
    indices.join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_parsed_without_leading_zeros() {
        let parse = |name: &'static str| {
            NumberedName::parse(name.as_bytes())
                .map(|name| (name.prefix, name.indices.to_vec(), name.suffix))
        };
        assert_eq!(parse("0.3.1.npy"), Some(("", vec![0, 3, 1], ".npy")));
        assert_eq!(parse("c.4"), Some(("c.", vec![4], "")));
        assert_eq!(parse("0."), Some(("", vec![0], ".")));
        assert_eq!(parse("7.npy.tmp"), Some(("", vec![7], ".npy.tmp")));
        for none in ["zarr.json", "01", "1..2", "", "99999999999999999999"] {
            assert_eq!(parse(none), None, "{none}");
        }
    }

    #[test]
    fn indices_are_joined_by_dots() {
        assert_eq!(join_indices(&[3, 4]), "3.4");
        assert_eq!(join_indices(&[]), "0");
    }
}
