//! Hides secret arguments from the list of processes.
//!
//! A program cannot change the arguments that `ps` shows. So it restarts itself without the secret values, and passes
//! the real arguments in a memory file (memfd) that only this user can open. The daemon inherits the file.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::{env, fs};

use rustix::fs::{MemfdFlags, memfd_create};

use crate::cli::background::own_program;

/// Environment variable with the number of the descriptor for the real arguments.
const VARIABLE: &str = "ZARRFS_ARGUMENTS";

/// Returns the command line with all secrets. If `ps` would show secrets, restarts the program without them, and does
/// not return.
pub fn arguments() -> Vec<OsString> {
    let args: Vec<OsString> = env::args_os().collect();
    if let Some(real) = passed_arguments() {
        return real;
    }
    let redacted_args = redacted(&args);
    if redacted_args != args
        && let Err(error) = restart(&args, &redacted_args)
    {
        // A mount with visible secrets is better than no mount, so the program continues.
        eprintln!("zarrfs: warning: cannot hide the arguments from the list of processes: {error}");
    }
    args
}

/// Returns the real arguments if this is the restarted program, otherwise `None`.
fn passed_arguments() -> Option<Vec<OsString>> {
    let number: u32 = env::var(VARIABLE).ok()?.parse().ok()?;
    let text = fs::read(format!("/proc/self/fd/{number}")).ok()?;
    let words = text.strip_suffix(b"\0")?.split(|&byte| byte == 0);
    Some(
        words
            .map(|word| OsString::from_vec(word.to_vec()))
            .collect(),
    )
}

/// Restarts the program in this process with redacted arguments; returns only if that fails.
fn restart(real: &[OsString], redacted: &[OsString]) -> std::io::Result<()> {
    let mut file = fs::File::from(memfd_create("zarrfs-arguments", MemfdFlags::empty())?);
    for word in real {
        file.write_all(word.as_bytes())?;
        file.write_all(b"\0")?;
    }
    let mut words = redacted.iter();
    let mut command = Command::new(own_program());
    if let Some(name) = words.next() {
        command.arg0(name);
    }
    command.args(words);
    command.env(VARIABLE, file.as_raw_fd().to_string());
    Err(command.exec())
}

/// Options whose values contain secrets, each with the character after which the value is secret.
const SECRET: [(&str, char); 4] = [
    ("storage-option", '='),
    ("option", '='),
    ("header", ':'),
    // In `--virtual-chunks PREFIX,OPTIONS` the options after the comma may be secret.
    ("virtual-chunks", ','),
];

/// Returns the command line without the secret parts of store options, headers and URLs.
pub(super) fn redacted(args: &[OsString]) -> Vec<OsString> {
    let mut before = OsStr::new("");
    let mut redacted = Vec::with_capacity(args.len());
    for arg in args {
        redacted.push(redact(before, arg));
        before = arg;
    }
    redacted
}

fn redact(before: &OsStr, arg: &OsStr) -> OsString {
    let text = arg.to_string_lossy();
    let redacted = redact_text(before, &text);
    if redacted == text {
        return arg.to_os_string();
    }
    redacted.into()
}

fn redact_text(before: &OsStr, text: &str) -> String {
    let before = before.to_str().and_then(|before| before.strip_prefix("--"));
    for (name, mark) in SECRET {
        if before == Some(name) {
            return without_value(text, mark);
        }
    }
    // Finds the options also in words such as `--header=X` and `-o a=1,header=X`. The secret and all text after it are
    // removed, since the secret may contain commas.
    let places = SECRET.iter().filter_map(|(name, mark)| {
        let end = name.rsplit('-').next().unwrap_or_default();
        let place = text.find(&format!("{end}="))? + end.len() + 1;
        Some((place, *mark))
    });
    if let Some((place, mark)) = places.min()
        && let Some((start, value)) = text.split_at_checked(place)
    {
        return format!("{start}{}", without_value(value, mark));
    }
    if let Some((option, url)) = text.split_once('=')
        && option.starts_with("--")
    {
        return format!("{option}={}", zarrfs_store::redacted(url));
    }
    zarrfs_store::redacted(text)
}

