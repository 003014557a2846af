//! The list around the elements: nested rows, then type and shape.
//!
//! The elements are nested dimension by dimension; the name of numpy's type and the shape follow them. A decoded chunk
//! never exceeds its maximum length, and no value nests deeper than `MAX_DEPTH`. The notations implement the syntax.

use serde_json::Value;

use crate::codec::kind::ArrayRepr;
use crate::codec::records::{self, LENGTH_PREFIX};
use crate::dialect::typestr;
use crate::error::{Error, Result};
use crate::model::{DataType, MAX_RANK};

use super::element::ObjectElement;

/// Maximum nesting of lists and maps in an element.
pub(super) const MAX_DEPTH: usize = 100;

/// Returns the shape in which the elements are nested, from the type and the shape after them; older writers omitted
/// the shape. It may differ from the chunk's shape if the number of elements is the same.
///
/// Fails with `Corrupt` if the type or the number of elements differs from the chunk's.
pub(super) fn stored_shape(
    repr: &ArrayRepr,
    dtype: &str,
    shape: Option<Vec<u64>>,
) -> Result<Vec<u64>> {
    let stored = typestr::parse(&Value::from(dtype))?.data_type;
    if repr.data_type.size().is_some()
        && stored != repr.data_type
        && !matches!(stored, DataType::Unknown(_))
    {
        let found = format!("expected elements of {}, found {stored}", repr.data_type);
        return Err(Error::corrupt("chunk", found));
    }
    let Some(shape) = shape else {
        return Ok(repr.shape.clone());
    };
    let product = |shape: &[u64]| shape.iter().try_fold(1_u64, |all, &n| all.checked_mul(n));
    if shape.len() > MAX_RANK || product(&shape) != product(&repr.shape) {
        let found = format!(
            "expected the elements of shape {:?}, found {shape:?}",
            repr.shape
        );
        return Err(Error::corrupt("chunk", found));
    }
    Ok(shape)
}

/// Returns the number of values of the list that are elements or rows of elements, and the shape of each. An array
/// without dimensions is a list of one element.
pub(super) fn rows(shape: &[u64]) -> (u64, &[u64]) {
    shape
        .split_first()
        .map_or((1, shape), |(&rows, row)| (rows, row))
}

/// Returns `rows` of a list that is read; `Corrupt` unless there are `found` values before the type.
pub(super) fn checked_rows(shape: &[u64], found: u64) -> Result<(u64, &[u64])> {
    let (rows, row) = rows(shape);
    if rows == found {
        return Ok((rows, row));
    }
    let what = format!("expected {rows} elements or rows, found {found}");
    Err(Error::corrupt("chunk", what))
}

/// Writes a list in one notation.
pub(super) trait ListWriter {
    /// Begins a list of `count` values.
    fn begin(&mut self, count: u64) -> Result<()>;

    /// Separates two values of a list.
    fn separate(&mut self);

    /// Ends a list.
    fn end(&mut self);

