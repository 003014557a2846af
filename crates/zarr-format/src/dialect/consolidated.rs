//! Finds the documents inside consolidated metadata, in the formats of three dialects.
//!
//! Returns keys, and the documents as they would be stored. Names that are not valid keys are skipped. The hierarchy
//! decides whether to use the documents.

use std::ops::Range;

use crate::dialect::text_of;
use crate::error::{Error, Result};
use crate::json_text::{find_member, visit_members};
use crate::key::Key;
use crate::model::document::ZARR_JSON;

/// The member of a final-v3 group with consolidated metadata.
pub const MEMBER: &str = "consolidated_metadata";

/// The member of consolidated metadata with the documents.
pub const DOCUMENTS: &str = "metadata";

/// Keys, and the ranges of their documents in the consolidated metadata.
pub type DocumentPlaces = Vec<(Key, Range<usize>)>;

/// Finds the documents in `.zmetadata`, by keys relative to the hierarchy's folder.
///
/// Fails with `Corrupt` if it does not have zarr-python's format 1.
pub fn parse_document(bytes: &[u8]) -> Result<DocumentPlaces> {
    let text = text_of(bytes)?;
    let whole = TextPart {
        text,
        start: bytes.len() - text.len(),
    };
    let format = whole.value("zarr_consolidated_format")?;
    if format.as_ref().map(|format| format.text) != Some("1") {
        let found = format.map_or("nothing", |format| format.text);
        return Err(Error::corrupt(
            "zarr_consolidated_format",
            format!("expected 1, found {found}"),
        ));
    }
    whole.documents(|key| Key::new(key).ok())
}

/// Finds the documents in the member `consolidated_metadata` of a final-v3 group, by keys relative to the group.
/// Returns `None` if the member is missing or null.
///
/// Fails with `Unsupported` if its kind is not inline, `Corrupt` if there is no object of documents.
pub fn parse_member(bytes: &[u8]) -> Result<Option<DocumentPlaces>> {
    let text = text_of(bytes)?;
    let start = bytes.len() - text.len();
    let member = match (TextPart { text, start }).value(MEMBER)? {
        None => return Ok(None),
        Some(member) if member.text == "null" => return Ok(None),
        Some(member) => member,
    };
    match member.value("kind").map_err(|error| error.about(MEMBER))? {
        None => {}
        Some(kind) if kind.text == "\"inline\"" => {}
        Some(kind) => {
            let found = format!("expected kind inline, found {}", kind.text);
            return Err(Error::unsupported(MEMBER, found));
        }
    }
    let key = |path: &str| {
        let node = Key::new(path.trim_matches('/')).ok()?;
        node.child(ZARR_JSON.as_bytes()).ok()
    };
    member.documents(key).map(Some)
}

/// Returns the names in consolidated metadata that are not valid keys and so are never read, such as names with `..` or
/// double slashes. `is_document` says whether `bytes` is a `.zmetadata`.
pub fn names_of_nothing(bytes: &[u8], is_document: bool) -> Result<Vec<String>> {
    let text = text_of(bytes)?;
    let whole = TextPart { text, start: 0 };
    let holder = if is_document {
        Some(whole)
    } else {
        whole.value(MEMBER)?
    };
    let Some(documents) = holder.map(|part| part.value(DOCUMENTS)).transpose()? else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    let is_root = |name: &str| name.is_empty() && !is_document;
    visit_members(documents.map_or("{}", |part| part.text), &mut |name, _| {
        let is_key = Key::new(name).is_ok_and(|key| !key.is_root());
        if !is_key && !is_root(name) {
            found.push(name.to_string());
        }
    })?;
    Ok(found)
}

/// A part of a document, and its offset in the document.
struct TextPart<'a> {
    text: &'a str,
    start: usize,
}

impl<'a> TextPart<'a> {
    fn part(&self, place: Range<usize>) -> TextPart<'a> {
        TextPart {
            start: self.start + place.start,
            text: self.text.get(place).unwrap_or_default(),
        }
    }

    fn value(&self, name: &str) -> Result<Option<TextPart<'a>>> {
        Ok(find_member(self.text, name)?.map(|place| self.part(place)))
    }

    /// Finds the documents in it. Names for which `key_of` returns `None` are skipped.
    fn documents(&self, key_of: impl Fn(&str) -> Option<Key>) -> Result<DocumentPlaces> {
        let wrong = || Error::corrupt(DOCUMENTS, "expected an object of documents");
        let documents = self.value(DOCUMENTS)?.ok_or_else(wrong)?;
        let mut found = Vec::new();
        let read = visit_members(documents.text, &mut |name, place| {
            let place = documents.start + place.value.start..documents.start + place.value.end;
            found.extend(key_of(name).map(|key| (key, place)));
        });
        read.map_err(|_| wrong())?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(documents: DocumentPlaces) -> Vec<Vec<u8>> {
        documents
            .iter()
            .map(|(key, _)| key.as_bytes().to_vec())
            .collect()
    }

    #[test]
    fn both_forms_give_keys() {
        let text = r#"{"zarr_consolidated_format": 1, "metadata": {"a\/.zarray": {"x": NaN}, "../b": 1, "": 2}}"#;
        let found = parse_document(text.as_bytes()).unwrap();
        assert_eq!(&text[found[0].1.clone()], r#"{"x": NaN}"#);
        assert_eq!(keys(found), [b"a/.zarray".to_vec(), Vec::new()]);
        let group = br#"{"consolidated_metadata": {"kind": "inline", "metadata": {"a/b": {}, "/../c": {}}}}"#;
        assert_eq!(
            keys(parse_member(group).unwrap().unwrap()),
            [b"a/b/zarr.json"]
        );
        assert_eq!(
            parse_member(br#"{"consolidated_metadata": null}"#).unwrap(),
            None
        );
        assert_eq!(parse_member(b"{}").unwrap(), None);
    }

    #[test]
    fn names_of_nothing_are_told() {
        let text = br#"{"zarr_consolidated_format": 1, "metadata": {"a/.zarray": {}, "../b": 1, "": 2, "/c": 3}}"#;
        assert_eq!(names_of_nothing(text, true).unwrap(), ["../b", "", "/c"]);
        let group = br#"{"consolidated_metadata": {"metadata": {"a/b": {}, "": {}, "/a": {}, "../c": {}}}}"#;
        assert_eq!(names_of_nothing(group, false).unwrap(), ["/a", "../c"]);
        assert!(names_of_nothing(b"{}", false).unwrap().is_empty());
    }

    #[test]
    fn other_forms_are_refused() {
        assert!(parse_document(br#"{"metadata": {}}"#).is_err());
        assert!(parse_document(br#"{"zarr_consolidated_format": 1, "metadata": []}"#).is_err());
        assert!(parse_document(b"{").is_err());
        let elsewhere = br#"{"consolidated_metadata": {"kind": "elsewhere", "metadata": {}}}"#;
        assert!(parse_member(elsewhere).is_err());
        assert!(parse_member(br#"{"consolidated_metadata": 3}"#).is_err());
    }
}
