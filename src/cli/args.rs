//! Defines the arguments of all commands, with the examples in their help.
//!
//! The comments of fields are the help texts and the manual page.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, ValueEnum};

use crate::cli::remote::RemoteArgs;
use crate::cli::spill::SpillChoice;
use crate::cli::store_args::StoreArgs;
use crate::cli::{spill, values};
use crate::mount::open::ViewKind;
use crate::view::files::ListedFormat;
use crate::view::plain::{TARGETS, Target};
use zarr_format::dialect::Choice;
use zarr_format::error::{Error, Result};

/// The last lines of every help.
macro_rules! with_files {
    ($examples:expr) => {
        concat!(
            "Examples:\n",
            $examples,
            "\nDIR/.zarrfs/files has the decoded arrays of a mount, DIR/.zarrfs/errors what failed last. '.zarrfs' opens by \
             name; no listing shows it."
        )
    };
}
pub(super) use with_files;

/// The examples of `zarrfs mount`.
macro_rules! of_mount {
    () => {
        with_files!(
            "  zarrfs mount data.zarr /mnt/data\n  \
               zarrfs mount --view files data.zarr.zip /mnt/arrays\n  \
               zarrfs mount --anon s3://bucket/data.zarr /mnt/data\n  \
               zarrfs mount --cow changes data.zarr /mnt/data\n"
        )
    };
}

/// The options of `-o`, after the examples of `zarrfs mount`.
const MOUNT_OPTIONS: &str = concat!(
    of_mount!(),
    "

Options of -o: view, cow, memory, max_chunk, spill, timeout, list, dialect, log, uid, \
     gid, umask, option, \
     endpoint, region, missing_is, profile, metadata_ttl, concurrency, cache_dir and cache_size (each with =VALUE), allow_other, \
     write_through, lossy, passthrough, follow_symlinks, consolidated, anon and immutable as above; \
     fsname=NAME, the source that the table of mounts shows; readahead=SIZE, how far the kernel reads ahead (1M; only root can set it); \
     nonempty, mount over what DIR holds; ro, noexec, noatime, sync, dirsync; verbose. Options of fstab that concern \
     others (auto, user, nofail, _netdev, x-...) and rw, suid, dev are accepted and ignored: a mount is ro without cow \
     or write_through, and always nosuid and nodev. A comma in a value is written \\,"
);

/// Headings in the help of `zarrfs mount`.
const SHOWN: &str = "What is shown";
const CHANGES: &str = "Changes";
const LIMITS: &str = "Limits";
const LOG: &str = "Log";

/// Arguments of `zarrfs mount`.
#[derive(Args, Debug)]
#[command(after_help = of_mount!(), after_long_help = MOUNT_OPTIONS)]
pub struct MountArgs {
    /// The store: a directory, a zip archive or a URL; a path after an archive is a folder in it
    pub store: String,
    /// Where to mount it: an empty directory, or /dev/fd/N for a descriptor that is mounted already
    pub dir: PathBuf,
    /// What DIR holds: the keys as stored ('store'), arrays as flat files ('files'), or a plain store ('v3', 'v2')
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
    #[arg(long, value_name = "USER", value_parser = values::user, help_heading = SHOWN)]
    pub uid: Option<u32>,
    /// Group shown of all files, by name or number [default: who mounts]
    #[arg(long, value_name = "GROUP", value_parser = values::group, help_heading = SHOWN)]
    pub gid: Option<u32>,
    /// Permissions to take away from all files
    #[arg(long, value_name = "OCTAL", value_parser = values::octal, default_value = "0", help_heading = SHOWN)]
    pub umask: u32,
    /// Most memory for what is held of a store, above all decoded chunks, such as 256M; at least 1M [default: a quarter of
    /// the machine's or the container's, at most 4G]
    #[arg(long, value_name = "SIZE", value_parser = values::memory, help_heading = LIMITS)]
    pub memory: Option<u64>,
    /// Longest decoded chunk that is read; a longer one is refused
    #[arg(long, value_name = "SIZE", value_parser = values::size, default_value = "1G", help_heading = LIMITS)]
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
    #[arg(long, value_name = "DURATION", value_parser = values::duration, default_value = "60s", help_heading = LIMITS)]
    pub timeout: Duration,
    /// Forms in which directories of arrays list the array beside NAME.npy (NAME.txt of elements without a fixed
    /// length): extensions of zarrfs-files(7) such as raw, nrrd or hdr, chunks, or all; nc, h5, csv and others list the
    /// files of groups. Every form opens by name, listed or not
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = SHOWN)]
    pub list: Vec<ListedFormat>,
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
#[command(after_help = with_files!("  zarrfs list\n  zarrfs list --json\n"))]
pub struct ListArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `zarrfs umount`.
#[derive(Args, Debug)]
#[command(after_help = with_files!("  zarrfs umount /mnt/data\n"))]
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
    after_help = with_files!("  mount -t zarrfs -o ro,list=raw:chunks /data/data.zarr /mnt/data\n")
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

