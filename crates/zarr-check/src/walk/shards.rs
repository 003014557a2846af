//! Checks shard indexes and locates inner chunks.
//!
//! The byte range of each index entry must be inside the shard, and overlap neither the index nor another range. Bytes
//! in no range are unused. Of two inner chunks that overlap, the second is reported and not read, so that the bytes of
//! a shard are read at most once per level of nesting. Otherwise, a hostile index whose entries all point to the same
//! bytes could multiply the work at each level.

use std::collections::HashSet;
use std::ops::Range;

use crate::context::{CheckContext, MAX_WHOLE};
use crate::finding::Finding;
use crate::node_findings::NodeFindings;
use crate::rules::foreign::{HEAD, ObjectHead, Remedy, in_place_of_shard};
use crate::rules::keys::{ChunkPart, chunk_fault};
use crate::spec::{Spec, SpecSection};
use zarr_format::codec::{Pipeline, ShardIndex, ShardLevel};
use zarr_format::error::{Error, Result};
use zarr_format::model::Array;
use zarrfs_store::request_context::UNLIMITED;
use zarrfs_store::{ByteRange, Key};

const FORMAT: SpecSection = Spec::Sharding.section("Binary shard format");

/// A byte range of a stored object: a shard, a shard nested in it, or an inner chunk.
pub(crate) struct ObjectPart {
    /// The name of the shard or inner chunk in messages; empty for the whole object.
    pub(crate) name: String,
    pub(crate) range: Range<u64>,
}

impl ObjectPart {
    /// Returns the range of a whole object of `size` bytes.
    pub(crate) fn whole(size: u64) -> ObjectPart {
        ObjectPart {
            name: String::new(),
            range: 0..size,
        }
    }

    pub(crate) fn length(&self) -> u64 {
        self.range.end.saturating_sub(self.range.start)
    }

    fn words(&self) -> &str {
        if self.name.is_empty() {
            "the shard"
        } else {
            &self.name
        }
    }

    fn name_of_inner(&self, number: usize) -> String {
        if self.name.is_empty() {
            format!("inner chunk {number}")
        } else {
            format!("{}, inner chunk {number}", self.name)
        }
    }
}

/// A function that is called with each inner chunk of a shard.
type VisitInnerChunk<'a> = &'a mut dyn FnMut(&ObjectPart, &mut NodeFindings);

/// Reads byte ranges of a stored shard.
pub(crate) struct ShardReader<'a> {
    context: &'a CheckContext,
    key: &'a Key,
    array: &'a Array,
    /// All bytes of the shard if it was read whole, or else `None`.
    whole: Option<Vec<u8>>,
}

