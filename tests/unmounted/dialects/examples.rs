//! Tests that the examples of five specifications are parsed as the surrounding text describes them.
//!
//! Each error of a specification is noted in a test. Examples with a superfluous comma, which is invalid JSON, are
//! parsed without it.

use serde_json::{Map, Value, json};
use zarr_format::dialect::draft::{EntryPoint, draft_of};
use zarr_format::dialect::typestr;
use zarr_format::model::{Array, DataType};
use zarrfs_array::hierarchy::Hierarchy;
use zarrfs_store::Key;

use crate::common;
use crate::dialects::hierarchies::{CORE_2020, array, documents, fault, group, hierarchy, key};

/// Returns the text of a specification, or `None` if this machine has no copy of it.
fn seed(name: &str) -> Option<String> {
    let folder = common::needs::shared("specs/seeds")?;
    let bytes = std::fs::read(folder.join(name)).unwrap();
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the first JSON object or list that follows `words` in a text.
fn after(text: &str, words: &str, open: char, close: char) -> String {
    let place = text
        .find(words)
        .unwrap_or_else(|| panic!("'{words}' is not there"));
    let rest = &text[place + words.len()..];
    let rest = &rest[rest.find(open).unwrap()..];
    let mut depth = 0;
    for (end, letter) in rest.char_indices() {
        depth += i32::from(letter == open) - i32::from(letter == close);
        if depth == 0 {
            return rest[..=end].to_string();
        }
    }
    panic!("'{words}' is followed by no whole example")
}

fn example(text: &str, words: &str) -> Value {
    serde_json::from_str(&after(text, words, '{', '}')).unwrap()
}

/// Parses an example of a specification after its superfluous comma was removed.
fn mended(text: &str, words: &str) -> Value {
    let text = after(text, words, '{', '}');
    assert!(serde_json::from_str::<Value>(&text).is_err(), "{text}");
    let bare: String = text.split_whitespace().collect();
    serde_json::from_str(&bare.replace(",}", "}")).unwrap()
}

fn codecs(array: &Array) -> Value {
    json!(
        array
            .codecs
            .iter()
            .map(|codec| codec.to_json())
            .collect::<Vec<_>>()
    )
}

fn attributes() -> Map<String, Value> {
    let value = json!({"foo": 42, "bar": "apples", "baz": [1, 2, 3, 4]});
    value.as_object().unwrap().clone()
}

/// Checks the example array of the drafts: "a two-dimensional array of 64-bit little-endian floating point numbers
/// [...] 10000 rows and 1000 columns, [...] each chunk has 1000 rows and 100 columns", C order, gzip.
fn is_the_array_of_the_drafts(array: &Array) {
    assert_eq!(
        (&array.shape, &array.chunk_shape),
        (&vec![10000, 1000], &vec![1000, 100])
    );
    assert_eq!(array.data_type, DataType::Float(8));
    assert_eq!(
        codecs(array),
        json!([
            {"name": "bytes", "configuration": {"endian": "little"}},
            {"name": "gzip", "configuration": {"level": 1}},
        ])
    );
    assert_eq!(array.fill_value.json, "NaN");
    assert_eq!(array.attributes.to_map(), attributes());
}

/// Checks the example array of the drafts' datetime extension: the shape of the other example, nanoseconds, and a fill
/// value of zero bytes.
fn is_the_array_of_dates(array: &Array) {
    assert!(matches!(&array.data_type, DataType::DateTime(unit) if unit.name == "ns"));
    assert_eq!(array.fill_value.bytes, [0; 8]);
    assert_eq!(
        (&array.shape, &array.chunk_shape),
        (&vec![10000, 1000], &vec![1000, 100])
    );
    assert_eq!(array.undecodable, None);
}

fn is_an_entry_point(members: &Value, name: &str) {
    let members = members.as_object().unwrap();
    let draft = draft_of(members).unwrap().unwrap();
    let entry = EntryPoint::new(draft, &Key::root(), Some(members)).unwrap();
    assert_eq!(entry.name(), name);
}

fn one(entry: Value, place: &str, document: &Value) -> std::sync::Arc<Hierarchy> {
    hierarchy(&documents(&[
        ("zarr.json", entry),
        (place, document.clone()),
    ]))
}

#[test]
fn examples_of_the_draft_of_2019_are_read() {
    let Some(text) = seed("v3-draft-2019.rst") else {
        return;
    };
    let document = example(&text, "compression prior to storage::");
    let store = documents(&[("meta/foo/baz.array.json", document)]);
    let found = array(&hierarchy(&store), "foo/baz");
    is_the_array_of_the_drafts(&found);
    assert_eq!(found.keys.candidates(&[0, 0]), [b"data/foo/baz/0.0"]);
    // The example in the specification has a superfluous comma.
    let document = mended(&text, "the JSON document below defines a group::");
    let store = documents(&[("meta/foo/bar.group.json", document)]);
    assert_eq!(
        group(&hierarchy(&store), "foo/bar"),
        json!({"spam": "ham", "eggs": 42})
    );
}

#[test]
fn examples_of_the_draft_of_2020_are_read() {
    let Some(text) = seed("v3-draft-2020-10.rst") else {
        return;
    };
    let entry = example(
        &text,
        "JSON is being used for encoding of group and array metadata::",
    );
    is_an_entry_point(&entry, "draft2020");
    let extended = example(&text, "ignored if not understood::");
    assert_eq!(extended["extensions"][0]["must_understand"], false);
    is_an_entry_point(&extended, "draft2020");
    let place = "meta/root/foo/baz.array.json";
    let document = example(
        &text,
        "compressed using gzip compression prior to storage::",
    );
    let found = array(&one(entry.clone(), place, &document), "foo/baz");
    is_the_array_of_the_drafts(&found);
    assert_eq!(found.keys.candidates(&[0, 0]), [b"data/root/foo/baz/c0/0"]);
    let document = example(
        &text,
        "chunking as above, but using an extension data type::",
    );
    is_the_array_of_dates(&array(&one(entry.clone(), place, &document), "foo/baz"));
    // The example in the specification has a superfluous comma.
    let document = mended(&text, "the JSON document below defines an explicit group::");
    let store = one(entry, "meta/root/foo/bar.group.json", &document);
    assert_eq!(group(&store, "foo/bar"), json!({"spam": "ham", "eggs": 42}));
    // The specification says: "the identifier for the chunk at grid index (1, 23, 45) is the string c1/23/45".
    assert!(text.contains("\"c1/23/45\""));
    let mut keys = found.keys;
    keys.prefix = b"c".to_vec();
    assert_eq!(keys.candidates(&[1, 23, 45]), [b"c1/23/45"]);
}

#[test]
fn examples_of_the_draft_of_2022_are_read() {
    let Some(text) = seed("v3-draft-2022-05.txt") else {
        return;
    };
    let encoding = example(
        &text,
        "the metadata_encoding value must be the following object:",
    );
    let entry = example(
        &text,
        "JSON is being used for encoding of group and array metadata:",
    );
    assert_eq!(entry["metadata_encoding"], encoding);
    is_an_entry_point(&entry, "draft2022");
    let extended = example(
        &text,
        "an extension is being used which may be ignored if not understood:",
    );
    is_an_entry_point(&extended, "draft2022");
    let place = "meta/foo/baz.array.json";
    // The data type `<f8` of the example is missing from the specification's table of data types.
    let document = example(&text, "compressed using gzip compression prior to storage:");
    let found = array(&one(entry.clone(), place, &document), "foo/baz");
    is_the_array_of_the_drafts(&found);
    assert_eq!(found.keys.candidates(&[1, 0]), [b"data/foo/baz/c1/0"]);
    // The fill value of the example is null, which the specification forbids.
    let document = example(
        &text,
        "chunking as above, but using an extension data type:",
    );
    assert!(document["fill_value"].is_null());
    is_the_array_of_dates(&array(&one(entry.clone(), place, &document), "foo/baz"));
    // The example in the specification has a superfluous comma.
    let document = mended(&text, "the JSON document below defines an explicit group:");
    let store = one(entry, "meta/foo/bar.group.json", &document);
    assert_eq!(group(&store, "foo/bar"), json!({"spam": "ham", "eggs": 42}));
}

#[test]
fn a_group_with_a_trailing_comma_is_not_json() {
    let entry = json!({"zarr_format": CORE_2020, "metadata_encoding": CORE_2020, "metadata_key_suffix": ".json"});
    let store = documents(&[("zarr.json", entry)]);
    store.set(
        key("meta/root/g.group.json"),
        br#"{"attributes": {"eggs": 42,}}"#.to_vec(),
    );
    assert!(fault(&hierarchy(&store), "g").contains("not JSON"));
}

#[test]
fn examples_of_v2_are_read() {
    let Some(text) = seed("v2.txt") else { return };
    let zarray = example(
        &text,
        "compressed using the Blosc compression library prior to storage:",
    );
    let zattrs = example(&text, "the JSON object below encodes three attributes");
    let store = documents(&[("foo/bar/.zarray", zarray), ("foo/bar/.zattrs", zattrs)]);
    let found = array(&hierarchy(&store), "foo/bar");
    assert_eq!(
        (&found.shape, &found.chunk_shape),
        (&vec![10000, 10000], &vec![1000, 1000])
    );
    let names: Vec<_> = found
        .codecs
        .iter()
        .map(|codec| codec.name.as_str())
        .collect();
    assert_eq!(names, ["numcodecs.delta", "bytes", "blosc"]);
    assert_eq!(found.attributes.to_map(), attributes());
    assert_eq!(found.keys.candidates(&[2, 4])[0], b"foo/bar/2.4");
    let written = example(&text, "print(open('data/example.zarr/.zarray').read())");
    let found = array(&hierarchy(&documents(&[(".zarray", written)])), "");
    assert_eq!(
        (found.data_type, found.fill_value.json),
        (DataType::Int(4), json!(42))
    );
    let root = example(&text, "print(open('data/group.zarr/.zgroup').read())");
    assert_eq!(
        group(&hierarchy(&documents(&[(".zgroup", root)])), ""),
        json!({})
    );
    for (words, size) in [
        (
            "named \u{201c}r\u{201d}, \u{201c}g\u{201d} and \u{201c}b\u{201d}:",
            3,
        ),
        ("\u{201c}z\u{201d} is a 2 by 2 array of floats:", 24),
        (
            "two sub-fields \u{201c}baz\u{201d} and \u{201c}qux\u{201d}:",
            12,
        ),
    ] {
        let dtype: Value = serde_json::from_str(&after(&text, words, '[', ']')).unwrap();
        assert_eq!(
            typestr::parse(&dtype).unwrap().data_type.size(),
            Some(size),
            "{dtype}"
        );
    }
}

#[test]
fn examples_of_the_differences_of_v2_and_v3_are_read() {
    let Some(text) = seed("v2-vs-v3-differences.md") else {
        return;
    };
    let zarray = example(&text, "(3 files) `.zarray`:");
    let zattrs = example(&text, "`.zattrs`: ```json");
    let store = documents(&[(".zarray", zarray), (".zattrs", zattrs)]);
    let old = array(&hierarchy(&store), "");
    assert_eq!(old.attributes.members().len(), 2);
    let v3 = example(&text, "(1 file) `zarr.json`:");
    let new = array(&hierarchy(&documents(&[("zarr.json", v3)])), "");
    // The specification presents two examples as the same array, but the second one has fewer columns.
    assert_eq!(
        (old.shape.as_slice(), new.shape.as_slice()),
        (&[10000, 10000][..], &[10000, 1000][..])
    );
    assert_eq!(new.data_type, old.data_type);
    assert_eq!(new.fill_value, old.fill_value);
    assert_eq!(new.attributes, old.attributes);
    assert_eq!(new.keys.candidates(&[0, 0]), [b"c/0/0"]);
    assert_eq!(new.keys.candidates(&[]), [b"c"]);
    assert_eq!(old.keys.candidates(&[0, 0])[0], b"0.0");
    // In the section "Compression and codecs", the examples for v2 and v3 describe the same chunk, except for the
    // filter.
    let v2_model = example(&text, "### V2 compression model");
    let v3_model = example(&text, "### V3 codec pipeline");
    assert_eq!(v2_model["compressor"]["id"], "blosc");
    assert_eq!(v3_model["codecs"].as_array().unwrap().len(), 3);
}
