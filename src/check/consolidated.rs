//! Consolidated metadata against the documents that they are copies of: what differs, what is there no more, and what is
//! not in them.
//!
//! Each copy is compared here with its document. Documents without a copy show when their nodes are visited, for which the
//! keys of the copies are passed on to what lies below (`CopiedKeys`).

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;

use crate::check::context::CheckContext;
use crate::check::finding::{Finding, V3};
use crate::check::findings::NodeFindings;
use crate::dialect::consolidated::{
    DocumentPlaces, MEMBER, names_of_nothing, parse_document, parse_member,
};
use crate::dialect::copies::CopyHolder;
use crate::error::Result;
use crate::hierarchy::MAX_DOCUMENT;
use crate::json_text::{self, ObjectText};
use crate::model::document::is_consolidated;
use crate::request_context::UNLIMITED;
use crate::store::Key;
use crate::sync::budget::Reservation;
use crate::sync::pool::parallel_map;

/// The keys of which a document has copies.
pub(super) struct CopiedKeys {
    holder: CopyHolder,
    keys: HashSet<Key>,
    section: Option<(&'static str, &'static str)>,
    /// The memory that the keys count in.
    _room: Reservation,
}

impl CopiedKeys {
    /// Returns what is to be said of a stored document, if it should have a copy and has none; `top` is the folder of the
    /// entry point if it is the document of a draft.
    pub(super) fn missing(&self, document: &Key, top: Option<&Key>) -> Option<Finding> {
        self.holder.wanted_name(document, top)?;
        if self.keys.contains(document) || self.is_left_out(document) {
            return None;
        }
        let expected = format!("a copy of each document, among them {document}");
        let key = self.holder.key();
        let finding = Finding::error("consolidated-missing", key, expected, "none");
        Some(by(finding.of_part(document.to_string()), self.section))
    }

    /// Whether writers may leave a document out: the entry point of a draft.
    fn is_left_out(&self, document: &Key) -> bool {
        let top = self.holder.top_of_draft();
        top.is_some() && document.parent().as_ref() == top && document.name() == b"zarr.json"
    }
}

/// The longest document of which values are made to find a difference, in bytes.
const MAX_COMPARED: usize = 4 << 20;

/// Compares the consolidated metadata in a document with what is stored.
pub(super) fn check(
    context: &CheckContext,
    (holder, bytes): (CopyHolder, &[u8]),
    dialect: Option<&str>,
    findings: &mut NodeFindings,
) -> Option<Arc<CopiedKeys>> {
    let section = (dialect == Some("v3")).then_some((V3, "Additional fields"));
    let key = holder.key();
    let places = match read(key, bytes) {
        Ok(places) => places?,
        Err(error) => {
            let expected = "copies of documents";
            let finding =
                Finding::error("consolidated-unreadable", key, expected, error.to_string());
            findings.add(by(finding, section));
            return None;
        }
    };
    for name in names_of_nothing(bytes, is_consolidated(key.name())).unwrap_or_default() {
        findings.add(by(of_nothing(key, &name), section));
    }
    let room = room_of_keys(context, places.len());
    let mut keys = HashSet::new();
    compare_parts(context, (&holder, bytes), &places, &mut |copied, found| {
        if room.is_some() {
            keys.extend(copied);
        }
        findings.extend(found.into_iter().map(|finding| by(finding, section)));
    });
    let Some(room) = room else {
        findings.add(too_many(key, places.len()));
        return None;
    };
    Some(Arc::new(CopiedKeys {
        holder,
        keys,
        section,
        _room: room,
    }))
}

