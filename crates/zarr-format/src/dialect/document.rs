//! Parses the JSON members that describe a node in its metadata document.
//!
//! Several dialects share these members. User attributes and consolidated metadata may be most of a document, and are
//! never parsed into values.

use std::ops::Range;

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::json_text::{self, MemberPlace, find_member, visit_members};
use crate::key::Key;
use crate::model::MAX_RANK;

/// Maximum length in bytes of the text that is parsed into values: all JSON members except attributes and consolidated
/// metadata. Values take about thirty times as much memory as text.
const MAX_PARSED: usize = 4 << 20;

/// A metadata document, which may be missing.
#[derive(Default)]
pub struct Document {
    /// The key of the document.
    pub key: Key,
    /// The content, or `None` if the document is missing.
    pub bytes: Option<Bytes>,
    /// The reason why an existing document was not read (it is too long), or `None`.
    pub refusal: Option<String>,
}

impl Document {
    /// Returns the document as text without a byte order mark, or `None` if it is missing. Fails with `Corrupt` if it
    /// is not UTF-8, `TooLarge` if it was too long to be read.
    pub fn text(&self) -> Result<Option<&str>> {
        if let Some(why) = &self.refusal {
            return Err(Error::too_large(&self.key, why));
        }
        let bytes = self.bytes.as_deref();
        let text = bytes.map(|bytes| text_of(bytes).map_err(|error| error.about(&self.key)));
        text.transpose()
    }

    /// Parses the JSON members of the document, or returns `None` if it is missing. Fails with `Corrupt` if it is not
    /// an object, `TooLarge` if more than 4 MiB would be parsed. Of the attributes only `filters` is parsed, which a
    /// draft reads as metadata; of consolidated metadata only `must_understand`.
    pub fn object(&self) -> Result<Option<Map<String, Value>>> {
        self.object_of(|_| true)
    }

    /// Parses only the JSON members for whose name `wanted` is true; the result is `None` if the document is missing.
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

    /// Returns the JSON value of a member, or `None` if the member or the document is missing.
    pub(super) fn value(&self, name: &str) -> Result<Option<Bytes>> {
        let (Some(bytes), Some(text)) = (&self.bytes, self.text()?) else {
            return Ok(None);
        };
        let place = find_member(text, name).map_err(|error| error.about(&self.key))?;
        let value = place.and_then(|place| text.get(place));
        Ok(value.map(|value| part_of_document(bytes, value)))
    }
}

/// Returns `part`, a part of a metadata document, as `Bytes`. More than 3/4 of the document is shared, so that long
/// text is in memory once; a smaller part is copied, so that it does not keep the whole document in memory.
pub(super) fn part_of_document(bytes: &Bytes, part: &str) -> Bytes {
    if part.len() > bytes.len() / 4 * 3 {
        bytes.slice_ref(part.as_bytes())
    } else {
        Bytes::copy_from_slice(part.as_bytes())
    }
}

/// Finds the JSON members for which `wanted` is true, and the ranges of their values.
fn members_of(text: &str, wanted: &impl Fn(&str) -> bool) -> Result<Vec<(String, Range<usize>)>> {
    let mut found = Vec::new();
    let mut length = 0;
    visit_members(text, &mut |name, MemberPlace { value, .. }| {
        if !wanted(name) {
            return;
        }
        // A member of which only a part is parsed, such as the attributes, may be long.
        let is_whole = part_of(name).is_none();
        length += name.len() + if is_whole { value.len() } else { 0 };
        if length <= MAX_PARSED {
            found.push((name.to_string(), value));
        }
    })?;
    if length > MAX_PARSED {
        let found = format!(
            "{length} bytes of metadata without the attributes exceed the limit of {MAX_PARSED}"
        );
        return Err(Error::too_large("", found));
    }
    Ok(found)
}

/// Returns the only name inside the JSON member `name` that is parsed, or `None` if all of the member is parsed.
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

/// Parses only the member `part` of a JSON object; the result is empty if the member is missing, does not parse or is
/// too long.
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

/// Returns a metadata document as text, without a byte order mark; fails with `Corrupt` if it is not UTF-8.
pub fn text_of(bytes: &[u8]) -> Result<&str> {
    let text =
        str::from_utf8(bytes).map_err(|error| Error::corrupt("", format!("not JSON: {error}")))?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// Checks `zarr_format`, which some writers store with a decimal point; fails with `Unsupported` for another number.
pub(super) fn check_format(members: &Map<String, Value>, number: u32) -> Result<()> {
    let found = members.get("zarr_format").unwrap_or(&Value::Null);
    if found.as_f64() == Some(f64::from(number)) {
        return Ok(());
    }
    let why = format!("expected {number}, found {found}");
    Err(Error::unsupported("zarr_format", why))
}

/// Returns a JSON member; fails with `Corrupt` if it is missing.
pub(super) fn required<'a>(members: &'a Map<String, Value>, name: &str) -> Result<&'a Value> {
    let missing = || Error::corrupt(name, "is missing");
    members.get(name).ok_or_else(missing)
}

