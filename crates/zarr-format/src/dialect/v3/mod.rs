//! Reads and writes `zarr.json` of final v3 (core specification 3.1).
//!
//! Some writers store codecs and encodings as bare words or without configuration, omit the `array -> bytes` codec, or
//! omit `codecs`; these documents are read too. Unknown members make a node unreadable unless they have
//! `must_understand: false`.

use serde_json::{Map, Value, json};

use crate::dialect::document::{check_format, lengths, named, required, separator};
use crate::dialect::typestr::StoredType;
use crate::dialect::{Dialect, Document, DocumentMap, Parsed, attributes, fill};
use crate::error::{Error, Result};
use crate::json_text;
use crate::key::Key;
use crate::model::document::ZARR_JSON;
use crate::model::{Array, Attributes, CodecSpec, Group, KeyScheme, Node};

mod chunk_grid;
mod data_type;

/// The dialect of final Zarr v3.
pub const DIALECT: Dialect = Dialect {
    name: "v3",
    documents,
    parse,
    edit,
};

fn documents(path: &Key) -> Result<Vec<Key>> {
    Ok(vec![path.child(ZARR_JSON.as_bytes())?])
}

fn parse(path: &Key, documents: &[Document]) -> Result<Option<Parsed>> {
    let Some(document) = documents.first() else {
        return Ok(None);
    };
    let Some(members) = document.object()? else {
        return Ok(None);
    };
    let node = node(path, &members).map_err(|error| error.about(&document.key))?;
    // The specification requires `codecs`, so a missing list is worth a warning.
    let has_no_codecs = matches!(node, Node::Array(_)) && !members.contains_key("codecs");
    let warning = "codecs is missing: reading chunks as little-endian bytes without compression";
    Ok(Some(Parsed {
        node: node.with_attributes(attributes::from_member(document)),
        warning: has_no_codecs.then(|| warning.to_string()),
    }))
}

fn edit(documents: &[Document], new: &Attributes) -> Result<DocumentMap> {
    attributes::edit_attributes(attributes::first_stored(documents)?, new)
}

/// Reads an array or group from `zarr.json`, except its attributes.
fn node(path: &Key, members: &Map<String, Value>) -> Result<Node> {
    check_format(members, 3)?;
    match members.get("node_type").and_then(Value::as_str) {
        Some("group") => group(members).map(Node::Group),
        Some("array") => Ok(Node::Array(Box::new(array(path, members)?))),
        _ => {
            let found = members.get("node_type").unwrap_or(&Value::Null);
            let why = format!("expected group or array, found {found}");
            Err(Error::corrupt("node_type", why))
        }
    }
}

fn group(members: &Map<String, Value>) -> Result<Group> {
    let known = [
        "zarr_format",
        "node_type",
        "attributes",
        "consolidated_metadata",
    ];
    match unknown_extension(members, &known) {
        Some(why) => Err(Error::unsupported("", why)),
        None => Ok(Group::default()),
    }
}

fn array(path: &Key, members: &Map<String, Value>) -> Result<Array> {
    let shape = lengths(members, "shape")?;
    let grid = chunk_grid(members, &shape)?;
    let data_type = data_type::parse(required(members, "data_type")?)?;
    let codecs = match members.get("codecs") {
        None => vec![StoredType::little(data_type.clone()).bytes_codec()],
        Some(codecs) => self::codecs(codecs)?,
    };
    let typed = StoredType::new(data_type, codecs.iter().any(is_big_endian));
    let fill_value = fill::parse_stored(&typed, members.get("fill_value").unwrap_or(&Value::Null))?;
    Ok(Array {
        dialect: DIALECT.name,
        fill_value,
        codecs,
        keys: chunk_keys(path, members.get("chunk_key_encoding"))?,
        dimension_names: dimension_names(members, shape.len())?,
        attributes: Attributes::default(),
        undecodable: undecodable(members),
        shape,
        chunk_shape: grid.shape,
        chunk_edges: grid.edges,
        data_type: typed.data_type,
    })
}

/// Whether a codec stores elements big-endian. A fill value in base64 is then big-endian too.
fn is_big_endian(codec: &CodecSpec) -> bool {
    let endian = codec.configuration.get("endian").and_then(Value::as_str);
    ["bytes", "endian"].contains(&codec.name.as_str()) && endian == Some("big")
}

/// Returns why no chunk of an array can be decoded, or `None` if `zarr.json` states no reason.
fn undecodable(members: &Map<String, Value>) -> Option<String> {
    let known = [
        "zarr_format",
        "node_type",
        "shape",
        "data_type",
        "chunk_grid",
        "chunk_key_encoding",
        "fill_value",
        "codecs",
        "attributes",
        "dimension_names",
        "storage_transformers",
    ];
    let other = || {
        unknown_key_encoding(members.get("chunk_key_encoding"))
            .or_else(|| unknown_extension(members, &known))
    };
    match members.get("storage_transformers") {
        None | Some(Value::Null) => other(),
        Some(found) if is_empty(found) => other(),
        Some(found) => Some(format!(
            "storage_transformers: unsupported transformer {found}"
        )),
    }
}

