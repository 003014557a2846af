//! `.csv` and `.ndjson`: numbers as text, one row of an array a line.
//!
//! Each number has the width of the longest one of its type, spaces before it, so that the length of a file is known and
//! any range of it can be made. Numbers are as short as they can be for others to read the same ones.

use std::borrow::Cow;
use std::fmt::Write;

use crate::array::ragged::{Growing, RaggedElements};
use crate::error::Result;
use crate::export::calendar::Calendar;
use crate::export::conversion::Conversion;
use crate::export::times::time_text;
use crate::export::{ElementForm, FileParts, Format, Ragged, Subject, txt};
use crate::model::DataType;

use half::f16;
use std::sync::Arc;

/// Rows of comma-separated values without a line of names; NaN is empty.
pub const CSV: Format = Format {
    extension: "csv",
    parts: Some(|subject| parts(subject, RowNotation::Commas)),
    ragged: Some(Ragged::Made(commas)),
    is_basic: false,
};

/// A JSON value a line: a number of an array of one dimension, a list of one of two; what JSON lacks is null.
pub const NDJSON: Format = Format {
    extension: "ndjson",
    parts: Some(|subject| parts(subject, RowNotation::Json)),
    ragged: Some(Ragged::Made(json)),
    is_basic: false,
};

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowNotation {
    Commas,
    Json,
}

/// What an element is, as far as its text depends on that.
#[derive(Clone, Copy, Debug)]
enum Cell {
    Truth,
    Signed(usize),
    Unsigned(usize),
    Half,
    Single,
    Double,
    /// Nanoseconds since 1970.
    Time,
}

impl Cell {
    fn of(data_type: &DataType) -> Option<Cell> {
        Some(match data_type {
            DataType::Bool => Cell::Truth,
            DataType::Int(size) => Cell::Signed(*size),
            DataType::UInt(size) => Cell::Unsigned(*size),
            DataType::Float(2) => Cell::Half,
            DataType::Float(4) => Cell::Single,
            DataType::Float(8) => Cell::Double,
            DataType::DateTime(unit) if unit.name == "ns" && unit.scale == 1 => Cell::Time,
            _ => return None,
        })
    }

    /// Returns the letters of the longest value.
    fn width(self) -> usize {
        match self {
            Cell::Truth => 5,
            Cell::Signed(1) => 4,
            Cell::Unsigned(1) => 3,
            Cell::Signed(2) => 6,
            Cell::Unsigned(2) => 5,
            Cell::Signed(4) => 11,
            Cell::Unsigned(4) => 10,
            Cell::Signed(_) | Cell::Unsigned(_) => 20,
            Cell::Half => 15,
            Cell::Single => 19,
            Cell::Double => 24,
            // With quotes.
            Cell::Time => 31,
        }
    }

    fn size(self) -> usize {
        match self {
            Cell::Truth => 1,
            Cell::Signed(size) | Cell::Unsigned(size) => size,
            Cell::Half => 2,
            Cell::Single => 4,
            Cell::Double | Cell::Time => 8,
        }
    }

    /// Writes an element; what is no number is `nothing`.
    fn write(self, element: &[u8], notation: RowNotation, text: &mut String) {
        let mut wide = [0; 8];
        let size = element.len().min(8);
        wide[..size].copy_from_slice(&element[..size]);
        let word = u64::from_le_bytes(wide);
        let low = |word: u64| u32::try_from(word & u64::from(u32::MAX)).unwrap_or_default();
        // Writing into a text does not fail.
        let _ = match self {
            Cell::Truth => write!(text, "{}", word != 0),
            Cell::Unsigned(_) => write!(text, "{word}"),
            Cell::Signed(size) => {
                let unused = 64 - 8 * u32::try_from(size).unwrap_or(8).min(8);
                write!(text, "{}", (word << unused).cast_signed() >> unused)
            }
            Cell::Half => {
                let bits = u16::try_from(word & 0xffff).unwrap_or_default();
                float(f16::from_bits(bits).to_f32(), notation, text)
            }
            Cell::Single => float(f32::from_bits(low(word)), notation, text),
            Cell::Double => float(f64::from_bits(word), notation, text),
            Cell::Time => {
                let time = word.cast_signed();
                if time == i64::MIN {
                    text.push_str(notation.nothing());
                    return;
                }
                match notation {
                    RowNotation::Commas => {
                        write!(text, "{}", time_text(i128::from(time), Calendar::Gregorian))
                    }
                    RowNotation::Json => write!(
                        text,
                        "\"{}\"",
                        time_text(i128::from(time), Calendar::Gregorian)
                    ),
                }
            }
        };
    }
}

