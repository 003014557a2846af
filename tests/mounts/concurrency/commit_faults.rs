//! Reproduces bugs of 0.1.0 in which commits met other changes, by holding store calls.
//!
//! Numbers such as A2 are those of the first trial. The tests of A2 and A7 to A12 are with the tests of inodes, edits
//! and reads.

use zarrfs_overlay::commit::CommitConfig;
use zarrfs_store::Tree as _;

use crate::concurrency::fixture::{Fixture, LOWERS, Lower, files, fill, key, open_file};
use zarrfs_store::request_context::UNLIMITED;

const FORCE: CommitConfig = CommitConfig {
    dry_run: false,
    force: true,
};

#[test]
fn a_rename_during_a_commit_is_kept() {
    for lower in LOWERS {
        let held = [("a", "file"), ("d/0", "zero"), ("d/1", "one"), ("z", "old")];
        let mut fixture = Fixture::new(lower, &held);
        fixture.write("z", "new");
        let commit = fixture.commit_held_at("put", "z");
        fixture.rename("a", "b");
        fixture.rename("d", "e");
        assert_eq!(commit.end().unwrap().conflicts, []);
        let renamed = [("b", "file"), ("e/0", "zero"), ("e/1", "one"), ("z", "new")];
        fixture.ends_as(&renamed);
    }
}

/// A commit keeps removals that are made while it runs, and files that are made in the place of removed files.
#[test]
fn a_removal_during_a_commit_is_kept() {
    for lower in LOWERS {
        let mut fixture = Fixture::new(lower, &[("a", "file"), ("d/0", "zero"), ("z", "old")]);
        fixture.write("z", "new");
        let commit = fixture.commit_held_at("put", "z");
        fixture.unlink("a");
        fixture.make_folder("a");
        fixture.write("a/x", "below");
        fixture.unlink("d/0");
        fixture.write("d/1", "one");
        assert_eq!(commit.end().unwrap().conflicts, []);
        fixture.ends_as(&[("a/x", "below"), ("d/1", "one"), ("z", "new")]);
    }
}

/// A renamed file is renamed again, renamed back, or replaced while the commit copies it.
#[test]
fn a_rename_of_a_file_that_the_commit_renames_is_kept() {
    for lower in LOWERS {
        for (target, expected) in [("c", "c"), ("a", "a")] {
            let mut fixture = Fixture::new(lower, &[("a", "file"), ("d/0", "zero"), ("z", "old")]);
            fixture.rename("a", "b");
            fixture.rename("d", "e");
            fixture.write("z", "new");
            let commit = fixture.commit_held_at("put", "b");
            fixture.rename("b", target);
            fixture.replace("e/0", "another");
            assert_eq!(commit.end().unwrap().conflicts, []);
            fixture.ends_as(&[(expected, "file"), ("e/0", "another"), ("z", "new")]);
        }
    }
}

/// A commit puts the metadata document last. Before the commit, a link gave the file a second key.
#[test]
fn a_write_to_a_linked_file_during_a_commit_is_kept() {
    for lower in LOWERS {
        let mut fixture = Fixture::new(lower, &[]);
        fixture.write("f", "old.");
        fixture
            .overlay()
            .link(&UNLIMITED, &key("f"), &key("g"))
            .unwrap();
        fixture.write("zarr.json", "{}");
        let file = fixture.open("f");
        file.write_at(&UNLIMITED, 0, b"one.").unwrap();
        let commit = fixture.commit_held_at("put", "zarr.json");
        file.write_at(&UNLIMITED, 0, b"two.").unwrap();
        assert_eq!(commit.end().unwrap().conflicts, []);
        file.flush(&UNLIMITED).unwrap();
        drop(file);
        fixture.ends_as(&[("f", "two."), ("g", "old."), ("zarr.json", "{}")]);
    }
}

/// A file that has two keys by a link is opened and written while the commit puts it.
#[test]
fn a_write_to_a_linked_file_during_its_put_is_kept() {
    for lower in LOWERS {
        let mut fixture = Fixture::new(lower, &[]);
        fixture.write("f", "old.");
        fixture
            .overlay()
            .link(&UNLIMITED, &key("f"), &key("g"))
            .unwrap();
        let commit = fixture.commit_held_at("put", "f");
        let file = fixture.open("f");
        file.write_at(&UNLIMITED, 0, b"new.").unwrap();
        assert_eq!(commit.end().unwrap().conflicts, []);
        file.write_at(&UNLIMITED, 4, b"more").unwrap();
        file.flush(&UNLIMITED).unwrap();
        drop(file);
        fixture.ends_as(&[("f", "new.more"), ("g", "old.")]);
    }
}

#[test]
fn a_new_file_removed_during_its_put_stays_removed() {
    for lower in LOWERS {
        let mut fixture = Fixture::new(lower, &[("a", "stays")]);
        fixture.write("new", "short-lived");
        let commit = fixture.commit_held_at("put", "new");
        fixture.unlink("new");
        assert_eq!(commit.end().unwrap().conflicts, []);
        fixture.ends_as(&[("a", "stays")]);
    }
}

/// A temporary file is renamed to its final name while a commit puts it.
#[test]
fn a_new_file_renamed_during_its_put_leaves_no_old_name() {
    for lower in LOWERS {
        for call in ["etag", "put"] {
            let mut fixture = Fixture::new(lower, &[("k", "old")]);
            fixture.write("k.tmp", "new");
            let commit = fixture.commit_held_at(call, "k.tmp");
            fixture.rename("k.tmp", "k");
            assert_eq!(commit.end().unwrap().conflicts, []);
            fixture.ends_as(&[("k", "new")]);
        }
    }
}

