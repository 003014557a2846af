//! Reads Parquet files of chunk references: flat columns of numbers and bytes.
//!
//! Supported are the encodings PLAIN and dictionary, in pages of version 1 and 2, uncompressed or compressed by zstd or
//! snappy: pyarrow and fastparquet write these for fsspec. The crate `parquet` is not used, since these files come from
//! anybody: it allocates whatever length a page's header states, up to 2 GiB beyond any budget, and has hundreds of
//! assertions.

use zarr_format::error::{Error, Kind, Result};

mod column;
mod thrift;

pub(super) use column::CellValue;
use column::ColumnReader;
use thrift::Thrift;

/// The magic bytes at the beginning and end of a Parquet file.
const MAGIC: &[u8] = b"PAR1";

/// A Parquet file, with its schema and its columns.
pub(super) struct ParquetFile<'a> {
    bytes: &'a [u8],
    fields: Vec<SchemaField<'a>>,
    /// The columns of all row groups.
    chunks: Vec<ColumnChunk<'a>>,
}

/// A field of the Parquet schema.
#[derive(Default)]
struct SchemaField<'a> {
    name: &'a [u8],
    physical_type: i64,
    is_optional: bool,
    is_repeated: bool,
    children: i64,
}

/// One column in one row group of a Parquet file.
#[derive(Default)]
struct ColumnChunk<'a> {
    name: &'a [u8],
    codec: i64,
    values: u64,
    data: u64,
    dictionary: Option<u64>,
    /// Total length of the column's pages in the file, in bytes.
    length: u64,
}

fn damaged() -> Error {
    Error::corrupt("", "the Parquet file is damaged")
}

fn unsupported(what: &str) -> Error {
    Error::new(
        Kind::Unsupported,
        "",
        format!("the Parquet file has {what}, which zarrfs does not read"),
    )
}

/// Reads a varint (LEB128). Returns `None` if the bytes end too early or the number has more than 64 bits.
fn read_varint(bytes: &mut &[u8]) -> Option<u64> {
    let (mut number, mut shift) = (0, 0);
    loop {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte < 0x80 {
            return Some(number);
        }
        shift += 7;
    }
}

impl<'a> ParquetFile<'a> {
    /// Reads the footer of a Parquet file.
    pub(super) fn new(bytes: &'a [u8]) -> Result<ParquetFile<'a>> {
        let footer = bytes
            .strip_suffix(MAGIC)
            .filter(|_| bytes.starts_with(MAGIC));
        let (rest, length) = footer
            .and_then(<[u8]>::split_last_chunk::<4>)
            .ok_or_else(damaged)?;
        let start = rest.len().checked_sub(u32::from_le_bytes(*length) as usize);
        let footer = start
            .and_then(|start| rest.get(start..))
            .ok_or_else(damaged)?;
        let (mut fields, mut chunks) = (Vec::new(), Vec::new());
        Thrift::new(footer).structure(|thrift, field| {
            match field.id {
                2 => thrift.list(|thrift| {
                    fields.push(SchemaField::read(thrift)?);
                    Ok(())
                })?,
                4 => thrift.list(|thrift| read_row_group(thrift, &mut chunks))?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        // The schema's first field is the root, whose children are the columns.
        if fields
            .iter()
            .skip(1)
            .any(|field| field.is_repeated || field.children != 0)
        {
            return Err(unsupported("nested columns"));
        }
        Ok(ParquetFile {
            bytes,
            fields,
            chunks,
        })
    }

    /// Calls `each` with the value of a column in every row, or with `None` for a row without a value. If the column is
    /// missing, `each` is never called. The column's pages may have `limit` bytes in total when decompressed.
    pub(super) fn read_column(
        &self,
        name: &str,
        limit: usize,
        mut each: impl FnMut(Option<CellValue<'_>>) -> Result<()>,
    ) -> Result<()> {
        let mut fields = self.fields.iter().skip(1);
        let Some(field) = fields.find(|field| field.name == name.as_bytes()) else {
            return Ok(());
        };
        for chunk in self.chunks.iter().filter(|chunk| chunk.name == field.name) {
            ColumnReader::new(self.bytes, field, chunk, limit)?.read(&mut each)?;
        }
        Ok(())
    }
}

impl<'a> SchemaField<'a> {
    fn read(thrift: &mut Thrift<'a>) -> Result<SchemaField<'a>> {
        let mut read = SchemaField::default();
        thrift.structure(|thrift, field| {
            match field.id {
                1 => read.physical_type = thrift.number()?,
                3 => {
                    let repetition = thrift.number()?;
                    read.is_optional = repetition == 1;
                    read.is_repeated = repetition > 1;
                }
                4 => read.name = thrift.text()?,
                5 => read.children = thrift.number()?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(read)
    }
}

/// Reads the columns' metadata in a Parquet row group.
fn read_row_group<'a>(thrift: &mut Thrift<'a>, chunks: &mut Vec<ColumnChunk<'a>>) -> Result<()> {
    thrift.structure(|thrift, field| {
        if field.id != 1 {
            return Ok(false);
        }
        thrift.list(|thrift| {
            thrift.structure(|thrift, field| {
                if field.id != 3 {
                    return Ok(false);
                }
                chunks.push(ColumnChunk::read(thrift)?);
                Ok(true)
            })
        })?;
        Ok(true)
    })
}

impl<'a> ColumnChunk<'a> {
    fn read(thrift: &mut Thrift<'a>) -> Result<ColumnChunk<'a>> {
        let mut read = ColumnChunk::default();
        thrift.structure(|thrift, field| {
            match field.id {
                3 => thrift.list(|thrift| {
                    read.name = thrift.text()?;
                    Ok(())
                })?,
                4 => read.codec = thrift.number()?,
                5 => read.values = thrift.count()?,
                7 => read.length = thrift.count()?,
                9 => read.data = thrift.count()?,
                11 => read.dictionary = Some(thrift.count()?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(read)
    }
}
