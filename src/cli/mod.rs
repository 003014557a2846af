//! Parses the command line and runs the command.
//!
//! `args` defines the arguments; the manual pages are generated from the same definitions. `argv_forms` and `options`
//! parse the forms of mount(8). `store_args` and `source` open the store that a command reads. Commands about changes
//! send a request to the mount that has the changes; `mount/` executes it.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{ArgAction, CommandFactory, FromArgMatches, Parser, Subcommand};

use plan::MountPlan;
use report::ExitPolicy;

mod args;
mod argv_forms;
mod background;
mod cat;
mod changes;
mod check;
mod completions;
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
mod output;
mod picture;
mod plan;
mod preview;
mod progress;
mod remote;
mod report;
mod secrets;
mod signals;
mod source;
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
    version = env!("ZARRFS_VERSION"),
    about = "Mounts a Zarr store as a directory, with its arrays as ordinary files",
    disable_help_subcommand = true,
    disable_help_flag = true,
    max_term_width = 80,
    after_help = "Run 'zarrfs COMMAND --help' for its options and examples."
)]
pub struct Cli {
    /// Print help; -h prints the most used options
    #[arg(short, long, global = true, action = ArgAction::Help, hide_short_help = true)]
    pub help: Option<bool>,
    /// The command that the first argument names.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands of zarrfs, with their help texts.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Mount a Zarr store at a directory
    ///
    /// Returns when the mount answers. A background process serves the mount until you unmount it with
    /// 'zarrfs umount', 'umount' or 'fusermount3 -u', or send SIGTERM or SIGINT to the process. A mount is read-only
    /// unless you give --cow or --write-through. 'zarrfs STORE DIR' is short for 'zarrfs mount STORE DIR'.
    Mount(Box<MountArgs>),
    /// Unmount a directory
    ///
    /// The directory is free at once, even if programs still use the mount or its process is gone. If the mount does
    /// not answer within five seconds, programs that wait for it get an error. If chunks of a closed file cannot be
    /// stored, the directory stays mounted, and the message says why. 'zarrfs unmount' is another name.
    #[command(visible_alias = "unmount")]
    Umount(UmountArgs),
    /// List the mounts of this machine
    ///
    /// Each line has the store, the directory, its view, and the number of changes that are not committed. A mount
    /// that does not answer is listed with the reason.
    List(ListArgs),
    /// Show uncommitted changes and errors of a mount
    ///
    /// Counts the keys that were written and removed. Lists changes that a commit cannot store, such as symbolic links
    /// and empty directories, and files that are being written. The errors of a mount are in DIR/.zarrfs/errors.
    Status(StatusArgs),
    /// List changes of a mount, or differences of two stores
    ///
    /// Each line is a key: 'A' if it was added, 'M' if it was modified, 'D' if it was deleted. With --arrays the lines
    /// are nodes, attributes and regions of arrays. Two stores are always compared in this way, whatever their
    /// dialects. Attributes are equal if every reader takes them for equal: the order of members does not count, and
    /// 1e0 equals 1.0, but 1 differs from 1.0. The exit status is 0 without differences, 1 with differences, and 2 if
    /// a store cannot be opened or an array cannot be compared.
    Diff(DiffArgs),
    /// Write changes to the store
    ///
    /// Chunks are written before the metadata files that refer to them, and keys are removed last. If another program
    /// has changed one of the keys, nothing is written: the conflicts are listed, and the exit status is 1. Files
    /// that are open for writing are left out and listed. If a commit is interrupted, run it again to finish it.
    Commit(CommitArgs),
    /// Drop changes
    ///
    /// Does not touch the store: its original content becomes visible again, and renames are undone. Prints the number
    /// of dropped changes.
    Discard(DiscardArgs),
    /// Show groups and arrays as a tree
    ///
    /// Shows the data type, shape, chunks, codecs and stored size of each array. Chunks of very large arrays are
    /// counted only with --sizes. PATH is a path or URL of a store, or of a node in it, or a path in a mount.
    Tree(TreeArgs),
    /// List the nodes of a group
    Ls(LsArgs),
    /// Show everything about a group, an array or a file
    ///
    /// Shows metadata, attributes, codecs, the number and size of stored chunks, the largest read, and the formats
    /// that the array opens in. If an array or a file cannot be read, it says why. For the key of a shard it shows the
    /// index of the shard.
    Info(InfoArgs),
    /// Print a key, a decoded chunk, or elements of an array
    ///
    /// KEY@N prints an inner chunk of a shard as it is stored. N is its number in C order, or its indices joined by
    /// dots, as 'zarrfs info KEY' lists them. The exit status is 1 if the key is not stored.
    Cat(CatArgs),
    /// Write an array, a selection or a group to a file
    ///
    /// The name of FILE selects the format: npy, raw, tif, nii, csv, cf.npy, ... for arrays, and nc, nc4, h5, csv or
    /// ndjson for groups. A selection is written as in numpy, or with labels: tas@time=2020-03,lat=10:20. With --as
    /// the copy is a Zarr store. FILE gets its name when it is complete. For pictures see 'zarrfs preview -o'.
    Cp(CpArgs),
    /// Show which chunks of an array are stored
    ///
    /// Shows two dimensions of the chunk grid: those with the most chunks, unless you give --axes. In a large grid a
    /// cell stands for several chunks. With --data every stored chunk is decoded, and the exit status is 1 if one
    /// fails. For the key of a shard its inner chunks are shown.
    Map(MapArgs),
    /// Show a plane of an array as a picture
    ///
    /// Shows the last two dimensions that are longer than one element, and the first index of all others, unless a
    /// selection says otherwise: tas@5. Large planes are subsampled. The range covers the whole plane if its
    /// decoded chunks have at most 1 GiB, and only the shown elements otherwise. Fill values, NaN and infinities have
    /// no colour.
    Preview(PreviewArgs),
    /// Check a store for errors
    ///
    /// Checks metadata against the specification, and looks for stray files, chunks outside the grid, temporary files
    /// of writers, outdated consolidated metadata, colliding names, broken links, and attributes that stop xarray,
    /// anndata or OME-Zarr readers. With --data it decodes every chunk. Each finding is an error, a warning or advice,
    /// with a way to mend it. The exit status is 1 if there are errors. Nothing is written without --fix.
    Check(CheckArgs),
    /// Show the counters of a mount
    ///
    /// zarrfs-errors(7) explains each counter.
    Stats(StatsArgs),
    /// Print shell completions
    ///
    /// Write them to ~/.local/share/bash-completion/completions/zarrfs for bash, to _zarrfs in a directory of $fpath
    /// for zsh, and to ~/.config/fish/completions/zarrfs.fish for fish. The commands of zarrfs then complete
    /// DIR/.zarrfs, which no listing shows.
    Completions(CompletionsArgs),
}

