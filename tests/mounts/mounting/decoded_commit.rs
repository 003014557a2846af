//! Tests commits while a decoded file is open for writing: they name the array.

use std::fs;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::Command;

use crate::common::tmpfs::Tmpfs;
use crate::mounting::fixture::{Fixture, PROGRAM, soon, stderr};

#[test]
fn a_commit_names_an_array_that_is_open_for_writing() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let upper = fixture.path("upper");
    fixture.mount(&["--cow", upper.to_str().unwrap()]);
    let say = |command: &str| {
        let output = Command::new(PROGRAM)
            .arg(command)
            .arg(&fixture.dir)
            .output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    let stored = || std::fs::read(fixture.store.join("a/c/0")).unwrap();
    let named = "1 array being written:\n    a: open for writing as a decoded file; the next commit includes \
        the rest\n";
    let file = OpenOptions::new()
        .write(true)
        .open(fixture.dir.join(".zarrfs/files/a/a.npy"))
        .unwrap();
    file.write_all_at(&[8; 4], 128).unwrap();
    assert!(say("status").ends_with(named));
    assert_eq!(
        say("commit"),
        format!("1 put (16 bytes), 0 removed\n{named}")
    );
    assert_eq!(stored(), [[8; 4], [7; 4], [7; 4], [7; 4]].concat());
    file.write_all_at(&[9; 4], 132).unwrap();
    drop(file);
    assert_eq!(say("commit"), "1 put (16 bytes), 0 removed\n");
    assert_eq!(stored(), [[8; 4], [9; 4], [7; 4], [7; 4]].concat());
    assert!(say("status").ends_with(": nothing to commit\n"));
}

/// Returns a mount with a full upper folder; one element was written to a decoded file, whose close could not store it.
fn full_upper() -> Option<(Fixture, Tmpfs)> {
    let fixture = Fixture::new()?;
    let disk = Tmpfs::new(1 << 20)?;
    let upper = disk.path().join("upper");
    fixture.mount(&["--cow", upper.to_str().unwrap()]);
    fill_up(&disk);
    let path = fixture.dir.join(".zarrfs/files/a/a.npy");
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&[8; 4], 128).unwrap();
    assert!(file.sync_all().is_err());
    drop(file);
    assert!(soon(|| run(&fixture, "status").contains(LEFT_OVER)));
    Some((fixture, disk))
}

fn fill_up(disk: &Tmpfs) {
    let mut filler = File::create(disk.path().join("filler")).unwrap();
    while filler.write_all(&[1; 1 << 12]).is_ok() {}
}

fn make_room(disk: &Tmpfs) {
    fs::remove_file(disk.path().join("filler")).unwrap();
}

fn run(fixture: &Fixture, command: &str) -> String {
    let command = Command::new(PROGRAM)
        .args(command.split(' '))
        .arg(&fixture.dir)
        .output();
    let output = command.unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn first_element(fixture: &Fixture) -> Vec<u8> {
    let shown = fs::read(fixture.dir.join(".zarrfs/files/a/a.npy")).unwrap();
    shown[128..132].to_vec()
}

const LEFT_OVER: &str = "    a: closed, but not all chunks could be stored; zarrfs will retry\n";

/// Invariant (writing): Data that could not be stored when a decoded file was closed are listed, and can be stored or
/// discarded.
#[test]
fn data_that_failed_to_store_at_close_are_committed() {
    let Some((fixture, disk)) = full_upper() else {
        return;
    };
    assert_eq!(first_element(&fixture), [8; 4]);
    make_room(&disk);
    assert_eq!(run(&fixture, "commit"), "1 put (16 bytes), 0 removed\n");
    let stored = fs::read(fixture.store.join("a/c/0")).unwrap();
    assert_eq!(stored[..4], [8; 4]);
    assert!(run(&fixture, "status").contains(": nothing to commit\n"));
    assert!(!run(&fixture, "status").contains("being written"));
}

/// Invariant of `data_that_failed_to_store_at_close_are_committed`.
#[test]
fn data_that_failed_to_store_at_close_can_be_discarded() {
    let Some((fixture, disk)) = full_upper() else {
        return;
    };
    run(&fixture, "discard --all");
    assert!(soon(|| first_element(&fixture) == [7; 4]));
    make_room(&disk);
    assert!(run(&fixture, "status").contains(": nothing to commit\n"));
    assert!(!run(&fixture, "status").contains("being written"));
    assert_eq!(run(&fixture, "commit"), "nothing to commit\n");
}

#[test]
fn data_that_failed_to_store_at_close_are_stored_at_unmount() {
    let Some((fixture, disk)) = full_upper() else {
        return;
    };
    make_room(&disk);
    assert!(fixture.umount(&fixture.dir).status.success());
    assert!(soon(|| fixture.daemons().is_empty()));
    let kept = fs::read(disk.path().join("upper/keys/a/c/0")).unwrap();
    assert_eq!(kept[..4], [8; 4]);
}

/// Invariant of `data_that_failed_to_store_at_close_are_committed`.
#[test]
fn an_unmount_is_refused_while_chunks_cannot_be_stored() {
    let Some((fixture, disk)) = full_upper() else {
        return;
    };
    let output = fixture.umount(&fixture.dir);
    assert!(!output.status.success());
    let said = stderr(&output);
    for part in [
        "chunks of a cannot be stored",
        "No space left on device",
        " a'\n",
    ] {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(first_element(&fixture), [8; 4]);
    run(&fixture, "discard --all");
    let output = fixture.umount(&fixture.dir);
    assert!(output.status.success(), "{output:?}");
    make_room(&disk);
    assert!(!disk.path().join("upper/keys/a/c/0").exists());
}
