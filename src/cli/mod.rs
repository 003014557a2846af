//! Parses the command line and runs the command; each command has a file.
//!
//! `args` defines the arguments; the manual pages are generated from the same definitions. `argv_forms` and `options`
//! parse the forms of mount(8). `store_args` and `source` open what a command reads. Commands on changes send a request
//! to the mount that has them (`control_client`); `mount/` executes it.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use plan::MountPlan;
use report::ExitPolicy;

mod args;
mod argv_forms;
mod background;
mod cat;
mod changes;
mod check;
mod completions;
mod control_client;
mod convert;
mod cp;
mod diff;
mod format;
mod info;
mod list;
mod log_target;
mod map;
mod mount;
mod mount_facts;
mod options;
mod output_file;
mod picture;
mod plan;
mod preview;
mod progress;
mod remote;
mod report;
mod secrets;
mod signals;
mod source;
mod spill;
mod stats;
mod store_args;
mod terminal;
mod tree;
mod umount;
mod upper;
mod usage;
mod values;

pub use args::{
    CatArgs, CheckArgs, CommitArgs, CompletionsArgs, CpArgs, DiffArgs, DiscardArgs, HelperArgs,
    InfoArgs, ListArgs, LsArgs, MapArgs, Measure, Mendable, MountArgs, PlaceArgs, PreviewArgs,
    StatsArgs, StatusArgs, TreeArgs, UmountArgs,
};
pub use secrets::arguments;

