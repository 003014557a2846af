//! Arguments of the commands for mounts, and of `mount.zarrfs`.
//!
//! The comments of fields are the help texts and the manual page.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser};

use super::remote::RemoteArgs;
use super::spill::SpillChoice;
use super::{examples, owners, spill, units};
use crate::mount::open::ViewKind;
use crate::view::files::ListedForm;
use zarr_format::dialect::Choice;

/// Headings in the help of `zarrfs mount`.
const SHOWN: &str = "What is shown";
const CHANGES: &str = "Changes";
const LIMITS: &str = "Limits";
const LOG: &str = "Log";

/// Arguments of `zarrfs mount`.
#[derive(Args, Debug)]
#[command(after_help = examples::MOUNT, after_long_help = examples::MOUNT_OPTIONS)]
pub struct MountArgs {
    /// The store: a directory, a zip archive or a URL; a path after an archive is a folder in it
    pub store: String,
    /// Where to mount it: an empty directory, or /dev/fd/N for a descriptor that is mounted already
    pub dir: PathBuf,
    /// What DIR holds: the keys as stored ('store'), or arrays as flat files ('files')
    #[arg(long, value_name = "NAME", default_value = "store")]
    pub view: ViewKind,
    /// Stay in the foreground and log to stderr, unless there is --log
    #[arg(short, long)]
    pub foreground: bool,
    /// Unmount at the end of standard input: a program that holds the other end of a pipe has the mount end with it, however
    /// it ends
    #[arg(long)]
    pub until_eof: bool,
    /// Remove DIR when the mount has ended
    #[arg(long)]
    pub rmdir: bool,
    /// Options as mount(8) takes them: -o allow_other,memory=256M
    #[arg(short, value_name = "OPTIONS", action = ArgAction::Append)]
    pub options: Vec<String>,
    /// Let other users look in
    #[arg(long, help_heading = SHOWN)]
    pub allow_other: bool,
    /// Owner shown of all files, by name or number [default: who mounts]
    #[arg(long, value_name = "USER", value_parser = owners::user, help_heading = SHOWN)]
    pub uid: Option<u32>,
    /// Group shown of all files, by name or number [default: who mounts]
    #[arg(long, value_name = "GROUP", value_parser = owners::group, help_heading = SHOWN)]
    pub gid: Option<u32>,
    /// Permissions to take away from all files
    #[arg(long, value_name = "OCTAL", value_parser = units::octal, default_value = "0", help_heading = SHOWN)]
    pub umask: u32,
    /// Most memory for what is held of a store, above all decoded chunks, such as 256M; at least 1M [default: a quarter of
    /// the machine's or the container's, at most 4G]
    #[arg(long, value_name = "SIZE", value_parser = units::memory, help_heading = LIMITS)]
    pub memory: Option<u64>,
    /// Longest decoded chunk that is read; a longer one is refused
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = "1G", help_heading = LIMITS)]
    pub max_chunk: u64,
    /// Directory for decoded chunks that do not fit in --memory and will be read again, at most 64G and half of the free
    /// space; 'none' decodes them again instead [default: that of --cache-dir, $XDG_CACHE_HOME or $TMPDIR]
    #[arg(long, value_name = "DIR|none", value_parser = spill::choice, default_value = "auto", hide_default_value = true, help_heading = LIMITS)]
    pub spill: SpillChoice,
    /// Have the kernel read stored files of a store on this machine itself, at the speed of the file system below; files that
    /// other programs overwrite in place change while they are open. Needs root and Linux 6.9; see zarrfs-stores(7)
    #[arg(long, conflicts_with_all = ["cow", "write_through"], help_heading = LIMITS)]
    pub passthrough: bool,
    /// How long a request may wait for the store, such as 5s; then it is an error
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "60s", help_heading = LIMITS)]
    pub timeout: Duration,
    /// Forms in which directories of arrays list the array beside NAME.npy (NAME.txt of elements without a fixed
    /// length): extensions of zarrfs-files(7) such as raw, nrrd or hdr, chunks, or all; nc, h5, csv and others list the
    /// files of groups. Every form opens by name, listed or not
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = SHOWN)]
    pub list: Vec<ListedForm>,
    /// Put every change into the folder UPPER, which is made if need be; the store itself stays as it is
    #[arg(long, value_name = "UPPER", help_heading = CHANGES)]
    pub cow: Option<PathBuf>,
    /// Take an UPPER whose store was moved here: it must have the keys that were changed in UPPER, which belongs to this
    /// store from then on
    #[arg(long, help_heading = CHANGES)]
    pub rebind: bool,
    /// Write each file to the store when it is closed or synced; what the store does not take is kept in UPPER
    /// [default: a folder in zarrfs below $XDG_STATE_HOME or ~/.local/state]
    #[arg(long, help_heading = CHANGES)]
    pub write_through: bool,
    /// Take no changes, also with --cow or --write-through
    #[arg(short, long, help_heading = CHANGES)]
    pub read_only: bool,
    /// Let decoded files be written also where the codecs lose something each time that they encode
    #[arg(long, help_heading = CHANGES)]
    pub lossy: bool,
    /// Follow symbolic links that leave the store
    #[arg(long, help_heading = SHOWN)]
    pub follow_symlinks: bool,
    /// Read the store as this dialect: v2, v3, draft2019, draft2020, draft2022 or n5 [default: as its documents
    /// say]
    #[arg(long, value_name = "NAME", help_heading = SHOWN)]
    pub dialect: Option<Choice>,
    /// Take groups and arrays from consolidated metadata also where the store can list them
    #[arg(long, help_heading = SHOWN)]
    pub consolidated: bool,
    /// How a store on the network is reached
    #[command(flatten)]
    pub remote: RemoteArgs,
    /// Where to log [default: syslog, or the journal where systemd runs it; stderr with --foreground]
    #[arg(long, value_name = "FILE", help_heading = LOG)]
    pub log: Option<PathBuf>,
    /// Log more; twice and three times for still more. RUST_LOG chooses by target, see zarrfs-files(7)
    #[arg(short, long, action = ArgAction::Count, help_heading = LOG)]
    pub verbose: u8,
}

