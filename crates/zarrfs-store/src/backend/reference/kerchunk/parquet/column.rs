//! Reads the values of one Parquet column in a row group, page by page.

use std::borrow::Cow;
use std::io::Read;

use super::thrift::Thrift;
use super::{ColumnChunk, SchemaField, damaged, read_varint, unsupported};
use zarr_format::error::{Error, Result};

/// The value of a Parquet column in one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in super::super) enum CellValue<'a> {
    Number(i64),
    Bytes(&'a [u8]),
}

pub(super) struct ColumnReader<'a> {
    /// The bytes of the Parquet file from the next page on.
    rest: &'a [u8],
    codec: i64,
    physical: Physical,
    is_optional: bool,
    /// The number of rows that are not read yet.
    rows: u64,
    /// Maximum total length of the remaining pages when decompressed, in bytes.
    limit: usize,
}

/// The Parquet types that zarrfs reads.
#[derive(Clone, Copy)]
enum Physical {
    Int32,
    Int64,
    ByteArray,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum PageKind {
    #[default]
    Data,
    Dictionary,
    /// Data in a page of version 2.
    Data2,
    Other,
}

impl PageKind {
    fn of(number: i64) -> PageKind {
        match number {
            0 => PageKind::Data,
            2 => PageKind::Dictionary,
            3 => PageKind::Data2,
            _ => PageKind::Other,
        }
    }
}

/// A Parquet page: its header, and its bytes as the file stores them.
struct Page<'a> {
    header: PageHeader,
    stored: &'a [u8],
}

#[derive(Clone, Copy, Default)]
struct PageHeader {
    kind: PageKind,
    /// Length of the decompressed page, in bytes.
    size: u64,
    /// Length of the page in the file, in bytes.
    stored: u64,
    values: u64,
    encoding: i64,
    /// Lengths, in bytes, of the definition and repetition levels in a page of version 2, which are never compressed.
    definition_levels: u64,
    repetition_levels: u64,
    is_compressed: bool,
}

