//! Formats errors in arguments on one line, with a hint if possible.

use std::error::Error as _;
use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

use crate::cli::secrets;
use zarr_format::error::printable;
use zarrfs_store::edit_distance::nearest;

/// Returns the error about invalid arguments as one line; `command` is the definition of the program's arguments.
pub(super) fn line(error: &Error, command: &Command, args: &[OsString]) -> String {
    let called = called_command(command, args);
    let text = match error.kind() {
        ErrorKind::UnknownArgument => unknown_argument(error, called),
        ErrorKind::InvalidSubcommand => context(error, ContextKind::InvalidSubcommand)
            .map(|name| unknown_command(name, command)),
        ErrorKind::MissingRequiredArgument => match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::Strings(missing)) => Some(format!("missing {}", missing.join(" "))),
            _ => None,
        },
        ErrorKind::ValueValidation | ErrorKind::InvalidValue => invalid_value(error),
        ErrorKind::InvalidUtf8 => secrets::redacted(args)
            .iter()
            .zip(args)
            .find(|(_, arg)| arg.to_str().is_none())
            .map(|(shown, _)| format!("'{}' is not UTF-8", shown.to_string_lossy())),
        _ => None,
    };
    let text = text.unwrap_or_else(|| first_paragraph(&error.render().to_string()));
    let name = command.get_name();
    let help = if std::ptr::eq(called, command) {
        format!("{name} --help")
    } else {
        format!("{name} {} --help", called.get_name())
    };
    printable(&format!("{text}; see '{help}'"))
}

/// Returns the definition of the subcommand in the arguments, or of the program if the arguments name none.
fn called_command<'a>(command: &'a Command, args: &[OsString]) -> &'a Command {
    let called = args.get(1).and_then(|arg| arg.to_str());
    called
        .and_then(|name| command.find_subcommand(name))
        .unwrap_or(command)
}

fn context(error: &Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text),
        _ => None,
    }
}

fn unknown_argument(error: &Error, called: &Command) -> Option<String> {
    let typed = context(error, ContextKind::InvalidArg)?;
    let Some(name) = typed.strip_prefix("--") else {
        return Some(format!("unexpected argument '{typed}'"));
    };
    if let Some(instead) = replacement_of(name) {
        return Some(format!("{typed} {instead}"));
    }
    let arguments = called.get_arguments().filter(|known| !known.is_hide_set());
    let known: Vec<&str> = arguments
        .filter_map(|argument| argument.get_long_and_visible_aliases())
        .flatten()
        .collect();
    let hint = match nearest(name, known.iter().copied()) {
        Some(known) => format!("; did you mean '--{known}'?"),
        None => String::new(),
    };
    Some(format!("unknown option '{typed}'{hint}"))
}

fn unknown_command(typed: &str, program: &Command) -> String {
    let names = program.get_subcommands().map(Command::get_name);
    match nearest(typed, names) {
        Some(known) => format!("unknown command '{typed}'; did you mean '{known}'?"),
        None => format!("unknown command '{typed}'"),
    }
}

fn invalid_value(error: &Error) -> Option<String> {
    let option = context(error, ContextKind::InvalidArg)?;
    let value = context(error, ContextKind::InvalidValue)?;
    let (name, placeholder) = option.split_once(' ').unwrap_or((option, ""));
    if value.is_empty() {
        return Some(format!("{name} needs a value: {name} {placeholder}"));
    }
    let why = match (error.source(), error.get(ContextKind::ValidValue)) {
        (Some(why), _) => why.to_string(),
        (None, Some(ContextValue::Strings(known))) => format!("choose one of {}", known.join(", ")),
        _ => return None,
    };
    // Some parsers begin their message with the invalid value, which this line already contains.
    let why = [format!("'{value}': "), format!("{value}: ")]
        .iter()
        .find_map(|prefix| why.strip_prefix(prefix).map(str::to_string))
        .unwrap_or(why);
    // The value may be a secret, so the error does not repeat it.
    if name == "--storage-option" {
        return Some(format!("{name}: {why}"));
    }
    Some(format!("{name} {value}: {why}"))
}