#[test]
fn a_rename_during_a_commit_does_not_change_that_commit() {
    for lower in LOWERS {
        let mut fixture = Fixture::new(lower, &[]);
        fixture.make_folder("c");
        fixture.write("c/0", "chunk");
        fixture.write("zarr.json", "{}");
        let commit = fixture.commit_held_at("put", "c/0");
        fixture.rename("zarr.json", "moved");
        let outcome = commit.end().unwrap();
        assert_eq!(outcome.conflicts, []);
        // The store has the content from the start of the commit, with its metadata document.
        assert_eq!(
            fixture.stored(),
            files(&[("c/0", "chunk"), ("zarr.json", "{}")])
        );
        fixture.ends_as(&[("c/0", "chunk"), ("moved", "{}")]);
    }
}

/// Another program made a folder where a file was written here: the commit finds the conflict before its first put.
#[test]
fn a_new_file_conflicts_with_a_folder_of_its_name() {
    for lower in LOWERS {
        let mut fixture = Fixture::new(lower, &[("b", "old")]);
        fixture.write("a", "file");
        fixture.write("b", "new");
        fixture.put_in_store("a/x", "theirs");
        is_a_conflict(&mut fixture, "a", &[("a", "file"), ("b", "new")]);
    }
}

/// Another program made a file in the store where the overlay has a new folder.
#[test]
fn a_new_folder_conflicts_with_a_file_of_its_name() {
    for lower in LOWERS {
        let mut fixture = Fixture::new(lower, &[("b", "old")]);
        fixture.make_folder("a");
        fixture.write("a/x", "below");
        fixture.write("b", "new");
        fixture.put_in_store("a", "theirs");
        is_a_conflict(&mut fixture, "a", &[("a/x", "below"), ("b", "new")]);
    }
}

/// Fails unless a commit reports a conflict at or below `path` and changes nothing, and a forced commit makes the store
/// equal to the overlay.
fn is_a_conflict(fixture: &mut Fixture, path: &str, wanted: &[(&str, &str)]) {
    let before = fixture.stored();
    assert_eq!(fixture.shown(), files(wanted));
    for dry_run in [true, false] {
        let force = false;
        let outcome = fixture.commit_with(CommitConfig { dry_run, force });
        let conflicts = outcome.unwrap().conflicts;
        let names = |named: &zarrfs_store::Key| named.below(&key(path)).is_some();
        assert!(
            !conflicts.is_empty() && conflicts.iter().all(|(named, _)| names(named)),
            "dry_run {dry_run}: {conflicts:?}"
        );
        assert_eq!(fixture.stored(), before);
        assert_eq!(fixture.shown(), files(wanted));
    }
    assert_eq!(fixture.commit_with(FORCE).unwrap().conflicts, []);
    assert_eq!(fixture.stored(), files(wanted));
    fixture.ends_as(wanted);
}

/// After one side of a rename was discarded, the rename is undone, or the error names the other side and nothing
/// changes.
#[test]
fn discarding_one_side_of_a_rename_loses_nothing() {
    for lower in LOWERS {
        for (from, to) in [("a", "b"), ("d", "e")] {
            for side in [from, to] {
                let held = [("a", "file"), ("d/0", "zero"), ("d/1", "one")];
                let mut fixture = Fixture::new(lower, &held);
                fixture.rename(from, to);
                let renamed = fixture.shown();
                let other = if side == from { to } else { from };
                match fixture.overlay().discard(&UNLIMITED, &key(side)) {
                    Ok(_) => fixture.ends_as(&held),
                    Err(error) => {
                        assert!(
                            error
                                .to_string()
                                .split([' ', ':', ';', ','])
                                .any(|word| word == other),
                            "{error}"
                        );
                        assert_eq!(fixture.shown(), renamed);
                        fixture.commit();
                        assert_eq!(fixture.stored(), renamed);
                    }
                }
            }
        }
    }
}

/// A file that is open for writing is not part of a commit, even after a FLUSH, because the FLUSH may come from the end
/// of a child process that inherited the descriptor.
#[test]
fn a_flushed_but_open_file_is_not_part_of_a_commit() {
    for lower in LOWERS {
        let mut fixture = Fixture::new(lower, &[("old", "as it was")]);
        let new = fixture.create("new");
        let old = fixture.open("old");
        fill(&*new, "half");
        fill(&*old, "half");
        fixture.write("closed", "whole");
        let outcome = fixture.commit();
        let mut kept: Vec<String> = outcome
            .uncommittable
            .iter()
            .map(|(key, _)| key.to_string())
            .collect();
        kept.sort();
        assert_eq!(kept, ["new", "old"]);
        assert_eq!(
            fixture.stored(),
            files(&[("closed", "whole"), ("old", "as it was")])
        );
        for file in [new, old] {
            file.write_at(&UNLIMITED, 4, b" and half.").unwrap();
            file.flush(&UNLIMITED).unwrap();
        }
        fixture.ends_as(&[
            ("closed", "whole"),
            ("new", "half and half."),
            ("old", "half and half."),
        ]);
    }
}

/// A file that is opened for writing while a commit puts it is neither lost nor truncated.
#[test]
fn a_file_opened_during_its_put_is_committed_as_it_was() {
    let mut fixture = Fixture::new(Lower::Memory, &[]);
    fixture.write("a", "first");
    let commit = fixture.commit_held_at("put", "a");
    let file = open_file(fixture.overlay(), &key("a"), true).unwrap();
    file.write_at(&UNLIMITED, 0, b"sec").unwrap();
    assert_eq!(commit.end().unwrap().conflicts, []);
    assert_eq!(fixture.stored(), files(&[("a", "first")]));
    file.write_at(&UNLIMITED, 3, b"ond").unwrap();
    file.flush(&UNLIMITED).unwrap();
    drop(file);
    fixture.ends_as(&[("a", "second")]);
}
