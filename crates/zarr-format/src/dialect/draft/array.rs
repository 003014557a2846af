//! Reads array metadata of the v3 drafts: shape, grid, memory layout, fill value, extensions, keys.
//!
//! An unknown extension that must be understood is an error that names its URI. If it affects only the decoding of
//! chunks, the array can be opened, and `Array::undecodable` has the reason.

use serde_json::{Map, Value, json};

use crate::dialect::document::{check_shapes, chunk_lengths, lengths, list, required, separator};
use crate::dialect::draft::{ChunkLocation, check_extensions, codecs, data_type, uri_of};
use crate::dialect::typestr::StoredType;
use crate::dialect::v2::codecs::reversed;
use crate::dialect::{Parsed, fill};
use crate::error::{Error, Result};
use crate::model::{Array, Attributes, CodecSpec, KeyScheme, Node};

/// What differs between the v3 drafts in array metadata.
pub(super) struct ArrayRules {
    /// Name of the dialect.
    pub(super) dialect: &'static str,
    /// Default separator of chunk indices.
    pub(super) separator: char,
    /// Reads the codecs of a chunk, without the memory layout. `bytes` is included only if one of the draft's codecs
    /// corresponds to it.
    pub(super) codecs: fn(&Map<String, Value>, &StoredType) -> Result<Vec<CodecSpec>>,
}

/// Reads the metadata of an array of a v3 draft, except its attributes.
pub(super) fn read(
    rules: &ArrayRules,
    location: &ChunkLocation,
    members: &Map<String, Value>,
) -> Result<Parsed> {
    check_extensions(members)?;
    let shape = lengths(members, "shape")?;
    let grid = grid(members, &shape, rules.separator)?;
    check_shapes(&shape, &grid.chunk_shape)?;
    let data_type::ResolvedType {
        typed,
        warning,
        undecodable,
    } = data_type::read(members)?;
    let (order, unknown_order) = memory_layout(members, shape.len())?;
    let steps = (rules.codecs)(members, &typed)?;
    let chain = codecs::chain(order, &typed, steps);
    let transformed = transform(members, grid.chunk_shape, chain)?;
    let fill_value = members.get("fill_value").unwrap_or(&Value::Null);
    let fill_value = data_type::fill_value(&typed.data_type, fill_value)?;
    let array = Array {
        dialect: rules.dialect,
        fill_value: fill::parse_stored(&typed, &fill_value)?,
        codecs: transformed.codecs,
        keys: keys(location, grid.separator),
        dimension_names: Vec::new(),
        attributes: Attributes::default(),
        undecodable: undecodable.or(unknown_order).or(transformed.undecodable),
        chunk_shape: transformed.chunk_shape,
        chunk_edges: Vec::new(),
        data_type: typed.data_type,
        shape,
    };
    Ok(Parsed {
        node: Node::Array(Box::new(array)),
        warning,
    })
}

struct DraftGrid {
    chunk_shape: Vec<u64>,
    separator: char,
}

/// Reads the chunk grid, which must be regular (drafts, "chunk_grid").
fn grid(members: &Map<String, Value>, shape: &[u64], usual: char) -> Result<DraftGrid> {
    let grid = required(members, "chunk_grid")?;
    let wrong = || {
        Error::corrupt(
            "chunk_grid",
            format!("expected an object of type regular, found {grid}"),
        )
    };
    let grid = grid.as_object().ok_or_else(wrong)?;
    if let Some(uri) = grid.get("extension") {
        return Err(Error::unsupported(
            "chunk_grid",
            format!("unsupported extension {uri}"),
        ));
    }
    if grid.get("type").and_then(Value::as_str) != Some("regular") {
        return Err(wrong());
    }
    let chunk_shape = chunk_lengths(grid, "chunk_shape", shape)?;
    let stated = grid
        .get("separator")
        .or_else(|| members.get("dimension_separator"))
        .filter(|stated| !stated.is_null());
    Ok(DraftGrid {
        chunk_shape,
        separator: separator(stated, "separator")?.unwrap_or(usual),
    })
}

