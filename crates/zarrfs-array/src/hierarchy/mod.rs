//! Finds the nodes (groups and arrays) of a store and caches them.
//!
//! Nodes are found from the root down: each passes a `ChildContext` on to its children, so that an entry point governs
//! the nodes below it. A cached node is valid for the TTL of the store, counted from the request for the oldest of its
//! documents. If one of its documents is changed through the store, the documents are read again at once, and the
//! cached node stays in use if they have the same content. The memory of cached nodes is charged to a budget.

use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::hierarchy::children::GroupChildren;
use crate::hierarchy::edit::{AttributesEdit, DocumentLocks};
use crate::hierarchy::node_cache::{CachedAnswer, CachedNode, NodeCache};
use crate::hierarchy::node_entry::{ChildContext, Rule};
use crate::hierarchy::node_reader::{NodeReader, ReadNode};
use crate::hierarchy::reconsolidation::Reconsolidation;
use zarr_format::dialect::consolidated::ConsolidatedDocument;
use zarr_format::dialect::draft::DocumentRole;
use zarr_format::dialect::{Choice, DIALECTS};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::Attributes;
use zarrfs_store::Presence;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::budget::MemoryBudget;
use zarrfs_store::{
    Condition, Dependencies, ETag, Hints, Key, Listing, NoHints, Object, PutBody, Store,
};

mod children;
mod consolidated;
mod detect;
mod edit;
mod node_builder;
mod node_cache;
mod node_entry;
mod node_reader;
mod reconsolidation;

pub use detect::OtherFormat;
pub use edit::{DocumentVersions, EditedNode, ExpectedNode};
pub use node_entry::{BrokenDocument, BrokenNode, ConsolidatedCopy, ConsolidatedEntry, NodeEntry};
pub use reconsolidation::ReconsolidatedDocument;
pub use zarr_format::dialect::consolidated::MAX_DOCUMENT;

/// The warning that a symbolic link to one of its own ancestors was left out.
pub const SYMLINK_CYCLE: &str = "left out: a symbolic link to a parent directory";

const MAX_WARNINGS: usize = 256;

/// The options for finding the groups and arrays of a store.
#[derive(Clone, Debug, Default)]
pub struct HierarchyConfig {
    /// The dialect that the user has chosen, or `None` to detect the dialect from the metadata documents.
    pub dialect: Option<Choice>,
    /// Whether to use consolidated metadata even if the store can list its keys.
    pub consolidated: bool,
}

/// The hierarchy of the groups and arrays in a store, with a cache of nodes.
pub struct Hierarchy {
    store: Arc<dyn Store>,
    hints: Arc<dyn Hints>,
    /// Whether the store is a directory tree that programs can change.
    is_tree: bool,
    /// Whether programs can change metadata documents through this store or through a layer above it.
    may_change: bool,
    config: HierarchyConfig,
    nodes: Arc<NodeCache>,
    editing: DocumentLocks,
    /// The warnings that were logged, each with the path of the first node that caused it.
    warned: Mutex<HashMap<String, Key>>,
    /// The errors of consolidated metadata that cannot be read.
    consolidated_errors: Mutex<BTreeSet<String>>,
}

impl Hierarchy {
    /// Creates the hierarchy of a store, whose dialects are detected from its metadata documents. Sends no request.
    pub fn new(store: Arc<dyn Store>) -> Hierarchy {
        Hierarchy::configured(store, HierarchyConfig::default())
    }

    /// Creates the hierarchy of a store with a configuration. Sends no request.
    pub fn configured(store: Arc<dyn Store>, config: HierarchyConfig) -> Hierarchy {
        Hierarchy {
            store,
            hints: Arc::new(NoHints),
            is_tree: false,
            may_change: false,
            config,
            nodes: NodeCache::new(MemoryBudget::new(256 << 20, Arc::default())),
            editing: DocumentLocks::default(),
            warned: Mutex::default(),
            consolidated_errors: Mutex::default(),
        }
    }

