//! Reads the node at a path from its documents.
//!
//! An unreadable document makes a broken node, which is still a node; only a failed request is an error.

use std::sync::Arc;

use crate::hierarchy::broken::is_of_array;
use crate::hierarchy::consolidated::version_of;
use crate::hierarchy::reading::{NodeReading, is_lasting};
use crate::hierarchy::scope::{ChildScope, Rule, hash_of};
use crate::hierarchy::{Hierarchy, LEADS_BACK, NodeEntry, detect};
use zarr_format::dialect::draft::{self, DocumentRole, Draft, EntryPoint};
use zarr_format::dialect::{Choice, Dialect, Parsed, dialects_below, v2};
use zarr_format::error::Result;
use zarr_format::model::document::ZARR_JSON;
use zarr_format::model::{Group, Node};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{Dependencies, EntryKind, Key, Meta};

/// Every entry point contains these bytes and few other documents do, so that most documents are parsed only once.
const ENTRY_POINT_MARKER: &[u8] = b"\"metadata_encoding\"";

/// The longest entry point that is read, in bytes.
const MAX_ENTRY_POINT: usize = 1 << 20;

/// The result of reading a node: a failed request, no node, or a node that may be broken.
type ReadOutcome = Result<Option<Result<Node>>>;

impl Hierarchy {
    /// Reads the node at a path, or returns `None` if it does not exist, with the dependencies of the answer. `old` is
    /// the entry of an earlier reading.
    pub(super) fn read(
        &self,
        context: &RequestContext,
        path: &Key,
        scope: &ChildScope,
        old: Option<&NodeEntry>,
    ) -> Result<(Option<NodeEntry>, Dependencies)> {
        let mut reading = NodeReading::new(path, scope.clone(), old);
        if self.is_symlink_cycle(context, &mut reading)? {
            return Ok((None, reading.dependencies()));
        }
        let used = scope.consolidated.as_ref();
        if used.is_some_and(|used| used.is_no_node(path)) {
            return Ok((None, reading.dependencies()));
        }
        let Some(node) = self.read_node(context, &mut reading)? else {
            return Ok((None, reading.dependencies()));
        };
        if reading.scope.consolidated.is_none() && matches!(node, Ok(Node::Group(_))) {
            self.consolidate(context, &mut reading)?;
        }
        let depends = reading.dependencies();
        Ok((Some(reading.entry(node)), depends))
    }

    /// Whether a path is a symlink to one of its ancestors. Such a path is no node, or a walk through all nodes would
    /// not end.
    fn is_symlink_cycle(
        &self,
        context: &RequestContext,
        reading: &mut NodeReading<'_>,
    ) -> Result<bool> {
        if !self.store.is_symlink_cycle(context, reading.path)? {
            return Ok(false);
        }
        reading.depends.add_below(reading.path);
        self.warn(reading.path, Some(LEADS_BACK.to_string()));
        Ok(true)
    }

    /// Reads the node by the rule of its scope.
    fn read_node(&self, context: &RequestContext, reading: &mut NodeReading<'_>) -> ReadOutcome {
        let outcome = match reading.scope.rule.clone() {
            Rule::Draft(entry) => self.read_in_draft(context, reading, &entry),
            Rule::Plain(dialects) => self.read_plain(context, reading, dialects),
            Rule::Closed => return Ok(None),
        };
        match outcome {
            Ok(Some(node)) => Ok(Some(node)),
            Ok(None) => self.read_implied(context, reading),
            // Documents that can never be read make a broken node; they are not a failed request.
            Err(error) if is_lasting(error.kind()) => {
                let is_broken_link = self.is_broken_link(context, reading)?;
                Ok((!is_broken_link).then_some(Err(error)))
            }
            Err(error) => Err(error),
        }
    }

    /// Whether a path is a symlink that cannot be followed, so that there is no node.
    fn is_broken_link(
        &self,
        context: &RequestContext,
        reading: &mut NodeReading<'_>,
    ) -> Result<bool> {
        let path = reading.path;
        reading.depends.add_below(path);
        let is_path = matches!(reading.scope.rule, Rule::Plain(_));
        let is_link = |meta: Meta| meta.kind == EntryKind::Link;
        Ok(is_path
            && self.store.head(context, path)?.is_some_and(is_link)
            && self.store.list(context, path).is_err())
    }

