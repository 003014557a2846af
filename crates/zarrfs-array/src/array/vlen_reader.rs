//! Reads whole boxes of elements without a fixed length.
//!
//! The offset of an element is known only after all elements before it were read, so a box is assembled once, when its
//! file is opened. A box that needs more than 1/2 of the memory budget, with the chunk row that is being read, is
//! refused. The box is read one slab (its elements in one chunk row) after the other. The engine's threads decode the
//! chunks of the next slabs, as many as fit in a part of the memory. If the threads could not decode a chunk, or it was
//! evicted again, the reader loads the chunk itself, in the version that the chunk has then.

use std::collections::VecDeque;
use std::slice::Iter;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::array::chunk::Chunk;
use crate::array::chunk_reader::ChunkReader;
use crate::array::prefetcher::{PlacedChunk, Prefetcher, Taken};
use crate::array::read_versions::{ChunkContent, ReadVersions};
use crate::array::stored_array::StoredArray;
use crate::array::vlen_elements::{ReservedBuffer, VlenElements, split};
use zarr_format::error::{Error, Result};
use zarr_format::grid::{ChunkIndex, Region};
use zarrfs_store::request_context::RequestContext;

/// A chunk of variable-length elements, which are read in order.
struct Cursor {
    chunk: ChunkIndex,
    content: Chunk,
    /// The number of elements before the reader's position.
    passed: usize,
    /// The offset of the next element in the bytes of the chunk.
    offset: usize,
}

impl Cursor {
    /// Returns element number `wanted` of the chunk with its length prefix, or `None` if the element is the fill value.
    /// The numbers must ascend from call to call.
    fn element(&mut self, wanted: usize) -> Option<Result<&[u8]>> {
        let Chunk::Data(decoded) = &self.content else {
            return None;
        };
        let mut rest = decoded.bytes().get(self.offset..).unwrap_or_default();
        loop {
            let Some((_, after)) = split(rest) else {
                let found = format!("expected an element {wanted}, found {}", self.passed);
                return Some(Err(Error::corrupt("", found)));
            };
            let length = rest.len() - after.len();
            (self.passed, self.offset) = (self.passed + 1, self.offset + length);
            if self.passed > wanted {
                return Some(Ok(&rest[..length]));
            }
            rest = after;
        }
    }
}

pub(super) struct VlenReader<'a> {
    array: &'a StoredArray,
    reader: &'a ChunkReader,
    prefetcher: &'a Arc<Prefetcher>,
}

impl VlenReader<'_> {
    pub(super) fn new(prefetcher: &Arc<Prefetcher>) -> VlenReader<'_> {
        VlenReader {
            array: &prefetcher.reader.array,
            reader: &prefetcher.reader,
            prefetcher,
        }
    }

    /// Reads a box of variable-length elements; `TooLarge` if its elements and a row of its chunks need more than 1/2
    /// of the memory budget, `Corrupt` if a chunk has the wrong number of elements.
    pub(super) fn read(&self, context: &RequestContext, region: &Region) -> Result<VlenElements> {
        self.array.check_metadata(context)?;
        let len = ReservedBuffer::new(self.array).count(region)?;
        let slabs = self.slabs(region);
        let growing = self
            .reader
            .read_one_version(context, |contents: &mut ReadVersions| {
                let mut growing = ReservedBuffer::new(self.array);
                let mut ahead = VlenAhead::new(self.prefetcher, &slabs);
                for slab in &slabs {
                    let chunks = self.chunks_of(context, &mut ahead, slab, &mut growing)?;
                    for cursor in &chunks {
                        contents.record(
                            &self.reader.decoder,
                            cursor.chunk,
                            ChunkContent::of(&cursor.content),
                        );
                    }
                    self.add_slab(chunks, slab, &mut growing)?;
                }
                Ok(growing)
            })?;
        self.array.check_store()?;
        let data_type = self.array.metadata.data_type.clone();
        Ok(VlenElements::new(data_type, growing.finish(), len))
    }

    /// Appends the elements of a slab: the part of a box that is in one chunk row along the first dimension.
    fn add_slab(
        &self,
        mut chunks: Vec<Cursor>,
        slab: &Region,
        out: &mut ReservedBuffer,
    ) -> Result<()> {
        let fill = &self.array.metadata.fill_value.bytes;
        let length =
            u32::try_from(fill.len()).map_err(|error| Error::too_large(&self.array.path, error))?;
        let fill = [&length.to_le_bytes(), fill.as_slice()].concat();
        let mut at = slab.start.clone();
        loop {
            let (chunk, number) = self.reader.decoder.grid.locate(&at);
            let found = chunks.binary_search_by_key(&chunk, |cursor| cursor.chunk);
            let cursor = found.ok().and_then(|found| chunks.get_mut(found));
            let cursor = cursor.ok_or_else(|| Error::invalid(&self.array.path, "no such chunk"))?;
            match cursor.element(number) {
                Some(element) => {
                    out.push(element.map_err(|error| error.about(&self.array.path))?)?
                }
                None => out.push(&fill)?,
            }
            if !slab.step(&mut at) {
                out.held = 0;
                return Ok(());
            }
        }
    }

    /// Returns the chunks of a slab (the elements of a box in one chunk row), in the order of their numbers.
    fn chunks_of(
        &self,
        context: &RequestContext,
        ahead: &mut VlenAhead,
        slab: &Region,
        out: &mut ReservedBuffer,
    ) -> Result<Vec<Cursor>> {
        let mut numbers = Vec::new();
        self.reader.decoder.grid.visit(slab, |chunk, _, _| {
            numbers.push(chunk);
            true
        });
        let mut chunks = Vec::with_capacity(numbers.len());
        for chunk in numbers {
            ahead.take();
            let content = self.reader.get(context, chunk)?;
            out.hold(self.check_count(chunk, &content)?)?;
            chunks.push(Cursor {
                chunk,
                content,
                passed: 0,
                offset: 0,
            });
        }
        Ok(chunks)
    }

    /// Fails with `Corrupt` if a chunk has the wrong number of elements; returns the length of the chunk in bytes.
    fn check_count(&self, chunk: ChunkIndex, content: &Chunk) -> Result<u64> {
        let Chunk::Data(decoded) = content else {
            return Ok(0);
        };
        let expected: u64 = self.reader.decoder.grid.shape_of(chunk).iter().product();
        let (mut found, mut rest) = (0, decoded.bytes());
        while let Some((_, after)) = split(rest) {
            (found, rest) = (found + 1, after);
        }
        if found != expected || !rest.is_empty() {
            let found = format!("expected {expected} elements, found {found}");
            return Err(Error::corrupt(&self.array.path, found));
        }
        Ok(decoded.bytes().len() as u64)
    }

    /// Cuts a box into slabs, each in one chunk row along the first dimension.
    fn slabs(&self, region: &Region) -> Vec<Region> {
        if region.shape.contains(&0) {
            return Vec::new();
        }
        let Some((&start, &rows)) = region.start.first().zip(region.shape.first()) else {
            return vec![region.clone()];
        };
        let mut slabs = Vec::new();
        let mut at = start;
        while at < start + rows {
            let (first, length) = self
                .reader
                .decoder
                .grid
                .span(0, self.reader.decoder.grid.chunk_at(0, at));
            let end = first.saturating_add(length).min(start + rows);
            let mut slab = region.clone();
            slab.start[0] = at;
            slab.shape[0] = end - at;
            slabs.push(slab);
            at = end;
        }
        slabs
    }
}

