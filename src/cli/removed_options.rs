//! Options of earlier versions, and their replacements.

/// The removed options, without the leading `--`, and their error texts.
const REMOVED: [(&str, &str); 4] = [
    (
        "access-log",
        "was removed; RUST_LOG=zarrfs::access=trace puts a line for each request into the log",
    ),
    (
        "files",
        "was removed; DIR/.zarrfs/files has the decoded arrays, and a second mount with --view files shows them at \
         another directory",
    ),
    (
        "no-fallback",
        "was removed; a data type that is not known is read as the fallback that its metadata names, with a warning in \
         the log",
    ),
    (
        "spill-size",
        "was removed; use --spill DIR or --spill none: a spill file takes at most 64G and half of the free space",
    ),
];

/// Returns the replacement of a removed option, with hyphens or underscores, or `None` if no such option was removed.
pub(super) fn instead(name: &str) -> Option<&'static str> {
    let name = name.trim_start_matches('-').replace('_', "-");
    let mut removed = REMOVED.iter();
    removed
        .find(|(known, _)| *known == name)
        .map(|&(_, instead)| instead)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn no_option_is_removed_and_still_there() {
        for (name, _) in REMOVED {
            for command in Cli::command().get_subcommands() {
                let mut options = command.get_arguments();
                assert!(options.all(|option| option.get_long() != Some(name)));
            }
        }
        assert_eq!(instead("spill_size"), instead("--spill-size"));
        assert!(instead("spill").is_none());
    }
}
