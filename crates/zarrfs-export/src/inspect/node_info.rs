//! Describes a node: metadata, stored chunks, children and exported files.
//!
//! Making the description of an array (`ArrayInfo`) needs no requests to the store. `GroupFiles` and `LeftOut` say
//! which files a node has, which files it does not have, and which metadata the files leave out.

use std::sync::Arc;

use serde_json::Value;

use crate::formats::cf::NoValues;
use crate::formats::group::{GroupFormat, OrReason};
use crate::formats::subject::Surroundings;
use crate::formats::{FORMATS, Subject, cf, netcdf};
use crate::inspect::coordinates::CoordinateLines;
use crate::inspect::group_file::{GroupSource, PlannedFile, VariableSource};
use crate::inspect::locate::{StorePath, root_name};
use crate::inspect::stored_chunks::ChunkTotals;
use crate::inspect::surrounding_nodes::{MapSource, SurroundingNodes};
use crate::inspect::tree::{NodeFacts, TreeConfig, tree};
use zarr_format::dialect::v3;
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::{Array, Attributes, CodecSpec, Node, bytes_of};
use zarrfs_array::array::OpenArray;
use zarrfs_array::hierarchy::NodeEntry;
use zarrfs_store::Key;
use zarrfs_store::request_context::RequestContext;

/// What the info command prints about a node.
pub struct NodeInfo {
    /// The name with which the names of the node's files begin.
    pub name: String,
    /// The dialect of the node's metadata documents, if it has documents.
    pub dialect: Option<&'static str>,
    /// The keys of the metadata documents from which the node was read.
    pub documents: Vec<Key>,
    /// Whether the nodes below the node are read from consolidated metadata.
    pub is_consolidated: bool,
    /// The attributes of the node that the user stored.
    pub attributes: Attributes,
    /// Facts that only a group or only an array has.
    pub facts: NodeFacts,
    /// The number and size of an array's stored chunks, or the reason why they are unknown.
    pub stored: Option<Result<ChunkTotals>>,
    /// The number of a group's children, or the reason why it is unknown.
    pub children: Option<Result<ChildCounts>>,
    /// The files that hold several arrays, or the reason why they are unknown.
    pub group_files: Option<Result<GroupFiles>>,
    /// The formats in which the array has no file, although it can be decoded, with the reasons.
    pub refused_files: Vec<RefusedFile>,
    /// The metadata that the node's files leave out.
    pub left_out: LeftOut,
    /// The old and new names of attributes that netCDF files rename.
    pub renamed_attributes: Vec<(String, String)>,
}

/// The numbers of a group's children, by their kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChildCounts {
    /// Number of groups, including groups without a document.
    pub groups: usize,
    /// Number of arrays.
    pub arrays: usize,
    /// Number of nodes whose documents cannot be read.
    pub broken: usize,
    /// Whether the store cannot list the children, so that only children that attributes name were counted.
    pub is_partial: bool,
}

impl NodeInfo {
    /// Describes the node at a path. Fails with `NotFound` if there is no node.
    ///
    /// If the store was opened at the array itself, the groups around the array are outside of the store. `above` is
    /// then the path of the array in the store of its group, because nodes of that store determine some of the array's
    /// files.
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
                let mut refused = refused_files(array, &name, around);
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

/// What the info command prints about an array.
#[derive(Clone, Debug)]
pub struct ArrayInfo {
    /// Length of each dimension.
    pub shape: Vec<u64>,
    /// Names of the dimensions; empty if they have no names.
    pub dimension_names: Vec<Option<String>>,
    /// The data type as text for display.
    pub data_type: String,
    /// Chunk grid, data type, codecs and fill value of the array, as JSON in the form of Zarr v3.
    pub members: Value,
    /// Length of a stored chunk along each dimension; of chunks with different lengths, the longest one.
    pub chunk_shape: Vec<u64>,
    /// Shapes of inner chunks, from the outermost shard to the innermost chunk; empty without sharding.
    pub inner_chunk_shapes: Vec<Vec<u64>>,
    /// Number of chunks along each dimension, or the reason why the chunk grid is unknown.
    pub grid: Result<Vec<u64>>,
    /// The codecs of a chunk, in the order of encoding.
    pub codecs: Vec<CodecSpec>,
    /// Size of all decoded elements in bytes; `None` if elements have variable length.
    pub bytes: Option<u64>,
    /// Size of an element in bytes; `None` if elements have variable length.
    pub element: Option<usize>,
    /// The reason why the array cannot be decoded, if it cannot.
    pub undecodable: Option<Error>,
    /// The memory and requests that reading the array takes, if it can be decoded.
    pub costs: Option<ReadCosts>,
    /// The names of the array's exported files.
    pub files: Vec<String>,
}

/// The memory and requests that reading an array takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadCosts {
    /// The cost of reading a single element.
    pub point: ReadCost,
    /// The cost of reading all elements in C order, if all chunks are stored and each is decoded only once.
    pub sequential: ReadCost,
}

