//! Tests changes on mounts of stores that cannot list their keys.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::Ordering;
use std::thread;

use rustix::io::Errno;

use crate::mounting::fixture::soon;
use crate::mounting::mute::{Changed, GROUP, below, consolidated};

#[track_caller]
fn assert_has(shown: &BTreeSet<String>, names: &[&str], missing: &[&str]) {
    let has = |name: &&str| shown.contains(*name);
    assert!(names.iter().all(has), "{names:?} in {shown:?}");
    assert!(!missing.iter().any(has), "none of {missing:?} in {shown:?}");
}

const MADE: [&str; 5] = ["new", "new/deep", "new/deep/f", "a/extra", "README"];

/// Creates files and folders that no metadata names, and looks up all nodes.
fn make(changed: &Changed) {
    changed.shell("mkdir -p new/deep; echo hi > new/deep/f; echo x > a/extra; echo r > README");
    changed.shell("ls s g/h a/extra > /dev/null");
}

/// The nodes and documents that the store's metadata name.
const NODES: [&str; 9] = [
    "zarr.json",
    "a",
    "a/zarr.json",
    "s",
    "s/zarr.json",
    "g",
    "g/zarr.json",
    "g/h",
    "g/h/zarr.json",
];

/// Keys of the store that no listing shows, because nothing names them.
const CHUNKS: [&str; 4] = ["a/c", "s/c", "g/h/c", "s/notes"];

/// Invariant (unlisted): Over a store that cannot list, listings have the known nodes and everything created in the
/// mount, before and during a commit.
#[test]
fn new_files_over_a_web_server_are_listed_and_copied() {
    for root in [GROUP, &consolidated()] {
        let Some(changed) = Changed::new(false, root, &[]) else {
            return;
        };
        make(&changed);
        let before = changed.shown();
        assert_has(&before, &MADE, &[]);
        assert_has(&before, &NODES, &CHUNKS);
        let read = |key: &str| fs::read(changed.fixture.dir.join(key)).unwrap();
        assert_eq!(read("a/c/0/0"), b"abcd");
        assert_eq!(read("s/notes"), b"odd");
        changed.shell("cp -r . ../copy; tar cf ../all.tar --exclude .zarrfs .");
        assert_eq!(below(&changed.fixture.path("copy")), before);
        changed.remount();
        assert_has(&changed.shown(), &MADE, &[]);
        changed.zarrfs("commit").unwrap_err();
        assert_has(&changed.shown(), &MADE, &[]);
        changed.zarrfs("discard --all").unwrap();
        assert_has(&changed.shown(), &["zarr.json"], &MADE);
    }
}

/// Invariant of `new_files_over_a_web_server_are_listed_and_copied`.
#[test]
fn removed_or_renamed_files_over_a_web_server_are_not_listed() {
    for root in [GROUP, &consolidated()] {
        let Some(changed) = Changed::new(false, root, &[]) else {
            return;
        };
        make(&changed);
        changed.shell("rm new/deep/f README; mv new/deep moved; rm s/c/0/0");
        changed.shell("! cat s/c/0/0 2> /dev/null");
        let there = ["moved", "a/extra"];
        let gone = ["new/deep", "README"];
        assert_has(&changed.shown(), &there, &gone);
        changed.remount();
        assert_has(&changed.shown(), &there, &gone);
        changed.zarrfs("discard --all").unwrap();
        changed.shell("cat s/c/0/0 > /dev/null");
    }
}

/// Returns the keys of the bucket, without the root's metadata document.
fn keys(changed: &Changed) -> Vec<String> {
    let keys = changed.server.keys().into_iter();
    keys.filter(|key| key != "zarr.json").collect()
}

/// The keys that the bucket has after `make` and a removal of `s/notes` were committed.
const AFTER: [&str; 11] = [
    "README",
    "a/c/0/0",
    "a/extra",
    "a/zarr.json",
    "g/h/c/0/0",
    "g/h/zarr.json",
    "g/zarr.json",
    "new/deep/f",
    "s/c/0/0",
    "s/c/1/0",
    "s/zarr.json",
];

