//! Shows selected elements of an array as one flat file, strided or reordered.
//!
//! A read loads only the chunks that have elements of its range, one after another. The file is read-only. A selection
//! that is a box is read by `flat_file`, which copies less and prefetches.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::array::OpenArray;
use crate::array::chunk::Chunk;
use crate::array::decoder::Decoder;
use crate::array::file_layout::{elements, in_buffer};
use crate::array::read_versions::{ChunkContent, ReadVersions};
use zarr_format::buffer::Buffer;
use zarr_format::error::{Error, Result};
use zarr_format::grid::{ChunkIndex, Coordinates, Region, Selection, boxes, permuted};
use zarr_format::model::bytes_of;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::read_bytes::ReadBytes;

/// A read-only flat file of the selected elements of an array.
pub struct StridedFile {
    array: Arc<OpenArray>,
    selection: Selection,
    /// The array's dimension for each dimension of the file, outermost first.
    order: Vec<usize>,
    /// The number of elements along each dimension of the file; a dimension that was dropped has one element.
    shape: Coordinates,
    length: u64,
}

/// Selected elements along one dimension that are in the same chunk.
#[derive(Clone, Copy)]
struct AxisRun {
    /// The index of the chunk along the dimension, and the index of the chunk's first element.
    chunk: u64,
    start: u64,
    /// The number of elements that the chunk has along the dimension.
    length: u64,
    /// The number of the first element within the selection, and the number of elements.
    number: u64,
    count: u64,
}

/// One dimension of a copy out of a chunk: the count of elements, and the strides in bytes in the chunk and the target.
struct Lane {
    count: usize,
    from: isize,
    to: usize,
}

impl StridedFile {
    /// Creates the flat file of a selection; `order` has each dimension of the array once. Fails as `FlatFile::new`
    /// does.
    pub fn new(
        array: Arc<OpenArray>,
        selection: Selection,
        order: Vec<usize>,
    ) -> Result<StridedFile> {
        let counts: Vec<u64> = selection.axes.iter().map(|axis| axis.count).collect();
        let length = bytes_of(&counts, array.stored.metadata.element_size()?)?;
        Ok(StridedFile {
            array,
            selection,
            shape: permuted(&counts, &order),
            order,
            length,
        })
    }

    /// Returns the length of the file in bytes.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the array that the file shows.
    pub fn array(&self) -> &Arc<OpenArray> {
        &self.array
    }

    /// Returns the bytes of a range of the file; fetches and decodes missing chunks. The range must be inside the file.
    pub fn read(&self, context: &RequestContext, range: Range<u64>) -> Result<ReadBytes> {
        if range.is_empty() {
            return Ok(ReadBytes::default());
        }
        let decoder = self.array.decoder()?;
        self.array.stored.check_metadata(context)?;
        let size = self.array.stored.element as u64;
        let elements = elements(self.array.stored.element, &range);
        let first = elements.start * size;
        let mut out = Buffer::of_length(in_buffer(elements.end * size - first));
        let parts = boxes(&self.shape, elements.clone());
        let mut chunks = Vec::new();
        for part in &parts {
            self.visit(decoder, part, &mut |chunk, _| {
                chunks.push(chunk);
                // The number of chunks that are submitted to the decoding threads is limited.
                Ok(chunks.len() <= 1024)
            })?;
        }
        let others = chunks.into_iter().skip(1);
        self.array.prefetcher()?.decode_ahead(others, None);
        self.array
            .reader()?
            .read_one_version(context, |contents: &mut ReadVersions| {
                for part in &parts {
                    self.visit(decoder, part, &mut |number, runs| {
                        let chunk = self.array.reader()?.get(context, number)?;
                        contents.record(decoder, number, ChunkContent::of(&chunk));
                        self.copy(&chunk, runs, elements.start, &mut out)?;
                        Ok(true)
                    })?;
                }
                Ok(())
            })?;
        self.array.stored.check_store()?;
        out.cut(in_buffer(range.start - first)..in_buffer(range.end - first));
        Ok(ReadBytes::Own(out))
    }

    /// Calls `visit` with each chunk that has elements of a box of the selection, and with the range of these elements
    /// along each dimension of the array, until `visit` returns false.
    fn visit(
        &self,
        decoder: &Decoder,
        part: &Region,
        visit: &mut dyn FnMut(ChunkIndex, &[AxisRun]) -> Result<bool>,
    ) -> Result<()> {
        let mut bounds: SmallVec<[Range<u64>; 6]> = SmallVec::from_elem(0..0, self.order.len());
        for (place, &axis) in self.order.iter().enumerate() {
            bounds[axis] = part.start[place]..part.start[place] + part.shape[place];
        }
        let mut runs: SmallVec<[AxisRun; 6]> = bounds
            .iter()
            .enumerate()
            .map(|(axis, bounds)| self.run(decoder, axis, bounds.clone()))
            .collect();
        loop {
            let indices: Coordinates = runs.iter().map(|run| run.chunk).collect();
            let chunk = decoder.grid.index(&indices);
            let chunk =
                chunk.ok_or_else(|| Error::corrupt(&self.array.stored.path, "no such chunk"))?;
            if !visit(chunk, &runs)? || !self.step(decoder, &mut runs, &bounds) {
                return Ok(());
            }
        }
    }

