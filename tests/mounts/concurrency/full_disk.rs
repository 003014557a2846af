//! Commits while the upper folder's disk is full, and checks that nothing is lost.

use std::ffi::OsStr;
use std::fs;
use std::thread;

use zarr_format::error::{Kind, Result};
use zarrfs_overlay::commit::{CommitConfig, Outcome};

use crate::common::tmpfs::Tmpfs;
use crate::concurrency::fixture::Fixture;

const MIB: u64 = 1 << 20;

const HELD: [(&str, &str); 4] = [("a", "1"), ("b", "2"), ("d/x", "3"), ("z", "old")];

/// Returns a fixture on a small disk, with one uncommitted change of each kind.
fn changed(disk: &Tmpfs) -> Fixture {
    let folder = tempfile::tempdir_in(disk.path()).unwrap();
    let fixture = Fixture::in_folder(folder, &HELD);
    fixture.unlink("a");
    fixture.rename("d", "e");
    fixture.write("new", "4");
    fixture.write("z", "new");
    fixture
}

fn is_made_or_full(outcome: Result<Outcome>) {
    match outcome {
        Ok(outcome) => assert_eq!(outcome.conflicts, []),
        Err(error) => assert_eq!(error.kind(), Kind::NoSpace, "{error}"),
    }
}

const WANTED: [(&str, &str); 4] = [("b", "2"), ("e/x", "3"), ("new", "4"), ("z", "new")];

#[test]
fn a_commit_on_a_full_disk_loses_nothing() {
    let Some(disk) = Tmpfs::new(4 * MIB) else {
        return;
    };
    let mut fixture = changed(&disk);
    let filler = disk.fill();
    is_made_or_full(fixture.commit_with(Default::default()));
    disk.free(&filler);
    fixture.ends_as(&WANTED);
}

/// While a commit meets a full disk, programs remove and rename files.
#[test]
fn a_disk_that_is_full_during_a_commit_loses_nothing() {
    let Some(disk) = Tmpfs::new(4 * MIB) else {
        return;
    };
    let mut fixture = changed(&disk);
    let commit = fixture.commit_held_at("put", "z");
    let filler = disk.fill();
    fixture.unlink("new");
    fixture.rename("e", "f");
    is_made_or_full(commit.end());
    disk.free(&filler);
    fixture.ends_as(&[("b", "2"), ("f/x", "3"), ("z", "new")]);
}

#[test]
fn a_commit_on_a_full_disk_continues_after_a_remount() {
    let Some(disk) = Tmpfs::new(4 * MIB) else {
        return;
    };
    let mut fixture = changed(&disk);
    let filler = disk.fill();
    is_made_or_full(fixture.commit_with(Default::default()));
    disk.free(&filler);
    fixture.remount();
    fixture.ends_as(&WANTED);
}

/// Invariant (overlay): A commit needs no space in the upper folder, except for objects that were renamed in the store.
///
/// The commit has more to record than its journal has room for, and the next commit finds no room either.
#[test]
fn a_commit_needs_no_space_in_the_upper_folder() {
    const WRITTEN: usize = 400;
    let Some(disk) = Tmpfs::new(8 * MIB) else {
        return;
    };
    let names: Vec<String> = (0..600).map(|number| format!("{number:0100}")).collect();
    let held: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "old")).collect();
    let folder = tempfile::tempdir_in(disk.path()).unwrap();
    let mut fixture = Fixture::in_folder(folder, &held);
    let (written, removed) = names.split_at(WRITTEN);
    written.iter().for_each(|name| fixture.write(name, "new"));
    removed.iter().for_each(|name| fixture.unlink(name));
    disk.fill();
    let outcome = fixture.commit();
    assert_eq!((outcome.put, outcome.erased), (400, 200));
    // Another thread removes the files that record the commit; the test waits for it.
    let upper = fixture.folder.path().join("upper");
    let is_left = |name: &OsStr| name.to_string_lossy().starts_with("committed-");
    while fs::read_dir(&upper)
        .unwrap()
        .any(|entry| is_left(&entry.unwrap().file_name()))
    {
        thread::yield_now();
    }
    let filler = disk.fill();
    fixture.unlink(&names[0]);
    assert_eq!(fixture.commit().erased, 1);
    disk.free(&filler);
    let left = names[1..WRITTEN].iter();
    let expected: Vec<(&str, &str)> = left.map(|name| (name.as_str(), "new")).collect();
    fixture.ends_as(&expected);
}

/// Invariant of `a_commit_needs_no_space_in_the_upper_folder`.
///
/// Objects that the store has under another key have to be copied first; the rest of the commit needs no space.
#[test]
fn a_commit_without_space_for_copies_says_how_much_it_needs() {
    let Some(disk) = Tmpfs::new(4 * MIB) else {
        return;
    };
    let folder = tempfile::tempdir_in(disk.path()).unwrap();
    let mut fixture = Fixture::in_folder(folder, &[("d/x", "seven.."), ("d/y", "3..")]);
    fixture.rename("d", "e");
    let filler = disk.fill();
    let error = fixture.commit_with(Default::default()).err().unwrap();
    assert_eq!(error.kind(), Kind::NoSpace, "{error}");
    assert!(
        error.to_string().contains("2 files with 10 bytes"),
        "{error}"
    );
    disk.free(&filler);
    fixture.ends_as(&[("e/x", "seven.."), ("e/y", "3..")]);
}

/// Invariant of `a_commit_needs_no_space_in_the_upper_folder`.
///
/// A full disk keeps the commit from recording its puts; after a kill they are found by looking into the store.
#[test]
fn an_interrupted_commit_on_a_full_disk_continues() {
    let Some(disk) = Tmpfs::new(8 * MIB) else {
        return;
    };
    let names: Vec<String> = (0..600).map(|number| format!("{number:0100}")).collect();
    let held: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "old")).collect();
    let folder = tempfile::tempdir_in(disk.path()).unwrap();
    let mut fixture = Fixture::in_folder(folder, &held);
    let (written, removed) = names.split_at(500);
    written.iter().for_each(|name| fixture.write(name, "new"));
    removed.iter().for_each(|name| fixture.unlink(name));
    fixture.write("zarr.json", "{}");
    let filler = disk.fill();
    // The metadata document is put last, and is in conflict because another program has made it.
    let commit = fixture.commit_held_at("put", "zarr.json");
    fixture.put_in_store("zarr.json", "other");
    let outcome = commit.end().unwrap();
    assert_eq!((outcome.put, outcome.conflicts.len()), (500, 1));
    fixture.remount();
    // Keys that the commit has put and another program has changed since are in conflict, too.
    let changed = [&names[0], &names[499]];
    for name in changed {
        fixture.put_in_store(name, "other");
    }
    let outcome = fixture.commit_with(Default::default()).unwrap();
    let conflicts = outcome.conflicts.iter().map(|(key, _)| key.to_string());
    let mut conflicts: Vec<String> = conflicts.collect();
    conflicts.sort();
    assert_eq!(
        conflicts,
        [changed[0].as_str(), changed[1].as_str(), "zarr.json"]
    );
    disk.free(&filler);
    let force = CommitConfig {
        dry_run: false,
        force: true,
    };
    fixture.commit_with(force).unwrap();
    let written = written.iter().map(|name| (name.as_str(), "new"));
    let expected: Vec<(&str, &str)> = written.chain([("zarr.json", "{}")]).collect();
    fixture.ends_as(&expected);
}
