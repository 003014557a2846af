//! Reads the v3 draft of October 2020 and zarrita's formats of 2020.
//!
//! Documents that mix the specifications of 2020 and 2022 are accepted. The entry point states where documents and
//! chunks are: in July 2020 `metadata_encoding` is a media type and keys have neither `root` nor `c`; in September
//! there is no `metadata_key_suffix`, and keys of documents have no suffix. Arrays have one `compressor`; zarr-python
//! stores filters in `attributes.filters`.

use serde_json::{Map, Value};

use crate::dialect::Parsed;
use crate::dialect::document::lengths;
use crate::dialect::draft::array::ArrayRules;
use crate::dialect::draft::{ChunkLocation, Draft, DraftLayout, array, codecs, key_suffix};
use crate::dialect::typestr::StoredType;
use crate::dialect::v2::codecs::filtered;
use crate::error::{Error, Result};
use crate::model::CodecSpec;
use crate::model::document::CONSOLIDATED_2020;

pub(crate) const DRAFT: Draft = Draft {
    name: "draft2020",
    layout,
    array,
    group,
};

/// Reads the entry point and returns the key layout (draft of 2020, "Entry point metadata" and "Storage keys").
fn layout(members: Option<&Map<String, Value>>) -> Result<DraftLayout> {
    let member = |name| members.and_then(|members: &Map<String, Value>| members.get(name));
    let october = DraftLayout {
        meta: "meta/root",
        // xtensor-zarr stores the root group as a node with an empty name.
        root: &["meta/root.", "meta/root/."],
        suffixes: suffixes(member("metadata_key_suffix"))?,
        data: "data/root",
        index_prefix: "c",
        consolidated: Some(CONSOLIDATED_2020),
    };
    match member("metadata_encoding").and_then(Value::as_str) {
        None => Ok(october),
        // This media type is in zarrita's format of July 2020.
        Some("application/json") => Ok(DraftLayout {
            data: "data",
            index_prefix: "",
            ..october
        }),
        Some(uri) if uri.contains("purl.org/zarr/spec/") => Ok(october),
        Some(other) => Err(Error::unsupported(
            "metadata_encoding",
            format!("unsupported encoding {other}"),
        )),
    }
}

/// Returns the suffixes of document keys. If the entry point states none, the specification demands `.json`, but
/// writers that omit it use no suffix.
fn suffixes(stated: Option<&Value>) -> Result<Vec<String>> {
    match stated {
        None | Some(Value::Null) => Ok(vec![".json".to_string(), String::new()]),
        Some(stated) => Ok(vec![key_suffix(stated)?]),
    }
}

/// Reads array metadata (draft of 2020, "Array metadata"). Names that the specification does not define are ignored.
fn array(location: &ChunkLocation, members: &Map<String, Value>) -> Result<Parsed> {
    let rules = ArrayRules {
        dialect: DRAFT.name,
        separator: if location.index_prefix.is_empty() {
            '.'
        } else {
            '/'
        },
        codecs: chunk_codecs,
    };
    array::read(&rules, location, members)
}

fn chunk_codecs(members: &Map<String, Value>, typed: &StoredType) -> Result<Vec<CodecSpec>> {
    let mut chain = filtered(codecs::attribute_filters(members), typed)?;
    let compressor = match members.get("compressor") {
        None | Some(Value::Null) => return Ok(chain),
        Some(compressor) => compressor,
    };
    let wrong = || {
        Error::corrupt(
            "compressor",
            format!("expected an object with a codec, found {compressor}"),
        )
    };
    let identifier = compressor.get("codec").and_then(Value::as_str);
    let configuration = compressor.get("configuration").and_then(Value::as_object);
    let rank = lengths(members, "shape")?.len();
    let compressor = codecs::named(
        identifier.ok_or_else(wrong)?,
        configuration.cloned().unwrap_or_default(),
        typed,
        rank,
    )?;
    // A compressor of numbers, such as `pcodec`, encodes elements itself, so `bytes` must not precede it.
    if compressor.as_ref().is_some_and(codecs::makes_bytes) {
        chain.pop_if(|last| last.name == "bytes");
    }
    chain.extend(compressor);
    Ok(chain)
}

/// Checks group metadata (draft of 2020, "Group metadata"): the document has only attributes, so every object is valid.
fn group(_members: &Map<String, Value>) -> Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::dialect::typestr;

    fn names(dtype: &str, filters: Value, compressor: Value) -> Vec<String> {
        let members = json!({
            "shape": [1], "compressor": compressor, "attributes": { "filters": filters },
        });
        let typed = typestr::parse(&json!(dtype)).unwrap();
        let found = chunk_codecs(members.as_object().unwrap(), &typed).unwrap();
        found.into_iter().map(|codec| codec.name).collect()
    }

    #[test]
    fn filters_are_placed_before_the_compressor() {
        let uri =
            |name: &str| json!({ "codec": format!("https://purl.org/zarr/spec/codec/{name}/1.0") });
        let filters =
            json!([{ "id": "delta", "dtype": "<i4" }, { "id": "shuffle", "elementsize": 4 }]);
        assert_eq!(
            names("<i4", filters, uri("gzip")),
            ["numcodecs.delta", "bytes", "numcodecs.shuffle", "gzip"]
        );
        assert_eq!(names("<i4", json!([]), uri("pcodec")), ["numcodecs.pcodec"]);
        let text = json!([{ "id": "vlen-utf8" }]);
        assert_eq!(names("|O", text, json!(null)), ["vlen-utf8"]);
    }
}
