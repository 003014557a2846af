//! Hides secret arguments from the list of processes.
//!
//! A program cannot change the arguments that `ps` shows, so it restarts itself without the secret values, and passes
//! the real arguments in a memory file that only this user can open. The daemon inherits both.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::{env, fs};

use rustix::fs::{MemfdFlags, memfd_create};

use crate::cli::background::own_program;

/// The environment variable with the descriptor number of the real arguments.
const VARIABLE: &str = "ZARRFS_ARGUMENTS";

/// Returns the real arguments, the program's name first. If some are secret, restarts the program without the secrets,
/// and does not return.
pub fn arguments() -> Vec<OsString> {
    let args: Vec<OsString> = env::args_os().collect();
    if let Some(real) = passed_arguments() {
        return real;
    }
    let redacted_args = redacted(&args);
    if redacted_args != args
        && let Err(error) = restart(&args, &redacted_args)
    {
        // A mount with visible secrets is better than no mount.
        eprintln!("zarrfs: warning: cannot hide the arguments from the list of processes: {error}");
    }
    args
}

/// Returns the arguments that the program has passed to itself, or `None`.
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

/// Replaces this process with a new run of the program; returns only on failure.
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

/// Returns the arguments without the values of store options and possible secrets in URLs.
fn redacted(args: &[OsString]) -> Vec<OsString> {
    let mut before = OsStr::new("");
    let mut redacted = Vec::with_capacity(args.len());
    for arg in args {
        redacted.push(redact(before, arg));
        before = arg;
    }
    redacted
}

fn redact(before: &OsStr, arg: &OsStr) -> OsString {
    let Some(text) = arg.to_str() else {
        return arg.to_os_string();
    };
    const NAMES: [&str; 2] = ["--option", "--storage-option"];
    if NAMES.iter().any(|name| before == *name) {
        return without_value(text).into();
    }
    for name in NAMES {
        if let Some(pair) = text
            .strip_prefix(name)
            .and_then(|rest| rest.strip_prefix('='))
        {
            return format!("{name}={}", without_value(pair)).into();
        }
    }
    if let Some((start, rest)) = text.split_once("option=") {
        // In an -o list; the text after it may be the rest of a value that contains a comma.
        return format!("{start}option={}", without_value(rest)).into();
    }
    if let Some((option, url)) = text.split_once('=')
        && option.starts_with("--")
    {
        return format!("{option}={}", zarrfs_store::redacted(url)).into();
    }
    zarrfs_store::redacted(text).into()
}

fn without_value(pair: &str) -> String {
    let key = pair.split('=').next().unwrap_or_default();
    format!("{key}=")
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
    fn other_arguments_stay() {
        let line = "zarrfs mount ./a@b?c /mnt --memory=1G -o allow_other,view=files";
        assert_eq!(redacted_line(line), line);
    }
}
