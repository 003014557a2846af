//! Checks that a slow store delays only operations that need the store (fault A15).

use std::fs;
use std::thread;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use zarr_format::error::{Kind, Result};
use zarrfs_overlay::Overlay;
use zarrfs_overlay::commit::CommitConfig;
use zarrfs_store::tree::{AttrChange, Credentials, RenameMode, Tree};
use zarrfs_store::{Condition, PutBody, Store};

use crate::concurrency::fixture::{Fixture, LOWERS, Lower, files, fill, key, open_file};
use crate::concurrency::gate::Opening;
use zarrfs_store::request_context::UNLIMITED;

/// The content of the store at first; calls for keys under `slow` are held.
const HELD: [(&str, &str); 5] = [
    ("slow/a", "1"),
    ("slow/b", "2"),
    ("slow/d/x", "3"),
    ("slow/e/y", "4"),
    ("fast/z", "5"),
];

const MAKER: Credentials = Credentials {
    uid: 0,
    gid: 0,
    mode: 0o644,
};

/// An operation on the overlay that needs the store for a key under `slow`.
type Operation = fn(&Overlay) -> Result<()>;

const OPERATIONS: [(&str, Operation); 13] = [
    ("create", |overlay| {
        overlay
            .create(&UNLIMITED, &key("slow/new"), &MAKER)?
            .flush(&UNLIMITED)
    }),
    ("create in a folder of the store", |overlay| {
        overlay
            .create(&UNLIMITED, &key("slow/d/new"), &MAKER)?
            .flush(&UNLIMITED)
    }),
    ("attributes", |overlay| {
        let mode = AttrChange {
            mode: Some(0o600),
            ..AttrChange::default()
        };
        Tree::change(overlay, &UNLIMITED, &key("slow/a"), &mode)
    }),
    ("open for writing", |overlay| {
        let file = open_file(overlay, &key("slow/a"), false)?;
        file.write_at(&UNLIMITED, 0, b"x")?;
        file.flush(&UNLIMITED)
    }),
    ("unlink", |overlay| {
        overlay.unlink(&UNLIMITED, &key("slow/a"))
    }),
    ("rename of a file", |overlay| {
        overlay.rename(
            &UNLIMITED,
            &key("slow/a"),
            &key("slow/c"),
            RenameMode::Replace,
        )
    }),
    ("rename onto a file", |overlay| {
        overlay.rename(
            &UNLIMITED,
            &key("slow/a"),
            &key("slow/b"),
            RenameMode::Replace,
        )
    }),
    ("rename of a folder", |overlay| {
        overlay.rename(
            &UNLIMITED,
            &key("slow/d"),
            &key("slow/f"),
            RenameMode::Replace,
        )
    }),
    ("removal of a folder", |overlay| {
        // The removal may fail, because the folder is not empty.
        overlay.remove_folder(&UNLIMITED, &key("slow/d")).or(Ok(()))
    }),
    ("a folder", |overlay| {
        overlay.make_folder(&UNLIMITED, &key("slow/new"), &MAKER)
    }),
    ("put", |overlay| {
        let body = PutBody::Bytes(b"new");
        overlay
            .put(&UNLIMITED, &key("slow/a"), body, &Condition::Any)
            .map(|_| ())
    }),
    ("discard", |overlay| {
        match overlay.discard(&UNLIMITED, &key("slow")) {
            // The discard may find nothing, because a commit for which it has waited has stored the change.
            Err(error) if error.kind() == Kind::NotFound => Ok(()),
            discarded => discarded.map(|_| ()),
        }
    }),
    ("commit", |overlay| {
        overlay
            .commit(&UNLIMITED, CommitConfig::default(), &|_, _| {})
            .and_then(zarrfs_overlay::commit::Outcome::or_failed)
            .map(|_| ())
    }),
];

/// Starts an operation in another thread, and changes other files in the upper folder while it waits for the store.
fn work_beside(fixture: &Fixture, name: &str, operation: Operation) -> JoinHandle<Result<()>> {
    let overlay = fixture.overlay().clone();
    let work = thread::spawn(move || operation(&overlay));
    // The operation may end without a store call, or wait for a commit that makes the call.
    let end = Instant::now() + Duration::from_secs(1);
    let is_waiting = || work.is_finished() || Instant::now() > end;
    fixture.gate.wait_until(is_waiting);
    println!("{name} waits for the store");
    let open = fixture.open("fast/old");
    fixture.write("fast/new", "1");
    fixture.replace("fast/old", "2");
    fixture.rename("fast/new", "fast/newer");
    fixture.make_folder("fast/folder");
    fixture.unlink("fast/newer");
    let mode = AttrChange {
        mode: Some(0o640),
        ..AttrChange::default()
    };
    Tree::change(fixture.overlay(), &UNLIMITED, &key("fast/old"), &mode).unwrap();
    fill(&*open, "3");
    work
}

