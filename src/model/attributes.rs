//! The user's attributes of a node: a JSON object as text, each number and word as its author wrote it.
//!
//! Data are read without attributes, so those that do not read are attributes too: they say what is wrong, in a member
//! that no others have. The text is a part of the document that it was read from, which others may hold as well. Values
//! are made of it when they are asked for, and not kept.

use std::fmt::Display;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::error::{Error, Result};
use crate::json_text::{self, MemberChange, ObjectText};

/// The member that says what is wrong with attributes that do not read.
pub const FAULT: &str = "zarrfs_error";

/// A JSON object as text.
#[derive(Clone, Debug)]
pub struct Attributes {
    text: Bytes,
    fault: Option<Arc<str>>,
}

impl Attributes {
    /// Reads an object, of which a copy without spaces is made; `Corrupt` if the text is none.
    pub fn parse(text: &str) -> Result<Attributes> {
        json_text::check_object(text)?;
        let text = json_text::compact(text).into();
        Ok(Attributes { text, fault: None })
    }

    /// Takes a part of a document, which is held and not copied; `Corrupt` if it is no object.
    pub fn shared(text: Bytes) -> Result<Attributes> {
        let checked = str::from_utf8(&text).map_err(|error| Error::corrupt("", error))?;
        json_text::check_object(checked)?;
        Ok(Attributes { text, fault: None })
    }

    /// Returns what stands for attributes that do not read: an object that says why.
    pub fn unreadable(why: impl Display) -> Attributes {
        let why = why.to_string();
        Attributes {
            text: json!({ FAULT: why }).to_string().into(),
            fault: Some(why.into()),
        }
    }

    /// Returns what is wrong with the stored attributes, if they do not read.
    pub fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Returns the object as text.
    pub fn text(&self) -> &str {
        str::from_utf8(&self.text).unwrap_or_default()
    }

    /// Returns the object as text that others may hold as well.
    pub fn shared_text(&self) -> &Bytes {
        &self.text
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        json_text::is_empty(self.text())
    }

    fn object(&self) -> Option<ObjectText<'_>> {
        ObjectText::parse(self.text()).ok()
    }

    /// Returns names and values, as text, in their order.
    pub fn members(&self) -> Vec<(String, &str)> {
        let object = self.object();
        let members = object.iter().flat_map(|object| {
            let members = object.members();
            members.map(|(name, value)| (name.to_string(), value))
        });
        members.collect()
    }

    /// Returns the value of an attribute; NaN and the infinities are strings in it.
    pub fn get(&self, name: &str) -> Option<Value> {
        let text = self.text();
        let place = json_text::find_member(text, name).ok()??;
        value_of(text.get(place)?)
    }

    /// Whether an attribute is NaN, an infinity, or a list of numbers with one of these; `value` is what it reads as. A word
    /// in quotes is such a number among others alone.
    pub fn is_beyond_json(&self, name: &str, value: &Value) -> bool {
        let list = match value {
            Value::Array(list) => &list[..],
            one => std::slice::from_ref(one),
        };
        let is_word =
            |value: &Value| matches!(value.as_str(), Some("NaN" | "Infinity" | "-Infinity"));
        let is_number = |value: &Value| value.is_number() || is_word(value);
        let place = || json_text::find_member(self.text(), name).ok().flatten();
        let is_bare = || {
            let text = place().and_then(|place| self.text().get(place));
            text.is_some_and(|text| !text.contains('"'))
        };
        list.iter().any(is_word)
            && list.iter().all(is_number)
            && (list.iter().any(Value::is_number) || is_bare())
    }

    /// Returns the attributes as values; NaN and the infinities are strings in them.
    pub fn to_map(&self) -> Map<String, Value> {
        match value_of(self.text()) {
            Some(Value::Object(members)) => members,
            _ => Map::new(),
        }
    }

    /// Returns the attributes with one more, or another value of it.
    pub fn with(&self, name: &str, value: &Value) -> Attributes {
        self.edited(&[(name.to_string(), Some(value.to_string()))])
    }

    /// Returns the attributes with members changed.
    pub fn edited(&self, changes: &[MemberChange]) -> Attributes {
        let edited = self.object().map(|object| object.edited(changes, 1));
        let text = edited.map_or(self.text.clone(), |edited| {
            json_text::compact(&edited).into()
        });
        Attributes {
            text,
            fault: self.fault.clone(),
        }
    }

    /// Fails with `Invalid` if an object among them has a name twice.
    pub fn check_unique(&self) -> Result<()> {
        ObjectText::parse(self.text())?.check_unique()
    }

    /// Fails with `Invalid` if these were made of `stored` ones that do not read: they would replace what their author
    /// has not seen.
    pub fn check_replaces(&self, stored: &Attributes) -> Result<()> {
        match stored.fault() {
            Some(fault) if self.get(FAULT).is_some() && self != stored => {
                let why = format!(
                    "the attributes that are stored do not read ({fault}): write whole new ones, without {FAULT}, \
                     or mend them in the store view"
                );
                Err(Error::invalid("attributes", why))
            }
            _ => Ok(()),
        }
    }
}

