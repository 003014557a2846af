//! Reads Zarr v2: `.zarray`, `.zgroup`, `.zattrs`.
//!
//! Byte order, memory order, filters and compressor become codecs with final-v3 names (`codecs.rs`). If
//! `dimension_separator` is missing, both separators are tried: some writers joined indices by slashes before
//! `dimension_separator` existed.

use serde_json::{Map, Value, json};

use crate::dialect::document::{
    check_format, check_shapes, chunk_lengths, lengths, required, separator,
};
use crate::dialect::typestr::StoredType;
use crate::dialect::{Dialect, Document, DocumentMap, Parsed, attributes, fill, typestr};
use crate::error::Result;
use crate::json_text::{self, ObjectText};
use crate::key::Key;
use crate::model::document::{ZARRAY, ZATTRS, ZGROUP};
use crate::model::{Array, Attributes, DataType, Group, KeyScheme, Node};

pub(super) mod codecs;

/// The dialect of Zarr v2.
pub const DIALECT: Dialect = Dialect {
    name: "v2",
    documents,
    parse,
    edit,
};

/// JSON member in which netcdf-c describes an array. It is in `.zarray` since 4.8.1, at first in capitals, and is an
/// attribute since 4.9.3.
const NCZARR_ARRAY: [&str; 2] = ["_NCZARR_ARRAY", "_nczarr_array"];

fn documents(path: &Key) -> Result<Vec<Key>> {
    [ZARRAY, ZGROUP, ZATTRS]
        .iter()
        .map(|name| path.child(name.as_bytes()))
        .collect()
}

fn parse(path: &Key, documents: &[Document]) -> Result<Option<Parsed>> {
    let [zarray, zgroup, zattrs] = documents else {
        return Ok(None);
    };
    if let Some(members) = zarray.object()? {
        let attributes = attributes::from_document(zattrs);
        let array = array(path, &members, attributes).map_err(|error| error.about(&zarray.key))?;
        return Ok(Some(Node::Array(Box::new(array)).into()));
    }
    let group = |_| {
        let attributes = attributes::from_document(zattrs);
        Node::Group(Group { attributes }).into()
    };
    Ok(zgroup.object()?.map(group))
}

/// Changes the user attributes of a node, which v2 stores in `.zattrs`.
fn edit(documents: &[Document], attributes: &Attributes) -> Result<DocumentMap> {
    let [_, _, zattrs] = documents else {
        return Ok(Vec::new());
    };
    if attributes.is_empty() && zattrs.bytes.is_none() {
        return Ok(Vec::new());
    }
    check_attributes(zattrs)?;
    let text = json_text::document(attributes.text());
    Ok(vec![(zattrs.key.clone(), text)])
}

/// Fails with `Invalid` if a JSON object in `.zattrs` has duplicate names. A `.zattrs` that does not parse may be
/// replaced.
fn check_attributes(zattrs: &Document) -> Result<()> {
    let text = zattrs.text().unwrap_or_default();
    match text.map(ObjectText::parse) {
        Some(Ok(object)) => attributes::check_unique(zattrs, &object),
        Some(Err(_)) | None => Ok(()),
    }
}

/// Reads an array from `.zarray` (v2 specification, "Metadata").
fn array(path: &Key, members: &Map<String, Value>, attributes: Attributes) -> Result<Array> {
    check_format(members, 2)?;
    let shape = lengths(members, "shape")?;
    let chunk_shape = chunk_lengths(members, "chunks", &shape)?;
    check_shapes(&shape, &chunk_shape)?;
    let typed = data_type(members)?;
    Ok(Array {
        dialect: DIALECT.name,
        fill_value: fill::parse_stored(&typed, members.get("fill_value").unwrap_or(&Value::Null))?,
        codecs: codecs::codecs(members, shape.len(), &typed)?,
        keys: keys(path, members)?,
        dimension_names: dimension_names(members, &attributes, shape.len()),
        attributes,
        undecodable: codecs::undecodable(codecs::filters(members)?, &typed.data_type),
        shape,
        chunk_shape,
        chunk_edges: Vec::new(),
        data_type: typed.data_type,
    })
}