impl RowNotation {
    /// Returns what stands for no number.
    fn nothing(self) -> &'static str {
        match self {
            RowNotation::Commas => "",
            RowNotation::Json => "null",
        }
    }
}

fn float<T: Into<f64> + Copy + std::fmt::Debug>(
    number: T,
    notation: RowNotation,
    text: &mut String,
) -> std::fmt::Result {
    let wide: f64 = number.into();
    if wide.is_nan() || (wide.is_infinite() && notation == RowNotation::Json) {
        text.push_str(notation.nothing());
        return Ok(());
    }
    // The shortest digits that are read as the same number.
    write!(text, "{number:?}")
}

fn parts(subject: &Subject, notation: RowNotation) -> Option<FileParts> {
    let cell = Cell::of(&subject.array.data_type)?;
    let (row, is_list) = match *subject.shape {
        [_] => (1, false),
        [_, row] => (row, true),
        _ => return None,
    };
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
        trailer: Vec::new(),
    })
}

/// Elements as text with what stands between them.
#[derive(Debug)]
struct TextCells {
    cell: Cell,
    /// Elements of a line.
    row: u64,
    /// Whether a line is a list.
    is_list: bool,
    notation: RowNotation,
}

impl Conversion for TextCells {
    fn written_size(&self) -> usize {
        // A bracket before and after, or a comma or newline alone.
        self.cell.width() + if self.is_list { 3 } else { 1 }
    }

    fn convert(&self, decoded: &[u8], written: &mut [u8]) {
        self.convert_at(0, decoded, written);
    }

    fn convert_at(&self, first: u64, decoded: &[u8], written: &mut [u8]) {
        let (size, width) = (self.cell.size(), self.cell.width());
        let cells = written.chunks_exact_mut(self.written_size());
        let mut text = String::with_capacity(width);
        for ((element, cell), number) in decoded.chunks_exact(size).zip(cells).zip(first..) {
            text.clear();
            self.cell.write(element, self.notation, &mut text);
            cell.fill(b' ');
            let at = number % self.row;
            let end = cell.len() - if self.is_list { 2 } else { 1 };
            let start = end.saturating_sub(text.len());
            cell[start..end].copy_from_slice(&text.as_bytes()[..end - start]);
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

/// Returns an element in quotes: text as it is, what is none as JSON.
fn quoted(data_type: &DataType, record: &[u8]) -> String {
    let text = match (data_type, str::from_utf8(record)) {
        (DataType::List(_), _) | (_, Err(_)) => Cow::from(txt::line(data_type, record)),
        (_, Ok(text)) => Cow::from(text),
    };
    format!("\"{}\"", text.replace('"', "\"\""))
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
            RowNotation::Commas => quoted(records.data_type(), record),
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
    fn every_half_float_fits_into_its_cell() {
        let mut longest = 0;
        for bits in 0..=u16::MAX {
            for notation in [RowNotation::Commas, RowNotation::Json] {
                let mut text = String::new();
                Cell::Half.write(&bits.to_le_bytes(), notation, &mut text);
                longest = longest.max(text.len());
                let number = f16::from_bits(bits).to_f32();
                let is_same = text.parse() == Ok(number);
                assert!(is_same || !number.is_finite(), "{bits:04x}: {text}");
            }
        }
        assert_eq!(longest, Cell::Half.width());
    }

    #[test]
    fn elements_that_are_no_text_keep_their_values() {
        let list = DataType::List(Box::new(DataType::UInt(1)));
        assert_eq!(quoted(&list, b"ab"), "\"[97,98]\"");
        assert_eq!(quoted(&DataType::Bytes, b"a\"b"), "\"a\"\"b\"");
        assert_eq!(quoted(&DataType::Bytes, b"\xff\0"), "\"[255,0]\"");
    }
}
