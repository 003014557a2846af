//! The nodes of a tree: what the metadata say of each. `tree_walk` finds them.

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

/// What a node is.
#[derive(Clone, Debug)]
pub enum NodeFacts {
    /// A group.
    Group,
    /// An array.
    Array(Box<ArrayInfo>),
    /// A node whose documents do not read.
    Broken(Error),
}

/// A node of a tree.
#[derive(Clone, Debug)]
pub struct TreeNode {
    /// Its path.
    pub path: Key,
    /// How far it is below the node that the tree begins with.
    pub depth: usize,
    /// What it is.
    pub facts: NodeFacts,
    /// The dialect whose documents describe it, if any does.
    pub dialect: Option<&'static str>,
    /// How many attributes it has.
    pub attributes: usize,
    /// How much of an array is stored, if that was asked for and the store tells.
    pub stored: Option<StoredFacts>,
    /// Whether it is the last child of its group.
    pub is_last: bool,
    /// Whether there are children that are not in the tree.
    pub is_cut: bool,
    /// Whether its children are those that attributes name, so that it may have others.
    pub is_partial: bool,
    /// Why its children are not known, if they are not.
    pub fault: Option<Error>,
}

/// How a tree is walked.
#[derive(Clone, Copy, Debug)]
pub struct TreeConfig {
    /// How many levels below the first node are shown.
    pub depth: usize,
    /// How many chunks of each array are counted, about; 0 for none.
    pub chunks: u64,
    /// How many nodes are read at a time.
    pub threads: usize,
}

impl TreeNode {
    /// Describes a node that lies so many levels below the first; the root's own files are named after `root`.
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