    /// Makes the hierarchy send hints about its next reads to `hints`, which may prefetch them.
    pub fn with_hints(mut self, hints: Arc<dyn Hints>) -> Hierarchy {
        self.hints = hints;
        self
    }

    /// Charges the memory of cached nodes to a budget.
    pub fn within(mut self, memory: &Arc<MemoryBudget>) -> Hierarchy {
        // The part of the budget is large enough for the longest document, so that each node can be cached.
        let most = (2 * MAX_DOCUMENT).min(memory.limit() / 2);
        self.nodes = NodeCache::new(memory.part(most));
        self
    }

    /// Marks the store as a directory tree that programs change.
    pub fn of_tree(mut self) -> Hierarchy {
        self.may_change = true;
        self.is_tree = true;
        self
    }

    /// Makes the hierarchy always read stored documents instead of their copies in consolidated metadata: programs
    /// change the documents through a layer above this store, and the copies may be older.
    pub fn below_changes(mut self) -> Hierarchy {
        self.may_change = true;
        self
    }

    /// Returns the store that the hierarchy reads.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Returns the receiver of hints about reads that follow; a hint sends no request by itself.
    pub fn hints(&self) -> &dyn Hints {
        &*self.hints
    }

    /// Returns the cached answer for a path if it is still valid; sends no request.
    pub(crate) fn cached_answer(&self, path: &Key) -> Option<CachedAnswer> {
        let info = self.store.info();
        let is_valid = |cached: &CachedNode| {
            let CachedNode { stamp, depends, .. } = cached;
            info.is_fresh(stamp.request_time)
                && !info.changes.any_changed_since(stamp.position, depends)
                && cached.is_of(info.archive_generation.number())
        };
        self.nodes.get(path, is_valid)
    }

    /// Returns the cached node at a path, or `Unknown` if the cache has no valid answer; sends no request.
    fn cached(&self, context: &RequestContext, path: &Key) -> Presence<Arc<NodeEntry>> {
        match self.cached_answer(path) {
            None => Presence::Unknown,
            Some(answer) => {
                context.record_age(answer.asked);
                answer.found.into()
            }
        }
    }

    /// Returns the node at a path, or `None` if it does not exist. A directory without metadata documents is a group.
    pub fn node(&self, context: &RequestContext, path: &Key) -> Result<Option<Arc<NodeEntry>>> {
        match self.cached(context, path) {
            Presence::Unknown => context.check_may_wait()?,
            known => return Ok(known.value()),
        }
        let mut found = self.root(context)?;
        for name in path.names() {
            found = match found {
                Some(parent) => self.child(context, &parent, name)?,
                None => return Ok(None),
            };
        }
        Ok(found)
    }

    /// Returns the root node of the hierarchy, or `None` if it does not exist.
    pub fn root(&self, context: &RequestContext) -> Result<Option<Arc<NodeEntry>>> {
        let dialects = match self.config.dialect {
            Some(Choice::Plain(dialects)) => dialects,
            Some(Choice::Draft(_)) | None => DIALECTS,
        };
        let child_context = ChildContext {
            rule: Rule::Plain(dialects),
            store: self.store.clone(),
            hints: self.hints.clone(),
            depends: Dependencies::default(),
            consolidated: None,
            consolidated_error: None,
            version: 0,
        };
        self.cached_or_read(context, &Key::root(), &child_context)
    }

    /// Returns a child of a node by name, or `None` if it does not exist. Arrays have no children.
    pub fn child(
        &self,
        context: &RequestContext,
        parent: &NodeEntry,
        name: &[u8],
    ) -> Result<Option<Arc<NodeEntry>>> {
        if parent.is_array() {
            return Ok(None);
        }
        self.cached_or_read(context, &parent.path.child(name)?, &parent.child_context)
    }

