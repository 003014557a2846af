//! Walks the nodes below a node in tree order, and describes each by its metadata.
//!
//! Several groups are listed in parallel. Their children are read in parallel, in batches of bounded size (`TreePart`).
//! So the number of round trips to a remote store is about the depth of the tree. In a group with a million arrays, the
//! first arrays are passed to the caller before the others are read.

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
    /// The depth of the node: 0 at the top of the tree.
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
    /// Whether it has children that the limits of the tree leave out.
    pub is_cut: bool,
    /// Whether the store cannot list the children, so that the tree has only those named by attributes.
    pub is_partial: bool,
    /// The error that keeps its children unknown, if there is one.
    pub fault: Option<Error>,
}

/// Options of a tree.
#[derive(Clone, Copy, Debug)]
pub struct TreeConfig {
    /// Maximum number of levels below the top.
    pub depth: usize,
    /// Approximate number of chunks of each array that are counted; 0 counts none.
    pub chunks: u64,
    /// Number of nodes that are read in parallel.
    pub threads: usize,
}

impl TreeNode {
    /// Describes a node at depth `depth`. If it is the root of the store, its files are named after `root`.
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

/// Maximum number of nodes of a tree. The nodes beyond it are left out, and their group has `is_cut`.
const MAX_NODES: usize = 1 << 20;

/// Maximum depth of a tree.
const MAX_DEPTH: usize = 1000;

/// Maximum number of children that are read as one batch. The nodes of a batch are passed on before more are read.
const PART: usize = 2048;

/// Receives the nodes of a tree. Returns `Break` to stop the walk.
pub type TakeNode<'a> = &'a mut dyn FnMut(TreeNode) -> ControlFlow<()>;

/// Passes the node at a path and all nodes below it to `take`. A group comes before its children, which are sorted by
/// name.
///
/// If the root of the store is among them, its files are named after `root`. Fails with `NotFound` if there is no node
/// at the path. If a group cannot be listed, its `fault` is set. If a child cannot be read after its group was passed
/// to `take`, the first such error is returned.
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
    // `Break` only means that the caller wants no more nodes.
    let _ = walk.emit_all(context, vec![TreeItem::of(ReadNode { node, entry })]);
    Ok(walk.fault)
}

/// Returns the nodes that `walk` passes on, as a list. An error that `walk` returns becomes the fault of the first
/// node.
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

/// A node that is ready to be passed on, or whose children must be listed first.
enum TreeItem {
    /// A node that is complete: if it has children in the tree, they are the next items.
    Known(TreeNode),
    /// A node whose children are not listed yet.
    Open(ReadNode),
}

/// An entry of a batch that is being filled: a node, or names of children whose nodes will be read. The children belong
/// to the nearest node before them.
enum TreeSlot {
    Node(TreeNode),
    Unread(UnreadChildren),
}

/// A batch of the tree that is being filled.
#[derive(Default)]
struct TreePart {
    slots: Vec<TreeSlot>,
    /// The number of names in the batch whose nodes are not read yet.
    unread: usize,
}

/// Children of one group whose nodes are read in the same batch.
struct UnreadChildren {
    parent: Arc<NodeEntry>,
    depth: usize,
    /// The last child of the previous batch. It was kept back, since it is the last child of the group if none of these
    /// names is a node.
    before: Option<ReadNode>,
    names: Vec<Vec<u8>>,
    /// Whether the group has more names after these, for the next batch.
    has_more: bool,
}

/// The result of reading a child; `None` if the name is not that of a node.
type ReadChild = Result<Option<ReadNode>>;

/// A node whose children were listed; `None` if the tree does not have its children.
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
    /// The number of nodes that may still be added to the tree.
    room: usize,
    fault: Option<Error>,
    take: TakeNode<'a>,
}

impl TreeWalk<'_> {
    /// Passes on nodes in order, and after each node all nodes below it.
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

    /// Adds a group and the names of its children to a batch. Whenever the batch is full, reads it and passes it on.
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

    /// Reads the children in a batch, and passes on the nodes of the batch and all nodes below them. If the last group
    /// has more names, its last child is returned instead, since only the next batch shows whether it is the last one.
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

    /// Adds children that were read to the items. If the group has more names, returns its last child instead of adding
    /// it.
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

    /// Records the error of a child as the fault of its group, or as the fault of the walk if the group was already
    /// passed on.
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
    /// Lists the children of a node. If they would be deeper than the tree may be, only checks whether there are any.
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

    /// Returns the names of the children of a group, sorted: at most the first `most` names of the listing. Also
    /// returns which names the listing leaves out.
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
            // Next to documents, a name such as `zarr.json` is not a child. A draft stores documents elsewhere, so
            // there it may be.
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

/// Whether a child is probably a folder of chunks: its parent may be an array, since the documents of the parent cannot
/// be read, and the child has a name like a chunk and no document.
fn is_of_chunks(parent: &NodeEntry, child: &NodeEntry) -> bool {
    let is_bare = child.node.is_ok() && child.dialect().is_none();
    parent.node.is_err() && is_bare && is_like_chunk(child.path.name())
}
