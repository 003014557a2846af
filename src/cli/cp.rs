//! `zarrfs cp`: copies an array, selection or group to a file or plain store.
//!
//! It supports all formats of the files view, and with --as those of the plain views. `output` writes the file or
//! folder.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::cli::output::{OutputFile, OutputFolder};
use crate::cli::progress::Progress;
use crate::cli::source::{SourceArray, SourceNode, base_name};
use crate::cli::{CpArgs, report};
use crate::view::View;
use crate::view::plain::{PlainView, Target};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::Node;
use zarrfs_array::hierarchy::NodeEntry;
use zarrfs_export::formats::group::OrReason;
use zarrfs_export::inspect::file_ending::{FileContent, GroupChoice};
use zarrfs_export::inspect::group_file::VariableSource;
use zarrfs_export::inspect::group_file::{GroupSource, PlannedFile};
use zarrfs_export::inspect::locate::StorePath;
use zarrfs_export::inspect::selected_elements::{open_file, write_whole};
use zarrfs_store::listing::LeftOut;
use zarrfs_store::request_context::UNLIMITED;
use zarrfs_store::sync::pool::parallel_map;
use zarrfs_store::sync::read_bytes::ReadAt;
use zarrfs_store::{EntryKind, Key};

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

/// Writes the selected elements of an array to a file.
fn write(
    args: &CpArgs,
    node: &SourceNode<'_>,
    selection: &str,
    content: FileContent,
) -> Result<bool> {
    let array = node.open_array()?;
    let selection = node.select(selection)?;
    let source = SourceArray::of(&node.located, array, content.format)?;
    // The length of the file depends on its elements, so they are read before it is opened.
    let reading = Progress::new("reading");
    let opened = open_file(&UNLIMITED, &source.described(), &selection, content)?;
    drop(reading);
    warn_left_out(opened.left_out());
    write_opened(args, &opened, opened.len())?;
    Ok(true)
}

/// Warns about data that the file format cannot contain.
fn warn_left_out<'a>(sentences: impl Iterator<Item = &'a str>) {
    for sentence in sentences {
        report::warn(format_args!("the file leaves out {sentence}"));
    }
}

/// Copies an opened file of `length` bytes to the output path.
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

/// Writes all arrays of a group to one file, such as NetCDF.
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

/// Writes one array with its coordinate arrays to one file, such as NetCDF.
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

/// Writes a file that contains several arrays; fails with the reason if the format cannot contain them.
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

/// Returns the path of a group, or the name of the store for the root group.
fn group_name(located: &StorePath) -> String {
    if located.path.is_root() {
        located.source.clone()
    } else {
        located.path.to_string()
    }
}

/// Returns the format of the output file if it is one that contains an array together with its coordinates.
fn variable_choice(args: &CpArgs) -> Option<GroupChoice<'static>> {
    match &args.format {
        Some(name) => GroupChoice::of_format(name),
        None => GroupChoice::of_name(&args.file.to_string_lossy()),
    }
}

/// Returns the format of a group's file, from --format or from the file's extension.
fn group_choice(args: &CpArgs) -> Result<GroupChoice<'static>> {
    match &args.format {
        Some(name) => GroupChoice::of_group_format(name),
        None => GroupChoice::of_group_name(&args.file.to_string_lossy()),
    }
}

/// Splits `tas@0,:` into path and selection: the text after the last `@` is a selection if it looks like one.
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

/// Returns the format of an array's file, from --format or from the file's extension.
fn content_of(args: &CpArgs) -> Result<FileContent> {
    match &args.format {
        Some(name) => FileContent::of_format(name),
        None => FileContent::of_name(&args.file.to_string_lossy()),
    }
}

/// Copies a node to a new plain Zarr store of version v2 or v3: several threads write the keys of the plain view.
fn cp_as(args: &CpArgs, located: &StorePath, target: &'static Target) -> Result<bool> {
    let opened = &located.opened;
    let view = PlainView::new(opened.hierarchy.clone(), opened.arrays.clone(), target);
    let entry = opened.hierarchy.node(&UNLIMITED, &located.path)?;
    let entry = entry.ok_or_else(|| Error::not_found(&located.path))?;
    if let Some(error) = view.why_left_out(entry.clone()) {
        return Err(error);
    }
    check_apart(located, &args.file)?;
    let folder = OutputFolder::create(&args.file)?;
    let copy = StoreCopy {
        view,
        threads: threads(located),
        bar: Progress::new("copying"),
        files: AtomicU64::new(0),
    };
    copy.bar.chunks(0);
    copy.copy_node(&entry, &folder.partial)?;
    drop(copy);
    folder.keep()?;
    Ok(true)
}