    /// Returns the node at a path from the cache, or reads its metadata documents.
    fn cached_or_read(
        &self,
        context: &RequestContext,
        path: &Key,
        child_context: &ChildContext,
    ) -> Result<Option<Arc<NodeEntry>>> {
        match self.cached(context, path) {
            Presence::Unknown => context.check_may_wait()?,
            known => return Ok(known.value()),
        }
        let old = self.nodes.peek(path).and_then(|answer| answer.found);
        if let Some(old) = &old {
            let (is_unchanged, stamp) = self.store.info().ask(context, |context| {
                self.record_context_age(context, path, child_context);
                self.is_unchanged(context, old, child_context)
            });
            if is_unchanged? && self.nodes.renew(path, old, stamp) {
                return Ok(Some(old.clone()));
            }
        }
        let read = |context: &RequestContext| {
            self.record_context_age(context, path, child_context);
            NodeReader::new(self, context, path, child_context, old.as_deref()).read()
        };
        let (read, stamp) = self.store.info().ask(context, read);
        let ReadNode { found, depends } = read?;
        let found = match (found, old) {
            (Some(new), Some(old)) if new.is_same_as(&old) => Some(old),
            (new, _) => new.map(|new| Arc::new(self.nodes.counted(new))),
        };
        self.nodes.put(path, found.clone(), stamp, depends);
        Ok(found)
    }

