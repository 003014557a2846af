//! Defines the arguments of all commands, with the examples in their help.
//!
//! The comments of fields are the help texts and the manual page. The first line of a comment is the help of `-h`, and
//! stands alone: shells show it without its neighbours.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, ValueEnum};

use crate::cli::remote::RemoteArgs;
use crate::cli::store_args::{RepositoryArgs, StoreArgs, VirtualChunkArgs};
use crate::cli::values;
use crate::cli::values::SpillChoice;
use crate::mount::open::ViewKind;
use crate::view::files::ListedFormat;
use crate::view::plain::{TARGETS, Target};
use zarr_format::dialect::Choice;
use zarr_format::error::{Error, Result};

/// The last lines of `--help`, and the section EXAMPLES of the manual page.
macro_rules! examples {
    ($($line:literal)+) => {
        concat!("Examples:", $("\n  ", $line,)+)
    };
}

/// Headings under which `zarrfs mount --help` groups its options.
const SHOWN: &str = "Files";
const CHANGES: &str = "Changes";
const TUNING: &str = "Tuning";
const LOG: &str = "Log";

/// Arguments of `zarrfs mount`.
#[derive(Args, Debug)]
#[command(after_long_help = examples!(
    "zarrfs mount data.zarr /mnt/data"
    "zarrfs mount --view files data.zarr.zip /mnt/arrays"
    "zarrfs mount --anon s3://bucket/data.zarr /mnt/data"
    "zarrfs mount --cache-dir /var/tmp/zarrfs s3://bucket/data.zarr /mnt/data"
    "zarrfs mount --view v2 data.zarr /mnt/data       # plain Zarr v2"
    "zarrfs mount --cow changes data.zarr /mnt/data   # writable"
    "zarrfs mount --tag v1 s3://bucket/repo /mnt/data   # Icechunk"
    "zarrfs mount -o allow_other,memory=256M data.zarr /mnt/data"
))]
pub struct MountArgs {
    /// Zarr store: a directory, a zip archive or a URL
    ///
    /// The URL begins with s3://, gs://, az://, abfss://, http:// or https://. A path after a zip archive (.zip or
    /// .ozx) is a directory in it. A directory can also be an Icechunk repository.
    pub store: String,
    /// Empty directory to mount the store at
    ///
    /// /dev/fd/N is the descriptor of a FUSE device that another program has mounted already.
    pub dir: PathBuf,
    /// Files at DIR: files, store, v2 or v3
    ///
    /// 'store' has the keys as they are stored, 'files' the arrays as flat files, and 'v3' and 'v2' a plain Zarr store
    /// of that version. DIR/.zarrfs always has all four. 'keys' is another name of 'store', and 'arrays' of 'files'.
    #[arg(long, value_name = "VIEW", default_value = "store", help_heading = SHOWN)]
    pub view: ViewKind,
    /// Keep all changes in a directory, never in the store
    ///
    /// The directory is created if it is missing. 'zarrfs diff' shows the changes, 'zarrfs commit' writes them to the
    /// store, and 'zarrfs discard' drops them. --changes is another name of this option.
    #[arg(long, alias = "changes", value_name = "CHANGES", help_heading = CHANGES)]
    pub cow: Option<PathBuf>,
    /// Write a file to the store when it is closed
    ///
    /// Changes that the store refuses are kept in CHANGES (see --cow) [default: a directory in zarrfs below
    /// $XDG_STATE_HOME or ~/.local/state].
    #[arg(long, help_heading = CHANGES)]
    pub write_through: bool,
    /// Refuse changes, also with --cow or --write-through
    #[arg(short, long, help_heading = CHANGES)]
    pub read_only: bool,
    /// Options for stores on a network
    #[command(flatten)]
    pub remote: RemoteArgs,
    /// Options that select a version of an Icechunk repository
    #[command(flatten)]
    pub repository: RepositoryArgs,
    /// Memory limit of caches, such as 256M
    ///
    /// At least 1M [default: a quarter of the memory of the machine or container, at most 4G].
    #[arg(long, value_name = "SIZE", value_parser = values::memory, help_heading = TUNING)]
    pub memory: Option<u64>,
    /// Let other users read the mount
    #[arg(long, help_heading = SHOWN)]
    pub allow_other: bool,
    /// Stay in the foreground, and log to stderr
    #[arg(short, long, help_heading = LOG)]
    pub foreground: bool,
    /// Options of mount(8), such as allow_other,memory=256M
    ///
    /// Every long option has a name here, with _ for -. zarrfs-mount(1) lists all names.
    #[arg(short, value_name = "OPTIONS", action = ArgAction::Append, help_heading = SHOWN)]
    pub options: Vec<String>,
    /// Log file [default: syslog or journal]
    ///
    /// Without this option zarrfs logs to syslog, to the journal if systemd started it, or to stderr with
    /// --foreground. SIGHUP opens the file again. --log-file is another name of this option.
    #[arg(long, alias = "log-file", value_name = "FILE", help_heading = LOG)]
    pub log: Option<PathBuf>,
    /// Log more; -vv and -vvv log still more
    ///
    /// RUST_LOG selects messages by target, see zarrfs-admin(7).
    #[arg(short, long, action = ArgAction::Count, hide_short_help = true, help_heading = LOG)]
    pub verbose: u8,
    /// Mount over the files of a directory that is not empty
    #[arg(long, alias = "nonempty", hide_short_help = true, help_heading = SHOWN)]
    pub allow_non_empty: bool,
    /// Formats to list in directories, such as raw,tif or all
    ///
    /// A directory lists an array as NAME.npy (NAME.txt if its elements are strings). Every other format opens by name,
    /// listed or not. 'chunks' lists the chunks of each array, and nc, h5 and csv the files of groups;
    /// zarrfs-formats(7) has all names.
    #[arg(long, value_name = "LIST", value_delimiter = ',', hide_short_help = true, help_heading = SHOWN)]
    pub list: Vec<ListedFormat>,
    /// Owner of all files, as a name or a number [default: you]
    #[arg(long, value_name = "USER", value_parser = values::user, hide_short_help = true, help_heading = SHOWN)]
    pub uid: Option<u32>,
    /// Group of all files, as a name or a number [default: yours]
    #[arg(long, value_name = "GROUP", value_parser = values::group, hide_short_help = true, help_heading = SHOWN)]
    pub gid: Option<u32>,
    /// Permissions to remove from all files, such as 027
    #[arg(long, value_name = "OCTAL", value_parser = values::octal, default_value = "0", hide_short_help = true, help_heading = SHOWN)]
    pub umask: u32,
    /// Follow symbolic links that leave the store
    #[arg(long, hide_short_help = true, help_heading = SHOWN)]
    pub follow_symlinks: bool,
    /// Dialect: v2, v3, draft2019, draft2020, draft2022 or n5
    ///
    /// Without this option the metadata files decide.
    #[arg(long, value_name = "DIALECT", hide_short_help = true, help_heading = SHOWN)]
    pub dialect: Option<Choice>,
    /// Read nodes from consolidated metadata, also of a local store
    #[arg(long, hide_short_help = true, help_heading = SHOWN)]
    pub consolidated: bool,
    /// Use changes that were made for this store at another place
    ///
    /// The store must have the keys that were changed. CHANGES belongs to this store from then on.
    #[arg(long, hide_short_help = true, help_heading = CHANGES)]
    pub rebind: bool,
    /// Allow writing elements of arrays with lossy codecs
    #[arg(long, hide_short_help = true, help_heading = CHANGES)]
    pub lossy: bool,
    /// Largest decoded chunk that zarrfs reads
    #[arg(long, value_name = "SIZE", value_parser = values::size, default_value = "1G", hide_short_help = true, help_heading = TUNING)]
    pub max_chunk: u64,
    /// Directory for decoded chunks that exceed --memory, or none
    ///
    /// zarrfs uses at most 64G and half of the free space. With 'none' it decodes these chunks again instead
    /// [default: --cache-dir, $XDG_CACHE_HOME or $TMPDIR].
    #[arg(long, value_name = "DIR|none", value_parser = values::spill, default_value = "auto", hide_default_value = true, hide_short_help = true, help_heading = TUNING)]
    pub spill: SpillChoice,
    /// Let the kernel read files of a local store directly
    ///
    /// This is faster, but an open file changes if another program overwrites it in place. Needs root and Linux 6.9.
    #[arg(long, conflicts_with_all = ["cow", "write_through"], hide_short_help = true, help_heading = TUNING)]
    pub passthrough: bool,
    /// Time limit of a request to the store
    #[arg(long, value_name = "DURATION", value_parser = values::duration, default_value = "60s", hide_short_help = true, help_heading = TUNING)]
    pub timeout: Duration,
    /// Unmount when standard input closes
    ///
    /// The mount then ends with the process that holds the other end of the pipe.
    #[arg(long, hide = true)]
    pub until_eof: bool,
    /// Remove DIR when the mount has ended
    #[arg(long, hide = true)]
    pub rmdir: bool,
}

