//! Checks metadata documents against the specifications of their dialects.
//!
//! Each member is checked by itself, so that one fault does not hide another. Whether zarrfs can read the node is
//! checked by `walk::node`: if it cannot, although no rule is broken, that is an error of its own.

use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::finding::Finding;
use crate::rules::foreign::{Remedy, in_place_of_document};
use crate::spec::{Spec, SpecSection};
use zarr_format::dialect::Document;
use zarr_format::dialect::draft::DocumentRole;
use zarr_format::error::Error;
use zarr_format::json_text::{ObjectText, find_member};
use zarr_format::model::document::{ATTRIBUTES_JSON, ZARR_JSON, ZARRAY, ZATTRS, ZGROUP};
use zarrfs_store::Key;

mod draft;
mod n5;
mod rules;
mod v2;
mod v3;
mod values;

pub(crate) use rules::shortened;
use rules::{DocumentRules, Members};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DocumentKind {
    /// A document in the folder of its node, whose file name tells the dialect.
    InNodeFolder,
    /// The entry point of the given Zarr v3 draft: the `zarr.json` at the root.
    EntryPoint(&'static str),
    /// The document of an array or a group in the given Zarr v3 draft.
    OfDraft(&'static str, DocumentRole),
}

impl DocumentKind {
    /// Returns the specification of the document's dialect.
    pub(crate) fn spec(self, key: &Key) -> Spec {
        match self {
            DocumentKind::EntryPoint(draft) | DocumentKind::OfDraft(draft, _) => {
                Spec::of(Some(draft))
            }
            DocumentKind::InNodeFolder => match key.name() {
                name if name == ZARR_JSON.as_bytes() => Spec::V3,
                name if name == ATTRIBUTES_JSON.as_bytes() => Spec::N5,
                _ => Spec::V2,
            },
        }
    }

    /// Returns the section of the specification that describes the document.
    pub(crate) fn section(self, key: &Key) -> SpecSection {
        let is = |name: &str| key.name() == name.as_bytes();
        self.spec(key).section(match self {
            DocumentKind::EntryPoint(_) => "Entry point metadata",
            DocumentKind::OfDraft(_, DocumentRole::Group) => "Group metadata",
            DocumentKind::OfDraft(_, DocumentRole::Array) => "Array metadata",
            DocumentKind::InNodeFolder if is(ATTRIBUTES_JSON) => "Datasets",
            DocumentKind::InNodeFolder if is(ZGROUP) => "Groups",
            DocumentKind::InNodeFolder if is(ZATTRS) => "Attributes",
            DocumentKind::InNodeFolder => "Metadata",
        })
    }
}

/// Returns a finding for each fault in a document's text.
pub(crate) fn check_document(kind: DocumentKind, key: &Key, bytes: Vec<u8>) -> Vec<Finding> {
    let strict = strict_faults(key, &bytes);
    let document = Document {
        key: key.clone(),
        bytes: Some(bytes.into()),
        ..Document::default()
    };
    let mut findings = Vec::new();
    match document.object() {
        Ok(Some(mut members)) => {
            if let Ok(Some(text)) = document.text() {
                restore(text, &mut members);
            }
            findings.extend(strict);
            if let Some(rules) = rules_of(kind, key, &members) {
                findings.extend(rules.apply(key, &members));
            }
        }
        Ok(None) => {}
        Err(error) => {
            let finding = no_object(key, &document, &error);
            findings.push(finding.with_section(kind.section(key)));
        }
    }
    findings
}

/// Reports a document that is not a JSON object, and what it is instead, if its format is recognized.
fn no_object(key: &Key, document: &Document, error: &Error) -> Finding {
    let text = document.text().ok().flatten();
    if text.is_some_and(is_other_json) {
        let detail = error.detail();
        let value = detail
            .strip_prefix("JSON, but not an object: ")
            .unwrap_or(detail);
        let message = format!("the file is {value}, but must be a JSON object");
        return Finding::error("not-an-object", key, message);
    }
    let bytes = document.bytes.as_deref().unwrap_or_default();
    match in_place_of_document(bytes) {
        Some(foreign) => {
            let message = format!("the file is {}, not JSON", foreign.what);
            Finding::error("not-json", key, message).with_remedy(foreign.remedy)
        }
        None => {
            let why = error.within(&key.to_string()).to_string();
            let why = why.strip_prefix(&format!("{key}: ")).unwrap_or(&why);
            let message = format!(
                "the file is not valid JSON: {}",
                why.trim_start_matches("not JSON: ")
            );
            Finding::error("not-json", key, message).with_remedy(Remedy::CopyAgain)
        }
    }
}

/// Whether a text is valid JSON, but not an object.
fn is_other_json(text: &str) -> bool {
    !text.trim_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Returns the faults for which a strict JSON parser rejects a document. zarrfs accepts the document.
fn strict_faults(key: &Key, bytes: &[u8]) -> Vec<Finding> {
    let mut findings = Vec::new();
    if bytes.starts_with(b"\xef\xbb\xbf") {
        let message = "the file begins with a byte order mark; strict JSON readers reject it";
        let finding = Finding::warning("byte-order-mark", key, message);
        findings.push(finding.with_section(Spec::Json.section("Character Encoding")));
    }
    let plain = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if let Err(error) = serde_json::from_slice::<IgnoredAny>(plain) {
        let (line, column) = (error.line(), error.column());
        let message =
            format!("strict JSON readers reject the file at line {line}, column {column}");
        let finding = Finding::error("strict-json", key, message);
        let finding = finding.with_section(Spec::Json.section("Numbers"));
        findings.push(finding.with_habit("Python's json with NaN or Infinity as bare words"));
    }
    let text = str::from_utf8(plain).unwrap_or_default();
    if let Some(error) = ObjectText::parse(text)
        .ok()
        .and_then(|object| object.check_unique().err())
    {
        let message = format!("the file has a member twice: {error}");
        let finding = Finding::error("member-twice", key, message);
        findings.push(
            finding
                .with_part(error.subject())
                .with_section(Spec::Json.section("Objects")),
        );
    }
    findings
}

/// Adds the members `attributes` and `consolidated_metadata` to `members`, if they are not objects. The parser leaves
/// out these members because they may be long, so a value of more than 4 KiB becomes "...".
fn restore(text: &str, members: &mut Members) {
    for name in ["attributes", "consolidated_metadata"] {
        let place = find_member(text, name).ok().flatten();
        let value = place.and_then(|place| text.get(place)).unwrap_or("{");
        if !value.starts_with('{') {
            let value = match value.as_bytes().first() {
                Some(b'[') if value.len() > 4096 => json!(["..."]),
                Some(b'"') if value.len() > 4096 => json!("..."),
                _ => serde_json::from_str(value).unwrap_or_default(),
            };
            members.insert(name.to_string(), value);
        }
    }
}

/// Returns the rules for a metadata document, or `None` if any JSON object is valid.
fn rules_of(kind: DocumentKind, key: &Key, members: &Members) -> Option<&'static DocumentRules> {
    let is = |name: &str| key.name() == name.as_bytes();
    match kind {
        DocumentKind::EntryPoint(draft) => draft::entry_rules_of(draft),
        DocumentKind::OfDraft(draft, role) => draft::rules_of(draft, role),
        DocumentKind::InNodeFolder if members.contains_key("metadata_encoding") => {
            let is_object = members
                .get("metadata_encoding")
                .is_some_and(Value::is_object);
            draft::entry_rules_of(if is_object { "draft2022" } else { "draft2020" })
        }
        DocumentKind::InNodeFolder if is(ZARR_JSON) => {
            Some(match members.get("node_type").and_then(Value::as_str) {
                Some("array") => &v3::ARRAY,
                Some("group") => &v3::GROUP,
                _ => &v3::OTHER,
            })
        }
        DocumentKind::InNodeFolder if is(ZARRAY) => Some(&v2::ARRAY),
        DocumentKind::InNodeFolder if is(ZGROUP) => Some(&v2::GROUP),
        DocumentKind::InNodeFolder if is(ATTRIBUTES_JSON) => {
            let is_dataset = ["dimensions", "blockSize", "dataType"];
            let is_dataset = is_dataset.iter().any(|name| members.contains_key(*name));
            Some(if is_dataset { &n5::DATASET } else { &n5::GROUP })
        }
        DocumentKind::InNodeFolder => None,
    }
}
