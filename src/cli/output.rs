//! Writes an output file or folder atomically.
//!
//! A folder or a regular file is written under a temporary name, and renamed when it is complete; until then an
//! existing file stays, and a signal removes the incomplete one. An existing file that is not regular, such as a pipe
//! or `/dev/null`, is written directly, and a symbolic link stays a link. A path such as `/dev/stdout` means an open
//! descriptor: output is appended to the earlier output of that descriptor.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions, Permissions};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, io, thread};

use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::cli::signals;
use zarr_format::error::{Error, Kind, Result};

/// An output file that is being written.
pub(super) struct OutputFile<'a> {
    /// The output path as the user typed it.
    path: &'a Path,
    file: File,
    /// The temporary and the final name; `None` if the path is written directly.
    names: Option<OutputNames>,
}

struct OutputNames {
    /// The temporary name, under which the file is written.
    partial: PathBuf,
    /// The final name, which the complete file gets.
    target: PathBuf,
}

impl OutputFile<'_> {
    /// Opens the output file at `path`; fails with `Invalid` for a directory and for a dangling symbolic link.
    pub(super) fn create(path: &Path) -> Result<OutputFile<'_>> {
        let failed = |error| Error::os(path.display(), error);
        if let Some(number) = named_descriptor(path) {
            let file = File::from(descriptor(number).map_err(failed)?);
            return Ok(OutputFile {
                path,
                file,
                names: None,
            });
        }
        match fs::metadata(path) {
            Ok(there) if there.is_dir() => Err(Error::invalid(path.display(), "is a directory")),
            Ok(there) if there.is_file() => {
                let target = fs::canonicalize(path).map_err(failed)?;
                let created = OutputFile::partial(path, target)?;
                // The new file gets the permissions of the file that it replaces, but not the set-ID bits, which must
                // not apply to new content.
                let mode = there.permissions().mode() & 0o777;
                let set = created.file.set_permissions(Permissions::from_mode(mode));
                set.map_err(failed)?;
                Ok(created)
            }
            Ok(_) => Ok(OutputFile {
                path,
                file: OpenOptions::new().write(true).open(path).map_err(failed)?,
                names: None,
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if fs::symlink_metadata(path).is_ok() {
                    return Err(Error::invalid(
                        path.display(),
                        "a symbolic link to a file that does not exist",
                    ));
                }
                OutputFile::partial(path, path.to_path_buf())
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Creates a temporary file in the folder of `target`, to be renamed to `target` when it is complete.
    fn partial(path: &Path, target: PathBuf) -> Result<OutputFile<'_>> {
        let name = target.file_name();
        let name = name.ok_or_else(|| Error::invalid(path.display(), "is a directory"))?;
        let partial = target.with_file_name(partial_name(name));
        let failed = |error| Error::os(path.display(), error);
        remove_on_signal(&partial).map_err(failed)?;
        let file = File::create(&partial).map_err(|error| match target.parent() {
            Some(parent) if error.kind() == io::ErrorKind::NotFound => {
                let why = format!("there is no directory {}", parent.display());
                Error::new(Kind::NotFound, path.display(), why)
            }
            _ => failed(error),
        })?;
        Ok(OutputFile {
            path,
            file,
            names: Some(OutputNames { partial, target }),
        })
    }

    /// Fails with `NoSpace` if the file system has fewer than `bytes` free bytes. Pipes and devices are not checked.
    pub(super) fn check_room(&self, bytes: u64) -> Result<()> {
        if self.names.is_none() {
            return Ok(());
        }
        // Some file systems report no free space or no blocks at all: they are not checked.
        let Some(disk) = rustix::fs::fstatvfs(&self.file)
            .ok()
            .filter(|disk| disk.f_blocks > 0)
        else {
            return Ok(());
        };
        let is_root = rustix::process::geteuid().is_root();
        let blocks = if is_root { disk.f_bfree } else { disk.f_bavail };
        let free = blocks.saturating_mul(disk.f_frsize);
        if bytes > free {
            let why = format!(
                "the file needs {bytes} bytes, but only {free} are free: free space, or copy a selection"
            );
            return Err(Error::new(Kind::NoSpace, self.path.display(), why));
        }
        Ok(())
    }

    pub(super) fn write(&self, bytes: &[u8]) -> Result<()> {
        let failed = |error| Error::os(self.path.display(), error);
        (&self.file).write_all(bytes).map_err(failed)
    }

    /// Gives the complete output file its final name.
    pub(super) fn keep(&self) -> Result<()> {
        let Some(OutputNames { partial, target }) = &self.names else {
            return Ok(());
        };
        let failed = |error| Error::os(self.path.display(), error);
        fs::rename(partial, target).map_err(failed)
    }
}

impl Drop for OutputFile<'_> {
    fn drop(&mut self) {
        if let Some(OutputNames { partial, .. }) = &self.names {
            // The temporary file is missing if it was already renamed.
            let _ = fs::remove_file(partial);
        }
    }
}

