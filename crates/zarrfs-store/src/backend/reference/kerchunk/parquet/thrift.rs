//! Reads Thrift's compact protocol, in which the headers of Parquet files are encoded.
//!
//! Structures are read field by field. Unknown fields are skipped, so that files of later versions open.

use super::damaged;
use zarr_format::error::Result;

/// Reads values in Thrift's compact encoding.
#[derive(Clone, Copy)]
pub(super) struct Thrift<'a> {
    bytes: &'a [u8],
}

/// The header of a field in a Thrift structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) id: i16,
    kind: u8,
}

impl<'a> Thrift<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Thrift<'a> {
        Thrift { bytes }
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    fn byte(&mut self) -> Result<u8> {
        let (&byte, rest) = self.bytes.split_first().ok_or_else(damaged)?;
        self.bytes = rest;
        Ok(byte)
    }

    fn unsigned(&mut self) -> Result<u64> {
        super::read_varint(&mut self.bytes).ok_or_else(damaged)
    }

    /// Reads a signed number.
    pub(super) fn number(&mut self) -> Result<i64> {
        let coded = self.unsigned()?;
        // The lowest bit is the sign (zigzag encoding).
        Ok((coded >> 1).cast_signed() ^ -(coded & 1).cast_signed())
    }

    /// Reads a signed number, and fails if it is negative.
    pub(super) fn count(&mut self) -> Result<u64> {
        u64::try_from(self.number()?).map_err(|_| damaged())
    }

    /// Reads a byte string.
    pub(super) fn text(&mut self) -> Result<&'a [u8]> {
        let length = usize::try_from(self.unsigned()?).map_err(|_| damaged())?;
        let (text, rest) = self.bytes.split_at_checked(length).ok_or_else(damaged)?;
        self.bytes = rest;
        Ok(text)
    }

    /// Reads the header of a Thrift field; `last` is the previous field's identifier, since the difference is encoded.
    /// Returns `None` at the end of the structure.
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

    /// Reads a Thrift structure, and calls `read` for each field. `read` reads the value, or returns false to have it
    /// skipped.
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

    /// Reads a Thrift list: calls `read` for each element.
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

    /// Reads a Thrift list's number of elements and their type.
    fn list_header(&mut self) -> Result<(u64, u8)> {
        let byte = self.byte()?;
        let count = match byte >> 4 {
            15 => self.unsigned()?,
            count => count.into(),
        };
        // Every element takes at least one byte, so a larger number is damage.
        if count > self.bytes.len() as u64 {
            return Err(damaged());
        }
        Ok((count, byte & 0xf))
    }

    /// Skips a Thrift value. It may contain structures up to 16 deep, so that a hostile file cannot exhaust the stack.
    fn skip(&mut self, kind: u8, depth: u32) -> Result<()> {
        if depth > 16 {
            return Err(damaged());
        }
        match kind {
            // The types 1 and 2 are the values true and false, and no bytes follow.
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
                    // In a list, true or false takes a byte, unlike in a field.
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
    /// Returns the value of a boolean field, which is in its type.
    pub(super) fn flag(self) -> bool {
        self.kind == 1
    }
}
