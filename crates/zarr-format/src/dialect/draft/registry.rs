//! Determines the draft that a hierarchy belongs to.
//!
//! The members of the entry point decide, never its name alone. `entry_point.rs` finds the draft's documents and
//! chunks.

use serde_json::{Map, Value};

use crate::dialect::draft::entry_point::EntryPoint;
use crate::dialect::draft::{Draft, draft2019, draft2020, draft2022, members};
use crate::error::{Error, Result};
use crate::key::Key;

/// Returns the draft of an entry point `zarr.json`, or `None` if it is not an entry point. A final-v3 document never is
/// one: its `zarr_format` is a number.
///
/// Fails with `Corrupt` for a `metadata_encoding` that no draft has.
pub fn draft_of(members: &Map<String, Value>) -> Result<Option<&'static Draft>> {
    if !members::has_uri(members) {
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

/// Whether a document belongs to the draft of 2019, which has no entry point: `zarr_format` is a URI in each of its
/// documents.
pub fn is_2019(members: &Map<String, Value>) -> bool {
    members::has_uri(members) && !members.contains_key("metadata_encoding")
}

/// Returns the entry point that a hierarchy of the draft of 2019 in the folder `top` would have.
pub fn entry_2019(top: &Key) -> Result<EntryPoint> {
    EntryPoint::new(&draft2019::DRAFT, top, None)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::dialect::draft::entry_point::tests::{URI, entry};

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
