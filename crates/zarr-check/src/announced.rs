//! What lies below the nodes that are looked at next, announced together: a store on a network lists it in far fewer
//! requests than there are nodes, and what the listing does not show is not asked for.
//!
//! Without a network, and where nothing is listed, nothing is announced.

use crate::checked_node::NextChild;
use crate::context::CheckContext;
use zarr_format::error::Result;
use zarrfs_array::hierarchy::NodeEntry;
use zarrfs_store::Key;
use zarrfs_store::request_context::UNLIMITED;

/// Whether what lies below nodes is announced: elsewhere that would do nothing.
pub(super) fn is_announced(context: &CheckContext) -> bool {
    context.is_remote && context.store().info().lists
}

/// Announces all that lies below children of one group.
pub(super) fn announce(context: &CheckContext, nodes: &[NextChild]) {
    for (top, folders) in folders_of(nodes) {
        context
            .hierarchy
            .hints()
            .learn_below(&UNLIMITED, &top, &folders);
    }
}

/// Returns the folders in which keys of children of one group lie, by the folder that these are in.
fn folders_of(nodes: &[NextChild]) -> Vec<(Key, Vec<Key>)> {
    let Some(first) = nodes.first() else {
        return Vec::new();
    };
    let tops = tops_of(&first.group).unwrap_or_default();
    let folders = |top: &Key| {
        let below = |node: &NextChild| top.child(&node.child.name).ok();
        nodes.iter().filter_map(below).collect()
    };
    tops.into_iter()
        .map(|top| (top.clone(), folders(&top)))
        .collect()
}

/// Returns the folders in which keys of the children of a group lie: in drafts, documents and chunks have their own.
fn tops_of(group: &NodeEntry) -> Result<Vec<Key>> {
    match group.entry_point() {
        None => Ok(vec![group.path.clone()]),
        Some(draft) => Ok(vec![draft.folder(&group.path)?, draft.data(&group.path)?]),
    }
}
