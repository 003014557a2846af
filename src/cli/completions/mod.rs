//! `zarrfs completions`: prints shell completions, including `.zarrfs` in a mount.
//!
//! Shells complete other paths themselves. No listing of a mount shows `.zarrfs`, so a function for each shell tries to
//! open it; programs other than zarrfs complete as before.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::{Cli, CompletionsArgs, report};
use zarr_format::error::Result;

pub(super) fn completions(args: &CompletionsArgs) -> Result<bool> {
    report::print(text(args.shell).trim_end());
    Ok(true)
}

fn text(shell: Shell) -> String {
    let mut text = Vec::new();
    // `help` is no clap subcommand, since `argv_forms` handles it; it is added for the completions.
    let mut program = Cli::command().disable_help_subcommand(false);
    clap_complete::generate(shell, &mut program, "zarrfs", &mut text);
    let text = String::from_utf8_lossy(&text);
    match shell {
        Shell::Bash => format!("{text}{}", include_str!("control.bash")),
        Shell::Fish => format!("{text}{}", include_str!("control.fish")),
        Shell::Zsh => {
            // Renames the function that clap generated, and inserts a wrapper with the old name before the first
            // statement that runs.
            let start = "if [ \"$funcstack[1]\"";
            let wrapper = format!("{}{start}", include_str!("control.zsh"));
            text.replacen("\n_zarrfs() {", "\n_zarrfs_words() {", 1)
                .replacen(start, &wrapper, 1)
        }
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
