//! Rewrites other forms of the command line, such as mount(8)'s, to `zarrfs COMMAND`.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::CommandFactory;

use crate::cli::Cli;
use crate::cli::report::ExitPolicy;
use zarrfs_store::edit_distance::nearest;

/// Returns the exit policy if the arguments are for the mount helper: the program's name is `mount.zarrfs`, or the
/// arguments have the form of mount.fuse, `zarrfs STORE DIR -o OPTIONS`.
pub(super) fn helper_policy(args: &[OsString]) -> Option<ExitPolicy> {
    let called = args.first().map(Path::new).and_then(Path::file_name);
    if called.is_some_and(|name| name.as_encoded_bytes().starts_with(b"mount.")) {
        return Some(ExitPolicy::Helper);
    }
    let options = args.last().filter(|_| is_bare_form(args))?;
    Some(if has_flags(&options.to_string_lossy()) {
        ExitPolicy::Helper
    } else {
        ExitPolicy::BareForm
    })
}

/// Whether the `-o` options contain `dev` and `suid`, also with `no`: mount.fuse always adds them, and zarrfs ignores
/// them.
fn has_flags(options: &str) -> bool {
    let has = |flag: &str| {
        options
            .split(',')
            .any(|option| option.strip_prefix("no").unwrap_or(option) == flag)
    };
    has("dev") && has("suid")
}

fn is_bare_form(args: &[OsString]) -> bool {
    match args.get(1..) {
        Some([store, dir, option, options @ ..]) => {
            let has_options = match options {
                [] => option.as_encoded_bytes().starts_with(b"-o") && option != "-o",
                [_] => option == "-o",
                _ => false,
            };
            has_options && !is_option(store) && !is_option(dir) && !is_command(store)
        }
        _ => false,
    }
}

/// Rewrites the command line to `zarrfs COMMAND`.
pub(super) fn with_command(mut args: Vec<OsString>) -> Vec<OsString> {
    if args.len() == 1 {
        args.push("--help".into());
    } else if args.get(1).is_some_and(|word| word == "help") {
        let command = args.get(2).filter(|word| *word != "help").cloned();
        args.truncate(1);
        args.extend(command);
        args.push("--help".into());
    } else if is_mount(&args) || names_store(&args) {
        args.insert(1, "mount".into());
    }
    args
}

/// Whether a command line has the form STORE DIR, with or without options after DIR.
fn is_mount(args: &[OsString]) -> bool {
    match args.get(1..) {
        Some([store, dir, rest @ ..]) => {
            let is_plain = |word: &OsString| !is_option(word);
            let is_end = rest.first().is_none_or(is_option);
            is_plain(store) && is_plain(dir) && is_end && !is_command(store) && !is_misspelt(store)
        }
        _ => false,
    }
}

/// Whether the first argument that is not an option looks like the path or URL of a store, even after options.
fn names_store(args: &[OsString]) -> bool {
    let first = first_plain(args.get(1..).unwrap_or_default());
    first.is_some_and(|word| is_path(word) && !is_command(word))
}

/// Returns the first argument that is neither an option of `zarrfs mount` nor the value of an option.
fn first_plain(words: &[OsString]) -> Option<&OsString> {
    let mut is_value = false;
    for (place, word) in words.iter().enumerate() {
        if is_value {
            is_value = false;
        } else if word == "--" {
            return words.get(place + 1);
        } else if is_option(word) {
            is_value = awaits_value(&word.to_string_lossy());
        } else {
            return Some(word);
        }
    }
    None
}

/// Whether an option of `zarrfs mount` takes its value from the next argument.
fn awaits_value(option: &str) -> bool {
    let program = Cli::command();
    let Some(mount) = program.find_subcommand("mount") else {
        return false;
    };
    let mut valued = mount
        .get_arguments()
        .filter(|option| option.get_action().takes_values());
    match option.strip_prefix("--") {
        Some(name) => valued.any(|option| option.get_long() == Some(name)),
        // In a word of several short options, such as `-fo`, only the last option can take the next argument as its
        // value.
        None => {
            let first = valued.find_map(|valued| option.find(valued.get_short()?));
            first.is_some_and(|place| place + 1 == option.len())
        }
    }
}

