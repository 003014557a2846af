//! Compares a document with a copy by meaning: default values are ignored.

use serde_json::{Map, Value, json};

use zarr_format::dialect::consolidated::MEMBER;
use zarr_format::dialect::{Dialect, Document, v2, v3};
use zarr_format::json_text;
use zarr_format::model::Node;
use zarr_format::model::document::{ZARR_JSON, ZARRAY};
use zarrfs_store::Key;

/// Documents of more bytes are not parsed into values.
const MAX_COMPARED: usize = 4 << 20;

/// The first difference of two documents.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Difference {
    /// They differ, but are too long to find out where.
    Somewhere,
    /// A member: the names on the way to it, and its values in the document and in the copy, `None` where it is
    /// missing.
    Member(String, Option<String>, Option<String>),
}

/// Returns the first difference of a document and its copy, or `None` if readers see no difference.
pub(super) fn difference(key: &Key, stored: &str, copy: &str) -> Option<Difference> {
    if json_text::is_same(stored, copy) {
        return None;
    }
    if stored.len().max(copy.len()) > MAX_COMPARED {
        return (!is_same_without_copies(stored, copy)).then_some(Difference::Somewhere);
    }
    if describe_same_node(key, stored, copy) {
        return None;
    }
    let stored = json_text::parse(stored.as_bytes()).ok()?;
    let copy = json_text::parse(copy.as_bytes()).unwrap_or_default();
    let [stored, copy] = [stored, copy].map(|value| without_defaults(key, value));
    first_difference(&stored, &copy, String::new())
}

/// Whether two texts are equal without their consolidated metadata, which writers leave out of copies or empty.
fn is_same_without_copies(stored: &str, copy: &str) -> bool {
    let none = [(MEMBER.to_string(), None)];
    let without = |text| Some(json_text::ObjectText::parse(text).ok()?.edited(&none, 1));
    match (without(stored), without(copy)) {
        (Some(stored), Some(copy)) => json_text::is_same(&stored, &copy),
        _ => false,
    }
}

/// Whether two documents describe equal nodes with equal attributes.
fn describe_same_node(key: &Key, stored: &str, copy: &str) -> bool {
    let Some((stored, copy)) = node_of(key, stored).zip(node_of(key, copy)) else {
        return false;
    };
    let fault = |node: &Node| match node {
        Node::Array(array) => array.undecodable.clone(),
        Node::Group(_) => None,
    };
    let attributes = |node: &Node| json_text::parse(node.attributes().text().as_bytes()).ok();
    let has_same_attributes = match (attributes(&stored), attributes(&copy)) {
        (Some(stored), Some(copy)) => first_difference(&stored, &copy, String::new()).is_none(),
        _ => false,
    };
    fault(&stored) == fault(&copy)
        && first_difference(&v3::render(&stored), &v3::render(&copy), String::new()).is_none()
        && has_same_attributes
}

/// Returns the node that a `.zarray` or `zarr.json` describes by itself.
fn node_of(key: &Key, text: &str) -> Option<Node> {
    let dialect: &Dialect = match key.name() {
        name if name == ZARRAY.as_bytes() => &v2::DIALECT,
        name if name == ZARR_JSON.as_bytes() => &v3::DIALECT,
        _ => return None,
    };
    let path = key.parent()?;
    let document = |other: Key| {
        let bytes = (other == *key).then(|| text.to_string().into());
        Document {
            key: other,
            bytes,
            ..Document::default()
        }
    };
    let keys = (dialect.documents)(&path).ok()?;
    let documents: Vec<Document> = keys.into_iter().map(document).collect();
    Some((dialect.parse)(&path, &documents).ok()??.node)
}

/// Members where a missing value differs from an empty one.
const NEVER_LEFT_OUT: [&str; 4] = ["fill_value", "shape", "codecs", "compressor"];

/// Removes everything that a reader assumes anyway: empty members, the default separator, and consolidated metadata.
/// Attributes are kept as they are.
fn without_defaults(key: &Key, document: Value) -> Value {
    let is = |name: &str| key.name() == name.as_bytes();
    let Value::Object(mut members) = document else {
        return document;
    };
    members.remove(MEMBER);
    if !is(ZARRAY) && !is(ZARR_JSON) {
        return Value::Object(members);
    }
    if is(ZARRAY) && members.get("dimension_separator") == Some(&json!(".")) {
        members.remove("dimension_separator");
    }
    for (name, default) in [("default", "/"), ("v2", ".")] {
        let encoding = members.get_mut("chunk_key_encoding");
        let encoding = encoding.filter(|encoding| encoding["name"] == name || **encoding == name);
        if let Some(encoding) = encoding
            && [json!(default), Value::Null].contains(&encoding["configuration"]["separator"])
        {
            *encoding = json!({ "name": name });
        }
    }
    let is_kept = |name: &str, value: &Value| NEVER_LEFT_OUT.contains(&name) || !is_empty(value);
    let members = members
        .into_iter()
        .filter(|(name, value)| is_kept(name, value));
    let members = members.map(|(name, value)| match name.as_str() {
        "attributes" => (name, value),
        _ => (name, without_empty(value)),
    });
    Value::Object(members.collect())
}

/// Removes empty members at any depth.
fn without_empty(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let members = members
                .into_iter()
                .map(|(name, value)| (name, without_empty(value)));
            let members = members.filter(|(_, value)| !is_empty(value));
            Value::Object(members.collect::<Map<_, _>>())
        }
        Value::Array(list) => Value::Array(list.into_iter().map(without_empty).collect()),
        other => other,
    }
}

/// Whether a value is empty: some writers write it where others leave out the member.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}

