//! Reads the node at a path from its documents.
//!
//! If a document cannot be read, the result is a node with an error, called broken; only a failed request makes reading
//! fail. Consolidated metadata are layered below the children of a group if the store cannot list, or on request.
//! Consolidated metadata that cannot be read cause a warning and are not used.

use std::mem;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::hierarchy::consolidated::{Consolidated, ConsolidatedSource, version_of};
use crate::hierarchy::node_builder::{NodeBuilder, is_lasting};
use crate::hierarchy::node_entry::{ChildContext, Rule, hash_of};
use crate::hierarchy::node_entry::{has_word, is_of_array};
use crate::hierarchy::{Hierarchy, MAX_DOCUMENT, MAX_WARNINGS, NodeEntry, SYMLINK_CYCLE, detect};
use zarr_format::dialect::consolidated::EntryRanges;
use zarr_format::dialect::draft::{DocumentRole, Draft, EntryPoint};
use zarr_format::dialect::{Choice, Dialect, Parsed, consolidated, dialects_below, draft, v2};
use zarr_format::error::Result;
use zarr_format::model::document::{ZARR_JSON, ZMETADATA, is_consolidated};
use zarr_format::model::{Group, Node};
use zarrfs_store::Presence;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{Dependencies, EntryKind, Key, Meta, Object};

/// The result of reading a node: the error of a request, no node, or a node whose documents may be unreadable.
type ReadOutcome = Result<Option<Result<Node>>>;

/// A node that was read, and the keys that it depends on.
pub(super) struct ReadNode {
    pub(super) found: Option<NodeEntry>,
    /// The keys whose change invalidates the result.
    pub(super) depends: Dependencies,
}

pub(super) struct NodeReader<'a> {
    hierarchy: &'a Hierarchy,
    context: &'a RequestContext,
    reading: NodeBuilder<'a>,
}

