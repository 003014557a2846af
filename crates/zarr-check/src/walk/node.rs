//! Checks one node: its name, documents, keys, consolidated metadata and codecs.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::context::CheckContext;
use crate::finding::Finding;
use crate::node_findings::NodeFindings;
use crate::rules::consolidated::CopiedKeys;
use crate::rules::documents::{DocumentKind, check_document};
use crate::rules::keys::{
    document_miscased, empty_folder, folder_unlisted, orphan, store_unlisted, undescribed_chunks,
};
use crate::rules::nodes::{
    chunks_missing, collisions, copies_without_group, implied_group, node_fault, other_dialect,
    undecodable, undescribed_top,
};
use crate::rules::{anndata, consolidated, datasets, hints, names, ome};
use crate::spec::Spec;
use crate::walk::array_keys::ArrayKeys;
use crate::walk::draft_folders;
use crate::walk::folder::{FolderContent, GroupChild, has_only_chunks, remove_miscased};
use zarr_format::dialect::consolidated::ConsolidatedDocument;
use zarr_format::dialect::draft::EntryPoint;
use zarr_format::dialect::{DIALECTS, text_of as text_of_bytes};
use zarr_format::error::Result;
use zarr_format::json_text;
use zarr_format::json_text::visit_members;
use zarr_format::model::Node;
use zarr_format::model::document::{
    ATTRIBUTES_JSON, ZARR_JSON, ZARRAY, ZATTRS, ZGROUP, ZMETADATA, is_in_node_folder,
};
use zarrfs_array::array::OpenArray;
use zarrfs_array::hierarchy::{MAX_DOCUMENT, NodeEntry};
use zarrfs_store::Key;
use zarrfs_store::request_context::UNLIMITED;

pub(crate) fn check(
    context: &CheckContext,
    entry: &Arc<NodeEntry>,
    scope: &NodeScope,
) -> CheckedNode {
    context.progress.add_node();
    let mut node = NodeCheck {
        context,
        entry,
        dialect: entry.dialect().or(scope.dialect),
        scope: scope.clone(),
        findings: NodeFindings::default(),
        children: Vec::new(),
        documents: Vec::new(),
        sizes: BTreeMap::new(),
        array: None,
        chunks: 0,
    };
    node.scope.depth += 1;
    if let Err(error) = node.run() {
        node.findings.add(node_fault(&entry.path, &error));
    }
    node.scope.dialect = node.dialect;
    CheckedNode {
        path: entry.path.clone(),
        entry: Some(entry.clone()),
        is_described: !node.documents.is_empty() || entry.entry_point().is_some(),
        findings: node.findings,
        has_children: !node.children.is_empty(),
        children: node.children,
        scope: node.scope,
        array: node.array,
        chunks: node.chunks,
    }
}

struct NodeCheck<'a> {
    context: &'a CheckContext,
    entry: &'a Arc<NodeEntry>,
    dialect: Option<&'static str>,
    scope: NodeScope,
    findings: NodeFindings,
    children: Vec<GroupChild>,
    /// The keys of the node's stored metadata documents, and the kind of each document.
    documents: Vec<(Key, DocumentKind)>,
    /// The sizes of the node's metadata documents, if a listing had them.
    sizes: BTreeMap<Key, u64>,
    array: Option<(Arc<OpenArray>, Key)>,
    chunks: u64,
}

