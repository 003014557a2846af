//! Reads FlatBuffers tables and FlexBuffers values in the files of Icechunk repositories.
//!
//! Every position is checked against the buffer, so that a hostile buffer gives `Corrupt`. Nothing is copied. No
//! function follows more than one offset, so that no cycle of offsets in a buffer can keep it from returning.

use zarr_format::error::{Error, Result};

/// A FlatBuffers table, whose fields are identified by number.
#[derive(Clone, Copy)]
pub(super) struct Table<'a> {
    bytes: &'a [u8],
    start: usize,
}

/// A FlatBuffers vector, whose elements all have the same size.
#[derive(Clone, Copy)]
pub(super) struct Vector<'a> {
    bytes: &'a [u8],
    start: usize,
    length: usize,
}

/// A FlatBuffers vector of `u32` numbers.
#[derive(Clone, Copy)]
pub(super) struct Numbers<'a> {
    digits: &'a [[u8; 4]],
}

impl Numbers<'_> {
    pub(super) fn len(&self) -> usize {
        self.digits.len()
    }

    pub(super) fn get(&self, position: usize) -> Option<u32> {
        self.digits.get(position).copied().map(u32::from_le_bytes)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.digits.iter().copied().map(u32::from_le_bytes)
    }
}

impl<'a> Table<'a> {
    /// Returns the root table of a FlatBuffers buffer.
    pub(super) fn root(bytes: &'a [u8]) -> Result<Table<'a>> {
        Table::at(bytes, follow(bytes, 0)?)
    }

    fn at(bytes: &'a [u8], start: usize) -> Result<Table<'a>> {
        let table = Table { bytes, start };
        table.vtable()?;
        Ok(table)
    }

    /// Returns the position of the table's vtable, which has the positions of the fields.
    fn vtable(&self) -> Result<usize> {
        let distance = i32::from_le_bytes(array(self.bytes, self.start)?);
        let start = i64::try_from(self.start).map_err(|_| damaged())?;
        usize::try_from(start - i64::from(distance)).map_err(|_| damaged())
    }

    /// Returns the position of a field in the buffer, or `None` if the table does not have the field.
    fn field(&self, number: usize) -> Result<Option<usize>> {
        let vtable = self.vtable()?;
        let size = usize::from(u16::from_le_bytes(array(self.bytes, vtable)?));
        let entry = 4 + 2 * number;
        if entry + 2 > size {
            return Ok(None);
        }
        let offset = u16::from_le_bytes(array(self.bytes, vtable + entry)?);
        Ok((offset != 0).then(|| self.start + usize::from(offset)))
    }

    /// Returns the bytes of a struct or number field of `N` bytes, or `None` if the table does not have the field.
    pub(super) fn fixed<const N: usize>(&self, number: usize) -> Result<Option<[u8; N]>> {
        let field = self.field(number)?;
        field.map(|start| array(self.bytes, start)).transpose()
    }

    /// Returns a `u8` field, or 0 if the table does not have the field.
    pub(super) fn u8(&self, number: usize) -> Result<u8> {
        Ok(self.fixed::<1>(number)?.map_or(0, u8::from_le_bytes))
    }

    /// Returns a `u32` field, or 0 if the table does not have the field.
    pub(super) fn u32(&self, number: usize) -> Result<u32> {
        Ok(self.fixed(number)?.map_or(0, u32::from_le_bytes))
    }

    /// Returns an `i32` field, or 0 if the table does not have the field.
    pub(super) fn i32(&self, number: usize) -> Result<i32> {
        Ok(self.fixed(number)?.map_or(0, i32::from_le_bytes))
    }

    /// Returns a `u64` field, or 0 if the table does not have the field.
    pub(super) fn u64(&self, number: usize) -> Result<u64> {
        Ok(self.fixed(number)?.map_or(0, u64::from_le_bytes))
    }

    /// Returns the table in a field, or `None` if the table does not have the field.
    pub(super) fn table(&self, number: usize) -> Result<Option<Table<'a>>> {
        let Some(field) = self.field(number)? else {
            return Ok(None);
        };
        Table::at(self.bytes, follow(self.bytes, field)?).map(Some)
    }

    /// Returns the vector in a field, whose elements have `size` bytes, or `None` if the table does not have the field.
    pub(super) fn vector(&self, number: usize, size: usize) -> Result<Option<Vector<'a>>> {
        let Some(field) = self.field(number)? else {
            return Ok(None);
        };
        let start = follow(self.bytes, field)?;
        let length = u32::from_le_bytes(array(self.bytes, start)?);
        let length = usize::try_from(length).map_err(|_| damaged())?;
        let start = start + 4;
        let end = length
            .checked_mul(size)
            .and_then(|size| start.checked_add(size));
        if end.is_none_or(|end| end > self.bytes.len()) {
            return Err(damaged());
        }
        Ok(Some(Vector {
            bytes: self.bytes,
            start,
            length,
        }))
    }

