//! Reads an Icechunk snapshot: the nodes of a hierarchy and the manifests of their chunks.
//!
//! A key is a node's `zarr.json`, which the snapshot contains, or a chunk `c/0/1`, whose reference is in a manifest.
//! Each manifest of an array covers a box of its chunk grid; the boxes are in any order.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::backend::reference::{Entry, Reference, ReferenceTable};
use crate::request_context::RequestContext;
use crate::sync::budget::Reservation;
use crate::{EntryKind, Key, Listing, Name, Version};
use zarr_format::error::{Error, Result};
use zarr_format::model::document;

use super::file::Id;
use super::flatbuffer::{Table, Vector, damaged};
use super::manifest::NodeId;
use super::repository::Repository;

/// The buffer of an Icechunk snapshot, checked.
pub(super) struct Snapshot {
    pub(super) id: Id,
    buffer: Bytes,
    repository: Arc<Repository>,
    _memory: Reservation,
}

/// An array or group in an Icechunk snapshot.
struct Node<'a> {
    table: Table<'a>,
}

struct ArrayNode<'a> {
    id: NodeId,
    /// The number of chunks along each dimension of the array.
    grid: Vec<u32>,
    manifests: Vector<'a>,
}

/// A manifest and the box of the chunk grid that it covers; without extents it covers the whole grid.
struct ManifestBox<'a> {
    id: Id,
    extents: Option<Vector<'a>>,
}

/// The coordinates in a key such as `c/0/1`: those of a chunk, or the first ones of several chunks.
struct ChunkPath {
    coordinates: Vec<u32>,
}

impl Snapshot {
    /// Checks a snapshot's buffer: the arrays and groups must be sorted by path.
    pub(super) fn new(
        buffer: Vec<u8>,
        repository: Arc<Repository>,
        memory: Reservation,
    ) -> Result<Snapshot> {
        let root = Table::root(&buffer)?;
        let id = Id(root.fixed(0)?.ok_or_else(damaged)?);
        let (mut before, mut length) = ("", 0);
        for node in root.tables(2)?.iter_tables() {
            let path = node?.required_text(1)?;
            if path <= before || !path.starts_with('/') {
                let why = "the nodes of a snapshot are not in order";
                return Err(Error::corrupt("", why));
            }
            // A hostile snapshot may let many paths share bytes, so that the check of a small file would never end. So
            // the total length of the paths is limited; in a valid snapshot each path has its own bytes.
            length += path.len();
            if length > buffer.len() {
                return Err(damaged());
            }
            before = path;
        }
        Ok(Snapshot {
            id,
            buffer: buffer.into(),
            repository,
            _memory: memory,
        })
    }