/// Compares copies part by part; gives the keys of each part, and what was found there.
fn compare_parts(
    context: &CheckContext,
    (holder, bytes): (&CopyHolder, &[u8]),
    places: &DocumentPlaces,
    give: &mut dyn FnMut(Vec<Key>, Vec<Finding>),
) {
    for part in places.chunks(PART) {
        let copies = part
            .iter()
            .filter_map(|(key, place)| Some((full_key(holder.folder(), key)?, place.clone())));
        let copies: Vec<(Key, Range<usize>)> = copies.collect();
        let keys = copies.iter().map(|(key, _)| key.clone()).collect();
        let found = compare_all(context, (holder.key(), bytes), copies);
        give(keys, found.collect());
    }
}

/// A copy under a name that no node can have.
fn of_nothing(key: &Key, name: &str) -> Finding {
    let expected = "copies of documents that are there";
    let found = format!("one of {name:?}, which names none");
    Finding::error("consolidated-extra", key, expected, found).of_part(name)
}

/// Returns room in memory for so many keys of copies, if there is enough.
fn room_of_keys(context: &CheckContext, count: usize) -> Option<Reservation> {
    let count = u64::try_from(count).unwrap_or(u64::MAX);
    let needed = count.saturating_mul(KEY_BYTES);
    let is_small = needed <= context.memory.limit() / KEYS_SHARE;
    is_small.then(|| context.memory.try_reserve(needed))?
}

/// Compares several copies with their documents, side by side.
fn compare_all(
    context: &CheckContext,
    (key, bytes): (&Key, &[u8]),
    copies: Vec<(Key, Range<usize>)>,
) -> impl Iterator<Item = Finding> {
    let compare = |(full, place): (Key, Range<usize>)| {
        let copy = bytes.get(place).unwrap_or_default();
        compare(context, (key, &full), copy)
    };
    let compared = parallel_map(context.threads, copies, &compare);
    compared.into_iter().flatten()
}

/// Copies of which the keys take more memory than there is.
fn too_many(key: &Key, count: usize) -> Finding {
    let expected = "copies whose keys fit in --memory";
    let found = format!("{count} copies: documents without one are not told");
    Finding::warning("consolidated-too-many", key, expected, found)
}

/// How many copies are compared before what was found is kept.
const PART: usize = 4096;

/// The part of the budget that the keys of one document may take, one in so many bytes: chunks need the rest.
const KEYS_SHARE: u64 = 16;

/// What the key of a copy takes in memory, in bytes, at most times.
const KEY_BYTES: u64 = 128;

/// Returns the key of a document of which there is a copy; nothing if it cannot be one.
fn full_key(folder: &Key, relative: &Key) -> Option<Key> {
    if relative.is_root() {
        return None;
    }
    if folder.is_root() {
        return Some(relative.clone());
    }
    Key::new([folder.as_bytes(), b"/", relative.as_bytes()].concat()).ok()
}

fn read(key: &Key, bytes: &[u8]) -> Result<Option<DocumentPlaces>> {
    if is_consolidated(key.name()) {
        return parse_document(bytes).map(Some);
    }
    parse_member(bytes)
}

/// Names the section on consolidated metadata: only the text of final v3 has one.
fn by(finding: Finding, section: Option<(&'static str, &'static str)>) -> Finding {
    match section {
        Some((document, heading)) => finding.by(document, heading),
        None => finding,
    }
}

/// Compares a copy with its document.
fn compare(context: &CheckContext, (key, full): (&Key, &Key), copy: &[u8]) -> Option<Finding> {
    let copy = str::from_utf8(copy).unwrap_or_default();
    let stored = match context.store().get(&UNLIMITED, full, MAX_DOCUMENT) {
        Ok(Some(object)) => object.bytes,
        Ok(None) => {
            let expected = "copies of documents that are there";
            let finding = Finding::error(
                "consolidated-extra",
                key,
                expected,
                format!("one of {full}, which is not"),
            );
            return Some(finding.of_part(full.to_string()));
        }
        // The document itself is reported with its node.
        Err(_) => return None,
    };
    let stored = String::from_utf8_lossy(&stored);
    let stored = stored.strip_prefix('\u{feff}').unwrap_or(&stored);
    if json_text::is_same(stored, copy) || is_same_without_copies(stored, copy) {
        return None;
    }
    let (part, expected, found) = difference(stored, copy)?;
    let is_default =
        expected == NO_MEMBER && ["false", "null", "[]", "{}"].contains(&found.as_str());
    let finding = Finding::error("consolidated-differs", key, expected, found);
    let finding = finding.of_part(format!("{full}{part}"));
    Some(if is_default {
        finding.habit_of("zarr-python 3, which adds defaults,")
    } else {
        finding
    })
}

