//! `zarrfs cat`: prints a stored key, a decoded chunk or array elements on stdout.
//!
//! At most `READ_SIZE` bytes of an object are in memory at a time. As text, the elements along the last dimension are
//! one line, and an empty line follows each plane of the last two dimensions.

use std::sync::Arc;

use crate::cli::source::{SourceArray, SourceNode};
use crate::cli::{CatArgs, format, report};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::grid::Selection;
use zarr_format::model::DataType;
use zarrfs_array::array::OpenArray;
use zarrfs_export::formats::plain;
use zarrfs_export::inspect::file_ending::FileContent;
use zarrfs_export::inspect::locate::StorePath;
use zarrfs_export::inspect::opened_store::chunk_of;
use zarrfs_export::inspect::selected_elements::{DescribedArray, write_file};
use zarrfs_export::inspect::selected_elements::{SelectedElements, TakeBytes};
use zarrfs_export::inspect::shard_info::ShardPart;
use zarrfs_store::request_context::UNLIMITED;

/// Number of bytes of an object that are read at a time.
const READ_SIZE: usize = 4 << 20;

/// Prints the stored key, decoded chunk or elements that the arguments of `zarrfs cat` select.
pub(super) fn cat(args: &CatArgs) -> Result<bool> {
    let content = content_of(&args.format)?;
    let mut node = SourceNode::open(&args.store, &args.path)?;
    if args.select.is_some() && content.is_some() {
        node = node.in_group();
    }
    node.name_errors(cat_of(args, &node, content))
}

fn cat_of(args: &CatArgs, node: &SourceNode<'_>, content: Option<FileContent>) -> Result<bool> {
    let located = &node.located;
    if let Some(selection) = &args.select {
        let array = node.open_array()?;
        let selection = node.select(selection)?;
        print_elements(located, array, &selection, content)?;
    } else if args.decode {
        let (array, selection) = chunk_of(&UNLIMITED, &located.opened, &located.path)?;
        print_elements(located, array, &selection, content)?;
    } else {
        return print_stored(located);
    }
    Ok(true)
}

/// Returns the file format that `--format` names, or `None` for lines of text.
fn content_of(format: &str) -> Result<Option<FileContent>> {
    match format {
        "text" => Ok(None),
        name => FileContent::of_format(name).map(Some),
    }
}

fn print_elements(
    located: &StorePath,
    array: Arc<OpenArray>,
    selection: &Selection,
    content: Option<FileContent>,
) -> Result<()> {
    let Some(content) = content else {
        return write_text(&array, selection, &mut report::write_bytes);
    };
    let source = SourceArray::of(located, array, content.format)?;
    write_file(
        &UNLIMITED,
        &source.described(),
        selection,
        content,
        &mut report::write_bytes,
    )
}

/// Prints a stored object or an inner chunk of a shard. Returns false if the shard does not contain the inner chunk;
/// fails with `NotFound` if the key does not exist.
fn print_stored(located: &StorePath) -> Result<bool> {
    let path = &located.path;
    let reader = match located.opened.stack.store.open(&UNLIMITED, path, None) {
        Err(error) if error.kind() == Kind::NotFound && path.name().contains(&b'@') => {
            return print_inner(located, error);
        }
        reader => reader.map_err(|error| explained(located, error))?,
    };
    let mut offset = 0;
    loop {
        let bytes = reader.read_at(&UNLIMITED, offset, READ_SIZE)?;
        if bytes.is_empty() || !report::write_bytes(&bytes)? {
            return Ok(true);
        }
        offset += bytes.len() as u64;
    }
}

/// Rewords the error for a path that is not a key: it says whether the path is an array or a group, and how to print
/// it.
fn explained(located: &StorePath, error: Error) -> Error {
    if !matches!(error.kind(), Kind::IsADirectory | Kind::NotFound) {
        return error;
    }
    let entry = located.opened.hierarchy.node(&UNLIMITED, &located.path);
    let why = match entry.ok().flatten() {
        Some(entry) if entry.is_array() => {
            "is an array; use --select : to print the elements, or the path of one of the array's keys"
        }
        _ if error.kind() == Kind::NotFound => return error,
        Some(entry) if entry.is_described() => {
            "is a group; use 'zarrfs ls' to list the children, or the path of a key such as zarr.json"
        }
        _ => "is a directory; use 'zarrfs ls' to list the entries",
    };
    Error::new(error.kind(), error.subject(), why)
}

/// Prints the stored bytes of an inner chunk; fails with the given error if the path does not name an inner chunk.
fn print_inner(located: &StorePath, no_key: Error) -> Result<bool> {
    let (shard, range) = match ShardPart::at(&UNLIMITED, &located.opened, &located.path)? {
        None => return Err(no_key),
        Some(ShardPart::Shard(shard)) => {
            let range = 0..shard.byte_length();
            (shard, range)
        }
        Some(ShardPart::Inner(inner)) => match inner.range()? {
            Some(range) => (inner.shard, range),
            None => {
                report::warn(format_args!(
                    "{}: the inner chunk is not stored",
                    located.path
                ));
                return Ok(false);
            }
        },
    };
    let mut start = range.start;
    while start < range.end {
        let end = range.end.min(start.saturating_add(READ_SIZE as u64));
        if !report::write_bytes(&shard.read(&UNLIMITED, start..end)?)? {
            break;
        }
        start = end;
    }
    Ok(true)
}

/// Writes the selected elements as text; elements of variable length have a line each.
fn write_text(
    array: &Arc<OpenArray>,
    selection: &Selection,
    take: &mut TakeBytes<'_>,
) -> Result<()> {
    if array.array().data_type.is_variable() {
        let content = FileContent {
            format: &plain::TXT,
            is_cf_decoded: false,
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

/// Writes elements as text, with an empty line between planes.
struct TextRows<'a> {
    data_type: &'a DataType,
    /// Numbers of elements in a line and in a plane.
    row: u64,
    plane: u64,
    /// Number of selected elements.
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
        text.push_str(&format::element(self.data_type, element));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_lines_and_planes_are_separated_by_an_empty_line() {
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
            format::element(&DataType::FixedText(2), &element),
            "\"\\u001ba\""
        );
    }
}