    fn root(&self) -> Result<Table<'_>> {
        Table::root(&self.buffer)
    }

    fn nodes(&self) -> Result<Vector<'_>> {
        self.root()?.tables(2)
    }

    /// Returns the identifier of the parent snapshot, which only specification 1 stores.
    pub(super) fn parent(&self) -> Result<Option<Id>> {
        Ok(self.root()?.fixed(1)?.map(Id))
    }

    /// Returns the time of the snapshot's commit, in microseconds since 1970.
    pub(super) fn flushed_at(&self) -> Result<u64> {
        self.root()?.u64(3)
    }

    pub(super) fn message(&self) -> Result<&str> {
        self.root()?.required_text(4)
    }

    /// Returns the index of the first array or group whose path is not before `path`.
    fn first_from(&self, path: &str) -> Result<usize> {
        let nodes = self.nodes()?;
        let (mut low, mut high) = (0, nodes.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if nodes.table(middle)?.required_text(1)? < path {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// Returns the array or group at a path, or `None` if there is none.
    fn node(&self, path: &str) -> Result<Option<Node<'_>>> {
        let nodes = self.nodes()?;
        let position = self.first_from(path)?;
        if position == nodes.len() {
            return Ok(None);
        }
        let table = nodes.table(position)?;
        Ok((table.required_text(1)? == path).then_some(Node { table }))
    }

    /// Returns the array or group whose path is the key, or `None` if there is none.
    fn node_of(&self, key: &Key) -> Result<Option<Node<'_>>> {
        match std::str::from_utf8(key.as_bytes()) {
            Ok(path) => self.node(&format!("/{path}")),
            Err(_) => Ok(None),
        }
    }

    /// Returns the array that contains a key, and the chunk coordinates in the key. Returns `None` if the key has no
    /// coordinates within the array's chunk grid.
    fn chunk_path(&self, key: &Key) -> Result<Option<(ArrayNode<'_>, ChunkPath)>> {
        let mut above = Some(key.clone());
        while let Some(prefix) = above {
            if let Some(node) = self.node_of(&prefix)? {
                let rest = key.below(&prefix);
                let path = rest.and_then(|rest| ChunkPath::parse(&rest));
                let (Some(array), Some(path)) = (node.array()?, path) else {
                    return Ok(None);
                };
                return Ok(array.contains(&path).then_some((array, path)));
            }
            above = prefix.parent();
        }
        Ok(None)
    }

    /// Finds the chunk at the coordinates `path`, or, if they are incomplete, whether any chunk begins with them.
    fn find_chunk(
        &self,
        context: &RequestContext,
        array: &ArrayNode<'_>,
        path: &ChunkPath,
    ) -> Result<Entry> {
        let is_chunk = path.coordinates.len() == array.grid.len();
        for id in array.manifests_of(path) {
            let manifest = self.repository.manifest(context, id?)?;
            let Some(references) = manifest.of_array(&array.id)? else {
                continue;
            };
            if !is_chunk {
                let end = array.grid.get(path.coordinates.len()).copied();
                let children = references.has_child(&path.coordinates, end.unwrap_or(0))?;
                if children {
                    return Ok(Entry {
                        is_prefix: true,
                        reference: None,
                    });
                }
                continue;
            }
            let mut found = references.find(&path.coordinates)?;
            if found.is_none() && path.coordinates.is_empty() {
                // Older Icechunk writers gave the only chunk of a scalar array a coordinate.
                found = references.find(&[0])?;
            }
            if let Some(chunk) = found {
                let container = |name: &str| self.repository.container(context, name);
                return Ok(Entry {
                    reference: Some(manifest.reference(chunk, container)?),
                    is_prefix: false,
                });
            }
        }
        Ok(Entry::default())
    }

    /// Lists the coordinates that follow the first coordinates `path` in the chunks of an array.
    fn list_chunks(
        &self,
        context: &RequestContext,
        array: &ArrayNode<'_>,
        path: &ChunkPath,
    ) -> Result<ChunkListing> {
        let depth = path.coordinates.len();
        let end = array.grid.get(depth).copied().unwrap_or(0);
        let mut names: Vec<u32> = Vec::new();
        for id in array.manifests_of(path) {
            let manifest = self.repository.manifest(context, id?)?;
            if let Some(references) = manifest.of_array(&array.id)? {
                names.append(&mut references.children(&path.coordinates, end)?);
            }
        }
        // Manifests are in no order, and several may contain chunks with the same next coordinate.
        if !names.is_sorted_by(|before, after| before < after) {
            names.sort_unstable();
            names.dedup();
        }
        Ok(ChunkListing {
            _memory: self.repository.reserve(size_of_val(names.as_slice()))?,
            names,
            position: 0,
            kind: if depth + 1 == array.grid.len() {
                EntryKind::File
            } else {
                EntryKind::Directory
            },
        })
    }
}

impl<'a> Node<'a> {
    /// Returns the content of the node's `zarr.json`.
    fn document(&self) -> Result<&'a [u8]> {
        self.table.bytes(2)?.ok_or_else(damaged)
    }

    fn array(&self) -> Result<Option<ArrayNode<'a>>> {
        if self.table.u8(3)? != 1 {
            return Ok(None);
        }
        let data = self.table.table(4)?.ok_or_else(damaged)?;
        Ok(Some(ArrayNode {
            id: self.table.fixed(0)?.ok_or_else(damaged)?,
            grid: grid(data)?,
            manifests: data.tables(2)?,
        }))
    }
}

fn grid(data: Table<'_>) -> Result<Vec<u32>> {
    if let Some(shape) = data.vector(3, 4)? {
        let dimensions = shape.iter_tables();
        return dimensions.map(|dimension| dimension?.u32(1)).collect();
    }
    let Some(shape) = data.vector(0, 16)? else {
        return Ok(Vec::new());
    };
    let count = |position| -> Result<u32> {
        let [length, chunk] = halves(shape.fixed(position)?);
        let chunks = if chunk == 0 {
            0
        } else {
            length.div_ceil(chunk)
        };
        // Icechunk has 32 bits for a coordinate, so chunks beyond that cannot be stored.
        Ok(u32::try_from(chunks).unwrap_or(u32::MAX))
    };
    (0..shape.len()).map(count).collect()
}