/// Headings under which `zarrfs --help` groups the commands.
const GROUPS: [(&str, &[&str]); 3] = [
    ("Mount", &["mount", "umount", "list", "stats"]),
    ("Review changes", &["status", "diff", "commit", "discard"]),
    (
        "Inspect a store, mounted or not",
        &["tree", "ls", "info", "cat", "cp", "map", "preview", "check"],
    ),
];

/// Returns the clap definitions, also for the manual pages.
pub fn command() -> clap::Command {
    let program = Cli::command();
    let names: Vec<String> = program
        .get_subcommands()
        .map(|command| command.get_name().to_string())
        .collect();
    let mut overview = String::new();
    for (heading, members) in GROUPS {
        overview += &format!("{heading}:\n");
        for name in members {
            let about = program
                .find_subcommand(name)
                .and_then(clap::Command::get_about);
            overview += &format!("  {name:8}  {}\n", about.unwrap_or_default());
        }
    }
    let program = program.help_template(format!(
        "{{about-with-newline}}Usage: zarrfs COMMAND ...   or   zarrfs STORE DIR\n\n{}{{after-help}}",
        overview.trim_end()
    ));
    names.into_iter().fold(program, |program, name| {
        program.mut_subcommand(&name, |command| shaped(&name, command))
    })
}

