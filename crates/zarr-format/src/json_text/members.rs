//! The members of an object one after the other, of which nothing is held: for texts that may be long.

use std::ops::Range;

use crate::error::Result;
use crate::json_text::scan;

/// Where a member stands in its text.
pub struct MemberPlace {
    /// The member, from its name as it is written to the end of its value.
    pub whole: Range<usize>,
    /// Its value.
    pub value: Range<usize>,
}

/// Calls `visit` with the name of each member of an object and with where it stands; `Corrupt`, with line and column, if
/// the text is no object or no JSON, which may show after some calls.
pub fn visit_members(text: &str, visit: &mut dyn FnMut(&str, MemberPlace)) -> Result<()> {
    let mut visit = |name: &str, member: scan::Member| {
        let whole = member.written.start..member.value.end;
        let value = member.value;
        visit(name, MemberPlace { whole, value });
    };
    scan::members_of(text, &mut visit).map(drop)
}

/// Returns where the value of a member stands, of several the last one; nothing if there is none. Fails as
/// `visit_members` does.
pub fn find_member(text: &str, name: &str) -> Result<Option<Range<usize>>> {
    let mut found = None;
    visit_members(text, &mut |other, place| {
        if other == name {
            found = Some(place.value);
        }
    })?;
    Ok(found)
}

/// Fails as `visit_members` does if a text is no object, or with `Corrupt` if it nests too deep to make values of it.
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
