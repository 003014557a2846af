//! `.csv` and `.ndjson`: elements as text, one row of an array a line.

use std::borrow::Cow;
use std::sync::Arc;

use crate::array::ragged::{Growing, RaggedElements};
use crate::error::Result;
use crate::export::conversion::Conversion;
use crate::export::text_cell::{RowNotation, TextCell};
use crate::export::{ElementForm, FileParts, Format, Ragged, Subject, txt};
use crate::model::DataType;

/// Rows of comma-separated values without a line of names; NaN is empty.
pub const CSV: Format = Format {
    extension: "csv",
    needs: NEEDS,
    parts: Some(|subject| parts(subject, RowNotation::Commas)),
    ragged: Some(Ragged::Rows(commas)),
    is_basic: false,
};

/// A JSON value a line: a number of an array of one dimension, a list of one of two; what JSON lacks is null.
pub const NDJSON: Format = Format {
    extension: "ndjson",
    needs: NEEDS,
    parts: Some(|subject| parts(subject, RowNotation::Json)),
    ragged: Some(Ragged::Rows(json)),
    is_basic: false,
};

const NEEDS: &str = "numbers that are not complex, times, texts of a fixed length up to 16384, or strings, in \
    1 or 2 dimensions";

fn parts(subject: &Subject, notation: RowNotation) -> Option<FileParts> {
    let cell = TextCell::of(&subject.array.data_type)?;
    let (row, is_list) = match *subject.shape {
        [_] => (1, false),
        [_, row] => (row, true),
        _ => return None,
    };
    let notation = notation.of_rows(row);
    let conversion = TextCells {
        cell,
        row: row.max(1),
        is_list: is_list && notation == RowNotation::Json,
        notation,
    };
    Some(FileParts {
        header: Vec::new(),
        elements: Some(ElementForm {
            order: None,
            conversion: Some(Arc::new(conversion)),
        }),
        ..FileParts::default()
    })
}

/// Elements as text with what stands between them.
#[derive(Debug)]
struct TextCells {
    cell: TextCell,
    /// Elements of a line.
    row: u64,
    /// Whether a line is a list.
    is_list: bool,
    notation: RowNotation,
}

impl Conversion for TextCells {
    fn written_size(&self) -> usize {
        // A bracket before and after, or a comma or newline alone.
        self.cell.width(self.notation) + if self.is_list { 3 } else { 1 }
    }

    fn convert(&self, decoded: &[u8], written: &mut [u8]) {
        self.convert_at(0, decoded, written);
    }

    fn convert_at(&self, first: u64, decoded: &[u8], written: &mut [u8]) {
        let (size, width) = (self.cell.size(), self.cell.width(self.notation));
        let cells = written.chunks_exact_mut(self.written_size());
        let mut text = String::with_capacity(width);
        for ((element, cell), number) in decoded.chunks_exact(size).zip(cells).zip(first..) {
            let at = number % self.row;
            let end = cell.len() - if self.is_list { 2 } else { 1 };
            cell[0] = b' ';
            let place = &mut cell[usize::from(self.is_list)..end];
            self.cell.put(element, self.notation, &mut text, place);
            let is_last = at + 1 == self.row;
            if self.is_list {
                if at == 0 {
                    cell[0] = b'[';
                }
                cell[end..].copy_from_slice(if is_last { b"]\n" } else { b", " });
            } else {
                cell[end] = if is_last { b'\n' } else { b',' };
            }
        }
    }

    fn digest(&self) -> u64 {
        self.row << 8 | (self.written_size() as u64) << 1 | u64::from(self.is_list)
    }
}

/// Writes elements without a fixed length, quoted.
fn commas(records: &RaggedElements, shape: &[u64], out: &mut Growing<'_>) -> Result<()> {
    made(records, shape, RowNotation::Commas, out)
}

fn json(records: &RaggedElements, shape: &[u64], out: &mut Growing<'_>) -> Result<()> {
    made(records, shape, RowNotation::Json, out)
}

/// Returns an element as text: what is none as JSON.
fn text_of<'a>(data_type: &DataType, record: &'a [u8]) -> Cow<'a, str> {
    match (data_type, str::from_utf8(record)) {
        (DataType::List(_), _) | (_, Err(_)) => Cow::from(txt::line(data_type, record)),
        (_, Ok(text)) => Cow::from(text),
    }
}

/// Returns an element in quotes.
fn quoted(data_type: &DataType, record: &[u8]) -> String {
    RowNotation::Commas.text(&text_of(data_type, record))
}

fn made(
    records: &RaggedElements,
    shape: &[u64],
    notation: RowNotation,
    out: &mut Growing<'_>,
) -> Result<()> {
    let row = match *shape {
        [_, row] => row.max(1),
        _ => 1,
    };
    let is_list = shape.len() == 2 && notation == RowNotation::Json;
    for (record, number) in records.iter().zip(0_u64..) {
        let text = match notation {
            RowNotation::Commas | RowNotation::Alone => quoted(records.data_type(), record),
            RowNotation::Json => txt::line(records.data_type(), record),
        };
        let (at, is_last) = (number % row, (number + 1) % row == 0);
        if at == 0 && is_list {
            out.push(b"[")?;
        }
        out.push(text.as_bytes())?;
        out.push(match (is_last, is_list) {
            (true, true) => b"]\n",
            (true, false) => b"\n",
            (false, _) => b",",
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_that_are_no_text_keep_their_values() {
        let list = DataType::List(Box::new(DataType::UInt(1)));
        assert_eq!(quoted(&list, b"ab"), "\"[97,98]\"");
        assert_eq!(quoted(&DataType::Bytes, b"a\"b"), "\"a\"\"b\"");
        assert_eq!(quoted(&DataType::Bytes, b"\xff\0"), "\"[255,0]\"");
    }
}