impl<'a> ColumnReader<'a> {
    pub(super) fn new(
        bytes: &'a [u8],
        field: &SchemaField<'_>,
        chunk: &ColumnChunk<'_>,
        limit: usize,
    ) -> Result<ColumnReader<'a>> {
        // Some writers state 0 as the offset of a dictionary that does not exist.
        let dictionary = chunk.dictionary.filter(|&at| at > 0 && at < chunk.data);
        let start = dictionary.unwrap_or(chunk.data);
        let end = start.checked_add(chunk.length).ok_or_else(damaged)?;
        let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        Ok(ColumnReader {
            rest: bytes.get(place(start)..place(end)).ok_or_else(damaged)?,
            codec: chunk.codec,
            physical: match field.physical_type {
                1 => Physical::Int32,
                2 => Physical::Int64,
                6 => Physical::ByteArray,
                _ => return Err(unsupported("a column of another type")),
            },
            is_optional: field.is_optional,
            rows: chunk.values,
            limit,
        })
    }

    /// Calls `each` with the column's value in every row, or with `None` for a row without a value.
    pub(super) fn read(
        mut self,
        mut each: impl FnMut(Option<CellValue<'_>>) -> Result<()>,
    ) -> Result<()> {
        let first = self.next_page()?;
        let (content, first) = match first {
            Some(page) if page.header.kind == PageKind::Dictionary => {
                (self.content(&page.header, page.stored)?, self.next_page()?)
            }
            first => (Cow::default(), first),
        };
        let mut plain = Plain {
            bytes: &content,
            physical: self.physical,
        };
        let mut dictionary = Vec::new();
        while !plain.bytes.is_empty() {
            dictionary.push(plain.next()?);
        }
        let mut next = first;
        while let Some(page) = next {
            match page.header.kind {
                PageKind::Data | PageKind::Data2 => {
                    self.data_page(&page, &dictionary, &mut each)?
                }
                PageKind::Dictionary => return Err(damaged()),
                PageKind::Other => {}
            }
            next = self.next_page()?;
        }
        Ok(())
    }

    /// Returns the next Parquet page, or `None` after the last row.
    fn next_page(&mut self) -> Result<Option<Page<'a>>> {
        if self.rows == 0 {
            return Ok(None);
        }
        let mut thrift = Thrift::new(self.rest);
        let header = PageHeader::read(&mut thrift)?;
        let stored = usize::try_from(header.stored).map_err(|_| damaged())?;
        let (stored, rest) = thrift.rest().split_at_checked(stored).ok_or_else(damaged)?;
        self.rest = rest;
        Ok(Some(Page { header, stored }))
    }

    /// Returns the decompressed values of a Parquet page, without the levels that a page of version 2 begins with.
    fn content(&mut self, header: &PageHeader, stored: &'a [u8]) -> Result<Cow<'a, [u8]>> {
        let levels = header
            .definition_levels
            .saturating_add(header.repetition_levels);
        let size = header.size.checked_sub(levels).ok_or_else(damaged)?;
        let size = usize::try_from(size).map_err(|_| damaged())?;
        let left = self.limit.checked_sub(size);
        self.limit = left.ok_or_else(|| {
            Error::too_large(
                "",
                "a column of the Parquet file is too long: give more --memory",
            )
        })?;
        let content = match self.codec {
            // Writers differ in how they compress an empty page, so its stored bytes are ignored.
            _ if size == 0 => return Ok(Cow::default()),
            _ if !header.is_compressed => return Ok(Cow::Borrowed(stored)),
            0 => return Ok(Cow::Borrowed(stored)),
            1 => {
                let mut content = vec![0; size];
                let length = snap::raw::Decoder::new().decompress(stored, &mut content);
                content.truncate(length.map_err(|_| damaged())?);
                content
            }
            6 => {
                let mut content = Vec::new();
                let decoder = zstd::Decoder::new(stored).map_err(|_| damaged())?;
                let mut limited = decoder.take(size as u64 + 1);
                limited.read_to_end(&mut content).map_err(|_| damaged())?;
                content
            }
            _ => return Err(unsupported("a compression other than zstd and snappy")),
        };
        if content.len() != size {
            return Err(damaged());
        }
        Ok(Cow::Owned(content))
    }

    /// Calls `each` with the values of a Parquet data page.
    fn data_page(
        &mut self,
        page: &Page<'a>,
        dictionary: &[CellValue<'_>],
        each: &mut impl FnMut(Option<CellValue<'_>>) -> Result<()>,
    ) -> Result<()> {
        let Page { header, stored } = page;
        self.rows = self.rows.checked_sub(header.values).ok_or_else(damaged)?;
        if header.values == 0 {
            return Ok(());
        }
        let place = |length: u64| usize::try_from(length).unwrap_or(usize::MAX);
        let content;
        let (levels, values) = if header.kind == PageKind::Data2 {
            let (_, rest) = stored
                .split_at_checked(place(header.repetition_levels))
                .ok_or_else(damaged)?;
            let (levels, rest) = rest
                .split_at_checked(place(header.definition_levels))
                .ok_or_else(damaged)?;
            content = self.content(header, rest)?;
            (levels, &*content)
        } else {
            content = self.content(header, stored)?;
            if self.is_optional {
                prefixed(&content).ok_or_else(damaged)?
            } else {
                (&[][..], &*content)
            }
        };
        let mut levels = Runs::new(levels, 1)?;
        let mut values = Values::new(header.encoding, self.physical, values, dictionary)?;
        for _ in 0..header.values {
            let is_there = !self.is_optional || levels.next()? == 1;
            let cell = is_there.then(|| values.next()).transpose()?;
            each(cell)?;
        }
        Ok(())
    }
}

/// Splits bytes that begin with their own length (4 bytes) into the bytes of that length and the rest.
fn prefixed(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
}

impl PageHeader {
    fn read(thrift: &mut Thrift<'_>) -> Result<PageHeader> {
        let mut read = PageHeader {
            is_compressed: true,
            ..PageHeader::default()
        };
        thrift.structure(|thrift, field| {
            match field.id {
                1 => read.kind = PageKind::of(thrift.number()?),
                2 => read.size = thrift.count()?,
                3 => read.stored = thrift.count()?,
                5 | 7 => thrift.structure(|thrift, field| {
                    match field.id {
                        1 => read.values = thrift.count()?,
                        2 => read.encoding = thrift.number()?,
                        _ => return Ok(false),
                    }
                    Ok(true)
                })?,
                8 => thrift.structure(|thrift, field| {
                    match field.id {
                        1 => read.values = thrift.count()?,
                        4 => read.encoding = thrift.number()?,
                        5 => read.definition_levels = thrift.count()?,
                        6 => read.repetition_levels = thrift.count()?,
                        7 => {
                            read.is_compressed = field.flag();
                            return Ok(false);
                        }
                        _ => return Ok(false),
                    }
                    Ok(true)
                })?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(read)
    }
}

/// Decodes the values of a Parquet page.
enum Values<'a> {
    Plain(Plain<'a>),
    Indexed {
        indexes: Runs<'a>,
        dictionary: &'a [CellValue<'a>],
    },
}

/// Values in Parquet's PLAIN encoding, one after the other.
struct Plain<'a> {
    bytes: &'a [u8],
    physical: Physical,
}

impl<'a> Values<'a> {
    fn new(
        encoding: i64,
        physical: Physical,
        bytes: &'a [u8],
        dictionary: &'a [CellValue<'a>],
    ) -> Result<Values<'a>> {
        match encoding {
            0 => Ok(Values::Plain(Plain { bytes, physical })),
            2 | 8 => {
                // A page without values lacks even the byte that states the width of dictionary indexes.
                let (width, bytes) = bytes.split_first().unwrap_or((&0, &[]));
                Ok(Values::Indexed {
                    indexes: Runs::new(bytes, (*width).into())?,
                    dictionary,
                })
            }
            _ => Err(unsupported("an encoding other than PLAIN and dictionaries")),
        }
    }

    fn next(&mut self) -> Result<CellValue<'a>> {
        match self {
            Values::Plain(plain) => plain.next(),
            Values::Indexed {
                indexes,
                dictionary,
            } => {
                let index = indexes.next()?;
                dictionary.get(index as usize).copied().ok_or_else(damaged)
            }
        }
    }
}

