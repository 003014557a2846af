//! Rebuilds consolidated metadata of a group and of the groups below it.
//!
//! For a group below the given one, consolidated metadata are rebuilt only if the group already has them. Nodes are
//! found in the same way as in a check, so all faults that a check finds in consolidated metadata are repaired.

use std::sync::Arc;

use crate::context::CheckContext;
use crate::node_findings::NodeFindings;
use crate::walk::MAX_DEPTH;
use crate::walk::draft_folders;
use crate::walk::folder::{FolderContent, GroupChild};
use zarr_format::dialect::consolidated::ConsolidatedDocument;
use zarr_format::dialect::consolidated::MEMBER;
use zarr_format::dialect::draft::EntryPoint;
use zarr_format::dialect::text_of;
use zarr_format::error::{Error, Kind, Result};
use zarr_format::json_text::find_member;
use zarr_format::model::document::{ZARR_JSON, ZARRAY, ZATTRS, ZGROUP, is_in_node_folder};
use zarrfs_array::hierarchy::{MAX_DOCUMENT, NodeEntry, ReconsolidatedDocument};
use zarrfs_store::Key;
use zarrfs_store::request_context::UNLIMITED;
use zarrfs_store::sync::pool::parallel_map;

/// The key of a metadata document that a node may have, whether or not the document is stored.
struct KnownDocument {
    key: Key,
    /// For a document of a Zarr v3 draft: the folder of the draft's entry point, which is the root of the draft's
    /// hierarchy.
    top: Option<Key>,
}

/// A child of a group that is still to be visited while documents are collected.
struct NextNode {
    group: Arc<NodeEntry>,
    child: GroupChild,
    depth: usize,
    is_behind_link: bool,
}

/// What was found at a node: the keys of its documents, the documents with consolidated metadata, and the children.
#[derive(Default)]
struct FoundNode {
    documents: Vec<KnownDocument>,
    holders: Vec<ConsolidatedDocument>,
    children: Vec<NextNode>,
}

/// Rebuilds the consolidated metadata of a group, even if it has none, and those of groups below that already have
/// them. Returns the result for each document that holds consolidated metadata.
///
/// Fails with `Unsupported` if the store cannot list names or the dialect has no consolidated metadata, with `Invalid`
/// if the node cannot have consolidated metadata of its own, and with `Changed` if another program changes the
/// consolidated metadata at the same time.
pub fn rebuild_consolidated(
    context: &CheckContext,
    start: &Arc<NodeEntry>,
) -> Result<Vec<ReconsolidatedDocument>> {
    if !context.store().info().lists {
        let why =
            "the server cannot list the store, so its nodes are unknown; run this on a local copy";
        return Err(Error::unsupported(&start.path, why));
    }
    let mut holders = own_holders(context, start)?;
    let below = find_below(context, start)?;
    let is_other =
        |holder: &ConsolidatedDocument| holders.iter().all(|own| own.key() != holder.key());
    let others: Vec<ConsolidatedDocument> = below.holders.into_iter().filter(is_other).collect();
    holders.extend(others);
    let rebuild = |holder: &ConsolidatedDocument| {
        let wanted = below.documents.iter().filter_map(|document| {
            let name = holder.expected_name(&document.key, document.top.as_ref())?;
            Some((name, document.key.clone()))
        });
        let threads = context.threads;
        context
            .hierarchy
            .reconsolidate(&UNLIMITED, holder, wanted, threads)
    };
    holders.iter().map(rebuild).collect()
}

/// Returns the documents in which a group's consolidated metadata are stored, or would be stored if it has none.
fn own_holders(context: &CheckContext, start: &NodeEntry) -> Result<Vec<ConsolidatedDocument>> {
    let path = &start.path;
    if start.is_array() {
        let why = "an array has no consolidated metadata; use the path of a group";
        return Err(Error::invalid(path, why));
    }
    if let Some(draft) = start.entry_point() {
        if draft.top() != path {
            let why = format!(
                "only the root of a draft has consolidated metadata; use {}",
                draft.top()
            );
            return Err(Error::invalid(path, why));
        }
        let holder = ConsolidatedDocument::of_draft(draft)?;
        let why = format!("the format {} has no consolidated metadata", draft.name());
        return Ok(vec![holder.ok_or_else(|| Error::unsupported(path, why))?]);
    }
    let mut holders = Vec::new();
    for (name, holder) in [
        (ZARR_JSON, ConsolidatedDocument::of_v3(path)?),
        (ZGROUP, ConsolidatedDocument::of_v2(path)?),
    ] {
        if context
            .store()
            .head(&UNLIMITED, &path.child(name.as_bytes())?)?
            .is_some()
        {
            holders.push(holder);
        }
    }
    if holders.is_empty() {
        let why = "no Zarr v2 or v3 group here; only such a group has consolidated metadata";
        return Err(Error::unsupported(path, why));
    }
    Ok(holders)
}