/// Invariant (unlisted): Over a store that cannot list, no chunk is left without its node: nodes of the store are
/// neither removed nor renamed.
#[test]
fn a_commit_to_a_bucket_stores_exactly_the_changes() {
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
        changed.shell("rm s/notes");
        changed.zarrfs("commit").unwrap();
        assert_eq!(keys(&changed), AFTER, "{more:?}");
        assert_has(&changed.shown(), &NODES, &CHUNKS);
        changed.shell("cat a/extra README > /dev/null");
    }
}

/// Invariant of `new_files_over_a_web_server_are_listed_and_copied`.
#[test]
fn new_nodes_are_listed_after_their_commit_to_the_bucket() {
    for more in [&[][..], &["--write-through"]] {
        let Some(changed) = Changed::new(true, GROUP, more) else {
            return;
        };
        changed.shell("mkdir made; cp a/zarr.json made/; mkdir -p made/c/0; cp a/c/0/0 made/c/0/");
        changed.zarrfs("commit").unwrap();
        assert_has(&changed.shown(), &["made", "made/zarr.json"], &[]);
        assert!(changed.server.keys().contains("made/c/0/0"), "{more:?}");
        assert_has(&changed.shown_files(), &["made/made.npy"], &[]);
    }
}

/// Invariant of `a_commit_to_a_bucket_stores_exactly_the_changes`.
///
/// The chunks of a removed array could not be found, so they would stay and become chunks of the next array with its
/// name.
#[test]
fn nodes_of_the_store_cannot_be_removed_or_renamed() {
    for (root, more) in [
        (GROUP, &[][..]),
        (&consolidated(), &[]),
        (GROUP, &["--write-through"]),
    ] {
        let Some(changed) = Changed::new(true, root, more) else {
            return;
        };
        changed.shell("ls a s g/h > /dev/null");
        let before = keys(&changed);
        changed.shell("! rm -r a 2> ../why; grep -q 'not supported' ../why; ! mv s t 2> /dev/null");
        let dir = &changed.fixture.dir;
        let renamed = |from: &str, to: &str| rustix::fs::rename(dir.join(from), dir.join(to));
        for (from, to) in [
            ("s", "t"),
            ("g", "k"),
            ("s/c", "g/c"),
            ("s/zarr.json", "s/x"),
        ] {
            assert_eq!(renamed(from, to), Err(Errno::OPNOTSUPP), "{from}");
        }
        for folder in ["s/c", "s/c/0"] {
            let removed = rustix::fs::rmdir(dir.join(folder));
            assert_eq!(removed, Err(Errno::OPNOTSUPP), "{folder}");
        }
        changed.shell("mkdir empty");
        assert_eq!(renamed("empty", "s/c"), Err(Errno::OPNOTSUPP));
        changed.shell("rmdir empty; cp s/zarr.json s/.new; mv s/.new s/zarr.json");
        changed.zarrfs("commit").unwrap();
        assert_eq!(keys(&changed), before, "{more:?}");
        changed.shell("cat a/c/0/0 s/c/1/0 > /dev/null");
        assert_has(&changed.shown(), &NODES, &["t", "k"]);
    }
}

/// Invariant of `a_commit_to_a_bucket_stores_exactly_the_changes`.
#[test]
fn uncommitted_nodes_can_be_removed_and_renamed() {
    let Some(changed) = Changed::new(true, GROUP, &[]) else {
        return;
    };
    let before = keys(&changed);
    changed
        .shell("mkdir -p x/c/0; cp a/zarr.json x; cp a/c/0/0 x/c/0; mv x y; ls y/c/0/0; rm -r y");
    changed.zarrfs("commit").unwrap();
    assert_eq!(keys(&changed), before);
}

/// Invariant of `new_files_over_a_web_server_are_listed_and_copied`.
#[test]
fn new_names_stay_listed_during_their_commit() {
    let Some(changed) = Changed::new(true, GROUP, &[]) else {
        return;
    };
    make(&changed);
    let (expected, server) = (changed.shown(), &changed.server);
    server.holds.store(true, Ordering::SeqCst);
    thread::scope(|scope| {
        let commit = scope.spawn(|| changed.zarrfs("commit"));
        assert!(soon(|| server.held.load(Ordering::SeqCst)));
        assert_eq!(changed.shown(), expected);
        changed.shell("echo z > new/late; rm README");
        server.holds.store(false, Ordering::SeqCst);
        commit.join().unwrap().unwrap();
    });
    assert_has(&changed.shown(), &["new/late"], &["README"]);
    changed.shell("cat a/extra > /dev/null");
}
