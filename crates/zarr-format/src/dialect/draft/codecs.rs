//! Converts codecs of the v3 drafts (URIs, words, numcodecs' configurations) to v3 codecs.
//!
//! Codecs that v3 lacks become `numcodecs.*`, as in v2. An unknown URI becomes the codec's name, so that the error
//! about the codec shows the URI.

use serde_json::{Map, Value, json};

use crate::dialect::typestr::StoredType;
use crate::dialect::v2;
use crate::dialect::v2::codecs::{reversed, shuffle_name};
use crate::error::{Error, Result};
use crate::model::CodecSpec;

/// Whether a codec encodes elements as bytes, so that the chain must not have `bytes` as well.
pub(super) fn makes_bytes(codec: &CodecSpec) -> bool {
    ["bytes", "sharding_indexed"].contains(&codec.name.as_str())
        || v2::codecs::makes_bytes(numcodecs_id(codec))
}

/// Whether a codec is `array -> array`; all others work on bytes.
fn keeps_elements(codec: &CodecSpec) -> bool {
    matches!(
        codec.name.as_str(),
        "transpose"
            | "numcodecs.astype"
            | "numcodecs.bitround"
            | "numcodecs.categorize"
            | "numcodecs.delta"
            | "numcodecs.fixedscaleoffset"
            | "numcodecs.packbits"
            | "numcodecs.quantize"
    )
}

/// Returns the name of a codec without the prefix `numcodecs.`.
fn numcodecs_id(codec: &CodecSpec) -> &str {
    let name = codec.name.as_str();
    name.strip_prefix("numcodecs.").unwrap_or(name)
}

/// Builds the codec chain of a chunk: memory layout, `array -> array` codecs, byte order, other codecs. Codec `bytes`
/// is added before the first codec that works on bytes, unless a codec already encodes elements as bytes.
pub(super) fn chain(
    order: Option<CodecSpec>,
    typed: &StoredType,
    steps: Vec<CodecSpec>,
) -> Vec<CodecSpec> {
    // Ignore the memory layout before a codec that stores the shape of its array itself.
    let stores_shape = |step: &CodecSpec| v2::codecs::stores_shape(numcodecs_id(step));
    let works_on_bytes = |step: &CodecSpec| !keeps_elements(step);
    let order = order.filter(|_| !steps.first().is_some_and(stores_shape));
    let mut chain: Vec<CodecSpec> = order.into_iter().collect();
    let first_on_bytes = steps.iter().position(works_on_bytes).unwrap_or(steps.len());
    let stated = steps.iter().any(makes_bytes);
    for (position, step) in steps.into_iter().enumerate() {
        if position == first_on_bytes && !stated {
            chain.push(typed.bytes_codec());
        }
        chain.push(step);
    }
    if !stated && !chain.iter().any(makes_bytes) {
        chain.push(typed.bytes_codec());
    }
    chain
}

/// Returns the codec that `identifier`, a URI or a name, stands for, or `None` if it changes nothing.
pub(super) fn named(
    identifier: &str,
    configuration: Map<String, Value>,
    typed: &StoredType,
    rank: usize,
) -> Result<Option<CodecSpec>> {
    let Some(name) = name_in(identifier) else {
        return Ok(Some(CodecSpec {
            name: identifier.to_string(),
            configuration,
        }));
    };
    match name {
        // zarr-python 2.12 to 2.14 wrote the URI of zstd without a name.
        "" => Ok(Some(numcodec("zstd", configuration, typed))),
        "endian" => endian(&configuration, typed).map(Some),
        "transpose" => transpose(configuration, rank),
        // These codecs have the same name and configuration in final v3.
        "bytes" | "crc32c" | "sharding_indexed" => Ok(Some(CodecSpec {
            name: name.to_string(),
            configuration,
        })),
        name if identifier.contains("://") => Ok(Some(numcodec(name, configuration, typed))),
        name => Ok(Some(bare(name, configuration, typed))),
    }
}

