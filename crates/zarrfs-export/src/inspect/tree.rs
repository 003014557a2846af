//! Walks the nodes below a node in tree order, and describes each by its metadata.
//!
//! Several groups are listed in parallel. Their children are read in parallel, in batches of bounded size (`TreePart`).
//! So the number of round trips to a remote store is about the depth of the tree. In a group with a million arrays, the
//! first arrays are passed to the caller before the other arrays are read.

use std::mem::take;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::formats::subject::Surroundings;
use crate::inspect::node_info::ArrayInfo;
use crate::inspect::opened_store::OpenedStore;
use crate::inspect::stored_chunks::ChunkTotals;
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::document::is_in_node_folder;
use zarr_format::model::{Node, is_like_chunk};
use zarrfs_array::array::OpenArray;
use zarrfs_array::hierarchy::NodeEntry;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::pool::parallel_map;
use zarrfs_store::{Key, LeftOut};

/// The kind of a node, with what is known of it.
#[derive(Clone, Debug)]
pub enum NodeFacts {
    /// The node is a group.
    Group,
    /// The node is an array.
    Array(Box<ArrayInfo>),
    /// The documents of the node cannot be read.
    Broken(Error),
}

/// A node of the hierarchy in a tree, with what is known of it.
#[derive(Clone, Debug)]
pub struct TreeNode {
    /// The path of the node in the store.
    pub path: Key,
    /// The depth of the node: 0 at the top of the tree.
    pub depth: usize,
    /// The kind of the node, with what is known of it.
    pub facts: NodeFacts,
    /// The dialect of the node's metadata documents, if it has documents.
    pub dialect: Option<&'static str>,
    /// The number of the node's attributes.
    pub attributes: usize,
    /// Number and size of the array's stored chunks, if they were requested and the store can count them.
    pub stored: Option<ChunkTotals>,
    /// Whether the node is the last child of its group.
    pub is_last: bool,
    /// Whether children of the node are left out because the tree has reached its maximum depth or number of nodes.
    pub is_cut: bool,
    /// Whether the store cannot list the node's children, so that the tree has only children that attributes name.
    pub is_partial: bool,
    /// The error because of which the node's children are unknown.
    pub fault: Option<Error>,
}

/// Options for reading a tree of nodes.
#[derive(Clone, Copy, Debug)]
pub struct TreeConfig {
    /// Maximum depth of the tree below its top node.
    pub depth: usize,
    /// Approximate maximum number of stored chunks that are counted per array; 0 counts none.
    pub chunks: u64,
    /// Maximum number of nodes that are read in parallel.
    pub threads: usize,
}

impl TreeNode {
    /// Describes a node at depth `depth` of the tree. If the node is the root of the store, the names of its files
    /// begin with `root`.
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

/// Maximum number of nodes of a tree. Further nodes are left out, and `is_cut` is set in their group.
const MAX_NODES: usize = 1 << 20;

/// Maximum depth of a tree of nodes.
const MAX_DEPTH: usize = 1000;

/// Maximum number of children that are read as one batch. The nodes of a batch are passed to the caller before more
/// nodes are read.
const PART: usize = 2048;

/// A function that receives the nodes of a tree in order. It returns `Break` to stop the walk.
pub type TakeNode<'a> = &'a mut dyn FnMut(TreeNode) -> ControlFlow<()>;

/// Passes the node at a path and all nodes below it to `take`. A group comes before its children, which are sorted by
/// name.
///
/// The names of files of the store's root begin with `root`. Fails with `NotFound` if there is no node at the path. If
/// a group cannot be listed, its `fault` is set. If a child cannot be read after its group was passed to `take`, the
/// first such error is returned.
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
    // The result may be ignored: `Break` only means that the caller wants no more nodes.
    let _ = walk.emit_all(context, vec![TreeItem::of(ReadNode { node, entry })]);
    Ok(walk.fault)
}

/// Returns the node at a path and all nodes below it as a list. If the walk returns an error, the error becomes the
/// fault of the first node.
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

