//! Forms of a command line beside `zarrfs COMMAND`: that of mount(8), `zarrfs STORE DIR`, and `zarrfs help COMMAND`.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::CommandFactory;

use super::Cli;
use crate::spelling::nearest;

/// Whether mount(8) calls: by the name `mount.zarrfs`, or as mount.fuse does, `zarrfs STORE DIR -o OPTIONS`.
pub(super) fn is_helper(args: &[OsString]) -> bool {
    let called = args.first().map(Path::new).and_then(Path::file_name);
    if called.is_some_and(|name| name.as_encoded_bytes().starts_with(b"mount.")) {
        return true;
    }
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

/// Returns the arguments in the form `zarrfs COMMAND`.
pub(super) fn with_command(mut args: Vec<OsString>) -> Vec<OsString> {
    if args.get(1).is_some_and(|word| word == "help") {
        let command: Vec<OsString> = args.get(2..3).unwrap_or_default().to_vec();
        args.truncate(1);
        args.extend(command);
        args.push("--help".into());
    } else if is_mount(&args) {
        args.insert(1, "mount".into());
    }
    args
}

/// Whether these are a store and a directory, with or without options after them.
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

/// Whether a word is rather meant as a command than as a store.
fn is_misspelt(word: &OsStr) -> bool {
    let is_path = Path::new(word).exists() || word.as_encoded_bytes().contains(&b'/');
    let names = command_names();
    let names = names.iter().map(String::as_str);
    !is_path
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

/// Returns the names of the commands, with their aliases.
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

    fn helper(line: &str) -> bool {
        is_helper(&words(line))
    }

    #[test]
    fn mount_calls_in_two_ways() {
        assert!(helper("/sbin/mount.zarrfs a.zarr /mnt -o ro"));
        assert!(helper("mount.zarrfs --help"));
        assert!(helper("zarrfs a.zarr /mnt -o rw,dev,suid"));
        assert!(helper("zarrfs a.zarr /mnt -oro"));
    }

    #[test]
    fn commands_are_not_stores() {
        assert!(!helper("zarrfs mount a.zarr /mnt -o ro"));
        assert!(!helper("zarrfs umount /mnt"));
        assert!(!helper("zarrfs a.zarr /mnt"));
        assert!(!helper("zarrfs a.zarr /mnt -f -o ro"));
        assert!(!helper("zarrfs --version"));
    }

    #[test]
    fn d04_a_store_and_a_directory_are_mounted() {
        for (typed, meant) in [
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
            ("zarrfs help", "zarrfs --help"),
            ("zarrfs help mount", "zarrfs mount --help"),
        ] {
            assert_eq!(with_command(words(typed)), words(meant), "{typed}");
        }
        for other in [
            "zarrfs mount a.zarr /mnt",
            "zarrfs unmount /mnt",
            "zarrfs umont /mnt",
            "zarrfs discrad /mnt tas",
            "zarrfs statsu /mnt",
            "zarrfs comit /mnt --force",
            "zarrfs --version",
            "zarrfs",
        ] {
            assert_eq!(with_command(words(other)), words(other), "{other}");
        }
    }
}