/// Returns the codec name in a URI such as `https://purl.org/zarr/spec/codec/gzip/1.0`, or a name that is no URI.
/// Returns `None` for any other URI.
fn name_in(identifier: &str) -> Option<&str> {
    let Some((_, rest)) = identifier.split_once("://") else {
        return Some(identifier);
    };
    let rest = rest.strip_prefix("purl.org/zarr/spec/codec")?;
    let rest = rest.strip_prefix('s').unwrap_or(rest).strip_prefix('/')?;
    rest.split('/').next()
}

/// Returns the codec for a name that sci-rs/zarr writes. Its names and formats differ from numcodecs'.
fn bare(name: &str, configuration: Map<String, Value>, typed: &StoredType) -> CodecSpec {
    match name {
        "bzip2" => CodecSpec::new("numcodecs.bz2", json!({ "level": 9 })),
        // For `lz4`, sci-rs/zarr writes a frame; numcodecs writes one block, preceded by its length.
        "lz4" => CodecSpec {
            name: name.to_string(),
            configuration,
        },
        "xz" => {
            let preset = configuration.get("preset").cloned();
            CodecSpec::new(
                "numcodecs.lzma",
                json!({ "format": 1, "check": -1, "preset": preset.unwrap_or(json!(6)), "filters": null }),
            )
        }
        name => numcodec(name, configuration, typed),
    }
}

/// Returns a codec of numcodecs under its v3 name.
fn numcodec(id: &str, mut configuration: Map<String, Value>, typed: &StoredType) -> CodecSpec {
    match id {
        "blosc" => shuffle_by_name(&mut configuration, typed.data_type.size().unwrap_or(1)),
        "gzip"
            if !matches!(
                configuration.get("level").and_then(Value::as_i64),
                Some(0..=9)
            ) =>
        {
            configuration.insert("level".to_string(), json!(6));
        }
        _ => {}
    }
    let name = match id {
        "blosc" | "gzip" | "vlen-bytes" | "vlen-utf8" | "zstd" => id.to_string(),
        other => format!("numcodecs.{other}"),
    };
    CodecSpec {
        name,
        configuration,
    }
}

/// Converts blosc's number for `shuffle` to v3's word and adds the element size. The number -1 chooses a shuffle by the
/// element size.
fn shuffle_by_name(configuration: &mut Map<String, Value>, size: usize) {
    let stated = configuration.get("shuffle");
    let shuffle = match shuffle_name(stated, size) {
        Some(name) => json!(name),
        // An invalid shuffle remains unchanged, so that the error about it shows it.
        None => stated.cloned().unwrap_or_default(),
    };
    configuration.insert("shuffle".to_string(), shuffle);
    configuration.insert("typesize".to_string(), json!(size));
    for (name, usual) in [
        ("blocksize", json!(0)),
        ("cname", json!("lz4")),
        ("clevel", json!(5)),
    ] {
        configuration.entry(name).or_insert(usual);
    }
}

/// Converts codec `endian` of the v3 draft of 2022 to `bytes` of final v3.
fn endian(configuration: &Map<String, Value>, typed: &StoredType) -> Result<CodecSpec> {
    match configuration.get("endian").and_then(Value::as_str) {
        Some(endian @ ("little" | "big")) => {
            Ok(StoredType::new(typed.data_type.clone(), endian == "big").bytes_codec())
        }
        found => Err(Error::corrupt(
            "endian",
            format!(
                "expected little or big, found {}",
                found.unwrap_or("nothing")
            ),
        )),
    }
}

/// Converts codec `transpose`, whose `order` may be "C" or "F" instead of a list.
fn transpose(configuration: Map<String, Value>, rank: usize) -> Result<Option<CodecSpec>> {
    match configuration.get("order").and_then(Value::as_str) {
        Some("C") => Ok(None),
        Some("F") => Ok(reversed(rank)),
        Some(other) => Err(Error::corrupt(
            "transpose",
            format!("expected C, F or a list, found {other}"),
        )),
        None => Ok(Some(CodecSpec {
            name: "transpose".to_string(),
            configuration,
        })),
    }
}

