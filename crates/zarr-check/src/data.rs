//! Decodes every stored chunk, within the memory budget.
//!
//! The thread that checked an array lists its chunks, and all threads take chunks from the queue, so that many arrays
//! of one chunk are read as fast as one array of many chunks. Decoded data are dropped at once.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::checked_node::CheckedNode;
use crate::chunk_place::{ChunkPlace, ChunkPlaces};
use crate::context::CheckContext;
use crate::finding::Finding;
use crate::findings::NodeFindings;
use crate::key_findings::{ChunkPart, chunk_fault, folder_unlisted};
use crate::node_order::Ticket;
use crate::passed_over::{DecodedChunk, passed_over_findings};
use crate::room::{room_of_chunk, room_of_shard};
use crate::shards::{ShardReader, walk};
use crate::stored_keys::{StoredEntry, visit_below};
use crate::text_elements::check_text;
use zarr_format::buffer;
use zarr_format::codec::Pipeline;
use zarr_format::error::{Error, Result};
use zarr_format::grid::{ChunkIndex, Coordinates};
use zarrfs_array::array::OpenArray;
use zarrfs_store::Key;
use zarrfs_store::request_context::UNLIMITED;

/// An array whose chunks are being read, shared by the threads that read them.
pub(super) struct ArrayData {
    array: Arc<OpenArray>,
    /// The folder with its chunks.
    folder: Key,
    findings: Mutex<NodeFindings>,
    /// The check of the node, and its place in the order.
    node: (Ticket, CheckedNode),
}

/// A chunk that waits to be read.
pub(super) struct ChunkTask {
    pub(super) of: Arc<ArrayData>,
    key: Key,
    indices: Coordinates,
    size: Option<u64>,
}

impl ArrayData {
    /// Builds an array of which no chunk was read yet.
    pub(super) fn new(
        array: Arc<OpenArray>,
        folder: Key,
        node: (Ticket, CheckedNode),
    ) -> ArrayData {
        ArrayData {
            array,
            folder,
            findings: Mutex::default(),
            node,
        }
    }

    /// Returns the node, with the findings about its chunks.
    pub(super) fn into_node(self) -> (Ticket, CheckedNode) {
        let (ticket, mut node) = self.node;
        node.findings.merge(self.findings.into_inner());
        (ticket, node)
    }
}

/// Passes the chunks of an array to `give`, one by one.
pub(super) fn list_chunks(
    context: &CheckContext,
    of: &Arc<ArrayData>,
    give: &mut dyn FnMut(ChunkTask),
) {
    let array = of.array.array();
    if of.array.check_decodable().is_err() {
        return;
    }
    let places = ChunkPlaces::new(array, of.array.stored_grid().ok());
    let listed = visit_below(context, &of.folder, &mut |entry| match entry {
        StoredEntry::Object(key, meta) => {
            if let ChunkPlace::Chunk(indices, _) = places.of(&key) {
                let size = context.size_of(&key, meta.as_ref());
                give(ChunkTask {
                    of: of.clone(),
                    key,
                    indices,
                    size,
                });
            }
            false
        }
        StoredEntry::Folder(_) => true,
        StoredEntry::Unlisted(key, error) => {
            of.findings.lock().add(folder_unlisted(&key, &error));
            false
        }
        _ => false,
    });
    if let Err(error) = listed {
        // Chunks that were not decoded must not count as correct.
        of.findings.lock().add(folder_unlisted(&of.folder, &error));
    }
}

/// A stored chunk.
pub(super) struct StoredChunk<'a> {
    pub(super) array: &'a OpenArray,
    pub(super) key: &'a Key,
    pub(super) indices: &'a [u64],
    /// Its length in bytes, if the listing had it.
    pub(super) size: Option<u64>,
}