/// Mounts Zarr stores as directories.
#[derive(Parser, Debug)]
#[command(
    name = "zarrfs",
    version,
    propagate_version = true,
    disable_help_subcommand = true,
    after_help = concat!(
        args::with_files!(
            "  zarrfs mount data.zarr /mnt/data   # or: zarrfs data.zarr /mnt/data\n  \
               ls /mnt/data/.zarrfs/files\n  \
               zarrfs umount /mnt/data\n"
        ),
        "\n'zarrfs help COMMAND' tells all of a command; zarrfs(7) is the manual."
    )
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
    /// Returns when the mount answers, and prints what was found and where the decoded arrays are. A process in the
    /// background serves the mount until it is unmounted with 'zarrfs umount', 'umount' or 'fusermount3 -u', or gets
    /// SIGTERM or SIGINT; at SIGHUP it opens the file of --log anew. A mount takes no changes without --cow or --write-through. 'zarrfs STORE DIR' is the
    /// same as 'zarrfs mount STORE DIR'.
    Mount(Box<MountArgs>),
    /// Unmount a directory
    ///
    /// The directory is free at once, also when programs still use the mount or its daemon is gone. If the mount does
    /// not answer for five seconds, programs that wait for it get an error. 'zarrfs unmount' is the same.
    #[command(visible_alias = "unmount")]
    Umount(UmountArgs),
    /// List the mounts of this machine
    ///
    /// A line for each: the store, the directory, the view that is there, and how many changes are not in the store
    /// yet, or that the mount is read-only. A mount that does not say is listed with why: its process is gone, it does
    /// not answer within five seconds, or it is of another user.
    List(ListArgs),
    /// Say how much a mount has changed, and how much of it failed
    ///
    /// Counts the keys that were put and removed, and names what stays in the upper folder because no key can hold
    /// it: symbolic links, empty folders, owners and modes; extended attributes, which a commit loses; and arrays that are
    /// being written. Of a mount that takes no changes it says so. Of any mount it counts the different errors that programs
    /// met, of which DIR/.zarrfs/errors has the last 1000.
    Status(StatusArgs),
    /// List what a mount with --cow has changed, or what differs between two stores
    ///
    /// A line for each key: 'A' for one that is new, 'M' for one with another content, 'D' for one that was removed.
    /// With --arrays nodes that were made, removed or changed: their attributes, metadata, and boxes of elements. Two stores,
    /// of whatever dialects, are compared in that way: a node that only the second has was created. Attributes are the
    /// same if every reader takes them so: members in another order and 1e0 in place of 1.0 do not differ, 1 and 1.0 do.
    /// Fill values are compared as elements. With --values a node differs if it is in one store alone, is a group in
    /// one and an array in the other, or has another shape, another kind of values (boolean, integer, float, complex,
    /// text, bytes) or elements of another value; nothing else counts. The exit status is 0 if nothing differs, 1 if
    /// something does, 2 if a store does not open or an array cannot be compared and nothing else differs.
    Diff(DiffArgs),
    /// Bring what was changed into the store
    ///
    /// Chunks come before the metadata that name them, removals last. If another program changed one of the keys
    /// meanwhile, nothing is done, those keys are listed, and the exit status is 1. A file that is open for writing is
    /// left out and named. A commit that was cut is ended by running it again.
    Commit(CommitArgs),
    /// Throw away what was changed
    ///
    /// The store is not touched: its keys show again as they are there, and what was renamed has its old name. Prints how
    /// many changes these were.
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
    /// why there is none. Of a shard, by its key: its index, with the offset and length of each inner chunk.
    Info(InfoArgs),
    /// Print a key as it is stored, a chunk decoded, or a region of an array
    ///
    /// PATH is the path or URL of a store with the key or the array after it, or a path in a mount of zarrfs. KEY@N prints
    /// an inner chunk of a shard as it is stored, where N is its number in C order or its indices joined by dots, as
    /// 'zarrfs info KEY' lists them; KEY@N@M is an inner chunk of a shard in a shard. The exit status is 1 if it is not
    /// stored.
    Cat(CatArgs),
    /// Find what is wrong with a store
    ///
    /// Holds each document against the text of its dialect, and finds keys of no node, chunks outside the grid, what
    /// writers left behind, consolidated metadata that differ from the documents, nodes that collide, links that lead
    /// nowhere, arrays of one group whose dimensions differ, attributes by which xarray, anndata or readers of OME-Zarr
    /// do not open the node, arrays that have lost their document or their chunks, something else in the place of a
    /// chunk, and shards with a wrong index; with --data it decodes every chunk. A line for each finding, with what
    /// mends it: an error where a text is broken, data are lost or the usual readers refuse the store, a warning where
    /// a known writer deviates or nothing is lost yet, advice where something could be better. What is the same of
    /// every chunk of an array is one finding. The exit status is 1 if there are errors. Nothing is written without
    /// --fix. --fix consolidated first makes the consolidated metadata of the group anew, and of the groups below it
    /// that have some; a group without any gets them. The key is written on the condition that no other program changed
    /// it meanwhile.
    Check(CheckArgs),
    /// Print what a shell needs to complete commands and options
    ///
    /// For bash it goes to the file zarrfs in ~/.local/share/bash-completion/completions, for zsh to a folder of $fpath
    /// as _zarrfs, for fish to ~/.config/fish/completions/zarrfs.fish. Paths are completed by the shell itself, and in
    /// bash, zsh and fish the commands of zarrfs complete DIR/.zarrfs, which no listing shows. Commands such as 'cd'
    /// and 'ls' cannot learn that: they complete what is below DIR/.zarrfs once that is typed, in zsh with the style
    /// accept-exact-dirs.
    Completions(CompletionsArgs),
    /// Write an array, a region of it, or a group to a file, or a store as a plain one
    ///
    /// The format is that of the file's ending, such as npy, raw, nrrd, cf.npy or txt, and of a group with all of its
    /// arrays nc, h5, nc4, ome.tif, csv or ndjson. 'zarrfs preview -o FILE.png' writes a picture. A selection is written
    /// as in numpy, or with names of dimensions and labels: tas@time=2020-03,lat=10:20. With --as the copy is a Zarr store:
    /// it gets its name when it is complete, and what the format has no place for is said.
    Cp(CpArgs),
    /// Show which chunks of an array are stored
    ///
    /// Two dimensions of the chunk grid are shown, those with the most chunks unless --axes is given; the others are
    /// counted together. A large grid is shown in cells of several chunks: one is partly stored if not all of them are,
    /// and by size and ratio it shows the largest of its chunks. With --data every stored chunk is decoded, and the exit
    /// status is 1 if one does not. Of a shard, by its key, the inner chunks are shown.
    Map(MapArgs),
    /// Show the values of a plane of an array as a picture
    ///
    /// Of more than two dimensions the last two that are longer than one element are shown, and the others at their first
    /// element, unless a selection says where: tas@5. The picture has the shape of the plane, and of a large one every nth
    /// element. The range is that of all elements of the plane, which is read whole for it: up to 1 GiB of decoded chunks,
    /// each of which counts for 64 KiB at least. Of a larger plane the elements that are drawn are read alone, and their
    /// range is told, with a word. The fill value has no colour, and what is no finite number has none. '-o FILE.png'
    /// writes the picture to a file instead.
    Preview(PreviewArgs),
    /// Show the counters of a mount
    ///
    /// zarrfs-files(7) says what each of them counts.
    Stats(StatsArgs),
}