impl<'a> ShardReader<'a> {
    /// Prepares to read a shard of `size` bytes. A small shard of which all chunks are needed is read whole.
    pub(crate) fn new(
        context: &'a CheckContext,
        shard: &ChunkPart<'a>,
        size: u64,
        wants_all: bool,
    ) -> Result<ShardReader<'a>> {
        let is_small = wants_all && size <= MAX_WHOLE;
        let whole = if is_small {
            let object = context.store().get(&UNLIMITED, shard.key, MAX_WHOLE)?;
            object.map(|object| object.bytes)
        } else {
            None
        };
        Ok(ShardReader {
            context,
            key: shard.key,
            array: shard.array,
            whole,
        })
    }

    pub(crate) fn read(&self, range: &Range<u64>) -> Result<Vec<u8>> {
        if let Some(whole) = &self.whole {
            let place = usize::try_from(range.start)
                .ok()
                .zip(usize::try_from(range.end).ok());
            let part = place.and_then(|(start, end)| whole.get(start..end));
            return part.map(<[u8]>::to_vec).ok_or_else(|| self.too_short());
        }
        let object =
            self.context
                .store()
                .get_range(&UNLIMITED, self.key, ByteRange::Span(range.clone()))?;
        let bytes = object.ok_or_else(|| Error::not_found(self.key))?.bytes;
        if bytes.len() as u64 == range.end - range.start {
            return Ok(bytes);
        }
        Err(self.too_short())
    }

    /// Reads the first bytes of a shard or inner chunk.
    pub(crate) fn read_head(&self, part: &ObjectPart) -> Result<ObjectHead> {
        let Range { start, end } = part.range;
        Ok(ObjectHead {
            bytes: self.read(&(start..end.min(start.saturating_add(HEAD as u64))))?,
            size: part.length(),
        })
    }

    fn too_short(&self) -> Error {
        Error::corrupt(self.key, "the shard is too short")
    }

    /// Reads the index of a shard, and the indexes of nested shards. Passes each inner chunk of the lowest level to
    /// `visit`.
    pub(crate) fn walk(
        &self,
        levels: &[ShardLevel],
        part: &ObjectPart,
        findings: &mut NodeFindings,
        visit: VisitInnerChunk<'_>,
    ) {
        let Some((level, within)) = levels.split_first() else {
            visit(part, findings);
            return;
        };
        let index = match self.read_index(level, part) {
            Ok(index) => index,
            Err(error) => {
                let finding = self.index_fault(part, &error);
                findings.add(finding.with_part(&part.name).with_section(FORMAT));
                return;
            }
        };
        let entries = self.entries(part, &index, level.count(), findings);
        let overlapping = self.check_entries(part, level, &entries, findings);
        let apart = entries
            .into_iter()
            .filter(|(number, _)| !overlapping.contains(number));
        for (number, range) in apart {
            let start = part.range.start.saturating_add(range.start);
            let inner = ObjectPart {
                name: part.name_of_inner(number),
                range: start..part.range.start.saturating_add(range.end),
            };
            self.walk(within, &inner, findings, visit);
        }
    }

    /// Reports a shard index that cannot be read, and which other format the object has, if it is recognized.
    fn index_fault(&self, part: &ObjectPart, error: &Error) -> Finding {
        let head = self.read_head(part);
        let foreign = head
            .ok()
            .and_then(|head| in_place_of_shard(&head, self.array));
        match foreign {
            Some(foreign) => {
                let message = foreign.message(part.words(), self.array);
                Finding::error("shard-index", self.key, message).with_remedy(foreign.remedy)
            }
            None => {
                let message = format!("the index of {} cannot be read: {error}", part.words());
                Finding::error("shard-index", self.key, message).with_remedy(Remedy::CopyAgain)
            }
        }
    }

    fn read_index(&self, level: &ShardLevel, part: &ObjectPart) -> Result<ShardIndex> {
        let size = part.length();
        let bytes = level.index_bytes() as u64;
        let too_short = || {
            Error::corrupt(
                "",
                format!("{size} bytes are too short for an index of {bytes} bytes"),
            )
        };
        let spare = size.checked_sub(bytes).ok_or_else(too_short)?;
        let start = part.range.start + if level.index_at_end() { spare } else { 0 };
        let encoded = self.read(&(start..start + bytes))?;
        level.decode_index(&encoded, size)
    }

    /// Returns the numbers and byte ranges of the inner chunks in a shard index. Reports ranges outside the shard.
    fn entries(
        &self,
        part: &ObjectPart,
        index: &ShardIndex,
        count: usize,
        findings: &mut NodeFindings,
    ) -> Vec<(usize, Range<u64>)> {
        let mut entries = Vec::new();
        for number in 0..count {
            match index.range(number) {
                Ok(range) => entries.extend(range.map(|range| (number, range))),
                Err(error) => {
                    let inner = part.name_of_inner(number);
                    let message = format!("{inner}: {}", error.detail());
                    let finding = Finding::error("shard-bounds", self.key, message);
                    findings.add(finding.with_part(inner).with_section(FORMAT));
                }
            }
        }
        entries
    }

    /// Reports byte ranges of a shard index that overlap each other or the index, and bytes that are in no range.
    /// Returns the numbers of the inner chunks that overlap the index or an earlier chunk.
    fn check_entries(
        &self,
        part: &ObjectPart,
        level: &ShardLevel,
        entries: &[(usize, Range<u64>)],
        findings: &mut NodeFindings,
    ) -> HashSet<usize> {
        let size = part.length();
        let bytes = level.index_bytes() as u64;
        let index = if level.index_at_end() {
            size.saturating_sub(bytes)..size
        } else {
            0..bytes
        };
        let mut parts: Vec<(Range<u64>, Option<usize>)> = entries
            .iter()
            .map(|(number, range)| (range.clone(), Some(*number)))
            .collect();
        parts.push((index, None));
        parts.sort_by_key(|(range, number)| (range.start, range.end, *number));
        let (mut end, mut used, mut last) = (0, 0, None);
        let mut overlapping = HashSet::new();
        for (range, number) in &parts {
            if range.start < end && range.start < range.end {
                overlapping.extend(number.or(last));
                findings.add(self.overlap(part, last, *number).with_part(&part.name));
            }
            used += range.end.saturating_sub(range.start.max(end));
            if range.end > end {
                (end, last) = (range.end, *number);
            }
        }
        let unused = size.saturating_sub(used);
        if unused > 0 {
            let message = format!("{unused} of {size} bytes of {} are unused", part.words());
            let finding = Finding::advice("shard-unused", self.key, message)
                .with_remedy("write the shard again to save space");
            findings.add(finding.with_part(&part.name).with_section(FORMAT));
        }
        overlapping
    }

    /// Reports an inner chunk that overlaps the index or an earlier inner chunk of the shard, and is therefore not
    /// read.
    fn overlap(&self, part: &ObjectPart, last: Option<usize>, number: Option<usize>) -> Finding {
        let name_of = |number: Option<usize>| match number {
            Some(number) => format!("inner chunk {number}"),
            None => "the index".to_string(),
        };
        let message = format!(
            "{} and {} overlap in {}; {} is not checked",
            name_of(last),
            name_of(number),
            part.words(),
            name_of(number.or(last))
        );
        Finding::error("shard-overlap", self.key, message).with_section(FORMAT)
    }
}

pub(crate) fn check_index(
    context: &CheckContext,
    pipeline: &Pipeline,
    shard: &ChunkPart<'_>,
    size: u64,
    findings: &mut NodeFindings,
) {
    let reservation = context.reserve_indexes(size, pipeline);
    let reader = reservation.and_then(|reservation| {
        let reader = ShardReader::new(context, shard, size, false)?;
        Ok((reader, reservation))
    });
    match reader {
        Ok((reader, _reservation)) => {
            let whole = ObjectPart::whole(size);
            reader.walk(pipeline.shards(), &whole, findings, &mut |_, _| {});
        }
        Err(error) => findings.add(chunk_fault(shard, &error, || None)),
    }
}