/// Returns a value as the text of JSON reads.
fn value_of(text: &str) -> Option<Value> {
    json_text::parse(text.as_bytes()).ok()
}

impl Default for Attributes {
    fn default() -> Attributes {
        Attributes::from(Map::new())
    }
}

impl From<Map<String, Value>> for Attributes {
    fn from(members: Map<String, Value>) -> Attributes {
        Attributes {
            text: Value::Object(members).to_string().into(),
            fault: None,
        }
    }
}

/// The same names with the same text, in any order.
impl PartialEq for Attributes {
    fn eq(&self, other: &Attributes) -> bool {
        let sorted = |attributes: &Attributes| {
            let members = attributes.members().into_iter();
            let mut members: Vec<(String, String)> = members
                .map(|(name, value)| (name, json_text::compact(value)))
                .collect();
            members.sort();
            members
        };
        json_text::is_same(self.text(), other.text()) || sorted(self) == sorted(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Attributes {
        Attributes::parse(text).unwrap()
    }

    #[test]
    fn numbers_and_words_stay_as_they_were_written() {
        let attributes = read(r#" {"a": NaN, "b": 1.0, "c": 123456789012345678901234567890} "#);
        let text = r#"{"a":NaN,"b":1.0,"c":123456789012345678901234567890}"#;
        assert_eq!(attributes.text(), text);
        assert_eq!(attributes.get("a"), Some(json!("NaN")));
        let more = attributes.with("d", &json!([1]));
        assert_eq!(more.text(), text.replace('}', r#","d":[1]}"#));
    }

    #[test]
    fn a_value_that_json_lacks_hides_no_other() {
        let attributes = read(r#"{"note": "caf\udce9", "big": -1e999, "ok": 5}"#);
        let values = json!({"note": "caf\u{fffd}", "big": "-Infinity", "ok": 5});
        assert_eq!(Value::Object(attributes.to_map()), values);
    }

    #[test]
    fn bare_words_are_numbers_and_words_among_numbers_too() {
        let attributes = read(
            r#"{"a": NaN, "b": "NaN", "c": [0.0, "Infinity"], "d": ["NaN"], "e": [NaN], "f": [1], "g": [NaN, "x"], "h": -1e999}"#,
        );
        let values = attributes.to_map();
        let beyond = values
            .iter()
            .filter(|(name, value)| attributes.is_beyond_json(name, value));
        let names: Vec<&String> = beyond.map(|(name, _)| name).collect();
        assert_eq!(names, ["a", "c", "e", "h"]);
    }

    #[test]
    fn equal_attributes_have_equal_text_in_any_order() {
        assert_eq!(read(r#"{"a": 1, "b": 2}"#), read(r#"{"b":2,"a":1}"#));
        assert_ne!(read(r#"{"a": 1}"#), read(r#"{"a":1.0}"#));
        assert_ne!(read(r#"{"a": 1, "a": 1}"#), read(r#"{"a":1}"#));
        assert!(read("{ }").is_empty() && Attributes::default().is_empty());
    }

    #[test]
    fn attributes_that_do_not_read_are_replaced_by_whole_new_ones() {
        let broken = Attributes::unreadable("a/.zattrs: not JSON");
        assert!(!broken.is_empty());
        assert!(read(r#"{"b": 1}"#).check_replaces(&broken).is_ok());
        assert!(read(broken.text()).check_replaces(&broken).is_ok());
        let more = broken.with("b", &json!(1));
        let error = more.check_replaces(&broken).unwrap_err().to_string();
        assert!(error.contains("a/.zattrs: not JSON"), "{error}");
        assert!(more.check_replaces(&read("{}")).is_ok());
    }
}
