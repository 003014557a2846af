//! Rebuilds consolidated metadata from the documents that they copy.
//!
//! Each metadata document that is to be consolidated gets a copy; other existing copies stay if their documents are
//! stored. The put is conditional on the version that was read, so that a change by another program is never lost.
//! Correct copies keep their text, and consolidated metadata whose copies are all correct are not put.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::hierarchy::{Hierarchy, MAX_DOCUMENT};
use zarr_format::dialect::consolidated::{ConsolidatedDocument, Copies};
use zarr_format::dialect::{consolidated, text_of};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::json_text;
use zarr_format::json_text::{MemberChange, ObjectText};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::pool::parallel_map;
use zarrfs_store::{Condition, Key};

/// The result of rebuilding the consolidated metadata in one document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReconsolidatedDocument {
    /// The key of the document that contains the consolidated metadata.
    pub key: Key,
    /// The number of document copies that were added to it.
    pub made: u64,
    /// The number of document copies that were changed in it.
    pub changed: u64,
    /// The number of document copies that were removed from it.
    pub removed: u64,
    /// Whether the consolidated metadata had to be put.
    pub is_put: bool,
}

/// The copies that consolidated metadata should have, in the order in which zarr-python writes them: outer nodes first.
type WantedCopies = BTreeMap<CopyName, Key>;

/// Name of a document copy in the consolidated metadata.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct CopyName {
    depth: usize,
    name: String,
}

impl CopyName {
    fn new(name: String) -> CopyName {
        CopyName {
            depth: name.matches('/').count(),
            name,
        }
    }
}

/// Rebuilds the consolidated metadata in one document.
pub(super) struct Reconsolidation<'a> {
    pub(super) hierarchy: &'a Hierarchy,
    pub(super) context: &'a RequestContext,
    pub(super) holder: &'a ConsolidatedDocument,
    pub(super) threads: usize,
}

impl Reconsolidation<'_> {
    /// Rebuilds the consolidated metadata. `documents` are the documents to copy, each with the name of its copy.
    pub(super) fn run(
        &self,
        documents: impl Iterator<Item = (String, Key)>,
    ) -> Result<ReconsolidatedDocument> {
        let wanted = documents.map(|(name, key)| (CopyName::new(name), key));
        self.rebuild(wanted.collect())
    }

    fn rebuild(&self, mut wanted: WantedCopies) -> Result<ReconsolidatedDocument> {
        let (holder, store) = (self.holder, self.hierarchy.store());
        let object = store.get(self.context, holder.key(), MAX_DOCUMENT)?;
        let (old, version) = match object {
            Some(object) => (object.bytes, Some(object.version)),
            None => (Vec::new(), None),
        };
        let copies = readable_copies(holder, &old);
        let mut changes = Vec::new();
        for (name, _) in copies.iter().flat_map(Copies::members) {
            match holder.document_of(name) {
                Some(document) => {
                    wanted.insert(CopyName::new(name.to_string()), document);
                }
                None => changes.push((name.to_string(), None)),
            }
        }
        let documents: Vec<Key> = wanted.values().cloned().collect();
        changes.extend(self.read_copies(wanted)?);
        let bytes = match &copies {
            Some(copies) => copies.edited(&changes),
            None => whole_document(holder, &old, &changes)?,
        };
        let mut rebuilt = counted(holder, copies.as_ref(), &changes);
        rebuilt.is_put = bytes != old;
        if rebuilt.is_put {
            check_length(holder, bytes.len())?;
            self.hierarchy
                .put(
                    self.context,
                    holder.key(),
                    &bytes,
                    &Condition::unchanged(version),
                )
                .map_err(|error| refused(holder, error))?;
        }
        // Cached versions of the copied documents are dropped, so that a later comparison asks the store and finds
        // changes that other programs made during the rebuild.
        let log = &store.info().changes;
        documents.iter().for_each(|document| log.record(document));
        Ok(rebuilt)
    }

    fn read_copies(&self, wanted: WantedCopies) -> Result<Vec<MemberChange>> {
        let holder = self.holder;
        let mut copies = Vec::new();
        // The total length is checked during reading, because a batch of long documents must not fill the memory first.
        let length = AtomicUsize::new(0);
        let read = |(copy, document): (CopyName, Key)| -> Result<MemberChange> {
            let name = copy.name;
            check_length(holder, length.load(Ordering::Relaxed))?;
            let text = self
                .hierarchy
                .store()
                .get(self.context, &document, MAX_DOCUMENT)?;
            let text = text.and_then(|object| holder.copy_of(&object.bytes));
            let own = text.as_ref().map_or(0, |text| name.len() + text.len());
            check_length(holder, length.fetch_add(own, Ordering::Relaxed) + own)?;
            Ok((name, text))
        };
        let mut wanted = wanted.into_iter();
        loop {
            // Documents are read in batches, to bound the memory for texts that are read before the total length is
            // checked.
            let part: Vec<_> = wanted.by_ref().take(256).collect();
            if part.is_empty() {
                return Ok(copies);
            }
            for copy in parallel_map(self.threads, part, &read) {
                copies.push(copy?);
            }
        }
    }
}

