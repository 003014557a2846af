//! `zarrfs cat`: prints a stored key, a decoded chunk or array elements on stdout.
//!
//! It reads in pieces, so that an object of any length takes the memory of one piece.

use std::io;
use std::io::Write;
use std::sync::Arc;

use super::named_faults::named;
use super::source_array::{SourceArray, in_group, within, within_group};
use super::store_args::StoreArgs;
use super::{CatArgs, elements, report};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::grid::Selection;
use zarrfs_array::array::OpenArray;
use zarrfs_export::inspect::access::OpenedStore;
use zarrfs_export::inspect::coordinates::{ArrayInGroup, names_dimensions};
use zarrfs_export::inspect::file_ending::FileContent;
use zarrfs_export::inspect::key_of_chunk::chunk_of;
use zarrfs_export::inspect::locate::StorePath;
use zarrfs_export::inspect::shard_info::ShardPart;
use zarrfs_export::inspect::written_file::write_file;
use zarrfs_store::request_context::UNLIMITED;

/// Number of bytes read at a time.
const READ_SIZE: usize = 4 << 20;

/// The format name for elements as rows of text.
const TEXT: &str = "text";

/// Prints the key, chunk or elements that the arguments select.
pub(super) fn cat(args: &CatArgs) -> Result<bool> {
    let content = content_of(&args.format)?;
    let mut located = args.store.open(&args.path)?;
    if args.select.is_some() && content.is_some() {
        located = in_group(&args.store, &args.path, located);
    }
    named(&located, &args.path, cat_of(args, &located, content))
}

fn cat_of(args: &CatArgs, located: &StorePath, content: Option<FileContent>) -> Result<bool> {
    if let Some(selection) = &args.select {
        let array = open_array(located)?;
        let selection = select(&args.store, &args.path, located, selection)?;
        print_elements(located, array, &selection, content)?;
    } else if args.decode {
        let (array, selection) = chunk_of(&UNLIMITED, &located.opened, &located.path)?;
        print_elements(located, array, &selection, content)?;
    } else {
        return print_stored(located);
    }
    Ok(true)
}

/// Opens the array at the path; `NotFound` if the path does not exist, `Invalid` if it is not an array.
pub(super) fn open_array(located: &StorePath) -> Result<Arc<OpenArray>> {
    let entry = located.opened.hierarchy.node(&UNLIMITED, &located.path)?;
    match entry {
        Some(entry) => {
            entry.node()?;
            located.opened.arrays.open(&entry)
        }
        None => Err(Error::not_found(&located.path)),
    }
}

/// Parses a selection of the array that was typed as `path`. Labels are in the array's group or an ancestor; if the
/// array was opened as a store of its own, the group is opened for them.
pub(super) fn select(
    store: &StoreArgs,
    path: &str,
    located: &StorePath,
    text: &str,
) -> Result<Selection> {
    let open = || within_group(store, path).or_else(|| within(store, path));
    let above = (located.path.is_root() && names_dimensions(text)).then(open);
    let above = above.flatten();
    let located = above.as_ref().unwrap_or(located);
    let OpenedStore {
        hierarchy, arrays, ..
    } = &located.opened;
    let missing = || Error::not_found(&located.path);
    let entry = hierarchy
        .node(&UNLIMITED, &located.path)?
        .ok_or_else(missing)?;
    let array = ArrayInGroup {
        hierarchy,
        arrays,
        entry: &entry,
    };
    array.select(&UNLIMITED, text)
}

/// Returns the file format of the elements, or `None` for rows of text.
fn content_of(format: &str) -> Result<Option<FileContent>> {
    match format {
        TEXT => Ok(None),
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
        return elements::write_text(&array, selection, &mut write);
    };
    let source = SourceArray::of(located, array, content.format)?;
    write_file(
        &UNLIMITED,
        &source.described(),
        selection,
        content,
        &mut write,
    )
}

/// Prints a stored object or an inner chunk of a shard. Returns false if the inner chunk is not stored; `NotFound` if
/// the key does not exist.
fn print_stored(located: &StorePath) -> Result<bool> {
    let path = &located.path;
    let reader = match located.opened.stack.store.open(&UNLIMITED, path, None) {
        Err(error) if error.kind() == Kind::NotFound && path.name().contains(&b'@') => {
            return print_inner(located, error);
        }
        reader => reader?,
    };
    let mut offset = 0;
    loop {
        let bytes = reader.read_at(&UNLIMITED, offset, READ_SIZE)?;
        if bytes.is_empty() || !write(&bytes)? {
            return Ok(true);
        }
        offset += bytes.len() as u64;
    }
}

/// Prints a stored inner chunk; fails with `no_key` if the path does not name one.
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
                report::note(format_args!(
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
        if !write(&shard.read(&UNLIMITED, start..end)?)? {
            break;
        }
        start = end;
    }
    Ok(true)
}

/// Writes bytes to stdout; returns false if the reader has gone.
fn write(bytes: &[u8]) -> Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Error::os("stdout", error)),
    }
}