impl<'a> StoredChunk<'a> {
    /// Returns a part of the chunk for findings; an empty name means the whole chunk.
    fn part(&self, part: &'a str) -> ChunkPart<'a> {
        ChunkPart {
            key: self.key,
            part,
            array: self.array.array(),
        }
    }
}

/// Checks a chunk, and adds the findings to its array.
pub(super) fn check_task(context: &CheckContext, task: &ChunkTask) {
    let chunk = StoredChunk {
        array: &task.of.array,
        key: &task.key,
        indices: &task.indices,
        size: task.size,
    };
    let mut found = NodeFindings::default();
    let bytes = check_chunk(context, &chunk, &mut found);
    context.progress.add_chunk(bytes);
    task.of.findings.lock().merge(found);
}

/// Reads and decodes a chunk; returns its stored length in bytes.
pub(super) fn check_chunk(
    context: &CheckContext,
    chunk: &StoredChunk<'_>,
    found: &mut NodeFindings,
) -> u64 {
    match decode(context, chunk, found) {
        Ok(bytes) => bytes,
        Err(error) => {
            let size = || chunk.size.or_else(|| context.asked_size(chunk.key).ok());
            let head = || context.head_of(chunk.key, size()?);
            found.add(chunk_fault(&chunk.part(""), &error, head));
            0
        }
    }
}

fn decode(
    context: &CheckContext,
    chunk: &StoredChunk<'_>,
    found: &mut NodeFindings,
) -> Result<u64> {
    let grid = chunk.array.stored_grid()?;
    let index = grid.index(chunk.indices).unwrap_or(ChunkIndex(0));
    let pipeline = chunk.array.pipeline_of(index)?;
    let size = match chunk.size {
        Some(size) => size,
        None => context.asked_size(chunk.key)?,
    };
    let is_told = pipeline
        .stored_length()
        .is_some_and(|length| length != size)
        || size == 0;
    if is_told && chunk.size.is_some() {
        // The wrong length was already reported with the keys.
        return Ok(size);
    }
    if pipeline.shards().is_empty() {
        check_bound(chunk, size, &pipeline)?;
        let _room = room_of_chunk(context, size, &pipeline)?;
        let object = context.store().get(&UNLIMITED, chunk.key, size)?;
        let bytes = object.ok_or_else(|| Error::not_found(chunk.key))?.bytes;
        found.extend(decode_all(&pipeline, bytes, chunk)?);
    } else {
        decode_shard(context, chunk, &pipeline, size, found)?;
    }
    Ok(size)
}

/// Decodes each inner chunk of a shard.
fn decode_shard(
    context: &CheckContext,
    chunk: &StoredChunk<'_>,
    pipeline: &Pipeline,
    size: u64,
    found: &mut NodeFindings,
) -> Result<()> {
    let _room = room_of_shard(context, size, pipeline)?;
    let reader = ShardReader::new(context, &chunk.part(""), size, true)?;
    let mut visit = |name: &str, place: std::ops::Range<u64>, found: &mut NodeFindings| {
        let length = place.end - place.start;
        let bytes = check_bound(chunk, length, pipeline).and_then(|()| reader.read(&place));
        match bytes.and_then(|bytes| decode_all(pipeline, bytes, chunk)) {
            Ok(passed_over) => found.extend(passed_over.map(|finding| finding.of_part(name))),
            Err(error) => {
                let head = || Some((reader.read_head(&place).ok()?, length));
                let part = ChunkPart {
                    part: name,
                    ..chunk.part("")
                };
                found.add(chunk_fault(&part, &error, head));
            }
        }
    };
    walk(&reader, pipeline.shards(), "", 0..size, found, &mut visit);
    Ok(())
}

/// Fails with `Corrupt` if a chunk is longer than its codecs can make it, and with `TooLarge` if that may be due to
/// variable-length elements.
fn check_bound(chunk: &StoredChunk<'_>, size: u64, pipeline: &Pipeline) -> Result<()> {
    let (key, most) = (chunk.key, pipeline.stored_bound());
    if size <= most {
        return Ok(());
    }
    if !pipeline.has_fixed_length() {
        let found = format!("it has {size} bytes, and {most} fit");
        return Err(chunk.array.with_option(Error::too_large(key, found)));
    }
    let found = format!("it has {size} bytes, more than the {most} that the codecs make at most");
    Err(Error::corrupt(key, found))
}

/// Decodes a chunk; returns findings about faults that the codecs tolerate.
fn decode_all(
    pipeline: &Pipeline,
    bytes: Vec<u8>,
    chunk: &StoredChunk<'_>,
) -> Result<impl Iterator<Item = Finding> + use<>> {
    let decoded = pipeline.decode_noting(bytes);
    let (decoded, passed_over) = decoded.map_err(|error| chunk.array.with_option(error))?;
    let array = chunk.array.array();
    check_text(&array.data_type, &decoded)?;
    buffer::recycle(decoded);
    let chunk = DecodedChunk {
        key: chunk.key,
        array,
        indices: chunk.indices,
    };
    Ok(passed_over_findings(&chunk, &passed_over))
}
