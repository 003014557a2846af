//! Parses users and groups on the command line, by number or by name.
//!
//! Names are looked up in the local files, and then with getent(1), which also knows directory services.

use std::fs;
use std::process::{Command, Stdio};

use zarr_format::error::{Error, Result};

/// Parses a user.
pub(super) fn user(text: &str) -> Result<u32> {
    number(text, "passwd").ok_or_else(|| Error::invalid(format!("'{text}'"), "is no user here"))
}

/// Parses a group.
pub(super) fn group(text: &str) -> Result<u32> {
    number(text, "group").ok_or_else(|| Error::invalid(format!("'{text}'"), "is no group here"))
}

/// The number that means no user or group in system calls.
const NONE: u32 = u32::MAX;

fn number(text: &str, table: &str) -> Option<u32> {
    if let Ok(number) = text.parse() {
        return Some(number).filter(|number| *number != NONE);
    }
    let is_name = !text.is_empty() && !text.starts_with(['-', '+']) && !text.contains([':', '\n']);
    if !is_name {
        return None;
    }
    let local = fs::read_to_string(format!("/etc/{table}")).unwrap_or_default();
    find(&local, text).or_else(|| find(&service(table, text)?, text))
}

/// Returns the getent(1) line of a name.
fn service(table: &str, name: &str) -> Option<String> {
    let mut command = Command::new("getent");
    command.args([table, name]).stdin(Stdio::null());
    let output = command.stderr(Stdio::null()).output().ok()?;
    String::from_utf8(output.stdout).ok()
}

/// Finds the number in lines such as `name:x:1000:...`.
fn find(table: &str, name: &str) -> Option<u32> {
    let line = table
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split(':').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_have_names_and_numbers() {
        assert_eq!((user("7").unwrap(), group("0").unwrap()), (7, 0));
        assert_eq!((user("root").unwrap(), group("root").unwrap()), (0, 0));
        let error = user("no.such.user").unwrap_err().to_string();
        assert_eq!(error, "'no.such.user': is no user here");
        for bad in ["", "-1", "--help", "root:x", "4294967295", "4294967296"] {
            assert!(user(bad).is_err() && group(bad).is_err(), "{bad}");
        }
        let table = "root:x:0:0\nrooty:x:5:5\nbad:x:y\n";
        assert_eq!(find(table, "rooty"), Some(5));
        assert_eq!((find(table, "bad"), find(table, "roo")), (None, None));
    }
}