/// Arguments of `zarrfs list`.
#[derive(Args, Debug)]
#[command(after_help = examples::LIST)]
pub struct ListArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `zarrfs umount`.
#[derive(Args, Debug)]
#[command(after_help = examples::UMOUNT)]
pub struct UmountArgs {
    /// The mountpoint
    pub dir: PathBuf,
}

/// Arguments of `mount.zarrfs`, as mount(8) calls it, and of `zarrfs STORE DIR -o OPTIONS`.
#[derive(Parser, Debug)]
#[command(
    name = "mount.zarrfs",
    version,
    about = "Mount a Zarr store; for mount(8)",
    after_help = examples::HELPER
)]
pub struct HelperArgs {
    /// The store: a directory, a zip archive or a URL; a path after an archive is a folder in it
    pub store: String,
    /// The mountpoint
    pub dir: PathBuf,
    /// Ignore options that are not known
    #[arg(short = 's')]
    pub sloppy: bool,
    /// Accepted and ignored: there is no mtab
    #[arg(short = 'n')]
    pub no_mtab: bool,
    /// Log more
    #[arg(short = 'v', action = ArgAction::Count)]
    pub verbose: u8,
    /// Check everything but mount nothing
    #[arg(short = 'f')]
    pub fake: bool,
    /// Accepted and ignored: what can be written is
    #[arg(short = 'w')]
    pub writable: bool,
    /// Mount read-only, also with cow or write_through
    #[arg(short = 'r')]
    pub read_only: bool,
    /// The type, ignored
    #[arg(short = 't', value_name = "TYPE")]
    pub kind: Option<String>,
    /// Options, separated by commas
    #[arg(short = 'o', value_name = "OPTIONS", action = ArgAction::Append)]
    pub options: Vec<String>,
}
