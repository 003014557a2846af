//! Data types as HDF5 writes them (HDF5 File Format Specification, IV.A.2.d).

use std::sync::Arc;

use crate::formats::conversion::{BigEndianSingle, BrainFloat, Conversion, Utf8};
use crate::formats::hdf5::heap::REFERENCE;
use zarr_format::model::{Array, DataType, Field};

/// What the name of the type of a structure begins with.
pub(super) const STRUCTURE: &str = "structure";

/// The longest message of a type; those of structures can be longer.
const MAX_TYPE: usize = 1 << 14;

/// The longest array of texts of a fixed length that is made of texts of any length, in bytes: these are read when a file
/// is opened.
const MAX_TEXTS: u64 = 16 << 20;

/// What the elements of an array are in a file.
pub(super) struct HdfType {
    /// The message.
    pub(super) message: Vec<u8>,
    /// Bytes of an element of the dataset.
    pub(super) size: usize,
    /// What becomes of elements of the array.
    pub(super) conversion: Option<Arc<dyn Conversion>>,
    /// The length of one more dimension, that of the letters of a text.
    pub(super) letters: Option<u64>,
    /// The name under which netCDF wants the type itself to be in the file; a number follows the name of structures.
    pub(super) own_name: Option<&'static str>,
    /// Whether elements are texts of any length, which lie elsewhere.
    pub(super) is_text: bool,
}

impl HdfType {
    fn plain(message: Vec<u8>, size: usize) -> HdfType {
        HdfType {
            message,
            size,
            conversion: None,
            letters: None,
            own_name: None,
            is_text: false,
        }
    }

    /// Returns the type that holds every value of an array; `None` if there is none.
    ///
    /// netCDF-C crashes on half floats, on texts of a fixed length and on the booleans of h5py, so there are none of these.
    pub(super) fn of(array: &Array) -> Option<HdfType> {
        let found = match &array.data_type {
            DataType::Text | DataType::Object => Some(HdfType::text()),
            DataType::FixedText(_) if array.byte_length().ok()? <= MAX_TEXTS => {
                Some(HdfType::text())
            }
            data_type => HdfType::of_fixed_length(data_type),
        };
        found.filter(|found| found.message.len() <= MAX_TYPE)
    }

    fn of_fixed_length(data_type: &DataType) -> Option<HdfType> {
        let size = data_type.size().filter(|&size| size > 0)?;
        let plain = || Some(HdfType::plain(message_of(data_type)?, size));
        // Big-endian, as readers take them whatever the order of their bytes.
        let widened = |conversion: Arc<dyn Conversion>| HdfType {
            conversion: Some(conversion),
            ..HdfType::plain(single(true), 4)
        };
        match data_type {
            DataType::Float(2) => Some(widened(Arc::new(BigEndianSingle))),
            DataType::Small(number) if number.name == "bfloat16" => {
                Some(widened(Arc::new(BrainFloat)))
            }
            DataType::Complex(width) => Some(HdfType {
                own_name: Some(match width {
                    8 => "_PFNC_FLOAT_COMPLEX_TYPE",
                    _ => "_PFNC_DOUBLE_COMPLEX_TYPE",
                }),
                ..plain()?
            }),
            DataType::FixedBytes(_) => Some(HdfType::letters(size, None)),
            DataType::FixedText(_) => Some(HdfType::letters(size, Some(Arc::new(Utf8 { size })))),
            DataType::Struct(_) => Some(HdfType {
                own_name: Some(STRUCTURE),
                ..plain()?
            }),
            _ => plain(),
        }
    }

    /// Returns texts of any length, in UTF-8.
    fn text() -> HdfType {
        HdfType {
            is_text: true,
            ..HdfType::plain(any_string(), REFERENCE)
        }
    }

    /// Returns texts as letters along one more dimension.
    fn letters(length: usize, conversion: Option<Arc<dyn Conversion>>) -> HdfType {
        let message = [&[0x13, 1, 0, 0], &1_u32.to_le_bytes()[..]].concat();
        HdfType {
            letters: Some(length as u64),
            conversion,
            ..HdfType::plain(message, 1)
        }
    }

    /// Returns an element as it is written.
    pub(super) fn written(&self, decoded: &[u8]) -> Vec<u8> {
        match &self.conversion {
            None => decoded.to_vec(),
            Some(conversion) => {
                let mut written = vec![0; conversion.written_size()];
                conversion.convert(decoded, &mut written);
                written
            }
        }
    }
}

/// Returns the message of a type whose elements are written as they are decoded.
fn message_of(data_type: &DataType) -> Option<Vec<u8>> {
    Some(match data_type {
        DataType::Bool => integer(1, true),
        DataType::Int(width) => integer(*width, true),
        DataType::UInt(width) => integer(*width, false),
        DataType::DateTime(_) | DataType::TimeDelta(_) => integer(8, true),
        DataType::Float(4) => single(false),
        DataType::Float(8) => double(),
        DataType::Complex(8) => compound(8, &[("r", 0, single(false)), ("i", 4, single(false))])?,
        DataType::Complex(16) => compound(16, &[("r", 0, double()), ("i", 8, double())])?,
        DataType::Raw(length) => [&[0x15, 0, 0, 0], &word(*length)?[..]].concat(),
        DataType::Struct(fields) => structure(fields, data_type.size()?)?,
        _ => return None,
    })
}

