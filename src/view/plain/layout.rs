//! Divides an array into the chunks of an uncompressed store.

use std::sync::Arc;

use crate::view::plain::target::PlainArray;
use zarr_format::error::{Error, Kind, Result};
use zarr_format::grid::{ChunkIndex, Coordinates, Grid, Region};
use zarr_format::model::{Array, bytes_of};
use zarrfs_array::array::{OpenArray, StoredSet};
use zarrfs_store::request_context::RequestContext;

/// Maximum number of chunks for which an array shows files of missing chunks, and into which an irregular grid is
/// divided.
const MAX_CHUNKS: u64 = 1_000_000;

/// The regular grid in which an array is shown uncompressed: its chunks, the inner chunks of its shards, or the largest
/// chunks that divide an irregular grid.
#[derive(Clone)]
pub(crate) struct PlainLayout {
    pub(super) array: Arc<OpenArray>,
    /// The regular grid that divides an irregular grid of the array, or `None` if the array's grid is regular.
    regular: Option<Arc<Grid>>,
    /// Whether the metadata documents state the fill value, so that missing chunks need no file.
    states_fill: bool,
}

impl PlainLayout {
    /// Divides an array into chunks of a regular grid. Fails with `Unsupported` and the reason if that is impossible.
    pub(super) fn new(array: Arc<OpenArray>, states_fill: bool) -> Result<PlainLayout> {
        let mut layout = PlainLayout {
            array,
            regular: None,
            states_fill,
        };
        let own = layout.own_grid()?;
        if !own.is_regular() {
            let step = own.regular_step();
            let regular = Grid::new(&layout.array.array().shape, &step)?;
            if regular.len() > MAX_CHUNKS {
                let why = format!(
                    "the chunks have different lengths, and {} chunks of {step:?} would be too many",
                    regular.len()
                );
                return Err(Error::unsupported(layout.array.path(), why));
            }
            layout.regular = Some(Arc::new(regular));
        }
        if !layout.array.array().data_type.is_variable() {
            layout.chunk_bytes()?;
        }
        Ok(layout)
    }

    /// Returns the grid of the smallest chunks that can be decoded separately: the inner chunks of shards, or the
    /// chunks.
    fn own_grid(&self) -> Result<&Grid> {
        self.array.decoded_grid()
    }

    /// Returns the regular grid in which the array is shown uncompressed.
    pub(super) fn grid(&self) -> Result<&Grid> {
        match &self.regular {
            Some(regular) => Ok(regular),
            None => self.own_grid(),
        }
    }

    /// Returns the description of the array for a metadata document of the uncompressed store.
    pub(super) fn described<'a>(&'a self, array: &'a Array) -> Result<PlainArray<'a>> {
        Ok(PlainArray {
            array,
            chunk_shape: self.grid()?.chunk_shape(),
            states_fill: self.states_fill || self.grid()?.len() > MAX_CHUNKS,
        })
    }

    /// Returns the length in bytes of an uncompressed chunk of fixed-length elements.
    pub(super) fn chunk_bytes(&self) -> Result<u64> {
        let element = self.array.array().element_size()?;
        bytes_of(self.grid()?.chunk_shape(), element)
    }

    /// Whether missing chunks have files that contain the fill value. They do if the store cannot list which chunks are
    /// stored, or if no metadata document states the fill value, but not in arrays of more than `MAX_CHUNKS` chunks.
    pub(super) fn shows_missing(&self) -> Result<bool> {
        let has_to = !self.states_fill || !self.array.can_list_chunks();
        Ok(has_to && self.grid()?.len() <= MAX_CHUNKS)
    }

    /// Whether an uncompressed chunk has a file, because it is stored or because missing chunks have files.
    pub(super) fn has_chunk(&self, context: &RequestContext, indices: &[u64]) -> Result<bool> {
        if self.grid()?.index(indices).is_none() {
            return Ok(false);
        }
        if self.shows_missing()? {
            return Ok(true);
        }
        self.array.has_chunk(context, self.own_chunk(indices)?)
    }

    /// Returns the array's own chunk that contains the elements of an uncompressed chunk.
    pub(super) fn own_chunk(&self, indices: &[u64]) -> Result<ChunkIndex> {
        let start = self.grid()?.region(indices).start;
        Ok(self.own_grid()?.locate(&start).0)
    }

    /// Returns the elements of an uncompressed chunk that are inside the array.
    pub(super) fn region(&self, indices: &[u64]) -> Result<Region> {
        Ok(self.grid()?.region(indices))
    }

    /// Returns the indices of the first uncompressed chunk in a stored chunk, and the number of uncompressed chunks in
    /// it along each dimension.
    fn chunks_in(&self, stored: u64) -> Result<Region> {
        let (grid, stored_grid) = (self.grid()?, self.array.stored_grid()?);
        let region = stored_grid.region(&stored_grid.indices(ChunkIndex(stored)));
        let mut chunks = region.clone();
        for (axis, (&start, &length)) in region.start.iter().zip(&region.shape).enumerate() {
            let first = grid.chunk_at(axis, start);
            let last = grid.chunk_at(axis, start + length.saturating_sub(1));
            chunks.start[axis] = first;
            chunks.shape[axis] = last - first + 1;
        }
        Ok(chunks)
    }