/// Returns the clap definitions, for the manual pages.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the program; the first of `args` is its own name.
pub fn run(args: Vec<OsString>) -> ExitCode {
    if let Some(policy) = argv_forms::helper_policy(&args) {
        return run_helper(args, policy);
    }
    let args = argv_forms::with_command(args);
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(error) => return explain(&error, &Cli::command(), &args, ExitPolicy::Command),
    };
    match cli.command {
        Command::Mount(args) => start(MountPlan::of_command(&args), ExitPolicy::Command),
        Command::Umount(args) => match umount::umount(&args.dir) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => report::fail(report::FAILED, error),
        },
        Command::List(args) => exit_code(list::list(&args)),
        Command::Status(args) => exit_code(changes::status(&args)),
        Command::Diff(args) => exit_code(changes::diff(&args)),
        Command::Commit(args) => exit_code(changes::commit(&args)),
        Command::Discard(args) => exit_code(changes::discard(&args)),
        Command::Tree(args) => exit_code(tree::tree(&args)),
        Command::Ls(args) => exit_code(tree::ls(&args)),
        Command::Info(args) => exit_code(info::info(&args)),
        Command::Cp(args) => exit_code(cp::cp(&args)),
        Command::Map(args) => exit_code(map::map(&args)),
        Command::Preview(args) => exit_code(preview::preview(&args)),
        Command::Stats(args) => exit_code(stats::stats(&args)),
        Command::Cat(args) => exit_code(cat::cat(&args)),
        Command::Check(args) => exit_code(check::check(&args)),
        Command::Completions(args) => exit_code(completions::completions(&args)),
    }
}

/// Returns the exit status of a command's result, or of a failed write to stdout.
fn exit_code(answer: zarr_format::error::Result<bool>) -> ExitCode {
    match answer {
        Ok(_) if report::has_write_failure() => ExitCode::from(report::FAILED),
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(report::NO),
        Err(error) => report::fail(report::FAILED, error),
    }
}

fn run_helper(args: Vec<OsString>, policy: ExitPolicy) -> ExitCode {
    match HelperArgs::try_parse_from(&args) {
        Ok(args) => start(MountPlan::of_helper(&args), policy),
        Err(error) => explain(&error, &HelperArgs::command(), &args, policy),
    }
}

fn start(plan: zarr_format::error::Result<MountPlan>, policy: ExitPolicy) -> ExitCode {
    match plan {
        Ok(plan) => mount::mount(&plan, policy),
        Err(error) => report::fail(policy.usage(), error),
    }
}

/// Prints help or the version, or the error in the arguments.
fn explain(
    error: &clap::Error,
    command: &clap::Command,
    args: &[OsString],
    policy: ExitPolicy,
) -> ExitCode {
    if error.exit_code() != 0 {
        return report::fail(policy.usage(), usage::line(error, command, args));
    }
    if let Err(error) = error.print() {
        report::record_write_failure(error);
    }
    exit_code(Ok(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_sound() {
        Cli::command().debug_assert();
        HelperArgs::command().debug_assert();
    }
}
