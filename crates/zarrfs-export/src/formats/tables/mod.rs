//! Formats of tables as text: CSV, or one JSON object per row.
//!
//! The formats of an array are here, those of a group are in `group`.

use std::ops::Range;

use serde_json::Value;

use crate::formats::group::GroupMember;
use crate::formats::tables::cell::{RowNotation, TextCell};
use crate::formats::tables::column::{RowBlocks, RowReader, TextColumn};
use crate::formats::{FileParts, Format, Ragged, Subject};
use zarr_format::error::{Error, Result};
use zarr_format::model::{DataType, Field};
use zarrfs_array::array::vlen_elements::ReservedBuffer;
use zarrfs_store::request_context::RequestContext;

pub(crate) mod cell;
pub(crate) mod column;
pub(crate) mod group;

pub(crate) const MAX_COLUMNS: usize = 1024;

/// Writes a text table, and reads its elements while it writes.
pub(crate) struct TextTable<'a> {
    pub(crate) names: Vec<String>,
    pub(crate) columns: Vec<TextColumn>,
    pub(crate) readers: Vec<RowReader<'a>>,
    pub(crate) rows: u64,
}

impl TextTable<'_> {
    /// Writes the text of the table. Fails as `ReservedBuffer::push` does, and with the error of an element that cannot
    /// be read.
    pub(crate) fn write(
        mut self,
        context: &RequestContext,
        notation: RowNotation,
        out: &mut ReservedBuffer<'_>,
    ) -> Result<()> {
        let count = self.columns.len() as u64;
        // Each cell takes at least one byte, that of the comma or newline after it.
        out.check_room(self.rows.saturating_mul(count))?;
        let notation = notation.of_rows(count);
        let keys: Vec<String> = match notation {
            RowNotation::Json => before_cells(&self.names),
            RowNotation::Commas | RowNotation::Alone => {
                out.push(line_of_names(&self.names).as_bytes())?;
                let first = std::iter::once(String::new());
                first
                    .chain(std::iter::repeat_n(",".to_string(), self.names.len()))
                    .collect()
            }
        };
        let end = match notation {
            RowNotation::Json => "}\n",
            RowNotation::Commas | RowNotation::Alone => "\n",
        };
        let blocks = RowBlocks::of(&self.readers, self.rows, out.limit())?;
        let mut line = String::new();
        for rows in blocks.iter() {
            for reader in &mut self.readers {
                reader.load(context, &rows)?;
            }
            for _ in rows {
                self.readers.iter_mut().for_each(RowReader::advance);
                line.clear();
                for (column, key) in self.columns.iter().zip(&keys) {
                    line.push_str(key);
                    column.write(&self.readers, notation, &mut line)?;
                }
                line.push_str(end);
                out.push(line.as_bytes())?;
            }
        }
        Ok(())
    }
}

/// Returns for each cell of a row the text that precedes it in a JSON object, such as `,"name":`.
fn before_cells(names: &[String]) -> Vec<String> {
    let keys = names.iter().enumerate().map(|(place, name)| {
        let opening = if place == 0 { "{" } else { "," };
        format!("{opening}{}:", Value::from(name.as_str()))
    });
    keys.collect()
}

fn line_of_names(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| field(name)).collect();
    format!("{}\n", names.join(","))
}

/// Returns a column name as a CSV field, in quotes if necessary.
fn field(name: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "_-./".contains(letter);
    if !name.is_empty() && name.chars().all(is_plain) {
        return name.to_string();
    }
    let mut text = String::new();
    RowNotation::Commas.push_text(name, &mut text);
    text
}

/// The format `.csv` of an array: rows of comma-separated values. Only structured elements have a first line, with the
/// names of the fields.
pub(crate) const CSV: Format = Format {
    extension: "csv",
    needs: NEEDS,
    parts: Some(|subject| parts(subject, RowNotation::Commas)),
    ragged: Some(Ragged::Rows(|context, member, out| {
        write(context, member, RowNotation::Commas, out)
    })),
    is_basic: false,
};