/// The memory that decoded chunks take during a read, and the number of requests to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadCost {
    /// Size of the decoded chunks in bytes; `None` if elements have variable length.
    pub memory: Option<u64>,
    /// Number of requests to the store. With shards this is an upper bound, because adjacent inner chunks are read
    /// together.
    pub requests: u64,
}

impl ArrayInfo {
    /// Describes an array whose files have names that begin with `name`.
    pub fn of(open: &Arc<OpenArray>, name: &str, around: Surroundings<'_>) -> ArrayInfo {
        let array = open.array();
        let undecodable = open.check_decodable().err();
        ArrayInfo {
            shape: array.shape.clone(),
            dimension_names: array.dimension_names.clone(),
            data_type: array.data_type.to_string(),
            members: v3::render(&Node::Array(Box::new(array.clone()))),
            chunk_shape: array.chunk_shape.clone(),
            inner_chunk_shapes: inner_shapes(&array.codecs),
            grid: open.stored_grid().map(|grid| grid.counts().to_vec()),
            codecs: array.codecs.clone(),
            bytes: array.byte_length().ok(),
            element: array.element_size().ok(),
            costs: costs(open).ok(),
            files: match undecodable {
                None => files(array, name, around),
                Some(_) => Vec::new(),
            },
            undecodable,
        }
    }
}

impl ArrayInfo {
    /// Inserts file names before the directory of chunks, which is the last name.
    pub(crate) fn add_files(&mut self, names: Vec<String>) {
        let end = self.files.len().saturating_sub(1);
        self.files.splice(end..end, names);
    }
}

/// Returns the shapes of the inner chunks of nested shards in a codec chain, the outermost first.
pub fn inner_shapes(codecs: &[CodecSpec]) -> Vec<Vec<u64>> {
    let sharding = "sharding_indexed";
    let mut shapes = Vec::new();
    let mut next = codecs
        .iter()
        .find(|codec| codec.name == sharding)
        .map(CodecSpec::to_json);
    while let Some(shard) = next {
        let configuration = &shard["configuration"];
        let lengths = configuration["chunk_shape"].as_array();
        let lengths = lengths.into_iter().flatten();
        shapes.push(lengths.filter_map(Value::as_u64).collect());
        let inner = configuration["codecs"].as_array().into_iter().flatten();
        next = inner
            .into_iter()
            .find(|codec| codec["name"] == sharding)
            .cloned();
    }
    shapes
}

/// Returns the names of all exported files of a decodable array.
fn files(array: &Array, name: &str, around: Surroundings<'_>) -> Vec<String> {
    let subject = Subject {
        name: name.as_bytes(),
        around,
        ..Subject::alone(array, &array.shape)
    };
    let formats = FORMATS.iter().filter(|format| format.holds(&subject));
    let names = formats.map(|format| format!("{name}.{}", format.extension));
    names.chain(["chunks/".to_string()]).collect()
}

/// Computes the memory and requests that reading an array takes. Fails if the array cannot be decoded.
fn costs(open: &OpenArray) -> Result<ReadCosts> {
    let array = open.array();
    let (pieces, levels) = (open.decoded_grid()?, open.shard_levels()? as u64);
    let element = array.element_size().ok();
    let piece = element.and_then(|element| bytes_of(pieces.chunk_shape(), element).ok());
    // A sequential read in C order needs a chunk several times if the chunk has several elements along a dimension. So
    // all chunks along the dimensions after the first such dimension must stay in memory.
    let lengths = pieces.chunk_shape().iter();
    let first = lengths.clone().position(|&length| length > 1);
    let beside = pieces
        .counts()
        .iter()
        .skip(first.map_or(usize::MAX, |axis| axis + 1));
    let row = beside.fold(1_u64, |all, &count| all.saturating_mul(count));
    let shards = open.stored_grid()?.len();
    let indexes = shards.saturating_mul(levels.min(1));
    Ok(ReadCosts {
        point: ReadCost {
            memory: piece,
            requests: 1 + levels,
        },
        sequential: ReadCost {
            memory: piece.map(|piece| piece.saturating_mul(row)),
            requests: pieces.len().saturating_add(indexes),
        },
    })
}