    /// Returns the maximum number of uncompressed chunks in a stored chunk.
    pub(super) fn most_in_stored(&self) -> Result<u64> {
        let stored = self.array.stored_grid()?.chunk_shape().iter();
        let counts = stored.zip(self.grid()?.chunk_shape());
        let counts = counts.map(|(&stored, &plain)| stored.div_ceil(plain.max(1)));
        Ok(counts.fold(1, u64::saturating_mul).max(1))
    }

    /// Returns which chunks are stored, for a listing. Fails with `Unsupported` if the store cannot list them and the
    /// array has more than `MAX_CHUNKS` chunks.
    pub(super) fn stored(&self, context: &RequestContext) -> Result<StoredChunks> {
        if self.shows_missing()? {
            return Ok(StoredChunks::All(self.array.stored_grid()?.len()));
        }
        if !self.array.can_list_chunks() {
            let why = format!(
                "the server does not list names, and more than {MAX_CHUNKS} chunks are too many to list; open chunks by name"
            );
            return Err(Error::unsupported(self.array.path(), why));
        }
        match self.array.stored_set(context) {
            Ok(set) => Ok(StoredChunks::Listed(set)),
            // If the folder of the chunks does not exist, no chunk is stored.
            Err(error) if error.kind() == Kind::NotFound => Ok(StoredChunks::All(0)),
            Err(error) => Err(error),
        }
    }

    /// Returns the first uncompressed chunk at or after `place` that has a file, in the order of the stored chunks.
    pub(super) fn next_chunk(
        &self,
        context: &RequestContext,
        stored: &StoredChunks,
        mut place: ChunkPlace,
    ) -> Result<Option<(ChunkPlace, Coordinates)>> {
        let needs_look = self.array.has_shards()? && !self.shows_missing()?;
        while let Some(number) = stored.next_from(place.stored) {
            if number != place.stored {
                place = ChunkPlace {
                    stored: number,
                    within: 0,
                };
            }
            let chunks = self.chunks_in(number)?;
            let count = chunks.shape.iter().product();
            while place.within < count {
                let indices = nth(&chunks, place.within);
                if !needs_look || self.has_chunk(context, &indices)? {
                    return Ok(Some((place, indices)));
                }
                place.within += 1;
            }
            place = ChunkPlace {
                stored: number + 1,
                within: 0,
            };
        }
        Ok(None)
    }

    /// Returns the first index at or after `from`, along the dimension after those of `prefix`, under which a chunk has
    /// a file. With fewer indices than dimensions, the entry is a folder of chunks.
    pub(super) fn next_index(
        &self,
        context: &RequestContext,
        stored: &StoredChunks,
        prefix: &[u64],
        from: u64,
    ) -> Result<Option<u64>> {
        let (grid, stored_grid) = (self.grid()?, self.array.stored_grid()?);
        let (axis, rank) = (prefix.len(), grid.counts().len());
        let is_last = axis + 1 == rank;
        let needs_look = is_last && self.array.has_shards()?;
        let mut index = from;
        while index < grid.counts().get(axis).copied().unwrap_or(0) {
            let mut indices = Coordinates::from_elem(0, rank);
            indices[..axis].copy_from_slice(prefix);
            indices[axis] = index;
            // The search begins at the first stored chunk that can contain elements with these leading indices.
            let start = grid.region(&indices).start;
            let mut first = Coordinates::from_elem(0, rank);
            for (at, &element) in start.iter().enumerate().take(axis + 1) {
                first[at] = stored_grid.chunk_at(at, element);
            }
            let Some(ChunkIndex(first_number)) = stored_grid.index(&first) else {
                return Ok(None);
            };
            let Some(found) = stored.next_from(first_number) else {
                return Ok(None);
            };
            let found = stored_grid.indices(ChunkIndex(found));
            if found[..axis] != first[..axis] {
                return Ok(None);
            }
            if found[axis] != first[axis] {
                index = grid.chunk_at(axis, stored_grid.span(axis, found[axis]).0);
                continue;
            }
            if !needs_look || self.has_chunk(context, &indices)? {
                return Ok(Some(index));
            }
            index += 1;
        }
        Ok(None)
    }
}

/// The position of an uncompressed chunk in the order of the stored chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ChunkPlace {
    /// The number of the stored chunk in C order.
    pub(super) stored: u64,
    /// The number, in C order, of the uncompressed chunk in the stored chunk.
    pub(super) within: u64,
}

/// The numbers of the stored chunks whose files are listed.
pub(super) enum StoredChunks {
    Listed(Arc<StoredSet>),
    /// All chunks with numbers below the count, since missing chunks have files too. 0 if no chunk is stored.
    All(u64),
}

impl StoredChunks {
    fn next_from(&self, number: u64) -> Option<u64> {
        match self {
            StoredChunks::Listed(set) => set.next_from(number),
            StoredChunks::All(count) => (number < *count).then_some(number),
        }
    }
}

/// Returns the indices of the chunk with number `number`, in C order, in a box of chunks.
fn nth(chunks: &Region, number: u64) -> Coordinates {
    let mut rest = number;
    let mut indices = chunks.start.clone();
    for (index, &count) in indices.iter_mut().zip(&chunks.shape).rev() {
        *index += rest % count.max(1);
        rest /= count.max(1);
    }
    indices
}