/// Whether a JSON value is an empty list, which writers in R store as an empty object.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(list) => list.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}

/// Returns the first unknown member of `zarr.json` that must be understood. An empty list `extensions`, which the
/// drafts of v3 had, is accepted.
fn unknown_extension(members: &Map<String, Value>, known: &[&str]) -> Option<String> {
    let (name, _) = members.iter().find(|(name, value)| {
        !known.contains(&name.as_str())
            && value.get("must_understand") != Some(&Value::Bool(false))
            && !(*name == "extensions" && is_empty(value))
    })?;
    Some(format!(
        "{name}: unsupported extension, and its must_understand is not false"
    ))
}

fn chunk_grid(members: &Map<String, Value>, shape: &[u64]) -> Result<chunk_grid::ChunkGrid> {
    let grid = required(members, "chunk_grid")?;
    let (name, configuration) = named(grid, "chunk_grid")?;
    chunk_grid::parse(name, configuration, shape)
}

/// Reads `chunk_key_encoding` (core specification, "Chunk key encoding"): `default` puts `c` before the indices, `v2`
/// nothing. Chunks with an unknown key encoding are never looked up.
fn chunk_keys(path: &Key, encoding: Option<&Value>) -> Result<KeyScheme> {
    let default = json!("default");
    let encoding = encoding.unwrap_or(&default);
    let (name, configuration) = named(encoding, "chunk_key_encoding")?;
    let (prefix, usual, scalar) = match name {
        "default" => ("c", '/', Some("c")),
        "v2" => ("", '.', Some("0")),
        _ => ("", '/', None),
    };
    let separator = match scalar {
        Some(_) => {
            let stated = configuration.and_then(|members| members.get("separator"));
            separator(stated, "separator")?.unwrap_or(usual)
        }
        None => usual,
    };
    let prefix = match prefix {
        "" => String::new(),
        prefix => format!("{prefix}{separator}"),
    };
    let within = |name: &str| {
        if path.is_root() {
            name.into()
        } else {
            [path.as_bytes(), b"/", name.as_bytes()].concat()
        }
    };
    Ok(KeyScheme {
        prefix: within(&prefix),
        separator,
        other_separator: None,
        scalar_keys: scalar.into_iter().map(within).collect(),
        v3: match scalar {
            Some(_) => {
                json!({ "name": name, "configuration": { "separator": separator.to_string() } })
            }
            None => encoding.clone(),
        },
    })
}

/// Returns why no chunk can be found, or `None` if the chunk key encoding is known.
fn unknown_key_encoding(encoding: Option<&Value>) -> Option<String> {
    let (name, _) = named(encoding?, "chunk_key_encoding").ok()?;
    let known = ["default", "v2"].contains(&name);
    (!known).then(|| {
        format!("chunk_key_encoding: unsupported encoding {name} (supported: default, v2)")
    })
}

fn codecs(value: &Value) -> Result<Vec<CodecSpec>> {
    let wrong = || {
        Error::corrupt(
            "codecs",
            format!("expected a list of codecs, found {value}"),
        )
    };
    let list = value.as_array().ok_or_else(wrong)?;
    list.iter()
        .map(|codec| {
            let (name, configuration) = named(codec, "codecs")?;
            Ok(CodecSpec {
                name: name.to_string(),
                configuration: configuration.cloned().unwrap_or_default(),
            })
        })
        .collect()
}

fn dimension_names(members: &Map<String, Value>, rank: usize) -> Result<Vec<Option<String>>> {
    match members.get("dimension_names") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(names)) if names.len() == rank => Ok(names
            .iter()
            .map(|name| name.as_str().map(str::to_string))
            .collect()),
        Some(Value::String(name)) if rank == 1 => Ok(vec![Some(name.clone())]),
        Some(other) => Err(Error::corrupt(
            "dimension_names",
            format!("expected {rank} names, found {other}"),
        )),
    }
}

/// Returns the `zarr.json` of a node. The attributes keep their author's spelling of numbers and words.
pub fn document(node: &Node) -> Vec<u8> {
    let text = render(node).to_string();
    json_text::document_with(&text, "attributes", node.attributes().text())
        .unwrap_or_else(|_| json_text::document(&text))
}

/// Returns the `zarr.json` of a node as a JSON value. `attributes` is always an empty object.
pub fn render(node: &Node) -> Value {
    match node {
        Node::Group(_) => json!({ "zarr_format": 3, "node_type": "group", "attributes": {} }),
        Node::Array(array) => render_array(array),
    }
}