/// Fails if the new store would be inside the store that is copied, because the copy would then copy itself without
/// end.
fn check_apart(located: &StorePath, target: &Path) -> Result<()> {
    let store = located.opened.hierarchy.store().info().folder.clone();
    let Some(store) = store else {
        return Ok(());
    };
    let parent = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let (store, parent) = (fs::canonicalize(store), fs::canonicalize(parent));
    match (store, parent) {
        (Ok(store), Ok(parent)) if parent.starts_with(&store) => {
            let why = "inside the store to be copied; choose another directory";
            Err(Error::invalid(target.display(), why))
        }
        _ => Ok(()),
    }
}

/// Returns how many files are copied in parallel: more from a remote store, where each copy waits for a request.
fn threads(located: &StorePath) -> usize {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let is_local = located.opened.hierarchy.store().info().folder.is_some();
    if is_local {
        2 * cores
    } else {
        16.max(2 * cores)
    }
}

/// A running copy of a node to a plain Zarr store.
struct StoreCopy {
    view: PlainView,
    threads: usize,
    bar: Progress,
    /// Number of files that are completely written.
    files: AtomicU64,
}

impl StoreCopy {
    /// Copies a node and its descendants into a folder; warns about nodes that the plain format cannot contain.
    fn copy_node(&self, entry: &Arc<NodeEntry>, folder: &Path) -> Result<()> {
        let warn = |sentence: String| report::warn(format_args!("{sentence}"));
        self.view.visit_limits(&UNLIMITED, entry, warn)?;
        let mut folders = vec![(entry.path.clone(), folder.to_path_buf())];
        while let Some((path, folder)) = folders.pop() {
            let mut listing = self.view.list(&UNLIMITED, &path)?;
            let mut files = Vec::new();
            while let Some(name) = listing.next(&UNLIMITED)? {
                let child = path.child(&name.name)?;
                let place = folder.join(os_name(&name.name));
                if name.kind == EntryKind::Directory {
                    // Fails if a signal is ending the command, which removes the output.
                    fs::create_dir(&place).map_err(|error| Error::os(place.display(), error))?;
                    folders.push((child, place));
                    continue;
                }
                files.push((child, place));
                // Copies in batches, so that a long listing is never in memory as a whole.
                if files.len() == 1024 {
                    self.copy_files(std::mem::take(&mut files))?;
                }
            }
            if listing.left_out() == LeftOut::Any {
                let name = if path.is_root() {
                    "the root".to_string()
                } else {
                    path.to_string()
                };
                report::warn(format_args!(
                    "{name}: the server does not list names, so only arrays and groups named in metadata are copied"
                ));
            }
            self.copy_files(files)?;
        }
        Ok(())
    }

    fn copy_files(&self, files: Vec<(Key, PathBuf)>) -> Result<()> {
        let copy = |(path, place): (Key, PathBuf)| self.copy_file(&path, &place);
        let copied = parallel_map(self.threads, files, &copy);
        copied.into_iter().collect()
    }

    fn copy_file(&self, path: &Key, place: &Path) -> Result<()> {
        let length = self.view.measure(&UNLIMITED, path)?;
        let opened = match (self.view.open(&UNLIMITED, path), length) {
            (Ok(opened), Some(attr)) => (opened, attr.size),
            // Another program has removed the chunk since the listing: a missing chunk needs no file.
            (Err(error), _) if error.kind() == Kind::NotFound => return Ok(()),
            (_, None) => return Ok(()),
            (Err(error), _) => return Err(error),
        };
        let (opened, length) = opened;
        let failed = |error| Error::os(place.display(), error);
        let mut file = File::create(place).map_err(failed)?;
        let mut written = 0;
        write_whole(&UNLIMITED, &*opened.file, length, &mut |bytes| {
            written += bytes.len() as u64;
            file.write_all(bytes).map_err(failed)?;
            Ok(true)
        })?;
        if written != length {
            return Err(Error::new(
                Kind::Changed,
                path,
                "was changed while it was being copied",
            ));
        }
        let files = self.files.fetch_add(1, Ordering::Relaxed) + 1;
        self.bar.chunks(files);
        Ok(())
    }
}

fn os_name(name: &[u8]) -> OsString {
    use std::os::unix::ffi::OsStringExt;
    OsString::from_vec(name.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_after_the_at_sign_is_split_off() {
        assert_eq!(split("a.zarr/b@0,:,1:-2"), ("a.zarr/b", Some("0,:,1:-2")));
        assert_eq!(split("a@b/c"), ("a@b/c", None));
        assert_eq!(split("s3://u@h/a@[...]"), ("s3://u@h/a", Some("[...]")));
        assert_eq!(split("a@"), ("a", Some("")));
        let named = ("a/b", Some("time=2020-01-01,lat=10:20"));
        assert_eq!(split("a/b@time=2020-01-01,lat=10:20"), named);
        assert_eq!(split("http://u@h/a?b=c"), ("http://u@h/a?b=c", None));
    }
}
