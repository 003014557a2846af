//! A small file system in memory, to be full.

use std::path::Path;
use std::process::Command;

use super::needs;

/// A file system in memory, until it is dropped.
pub struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    /// Mounts one of `size` bytes; nothing where tests that need root are skipped.
    pub fn new(size: u64) -> Option<Tmpfs> {
        if !needs::root() {
            return None;
        }
        let made = Tmpfs(tempfile::tempdir().unwrap());
        let options = format!("size={size},mode=700");
        assert!(made.mount(&["-t", "tmpfs", "-o", &options, "tmpfs"]));
        Some(made)
    }

    /// Mounts with these arguments there; returns whether that was done.
    pub fn mount(&self, arguments: &[&str]) -> bool {
        let mut command = Command::new("mount");
        let done = command.args(arguments).arg(self.path()).status();
        done.unwrap().success()
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