/// Which changes a command is about.
#[derive(Args, Debug)]
pub struct PlaceArgs {
    /// The mountpoint, or an upper folder
    pub place: PathBuf,
    /// The store, where the upper folder does not say all of its URL, or where it has been moved to: it must have the keys
    /// that were changed in the folder, which belongs to it from the next commit on
    #[arg(long, value_name = "STORE")]
    pub store: Option<String>,
    /// How a store on the network is reached, if it is not mounted
    #[command(flatten)]
    pub remote: RemoteArgs,
}

/// Arguments of `zarrfs status`.
#[derive(Args, Debug)]
#[command(after_help = with_files!("  zarrfs status /mnt/data\n  zarrfs status --json changes\n"))]
pub struct StatusArgs {
    /// Which changes
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Print JSON
    #[arg(long, help_heading = None)]
    pub json: bool,
}

/// Arguments of `zarrfs diff`.
#[derive(Args, Debug)]
#[command(after_help = with_files!(
    "  zarrfs diff /mnt/data\n  \
       zarrfs diff --arrays /mnt/data\n  \
       zarrfs diff --values old.zarr s3://bucket/new.zarr\n"
))]
pub struct DiffArgs {
    /// Which changes
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Another store, with which PLACE is compared, then a store as well: each a path, a URL or a path in a mount
    #[arg(value_name = "OTHER", conflicts_with = "store", help_heading = None)]
    pub other: Option<String>,
    /// Compare nodes, shapes and elements of two stores alone: attributes, names of dimensions, fill values, chunks, codecs
    /// and sizes of data types do not count
    #[arg(long, requires = "other", help_heading = None)]
    pub values: bool,
    /// Tell nodes, attributes and regions of arrays instead of keys
    #[arg(long, help_heading = None)]
    pub arrays: bool,
    /// Print JSON
    #[arg(long, help_heading = None)]
    pub json: bool,
}

/// Arguments of `zarrfs commit`.
#[derive(Args, Debug)]
#[command(after_help = with_files!(
    "  zarrfs commit --dry-run /mnt/data\n  \
       zarrfs commit /mnt/data\n  \
       zarrfs commit --to s3://bucket/new.zarr /mnt/data\n"
))]
pub struct CommitArgs {
    /// Which changes
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Only say what would be done, and what is in conflict
    #[arg(long, help_heading = None)]
    pub dry_run: bool,
    /// Overwrite what others changed meanwhile
    #[arg(long, help_heading = None)]
    pub force: bool,
    /// Write the store with all changes to this new one instead, a folder or a URL; changes stay where they are
    #[arg(long, value_name = "URL", help_heading = None, conflicts_with_all = ["dry_run", "force"])]
    pub to: Option<String>,
    /// Print JSON
    #[arg(long, help_heading = None)]
    pub json: bool,
}

/// Arguments of `zarrfs discard`.
#[derive(Args, Debug)]
#[command(after_help = with_files!("  zarrfs discard /mnt/data tas\n  zarrfs discard --all /mnt/data\n"))]
pub struct DiscardArgs {
    /// Which changes
    #[command(flatten)]
    pub place: PlaceArgs,
    /// What was changed at this path in the store and below
    #[arg(help_heading = None)]
    pub path: Option<String>,
    /// Discard all changes, without a question
    #[arg(long, help_heading = None, conflicts_with = "path")]
    pub all: bool,
}

