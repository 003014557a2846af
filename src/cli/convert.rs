//! `zarrfs cp --as`: copies a store, or a node of it, as a plain store of another format.
//!
//! The folder is that of the plain view (`view::plain`), written by several threads. It gets its name when it is
//! complete.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::cli::output_file::{remove_folder, remove_on_signal, wait_if_ending};
use crate::cli::progress::Progress;
use crate::cli::{CpArgs, report};
use crate::view::View;
use crate::view::plain::{PlainView, Target};
use zarr_format::error::{Error, Kind, Result};
use zarrfs_array::hierarchy::NodeEntry;
use zarrfs_export::inspect::locate::StorePath;
use zarrfs_export::inspect::selected_elements::write_whole;
use zarrfs_store::listing::LeftOut;
use zarrfs_store::request_context::UNLIMITED;
use zarrfs_store::sync::pool::parallel_map;
use zarrfs_store::{EntryKind, Key};

/// Files that are copied side by side before more names are listed.
const BATCH: usize = 1024;

/// Copies a node, which is the root of the new store.
pub(super) fn cp_as(args: &CpArgs, located: &StorePath, target: &'static Target) -> Result<bool> {
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

/// Fails if the new store would be in the one that is copied: the copy would have no end.
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

/// Returns the number of files that are copied side by side: more over a network, where each waits for a request.
fn threads(located: &StorePath) -> usize {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let is_local = located.opened.hierarchy.store().info().folder.is_some();
    if is_local {
        2 * cores
    } else {
        16.max(2 * cores)
    }
}

/// A copy that is being made.
struct StoreCopy {
    view: PlainView,
    threads: usize,
    bar: Progress,
    /// The number of files that are complete.
    files: AtomicU64,
}

impl StoreCopy {
    /// Copies a node and the nodes below it into a folder; says which are left out.
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
                    // Fails if a signal is removing the folders above.
                    fs::create_dir(&place).map_err(|error| Error::os(place.display(), error))?;
                    folders.push((child, place));
                    continue;
                }
                files.push((child, place));
                if files.len() == BATCH {
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
            // Another program has removed the chunk since it was listed.
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

/// A folder that gets its name when it is complete.
struct OutputFolder {
    /// Its name until then, in the same folder.
    partial: PathBuf,
    target: PathBuf,
}

impl OutputFolder {
    /// Creates the folder; `Exists` if there is a file or a folder with entries at `target`.
    fn create(target: &Path) -> Result<OutputFolder> {
        let failed = |error| Error::os(target.display(), error);
        let is_free = match fs::symlink_metadata(target) {
            Ok(found) if found.is_dir() => {
                let mut entries = fs::read_dir(target).map_err(failed)?;
                entries.next().is_none()
            }
            Ok(_) => false,
            Err(error) if error.kind() == ErrorKind::NotFound => true,
            Err(error) => return Err(failed(error)),
        };
        if !is_free {
            let why = "already exists and is not an empty directory; choose a new name";
            return Err(Error::new(Kind::Exists, target.display(), why));
        }
        let name = target.file_name();
        let name =
            name.ok_or_else(|| Error::invalid(target.display(), "the path has no file name"))?;
        let mut partial = OsString::from(".");
        partial.push(name);
        partial.push(format!(".{}.partial", std::process::id()));
        let partial = target.with_file_name(partial);
        remove_on_signal(&partial).map_err(failed)?;
        fs::create_dir(&partial).map_err(|error| Error::os(partial.display(), error))?;
        Ok(OutputFolder {
            partial,
            target: target.to_path_buf(),
        })
    }

    /// Renames the folder to its final name.
    fn keep(&self) -> Result<()> {
        let failed = |error| Error::os(self.target.display(), error);
        fs::rename(&self.partial, &self.target).map_err(failed)
    }
}

impl Drop for OutputFolder {
    fn drop(&mut self) {
        wait_if_ending();
        // Fails if the folder was renamed to its final name.
        let _ = remove_folder(&self.partial);
    }
}
