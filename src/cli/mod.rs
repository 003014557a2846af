//! The command line: its definitions here, and a file for each command.
//!
//! The same definitions make the manual pages. `-o` options are in `options`; `run` picks the command. Commands on
//! changes ask the mount that has them (`control_client`); what they ask for is carried out in `mount/`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand};

use self::remote::RemoteArgs;
use self::spill::SpillChoice;
use crate::dialect::Choice;
use crate::mount::open::ViewKind;
use crate::view::files::ListedForm;

mod background;
mod cat;
mod changes;
mod check;
mod completions;
mod control_client;
mod cp;
mod diff_arrays;
mod diff_stores;
mod elements;
mod examples;
mod info;
mod input_watch;
mod inspect_args;
mod list;
mod log_target;
mod map;
mod mount;
mod notify;
mod options;
mod owners;
mod paint;
mod picture;
mod plan;
mod planning;
mod preview;
mod progress;
mod remote;
mod report;
mod run;
mod secrets;
mod shown;
mod spill;
mod stats;
mod store_args;
mod tree;
mod typed;
mod umount;
mod units;
mod upper;
mod usage;

pub use inspect_args::{
    CatArgs, CheckArgs, CompletionsArgs, CpArgs, InfoArgs, LsArgs, MapArgs, Measure, Mendable,
    PreviewArgs, StatsArgs, TreeArgs,
};
pub use run::run;
pub use secrets::arguments;

/// Mounts Zarr stores as directories.
#[derive(Parser, Debug)]
#[command(
    name = "zarrfs",
    version,
    propagate_version = true,
    disable_help_subcommand = true,
    after_help = examples::PROGRAM
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Mount a Zarr store at a directory
    ///
    /// Returns when the mount answers; a process in the background serves it until it is unmounted with
    /// 'zarrfs umount', 'umount' or 'fusermount3 -u', or gets SIGTERM, SIGINT or SIGHUP.
    Mount(Box<MountArgs>),
    /// Unmount a directory
    ///
    /// The directory is free at once, also when programs still use the mount or its daemon is gone. If the mount does
    /// not answer for five seconds, programs that wait for it get an error.
    #[command(visible_alias = "unmount")]
    Umount(UmountArgs),
    /// List the mounts of this machine
    ///
    /// A line for each: the store, the directory, the view that is there, and how many changes are not in the store
    /// yet.
    List(ListArgs),
    /// Say how much a mount has changed, and how much of it failed
    ///
    /// Counts the keys that were put and removed, and names what stays in the upper folder because no key can hold
    /// it: symbolic links, pipes, empty folders, owners and modes. The errors that programs met are in
    /// DIR/.zarrfs/errors.
    Status(StatusArgs),
    /// List what a mount with --cow has changed, or what differs between two stores
    ///
    /// A line for each key: 'A' for one that is new, 'M' for one with another content, 'D' for one that was removed.
    /// With --arrays nodes that were made, removed or changed: their attributes, metadata, and boxes of elements. Two stores,
    /// of whatever dialects, are compared in that way: a node that only the second has was created. The exit status is 1
    /// if there are any differences.
    Diff(DiffArgs),
    /// Bring what was changed into the store
    ///
    /// Chunks come before the metadata that name them, removals last. If somebody else changed one of the keys
    /// meanwhile, nothing is done, those keys are listed, and the exit status is 1. A commit that was cut is ended
    /// by running it again.
    Commit(CommitArgs),
    /// Throw away what was changed
    Discard(DiscardArgs),
    /// Show the groups and arrays of a store as a tree
    ///
    /// Of each array the data type, shape, chunks or shards, codecs, and how much is stored: of arrays with very many
    /// chunks only that it is more than was counted, unless --sizes is given. PATH is the path or URL of a store, or of
    /// something in it, or a path in a mount of zarrfs, which is then asked.
    Tree(TreeArgs),
    /// List the nodes in a group
    Ls(LsArgs),
    /// Show all that is known of a group or an array
    ///
    /// Its documents, attributes and codecs, how many of its chunks are stored in how many bytes, what a read costs at
    /// most, which decoded files open, and why it does not decode if it does not. Of a decoded file: what it holds, or
    /// why there is none.
    Info(InfoArgs),
    /// Print a key as it is stored, a chunk decoded, or a region of an array
    ///
    /// PATH is the path or URL of a store with the key or the array after it, or a path in a mount of zarrfs.
    Cat(CatArgs),
    /// Find what is wrong with a store
    ///
    /// Holds each document against the text of its dialect, and finds keys of no node, chunks outside the grid, what
    /// writers left behind, consolidated metadata that differ from the documents, nodes that collide, links that lead
    /// nowhere, and shards with a wrong index; with --data it decodes every chunk. A line for each finding: an error where
    /// a text is broken or data are lost, a warning where a known writer deviates or nothing is lost yet, advice where
    /// something could be better. The exit status is 1 if there are errors. Nothing is written without --fix. --fix
    /// consolidated first makes the consolidated metadata of the group anew, and of the groups below it that have some; a
    /// group without any gets them. The key is written on the condition that no other program changed it meanwhile.
    Check(CheckArgs),
    /// Print what a shell needs to complete commands and options
    ///
    /// For bash it goes to a file in ~/.local/share/bash-completion/completions, for zsh to a folder of $fpath as _zarrfs,
    /// for fish to ~/.config/fish/completions/zarrfs.fish.
    Completions(CompletionsArgs),
    /// Write an array, or a region of it, to a file
    ///
    /// The format is that of the file's ending, such as npy, raw, nrrd, cf.npy, png or txt. A selection is written as in
    /// numpy, or with names of dimensions and labels: tas@time=2020-03,lat=10:20.
    Cp(CpArgs),
    /// Show which chunks of an array are stored
    ///
    /// Two dimensions of the chunk grid are shown, the last two unless --axes is given; the others are counted together.
    /// A large grid is shown in cells of several chunks. With --data every stored chunk is decoded, and the exit status
    /// is 1 if one does not.
    Map(MapArgs),
    /// Show the values of a plane of an array as a picture
    ///
    /// Of more than two dimensions the first ones are shown at their first element, unless a selection says where: tas@5.
    /// A large plane is thinned out. The fill value is dark, and so is what is no number.
    Preview(PreviewArgs),
    /// Show the counters of a mount
    ///
    /// zarrfs-files(7) says what each of them counts.
    Stats(StatsArgs),
}

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
    /// Mount the files view here as well, from the same process and cache
    #[arg(long, value_name = "DIR2")]
    pub files: Option<PathBuf>,
    /// Stay in the foreground and log to stderr
    #[arg(short, long)]
    pub foreground: bool,
    /// Unmount at the end of standard input: a program that holds the other end of a pipe has the mount end with it, however
    /// it ends
    #[arg(long)]
    pub until_eof: bool,
    /// Remove DIR, and DIR2, when the mount has ended
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
    /// Most memory for decoded chunks, such as 256M [default: a quarter of the machine's, at most 4G]
    #[arg(long, value_name = "SIZE", value_parser = units::memory, help_heading = LIMITS)]
    pub memory: Option<u64>,
    /// Longest decoded chunk that is read; a longer one is refused
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = "1G", help_heading = LIMITS)]
    pub max_chunk: u64,
    /// Folder for decoded chunks that memory has no room for and that a program reading in order will want again; none
    /// to decode them again [default: that of --cache-dir, $XDG_CACHE_HOME or $TMPDIR]
    #[arg(long, value_name = "DIR|none", value_parser = spill::choice, default_value = "auto", hide_default_value = true, help_heading = LIMITS)]
    pub spill: SpillChoice,
    /// Most disk space for them, and at most half of what is free
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = "64G", help_heading = LIMITS)]
    pub spill_size: u64,
    /// How long a request may wait for the store, such as 5s; then it is an error
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "60s", help_heading = LIMITS)]
    pub timeout: Duration,
    /// Forms in which directories of arrays list the array beside NAME.npy (NAME.txt of elements without a fixed
    /// length): extensions of zarrfs-files(7) such as raw, nrrd or hdr, chunks, or all. Every form opens by name, listed or
    /// not
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = SHOWN)]
    pub list: Vec<ListedForm>,
    /// Put every change into the folder UPPER, which is made if need be; the store itself stays as it is
    #[arg(long, value_name = "UPPER", help_heading = CHANGES)]
    pub cow: Option<PathBuf>,
    /// Write each file to the store when it is closed or synced; what the store does not take is kept in UPPER
    /// [default: a folder in ~/.local/state/zarrfs]
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
    /// Do not read data types that are not known as the fallback that their metadata name
    #[arg(long, help_heading = SHOWN)]
    pub no_fallback: bool,
    /// How a store on the network is reached
    #[command(flatten)]
    pub remote: RemoteArgs,
    /// Where to log [default: syslog, or the journal where systemd runs it; stderr with --foreground]
    #[arg(long, value_name = "FILE", help_heading = LOG)]
    pub log: Option<PathBuf>,
    /// Append a line of JSON to this file for each request of a program; see zarrfs-files(7)
    #[arg(long, value_name = "FILE", help_heading = LOG)]
    pub access_log: Option<PathBuf>,
    /// Log more; twice and three times for still more
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

