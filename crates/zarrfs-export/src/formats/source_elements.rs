//! The decoded elements of a file: a box of an array, or a strided selection.

use std::ops::Range;
use std::sync::Arc;

use zarr_format::error::Result;
use zarr_format::grid::Selection;
use zarrfs_array::array::OpenArray;
use zarrfs_array::array::flat_file::FlatFile;
use zarrfs_array::array::strided_file::StridedFile;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::read_bytes::ReadBytes;

/// Decoded elements as a flat file.
pub enum SourceElements {
    /// A box in any order of dimensions.
    Box(Box<FlatFile>),
    /// Elements at a fixed step.
    Strided(StridedFile),
}

impl SourceElements {
    /// Opens selected elements. `order` lists, for each dimension of the file, the index among the kept dimensions.
    /// Fails as `FlatFile::permuted` does.
    pub fn open(
        array: &Arc<OpenArray>,
        selection: &Selection,
        order: Option<&[usize]>,
    ) -> Result<SourceElements> {
        let array = array.clone();
        let kept = selection.remaining_axes().len();
        let own: Vec<usize> = (0..kept).collect();
        let order = order.map(|order| selection.order_of(order));
        Ok(match (selection.region(), order) {
            (Some(region), None) => SourceElements::Box(Box::new(FlatFile::new(array, region)?)),
            (Some(region), Some(order)) => {
                SourceElements::Box(Box::new(FlatFile::permuted(array, region, &order)?))
            }
            (None, order) => {
                let order = order.unwrap_or_else(|| selection.order_of(&own));
                SourceElements::Strided(StridedFile::new(array, selection.clone(), order)?)
            }
        })
    }

    /// Returns the flat file of a box, or `None` for other selections.
    pub fn as_box(&self) -> Option<&FlatFile> {
        match self {
            SourceElements::Box(flat) => Some(flat),
            SourceElements::Strided(_) => None,
        }
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            SourceElements::Box(flat) => flat.len(),
            SourceElements::Strided(strided) => strided.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the array.
    pub fn array(&self) -> &Arc<OpenArray> {
        match self {
            SourceElements::Box(flat) => flat.array(),
            SourceElements::Strided(strided) => strided.array(),
        }
    }

    /// Returns the bytes of a range.
    pub fn read(&self, context: &RequestContext, range: Range<u64>) -> Result<ReadBytes> {
        match self {
            SourceElements::Box(flat) => flat.read(context, range),
            SourceElements::Strided(strided) => {
                context.check_may_wait()?;
                strided.read(context, range)
            }
        }
    }

    /// Whether a reader that opens the file now is likely to read it sequentially.
    pub fn expects_sequential(&self) -> bool {
        self.as_box().is_none_or(FlatFile::expects_sequential)
    }
}
