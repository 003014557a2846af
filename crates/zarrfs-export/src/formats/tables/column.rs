//! Formats the columns of a table as text, one block of rows at a time.

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

/// The elements of an array, read a block of rows at a time.
pub(crate) struct RowReader<'a> {
    member: &'a GroupMember,
    /// The elements of a fixed length.
    flat: Option<Export>,
    /// Size in bytes of an element of fixed length.
    size: usize,
    /// Number of elements in a row.
    row: u64,
    block: Block,
}

/// The elements of a block of rows. The range has the bytes, or the index, of the current element.
enum Block {
    Empty,
    Flat(ReadBytes, Range<usize>),
    Ragged(VlenElements, Range<usize>),
}

impl<'a> RowReader<'a> {
    /// Opens an array of at least one dimension; fails as `GroupMember::elements` does.
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

    /// Returns the approximate size of a row in bytes. An element without a fixed length is assumed to have 64 bytes.
    fn row_bytes(&self) -> u64 {
        let element = self.flat.as_ref().map_or(64, |_| self.size as u64);
        element.saturating_mul(self.row)
    }

    /// Returns the bytes of a row for which memory must be reserved. Elements without a fixed length reserve theirs
    /// themselves.
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

    /// Reads some rows and moves the reader to the first of them.
    pub(crate) fn load(&mut self, context: &RequestContext, rows: &Range<u64>) -> Result<()> {
        // Releases the previous block first, so that memory holds only one.
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

    /// Moves to the next element.
    pub(crate) fn advance(&mut self) {
        match &mut self.block {
            Block::Empty => {}
            Block::Flat(_, at) => *at = at.end..at.end + self.size,
            Block::Ragged(records, at) => *at = records.after(at.end),
        }
    }

    /// Returns the current element.
    pub(crate) fn element(&self) -> &[u8] {
        let element = match &self.block {
            Block::Empty => None,
            Block::Flat(bytes, at) => bytes.get(at.clone()),
            Block::Ragged(records, at) => records.bytes().get(at.clone()),
        };
        element.unwrap_or_default()
    }
}

/// Divides rows into blocks, so that few elements are in memory at once. If memory allows, a block has whole chunks, so
/// that no chunk is decoded twice.
pub(crate) struct RowBlocks {
    rows: u64,
    block: u64,
    _room: Reservation,
}

impl RowBlocks {
    /// Divides `rows` rows into blocks, and reserves memory for the elements of one block: at most 1/16 of `limit`, the
    /// memory budget of a file in bytes. The text of the file and a decoded chunk may take nearly all of the budget
    /// (`Limits::of_chunk`). A block has at least 4096 rows, or as many as 1/16 of the budget allows.
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

    /// Returns the range of rows of each block.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        let starts = std::iter::successors(Some(0_u64), |&start| start.checked_add(self.block));
        let starts = starts.take_while(|&start| start < self.rows);
        starts.map(|start| start..start.saturating_add(self.block).min(self.rows))
    }
}

/// The texts of all categories of a column, in the order of their codes.
pub(crate) struct Labels {
    text: ReservedBytes,
    /// For each text, the index after its last byte in `text`.
    ends: Vec<usize>,
    _room: Reservation,
}

impl Labels {
    /// Reads all categories.
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

    /// Returns the text of the category with a code, or `None` if there is no such category.
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

/// Whether an element of a mask marks a missing value.
fn is_true(mask: &[u8]) -> bool {
    mask.iter().any(|&byte| byte != 0)
}

/// A column of a table: which readers its elements come from, and how a cell is written.
pub(crate) enum TextColumn {
    /// Each cell is one element, or one field of an element.
    Plain {
        reader: usize,
        cell: TextCell,
        /// The bytes of the field in an element; `None` for the whole element.
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
    /// Appends the cell of the current row. Fails with `Corrupt` if no category has the code.
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

/// Returns the code of a category, or `None` for a missing value.
fn code(element: &[u8], is_signed: bool) -> Option<u64> {
    u64::try_from(elements::integer(element, is_signed)).ok()
}