/// Splits 16 bytes into two `u64` numbers, in little-endian order.
fn halves(bytes: [u8; 16]) -> [u64; 2] {
    let whole = u128::from_le_bytes(bytes);
    [0, 64].map(|shift| u64::try_from((whole >> shift) & u128::from(u64::MAX)).unwrap_or(u64::MAX))
}

impl<'a> ArrayNode<'a> {
    /// Whether the coordinates are inside the array's chunk grid.
    fn contains(&self, path: &ChunkPath) -> bool {
        let coordinates = &path.coordinates;
        let mut pairs = coordinates.iter().zip(&self.grid);
        coordinates.len() <= self.grid.len() && pairs.all(|(at, count)| at < count)
    }

    /// Returns the manifests that may contain a chunk whose coordinates begin with `path`.
    fn manifests_of<'b>(
        &self,
        path: &'b ChunkPath,
    ) -> impl Iterator<Item = Result<Id>> + use<'a, 'b> {
        let meeting = move |table: Result<Table<'a>>| -> Result<Option<Id>> {
            let covered = ManifestBox::new(table?)?;
            Ok(covered.meets(path)?.then_some(covered.id))
        };
        self.manifests
            .iter_tables()
            .map(meeting)
            .filter_map(Result::transpose)
    }
}

impl<'a> ManifestBox<'a> {
    fn new(table: Table<'a>) -> Result<ManifestBox<'a>> {
        Ok(ManifestBox {
            id: Id(table.fixed(0)?.ok_or_else(damaged)?),
            extents: table.vector(1, 8)?,
        })
    }

    /// Whether the manifest may contain a chunk whose coordinates begin with `path`.
    fn meets(&self, path: &ChunkPath) -> Result<bool> {
        let Some(extents) = self.extents else {
            return Ok(true);
        };
        for (dimension, at) in path.coordinates.iter().take(extents.len()).enumerate() {
            // An extent is its start and its end, four bytes each.
            let extent = u64::from_le_bytes(extents.fixed(dimension)?);
            let half = |bits: u64| u32::try_from(bits & 0xffff_ffff).unwrap_or(u32::MAX);
            if !(half(extent)..half(extent >> 32)).contains(at) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl ChunkPath {
    /// Parses a key such as `c`, `c/0` or `c/0/1` below an array. Returns `None` for any other key.
    fn parse(key: &Key) -> Option<ChunkPath> {
        let mut names = key.names();
        if names.next()? != b"c" {
            return None;
        }
        let coordinates = names.map(|name| {
            let text = std::str::from_utf8(name).ok()?;
            let number = text.parse::<u32>().ok()?;
            // `01` and `+1` parse as numbers, but they are not names of chunks.
            (number.to_string() == text).then_some(number)
        });
        Some(ChunkPath {
            coordinates: coordinates.collect::<Option<_>>()?,
        })
    }
}

impl ReferenceTable for Snapshot {
    fn find(&self, context: &RequestContext, key: &Key) -> Result<Entry> {
        if key.name() == document::ZARR_JSON.as_bytes()
            && let Some(parent) = key.parent()
            && let Some(node) = self.node_of(&parent)?
        {
            let bytes = self.buffer.slice_ref(node.document()?);
            return Ok(Entry {
                reference: Some(Reference::Inline(bytes)),
                is_prefix: false,
            });
        }
        if key.is_root() || self.node_of(key)?.is_some() {
            return Ok(Entry {
                reference: None,
                is_prefix: true,
            });
        }
        match self.chunk_path(key)? {
            Some((array, path)) => self.find_chunk(context, &array, &path),
            None => Ok(Entry::default()),
        }
    }

    fn list(self: Arc<Self>, context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>> {
        let array = match self.node_of(prefix)? {
            Some(node) => node.array()?,
            None if prefix.is_root() => None,
            None => {
                let (array, path) = self
                    .chunk_path(prefix)?
                    .ok_or_else(|| Error::not_found(prefix))?;
                return Ok(Box::new(self.list_chunks(context, &array, &path)?));
            }
        };
        let Some(array) = array else {
            return Ok(Box::new(NodeListing::new(self, prefix)?));
        };
        let chunks = ChunkPath {
            coordinates: Vec::new(),
        };
        let found = self.find_chunk(context, &array, &chunks)?;
        let kind = match (found.reference, found.is_prefix) {
            (Some(_), _) => Some(EntryKind::File),
            (None, true) => Some(EntryKind::Directory),
            (None, false) => None,
        };
        let chunks = kind.map(|kind| (b"c".to_vec(), kind));
        let document = (document::ZARR_JSON.as_bytes().to_vec(), EntryKind::File);
        let names = crate::listing::NameList::new(chunks.into_iter().chain([document]));
        Ok(Box::new(names))
    }

    fn modified(&self) -> SystemTime {
        let microseconds = self.flushed_at().unwrap_or(0);
        let time = UNIX_EPOCH.checked_add(Duration::from_micros(microseconds));
        time.unwrap_or(UNIX_EPOCH)
    }

    fn version(&self) -> Version {
        Version::of(&self.id.0)
    }
}

/// Lists the coordinates of chunks along one dimension. The cursor (the position that a caller may seek to) of a name
/// is its number, counted from 1.
struct ChunkListing {
    _memory: Reservation,
    names: Vec<u32>,
    position: usize,
    kind: EntryKind,
}

impl Listing for ChunkListing {
    fn next(&mut self, _context: &RequestContext) -> Result<Option<Name>> {
        let Some(number) = self.names.get(self.position) else {
            return Ok(None);
        };
        self.position += 1;
        Ok(Some(Name {
            name: number.to_string().into_bytes(),
            kind: self.kind,
            cursor: self.position as u64,
            meta: None,
        }))
    }

    fn seek(&mut self, _context: &RequestContext, cursor: u64) -> Result<()> {
        self.position = usize::try_from(cursor).unwrap_or(usize::MAX);
        Ok(())
    }

    fn may_wait(&self) -> bool {
        false
    }
}

/// Lists the children of an Icechunk group, and then its `zarr.json`. The cursor (the position that a caller may seek
/// to) of a name is the index of the node after it.
struct NodeListing {
    snapshot: Arc<Snapshot>,
    /// The path of the group, with a slash at the end.
    prefix: String,
    start: usize,
    position: usize,
    count: usize,
}

impl NodeListing {
    fn new(snapshot: Arc<Snapshot>, group: &Key) -> Result<NodeListing> {
        let path = String::from_utf8_lossy(group.as_bytes());
        let prefix = if group.is_root() {
            "/".to_string()
        } else {
            format!("/{path}/")
        };
        let start = snapshot.first_from(&prefix)?;
        let count = snapshot.nodes()?.len();
        Ok(NodeListing {
            snapshot,
            prefix,
            start,
            position: start,
            count,
        })
    }

    /// Returns the name of the group's next child, and moves to the node after the child.
    fn next_child(&mut self) -> Result<Option<String>> {
        while self.position < self.count {
            let node = self.snapshot.nodes()?.table(self.position)?;
            let path = node.required_text(1)?;
            let Some(rest) = path.strip_prefix(&self.prefix) else {
                self.position = self.count;
                break;
            };
            match rest.split_once('/') {
                // The group itself is not one of its children.
                None if rest.is_empty() => self.position += 1,
                None => {
                    let name = rest.to_string();
                    self.position += 1;
                    return Ok(Some(name));
                }
                // The nodes below the child directly follow each other, and are skipped: `0` is the character after the
                // slash.
                Some((child, _)) => {
                    let after = format!("{}{child}0", self.prefix);
                    self.position = self.snapshot.first_from(&after)?.max(self.position + 1);
                }
            }
        }
        Ok(None)
    }
}

impl Listing for NodeListing {
    fn next(&mut self, _context: &RequestContext) -> Result<Option<Name>> {
        while let Some(name) = self.next_child()? {
            // A node whose name is not a valid key cannot be read, so it is not listed.
            if Key::root().child(name.as_bytes()).is_ok() {
                return Ok(Some(Name {
                    name: name.into_bytes(),
                    kind: EntryKind::Directory,
                    cursor: self.position as u64 + 1,
                    meta: None,
                }));
            }
        }
        if self.position > self.count {
            return Ok(None);
        }
        self.position = self.count + 1;
        Ok(Some(Name {
            name: document::ZARR_JSON.as_bytes().to_vec(),
            kind: EntryKind::File,
            cursor: self.position as u64 + 1,
            meta: None,
        }))
    }

    fn seek(&mut self, _context: &RequestContext, cursor: u64) -> Result<()> {
        let position = usize::try_from(cursor).unwrap_or(usize::MAX);
        self.position = position.saturating_sub(1).max(self.start);
        Ok(())
    }

    fn may_wait(&self) -> bool {
        false
    }
}