    /// Returns the vector of tables in a field, empty if the table does not have the field.
    pub(super) fn tables(&self, number: usize) -> Result<Vector<'a>> {
        let vector = self.vector(number, 4)?;
        Ok(vector.unwrap_or(Vector {
            bytes: self.bytes,
            start: 0,
            length: 0,
        }))
    }

    /// Returns the vector of bytes in a field, or `None` if the table does not have the field.
    pub(super) fn bytes(&self, number: usize) -> Result<Option<&'a [u8]>> {
        let Some(vector) = self.vector(number, 1)? else {
            return Ok(None);
        };
        let bytes = self.bytes.get(vector.start..vector.start + vector.length);
        bytes.map(Some).ok_or_else(damaged)
    }

    /// Returns the vector of `u32` numbers in a field, or `None` if the table does not have the field.
    pub(super) fn u32s(&self, number: usize) -> Result<Option<Numbers<'a>>> {
        let Some(vector) = self.vector(number, 4)? else {
            return Ok(None);
        };
        let end = vector.start + 4 * vector.length;
        let bytes = self.bytes.get(vector.start..end).ok_or_else(damaged)?;
        let (digits, _) = bytes.as_chunks();
        Ok(Some(Numbers { digits }))
    }

    /// Returns the string in a field, or `None` if the table does not have the field.
    pub(super) fn text(&self, number: usize) -> Result<Option<&'a str>> {
        let bytes = self.bytes(number)?;
        let text = bytes.map(std::str::from_utf8).transpose();
        text.map_err(|_| Error::corrupt("", "a string is not UTF-8"))
    }

    /// Returns the string in a field that every valid table of this type has.
    pub(super) fn required_text(&self, number: usize) -> Result<&'a str> {
        self.text(number)?.ok_or_else(damaged)
    }
}

impl<'a> Vector<'a> {
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Returns the element of `N` bytes at an index of the vector.
    pub(super) fn fixed<const N: usize>(&self, index: usize) -> Result<[u8; N]> {
        self.check(index)?;
        array(self.bytes, self.start + N * index)
    }

    /// Returns the table at an index of a vector of tables.
    pub(super) fn table(&self, index: usize) -> Result<Table<'a>> {
        self.check(index)?;
        Table::at(self.bytes, follow(self.bytes, self.start + 4 * index)?)
    }

    pub(super) fn iter_tables(self) -> impl Iterator<Item = Result<Table<'a>>> {
        (0..self.length).map(move |index| self.table(index))
    }

    fn check(&self, index: usize) -> Result<()> {
        if index < self.length {
            return Ok(());
        }
        Err(damaged())
    }
}

/// Follows the FlatBuffers offset at the position `field`, and returns the position that it leads to.
fn follow(bytes: &[u8], field: usize) -> Result<usize> {
    let offset = u32::from_le_bytes(array(bytes, field)?);
    let offset = usize::try_from(offset).map_err(|_| damaged())?;
    field.checked_add(offset).ok_or_else(damaged)
}

/// Returns the `N` bytes from `start` on. The error is `Corrupt` if the buffer ends before.
fn array<const N: usize>(bytes: &[u8], start: usize) -> Result<[u8; N]> {
    let part = bytes.get(start..).and_then(|rest| rest.first_chunk());
    part.copied().ok_or_else(damaged)
}

/// Returns the error for an offset that leads out of the file's buffer.
pub(super) fn damaged() -> Error {
    Error::corrupt("", "the file is damaged: an offset in it leads nowhere")
}