/// Reads `dtype`. The data type of object arrays depends on the filters.
fn data_type(members: &Map<String, Value>) -> Result<StoredType> {
    let dtype = required(members, "dtype")?;
    let is_nczarr = NCZARR_ARRAY.iter().any(|name| members.contains_key(*name));
    match dtype.as_str() {
        Some("|O" | "O") => Ok(StoredType::little(codecs::object_type(codecs::filters(
            members,
        )?)?)),
        // netcdf-c declares text of one character (`<U1`) but stores one byte for each element.
        Some("<U1" | ">U1") if is_nczarr => Ok(StoredType::little(DataType::FixedBytes(1))),
        _ => typestr::parse(dtype),
    }
}

/// Reads `dimension_separator` and returns the key scheme.
fn keys(path: &Key, members: &Map<String, Value>) -> Result<KeyScheme> {
    let stated = members.get("dimension_separator");
    let stated = stated.filter(|stated| !stated.is_null());
    Ok(match separator(stated, "dimension_separator")? {
        Some(stated) => key_scheme(path, stated, None),
        None => key_scheme(path, '.', Some('/')),
    })
}

/// Returns the key scheme of v2: chunks are in the folder of the array, named by their indices, or `0` without
/// dimensions.
pub(super) fn key_scheme(path: &Key, separator: char, other_separator: Option<char>) -> KeyScheme {
    let prefix = if path.is_root() {
        Vec::new()
    } else {
        [path.as_bytes(), b"/"].concat()
    };
    KeyScheme {
        scalar_keys: vec![[prefix.as_slice(), b"0"].concat()],
        prefix,
        separator,
        other_separator,
        v3: json!({ "name": "v2", "configuration": { "separator": separator.to_string() } }),
    }
}

/// Reads the dimension names, if each dimension has a name: from xarray's attribute `_ARRAY_DIMENSIONS`, or else from
/// netcdf-c's members. If a dimension belongs to another group, its name is the last part of its path, as in xarray.
fn dimension_names(
    members: &Map<String, Value>,
    attributes: &Attributes,
    rank: usize,
) -> Vec<Option<String>> {
    if let Some(names) = names_in(&attributes.get("_ARRAY_DIMENSIONS"), rank) {
        return names;
    }
    let of_document = NCZARR_ARRAY
        .iter()
        .filter_map(|name| members.get(*name).cloned());
    let of_attributes = NCZARR_ARRAY.iter().filter_map(|name| attributes.get(name));
    let paths = of_document.chain(of_attributes).find_map(|array| {
        let names = ["dimrefs", "dimension_references"].iter();
        names.filter_map(|name| array.get(name).cloned()).next()
    });
    let paths = names_in(&paths, rank).unwrap_or_default().into_iter();
    let last = |path: String| path.rsplit('/').next().map(str::to_string);
    paths.map(|path| path.and_then(last)).collect()
}

