//! Data types as HDF5 writes them (HDF5 File Format Specification, IV.A.2.d).

use std::sync::Arc;

use crate::formats::conversion::{Conversion, Utf8, Widened};
use crate::formats::group::MAX_READ_AT_OPEN;
use zarr_format::model::{Array, DataType, Field};

/// Prefix of the names of committed HDF5 types for Zarr's structured data types.
pub(super) const STRUCTURE: &str = "structure";

/// The HDF5 type in which an array's elements are written.
pub(super) struct HdfType {
    pub(super) message: Vec<u8>,
    pub(super) size: usize,
    /// Converts the array's decoded elements to the HDF5 type; `None` if they are written as decoded.
    pub(super) conversion: Option<Arc<dyn Conversion>>,
    /// The length of an additional dimension for characters, if elements are texts or bytes of a fixed length.
    pub(super) letters: Option<u64>,
    /// The name of the type, if netCDF requires it as a committed type. Several structures share a name and are
    /// numbered.
    pub(super) own_name: Option<&'static str>,
    /// Whether elements are variable-length texts, which are stored in the global heap of the file.
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

    /// Returns the HDF5 type that can hold every value of an array, or `None` if HDF5 has none.
    ///
    /// Half floats, fixed-length strings and h5py's booleans are not used, because netCDF-C crashes on them.
    pub(super) fn of(array: &Array) -> Option<HdfType> {
        let found = match &array.data_type {
            DataType::Text | DataType::Object => Some(HdfType::text()),
            // Fixed-length texts become variable-length texts, which are all read when the file is opened. So the array
            // must be small.
            DataType::FixedText(_) if array.byte_length().ok()? <= MAX_READ_AT_OPEN => {
                Some(HdfType::text())
            }
            data_type => HdfType::of_fixed_length(data_type),
        };
        // Only the message of a structure with many fields exceeds this limit; such a structure is left out.
        found.filter(|found| found.message.len() <= 1 << 14)
    }

    fn of_fixed_length(data_type: &DataType) -> Option<HdfType> {
        let size = data_type.size().filter(|&size| size > 0)?;
        let plain = || Some(HdfType::plain(message_of(data_type)?, size));
        // The big-endian type is used because all readers support it on every machine.
        let widened = |conversion: Arc<dyn Conversion>| HdfType {
            conversion: Some(conversion),
            ..HdfType::plain(single(true), 4)
        };
        match data_type {
            DataType::Float(2) => Some(widened(Arc::new(Widened::HalfFloat))),
            DataType::Small(number) if number.name == "bfloat16" => {
                Some(widened(Arc::new(Widened::BrainFloat)))
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

    /// Returns the HDF5 type of variable-length texts in UTF-8.
    fn text() -> HdfType {
        HdfType {
            is_text: true,
            // Instead of a text, the dataset has a reference of 16 bytes to an object of the heap.
            ..HdfType::plain(any_string(), 16)
        }
    }

    /// Returns the HDF5 type of texts that are stored as characters along an additional dimension.
    fn letters(length: usize, conversion: Option<Arc<dyn Conversion>>) -> HdfType {
        let message = [&[0x13, 1, 0, 0], &1_u32.to_le_bytes()[..]].concat();
        HdfType {
            letters: Some(length as u64),
            conversion,
            ..HdfType::plain(message, 1)
        }
    }

    /// Converts a decoded element to the bytes that the file has.
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

/// Returns the datatype message for a data type whose elements are written as decoded; `None` if HDF5 has no such type.
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

/// Returns the HDF5 datatype message of an integer of 1 to 8 bytes.
pub(super) fn integer(width: usize, is_signed: bool) -> Vec<u8> {
    let (width, sign) = (u8::try_from(width).unwrap_or(0), u8::from(is_signed) << 3);
    vec![0x10, sign, 0, 0, width, 0, 0, 0, 0, 0, width * 8, 0]
}

pub(super) fn single(is_big_endian: bool) -> Vec<u8> {
    let mut message = float(4, 23, 127);
    message[1] |= u8::from(is_big_endian);
    message
}

pub(super) fn double() -> Vec<u8> {
    float(8, 52, 1023)
}

/// Returns the HDF5 datatype message of a float with `mantissa` mantissa bits. The highest bit is the sign, and the
/// exponent is between sign and mantissa.
fn float(width: u8, mantissa: u8, bias: u32) -> Vec<u8> {
    let bits = width * 8;
    // The flags say that the first bit of the mantissa is always 1 and not stored, as in IEEE 754.
    let head = [0x11, 0x20, bits - 1, 0, width, 0, 0, 0, 0, 0, bits, 0];
    let places = [mantissa, bits - 1 - mantissa, 0, mantissa];
    [&head[..], &places, &bias.to_le_bytes()].concat()
}

/// Returns the HDF5 datatype message of a fixed-length string, which is null-padded.
pub(super) fn string(length: usize, is_utf8: bool) -> Option<Vec<u8>> {
    let bits = u8::from(is_utf8) << 4;
    Some([&[0x13, bits, 0, 0], &word(length)?[..]].concat())
}

/// Returns the HDF5 datatype message of a variable-length string.
pub(super) fn any_string() -> Vec<u8> {
    // HDF5 has variable-length strings as sequences of bytes that are marked as UTF-8.
    let base = [0x10, 0, 0, 0, 1, 0, 0, 0, 0, 0, 8, 0];
    [&[0x19, 1, 1, 0, 16, 0, 0, 0], &base[..]].concat()
}

/// Returns the HDF5 datatype message of an object reference.
pub(super) fn reference() -> Vec<u8> {
    vec![0x17, 0, 0, 0, 8, 0, 0, 0]
}

/// Returns the HDF5 datatype message of variable-length lists of object references.
pub(super) fn references() -> Vec<u8> {
    [&[0x19, 0, 0, 0, 16, 0, 0, 0], &reference()[..]].concat()
}

/// Returns the HDF5 datatype message of a compound type: for each field its name, offset and datatype.
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

/// Returns the datatype of a compound's field and the dimensions of its subarray; `None` for types that netCDF does not
/// allow in a compound.
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
