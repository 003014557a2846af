//! Formats the columns of a text table, one block of rows at a time.

use std::ops::Range;

use crate::formats::group::GroupMember;
use crate::formats::tables::cell::{RowNotation, TextCell};
use crate::formats::{Export, elements};
use zarr_format::error::{Error, Result};
use zarr_format::model::bytes_of;
use zarrfs_array::array::vlen_elements::{ReservedBytes, VlenElements};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::budget::Reservation;
use zarrfs_store::sync::read_bytes::{ReadAt, ReadBytes};

/// Reads the elements of an array, one block of rows at a time.
pub(crate) struct RowReader<'a> {
    member: &'a GroupMember,
    /// The elements, if they have a fixed length.
    flat: Option<Export>,
    size: usize,
    row: u64,
    block: Block,
}

/// The elements of the block of rows that was read last. The range says which bytes, or which records, are the current
/// element.
enum Block {
    Empty,
    Flat(ReadBytes, Range<usize>),
    Ragged(VlenElements, Range<usize>),
}

impl<'a> RowReader<'a> {
    /// Opens an array of at least one dimension for reading in rows. Fails as `GroupMember::elements` does.
    pub(crate) fn open(member: &'a GroupMember) -> Result<RowReader<'a>> {
        let shape = member.source()?.selection.shape();
        let is_ragged = member.array.data_type.is_variable();
        Ok(RowReader {
            member,
            flat: (!is_ragged).then(|| member.elements()).transpose()?,
            size: if is_ragged {
                0
            } else {
                member.array.element_size()?
            },
            row: bytes_of(shape.get(1..).unwrap_or_default(), 1)?,
            block: Block::Empty,
        })
    }

    /// Returns the approximate size of a row in bytes. An element of variable length is assumed to have 64 bytes.
    fn row_bytes(&self) -> u64 {
        let element = self.flat.as_ref().map_or(64, |_| self.size as u64);
        element.saturating_mul(self.row)
    }

    /// Returns the bytes of a row for which the caller must reserve memory. Elements of variable length count 0,
    /// because reading them reserves memory itself.
    fn uncounted_bytes(&self) -> u64 {
        (self.size as u64).saturating_mul(self.row)
    }

    /// Returns the number of rows in a decoded chunk.
    fn chunk_rows(&self) -> u64 {
        let source = self.member.source().ok();
        let rows = source.and_then(|source| {
            let axis = *source.selection.remaining_axes().first()?;
            let grid = source.array.decoded_grid().ok()?;
            grid.chunk_shape().get(axis).copied()
        });
        rows.unwrap_or(1)
    }

    /// Reads a block of rows; its first element becomes the current one.
    pub(crate) fn load(&mut self, context: &RequestContext, rows: &Range<u64>) -> Result<()> {
        // The previous block is released first, so that memory holds only one block.
        self.block = Block::Empty;
        let elements = rows.start.saturating_mul(self.row)..rows.end.saturating_mul(self.row);
        self.block = match &self.flat {
            Some(flat) => {
                let size = self.size as u64;
                let bytes = elements.start * size..elements.end * size;
                let length = usize::try_from(bytes.end - bytes.start);
                let length = length.map_err(|error| Error::too_large(&self.member.path, error))?;
                let read = flat.read_at(context, bytes.start, length)?;
                if read.len() != length {
                    let found = format!("read only {} of {length} bytes", read.len());
                    return Err(Error::corrupt(&self.member.path, found));
                }
                Block::Flat(read, 0..0)
            }
            None => Block::Ragged(self.member.records_of(context, rows)?, 0..0),
        };
        Ok(())
    }

    /// Makes the next element of the block of rows the current one.
    pub(crate) fn advance(&mut self) {
        match &mut self.block {
            Block::Empty => {}
            Block::Flat(_, at) => *at = at.end..at.end + self.size,
            Block::Ragged(records, at) => *at = records.after(at.end),
        }
    }

    /// Returns the bytes of the current element.
    pub(crate) fn element(&self) -> &[u8] {
        let element = match &self.block {
            Block::Empty => None,
            Block::Flat(bytes, at) => bytes.get(at.clone()),
            Block::Ragged(records, at) => records.bytes().get(at.clone()),
        };
        element.unwrap_or_default()
    }
}

/// Divides the rows of a table into blocks, so that few elements are in memory at once. If memory allows, a block has
/// whole chunks, so that no chunk is decoded twice.
pub(crate) struct RowBlocks {
    rows: u64,
    block: u64,
    _room: Reservation,
}

impl RowBlocks {
    /// Divides `rows` rows into blocks, and reserves memory for the elements of one block: at most 1/16 of `limit`, the
    /// memory budget of a file in bytes, because the text of the file and a decoded chunk may take nearly all of the
    /// budget (`Limits::of_chunk`). A block has at least 4096 rows, or as many as 1/16 of the budget allows.
    pub(crate) fn of(readers: &[RowReader<'_>], rows: u64, limit: u64) -> Result<RowBlocks> {
        let chunk = readers.iter().map(RowReader::chunk_rows).max();
        let row: u64 = readers.iter().map(RowReader::row_bytes).sum();
        let fit = limit / 16 / row.max(1);
        let block = chunk.unwrap_or(1).max(4096).min(rows).clamp(1, fit.max(1));
        let first = readers.first().map(|reader| reader.member.source());
        let first = first.ok_or_else(|| Error::invalid("table", "the table has no columns"))??;
        let uncounted: u64 = readers.iter().map(RowReader::uncounted_bytes).sum();
        Ok(RowBlocks {
            rows,
            block,
            _room: first.array.room(uncounted.saturating_mul(block))?,
        })
    }

    /// Returns the ranges of row numbers of all blocks.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        let starts = std::iter::successors(Some(0_u64), |&start| start.checked_add(self.block));
        let starts = starts.take_while(|&start| start < self.rows);
        starts.map(|start| start..start.saturating_add(self.block).min(self.rows))
    }
}

/// The texts of all categories of a categorical column, in the order of their codes.
pub(crate) struct Labels {
    text: ReservedBytes,
    /// For each category, the index after the last byte of its text in `text`.
    ends: Vec<usize>,
    _room: Reservation,
}

impl Labels {
    /// Reads the texts of all categories of a column.
    pub(crate) fn read(
        context: &RequestContext,
        member: &GroupMember,
        mask: Option<&GroupMember>,
        cell: &TextCell,
        notation: RowNotation,
    ) -> Result<Labels> {
        let shape = member.source()?.selection.shape();
        let count = bytes_of(&shape, 1)?;
        let array = &member.source()?.array;
        let room = array.room(count.saturating_mul(size_of::<usize>() as u64))?;
        let mut out = array.growing();
        let limit = out.limit();
        let members = [Some(member), mask].into_iter().flatten();
        let mut readers = members.map(RowReader::open).collect::<Result<Vec<_>>>()?;
        let mut labels = Vec::with_capacity(usize::try_from(count).unwrap_or_default());
        let (mut end, mut text) = (0, String::new());
        for rows in RowBlocks::of(&readers, count, limit)?.iter() {
            for reader in &mut readers {
                reader.load(context, &rows)?;
            }
            for _ in rows {
                readers.iter_mut().for_each(RowReader::advance);
                text.clear();
                match &readers[..] {
                    [_, mask] if is_true(mask.element()) => cell.write_nothing(notation, &mut text),
                    [label, ..] => cell.write(label.element(), notation, &mut text),
                    [] => {}
                }
                out.push(text.as_bytes())?;
                end += text.len();
                labels.push(end);
            }
        }
        Ok(Labels {
            text: out.finish(),
            ends: labels,
            _room: room,
        })
    }