/// The format `.ndjson` of an array: one JSON object per row. It has the fields of a structured element, or else one
/// member with the array's name and the element or the list of the row's elements.
pub(crate) const NDJSON: Format = Format {
    extension: "ndjson",
    needs: NEEDS,
    parts: Some(|subject| parts(subject, RowNotation::Json)),
    ragged: Some(Ragged::Rows(|context, member, out| {
        write(context, member, RowNotation::Json, out)
    })),
    is_basic: false,
};

const NEEDS: &str =
    "real numbers, times or strings in 1 or 2 dimensions, or fields of these in 1 dimension";

/// Makes the header, which is not the beginning of the file but all text that does not come from elements, because the
/// content number depends on the header.
fn parts(subject: &Subject, notation: RowNotation) -> Option<FileParts> {
    let array = subject.array;
    if let DataType::Struct(fields) = &array.data_type {
        let [_] = subject.shape else { return None };
        let columns = FieldColumns::of(fields).filter(|columns| !columns.found.is_empty())?;
        let names = columns.names();
        return Some(FileParts {
            left_out: columns.left_out,
            ..FileParts::plain(line_of_names(&names).into_bytes())
        });
    }
    TextCell::of(&array.data_type).filter(|_| (1..=2).contains(&subject.shape.len()))?;
    let header = match notation {
        RowNotation::Json => subject.name.to_vec(),
        RowNotation::Commas | RowNotation::Alone => Vec::new(),
    };
    Some(FileParts {
        left_out: unit_left_out("the elements", &array.data_type)
            .into_iter()
            .collect(),
        ..FileParts::plain(header)
    })
}

/// Returns a message that durations are written as numbers without their unit; `None` for other data types.
pub(crate) fn unit_left_out(what: &str, data_type: &DataType) -> Option<String> {
    match data_type {
        DataType::TimeDelta(unit) => Some(format!(
            "the unit of {what}: durations are written as numbers of {unit}"
        )),
        _ => None,
    }
}

fn write(
    context: &RequestContext,
    member: &GroupMember,
    notation: RowNotation,
    out: &mut ReservedBuffer<'_>,
) -> Result<()> {
    let shape = member.source()?.selection.shape();
    let data_type = &member.array.data_type;
    let no_text = || {
        Error::unsupported(
            &member.path,
            format!("{data_type} cannot be written as text"),
        )
    };
    match (data_type, &shape[..]) {
        (DataType::Struct(fields), &[rows]) => {
            let columns = FieldColumns::of(fields).ok_or_else(no_text)?;
            let names = columns.names();
            let columns = columns.found.into_iter().map(|column| TextColumn::Plain {
                reader: 0,
                cell: column.cell,
                field: Some(column.place),
            });
            let table = TextTable {
                names,
                columns: columns.collect(),
                readers: vec![RowReader::open(member)?],
                rows,
            };
            table.write(context, notation, out)
        }
        (_, &[rows]) => {
            let cell = TextCell::of(data_type).ok_or_else(no_text)?;
            let shape = RowShape { rows, row: None };
            write_lines(context, member, &cell, notation, shape, out)
        }
        (_, &[rows, row]) => {
            let cell = TextCell::of(data_type).ok_or_else(no_text)?;
            let shape = RowShape {
                rows,
                row: Some(row),
            };
            write_lines(context, member, &cell, notation, shape, out)
        }
        _ => Err(no_text()),
    }
}

/// The shape of an array that is written in rows.
struct RowShape {
    rows: u64,
    /// Number of elements in a row; `None` for an array of one dimension.
    row: Option<u64>,
}

/// Writes all rows of an array as lines of text.
fn write_lines(
    context: &RequestContext,
    member: &GroupMember,
    cell: &TextCell,
    notation: RowNotation,
    shape: RowShape,
    out: &mut ReservedBuffer<'_>,
) -> Result<()> {
    let RowShape { rows, row } = shape;
    let elements = row.unwrap_or(1);
    let notation = notation.of_rows(elements);
    // Each element takes at least one byte, that of the comma or newline after it.
    out.check_room(rows.saturating_mul(elements))?;
    let key = Value::from(member.path.as_str());
    let (begin, end) = match (notation, row) {
        (RowNotation::Json, None) => (format!("{{{key}:"), "}\n"),
        (RowNotation::Json, Some(_)) => (format!("{{{key}:["), "]}\n"),
        (_, Some(0)) => return Ok(()),
        _ => (String::new(), "\n"),
    };
    let mut readers = [RowReader::open(member)?];
    let blocks = RowBlocks::of(&readers, rows, out.limit())?;
    let [reader] = &mut readers;
    let mut line = String::new();
    for rows in blocks.iter() {
        reader.load(context, &rows)?;
        for _ in rows {
            line.clear();
            line.push_str(&begin);
            for place in 0..elements {
                if place > 0 {
                    line.push(',');
                }
                reader.advance();
                cell.write(reader.element(), notation, &mut line);
            }
            line.push_str(end);
            out.push(line.as_bytes())?;
        }
    }
    Ok(())
}

