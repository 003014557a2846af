//! Every stored chunk decoded, each counted in the memory budget.
//!
//! The thread that looked at an array lists its chunks, and all threads take them as they come, so that many arrays of one
//! chunk and one array of many chunks are read at the same speed. What is decoded is dropped at once.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::array::OpenArray;
use crate::check::checked_node::CheckedNode;
use crate::check::chunk_place::{ChunkPlace, ChunkPlaces};
use crate::check::context::CheckContext;
use crate::check::finding::{Finding, document_of};
use crate::check::findings::NodeFindings;
use crate::check::key_findings::{chunk_fault, folder_unlisted};
use crate::check::node_order::Ticket;
use crate::check::passed_over::{ChunkPart, passed_over_findings};
use crate::check::room::{room_of_chunk, room_of_shard};
use crate::check::shards::{ShardReader, walk};
use crate::check::stored_keys::{StoredEntry, visit_below};
use crate::check::text_elements::check_text;
use crate::codec::Pipeline;
use crate::error::{Error, Result};
use crate::grid::{ChunkIndex, Coordinates};
use crate::request_context::UNLIMITED;
use crate::store::Key;
use crate::sync::buffer;

/// An array whose chunks are read, shared by those who read them.
pub(super) struct ArrayData {
    array: Arc<OpenArray>,
    /// The folder below which its chunks lie.
    folder: Key,
    findings: Mutex<NodeFindings>,
    /// What was found about the node, and its place in the order.
    node: (Ticket, CheckedNode),
}

/// A chunk to be read.
pub(super) struct ChunkTask {
    pub(super) of: Arc<ArrayData>,
    key: Key,
    indices: Coordinates,
    size: Option<u64>,
}

impl ArrayData {
    /// An array of which no chunk was read.
    pub(super) fn new(
        (array, folder): (Arc<OpenArray>, Key),
        node: (Ticket, CheckedNode),
    ) -> ArrayData {
        ArrayData {
            array,
            folder,
            findings: Mutex::default(),
            node,
        }
    }

    /// Returns the node with what was found in its chunks.
    pub(super) fn into_node(self) -> (Ticket, CheckedNode) {
        let (ticket, mut node) = self.node;
        node.findings.merge(self.findings.into_inner());
        (ticket, node)
    }
}

/// Gives the chunks of an array, one by one.
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
        // Chunks that are not decoded must not count as right.
        of.findings.lock().add(folder_unlisted(&of.folder, &error));
    }
}

/// Checks a chunk and adds what is found to the findings of its array.
pub(super) fn check_task(context: &CheckContext, task: &ChunkTask) {
    let mut found = NodeFindings::default();
    let bytes = check_chunk(context, task, &mut found);
    context.progress.add_chunk(bytes);
    task.of.findings.lock().merge(found);
}

/// Reads and decodes a chunk; returns how many bytes it has as stored.
fn check_chunk(context: &CheckContext, task: &ChunkTask, found: &mut NodeFindings) -> u64 {
    let array = &task.of.array;
    let document = document_of(Some(array.array().dialect));
    match decode(context, task, found) {
        Ok(bytes) => bytes,
        Err(error) => {
            found.add(chunk_fault(&task.key, &error, ("", document)));
            0
        }
    }
}

fn decode(context: &CheckContext, task: &ChunkTask, found: &mut NodeFindings) -> Result<u64> {
    let array = &task.of.array;
    let index = array
        .stored_grid()?
        .index(&task.indices)
        .unwrap_or(ChunkIndex(0));
    let pipeline = array.pipeline_of(index)?;
    let size = match task.size {
        Some(size) => size,
        None => {
            context
                .store()
                .open(&UNLIMITED, &task.key, None)?
                .meta(&UNLIMITED)?
                .size
        }
    };
    let is_told = pipeline
        .stored_length()
        .is_some_and(|length| length != size)
        || size == 0;
    if is_told && task.size.is_some() {
        // Its length was reported with the keys.
        return Ok(size);
    }
    if pipeline.shards().is_empty() {
        check_bound(&task.key, size, &pipeline)?;
        let _room = room_of_chunk(context, size, &pipeline)?;
        let object = context.store().get(&UNLIMITED, &task.key, size)?;
        let bytes = object.ok_or_else(|| Error::not_found(&task.key))?.bytes;
        found.extend(decode_all(&pipeline, bytes, task)?);
    } else {
        decode_shard(context, task, (&pipeline, size), found)?;
    }
    Ok(size)
}

/// Decodes each inner chunk of a shard.
fn decode_shard(
    context: &CheckContext,
    task: &ChunkTask,
    (pipeline, size): (&Pipeline, u64),
    found: &mut NodeFindings,
) -> Result<()> {
    let document = document_of(Some(task.of.array.array().dialect));
    let _room = room_of_shard(context, size, pipeline)?;
    let reader = ShardReader::new(context, (&task.key, size), true)?;
    let mut visit = |name: &str, place: std::ops::Range<u64>, found: &mut NodeFindings| {
        let length = place.end - place.start;
        let bytes = check_bound(&task.key, length, pipeline).and_then(|()| reader.read(&place));
        match bytes.and_then(|bytes| decode_all(pipeline, bytes, task)) {
            Ok(passed_over) => found.extend(passed_over.map(|finding| finding.of_part(name))),
            Err(error) => found.add(chunk_fault(&task.key, &error, (name, document))),
        }
    };
    walk(&reader, pipeline.shards(), ("", 0..size), found, &mut visit);
    Ok(())
}

/// Fails with `Corrupt` if a chunk is longer than anything that its codecs make.
fn check_bound(key: &Key, size: u64, pipeline: &Pipeline) -> Result<()> {
    let most = pipeline.stored_bound();
    if size <= most {
        return Ok(());
    }
    let found = format!(
        "{size} bytes are stored, more than {most}, which is more than the codecs ever make"
    );
    Err(Error::corrupt(key, found))
}

/// Decodes a chunk; returns what its codecs pass over.
fn decode_all(
    pipeline: &Pipeline,
    bytes: Vec<u8>,
    task: &ChunkTask,
) -> Result<impl Iterator<Item = Finding>> {
    let (decoded, passed_over) = pipeline.decode_noting(bytes)?;
    check_text(&task.of.array.array().data_type, &decoded)?;
    buffer::recycle(decoded);
    let place = ChunkPart {
        key: &task.key,
        array: task.of.array.array(),
        indices: &task.indices,
    };
    Ok(passed_over_findings(&place, &passed_over))
}
