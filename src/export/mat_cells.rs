//! Texts in MATLAB's file: a cell array, of which each cell is a row of characters.
//!
//! Characters are units of UTF-16, as MATLAB counts them. Texts of a fixed length have zeros at their end as in the array, so that all cells have
//! one length and any range of the file can be made; texts without a fixed length are as long as they are.

use crate::array::ragged::{Growing, RaggedElements};
use crate::error::{Error, Result};
use crate::export::conversion::Conversion;
use crate::export::format::RaggedBox;
use crate::export::mat_words::{MATRIX, TAG, UTF16, head, opening, pad, tag};
use crate::export::text_cell::utf32;
use crate::export::text_rows::text_of;
use crate::model::DataType;

/// Classes of matrices.
pub(super) const CELL: u32 = 1;
const CHAR: u32 = 4;

/// The most code points or bytes of a text of a fixed length.
const MAX_TEXT: usize = 1 << 14;

/// Returns a cell with a text of `room` units; the rest is zeros. Nothing if it is too long.
fn cell(text: &str, room: usize) -> Option<Vec<u8>> {
    let mut units: Vec<u16> = text.encode_utf16().collect();
    units.resize(room.max(units.len()), 0);
    // MATLAB's empty text has no row.
    let rows = u64::from(!units.is_empty());
    let mut matrix = head(CHAR, &[rows, units.len() as u64], "")?;
    tag(&mut matrix, UTF16, u32::try_from(2 * units.len()).ok()?);
    matrix.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
    pad(&mut matrix);
    let mut cell = Vec::with_capacity(matrix.len() + TAG as usize);
    tag(&mut cell, MATRIX, u32::try_from(matrix.len()).ok()?);
    cell.append(&mut matrix);
    Some(cell)
}

/// Texts of a fixed length as cells.
#[derive(Clone, Copy, Debug)]
pub(super) struct CharCells {
    /// Bytes of an element, and whether they are code points of UTF-32.
    size: usize,
    is_utf32: bool,
    /// Bytes of a cell.
    width: usize,
}

impl CharCells {
    /// Returns the cells of elements of a type; nothing if that is no text of a fixed length.
    pub(super) fn of(data_type: &DataType) -> Option<CharCells> {
        let (size, is_utf32) = match data_type {
            DataType::FixedText(points @ 1..=MAX_TEXT) => (4 * points, true),
            DataType::FixedBytes(bytes @ 1..=MAX_TEXT) => (*bytes, false),
            _ => return None,
        };
        let cells = CharCells {
            size,
            is_utf32,
            width: 0,
        };
        let width = cell("", cells.units())?.len();
        Some(CharCells { width, ..cells })
    }

    /// Returns the units of a cell: a code point takes two at most.
    fn units(&self) -> usize {
        if self.is_utf32 {
            self.size / 2
        } else {
            self.size
        }
    }
}

impl Conversion for CharCells {
    fn written_size(&self) -> usize {
        self.width
    }

    fn convert(&self, decoded: &[u8], written: &mut [u8]) {
        let cells = written.chunks_exact_mut(self.width);
        for (element, place) in decoded.chunks_exact(self.size).zip(cells) {
            let text = if self.is_utf32 {
                utf32(element)
            } else {
                // A byte is the letter of its number.
                element.iter().map(|&byte| char::from(byte)).collect()
            };
            if let Some(cell) = cell(&text, self.units()) {
                place.copy_from_slice(&cell);
            }
        }
    }

    fn digest(&self) -> u64 {
        (self.width << 2 | usize::from(self.is_utf32)) as u64
    }
}

/// Makes the file of elements without a fixed length.
pub(super) fn made(
    records: &RaggedElements,
    subject: &RaggedBox<'_>,
    out: &mut Growing<'_>,
) -> Result<()> {
    let too_large = || Error::too_large("mat", "more than 4 GiB of texts");
    let written = |record: &[u8]| {
        let text = text_of(records.data_type(), record);
        cell(&text, 0).ok_or_else(too_large)
    };
    let mut length = 0_u32;
    for record in records.iter() {
        let size = u32::try_from(written(record)?.len()).ok();
        let sum = size.and_then(|size| length.checked_add(size));
        length = sum.ok_or_else(too_large)?;
    }
    let name = str::from_utf8(subject.name).unwrap_or_default();
    out.push(&opening(CELL, subject.shape, name, length).ok_or_else(too_large)?)?;
    if subject.shape.len() < 2 {
        return records
            .iter()
            .try_for_each(|record| out.push(&written(record)?));
    }
    let mut starts = out.beside();
    for start in records.starts() {
        starts.push(&start.to_le_bytes())?;
    }
    let starts = starts.finish();
    let starts = starts.as_chunks::<8>().0;
    for number in fortran_order(subject.shape) {
        let start = starts.get(number).map(|start| u64::from_le_bytes(*start));
        let record = start.and_then(|start| records.at(start));
        out.push(&written(record.ok_or_else(too_large)?)?)?;
    }
    Ok(())
}

/// Returns the numbers that elements have in C order, the first dimension fastest.
fn fortran_order(shape: &[u64]) -> impl Iterator<Item = usize> {
    let count: u64 = shape.iter().product();
    (0..count).map(move |place| {
        let mut rest = place;
        let at: Vec<u64> = shape
            .iter()
            .map(|&length| {
                let index = rest % length;
                rest /= length;
                index
            })
            .collect();
        let number = at
            .iter()
            .zip(shape)
            .fold(0, |number, (at, length)| number * length + at);
        usize::try_from(number).unwrap_or(usize::MAX)
    })
}
