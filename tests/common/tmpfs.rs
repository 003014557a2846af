//! Mounts small tmpfs file systems, for tests of a full disk.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::FallocateFlags;

use super::needs;

/// A tmpfs in a temporary folder, which is unmounted on drop.
pub struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    /// Mounts a tmpfs of `size` bytes; returns `None` if tests that need root are skipped.
    pub fn new(size: u64) -> Option<Tmpfs> {
        if !needs::root() {
            return None;
        }
        let made = Tmpfs(tempfile::tempdir().unwrap());
        let options = format!("size={size},mode=700");
        assert!(made.mount(&["-t", "tmpfs", "-o", &options, "tmpfs"]));
        Some(made)
    }

    /// Runs mount(8) with these arguments on the folder of the tmpfs; returns whether it succeeded.
    pub fn mount(&self, arguments: &[&str]) -> bool {
        let mut command = Command::new("mount");
        let done = command.args(arguments).arg(self.path()).status();
        done.unwrap().success()
    }

    /// Fills the tmpfs with a file, until no byte is free; returns the path of the file.
    pub fn fill(&self) -> PathBuf {
        let path = self.path().join("filler");
        let filler = File::create(&path).unwrap();
        let mut size = 4 << 20;
        while size > 0 {
            let end = filler.metadata().unwrap().len();
            if rustix::fs::fallocate(&filler, FallocateFlags::empty(), end, size).is_err() {
                size /= 2;
            }
        }
        path
    }

    /// Truncates and removes the file that fills the tmpfs.
    pub fn free(&self, filler: &Path) {
        // A child process of another test may have the file open between fork and exec; removing it then frees nothing,
        // but truncating it does.
        let file = File::options().write(true).open(filler).unwrap();
        file.set_len(0).unwrap();
        fs::remove_file(filler).unwrap();
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}