/// Returns the filters that zarr-python's experimental v3 stores in the attribute `filters`: a list of numcodecs'
/// configurations. A user attribute of that name with any other content does not count.
pub(super) fn attribute_filters(members: &Map<String, Value>) -> &[Value] {
    let filters = members
        .get("attributes")
        .and_then(|attributes| attributes.get("filters"))
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    let is_codec = |filter: &Value| filter.get("id").is_some_and(Value::is_string);
    if filters.iter().all(is_codec) {
        filters
    } else {
        &[]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::typestr;

    fn typed(name: &str) -> StoredType {
        typestr::parse(&json!(name)).unwrap()
    }

    fn name(identifier: &str) -> String {
        named(identifier, Map::new(), &typed("<f8"), 2)
            .unwrap()
            .unwrap()
            .name
    }

    #[test]
    fn every_form_of_a_codec_identifier_is_read() {
        for (identifier, expected) in [
            ("https://purl.org/zarr/spec/codec/gzip/1.0", "gzip"),
            ("http://purl.org/zarr/spec/codec/gzip", "gzip"),
            ("https://purl.org/zarr/spec/codecs/blosc/1.0", "blosc"),
            ("https://purl.org/zarr/spec/codec/lz4/1.0", "numcodecs.lz4"),
            ("https://purl.org/zarr/spec/codec/", "zstd"),
            ("bzip2", "numcodecs.bz2"),
            ("xz", "numcodecs.lzma"),
            ("lz4", "lz4"),
            (
                "https://example.org/codec/jpeg",
                "https://example.org/codec/jpeg",
            ),
        ] {
            assert_eq!(name(identifier), expected, "{identifier}");
        }
    }

    #[test]
    fn gdal_words_for_shuffle_are_read() {
        for (word, expected) in [
            ("NONE", "noshuffle"),
            ("BIT", "bitshuffle"),
            ("shuffle", "shuffle"),
            ("other", "other"),
        ] {
            let configuration = json!({ "cname": "lz4", "clevel": 5, "shuffle": word });
            let configuration = configuration.as_object().cloned().unwrap_or_default();
            let identifier = "https://purl.org/zarr/spec/codec/blosc/1.0";
            let codec = named(identifier, configuration, &typed("<i2"), 2).unwrap();
            assert_eq!(codec.unwrap().configuration["shuffle"], expected);
        }
    }

    #[test]
    fn bytes_is_inserted_before_codecs_that_work_on_bytes() {
        let order = |steps: &[&str]| {
            let steps = steps.iter().map(|name| CodecSpec::new(name, Value::Null));
            let chain = chain(reversed(2), &typed(">i4"), steps.collect());
            chain
                .into_iter()
                .map(|codec| codec.name)
                .collect::<Vec<_>>()
        };
        assert_eq!(order(&[]), ["transpose", "bytes"]);
        assert_eq!(
            order(&["numcodecs.delta", "numcodecs.shuffle", "gzip"]),
            [
                "transpose",
                "numcodecs.delta",
                "bytes",
                "numcodecs.shuffle",
                "gzip"
            ]
        );
        assert_eq!(
            order(&["numcodecs.delta"]),
            ["transpose", "numcodecs.delta", "bytes"]
        );
        assert_eq!(
            order(&["numcodecs.json2", "zstd"]),
            ["numcodecs.json2", "zstd"]
        );
        assert_eq!(order(&["bytes", "gzip"]), ["transpose", "bytes", "gzip"]);
        assert_eq!(
            order(&["vlen-utf8", "zstd"]),
            ["transpose", "vlen-utf8", "zstd"]
        );
    }

    #[test]
    fn only_a_list_of_codecs_is_read_as_filters() {
        let filters = |value: Value| {
            let members = json!({ "attributes": { "filters": value } });
            attribute_filters(members.as_object().unwrap()).len()
        };
        assert_eq!(filters(json!([{"id": "delta", "dtype": "<i4"}])), 1);
        assert_eq!(filters(json!(["red", "blue"])), 0);
        assert_eq!(filters(json!("HEPA")), 0);
        assert_eq!(filters(json!([{"id": "delta"}, {"id": 3}])), 0);
    }
}
