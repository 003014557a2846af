//! The nodes below a node, with what the metadata say of each, in the order of a tree.
//!
//! The tree is walked level by level: the groups of one level are listed side by side, and so are all their children read.
//! So a tree on the network takes as many round trips as it is deep, not as it has nodes.

use std::sync::Arc;

use crate::array::OpenArray;
use crate::error::{Error, Kind, Result};
use crate::hierarchy::{Hierarchy, NodeEntry};
use crate::inspect::access::OpenedStore;
use crate::inspect::array_info::ArrayInfo;
use crate::inspect::stored::StoredFacts;
use crate::model::document::is_in_node_folder;
use crate::model::{Node, is_like_chunk};
use crate::store::Key;
use crate::sync::pool::parallel_map;

/// The most nodes of a tree; what is beyond is left out, and the tree says so.
const MAX_NODES: usize = 1 << 20;

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

/// A node that was found, and where its children are in the list of all.
struct Walked {
    entry: Arc<NodeEntry>,
    depth: usize,
    children: Vec<usize>,
    is_cut: bool,
    fault: Option<Error>,
}

/// Returns the nodes at a path and below it, each group before its children, which are in the order of their names.
///
/// The root's own files are named after `root`. Fails with `NotFound` if there is no node; a group that cannot be listed is
/// in the tree with its fault.
pub fn tree(
    opened: &OpenedStore,
    (path, root): (&Key, &str),
    config: &TreeConfig,
) -> Result<Vec<TreeNode>> {
    let first = opened.hierarchy.node(path)?;
    let first = first.ok_or_else(|| Error::new(Kind::NotFound, path, "no such group or array"))?;
    let mut all = vec![Walked::new(first, 0)];
    let mut level = vec![0];
    while !level.is_empty() {
        level = walk_level(&opened.hierarchy, &mut all, &level, config);
    }
    let mut order = Vec::with_capacity(all.len());
    let mut open = vec![(0, true)];
    while let Some((number, is_last)) = open.pop() {
        order.push((number, is_last));
        let Some(walked) = all.get(number) else {
            continue;
        };
        let last = walked.children.last().copied();
        let children = walked.children.iter().rev();
        open.extend(children.map(|&child| (child, Some(child) == last)));
    }
    let describe = |(number, is_last): (usize, bool)| {
        all.get(number)
            .map(|walked| walked.describe(opened, (is_last, root), config))
    };
    let nodes = parallel_map(config.threads, order, &describe);
    Ok(nodes.into_iter().flatten().collect())
}

/// Finds the children of all nodes of a level; returns them as the next level.
fn walk_level(
    hierarchy: &Arc<Hierarchy>,
    all: &mut Vec<Walked>,
    level: &[usize],
    config: &TreeConfig,
) -> Vec<usize> {
    let groups = level
        .iter()
        .filter_map(|&number| Some((number, all.get(number)?.entry.clone())));
    let is_last = |&number: &usize| {
        all.get(number)
            .is_some_and(|node| node.depth == config.depth)
    };
    // Of a group below which nothing is shown, it is only asked whether there is something.
    let most = if level.iter().any(is_last) {
        1
    } else {
        MAX_NODES + 1
    };
    let list = |(number, entry): (usize, Arc<NodeEntry>)| (number, names(hierarchy, &entry, most));
    let listed = parallel_map(config.threads, groups.collect(), &list);
    let mut wanted = Vec::new();
    for (number, found) in listed {
        let Some(walked) = all.get_mut(number) else {
            continue;
        };
        match found {
            Err(error) => walked.fault = Some(error),
            Ok(names) if walked.depth == config.depth => walked.is_cut = !names.is_empty(),
            Ok(names) => {
                let parent = walked.entry.clone();
                let room = MAX_NODES.saturating_sub(all.len() + wanted.len());
                let is_cut = names.len() > room;
                wanted.extend(
                    names
                        .into_iter()
                        .take(room)
                        .map(|name| (number, parent.clone(), name)),
                );
                if let Some(walked) = all.get_mut(number) {
                    walked.is_cut = is_cut;
                }
            }
        }
    }
    let read = |(number, parent, name): (usize, Arc<NodeEntry>, Vec<u8>)| {
        (number, hierarchy.child(&parent, &name))
    };
    let mut next = Vec::new();
    for (number, child) in parallel_map(config.threads, wanted, &read) {
        let place = all.len();
        let Some(walked) = all.get_mut(number) else {
            continue;
        };
        match child {
            Err(error) => walked.fault = Some(error),
            Ok(None) => {}
            Ok(Some(child)) if is_of_chunks(walked, &child) => {}
            Ok(Some(child)) => {
                walked.children.push(place);
                let depth = walked.depth + 1;
                all.push(Walked::new(child, depth));
                next.push(place);
            }
        }
    }
    next
}

/// Whether a child is a folder of chunks: a bare one of such a name, in a node that may be an array for all that is known.
fn is_of_chunks(parent: &Walked, child: &NodeEntry) -> bool {
    let is_bare = child.node.is_ok() && child.dialect().is_none();
    parent.entry.node.is_err() && is_bare && is_like_chunk(child.path.name())
}

/// Returns the names of the children of a node in their order, or as many as those that are listed first; none of an
/// array.
fn names(hierarchy: &Arc<Hierarchy>, entry: &Arc<NodeEntry>, most: usize) -> Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    if entry.is_array() {
        return Ok(names);
    }
    let mut listing = hierarchy.children(entry)?;
    while names.len() < most
        && let Some(name) = listing.next()?
    {
        // No node has the name of a document that lies in its folder; those of drafts lie elsewhere.
        if entry.entry_point().is_some() || !is_in_node_folder(&name.name) {
            names.push(name.name);
        }
    }
    names.sort();
    Ok(names)
}

impl Walked {
    fn new(entry: Arc<NodeEntry>, depth: usize) -> Walked {
        Walked {
            entry,
            depth,
            children: Vec::new(),
            is_cut: false,
            fault: None,
        }
    }

    fn describe(
        &self,
        opened: &OpenedStore,
        (is_last, root): (bool, &str),
        config: &TreeConfig,
    ) -> TreeNode {
        let entry = &self.entry;
        let name = if entry.path.is_root() {
            root.to_string()
        } else {
            String::from_utf8_lossy(entry.path.name()).into_owned()
        };
        let open = entry.array().and_then(|_| opened.arrays.open(entry).ok());
        let count = |open: &Arc<OpenArray>| StoredFacts::count(open, config.chunks, 1).ok();
        let facts = match (&entry.node, &open) {
            (Err(error), _) => NodeFacts::Broken(error.clone()),
            (Ok(Node::Array(_)), Some(open)) => {
                NodeFacts::Array(Box::new(ArrayInfo::of(open, &name)))
            }
            (Ok(Node::Array(_)), None) => {
                NodeFacts::Broken(Error::unavailable(&entry.path, "cannot be opened"))
            }
            (Ok(Node::Group(_)), _) => NodeFacts::Group,
        };
        TreeNode {
            path: entry.path.clone(),
            depth: self.depth,
            facts,
            dialect: entry.dialect(),
            attributes: entry
                .node
                .as_ref()
                .map_or(0, |node| node.attributes().members().len()),
            stored: open.as_ref().filter(|_| config.chunks > 0).and_then(count),
            is_last,
            is_cut: self.is_cut,
            fault: self.fault.clone(),
        }
    }
}
