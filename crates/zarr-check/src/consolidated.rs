//! Compares consolidated metadata with documents: differing, extra and missing copies.
//!
//! Each copy is compared here with its document. Documents without a copy are found when their nodes are visited, so
//! the keys of the copies are passed down the walk (`CopiedKeys`).

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use crate::context::CheckContext;
use crate::document_meaning::{Difference, difference};
use crate::finding::{Finding, V3, reason};
use crate::findings::NodeFindings;
use zarr_format::dialect::consolidated::{
    DocumentPlaces, names_of_nothing, parse_document, parse_member,
};
use zarr_format::dialect::copies::CopyHolder;
use zarr_format::error::Result;
use zarr_format::json_text;
use zarr_format::model::document::{ZATTRS, is_consolidated};
use zarrfs_array::hierarchy::MAX_DOCUMENT;
use zarrfs_store::request_context::UNLIMITED;
use zarrfs_store::sync::budget::Reservation;
use zarrfs_store::sync::pool::parallel_map;
use zarrfs_store::{EntryKind, Key};

/// The keys of the documents that consolidated metadata have copies of.
pub(super) struct CopiedKeys {
    holder: CopyHolder,
    keys: HashSet<Key>,
    section: Option<(&'static str, &'static str)>,
    /// The memory that the keys take.
    _room: Reservation,
}

impl CopiedKeys {
    /// Returns a finding if a stored document should have a copy and has none. `top` is the folder of the entry point
    /// if the document belongs to a draft.
    pub(super) fn missing(&self, document: &Key, top: Option<&Key>) -> Option<Finding> {
        self.holder.wanted_name(document, top)?;
        if self.keys.contains(document) || self.is_left_out(document) {
            return None;
        }
        let message = format!(
            "the consolidated metadata have no copy of {document}, so that readers of them do not find the node whole"
        );
        let finding = Finding::error("consolidated-missing", self.holder.key(), message);
        let finding = finding.of_part(document.to_string()).mended_by(FIX);
        Some(by(finding, self.section))
    }

    /// Whether writers may leave out a document: the entry point of a draft.
    fn is_left_out(&self, document: &Key) -> bool {
        let top = self.holder.top_of_draft();
        top.is_some() && document.parent().as_ref() == top && document.name() == b"zarr.json"
    }
}

/// The remedy for faults in consolidated metadata.
const FIX: &str = "run zarrfs check --fix consolidated";

