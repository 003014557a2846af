//! Finds consolidated metadata and puts them under the children of a group.
//!
//! They are used where the store cannot list, or on request. Those that do not read are warned of and not used.

use std::sync::Arc;
use std::time::SystemTime;

use crate::dialect::consolidated::{self, DocumentPlaces};
use crate::error::Result;
use crate::hierarchy::consolidated::{Consolidated, version_of};
use crate::hierarchy::reading::{NodeReading, is_lasting};
use crate::hierarchy::{Hierarchy, MAX_DOCUMENT, NodeEntry, Rule};
use crate::model::document::{ZARR_JSON, ZMETADATA, is_consolidated};
use crate::store::{Key, Version};
use crate::sync::shared_bytes::SharedBytes;

impl Hierarchy {
    /// Puts consolidated metadata under a group's children, where they are wanted and there are some. `old` is the
    /// entry of an earlier reading, whose consolidated metadata are kept if they are still the same.
    pub(super) fn consolidate(
        &self,
        reading: &mut NodeReading<'_>,
        old: Option<&NodeEntry>,
    ) -> Result<()> {
        if !self.config.consolidated && self.store.info().lists {
            return Ok(());
        }
        let (key, bytes) = match self.consolidated_document(reading) {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(()),
            Err(error) if is_lasting(error.kind()) => {
                self.warn(reading.path, Some(error.to_string()));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let version = version_of(&bytes);
        if let Some(old) = old.filter(|old| old.scope.consolidated == Some(version)) {
            reading.scope.store = old.scope.store.clone();
            reading.scope.hints = old.scope.hints.clone();
            reading.scope.copies = old.scope.copies.clone();
            reading.scope.consolidated = Some(version);
            return Ok(());
        }
        match documents_in(&key, &bytes) {
            Ok(Some(places)) => self.use_consolidated(reading, (bytes, places), version),
            Ok(None) => {}
            Err(error) => self.warn(reading.path, Some(error.about(&key).to_string())),
        }
        Ok(())
    }

    /// Finds the document that holds consolidated metadata; in final v3 it is the group's own.
    fn consolidated_document(
        &self,
        reading: &mut NodeReading<'_>,
    ) -> Result<Option<(Key, SharedBytes)>> {
        let key = match &reading.scope.rule {
            Rule::Draft(entry) => entry.consolidated()?,
            Rule::Closed => None,
            Rule::Plain(_) => {
                let own = reading.kept.take();
                if let Some(own) = own.filter(|own| own.key.name() == ZARR_JSON.as_bytes())
                    && let Some(bytes) = own.bytes
                {
                    return Ok(Some((own.key, bytes)));
                }
                Some(reading.path.child(ZMETADATA.as_bytes())?)
            }
        };
        let Some(key) = key else { return Ok(None) };
        reading.scope.depends.add_key(&key);
        let object = self.store.get(&key, MAX_DOCUMENT)?;
        reading.note_asked(&key, object.as_ref());
        Ok(object.map(|object| (key, object.bytes.into())))
    }

    /// Puts documents over the store that the children are read from.
    fn use_consolidated(
        &self,
        reading: &mut NodeReading<'_>,
        (text, places): (SharedBytes, DocumentPlaces),
        version: Version,
    ) {
        let modified = reading.modified.unwrap_or(SystemTime::UNIX_EPOCH);
        let below = (self.store.clone(), self.hints.clone());
        let length = text.len();
        let mut store = Consolidated::new(below, reading.path, (text, places), modified);
        if !store.count_in(self.nodes.memory()) {
            let why = format!(
                "consolidated metadata of {length} bytes do not fit in --memory; they are used all the same"
            );
            self.warn(reading.path, Some(why));
        }
        let store = Arc::new(store);
        reading.scope.store = store.clone();
        reading.scope.hints = store.clone();
        reading.scope.copies = Some(store);
        reading.scope.consolidated = Some(version);
    }
}

/// Reads the consolidated metadata in a document; nothing if it has none.
fn documents_in(key: &Key, bytes: &[u8]) -> Result<Option<DocumentPlaces>> {
    if is_consolidated(key.name()) {
        return consolidated::parse_document(bytes).map(Some);
    }
    consolidated::parse_member(bytes)
}
