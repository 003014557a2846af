//! A store that cannot list its keys, with the names that its metadata tell: what an overlay lies over, so that its
//! listings have both those names and the ones of the upper folder, and none that a whiteout hides.
//!
//! A name that is listed may be missing all the same, and a name that is there need not be listed: `StoreInfo::lists`
//! stays false. Nodes become known when they or their documents are asked for, and are listed from then on, as are the keys
//! that are put.

use std::sync::Arc;

use crate::error::Result;
use crate::hierarchy::Hierarchy;
use crate::known::Known;
use crate::model::document::is_in_node_folder;
use crate::store::layer::Layer;
use crate::store::{Condition, ETag, Hints, Key, Listing, Meta, Object, PutBody, Store};
use crate::sync::budget::MemoryBudget;
use crate::view::met_keys::MetKeys;
use crate::view::told_names::{KnownDir, ToldNames};

/// A store whose folders are those that metadata tell.
pub struct ToldStore {
    inner: Arc<dyn Store>,
    hints: Arc<dyn Hints>,
    names: ToldNames,
    met: Arc<MetKeys>,
}

impl ToldStore {
    /// Puts the names that the nodes of `hierarchy` tell over the store that this one reads, and over its hints. What is
    /// known beside them counts in a budget.
    pub fn new(
        hierarchy: Arc<Hierarchy>,
        hints: Arc<dyn Hints>,
        memory: &Arc<MemoryBudget>,
    ) -> ToldStore {
        let inner = hierarchy.store().clone();
        let met = Arc::new(MetKeys::new(memory));
        ToldStore {
            names: ToldNames::new(inner.clone(), hierarchy, Some(met.clone())),
            inner,
            hints,
            met,
        }
    }

    /// Has the node known whose document was found.
    fn meet_document(&self, key: &Key) {
        if is_in_node_folder(key.name())
            && let Some(folder) = key.parent()
        {
            self.names.meet_node(&folder);
        }
    }

    /// Has a key known that was put, unless metadata name it.
    fn meet(&self, key: &Key) {
        if !self.names.names_chunk(key).is_ok_and(|is_named| is_named) {
            self.met.meet(key);
        }
    }
}

/// Returns what `head` shows of a folder.
fn meta_of(folder: &KnownDir) -> Meta {
    Meta {
        modified: folder.modified(),
        ..Meta::prefix()
    }
}

impl Layer for ToldStore {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }

    fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>> {
        let found = self.inner.get(key, limit)?;
        if found.is_some() {
            self.meet_document(key);
        }
        Ok(found)
    }

    fn head(&self, key: &Key) -> Result<Option<Meta>> {
        let found = self.inner.head(key)?;
        if found.is_some() || is_in_node_folder(key.name()) {
            return Ok(found);
        }
        if let Some(folder) = self.names.folder(key)? {
            return Ok(Some(meta_of(&folder)));
        }
        Ok(self.met.has_below(key).then(Meta::prefix))
    }

    fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>> {
        self.names.list(prefix)
    }

    fn tells_all_below(&self, prefix: &Key) -> Result<bool> {
        self.names.are_all(prefix)
    }

    fn put(&self, key: &Key, body: PutBody<'_>, condition: &Condition) -> Result<ETag> {
        let put = self.inner.put(key, body, condition)?;
        self.meet(key);
        Ok(put)
    }

    fn erase(&self, key: &Key, condition: &Condition) -> Result<()> {
        self.inner.erase(key, condition)?;
        self.met.forget(key);
        Ok(())
    }
}

impl Hints for ToldStore {
    fn head_now(&self, key: &Key) -> Known<Meta> {
        match self.hints.head_now(key) {
            Known::Missing if !is_in_node_folder(key.name()) => match self.names.folder_now(key) {
                Known::Missing if self.met.has_below(key) => Known::Is(Meta::prefix()),
                known => known.map(|folder| meta_of(&folder)),
            },
            known => known,
        }
    }

    fn prefetch(&self, keys: &[Key]) {
        self.hints.prefetch(keys);
    }

    fn heads_ahead(&self) -> usize {
        self.hints.heads_ahead()
    }

    fn prefetch_heads(&self, keys: &[Key]) {
        self.hints.prefetch_heads(keys);
    }
}