    /// Returns the selected elements along one dimension from the start of a range to the end of the chunk or the
    /// range.
    fn run(&self, decoder: &Decoder, axis: usize, range: Range<u64>) -> AxisRun {
        let (selected, number) = (self.selection.axes[axis], range.start);
        let chunk = decoder.grid.chunk_at(axis, selected.at(number));
        let (start, length) = decoder.grid.span(axis, chunk);
        let count = selected.count_within(number, start, length);
        AxisRun {
            chunk,
            start,
            length,
            number,
            count: count.min(range.end - number),
        }
    }

    /// Moves to the next chunk that has selected elements; returns false after the last chunk.
    fn step(&self, decoder: &Decoder, runs: &mut [AxisRun], bounds: &[Range<u64>]) -> bool {
        for axis in (0..runs.len()).rev() {
            let next = runs[axis].number + runs[axis].count;
            if next < bounds[axis].end {
                runs[axis] = self.run(decoder, axis, next..bounds[axis].end);
                return true;
            }
            runs[axis] = self.run(decoder, axis, bounds[axis].clone());
        }
        false
    }

    /// Copies the selected elements of one chunk into a buffer that begins with element `first` of the file.
    fn copy(&self, chunk: &Chunk, runs: &[AxisRun], first: u64, out: &mut [u8]) -> Result<()> {
        let size = self.array.stored.element;
        let (mut from, mut to) = (0_u64, 0_u64);
        let mut lanes = Vec::with_capacity(self.order.len());
        for (place, &axis) in self.order.iter().enumerate() {
            let run = runs[axis];
            let selected = self.selection.axes[axis];
            let within: u64 = runs[axis + 1..].iter().map(|run| run.length).product();
            let apart: u64 = self.shape[place + 1..].iter().product();
            from += (selected.at(run.number) - run.start) * within;
            to += run.number * apart;
            // With a single element the stride is not used, so it may have any value, even one that does not fit.
            let step = if run.count > 1 { selected.step } else { 0 };
            let step = i128::from(step) * i128::from(within) * size as i128;
            let apart = if run.count > 1 { apart } else { 0 };
            lanes.push(Lane {
                count: in_buffer(run.count),
                from: isize::try_from(step).map_err(|error| self.too_large(error))?,
                to: in_buffer(apart) * size,
            });
        }
        let (from, to) = (in_buffer(from) * size, in_buffer(to - first) * size);
        match chunk {
            Chunk::Data(decoded) => copy_lanes(&lanes, decoded.bytes(), from, out, to, size),
            Chunk::Fill => {
                lanes.iter_mut().for_each(|lane| lane.from = 0);
                let fill = &self.array.stored.metadata.fill_value.bytes;
                copy_lanes(&lanes, fill, 0, out, to, size);
            }
        }
        Ok(())
    }

    fn too_large(&self, error: impl std::fmt::Display) -> Error {
        Error::too_large(&self.array.stored.path, error)
    }
}

/// Copies elements of `size` bytes along all dimensions of a copy, the last dimension fastest.
fn copy_lanes(
    lanes: &[Lane],
    source: &[u8],
    mut at: usize,
    out: &mut [u8],
    mut place: usize,
    size: usize,
) {
    match lanes {
        [] => copy_run(source, at, out, place, size),
        [lane] if lane.to == size && usize::try_from(lane.from) == Ok(size) => {
            copy_run(source, at, out, place, size * lane.count);
        }
        [lane] => match size {
            1 => pick::<1>(lane, source, at, out, place),
            2 => pick::<2>(lane, source, at, out, place),
            4 => pick::<4>(lane, source, at, out, place),
            8 => pick::<8>(lane, source, at, out, place),
            _ => {
                for _ in 0..lane.count {
                    copy_run(source, at, out, place, size);
                    (at, place) = (at.wrapping_add_signed(lane.from), place + lane.to);
                }
            }
        },
        [lane, inner @ ..] => {
            for _ in 0..lane.count {
                copy_lanes(inner, source, at, out, place, size);
                (at, place) = (at.wrapping_add_signed(lane.from), place + lane.to);
            }
        }
    }
}

fn copy_run(source: &[u8], at: usize, out: &mut [u8], place: usize, length: usize) {
    let source = source.get(at..at.saturating_add(length));
    if let (Some(source), Some(out)) = (source, out.get_mut(place..place + length)) {
        out.copy_from_slice(source);
    }
}

/// Copies elements of `N` bytes along one dimension of a copy.
fn pick<const N: usize>(
    lane: &Lane,
    source: &[u8],
    mut at: usize,
    out: &mut [u8],
    mut place: usize,
) {
    for _ in 0..lane.count {
        let element = source.get(at..).and_then(<[u8]>::first_chunk::<N>);
        let written = out.get_mut(place..).and_then(<[u8]>::first_chunk_mut::<N>);
        if let (Some(element), Some(written)) = (element, written) {
            *written = *element;
        }
        (at, place) = (at.wrapping_add_signed(lane.from), place + lane.to);
    }
}