/// Arguments of `zarrfs list`.
#[derive(Args, Debug)]
#[command(after_long_help = examples!("zarrfs list" "zarrfs list --json"))]
pub struct ListArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `zarrfs umount`.
#[derive(Args, Debug)]
#[command(after_long_help = examples!("zarrfs umount /mnt/data"))]
pub struct UmountArgs {
    /// Mountpoint
    pub dir: PathBuf,
}

/// Arguments of `mount.zarrfs`, as mount(8) calls it, and of `zarrfs STORE DIR -o OPTIONS`.
#[derive(Parser, Debug)]
#[command(
    name = "mount.zarrfs",
    version = env!("ZARRFS_VERSION"),
    about = "Mount a Zarr store; for mount(8)",
    after_help = examples!("mount -t zarrfs -o ro,list=raw:chunks /data/data.zarr /mnt/data")
)]
pub struct HelperArgs {
    /// Zarr store: a directory, a zip archive or a URL
    pub store: String,
    /// Mountpoint
    pub dir: PathBuf,
    /// Ignore unknown options
    #[arg(short = 's')]
    pub sloppy: bool,
    /// Ignored: there is no mtab
    #[arg(short = 'n')]
    pub no_mtab: bool,
    /// Log more
    #[arg(short = 'v', action = ArgAction::Count)]
    pub verbose: u8,
    /// Check everything, but mount nothing
    #[arg(short = 'f')]
    pub fake: bool,
    /// Ignored: a mount is writable with cow or write_through
    #[arg(short = 'w')]
    pub writable: bool,
    /// Mount read-only, also with cow or write_through
    #[arg(short = 'r')]
    pub read_only: bool,
    /// Ignored: the type of the file system
    #[arg(short = 't', value_name = "TYPE")]
    pub kind: Option<String>,
    /// Options, separated by commas
    #[arg(short = 'o', value_name = "OPTIONS", action = ArgAction::Append)]
    pub options: Vec<String>,
}