/// A node whose documents were read.
struct ReadNode {
    node: TreeNode,
    entry: Arc<NodeEntry>,
}

/// A node of the tree whose children are known, or must be listed first.
enum TreeItem {
    /// A node that needs no listing: its children in the tree, if it has any, are the next items.
    Known(TreeNode),
    /// A node whose children are not listed yet.
    Open(ReadNode),
}

/// An entry of a batch: a node, or names of children whose nodes will be read. The children belong to the nearest node
/// before them in the batch.
enum TreeSlot {
    Node(TreeNode),
    Unread(UnreadChildren),
}

/// A batch of nodes of the tree, which is filled before its unread nodes are read in parallel.
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
    /// The last child in the previous batch. It was not passed on, because it is the last child of the group if none of
    /// these names is a node.
    before: Option<ReadNode>,
    names: Vec<Vec<u8>>,
    /// Whether the next batch has more names of the group.
    has_more: bool,
}

/// The result of reading a child; `None` if the name is not that of a node.
type ReadChild = Result<Option<ReadNode>>;

/// A node whose children were listed; `None` if the tree leaves its children out.
struct ListedNode {
    node: TreeNode,
    children: Option<ListedChildren>,
}

/// The names of a group's children.
struct ListedChildren {
    parent: Arc<NodeEntry>,
    names: Vec<Vec<u8>>,
}

/// The name of a child whose node will be read.
struct UnreadChild {
    parent: Arc<NodeEntry>,
    name: Vec<u8>,
    depth: usize,
}

/// Reads the nodes of a tree in several threads.
#[derive(Clone, Copy)]
struct NodeReader<'a> {
    opened: &'a OpenedStore,
    root: &'a str,
    config: &'a TreeConfig,
}

/// The state of a walk through a tree of nodes.
struct TreeWalk<'a> {
    reader: NodeReader<'a>,
    /// The number of nodes that may still be added to the tree.
    room: usize,
    fault: Option<Error>,
    take: TakeNode<'a>,
}

impl TreeWalk<'_> {
    /// Passes nodes to the caller in order, and after each node all nodes below it.
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

    /// Adds a group and the names of its children to a batch. Whenever the batch is full, reads its nodes and passes
    /// them to the caller.
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

    /// Reads the nodes in a batch, and passes them and all nodes below them to the caller. If the last group has more
    /// names, returns its last child instead, because only the next batch shows whether it is the group's last node.
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

    /// Adds the children of a group that were read to a list. If the group has more names, returns the last child
    /// instead of adding it.
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
    /// passed to the caller.
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
    /// Lists the children of a node. If the children would exceed the tree's maximum depth, only checks whether there
    /// are any.
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

    /// Returns the sorted names of a group's children: at most the first `most` names that the store lists. Also
    /// returns which names are left out.
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
            // In a folder with documents, a name such as `zarr.json` is not a child. Drafts of Zarr v3 store documents
            // elsewhere, so there it may be a child.
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
    /// Returns the node as an item of the tree; an array needs no listing, because it has no children.
    fn of(found: ReadNode) -> TreeItem {
        if found.entry.is_array() {
            TreeItem::Known(found.node)
        } else {
            TreeItem::Open(found)
        }
    }
}

impl UnreadChildren {
    /// Returns the children of a group as items whose nodes will be read.
    fn children(&self) -> impl Iterator<Item = UnreadChild> {
        self.names.iter().map(|name| UnreadChild {
            parent: self.parent.clone(),
            name: name.clone(),
            depth: self.depth,
        })
    }
}

/// Whether a child is probably a folder of chunks: the documents of its parent cannot be read, so the parent may be an
/// array, and the child has a name like a chunk and no document.
fn is_of_chunks(parent: &NodeEntry, child: &NodeEntry) -> bool {
    let is_bare = child.node.is_ok() && child.dialect().is_none();
    parent.node.is_err() && is_bare && is_like_chunk(child.path.name())
}
