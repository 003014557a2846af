//! Visits the members of an object without collecting them, for long texts.

use std::ops::Range;

use crate::error::Result;
use crate::json_text::scan;

/// The position of a member in its text.
pub struct MemberPlace {
    /// The whole member, from its name to the end of its value.
    pub whole: Range<usize>,
    /// Its value.
    pub value: Range<usize>,
}

/// Calls `visit` with the name and the position of each member of an object. `Corrupt`, with line and column, if the
/// text is not an object or not JSON; some calls may precede the error.
pub fn visit_members(text: &str, visit: &mut dyn FnMut(&str, MemberPlace)) -> Result<()> {
    let mut visit = |name: &str, member: scan::Member| {
        let whole = member.written.start..member.value.end;
        let value = member.value;
        visit(name, MemberPlace { whole, value });
    };
    scan::members_of(text, &mut visit).map(drop)
}

/// Returns the range of a member's value, or `None` if there is no such member. Of duplicates, the last one counts.
/// Fails as `visit_members` does.
pub fn find_member(text: &str, name: &str) -> Result<Option<Range<usize>>> {
    let mut found = None;
    visit_members(text, &mut |other, place| {
        if other == name {
            found = Some(place.value);
        }
    })?;
    Ok(found)
}

/// Fails as `visit_members` does if a text is not an object, or with `Corrupt` if it nests too deep to be parsed into
/// values.
pub fn check_object(text: &str) -> Result<()> {
    scan::shallow(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_equal_members_is_found() {
        let text = r#"{"a": 1, "\u0061": [2], "b": {"a": 3}}"#;
        let found = find_member(text, "a").unwrap().unwrap();
        assert_eq!(&text[found], "[2]");
        assert_eq!(find_member(text, "c").unwrap(), None);
        assert!(find_member("{\"a\": 1", "a").is_err());
        assert!(check_object("[]").is_err() && check_object("{}").is_ok());
    }
}
