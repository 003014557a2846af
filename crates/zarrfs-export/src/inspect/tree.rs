//! Walks the nodes below a node in tree order, and describes each by its metadata.
//!
//! Groups are listed in parallel, and their children are read in parallel in parts of bounded size. So a remote tree
//! takes about as many round trips as it has levels, and of a group of a million arrays the first are passed on
//! before the others are read.

use std::mem::take;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::formats::subject::Surroundings;
use crate::inspect::access::OpenedStore;
use crate::inspect::node_info::ArrayInfo;
use crate::inspect::stored_chunks::ChunkTotals;
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::document::is_in_node_folder;
use zarr_format::model::{Node, is_like_chunk};
use zarrfs_array::array::OpenArray;
use zarrfs_array::hierarchy::NodeEntry;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::pool::parallel_map;
use zarrfs_store::{Key, LeftOut};

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
    pub stored: Option<ChunkTotals>,
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
        opened: &OpenedStore,
        root: &str,
        entry: &Arc<NodeEntry>,
        depth: usize,
        config: &TreeConfig,
    ) -> TreeNode {
        let open = entry.array().and_then(|_| opened.arrays.open(entry).ok());
        let count =
            |open: &Arc<OpenArray>| ChunkTotals::count(context, open, config.chunks, 1).ok();
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

/// Maximum number of nodes of a tree; further nodes are left out, and their group is marked as cut.
const MAX_NODES: usize = 1 << 20;

/// Maximum depth of a tree.
const MAX_DEPTH: usize = 1000;

/// Maximum number of nodes that are read before the nodes before them are passed on.
const PART: usize = 2048;

/// Receives the nodes of a tree, and returns whether it wants more.
pub type TakeNode<'a> = &'a mut dyn FnMut(TreeNode) -> ControlFlow<()>;

/// Passes on the node at a path and all nodes below it: each group before its children, which are sorted by name.
///
/// The root's own files are named after `root`. Fails with `NotFound` if there is no node; a group that cannot be
/// listed has a fault. Returns the first fault of a child that was found after its group was passed on.
pub fn walk(
    context: &RequestContext,
    opened: &OpenedStore,
    path: &Key,
    root: &str,
    config: &TreeConfig,
    take: TakeNode<'_>,
) -> Result<Option<Error>> {
    let first = opened.hierarchy.node(context, path)?;
    let entry = first.ok_or_else(|| Error::new(Kind::NotFound, path, "no such group or array"))?;
    let reader = NodeReader {
        opened,
        root,
        config,
    };
    let node = reader.describe(context, &entry, 0);
    let mut walk = TreeWalk {
        reader,
        room: MAX_NODES,
        fault: None,
        take,
    };
    // A break means that no more nodes are wanted, which is not a fault.
    let _ = walk.emit_all(context, vec![TreeItem::of(ReadNode { node, entry })]);
    Ok(walk.fault)
}

/// Returns the same nodes as a list.
pub fn tree(
    context: &RequestContext,
    opened: &OpenedStore,
    path: &Key,
    root: &str,
    config: &TreeConfig,
) -> Result<Vec<TreeNode>> {
    let mut nodes = Vec::new();
    let fault = walk(context, opened, path, root, config, &mut |node| {
        nodes.push(node);
        ControlFlow::Continue(())
    })?;
    if let Some(first) = nodes.first_mut() {
        first.fault = first.fault.take().or(fault);
    }
    Ok(nodes)
}

/// A node that was read.
struct ReadNode {
    node: TreeNode,
    entry: Arc<NodeEntry>,
}

/// A node of a part of the tree.
enum TreeItem {
    /// A node whose children, if it has any, are the next items.
    Known(TreeNode),
    /// A node whose children are not known.
    Open(ReadNode),
}

/// An entry of a part in progress: a node, or names of children of the last node before.
enum TreeSlot {
    Node(TreeNode),
    Unread(UnreadChildren),
}

/// A part of the tree in progress.
#[derive(Default)]
struct TreePart {
    slots: Vec<TreeSlot>,
    /// The number of names that are not read yet.
    unread: usize,
}

/// Children of a group that will be read together.
struct UnreadChildren {
    parent: Arc<NodeEntry>,
    depth: usize,
    /// The child before them, which may turn out to be the last one.
    before: Option<ReadNode>,
    names: Vec<Vec<u8>>,
    /// Whether there are names after these.
    has_more: bool,
}

/// The result of reading a child.
type ReadChild = Result<Option<ReadNode>>;

/// A node, and its children if they are in the tree.
struct ListedNode {
    node: TreeNode,
    children: Option<ListedChildren>,
}

/// The names of the children of a group.
struct ListedChildren {
    parent: Arc<NodeEntry>,
    names: Vec<Vec<u8>>,
}

/// A child that will be read.
struct UnreadChild {
    parent: Arc<NodeEntry>,
    name: Vec<u8>,
    depth: usize,
}

/// Reads nodes in several threads.
#[derive(Clone, Copy)]
struct NodeReader<'a> {
    opened: &'a OpenedStore,
    root: &'a str,
    config: &'a TreeConfig,
}