/// Arguments of `zarrfs tree`.
#[derive(Args, Debug)]
#[command(after_help = with_files!("  zarrfs tree data.zarr\n  zarrfs tree --anon s3://bucket/data.zarr\n"))]
pub struct TreeArgs {
    /// The store, or a group or an array in it
    pub path: String,
    /// How many levels of groups to show
    #[arg(long, value_name = "N")]
    pub depth: Option<usize>,
    /// Count all stored chunks, however many there are
    #[arg(long)]
    pub sizes: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// How the store is read
    #[command(flatten)]
    pub store: StoreArgs,
}

/// Arguments of `zarrfs ls`.
#[derive(Args, Debug)]
#[command(after_help = with_files!("  zarrfs ls -l data.zarr\n"))]
pub struct LsArgs {
    /// The store, or a group or an array in it
    pub path: String,
    /// Say what each node is
    #[arg(short, long)]
    pub long: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// How the store is read
    #[command(flatten)]
    pub store: StoreArgs,
}

/// Arguments of `zarrfs info`.
#[derive(Args, Debug)]
#[command(after_help = with_files!("  zarrfs info data.zarr/tas\n  zarrfs info --json data.zarr/tas\n"))]
pub struct InfoArgs {
    /// The store, a group or an array in it, the name of a decoded file: tas/tas@0.nii, or the key of a shard or of an
    /// inner chunk in it: tas/c/0/0@1.0
    pub path: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// How the store is read
    #[command(flatten)]
    pub store: StoreArgs,
}

/// Arguments of `zarrfs cp`.
#[derive(Args, Debug)]
#[command(after_help = with_files!("  zarrfs cp data.zarr/tas@0 first.npy\n  zarrfs cp --as v2 data.zarr data-v2.zarr\n"))]
pub struct CpArgs {
    /// The array or group, after the path or URL of its store; @ and a selection after an array is a region: tas@0,:,10:20
    pub path: String,
    /// The file to write; with --as, the folder of the new store
    pub file: PathBuf,
    /// The format, such as npy or cf.npy, if it is not that of the file's ending
    #[arg(long, value_name = "NAME")]
    pub format: Option<String>,
    /// Write a Zarr store with uncompressed chunks, of format v2 or v3, that any Zarr library reads
    #[arg(long = "as", value_name = "FORMAT", conflicts_with = "format", value_parser = target_named)]
    pub target: Option<&'static Target>,
    /// How the store is read
    #[command(flatten)]
    pub store: StoreArgs,
}

/// Parses the name of a format of plain stores.
fn target_named(name: &str) -> Result<&'static Target> {
    let target = TARGETS.into_iter().find(|target| target.name == name);
    target.ok_or_else(|| Error::invalid(name, "not a format of stores; there are v3 and v2"))
}

/// What a map is coloured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Measure {
    /// Whether chunks are stored.
    Presence,
    /// How long they are as they are stored.
    Size,
    /// How much longer they are decoded.
    Ratio,
}

/// Arguments of `zarrfs map`.
#[derive(Args, Debug)]
#[command(after_help = with_files!("  zarrfs map data.zarr/tas\n  zarrfs map --by size -o map.png data.zarr/tas\n"))]
pub struct MapArgs {
    /// The array, or the key of a shard, after the path or URL of its store
    pub path: String,
    /// Which dimensions are rows and columns, such as 0,2
    #[arg(long, value_name = "ROWS,COLUMNS", value_parser = values::pair)]
    pub axes: Option<(usize, usize)>,
    /// What the colours show
    #[arg(long, value_enum, value_name = "MEASURE", default_value = "presence")]
    pub by: Measure,
    /// Decode every stored chunk
    #[arg(long)]
    pub data: bool,
    /// Write the picture to this file, a PNG or SVG by its ending
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// How the store is read
    #[command(flatten)]
    pub store: StoreArgs,
}

