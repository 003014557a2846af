//! Reads the Zarr v3 draft of 2019.
//!
//! There is no entry point, each document has `zarr_format`, and arrays have a list of `chunk_codecs`. Where the text
//! of the specification is ambiguous, its tree of keys decides: chunks of a root array are in `data/`, and the chunk of
//! an array without dimensions is `0`. Infinite fill values are written as words.

use serde_json::{Map, Value};

use crate::dialect::Parsed;
use crate::dialect::document::{lengths, list};
use crate::dialect::draft::array::ArrayRules;
use crate::dialect::draft::{
    ChunkLocation, Draft, DraftLayout, array, check_extensions, check_version, codecs,
};
use crate::dialect::typestr::StoredType;
use crate::error::{Error, Result};
use crate::model::CodecSpec;

pub(crate) const DRAFT: Draft = Draft {
    name: "draft2019",
    layout,
    array,
    group,
};

/// Returns the key layout (draft of 2019, "Storage keys").
fn layout(_members: Option<&Map<String, Value>>) -> Result<DraftLayout> {
    Ok(DraftLayout {
        meta: "meta",
        root: &["root."],
        suffixes: vec![".json".to_string()],
        data: "data",
        index_prefix: "",
        consolidated: None,
    })
}

/// Reads array metadata (draft of 2019, "Array metadata"). Names that the specification does not define are ignored.
fn array(location: &ChunkLocation, members: &Map<String, Value>) -> Result<Parsed> {
    check_version(members)?;
    let rules = ArrayRules {
        dialect: DRAFT.name,
        separator: '.',
        codecs: chunk_codecs,
    };
    array::read(&rules, location, members)
}

/// Reads `chunk_codecs`, a list of objects with the name and the parameters of a codec.
fn chunk_codecs(members: &Map<String, Value>, typed: &StoredType) -> Result<Vec<CodecSpec>> {
    let list = list(members, "chunk_codecs")?;
    let rank = lengths(members, "shape")?.len();
    let codec = |value: &Value| {
        let wrong = || {
            Error::corrupt(
                "chunk_codecs",
                format!("expected an object with a codec, found {value}"),
            )
        };
        let mut configuration = value.as_object().ok_or_else(wrong)?.clone();
        let identifier = configuration.shift_remove("codec").ok_or_else(wrong)?;
        let identifier = identifier.as_str().ok_or_else(wrong)?;
        codecs::named(identifier, configuration, typed, rank)
    };
    let chain: Result<Vec<Option<CodecSpec>>> = list.iter().map(codec).collect();
    Ok(chain?.into_iter().flatten().collect())
}

/// Checks group metadata (draft of 2019, "Group metadata").
fn group(members: &Map<String, Value>) -> Result<()> {
    check_version(members)?;
    check_extensions(members)
}