/// Reads a JSON list of non-negative integers; fails with `Corrupt` if the member is missing or has another type.
/// Writers in R store a list of one number as the number alone.
pub(super) fn lengths(members: &Map<String, Value>, name: &str) -> Result<Vec<u64>> {
    let found = members.get(name).unwrap_or(&Value::Null);
    let wrong = || {
        let why = format!("expected a list of integers from 0 to 2^64 - 1, found {found}");
        Error::corrupt(name, why)
    };
    let list = match found {
        Value::Array(list) => list.as_slice(),
        number => std::slice::from_ref(number),
    };
    list.iter()
        .map(|number| number.as_u64().ok_or_else(wrong))
        .collect()
}

/// Reads the chunk lengths of an array of `shape`. For a dimension of length 0, some writers store a chunk length of 0,
/// which is read as 1.
pub(super) fn chunk_lengths(
    members: &Map<String, Value>,
    name: &str,
    shape: &[u64],
) -> Result<Vec<u64>> {
    let mut chunk = lengths(members, name)?;
    for (chunk, length) in chunk.iter_mut().zip(shape) {
        if *length == 0 {
            *chunk = (*chunk).max(1);
        }
    }
    Ok(chunk)
}

/// Reads a JSON list; empty if the member is missing or null. Fails with `Corrupt` if it has another type.
pub(super) fn list<'a>(members: &'a Map<String, Value>, name: &str) -> Result<&'a [Value]> {
    match members.get(name) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(list)) => Ok(list),
        Some(other) => Err(Error::corrupt(
            name,
            format!("expected a list, found {other}"),
        )),
    }
}

/// Checks the shapes of an array and of its chunks.
///
/// Fails with `TooLarge` for more than `MAX_RANK` dimensions, `Corrupt` for different ranks or a chunk length of zero.
pub(super) fn check_shapes(shape: &[u64], chunk: &[u64]) -> Result<()> {
    if shape.len() > MAX_RANK {
        return Err(Error::too_large(
            "shape",
            format!("{} dimensions exceed the limit of {MAX_RANK}", shape.len()),
        ));
    }
    if shape.len() != chunk.len() {
        let found = format!(
            "{} dimensions, but chunks have {}",
            shape.len(),
            chunk.len()
        );
        return Err(Error::corrupt("shape", found));
    }
    if chunk.contains(&0) {
        return Err(Error::corrupt(
            "chunk shape",
            format!("{chunk:?}: a chunk cannot have length 0"),
        ));
    }
    Ok(())
}

/// Reads the name and configuration of an extension, which may be written as its name alone (core specification 3.1,
/// "Extension definition").
pub(super) fn named<'a>(
    value: &'a Value,
    member: &str,
) -> Result<(&'a str, Option<&'a Map<String, Value>>)> {
    let name = value
        .as_str()
        .or_else(|| value.get("name").and_then(Value::as_str));
    let name =
        name.ok_or_else(|| Error::corrupt(member, format!("expected a name, found {value}")))?;
    Ok((name, value.get("configuration").and_then(Value::as_object)))
}

/// Reads the separator of chunk indices, `.` or `/`. Returns `None` if it is missing, and fails with `Corrupt` for any
/// other value.
pub(super) fn separator(value: Option<&Value>, member: &str) -> Result<Option<char>> {
    let Some(value) = value else { return Ok(None) };
    match value.as_str() {
        Some(".") => Ok(Some('.')),
        Some("/") => Ok(Some('/')),
        _ => Err(Error::corrupt(
            member,
            format!("expected . or /, found {value}"),
        )),
    }
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

    /// Invariant (metadata): Attributes and consolidated copies of documents are kept as text. They are not parsed into
    /// trees, and long ones are not reformatted.
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
    fn attributes_are_read_from_a_document_without_a_copy() {
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

    /// Invariant of `attributes_and_copies_are_not_parsed`.
    #[test]
    fn metadata_beyond_the_parse_limit_are_too_large() {
        let long = format!("[{}1]", "1,".repeat(MAX_PARSED / 2));
        let text = format!(r#"{{"attributes": {long}, "codecs": {long}}}"#);
        let error = document(&text).object().unwrap_err();
        assert_eq!(error.kind(), crate::error::Kind::TooLarge);
        let text = format!(r#"{{"attributes": {long}, "codecs": []}}"#);
        assert_eq!(object(&text), json!({"attributes": {}, "codecs": []}));
    }
}