/// Which changes a command is about.
#[derive(Args, Debug)]
pub struct PlaceArgs {
    /// The mountpoint, or an upper folder
    pub place: PathBuf,
    /// The store, where the upper folder does not say all of its URL
    #[arg(long, value_name = "STORE")]
    pub store: Option<String>,
    /// How a store on the network is reached, if it is not mounted
    #[command(flatten)]
    pub remote: RemoteArgs,
}

/// Arguments of `zarrfs status`.
#[derive(Args, Debug)]
#[command(after_help = examples::STATUS)]
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
#[command(after_help = examples::DIFF)]
pub struct DiffArgs {
    /// Which changes
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Another store, with which the first path is compared: a path, a URL or a path in a mount, of any dialect
    #[arg(value_name = "OTHER", conflicts_with = "store", help_heading = None)]
    pub other: Option<String>,
    /// Compare elements, attributes and shapes of two stores, and not how elements are stored: chunks, codecs and keys
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
#[command(after_help = examples::COMMIT)]
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
    /// Write the store with all changes to this new one instead; changes stay where they are
    #[arg(long, value_name = "URL", help_heading = None, conflicts_with_all = ["dry_run", "force"])]
    pub to: Option<String>,
    /// Print JSON
    #[arg(long, help_heading = None)]
    pub json: bool,
}

/// Arguments of `zarrfs discard`.
#[derive(Args, Debug)]
#[command(after_help = examples::DISCARD)]
pub struct DiscardArgs {
    /// Which changes
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Only what was changed at this path in the store and below
    #[arg(help_heading = None)]
    pub path: Option<String>,
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

/// Returns the definitions, for the manual pages.
pub fn command() -> clap::Command {
    Cli::command()
}
