//! A request to mount.

use std::path::PathBuf;

/// The parameters of a mount; `nosuid` and `nodev` are always in force.
#[derive(Clone, Debug, Default)]
pub struct MountRequest {
    /// The source in the mount table.
    pub source: String,
    /// The mountpoint: absolute, without symbolic links.
    pub path: PathBuf,
    /// Whether other users may use it.
    pub allow_other: bool,
    /// Other mount flags.
    pub flags: Flags,
}

/// Mount flags that the kernel keeps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flags {
    /// The mount is read-only.
    pub read_only: bool,
    /// Files cannot be executed.
    pub noexec: bool,
    /// Reads do not change access times.
    pub noatime: bool,
    /// Writes are synchronous.
    pub sync: bool,
    /// Changes of directories are synchronous.
    pub dirsync: bool,
}