/// Finds the metadata documents of a node and of all nodes below it, and the documents with consolidated metadata.
fn find_below(context: &CheckContext, start: &Arc<NodeEntry>) -> Result<FoundNode> {
    let mut all = FoundNode::default();
    let first = visit(context, start, 0, false)?;
    let mut open = vec![first];
    let mut waiting = Vec::new();
    let mut length: u64 = 0;
    loop {
        for node in open.drain(..) {
            let keys = node.documents.iter();
            length += keys
                .map(|document| document.key.as_bytes().len() as u64)
                .sum::<u64>();
            all.documents.extend(node.documents);
            all.holders.extend(node.holders);
            waiting.extend(node.children);
        }
        if length > MAX_DOCUMENT {
            let why = "too many nodes for consolidated metadata";
            return Err(Error::new(Kind::TooLarge, &start.path, why));
        }
        if waiting.is_empty() {
            return Ok(all);
        }
        let from = waiting.len().saturating_sub(4 * context.threads.max(1));
        let batch = waiting.split_off(from);
        let visit = |next: NextNode| visit_child(context, &next);
        open = parallel_map(context.threads, batch, &visit)
            .into_iter()
            .collect::<Result<_>>()?;
    }
}

/// Finds the documents of a child of a group. Skips a child that is too deep or behind a second symbolic link, as a
/// check does.
fn visit_child(context: &CheckContext, next: &NextNode) -> Result<FoundNode> {
    let is_behind_link = next.is_behind_link || next.child.is_link;
    if next.depth >= MAX_DEPTH || (next.is_behind_link && next.child.is_link) {
        return Ok(FoundNode::default());
    }
    match context
        .hierarchy
        .child(&UNLIMITED, &next.group, &next.child.name)?
    {
        Some(entry) => visit(context, &entry, next.depth, is_behind_link),
        None => Ok(FoundNode::default()),
    }
}

fn visit(
    context: &CheckContext,
    entry: &Arc<NodeEntry>,
    depth: usize,
    is_behind_link: bool,
) -> Result<FoundNode> {
    context.progress.add_node();
    let mut node = FoundNode::default();
    let children = match entry.entry_point() {
        Some(draft) => visit_draft_node(context, entry, draft, &mut node)?,
        None => visit_folder_node(context, entry, &mut node)?,
    };
    let next = |child| NextNode {
        group: entry.clone(),
        child,
        depth: depth + 1,
        is_behind_link,
    };
    node.children = children.into_iter().map(next).collect();
    Ok(node)
}

/// Adds the documents in a node's own folder to `node`, and returns the children.
fn visit_folder_node(
    context: &CheckContext,
    entry: &NodeEntry,
    node: &mut FoundNode,
) -> Result<Vec<GroupChild>> {
    let path = &entry.path;
    for name in [ZARR_JSON, ZGROUP, ZARRAY, ZATTRS] {
        let key = path.child(name.as_bytes())?;
        node.documents.push(KnownDocument { key, top: None });
    }
    if entry.is_array() {
        return Ok(Vec::new());
    }
    let mut faults = NodeFindings::default();
    let is_document = |key: &Key| is_in_node_folder(key.name());
    let content = FolderContent::read(context, path, &is_document, &mut faults);
    faults.check_listed()?;
    let v2 = ConsolidatedDocument::of_v2(path)?;
    let has = |key: &Key| content.objects.contains(key);
    if has(v2.key()) && has(&path.child(ZGROUP.as_bytes())?) {
        node.holders.push(v2);
    }
    let v3 = ConsolidatedDocument::of_v3(path)?;
    if has(v3.key()) && has_consolidated(context, v3.key())? {
        node.holders.push(v3);
    }
    Ok(content.folders)
}

/// Whether the document of a group contains consolidated metadata, valid or not.
fn has_consolidated(context: &CheckContext, key: &Key) -> Result<bool> {
    let Some(object) = context.store().get(&UNLIMITED, key, MAX_DOCUMENT)? else {
        return Ok(false);
    };
    let text = text_of(&object.bytes).unwrap_or_default();
    let member = find_member(text, MEMBER).ok().flatten();
    Ok(member.is_some_and(|place| text.get(place) != Some("null")))
}

/// Adds the documents of a node of a Zarr v3 draft, which are not in the node's folder, and returns the children.
fn visit_draft_node(
    context: &CheckContext,
    entry: &NodeEntry,
    draft: &EntryPoint,
    node: &mut FoundNode,
) -> Result<Vec<GroupChild>> {
    let (path, top) = (&entry.path, draft.top());
    let is_top = path == top;
    let mut keys: Vec<Key> = draft
        .documents(path)?
        .into_iter()
        .map(|(_, key)| key)
        .collect();
    if is_top {
        keys.push(top.child(ZARR_JSON.as_bytes())?);
        let holder = ConsolidatedDocument::of_draft(draft)?;
        let is_there =
            |holder: &ConsolidatedDocument| context.store().head(&UNLIMITED, holder.key());
        if let Some(holder) = holder
            && is_there(&holder)?.is_some()
        {
            node.holders.push(holder);
        }
    }
    let document = |key| KnownDocument {
        key,
        top: Some(top.clone()),
    };
    node.documents.extend(keys.into_iter().map(document));
    if entry.is_array() {
        return Ok(Vec::new());
    }
    let mut faults = NodeFindings::default();
    let children = draft_folders::children(context, draft, path, &mut faults)?;
    faults.check_listed()?;
    Ok(children)
}
