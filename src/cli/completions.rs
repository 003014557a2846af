//! `zarrfs completions`: what a shell needs to complete commands and options; paths it completes by itself, also in mounts.

use clap::CommandFactory;

use super::{Cli, CompletionsArgs, report};
use crate::error::Result;

/// Prints the completions for a shell.
pub(super) fn completions(args: &CompletionsArgs) -> Result<bool> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "zarrfs", &mut text);
    report::print(String::from_utf8_lossy(&text).trim_end());
    Ok(true)
}

#[cfg(test)]
mod tests {
    use clap_complete::Shell;

    use super::*;

    #[test]
    fn each_command_is_in_the_completions_of_each_shell() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "zarrfs", &mut text);
            let text = String::from_utf8(text).unwrap();
            for command in Cli::command().get_subcommands() {
                assert!(text.contains(command.get_name()), "{shell}");
            }
            assert!(text.contains("metadata-ttl"), "{shell}");
        }
    }
}
