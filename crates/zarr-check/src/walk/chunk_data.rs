//! Decodes every stored chunk, within the memory budget.
//!
//! The thread that checked an array lists its chunks, and all threads decode chunks from one queue. So many arrays of
//! one chunk are read as fast as one array of many chunks. Decoded elements are dropped at once.

use std::iter;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::context::CheckContext;
use crate::finding::Finding;
use crate::node_findings::NodeFindings;
use crate::rules::keys::{ChunkPart, chunk_fault, folder_unlisted};
use crate::spec::Spec;
use crate::walk::array_keys::{ChunkPlace, ChunkPlaces};
use crate::walk::folder::{StoredEntry, visit_below};
use crate::walk::node::CheckedNode;
use crate::walk::shards::{ObjectPart, ShardReader};
use crate::walk::work_queue::Ticket;
use zarr_format::buffer;
use zarr_format::codec::{Leniency, Pipeline};
use zarr_format::error::{Error, Result};
use zarr_format::grid::{ChunkIndex, Coordinates};
use zarr_format::model::{DataType, Field};
use zarrfs_array::array::OpenArray;
use zarrfs_store::Key;
use zarrfs_store::request_context::UNLIMITED;

/// An array whose chunks are being decoded. Each task on a chunk has a reference, and the last task to end finishes the
/// node.
pub(crate) struct ArrayData {
    array: Arc<OpenArray>,
    /// The folder of the array's chunks, which is listed.
    folder: Key,
    findings: Mutex<NodeFindings>,
    node: CheckedNode,
    /// The position of the array in the order in which nodes are reported.
    ticket: Ticket,
}

pub(crate) struct ChunkTask {
    pub(crate) of: Arc<ArrayData>,
    key: Key,
    indices: Coordinates,
    size: Option<u64>,
}

impl ChunkTask {
    /// Decodes the chunk, and adds the findings about it to those about its array.
    pub(crate) fn check(&self, context: &CheckContext) {
        let chunk = StoredChunk {
            array: &self.of.array,
            key: &self.key,
            indices: &self.indices,
            size: self.size,
        };
        let mut findings = NodeFindings::default();
        let bytes = chunk.check(context, &mut findings);
        context.progress.add_chunk(bytes);
        self.of.findings.lock().merge(findings);
    }
}

impl ArrayData {
    pub(crate) fn new(
        array: Arc<OpenArray>,
        folder: Key,
        ticket: Ticket,
        node: CheckedNode,
    ) -> ArrayData {
        ArrayData {
            array,
            folder,
            findings: Mutex::default(),
            node,
            ticket,
        }
    }

    /// Returns the node, now with the findings about its chunks, and the ticket of the node.
    pub(crate) fn into_node(mut self) -> (Ticket, CheckedNode) {
        self.node.findings.merge(self.findings.into_inner());
        (self.ticket, self.node)
    }

    /// Lists the chunks of the array, and passes a task for each chunk to `queue`.
    pub(crate) fn list_chunks(
        self: &Arc<Self>,
        context: &CheckContext,
        queue: &mut dyn FnMut(ChunkTask),
    ) {
        let array = self.array.array();
        if self.array.check_decodable().is_err() {
            return;
        }
        let places = ChunkPlaces::new(array, self.array.stored_grid().ok());
        let listed = visit_below(context, &self.folder, &mut |entry| match entry {
            StoredEntry::Object(key, meta) => {
                if let ChunkPlace::Chunk(indices, _) = places.of(&key) {
                    let size = context.size_of(&key, meta.as_ref());
                    queue(ChunkTask {
                        of: self.clone(),
                        key,
                        indices,
                        size,
                    });
                }
                false
            }
            StoredEntry::Folder(_) => true,
            StoredEntry::Unlisted(key, error) => {
                self.findings.lock().add(folder_unlisted(&key, &error));
                false
            }
            _ => false,
        });
        if let Err(error) = listed {
            // After a failed listing, some chunks are not decoded, so the array must not pass the check.
            self.findings
                .lock()
                .add(folder_unlisted(&self.folder, &error));
        }
    }
}

pub(crate) struct StoredChunk<'a> {
    pub(crate) array: &'a OpenArray,
    pub(crate) key: &'a Key,
    pub(crate) indices: &'a [u64],
    /// The stored length in bytes, if a listing had it.
    pub(crate) size: Option<u64>,
}