/// Whether an argument looks like a path or URL.
fn is_path(word: &OsStr) -> bool {
    Path::new(word).exists() || word.as_encoded_bytes().contains(&b'/')
}

/// Whether an argument looks like a misspelt command, not like the path or URL of a store.
fn is_misspelt(word: &OsStr) -> bool {
    let names = command_names();
    let names = names.iter().map(String::as_str);
    !is_path(word)
        && word
            .to_str()
            .is_some_and(|word| nearest(word, names).is_some())
}

fn is_option(arg: &OsString) -> bool {
    arg.as_encoded_bytes().starts_with(b"-")
}

fn is_command(word: &OsStr) -> bool {
    word == "help" || command_names().iter().any(|name| word == name.as_str())
}

fn command_names() -> Vec<String> {
    let program = Cli::command();
    let commands = program.get_subcommands();
    let names = commands.flat_map(|command| {
        let aliases = command.get_all_aliases();
        std::iter::once(command.get_name()).chain(aliases)
    });
    names.map(str::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    fn policy_of(line: &str) -> Option<ExitPolicy> {
        helper_policy(&words(line))
    }

    #[test]
    fn both_command_forms_of_mount_8_are_recognized() {
        for line in [
            "/sbin/mount.zarrfs a.zarr /mnt -o ro",
            "mount.zarrfs --help",
            "zarrfs a.zarr /mnt -o rw,fsname=x,dev,suid",
            "zarrfs a.zarr /mnt -o ro,nosuid,nodev",
        ] {
            assert_eq!(policy_of(line), Some(ExitPolicy::Helper), "{line}");
        }
        for line in [
            "zarrfs a.zarr /mnt -o ro",
            "zarrfs a.zarr /mnt -oro,device,no",
        ] {
            assert_eq!(policy_of(line), Some(ExitPolicy::BareForm), "{line}");
        }
    }

    #[test]
    fn other_command_lines_are_not_mount_8_calls() {
        for line in [
            "zarrfs mount a.zarr /mnt -o ro",
            "zarrfs umount /mnt",
            "zarrfs a.zarr /mnt",
            "zarrfs a.zarr /mnt -f -o ro",
            "zarrfs --version",
        ] {
            assert_eq!(policy_of(line), None, "{line}");
        }
    }

    #[test]
    fn the_word_mount_is_optional_before_a_store() {
        for (typed, expected) in [
            ("zarrfs a.zarr /mnt", "zarrfs mount a.zarr /mnt"),
            (
                "zarrfs s3://b/a /mnt --anon",
                "zarrfs mount s3://b/a /mnt --anon",
            ),
            (
                "zarrfs a.zarr /mnt -f -o ro",
                "zarrfs mount a.zarr /mnt -f -o ro",
            ),
            ("zarrfs ./mont /mnt", "zarrfs mount ./mont /mnt"),
            ("zarrfs", "zarrfs --help"),
            ("zarrfs help", "zarrfs --help"),
            ("zarrfs help mount", "zarrfs mount --help"),
            ("zarrfs help help", "zarrfs --help"),
            ("zarrfs ./a.zarr", "zarrfs mount ./a.zarr"),
            (
                "zarrfs ./a.zarr --view files m",
                "zarrfs mount ./a.zarr --view files m",
            ),
            (
                "zarrfs --view files -rf -o ro s3://b/a m",
                "zarrfs mount --view files -rf -o ro s3://b/a m",
            ),
            (
                "zarrfs --memory=1G -fo ro -oro -- ./a.zarr m",
                "zarrfs mount --memory=1G -fo ro -oro -- ./a.zarr m",
            ),
        ] {
            assert_eq!(with_command(words(typed)), words(expected), "{typed}");
        }
        for other in [
            "zarrfs mount a.zarr /mnt",
            "zarrfs unmount /mnt",
            "zarrfs umont /mnt",
            "zarrfs discrad /mnt tas",
            "zarrfs statsu /mnt",
            "zarrfs comit /mnt --force",
            "zarrfs moutn a b",
            "zarrfs --cow /upper moutn a b",
            "zarrfs --view files",
            "zarrfs -r status /mnt",
            "zarrfs --version",
        ] {
            assert_eq!(with_command(words(other)), words(other), "{other}");
        }
    }
}