impl<'a> NodeReader<'a> {
    /// Prepares to read the node at a path, whose parent passes on `child_context`; `old` is the node's entry from an
    /// earlier time.
    pub(super) fn new(
        hierarchy: &'a Hierarchy,
        context: &'a RequestContext,
        path: &'a Key,
        child_context: &ChildContext,
        old: Option<&'a NodeEntry>,
    ) -> NodeReader<'a> {
        NodeReader {
            hierarchy,
            context,
            reading: NodeBuilder::new(path, child_context.clone(), old),
        }
    }

    /// Reads the node; fails only if a request fails.
    pub(super) fn read(mut self) -> Result<ReadNode> {
        let node = self.read_checked()?;
        let depends = self.reading.dependencies();
        let found = node.map(|node| self.reading.entry(node));
        Ok(ReadNode { found, depends })
    }

    /// Reads the node at the path, or returns `None` if no node can have this path.
    fn read_checked(&mut self) -> ReadOutcome {
        let path = self.reading.path;
        let consolidated = self.reading.child_context.consolidated.as_ref();
        let is_no_node = consolidated.is_some_and(|used| used.is_no_node(path));
        if self.is_link_to_ancestor()? || is_no_node {
            return Ok(None);
        }
        let node = self.read_node()?;
        if self.reading.child_context.consolidated.is_none()
            && matches!(node, Some(Ok(Node::Group(_))))
        {
            self.consolidate()?;
        }
        Ok(node)
    }

    /// Whether a path is a symlink to one of its ancestors. The path is then no node, because otherwise a walk through
    /// all nodes would not end.
    fn is_link_to_ancestor(&mut self) -> Result<bool> {
        let path = self.reading.path;
        if !self.hierarchy.store.is_symlink_cycle(self.context, path)? {
            return Ok(false);
        }
        self.reading.depends.add_below(path);
        self.hierarchy.warn(path, Some(SYMLINK_CYCLE.to_string()));
        Ok(true)
    }

    /// Reads the node from the documents that its parent's child context points to.
    fn read_node(&mut self) -> ReadOutcome {
        let outcome = match self.reading.child_context.rule.clone() {
            Rule::Draft(entry) => self.read_in_draft(&entry),
            Rule::Plain(dialects) => self.read_plain(dialects),
            Rule::Closed => return Ok(None),
        };
        match outcome {
            Ok(Some(node)) => Ok(Some(node)),
            Ok(None) => self.read_implied(),
            // Documents that can never be read make a node with an error, because a retry of the request would not
            // help.
            Err(error) if is_lasting(error.kind()) => {
                let is_broken_link = self.is_broken_link()?;
                Ok((!is_broken_link).then_some(Err(error)))
            }
            Err(error) => Err(error),
        }
    }

    /// Whether a path is a symlink that cannot be followed, so that there is no node.
    fn is_broken_link(&mut self) -> Result<bool> {
        let path = self.reading.path;
        self.reading.depends.add_below(path);
        let is_path = matches!(self.reading.child_context.rule, Rule::Plain(_));
        let is_link = |meta: Meta| meta.kind == EntryKind::Link;
        Ok(is_path
            && self
                .hierarchy
                .store
                .head(self.context, path)?
                .is_some_and(is_link)
            && self.hierarchy.store.list(self.context, path).is_err())
    }

    /// Reads a node from its own documents, or from the entry point of a draft of Zarr v3.
    fn read_plain(&mut self, dialects: &'static [&'static Dialect]) -> ReadOutcome {
        // If programs can change documents through the mount, the stored documents are read, because their copies may
        // be older.
        let asks_copies = self.reading.path.is_root()
            && self.hierarchy.wants_consolidated()
            && !self.hierarchy.may_change;
        if self.reading.path.is_root() && !asks_copies {
            // At the root any dialect is equally likely; below it, most nodes have the dialect of their parent.
            self.prefetch_all(dialects)?;
        }
        match self.hierarchy.config.dialect {
            None => {
                if let Some(node) = self.read_entry_point()? {
                    return Ok(Some(node));
                }
            }
            Some(Choice::Draft(draft)) => return self.read_chosen_draft(draft),
            Some(Choice::Plain(_)) => {}
        }
        for dialect in dialects {
            if asks_copies && dialect.name == v2::DIALECT.name {
                self.consolidate_root()?;
                self.prefetch_all(dialects)?;
            }
            let node = self.read_in_dialect(dialect)?;
            if let Some(Ok(Node::Group(_))) = node
                && let Some(below) = dialects_below(dialect, dialects)
            {
                self.reading.child_context.version = hash_of(dialect.name);
                self.reading.child_context.rule = Rule::Plain(below);
            }
            if node.is_some() {
                return Ok(node);
            }
        }
        Ok(None)
    }

    /// Reads the root of a hierarchy in a draft of Zarr v3, if `zarr.json` is an entry point.
    fn read_entry_point(&mut self) -> ReadOutcome {
        let key = self.reading.path.child(ZARR_JSON.as_bytes())?;
        let document = self.reading.document(self.context, &key)?;
        let bytes = document.bytes.as_deref().unwrap_or_default();
        // Every entry point is short and contains this word, and few other documents do. So most documents are not
        // parsed only to find out that they are no entry point.
        let may_be_entry_point = bytes.len() <= 1 << 20 && has_word(bytes, "metadata_encoding");
        let members = if may_be_entry_point {
            document.object().unwrap_or_default()
        } else {
            None
        };
        let version = version_of(bytes);
        self.reading.reusable = Some(document);
        let Some(members) = members else {
            return Ok(None);
        };
        let entry = match draft::draft_of(&members) {
            Ok(None) => return Ok(None),
            Ok(Some(draft)) => EntryPoint::new(draft, self.reading.path, Some(&members)),
            Err(error) => Err(error),
        };
        match entry {
            Ok(entry) => self.read_draft_root(entry, version.number()),
            Err(error) => {
                self.reading.child_context.rule = Rule::Closed;
                Ok(Some(Err(error.about(&key))))
            }
        }
    }

    /// Reads the root in a draft of Zarr v3 that the user has chosen; the entry point may be missing.
    fn read_chosen_draft(&mut self, draft: &'static Draft) -> ReadOutcome {
        let key = self.reading.path.child(ZARR_JSON.as_bytes())?;
        let document = self.reading.document(self.context, &key)?;
        let entry = document
            .object()
            .and_then(|members| EntryPoint::new(draft, self.reading.path, members.as_ref()));
        match entry {
            Ok(entry) => {
                let version = version_of(document.bytes.as_deref().unwrap_or_default());
                self.read_draft_root(entry, version.number())
            }
            Err(error) => {
                self.reading.child_context.rule = Rule::Closed;
                Ok(Some(Err(error.about(&key))))
            }
        }
    }

    /// Reads the root node in a draft of Zarr v3; without a document, the root is a group.
    fn read_draft_root(&mut self, entry: EntryPoint, version: u64) -> ReadOutcome {
        let entry = Arc::new(entry);
        self.reading.child_context.version = hash_of((entry.name(), version));
        self.reading.child_context.rule = Rule::Draft(entry.clone());
        let root = self.read_in_draft(&entry)?;
        Ok(Some(
            root.unwrap_or_else(|| Ok(Node::Group(Group::default()))),
        ))
    }

    /// Reads a node in a draft of Zarr v3: first as an array, then as a group (drafts, "Determine if a node exists").
    fn read_in_draft(&mut self, entry: &EntryPoint) -> ReadOutcome {
        for (role, key) in entry.documents(self.reading.path)? {
            self.reading.is_array = role == DocumentRole::Array;
            let document = self.reading.document(self.context, &key)?;
            let members = match document.object() {
                Ok(None) => continue,
                Ok(Some(members)) => members,
                Err(error) => return Ok(Some(Err(error))),
            };
            self.reading.is_implied = false;
            let parsed = entry.parse(self.reading.path, role, &document, &members);
            let parsed = parsed.map_err(|error| error.about(&key));
            return Ok(Some(parsed.map(|parsed| self.warned(parsed))));
        }
        Ok(None)
    }

    /// Reads a directory without documents: it is a group, or the root of a hierarchy of the 2019 draft of Zarr v3.
    fn read_implied(&mut self) -> ReadOutcome {
        let folder = match &self.reading.child_context.rule {
            Rule::Plain(_) => self.reading.path.clone(),
            Rule::Draft(entry) => entry.folder(self.reading.path)?,
            Rule::Closed => return Ok(None),
        };
        self.reading.depends.add_below(&folder);
        let Some(meta) = self
            .reading
            .child_context
            .store
            .head(self.context, &folder)?
            .filter(|meta| meta.kind == EntryKind::Directory)
        else {
            return Ok(None);
        };
        // The modification times of documents that describe no node are not used.
        self.reading.modified = Some(meta.modified);
        self.reading.is_implied = true;
        // With consolidated metadata no request is sent for the 2019 draft, because they would have its documents.
        let may_be_2019 = self.hierarchy.config.dialect.is_none()
            && matches!(self.reading.child_context.rule, Rule::Plain(_))
            && self.reading.child_context.consolidated.is_none();
        if may_be_2019
            && detect::is_2019(
                self.context,
                &mut self.reading.child_context,
                self.reading.path,
            )?
        {
            return self.read_draft_root(draft::entry_2019(self.reading.path)?, 0);
        }
        Ok(Some(Ok(Node::Group(Group::default()))))
    }

    /// Reads a node from its own documents in one dialect; returns `None` if they describe no node.
    fn read_in_dialect(&mut self, dialect: &Dialect) -> ReadOutcome {
        let keys = (dialect.documents)(self.reading.path)?;
        if keys.len() > 1 {
            self.reading.child_context.hints.prefetch(&keys);
        }
        let documents = keys
            .iter()
            .map(|key| self.reading.document(self.context, key));
        let documents = documents.collect::<Result<Vec<_>>>()?;
        let parsed = (dialect.parse)(self.reading.path, &documents).transpose();
        let node = parsed.map(|parsed| parsed.map(|parsed| self.warned(parsed)));
        match node {
            Some(Ok(_)) => self.reading.reusable = documents.into_iter().next(),
            Some(Err(_)) => self.reading.is_array = documents.iter().any(is_of_array),
            None => {}
        }
        Ok(node)
    }

    fn warned(&self, parsed: Parsed) -> Node {
        self.hierarchy.warn(self.reading.path, parsed.warning);
        let fault = parsed.node.attributes().fault();
        let fault = fault.map(|fault| format!("the attributes cannot be read: {fault}"));
        self.hierarchy.warn(self.reading.path, fault);
        parsed.node
    }

    /// Prefetches the documents that may describe the node in any of the given dialects.
    fn prefetch_all(&self, dialects: &[&Dialect]) -> Result<()> {
        let path = self.reading.path;
        let keys = dialects.iter().map(|dialect| (dialect.documents)(path));
        let keys: Result<Vec<_>> = keys.collect();
        self.reading.child_context.hints.prefetch(&keys?.concat());
        Ok(())
    }

    /// Serves the documents of a group's children from consolidated metadata, if these are wanted and exist.
    fn consolidate(&mut self) -> Result<()> {
        if !self.hierarchy.wants_consolidated() {
            return Ok(());
        }
        let found = match mem::replace(&mut self.reading.looked_up, Presence::Unknown) {
            Presence::Unknown => self.find_consolidated()?,
            known => known.value(),
        };
        if let Some(found) = found {
            self.reading.use_consolidated(found);
        }
        Ok(())
    }

    /// Reads the root's documents from `.zmetadata`, without further requests, if `.zmetadata` has them.
    fn consolidate_root(&mut self) -> Result<()> {
        match self.find_consolidated()? {
            Some(found) if found.has_own_group() => self.reading.read_copies(found),
            found => self.reading.looked_up = found.into(),
        }
        Ok(())
    }

    /// Finds the consolidated metadata of a group; if they are unchanged since the group was last read, they are not
    /// parsed again.
    fn find_consolidated(&mut self) -> Result<Option<Arc<Consolidated>>> {
        let (key, found) = match self.consolidated_document() {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(None),
            Err(error) if is_lasting(error.kind()) => {
                self.record_unread(error.to_string());
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let source = ConsolidatedSource {
            version: version_of(&found.text),
            modified: found
                .modified
                .or(self.reading.modified)
                .unwrap_or(UNIX_EPOCH),
            is_complete: !self.hierarchy.may_change,
            key,
        };
        let old = self
            .reading
            .old
            .and_then(|old| old.child_context.consolidated.as_ref());
        if let Some(old) = old.filter(|old| old.version() == source.version) {
            return Ok(Some(old.clone()));
        }
        match documents_in(&source.key, &found.text) {
            Ok(places) => Ok(places.map(|places| self.consolidated(found.text, places, source))),
            Err(error) => {
                self.record_unread(error.about(&source.key).to_string());
                Ok(None)
            }
        }
    }

    /// Records consolidated metadata that cannot be read: logs a warning, and stores the error, which requests for the
    /// children return.
    fn record_unread(&mut self, why: String) {
        self.reading.child_context.consolidated_error = Some(why.as_str().into());
        let mut errors = self.hierarchy.consolidated_errors.lock();
        if errors.len() < MAX_WARNINGS {
            errors.insert(why.clone());
        }
        drop(errors);
        self.hierarchy.warn(self.reading.path, Some(why));
    }

    /// Finds the document that contains consolidated metadata; in released Zarr v3 it is the group's own document.
    fn consolidated_document(&mut self) -> Result<Option<(Key, ConsolidatedText)>> {
        let key = match &self.reading.child_context.rule {
            Rule::Draft(entry) => entry.consolidated()?,
            Rule::Closed => None,
            Rule::Plain(_) => {
                let own = self.reading.reusable.take();
                if let Some(own) = own.filter(|own| own.key.name() == ZARR_JSON.as_bytes())
                    && let Some(text) = own.bytes
                {
                    let modified = self.reading.modified;
                    return Ok(Some((own.key, ConsolidatedText { text, modified })));
                }
                Some(self.reading.path.child(ZMETADATA.as_bytes())?)
            }
        };
        let Some(key) = key else { return Ok(None) };
        self.reading.child_context.depends.add_key(&key);
        let object = self.hierarchy.store.get(self.context, &key, MAX_DOCUMENT)?;
        self.reading.record_validator(&key, object.as_ref());
        let text = |object: Object| ConsolidatedText {
            text: object.bytes.into(),
            modified: object.modified,
        };
        Ok(object.map(|object| (key, text(object))))
    }

    /// Makes a layer of consolidated metadata over the store, and charges its memory to the budget of cached nodes.
    fn consolidated(
        &self,
        text: Bytes,
        places: EntryRanges,
        source: ConsolidatedSource,
    ) -> Arc<Consolidated> {
        let (store, hints) = (self.hierarchy.store.clone(), self.hierarchy.hints.clone());
        let length = text.len();
        let mut store = Consolidated::new(store, hints, self.reading.path, text, places, source);
        if !store.count_in(self.hierarchy.nodes.memory()) {
            let why = format!(
                "consolidated metadata of {length} bytes exceed --memory, and are used anyway: give more --memory"
            );
            self.hierarchy.warn(self.reading.path, Some(why));
        }
        Arc::new(store)
    }
}

/// The text of a document that contains consolidated metadata, and its modification time, if known.
struct ConsolidatedText {
    text: Bytes,
    modified: Option<SystemTime>,
}

/// Returns the consolidated metadata in a document, or `None` if the document has none.
fn documents_in(key: &Key, bytes: &[u8]) -> Result<Option<EntryRanges>> {
    if is_consolidated(key.name()) {
        return consolidated::parse_document(bytes).map(Some);
    }
    consolidated::parse_member(bytes)
}
