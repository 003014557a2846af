//! Derives the text of a document with the copies of changed documents.

use std::collections::BTreeMap;
use std::time::SystemTime;

use crate::content;
use crate::derived::DerivedDocument;
use crate::layered_store::LayeredStore;
use crate::records::joined;
use zarr_format::dialect::consolidated::{
    ConsolidatedDocument, Copies, MAX_DOCUMENT, may_be_consolidated,
};
use zarr_format::dialect::text_of;
use zarr_format::error::{Kind, Result};
use zarr_format::json_text::ObjectText;
use zarr_format::model::document::{ZARR_JSON, ZARRAY, ZATTRS};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::pool::parallel_map;
use zarrfs_store::tree::Stat;
use zarrfs_store::{EntryKind, Key, Meta, Object, Store, Version};

/// The text of a document that may hold copies.
pub(crate) struct HolderText {
    pub(crate) bytes: Vec<u8>,
    pub(crate) modified: Option<SystemTime>,
    pub(crate) has_copies: bool,
    /// Whether the text differs from the text in the layer or the store.
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

    /// Returns the document with this text and the attributes of the document that it is derived from.
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

/// Reads a document that may hold copies, as the layers have it.
pub(crate) struct HolderReader<'a> {
    pub(crate) layered: &'a LayeredStore,
    pub(crate) context: &'a RequestContext,
    pub(crate) holder: &'a ConsolidatedDocument,
}

impl HolderReader<'_> {
    /// Returns the text of a document as the layers have it, with derived copies, or `None` if the document is missing
    /// or too long to be read.
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
        // At most 16 requests at a time.
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

    /// Returns the text that is visible below the layer.
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

    /// Returns the documents that the layer changes and that have, or should have, a copy in `holder`, by the names of
    /// the copies.
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

    /// Returns the documents at and below paths that have, or should have, a copy in `holder`, by the names of the
    /// copies.
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

    /// Adds the documents that are visible at and below a path. The folders of arrays are not listed, because they may
    /// have any number of chunks.
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

/// Returns the text of a document whose other members zarrfs itself edited: the copies come from the text below.
fn edited_text(holder: &ConsolidatedDocument, own: Object, lower: &HolderText) -> HolderText {
    let spliced = holder.with_copies_of(&own.bytes, &lower.bytes);
    let mut text = HolderText::of_stored(holder, own);
    if let Some(spliced) = spliced {
        text.is_derived = spliced != text.bytes;
        text.bytes = spliced;
    }
    text
}

/// Returns a whole document, or `None` if it is missing or too long.
fn get(context: &RequestContext, store: &dyn Store, key: &Key) -> Result<Option<Object>> {
    match store.get(context, key, MAX_DOCUMENT) {
        Err(error) if error.kind() == Kind::TooLarge => Ok(None),
        found => found,
    }
}

/// Whether a file that is about to get a key holds copies, which then count as the program's.
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
