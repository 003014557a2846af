//! Changes over stores that cannot list their keys: listings have what was made, and not what was removed.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::Ordering;
use std::thread;

use rustix::io::Errno;

use crate::fixture::soon;
use crate::mute::{Changed, GROUP, below, consolidated};

#[track_caller]
fn assert_has(shown: &BTreeSet<String>, names: &[&str], missing: &[&str]) {
    let has = |name: &&str| shown.contains(*name);
    assert!(names.iter().all(has), "{names:?} in {shown:?}");
    assert!(!missing.iter().any(has), "none of {missing:?} in {shown:?}");
}

const MADE: [&str; 5] = ["new", "new/deep", "new/deep/f", "a/extra", "README"];

/// Makes files and folders that no metadata name, and meets all nodes.
fn make(changed: &Changed) {
    changed.shell("mkdir -p new/deep; echo hi > new/deep/f; echo x > a/extra; echo r > README");
    changed.shell("ls s g/h a/extra > /dev/null");
}

#[test]
fn w05_what_was_made_over_a_web_server_is_listed_and_copied() {
    for root in [GROUP, &consolidated()] {
        let Some(changed) = Changed::new(false, root, &[]) else {
            return;
        };
        make(&changed);
        let before = changed.shown();
        assert_has(&before, &MADE, &[]);
        assert_has(
            &before,
            &["zarr.json", "a/c/0/0", "s/c/1/0", "g/h/c/0/0"],
            &[],
        );
        changed.shell("cp -r . ../copy; tar cf ../all.tar --exclude .zarrfs .");
        assert_eq!(below(&changed.fixture.path("copy")), before);
        changed.remount();
        assert_has(&changed.shown(), &MADE, &[]);
        changed.zarrfs("commit").unwrap_err();
        assert_has(&changed.shown(), &MADE, &[]);
        changed.zarrfs("discard").unwrap();
        assert_has(&changed.shown(), &["zarr.json"], &MADE);
    }
}

#[test]
fn w05_what_was_removed_or_renamed_over_a_web_server_is_not_listed() {
    for root in [GROUP, &consolidated()] {
        let Some(changed) = Changed::new(false, root, &[]) else {
            return;
        };
        make(&changed);
        changed.shell("rm -r s; rm new/deep/f README; mv a t; mv g k; mkdir s; echo y > s/other");
        let there = [
            "t/c/0/0",
            "t/extra",
            "t/zarr.json",
            "k/h/c/0/0",
            "s/other",
            "new/deep",
        ];
        let gone = ["a", "g", "s/c", "s/zarr.json", "new/deep/f", "README"];
        assert_has(&changed.shown(), &there, &gone);
        changed.remount();
        assert_has(&changed.shown(), &there, &gone);
        assert_eq!(
            fs::read(changed.fixture.dir.join("t/c/0/0")).unwrap(),
            b"abcd"
        );
        changed.zarrfs("discard").unwrap();
        changed.shell("ls s a > /dev/null");
        assert_has(
            &changed.shown(),
            &["a/c/0/0", "s/c/0/0"],
            &["t", "k", "s/other"],
        );
    }
}

/// Returns the keys of the bucket that are not the root's document.
fn keys(changed: &Changed) -> Vec<String> {
    let keys = changed.server.keys().into_iter();
    keys.filter(|key| key != "zarr.json").collect()
}

const AFTER: [&str; 9] = [
    "README",
    "g/h/c/0/0",
    "g/h/zarr.json",
    "g/zarr.json",
    "new/deep/f",
    "s/notes",
    "t/c/0/0",
    "t/extra",
    "t/zarr.json",
];

#[test]
fn w05_a_bucket_gets_exactly_what_was_changed() {
    for (root, more) in [
        (GROUP, &[][..]),
        (&consolidated(), &[]),
        (GROUP, &["--write-through"]),
        (&consolidated(), &["--write-through"]),
    ] {
        let Some(changed) = Changed::new(true, root, more) else {
            return;
        };
        make(&changed);
        changed.shell("rm -r s; mv a t");
        let gone = ["a/extra", "a/zarr.json", "s/zarr.json"];
        assert_has(
            &changed.shown(),
            &["README", "t/c/0/0", "t/extra", "new/deep/f"],
            &gone,
        );
        changed.zarrfs("commit").unwrap();
        assert_eq!(keys(&changed), AFTER, "{more:?}");
        // Also where copies in consolidated metadata still name them.
        let gone = [&gone[..], &["a", "s/c"]].concat();
        assert_has(
            &changed.shown(),
            &["README", "t/c/0/0", "t/extra", "new/deep/f"],
            &gone,
        );
    }
}

