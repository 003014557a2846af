//! Derives the copies in consolidated metadata from the documents when they are read.
//!
//! `.zmetadata` and the `zarr.json` of a group hold copies of the metadata documents below. The overlay does not store
//! these copies. When such consolidated metadata is read, the copies of changed documents are replaced in its stored
//! text, and all other bytes stay the same. So if a document's change is discarded, its copy is the old one again. Text
//! that a program wrote keeps that program's copies, except for documents that changed since (`program_copies`). If
//! zarrfs edited other members of a group's `zarr.json`, the copies come from the text below the layer of changes.
//!
//! The text is derived without a lock, and cached under the versions of its sources.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use crate::content;
use crate::layered_store::LayeredStore;
use crate::overlay_core::OverlayCore;
use crate::records::{Records, joined};
use zarr_format::dialect::consolidated::{
    ConsolidatedDocument, Copies, MAX_DOCUMENT, may_be_consolidated,
};
use zarr_format::dialect::text_of;
use zarr_format::error::{Kind, Result};
use zarr_format::json_text::ObjectText;
use zarr_format::model::document::{ZARR_JSON, ZARRAY, ZATTRS};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::locks::Mutex;
use zarrfs_store::sync::pool::parallel_map;
use zarrfs_store::tree::{Posix, Stat};
use zarrfs_store::{ChangeLog, EntryKind, Key, LogPosition, Meta, Object, Reader, Store, Version};

/// A consolidated metadata document as the mount shows it, with other copies than the stored text has.
pub(crate) struct DerivedDocument {
    pub(crate) bytes: Vec<u8>,
    pub(crate) meta: Meta,
    /// Owner and mode of the upper folder's file, or `None` if the document is only in the store.
    pub(crate) posix: Option<Posix>,
    /// The version of the stored text that the shown text was derived from.
    pub(crate) source: Version,
}

impl DerivedDocument {
    pub(crate) fn stat(&self) -> Stat {
        Stat {
            meta: self.meta,
            posix: self.posix,
            content: self.meta.version.number(),
        }
    }

    /// Returns the given range of the document's bytes as an object.
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

/// Caches consolidated metadata documents as the mount shows them.
#[derive(Default)]
pub(crate) struct DerivedCache {
    known: Mutex<HashMap<Key, Arc<KnownHolder>>>,
    /// Consolidated documents that programs have read. They are invalidated when a document below changes, because
    /// their copy of it changes too.
    read: Mutex<HashSet<Key>>,
}

/// What is known about a consolidated metadata document.
enum KnownHolder {
    /// In this state of the layers, no document below was changed, so the stored copies are correct.
    Unchanged(LayersState),
    /// The text of this version has no copies, so changes of documents below do not matter.
    WithoutCopies(Version),
    /// The document as the mount shows it, for this state of the layers and this version of the stored text. `None` if
    /// the stored copies are correct.
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

/// Identifies a state of the layers of changes, to detect that a document was changed.
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

impl DerivedCache {
    fn get(&self, key: &Key) -> Option<Arc<KnownHolder>> {
        self.known.lock().get(key).cloned()
    }

    fn put(&self, key: &Key, known: KnownHolder) {
        let mut table = self.known.lock();
        let cached: u64 = table.values().map(|known| known.cached_bytes()).sum();
        // The cache holds at most 1024 documents and 64 MiB of text, enough for a few of the longest documents that
        // xarray writes.
        let is_full = table.len() >= 1024 && !table.contains_key(key);
        if is_full || cached + known.cached_bytes() > 64 << 20 {
            table.clear();
        }
        table.insert(key.clone(), Arc::new(known));
    }

    /// Remembers a document that was read and has copies, so that it can be invalidated later. `since` is the position
    /// in the log of changes before the read.
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
        // If a document below changed during the read, invalidate this document now: at that time it was not in the set
        // of documents to invalidate.
        if changes.below_changed_since(since, holder.folder()) {
            changes.record(key);
        }
    }

    /// Invalidates those of `holders` that programs have read, because a document below them was changed.
    pub(crate) fn invalidate(&self, changes: &ChangeLog, holders: &[ConsolidatedDocument]) {
        let read = self.read.lock();
        let keys = holders.iter().map(ConsolidatedDocument::key);
        let keys: Vec<&Key> = keys.filter(|key| read.contains(key)).collect();
        drop(read);
        keys.into_iter().for_each(|key| changes.record(key));
    }
}

/// Returns consolidated metadata as the mount shows it. Returns `None` if the stored text is correct, if the key names
/// no such document, or while a program is writing it.
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

/// Whether the mount may show other copies in consolidated metadata than the stored text of version `source` has.
/// `false` saves the requests that deriving the copies needs.
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

/// Derives consolidated metadata with current copies. Also returns whether no layer changed in the meantime, so that
/// the result can be cached.
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

/// Whether a layer has changes that make copies in a consolidated document stale.
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

/// Whether a layer changes, hides or moves documents that have copies in `holder`.
fn changes_documents(records: &Records, holder: &ConsolidatedDocument) -> bool {
    let (key, folder) = (holder.key(), holder.folder());
    let mut documents = records.marks.documents_below(folder);
    // The consolidated document itself counts too: if zarrfs edited it, its copies come from the text below the layer.
    let has_document =
        documents.any(|document| document == key || holder.copy_name(document).is_some());
    let mut whiteouts = records.whiteouts_of_documents(folder);
    has_document || whiteouts.any(|(at, _)| at != folder && at != key)
}

/// The text of a consolidated metadata document.
pub(crate) struct HolderText {
    pub(crate) bytes: Vec<u8>,
    pub(crate) modified: Option<SystemTime>,
    pub(crate) has_copies: bool,
    /// Whether the copies in the text were replaced, so that it differs from the stored text.
    pub(crate) is_derived: bool,
}

impl HolderText {
    fn of_stored(holder: &ConsolidatedDocument, object: Object) -> HolderText {
        HolderText {
            has_copies: holder.may_have_copies(&object.bytes),
            bytes: object.bytes,
            modified: object.modified,
            is_derived: false,
        }
    }

