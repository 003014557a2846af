//! Describes the nodes of a tree by their metadata; `tree_walk` finds them.

use std::sync::Arc;

use crate::formats::surroundings::Surroundings;
use crate::inspect::access::OpenedStore;
use crate::inspect::array_info::ArrayInfo;
use crate::inspect::stored::StoredFacts;
use zarr_format::error::Error;
use zarr_format::model::Node;
use zarrfs_array::array::OpenArray;
use zarrfs_array::hierarchy::NodeEntry;
use zarrfs_store::Key;
use zarrfs_store::request_context::RequestContext;

/// The kind of a node.
#[derive(Clone, Debug)]
pub enum NodeFacts {
    /// A group.
    Group,
    /// An array.
    Array(Box<ArrayInfo>),
    /// A node whose documents cannot be read.
    Broken(Error),
}

/// A node of a tree.
#[derive(Clone, Debug)]
pub struct TreeNode {
    /// The path of the node.
    pub path: Key,
    /// The number of levels below the top of the tree.
    pub depth: usize,
    /// The kind of the node.
    pub facts: NodeFacts,
    /// The dialect of its documents, if it has any.
    pub dialect: Option<&'static str>,
    /// The number of its attributes.
    pub attributes: usize,
    /// Totals of the stored chunks of an array, if they were requested and the store can tell.
    pub stored: Option<StoredFacts>,
    /// Whether it is the last child of its group.
    pub is_last: bool,
    /// Whether it has children that are not in the tree.
    pub is_cut: bool,
    /// Whether its children are known only from attributes, so that there may be others.
    pub is_partial: bool,
    /// The error for which its children are unknown, if any.
    pub fault: Option<Error>,
}

/// Options of a walk.
#[derive(Clone, Copy, Debug)]
pub struct TreeConfig {
    /// Maximum number of levels below the top.
    pub depth: usize,
    /// Approximate number of chunks of each array that are counted; 0 for none.
    pub chunks: u64,
    /// Number of nodes that are read in parallel.
    pub threads: usize,
}

impl TreeNode {
    /// Describes a node at `depth` levels below the top; the root's own files are named after `root`.
    pub(super) fn describe(
        context: &RequestContext,
        (opened, root): (&OpenedStore, &str),
        entry: &Arc<NodeEntry>,
        depth: usize,
        config: &TreeConfig,
    ) -> TreeNode {
        let open = entry.array().and_then(|_| opened.arrays.open(entry).ok());
        let count =
            |open: &Arc<OpenArray>| StoredFacts::count(context, open, config.chunks, 1).ok();
        TreeNode {
            path: entry.path.clone(),
            depth,
            facts: facts(entry, open.as_ref(), root),
            dialect: entry.dialect(),
            attributes: entry
                .node
                .as_ref()
                .map_or(0, |node| node.attributes().members().len()),
            stored: open.as_ref().filter(|_| config.chunks > 0).and_then(count),
            is_last: true,
            is_cut: false,
            is_partial: false,
            fault: None,
        }
    }
}

fn facts(entry: &NodeEntry, open: Option<&Arc<OpenArray>>, root: &str) -> NodeFacts {
    let name = if entry.path.is_root() {
        root.to_string()
    } else {
        String::from_utf8_lossy(entry.path.name()).into_owned()
    };
    match (&entry.node, open) {
        (Err(error), _) => NodeFacts::Broken(error.clone()),
        (Ok(Node::Array(_)), Some(open)) => {
            let info = ArrayInfo::of(open, &name, Surroundings::default());
            NodeFacts::Array(Box::new(info))
        }
        (Ok(Node::Array(_)), None) => {
            NodeFacts::Broken(Error::unavailable(&entry.path, "cannot be opened"))
        }
        (Ok(Node::Group(_)), _) => NodeFacts::Group,
    }
}