/// While one operation waits for the store, operations on other files in the upper folder must not wait.
#[test]
fn a_hanging_store_does_not_block_changes_in_the_upper_folder() {
    for (name, operation) in OPERATIONS {
        let fixture = Fixture::new(Lower::Memory, &HELD);
        fixture.write("fast/old", "before");
        // A change for the operations `commit` and `discard`.
        fixture.rename("slow/e", "slow/g");
        fixture.gate.close(|_, key| key.starts_with("slow"));
        let opening = Opening(fixture.gate.clone());
        let work = work_beside(&fixture, name, operation);
        opening.0.open();
        work.join().unwrap().unwrap();
        assert_eq!(fixture.shown()["fast/old"], "2", "{name}");
    }
}

/// Invariant (overlay): A commit that waits for the store blocks no change in the upper folder, and ends in time or
/// with its mount.
///
/// The operations run while the commit waits: the changes that it writes are frozen, below a layer of newer changes.
#[test]
fn a_hanging_commit_does_not_block_changes_in_the_upper_folder() {
    for (name, operation) in OPERATIONS {
        let mut fixture = Fixture::new(Lower::Memory, &HELD);
        fixture.write("fast/old", "before");
        fixture.rename("slow/e", "slow/g");
        let commit = fixture.commit_held_at("put", "fast/old");
        fixture.gate.close(|_, key| key.starts_with("slow"));
        let work = work_beside(&fixture, name, operation);
        let committed = commit.end().unwrap();
        assert_eq!(committed.conflicts, []);
        work.join().unwrap().unwrap();
        let shown = fixture.shown();
        assert_eq!(shown["fast/old"], "2", "{name}");
        fixture.commit();
        assert_eq!(fixture.stored(), shown, "{name}");
        fixture.remount();
        assert_eq!(fixture.shown(), shown, "{name}");
    }
}

/// Closes of sixteen different keys reach the store concurrently.
#[test]
fn closes_of_different_keys_are_written_through_concurrently() {
    const CLOSES: usize = 16;
    for lower in LOWERS {
        let fixture = Fixture::through(lower, &[]);
        fixture.gate.close(|call, _| call == "put");
        let opening = Opening(fixture.gate.clone());
        thread::scope(|scope| {
            for number in 0..CLOSES {
                let fixture = &fixture;
                scope.spawn(move || fixture.write(&format!("k{number}"), "content"));
            }
            fixture.gate.wait_for(CLOSES);
            opening.0.open();
        });
        assert_eq!(fixture.stored().len(), CLOSES);
    }
}

/// A slow write-through of a file must not delay changes to the attributes of its parent folders. An operation that
/// waits for the write-through, such as a rename of the folder or a commit, must not delay operations on other names.
#[test]
fn a_long_upload_does_not_delay_other_names() {
    for lower in LOWERS {
        let fixture = Fixture::through(lower, &[("d/old", "1"), ("d/e/x", "2")]);
        fixture
            .gate
            .close(|call, key| call == "put" && key == "d/large");
        let opening = Opening(fixture.gate.clone());
        thread::scope(|scope| {
            scope.spawn(|| fixture.write("d/large", "content"));
            fixture.gate.wait_for(1);
            let mode = AttrChange {
                mode: Some(0o750),
                ..AttrChange::default()
            };
            for folder in ["", "d"] {
                Tree::change(fixture.overlay(), &UNLIMITED, &key(folder), &mode).unwrap();
            }
            let rename = scope.spawn(|| fixture.rename("d", "f"));
            let commit = scope.spawn(|| fixture.commit());
            thread::sleep(Duration::from_millis(100));
            fixture.write("d/new", "3");
            fixture.replace("d/old", "4");
            fixture.write("other", "5");
            fixture.unlink("d/e/x");
            assert!(!rename.is_finished() && !commit.is_finished());
            opening.0.open();
        });
        let expected = [
            ("f/large", "content"),
            ("f/new", "3"),
            ("f/old", "4"),
            ("other", "5"),
        ];
        assert_eq!(fixture.stored(), files(&expected));
    }
}

/// Two closes of one key reach the store in order.
#[test]
fn closes_of_one_key_are_written_through_in_order() {
    let fixture = Fixture::through(Lower::Memory, &[]);
    let opening = Opening(fixture.gate.clone());
    fixture.gate.close(|call, _| call == "put");
    thread::scope(|scope| {
        scope.spawn(|| fixture.write("k", "first"));
        fixture.gate.wait_for(1);
        let second = scope.spawn(|| fixture.write("k", "second"));
        // The put of the second close may already be at the store, or the close may wait for the first one.
        for _ in 0..100 {
            if second.is_finished() || fixture.shown()["k"] == "second" {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        opening.0.open();
    });
    assert_eq!(fixture.stored(), files(&[("k", "second")]));
}

/// The journal is as long as the changes that it describes need, not as the number of operations.
#[test]
fn the_journal_of_a_mount_stays_short() {
    const WRITES: usize = 24_000;
    let fixture = Fixture::new(Lower::Memory, &[("k", "old")]);
    for number in 0..WRITES {
        fixture.replace("k", &number.to_string());
    }
    let journal = fixture.folder.path().join("upper/journal");
    let length = fs::metadata(journal).unwrap().len();
    // The journal describes one key; some of the earlier operations may still be in it.
    assert!(length < 3 << 19, "{length} bytes");
}