/// A key that no metadata name, and one of a node that no listing shows any more.
#[test]
fn w05_a_commit_removes_each_key_that_was_removed() {
    let Some(changed) = Changed::new(true, GROUP, &[]) else {
        return;
    };
    changed.shell("ls g/h > /dev/null; rm s/notes; rm -r s g");
    changed.remount();
    changed.zarrfs("commit").unwrap();
    assert_eq!(keys(&changed), ["a/c/0/0", "a/zarr.json"]);
}

#[test]
fn w05_nothing_is_renamed_or_removed_in_part() {
    let Some(changed) = Changed::new(true, GROUP, &[]) else {
        return;
    };
    changed.shell("ls g s > /dev/null");
    let dir = &changed.fixture.dir;
    let renamed = |from: &str, to: &str| rustix::fs::rename(dir.join(from), dir.join(to));
    assert_eq!(
        renamed("g", "k"),
        Err(Errno::XDEV),
        "it may have more nodes"
    );
    let removed = rustix::fs::unlink(dir.join(".zarrfs/files/g"));
    assert_eq!(removed, Err(Errno::ISDIR));
    let removed = rustix::fs::rmdir(dir.join(".zarrfs/files/g"));
    assert_eq!(removed, Err(Errno::OPNOTSUPP));
    assert_eq!(rustix::fs::rmdir(dir.join("s/c")), Err(Errno::NOTEMPTY));
    renamed("s", "g/s").unwrap();
    changed.zarrfs("commit").unwrap();
    let moved = ["g/s/c/0/0", "g/s/c/1/0", "g/s/zarr.json", "s/notes"];
    let found = changed.server.keys();
    assert!(moved.iter().all(|&key| found.contains(key)), "{found:?}");
    assert!(!found.contains("s/zarr.json") && !found.contains("s/c/0/0"));
}

#[test]
fn w05_nodes_are_made_renamed_and_removed_as_files() {
    for root in [GROUP, &consolidated()] {
        let Some(changed) = Changed::new(true, root, &[]) else {
            return;
        };
        make(&changed);
        changed.shell("cd .zarrfs/files; mkdir made; mv s made/t; rm -r a");
        let nodes = ["made/t/t.npy", "g/h/h.npy"];
        assert_has(&changed.shown_files(), &nodes, &["s", "a"]);
        changed.remount();
        changed.shell("ls g/h > /dev/null");
        assert_has(&changed.shown_files(), &nodes, &["s", "a"]);
        changed.zarrfs("commit").unwrap();
        assert_has(&changed.shown_files(), &nodes, &["s", "a"]);
        let found = changed.server.keys();
        assert!(found.contains("made/t/c/1/0") && !found.contains("a/c/0/0"));
    }
}

#[test]
fn w05_names_are_there_while_a_commit_brings_them_to_the_bucket() {
    let Some(changed) = Changed::new(true, GROUP, &[]) else {
        return;
    };
    make(&changed);
    changed.shell("rm -r s; mv a t");
    let (expected, server) = (changed.shown(), &changed.server);
    server.holds.store(true, Ordering::SeqCst);
    thread::scope(|scope| {
        let commit = scope.spawn(|| changed.zarrfs("commit"));
        assert!(soon(|| server.held.load(Ordering::SeqCst)));
        assert_eq!(changed.shown(), expected);
        changed.shell("echo z > new/late; rm README");
        server.holds.store(false, Ordering::SeqCst);
        while !commit.is_finished() {
            assert_has(
                &changed.shown(),
                &["t/extra", "new/late", "new/deep/f"],
                &["a", "README"],
            );
        }
        commit.join().unwrap().unwrap();
    });
    assert_has(
        &changed.shown(),
        &["t/extra", "new/late", "new/deep/f"],
        &["a", "s", "README"],
    );
}