    /// Returns the text of the category with a code, or `None` if no category has the code.
    fn get(&self, code: u64) -> Option<&str> {
        let code = usize::try_from(code).ok()?;
        let end = *self.ends.get(code)?;
        let start = match code {
            0 => 0,
            _ => *self.ends.get(code - 1)?,
        };
        str::from_utf8(self.text.get(start..end)?).ok()
    }
}

/// Whether an element of a column's mask marks a missing value.
fn is_true(mask: &[u8]) -> bool {
    mask.iter().any(|&byte| byte != 0)
}

/// A column of a text table: where its elements come from, and how its cells are written.
pub(crate) enum TextColumn {
    /// Each cell is an element, or a field of an element.
    Plain {
        reader: usize,
        cell: TextCell,
        /// The byte range of the field in an element; `None` for the whole element.
        field: Option<Range<usize>>,
    },
    /// Each cell is an element, or missing if the mask says so.
    Masked {
        reader: usize,
        mask: usize,
        cell: TextCell,
    },
    /// Each element is the code of a category, and the cell is the text of the category.
    Coded {
        reader: usize,
        is_signed: bool,
        labels: Labels,
        cell: TextCell,
    },
}

impl TextColumn {
    /// Appends the column's value in the current row to the table's text. Fails with `Corrupt` if the value is the code
    /// of a category that does not exist.
    pub(crate) fn write(
        &self,
        readers: &[RowReader<'_>],
        notation: RowNotation,
        text: &mut String,
    ) -> Result<()> {
        let element = |reader: &usize| readers.get(*reader).map_or(&[][..], RowReader::element);
        match self {
            TextColumn::Plain {
                reader,
                cell,
                field,
            } => {
                let element = element(reader);
                let field = field.as_ref().map(|field| element.get(field.clone()));
                cell.write(
                    field.map_or(element, Option::unwrap_or_default),
                    notation,
                    text,
                );
            }
            TextColumn::Masked { mask, cell, .. } if is_true(element(mask)) => {
                cell.write_nothing(notation, text);
            }
            TextColumn::Masked { reader, cell, .. } => {
                cell.write(element(reader), notation, text);
            }
            TextColumn::Coded {
                reader,
                is_signed,
                labels,
                cell,
            } => match code(element(reader), *is_signed) {
                None => cell.write_nothing(notation, text),
                Some(code) => {
                    let label = labels.get(code).ok_or_else(|| {
                        let path = readers
                            .get(*reader)
                            .map_or("", |reader| &reader.member.path);
                        let count = labels.ends.len();
                        Error::corrupt(
                            path,
                            format!("code {code} is out of range of {count} categories"),
                        )
                    })?;
                    text.push_str(label);
                }
            },
        }
        Ok(())
    }
}

/// Returns the category code in an element, or `None` for a missing value (a negative code).
fn code(element: &[u8], is_signed: bool) -> Option<u64> {
    u64::try_from(elements::integer(element, is_signed)).ok()
}