impl<'a> StoredChunk<'a> {
    /// Returns the part of the chunk that has the given name in findings. An empty name stands for the whole chunk.
    fn part(&self, part: &'a str) -> ChunkPart<'a> {
        ChunkPart {
            key: self.key,
            part,
            array: self.array.array(),
        }
    }

    /// Decodes a chunk, and adds the findings about it. Returns its stored length in bytes, or 0 if it cannot be
    /// decoded.
    pub(crate) fn check(&self, context: &CheckContext, findings: &mut NodeFindings) -> u64 {
        match self.decode(context, findings) {
            Ok(bytes) => bytes,
            Err(error) => {
                let size = || self.size.or_else(|| context.request_size(self.key).ok());
                let head = || context.read_head(self.key, size()?);
                findings.add(chunk_fault(&self.part(""), &error, head));
                0
            }
        }
    }

    fn decode(&self, context: &CheckContext, findings: &mut NodeFindings) -> Result<u64> {
        let grid = self.array.stored_grid()?;
        let index = grid.index(self.indices).unwrap_or(ChunkIndex(0));
        let pipeline = self.array.pipeline_of(index)?;
        let size = match self.size {
            Some(size) => size,
            None => context.request_size(self.key)?,
        };
        let is_wrong_length = pipeline
            .stored_length()
            .is_some_and(|length| length != size)
            || size == 0;
        if is_wrong_length && self.size.is_some() {
            // The wrong length was already reported when the keys of the array were checked.
            return Ok(size);
        }
        if pipeline.shards().is_empty() {
            self.check_bound(size, &pipeline)?;
            let _reservation = context.reserve_chunk(size, &pipeline)?;
            let object = context.store().get(&UNLIMITED, self.key, size)?;
            let bytes = object.ok_or_else(|| Error::not_found(self.key))?.bytes;
            findings.extend(self.decode_all(&pipeline, bytes)?);
        } else {
            self.decode_shard(context, &pipeline, size, findings)?;
        }
        Ok(size)
    }

    fn decode_shard(
        &self,
        context: &CheckContext,
        pipeline: &Pipeline,
        size: u64,
        findings: &mut NodeFindings,
    ) -> Result<()> {
        let _reservation = context.reserve_shard(size, pipeline)?;
        let reader = ShardReader::new(context, &self.part(""), size, true)?;
        let mut visit = |inner: &ObjectPart, findings: &mut NodeFindings| {
            let length = inner.length();
            let bytes = self
                .check_bound(length, pipeline)
                .and_then(|()| reader.read(&inner.range));
            match bytes.and_then(|bytes| self.decode_all(pipeline, bytes)) {
                Ok(lenient) => {
                    findings.extend(lenient.map(|finding| finding.with_part(&inner.name)))
                }
                Err(error) => {
                    let head = || reader.read_head(inner).ok();
                    let part = ChunkPart {
                        part: &inner.name,
                        ..self.part("")
                    };
                    findings.add(chunk_fault(&part, &error, head));
                }
            }
        };
        reader.walk(
            pipeline.shards(),
            &ObjectPart::whole(size),
            findings,
            &mut visit,
        );
        Ok(())
    }

    /// Fails if a chunk is longer than its codecs can make it: with `TooLarge` if its elements have variable length and
    /// may exceed the limit, or else with `Corrupt`.
    fn check_bound(&self, size: u64, pipeline: &Pipeline) -> Result<()> {
        let (key, bound) = (self.key, pipeline.stored_bound());
        if size <= bound {
            return Ok(());
        }
        if !pipeline.has_fixed_length() {
            let why = format!("{size} bytes exceed the limit of {bound} bytes");
            return Err(self.array.with_option(Error::too_large(key, why)));
        }
        let why = format!("{size} bytes are more than the {bound} that its codecs can make");
        Err(Error::corrupt(key, why))
    }

    /// Decodes a chunk. Returns findings about faults in the encoding that readers tolerate.
    fn decode_all(
        &self,
        pipeline: &Pipeline,
        bytes: Vec<u8>,
    ) -> Result<impl Iterator<Item = Finding> + use<>> {
        let decoded = pipeline.decode_with_leniency(bytes);
        let (decoded, lenient) = decoded.map_err(|error| self.array.with_option(error))?;
        check_text(&self.array.array().data_type, &decoded)?;
        buffer::recycle(decoded);
        Ok(self.lenient_findings(&lenient))
    }

    /// Returns findings about the faults that codecs tolerated in a chunk.
    fn lenient_findings(&self, lenient: &Leniency) -> impl Iterator<Item = Finding> + use<> {
        let spec = Spec::of(Some(self.array.array().dialect));
        let findings = trailing(self.key, lenient)
            .chain(other_codec(self.key, lenient))
            .chain(self.small_n5_block(lenient));
        findings.map(move |finding| finding.with_section(spec.chunks()))
    }

    /// Reports an N5 block that lacks elements inside the dataset. Elements outside the dataset may be missing.
    fn small_n5_block(&self, lenient: &Leniency) -> Option<Finding> {
        let stored = lenient.block.as_ref()?;
        let array = self.array.array();
        let lengths = iter::zip(&array.shape, &array.chunk_shape);
        let needed: Vec<u64> = iter::zip(lengths, self.indices)
            .map(|((length, block), index)| {
                let start = index.saturating_mul(*block);
                length.saturating_sub(start).min(*block)
            })
            .collect();
        if iter::zip(stored, &needed).all(|(stored, needed)| stored >= needed) {
            return None;
        }
        let message =
            format!("the block has {stored:?} of {needed:?} elements; missing ones read as zeros");
        Some(Finding::warning("block-too-small", self.key, message))
    }
}

/// Reports bytes that follow the encoded data of a chunk.
fn trailing(key: &Key, lenient: &Leniency) -> impl Iterator<Item = Finding> + use<> {
    let follow = |count: u64, what: &str| {
        let end = if count == 1 { "" } else { "s" };
        let message =
            format!("{count} {what}{end} follow the encoded chunk; some readers reject it");
        let finding = Finding::warning("chunk-trailing", key, message);
        (count > 0).then_some(finding)
    };
    let bytes = follow(lenient.bytes, "byte");
    bytes.into_iter().chain(follow(lenient.padding, "zero"))
}

/// Reports a chunk that another codec compressed than the metadata state, which not all readers accept.
fn other_codec(key: &Key, lenient: &Leniency) -> Option<Finding> {
    let (stated, other) = lenient.wrapper?;
    let message = format!("the chunk is a {other} stream, but the metadata name {stated}");
    let finding = Finding::warning("chunk-other-codec", key, message);
    Some(match stated {
        "gzip" => finding.with_habit("z5py of 2020"),
        _ => finding,
    })
}

/// Fails with `Corrupt` if a character of a fixed-length text is not a Unicode code point.
fn check_text(data_type: &DataType, elements: &[u8]) -> Result<()> {
    match data_type {
        DataType::FixedText(_) => check_words(elements),
        DataType::Struct(fields) if fields.iter().any(has_text) => {
            let size = data_type.size().unwrap_or_default().max(1);
            elements
                .chunks_exact(size)
                .try_for_each(|element| check_fields(fields, element))
        }
        _ => Ok(()),
    }
}

fn has_text(field: &Field) -> bool {
    match &field.data_type {
        DataType::FixedText(_) => true,
        DataType::Struct(fields) => fields.iter().any(has_text),
        _ => false,
    }
}

fn check_fields(fields: &[Field], element: &[u8]) -> Result<()> {
    let mut rest = element;
    for field in fields {
        let size = field.data_type.size().zip(field.count());
        let length = size.map_or(0, |(size, count)| size.saturating_mul(count));
        let (value, after) = rest.split_at_checked(length).unwrap_or((rest, &[]));
        check_text(&field.data_type, value)?;
        rest = after;
    }
    Ok(())
}

fn check_words(elements: &[u8]) -> Result<()> {
    let words = elements.as_chunks::<4>().0.iter();
    let mut words = words.map(|word| u32::from_le_bytes(*word));
    // Surrogates are accepted, because numpy accepts them as text.
    match words.find(|word| *word > u32::from(char::MAX)) {
        None => Ok(()),
        Some(word) => {
            let what = format!("an element has {word:#x}, which is not a Unicode code point");
            Err(Error::corrupt("", what))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_length_text_must_be_unicode_code_points() {
        let text = DataType::FixedText(1);
        let field = |data_type: &DataType, count| Field {
            name: "a".to_string(),
            data_type: data_type.clone(),
            shape: vec![count],
        };
        let record = DataType::Struct(vec![field(&DataType::UInt(1), 3), field(&text, 2)]);
        let good = [0x61, u32::from(char::MAX)].map(u32::to_le_bytes).concat();
        let wrong = [0x61, u32::from(char::MAX) + 1]
            .map(u32::to_le_bytes)
            .concat();
        let number = vec![0xff; 3];
        assert!(check_text(&text, &good).is_ok());
        assert!(check_text(&text, &wrong).is_err());
        assert!(check_text(&DataType::UInt(4), &wrong).is_ok());
        let element = |text: &[u8]| [number.as_slice(), text].concat();
        assert!(check_text(&record, &element(&good)).is_ok());
        let two = [element(&good), element(&wrong)].concat();
        let error = check_text(&record, &two).unwrap_err();
        assert_eq!(
            error.to_string(),
            "an element has 0x110000, which is not a Unicode code point"
        );
    }
}
