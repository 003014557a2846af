//! The words of MATLAB's file, version 5: tags, the head of a matrix, names.

/// Types of data in the file.
pub(super) const INT8: u32 = 1;
pub(super) const UINT16: u32 = 4;
pub(super) const INT32: u32 = 5;
pub(super) const UINT32: u32 = 6;
pub(super) const MATRIX: u32 = 14;
pub(super) const UTF16: u32 = 17;

/// Bytes of a tag.
pub(super) const TAG: u32 = 8;

/// The longest name of a variable.
const MAX_NAME: usize = 63;

/// Returns the file up to the data of its only matrix, which has `length` bytes with their padding; nothing if a length does
/// not fit.
pub(super) fn opening(class: u32, shape: &[u64], name: &str, length: u32) -> Option<Vec<u8>> {
    let mut matrix = head(class, shape, &variable(name))?;
    let around = u32::try_from(matrix.len()).ok()?;
    let mut header = b"MATLAB 5.0 MAT-file, an array of Zarr".to_vec();
    header.resize(116, b' ');
    // No data of subsystems; version 1.0, little-endian.
    header.resize(124, 0);
    header.extend([0x00, 0x01, b'I', b'M']);
    tag(&mut header, MATRIX, around.checked_add(length)?);
    header.append(&mut matrix);
    Some(header)
}

/// Returns what a matrix begins with: its class and flags, its lengths, of which there are at least two, and its name.
pub(super) fn head(class: u32, shape: &[u64], name: &str) -> Option<Vec<u8>> {
    let mut matrix = Vec::new();
    tag(&mut matrix, UINT32, 8);
    matrix.extend(class.to_le_bytes());
    matrix.extend(0_u32.to_le_bytes());
    let mut lengths = shape.to_vec();
    lengths.resize(lengths.len().max(2), 1);
    tag(&mut matrix, INT32, u32::try_from(lengths.len() * 4).ok()?);
    for &length in &lengths {
        matrix.extend(i32::try_from(length).ok()?.to_le_bytes());
    }
    pad(&mut matrix);
    tag(&mut matrix, INT8, u32::try_from(name.len()).ok()?);
    matrix.extend(name.as_bytes());
    pad(&mut matrix);
    Some(matrix)
}

/// Appends the type of data and their length in bytes.
pub(super) fn tag(bytes: &mut Vec<u8>, kind: u32, length: u32) {
    bytes.extend(kind.to_le_bytes());
    bytes.extend(length.to_le_bytes());
}

/// Appends zeros up to a multiple of eight bytes.
pub(super) fn pad(bytes: &mut Vec<u8>) {
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
