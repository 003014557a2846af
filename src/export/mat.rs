//! `.mat`: MATLAB's file, version 5, with one matrix that has the array's shape.
//!
//! MATLAB has the first dimension fastest, so the elements are in Fortran's order, and at least two dimensions: of one
//! dimension a column is made. Texts are cells (`mat_cells`).

use std::sync::Arc;

use crate::export::conversion::Conversion;
use crate::export::mat_cells;
use crate::export::mat_cells::{CELL, CharCells};
use crate::export::mat_words::{INT8, INT32, TAG, UINT16, UINT32, opening, tag};
use crate::export::{FileParts, Format, Ragged, Subject};
use crate::model::{DataType, bytes_of};

/// One matrix.
pub const FORMAT: Format = Format {
    extension: "mat",
    parts: Some(parts),
    ragged: Some(Ragged::Made(mat_cells::made)),
    is_basic: false,
};

/// Set in the flags of a matrix of truth values.
const LOGICAL: u32 = 0x200;

/// Returns the class of a matrix with its flags, and the type of its data.
fn class(data_type: &DataType) -> Option<(u32, u32)> {
    Some(match data_type {
        DataType::Float(8) => (6, 9),
        DataType::Float(4) => (7, 7),
        DataType::Int(1) => (8, INT8),
        DataType::UInt(1) => (9, 2),
        DataType::Bool => (9 | LOGICAL, 2),
        DataType::Int(2) => (10, 3),
        DataType::UInt(2) => (11, UINT16),
        DataType::Int(4) => (12, INT32),
        DataType::UInt(4) => (13, UINT32),
        DataType::Int(8) => (14, 12),
        DataType::UInt(8) => (15, 13),
        _ => return None,
    })
}

fn parts(subject: &Subject) -> Option<FileParts> {
    let name = subject.text_name().unwrap_or_default();
    let data_type = &subject.array.data_type;
    if let Some(cells) = CharCells::of(data_type) {
        let length = bytes_of(subject.shape, cells.written_size()).ok()?;
        let header = opening(CELL, subject.shape, name, u32::try_from(length).ok()?)?;
        let mut parts = FileParts::fortran(header, subject.shape);
        if let Some(form) = &mut parts.elements {
            form.conversion = Some(Arc::new(cells));
        }
        return Some(parts);
    }
    let (class, kind) = class(data_type)?;
    let length = bytes_of(subject.shape, data_type.size()?).ok()?;
    let length = u32::try_from(length).ok()?;
    let padded = length.checked_next_multiple_of(8)?;
    let mut header = opening(class, subject.shape, name, padded.checked_add(TAG)?)?;
    tag(&mut header, kind, length);
    let mut parts = FileParts::fortran(header, subject.shape);
    parts.trailer = vec![0; usize::try_from(padded - length).ok()?];
    Some(parts)
}
