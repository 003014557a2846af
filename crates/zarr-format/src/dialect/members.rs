//! Members that several dialects share: lengths, names with configuration, separators.

use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::model::MAX_RANK;

/// Whether `zarr_format` is this number. Some writers store it with a decimal point.
pub(super) fn is_format(members: &Map<String, Value>, number: u32) -> bool {
    let found = members.get("zarr_format").and_then(Value::as_f64);
    found == Some(f64::from(number))
}

/// Reads a list of non-negative integers; `Corrupt` if the member is missing or something else. Writers in R store a
/// list of one number as the number alone.
pub(super) fn lengths(members: &Map<String, Value>, name: &str) -> Result<Vec<u64>> {
    let found = members.get(name).unwrap_or(&Value::Null);
    let wrong = || {
        let why = format!(
            "expected a list of whole numbers, none negative and each below 2^64, found {found}"
        );
        Error::corrupt(name, why)
    };
    let list = match found {
        Value::Array(list) => list.as_slice(),
        number => std::slice::from_ref(number),
    };
    list.iter()
        .map(|number| number.as_u64().ok_or_else(wrong))
        .collect()
}

/// Reads the chunk lengths of an array of `shape`. For a dimension of length 0, some writers store a chunk length of 0,
/// which is read as 1.
pub(super) fn chunk_lengths(
    members: &Map<String, Value>,
    name: &str,
    shape: &[u64],
) -> Result<Vec<u64>> {
    let mut chunk = lengths(members, name)?;
    for (chunk, length) in chunk.iter_mut().zip(shape) {
        if *length == 0 {
            *chunk = (*chunk).max(1);
        }
    }
    Ok(chunk)
}

/// Reads a list; empty if the member is missing or null, `Corrupt` if it is something else.
pub(super) fn list<'a>(members: &'a Map<String, Value>, name: &str) -> Result<&'a [Value]> {
    match members.get(name) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(list)) => Ok(list),
        Some(other) => Err(Error::corrupt(
            name,
            format!("expected a list, found {other}"),
        )),
    }
}

/// Checks the shapes of an array and of its chunks.
///
/// Fails with `TooLarge` for more than `MAX_RANK` dimensions, `Corrupt` for different ranks or a chunk length of zero.
pub(super) fn check_shapes(shape: &[u64], chunk: &[u64]) -> Result<()> {
    if shape.len() > MAX_RANK {
        return Err(Error::too_large(
            "shape",
            format!("{} dimensions, at most {MAX_RANK} are read", shape.len()),
        ));
    }
    if shape.len() != chunk.len() {
        let found = format!(
            "{} dimensions, but chunks have {}",
            shape.len(),
            chunk.len()
        );
        return Err(Error::corrupt("shape", found));
    }
    if chunk.contains(&0) {
        return Err(Error::corrupt(
            "chunk shape",
            format!("{chunk:?}: a chunk of length zero"),
        ));
    }
    Ok(())
}

/// Reads a `name` and a `configuration`, or only a name (core specification 3.1, "Extension definition").
pub(super) fn named<'a>(
    value: &'a Value,
    member: &str,
) -> Result<(&'a str, Option<&'a Map<String, Value>>)> {
    let name = value
        .as_str()
        .or_else(|| value.get("name").and_then(Value::as_str));
    let name =
        name.ok_or_else(|| Error::corrupt(member, format!("expected a name, found {value}")))?;
    Ok((name, value.get("configuration").and_then(Value::as_object)))
}

/// Reads the character between two chunk indices, `.` or `/`. Returns `None` if it is missing; any other value is
/// `Corrupt`.
pub(super) fn separator(value: Option<&Value>, member: &str) -> Result<Option<char>> {
    let Some(value) = value else { return Ok(None) };
    match value.as_str() {
        Some(".") => Ok(Some('.')),
        Some("/") => Ok(Some('/')),
        _ => Err(Error::corrupt(
            member,
            format!("expected . or /, found {value}"),
        )),
    }
}
