//! `.npy`: numpy's own format (numpy.lib.format), version 1.0 if the header fits.
//!
//! Variable-length elements become a numpy type with a fixed width, that of the longest element. Numbers for which
//! numpy has no type get another type of the same size, as which their bytes can be read.

use crate::formats::format::ALIGNMENT;
use crate::formats::{FileParts, Format, Ragged, Subject};
use zarr_format::error::{Error, Result};
use zarr_format::model::{DataType, Field, MAX_ELEMENT};
use zarrfs_array::array::vlen_elements::{ReservedBuffer, VlenElements};

/// The format `.npy`: elements in C order after a header. `numpy.load` can map the file.
pub const FORMAT: Format = Format {
    extension: "npy",
    needs: "elements of a data type of numpy",
    parts: Some(|subject| {
        let descr = descr(&subject.array.data_type)?;
        header(&descr, false, subject.shape).map(FileParts::plain)
    }),
    ragged: Some(Ragged::Made(ragged)),
    is_basic: true,
};

/// Describes a `.npy` file with the elements in Fortran order (first dimension fastest).
pub(super) fn fortran(subject: &Subject) -> Option<FileParts> {
    let descr = descr(&subject.array.data_type)?;
    let header = header(&descr, true, subject.shape)?;
    Some(FileParts::fortran(header, subject.shape))
}

/// Builds the `.npy` header: magic, version, length of the text, the padded text, and a newline.
fn header(descr: &str, is_fortran: bool, shape: &[u64]) -> Option<Vec<u8>> {
    let shape = tuple(shape);
    let order = if is_fortran { "True" } else { "False" };
    let mut text = format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}");
    // Version 1.0 has ASCII headers of less than 64 KiB; all others need version 3.0.
    let is_plain = text.is_ascii() && text.len() + ALIGNMENT < usize::from(u16::MAX);
    let before = if is_plain { 10 } else { 12 };
    let length = (before + text.len() + 1).next_multiple_of(ALIGNMENT) - before;
    text.push_str(&" ".repeat(length - 1 - text.len()));
    text.push('\n');
    let mut header = b"\x93NUMPY".to_vec();
    if is_plain {
        header.extend([1, 0]);
        header.extend(u16::try_from(length).ok()?.to_le_bytes());
    } else {
        header.extend([3, 0]);
        header.extend(u32::try_from(length).ok()?.to_le_bytes());
    }
    header.extend_from_slice(text.as_bytes());
    Some(header)
}

/// Writes a `.npy` file of variable-length elements, padded to the longest one: bytes as `S`, text as `U`.
fn ragged(records: &VlenElements, shape: &[u64], out: &mut ReservedBuffer<'_>) -> Result<()> {
    let is_text = !matches!(records.data_type(), DataType::Bytes | DataType::List(_));
    let longest = records.iter().map(|element| width(element, is_text)).max();
    let longest = longest.unwrap_or(0).max(1);
    let (descr, size) = if is_text {
        (format!("'<U{longest}'"), longest * 4)
    } else {
        (format!("'|S{longest}'"), longest)
    };
    let header = header(&descr, false, shape).filter(|_| size <= MAX_ELEMENT);
    out.push(&header.ok_or_else(|| {
        let count = records.len();
        let found =
            format!("{count} strings padded to the longest, of length {longest}, are too large");
        Error::too_large("npy", found)
    })?)?;
    let mut padded = vec![0; size];
    for record in records.iter() {
        put_padded(record, is_text, &mut padded);
        out.push(&padded)?;
    }
    Ok(())
}

fn width(element: &[u8], is_text: bool) -> usize {
    if is_text {
        String::from_utf8_lossy(element).chars().count()
    } else {
        element.len()
    }
}

