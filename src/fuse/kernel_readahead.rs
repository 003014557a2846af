//! Sets the kernel's read-ahead size, which only root can do.
//!
//! The kernel copies the read-ahead size of the mount to each file at its open, so the size for a file is set just
//! before the reply to its open. A file opened at the same moment may get the wrong size, which changes only how much
//! is read, never a result.

use parking_lot::Mutex;
use std::fs;
use std::io;
use std::path::PathBuf;

use rustix::process;

use super::kernel_mount::mountinfo::Device;

/// Sets the kernel's read-ahead size of one mount.
pub(super) struct KernelReadahead {
    /// The file in /sys with the kernel's read-ahead size; `None` if the mount is unknown or the file cannot be
    /// written.
    setting: Mutex<Option<ReadaheadFile>>,
    /// Read-ahead size of files that are read sequentially, in bytes.
    sequential: u64,
}

struct ReadaheadFile {
    path: PathBuf,
    /// The kernel's current read-ahead size in bytes; `None` before the first setting.
    now: Option<u64>,
}

impl KernelReadahead {
    /// Prepares to set the kernel's read-ahead size; `sequential` is the size for sequential files in bytes.
    pub(super) fn new(device: Option<Device>, sequential: u64) -> KernelReadahead {
        let setting = device.map(|Device { major, minor }| ReadaheadFile {
            path: format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb").into(),
            now: None,
        });
        KernelReadahead {
            setting: Mutex::new(setting),
            sequential,
        }
    }

    /// Sets the kernel's read-ahead size for the next opened file: large for sequential files, 4 KiB for random access.
    pub(super) fn set(&self, is_sequential: bool) {
        let bytes = if is_sequential {
            self.sequential
        } else {
            // On a page fault in an mmap the kernel reads its whole read-ahead, so it is small for random access.
            self.sequential.min(4 << 10)
        };
        let mut setting = self.setting.lock();
        let Some(file) = setting.as_mut().filter(|file| file.now != Some(bytes)) else {
            return;
        };
        let path = file.path.display();
        match fs::write(&file.path, (bytes >> 10).to_string()) {
            Ok(()) => {
                log::debug!("the kernel reads {} KiB ahead", bytes >> 10);
                file.now = Some(bytes);
                return;
            }
            // In a container nobody can set the read-ahead size, since /sys is read-only.
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                log::debug!("{path}: {error}");
            }
            Err(error) if process::geteuid().is_root() => {
                log::warn!("{path}: {error}; the kernel uses the default read-ahead");
            }
            Err(error) => log::debug!("{path}: {error}; only root can set it"),
        }
        *setting = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readahead_is_set_for_the_file_that_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("read_ahead_kb");
        let readahead = KernelReadahead {
            setting: Mutex::new(Some(ReadaheadFile {
                path: path.clone(),
                now: None,
            })),
            sequential: 1 << 20,
        };
        for (is_sequential, value) in [(true, "1024"), (false, "4"), (true, "1024")] {
            readahead.set(is_sequential);
            assert_eq!(fs::read_to_string(&path).unwrap(), value);
        }
        fs::remove_file(&path).unwrap();
        readahead.set(true);
        assert!(!path.exists(), "it is that already");
        KernelReadahead::new(None, 1 << 20).set(true);
    }
}
