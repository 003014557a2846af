//! Updates the copies of documents in the store's consolidated metadata.
//!
//! The copies are made from the metadata documents that the store has. So a commit that continues after a crash has the
//! same result, and an interrupted commit leaves no copy of a document that it did not put. Copies are not changes of
//! the user: they cause no conflicts and are not counted. All other content of the consolidated metadata stays as it
//! is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use twox_hash::XxHash3_128;

use crate::commit::{Commit, parallel_keys};
use crate::derived::HolderReader;
use crate::journal_record::JournalRecord;
use crate::layer::Located;
use crate::overlay_core::OverlayCore;
use zarr_format::dialect::consolidated::{ConsolidatedDocument, Copies, MAX_DOCUMENT};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::json_text::MemberChange;
use zarr_format::model::document::ZARRAY;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::pool::parallel_map;
use zarrfs_store::{Condition, Key, Object, PutBody, StoreVersion};

/// Selects the changed metadata documents whose copies are updated.
#[derive(Clone, Copy, PartialEq)]
enum Scope {
    All,
    /// Only the documents that an interrupted commit has already put or removed.
    Made,
}

/// Updates the consolidated copies of metadata documents that an interrupted commit has put at and below a path,
/// because the rest of its changes is discarded next.
pub(crate) fn finish(core: &Arc<OverlayCore>, context: &RequestContext, path: &Key) -> Result<()> {
    let Some(frozen) = core.top().frozen.clone() else {
        return Ok(());
    };
    let commit = Commit {
        core,
        context,
        layered: &frozen,
        paths: std::slice::from_ref(path),
        force: false,
        is_live: false,
    };
    let update = CopyUpdate {
        commit: &commit,
        scope: Scope::Made,
    };
    update.run(update.holders())
}

/// An update of the copies in consolidated metadata, after metadata documents were changed in the store.
pub(crate) struct CopyUpdate<'a> {
    commit: &'a Commit<'a>,
    scope: Scope,
}

