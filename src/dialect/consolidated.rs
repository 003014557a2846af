//! Consolidated metadata: documents of a whole hierarchy in one, as three dialects write it.
//!
//! Gives keys and documents as they would be stored; what cannot be a key is left out. Whether they are to be
//! believed is for the hierarchy to say.

use serde_json::{Map, Value};

use crate::dialect::{json, v3};
use crate::error::{Error, Result};
use crate::store::Key;

/// Keys and what is stored under them.
pub type DocumentMap = Vec<(Key, Vec<u8>)>;

/// The document of v2 and of zarr-python's experimental v3.
pub const DOCUMENT: &[u8] = b".zmetadata";

/// The member of a final-v3 group.
pub const MEMBER: &str = "consolidated_metadata";

/// Reads `.zmetadata`: keys, counted from the folder of the hierarchy, and their documents.
///
/// Fails with `Corrupt` if it is not what zarr-python writes as format 1.
pub fn listed(bytes: &[u8]) -> Result<DocumentMap> {
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

/// Reads `consolidated_metadata` of a final-v3 group: keys, counted from the group, and their documents.
/// Nothing if it is null.
///
/// Fails with `Unsupported` for another kind than inline.
pub fn inline(member: &Value) -> Result<Option<DocumentMap>> {
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
    let key = |path: &str| Key::new(path).ok()?.child(v3::DOCUMENT.as_bytes()).ok();
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
        let found = listed(text.as_bytes()).unwrap();
        assert_eq!(found[0].1, br#"{"x":"NaN"}"#);
        assert_eq!(keys(found), [b"a/.zarray".to_vec(), Vec::new()]);
        let member = json!({"kind": "inline", "metadata": {"a/b": {}, "/../c": {}}});
        assert_eq!(keys(inline(&member).unwrap().unwrap()), [b"a/b/zarr.json"]);
        assert_eq!(inline(&Value::Null).unwrap(), None);
    }

    #[test]
    fn other_forms_are_refused() {
        assert!(listed(br#"{"metadata": {}}"#).is_err());
        assert!(listed(br#"{"zarr_consolidated_format": 1, "metadata": []}"#).is_err());
        assert!(listed(b"{").is_err());
        assert!(inline(&json!({"kind": "elsewhere", "metadata": {}})).is_err());
        assert!(inline(&json!(3)).is_err());
    }
}
