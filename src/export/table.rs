//! `GROUP.csv` and `GROUP.ndjson`: the arrays of a group as the columns of a table, a row a line.
//!
//! The arrays have one dimension each, all of the same length, as those of a table of AnnData and of a CF point set have.
//! Each cell has the width of the longest value of its type, so rows have a fixed length.

use std::sync::Arc;

use serde_json::Value;

use crate::export::conversion::{Conversion, digest_of};
use crate::export::group::{
    GroupContents, GroupFormat, GroupLayout, GroupMember, GroupPlan, GroupScope, OrWhyNot,
    PlacedVariable,
};
use crate::export::text_cell::{RowNotation, TextCell};
use crate::export::{ElementForm, FileParts};

/// A line of names, then rows of comma-separated values; NaN is empty.
pub const CSV: GroupFormat = GroupFormat {
    extension: "csv",
    scope: GroupScope::Own,
    plan: |contents| plan(contents, RowNotation::Commas),
};

/// A JSON object a line; what JSON lacks is null.
pub const NDJSON: GroupFormat = GroupFormat {
    extension: "ndjson",
    scope: GroupScope::Own,
    plan: |contents| plan(contents, RowNotation::Json),
};

/// The most columns, and the most bytes of a row: a reader of one byte has the cells of a row made.
const MAX_COLUMNS: usize = 1024;
const MAX_ROW: usize = 1 << 20;

/// A column before it has its place.
struct Column<'a> {
    /// Its number among the members.
    member: usize,
    name: &'a str,
    cell: TextCell,
}

fn plan(contents: &GroupContents, notation: RowNotation) -> OrWhyNot<GroupPlan> {
    let columns = columns(contents)?;
    let last = columns.len() - 1;
    let notation = notation.of_rows(columns.len() as u64);
    let (mut variables, mut width) = (Vec::new(), 0);
    for (place, column) in columns.iter().enumerate() {
        let conversion = TableCell {
            cell: column.cell,
            notation,
            before: before(column.name, place == 0, notation),
            after: after(place == last, notation),
        };
        let offset = width as u64;
        width += conversion.written_size();
        let elements = Some(ElementForm {
            order: None,
            conversion: Some(Arc::new(conversion)),
        });
        let parts = FileParts {
            header: Vec::new(),
            elements,
            ..FileParts::default()
        };
        variables.push(PlacedVariable {
            member: column.member,
            offset,
            parts,
        });
    }
    if width > MAX_ROW {
        return Err(format!("no rows of more than {MAX_ROW} bytes"));
    }
    Ok(GroupPlan::laid(GroupLayout {
        header: Arc::new(header(&columns, notation).into()),
        variables,
        row: Some(width as u64),
    }))
}

/// Returns the columns in order, at least one: as AnnData has it, or that of their names. A group is no table that has
/// arrays of several dimensions or lengths, or of a type that has no text.
fn columns<'a>(contents: &'a GroupContents) -> OrWhyNot<Vec<Column<'a>>> {
    let (mut columns, mut rows) = (Vec::new(), None);
    for (member, GroupMember { path, array, .. }) in contents.members.iter().enumerate() {
        // The length of the file would depend on elements without a fixed length.
        if !is_column(path, &array.shape, &mut rows)? || array.data_type.is_variable() {
            continue;
        }
        let cell = TextCell::of(&array.data_type);
        let no_text = || format!("no text for {path}, which is {}", array.data_type);
        columns.push(Column {
            member,
            name: path,
            cell: cell.ok_or_else(no_text)?,
        });
    }
    let known = known_order(contents);
    let place = |column: &Column| {
        let place = known.iter().position(|name| name == column.name);
        place.unwrap_or(known.len())
    };
    columns.sort_by_key(|column| (place(column), column.member));
    match columns.len() {
        0 => Err("no column whose elements have a fixed length".to_string()),
        1..=MAX_COLUMNS => Ok(columns),
        count => Err(format!("{MAX_COLUMNS} columns at most, not {count}")),
    }
}

/// Whether an array of this shape is a column: one without dimensions has attributes alone. All others have one, as long as
/// the first, whose length becomes that of `rows`.
fn is_column(path: &str, shape: &[u64], rows: &mut Option<u64>) -> OrWhyNot<bool> {
    match *shape {
        [] => Ok(false),
        [length] => {
            let rows = *rows.get_or_insert(length);
            let found = || {
                format!("columns have one length: {path} has {length} elements and others {rows}")
            };
            (length == rows).then_some(true).ok_or_else(found)
        }
        _ => {
            let rank = shape.len();
            Err(format!("columns have one dimension: {path} has {rank}"))
        }
    }
}

/// Returns the order of columns that AnnData says, the index first.
fn known_order(contents: &GroupContents) -> Vec<String> {
    let index = contents.attributes.get("_index");
    let order = match contents.attributes.get("column-order") {
        Some(Value::Array(order)) => order,
        _ => Vec::new(),
    };
    let names = index.into_iter().chain(order).take(MAX_COLUMNS);
    names
        .filter_map(|name| name.as_str().map(str::to_string))
        .collect()
}

/// Returns the line of names, which objects of JSON have in themselves.
fn header(columns: &[Column], notation: RowNotation) -> Vec<u8> {
    match notation {
        RowNotation::Json => Vec::new(),
        RowNotation::Commas | RowNotation::Alone => {
            let names = columns.iter().map(|column| field(column.name));
            let names: Vec<String> = names.collect();
            format!("{}\n", names.join(",")).into_bytes()
        }
    }
}

/// Returns a name as CSV has it: in quotes where it has to be.
fn field(name: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "_-./".contains(letter);
    if name.chars().all(is_plain) {
        name.to_string()
    } else {
        RowNotation::Commas.text(name)
    }
}

fn before(name: &str, is_first: bool, notation: RowNotation) -> Vec<u8> {
    let opening = if is_first { "{" } else { "" };
    match notation {
        RowNotation::Commas | RowNotation::Alone => Vec::new(),
        RowNotation::Json => format!("{opening}{}:", Value::from(name)).into_bytes(),
    }
}

fn after(is_last: bool, notation: RowNotation) -> &'static [u8] {
    match (notation, is_last) {
        (RowNotation::Json, false) => b", ",
        (RowNotation::Json, true) => b"}\n",
        (_, false) => b",",
        (_, true) => b"\n",
    }
}

/// The elements of a column as cells, with what stands before and after each.
#[derive(Debug)]
struct TableCell {
    cell: TextCell,
    notation: RowNotation,
    before: Vec<u8>,
    after: &'static [u8],
}

impl Conversion for TableCell {
    fn written_size(&self) -> usize {
        self.before.len() + self.cell.width(self.notation) + self.after.len()
    }

    fn convert(&self, decoded: &[u8], written: &mut [u8]) {
        let mut text = String::new();
        let elements = decoded.chunks_exact(self.cell.size());
        for (element, cell) in elements.zip(written.chunks_exact_mut(self.written_size())) {
            let (before, rest) = cell.split_at_mut(self.before.len());
            let (place, after) = rest.split_at_mut(rest.len() - self.after.len());
            before.copy_from_slice(&self.before);
            after.copy_from_slice(self.after);
            self.cell.put(element, self.notation, &mut text, place);
        }
    }

    fn digest(&self) -> u64 {
        digest_of(self)
    }
}
