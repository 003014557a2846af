//! Compares the copies in consolidated metadata with the documents: differing, extra and missing copies.
//!
//! A document without a copy is found when its node is checked. For that, the keys of the copies (`CopiedKeys`) are
//! passed to the nodes below the group.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::context::CheckContext;
use crate::finding::Finding;
use crate::node_findings::NodeFindings;
use crate::rules::documents::shortened;
use crate::spec::{Spec, SpecSection};
use zarr_format::dialect::consolidated::ConsolidatedDocument;
use zarr_format::dialect::consolidated::{
    EntryRanges, MEMBER, invalid_names, parse_document, parse_member,
};
use zarr_format::dialect::{Dialect, Document, v2, v3};
use zarr_format::error::Result;
use zarr_format::json_text;
use zarr_format::model::Node;
use zarr_format::model::document::{ZARR_JSON, ZARRAY, ZATTRS, is_consolidated};
use zarrfs_array::hierarchy::MAX_DOCUMENT;
use zarrfs_store::request_context::UNLIMITED;
use zarrfs_store::sync::budget::Reservation;
use zarrfs_store::sync::pool::parallel_map;
use zarrfs_store::{EntryKind, Key};

/// The keys of the documents that a group's consolidated metadata contain.
pub(crate) struct CopiedKeys {
    holder: ConsolidatedDocument,
    keys: HashSet<Key>,
    section: Option<SpecSection>,
    _reservation: Reservation,
}

impl CopiedKeys {
    /// Returns a finding if a stored document is missing from the consolidated metadata. For a document of a Zarr v3
    /// draft, `top` is the folder of the draft's entry point.
    pub(crate) fn missing(&self, document: &Key, top: Option<&Key>) -> Option<Finding> {
        self.holder.expected_name(document, top)?;
        if self.keys.contains(document) || self.is_left_out(document) {
            return None;
        }
        let message =
            format!("{document} is missing from the consolidated metadata; readers do not see it");
        let finding = Finding::error("consolidated-missing", self.holder.key(), message);
        let finding = finding.with_part(document.to_string()).with_remedy(FIX);
        Some(finding.with_section(self.section))
    }

    /// Whether a document may be missing from consolidated metadata, because it is the entry point of a Zarr v3 draft.
    fn is_left_out(&self, document: &Key) -> bool {
        let top = self.holder.top_of_draft();
        top.is_some() && document.parent().as_ref() == top && document.name() == b"zarr.json"
    }
}

const FIX: &str = "run zarrfs check --fix consolidated";

/// Compares the consolidated metadata in the document `bytes` with the documents that are stored.
pub(crate) fn check(
    context: &CheckContext,
    holder: ConsolidatedDocument,
    bytes: &[u8],
    dialect: Option<&str>,
    findings: &mut NodeFindings,
) -> Option<Arc<CopiedKeys>> {
    // Only the specification of Zarr v3 has a section on consolidated metadata.
    let section = (dialect == Some("v3")).then_some(Spec::V3.section("Additional fields"));
    let key = holder.key();
    let places = match read(key, bytes) {
        Ok(places) => places?,
        Err(error) => {
            let message = format!("the consolidated metadata cannot be read: {error}");
            let finding = Finding::error("consolidated-unreadable", key, message);
            findings.add(finding.with_remedy(FIX).with_section(section));
            return None;
        }
    };
    for name in invalid_names(bytes, is_consolidated(key.name())).unwrap_or_default() {
        findings.add(copy_of_no_document(key, &name).with_section(section));
    }
    let reservation = reserve_keys(context, places.len());
    let mut keys = HashSet::new();
    compare_parts(context, &holder, bytes, &places, &mut |copied, faults| {
        if reservation.is_some() {
            keys.extend(copied);
        }
        findings.extend(
            faults
                .into_iter()
                .map(|finding| finding.with_section(section)),
        );
    });
    let Some(reservation) = reservation else {
        findings.add(too_many(key, places.len()));
        return None;
    };
    Some(Arc::new(CopiedKeys {
        holder,
        keys,
        section,
        _reservation: reservation,
    }))
}

