//! `zarrfs cp`: an array, or selected elements of it, as a file in any format that the files view has.
//!
//! How the file comes to be is left to `output_file`.

use super::cat::{open_array, select, within};
use super::named_faults::named;
use super::output_file::OutputFile;
use super::progress::Progress;
use super::store_args::StoreArgs;
use super::{CpArgs, progress};
use crate::error::{Error, Result};
use crate::export::FORMATS;
use crate::inspect::file_ending::FileContent;
use crate::inspect::locate::StorePath;
use crate::inspect::root_name::root_name;
use crate::inspect::written_file::{DescribedArray, write_file};
use crate::model::Node;

/// Writes the file.
pub(super) fn cp(args: &CpArgs) -> Result<bool> {
    let (path, selection) = split(&args.path);
    let content = content_of(args)?;
    let located = args.store.open(path)?;
    let located = in_group(&args.store, path, located);
    let written = write(args, &located, (path, selection.unwrap_or("...")), content);
    named(&located, path, written)
}

/// Writes selected elements of the array that was typed as `path`.
fn write(
    args: &CpArgs,
    located: &StorePath,
    (path, selection): (&str, &str),
    content: FileContent,
) -> Result<bool> {
    let array = open_array(located)?;
    let selection = select((&args.store, path), located, selection)?;
    let element = array.array().element_size().unwrap_or(0) as u64;
    let total = selection
        .shape()
        .iter()
        .fold(element, |all, &length| all.saturating_mul(length));
    let file = OutputFile::create(&args.file)?;
    let bar = Progress::new(progress::BYTES);
    let mut done = 0;
    let hierarchy = &located.opened.hierarchy;
    let node = hierarchy.node(&located.path)?;
    let metadata = node.as_ref().and_then(|node| node.array());
    let group = match located.path.parent() {
        Some(group) => hierarchy.node(&group)?,
        None => None,
    };
    let group = group.as_ref().and_then(|group| group.node.as_ref().ok());
    let described = DescribedArray {
        metadata: metadata.unwrap_or(array.array()),
        name: &name_of_files(located),
        group: group.map(Node::attributes),
        ..DescribedArray::alone(&array)
    };
    write_file(&described, &selection, content, &mut |bytes| {
        file.write(bytes)?;
        done += bytes.len() as u64;
        bar.show(done.min(total), total);
        Ok(true)
    })?;
    file.keep()?;
    Ok(true)
}

/// Returns an array that was opened as a store of its own as one of its group, if that is described: what the group says of
/// its arrays is in their files, as in the files view.
fn in_group(store: &StoreArgs, path: &str, located: StorePath) -> StorePath {
    if !located.path.is_root() {
        return located;
    }
    let above = within(store, path).filter(|above| {
        let group = above.path.parent();
        let group = group.and_then(|group| above.opened.hierarchy.node(&group).ok()?);
        group.is_some_and(|group| !group.described_by().is_empty())
    });
    above.unwrap_or(located)
}

/// Returns what the files of an array are named after in the files view.
fn name_of_files(located: &StorePath) -> Vec<u8> {
    if located.path.is_root() {
        root_name(&located.source).into_bytes()
    } else {
        located.path.name().to_vec()
    }
}

/// Splits a selection off a path: what follows the last `@`, if it can be one.
pub(super) fn split(path: &str) -> (&str, Option<&str>) {
    let is_selection = |text: &str| {
        let fits = |c: char| c.is_ascii_digit() || "[]:,.- ".contains(c);
        let is_named = text.contains('=') && !text.contains(['/', '?', '&']);
        is_named || text.chars().all(fits)
    };
    match path.rsplit_once('@') {
        Some((path, selection)) if is_selection(selection) => (path, Some(selection)),
        _ => (path, None),
    }
}

/// Returns what was asked for, or what the file's ending asks for.
fn content_of(args: &CpArgs) -> Result<FileContent> {
    let file = args.file.to_string_lossy();
    let (content, shown, why) = match &args.format {
        Some(name) => (
            FileContent::of_name(&format!(".{name}")),
            &**name,
            "not a format",
        ),
        None => (
            FileContent::of_name(&file),
            &*file,
            "has no ending that names a format",
        ),
    };
    content.ok_or_else(|| {
        let names = FORMATS.iter().map(|format| format.extension);
        let names: Vec<&str> = names.collect();
        let why = format!(
            "{why}; there are {}, with cf before any, and png",
            names.join(", ")
        );
        Error::invalid(shown, why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_is_what_can_be_one() {
        assert_eq!(split("a.zarr/b@0,:,1:-2"), ("a.zarr/b", Some("0,:,1:-2")));
        assert_eq!(split("a@b/c"), ("a@b/c", None));
        assert_eq!(split("s3://u@h/a@[...]"), ("s3://u@h/a", Some("[...]")));
        assert_eq!(split("a@"), ("a", Some("")));
        let named = ("a/b", Some("time=2020-01-01,lat=10:20"));
        assert_eq!(split("a/b@time=2020-01-01,lat=10:20"), named);
        assert_eq!(split("http://u@h/a?b=c"), ("http://u@h/a?b=c", None));
    }
}
