//! Derives the copies in consolidated metadata from the documents when they are read.
//!
//! `.zmetadata` and the `zarr.json` of a group hold copies of the documents below. A layer does not store these copies:
//! when such a document is read, the copies of changed documents are replaced in its stored text, and all other bytes
//! stay the same. So a discarded document leaves no trace in the copies. A text that a program wrote keeps the
//! program's copies, except for documents that changed since (`program_copies`). Where zarrfs itself edited other
//! members of a group's document, the copies come from the text below.
//!
//! A text is derived without a lock, and cached under the versions of its sources.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use crate::holder_text::HolderReader;
use crate::layered_store::LayeredStore;
use crate::overlay_core::OverlayCore;
use crate::records::Records;
use zarr_format::dialect::consolidated::ConsolidatedDocument;
use zarr_format::error::Result;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::locks::Mutex;
use zarrfs_store::tree::{Posix, Stat};
use zarrfs_store::{ChangeLog, EntryKind, Key, LogPosition, Meta, Object, Reader, Version};

/// A document whose copies differ from the copies in the stored text.
pub(crate) struct DerivedDocument {
    pub(crate) bytes: Vec<u8>,
    pub(crate) meta: Meta,
    /// Owner and mode of the layer's file, if the layer has one.
    pub(crate) posix: Option<Posix>,
    /// The version of the text that it was derived from.
    pub(crate) source: Version,
}

impl DerivedDocument {
    /// Returns the `stat` of the document.
    pub(crate) fn stat(&self) -> Stat {
        Stat {
            meta: self.meta,
            posix: self.posix,
            content: self.meta.version.number(),
        }
    }

    /// Returns the bytes in `span` as an object.
    pub(crate) fn object(&self, span: std::ops::Range<u64>) -> Object {
        let place = |offset| usize::try_from(offset).unwrap_or(usize::MAX);
        let bytes = self.bytes.get(place(span.start)..place(span.end));
        Object {
            bytes: bytes.unwrap_or_default().to_vec(),
            size: self.meta.size,
            version: self.meta.version,
            modified: Some(self.meta.modified),
        }
    }
}

impl Reader for DerivedDocument {
    fn read_at(&self, _context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>> {
        let end = offset.saturating_add(len as u64).min(self.meta.size);
        Ok(self.object(offset.min(end)..end).bytes)
    }

    fn meta(&self, _context: &RequestContext) -> Result<Meta> {
        Ok(self.meta)
    }
}

/// A cache of documents that may hold copies.
#[derive(Default)]
pub(crate) struct DerivedCache {
    known: Mutex<HashMap<Key, Arc<KnownHolder>>>,
    /// Documents that were read and hold copies: a change of a document below also changes these.
    read: Mutex<HashSet<Key>>,
}

/// The cached state of a document that may hold copies.
enum KnownHolder {
    /// No document below was changed.
    Unchanged(LayersState),
    /// The text of this version holds no copies, whatever changes below.
    WithoutCopies(Version),
    /// The text of this version has these derived copies; `None` if the stored copies are correct.
    Derived(LayersState, Version, Option<Arc<DerivedDocument>>),
}

impl KnownHolder {
    fn cached_bytes(&self) -> u64 {
        match self {
            KnownHolder::Derived(_, _, Some(found)) => found.meta.size,
            _ => 0,
        }
    }
}

/// A snapshot of the layers' state.
#[derive(Clone)]
struct LayersState {
    top: Weak<LayeredStore>,
    changes: (u64, Option<u64>),
}

impl LayersState {
    fn of(top: &Arc<LayeredStore>) -> LayersState {
        let changes = |layered: &LayeredStore| layered.layer.lock().records.document_changes();
        LayersState {
            top: Arc::downgrade(top),
            changes: (changes(top), top.frozen.as_deref().map(changes)),
        }
    }
}

impl PartialEq for LayersState {
    fn eq(&self, other: &LayersState) -> bool {
        Weak::ptr_eq(&self.top, &other.top) && self.changes == other.changes
    }
}

/// Maximum number of cached documents: groups that are read and arrays of final v3.
const MAX_CACHED: usize = 1024;

/// Maximum size of the cached texts in bytes: a few of the longest documents that xarray writes.
const MAX_CACHED_BYTES: u64 = 64 << 20;

impl DerivedCache {
    fn get(&self, key: &Key) -> Option<Arc<KnownHolder>> {
        self.known.lock().get(key).cloned()
    }

    fn put(&self, key: &Key, known: KnownHolder) {
        let mut table = self.known.lock();
        let cached: u64 = table.values().map(|known| known.cached_bytes()).sum();
        let is_full = table.len() >= MAX_CACHED && !table.contains_key(key);
        if is_full || cached + known.cached_bytes() > MAX_CACHED_BYTES {
            table.clear();
        }
        table.insert(key.clone(), Arc::new(known));
    }

    /// Records that these bytes of a document were read after a position in the log of changes.
    pub(crate) fn record_read(
        &self,
        changes: &ChangeLog,
        key: &Key,
        bytes: &[u8],
        since: LogPosition,
    ) {
        let Some(holder) = ConsolidatedDocument::of_key(key) else {
            return;
        };
        if self.read.lock().contains(key) || !holder.may_have_copies(bytes) {
            return;
        }
        self.read.lock().insert(key.clone());
        // A change before this point did not invalidate the document, because the document was not in `read` yet.
        if changes.below_changed_since(since, holder.folder()) {
            changes.record(key);
        }
    }

