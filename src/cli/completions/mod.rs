//! `zarrfs completions`: prints shell completions, including `.zarrfs` in a mount.
//!
//! Shells complete other paths themselves. No listing of a mount shows `.zarrfs`, so a function for each shell tries to
//! open it; programs other than zarrfs complete as before.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::{Cli, CompletionsArgs, report};
use zarr_format::error::Result;

/// The text after the definitions in bash and fish, and the wrapper of the main function in zsh.
const BASH: &str = include_str!("control.bash");
const FISH: &str = include_str!("control.fish");
const ZSH: &str = include_str!("control.zsh");

/// The beginning of zsh's main function, its wrapped name, and the first line that runs.
const ZSH_MAIN: &str = "\n_zarrfs() {";
const ZSH_WRAPPED: &str = "\n_zarrfs_words() {";
const ZSH_START: &str = "if [ \"$funcstack[1]\"";

/// Prints the completions for a shell.
pub(super) fn completions(args: &CompletionsArgs) -> Result<bool> {
    report::print(text(args.shell).trim_end());
    Ok(true)
}

fn text(shell: Shell) -> String {
    let mut text = Vec::new();
    // The command `help` is handled in `typed`, and has no definition.
    let mut program = Cli::command().disable_help_subcommand(false);
    clap_complete::generate(shell, &mut program, "zarrfs", &mut text);
    let text = String::from_utf8_lossy(&text);
    match shell {
        Shell::Bash => format!("{text}{BASH}"),
        Shell::Fish => format!("{text}{FISH}"),
        Shell::Zsh => text.replacen(ZSH_MAIN, ZSH_WRAPPED, 1).replacen(
            ZSH_START,
            &format!("{ZSH}{ZSH_START}"),
            1,
        ),
        _ => text.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_in_the_completions_of_each_shell() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let text = text(shell);
            for command in Cli::command().get_subcommands() {
                assert!(text.contains(command.get_name()), "{shell}");
            }
            assert!(text.contains("metadata-ttl"), "{shell}");
            assert_eq!(text.matches("/.zarrfs, which").count(), 1, "{shell}");
        }
    }
}
