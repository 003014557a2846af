//! Prefetches listings for the nodes that are checked next.
//!
//! A store on a network lists many nodes in far fewer requests than there are nodes, and keys that are missing in the
//! listing are not requested.
//!
//! Does nothing for local stores and for stores that cannot list.

use crate::checked_node::NextChild;
use crate::context::CheckContext;
use zarr_format::error::Result;
use zarrfs_array::hierarchy::NodeEntry;
use zarrfs_store::Key;
use zarrfs_store::request_context::UNLIMITED;

/// Whether listings are prefetched: the store is on a network and can list.
pub(super) fn is_announced(context: &CheckContext) -> bool {
    context.is_remote && context.store().info().lists
}

/// Prefetches the listings below children of one group.
pub(super) fn announce(context: &CheckContext, nodes: &[NextChild]) {
    for (top, folders) in folders_of(nodes) {
        context
            .hierarchy
            .hints()
            .prefetch_below(&UNLIMITED, &top, &folders);
    }
}

/// Returns the folders with the keys of children of one group, grouped by their parent folder.
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

/// Returns the folders in which the keys of a group's children lie: drafts have one for documents and one for chunks.
fn tops_of(group: &NodeEntry) -> Result<Vec<Key>> {
    match group.entry_point() {
        None => Ok(vec![group.path.clone()]),
        Some(draft) => Ok(vec![draft.folder(&group.path)?, draft.data(&group.path)?]),
    }
}