    /// Invalidates those of these documents that were read.
    pub(crate) fn invalidate(&self, changes: &ChangeLog, holders: &[ConsolidatedDocument]) {
        let read = self.read.lock();
        let keys = holders.iter().map(ConsolidatedDocument::key);
        let keys: Vec<&Key> = keys.filter(|key| read.contains(key)).collect();
        drop(read);
        keys.into_iter().for_each(|key| changes.record(key));
    }
}

/// Returns a document with derived copies; `None` for any other key, and while a program is writing the document.
pub(crate) fn document(
    core: &OverlayCore,
    context: &RequestContext,
    key: &Key,
) -> Result<Option<Arc<DerivedDocument>>> {
    let Some(holder) = ConsolidatedDocument::of_key(key) else {
        return Ok(None);
    };
    if core
        .registered(key)
        .is_some_and(|file| file.is_being_written())
    {
        return Ok(None);
    }
    for _ in 1..8 {
        let (found, is_current) = derive(core, context, &holder)?;
        if is_current {
            return Ok(found);
        }
    }
    derive(core, context, &holder).map(|(found, _)| found)
}

/// Whether the copies of a document, stored in version `source`, may have to be derived, which may need requests.
pub(crate) fn may_differ(core: &OverlayCore, key: &Key, source: Version) -> bool {
    let Some(holder) = ConsolidatedDocument::of_key(key) else {
        return false;
    };
    let top = core.top();
    match core.derived.get(key).as_deref() {
        Some(KnownHolder::Unchanged(state)) if *state == LayersState::of(&top) => false,
        Some(KnownHolder::WithoutCopies(version)) if *version == source => false,
        _ => has_changes_under(&top, &holder),
    }
}

/// Derives a document; also returns whether nothing changed during the derivation.
fn derive(
    core: &OverlayCore,
    context: &RequestContext,
    holder: &ConsolidatedDocument,
) -> Result<(Option<Arc<DerivedDocument>>, bool)> {
    let (key, top) = (holder.key(), core.top());
    let state = LayersState::of(&top);
    let known = core.derived.get(key);
    let is_unchanged = match known.as_deref() {
        Some(KnownHolder::Unchanged(known)) => *known == state,
        _ => false,
    };
    let is_derived = match known.as_deref() {
        Some(KnownHolder::Derived(known, _, _)) => *known == state,
        _ => false,
    };
    if is_unchanged {
        return Ok((None, true));
    }
    if !is_derived && !has_changes_under(&top, holder) {
        core.derived.put(key, KnownHolder::Unchanged(state));
        return Ok((None, true));
    }
    let (stat, _) = top.stat(context, key)?;
    let Some(stat) = stat.filter(|stat| stat.meta.kind == EntryKind::File) else {
        return Ok((None, true));
    };
    let source = stat.meta.version;
    match known.as_deref() {
        Some(KnownHolder::WithoutCopies(version)) if *version == source => {
            return Ok((None, true));
        }
        Some(KnownHolder::Derived(known, version, found))
            if *known == state && *version == source =>
        {
            return Ok((found.clone(), true));
        }
        _ => {}
    }
    let Some(text) = HolderReader {
        layered: &top,
        context,
        holder,
    }
    .text()?
    else {
        return Ok((None, true));
    };
    let is_current = LayersState::of(&core.top()) == state
        && top
            .stat(context, key)?
            .0
            .is_some_and(|stat| stat.meta.version == source);
    if !text.has_copies {
        if is_current {
            core.derived.put(key, KnownHolder::WithoutCopies(source));
        }
        return Ok((None, is_current));
    }
    let found = text.is_derived.then(|| Arc::new(text.document(&stat)));
    if is_current {
        let known = KnownHolder::Derived(state, source, found.clone());
        core.derived.put(key, known);
    }
    Ok((found, is_current))
}

/// Whether a layer has changes that may make the copies in a document differ from the stored copies.
fn has_changes_under(layered: &LayeredStore, holder: &ConsolidatedDocument) -> bool {
    let state = layered.layer.lock();
    let records = &state.records;
    if let Some(stale) = records.program_copies.stale(holder.key()) {
        return !stale.is_empty();
    }
    let has_changes = changes_documents(records, holder);
    let lower = records.lower_key(holder.key());
    drop(state);
    let lower = lower.and_then(|lower| ConsolidatedDocument::of_key(&lower));
    has_changes
        || match (&layered.frozen, lower) {
            (Some(frozen), Some(lower)) => has_changes_under(frozen, &lower),
            _ => false,
        }
}

/// Whether a layer's records change, hide or move documents that `holder` copies.
fn changes_documents(records: &Records, holder: &ConsolidatedDocument) -> bool {
    let (key, folder) = (holder.key(), holder.folder());
    let mut documents = records.marks.documents_below(folder);
    // If the layer's own file of the document is not from a program, its copies come from the text below.
    let has_document =
        documents.any(|document| document == key || holder.copy_name(document).is_some());
    let mut whiteouts = records.whiteouts_of_documents(folder);
    has_document || whiteouts.any(|(at, _)| at != folder && at != key)
}
