//! Changes members of a JSON object in its text.
//!
//! All other members keep every byte. New values are indented like the text around them. An object with duplicate names
//! can be read but not changed, since JSON does not define which of the equal names counts.

use std::collections::{HashMap, HashSet};

use crate::error::{Error, Result};
use crate::json_text::scan::{self, Member, ScannedObject};
use crate::json_text::tokens::{UNIT, compact, pretty};

/// Name of a JSON member and its new value as text, or `None` to remove the member.
pub type MemberChange = (String, Option<String>);

/// A JSON object as text, and the positions of its members in the text.
#[derive(Debug)]
pub struct ObjectText<'a> {
    text: &'a str,
    scanned: ScannedObject,
}

impl<'a> ObjectText<'a> {
    /// Finds the members of a JSON object. Fails with `Corrupt`, with line and column, if the text is not an object or
    /// not JSON.
    pub fn parse(text: &'a str) -> Result<ObjectText<'a>> {
        let scanned = scan::object(text)?;
        Ok(ObjectText { text, scanned })
    }

    /// Returns the names and values of all members, in the order of the text.
    pub fn members(&self) -> impl DoubleEndedIterator<Item = (&str, &'a str)> {
        let members = self.scanned.members.iter();
        members.map(|member| (member.name.as_str(), &self.text[member.value.clone()]))
    }

    /// Returns the value of a member. Of members with equal names the last one counts, as in other JSON readers.
    pub fn value(&self, name: &str) -> Option<&'a str> {
        let mut values = self.members().filter(|(other, _)| *other == name);
        values.next_back().map(|(_, value)| value)
    }

    /// Fails with `Invalid` if a JSON object in the text has duplicate names.
    pub fn check_unique(&self) -> Result<()> {
        match scan::find_duplicate_name(self.text)? {
            None => Ok(()),
            Some(name) => {
                let why = "this name occurs twice";
                Err(Error::invalid(name, why))
            }
        }
    }

    /// Returns the text of the object with members changed. `depth` is the number of open brackets around a member.
    pub fn edited(&self, changes: &[MemberChange], depth: usize) -> String {
        let style = self.style(depth);
        let (open, close) = self.scanned.brackets;
        let mut parts = self.remaining_members(changes, &style);
        let members = self.scanned.members.iter();
        let names: HashSet<&str> = members.map(|member| member.name.as_str()).collect();
        let added = changes.iter().filter_map(|(name, value)| {
            let value = value
                .as_deref()
                .filter(|_| !names.contains(name.as_str()))?;
            let name = serde_json::Value::from(name.as_str());
            let Style { lead, colon, .. } = &style;
            Some(format!("{lead}{name}{colon}{}", style.laid_out(value)))
        });
        parts.extend(added);
        let end = match self.scanned.members.last() {
            Some(last) => &self.text[last.value.end..close],
            None if parts.is_empty() => &self.text[open + 1..close],
            None => style.close.as_str(),
        };
        let before = &self.text[..=open];
        [before, &parts.join(","), end, &self.text[close..]].concat()
    }

    /// Returns the texts of all members that are not removed, with their new values.
    fn remaining_members(&self, changes: &[MemberChange], style: &Style) -> Vec<String> {
        let changes: HashMap<&str, Option<&str>> = changes
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_deref()))
            .collect();
        let last = self.scanned.members.len().saturating_sub(1);
        let members = self.scanned.members.iter().enumerate();
        let remaining = members.filter_map(|(place, member)| {
            let end = if place == last {
                member.value.end
            } else {
                member.end
            };
            let old = &self.text[member.value.clone()];
            match changes.get(member.name.as_str()) {
                Some(None) => None,
                Some(Some(new)) if compact(new) != compact(old) => {
                    let before = &self.text[member.lead..member.value.start];
                    Some([before, &style.laid_out(new)].concat())
                }
                _ => Some(self.text[member.lead..end].to_string()),
            }
        });
        remaining.collect()
    }

    /// Returns the text of the object with the value of an existing member replaced by `value`, which is not
    /// reformatted.
    pub fn replaced(&self, name: &str, value: &str) -> String {
        let mut members = self.scanned.members.iter();
        match members.rfind(|member| member.name == name) {
            Some(Member { value: old, .. }) => {
                [&self.text[..old.start], value, &self.text[old.end..]].concat()
            }
            None => self.text.to_string(),
        }
    }

    /// Returns the whitespace around the members of the object, for new members.
    fn style(&self, depth: usize) -> Style {
        let Some(last) = self.scanned.members.last() else {
            return Style::in_lines(UNIT, depth);
        };
        let lead = &self.text[last.lead..last.written.start];
        let colon = &self.text[last.written.end..last.value.start];
        match lead.rsplit_once('\n') {
            Some((_, indent)) => {
                let unit = match indent.len().checked_div(depth) {
                    Some(length) if length * depth == indent.len() => indent.get(..length),
                    _ => None,
                };
                let mut style = Style::in_lines(unit.unwrap_or(UNIT), depth);
                (style.lead, style.colon) = (lead.to_string(), colon.to_string());
                style
            }
            None => Style {
                lead: if colon.ends_with(' ') { " " } else { "" }.to_string(),
                colon: colon.to_string(),
                close: String::new(),
                lines: None,
            },
        }
    }
}