/// Adds the last line to the `-h` of a command, and hides options of remote stores in commands about changes.
fn shaped(name: &str, command: clap::Command) -> clap::Command {
    let rest = format!("Run 'zarrfs {name} --help' for all options and examples.");
    let command = command.after_help(rest);
    // These commands usually send a request to a mount, for which options of remote stores have no effect.
    if !matches!(name, "status" | "diff" | "commit" | "discard") {
        return command;
    }
    command.mut_args(|argument| {
        let is_remote = argument.get_help_heading() == Some(remote::HEADING);
        argument.hide_short_help(is_remote)
    })
}

/// Returns the clap definitions. If `-h` was given, its text has no headings, fewer blank lines and the width of the
/// terminal.
fn command_for(args: &[OsString]) -> clap::Command {
    let program = command();
    if !args.iter().any(|arg| arg == "-h") {
        return program;
    }
    let names: Vec<String> = program
        .get_subcommands()
        .map(|command| command.get_name().to_string())
        .collect();
    names.into_iter().fold(program, |program, name| {
        program.mut_subcommand(&name, |command| {
            command
                .help_template(
                    "{about-with-newline}{usage-heading} {usage}\n\n{all-args}{after-help}",
                )
                .mut_args(|argument| argument.help_heading(None::<&str>))
        })
    })
}

/// Runs the program; the first of `args` is the name of the program.
pub fn run(args: Vec<OsString>) -> ExitCode {
    if let Some(policy) = argv_forms::helper_policy(&args) {
        return run_helper(args, policy);
    }
    let args = argv_forms::with_command(args);
    let mut command = command_for(&args);
    let parsed = command.try_get_matches_from_mut(&args);
    let parsed = parsed.and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => return explain(&error, &command, &args, ExitPolicy::Command),
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

/// Returns the exit status for the result of a command; a failed write to stdout counts as an error.
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

/// Prints the help, the version or an error in the arguments, which clap returns as an error.
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
    fn command_definitions_are_consistent() {
        command().debug_assert();
        HelperArgs::command().debug_assert();
    }

    fn help_of(line: &str) -> String {
        let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let help = command_for(&args).try_get_matches_from(&args);
        help.unwrap_err().render().to_string()
    }

    #[test]
    fn short_helps_fit_a_terminal() {
        let program = command();
        let names = program.get_subcommands().map(clap::Command::get_name);
        let lines = names.map(|name| format!("zarrfs {name} -h"));
        for line in lines.chain(["zarrfs -h".to_string(), "zarrfs --help".to_string()]) {
            let help = help_of(&line);
            let widest = help.lines().map(|line| line.chars().count()).max().unwrap();
            let is_small = help.trim_end().lines().count() <= 24 && widest <= 80;
            assert!(is_small, "{line} ({widest} columns):\n{help}");
        }
    }

    #[test]
    fn every_command_is_in_the_overview() {
        let grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        for command in command().get_subcommands() {
            let name = command.get_name();
            assert!(grouped.contains(&name) || name == "completions", "{name}");
        }
    }

    #[test]
    fn every_option_help_is_short_and_self_contained() {
        for command in command().get_subcommands() {
            for argument in command.get_arguments() {
                let name = argument.get_id();
                let help = argument
                    .get_help()
                    .unwrap_or_else(|| panic!("{name}"))
                    .to_string();
                assert!(help.len() <= 62, "{name}: {help}");
                let words: Vec<&str> = help.split([' ', ',', ';']).collect();
                assert!(
                    !words.contains(&"them") && !words.contains(&"same"),
                    "{name}: {help}"
                );
            }
        }
    }
}