/// Writes an element padded with zeros to the file's fixed width; text becomes UTF-32.
fn put_padded(element: &[u8], is_text: bool, padded: &mut [u8]) {
    padded.fill(0);
    if !is_text {
        padded[..element.len()].copy_from_slice(element);
        return;
    }
    let text = String::from_utf8_lossy(element);
    for (code, letter) in padded.chunks_exact_mut(4).zip(text.chars()) {
        code.copy_from_slice(&u32::from(letter).to_le_bytes());
    }
}

/// Returns numpy's `descr` of a data type as a Python literal, with quotes. Returns `None` if numpy does not have the
/// type.
pub fn descr(data_type: &DataType) -> Option<String> {
    match data_type {
        DataType::Struct(fields) => {
            let fields: Option<Vec<String>> = fields.iter().map(field).collect();
            Some(format!("[{}]", fields?.join(", ")))
        }
        simple => Some(format!("'{}'", typestr(simple)?)),
    }
}

fn typestr(data_type: &DataType) -> Option<String> {
    let order = if data_type.word() == 1 { '|' } else { '<' };
    Some(match data_type {
        DataType::Bool => "|b1".to_string(),
        DataType::Int(width) => format!("{order}i{width}"),
        DataType::UInt(width) => format!("{order}u{width}"),
        DataType::Float(width) => format!("{order}f{width}"),
        DataType::Complex(width) => format!("{order}c{width}"),
        DataType::Small(number) => number.npy.to_string(),
        DataType::Raw(width) => format!("|V{width}"),
        DataType::DateTime(unit) if unit.name == "generic" => "<M8".to_string(),
        DataType::TimeDelta(unit) if unit.name == "generic" => "<m8".to_string(),
        DataType::DateTime(unit) => format!("<M8[{unit}]"),
        DataType::TimeDelta(unit) => format!("<m8[{unit}]"),
        DataType::FixedBytes(width) => format!("|S{width}"),
        DataType::FixedText(length) => format!("<U{length}"),
        DataType::Struct(_)
        | DataType::Text
        | DataType::Bytes
        | DataType::List(_)
        | DataType::Object
        | DataType::Unknown(_) => return None,
    })
}

fn field(field: &Field) -> Option<String> {
    let name = quoted(&field.name);
    let descr = descr(&field.data_type)?;
    if field.shape.is_empty() {
        return Some(format!("({name}, {descr})"));
    }
    Some(format!("({name}, {descr}, {})", tuple(&field.shape)))
}

pub(crate) fn tuple(lengths: &[u64]) -> String {
    let names: Vec<String> = lengths.iter().map(u64::to_string).collect();
    let comma = if lengths.len() == 1 { "," } else { "" };
    format!("({}{comma})", names.join(", "))
}

/// Formats text as a Python string literal.
fn quoted(text: &str) -> String {
    let mut literal = String::from("'");
    for letter in text.chars() {
        match letter {
            '\\' | '\'' => literal.extend(['\\', letter]),
            control if control.is_control() => {
                literal.push_str(&format!("\\x{:02x}", u32::from(control)));
            }
            other => literal.push(other),
        }
    }
    literal.push('\'');
    literal
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use zarr_format::dialect::typestr;

    #[test]
    fn data_types_are_written_as_numpy_dtypes() {
        for (dtype, expected) in [
            (json!(">f8"), "'<f8'"),
            (json!("|V3"), "'|V3'"),
            (json!(">U2"), "'<U2'"),
            (json!("<M8[10us]"), "'<M8[10us]'"),
            (json!("<m8"), "'<m8'"),
            (
                json!([
                    ["a'b", ">i2"],
                    ["z", "<f4", [2, 2]],
                    ["n", [["x", "|u1"]], [3]]
                ]),
                "[('a\\'b', '<i2'), ('z', '<f4', (2, 2)), ('n', [('x', '|u1')], (3,))]",
            ),
        ] {
            let typed = typestr::parse(&dtype).unwrap();
            assert_eq!(descr(&typed.data_type).as_deref(), Some(expected));
        }
        assert_eq!(descr(&DataType::Text), None);
    }
}