/// Returns the first paragraph of clap's error text on one line.
fn first_paragraph(text: &str) -> String {
    let first = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = first.split_whitespace().collect();
    words.join(" ").trim_start_matches("error: ").to_string()
}

/// Options that zarrfs does not have, with what to use in place of them: former options, and options of similar tools.
const REMOVED: [(&str, &str); 7] = [
    (
        "access-log",
        "was removed; RUST_LOG=zarrfs::access=trace puts a line for each request into the log",
    ),
    (
        "daemon",
        "is not needed: zarrfs mount returns when the mount answers, and -f keeps it in the foreground",
    ),
    (
        "debug",
        "is -vv: messages go to the log, or to stderr with -f",
    ),
    (
        "vfs-cache-mode",
        "is not needed: reads are cached in memory, and on disk with --cache-dir",
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

/// Returns the advice for an option that zarrfs does not have, or `None` if no advice is known.
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
        line(&error, &crate::cli::command(), &args)
    }

    #[test]
    fn each_error_names_the_argument_and_gives_a_hint() {
        for (arguments, expected) in [
            (
                "zarrfs mont a b",
                "unknown command 'mont'; did you mean 'mount'?; see 'zarrfs --help'",
            ),
            (
                "zarrfs mount",
                "missing <STORE> <DIR>; see 'zarrfs mount --help'",
            ),
            (
                "zarrfs mount a b --lossi",
                "unknown option '--lossi'; did you mean '--lossy'?; see 'zarrfs mount --help'",
            ),
            (
                "zarrfs mount a b --daemon",
                "--daemon is not needed: zarrfs mount returns when the mount answers, and -f keeps it in the \
                 foreground; see 'zarrfs mount --help'",
            ),
            (
                "zarrfs mount a b --sloppy",
                "unknown option '--sloppy'; see 'zarrfs mount --help'",
            ),
            (
                "zarrfs mount a b --view tree",
                "--view tree: unknown view; choose one of files, store, v3 and v2; see 'zarrfs mount --help'",
            ),
            (
                "zarrfs mount a b --memory 10",
                "--memory 10: too little memory: use at least 1M, such as 256M; see 'zarrfs mount --help'",
            ),
            (
                "zarrfs mount a b --concurrency 0",
                "--concurrency 0: choose a number from 1 to 1024; see 'zarrfs mount --help'",
            ),
            (
                "zarrfs mount a b --storage-option hush",
                "--storage-option: write an option as KEY=VALUE; see 'zarrfs mount --help'",
            ),
            (
                "zarrfs mount a b --timeout",
                "--timeout needs a value: --timeout <DURATION>; see 'zarrfs mount --help'",
            ),
            (
                "zarrfs map a --by x",
                "--by x: choose one of presence, size, ratio; see 'zarrfs map --help'",
            ),
            (
                "zarrfs mount a b --files=c",
                "--files was removed; DIR/.zarrfs/files has the decoded arrays, and a second mount with --view files \
                 shows them at another directory; see 'zarrfs mount --help'",
            ),
            (
                "zarrfs umount a b",
                "unexpected argument 'b'; see 'zarrfs umount --help'",
            ),
        ] {
            assert_eq!(error_line(arguments), expected, "{arguments}");
        }
        let args = ["mount.zarrfs", "a"].map(OsString::from);
        let error = HelperArgs::try_parse_from(&args).unwrap_err();
        let text = line(&error, &HelperArgs::command(), &args);
        assert!(text == "missing <DIR>; see 'mount.zarrfs --help'", "{text}");
    }

    #[test]
    fn an_argument_that_is_not_utf_8_is_named() {
        use std::os::unix::ffi::OsStringExt;
        let args = [b"zarrfs".as_slice(), b"mount", b"/x\xff", b"/mnt"];
        let args = args.map(|arg| OsString::from_vec(arg.to_vec()));
        let error = Cli::try_parse_from(&args).unwrap_err();
        let expected = "'/x\u{fffd}' is not UTF-8; see 'zarrfs mount --help'";
        assert_eq!(line(&error, &Cli::command(), &args), expected);
    }

    #[test]
    fn no_error_is_longer_than_one_line() {
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
    fn removed_options_are_not_defined() {
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