/// Arguments that name a changes directory or its mount.
#[derive(Args, Debug)]
pub struct PlaceArgs {
    /// Mountpoint, or a changes directory
    pub place: PathBuf,
    /// Store of a changes directory that is not mounted
    ///
    /// Needed if the URL of the store has secrets, which the changes directory does not keep, or if the store was
    /// moved. A moved store must have the keys that were changed; the changes belong to it from the next commit on.
    #[arg(long, value_name = "STORE")]
    pub store: Option<String>,
    /// Options for stores on a network
    #[command(flatten)]
    pub remote: RemoteArgs,
}

/// Arguments of `zarrfs status`.
#[derive(Args, Debug)]
#[command(after_long_help = examples!("zarrfs status /mnt/data" "zarrfs status --json changes"))]
pub struct StatusArgs {
    /// The mount or changes directory
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Print JSON
    #[arg(long, help_heading = None)]
    pub json: bool,
}

/// Arguments of `zarrfs diff`.
#[derive(Args, Debug)]
#[command(after_long_help = examples!(
    "zarrfs diff /mnt/data"
    "zarrfs diff --arrays /mnt/data"
    "zarrfs diff --values old.zarr s3://bucket/new.zarr"
    "zarrfs diff --values 'repo?tag=v1' 'repo?branch=dev'   # Icechunk"
))]
pub struct DiffArgs {
    /// The mount or changes directory
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Second store, to compare PLACE with
    ///
    /// PLACE is a store then too. Both are paths, URLs, or paths in a mount.
    #[arg(value_name = "OTHER", conflicts_with = "store", help_heading = None)]
    pub other: Option<String>,
    /// Options for the objects outside an Icechunk repository that its chunks refer to
    #[command(flatten)]
    pub outside: VirtualChunkArgs,
    /// Compare only nodes, shapes and elements of two stores
    ///
    /// Attributes, names of dimensions, fill values, chunks, codecs and sizes of data types do not count.
    #[arg(long, requires = "other", help_heading = None)]
    pub values: bool,
    /// List nodes, attributes and regions of arrays, not keys
    #[arg(long, help_heading = None)]
    pub arrays: bool,
    /// Print JSON
    #[arg(long, help_heading = None)]
    pub json: bool,
}