struct CopiedDocument {
    key: Key,
    range: Range<usize>,
}

/// Compares consolidated metadata with the stored documents, in batches. Passes the keys and the findings of each batch
/// to `take`.
fn compare_parts(
    context: &CheckContext,
    holder: &ConsolidatedDocument,
    bytes: &[u8],
    places: &EntryRanges,
    take: &mut dyn FnMut(Vec<Key>, Vec<Finding>),
) {
    for part in places.chunks(4096) {
        let copies = part.iter().filter_map(|(key, range)| {
            Some(CopiedDocument {
                key: full_key(holder.folder(), key)?,
                range: range.clone(),
            })
        });
        let copies: Vec<CopiedDocument> = copies.collect();
        let keys = copies.iter().map(|copy| copy.key.clone()).collect();
        let compare = |copied: CopiedDocument| {
            let copy = bytes.get(copied.range).unwrap_or_default();
            compare(context, holder.key(), &copied.key, copy)
        };
        let findings = parallel_map(context.threads, copies, &compare);
        take(keys, findings.into_iter().flatten().collect());
    }
}

/// Reports an entry of consolidated metadata whose name cannot be that of a document.
fn copy_of_no_document(key: &Key, name: &str) -> Finding {
    let message =
        format!("{name:?} in the consolidated metadata is not the name of a metadata file");
    let finding = Finding::error("consolidated-extra", key, message);
    finding.with_part(name).with_remedy(FIX)
}

fn reserve_keys(context: &CheckContext, count: usize) -> Option<Reservation> {
    let count = u64::try_from(count).unwrap_or(u64::MAX);
    // A key takes about 128 bytes. The keys may take 1/16 of the budget, since chunks need the rest.
    let needed = count.saturating_mul(128);
    let is_small = needed <= context.memory.limit() / 16;
    is_small.then(|| context.memory.try_reserve(needed))?
}

fn too_many(key: &Key, count: usize) -> Finding {
    let message = format!("{count} copies do not fit in --memory; missing copies are not reported");
    Finding::warning("consolidated-too-many", key, message).with_remedy("give more --memory")
}

/// Returns the key of the document that an entry of consolidated metadata copies, or `None` if the key is invalid.
fn full_key(folder: &Key, relative: &Key) -> Option<Key> {
    if relative.is_root() {
        return None;
    }
    if folder.is_root() {
        return Some(relative.clone());
    }
    Key::new([folder.as_bytes(), b"/", relative.as_bytes()].concat()).ok()
}

fn read(key: &Key, bytes: &[u8]) -> Result<Option<EntryRanges>> {
    if is_consolidated(key.name()) {
        return parse_document(bytes).map(Some);
    }
    parse_member(bytes)
}

fn is_folder(context: &CheckContext, key: &Key) -> bool {
    let meta = context.store().head(&UNLIMITED, key);
    meta.is_ok_and(|meta| meta.is_some_and(|meta| meta.kind == EntryKind::Directory))
}

