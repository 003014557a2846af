//! Every stored chunk decoded: as many at a time as there are threads, each counted in the memory budget.
//!
//! One thread lists the chunks, array by array, and the others take them as they come, so that many arrays of one chunk
//! and one array of many chunks are read at the same speed. What is decoded is dropped at once.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::array::OpenArray;
use crate::check::chunk_place::{ChunkPlace, ChunkPlaces};
use crate::check::context::CheckContext;
use crate::check::finding::{Finding, document_of};
use crate::check::findings::NodeFindings;
use crate::check::key_findings::{chunk_heading, folder_unlisted};
use crate::check::shards::{ShardReader, unreadable, walk};
use crate::check::stored_keys::{StoredEntry, visit_below};
use crate::codec::Pipeline;
use crate::error::{Error, Kind, Result};
use crate::grid::{ChunkIndex, Coordinates};
use crate::model::CodecSpec;
use crate::store::Key;
use crate::sync::budget::Reservation;
use crate::sync::buffer;

/// How long a chunk may wait for memory.
const PATIENCE: Duration = Duration::from_secs(600);

/// The part of the budget that one chunk may take, one in so many bytes; nodes and open arrays hold others.
const MEMORY_SHARE: u64 = 4;

/// An array whose chunks are read.
pub(super) struct ArrayData {
    pub(super) array: Arc<OpenArray>,
    /// The folder below which its chunks lie.
    pub(super) folder: Key,
    pub(super) findings: Mutex<NodeFindings>,
}

/// A chunk to be read.
struct ChunkTask<'a> {
    of: &'a ArrayData,
    key: Key,
    indices: Coordinates,
    size: Option<u64>,
}

/// Reads all chunks of some arrays; what is found is in their `findings`.
pub(super) fn check_chunks(context: &CheckContext, arrays: &[ArrayData]) {
    if arrays.is_empty() {
        return;
    }
    let (sender, receiver) = sync_channel(4 * context.threads.max(1));
    let receiver = Mutex::new(receiver);
    thread::scope(|scope| {
        let start = || {
            let thread = thread::Builder::new().name("zarrfs-check".to_string());
            thread
                .spawn_scoped(scope, || work(context, &receiver))
                .is_ok()
        };
        let has_workers = (0..context.threads.max(1)).filter(|_| start()).count() > 0;
        for of in arrays {
            list_chunks(context, of, &mut |task| {
                if has_workers {
                    // The receiver outlives this loop.
                    drop(sender.send(task));
                } else {
                    check_task(context, &task);
                }
            });
        }
        drop(sender);
    });
}

