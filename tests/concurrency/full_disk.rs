//! Commits where the disk of the upper folder is full: they are made or not, and nothing is lost or comes back.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;
use zarrfs::error::{Kind, Result};
use zarrfs::overlay::commit::Outcome;

use crate::common::tmpfs::Tmpfs;
use crate::fixture::Fixture;

const MIB: u64 = 1 << 20;

const HELD: [(&str, &str); 4] = [("a", "1"), ("b", "2"), ("d/x", "3"), ("z", "old")];

/// Fills a disk with a file, whose removal makes room again.
fn fill(disk: &Path) -> PathBuf {
    let path = disk.join("filler");
    let filler = fs::File::create(&path).unwrap();
    let mut size = 4 * MIB;
    while size > 0 {
        let end = filler.metadata().unwrap().len();
        if rustix::fs::fallocate(&filler, FallocateFlags::empty(), end, size).is_err() {
            size /= 2;
        }
    }
    path
}

/// Returns a fixture on a small disk, with a change of each kind.
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
    let filler = fill(disk.path());
    is_made_or_full(fixture.commit_with(Default::default()));
    fs::remove_file(filler).unwrap();
    fixture.ends_as(&WANTED);
}

/// Programs remove and rename meanwhile, as far as there is room.
#[test]
fn a_disk_that_is_full_during_a_commit_loses_nothing() {
    let Some(disk) = Tmpfs::new(4 * MIB) else {
        return;
    };
    let mut fixture = changed(&disk);
    let commit = fixture.commit_held_at("put", "z");
    let filler = fill(disk.path());
    fixture.unlink("new");
    fixture.rename("e", "f");
    is_made_or_full(commit.end());
    fs::remove_file(filler).unwrap();
    fixture.ends_as(&[("b", "2"), ("f/x", "3"), ("z", "new")]);
}

#[test]
fn a_commit_on_a_full_disk_is_gone_on_with_after_a_remount() {
    let Some(disk) = Tmpfs::new(4 * MIB) else {
        return;
    };
    let mut fixture = changed(&disk);
    let filler = fill(disk.path());
    is_made_or_full(fixture.commit_with(Default::default()));
    fs::remove_file(filler).unwrap();
    fixture.remount();
    fixture.ends_as(&WANTED);
}