/// Whitespace around JSON members: before a name, around the colon, before the closing bracket.
struct Style {
    lead: String,
    colon: String,
    close: String,
    /// Indentation per level and level of a member, or `None` if the object is on a single line.
    lines: Option<(String, usize)>,
}

impl Style {
    fn in_lines(unit: &str, depth: usize) -> Style {
        let line = |depth: usize| ["\n", &unit.repeat(depth)].concat();
        Style {
            lead: line(depth),
            colon: ": ".to_string(),
            close: line(depth.saturating_sub(1)),
            lines: Some((unit.to_string(), depth)),
        }
    }

    fn laid_out(&self, value: &str) -> String {
        match &self.lines {
            Some((unit, depth)) => pretty(value, unit, *depth),
            None => compact(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(text: &str, changes: &[(&str, Option<&str>)]) -> String {
        let changes = changes.iter();
        let changes = changes.map(|(name, value)| (name.to_string(), value.map(str::to_string)));
        let changes: Vec<MemberChange> = changes.collect();
        ObjectText::parse(text).unwrap().edited(&changes, 1)
    }

    #[test]
    fn unchanged_members_keep_every_byte() {
        let text = "{\n    \"n\": NaN,\n    \"i\": 123456789012345678901234567890,\n    \
                    \"o\":{\"x\":1e5 , \"y\":1.0},\n    \"s\": \"\\u00e4\"\n}\n";
        let changed = edited(text, &[("i", Some("[1]")), ("z", Some("{\"a\": 2}"))]);
        let expected = "{\n    \"n\": NaN,\n    \"i\": [\n        1\n    ],\n    \
                        \"o\":{\"x\":1e5 , \"y\":1.0},\n    \"s\": \"\\u00e4\",\n    \
                        \"z\": {\n        \"a\": 2\n    }\n}\n";
        assert_eq!(changed, expected);
        assert_eq!(edited(text, &[]), text);
        assert_eq!(edited(text, &[("o", Some("{\"x\":1e5,\"y\":1.0}"))]), text);
    }

    #[test]
    fn members_are_added_and_removed_in_the_style_of_the_text() {
        let line = r#"{"a": 1, "b": NaN}"#;
        assert_eq!(
            edited(line, &[("c", Some("2"))]),
            r#"{"a": 1, "b": NaN, "c": 2}"#
        );
        assert_eq!(edited(line, &[("b", None)]), r#"{"a": 1}"#);
        let tight = r#"{"a":1}"#;
        assert_eq!(edited(tight, &[("c", Some("[ 2 ]"))]), r#"{"a":1,"c":[2]}"#);
        assert_eq!(edited(tight, &[("a", None)]), "{}");
        assert_eq!(edited("{ }", &[("a", Some("1"))]), "{\n  \"a\": 1\n}");
        assert_eq!(edited("{ }", &[("a", None)]), "{ }");
    }

    #[test]
    fn a_replacing_value_is_inserted_verbatim() {
        let text = ObjectText::parse("{\"a\": {},\n\"b\": 2}").unwrap();
        assert_eq!(text.replaced("a", "{ 1 }"), "{\"a\": { 1 },\n\"b\": 2}");
        assert_eq!(text.replaced("c", "1"), "{\"a\": {},\n\"b\": 2}");
    }

    #[test]
    fn the_last_of_duplicate_members_is_used() {
        let text = ObjectText::parse(r#"{"a": 1, "a": 2}"#).unwrap();
        assert_eq!(text.value("a"), Some("2"));
        assert!(text.check_unique().is_err());
    }
}