/// Compares a document in consolidated metadata with the stored document. Returns a finding if they differ or if no
/// document is stored.
fn compare(context: &CheckContext, key: &Key, full: &Key, copy: &[u8]) -> Option<Finding> {
    let copy = str::from_utf8(copy).unwrap_or_default();
    let stored = match context.store().get(&UNLIMITED, full, MAX_DOCUMENT) {
        Ok(Some(object)) => object.bytes,
        // Writers add empty attributes to consolidated metadata for nodes that have no `.zattrs`.
        Ok(None) if full.name() == ZATTRS.as_bytes() && json_text::is_empty(copy) => return None,
        Ok(None) => {
            let message = format!("{full} is in the consolidated metadata, but not in the store");
            let finding = Finding::error("consolidated-extra", key, message);
            // If the chunks of the array are still stored, the copy in the consolidated metadata can restore the lost
            // document.
            let remedy = match full.parent() {
                Some(folder) if folder.is_root() => format!("write the copy to {full}"),
                Some(folder) if is_folder(context, &folder) => {
                    format!("write the copy to {full}, or remove {folder} and {FIX}")
                }
                _ => FIX.to_string(),
            };
            return Some(finding.with_part(full.to_string()).with_remedy(remedy));
        }
        // The error in the stored document is reported when the check reaches the document's node.
        Err(_) => return None,
    };
    let stored = String::from_utf8_lossy(&stored);
    let stored = stored.strip_prefix('\u{feff}').unwrap_or(&stored);
    let (part, message) = match difference(full, stored, copy)? {
        Difference::Somewhere => {
            let message = format!(
                "{full} differs in the consolidated metadata: {} bytes, but {} in the store",
                copy.len(),
                stored.len()
            );
            (full.to_string(), message)
        }
        Difference::Member(at, stored, copy) => {
            let has = |value: Option<String>| value.unwrap_or("missing".to_string());
            let at = if at.is_empty() {
                String::new()
            } else {
                format!(": {at}")
            };
            let part = format!("{full}{at}");
            let message = format!(
                "{part} is {} in the consolidated metadata, but {} in the store",
                has(copy),
                has(stored)
            );
            (part, message)
        }
    };
    let finding = Finding::error("consolidated-differs", key, message);
    Some(finding.with_part(part).with_remedy(FIX))
}

#[derive(Debug, PartialEq, Eq)]
enum Difference {
    /// The documents differ, but are too long to find the member that differs.
    Somewhere,
    /// A JSON member differs. The fields are the path of the member, its value in the stored document and its value in
    /// the copy; a value is `None` if the member is missing.
    Member(String, Option<String>, Option<String>),
}