/// A walk in progress.
struct TreeWalk<'a> {
    reader: NodeReader<'a>,
    /// The number of nodes that the tree may still have.
    room: usize,
    fault: Option<Error>,
    take: TakeNode<'a>,
}

impl TreeWalk<'_> {
    /// Passes on nodes in order, each with all nodes below it.
    fn emit_all(&mut self, context: &RequestContext, items: Vec<TreeItem>) -> ControlFlow<()> {
        if !items.iter().any(|item| matches!(item, TreeItem::Open(_))) {
            return items.into_iter().try_for_each(|item| match item {
                TreeItem::Known(node) | TreeItem::Open(ReadNode { node, .. }) => (self.take)(node),
            });
        }
        let reader = self.reader;
        let list = |item| reader.list(context, item);
        let mut part = TreePart::default();
        for ListedNode { node, children } in parallel_map(reader.config.threads, items, &list) {
            match children {
                None => part.slots.push(TreeSlot::Node(node)),
                Some(children) => self.add_group(context, &mut part, node, children)?,
            }
        }
        self.emit_part(context, &mut part).map_continue(drop)
    }

    /// Adds a group and its children to a part; passes the part on whenever it is full.
    fn add_group(
        &mut self,
        context: &RequestContext,
        part: &mut TreePart,
        mut node: TreeNode,
        ListedChildren { parent, names }: ListedChildren,
    ) -> ControlFlow<()> {
        let depth = node.depth + 1;
        let wanted = names.len().min(self.room);
        node.is_cut = names.len() > wanted;
        self.room -= wanted;
        part.slots.push(TreeSlot::Node(node));
        let mut names = names.into_iter().take(wanted);
        let mut before = None;
        while names.len() > 0 {
            let here: Vec<Vec<u8>> = names.by_ref().take(PART - part.unread).collect();
            part.unread += here.len();
            part.slots.push(TreeSlot::Unread(UnreadChildren {
                parent: parent.clone(),
                depth,
                before: before.take(),
                names: here,
                has_more: names.len() > 0,
            }));
            if part.unread >= PART {
                before = self.emit_part(context, part)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Reads the children of a part and passes the part on, except for a last child that others may follow.
    fn emit_part(
        &mut self,
        context: &RequestContext,
        part: &mut TreePart,
    ) -> ControlFlow<(), Option<ReadNode>> {
        let slots = take(part).slots;
        let unread = slots.iter().filter_map(|slot| match slot {
            TreeSlot::Node(_) => None,
            TreeSlot::Unread(unread) => Some(unread.children()),
        });
        let reader = self.reader;
        let read = |child: UnreadChild| reader.read(context, &child);
        let mut read =
            parallel_map(reader.config.threads, unread.flatten().collect(), &read).into_iter();
        let mut items = Vec::new();
        let mut last = None;
        for slot in slots {
            match slot {
                TreeSlot::Node(node) => items.push(TreeItem::Known(node)),
                TreeSlot::Unread(unread) => {
                    let children = read.by_ref().take(unread.names.len());
                    last = self.add_children(unread, children, &mut items);
                }
            }
        }
        self.emit_all(context, items)?;
        ControlFlow::Continue(last)
    }

    /// Adds children that were read; returns the last one if others may follow.
    fn add_children(
        &mut self,
        unread: UnreadChildren,
        read: impl Iterator<Item = ReadChild>,
        items: &mut Vec<TreeItem>,
    ) -> Option<ReadNode> {
        let mut children: Vec<ReadNode> = unread.before.into_iter().collect();
        for child in read {
            match child {
                Ok(child) => children.extend(child),
                Err(error) => self.record_fault(&unread.parent.path, error, items),
            }
        }
        let last = children.pop();
        for found in &mut children {
            found.node.is_last = false;
        }
        items.extend(children.into_iter().map(TreeItem::of));
        if unread.has_more {
            return last;
        }
        items.extend(last.map(TreeItem::of));
        None
    }

    /// Records an error of a child in its group, or in the walk if the group was already passed on.
    fn record_fault(&mut self, group: &Key, error: Error, items: &mut [TreeItem]) {
        let node = items.iter_mut().rev().find_map(|item| match item {
            TreeItem::Known(node) if node.path == *group => Some(node),
            TreeItem::Known(_) | TreeItem::Open(_) => None,
        });
        match node {
            Some(node) => node.fault = Some(error),
            None => self.fault = self.fault.take().or(Some(error)),
        }
    }
}

impl NodeReader<'_> {
    /// Lists the children of a node; if they are too deep for the tree, only checks whether there are any.
    fn list(&self, context: &RequestContext, item: TreeItem) -> ListedNode {
        let ReadNode { mut node, entry } = match item {
            TreeItem::Known(node) => {
                return ListedNode {
                    node,
                    children: None,
                };
            }
            TreeItem::Open(found) => found,
        };
        let is_deepest = node.depth >= self.config.depth.min(MAX_DEPTH);
        let most = if is_deepest { 1 } else { MAX_NODES + 1 };
        let mut children = None;
        match self.names(context, &entry, most) {
            Err(error) => node.fault = Some(error),
            Ok((names, _)) if is_deepest => node.is_cut = !names.is_empty(),
            Ok((names, left_out)) => {
                node.is_partial = left_out == LeftOut::Any;
                let parent = entry;
                children = Some(ListedChildren { parent, names });
            }
        }
        ListedNode { node, children }
    }

    /// Returns the sorted names of the children of a group, at most the first `most` in the listing; and which names
    /// the listing leaves out.
    fn names(
        &self,
        context: &RequestContext,
        entry: &Arc<NodeEntry>,
        most: usize,
    ) -> Result<(Vec<Vec<u8>>, LeftOut)> {
        let mut names = Vec::new();
        let hierarchy = &self.opened.hierarchy;
        let mut listing = hierarchy.children_or_named(context, entry)?;
        while names.len() < most
            && let Some(name) = listing.next(context)?
        {
            // A node cannot have the name of a document in its group's folder; drafts have their documents elsewhere.
            if entry.entry_point().is_some() || !is_in_node_folder(&name.name) {
                names.push(name.name);
            }
        }
        names.sort();
        Ok((names, listing.left_out()))
    }

    fn read(&self, context: &RequestContext, unread: &UnreadChild) -> ReadChild {
        let parent = &unread.parent;
        let child = self.opened.hierarchy.child(context, parent, &unread.name)?;
        let child = child.filter(|child| !is_of_chunks(parent, child));
        Ok(child.map(|entry| {
            let node = self.describe(context, &entry, unread.depth);
            ReadNode { node, entry }
        }))
    }

    fn describe(&self, context: &RequestContext, entry: &Arc<NodeEntry>, depth: usize) -> TreeNode {
        TreeNode::describe(context, self.opened, self.root, entry, depth, self.config)
    }
}

impl TreeItem {
    /// An array has no children to list.
    fn of(found: ReadNode) -> TreeItem {
        if found.entry.is_array() {
            TreeItem::Known(found.node)
        } else {
            TreeItem::Open(found)
        }
    }
}

impl UnreadChildren {
    /// Returns each child to read.
    fn children(&self) -> impl Iterator<Item = UnreadChild> {
        self.names.iter().map(|name| UnreadChild {
            parent: self.parent.clone(),
            name: name.clone(),
            depth: self.depth,
        })
    }
}

/// Whether a child is a folder of chunks: it has such a name and no document, and its parent may be an array whose
/// documents cannot be read.
fn is_of_chunks(parent: &NodeEntry, child: &NodeEntry) -> bool {
    let is_bare = child.node.is_ok() && child.dialect().is_none();
    parent.node.is_err() && is_bare && is_like_chunk(child.path.name())
}