/// Arguments of `zarrfs preview`.
#[derive(Args, Debug)]
#[command(after_help = with_files!("  zarrfs preview data.zarr/tas@0\n  zarrfs preview -o tas.png data.zarr/tas@0\n"))]
pub struct PreviewArgs {
    /// The array, after the path or URL of its store; @ and a selection after it is a region: tas@0,:,10:20
    pub path: String,
    /// Write the picture to this file, a PNG or SVG by its ending
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print the plane and its range as JSON, and no picture
    #[arg(long)]
    pub json: bool,
    /// How the store is read
    #[command(flatten)]
    pub store: StoreArgs,
}

/// Arguments of `zarrfs stats`.
#[derive(Args, Debug)]
#[command(after_help = with_files!("  zarrfs stats --watch /mnt/data\n  zarrfs stats --prometheus /mnt/data\n"))]
pub struct StatsArgs {
    /// The mountpoint
    pub dir: PathBuf,
    /// Print them again and again, with how much a second brings
    #[arg(long, conflicts_with_all = ["json", "prometheus"])]
    pub watch: bool,
    /// How long to wait in between
    #[arg(long, value_name = "DURATION", value_parser = values::duration, default_value = "1s", requires = "watch")]
    pub interval: Duration,
    /// Print the text that Prometheus reads
    #[arg(long, conflicts_with = "json")]
    pub prometheus: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `zarrfs cat`.
#[derive(Args, Debug)]
#[command(after_help = with_files!(
    "  zarrfs cat data.zarr/tas/zarr.json\n  \
       zarrfs cat --decode data.zarr/tas/c/0/0/0\n  \
       zarrfs cat --select 0,:,10:20 data.zarr/tas\n"
))]
pub struct CatArgs {
    /// The key or the array, after the path or URL of its store; KEY@N is an inner chunk of a shard: tas/c/0/0@1.0
    pub path: String,
    /// Print the elements of the chunk that has this key
    #[arg(long)]
    pub decode: bool,
    /// Print elements of the array, selected as in numpy: 0,:,10:20
    #[arg(
        long,
        value_name = "SELECTION",
        allow_hyphen_values = true,
        conflicts_with = "decode"
    )]
    pub select: Option<String>,
    /// How elements are printed: text, or a format of files such as npy, raw, cf.npy, or txt for strings as lines of JSON
    #[arg(long, value_name = "NAME", default_value = "text")]
    pub format: String,
    /// How the store is read
    #[command(flatten)]
    pub store: StoreArgs,
}

/// Arguments of `zarrfs check`.
#[derive(Args, Debug)]
#[command(after_help = with_files!(
    "  zarrfs check data.zarr\n  \
       zarrfs check --data data.zarr/tas\n  \
       zarrfs check --json --anon s3://bucket/data.zarr\n  \
       zarrfs check --fix consolidated --cow changes data.zarr\n"
))]
pub struct CheckArgs {
    /// The store, or a group or array in it: a path, a URL or a path in a mount
    pub path: String,
    /// Read and decode every chunk
    #[arg(long)]
    pub data: bool,
    /// Before that, make this anew; writes, and so needs --cow or --yes
    #[arg(long, value_enum, value_name = "WHAT", conflicts_with = "consolidated")]
    pub fix: Option<Mendable>,
    /// Write to the folder UPPER, as a mount with --cow does, and not to the store
    #[arg(long, value_name = "UPPER", requires = "fix", conflicts_with = "yes")]
    pub cow: Option<PathBuf>,
    /// Write to the store itself
    #[arg(long, requires = "fix")]
    pub yes: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// How the store is read
    #[command(flatten)]
    pub store: StoreArgs,
}

/// What a check can make anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mendable {
    /// The consolidated metadata of the group, and of the groups below it that have some.
    Consolidated,
}

/// Arguments of `zarrfs completions`.
#[derive(Args, Debug)]
#[command(after_help = with_files!("  zarrfs completions bash\n  zarrfs completions fish\n"))]
pub struct CompletionsArgs {
    /// The shell: bash, zsh, fish, elvish or powershell
    #[arg(hide_possible_values = true)]
    pub shell: clap_complete::Shell,
}
