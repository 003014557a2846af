//! Picks the command by the program's name and its arguments.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use super::plan::MountPlan;
use super::report::ExitPolicy;
use super::{Cli, Command, HelperArgs, changes, mount, report, umount, usage};

/// Runs the program; `args` begin with its own name.
pub fn run(args: Vec<OsString>) -> ExitCode {
    if is_helper(&args) {
        return run_helper(args);
    }
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
        Command::Status(args) => exit_code(changes::status(&args)),
        Command::Diff(args) => exit_code(changes::diff(&args)),
        Command::Commit(args) => exit_code(changes::commit(&args)),
        Command::Discard(args) => exit_code(changes::discard(&args)),
    }
}

/// Returns the exit status of a command that answers yes or no.
fn exit_code(answer: crate::error::Result<bool>) -> ExitCode {
    match answer {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(report::NO),
        Err(error) => report::fail(report::FAILED, error),
    }
}

fn run_helper(args: Vec<OsString>) -> ExitCode {
    match HelperArgs::try_parse_from(&args) {
        Ok(args) => start(MountPlan::of_helper(&args), ExitPolicy::Helper),
        Err(error) => explain(&error, &HelperArgs::command(), &args, ExitPolicy::Helper),
    }
}

fn start(plan: crate::error::Result<MountPlan>, policy: ExitPolicy) -> ExitCode {
    match plan {
        Ok(plan) => mount::mount(&plan, policy),
        Err(error) => report::fail(policy.usage(), error),
    }
}

/// Prints help or the version, or says what is wrong with the arguments.
fn explain(
    error: &clap::Error,
    command: &clap::Command,
    args: &[OsString],
    policy: ExitPolicy,
) -> ExitCode {
    if error.exit_code() != 0 {
        return report::fail(policy.usage(), usage::line(error, command, args));
    }
    // A reader that has gone is no error.
    let _ = error.print();
    ExitCode::SUCCESS
}

/// Whether mount(8) calls: by the name `mount.zarrfs`, or as mount.fuse does, `zarrfs STORE DIR -o OPTIONS`.
fn is_helper(args: &[OsString]) -> bool {
    let called = args
        .first()
        .map(Path::new)
        .and_then(Path::file_name)
        .unwrap_or_default();
    if called.as_encoded_bytes().starts_with(b"mount.") {
        return true;
    }
    let is_option = |arg: &OsString| arg.as_encoded_bytes().starts_with(b"-");
    let has_options = args
        .iter()
        .skip(3)
        .any(|arg| arg.as_encoded_bytes().starts_with(b"-o"));
    match args.get(1..3) {
        Some([store, dir]) => {
            has_options && !is_option(store) && !is_option(dir) && !is_command(store)
        }
        _ => false,
    }
}

fn is_command(word: &OsStr) -> bool {
    word == "help"
        || Cli::command()
            .get_subcommands()
            .any(|command| word == command.get_name())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn helper(line: &str) -> bool {
        is_helper(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn mount_calls_in_two_ways() {
        assert!(helper("/sbin/mount.zarrfs a.zarr /mnt -o ro"));
        assert!(helper("mount.zarrfs --help"));
        assert!(helper("zarrfs a.zarr /mnt -o rw,dev,suid"));
    }

    #[test]
    fn commands_are_not_stores() {
        assert!(!helper("zarrfs mount a.zarr /mnt -o ro"));
        assert!(!helper("zarrfs umount /mnt"));
        assert!(!helper("zarrfs a.zarr /mnt"));
        assert!(!helper("zarrfs --version"));
    }

    #[test]
    fn definitions_are_sound() {
        Cli::command().debug_assert();
        HelperArgs::command().debug_assert();
    }
}