impl NodeCheck<'_> {
    fn run(&mut self) -> Result<()> {
        let path = &self.entry.path;
        if !path.is_root() {
            self.findings.extend(names::check_name(path, self.dialect));
        }
        let draft = self.entry.entry_point().cloned();
        match &draft {
            Some(draft) => self.read_draft(draft)?,
            None => self.read_node_folder()?,
        }
        self.check_documents();
        if self.findings.has_error_of("codecs") {
            // A finding about the metadata document already explains why the codecs cannot be built.
            self.findings.take("codecs-impossible", &|_| true);
        }
        self.check_reading();
        self.check_dialect();
        self.check_attributes();
        let names: Vec<Vec<u8>> = self
            .children
            .iter()
            .map(|child| child.name.clone())
            .collect();
        self.findings
            .extend(names::check_siblings(path, &names, self.dialect));
        Ok(())
    }

    /// Finds the metadata documents and children of a node in the node's own folder, and checks the keys there.
    fn read_node_folder(&mut self) -> Result<()> {
        let path = &self.entry.path;
        let keys = if !self.context.store().info().lists {
            self.probe_documents()?
        } else if self.entry.array().is_some() {
            self.check_array_keys(path, Some(path))?
        } else if self.entry.is_array() {
            let broken = self
                .entry
                .broken
                .iter()
                .flat_map(|broken| &broken.documents);
            broken.map(|document| document.key.clone()).collect()
        } else {
            self.check_group_keys()
        };
        let is_n5 = self.dialect == Some("n5");
        let has = |name: &str| keys.iter().any(|key| key.name() == name.as_bytes());
        let is_v2 = has(ZGROUP);
        // If a folder has only `.zmetadata` and `.zattrs`, the attributes belong to the group that `.zmetadata`
        // describes.
        let is_lone = has(ZMETADATA) && !is_v2 && !has(ZARRAY) && !has(ZARR_JSON);
        for key in keys {
            let is = |name: &str| key.name() == name.as_bytes();
            if is(ATTRIBUTES_JSON) && !is_n5 {
                self.findings.add(orphan(&key).with_habit("n5-zarr"));
            } else if is(ZMETADATA) && !is_v2 {
                self.check_lone_copies(&key)?;
            } else if !(is(ZMETADATA) || is(ZATTRS) && is_lone) {
                self.documents.push((key, DocumentKind::InNodeFolder));
            }
        }
        self.findings.extend(collisions(&self.documents));
        Ok(())
    }

    /// Reports a node whose dialect differs from that of the nearest parent group with a metadata document. A node with
    /// documents of both dialects is not reported.
    fn check_dialect(&mut self) {
        let (Some(own), Some(above)) = (self.entry.dialect(), self.scope.dialect) else {
            return;
        };
        let spec = Spec::of(Some(above));
        let mut documents = self.documents.iter();
        if own != above && !documents.any(|(key, kind)| kind.spec(key) == spec) {
            self.findings
                .add(other_dialect(&self.entry.path, own, above));
        }
    }

    /// Reports `.zmetadata` in a folder without a Zarr v2 document. The consolidated metadata in it are checked
    /// nevertheless.
    fn check_lone_copies(&mut self, copies: &Key) -> Result<()> {
        let path = &self.entry.path;
        if self.entry.is_array() || !matches!(self.entry.dialect(), None | Some("v2")) {
            self.findings.add(orphan(copies));
            return Ok(());
        }
        self.findings.add(copies_without_group(path));
        self.check_copies(ConsolidatedDocument::of_v2(path)?);
        Ok(())
    }

    /// Finds the metadata documents and children of a node of a Zarr v3 draft, which has separate trees for documents
    /// and chunks.
    fn read_draft(&mut self, draft: &EntryPoint) -> Result<()> {
        let path = &self.entry.path;
        let known = self.known_documents();
        for (role, key) in draft.documents(path)? {
            // For a node from consolidated metadata, it is unknown which documents are stored. All possible keys are
            // added, and a missing document is skipped when it is read.
            if known.contains(&key) || self.entry.documents.is_none() {
                self.documents
                    .push((key, DocumentKind::OfDraft(draft.name(), role)));
            }
        }
        let top = path.child(ZARR_JSON.as_bytes())?;
        if draft.top() == path && draft.name() != "draft2019" {
            self.documents
                .push((top, DocumentKind::EntryPoint(draft.name())));
        }
        if !self.context.store().info().lists {
            self.probe_documents()?;
        } else if self.entry.array().is_some() {
            self.check_array_keys(&draft.data(path)?, None)?;
        } else if !self.entry.is_array() {
            let children = draft_folders::children(self.context, draft, path, &mut self.findings)?;
            self.children = children;
        }
        if let Some(holder) = ConsolidatedDocument::of_draft(draft)?.filter(|_| draft.top() == path)
        {
            self.check_copies(holder);
        }
        Ok(())
    }

    /// Returns the keys of the node's metadata documents that were read when the node was looked up.
    fn known_documents(&self) -> Vec<Key> {
        let read = self.entry.documents.as_deref().unwrap_or_default();
        let broken = self
            .entry
            .broken
            .iter()
            .flat_map(|broken| &broken.documents);
        let read = read.iter().map(|(key, _)| key.clone());
        read.chain(broken.map(|document| document.key.clone()))
            .collect()
    }

    /// Checks the keys of an array. Returns the keys of its metadata documents.
    fn check_array_keys(&mut self, folder: &Key, documents: Option<&Key>) -> Result<Vec<Key>> {
        let open = self.context.arrays.open(self.entry)?;
        let keys = ArrayKeys::check(self.context, &open, folder, documents);
        self.findings.merge(keys.findings);
        let has_keys = open.array().keys.is_known() && !self.findings.has_error();
        if keys.stats.count == 0 && has_keys {
            self.findings.extend(chunks_missing(&open));
        }
        self.findings.extend(hints::check(&open, &keys.stats));
        if let Err(error) = open.check_decodable() {
            self.findings
                .add(undecodable(&self.entry.path, &error, self.dialect));
        }
        self.array = Some((open, folder.clone()));
        self.chunks = keys.stats.count;
        let sizes = keys
            .documents
            .iter()
            .filter_map(|(key, size)| Some((key.clone(), (*size)?)));
        self.sizes.extend(sizes);
        Ok(keys.documents.into_iter().map(|(key, _)| key).collect())
    }

    /// Checks the keys in the folder of a group. Returns the keys of its metadata documents.
    fn check_group_keys(&mut self) -> Vec<Key> {
        let path = &self.entry.path;
        let is_document = |key: &Key| is_in_node_folder(key.name());
        let mut findings = NodeFindings::default();
        let mut content = FolderContent::read(self.context, path, &is_document, &mut findings);
        if content.is_empty {
            self.findings.add(empty_folder(path));
        }
        let spec = Spec::of(self.dialect);
        let has_broken = content.remove_documents(path, spec, &mut findings);
        let has_copies = content.has(ZMETADATA);
        let is_unreadable = (has_broken && content.objects.is_empty()) || self.entry.node.is_err();
        let documents = [ZARR_JSON, ZGROUP, ZARRAY, ATTRIBUTES_JSON, ZMETADATA];
        if is_unreadable {
            content.remove_chunks(self.context, self.entry, &mut findings);
        } else if !documents.into_iter().any(|name| content.has(name))
            && let Some(finding) = self.undescribed(&mut content, &mut findings)
        {
            self.findings.add(finding);
            // `.zattrs` belongs to the node whose metadata document is missing.
            content
                .objects
                .retain(|key| key.name() != ZATTRS.as_bytes());
        }
        self.findings.merge(findings);
        self.advise_copies(has_copies, content.folders.len());
        self.children = content.folders;
        content.objects
    }

    /// Returns the finding about a folder without a metadata document: the document has a wrong name, was lost, or was
    /// never written.
    fn undescribed(
        &self,
        content: &mut FolderContent,
        findings: &mut NodeFindings,
    ) -> Option<Finding> {
        let path = &self.entry.path;
        let miscased = remove_miscased(findings);
        let is_below = self.scope.depth > 1;
        let is_lost = is_below && has_only_chunks(self.context, path);
        let chunks = (miscased.is_some() || is_lost)
            .then(|| content.remove_chunks(self.context, self.entry, findings))
            .flatten();
        if let Some((key, right)) = miscased {
            return Some(document_miscased(&key, right));
        }
        if let Some((count, first)) = chunks {
            let is_v3 = match self.scope.dialect {
                None => first.name().starts_with(b"c"),
                dialect => dialect != Some("v2"),
            };
            let document = match self.scope.dialect {
                Some("n5") => ATTRIBUTES_JSON,
                _ if is_v3 => ZARR_JSON,
                _ => ZARRAY,
            };
            return Some(undescribed_chunks(path, count, &first, document));
        }
        let has_attributes = content.has(ZATTRS);
        match content.folders.as_slice() {
            [] => None,
            _ if is_below => implied_group(path, self.scope.dialect),
            folders => undescribed_top(self.context, self.entry, folders, has_attributes),
        }
    }

    /// Advises to consolidate the metadata of a remote Zarr v2 hierarchy that has no consolidated metadata.
    fn advise_copies(&mut self, has_copies: bool, children: usize) {
        let is_top = self.scope.depth == 1 && self.entry.dialect() == Some("v2");
        if is_top && !has_copies && children > 1 && self.context.is_remote {
            let path = &self.entry.path;
            let message = format!(
                "without consolidated metadata, opening {children} children needs many requests"
            );
            let finding = Finding::advice("not-consolidated", path, message)
                .with_remedy("run zarrfs check --fix consolidated");
            self.findings.add(finding);
        }
    }

    /// Finds the metadata documents and children of a node in a store that cannot list keys, by requesting each
    /// possible document.
    fn probe_documents(&mut self) -> Result<Vec<Key>> {
        if self.scope.depth == 1 {
            self.findings.add(store_unlisted(&self.entry.path));
        }
        if let Some(array) = self.entry.array() {
            let open = self.context.arrays.open(self.entry)?;
            if let Err(error) = open.check_decodable() {
                let path = &self.entry.path;
                self.findings
                    .add(undecodable(path, &error, Some(array.dialect)));
            }
        } else if !self.entry.is_array()
            && let Err(error) = self.known_children()
        {
            self.findings.add(folder_unlisted(&self.entry.path, &error));
        }
        let dialects = DIALECTS
            .iter()
            .filter(|dialect| Some(dialect.name) == self.dialect);
        let mut stored = Vec::new();
        for dialect in dialects {
            for key in (dialect.documents)(&self.entry.path)? {
                if self
                    .context
                    .store()
                    .get(&UNLIMITED, &key, MAX_DOCUMENT)?
                    .is_some()
                {
                    stored.push(key);
                }
            }
        }
        Ok(stored)
    }

    /// Adds the children of a node that are known without a listing, such as those in consolidated metadata.
    fn known_children(&mut self) -> Result<()> {
        let mut listing = self
            .context
            .hierarchy
            .known_children(&UNLIMITED, self.entry)?;
        while let Some(name) = listing.next(&UNLIMITED)? {
            let is_link = false;
            let name = name.name;
            self.children.push(GroupChild { name, is_link });
        }
        self.children.sort();
        Ok(())
    }

    /// Checks the node's metadata documents, the consolidated metadata in them, and the copies of the documents in the
    /// consolidated metadata of parent groups.
    fn check_documents(&mut self) {
        for (key, kind) in self.documents.clone() {
            let (bytes, _reservation) =
                match self.context.document(&key, self.sizes.get(&key).copied()) {
                    Ok(Some(document)) => document,
                    Ok(None) => continue,
                    Err(error) => {
                        let message = format!("the metadata file cannot be read: {error}");
                        let finding = Finding::error("document-unreadable", &key, message);
                        let finding = finding.with_section(kind.section(&key));
                        self.findings.add(finding);
                        continue;
                    }
                };
            self.check_copied(&key, &bytes);
            self.check_own_copies(&key, &bytes);
            self.findings.extend(check_document(kind, &key, bytes));
        }
    }

    /// Reports a metadata document that is missing from consolidated metadata. They cannot contain a document that is
    /// no JSON object, and need not contain empty attributes.
    fn check_copied(&mut self, key: &Key, bytes: &[u8]) {
        let top = self.entry.entry_point().map(|draft| draft.top());
        let copies = self.scope.copies.iter();
        let missing: Vec<Finding> = copies
            .filter_map(|copies| copies.missing(key, top))
            .collect();
        let is_empty = || key.name() == ZATTRS.as_bytes() && is_empty(bytes);
        if !missing.is_empty() && is_object(bytes) && !is_empty() {
            self.findings.extend(missing);
        }
    }

    /// Checks the consolidated metadata of a group, which may be in the group's document `key`.
    fn check_own_copies(&mut self, key: &Key, bytes: &[u8]) {
        let path = self.entry.path.clone();
        if self.entry.is_array() || self.entry.entry_point().is_some() {
            return;
        }
        if key.name() == ZARR_JSON.as_bytes()
            && is_object(bytes)
            && let Ok(holder) = ConsolidatedDocument::of_v3(&path)
        {
            let findings = &mut self.findings;
            let copies = consolidated::check(self.context, holder, bytes, Some("v3"), findings);
            self.scope.copies.extend(copies);
        } else if key.name() == ZGROUP.as_bytes()
            && let Ok(holder) = ConsolidatedDocument::of_v2(&path)
        {
            self.check_copies(holder);
        }
    }

    /// Checks the document that contains consolidated metadata, if the document exists.
    fn check_copies(&mut self, holder: ConsolidatedDocument) {
        let key = holder.key();
        let (bytes, _reservation) = match self.context.document(key, None) {
            Ok(Some(document)) => document,
            Ok(None) => return,
            Err(error) => {
                let message = format!("the consolidated metadata cannot be read: {error}");
                self.findings
                    .add(Finding::error("consolidated-unreadable", key, message));
                return;
            }
        };
        let findings = &mut self.findings;
        let copies = consolidated::check(self.context, holder, &bytes, self.dialect, findings);
        self.scope.copies.extend(copies);
    }

    /// Checks the attributes that conventions define: those of xarray in arrays, and those of OME-Zarr and AnnData in
    /// groups.
    fn check_attributes(&mut self) {
        let (context, entry) = (self.context, self.entry);
        match entry.node() {
            Ok(Node::Array(array)) => self.findings.extend(datasets::check(&entry.path, array)),
            Ok(Node::Group(group)) => {
                let attributes = &group.attributes;
                self.findings.extend(ome::check(context, entry, attributes));
                self.findings
                    .extend(anndata::check(context, entry, attributes));
            }
            Err(_) => {}
        }
    }

    /// Reports a node that cannot be read although its documents break no rule, and attributes that cannot be read.
    fn check_reading(&mut self) {
        match self.entry.node() {
            Err(error) if !self.findings.has_error() => {
                let finding = node_fault(&self.entry.path, &error);
                let spec = Spec::of(self.dialect);
                self.findings.add(finding.with_section(spec.metadata()));
            }
            Err(_) => {}
            Ok(node) => {
                for note in (self.context.notes)(&self.context.arrays, self.entry) {
                    let advice = Finding::advice("view-without-node", &self.entry.path, note);
                    self.findings.add(advice);
                }
                if let Some(fault) = node
                    .attributes()
                    .fault()
                    .filter(|_| !self.findings.has_error())
                {
                    let path = &self.entry.path;
                    let message = format!("the attributes cannot be read: {fault}");
                    let finding = Finding::error("attributes-unreadable", path, message);
                    let spec = Spec::of(self.dialect);
                    self.findings.add(finding.with_section(spec.metadata()));
                }
            }
        }
    }
}