/// Reads a list of dimension names. Returns `None` if their number is not that of the dimensions.
fn names_in(value: &Option<Value>, rank: usize) -> Option<Vec<Option<String>>> {
    let names = value
        .as_ref()?
        .as_array()
        .filter(|names| names.len() == rank)?;
    let names = names.iter().map(|name| name.as_str().map(str::to_string));
    Some(names.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(in crate::dialect) fn read(changes: Value) -> Result<Array> {
        let mut document = json!({
            "zarr_format": 2,
            "shape": [10, 20],
            "chunks": [5, 6],
            "dtype": ">f8",
            "compressor": { "id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1 },
            "fill_value": "NaN",
            "order": "F",
            "filters": [{ "id": "delta", "dtype": ">f8" }],
        });
        for (name, value) in changes.as_object().unwrap() {
            document[name] = value.clone();
        }
        array(
            &Key::new("a").unwrap(),
            document.as_object().unwrap(),
            Attributes::default(),
        )
    }

    #[test]
    fn order_filters_and_compressor_become_a_codec_chain() {
        let names: Vec<_> = read(json!({}))
            .unwrap()
            .codecs
            .into_iter()
            .map(|codec| codec.name)
            .collect();
        assert_eq!(names, ["transpose", "numcodecs.delta", "bytes", "blosc"]);
    }

    #[test]
    fn chunks_without_a_stated_separator_have_two_possible_keys() {
        assert_eq!(
            read(json!({})).unwrap().keys.candidates(&[1, 2]),
            [b"a/1.2", b"a/1/2"]
        );
        let stated = read(json!({ "dimension_separator": "/" })).unwrap();
        assert_eq!(stated.keys.candidates(&[1, 2]), [b"a/1/2"]);
        assert_eq!(stated.keys.candidates(&[]), [b"a/0"]);
    }

    #[test]
    fn unknown_data_types_are_kept() {
        let array = read(json!({ "dtype": [["x", "|O"]], "fill_value": null })).unwrap();
        assert!(matches!(array.data_type, DataType::Unknown(_)));
    }

    #[test]
    fn dimension_names_are_read_from_nczarr_paths() {
        let dims = |key: &str| json!({key: ["/g/lat", "/lon"], "storage": "chunked"});
        let named = |members: Value, attributes: Value| {
            let attributes = Attributes::parse(&attributes.to_string()).unwrap();
            let names = dimension_names(members.as_object().unwrap(), &attributes, 2);
            let names: Option<Vec<String>> = names.into_iter().collect();
            names.unwrap()
        };
        for (members, attributes) in [
            (json!({"_NCZARR_ARRAY": dims("dimrefs")}), json!({})),
            (
                json!({"_nczarr_array": dims("dimrefs")}),
                json!({"_ARRAY_DIMENSIONS": ["x"]}),
            ),
            (json!({}), json!({"_nczarr_array": dims("dimrefs")})),
            (
                json!({}),
                json!({"_nczarr_array": dims("dimension_references")}),
            ),
        ] {
            assert_eq!(named(members, attributes), ["lat", "lon"]);
        }
        let xarray = json!({"_ARRAY_DIMENSIONS": ["y", "x"]});
        assert_eq!(
            named(json!({"_NCZARR_ARRAY": dims("dimrefs")}), xarray),
            ["y", "x"]
        );
        for odd in [json!(1), json!({"dimrefs": 1}), json!({"dimrefs": ["/x"]})] {
            assert!(named(json!({"_NCZARR_ARRAY": odd}), json!({})).is_empty());
        }
    }

    #[test]
    fn scalar_and_empty_shapes_of_other_writers_are_read() {
        let flat = |changes: Value| {
            let plain = json!({"order": "C", "filters": null, "dtype": "<i2", "fill_value": 0});
            let mut document = plain.as_object().unwrap().clone();
            document.extend(changes.as_object().unwrap().clone());
            read(Value::Object(document)).map(|array| (array.shape, array.chunk_shape))
        };
        for (changes, expected) in [
            (json!({"shape": 3, "chunks": 5}), ([3], [5])),
            (json!({"shape": [3], "chunks": 5}), ([3], [5])),
            (json!({"shape": [0], "chunks": [0]}), ([0], [1])),
            (
                json!({"shape": 3, "chunks": 5, "zarr_format": 2.0}),
                ([3], [5]),
            ),
        ] {
            let expected = (expected.0.to_vec(), expected.1.to_vec());
            assert_eq!(flat(changes.clone()).unwrap(), expected, "{changes}");
        }
        for changes in [
            json!({"shape": [3], "chunks": [0]}),
            json!({"shape": 3}),
            json!({"shape": "3", "chunks": 5}),
            json!({"shape": true, "chunks": 5}),
            json!({"shape": -3, "chunks": 5}),
        ] {
            assert!(flat(changes.clone()).is_err(), "{changes}");
        }
    }

    #[test]
    fn invalid_members_are_refused() {
        for (changes, named) in [
            (json!({ "zarr_format": 4 }), "zarr_format"),
            (json!({ "zarr_format": null }), "zarr_format"),
            (json!({ "shape": null }), "shape"),
            (json!({ "chunks": null }), "chunks"),
            (json!({ "dtype": null }), "dtype"),
            (json!({ "chunks": [0, 1] }), "chunk shape"),
            (json!({ "order": "K" }), "order"),
            (json!({ "filters": 3 }), "filters"),
            (json!({ "filters": [{ "level": 1 }] }), "id"),
            (json!({ "compressor": { "level": 1 } }), "id"),
            (json!({ "dimension_separator": "-" }), "dimension_separator"),
        ] {
            let error = read(changes.clone()).unwrap_err().to_string();
            assert!(error.contains(named), "{changes}: {error}");
        }
    }
}