/// Compares the consolidated metadata in a document with the stored documents.
pub(super) fn check(
    context: &CheckContext,
    holder: CopyHolder,
    bytes: &[u8],
    dialect: Option<&str>,
    findings: &mut NodeFindings,
) -> Option<Arc<CopiedKeys>> {
    let section = (dialect == Some("v3")).then_some((V3, "Additional fields"));
    let key = holder.key();
    let places = match read(key, bytes) {
        Ok(places) => places?,
        Err(error) => {
            let message = format!("the consolidated metadata do not read: {}", reason(&error));
            let finding = Finding::error("consolidated-unreadable", key, message);
            findings.add(by(finding.mended_by(FIX), section));
            return None;
        }
    };
    for name in names_of_nothing(bytes, is_consolidated(key.name())).unwrap_or_default() {
        findings.add(by(of_nothing(key, &name), section));
    }
    let room = room_of_keys(context, places.len());
    let mut keys = HashSet::new();
    compare_parts(context, &holder, bytes, &places, &mut |copied, found| {
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

/// Compares copies part by part; passes the keys and findings of each part to `give`.
fn compare_parts(
    context: &CheckContext,
    holder: &CopyHolder,
    bytes: &[u8],
    places: &DocumentPlaces,
    give: &mut dyn FnMut(Vec<Key>, Vec<Finding>),
) {
    for part in places.chunks(PART) {
        let copies = part
            .iter()
            .filter_map(|(key, place)| Some((full_key(holder.folder(), key)?, place.clone())));
        let copies: Vec<(Key, Range<usize>)> = copies.collect();
        let keys = copies.iter().map(|(key, _)| key.clone()).collect();
        let found = compare_all(context, holder.key(), bytes, copies);
        give(keys, found.collect());
    }
}

/// Reports a copy under a name that no document can have.
fn of_nothing(key: &Key, name: &str) -> Finding {
    let message =
        format!("the consolidated metadata have a copy of {name:?}, which names no document");
    let finding = Finding::error("consolidated-extra", key, message);
    finding.of_part(name).mended_by(FIX)
}

/// Reserves memory for the keys of `count` copies. Returns `None` if they need too much.
fn room_of_keys(context: &CheckContext, count: usize) -> Option<Reservation> {
    let count = u64::try_from(count).unwrap_or(u64::MAX);
    let needed = count.saturating_mul(KEY_BYTES);
    let is_small = needed <= context.memory.limit() / KEYS_SHARE;
    is_small.then(|| context.memory.try_reserve(needed))?
}

/// Compares several copies with their documents in parallel.
fn compare_all(
    context: &CheckContext,
    key: &Key,
    bytes: &[u8],
    copies: Vec<(Key, Range<usize>)>,
) -> impl Iterator<Item = Finding> {
    let compare = |(full, place): (Key, Range<usize>)| {
        let copy = bytes.get(place).unwrap_or_default();
        compare(context, key, &full, copy)
    };
    let compared = parallel_map(context.threads, copies, &compare);
    compared.into_iter().flatten()
}

/// Reports copies whose keys do not fit in memory.
fn too_many(key: &Key, count: usize) -> Finding {
    let message = format!(
        "the keys of {count} copies do not fit in --memory, so that documents without a copy are not told"
    );
    Finding::warning("consolidated-too-many", key, message).mended_by("give more --memory")
}

/// The number of copies that are compared before their findings are kept.
const PART: usize = 4096;

/// The keys of one document may take 1/N of the memory budget: chunks need the rest.
const KEYS_SHARE: u64 = 16;

/// Estimated bytes of memory for the key of a copy.
const KEY_BYTES: u64 = 128;

/// Returns the key of the document of a copy, or `None` if no document can have it.
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

/// Adds the section on consolidated metadata; only the Zarr v3 specification has one.
fn by(finding: Finding, section: Option<(&'static str, &'static str)>) -> Finding {
    match section {
        Some((document, heading)) => finding.by(document, heading),
        None => finding,
    }
}

fn is_folder(context: &CheckContext, key: &Key) -> bool {
    let meta = context.store().head(&UNLIMITED, key);
    meta.is_ok_and(|meta| meta.is_some_and(|meta| meta.kind == EntryKind::Directory))
}

/// Compares a copy with its document.
fn compare(context: &CheckContext, key: &Key, full: &Key, copy: &[u8]) -> Option<Finding> {
    let copy = str::from_utf8(copy).unwrap_or_default();
    let stored = match context.store().get(&UNLIMITED, full, MAX_DOCUMENT) {
        Ok(Some(object)) => object.bytes,
        // Writers copy the attributes even of a node without any.
        Ok(None) if full.name() == ZATTRS.as_bytes() && json_text::is_empty(copy) => return None,
        Ok(None) => {
            let message =
                format!("the consolidated metadata have a copy of {full}, which is not there");
            let finding = Finding::error("consolidated-extra", key, message);
            // The copy may be all that is left of the document of an array whose chunks are still stored.
            let remedy = match full.parent() {
                Some(folder) if folder.is_root() => format!("write the copy to {full}"),
                Some(folder) if is_folder(context, &folder) => {
                    format!("write the copy to {full}, or remove {folder} and {FIX}")
                }
                _ => FIX.to_string(),
            };
            return Some(finding.of_part(full.to_string()).mended_by(remedy));
        }
        // The document itself is reported with its node.
        Err(_) => return None,
    };
    let stored = String::from_utf8_lossy(&stored);
    let stored = stored.strip_prefix('\u{feff}').unwrap_or(&stored);
    let (part, message) = match difference(full, stored, copy)? {
        Difference::Somewhere => {
            let lengths = format!("{} bytes and not {}", copy.len(), stored.len());
            (
                full.to_string(),
                format!("the copy of {full} differs from the document: it has {lengths}"),
            )
        }
        Difference::Member(at, stored, copy) => {
            let has = |value: Option<String>| value.unwrap_or("no such member".to_string());
            let at = if at.is_empty() {
                String::new()
            } else {
                format!(": {at}")
            };
            let part = format!("{full}{at}");
            let message = format!(
                "the copy of {part} is {}, and the document has {}",
                has(copy),
                has(stored)
            );
            (part, message)
        }
    };
    let finding = Finding::error("consolidated-differs", key, message);
    Some(finding.of_part(part).mended_by(FIX))
}
