//! Entry points: the document that makes a folder a draft's hierarchy.
//!
//! Which draft it belongs to its members say, never the name alone; another version is refused. Where the draft
//! keeps everything else is `entry.rs`'s business.

use serde_json::{Map, Value};

use crate::dialect::draft::entry::Draft;
use crate::dialect::draft::{draft2020, draft2022};
use crate::error::{Error, Result};

/// Returns the draft that an entry point `zarr.json` belongs to; nothing if it is no entry point, which a
/// final-v3 document never is: there `zarr_format` is a number.
pub fn draft_of(members: &Map<String, Value>) -> Result<Option<&'static Draft>> {
    if !members.get("zarr_format").is_some_and(is_uri) {
        return Ok(None);
    }
    match members.get("metadata_encoding") {
        Some(Value::Object(_)) => Ok(Some(&draft2022::DRAFT)),
        Some(Value::String(_)) => Ok(Some(&draft2020::DRAFT)),
        found => Err(Error::corrupt(
            "metadata_encoding",
            format!(
                "expected a string (draft of 2020) or an object (draft of 2022), found {}",
                found.unwrap_or(&Value::Null)
            ),
        )),
    }
}

/// Whether a document says that it is one of the draft of 2019, which has no entry point: each of its
/// documents holds `zarr_format`, and it is a URI.
pub fn is_2019(members: &Map<String, Value>) -> bool {
    members.get("zarr_format").is_some_and(is_uri) && !members.contains_key("metadata_encoding")
}

/// Checks the version at the end of the URI (drafts, "zarr_format"): later minor ones are compatible.
pub(super) fn check_version(members: &Map<String, Value>) -> Result<()> {
    let found = members.get("zarr_format").unwrap_or(&Value::Null);
    let wrong = || {
        Error::unsupported(
            "zarr_format",
            format!("expected the URI of the core specification, version 3, found {found}"),
        )
    };
    let uri = found.as_str().filter(|_| is_uri(found)).ok_or_else(wrong)?;
    let version = uri.rsplit('/').find(|part| !part.is_empty());
    let major = version.and_then(|version| version.split('.').next());
    if major == Some("3") {
        Ok(())
    } else {
        Err(wrong())
    }
}

fn is_uri(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.contains("://"))
}

/// Reads a suffix of metadata keys: part of a name, so it holds no slash.
pub(super) fn suffix(value: &Value) -> Result<String> {
    let is_plain = |text: &&str| {
        text.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
    };
    match value.as_str().filter(is_plain) {
        Some(text) => Ok(text.to_string()),
        None => Err(Error::corrupt(
            "metadata_key_suffix",
            format!("expected letters, digits and . - _ only, found {value}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::dialect::draft::entry::tests::{URI, entry};

    #[test]
    fn the_encoding_decides_and_not_the_uri() {
        let hybrid = json!({
            "zarr_format": "https://purl.org/zarr/spec/core/3.0",
            "metadata_encoding": "https://purl.org/zarr/spec/core/3.0",
            "metadata_key_suffix": ".json",
        });
        assert_eq!(entry("", hybrid).unwrap().name(), "draft2020");
        let final_v3 = json!({"zarr_format": 3, "node_type": "group"});
        let none = draft_of(final_v3.as_object().unwrap()).unwrap();
        assert!(none.is_none());
        assert!(entry("", json!({"zarr_format": URI})).is_err());
    }

    #[test]
    fn hostile_entry_points_are_refused() {
        for (member, value) in [
            ("metadata_key_suffix", json!("/../../x")),
            ("metadata_key_suffix", json!(3)),
            ("metadata_encoding", json!("https://example.org/cbor")),
            ("zarr_format", json!("https://purl.org/zarr/spec/core/4.0")),
            ("extensions", json!(7)),
            ("extensions", json!([{"extension": "http://x.org/e"}])),
            (
                "extensions",
                json!([{"extension": "http://x.org/e", "must_understand": true}]),
            ),
        ] {
            let mut members = json!({"zarr_format": URI, "metadata_encoding": URI});
            members[member] = value.clone();
            assert!(entry("", members).is_err(), "{member}: {value}");
        }
    }
}