    /// Reads a node from its own documents, or the entry point of a draft.
    fn read_plain(
        &self,
        context: &RequestContext,
        reading: &mut NodeReading<'_>,
        dialects: &'static [&'static Dialect],
    ) -> ReadOutcome {
        // Documents that programs change through the mount take precedence over copies.
        let asks_copies = reading.path.is_root() && self.wants_consolidated() && !self.may_change;
        if reading.path.is_root() && !asks_copies {
            // At the root any dialect is equally likely; below, most nodes have the dialect of their parent.
            prefetch_all(reading, dialects)?;
        }
        match self.config.dialect {
            None => {
                if let Some(node) = self.read_entry_point(context, reading)? {
                    return Ok(Some(node));
                }
            }
            Some(Choice::Draft(draft)) => return self.read_chosen_draft(context, reading, draft),
            Some(Choice::Plain(_)) => {}
        }
        for dialect in dialects {
            if asks_copies && dialect.name == v2::DIALECT.name {
                self.consolidate_root(context, reading)?;
                prefetch_all(reading, dialects)?;
            }
            let node = self.read_in_dialect(context, reading, dialect)?;
            if let Some(Ok(Node::Group(_))) = node
                && let Some(below) = dialects_below(dialect, dialects)
            {
                reading.scope.version = hash_of(dialect.name);
                reading.scope.rule = Rule::Plain(below);
            }
            if node.is_some() {
                return Ok(node);
            }
        }
        Ok(None)
    }

    /// Reads the root of a draft's hierarchy if `zarr.json` is an entry point.
    fn read_entry_point(
        &self,
        context: &RequestContext,
        reading: &mut NodeReading<'_>,
    ) -> ReadOutcome {
        let key = reading.path.child(ZARR_JSON.as_bytes())?;
        let document = reading.document(context, &key)?;
        let bytes = document.bytes.as_deref().unwrap_or_default();
        let may_be_entry_point = bytes.len() <= MAX_ENTRY_POINT
            && bytes
                .windows(ENTRY_POINT_MARKER.len())
                .any(|part| part == ENTRY_POINT_MARKER);
        let members = if may_be_entry_point {
            document.object().unwrap_or_default()
        } else {
            None
        };
        let version = version_of(bytes);
        reading.kept = Some(document);
        let Some(members) = members else {
            return Ok(None);
        };
        let entry = match draft::draft_of(&members) {
            Ok(None) => return Ok(None),
            Ok(Some(draft)) => EntryPoint::new(draft, reading.path, Some(&members)),
            Err(error) => Err(error),
        };
        match entry {
            Ok(entry) => self.read_draft_root(context, reading, entry, version.number()),
            Err(error) => {
                reading.scope.rule = Rule::Closed;
                Ok(Some(Err(error.about(&key))))
            }
        }
    }

    /// Reads the root of a draft that the user has chosen; the entry point may be missing.
    fn read_chosen_draft(
        &self,
        context: &RequestContext,
        reading: &mut NodeReading<'_>,
        draft: &'static Draft,
    ) -> ReadOutcome {
        let key = reading.path.child(ZARR_JSON.as_bytes())?;
        let document = reading.document(context, &key)?;
        let entry = document
            .object()
            .and_then(|members| EntryPoint::new(draft, reading.path, members.as_ref()));
        match entry {
            Ok(entry) => {
                let version = version_of(document.bytes.as_deref().unwrap_or_default());
                self.read_draft_root(context, reading, entry, version.number())
            }
            Err(error) => {
                reading.scope.rule = Rule::Closed;
                Ok(Some(Err(error.about(&key))))
            }
        }
    }

    /// Reads the root node of a draft's hierarchy, which is an implied group if it has no document.
    fn read_draft_root(
        &self,
        context: &RequestContext,
        reading: &mut NodeReading<'_>,
        entry: EntryPoint,
        version: u64,
    ) -> ReadOutcome {
        let entry = Arc::new(entry);
        reading.scope.version = hash_of((entry.name(), version));
        reading.scope.rule = Rule::Draft(entry.clone());
        let root = self.read_in_draft(context, reading, &entry)?;
        Ok(Some(
            root.unwrap_or_else(|| Ok(Node::Group(Group::default()))),
        ))
    }

    /// Reads a node of a draft: first as an array, then as a group (drafts, "Determine if a node exists").
    fn read_in_draft(
        &self,
        context: &RequestContext,
        reading: &mut NodeReading<'_>,
        entry: &EntryPoint,
    ) -> ReadOutcome {
        for (role, key) in entry.documents(reading.path)? {
            reading.is_array = role == DocumentRole::Array;
            let document = reading.document(context, &key)?;
            let members = match document.object() {
                Ok(None) => continue,
                Ok(Some(members)) => members,
                Err(error) => return Ok(Some(Err(error))),
            };
            reading.is_implied = false;
            let parsed = entry.parse(reading.path, role, &document, &members);
            let parsed = parsed.map_err(|error| error.about(&key));
            return Ok(Some(parsed.map(|parsed| self.warned(reading.path, parsed))));
        }
        Ok(None)
    }

    /// Reads a directory without documents: an implied group, or the root of a hierarchy of the draft of 2019.
    fn read_implied(&self, context: &RequestContext, reading: &mut NodeReading<'_>) -> ReadOutcome {
        let folder = match &reading.scope.rule {
            Rule::Plain(_) => reading.path.clone(),
            Rule::Draft(entry) => entry.folder(reading.path)?,
            Rule::Closed => return Ok(None),
        };
        reading.depends.add_below(&folder);
        let Some(meta) = reading
            .scope
            .store
            .head(context, &folder)?
            .filter(|meta| meta.kind == EntryKind::Directory)
        else {
            return Ok(None);
        };
        // Documents that were read before but describe no node do not count.
        reading.modified = Some(meta.modified);
        reading.is_implied = true;
        // Consolidated metadata would have the documents of that draft.
        let may_be_2019 = self.config.dialect.is_none()
            && matches!(reading.scope.rule, Rule::Plain(_))
            && reading.scope.consolidated.is_none();
        if may_be_2019 && detect::is_2019(context, &mut reading.scope, reading.path)? {
            return self.read_draft_root(context, reading, draft::entry_2019(reading.path)?, 0);
        }
        Ok(Some(Ok(Node::Group(Group::default()))))
    }

    /// Reads a node from its own documents in one dialect.
    fn read_in_dialect(
        &self,
        context: &RequestContext,
        reading: &mut NodeReading<'_>,
        dialect: &Dialect,
    ) -> ReadOutcome {
        let keys = (dialect.documents)(reading.path)?;
        if keys.len() > 1 {
            reading.scope.hints.prefetch(&keys);
        }
        let documents = keys.iter().map(|key| reading.document(context, key));
        let documents = documents.collect::<Result<Vec<_>>>()?;
        let parsed = (dialect.parse)(reading.path, &documents).transpose();
        let node = parsed.map(|parsed| parsed.map(|parsed| self.warned(reading.path, parsed)));
        match node {
            Some(Ok(_)) => reading.kept = documents.into_iter().next(),
            Some(Err(_)) => reading.is_array = documents.iter().any(is_of_array),
            None => {}
        }
        Ok(node)
    }

    /// Returns a node that was read, and logs the warnings about it.
    fn warned(&self, path: &Key, parsed: Parsed) -> Node {
        self.warn(path, parsed.warning);
        let fault = parsed.node.attributes().fault();
        self.warn(
            path,
            fault.map(|fault| format!("the attributes do not read: {fault}")),
        );
        parsed.node
    }
}

/// Prefetches the documents that may describe a node in any of these dialects.
fn prefetch_all(reading: &NodeReading<'_>, dialects: &[&Dialect]) -> Result<()> {
    let keys = dialects
        .iter()
        .map(|dialect| (dialect.documents)(reading.path));
    let keys: Result<Vec<_>> = keys.collect();
    reading.scope.hints.prefetch(&keys?.concat());
    Ok(())
}