fn first_difference(stored: &Value, copy: &Value, at: String) -> Option<Difference> {
    if stored == copy {
        return None;
    }
    if let (Some(old), Some(new)) = (stored.as_object(), copy.as_object()) {
        let names = old
            .keys()
            .chain(new.keys().filter(|name| !old.contains_key(*name)));
        return names.into_iter().find_map(|name| {
            let at = if at.is_empty() {
                name.clone()
            } else {
                format!("{at}: {name}")
            };
            match (old.get(name), new.get(name)) {
                (Some(old), Some(new)) => first_difference(old, new, at),
                (old, new) => Some(Difference::Member(at, old.map(text_of), new.map(text_of))),
            }
        });
    }
    let is_number = stored.is_number() && copy.is_number();
    if is_number && stored.as_f64() == copy.as_f64() {
        return None;
    }
    let [stored, copy] = [stored, copy].map(|value| Some(text_of(value)));
    Some(Difference::Member(at, stored, copy))
}

/// Maximum length of a displayed value, in characters.
const MAX_SHOWN: usize = 100;

fn text_of(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(MAX_SHOWN) {
        None => text,
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, stored: &str, copy: &str) -> Option<Difference> {
        difference(&Key::new(format!("a/{name}")).unwrap(), stored, copy)
    }

    fn member(at: &str, stored: Option<&str>, copy: Option<&str>) -> Option<Difference> {
        let text = |value: Option<&str>| value.map(str::to_string);
        Some(Difference::Member(at.to_string(), text(stored), text(copy)))
    }

    #[test]
    fn the_first_difference_is_told_and_an_equal_meaning_is_none() {
        let stored = r#"{"a": 1, "b": {"c": [1, 2]}, "d": 2.0}"#;
        let same = r#"{"d": 2, "b": {"c": [1, 2]}, "a": 1}"#;
        assert_eq!(of(".zattrs", stored, same), None);
        let found = of(
            ".zattrs",
            stored,
            r#"{"a": 1, "b": {"c": [1, 3]}, "d": 2.0}"#,
        );
        assert_eq!(found, member("b: c", Some("[1,2]"), Some("[1,3]")));
        let found = of(".zattrs", stored, r#"{"a": 1, "b": {"c": [1, 2]}}"#);
        assert_eq!(found, member("d", Some("2.0"), None));
        // Attributes are the user's: null is a value.
        assert!(of(".zattrs", "{}", r#"{"a": null}"#).is_some());
    }

    const ZARRAY: &str = r#"{"zarr_format": 2, "shape": [4], "chunks": [2], "dtype": "<f4", "compressor": null,
        "fill_value": "NaN", "order": "C", "filters": null}"#;

    #[test]
    fn defaults_that_a_copy_spells_out_are_no_difference() {
        let with =
            |more: &str| ZARRAY.replace("\"order\": \"C\"", &format!("\"order\": \"C\", {more}"));
        for more in [
            r#""dimension_separator": ".""#,
            r#""dimension_separator": null"#,
        ] {
            assert_eq!(of(".zarray", ZARRAY, &with(more)), None, "{more}");
            assert_eq!(of(".zarray", &with(more), ZARRAY), None, "{more}");
        }
        let empty = ZARRAY.replace(r#""filters": null"#, r#""filters": []"#);
        assert_eq!(of(".zarray", ZARRAY, &empty), None);
        let slash = r#""dimension_separator": "/""#;
        let expected = member("dimension_separator", None, Some(r#""/""#));
        assert_eq!(of(".zarray", ZARRAY, &with(slash)), expected);
        // The default separator is not reported as the difference.
        let both = with(r#""dimension_separator": ".""#).replace("[4]", "[5]");
        assert_eq!(
            of(".zarray", ZARRAY, &both),
            member("shape", Some("[4]"), Some("[5]"))
        );
        let filled = ZARRAY.replace("\"NaN\"", "null");
        assert!(of(".zarray", ZARRAY, &filled).is_some());
    }

    #[test]
    fn copies_of_others_do_not_count() {
        let with = r#"{"zarr_format": 2, "consolidated_metadata": {"metadata": {}}}"#;
        assert_eq!(of(".zgroup", r#"{"zarr_format": 2}"#, with), None);
    }

    #[test]
    fn documents_of_v3_are_compared_by_what_they_mean() {
        let document = |keys: &str, data_type: &str, more: &str| {
            format!(
                r#"{{"zarr_format": 3, "node_type": "array", "shape": [4], "data_type": {data_type},
                "chunk_grid": {{"name": "regular", "configuration": {{"chunk_shape": [2]}}}},
                "chunk_key_encoding": {keys}, "fill_value": 0, "codecs": [{{"name": "bytes"}}]{more}}}"#
            )
        };
        let slash = r#"{"name": "default", "configuration": {"separator": "/"}}"#;
        let dot = r#"{"name": "default", "configuration": {"separator": "."}}"#;
        let stored = document(r#""default""#, r#""uint8""#, "");
        let more = r#", "attributes": {}, "storage_transformers": [], "dimension_names": null"#;
        for copy in [
            document(slash, r#""uint8""#, more),
            document(r#"{"name": "default"}"#, r#"{"name": "uint8"}"#, ""),
        ] {
            assert_eq!(of("zarr.json", &stored, &copy), None, "{copy}");
        }
        assert!(of("zarr.json", &stored, &document(dot, r#""uint8""#, "")).is_some());
        let attributes = document(slash, r#""uint8""#, r#", "attributes": {"a": 1}"#);
        assert_eq!(
            of("zarr.json", &stored, &attributes),
            member("attributes", None, Some(r#"{"a":1}"#))
        );
        // A node that cannot be read is compared, too.
        let unknown = document(r#""default""#, "7", "");
        assert_eq!(of("zarr.json", &unknown, &document(slash, "7", more)), None);
    }
}
