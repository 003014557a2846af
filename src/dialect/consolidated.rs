//! Consolidated metadata: documents of a whole hierarchy in one, as three dialects write it.
//!
//! Gives keys and documents as they would be stored; what cannot be a key is left out. The hierarchy decides where
//! they are used.

use crate::dialect::{DocumentMap, text_of};
use crate::error::{Error, Result};
use crate::json_text::ObjectText;
use crate::model::document::ZARR_JSON;
use crate::store::Key;

/// The member of a final-v3 group that holds them.
pub const MEMBER: &str = "consolidated_metadata";

/// The member of consolidated metadata that holds the documents.
pub const DOCUMENTS: &str = "metadata";

/// Reads `.zmetadata`: keys, counted from the folder of the hierarchy, and their documents.
///
/// Fails with `Corrupt` if it is not what zarr-python writes as format 1.
pub fn parse_document(bytes: &[u8]) -> Result<DocumentMap> {
    let document = ObjectText::parse(text_of(bytes)?)?;
    let format = document.value("zarr_consolidated_format");
    if format != Some("1") {
        let found = format.unwrap_or("nothing");
        return Err(Error::corrupt(
            "zarr_consolidated_format",
            format!("expected 1, found {found}"),
        ));
    }
    let documents = documents_of(&document)?;
    Ok(documents
        .members()
        .filter_map(|(key, document)| Some((Key::new(key).ok()?, on_its_own(document).into())))
        .collect())
}

/// Reads the member `consolidated_metadata` of a final-v3 group: keys, counted from the group, and their documents;
/// nothing if the group has none or they are null.
///
/// Fails with `Unsupported` for another kind than inline, `Corrupt` for what is no object of documents.
pub fn parse_member(bytes: &[u8]) -> Result<Option<DocumentMap>> {
    let group = ObjectText::parse(text_of(bytes)?)?;
    let member = match group.value(MEMBER) {
        None | Some("null") => return Ok(None),
        Some(member) => ObjectText::parse(member).map_err(|error| error.about(MEMBER))?,
    };
    match member.value("kind") {
        None | Some("\"inline\"") => {}
        Some(kind) => {
            return Err(Error::unsupported(
                MEMBER,
                format!("expected kind inline, found {kind}"),
            ));
        }
    }
    let documents = documents_of(&member)?;
    let key = |path: &str| Key::new(path).ok()?.child(ZARR_JSON.as_bytes()).ok();
    Ok(Some(
        documents
            .members()
            .filter_map(|(path, document)| {
                Some((key(path.trim_matches('/'))?, on_its_own(document).into()))
            })
            .collect(),
    ))
}

/// Returns the text of a document without the indentation that it has as a member of another one, so that it is as most
/// writers store it.
fn on_its_own(document: &str) -> String {
    let last = document.rsplit('\n').next().unwrap_or_default();
    let depth = last.len() - last.trim_start_matches([' ', '\t']).len();
    let (indent, _) = last.split_at(depth);
    let mut lines = document.split('\n');
    let first = lines.next().unwrap_or_default();
    let rest = lines.map(|line| line.strip_prefix(indent));
    let rest: Option<Vec<&str>> = rest.collect();
    match rest {
        Some(rest) => [vec![first], rest].concat().join("\n"),
        None => document.to_string(),
    }
}

fn documents_of<'a>(holder: &ObjectText<'a>) -> Result<ObjectText<'a>> {
    let wrong = || Error::corrupt(DOCUMENTS, "expected an object of documents");
    let documents = holder.value(DOCUMENTS).ok_or_else(wrong)?;
    ObjectText::parse(documents).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(documents: DocumentMap) -> Vec<Vec<u8>> {
        documents
            .iter()
            .map(|(key, _)| key.as_bytes().to_vec())
            .collect()
    }

    #[test]
    fn both_forms_give_keys() {
        let text = r#"{"zarr_consolidated_format": 1, "metadata": {"a\/.zarray": {"x": NaN}, "../b": 1, "": 2}}"#;
        let found = parse_document(text.as_bytes()).unwrap();
        assert_eq!(found[0].1, br#"{"x": NaN}"#);
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
    fn a_copy_is_indented_as_a_document() {
        let text = "{\n  \"zarr_consolidated_format\": 1,\n  \"metadata\": {\n    \"a/.zarray\": {\n      \"x\": [\n        1\n      ]\n    },\n    \"b/.zattrs\": {\"y\": 2}, \"c/.zattrs\": {\n  \"z\": 3\n    }\n  }\n}";
        let found = parse_document(text.as_bytes()).unwrap();
        let texts: Vec<&[u8]> = found.iter().map(|(_, text)| text.as_slice()).collect();
        let expected: [&[u8]; 3] = [
            b"{\n  \"x\": [\n    1\n  ]\n}",
            b"{\"y\": 2}",
            b"{\n  \"z\": 3\n    }",
        ];
        assert_eq!(texts, expected);
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