/// The columns of a structured data type: each nested field, and each element of a subarray, is a column.
struct FieldColumns {
    found: Vec<FieldColumn>,
    left_out: Vec<String>,
}

struct FieldColumn {
    name: String,
    /// The byte range of the field in an element.
    place: Range<usize>,
    cell: TextCell,
}

impl FieldColumns {
    /// Makes columns of the fields of a structured data type, or returns `None` if there are too many.
    fn of(fields: &[Field]) -> Option<FieldColumns> {
        let mut columns = FieldColumns {
            found: Vec::new(),
            left_out: Vec::new(),
        };
        columns.add_fields("", fields, 0)?;
        Some(columns)
    }

    fn names(&self) -> Vec<String> {
        self.found
            .iter()
            .map(|column| column.name.clone())
            .collect()
    }

    fn add_fields(&mut self, before: &str, fields: &[Field], mut start: usize) -> Option<()> {
        for field in fields {
            let name = format!("{before}{}", field.name);
            let (size, count) = (field.data_type.size()?, field.count()?);
            if count > MAX_COLUMNS {
                return None;
            }
            for number in 0..count {
                let name = if field.shape.is_empty() {
                    name.clone()
                } else {
                    format!("{name}.{number}")
                };
                self.add(name, &field.data_type, start..start.checked_add(size)?)?;
                start += size;
            }
        }
        Some(())
    }

    fn add(&mut self, name: String, data_type: &DataType, place: Range<usize>) -> Option<()> {
        if let DataType::Struct(fields) = data_type {
            return self.add_fields(&format!("{name}."), fields, place.start);
        }
        let is_taken = self.found.iter().any(|column| column.name == name);
        match TextCell::of(data_type) {
            Some(_) if is_taken => {
                let why = format!("the field {name}: another field has the same name");
                self.left_out.push(why);
            }
            Some(cell) => {
                let unit = unit_left_out(&format!("the field {name}"), data_type);
                self.left_out.extend(unit);
                self.found.push(FieldColumn { name, place, cell });
            }
            None => {
                let why = format!("the field {name}: {data_type} cannot be written as text");
                self.left_out.push(why);
            }
        }
        (self.found.len() + self.left_out.len() <= MAX_COLUMNS).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_fields_and_subarrays_become_columns() {
        let field = |name: &str, data_type, shape: &[u64]| Field {
            name: name.to_string(),
            data_type,
            shape: shape.to_vec(),
        };
        let point = DataType::Struct(vec![
            field("x", DataType::Float(8), &[]),
            field("y", DataType::Complex(8), &[]),
        ]);
        let fields = [
            field("id", DataType::Int(2), &[]),
            field("at", point, &[]),
            field("at.x", DataType::Int(1), &[]),
            field("rgb", DataType::UInt(1), &[1, 3]),
        ];
        let columns = FieldColumns::of(&fields).unwrap();
        let found: Vec<_> = columns
            .found
            .iter()
            .map(|column| (column.name.as_str(), column.place.clone()))
            .collect();
        let expected = [
            ("id", 0..2),
            ("at.x", 2..10),
            ("rgb.0", 19..20),
            ("rgb.1", 20..21),
            ("rgb.2", 21..22),
        ];
        assert_eq!(found, expected);
        let left_out = columns.left_out;
        assert_eq!(
            left_out,
            [
                "the field at.y: complex64 cannot be written as text",
                "the field at.x: another field has the same name",
            ]
        );
        let many = [field("a", DataType::UInt(1), &[2000])];
        assert!(FieldColumns::of(&many).is_none());
    }
}