fn render_array(array: &Array) -> Value {
    let codecs: Vec<Value> = array.codecs.iter().map(CodecSpec::to_json).collect();
    let mut rendered = json!({
        "zarr_format": 3,
        "node_type": "array",
        "shape": array.shape,
        "data_type": data_type::render(&array.data_type),
        "chunk_grid": chunk_grid::render(&array.chunk_shape, &array.chunk_edges),
        "chunk_key_encoding": array.keys.v3,
        "fill_value": array.fill_value.json,
        "codecs": codecs,
        "attributes": {},
    });
    if !array.dimension_names.is_empty() {
        rendered["dimension_names"] = json!(array.dimension_names);
    }
    rendered["storage_transformers"] = json!([]);
    rendered
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Value {
        json!({
            "zarr_format": 3,
            "node_type": "array",
            "shape": [10000, 1000],
            "dimension_names": ["rows", null],
            "data_type": "float64",
            "chunk_grid": { "name": "regular", "configuration": { "chunk_shape": [1000, 100] } },
            "chunk_key_encoding": { "name": "default", "configuration": { "separator": "/" } },
            "codecs": [{ "name": "bytes", "configuration": { "endian": "little" } }],
            "fill_value": "NaN",
            "attributes": { "foo": 42 }
        })
    }

    fn read(document: &Value) -> Result<Node> {
        node(&Key::new("a/b").unwrap(), document.as_object().unwrap())
    }

    #[test]
    fn the_example_of_the_specification_is_read() {
        let Node::Array(array) = read(&example()).unwrap() else {
            panic!("not an array")
        };
        assert_eq!(array.shape, [10000, 1000]);
        assert_eq!(array.keys.candidates(&[1, 0]), [b"a/b/c/1/0"]);
        assert_eq!(array.keys.candidates(&[]), [b"a/b/c"]);
        assert_eq!(array.dimension_names, [Some("rows".to_string()), None]);
        assert_eq!(
            read(&render(&Node::Array(array.clone()))).unwrap(),
            Node::Array(array)
        );
    }

    #[test]
    fn missing_codecs_mean_little_endian_bytes_with_a_warning() {
        let mut document = example();
        let Node::Array(stated) = read(&document).unwrap() else {
            panic!("not an array")
        };
        document.as_object_mut().unwrap().shift_remove("codecs");
        let document = Document {
            key: Key::new("a/b/zarr.json").unwrap(),
            bytes: Some(document.to_string().into()),
            ..Document::default()
        };
        let read = parse(&Key::new("a/b").unwrap(), &[document])
            .unwrap()
            .unwrap();
        assert!(matches!(&read.node, Node::Array(array) if array.codecs == stated.codecs));
        assert!(read.warning.unwrap().contains("codecs is missing"));
    }

    #[test]
    fn errors_name_the_faulty_member() {
        for (member, wrong) in [
            ("shape", json!([-1, 2])),
            ("shape", json!([1])),
            (
                "chunk_grid",
                json!({"name": "regular", "configuration": {"chunk_shape": [0, 1]}}),
            ),
            ("chunk_grid", json!({"name": "spiral"})),
            ("fill_value", json!("x")),
            ("codecs", json!({})),
            ("codecs", Value::Null),
            ("dimension_names", json!(["a"])),
            ("node_type", json!("chunk")),
            (
                "chunk_key_encoding",
                json!({"name": "default", "configuration": {"separator": "-"}}),
            ),
        ] {
            let mut document = example();
            document[member] = wrong;
            let error = read(&document).unwrap_err().to_string();
            let named = [member, "separator", "chunk shape", "chunk_shape"]
                .iter()
                .any(|name| error.contains(name));
            assert!(named, "{member}: {error}");
        }
    }

    #[test]
    fn extensions_that_must_be_understood_stop_decoding() {
        let mut document = example();
        document["novel"] = json!({ "must_understand": false });
        assert!(
            matches!(read(&document).unwrap(), Node::Array(array) if array.undecodable.is_none())
        );
        document["novel"] = json!({ "must_understand": true });
        assert!(
            matches!(read(&document).unwrap(), Node::Array(array) if array.undecodable.is_some())
        );
    }

    #[test]
    fn deviating_members_of_other_writers_are_read() {
        let grid =
            |chunk: Value| json!({"name": "regular", "configuration": {"chunk_shape": chunk}});
        let flat = |changes: Value| {
            let mut document = example();
            document["shape"] = json!([3]);
            document["chunk_grid"] = grid(json!([5]));
            document["dimension_names"] = Value::Null;
            for (name, value) in changes.as_object().unwrap() {
                document[name] = value.clone();
            }
            match read(&document) {
                Ok(Node::Array(array)) => *array,
                other => panic!("{changes}: {other:?}"),
            }
        };
        let plain = flat(json!({}));
        for same in [
            json!({"shape": 3, "chunk_grid": grid(json!(5))}),
            json!({"extensions": []}),
            json!({"extensions": {}, "storage_transformers": {}}),
            json!({"zarr_format": 3.0}),
        ] {
            assert_eq!(flat(same.clone()), plain, "{same}");
        }
        assert_eq!(
            flat(json!({"shape": [0], "chunk_grid": grid(json!([0]))})).chunk_shape,
            [1]
        );
        let named = flat(json!({"dimension_names": "time"}));
        assert_eq!(named.dimension_names, [Some("time".to_string())]);
        for other in [json!({"extensions": [{}]}), json!({"novel": []})] {
            assert!(flat(other.clone()).undecodable.is_some(), "{other}");
        }
    }
}
