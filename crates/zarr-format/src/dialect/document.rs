//! A node's document as text; only members that describe the node are parsed.
//!
//! The user's attributes and copies of other documents may be most of a document, and are never parsed into values.

use std::ops::Range;

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::json_text::{self, MemberPlace, find_member, visit_members};
use crate::key::Key;

/// The longest text that is parsed into values, in bytes: all members except attributes and copies. Values take about
/// thirty times as much memory.
const MAX_PARSED: usize = 4 << 20;

/// A document that may be missing.
#[derive(Default)]
pub struct Document {
    /// The key of the document.
    pub key: Key,
    /// The content, or `None` if the document is missing.
    pub bytes: Option<Bytes>,
    /// Why an existing document was not read: it is too long.
    pub refusal: Option<String>,
}

impl Document {
    /// Returns the document as text without a byte order mark, or `None` if it is missing. `Corrupt` if it is not
    /// UTF-8, `TooLarge` if it was not read because of its length.
    pub fn text(&self) -> Result<Option<&str>> {
        if let Some(why) = &self.refusal {
            return Err(Error::too_large(&self.key, why));
        }
        let bytes = self.bytes.as_deref();
        let text = bytes.map(|bytes| text_of(bytes).map_err(|error| error.about(&self.key)));
        text.transpose()
    }

    /// Parses the members of the document, or returns `None` if it is missing. `Corrupt` if it is not a JSON object,
    /// `TooLarge` if its members are longer than any metadata. Attributes are reduced to the filters that a draft takes
    /// for metadata, and consolidated metadata to `must_understand`.
    pub fn object(&self) -> Result<Option<Map<String, Value>>> {
        self.object_of(|_| true)
    }

    /// Like `object`, but only for members for whose name `wanted` is true.
    pub(super) fn object_of(
        &self,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Option<Map<String, Value>>> {
        let Some(text) = self.text()? else {
            return Ok(None);
        };
        let members = members_of(text, &wanted).and_then(|members| parsed(text, members));
        members.map(Some).map_err(|error| error.about(&self.key))
    }

    /// Returns the value of a member, or `None` if there is no such member. Fails as `object` does.
    pub(super) fn value(&self, name: &str) -> Result<Option<Bytes>> {
        let (Some(bytes), Some(text)) = (&self.bytes, self.text()?) else {
            return Ok(None);
        };
        let place = find_member(text, name).map_err(|error| error.about(&self.key))?;
        let value = place.and_then(|place| text.get(place));
        Ok(value.map(|value| part_of_document(bytes, value)))
    }
}

/// Returns `part`, a part of the text of a document. A part of more than 3/4 of the document is shared, so that a long
/// text is in memory once; a smaller part is copied, so that it does not keep the whole document in memory.
pub(super) fn part_of_document(bytes: &Bytes, part: &str) -> Bytes {
    if part.len() > bytes.len() / 4 * 3 {
        bytes.slice_ref(part.as_bytes())
    } else {
        Bytes::copy_from_slice(part.as_bytes())
    }
}

/// Finds the members for which `wanted` is true, and their values' ranges.
fn members_of(text: &str, wanted: &impl Fn(&str) -> bool) -> Result<Vec<(String, Range<usize>)>> {
    let mut found = Vec::new();
    let mut length = 0;
    visit_members(text, &mut |name, MemberPlace { value, .. }| {
        if !wanted(name) {
            return;
        }
        // A member that is parsed only in part may be long.
        let is_whole = part_of(name).is_none();
        length += name.len() + if is_whole { value.len() } else { 0 };
        if length <= MAX_PARSED {
            found.push((name.to_string(), value));
        }
    })?;
    if length > MAX_PARSED {
        let found =
            format!("{length} bytes of metadata beside attributes, at most {MAX_PARSED} are read");
        return Err(Error::too_large("", found));
    }
    Ok(found)
}

/// Returns the name of the only member inside `name` that is parsed, or `None` if `name` is parsed as a whole.
fn part_of(name: &str) -> Option<&'static str> {
    match name {
        "attributes" => Some("filters"),
        super::consolidated::MEMBER => Some("must_understand"),
        _ => None,
    }
}

fn parsed(text: &str, members: Vec<(String, Range<usize>)>) -> Result<Map<String, Value>> {
    let mut values = Map::new();
    for (name, place) in members {
        let text = text.get(place).unwrap_or_default();
        let value = match part_of(&name) {
            Some(part) => reduced(text, part),
            None => json_text::parse(text.as_bytes()).map_err(|error| error.about(&name))?,
        };
        values.insert(name, value);
    }
    Ok(values)
}

/// Returns an object with only the member `part`; empty if that does not parse or is too long.
fn reduced(text: &str, part: &str) -> Value {
    let place = find_member(text, part).ok().flatten();
    let value = place.and_then(|place| text.get(place));
    let value = value.filter(|value| value.len() <= MAX_PARSED);
    let value = value.and_then(|value| json_text::parse(value.as_bytes()).ok());
    Value::Object(
        value
            .map(|value| (part.to_string(), value))
            .into_iter()
            .collect(),
    )
}

/// Returns a document as text, without a byte order mark; `Corrupt` if it is not UTF-8.
pub fn text_of(bytes: &[u8]) -> Result<&str> {
    let text = str::from_utf8(bytes)
        .map_err(|error| Error::corrupt("", format!("not JSON: expected UTF-8, found {error}")))?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document(text: &str) -> Document {
        Document {
            key: Key::new("a/zarr.json").unwrap(),
            bytes: Some(text.as_bytes().to_vec().into()),
            ..Document::default()
        }
    }

    fn object(text: &str) -> Value {
        Value::Object(document(text).object().unwrap().unwrap())
    }

    #[test]
    fn attributes_and_copies_are_not_parsed() {
        let text = r#"{"a": NaN, "attributes": {"x": 1e999, "filters": [1]}, "b": {"attributes": 2},
            "consolidated_metadata": {"metadata": {"a": {}}, "must_understand": false}}"#;
        let expected = json!({"a": "NaN", "attributes": {"filters": [1]}, "b": {"attributes": 2},
            "consolidated_metadata": {"must_understand": false}});
        assert_eq!(object(text), expected);
        let only = document(text).object_of(|name| name == "b").unwrap();
        assert_eq!(only.unwrap().len(), 1);
    }

    #[test]
    fn attributes_are_a_part_of_their_document() {
        let text = format!(
            r#"{{"attributes": {{"x": "{}"}}, "a": 1}}"#,
            "y".repeat(1000)
        );
        let document = document(&text);
        let attributes = document.value("attributes").unwrap().unwrap();
        let stored = document.bytes.as_ref().unwrap().as_ptr_range();
        assert!(stored.contains(&attributes.as_ptr()), "it is not copied");
        assert!(attributes.starts_with(b"{\"x\": \"yy") && attributes.ends_with(b"y\"}"));
    }

    #[test]
    fn metadata_of_any_length_are_refused() {
        let long = format!("[{}1]", "1,".repeat(MAX_PARSED / 2));
        let text = format!(r#"{{"attributes": {long}, "codecs": {long}}}"#);
        let error = document(&text).object().unwrap_err();
        assert_eq!(error.kind(), crate::error::Kind::TooLarge);
        let text = format!(r#"{{"attributes": {long}, "codecs": []}}"#);
        assert_eq!(object(&text), json!({"attributes": {}, "codecs": []}));
    }
}