fn word(length: usize) -> Option<[u8; 4]> {
    u32::try_from(length).ok().map(u32::to_le_bytes)
}

/// Returns an integer of 1 to 8 bytes.
pub(super) fn integer(width: usize, is_signed: bool) -> Vec<u8> {
    let (width, sign) = (u8::try_from(width).unwrap_or(0), u8::from(is_signed) << 3);
    vec![0x10, sign, 0, 0, width, 0, 0, 0, 0, 0, width * 8, 0]
}

/// Returns a float of four bytes.
pub(super) fn single(is_big_endian: bool) -> Vec<u8> {
    let mut message = float(4, (23, 8), 127);
    message[1] |= u8::from(is_big_endian);
    message
}

/// Returns a float of eight bytes.
pub(super) fn double() -> Vec<u8> {
    float(8, (52, 11), 1023)
}

/// Returns a float with these bits of mantissa and exponent, whose highest bit is the sign.
fn float(width: u8, (mantissa, exponent): (u8, u8), bias: u32) -> Vec<u8> {
    let bits = width * 8;
    // The first bit of the mantissa is implied.
    let head = [0x11, 0x20, bits - 1, 0, width, 0, 0, 0, 0, 0, bits, 0];
    let places = [mantissa, exponent, 0, mantissa];
    [&head[..], &places, &bias.to_le_bytes()].concat()
}

/// Returns text of a fixed length, which ends with a zero if it is shorter.
pub(super) fn string(length: usize, is_utf8: bool) -> Option<Vec<u8>> {
    let bits = u8::from(is_utf8) << 4;
    Some([&[0x13, bits, 0, 0], &word(length)?[..]].concat())
}

/// Returns text of any length.
pub(super) fn any_string() -> Vec<u8> {
    // A list of bytes that is text, in UTF-8.
    let base = [0x10, 0, 0, 0, 1, 0, 0, 0, 0, 0, 8, 0];
    [&[0x19, 1, 1, 0, 16, 0, 0, 0], &base[..]].concat()
}

/// Returns the reference to an object.
pub(super) fn reference() -> Vec<u8> {
    vec![0x17, 0, 0, 0, 8, 0, 0, 0]
}

/// Returns lists of references to objects.
pub(super) fn references() -> Vec<u8> {
    [&[0x19, 0, 0, 0, 16, 0, 0, 0], &reference()[..]].concat()
}

/// Returns elements of several parts: of each the name, the place and the type.
pub(super) fn compound(size: usize, parts: &[(&str, usize, Vec<u8>)]) -> Option<Vec<u8>> {
    let [low, high] = u16::try_from(parts.len()).ok()?.to_le_bytes();
    let mut out = [&[0x36, low, high, 0], &word(size)?[..]].concat();
    let bytes = size.checked_ilog2().map_or(1, |bits| bits as usize / 8 + 1);
    for (name, offset, part) in parts {
        if name.contains('\0') {
            return None;
        }
        out.extend_from_slice(name.as_bytes());
        out.push(0);
        out.extend_from_slice(word(*offset)?.get(..bytes)?);
        out.extend_from_slice(part);
    }
    Some(out)
}

fn structure(fields: &[Field], size: usize) -> Option<Vec<u8>> {
    let (mut parts, mut offset) = (Vec::new(), 0);
    for field in fields {
        let size = field.data_type.size()? * field.count()?;
        let (element, lengths) = part_of(field)?;
        let message = match &lengths[..] {
            [] => element,
            lengths => subarray(&element, size, lengths)?,
        };
        parts.push((field.name.as_str(), offset, message));
        offset += size;
    }
    compound(size, &parts)
}

/// Returns the type of a field and the lengths of its subarray; `None` for types that netCDF takes in no structure.
fn part_of(field: &Field) -> Option<(Vec<u8>, Vec<u64>)> {
    let mut lengths = field.shape.clone();
    let element = match &field.data_type {
        DataType::FixedBytes(length) => {
            lengths.push(*length as u64);
            string(1, false)?
        }
        DataType::Complex(_) | DataType::Raw(_) | DataType::Struct(_) => return None,
        plain => message_of(plain)?,
    };
    Some((element, lengths))
}

fn subarray(element: &[u8], size: usize, lengths: &[u64]) -> Option<Vec<u8>> {
    let mut out = [&[0x3a, 0, 0, 0], &word(size)?[..]].concat();
    out.push(u8::try_from(lengths.len()).ok()?);
    for &length in lengths {
        out.extend(
            u32::try_from(length)
                .ok()
                .filter(|&length| length > 0)?
                .to_le_bytes(),
        );
    }
    out.extend_from_slice(element);
    Some(out)
}
