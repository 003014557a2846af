//! The elements that a selection takes of an array, as bytes in C order, piece by piece.
//!
//! A box is read as the flat file of a mount is. Where elements in between are left out, the runs along the last dimension
//! are read one after the other, and the elements are picked out of them.

use std::sync::Arc;

use crate::array::OpenArray;
use crate::array::flat_file::FlatFile;
use crate::array::ragged::ReservedBytes;
use crate::error::{Error, Result};
use crate::export::{Export, FileParts, Format, Ragged, Subject};
use crate::grid::Region;
use crate::inspect::selection::{SelectedAxis, Selection};
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
        if self.is_empty() {
            return Ok(());
        }
        match self.selection.region() {
            Some(region) => {
                let flat = FlatFile::new(self.array.clone(), region)?;
                let length = flat.len();
                self.read_range(&flat, 0, length, take).map(drop)
            }
            None => self.read_rows(take),
        }
    }

    /// Reads a range of a flat file piece by piece; returns whether more is wanted.
    fn read_range(
        &self,
        flat: &FlatFile,
        start: u64,
        end: u64,
        take: &mut TakeBytes<'_>,
    ) -> Result<bool> {
        let element = self.element as u64;
        let step = (PIECE / element).max(1).saturating_mul(element);
        let mut at = start;
        while at < end {
            let next = end.min(at.saturating_add(step));
            if !take(&flat.read(at..next)?)? {
                return Ok(false);
            }
            at = next;
        }
        Ok(true)
    }

    /// Reads run after run along the last dimension, and picks the elements.
    fn read_rows(&self, take: &mut TakeBytes<'_>) -> Result<()> {
        let shape = &self.array.array().shape;
        let flat = FlatFile::new(self.array.clone(), Region::whole(shape))?;
        let Some((last, leading)) = self.selection.axes.split_last() else {
            return Ok(());
        };
        let mut at = vec![0_u64; leading.len()];
        loop {
            let mut row = 0_u64;
            for ((axis, &number), &length) in leading.iter().zip(&at).zip(shape) {
                row = row * length + axis.at(number);
            }
            let row = row * shape.last().copied().unwrap_or(1);
            if !self.read_row(&flat, row, last, take)? || !step(&mut at, leading) {
                return Ok(());
            }
        }
    }

    /// Reads the selected elements of one run, which begins at element `row`.
    fn read_row(
        &self,
        flat: &FlatFile,
        row: u64,
        axis: &SelectedAxis,
        take: &mut TakeBytes<'_>,
    ) -> Result<bool> {
        let size = self.element as u64;
        let stride = axis.step.unsigned_abs();
        // Elements of different chunks are read one by one: what lies between them need not be decoded.
        let chunk = self.array.decoded_grid()?.chunk_shape().last().copied();
        let within = if stride >= chunk.unwrap_or(1) {
            1
        } else {
            (PIECE / size / stride).max(1)
        };
        let mut number = 0;
        while number < axis.count {
            let until = axis.count.min(number + within);
            let (one, other) = (axis.at(number), axis.at(until - 1));
            let low = one.min(other);
            let bytes = flat.read((row + low) * size..(row + one.max(other) + 1) * size)?;
            let mut picked = Vec::new();
            for number in number..until {
                let start = usize::try_from((axis.at(number) - low) * size);
                let start = start.map_err(|error| Error::too_large(self.array.path(), error))?;
                let element = bytes.get(start..start + self.element);
                picked.extend_from_slice(element.unwrap_or_default());
            }
            if !take(&picked)? {
                return Ok(false);
            }
            number = until;
        }
        Ok(true)
    }
}

/// Goes to the next selected element along the leading dimensions; returns false after the last.
fn step(at: &mut [u64], axes: &[SelectedAxis]) -> bool {
    for (number, axis) in at.iter_mut().zip(axes).rev() {
        *number += 1;
        if *number < axis.count {
            return true;
        }
        *number = 0;
    }
    false
}

/// Writes selected elements as a file of a format. An open array has no attributes; `described` is the same with them.
///
/// Fails with `Unsupported` if the format cannot hold the elements, or with the error that stops the array from being
/// decoded.
pub fn write_file(
    (array, described): (&Arc<OpenArray>, &Array),
    selection: &Selection,
    format: &Format,
    take: &mut TakeBytes<'_>,
) -> Result<()> {
    if array.array().data_type.is_variable() {
        let file = ragged_file(array, selection, format)?;
        return take(&file).map(drop);
    }
    let elements = SelectedElements::new(array.clone(), selection.clone())?;
    let shape = elements.shape();
    let taken = selection.taken();
    let subject = Subject {
        taken: Some(&taken),
        ..Subject::alone(described, &shape)
    };
    let parts = format.parts_of(array, &subject)?;
    match &parts.elements {
        Some(form) if form.order.is_none() && form.conversion.is_none() => {
            let header = &parts.header;
            if header.is_empty() || take(header)? {
                elements.read(take)?;
                take(&parts.trailer)?;
            }
            Ok(())
        }
        Some(_) => write_converted(array, selection, format, parts, take),
        None => {
            let why = format!("{} is the header of another file", format.extension);
            Err(Error::unsupported(array.path(), why))
        }
    }
}

/// Writes a box of elements in another form than that in which they are decoded.
fn write_converted(
    array: &Arc<OpenArray>,
    selection: &Selection,
    format: &Format,
    parts: FileParts,
    take: &mut TakeBytes<'_>,
) -> Result<()> {
    let region = selection.region();
    let region = region.filter(|region| region.shape[..] == selection.shape()[..]);
    let region = region.ok_or_else(|| {
        let why = format!(
            "{} takes slices of whole dimensions without steps; npy and raw take others",
            format.extension
        );
        Error::unsupported(array.path(), why)
    })?;
    let file = Export::of_parts(array, parts, region, array.id())?;
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

/// Makes a file of elements without a fixed length, which are all read now.
fn ragged_file(array: &OpenArray, selection: &Selection, format: &Format) -> Result<ReservedBytes> {
    let region = selection.region().ok_or_else(|| {
        let why = format!(
            "steps are for elements of a fixed length, not for {}",
            array.array().data_type
        );
        Error::unsupported(array.path(), why)
    })?;
    let records = array.records(&region)?;
    let unsupported = || {
        let held = &array.array().data_type;
        let text = format!("{} cannot hold {held}", format.extension);
        Error::unsupported(array.path(), text)
    };
    let Ragged::Made(make) = format.ragged.ok_or_else(unsupported)? else {
        return Ok(records.into_bytes());
    };
    let mut out = array.growing();
    make(&records, &selection.shape(), &mut out).map_err(|error| error.about(array.path()))?;
    Ok(out.finish())
}
