//! Formats of tables as text: CSV, or one JSON object per row.

pub(crate) mod cell;
pub(crate) mod column;
pub(crate) mod group;
pub(crate) mod rows;

use serde_json::Value;

use crate::formats::tables::cell::RowNotation;
use crate::formats::tables::column::{RowBlocks, RowReader, TextColumn};
use zarr_format::error::Result;
use zarrfs_array::array::vlen_elements::ReservedBuffer;
use zarrfs_store::request_context::RequestContext;

/// Maximum number of columns of a table.
pub(crate) const MAX_COLUMNS: usize = 1024;

/// A table whose elements are read while it is written.
pub(crate) struct TextTable<'a> {
    /// The names of the columns.
    pub(crate) names: Vec<String>,
    /// The columns, one per name.
    pub(crate) columns: Vec<TextColumn>,
    /// The readers of the columns' elements.
    pub(crate) readers: Vec<RowReader<'a>>,
    /// Number of rows.
    pub(crate) rows: u64,
}

impl TextTable<'_> {
    /// Writes the table; fails as `ReservedBuffer::push` does, and with the error of an element that cannot be read.
    pub(crate) fn write(
        mut self,
        context: &RequestContext,
        notation: RowNotation,
        out: &mut ReservedBuffer<'_>,
    ) -> Result<()> {
        let count = self.columns.len() as u64;
        // Each cell has at least one terminating character.
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

/// Returns the text before each cell of a JSON object.
fn before_cells(names: &[String]) -> Vec<String> {
    let keys = names.iter().enumerate().map(|(place, name)| {
        let opening = if place == 0 { "{" } else { "," };
        format!("{opening}{}:", Value::from(name.as_str()))
    });
    keys.collect()
}

/// Returns the line of column names of CSV.
pub(crate) fn line_of_names(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| field(name)).collect();
    format!("{}\n", names.join(","))
}

/// Returns a name as a CSV field, in quotes if necessary.
fn field(name: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "_-./".contains(letter);
    if !name.is_empty() && name.chars().all(is_plain) {
        return name.to_string();
    }
    let mut text = String::new();
    RowNotation::Commas.push_text(name, &mut text);
    text
}