/// Whether a metadata document is a JSON object without members.
fn is_empty(bytes: &[u8]) -> bool {
    text_of_bytes(bytes).is_ok_and(json_text::is_empty)
}

/// Whether a metadata document is a JSON object.
fn is_object(bytes: &[u8]) -> bool {
    text_of_bytes(bytes).is_ok_and(|text| visit_members(text, &mut |_, _| {}).is_ok())
}

/// The information that a node inherits from its parent groups.
#[derive(Clone, Default)]
pub(crate) struct NodeScope {
    /// The dialect of the nearest parent group that has a metadata document.
    pub(crate) dialect: Option<&'static str>,
    /// The keys in the consolidated metadata of parent groups, which should include the node's metadata documents.
    pub(crate) copies: Vec<Arc<CopiedKeys>>,
    /// Whether the path to the node contains a symbolic link.
    pub(crate) is_behind_link: bool,
    pub(crate) depth: usize,
}

/// A child of a group that is still to be checked.
pub(crate) struct NextChild {
    pub(crate) group: Arc<NodeEntry>,
    pub(crate) scope: NodeScope,
    pub(crate) child: GroupChild,
}

/// The result of checking one node.
pub(crate) struct CheckedNode {
    pub(crate) path: Key,
    pub(crate) entry: Option<Arc<NodeEntry>>,
    pub(crate) findings: NodeFindings,
    /// The node's children, sorted by name. They are moved to the queue when the node is finished.
    pub(crate) children: Vec<GroupChild>,
    /// Whether the node has children, even after they were moved to the queue.
    pub(crate) has_children: bool,
    /// The information that the children inherit.
    pub(crate) scope: NodeScope,
    /// The array and the folder of its chunks, if its chunks can be decoded.
    pub(crate) array: Option<(Arc<OpenArray>, Key)>,
    pub(crate) chunks: u64,
    /// Whether the node has a metadata document.
    pub(crate) is_described: bool,
}

impl CheckedNode {
    /// Creates the result for a node about which nothing is known except perhaps one finding.
    pub(crate) fn unknown(path: &Key, finding: Option<Finding>) -> CheckedNode {
        let mut findings = NodeFindings::default();
        findings.extend(finding);
        CheckedNode {
            path: path.clone(),
            entry: None,
            findings,
            children: Vec::new(),
            has_children: false,
            scope: NodeScope::default(),
            array: None,
            chunks: 0,
            is_described: false,
        }
    }
}
