//! Set-user-ID and set-group-ID bits of a mount that can be written: a file loses them when its content or its owner
//! changes, for which the kernel does not look at each write.

use std::fs;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fixture::{Fixture, soon};

const NOBODY: u32 = 65534;

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Makes a file in a mount with both bits, which all may write.
fn with_bits(fixture: &Fixture) -> PathBuf {
    let path = fixture.dir.join("tool");
    fs::write(&path, "content").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o6777)).unwrap();
    assert_eq!(mode_of(&path), 0o6777);
    path
}

/// Runs lines of a shell as this user, with the file as `$1`.
fn run_as(user: u32, lines: &str, path: &Path) {
    let mut command = Command::new("sh");
    command.args(["-ec", lines, "sh"]).arg(path);
    let done = command.uid(user).gid(user).output().unwrap();
    assert!(done.status.success(), "{lines}: {done:?}");
}

fn mount_with_cow(fixture: &Fixture, more: &[&str]) {
    let upper = fixture.path("upper");
    let cow = ["--allow-other", "--cow", upper.to_str().unwrap()];
    fixture.mount(&[&cow[..], more].concat());
}

#[test]
fn whoever_is_not_root_clears_them_by_a_change_of_the_content() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    mount_with_cow(&fixture, &[]);
    for change in [
        "printf more >> \"$1\"",
        "printf x | dd of=\"$1\" conv=notrunc status=none",
        "truncate -s 3 \"$1\"",
        ": > \"$1\"",
        "fallocate -l 9 \"$1\"",
    ] {
        let path = with_bits(&fixture);
        run_as(NOBODY, change, &path);
        assert_eq!(mode_of(&path), 0o777, "{change}");
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn bits_that_come_while_a_file_is_open_are_cleared_by_the_next_write() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    mount_with_cow(&fixture, &[]);
    let path = with_bits(&fixture);
    chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
    let change = "exec 3>> \"$1\"; printf a >&3; chmod 6755 \"$1\"; printf b >&3";
    run_as(NOBODY, change, &path);
    assert_eq!(mode_of(&path), 0o755);
    assert_eq!(fs::read(&path).unwrap(), b"contentab");
}

#[test]
fn root_keeps_them_but_not_in_a_change_of_the_owner() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    mount_with_cow(&fixture, &[]);
    let path = with_bits(&fixture);
    run_as(0, "printf more >> \"$1\"; truncate -s 5 \"$1\"", &path);
    assert_eq!(mode_of(&path), 0o6777);
    chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
    assert_eq!(mode_of(&path), 0o777);
    // Without the permission of its group to execute, the bit of the group is another one.
    fs::set_permissions(&path, Permissions::from_mode(0o6767)).unwrap();
    run_as(NOBODY, "printf more >> \"$1\"", &path);
    assert_eq!(mode_of(&path), 0o2767);
}
