//! Reads the drafts of Zarr v3 from 2019 to 2022.
//!
//! Each draft has a file. The content of an entry point (`zarr.json` of the hierarchy) decides which draft a hierarchy
//! follows, never its name alone. Documents and chunks are in separate folders, as the entry point states. Final v3 is
//! in `dialect/v3`.

use serde_json::{Map, Value};

use crate::dialect::Parsed;
use crate::dialect::document::list;
use crate::error::{Error, Result};
use crate::key::Key;

mod array;
mod codecs;
mod data_type;
pub(super) mod draft2019;
pub(super) mod draft2020;
pub(super) mod draft2022;
mod entry_point;

pub use entry_point::{DocumentRole, EntryPoint};

/// A v3 draft: a dialect that applies to all nodes below an entry point.
pub struct Draft {
    /// Name of the dialect, as in `--dialect` and `info`.
    pub name: &'static str,
    /// Returns the layout of keys, from the members of the entry point if there is an entry point.
    layout: fn(Option<&Map<String, Value>>) -> Result<DraftLayout>,
    /// Reads the metadata document of an array, except its attributes.
    array: fn(&ChunkLocation, &Map<String, Value>) -> Result<Parsed>,
    /// Checks the metadata document of a group, which has only attributes.
    group: fn(&Map<String, Value>) -> Result<()>,
}

/// Where documents and chunks of a v3 draft are, relative to the folder of the entry point.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DraftLayout {
    /// Folder of the metadata documents of the root node's children.
    meta: &'static str,
    /// Prefixes of the root node's documents, before `array` or `group` and the suffix.
    root: &'static [&'static str],
    /// Possible suffixes of documents after `.array` and `.group`, in order of precedence.
    suffixes: Vec<String>,
    /// Folder of the root node's chunks. Chunks of other nodes are in folders below it.
    data: &'static str,
    /// Prefix of the first index in a chunk key.
    index_prefix: &'static str,
    /// Key of consolidated metadata, if the draft has them.
    consolidated: Option<&'static str>,
}

struct ChunkLocation {
    base: Vec<u8>,
    index_prefix: &'static str,
}

/// Returns the v3 draft of an entry point `zarr.json`, or `None` if the document is not an entry point. A final-v3
/// document never is an entry point: its `zarr_format` is a number.
///
/// Fails with `Corrupt` for a `metadata_encoding` that no draft has.
pub fn draft_of(members: &Map<String, Value>) -> Result<Option<&'static Draft>> {
    if !has_uri(members) {
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

/// Whether a document belongs to the v3 draft of 2019. This draft has no entry point; every document has a URI as
/// `zarr_format`.
pub fn is_2019(members: &Map<String, Value>) -> bool {
    has_uri(members) && !members.contains_key("metadata_encoding")
}

/// Returns an entry point for a hierarchy of the v3 draft of 2019 in folder `top`, although this draft stores none.
pub fn entry_2019(top: &Key) -> Result<EntryPoint> {
    EntryPoint::new(&draft2019::DRAFT, top, None)
}

/// Whether `zarr_format` is a URI, as in every v3 draft. In final v3 it is a number.
fn has_uri(members: &Map<String, Value>) -> bool {
    members.get("zarr_format").is_some_and(is_uri)
}

fn is_uri(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.contains("://"))
}

/// Checks the version at the end of the URI `zarr_format` (drafts, "zarr_format"). Later minor versions are compatible.
///
/// Fails with `Unsupported` for another major version, or if `zarr_format` is not a URI.
fn check_version(members: &Map<String, Value>) -> Result<()> {
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

/// Reads `metadata_key_suffix`, a part of a name; fails with `Corrupt` for special characters such as a slash.
fn key_suffix(value: &Value) -> Result<String> {
    let is_plain = |text: &&str| {
        text.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
    };
    match value.as_str().filter(is_plain) {
        Some(text) => Ok(text.to_string()),
        None => Err(Error::corrupt(
            "metadata_key_suffix",
            format!("expected only letters, digits, '.', '-' and '_', found {value}"),
        )),
    }
}

/// Fails if an extension must be understood, since no extension is supported (drafts, "extensions").
fn check_extensions(members: &Map<String, Value>) -> Result<()> {
    for extension in list(members, "extensions")? {
        if extension.get("must_understand") != Some(&Value::Bool(false)) {
            let uri = uri_of(extension);
            return Err(Error::unsupported(
                "extensions",
                format!("unsupported extension {uri}, and its must_understand is not false"),
            ));
        }
    }
    Ok(())
}

/// Returns the URI of an extension for an error message, or the whole extension if it has no URI.
fn uri_of(extension: &Value) -> String {
    let uri = extension.get("extension").and_then(Value::as_str);
    uri.map_or_else(|| extension.to_string(), str::to_string)
}

/// Fails for JSON members that the draft does not define.
fn check_known(members: &Map<String, Value>, known: &[&str]) -> Result<()> {
    match members.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => {
            let known = known.join(", ");
            Err(Error::unsupported(
                name,
                format!("unknown member; known members are {known}"),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::dialect::draft::entry_point::tests::{URI, entry};

    #[test]
    fn the_draft_follows_from_the_encoding_not_from_the_uri() {
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
    fn invalid_entry_points_are_refused() {
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
