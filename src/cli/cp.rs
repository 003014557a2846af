//! `zarrfs cp`: copies an array, a selection or a group to a file, or a store as a plain store (`convert`).
//!
//! It supports all formats of the files view. `output_file` writes the file.

use std::sync::Arc;

use crate::cli::convert::cp_as;
use crate::cli::output_file::OutputFile;
use crate::cli::progress::Progress;
use crate::cli::source::{SourceArray, SourceNode, base_name};
use crate::cli::{CpArgs, report};
use zarr_format::error::{Error, Result};
use zarr_format::model::Node;
use zarrfs_array::hierarchy::NodeEntry;
use zarrfs_export::formats::group::OrReason;
use zarrfs_export::inspect::file_ending::{FileContent, GroupChoice};
use zarrfs_export::inspect::group_file::VariableSource;
use zarrfs_export::inspect::group_file::{GroupSource, PlannedFile};
use zarrfs_export::inspect::locate::StorePath;
use zarrfs_export::inspect::selected_elements::{open_file, write_whole};
use zarrfs_store::request_context::UNLIMITED;
use zarrfs_store::sync::read_bytes::ReadAt;

/// Writes the file.
pub(super) fn cp(args: &CpArgs) -> Result<bool> {
    let (path, selection) = split(&args.path);
    let node = SourceNode::open(&args.store, path)?;
    let located = &node.located;
    if let Some(target) = args.target {
        if selection.is_some() {
            let why =
                "--as copies whole arrays; to copy a selection, write a file such as region.npy";
            return Err(Error::invalid(&args.path, why));
        }
        let copied = cp_as(args, located, target);
        return node.name_errors(copied);
    }
    if args.file.is_dir() {
        let why = "is a directory; add the name of a file, such as tas.npy";
        return Err(Error::invalid(args.file.display(), why));
    }
    let entry = located.opened.hierarchy.node(&UNLIMITED, &located.path)?;
    if let Some(group) = entry.filter(|entry| matches!(entry.node, Ok(Node::Group(_)))) {
        return cp_group(args, located, &group, selection);
    }
    let node = node.in_group();
    if let Some(choice) = variable_choice(args) {
        let choice = GroupChoice {
            selection,
            ..choice
        };
        let written = cp_variable(args, &node.located, &choice);
        return node.name_errors(written);
    }
    let content = content_of(args)?;
    let written = write(args, &node, selection.unwrap_or("..."), content);
    node.name_errors(written)
}

/// Writes a selection of an array.
fn write(
    args: &CpArgs,
    node: &SourceNode<'_>,
    selection: &str,
    content: FileContent,
) -> Result<bool> {
    let array = node.open_array()?;
    let selection = node.select(selection)?;
    let source = SourceArray::of(&node.located, array, content.format)?;
    // The length of a generated file needs its elements.
    let reading = Progress::new("reading");
    let opened = open_file(&UNLIMITED, &source.described(), &selection, content)?;
    drop(reading);
    warn_left_out(opened.left_out());
    write_opened(args, &opened, opened.len())?;
    Ok(true)
}

/// Prints what the file omits.
fn warn_left_out<'a>(sentences: impl Iterator<Item = &'a str>) {
    for sentence in sentences {
        report::warn(format_args!("the file leaves out {sentence}"));
    }
}

/// Writes a file of this length to the output path.
fn write_opened(args: &CpArgs, opened: &dyn ReadAt, length: u64) -> Result<()> {
    let file = OutputFile::create(&args.file)?;
    file.check_room(length)?;
    let bar = Progress::new("reading");
    bar.bytes(0, length);
    let mut done = 0;
    write_whole(&UNLIMITED, opened, length, &mut |bytes| {
        file.write(bytes)?;
        done += bytes.len() as u64;
        bar.bytes(done, length);
        Ok(true)
    })?;
    file.keep()
}

/// Writes the file of a group.
fn cp_group(
    args: &CpArgs,
    located: &StorePath,
    group: &Arc<NodeEntry>,
    selection: Option<&str>,
) -> Result<bool> {
    let choice = GroupChoice {
        selection,
        ..group_choice(args)?
    };
    let choice = choice.checked(selection.unwrap_or_default())?;
    let source = GroupSource {
        hierarchy: &located.opened.hierarchy,
        arrays: &located.opened.arrays,
        group,
    };
    write_planned(args, located, &choice, || source.file(&UNLIMITED, &choice))
}

/// Writes the file of an array with its coordinates.
fn cp_variable(args: &CpArgs, located: &StorePath, choice: &GroupChoice<'_>) -> Result<bool> {
    let hierarchy = &located.opened.hierarchy;
    let entry = hierarchy.node(&UNLIMITED, &located.path)?;
    let entry = entry.ok_or_else(|| Error::not_found(&located.path))?;
    let name = base_name(located, &located.path);
    let source = VariableSource {
        hierarchy,
        arrays: &located.opened.arrays,
        array: &entry,
        name: &name,
    };
    write_planned(args, located, choice, || source.file(&UNLIMITED, choice))
}

/// Writes a file of several arrays, or fails with the reason why it cannot be made.
fn write_planned(
    args: &CpArgs,
    located: &StorePath,
    choice: &GroupChoice<'_>,
    plan: impl FnOnce() -> Result<OrReason<PlannedFile>>,
) -> Result<bool> {
    let reading = Progress::new("reading");
    let planned = plan()?.map_err(|reason| {
        let why = format!("{}: {reason}", choice.format.extension);
        Error::unsupported(group_name(located), why)
    })?;
    let opened = planned.open(&UNLIMITED)?;
    drop(reading);
    warn_left_out(planned.left_out());
    write_opened(args, &opened, opened.len())?;
    Ok(true)
}

/// Returns the path of a group in its store, or the store for its root.
fn group_name(located: &StorePath) -> String {
    if located.path.is_root() {
        located.source.clone()
    } else {
        located.path.to_string()
    }
}

/// Returns the chosen format if it is one with a variable and its coordinates.
fn variable_choice(args: &CpArgs) -> Option<GroupChoice<'static>> {
    match &args.format {
        Some(name) => GroupChoice::of_format(name),
        None => GroupChoice::of_name(&args.file.to_string_lossy()),
    }
}

/// Returns the format for a group, from --format or from the file's extension.
fn group_choice(args: &CpArgs) -> Result<GroupChoice<'static>> {
    match &args.format {
        Some(name) => GroupChoice::of_group_format(name),
        None => GroupChoice::of_group_name(&args.file.to_string_lossy()),
    }
}

/// Splits a selection off a path: the text after the last `@`, if it can be a selection.
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

/// Returns the format, from --format or from the file's extension.
fn content_of(args: &CpArgs) -> Result<FileContent> {
    match &args.format {
        Some(name) => FileContent::of_format(name),
        None => FileContent::of_name(&args.file.to_string_lossy()),
    }
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
