//! Attributes, links and folders that no store can hold, during repeated commits.
//!
//! Each commit freezes a layer of changes and drops it at the end. During all this, attributes that programs set must
//! be shown at once, and links and folders must exist.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use zarrfs_overlay::commit::CommitConfig;
use zarrfs_store::tree::{AttrChange, Setting};
use zarrfs_store::{Key, Store, Tree};

use crate::overlay::fixture::{Fixture, Lower, MAKER, key};
use zarrfs_store::request_context::UNLIMITED;

const TURNS: u32 = 20_000;

/// Runs `work`, which uses the file `x`, while another file is written and committed repeatedly.
fn beside_commits(work: impl Fn(&Fixture, u32)) {
    let fixture = Fixture::new(Lower::Memory, &[("x", b"old"), ("y", b"old")]);
    let (fixture, is_over) = (&fixture, &AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                fixture.write("y", b"new");
                let outcome = fixture
                    .overlay()
                    .commit(&UNLIMITED, CommitConfig::default(), &|_, _| {})
                    .and_then(zarrfs_overlay::commit::Outcome::or_failed);
                assert!(outcome.unwrap().conflicts.is_empty());
            }
        });
        let over = Over(is_over);
        (0..TURNS).for_each(|turn| work(fixture, turn));
        drop(over);
    });
}

/// Ends the commits of the other thread when it is dropped, also if `work` fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Invariant (overlay): Attributes are changed either before a commit freezes the file or after.
#[test]
fn a_mode_set_during_commits_is_kept() {
    beside_commits(|fixture, turn| {
        let mode = 0o600 + (turn % 8);
        let change = AttrChange {
            mode: Some(mode),
            ..AttrChange::default()
        };
        Tree::change(fixture.overlay(), &UNLIMITED, &key("x"), &change).unwrap();
        let stat = Tree::stat(fixture.overlay(), &UNLIMITED, &key("x"))
            .unwrap()
            .unwrap();
        assert_eq!(stat.posix.unwrap().mode & 0o7777, mode, "turn {turn}");
    });
}

/// Invariant of `a_mode_set_during_commits_is_kept`.
#[test]
fn an_extended_attribute_set_during_commits_is_kept() {
    beside_commits(|fixture, turn| {
        let (overlay, value) = (fixture.overlay(), turn.to_le_bytes());
        let set = overlay.set_attribute(&UNLIMITED, &key("x"), b"user.a", &value, Setting::Any);
        set.unwrap();
        let found = overlay.attribute(&UNLIMITED, &key("x"), b"user.a").unwrap();
        assert_eq!(found.unwrap(), value, "turn {turn}");
    });
}

/// Invariant of `a_change_that_a_commit_keeps_is_always_found`.
#[test]
fn links_and_folders_always_exist_during_commits() {
    beside_commits(|fixture, turn| {
        let overlay = fixture.overlay();
        if turn == 0 {
            overlay
                .make_link(&UNLIMITED, &key("link"), b"x", &MAKER)
                .unwrap();
            overlay
                .make_folder(&UNLIMITED, &key("folder"), &MAKER)
                .unwrap();
        }
        for name in ["link", "folder"] {
            let found = Tree::stat(overlay, &UNLIMITED, &key(name)).unwrap();
            assert!(found.is_some(), "{name} in turn {turn}");
        }
        assert_eq!(overlay.read_link(&UNLIMITED, &key("link")).unwrap(), b"x");
        let mut listing = overlay.list(&UNLIMITED, &Key::root()).unwrap();
        let mut names = BTreeSet::new();
        while let Some(name) = listing.next(&UNLIMITED).unwrap() {
            assert!(
                names.insert(name.name.clone()),
                "{name:?} twice in turn {turn}"
            );
        }
        assert_eq!(names.len(), 4, "turn {turn}: {names:?}");
    });
}
