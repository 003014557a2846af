//! Mounts small tmpfs file systems, for tests of a full disk.

use std::path::Path;
use std::process::Command;

use super::needs;

/// A tmpfs that is unmounted on drop.
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

    /// Runs mount(8) with these arguments on the folder; returns whether it succeeded.
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