/// Reads `chunk_memory_layout`; F order becomes a `transpose` codec. The second value says why chunks cannot be decoded
/// if the layout is an extension.
fn memory_layout(
    members: &Map<String, Value>,
    rank: usize,
) -> Result<(Option<CodecSpec>, Option<String>)> {
    match members.get("chunk_memory_layout") {
        None | Some(Value::Null) => Ok((None, None)),
        Some(Value::String(text)) if text == "C" => Ok((None, None)),
        Some(Value::String(text)) if text == "F" => Ok((reversed(rank), None)),
        Some(extension @ Value::Object(_)) => {
            let uri = uri_of(extension);
            Ok((
                None,
                Some(format!("chunk_memory_layout: unsupported extension {uri}")),
            ))
        }
        Some(other) => Err(Error::corrupt(
            "chunk_memory_layout",
            format!("expected C or F, found {other}"),
        )),
    }
}

struct Transformed {
    chunk_shape: Vec<u64>,
    codecs: Vec<CodecSpec>,
    undecodable: Option<String>,
}

/// Reads `storage_transformers`. Indexed sharding stores many chunks in one object, with their offsets and lengths at
/// its end and no checksum; in final v3 sharding is a codec.
fn transform(
    members: &Map<String, Value>,
    chunk_shape: Vec<u64>,
    codecs: Vec<CodecSpec>,
) -> Result<Transformed> {
    let mut transformed = Transformed {
        chunk_shape,
        codecs,
        undecodable: None,
    };
    match list(members, "storage_transformers")? {
        [] => {}
        [one] if is_sharding(one) => shard(&mut transformed, one)?,
        [one] => {
            let uri = uri_of(one);
            transformed.undecodable =
                Some(format!("storage_transformers: unsupported extension {uri}"));
        }
        several => {
            let uris: Vec<String> = several.iter().map(uri_of).collect();
            let uris = uris.join(", ");
            transformed.undecodable = Some(format!(
                "storage_transformers: only one is supported, found {uris}"
            ));
        }
    }
    Ok(transformed)
}

fn is_sharding(transformer: &Value) -> bool {
    uri_of(transformer).contains("/storage_transformers/sharding/")
        && transformer.get("type").and_then(Value::as_str) == Some("indexed")
}

fn shard(transformed: &mut Transformed, transformer: &Value) -> Result<()> {
    let configuration = transformer.get("configuration").and_then(Value::as_object);
    let counts = lengths(configuration.unwrap_or(&Map::new()), "chunks_per_shard")?;
    let inner = transformed.chunk_shape.clone();
    if counts.len() != inner.len() || counts.contains(&0) {
        return Err(Error::corrupt(
            "chunks_per_shard",
            format!("expected {} numbers above 0, found {counts:?}", inner.len()),
        ));
    }
    let whole = inner.iter().zip(&counts);
    let whole: Option<Vec<u64>> = whole
        .map(|(chunk, count)| chunk.checked_mul(*count))
        .collect();
    transformed.chunk_shape = whole.ok_or_else(|| {
        Error::too_large(
            "chunks_per_shard",
            format!("{counts:?} chunks of {inner:?} are too many elements"),
        )
    })?;
    let codecs: Vec<Value> = transformed.codecs.iter().map(CodecSpec::to_json).collect();
    transformed.codecs = vec![CodecSpec::new(
        "sharding_indexed",
        json!({
            "chunk_shape": inner,
            "codecs": codecs,
            "index_codecs": [{ "name": "bytes", "configuration": { "endian": "little" } }],
            "index_location": "end",
        }),
    )];
    Ok(())
}

/// Builds the key scheme of chunks. The only chunk of an array without dimensions is `c` in the specifications and `c0`
/// in stores of zarr-python. If keys have no prefix, the specifications do not define the key of that chunk, and `0` is
/// usual.
fn keys(location: &ChunkLocation, separator: char) -> KeyScheme {
    let within = |name: &str| [location.base.as_slice(), name.as_bytes()].concat();
    let (scalars, encoding) = if location.index_prefix.is_empty() {
        (["0", "c"], "v2")
    } else {
        (["c", "c0"], "default")
    };
    KeyScheme {
        prefix: within(location.index_prefix),
        separator,
        other_separator: None,
        scalar_keys: scalars.map(within).into(),
        // Final v3 cannot express keys such as `c0/1`, so this encoding is wrong for a draft. That does no harm, since
        // no chunks are stored next to a `zarr.json` that was converted from a draft.
        v3: json!({ "name": encoding, "configuration": { "separator": separator.to_string() } }),
    }
}