/// A FlexBuffers value, as in the configuration of an Icechunk repository. Methods return `None` for bytes outside the
/// buffer.
#[derive(Clone, Copy)]
pub(super) struct FlexValue<'a> {
    bytes: &'a [u8],
    /// The position of the value, or of the offset that leads to it.
    position: usize,
    /// The width, in bytes, of the number at `position`.
    width: usize,
    /// The FlexBuffers type in the upper 6 bits. The lower 2 bits have log2 of the width of numbers in the value.
    packed: u8,
}

impl<'a> FlexValue<'a> {
    /// Returns the root value of a FlexBuffers buffer.
    pub(super) fn root(bytes: &'a [u8]) -> Option<FlexValue<'a>> {
        let (&width, rest) = bytes.split_last()?;
        let (&packed, rest) = rest.split_last()?;
        let width = usize::from(width);
        Some(FlexValue {
            bytes,
            position: rest.len().checked_sub(width)?,
            width,
            packed,
        })
    }

    /// Returns the text of a string value, or `None` if the value has another type.
    pub(super) fn text(self) -> Option<&'a str> {
        // Type 5 of FlexBuffers is a string.
        if self.packed >> 2 != 5 {
            return None;
        }
        let start = self.target()?;
        let width = self.inner_width();
        let length = number(self.bytes, start.checked_sub(width)?, width)?;
        std::str::from_utf8(self.bytes.get(start..start.checked_add(length)?)?).ok()
    }

    /// Returns the value of a key in a map, or `None` if the key is missing or the value is not a map.
    pub(super) fn get(self, key: &str) -> Option<FlexValue<'a>> {
        let mut entries = self.entries()?;
        entries.find_map(|(name, value)| (name == key.as_bytes()).then_some(value))
    }

    /// Returns the keys and values of a map, or `None` if the value is not a map.
    pub(super) fn entries(self) -> Option<impl Iterator<Item = (&'a [u8], FlexValue<'a>)>> {
        // Type 9 of FlexBuffers is a map.
        if self.packed >> 2 != 9 {
            return None;
        }
        let (start, width) = (self.target()?, self.inner_width());
        let length = number(self.bytes, start.checked_sub(width)?, width)?;
        let keys_at = start.checked_sub(width.checked_mul(3)?)?;
        let keys = keys_at.checked_sub(number(self.bytes, keys_at, width)?)?;
        let key_width = number(self.bytes, start.checked_sub(width.checked_mul(2)?)?, width)?;
        let types = start.checked_add(length.checked_mul(width)?)?;
        let bytes = self.bytes;
        let entry = move |index: usize| {
            let key_at = keys.checked_add(index.checked_mul(key_width)?)?;
            let key = bytes.get(key_at.checked_sub(number(bytes, key_at, key_width)?)?..)?;
            // A map ends before a key of more than 1024 bytes, since a hostile buffer may lack the zero byte at a key's
            // end.
            let end = key.iter().take(1024).position(|&byte| byte == 0)?;
            let value = FlexValue {
                bytes,
                position: start.checked_add(index.checked_mul(width)?)?,
                width,
                packed: *bytes.get(types.checked_add(index)?)?,
            };
            Some((key.get(..end)?, value))
        };
        // At most 10,000 entries are returned, since a hostile buffer may state any number.
        Some((0..length.min(10_000)).map_while(entry))
    }

    /// Follows the FlexBuffers offset at `position`, which leads backwards.
    fn target(self) -> Option<usize> {
        let distance = number(self.bytes, self.position, self.width)?;
        self.position.checked_sub(distance)
    }

    /// Returns the width, in bytes, of numbers inside the value.
    fn inner_width(self) -> usize {
        1 << (self.packed & 3)
    }
}

/// Returns the unsigned number of `width` bytes at `start`.
fn number(bytes: &[u8], start: usize, width: usize) -> Option<usize> {
    if !matches!(width, 1 | 2 | 4 | 8) {
        return None;
    }
    let digits = bytes.get(start..start.checked_add(width)?)?;
    let value = digits
        .iter()
        .rev()
        .fold(0u64, |value, &byte| (value << 8) | u64::from(byte));
    usize::try_from(value).ok()
}