/// Arguments of `zarrfs commit`.
#[derive(Args, Debug)]
#[command(after_long_help = examples!(
    "zarrfs commit --dry-run /mnt/data"
    "zarrfs commit /mnt/data"
    "zarrfs commit --to s3://bucket/new.zarr /mnt/data"
))]
pub struct CommitArgs {
    /// The mount or changes directory
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Show what would be written, and conflicts; write nothing
    #[arg(long, help_heading = None)]
    pub dry_run: bool,
    /// Overwrite keys that other programs changed
    #[arg(long, help_heading = None)]
    pub force: bool,
    /// Write a new store with the changes to this path or URL
    ///
    /// The new store is a complete copy. The original store and the changes stay as they are.
    #[arg(long, value_name = "URL", help_heading = None, conflicts_with_all = ["dry_run", "force"])]
    pub to: Option<String>,
    /// Print JSON
    #[arg(long, help_heading = None)]
    pub json: bool,
}

/// Arguments of `zarrfs discard`.
#[derive(Args, Debug)]
#[command(after_long_help = examples!("zarrfs discard /mnt/data tas" "zarrfs discard --all /mnt/data"))]
pub struct DiscardArgs {
    /// The mount or changes directory
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Path in the store: discard its changes and those below it
    #[arg(help_heading = None)]
    pub path: Option<String>,
    /// Discard all changes without a question
    #[arg(long, help_heading = None, conflicts_with = "path")]
    pub all: bool,
}

/// Arguments of `zarrfs tree`.
#[derive(Args, Debug)]
#[command(after_long_help = examples!(
    "zarrfs tree data.zarr"
    "zarrfs tree --depth 1 --json data.zarr"
    "zarrfs tree --anon s3://bucket/data.zarr"
))]
pub struct TreeArgs {
    /// Store, or a group or an array in it
    pub path: String,
    /// Levels of groups to show
    #[arg(long, value_name = "N")]
    pub depth: Option<usize>,
    /// Count all stored chunks, also of very large arrays
    #[arg(long)]
    pub sizes: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Options for opening the store
    #[command(flatten)]
    pub store: StoreArgs,
}