    /// Writes an element.
    fn element(&mut self, element: &ObjectElement<'_>) -> Result<()>;

    /// Writes text.
    fn text(&mut self, text: &str) -> Result<()>;

    /// Writes a length.
    fn length(&mut self, length: u64) -> Result<()>;
}

/// Writes a chunk, whose number of elements is the product of `shape`.
pub(super) fn write(
    writer: &mut dyn ListWriter,
    elements: &[ObjectElement<'_>],
    dtype: &str,
    shape: &[u64],
) -> Result<()> {
    let (rows, row) = rows(shape);
    let mut rest = elements.iter();
    writer.begin(rows.saturating_add(2))?;
    for _ in 0..rows {
        write_nested(writer, &mut rest, row)?;
        writer.separate();
    }
    writer.text(dtype)?;
    writer.separate();
    writer.begin(shape.len() as u64)?;
    for (n, &length) in shape.iter().enumerate() {
        if n > 0 {
            writer.separate();
        }
        writer.length(length)?;
    }
    writer.end();
    writer.end();
    Ok(())
}

fn write_nested(
    writer: &mut dyn ListWriter,
    rest: &mut std::slice::Iter<'_, ObjectElement<'_>>,
    shape: &[u64],
) -> Result<()> {
    let Some((&rows, row)) = shape.split_first() else {
        let too_few = || Error::invalid("chunk", "too few elements");
        return writer.element(rest.next().ok_or_else(too_few)?);
    };
    writer.begin(rows)?;
    for n in 0..rows {
        if n > 0 {
            writer.separate();
        }
        write_nested(writer, rest, row)?;
    }
    writer.end();
    Ok(())
}

/// The decoded chunk, to which elements are appended as they are read.
pub(super) struct ChunkBuilder<'a> {
    repr: &'a ArrayRepr,
    out: Vec<u8>,
    max_bytes: usize,
}

impl<'a> ChunkBuilder<'a> {
    /// Begins a chunk of at most `max_bytes`.
    pub(super) fn new(repr: &'a ArrayRepr, max_bytes: usize) -> ChunkBuilder<'a> {
        ChunkBuilder {
            repr,
            out: Vec::new(),
            max_bytes,
        }
    }

    /// Returns the chunk.
    pub(super) fn finish(self) -> Vec<u8> {
        self.out
    }

    /// Returns the array that is being read.
    pub(super) fn repr(&self) -> &ArrayRepr {
        self.repr
    }

    /// Fails with `TooLarge` if the chunk has no room for `bytes` more.
    fn check_room(&self, bytes: usize) -> Result<()> {
        if self.out.len().saturating_add(bytes) <= self.max_bytes {
            return Ok(());
        }
        let found = format!("the elements exceed the limit of {} bytes", self.max_bytes);
        Err(Error::too_large("chunk", found))
    }

    /// Checks a value at `depth` in an element of which `bytes` are read so far: `TooLarge` if they exceed the chunk,
    /// `Corrupt` if it is nested too deep.
    pub(super) fn check_value(&self, bytes: usize, depth: usize) -> Result<()> {
        self.check_room(bytes)?;
        if depth <= MAX_DEPTH {
            return Ok(());
        }
        let found = format!("a value nests deeper than {MAX_DEPTH} levels");
        Err(Error::corrupt("chunk", found))
    }

    /// Appends an element; `TooLarge` if it exceeds the chunk, `Corrupt` if it is not a value of the array's type.
    pub(super) fn add(&mut self, element: &ObjectElement<'_>) -> Result<()> {
        if self.repr.data_type.size().is_some() {
            let fixed = element.fixed_bytes(&self.repr.data_type);
            self.out.extend(fixed.ok_or_else(|| self.misfit(element))?);
            return self.check_room(0);
        }
        let bytes = element.bytes();
        self.check_room(bytes.len().saturating_add(LENGTH_PREFIX))?;
        records::append(&mut self.out, bytes)
    }

    fn misfit(&self, element: &ObjectElement<'_>) -> Error {
        let text: String = String::from_utf8_lossy(element.bytes())
            .chars()
            .take(40)
            .collect();
        Error::corrupt(
            "chunk",
            format!("{text:?} is not a valid {}", self.repr.data_type),
        )
    }
}

#[cfg(test)]
mod tests {
    use crate::codec::object::tests::{json2, msgpack2, records};
    use crate::error::Kind;

    #[test]
    fn chunks_of_older_writers_have_no_shape() {
        let decoded = records(&["a", "2"]);
        assert_eq!(
            json2(&[2]).decode(br#"["a",2,"|O"]"#.to_vec()).unwrap(),
            decoded
        );
        assert_eq!(
            msgpack2(&[2])
                .decode(b"\x93\xa1a\x02\xa2|O".to_vec())
                .unwrap(),
            decoded
        );
    }

    #[test]
    fn the_stored_shape_counts() {
        let stored = br#"[["a","b"],["c","d"],["e","f"],"|O",[3,2]]"#;
        let decoded = records(&["a", "b", "c", "d", "e", "f"]);
        assert_eq!(json2(&[2, 3]).decode(stored.to_vec()).unwrap(), decoded);
    }

    #[test]
    fn values_that_nest_deep_are_refused() {
        let deep =
            |depth: usize| format!("[{}{},\"|O\",[1]]", "[".repeat(depth), "]".repeat(depth));
        assert!(json2(&[1]).decode(deep(100).into_bytes()).is_ok());
        for depth in [102, 10_000, 1 << 20] {
            assert!(json2(&[1]).decode(deep(depth).into_bytes()).is_err());
            let lists = [&b"\x93"[..], &vec![0x91; depth], b"\xc0\xa2|O\x91\x01"].concat();
            assert!(msgpack2(&[1]).decode(lists).is_err());
        }
    }

    #[test]
    fn no_element_outgrows_the_chunk() {
        let long = format!("[\"{}\",\"|O\",[1]]", "x".repeat(1 << 17));
        let error = json2(&[1]).decode(long.into_bytes()).unwrap_err();
        assert_eq!(error.kind(), Kind::TooLarge);
        // Each encoded byte is decoded to five.
        let nulls = [
            &b"\x93\xdc\xff\xff"[..],
            &vec![0xc0; 0xffff],
            b"\xa2|O\x91\x01",
        ]
        .concat();
        assert_eq!(
            msgpack2(&[1]).decode(nulls).unwrap_err().kind(),
            Kind::TooLarge
        );
    }
}
