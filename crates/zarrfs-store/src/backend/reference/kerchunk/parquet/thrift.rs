//! Thrift's compact protocol: the headers of Parquet files.
//!
//! Structures are read field by field. Unknown fields are skipped, so that files of later versions open.

use super::damaged;
use zarr_format::error::Result;

/// Reads values from bytes.
#[derive(Clone, Copy)]
pub(super) struct Thrift<'a> {
    bytes: &'a [u8],
}

/// A field of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) id: i16,
    kind: u8,
}

impl<'a> Thrift<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Thrift<'a> {
        Thrift { bytes }
    }

    /// Returns the bytes that are not read yet.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    fn byte(&mut self) -> Result<u8> {
        let (&byte, rest) = self.bytes.split_first().ok_or_else(damaged)?;
        self.bytes = rest;
        Ok(byte)
    }

    /// Reads an unsigned number.
    fn unsigned(&mut self) -> Result<u64> {
        super::read_varint(&mut self.bytes).ok_or_else(damaged)
    }

    /// Reads a number.
    pub(super) fn number(&mut self) -> Result<i64> {
        let coded = self.unsigned()?;
        // The sign is the lowest bit.
        Ok((coded >> 1).cast_signed() ^ -(coded & 1).cast_signed())
    }

    /// Reads a number that must not be negative.
    pub(super) fn count(&mut self) -> Result<u64> {
        u64::try_from(self.number()?).map_err(|_| damaged())
    }

    /// Reads a string of bytes.
    pub(super) fn text(&mut self) -> Result<&'a [u8]> {
        let length = usize::try_from(self.unsigned()?).map_err(|_| damaged())?;
        let (text, rest) = self.bytes.split_at_checked(length).ok_or_else(damaged)?;
        self.bytes = rest;
        Ok(text)
    }

    /// Reads the header of a field. `last` is the identifier of the field before. Returns `None` at the end of the
    /// structure.
    fn field(&mut self, last: i16) -> Result<Option<Field>> {
        let byte = self.byte()?;
        if byte == 0 {
            return Ok(None);
        }
        let id = match byte >> 4 {
            0 => i16::try_from(self.number()?).map_err(|_| damaged())?,
            more => last.checked_add(more.into()).ok_or_else(damaged)?,
        };
        Ok(Some(Field {
            id,
            kind: byte & 0xf,
        }))
    }

    /// Reads a structure, and calls `read` for each field. `read` reads the value and returns true, or returns false to
    /// have the value skipped.
    pub(super) fn structure(
        &mut self,
        mut read: impl FnMut(&mut Thrift<'a>, Field) -> Result<bool>,
    ) -> Result<()> {
        let mut last = 0;
        while let Some(field) = self.field(last)? {
            last = field.id;
            if !read(self, field)? {
                self.skip(field.kind, 0)?;
            }
        }
        Ok(())
    }

    /// Reads a list: calls `read` for each element.
    pub(super) fn list(
        &mut self,
        mut read: impl FnMut(&mut Thrift<'a>) -> Result<()>,
    ) -> Result<()> {
        let (count, _) = self.list_header()?;
        for _ in 0..count {
            read(self)?;
        }
        Ok(())
    }

    /// Returns the number of elements of a list, and their type.
    fn list_header(&mut self) -> Result<(u64, u8)> {
        let byte = self.byte()?;
        let count = match byte >> 4 {
            15 => self.unsigned()?,
            count => count.into(),
        };
        // Every element takes at least one byte.
        if count > self.bytes.len() as u64 {
            return Err(damaged());
        }
        Ok((count, byte & 0xf))
    }

    /// Skips a value. Unknown structures may be nested 16 deep.
    fn skip(&mut self, kind: u8, depth: u32) -> Result<()> {
        if depth > 16 {
            return Err(damaged());
        }
        match kind {
            // True and false: the type of the field is the value, and no bytes follow.
            1 | 2 => {}
            3 => {
                self.byte()?;
            }
            4..=6 => {
                self.unsigned()?;
            }
            7 => self.bytes = self.bytes.get(8..).ok_or_else(damaged)?,
            8 => {
                self.text()?;
            }
            9 | 10 => {
                let (count, kind) = self.list_header()?;
                for _ in 0..count {
                    // In a list, each true or false takes a byte.
                    self.skip(if kind <= 2 { 3 } else { kind }, depth + 1)?;
                }
            }
            12 => {
                let mut last = 0;
                while let Some(field) = self.field(last)? {
                    last = field.id;
                    self.skip(field.kind, depth + 1)?;
                }
            }
            _ => return Err(damaged()),
        }
        Ok(())
    }
}

impl Field {
    /// Returns the value of a field that is true or false.
    pub(super) fn flag(self) -> bool {
        self.kind == 1
    }
}