/// Arguments of `zarrfs ls`.
#[derive(Args, Debug)]
#[command(after_long_help = examples!("zarrfs ls data.zarr" "zarrfs ls -l data.zarr/survey"))]
pub struct LsArgs {
    /// Store, or a group or an array in it
    pub path: String,
    /// Show the kind, data type and shape of each node
    #[arg(short, long)]
    pub long: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Options for opening the store
    #[command(flatten)]
    pub store: StoreArgs,
}

/// Arguments of `zarrfs info`.
#[derive(Args, Debug)]
#[command(after_long_help = examples!(
    "zarrfs info data.zarr/tas"
    "zarrfs info --json data.zarr/tas"
    "zarrfs info data.zarr/tas/tas@0.nii            # a file of the files view"
    "zarrfs info data.zarr/survey/volume/c/0/0/0    # the index of a shard"
))]
pub struct InfoArgs {
    /// Store, group, array, file of the files view, or key of a shard
    ///
    /// Examples are data.zarr/tas, data.zarr/tas/tas@0.nii, and, for an inner chunk, data.zarr/tas/c/0/0@1.0.
    pub path: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Options for opening the store
    #[command(flatten)]
    pub store: StoreArgs,
}

/// Arguments of `zarrfs cp`.
#[derive(Args, Debug)]
#[command(after_long_help = examples!(
    "zarrfs cp data.zarr/tas tas.npy"
    "zarrfs cp data.zarr/tas@0 first.tif"
    "zarrfs cp data.zarr data.nc"
    "zarrfs cp --as v2 data.zarr data-v2.zarr"
))]
pub struct CpArgs {
    /// Store, group or array; tas@0,:,10:20 is a selection of tas
    pub path: String,
    /// File to write, or '-'; with --as, the new store
    pub file: PathBuf,
    /// Format, such as npy or cf.npy [default: by the name of FILE]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// Write a plain Zarr store of version v2 or v3
    ///
    /// Its chunks are not compressed, and any Zarr library can read it.
    #[arg(long = "as", value_name = "VERSION", conflicts_with = "format", value_parser = target_named)]
    pub target: Option<&'static Target>,
    /// Options for opening the store
    #[command(flatten)]
    pub store: StoreArgs,
}

/// Parses the value of `--as`: v2 or v3.
fn target_named(name: &str) -> Result<&'static Target> {
    let target = TARGETS.into_iter().find(|target| target.name == name);
    target.ok_or_else(|| Error::invalid("", "choose v2 or v3"))
}

/// The property of chunks that the colours of `zarrfs map` show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Measure {
    /// Whether each chunk is stored
    Presence,
    /// Stored size of each chunk
    Size,
    /// Decoded size divided by stored size
    Ratio,
}

/// Arguments of `zarrfs map`.
#[derive(Args, Debug)]
#[command(after_long_help = examples!(
    "zarrfs map data.zarr/tas"
    "zarrfs map --by size data.zarr/tas"
    "zarrfs map --by size -o map.png data.zarr/tas"
))]
pub struct MapArgs {
    /// Array, or key of a shard
    pub path: String,
    /// Dimensions that are rows and columns, such as 0,2
    #[arg(long, value_name = "ROWS,COLUMNS", value_parser = values::pair)]
    pub axes: Option<(usize, usize)>,
    /// Meaning of the colours
    #[arg(long, value_enum, value_name = "MEASURE", default_value = "presence")]
    pub by: Measure,
    /// Decode every stored chunk
    #[arg(long)]
    pub data: bool,
    /// Write the picture to this .png or .svg file
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Options for opening the store
    #[command(flatten)]
    pub store: StoreArgs,
}