impl<'a> CopyUpdate<'a> {
    /// Creates an update for all metadata documents that a commit changes.
    pub(crate) fn of(commit: &'a Commit<'a>) -> CopyUpdate<'a> {
        CopyUpdate {
            commit,
            scope: Scope::All,
        }
    }

    /// Returns the consolidated metadata that may hold copies of the commit's documents. Must be called before the
    /// documents are put, because fewer details of a change are recorded afterwards.
    pub(crate) fn holders(&self) -> Vec<ConsolidatedDocument> {
        let layer = &self.commit.layered.layer;
        let state = layer.lock();
        let is_in_scope = |document: &Key| {
            let is_attempted = !state.records.attempted(document).is_empty();
            let base = state.records.base(document);
            self.scope == Scope::All || is_attempted || base.is_some_and(|base| base.is_committed)
        };
        let mut holders = Vec::new();
        for path in self.commit.paths {
            let documents = state.records.documents_below(path).into_iter();
            for document in documents.filter(is_in_scope) {
                holders.extend(ConsolidatedDocument::above_document(&document));
                // If a program wrote this consolidated document, it may still hold copies of documents whose changes
                // were discarded afterwards.
                let stale = state.records.program_copies.stale(&document);
                let is_stale = stale.is_some_and(|stale| !stale.is_empty());
                holders.extend(ConsolidatedDocument::of_key(&document).filter(|_| is_stale));
            }
            for (at, _) in state.records.whiteouts_of_documents(path) {
                // Skip a removal that is recorded as incomplete. The removal of a folder has no such record, so whether
                // it is complete is checked later, with a request to the store.
                if state.records.base(at).is_some() && !is_in_scope(at) {
                    continue;
                }
                holders.extend(ConsolidatedDocument::above_tree(at));
            }
        }
        drop(state);
        let is_array = |folder: &Key| {
            let document = folder.child(ZARRAY.as_bytes()).ok();
            document.is_some_and(|document| matches!(layer.dir.stat(&document), Ok(Some(_))))
        };
        holders.retain(|holder| !is_array(holder.folder()));
        let by_key = holders
            .into_iter()
            .map(|holder| (holder.key().clone(), holder));
        by_key
            .collect::<BTreeMap<Key, ConsolidatedDocument>>()
            .into_values()
            .collect()
    }

    /// Updates the copies in `holders`, the consolidated metadata that may need it.
    pub(crate) fn run(&self, holders: Vec<ConsolidatedDocument>) -> Result<()> {
        if holders.is_empty() {
            return Ok(());
        }
        let _one = self.commit.core.copying.lock();
        // Most of `holders` do not exist in the store, so they are looked up in parallel first.
        let look = |holder: ConsolidatedDocument| -> Result<Option<ConsolidatedDocument>> {
            let stored = self.stored(holder.key())?;
            let stored = stored.filter(|object| holder.may_have_copies(&object.bytes));
            Ok(stored.map(|_| holder))
        };
        for holder in parallel_map(parallel_keys(&*self.commit.core.store), holders, &look) {
            if let Some(holder) = holder? {
                self.update_holder(&holder)?;
            }
        }
        Ok(())
    }

    fn update_holder(&self, holder: &ConsolidatedDocument) -> Result<()> {
        let (key, store) = (holder.key(), &self.commit.core.store);
        for _ in 0..16 {
            let Some(stored) = self.stored(key)? else {
                return Ok(());
            };
            let Some(bytes) = self.with_copies(holder, &stored.bytes)? else {
                return Ok(());
            };
            self.commit.record_document_put(key, &bytes)?;
            let condition = Condition::Version(stored.version);
            match store.put(self.commit.context, key, PutBody::Bytes(&bytes), &condition) {
                Err(error) if error.kind() == Kind::Changed => {
                    // The put failed because another program has changed the document. Drop it from caches before the
                    // next attempt.
                    store.info().changes.record(key);
                }
                put => {
                    let version = put?.version.require_stored(key)?;
                    return self.record_updated(key, version);
                }
            }
        }
        let why = "keeps changing in the store; the next commit updates the copies of metadata";
        Err(Error::unavailable(key, why))
    }

    /// Returns a document from the store, or `None` if it is missing or too long for zarrfs to read.
    fn stored(&self, key: &Key) -> Result<Option<Object>> {
        match self
            .commit
            .core
            .store
            .get(self.commit.context, key, MAX_DOCUMENT)
        {
            Err(error) if matches!(error.kind(), Kind::TooLarge | Kind::NameTooLong) => Ok(None),
            found => found,
        }
    }

    /// Returns the text of consolidated metadata with correct copies, or `None` if its copies are already correct or it
    /// has no copies.
    fn with_copies(&self, holder: &ConsolidatedDocument, bytes: &[u8]) -> Result<Option<Vec<u8>>> {
        if !holder.may_have_copies(bytes) {
            return Ok(None);
        }
        let Some(copies) = holder.find_copies(bytes) else {
            return Ok(None);
        };
        // If a program wrote the text, its copies were correct at that time. So only the copies of documents that
        // changed since are replaced.
        let (documents, scope) = match self.stale_since_put(holder) {
            Some(stale) => {
                let reader = HolderReader {
                    layered: self.commit.layered,
                    context: self.commit.context,
                    holder,
                };
                let stale = reader.stale_documents(&copies, stale.iter())?;
                (stale, Scope::All)
            }
            None => (self.changed_documents(holder, &copies)?, self.scope),
        };
        let read = |copy: (String, Key)| -> Result<Option<MemberChange>> {
            let (name, document) = copy;
            let is_made = scope == Scope::Made;
            if is_made && !self.may_be_made(&document) {
                return Ok(None);
            }
            let object = self.committed(&document)?;
            if is_made && !self.is_made(&document, object.as_ref()) {
                return Ok(None);
            }
            let copy = object.and_then(|object| holder.copy_of(&object.bytes));
            Ok(Some((name, copy)))
        };
        let documents = documents.into_iter().collect();
        let changes = parallel_map(parallel_keys(&*self.commit.core.store), documents, &read);
        let changes = changes.into_iter().filter_map(Result::transpose);
        let changes = changes.collect::<Result<Vec<MemberChange>>>()?;
        let edited = copies.edited(&changes);
        Ok((edited != bytes).then_some(edited))
    }

    /// Whether the store may already have the commit's change of a document.
    fn may_be_made(&self, document: &Key) -> bool {
        let state = self.commit.layered.layer.lock();
        let is_attempted = !state.records.attempted(document).is_empty();
        match state.records.base(document) {
            Some(base) => base.is_committed || is_attempted,
            None => state.records.lower_key(document).as_ref() != Some(document),
        }
    }

    /// Whether the store has the commit's change of a document, even if the request got no answer. `stored` is the
    /// store's current document.
    fn is_made(&self, document: &Key, stored: Option<&Object>) -> bool {
        let state = self.commit.layered.layer.lock();
        match state.records.base(document) {
            Some(base) if base.is_committed => true,
            Some(_) => {
                let digest = stored.map(|object| XxHash3_128::oneshot(&object.bytes));
                state.records.attempted(document).contains(&digest)
            }
            None => stored.is_none(),
        }
    }

    /// Returns the paths that were changed after a program wrote the consolidated metadata `holder`. Returns `None` if
    /// the store does not have the text that a program wrote.
    fn stale_since_put(&self, holder: &ConsolidatedDocument) -> Option<BTreeSet<Key>> {
        let layer = &self.commit.layered.layer;
        let base = layer.base(holder.key());
        let state = layer.lock();
        let stale = state.records.program_copies.stale(holder.key());
        stale
            .filter(|_| base.is_some_and(|base| base.is_committed))
            .cloned()
    }

    /// Returns the changed metadata documents that have, or should have, a copy in `holder`, by the names of their
    /// copies.
    fn changed_documents(
        &self,
        holder: &ConsolidatedDocument,
        copies: &Copies<'_>,
    ) -> Result<BTreeMap<String, Key>> {
        let layer = &self.commit.layered.layer;
        let is_in_scope = |document: &Key| {
            self.commit
                .paths
                .iter()
                .any(|path| document.below(path).is_some())
        };
        let own = layer.lock().records.documents_below(holder.folder());
        let mut found: BTreeMap<String, Key> = own
            .into_iter()
            .filter(is_in_scope)
            .filter_map(|document| Some((holder.copy_name(&document)?, document)))
            .collect();
        for (name, _) in copies.members() {
            if let Some(document) = holder.document_of(name).filter(is_in_scope)
                && !matches!(layer.locate(&document)?, Located::Lower(lower) if lower == document)
            {
                found.insert(name.to_string(), document);
            }
        }
        Ok(found)
    }

    /// Returns a document as the store has it. If the commit has put it, reads the local file instead of the store.
    fn committed(&self, document: &Key) -> Result<Option<Object>> {
        let base = self.commit.layered.layer.base(document);
        if base.is_some_and(|base| base.is_committed)
            && let Some(own) = self
                .commit
                .layered
                .own_object(self.commit.context, document)?
        {
            return Ok(Some(own));
        }
        self.stored(document)
    }

    /// Records the version that the store has after its consolidated metadata was updated.
    fn record_updated(&self, key: &Key, version: StoreVersion) -> Result<()> {
        let layer = &self.commit.layered.layer;
        if layer.base(key).is_some_and(|base| base.is_committed) {
            let key = key.clone();
            layer.record_if_room(vec![JournalRecord::Committed { key, version }])?;
        }
        self.commit.core.mark_changed(key);
        Ok(())
    }
}