    /// Returns the text as a document. All other attributes come from `source`, the `stat` of the stored document.
    pub(crate) fn document(self, source: &Stat) -> DerivedDocument {
        let size = self.bytes.len() as u64;
        DerivedDocument {
            meta: Meta {
                size,
                modified: self.modified.unwrap_or(source.meta.modified),
                version: Version::of_upper(&[b"copies", &self.bytes[..]].concat()),
                ..source.meta
            },
            posix: source.posix,
            source: source.meta.version,
            bytes: self.bytes,
        }
    }
}

pub(crate) struct HolderReader<'a> {
    pub(crate) layered: &'a LayeredStore,
    pub(crate) context: &'a RequestContext,
    pub(crate) holder: &'a ConsolidatedDocument,
}

impl HolderReader<'_> {
    /// Returns the document's text with current copies, or `None` if the document is missing or too long to be read.
    pub(crate) fn text(&self) -> Result<Option<HolderText>> {
        let (context, holder) = (self.context, self.holder);
        let key = holder.key();
        let mut own = self.layered.own_object(context, key)?;
        if let Some(own) = own.take_if(|own| !holder.may_have_copies(&own.bytes)) {
            return Ok(Some(HolderText::of_stored(holder, own)));
        }
        let stale = self
            .layered
            .layer
            .lock()
            .records
            .program_copies
            .stale(key)
            .cloned();
        let is_program = own.is_some() && stale.is_some();
        let lower = if is_program { None } else { self.lower_text()? };
        let mut text = match (own, lower) {
            (None, None) => return Ok(None),
            (None, Some(lower)) => lower,
            (Some(own), None) => HolderText::of_stored(holder, own),
            (Some(own), Some(lower)) => edited_text(holder, own, &lower),
        };
        if !text.has_copies {
            return Ok(Some(text));
        }
        let Some(copies) = holder.find_copies(&text.bytes) else {
            text.has_copies = text.is_derived;
            return Ok(Some(text));
        };
        let documents = match stale.filter(|_| is_program) {
            Some(stale) => self.stale_documents(&copies, stale.iter())?,
            None => self.changed_documents(&copies)?,
        };
        let read = |copy: (String, Key)| -> Result<_> {
            let (name, document) = copy;
            let object = get(context, self.layered, &document)?;
            let modified = object.as_ref().and_then(|object| object.modified);
            let copy = object.and_then(|object| holder.copy_of(&object.bytes));
            Ok(((name, copy), modified))
        };
        let mut changes = Vec::new();
        let mut modified = text.modified;
        // At most 16 requests run at a time.
        for found in parallel_map(16, documents.into_iter().collect(), &read) {
            let (change, time) = found?;
            changes.push(change);
            modified = modified.max(time);
        }
        let bytes = copies.edited(&changes);
        text.is_derived |= bytes != text.bytes;
        text.modified = modified;
        text.bytes = bytes;
        Ok(Some(text))
    }

    /// Returns the text that the frozen layer or the store has of the document.
    fn lower_text(&self) -> Result<Option<HolderText>> {
        let (context, holder) = (self.context, self.holder);
        let Some(lower) = self.layered.layer.lower_key(holder.key()) else {
            return Ok(None);
        };
        if let Some(frozen) = &self.layered.frozen
            && let Some(holder) = ConsolidatedDocument::of_key(&lower)
        {
            return HolderReader {
                layered: frozen,
                context,
                holder: &holder,
            }
            .text();
        }
        let object = get(context, &*self.layered.lower, &lower)?;
        Ok(object.map(|object| HolderText::of_stored(holder, object)))
    }

    /// Returns the documents that the layer changed and that have, or should have, a copy in the consolidated document,
    /// by the names of the copies.
    fn changed_documents(&self, copies: &Copies<'_>) -> Result<BTreeMap<String, Key>> {
        let holder = self.holder;
        let (key, folder) = (holder.key(), holder.folder());
        let mut found = BTreeMap::new();
        let state = self.layered.layer.lock();
        for document in state.records.documents_below(folder) {
            found.extend(holder.copy_name(&document).map(|name| (name, document)));
        }
        let whiteouts = state.records.whiteouts_of_documents(folder);
        let whiteouts = whiteouts.filter(|(at, _)| *at != folder && *at != key);
        let whiteouts: Vec<(Key, bool)> = whiteouts
            .map(|(at, source)| (at.clone(), source.is_some()))
            .collect();
        drop(state);
        if whiteouts.is_empty() {
            return Ok(found);
        }
        let lower = self.layered.layer.lower_key(key);
        let lower = lower.and_then(|lower| ConsolidatedDocument::of_key(&lower));
        for (name, _) in copies.members() {
            let Some(document) = holder.document_of(name) else {
                continue;
            };
            let place = document.below(folder).zip(lower.as_ref());
            let place = place.map(|(rest, lower)| joined(lower.folder(), &rest));
            if place.is_none() || self.layered.layer.lower_key(&document) != place {
                found.insert(name.to_string(), document);
            }
        }
        for (at, _) in whiteouts.iter().filter(|(_, is_moved)| *is_moved) {
            self.add_documents_at(at, &mut found)?;
        }
        Ok(found)
    }

    /// Returns the documents at and below `paths` that have, or should have, a copy in the consolidated document, by
    /// the names of the copies.
    pub(crate) fn stale_documents<'a>(
        &self,
        copies: &Copies<'_>,
        paths: impl Iterator<Item = &'a Key>,
    ) -> Result<BTreeMap<String, Key>> {
        let holder = self.holder;
        let mut found = BTreeMap::new();
        for path in paths {
            if let Some(name) = holder.copy_name(path) {
                found.insert(name, path.clone());
                continue;
            }
            let named = copies.members().filter_map(|(name, _)| {
                let document = holder.document_of(name)?;
                document.below(path)?;
                Some((name.to_string(), document))
            });
            found.extend(named);
            self.add_documents_at(path, &mut found)?;
        }
        Ok(found)
    }

    /// Finds the metadata documents at and below a path. Folders of arrays are not listed, because they may have any
    /// number of chunks.
    fn add_documents_at(&self, path: &Key, found: &mut BTreeMap<String, Key>) -> Result<()> {
        let (context, holder) = (self.context, self.holder);
        let mut add = |document: Key| {
            found.extend(holder.copy_name(&document).map(|name| (name, document)));
        };
        let mut folders = vec![path.clone()];
        while let Some(folder) = folders.pop() {
            if self.is_array(&folder)? {
                for name in [ZARR_JSON, ZARRAY, ZATTRS] {
                    add(folder.child(name.as_bytes())?);
                }
                continue;
            }
            let mut names = match Store::list(self.layered, context, &folder) {
                Err(error) if error.kind() == Kind::NotADirectory => {
                    add(folder);
                    continue;
                }
                Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Unsupported) => {
                    continue;
                }
                names => names?,
            };
            while let Some(name) = names.next(context)? {
                let key = folder.child(&name.name)?;
                match name.kind {
                    EntryKind::Directory => folders.push(key),
                    _ => add(key),
                }
            }
        }
        Ok(())
    }

    fn is_array(&self, folder: &Key) -> Result<bool> {
        let context = self.context;
        if Store::version(self.layered, context, &folder.child(ZARRAY.as_bytes())?)?.is_some() {
            return Ok(true);
        }
        let object = get(context, self.layered, &folder.child(ZARR_JSON.as_bytes())?)?;
        Ok(object.is_some_and(|object| {
            let text = text_of(&object.bytes).ok();
            let text = text.and_then(|text| ObjectText::parse(text).ok());
            text.is_some_and(|text| text.value("node_type") == Some("\"array\""))
        }))
    }
}

