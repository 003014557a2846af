//! What the arrays of all drafts have in common: shape, grid, memory layout, fill value, extensions, keys.
//!
//! A draft says in `Ways` what is its own. What must be understood and is not is an error that names its URI;
//! what only stops chunks from being decoded leaves an array that says why.

use serde_json::{Map, Value, json};

use crate::dialect::draft::{codec_uris, data_type};
use crate::dialect::typestr::Typed;
use crate::dialect::{DialectSettings, Parsed, check_shapes, fill, lengths};
use crate::error::{Error, Result};
use crate::model::{Array, CodecSpec, KeyScheme, Node};

/// Where the chunks of an array lie.
pub(super) struct ChunkLocation {
    /// What every key begins with, the last slash included.
    pub(super) base: Vec<u8>,
    /// What stands before the first index.
    pub(super) mark: &'static str,
}

/// What a draft has for itself.
pub(super) struct Ways {
    /// The dialect's name.
    pub(super) dialect: &'static str,
    /// What stands between two indices if the metadata do not say.
    pub(super) separator: char,
    /// Reads the codecs of a chunk, `bytes` and the memory layout left out, unless a codec of the draft means
    /// `bytes`.
    pub(super) codecs: fn(&Map<String, Value>, &Typed) -> Result<Vec<CodecSpec>>,
}

/// Reads an array's members.
pub(super) fn read(
    ways: &Ways,
    place: &ChunkLocation,
    members: &Map<String, Value>,
    settings: DialectSettings,
) -> Result<Parsed> {
    check_extensions(members)?;
    let shape = lengths(members, "shape")?;
    let grid = grid(members, &shape, ways.separator)?;
    check_shapes(&shape, &grid.chunk_shape)?;
    let data_type::ResolvedType {
        typed,
        warning,
        undecodable,
    } = data_type::read(members, settings)?;
    let (order, unknown_order) = memory_layout(members, shape.len())?;
    let steps = (ways.codecs)(members, &typed)?;
    let chain = codec_uris::chain(order, &typed, steps);
    let transformed = transform(members, grid.chunk_shape, chain)?;
    let fill_value = members.get("fill_value").unwrap_or(&Value::Null);
    let fill_value = data_type::fill_value(&typed.data_type, fill_value)?;
    let array = Array {
        dialect: ways.dialect,
        fill_value: fill::parse_stored(&typed, &fill_value)?,
        codecs: transformed.codecs,
        keys: keys(place, grid.separator),
        dimension_names: Vec::new(),
        attributes: attributes(members)?,
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

/// Refuses extensions that must be understood, since none is known (drafts, "extensions").
pub(super) fn check_extensions(members: &Map<String, Value>) -> Result<()> {
    let extensions = match members.get("extensions") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Array(extensions)) => extensions,
        Some(other) => {
            return Err(Error::corrupt(
                "extensions",
                format!("expected a list, found {other}"),
            ));
        }
    };
    for extension in extensions {
        if extension.get("must_understand") != Some(&Value::Bool(false)) {
            let uri = uri_of(extension);
            return Err(Error::unsupported(
                "extensions",
                format!("{uri} is not known and has to be understood"),
            ));
        }
    }
    Ok(())
}

/// Returns the URI of an extension, or all of it if there is none.
fn uri_of(extension: &Value) -> String {
    let uri = extension.get("extension").and_then(Value::as_str);
    uri.map_or_else(|| extension.to_string(), str::to_string)
}

/// Refuses members that a draft does not define.
pub(super) fn refuse_others(members: &Map<String, Value>, known: &[&str]) -> Result<()> {
    match members.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => {
            let known = known.join(", ");
            Err(Error::unsupported(
                name,
                format!("a member that is not known; there are {known}"),
            ))
        }
    }
}

/// Reads the user's attributes; none if they are missing.
pub(super) fn attributes(members: &Map<String, Value>) -> Result<Map<String, Value>> {
    match members.get("attributes") {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(attributes)) => Ok(attributes.clone()),
        Some(other) => Err(Error::corrupt(
            "attributes",
            format!("expected an object, found {other}"),
        )),
    }
}

struct DraftGrid {
    chunk_shape: Vec<u64>,
    separator: char,
}

