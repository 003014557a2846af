//! Reads the selected elements of an array as bytes in C order.
//!
//! They are read in the same way as the files of a mount.

use std::sync::Arc;

use crate::formats::SourceElements;
use zarr_format::error::{Error, Result};
use zarr_format::grid::Selection;
use zarr_format::model::bytes_of;
use zarrfs_array::array::OpenArray;
use zarrfs_store::request_context::RequestContext;

/// Approximate number of bytes per read.
const READ_SIZE: u64 = 4 << 20;

/// Consumes bytes in order; returns whether it wants more.
pub type TakeBytes<'a> = dyn FnMut(&[u8]) -> Result<bool> + 'a;

/// Selected elements of a fixed length.
pub struct SelectedElements {
    array: Arc<OpenArray>,
    selection: Selection,
    element: usize,
    length: u64,
}

impl SelectedElements {
    /// Selects elements. Fails if they have variable length, or with the error that makes the array undecodable.
    pub fn new(array: Arc<OpenArray>, selection: Selection) -> Result<SelectedElements> {
        array.check_decodable()?;
        let about = |error: Error| error.about(array.path());
        let element = array.array().element_size().map_err(about)?;
        let length = bytes_of(&selection.shape(), element).map_err(about)?;
        Ok(SelectedElements {
            array,
            selection,
            element,
            length,
        })
    }

    /// Returns the array.
    pub fn array(&self) -> &Arc<OpenArray> {
        &self.array
    }

    /// Returns the lengths of the remaining dimensions.
    pub fn shape(&self) -> Vec<u64> {
        self.selection.shape()
    }

    /// Returns the length of all elements in bytes.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Whether no element is selected.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the length of an element in bytes.
    pub fn element_size(&self) -> usize {
        self.element
    }

    /// Reads the elements in blocks of whole elements until `take` returns false.
    pub fn read(&self, context: &RequestContext, take: &mut TakeBytes<'_>) -> Result<()> {
        let elements = SourceElements::open(&self.array, &self.selection, None)?;
        let element = self.element.max(1) as u64;
        let step = (READ_SIZE / element).max(1).saturating_mul(element);
        let mut at = 0;
        while at < self.length {
            let next = self.length.min(at.saturating_add(step));
            if !take(&elements.read(context, at..next)?)? {
                return Ok(());
            }
            at = next;
        }
        Ok(())
    }
}
