//! Prints array elements as text: one row a line, planes separated by an empty line.
//!
//! Each value is written like a fill value in final v3; words such as NaN without quotes.

use std::sync::Arc;

use serde_json::Value;

use zarr_format::dialect::fill_json;
use zarr_format::error::{Result, printable};
use zarr_format::grid::Selection;
use zarr_format::model::DataType;
use zarrfs_array::array::OpenArray;
use zarrfs_export::formats::txt;
use zarrfs_export::inspect::file_ending::FileContent;
use zarrfs_export::inspect::selected::{SelectedElements, TakeBytes};
use zarrfs_export::inspect::written_file::{DescribedArray, write_file};
use zarrfs_store::request_context::UNLIMITED;

/// Writes selected elements as text; one line for each element without a fixed length.
pub(super) fn write_text(
    array: &Arc<OpenArray>,
    selection: &Selection,
    take: &mut TakeBytes<'_>,
) -> Result<()> {
    if array.array().data_type.is_variable() {
        let content = FileContent {
            format: &txt::FORMAT,
            is_meant: false,
        };
        return write_file(
            &UNLIMITED,
            &DescribedArray::alone(array),
            selection,
            content,
            take,
        );
    }
    let elements = SelectedElements::new(array.clone(), selection.clone())?;
    let mut rows = TextRows::new(&array.array().data_type, &elements.shape());
    let size = elements.element_size();
    if size == 0 {
        return Ok(());
    }
    elements.read(&UNLIMITED, &mut |bytes| {
        let mut text = String::new();
        bytes
            .chunks_exact(size)
            .for_each(|element| rows.add(element, &mut text));
        take(text.as_bytes())
    })
}

/// Arranges elements in rows and planes.
struct TextRows<'a> {
    data_type: &'a DataType,
    /// Elements in a row, and in a plane.
    row: u64,
    plane: u64,
    /// Total number of elements.
    all: u64,
    written: u64,
}

impl TextRows<'_> {
    fn new<'a>(data_type: &'a DataType, shape: &[u64]) -> TextRows<'a> {
        let product = |lengths: &[u64]| lengths.iter().fold(1_u64, |all, &n| all.saturating_mul(n));
        let last = |count: usize| {
            product(
                shape
                    .get(shape.len().saturating_sub(count)..)
                    .unwrap_or_default(),
            )
        };
        TextRows {
            data_type,
            row: last(1),
            plane: last(2),
            all: product(shape),
            written: 0,
        }
    }

    fn add(&mut self, element: &[u8], text: &mut String) {
        text.push_str(&value_text(self.data_type, element));
        self.written += 1;
        if !self.written.is_multiple_of(self.row) {
            text.push(' ');
            return;
        }
        text.push('\n');
        if self.written.is_multiple_of(self.plane)
            && self.written < self.all
            && self.plane > self.row
        {
            text.push('\n');
        }
    }
}

/// Formats an element.
pub(super) fn value_text(data_type: &DataType, element: &[u8]) -> String {
    let value = fill_json::value(data_type, element);
    match (&value, data_type) {
        (Value::String(word), DataType::Float(_) | DataType::Small(_)) => word.clone(),
        _ => printable(&value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_lines_and_planes_are_apart() {
        let mut rows = TextRows::new(&DataType::UInt(1), &[2, 2, 3]);
        let mut text = String::new();
        (0..12).for_each(|number| rows.add(&[number], &mut text));
        assert_eq!(text, "0 1 2\n3 4 5\n\n6 7 8\n9 10 11\n");
        let mut rows = TextRows::new(&DataType::Float(4), &[]);
        text.clear();
        rows.add(&f32::NAN.to_le_bytes(), &mut text);
        assert_eq!(text, "NaN\n");
    }

    #[test]
    fn text_of_elements_is_escaped() {
        let element: Vec<u8> = "\u{1b}a"
            .chars()
            .flat_map(|c| u32::from(c).to_le_bytes())
            .collect();
        assert_eq!(
            value_text(&DataType::FixedText(2), &element),
            "\"\\u001ba\""
        );
    }
}