/// Returns the part of an option's value that is not secret: the text before `mark`, or `@FILE`.
fn without_value(text: &str, mark: char) -> String {
    match text.split_once(mark) {
        _ if mark == ':' && text.starts_with('@') => {
            text.split(',').next().unwrap_or_default().to_string()
        }
        // A prefix without options can have secrets only in its URL.
        None if mark == ',' => zarrfs_store::redacted(text),
        Some((name, _)) if mark == ',' => format!("{}{mark}", zarrfs_store::redacted(name)),
        Some((name, _)) if !name.contains(char::is_whitespace) => format!("{name}{mark}"),
        Some(_) | None => mark.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted_line(line: &str) -> String {
        let words: Vec<_> = line.split(' ').map(OsString::from).collect();
        let words = redacted(&words).into_iter().map(|word| word.into_string());
        words.collect::<Result<Vec<_>, _>>().unwrap().join(" ")
    }

    #[test]
    fn values_of_options_and_passwords_are_left_out() {
        let line = "zarrfs mount https://me:hush@h/a?s=hush d --option k=hush --option=k=hush --endpoint=http://u:hush@h";
        let expected = "zarrfs mount https://h/a d --option k= --option=k= --endpoint=http://h";
        assert_eq!(redacted_line(line), expected);
        assert_eq!(
            redacted_line("zarrfs tree a --storage-option k=hush --storage-option=k=hush"),
            "zarrfs tree a --storage-option k= --storage-option=k="
        );
        let line = "mount.zarrfs s3://b/a /mnt -o ro,option=k=hush,region=x";
        assert_eq!(
            redacted_line(line),
            "mount.zarrfs s3://b/a /mnt -o ro,option=k="
        );
    }

    #[test]
    fn options_of_virtual_chunk_prefixes_are_left_out() {
        for (line, expected) in [
            (
                "ls --virtual-chunks s3://b/p",
                "ls --virtual-chunks s3://b/p",
            ),
            (
                "ls --virtual-chunks s3://b/p,secret_access_key=hush,anon",
                "ls --virtual-chunks s3://b/p,",
            ),
            (
                "ls --virtual-chunks=s3://b/p,k=hush",
                "ls --virtual-chunks=s3://b/p,",
            ),
        ] {
            assert_eq!(redacted_line(line), expected);
        }
    }

    #[test]
    fn values_of_headers_are_left_out() {
        for (line, expected) in [
            ("zarrfs ls u --header A:hush", "zarrfs ls u --header A:"),
            ("zarrfs ls u --header=A:hush", "zarrfs ls u --header=A:"),
            ("zarrfs ls u --header hush", "zarrfs ls u --header :"),
            ("zarrfs ls u --header=hush=hush", "zarrfs ls u --header=:"),
            (
                "zarrfs ls u --header @/a/b --netrc",
                "zarrfs ls u --header @/a/b --netrc",
            ),
            (
                "zarrfs u d -o ro,header=A:hush,option=b=hush",
                "zarrfs u d -o ro,header=A:",
            ),
            (
                "zarrfs u d -o header=@/a,storage_option=b=hush",
                "zarrfs u d -o header=@/a",
            ),
            (
                "zarrfs u d -o storage_option=b=hush,header=A:hush",
                "zarrfs u d -o storage_option=b=",
            ),
        ] {
            assert_eq!(redacted_line(line), expected);
        }
        let header = OsString::from("Authorization: Bearer hush");
        let words = redacted(&["--header".into(), header]);
        assert_eq!(words, ["--header", "Authorization:"]);
        let not_utf8 = OsString::from_vec(b"A: hush\xff".to_vec());
        assert_eq!(redacted(&["--header".into(), not_utf8]), ["--header", "A:"]);
        let path = [OsString::from_vec(b"/x\xff".to_vec())];
        assert_eq!(redacted(&path), path);
    }

    #[test]
    fn other_arguments_stay() {
        let line = "zarrfs mount ./a@b?c /mnt --memory=1G -o allow_other,view=files";
        assert_eq!(redacted_line(line), line);
    }
}
