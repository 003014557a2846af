//! The elements that a selection takes of an array, as bytes in C order, piece by piece.
//!
//! They are read as the files of a mount are.

use std::sync::Arc;

use crate::array::OpenArray;
use crate::error::{Error, Result};
use crate::export::{Export, SourceElements, Subject, TakenDimension, cf};
use crate::grid::Selection;
use crate::inspect::file_ending::FileContent;
use crate::inspect::plane_picture::PlanePicture;
use crate::model::{Array, bytes_of};

/// How many bytes are read at a time, about.
const PIECE: u64 = 4 << 20;
const PIECE_LEN: usize = 4 << 20;

/// Takes bytes in order; returns whether it wants more.
pub type TakeBytes<'a> = dyn FnMut(&[u8]) -> Result<bool> + 'a;

/// Selected elements of a fixed length.
pub struct SelectedElements {
    array: Arc<OpenArray>,
    selection: Selection,
    element: usize,
    length: u64,
}

impl SelectedElements {
    /// Selects elements; fails if they have no fixed length, or with the error that stops the array from being decoded.
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

    /// Returns the lengths of the dimensions that are left.
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

    /// Reads the elements, whole ones at a time, until `take` wants no more.
    pub fn read(&self, take: &mut TakeBytes<'_>) -> Result<()> {
        let elements = SourceElements::open(&self.array, &self.selection, None)?;
        let element = self.element.max(1) as u64;
        let step = (PIECE / element).max(1).saturating_mul(element);
        let mut at = 0;
        while at < self.length {
            let next = self.length.min(at.saturating_add(step));
            if !take(&elements.read(at..next)?)? {
                return Ok(());
            }
            at = next;
        }
        Ok(())
    }
}

/// Writes selected elements as a file. An open array has no attributes; `described` is the same with them.
///
/// Fails with `Unsupported` if the file cannot hold the elements, or with the error that stops the array from being
/// decoded.
pub fn write_file(
    (array, described): (&Arc<OpenArray>, &Array),
    selection: &Selection,
    content: FileContent,
    take: &mut TakeBytes<'_>,
) -> Result<()> {
    let (format, is_meant) = match content {
        FileContent::Picture => return write_picture(array, selection, take),
        FileContent::Elements { format, is_meant } => (format, is_meant),
    };
    if array.array().data_type.is_variable() && !is_meant {
        return give(&Export::open_ragged(array, format, selection)?, take);
    }
    array.check_decodable()?;
    let (shape, taken) = (selection.shape(), TakenDimension::of_selection(selection));
    let no_numbers = || Error::unsupported(array.path(), "cf is for numbers");
    let meant = if is_meant {
        Some(cf::decoded(described).ok_or_else(no_numbers)?)
    } else {
        None
    };
    let subject = Subject {
        taken: Some(&taken),
        ..Subject::alone(
            meant.as_ref().map_or(described, |meant| &meant.array),
            &shape,
        )
    };
    let mut parts = format.parts_of(array, &subject)?;
    if let Some(conversion) = meant.as_ref().and_then(|meant| meant.conversion.as_ref()) {
        parts = parts.after(conversion, array.array().element_size()?);
    }
    if parts.elements.is_none() {
        let why = format!("{} is the header of another file", format.extension);
        return Err(Error::unsupported(array.path(), why));
    }
    let file = Export::of_selection(array, parts, selection, array.id())?;
    give(&file, take)
}

/// Writes a picture of selected elements.
fn write_picture(
    array: &Arc<OpenArray>,
    selection: &Selection,
    take: &mut TakeBytes<'_>,
) -> Result<()> {
    array.check_decodable()?;
    let none = || Error::unsupported(array.path(), "png shows numbers, at least one");
    let picture = PlanePicture::of(array.array(), selection.clone()).ok_or_else(none)?;
    take(&picture.read(array)?).map(drop)
}

/// Gives out a file piece by piece.
fn give(file: &Export, take: &mut TakeBytes<'_>) -> Result<()> {
    let mut at = 0;
    while at < file.len() {
        let bytes = file.read_at(at, PIECE_LEN)?;
        if bytes.is_empty() || !take(&bytes)? {
            return Ok(());
        }
        at += bytes.len() as u64;
    }
    Ok(())
}
