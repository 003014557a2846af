//! Formats errors in arguments on one line, with a hint if possible.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

use zarr_format::error::printable;

/// Returns one line about arguments that cannot be parsed; `command` is their definition.
pub(super) fn line(error: &Error, command: &Command, args: &[OsString]) -> String {
    let names: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let program = command.get_name();
        let names = names.join(" or ");
        return format!("a command is missing: {names}; try '{program} --help'");
    }
    if let Some((option, instead)) = removed_option(error) {
        return format!("{option} {instead}");
    }
    let unreadable = args.iter().find(|arg| arg.to_str().is_none());
    let mut parts = match unreadable.filter(|_| error.kind() == ErrorKind::InvalidUtf8) {
        Some(arg) => vec![format!("'{}' is not UTF-8", arg.to_string_lossy())],
        None => parts(&error.render().to_string()),
    };
    let mut called = vec![command.get_name()];
    let commands = command.get_subcommands();
    let mut names = commands.flat_map(Command::get_name_and_visible_aliases);
    called.extend(args.get(1).and_then(|arg| names.find(|name| arg == name)));
    parts.push(format!("try '{} --help'", called.join(" ")));
    printable(&parts.join("; "))
}

/// Returns the removed option in an error and its replacement, or `None`.
fn removed_option(error: &Error) -> Option<(&str, &'static str)> {
    match (error.kind(), error.get(ContextKind::InvalidArg)?) {
        (ErrorKind::UnknownArgument, ContextValue::String(option)) => {
            replacement_of(option).map(|instead| (option.as_str(), instead))
        }
        _ => None,
    }
}

/// Returns the paragraphs of an error text, one line each, without the usage.
fn parts(text: &str) -> Vec<String> {
    let mut parts = Vec::new();
    for part in text.split("\n\n") {
        let words: Vec<&str> = part.split_whitespace().collect();
        match words.as_slice() {
            [] | ["Usage:" | "For", ..] => {}
            ["error:" | "tip:", words @ ..] | words => parts.push(words.join(" ")),
        }
    }
    parts
}

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
pub(super) fn replacement_of(name: &str) -> Option<&'static str> {
    let name = name.trim_start_matches('-').replace('_', "-");
    let mut removed = REMOVED.iter();
    removed
        .find(|(known, _)| *known == name)
        .map(|&(_, instead)| instead)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::cli::{Cli, HelperArgs};

    fn error_line(arguments: &str) -> String {
        let args: Vec<OsString> = arguments.split(' ').map(OsString::from).collect();
        let error = Cli::try_parse_from(&args).unwrap_err();
        line(&error, &Cli::command(), &args)
    }

    #[test]
    fn each_fault_is_a_line_with_the_argument_and_a_hint() {
        for (arguments, expected) in [
            (
                "zarrfs mont a b",
                "unrecognized subcommand 'mont'; some similar subcommands exist: 'umount', 'mount'; \
                 try 'zarrfs --help'",
            ),
            (
                "zarrfs mount",
                "the following required arguments were not provided: <STORE> <DIR>; try 'zarrfs mount --help'",
            ),
            (
                "zarrfs mount a b --lossi",
                "unexpected argument '--lossi' found; a similar argument exists: '--lossy'; \
                 try 'zarrfs mount --help'",
            ),
            (
                "zarrfs mount a b --view tree",
                "invalid value 'tree' for '--view <NAME>': tree: not a view; there are store, files, v3 \
                 and v2; \
                 try 'zarrfs mount --help'",
            ),
            (
                "zarrfs mount a b --files=c",
                "--files was removed; DIR/.zarrfs/files has the decoded arrays, and a second mount with --view files \
                 shows them at another directory",
            ),
            (
                "zarrfs umount a b",
                "unexpected argument 'b' found; try 'zarrfs umount --help'",
            ),
        ] {
            assert_eq!(error_line(arguments), expected, "{arguments}");
        }
        let missing = error_line("zarrfs");
        let names = "a command is missing: mount or umount or list or status or diff or commit or discard or ";
        let is_whole = missing.starts_with(names) && missing.ends_with("; try 'zarrfs --help'");
        assert!(is_whole, "{missing}");
        let args = ["mount.zarrfs", "a"].map(OsString::from);
        let error = HelperArgs::try_parse_from(&args).unwrap_err();
        let text = line(&error, &HelperArgs::command(), &args);
        assert!(
            text.contains("<DIR>") && text.ends_with("try 'mount.zarrfs --help'"),
            "{text}"
        );
    }

    #[test]
    fn the_help_of_the_mount_helper_names_the_control_directory() {
        let help = HelperArgs::command().get_after_help().unwrap().to_string();
        assert!(help.contains("DIR/.zarrfs/files"), "{help}");
    }

    #[test]
    fn what_is_not_utf_8_is_named() {
        use std::os::unix::ffi::OsStringExt;
        let args = [b"zarrfs".as_slice(), b"mount", b"/x\xff", b"/mnt"];
        let args = args.map(|arg| OsString::from_vec(arg.to_vec()));
        let error = Cli::try_parse_from(&args).unwrap_err();
        let expected = "'/x\u{fffd}' is not UTF-8; try 'zarrfs mount --help'";
        assert_eq!(line(&error, &Cli::command(), &args), expected);
    }

    #[test]
    fn no_fault_is_more_than_a_line() {
        for arguments in [
            "zarrfs mount a b --memory x",
            "zarrfs mount a b --timeout",
            "zarrfs mount a b --uid -1",
            "zarrfs mount a b -o",
            "zarrfs -x",
            "zarrfs mount a\nb c d",
            "zarrfs mount a b \x1b[2J",
        ] {
            let text = error_line(arguments);
            assert_eq!(text.lines().count(), 1, "{arguments}");
            assert!(!text.contains('\x1b'), "{text:?}");
        }
    }

    #[test]
    fn no_option_is_removed_and_still_there() {
        for (name, _) in REMOVED {
            for command in Cli::command().get_subcommands() {
                let mut options = command.get_arguments();
                assert!(options.all(|option| option.get_long() != Some(name)));
            }
        }
        assert_eq!(replacement_of("spill_size"), replacement_of("--spill-size"));
        assert!(replacement_of("spill").is_none());
    }
}