    /// Whether the versions of a node's documents show that the node is unchanged since it was read.
    fn is_unchanged(
        &self,
        context: &RequestContext,
        old: &NodeEntry,
        child_context: &ChildContext,
    ) -> Result<bool> {
        let Some(validators) = &old.validators else {
            return Ok(false);
        };
        let is_of_now = old.replacements == self.store.info().archive_generation.number();
        if !is_of_now || old.parent_context != child_context.identity() {
            return Ok(false);
        }
        for (key, version) in &**validators {
            if self.store.version(context, key)? != *version {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads a metadata document of a node whose documents cannot be parsed.
    ///
    /// Fails with `Changed` if the document's version is not the one that the node was read from; the node is then read
    /// again on the next access. Fails with the error of the store if the store cannot return the document.
    pub fn broken_document(
        &self,
        context: &RequestContext,
        node: &NodeEntry,
        document: &BrokenDocument,
    ) -> Result<Object> {
        context.check_may_wait()?;
        let object = node
            .child_context
            .store
            .get(context, &document.key, MAX_DOCUMENT)?;
        let version = document.stored.map(|(_, version)| version);
        match object {
            Some(object) if version.is_none_or(|version| version.may_be(object.version)) => {
                Ok(object)
            }
            _ => {
                self.nodes.forget(&node.path);
                let why = "was changed while it was being opened";
                Err(Error::new(Kind::Changed, &document.key, why))
            }
        }
    }

    /// Reports the age of the parent's metadata documents to the request, if the entry point or the consolidated
    /// metadata of the node were read from them.
    fn record_context_age(
        &self,
        context: &RequestContext,
        path: &Key,
        child_context: &ChildContext,
    ) {
        let is_plain =
            matches!(child_context.rule, Rule::Plain(_)) && child_context.consolidated.is_none();
        if let Some(above) = path.parent().filter(|_| !is_plain)
            && let Some(answer) = self.nodes.peek(&above)
        {
            context.record_age(answer.asked);
        }
    }

    /// Replaces the attributes of a node.
    ///
    /// Fails with `Invalid` if the edited documents would read as another node, or if no document describes the node;
    /// `Changed` if the documents differ from the state that the author of the edit has `seen`.
    pub fn edit(
        &self,
        context: &RequestContext,
        node: &NodeEntry,
        attributes: &Attributes,
        seen: Option<ExpectedNode<'_>>,
    ) -> Result<EditedNode> {
        let edit = AttributesEdit {
            hierarchy: self,
            context,
            node,
            attributes,
            seen,
        };
        self.editing.with(&node.path, || edit.run())
    }

    /// Puts a metadata document. On a conflict, invalidates cached answers that depend on its key.
    pub(super) fn put(
        &self,
        context: &RequestContext,
        key: &Key,
        bytes: &[u8],
        condition: &Condition,
    ) -> Result<ETag> {
        let put = self
            .store
            .put(context, key, PutBody::Bytes(bytes), condition);
        if matches!(&put, Err(error) if error.kind() == Kind::Changed) {
            self.store.info().changes.record(key);
        }
        put
    }

    /// Rebuilds consolidated metadata. The document `holder` gets a copy of each of `documents` that is a JSON object,
    /// and keeps its copies of other stored documents. `threads` is the number of concurrent reads.
    ///
    /// Fails with `Changed` on a conflict with another program, `Invalid` if `holder` has a duplicate name or is a
    /// group's document without JSON, `TooLarge` if the copies do not fit in a document.
    pub fn reconsolidate(
        &self,
        context: &RequestContext,
        holder: &ConsolidatedDocument,
        documents: impl Iterator<Item = (String, Key)>,
        threads: usize,
    ) -> Result<ReconsolidatedDocument> {
        let rebuild = Reconsolidation {
            hierarchy: self,
            context,
            holder,
            threads,
        };
        let folder = holder.key().parent().unwrap_or_default();
        self.editing.with(&folder, || rebuild.run(documents))
    }

    /// Returns the metadata document of an array in a draft of Zarr v3, and the folder of its chunks. Returns `None`
    /// for other dialects, and if the user has chosen the draft, because then no entry point tells where the document
    /// is.
    pub(crate) fn draft_keys(&self, node: &NodeEntry) -> Option<(Key, Key)> {
        let Rule::Draft(entry) = &node.child_context.rule else {
            return None;
        };
        if self.config.dialect.is_some() {
            return None;
        }
        let read = node.described_by();
        let keys = entry.documents(&node.path).ok()?.into_iter();
        let of_arrays = keys.filter(|(role, _)| *role == DocumentRole::Array);
        // The key of the document is not known if the node was read from consolidated metadata; its first possible key
        // is taken then.
        let mut documents: Vec<Key> = of_arrays.map(|(_, key)| key).collect();
        documents.sort_by_key(|key| !read.contains(&key));
        let document = documents.into_iter().next()?;
        Some((document, entry.data(&node.path).ok()?))
    }

    /// Lists all children of a group as directories, in the order of the store.
    ///
    /// Fails with `NotADirectory` for an array, even if its metadata are broken, and with `Unsupported` if the store
    /// cannot list and there are no consolidated metadata, because attributes may name some children, but not all. A
    /// node with broken metadata may be a group; its children are found by listing its folder.
    pub fn children(
        self: &Arc<Self>,
        context: &RequestContext,
        group: &Arc<NodeEntry>,
    ) -> Result<Box<dyn Listing>> {
        self.children_of(context, group).all()
    }

    /// Lists the children of a group as `children` does. If no complete list is available, lists the children that the
    /// attributes name, and `left_out` says that there may be others. Fails as `children` does if the attributes name
    /// none.
    pub fn children_or_named(
        self: &Arc<Self>,
        context: &RequestContext,
        group: &Arc<NodeEntry>,
    ) -> Result<Box<dyn Listing>> {
        self.children_of(context, group).all_or_named()
    }

    /// Lists the known children of a group: those that `children` lists or, if no complete list is available, those
    /// that attributes name and some others. In a directory tree (`of_tree`) the others are the children that programs
    /// have created in the tree; elsewhere they are the children that were looked up before and are still cached.
    pub fn known_children(
        self: &Arc<Self>,
        context: &RequestContext,
        group: &Arc<NodeEntry>,
    ) -> Result<Box<dyn Listing>> {
        self.children_of(context, group).known()
    }

    fn children_of<'a>(
        self: &'a Arc<Self>,
        context: &'a RequestContext,
        group: &'a Arc<NodeEntry>,
    ) -> GroupChildren<'a> {
        GroupChildren {
            hierarchy: self,
            context,
            group,
        }
    }

    /// Logs a warning about a node, each different warning once.
    fn warn(&self, path: &Key, warning: Option<String>) {
        let Some(warning) = warning else { return };
        let mut warned = self.warned.lock();
        if warned.len() < MAX_WARNINGS && !warned.contains_key(&warning) {
            log::warn!("{path}: {warning}");
            warned.insert(warning, path.clone());
        }
    }

    /// Returns the first symbolic link that was left out because it leads to one of its own ancestors.
    pub fn symlink_cycle(&self) -> Option<Key> {
        self.warned.lock().get(SYMLINK_CYCLE).cloned()
    }

    /// Whether consolidated metadata are used instead of the documents that they copy.
    fn wants_consolidated(&self) -> bool {
        self.config.consolidated || !self.store.info().lists
    }

    /// Returns the errors of consolidated metadata that could not be read, each with its key.
    pub fn consolidated_errors(&self) -> Vec<String> {
        self.consolidated_errors.lock().iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zarr_format::model::Node;
    use zarrfs_store::backend::memory::MemoryStore;
    use zarrfs_store::request_context::UNLIMITED;

    fn with(documents: &[(&str, &str)]) -> Hierarchy {
        let memory = MemoryStore::default();
        for (key, text) in documents {
            memory.set(Key::new(*key).unwrap(), text.as_bytes().to_vec());
        }
        Hierarchy::new(Arc::new(memory))
    }

    const GROUP: &str = r#"{"zarr_format": 3, "node_type": "group"}"#;

    #[test]
    fn dialects_may_be_mixed() {
        let hierarchy = with(&[
            ("zarr.json", GROUP),
            ("old/.zgroup", r#"{"zarr_format": 2}"#),
        ]);
        for path in ["", "old"] {
            let found = hierarchy
                .node(&UNLIMITED, &Key::new(path).unwrap())
                .unwrap()
                .unwrap();
            assert!(matches!(found.node, Ok(Node::Group(_))), "{path}");
        }
        assert!(
            hierarchy
                .node(&UNLIMITED, &Key::new("none").unwrap())
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn a_broken_document_makes_a_broken_node() {
        let hierarchy = with(&[("zarr.json", GROUP), ("bad/zarr.json", "{")]);
        let found = hierarchy
            .node(&UNLIMITED, &Key::new("bad").unwrap())
            .unwrap()
            .unwrap();
        assert!(
            found
                .node()
                .unwrap_err()
                .to_string()
                .starts_with("bad/zarr.json: not JSON")
        );
    }

    #[test]
    fn a_fallback_data_type_is_warned_about_once() {
        let uri = "https://purl.org/zarr/spec/protocol/core/3.0";
        let entry = format!(r#"{{"zarr_format": "{uri}", "metadata_encoding": "{uri}"}}"#);
        let array = r#"{"shape": [1], "chunk_grid": {"type": "regular", "chunk_shape": [1]},
            "data_type": {"extension": "http://x.org/t", "type": "ip", "fallback": "r8"}}"#;
        let hierarchy = with(&[
            ("zarr.json", &entry),
            ("meta/root/a.array.json", array),
            ("meta/root/b.array.json", array),
        ]);
        for path in ["a", "b", "a"] {
            let found = hierarchy
                .node(&UNLIMITED, &Key::new(path).unwrap())
                .unwrap()
                .unwrap();
            assert!(found.array().is_some());
        }
        assert_eq!(hierarchy.warned.lock().len(), 1);
    }

    #[test]
    fn missing_codecs_are_warned_about_once() {
        let array = r#"{"zarr_format": 3, "node_type": "array", "shape": [1], "data_type": "int8",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1]}},
            "chunk_key_encoding": {"name": "default"}, "fill_value": 0}"#;
        let hierarchy = with(&[("a/zarr.json", array), ("b/zarr.json", array)]);
        for path in ["a", "b", "a"] {
            let found = hierarchy
                .node(&UNLIMITED, &Key::new(path).unwrap())
                .unwrap()
                .unwrap();
            assert!(found.array().is_some());
        }
        assert_eq!(hierarchy.warned.lock().len(), 1);
    }

    #[test]
    fn unchanged_documents_keep_the_node() {
        let hierarchy = with(&[("zarr.json", GROUP)]);
        let first = hierarchy.node(&UNLIMITED, &Key::root()).unwrap().unwrap();
        let second = hierarchy.node(&UNLIMITED, &Key::root()).unwrap().unwrap();
        assert!(Arc::ptr_eq(&first, &second));
    }
}