/// Returns the text of a consolidated document that zarrfs itself edited: `own` with the copies of the text in `lower`.
fn edited_text(holder: &ConsolidatedDocument, own: Object, lower: &HolderText) -> HolderText {
    let spliced = holder.with_copies_of(&own.bytes, &lower.bytes);
    let mut text = HolderText::of_stored(holder, own);
    if let Some(spliced) = spliced {
        text.is_derived = spliced != text.bytes;
        text.bytes = spliced;
    }
    text
}

fn get(context: &RequestContext, store: &dyn Store, key: &Key) -> Result<Option<Object>> {
    match store.get(context, key, MAX_DOCUMENT) {
        Err(error) if error.kind() == Kind::TooLarge => Ok(None),
        found => found,
    }
}

/// Whether a program's file that is about to get the key of a consolidated document has copies. Such copies are later
/// treated as written by a program.
pub(crate) fn has_program_copies(key: &Key, file: &std::fs::File) -> Result<bool> {
    let Some(holder) = ConsolidatedDocument::of_key(key).filter(|_| may_be_consolidated(key))
    else {
        return Ok(false);
    };
    let length = file.metadata().map_or(0, |found| found.len());
    let length = usize::try_from(length.min(MAX_DOCUMENT)).unwrap_or(usize::MAX);
    let bytes = content::read_file(file, 0, length);
    let bytes = bytes.map_err(|error| zarr_format::error::Error::os(key, error))?;
    Ok(holder.may_have_copies(&bytes))
}
