//! How far the kernel reads ahead, which only root can set: it takes the value of the mount for each file when that is
//! opened.
//!
//! So the value is set to what suits a file just before the answer to its open. One that is opened at the same time may
//! get the value of the other: no result depends on it, only how much is read.

use parking_lot::Mutex;
use std::fs;
use std::io;
use std::path::PathBuf;

use rustix::process;

use super::mount::mountinfo::Device;

/// How many bytes the kernel reads around what a map is asked for, of a file that is read here and there.
const NEAR: u64 = 4 << 10;

/// How far the kernel reads ahead on one mount.
pub(super) struct KernelReadahead {
    /// The file that has the value; nothing where the mount is not known or the value cannot be set.
    setting: Mutex<Option<ReadaheadFile>>,
    /// Bytes for a file that is read in order.
    far: u64,
}

struct ReadaheadFile {
    path: PathBuf,
    /// Bytes; nothing if it was not set yet.
    now: Option<u64>,
}

impl KernelReadahead {
    /// Sets nothing yet; `far` is how many bytes are read ahead of a reader in order.
    pub(super) fn new(device: Option<Device>, far: u64) -> KernelReadahead {
        let setting = device.map(|Device { major, minor }| ReadaheadFile {
            path: format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb").into(),
            now: None,
        });
        KernelReadahead {
            setting: Mutex::new(setting),
            far,
        }
    }

    /// Sets the value for a file that is going to be read in order, or here and there.
    pub(super) fn set(&self, reads_on: bool) {
        let bytes = if reads_on {
            self.far
        } else {
            self.far.min(NEAR)
        };
        let mut setting = self.setting.lock();
        let Some(known) = setting.as_mut().filter(|known| known.now != Some(bytes)) else {
            return;
        };
        let path = known.path.display();
        match fs::write(&known.path, (bytes >> 10).to_string()) {
            Ok(()) => {
                log::debug!("the kernel reads {} KiB ahead", bytes >> 10);
                known.now = Some(bytes);
                return;
            }
            // In a container nobody can set it.
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                log::debug!("{path}: {error}");
            }
            Err(error) if process::geteuid().is_root() => {
                log::warn!("{path}: {error}; the kernel reads as far ahead as it does elsewhere");
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
    fn the_value_is_that_of_the_file_that_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("read_ahead_kb");
        let readahead = KernelReadahead {
            setting: Mutex::new(Some(ReadaheadFile {
                path: path.clone(),
                now: None,
            })),
            far: 1 << 20,
        };
        for (reads_on, value) in [(true, "1024"), (false, "4"), (true, "1024")] {
            readahead.set(reads_on);
            assert_eq!(fs::read_to_string(&path).unwrap(), value);
        }
        fs::remove_file(&path).unwrap();
        readahead.set(true);
        assert!(!path.exists(), "it is that already");
        KernelReadahead::new(None, 1 << 20).set(true);
    }
}