impl<'a> Plain<'a> {
    fn next(&mut self) -> Result<CellValue<'a>> {
        let next = || -> Option<(CellValue<'a>, &'a [u8])> {
            Some(match self.physical {
                Physical::Int32 => {
                    let (number, rest) = self.bytes.split_first_chunk::<4>()?;
                    (CellValue::Number(i32::from_le_bytes(*number).into()), rest)
                }
                Physical::Int64 => {
                    let (number, rest) = self.bytes.split_first_chunk::<8>()?;
                    (CellValue::Number(i64::from_le_bytes(*number)), rest)
                }
                Physical::ByteArray => {
                    let (bytes, rest) = prefixed(self.bytes)?;
                    (CellValue::Bytes(bytes), rest)
                }
            })
        };
        let (value, rest) = next().ok_or_else(damaged)?;
        self.bytes = rest;
        Ok(value)
    }
}

/// Decodes Parquet's run-length and bit-packed numbers of `width` bits: definition levels and dictionary indexes.
struct Runs<'a> {
    bytes: &'a [u8],
    width: u32,
    run: Run<'a>,
}

/// The numbers of the current run that are not read yet.
enum Run<'a> {
    Repeated {
        value: u32,
        left: u64,
    },
    Packed {
        bytes: &'a [u8],
        bit: u64,
        left: u64,
    },
}

