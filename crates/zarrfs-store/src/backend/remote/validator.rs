//! Extracts the validator of an ETag, which distinguishes versions of an object.
//!
//! Some servers quote the ETag, or mark it as weak, in one response and not in the next. An empty or blank ETag is not
//! used: the object would seem never to change.

/// Returns an ETag without quotes and the mark of a weak one, or `None` if the rest is blank.
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