/// The chunks of a box of variable-length elements, in the order in which they are read.
pub(super) struct VlenAhead<'a> {
    prefetcher: &'a Arc<Prefetcher>,
    /// The parts of the box whose chunks are not in `waiting` yet.
    slabs: Iter<'a, Region>,
    /// The chunks that were not submitted to the decoding threads yet.
    waiting: VecDeque<ChunkIndex>,
    /// The number of chunks that were submitted to the threads or read so far.
    passed: usize,
    taken: Taken,
}

impl<'a> VlenAhead<'a> {
    /// Creates the queue of the chunks of a box, for the decoding threads.
    pub(super) fn new(prefetcher: &'a Arc<Prefetcher>, slabs: &'a [Region]) -> VlenAhead<'a> {
        VlenAhead {
            prefetcher,
            slabs: slabs.iter(),
            waiting: VecDeque::new(),
            passed: 0,
            taken: Taken::default(),
        }
    }

    /// Records that the next chunk is read, and prefetches chunks after it.
    pub(super) fn take(&mut self) {
        let taken = self.taken.fetch_add(1, Ordering::Relaxed) + 1;
        if self.passed < taken {
            self.wait_for(1);
            self.waiting.pop_front();
            self.passed = taken;
        }
        let (most, ahead) = (self.most(), self.passed - taken);
        // Many chunks are submitted at a time, so that the chunks of a shard are fetched together.
        if ahead <= most / 2 {
            self.submit(most - ahead);
        }
    }

    /// Returns the maximum number of prefetched chunks; 0 until the first chunk was decoded and its length is known.
    fn most(&self) -> usize {
        let decoder = &self.prefetcher.reader.decoder;
        let Some(estimated) = decoder.estimated_sizes() else {
            return 0;
        };
        let memory = self.prefetcher.reader.array.engine.limits.memory / 4;
        let chunks = memory / estimated.while_decoded(&decoder.pipeline).max(1);
        usize::try_from(chunks.min(512)).unwrap_or(0)
    }

    /// Queues chunks of the box until at least `count` chunks are waiting, or no chunk is left.
    fn wait_for(&mut self, count: usize) {
        while self.waiting.len() < count
            && let Some(slab) = self.slabs.next()
        {
            let grid = &self.prefetcher.reader.decoder.grid;
            grid.visit(slab, |chunk, _, _| {
                self.waiting.push_back(chunk);
                true
            });
        }
    }

    fn submit(&mut self, count: usize) {
        self.wait_for(count);
        let count = count.min(self.waiting.len());
        let chunks = (self.passed..).zip(self.waiting.drain(..count));
        let chunks = chunks.map(|(place, chunk)| PlacedChunk { place, chunk });
        self.prefetcher.decode_beside(chunks, &self.taken, None);
        self.passed += count;
    }
}

impl Drop for VlenAhead<'_> {
    fn drop(&mut self) {
        self.taken.store(usize::MAX, Ordering::Relaxed);
    }
}