/// The extension of a format in which a node has no file, and the reason why.
pub type RefusedFile = (&'static str, String);

/// Returns the formats in which a decodable array has no file, with the reasons.
pub fn refused_files(array: &Array, name: &str, around: Surroundings<'_>) -> Vec<RefusedFile> {
    let subject = Subject {
        name: name.as_bytes(),
        around,
        ..Subject::alone(array, &array.shape)
    };
    let formats = FORMATS.iter();
    let refused =
        formats.filter_map(|format| Some((format.extension, format.unmet_needs(&subject)?)));
    let mut refused: Vec<RefusedFile> = refused.collect();
    if let Err(why @ NoValues::Attribute(_)) = cf::decoded(array) {
        refused.push(("cf", why.to_string()));
    }
    refused
}

/// The files that hold several arrays: those of a group, or those of an array with its coordinate variables.
#[derive(Clone, Debug, Default)]
pub struct GroupFiles {
    /// Names of the files that can be opened.
    pub names: Vec<String>,
    /// The formats in which the node has no file, with the reasons.
    pub refused: Vec<RefusedFile>,
    /// The metadata that the files with several arrays leave out.
    pub left_out: LeftOut,
}

impl GroupFiles {
    /// Finds out in which formats a group has a file.
    pub fn of(
        context: &RequestContext,
        located: &StorePath,
        group: &Arc<NodeEntry>,
        name: &str,
    ) -> Result<GroupFiles> {
        let source = GroupSource {
            hierarchy: &located.opened.hierarchy,
            arrays: &located.opened.arrays,
            group,
        };
        Ok(GroupFiles::of_answers(name, source.formats(context)?))
    }

    /// Finds out in which formats an array has a file with its coordinate variables.
    pub fn of_variable(
        context: &RequestContext,
        located: &StorePath,
        array: &Arc<NodeEntry>,
        name: &str,
    ) -> Result<GroupFiles> {
        let source = VariableSource {
            hierarchy: &located.opened.hierarchy,
            arrays: &located.opened.arrays,
            array,
            name: name.as_bytes(),
        };
        Ok(GroupFiles::of_answers(name, source.formats(context)?))
    }

    fn of_answers(
        name: &str,
        answers: Vec<(&'static GroupFormat, OrReason<PlannedFile>)>,
    ) -> GroupFiles {
        let mut files = GroupFiles::default();
        for (format, answer) in answers {
            match answer {
                Ok(file) => {
                    let name = format!("{name}.{}", format.extension);
                    files.left_out.add(&name, file.left_out());
                    files.names.push(name);
                }
                Err(why) => files.refused.push((format.extension, why)),
            }
        }
        files
    }
}

/// A message about metadata that some files leave out, and the names of these files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOutOfFiles {
    /// The message: the name of the metadata, a colon and the reason.
    pub sentence: String,
    /// Names of the files that leave out the metadata.
    pub files: Vec<String>,
}

/// The messages about metadata that the files of a node leave out; each message occurs once.
#[derive(Clone, Debug, Default)]
pub struct LeftOut(pub Vec<LeftOutOfFiles>);

impl LeftOut {
    /// Finds the metadata that the files of a decodable array called `name` leave out.
    pub fn of_array(array: &Array, name: &str, around: Surroundings<'_>) -> LeftOut {
        let subject = Subject {
            name: name.as_bytes(),
            around,
            ..Subject::alone(array, &array.shape)
        };
        let mut found = LeftOut::default();
        for format in FORMATS {
            let file = format!("{name}.{}", format.extension);
            found.add(&file, format.left_out(&subject).iter().map(String::as_str));
        }
        found
    }

    /// Records that files of maps cannot be opened, because a coordinate variable cannot be read.
    pub(crate) fn add_unread(&mut self, name: &str, error: &Error) {
        let sentence = format!("all: {error}");
        for format in FORMATS.iter().filter(|format| format.is_map()) {
            let file = format!("{name}.{}", format.extension);
            self.add(&file, std::iter::once(&*sentence));
        }
    }

    /// Adds the messages about other files of the same node.
    pub fn extend(&mut self, others: LeftOut) {
        for left in others.0 {
            for file in &left.files {
                self.add(file, std::iter::once(left.sentence.as_str()));
            }
        }
    }

    /// Adds messages about metadata that one file leaves out.
    pub fn add<'a>(&mut self, file: &str, sentences: impl Iterator<Item = &'a str>) {
        for sentence in sentences {
            let known = self.0.iter_mut().find(|known| known.sentence == sentence);
            match known {
                Some(known) => known.files.push(file.to_string()),
                None => self.0.push(LeftOutOfFiles {
                    sentence: sentence.to_string(),
                    files: vec![file.to_string()],
                }),
            }
        }
    }
}