/// Reads a regular grid (drafts, "chunk_grid"). A chunk may be of length zero where the array is.
fn grid(members: &Map<String, Value>, shape: &[u64], separator: char) -> Result<DraftGrid> {
    let grid = members
        .get("chunk_grid")
        .ok_or_else(|| Error::corrupt("chunk_grid", "is missing"))?;
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
            format!("{uri} is not known"),
        ));
    }
    if grid.get("type").and_then(Value::as_str) != Some("regular") {
        return Err(wrong());
    }
    let mut chunk_shape = lengths(grid, "chunk_shape")?;
    for (chunk, length) in chunk_shape.iter_mut().zip(shape) {
        if *length == 0 {
            *chunk = (*chunk).max(1);
        }
    }
    let stated = grid
        .get("separator")
        .or_else(|| members.get("dimension_separator"));
    let separator = match stated {
        None | Some(Value::Null) => separator,
        Some(Value::String(text)) if text == "." => '.',
        Some(Value::String(text)) if text == "/" => '/',
        Some(other) => {
            return Err(Error::corrupt(
                "separator",
                format!("expected . or /, found {other}"),
            ));
        }
    };
    Ok(DraftGrid {
        chunk_shape,
        separator,
    })
}

/// Reads `chunk_memory_layout`: F is a transposition. The second is why an extension's layout stops decoding.
fn memory_layout(
    members: &Map<String, Value>,
    rank: usize,
) -> Result<(Option<CodecSpec>, Option<String>)> {
    match members.get("chunk_memory_layout") {
        None | Some(Value::Null) => Ok((None, None)),
        Some(Value::String(text)) if text == "C" => Ok((None, None)),
        Some(Value::String(text)) if text == "F" => Ok((codec_uris::reversed(rank), None)),
        Some(extension @ Value::Object(_)) => {
            let uri = uri_of(extension);
            Ok((
                None,
                Some(format!("chunk_memory_layout: {uri} is not known")),
            ))
        }
        Some(other) => Err(Error::corrupt(
            "chunk_memory_layout",
            format!("expected C or F, found {other}"),
        )),
    }
}

/// Chunks and codecs after the storage transformers.
struct Transformed {
    chunk_shape: Vec<u64>,
    codecs: Vec<CodecSpec>,
    undecodable: Option<String>,
}

/// Reads `storage_transformers`: the one of indexed sharding makes one object of many chunks, with their
/// offsets and lengths at its end and no checksum; in final v3 that is a codec.
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
    let transformers = match members.get("storage_transformers") {
        None | Some(Value::Null) => return Ok(transformed),
        Some(Value::Array(transformers)) => transformers,
        Some(other) => {
            return Err(Error::corrupt(
                "storage_transformers",
                format!("expected a list, found {other}"),
            ));
        }
    };
    match transformers.as_slice() {
        [] => {}
        [one] if is_sharding(one) => shard(&mut transformed, one)?,
        [one] => {
            let uri = uri_of(one);
            transformed.undecodable = Some(format!("storage_transformers: {uri} is not known"));
        }
        several => {
            let uris: Vec<String> = several.iter().map(uri_of).collect();
            let uris = uris.join(", ");
            transformed.undecodable =
                Some(format!("storage_transformers: {uris}: at most one is read"));
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
            format!("{counts:?} chunks of {inner:?}"),
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

/// Builds the keys of chunks. The only chunk of an array without dimensions is `c` in the texts and `c0` in
/// stores of zarr-python; where indices have no mark before them, the texts say nothing and `0` is usual.
fn keys(place: &ChunkLocation, separator: char) -> KeyScheme {
    let within = |name: &str| [place.base.as_slice(), name.as_bytes()].concat();
    let (scalars, encoding) = if place.mark.is_empty() {
        (["0", "c"], "v2")
    } else {
        (["c", "c0"], "default")
    };
    KeyScheme {
        prefix: within(place.mark),
        separator,
        other_separator: None,
        scalar_keys: scalars.map(within).into(),
        // Final v3 has no `c0/1`; nobody looks for chunks beside a document made from a draft.
        v3: json!({ "name": encoding, "configuration": { "separator": separator.to_string() } }),
    }
}
