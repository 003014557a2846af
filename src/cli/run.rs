//! Runs the command that the program's name and arguments select.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use super::plan::MountPlan;
use super::report::ExitPolicy;
use super::{
    Cli, Command, HelperArgs, cat, changes, check, completions, cp, info, list, map, mount,
    preview, report, stats, tree, typed, umount, usage,
};

/// Runs the program; the first of `args` is its own name.
pub fn run(args: Vec<OsString>) -> ExitCode {
    if let Some(policy) = typed::helper(&args) {
        return run_helper(args, policy);
    }
    let args = typed::with_command(args);
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
        Ok(_) if report::is_lost() => ExitCode::from(report::FAILED),
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
        report::note_lost(error);
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
