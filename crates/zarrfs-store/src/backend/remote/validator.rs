//! The validator in an ETag: what tells one content of an object from another.
//!
//! Some servers quote it, or mark it weak, in one response and not in the next. One that is empty or blank is none: an
//! object would else stay what it was for ever.

/// Returns what is in an ETag, without quotes and the mark of a weak one; `None` if that is nothing.
pub(in crate::backend) fn validator(tag: &str) -> Option<&str> {
    let tag = tag.trim();
    let tag = tag.strip_prefix("W/").unwrap_or(tag);
    let name = tag.trim_matches('"');
    (!name.trim().is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etag_without_a_name_is_none() {
        for tag in ["", " ", "\"\"", "W/\"\"", "\" \"", "W/", " \"\" ", "\"\t\""] {
            assert_eq!(validator(tag), None, "{tag:?}");
        }
        for tag in ["a", "\"a\"", "W/\"a\"", " W/a "] {
            assert_eq!(validator(tag), Some("a"), "{tag:?}");
        }
    }
}