/// Returns the copies in a document if they can be edited one by one, or `None` if all have to be rebuilt.
fn readable_copies<'a>(holder: &ConsolidatedDocument, bytes: &'a [u8]) -> Option<Copies<'a>> {
    let reads = if holder.is_member() {
        consolidated::parse_member(bytes).map(|found| found.is_some())
    } else {
        consolidated::parse_document(bytes).map(|_| true)
    };
    if !reads.is_ok_and(|reads| reads) {
        return None;
    }
    holder.copies(bytes).ok().flatten()
}

/// Returns the consolidated metadata with exactly the given copies.
fn whole_document(
    holder: &ConsolidatedDocument,
    old: &[u8],
    copies: &[MemberChange],
) -> Result<Vec<u8>> {
    let members = copies.iter().filter_map(|(name, text)| {
        let name = serde_json::Value::from(name.as_str());
        Some(format!("{name}:{}", text.as_deref()?))
    });
    let members = members.collect::<Vec<_>>().join(",");
    if !holder.is_member() {
        let text = format!("{{\"metadata\":{{{members}}},\"zarr_consolidated_format\":1}}");
        return Ok(json_text::document(&text));
    }
    let invalid = |error: Error| Error::invalid(holder.key(), error);
    let text = text_of(old).map_err(invalid)?;
    let group = ObjectText::parse(text).map_err(invalid)?;
    group.check_unique().map_err(invalid)?;
    let value =
        format!("{{\"kind\":\"inline\",\"must_understand\":false,\"metadata\":{{{members}}}}}");
    let member = (consolidated::MEMBER.to_string(), Some(value));
    let mark = old.get(..old.len() - text.len()).unwrap_or_default();
    Ok([mark, group.edited(&[member], 1).as_bytes()].concat())
}

/// Fails with `TooLarge` if a document of `length` bytes would be too long.
fn check_length(holder: &ConsolidatedDocument, length: usize) -> Result<()> {
    if length as u64 <= MAX_DOCUMENT {
        return Ok(());
    }
    let why = format!("the copies of all metadata files exceed {MAX_DOCUMENT} bytes");
    Err(Error::new(Kind::TooLarge, holder.key(), why))
}

/// Returns the error of a put; for a conflict the error says that nothing was lost.
fn refused(holder: &ConsolidatedDocument, error: Error) -> Error {
    if error.kind() != Kind::Changed {
        return error;
    }
    let why = "was changed by another program in the meantime and left unchanged; try again";
    Error::new(Kind::Changed, holder.key(), why)
}

fn counted(
    holder: &ConsolidatedDocument,
    old: Option<&Copies<'_>>,
    changes: &[MemberChange],
) -> ReconsolidatedDocument {
    let old: HashMap<&str, &str> = old.iter().flat_map(|copies| copies.members()).collect();
    let mut rebuilt = ReconsolidatedDocument {
        key: holder.key().clone(),
        ..ReconsolidatedDocument::default()
    };
    for (name, new) in changes {
        match (old.get(name.as_str()), new) {
            (None, Some(_)) => rebuilt.made += 1,
            (Some(_), None) => rebuilt.removed += 1,
            (Some(old), Some(new)) => {
                rebuilt.changed += u64::from(!json_text::is_same(old, new));
            }
            (None, None) => {}
        }
    }
    rebuilt
}