impl<'a> Runs<'a> {
    /// Creates a decoder for numbers of `width` bits, at most 32.
    fn new(bytes: &'a [u8], width: u32) -> Result<Runs<'a>> {
        if width > 32 {
            return Err(damaged());
        }
        Ok(Runs {
            bytes,
            width,
            run: Run::Repeated { value: 0, left: 0 },
        })
    }

    fn next(&mut self) -> Result<u32> {
        loop {
            match &mut self.run {
                Run::Repeated { value, left } if *left > 0 => {
                    *left -= 1;
                    return Ok(*value);
                }
                Run::Packed { bytes, bit, left } if *left > 0 => {
                    let value = packed(bytes, *bit, self.width).ok_or_else(damaged)?;
                    *bit += u64::from(self.width);
                    *left -= 1;
                    return Ok(value);
                }
                _ => self.run = self.next_run()?,
            }
        }
    }

    fn next_run(&mut self) -> Result<Run<'a>> {
        let header = read_varint(&mut self.bytes).ok_or_else(damaged)?;
        let count = header >> 1;
        if count == 0 {
            return Err(damaged());
        }
        if header & 1 == 0 {
            let length = self.width.div_ceil(8) as usize;
            let (bytes, rest) = self.bytes.split_at_checked(length).ok_or_else(damaged)?;
            self.bytes = rest;
            let value = bytes
                .iter()
                .rev()
                .fold(0u32, |value, &byte| value << 8 | u32::from(byte));
            return Ok(Run::Repeated { value, left: count });
        }
        // A bit-packed run consists of groups of 8 numbers. Some writers leave out the end of the last group.
        let length = count.checked_mul(self.width.into()).ok_or_else(damaged)?;
        let length = usize::try_from(length)
            .unwrap_or(usize::MAX)
            .min(self.bytes.len());
        let (bytes, rest) = self.bytes.split_at_checked(length).ok_or_else(damaged)?;
        self.bytes = rest;
        let left = count.checked_mul(8).ok_or_else(damaged)?;
        Ok(Run::Packed {
            bytes,
            bit: 0,
            left,
        })
    }
}

/// Returns the bit-packed number of `width` bits that begins at bit `bit`. A byte's lowest bit comes first.
fn packed(bytes: &[u8], bit: u64, width: u32) -> Option<u32> {
    if width == 0 {
        return Some(0);
    }
    let start = usize::try_from(bit / 8).ok()?;
    let end = usize::try_from((bit + u64::from(width)).div_ceil(8)).ok()?;
    let part = bytes.get(start..end)?;
    let whole = part
        .iter()
        .rev()
        .fold(0u64, |value, &byte| value << 8 | u64::from(byte));
    let mask = (1u64 << width) - 1;
    u32::try_from(whole >> (bit % 8) & mask).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(bytes: &[u8], width: u32, count: usize) -> Result<Vec<u32>> {
        let mut runs = Runs::new(bytes, width)?;
        (0..count).map(|_| runs.next()).collect()
    }

    #[test]
    fn repeated_and_packed_runs_are_decoded() {
        // The specification's example of bit packing: the numbers 0 to 7, in 3 bits each.
        let packed = [0b11, 0b1000_1000, 0b1100_0110, 0b1111_1010];
        assert_eq!(numbers(&packed, 3, 8).unwrap(), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(numbers(&[6, 9, 4, 1], 4, 5).unwrap(), [9, 9, 9, 1, 1]);
        assert_eq!(numbers(&[4, 0x34, 0x12], 13, 2).unwrap(), [0x1234; 2]);
        assert_eq!(numbers(&[8], 0, 4).unwrap(), [0; 4]);
        assert!(numbers(&packed, 3, 9).is_err());
        assert!(numbers(&[0], 3, 1).is_err());
        assert!(numbers(&[6], 3, 1).is_err());
        assert!(numbers(&[], 33, 0).is_err());
    }
}
