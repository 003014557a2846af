//! `.mat`: MATLAB's file, version 5, with one matrix that has the array's shape.
//!
//! MATLAB has the first dimension fastest, so the elements are in Fortran's order, and at least two dimensions: of one
//! dimension a column is made.

use crate::export::{FileParts, Format, Subject};
use crate::model::{DataType, bytes_of};

/// One matrix.
pub const FORMAT: Format = Format {
    extension: "mat",
    parts: Some(parts),
    ragged: None,
    is_basic: false,
};

/// The longest name of a variable.
const MAX_NAME: usize = 63;

/// Types of data in the file.
const INT8: u32 = 1;
const INT32: u32 = 5;
const UINT32: u32 = 6;
const MATRIX: u32 = 14;

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
        DataType::UInt(2) => (11, 4),
        DataType::Int(4) => (12, INT32),
        DataType::UInt(4) => (13, UINT32),
        DataType::Int(8) => (14, 12),
        DataType::UInt(8) => (15, 13),
        _ => return None,
    })
}

fn parts(subject: &Subject) -> Option<FileParts> {
    let (class, kind) = class(&subject.array.data_type)?;
    let length = bytes_of(subject.shape, subject.array.data_type.size()?).ok()?;
    let length = u32::try_from(length).ok()?;
    let padding = length.checked_next_multiple_of(8)? - length;
    let mut matrix = Vec::new();
    tag(&mut matrix, UINT32, 8);
    matrix.extend(class.to_le_bytes());
    matrix.extend(0_u32.to_le_bytes());
    let mut lengths = subject.shape.to_vec();
    lengths.resize(lengths.len().max(2), 1);
    tag(&mut matrix, INT32, u32::try_from(lengths.len() * 4).ok()?);
    for &length in &lengths {
        matrix.extend(i32::try_from(length).ok()?.to_le_bytes());
    }
    pad(&mut matrix);
    let name = variable(subject.text_name().unwrap_or_default());
    tag(&mut matrix, INT8, u32::try_from(name.len()).ok()?);
    matrix.extend(name.as_bytes());
    pad(&mut matrix);
    tag(&mut matrix, kind, length);
    let around = u32::try_from(matrix.len()).ok()?;
    let whole = around.checked_add(length)?.checked_add(padding)?;
    let mut header = b"MATLAB 5.0 MAT-file, an array of Zarr".to_vec();
    header.resize(116, b' ');
    // No data of subsystems; version 1.0, little-endian.
    header.resize(124, 0);
    header.extend([0x00, 0x01, b'I', b'M']);
    tag(&mut header, MATRIX, whole);
    header.append(&mut matrix);
    let mut parts = FileParts::fortran(header, subject.shape);
    parts.trailer = vec![0; usize::try_from(padding).ok()?];
    Some(parts)
}

fn tag(bytes: &mut Vec<u8>, kind: u32, length: u32) {
    bytes.extend(kind.to_le_bytes());
    bytes.extend(length.to_le_bytes());
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(8), 0);
}

/// Returns a name that MATLAB takes: letters, digits and underscores, a letter first.
fn variable(name: &str) -> String {
    let fits = |letter: char| {
        if letter.is_ascii_alphanumeric() {
            letter
        } else {
            '_'
        }
    };
    let name: String = name.chars().map(fits).collect();
    let starts = name.starts_with(|first: char| first.is_ascii_alphabetic());
    let mut name = if starts { name } else { format!("x{name}") };
    name.truncate(MAX_NAME);
    name
}