/// An output folder that is renamed to its final name when it is complete.
pub(super) struct OutputFolder {
    /// Path of the temporary folder, which is beside the final one.
    pub(super) partial: PathBuf,
    target: PathBuf,
}

impl OutputFolder {
    /// Creates the temporary folder; fails with `Exists` if `target` is a file or a folder that is not empty.
    pub(super) fn create(target: &Path) -> Result<OutputFolder> {
        let failed = |error| Error::os(target.display(), error);
        let is_free = match fs::symlink_metadata(target) {
            Ok(found) if found.is_dir() => {
                let mut entries = fs::read_dir(target).map_err(failed)?;
                entries.next().is_none()
            }
            Ok(_) => false,
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            Err(error) => return Err(failed(error)),
        };
        if !is_free {
            let why = "already exists and is not an empty directory; choose a new name";
            return Err(Error::new(Kind::Exists, target.display(), why));
        }
        let name = target.file_name();
        let name =
            name.ok_or_else(|| Error::invalid(target.display(), "the path has no file name"))?;
        let partial = target.with_file_name(partial_name(name));
        remove_on_signal(&partial).map_err(failed)?;
        fs::create_dir(&partial).map_err(|error| Error::os(partial.display(), error))?;
        Ok(OutputFolder {
            partial,
            target: target.to_path_buf(),
        })
    }

    /// Gives the complete output folder its final name.
    pub(super) fn keep(&self) -> Result<()> {
        let failed = |error| Error::os(self.target.display(), error);
        fs::rename(&self.partial, &self.target).map_err(failed)
    }
}

impl Drop for OutputFolder {
    fn drop(&mut self) {
        wait_if_ending();
        // The temporary folder is missing if it was already renamed.
        let _ = remove_folder(&self.partial);
    }
}

/// Returns the temporary name of an output file or folder, such as `.out.npy.1234.partial`.
fn partial_name(name: &OsStr) -> OsString {
    let mut partial = OsString::from(".");
    partial.push(name);
    partial.push(format!(".{}.partial", std::process::id()));
    partial
}

/// Handles signals that end the process: removes the incomplete file or folder at `path` first.
fn remove_on_signal(path: &Path) -> io::Result<()> {
    let ignored = signals::ignored_signals();
    let handled = [SIGINT, SIGTERM, SIGHUP].into_iter();
    let mut listener = Signals::new(handled.filter(|signal| ignored & (1 << (signal - 1)) == 0))?;
    let path = path.to_path_buf();
    let wait = move || {
        if let Some(signal) = listener.forever().next() {
            IS_ENDING.store(true, Ordering::Release);
            let _ = fs::remove_file(&path).or_else(|_| remove_folder(&path));
            // Lets the signal end the process, as if it had no handler.
            let _ = emulate_default_handler(signal);
        }
    };
    let thread = thread::Builder::new().name("zarrfs-signals".to_string());
    thread.spawn(wait).map(drop)
}

/// Whether a signal is ending the process, so that the incomplete output is being removed.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// If a signal is ending the process, blocks until it ends: the current error comes from the removal of the output, and
/// must not be printed.
fn wait_if_ending() {
    while IS_ENDING.load(Ordering::Acquire) {
        thread::park();
    }
}

/// Removes a folder into which other threads still write. It is renamed first, so that those threads cannot create
/// files in it any more.
fn remove_folder(path: &Path) -> io::Result<()> {
    let mut gone = path.as_os_str().to_owned();
    gone.push(".gone");
    fs::rename(path, &gone)?;
    fs::remove_dir_all(&gone)
}

/// Returns the number of the open descriptor that a path such as `/dev/stdout` names, or `None` for any other path.
pub(super) fn named_descriptor(path: &Path) -> Option<i32> {
    let own = fs::canonicalize("/proc/self").ok()?;
    let mut path = path.to_path_buf();
    // A path is followed through at most 40 symbolic links, as in the kernel.
    for _ in 0..40 {
        let folder = match path.parent()? {
            folder if folder.as_os_str().is_empty() => Path::new("."),
            folder => folder,
        };
        let folder = fs::canonicalize(folder).ok()?;
        let name = path.file_name()?;
        if folder.starts_with(&own) && folder.ends_with("fd") {
            return name.to_str()?.parse().ok();
        }
        path = folder.join(fs::read_link(folder.join(name)).ok()?);
    }
    None
}

/// Duplicates an open descriptor; the duplicate shares its file offset, so output is appended.
fn descriptor(number: i32) -> io::Result<OwnedFd> {
    match number {
        0 => io::stdin().as_fd().try_clone_to_owned(),
        1 => io::stdout().as_fd().try_clone_to_owned(),
        2 => io::stderr().as_fd().try_clone_to_owned(),
        other => {
            let own = pidfd_open(getpid(), PidfdFlags::empty())?;
            Ok(pidfd_getfd(own, other, PidfdGetfdFlags::empty())?)
        }
    }
}