/// Whether two texts are the same but for copies that they have of others: writers leave these out, or have empty ones.
fn is_same_without_copies(stored: &str, copy: &str) -> bool {
    let none = [(MEMBER.to_string(), None)];
    let without = |text| Some(ObjectText::parse(text).ok()?.edited(&none, 1));
    match (without(stored), without(copy)) {
        (Some(stored), Some(copy)) => json_text::is_same(&stored, &copy),
        _ => false,
    }
}

/// What is shown in place of a value that is not there.
const NO_MEMBER: &str = "no such member";

/// Returns where two texts differ, and both values there; nothing if they mean the same.
fn difference(stored: &str, copy: &str) -> Option<(String, String, String)> {
    if stored.len().max(copy.len()) > MAX_COMPARED {
        let lengths = (
            format!("{} bytes", stored.len()),
            format!("others, {} bytes", copy.len()),
        );
        return Some((String::new(), lengths.0, lengths.1));
    }
    let parsed = |text: &str| json_text::parse(text.as_bytes()).ok();
    let (mut stored, mut copy) = (parsed(stored)?, parsed(copy).unwrap_or_default());
    for value in [&mut stored, &mut copy] {
        // Writers leave copies of copies out, or have empty ones.
        if let Some(members) = value.as_object_mut() {
            members.remove(MEMBER);
        }
    }
    first_difference(&stored, &copy, String::new())
}

fn first_difference(stored: &Value, copy: &Value, at: String) -> Option<(String, String, String)> {
    if stored == copy {
        return None;
    }
    if let (Some(old), Some(new)) = (stored.as_object(), copy.as_object()) {
        let names = old
            .keys()
            .chain(new.keys().filter(|name| !old.contains_key(*name)));
        return names.into_iter().find_map(|name| {
            let at = format!("{at}: {name}");
            match (old.get(name), new.get(name)) {
                (Some(old), Some(new)) => first_difference(old, new, at),
                (old, new) => Some((at, text_of(old), text_of(new))),
            }
        });
    }
    let is_number = stored.is_number() && copy.is_number();
    if is_number && stored.as_f64() == copy.as_f64() {
        return None;
    }
    Some((at, text_of(Some(stored)), text_of(Some(copy))))
}

/// Longest text of a value that is shown, in characters.
const MAX_SHOWN: usize = 100;

fn text_of(value: Option<&Value>) -> String {
    let Some(value) = value else {
        return NO_MEMBER.to_string();
    };
    let text = value.to_string();
    match text.char_indices().nth(MAX_SHOWN) {
        None => text,
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_told_and_an_equal_meaning_is_none() {
        let stored = r#"{"a": 1, "b": {"c": [1, 2]}, "d": 2.0}"#;
        assert_eq!(
            difference(stored, r#"{"d": 2, "b": {"c": [1, 2]}, "a": 1}"#),
            None
        );
        let found = difference(stored, r#"{"a": 1, "b": {"c": [1, 3]}, "d": 2.0}"#);
        let (at, old, new) = found.unwrap();
        assert_eq!(
            (at.as_str(), old.as_str(), new.as_str()),
            (": b: c", "[1,2]", "[1,3]")
        );
        let (at, _, new) = difference(stored, r#"{"a": 1, "b": {"c": [1, 2]}}"#).unwrap();
        assert_eq!((at.as_str(), new.as_str()), (": d", "no such member"));
    }
}
