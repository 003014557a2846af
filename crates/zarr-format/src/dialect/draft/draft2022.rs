//! Reads the Zarr v3 draft of May 2022.
//!
//! Keys have no `root`, `metadata_encoding` is an object, and arrays have a list of codecs. The specification
//! contradicts itself on data types (a table of final names, examples with numpy's) and on null fill values (not
//! permitted, yet in an example); both are read. Undefined JSON members are an error, as the specification demands.

use serde_json::{Map, Value};

use crate::dialect::Parsed;
use crate::dialect::document::{lengths, list};
use crate::dialect::draft::array::ArrayRules;
use crate::dialect::draft::{
    ChunkLocation, Draft, DraftLayout, array, check_extensions, check_known, codecs, key_suffix,
};
use crate::dialect::typestr::StoredType;
use crate::error::{Error, Result};
use crate::model::CodecSpec;

pub(crate) const DRAFT: Draft = Draft {
    name: "draft2022",
    layout,
    array,
    group,
};

/// Reads the entry point and returns the key layout (draft of 2022, "metadata_encoding" and "Storage keys").
fn layout(members: Option<&Map<String, Value>>) -> Result<DraftLayout> {
    let suffix = match members {
        None => ".json".to_string(),
        Some(members) => {
            check_known(members, &["zarr_format", "metadata_encoding", "extensions"])?;
            suffix(members.get("metadata_encoding"))?
        }
    };
    Ok(DraftLayout {
        meta: "meta",
        root: &["meta/"],
        suffixes: vec![suffix],
        data: "data",
        index_prefix: "c",
        consolidated: None,
    })
}

fn suffix(encoding: Option<&Value>) -> Result<String> {
    let Some(Value::Object(encoding)) = encoding else {
        return Ok(".json".to_string());
    };
    match encoding.get("type").and_then(Value::as_str) {
        Some("json") if !encoding.contains_key("extension") => {
            let stated = encoding.get("metadata_key_suffix");
            stated.map_or_else(|| Ok(".json".to_string()), key_suffix)
        }
        found => {
            let uri = encoding.get("extension").unwrap_or(&Value::Null);
            let found = found.unwrap_or_default();
            Err(Error::unsupported(
                "metadata_encoding",
                format!("unsupported type '{found}' of {uri} (supported: json)"),
            ))
        }
    }
}

/// Reads array metadata (draft of 2022, "Array metadata").
fn array(location: &ChunkLocation, members: &Map<String, Value>) -> Result<Parsed> {
    check_known(
        members,
        &[
            "shape",
            "data_type",
            "chunk_grid",
            "chunk_memory_layout",
            "fill_value",
            "extensions",
            "attributes",
            "codecs",
            "storage_transformers",
        ],
    )?;
    let rules = ArrayRules {
        dialect: DRAFT.name,
        separator: '/',
        codecs: chunk_codecs,
    };
    array::read(&rules, location, members)
}

/// Reads the list `codecs`; a missing list counts as empty.
fn chunk_codecs(members: &Map<String, Value>, typed: &StoredType) -> Result<Vec<CodecSpec>> {
    let list = list(members, "codecs")?;
    let rank = lengths(members, "shape")?.len();
    let codec = |value: &Value| {
        let wrong = || {
            Error::corrupt(
                "codecs",
                format!("expected an object with a type, found {value}"),
            )
        };
        let identifier = value
            .get("type")
            .and_then(Value::as_str)
            .ok_or_else(wrong)?;
        let configuration = value.get("configuration").and_then(Value::as_object);
        let configuration = configuration.cloned().unwrap_or_default();
        codecs::named(identifier, configuration, typed, rank)
    };
    let chain: Result<Vec<Option<CodecSpec>>> = list.iter().map(codec).collect();
    Ok(chain?.into_iter().flatten().collect())
}

/// Checks group metadata (draft of 2022, "Group metadata").
fn group(members: &Map<String, Value>) -> Result<()> {
    check_known(members, &["attributes", "extensions"])?;
    check_extensions(members)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_metadata_encodings_and_members_are_refused() {
        let read = |encoding: Value, other: &str| {
            let mut members = Map::new();
            members.insert("metadata_encoding".to_string(), encoding);
            members.insert(other.to_string(), json!([]));
            layout(Some(&members)).map_err(|error| error.to_string())
        };
        let json = json!({"type": "json", "metadata_key_suffix": ".x"});
        let suffixes = read(json.clone(), "extensions").unwrap().suffixes;
        assert_eq!(suffixes, [".x"]);
        assert!(read(json, "novel").unwrap_err().contains("novel"));
        let uri = "http://example.org/cbor";
        let cbor = json!({"extension": uri, "type": "cbor", "metadata_key_suffix": ".cbor"});
        assert!(read(cbor, "extensions").unwrap_err().contains(uri));
    }

    #[test]
    fn codecs_without_a_type_are_refused() {
        let typed = crate::dialect::typestr::parse(&json!("<i4")).unwrap();
        for list in [
            json!([{"configuration": {}}]),
            json!(["gzip"]),
            json!({}),
            json!([{"type": 3}]),
        ] {
            let members = json!({"shape": [1], "codecs": list});
            assert!(chunk_codecs(members.as_object().unwrap(), &typed).is_err());
        }
    }
}