/// Returns the first difference between a stored document and its copy, or `None` if readers see the same node in both.
fn difference(key: &Key, stored: &str, copy: &str) -> Option<Difference> {
    if json_text::is_same(stored, copy) {
        return None;
    }
    // Documents of more than 4 MiB are compared unparsed, which takes less memory.
    if stored.len().max(copy.len()) > 4 << 20 {
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

/// Whether two JSON texts are equal without their consolidated metadata, which writers leave out or empty in copies.
fn is_same_without_copies(stored: &str, copy: &str) -> bool {
    let none = [(MEMBER.to_string(), None)];
    let without = |text| Some(json_text::ObjectText::parse(text).ok()?.edited(&none, 1));
    match (without(stored), without(copy)) {
        (Some(stored), Some(copy)) => json_text::is_same(&stored, &copy),
        _ => false,
    }
}

/// Whether two documents describe the same node with the same attributes.
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

/// Returns the node that a `.zarray` or `zarr.json` describes, without attributes from other documents.
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

/// Removes the members of a document for which a missing member means the same: empty ones, the default separator, and
/// consolidated metadata. Attributes are not changed.
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
    // In these members, an empty value differs from a missing one.
    let is_stated = |name: &str| ["fill_value", "shape", "codecs", "compressor"].contains(&name);
    let members = members
        .into_iter()
        .filter(|(name, value)| is_stated(name) || !is_empty(value));
    let members = members.map(|(name, value)| match name.as_str() {
        "attributes" => (name, value),
        _ => (name, without_empty(value)),
    });
    Value::Object(members.collect())
}

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

/// Whether a JSON value is null, false or empty, which some writers store where others leave out the member.
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
                (old, new) => Some(Difference::Member(
                    at,
                    old.map(shortened),
                    new.map(shortened),
                )),
            }
        });
    }
    let is_number = stored.is_number() && copy.is_number();
    if is_number && stored.as_f64() == copy.as_f64() {
        return None;
    }
    let [stored, copy] = [stored, copy].map(|value| Some(shortened(value)));
    Some(Difference::Member(at, stored, copy))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(name: &str, stored: &str, copy: &str) -> Option<Difference> {
        difference(&Key::new(format!("a/{name}")).unwrap(), stored, copy)
    }

    fn member(at: &str, stored: Option<&str>, copy: Option<&str>) -> Option<Difference> {
        let text = |value: Option<&str>| value.map(str::to_string);
        Some(Difference::Member(at.to_string(), text(stored), text(copy)))
    }

    #[test]
    fn the_first_difference_in_meaning_is_reported() {
        let stored = r#"{"a": 1, "b": {"c": [1, 2]}, "d": 2.0}"#;
        let same = r#"{"d": 2, "b": {"c": [1, 2]}, "a": 1}"#;
        assert_eq!(compared(".zattrs", stored, same), None);
        let difference = compared(
            ".zattrs",
            stored,
            r#"{"a": 1, "b": {"c": [1, 3]}, "d": 2.0}"#,
        );
        assert_eq!(difference, member("b: c", Some("[1,2]"), Some("[1,3]")));
        let difference = compared(".zattrs", stored, r#"{"a": 1, "b": {"c": [1, 2]}}"#);
        assert_eq!(difference, member("d", Some("2.0"), None));
        // Attributes belong to the user, so an attribute that is null differs from a missing one.
        assert!(compared(".zattrs", "{}", r#"{"a": null}"#).is_some());
    }

    const ZARRAY: &str = r#"{"zarr_format": 2, "shape": [4], "chunks": [2], "dtype": "<f4", "compressor": null,
        "fill_value": "NaN", "order": "C", "filters": null}"#;

    #[test]
    fn defaults_written_out_in_a_copy_are_no_difference() {
        let with =
            |more: &str| ZARRAY.replace("\"order\": \"C\"", &format!("\"order\": \"C\", {more}"));
        for more in [
            r#""dimension_separator": ".""#,
            r#""dimension_separator": null"#,
        ] {
            assert_eq!(compared(".zarray", ZARRAY, &with(more)), None, "{more}");
            assert_eq!(compared(".zarray", &with(more), ZARRAY), None, "{more}");
        }
        let empty = ZARRAY.replace(r#""filters": null"#, r#""filters": []"#);
        assert_eq!(compared(".zarray", ZARRAY, &empty), None);
        let slash = r#""dimension_separator": "/""#;
        let expected = member("dimension_separator", None, Some(r#""/""#));
        assert_eq!(compared(".zarray", ZARRAY, &with(slash)), expected);
        // The shape differs as well, and only that difference is reported.
        let both = with(r#""dimension_separator": ".""#).replace("[4]", "[5]");
        assert_eq!(
            compared(".zarray", ZARRAY, &both),
            member("shape", Some("[4]"), Some("[5]"))
        );
        let filled = ZARRAY.replace("\"NaN\"", "null");
        assert!(compared(".zarray", ZARRAY, &filled).is_some());
    }

    #[test]
    fn consolidated_metadata_within_a_copy_is_ignored() {
        let with = r#"{"zarr_format": 2, "consolidated_metadata": {"metadata": {}}}"#;
        assert_eq!(compared(".zgroup", r#"{"zarr_format": 2}"#, with), None);
    }

    #[test]
    fn v3_documents_are_compared_by_meaning() {
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
            assert_eq!(compared("zarr.json", &stored, &copy), None, "{copy}");
        }
        assert!(compared("zarr.json", &stored, &document(dot, r#""uint8""#, "")).is_some());
        let attributes = document(slash, r#""uint8""#, r#", "attributes": {"a": 1}"#);
        assert_eq!(
            compared("zarr.json", &stored, &attributes),
            member("attributes", None, Some(r#"{"a":1}"#))
        );
        let unknown = document(r#""default""#, "7", "");
        assert_eq!(
            compared("zarr.json", &unknown, &document(slash, "7", more)),
            None
        );
    }
}
