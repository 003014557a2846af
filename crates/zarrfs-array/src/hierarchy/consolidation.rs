//! Finds consolidated metadata and layers them below the children of a group.
//!
//! They are used if the store cannot list, or on request. Unreadable ones cause a warning and are not used.

use std::mem;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::hierarchy::consolidated::{Consolidated, ConsolidatedSource, version_of};
use crate::hierarchy::reading::{NodeReading, is_lasting};
use crate::hierarchy::scope::Rule;
use crate::hierarchy::{Hierarchy, MAX_DOCUMENT, MAX_WARNINGS};
use zarr_format::dialect::consolidated::{self, EntryRanges};
use zarr_format::error::Result;
use zarr_format::model::document::{ZARR_JSON, ZMETADATA, is_consolidated};
use zarrfs_store::Presence;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{Key, Object};

impl Hierarchy {
    /// Whether consolidated metadata are to be used.
    pub(super) fn wants_consolidated(&self) -> bool {
        self.config.consolidated || !self.store.info().lists
    }

    /// Layers consolidated metadata below a group's children, if they are wanted and exist.
    pub(super) fn consolidate(
        &self,
        context: &RequestContext,
        reading: &mut NodeReading<'_>,
    ) -> Result<()> {
        if !self.wants_consolidated() {
            return Ok(());
        }
        let found = match mem::replace(&mut reading.looked_up, Presence::Unknown) {
            Presence::Unknown => self.find_consolidated(context, reading)?,
            known => known.value(),
        };
        if let Some(found) = found {
            reading.use_consolidated(found);
        }
        Ok(())
    }

    /// Reads the root from `.zmetadata` if that has its documents, which then need no requests.
    pub(super) fn consolidate_root(
        &self,
        context: &RequestContext,
        reading: &mut NodeReading<'_>,
    ) -> Result<()> {
        match self.find_consolidated(context, reading)? {
            Some(found) if found.has_own_group() => reading.read_copies(found),
            found => reading.looked_up = found.into(),
        }
        Ok(())
    }

    /// Finds the consolidated metadata of a group. Reuses the ones of an earlier reading if they are unchanged.
    fn find_consolidated(
        &self,
        context: &RequestContext,
        reading: &mut NodeReading<'_>,
    ) -> Result<Option<Arc<Consolidated>>> {
        let (key, found) = match self.consolidated_document(context, reading) {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(None),
            Err(error) if is_lasting(error.kind()) => {
                self.note_unread(reading, error.to_string());
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let source = ConsolidatedSource {
            version: version_of(&found.text),
            modified: found.modified.or(reading.modified).unwrap_or(UNIX_EPOCH),
            tells_all: !self.may_change,
            key,
        };
        let old = reading.old.and_then(|old| old.scope.consolidated.as_ref());
        if let Some(old) = old.filter(|old| old.version() == source.version) {
            return Ok(Some(old.clone()));
        }
        match documents_in(&source.key, &found.text) {
            Ok(places) => {
                Ok(places.map(|places| self.consolidated(reading, found.text, places, source)))
            }
            Err(error) => {
                self.note_unread(reading, error.about(&source.key).to_string());
                Ok(None)
            }
        }
    }

    /// Records unreadable consolidated metadata: logs a warning, and keeps the error for requests of the children.
    fn note_unread(&self, reading: &mut NodeReading<'_>, why: String) {
        reading.scope.unread_copies = Some(why.as_str().into());
        let mut said = self.unread_copies.lock();
        if said.len() < MAX_WARNINGS {
            said.insert(why.clone());
        }
        drop(said);
        self.warn(reading.path, Some(why));
    }

    /// Finds the document that holds consolidated metadata; in final v3 it is the group's own.
    fn consolidated_document(
        &self,
        context: &RequestContext,
        reading: &mut NodeReading<'_>,
    ) -> Result<Option<(Key, ConsolidatedText)>> {
        let key = match &reading.scope.rule {
            Rule::Draft(entry) => entry.consolidated()?,
            Rule::Closed => None,
            Rule::Plain(_) => {
                let own = reading.kept.take();
                if let Some(own) = own.filter(|own| own.key.name() == ZARR_JSON.as_bytes())
                    && let Some(text) = own.bytes
                {
                    let modified = reading.modified;
                    return Ok(Some((own.key, ConsolidatedText { text, modified })));
                }
                Some(reading.path.child(ZMETADATA.as_bytes())?)
            }
        };
        let Some(key) = key else { return Ok(None) };
        reading.scope.depends.add_key(&key);
        let object = self.store.get(context, &key, MAX_DOCUMENT)?;
        reading.note_asked(&key, object.as_ref());
        let text = |object: Object| ConsolidatedText {
            text: object.bytes.into(),
            modified: object.modified,
        };
        Ok(object.map(|object| (key, text(object))))
    }

    /// Layers documents over the store, and counts them in the memory of nodes.
    fn consolidated(
        &self,
        reading: &NodeReading<'_>,
        text: Bytes,
        places: EntryRanges,
        source: ConsolidatedSource,
    ) -> Arc<Consolidated> {
        let (store, hints) = (self.store.clone(), self.hints.clone());
        let length = text.len();
        let mut store = Consolidated::new(store, hints, reading.path, text, places, source);
        if !store.count_in(self.nodes.memory()) {
            let why = format!(
                "consolidated metadata of {length} bytes do not fit in --memory; they are used all the same"
            );
            self.warn(reading.path, Some(why));
        }
        Arc::new(store)
    }
}

/// The text that holds consolidated metadata, and the time of its last change, if known.
struct ConsolidatedText {
    text: Bytes,
    modified: Option<SystemTime>,
}

/// Returns the consolidated metadata in a document, or `None` if it has none.
fn documents_in(key: &Key, bytes: &[u8]) -> Result<Option<EntryRanges>> {
    if is_consolidated(key.name()) {
        return consolidated::parse_document(bytes).map(Some);
    }
    consolidated::parse_member(bytes)
}
