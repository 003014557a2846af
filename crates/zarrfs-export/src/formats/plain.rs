//! `.raw` and `.txt`: only the elements, as bytes or as JSON lines.

use serde_json::Value;

use crate::formats::{FileParts, Format, Ragged};
use zarr_format::dialect::fill;
use zarr_format::error::Result;
use zarr_format::model::DataType;
use zarrfs_array::array::vlen_elements::{ReservedBuffer, VlenElements};

/// The format `.raw`: elements in C order, little-endian, without a header. Each variable-length element follows its
/// length in bytes (u32, little-endian).
pub const RAW: Format = Format {
    extension: "raw",
    needs: "elements that decode",
    parts: Some(|subject| {
        let size = subject.array.data_type.size();
        size.map(|_| FileParts::plain(Vec::new()))
    }),
    ragged: Some(Ragged::Records),
    is_basic: true,
};

/// The format `.txt`: one variable-length element per line, in C order. Text is a JSON string. Bytes are a string if
/// they are UTF-8, and a list of numbers if not. JSON values are unchanged.
pub const TXT: Format = Format {
    extension: "txt",
    needs: "variable-length elements, such as strings",
    parts: None,
    ragged: Some(Ragged::Made(ragged)),
    is_basic: true,
};

fn ragged(records: &VlenElements, _shape: &[u64], out: &mut ReservedBuffer<'_>) -> Result<()> {
    for record in records.iter() {
        out.push(line(records.data_type(), record).as_bytes())?;
        out.push(b"\n")?;
    }
    Ok(())
}

/// Formats a variable-length element as JSON.
pub(super) fn line(data_type: &DataType, record: &[u8]) -> String {
    let numbers = || Value::from(record.to_vec()).to_string();
    match (data_type, std::str::from_utf8(record)) {
        (DataType::List(element), _) => list(element, record).unwrap_or_else(numbers),
        (_, Err(_)) => numbers(),
        (DataType::Object, Ok(text)) => match serde_json::from_str(text) {
            Ok(value @ (Value::Array(_) | Value::Object(_) | Value::Number(_))) => {
                value.to_string()
            }
            Ok(value @ (Value::Bool(_) | Value::Null)) => value.to_string(),
            _ => Value::from(text).to_string(),
        },
        (_, Ok(text)) => Value::from(text).to_string(),
    }
}

/// Formats a list of numbers as JSON, or returns `None` if the data type of its elements is not a number.
fn list(element: &DataType, record: &[u8]) -> Option<String> {
    let size = element.size().filter(|&size| size > 0)?;
    let numbers: Vec<Value> = record
        .chunks_exact(size)
        .map(|bytes| fill::render(element, bytes))
        .collect();
    Some(Value::from(numbers).to_string())
}