/// Gives the chunks of an array, one by one.
fn list_chunks<'a>(context: &CheckContext, of: &'a ArrayData, give: &mut dyn FnMut(ChunkTask<'a>)) {
    let array = of.array.array();
    if of.array.check_decodable().is_err() {
        return;
    }
    let places = ChunkPlaces::new(array, of.array.stored_grid().ok());
    let listed = visit_below(context.store(), &of.folder, &mut |entry| match entry {
        StoredEntry::Object(key, meta) => {
            if let ChunkPlace::Chunk(indices, _) = places.of(&key) {
                let size = context.size_of(&key, meta.as_ref());
                give(ChunkTask {
                    of,
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

/// Takes chunks until there are none.
fn work(context: &CheckContext, tasks: &Mutex<Receiver<ChunkTask<'_>>>) {
    loop {
        let next = tasks.lock().recv();
        let Ok(task) = next else { return };
        check_task(context, &task);
    }
}

/// Checks a chunk and adds what is found to the findings of its array.
fn check_task(context: &CheckContext, task: &ChunkTask<'_>) {
    let mut found = NodeFindings::default();
    let bytes = check_chunk(context, task, &mut found);
    context.progress.add_chunk(bytes);
    task.of.findings.lock().merge(found);
}

/// Reads and decodes a chunk; returns how many bytes it has as stored.
fn check_chunk(context: &CheckContext, task: &ChunkTask<'_>, found: &mut NodeFindings) -> u64 {
    let array = &task.of.array;
    let document = document_of(Some(array.array().dialect));
    match decode(context, task, found) {
        Ok(bytes) => bytes,
        Err(error) => {
            found.add(fault_of(&task.key, &error, ("", document)));
            0
        }
    }
}

fn decode(context: &CheckContext, task: &ChunkTask<'_>, found: &mut NodeFindings) -> Result<u64> {
    let array = &task.of.array;
    let index = array
        .stored_grid()?
        .index(&task.indices)
        .unwrap_or(ChunkIndex(0));
    let pipeline = array.pipeline_of(index)?;
    let size = match task.size {
        Some(size) => size,
        None => context.store().open(&task.key, None)?.meta()?.size,
    };
    let is_told = pipeline
        .stored_length()
        .is_some_and(|length| length != size)
        || size == 0;
    if is_told && task.size.is_some() {
        // Its length was told when the keys were looked at.
        return Ok(size);
    }
    if pipeline.shards().is_empty() {
        check_bound(&task.key, size, &pipeline)?;
        let _room = room(context, size, &pipeline)?;
        let object = context.store().get(&task.key, size)?;
        let bytes = object.ok_or_else(|| Error::not_found(&task.key))?.bytes;
        let trailing = decode_all(&pipeline, bytes, &array.array().codecs)?;
        found.extend(trailing.map(|what| with_trailing(&task.key, what, array.array().dialect)));
    } else {
        decode_shard(context, task, (&pipeline, size), found)?;
    }
    Ok(size)
}

/// Decodes each inner chunk of a shard.
fn decode_shard(
    context: &CheckContext,
    task: &ChunkTask<'_>,
    (pipeline, size): (&Pipeline, u64),
    found: &mut NodeFindings,
) -> Result<()> {
    let document = document_of(Some(task.of.array.array().dialect));
    let _room = room(context, size.min(32 << 20), pipeline)?;
    let reader = ShardReader::new(context, (&task.key, size), true)?;
    let mut visit = |name: &str, place: std::ops::Range<u64>, found: &mut NodeFindings| {
        let decoded = reader.read(&place).and_then(|bytes| pipeline.decode(bytes));
        match decoded {
            Ok(decoded) => buffer::recycle(decoded),
            Err(error) => found.add(fault_of(&task.key, &error, (name, document))),
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

/// Decodes a chunk; returns what follows it where the last codec does not mind.
fn decode_all(pipeline: &Pipeline, bytes: Vec<u8>, codecs: &[CodecSpec]) -> Result<Option<String>> {
    let last = codecs.last().map_or("", |codec| codec.name.as_str());
    let trailing = match last {
        "blosc" => bytes_after_blosc(&bytes).map(|count| format!("{count} bytes after it")),
        _ => None,
    };
    // These streams are read up to their end, whatever follows: one that decodes without its last byte has some to spare.
    let shorter = match (last, bytes.split_last()) {
        ("numcodecs.zlib" | "numcodecs.bz2" | "numcodecs.lzma", Some((_, shorter))) => {
            Some(shorter.to_vec())
        }
        _ => None,
    };
    buffer::recycle(pipeline.decode(bytes)?);
    let has_spare = shorter.is_some_and(|shorter| pipeline.decode(shorter).is_ok());
    Ok(trailing.or(has_spare.then(|| "bytes after it".to_string())))
}

/// Returns how many bytes follow a frame of blosc, whose header states its length.
fn bytes_after_blosc(bytes: &[u8]) -> Option<u64> {
    let stated = bytes.get(12..16)?.try_into().ok()?;
    let spare = (bytes.len() as u64).checked_sub(u64::from(u32::from_le_bytes(stated)))?;
    (spare > 0).then_some(spare)
}

/// A chunk with bytes behind those that decode.
fn with_trailing(key: &Key, found: String, dialect: &str) -> Finding {
    let document = document_of(Some(dialect));
    let finding = Finding::warning("chunk-trailing", key, "the encoded chunk alone", found);
    finding.by(document, chunk_heading(document))
}

/// Takes room for a chunk as it is stored and as it is decoded. Elements without a fixed length are bounded by far more
/// than they ever take, so that room is taken for some times what is stored.
fn room(context: &CheckContext, size: u64, pipeline: &Pipeline) -> Result<Reservation> {
    let decoded = (pipeline.chunk_bytes() as u64).min(size.saturating_mul(64).max(1 << 20));
    let needed = size.saturating_add(decoded.saturating_mul(2));
    let memory = &context.memory;
    memory.reserve(
        needed.min(memory.limit() / MEMORY_SHARE),
        Instant::now() + PATIENCE,
    )
}

/// Returns what an error of a chunk says of the store.
fn fault_of(key: &Key, error: &Error, (part, document): (&str, &'static str)) -> Finding {
    match error.kind() {
        Kind::Unsupported => {
            let expected = "a chunk that can be decoded here";
            let found = error.within(part).to_string();
            Finding::warning("chunk-unreadable", key, expected, found).of_part(part)
        }
        Kind::Corrupt => {
            let expected = "bytes that decode to the length that the metadata promise";
            let finding = Finding::error(
                "chunk-corrupt",
                key,
                expected,
                error.within(part).to_string(),
            );
            finding.of_part(part).by(document, chunk_heading(document))
        }
        _ => unreadable(key, error).of_part(part),
    }
}
