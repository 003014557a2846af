//! Consolidated metadata: documents of a whole hierarchy in one, as three dialects write it.
//!
//! Gives keys and documents as they would be stored; what cannot be a key is left out. The hierarchy decides where
//! they are used.

use serde_json::{Map, Value};

use crate::dialect::{DocumentMap, json};
use crate::error::{Error, Result};
use crate::model::document::ZARR_JSON;
use crate::store::Key;

/// The member of a final-v3 group that holds them.
pub const MEMBER: &str = "consolidated_metadata";

/// Reads `.zmetadata`: keys, counted from the folder of the hierarchy, and their documents.
///
/// Fails with `Corrupt` if it is not what zarr-python writes as format 1.
pub fn parse_document(bytes: &[u8]) -> Result<DocumentMap> {
    let document = json::parse(bytes)?;
    let format = document.get("zarr_consolidated_format");
    if format.and_then(Value::as_u64) != Some(1) {
        let found = format.unwrap_or(&Value::Null);
        return Err(Error::corrupt(
            "zarr_consolidated_format",
            format!("expected 1, found {found}"),
        ));
    }
    let documents = members_of(document.get("metadata"))?;
    Ok(documents
        .iter()
        .filter_map(|(key, document)| Some((Key::new(key.as_str()).ok()?, text(document))))
        .collect())
}

/// Reads `consolidated_metadata` of a final-v3 group: keys, counted from the group, and their documents; nothing if
/// it is null.
///
/// Fails with `Unsupported` for another kind than inline, `Corrupt` for what is no object of documents.
pub fn parse_member(member: &Value) -> Result<Option<DocumentMap>> {
    if member.is_null() {
        return Ok(None);
    }
    match member.get("kind").and_then(Value::as_str) {
        None | Some("inline") => {}
        Some(kind) => {
            return Err(Error::unsupported(
                MEMBER,
                format!("expected kind inline, found {kind}"),
            ));
        }
    }
    let documents = members_of(member.get("metadata"))?;
    let key = |path: &str| Key::new(path).ok()?.child(ZARR_JSON.as_bytes()).ok();
    Ok(Some(
        documents
            .iter()
            .filter_map(|(path, document)| Some((key(path.trim_matches('/'))?, text(document))))
            .collect(),
    ))
}

fn members_of(metadata: Option<&Value>) -> Result<&Map<String, Value>> {
    metadata
        .and_then(Value::as_object)
        .ok_or_else(|| Error::corrupt("metadata", "expected an object of documents"))
}

fn text(document: &Value) -> Vec<u8> {
    document.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
        assert_eq!(found[0].1, br#"{"x":"NaN"}"#);
        assert_eq!(keys(found), [b"a/.zarray".to_vec(), Vec::new()]);
        let member = json!({"kind": "inline", "metadata": {"a/b": {}, "/../c": {}}});
        assert_eq!(
            keys(parse_member(&member).unwrap().unwrap()),
            [b"a/b/zarr.json"]
        );
        assert_eq!(parse_member(&Value::Null).unwrap(), None);
    }

    #[test]
    fn other_forms_are_refused() {
        assert!(parse_document(br#"{"metadata": {}}"#).is_err());
        assert!(parse_document(br#"{"zarr_consolidated_format": 1, "metadata": []}"#).is_err());
        assert!(parse_document(b"{").is_err());
        assert!(parse_member(&json!({"kind": "elsewhere", "metadata": {}})).is_err());
        assert!(parse_member(&json!(3)).is_err());
    }
}
