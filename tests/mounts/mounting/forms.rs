//! Tests command lines without the word `mount`, in any order, and their errors.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::process::{Command, Output};

use crate::mounting::fixture::{Fixture, PROGRAM, soon, stderr};

/// Runs the program in the folder that contains the store `s.zarr`.
fn zarrfs<W: AsRef<OsStr>>(fixture: &Fixture, words: &[W]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(words).current_dir(fixture.path(""));
    command.output().unwrap()
}

fn said(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), stderr(output))
}

/// Unmounts the directory and waits until its daemon has ended.
fn unmount(fixture: &Fixture) {
    assert!(fixture.umount(&fixture.dir).status.success());
    assert!(soon(|| fixture.daemons().is_empty()));
}

#[test]
fn options_may_stand_before_or_after_store_and_directory() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let dir = fixture.dir.to_str().unwrap();
    for words in [
        ["s.zarr", "--view", "files", dir],
        ["--view", "files", "s.zarr", dir],
        ["s.zarr", dir, "--view", "files"],
    ] {
        assert_eq!(said(&zarrfs(&fixture, &words)), (Some(0), String::new()));
        assert!(fixture.dir.join("a/a.npy").is_file(), "{words:?}");
        unmount(&fixture);
    }
    let output = zarrfs(&fixture, &["--read-only", "-o", "ro", "s.zarr", dir]);
    assert_eq!(said(&output), (Some(0), String::new()));
    unmount(&fixture);
}

#[test]
fn a_missing_mountpoint_argument_is_named() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let missing = "missing <DIR>; see 'zarrfs mount --help'";
    for words in [
        &["s.zarr"][..],
        &["--read-only", "s.zarr"],
        &["s3://b/x"],
        &["./no.zarr"],
    ] {
        let expected = format!("zarrfs: {missing}\n");
        assert_eq!(said(&zarrfs(&fixture, words)), (Some(2), expected));
    }
    let output = zarrfs(&fixture, &["moutn", "a", "b"]);
    let expected = "zarrfs: unknown command 'moutn'; did you mean 'mount'?; see 'zarrfs --help'\n";
    assert_eq!(said(&output), (Some(2), expected.to_string()));
}

#[test]
fn a_store_path_that_is_not_utf_8_is_named_in_the_error() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let store = OsString::from_vec(b"x\xff.zarr".to_vec());
    fs::create_dir(fixture.path("").join(&store)).unwrap();
    let dir = fixture.dir.as_os_str();
    let expected = "zarrfs: 'x\u{fffd}.zarr' is not UTF-8; see 'zarrfs mount --help'\n";
    for words in [
        &[OsStr::new("mount"), &store, dir][..],
        &[&store, dir],
        &[&store],
    ] {
        assert_eq!(
            said(&zarrfs(&fixture, words)),
            (Some(2), expected.to_string())
        );
    }
}

#[test]
fn help_of_help_is_the_general_help() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let [of_help, help] = [&["help", "help"][..], &["help"]].map(|words| zarrfs(&fixture, words));
    assert_eq!(said(&of_help), (Some(0), String::new()));
    assert_eq!(of_help.stdout, help.stdout);
}

#[test]
fn the_form_of_mount_8_prints_the_mounted_store() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let (store, dir) = (fixture.store.display(), fixture.dir.display());
    let expected = format!(
        "Mounted {store} (Zarr v3, 1 array in 1 group, read-only) at {dir}\n  \
           arrays:  {dir}/.zarrfs/files/a/a.npy  (and .raw .nc .tif ...; see zarrfs info)\n  \
           keys:    {dir}   unmount: zarrfs umount {dir}\n"
    );
    for words in [
        ["s.zarr", "DIR", "-o", "ro"],
        ["mount", "s.zarr", "DIR", "-oro"],
    ] {
        let words = words.map(|word| {
            if word == "DIR" {
                fixture.dir.to_str().unwrap()
            } else {
                word
            }
        });
        let output = zarrfs(&fixture, &words);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(
            (said(&output), text),
            ((Some(0), String::new()), expected.clone())
        );
        unmount(&fixture);
    }
}
