//! Describes one node: metadata, stored chunks, children and files.

use crate::formats::netcdf;
use crate::inspect::array_info::ArrayInfo;
use crate::inspect::chunk_totals::ChunkTotals;
use crate::inspect::coordinates::CoordinateLines;
use crate::inspect::locate::StorePath;
use crate::inspect::locate::root_name;
use crate::inspect::map_nodes::MapSource;
use crate::inspect::node_files;
use crate::inspect::node_files::LeftOut;
use crate::inspect::node_files::{GroupFiles, RefusedFile};
use crate::inspect::surrounding_nodes::SurroundingNodes;
use crate::inspect::tree::tree;
use crate::inspect::tree::{NodeFacts, TreeConfig};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::{Attributes, Node};
use zarrfs_array::hierarchy::NodeEntry;
use zarrfs_store::Key;
use zarrfs_store::request_context::RequestContext;

/// The description of a node.
pub struct NodeInfo {
    /// The name in the files view.
    pub name: String,
    /// The dialect of its documents, if it has any.
    pub dialect: Option<&'static str>,
    /// The documents that it was read from.
    pub documents: Vec<Key>,
    /// Whether nodes below it are read from consolidated metadata.
    pub is_consolidated: bool,
    /// The user's attributes.
    pub attributes: Attributes,
    /// Facts about the kind of node.
    pub facts: NodeFacts,
    /// The stored chunks of an array, or the reason why they are unknown.
    pub stored: Option<Result<ChunkTotals>>,
    /// The children of a group, or the reason why they are unknown.
    pub children: Option<Result<ChildCounts>>,
    /// The files of a group with all of its arrays, or the reason why they are unknown.
    pub group_files: Option<Result<GroupFiles>>,
    /// The decoded files that a decodable array lacks.
    pub refused_files: Vec<RefusedFile>,
    /// The metadata that the decoded files leave out.
    pub left_out: LeftOut,
    /// Attributes that are renamed in netCDF files, with their new names.
    pub renamed_attributes: Vec<(String, String)>,
}

/// The numbers of children of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChildCounts {
    /// Groups, including those without a document.
    pub groups: usize,
    /// Arrays.
    pub arrays: usize,
    /// Nodes whose documents cannot be read.
    pub broken: usize,
    /// Whether the children are known only from attributes, so that there may be others.
    pub is_partial: bool,
}

impl NodeInfo {
    /// Describes the node at a path. Fails with `NotFound` if there is none. If an array was opened as a store of its
    /// own, `above` is its path in the store of its group, whose other nodes affect the array's files.
    pub fn of(
        context: &RequestContext,
        located: &StorePath,
        above: Option<&StorePath>,
    ) -> Result<NodeInfo> {
        let entry = located.opened.hierarchy.node(context, &located.path)?;
        let missing = || Error::new(Kind::NotFound, &located.path, "no such group or array");
        let entry = entry.ok_or_else(missing)?;
        let name = if entry.path.is_root() {
            root_name(&located.source)
        } else {
            String::from_utf8_lossy(entry.path.name()).into_owned()
        };
        let in_group = match above {
            Some(above) => above.opened.hierarchy.node(context, &above.path)?,
            None => None,
        };
        let opened = above.filter(|_| in_group.is_some()).unwrap_or(located);
        let opened = &opened.opened;
        let in_group = in_group.as_ref().unwrap_or(&entry);
        let mut around = SurroundingNodes::of(context, &opened.hierarchy, in_group)?;
        let source = MapSource {
            hierarchy: &opened.hierarchy,
            arrays: &opened.arrays,
            lines: &CoordinateLines::default(),
        };
        let numbers = around
            .clone()
            .with_numbers(context, &opened.hierarchy, &opened.arrays);
        let with_place = numbers.and_then(|around| source.add_to(context, around, in_group));
        let unread = match with_place {
            Ok(with_place) => {
                around = with_place;
                None
            }
            Err(error) => Some(error),
        };
        let mut stored = None;
        let mut facts = match &entry.node {
            Err(error) => NodeFacts::Broken(error.clone()),
            Ok(Node::Group(_)) => NodeFacts::Group,
            Ok(Node::Array(_)) => {
                let open = located.opened.arrays.open(&entry)?;
                let threads = located.concurrency;
                stored = Some(ChunkTotals::count(context, &open, u64::MAX, threads));
                let info = ArrayInfo::of(&open, &name, around.attributes());
                NodeFacts::Array(Box::new(info))
            }
        };
        let is_group = matches!(facts, NodeFacts::Group);
        let children = is_group.then(|| children(context, located));
        let attributes = match &entry.node {
            Ok(node) => node.attributes().clone(),
            Err(_) => Attributes::default(),
        };
        let group_files = is_group.then(|| GroupFiles::of(context, located, &entry, &name));
        let (refused_files, left_out) = match (&mut facts, entry.array()) {
            (NodeFacts::Array(info), Some(array)) if info.undecodable.is_none() => {
                let around = around.attributes();
                let mut left_out = LeftOut::of_array(array, &name, around);
                if let Some(error) = unread {
                    left_out.add_unread(&name, &error);
                }
                let mut refused = node_files::refused_files(array, &name, around);
                let with_coordinates = GroupFiles::of_variable(context, located, &entry, &name)?;
                info.add_files(with_coordinates.names);
                refused.extend(with_coordinates.refused);
                left_out.extend(with_coordinates.left_out);
                (refused, left_out)
            }
            _ => (Vec::new(), LeftOut::default()),
        };
        let renamed_attributes = netcdf::renamed(&attributes, entry.array());
        Ok(NodeInfo {
            name,
            dialect: entry.dialect(),
            documents: documents(&entry),
            is_consolidated: entry.is_consolidated(),
            attributes,
            facts,
            stored,
            children,
            group_files,
            refused_files,
            left_out,
            renamed_attributes,
        })
    }
}

fn documents(entry: &NodeEntry) -> Vec<Key> {
    if let Some(broken) = &entry.broken {
        let keys = broken.documents.iter();
        return keys.map(|document| document.key.clone()).collect();
    }
    let documents = entry.documents.as_deref().unwrap_or_default();
    documents.iter().map(|(key, _)| key.clone()).collect()
}

fn children(context: &RequestContext, located: &StorePath) -> Result<ChildCounts> {
    let config = TreeConfig {
        depth: 1,
        chunks: 0,
        threads: located.concurrency,
    };
    let root = root_name(&located.source);
    let nodes = tree(context, &located.opened, &located.path, &root, &config)?;
    let mut counts = ChildCounts::default();
    for node in nodes {
        match (node.depth, node.facts) {
            (0, _) => {
                node.fault.map_or(Ok(()), Err)?;
                counts.is_partial = node.is_partial;
            }
            (_, NodeFacts::Group) => counts.groups += 1,
            (_, NodeFacts::Array(_)) => counts.arrays += 1,
            (_, NodeFacts::Broken(_)) => counts.broken += 1,
        }
    }
    Ok(counts)
}