/// Arguments of `zarrfs preview`.
#[derive(Args, Debug)]
#[command(after_long_help = examples!(
    "zarrfs preview data.zarr/tas"
    "zarrfs preview data.zarr/tas@5"
    "zarrfs preview -o tas.png data.zarr/tas@5"
))]
pub struct PreviewArgs {
    /// Array; tas@0,:,10:20 is a selection of tas
    pub path: String,
    /// Write the picture to this .png or .svg file
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print the plane and its range as JSON, without a picture
    #[arg(long)]
    pub json: bool,
    /// Options for opening the store
    #[command(flatten)]
    pub store: StoreArgs,
}

/// Arguments of `zarrfs stats`.
#[derive(Args, Debug)]
#[command(after_long_help = examples!(
    "zarrfs stats /mnt/data"
    "zarrfs stats --watch /mnt/data"
    "zarrfs stats --prometheus /mnt/data"
))]
pub struct StatsArgs {
    /// Mountpoint
    pub dir: PathBuf,
    /// Refresh continuously, and show rates per second
    #[arg(long, conflicts_with_all = ["json", "prometheus"])]
    pub watch: bool,
    /// Time between two refreshes
    #[arg(long, value_name = "DURATION", value_parser = values::duration, default_value = "1s", requires = "watch")]
    pub interval: Duration,
    /// Print the text format of Prometheus
    #[arg(long, conflicts_with = "json")]
    pub prometheus: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `zarrfs cat`.
#[derive(Args, Debug)]
#[command(after_long_help = examples!(
    "zarrfs cat data.zarr/tas/zarr.json"
    "zarrfs cat --decode data.zarr/tas/c/0/0/0"
    "zarrfs cat --select 0,0,10:20 data.zarr/tas"
))]
pub struct CatArgs {
    /// Key, or an array with --select; KEY@1.0 is an inner chunk
    pub path: String,
    /// Print the elements of the chunk at this key
    #[arg(long)]
    pub decode: bool,
    /// Print elements, selected as in numpy: 0,:,10:20
    #[arg(
        long,
        value_name = "SELECTION",
        allow_hyphen_values = true,
        conflicts_with = "decode"
    )]
    pub select: Option<String>,
    /// Format of elements: text, npy, raw, cf.npy, ...
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: String,
    /// Options for opening the store
    #[command(flatten)]
    pub store: StoreArgs,
}

/// Arguments of `zarrfs check`.
#[derive(Args, Debug)]
#[command(after_long_help = examples!(
    "zarrfs check data.zarr"
    "zarrfs check --data data.zarr/tas"
    "zarrfs check --json data.zarr"
    "zarrfs check --fix consolidated --cow changes data.zarr"
))]
pub struct CheckArgs {
    /// Store, or a group or an array in it
    pub path: String,
    /// Read and decode every chunk
    #[arg(long)]
    pub data: bool,
    /// Rebuild this first: consolidated; needs --cow or --yes
    #[arg(
        long,
        value_enum,
        value_name = "PART",
        hide_possible_values = true,
        conflicts_with = "consolidated"
    )]
    pub fix: Option<Mendable>,
    /// Write the fix to a changes directory, not to the store
    #[arg(
        long,
        alias = "changes",
        value_name = "CHANGES",
        requires = "fix",
        conflicts_with = "yes"
    )]
    pub cow: Option<PathBuf>,
    /// Write the fix to the store
    #[arg(long, requires = "fix")]
    pub yes: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Options for opening the store
    #[command(flatten)]
    pub store: StoreArgs,
}

/// What `zarrfs check --fix` can rebuild.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mendable {
    /// Consolidated metadata of the group, and of groups below that have some
    Consolidated,
}

/// Arguments of `zarrfs completions`.
#[derive(Args, Debug)]
#[command(after_long_help = examples!(
    "source <(zarrfs completions bash)"
    "zarrfs completions fish > ~/.config/fish/completions/zarrfs.fish"
))]
pub struct CompletionsArgs {
    /// Shell: bash, zsh, fish, elvish or powershell
    #[arg(hide_possible_values = true)]
    pub shell: clap_complete::Shell,
}
