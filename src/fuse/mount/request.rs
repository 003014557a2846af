//! A mount as it is asked for.

use std::path::PathBuf;

/// What to mount, and how; `nosuid` and `nodev` are always in force.
#[derive(Clone, Debug, Default)]
pub struct MountRequest {
    /// What the table of mounts shows as the source.
    pub source: String,
    /// Where: absolute, without symbolic links.
    pub path: PathBuf,
    /// Other users may use it.
    pub allow_other: bool,
    /// The rest of the mount flags.
    pub flags: Flags,
}

/// Mount flags that the kernel keeps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flags {
    /// Nothing can be changed through the mount.
    pub read_only: bool,
    /// Nothing can be run from the mount.
    pub noexec: bool,
    /// Reading does not change times of access.
    pub noatime: bool,
    /// Writes wait for the daemon.
    pub sync: bool,
    /// Changes of directories wait for the daemon.
    pub dirsync: bool,
}
