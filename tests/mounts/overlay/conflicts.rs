//! Another program writes to the store between a change and its commit.
//!
//! The commit must report the conflict and keep the content of the other program.

use std::sync::{Arc, Mutex};

use zarr_format::error::{Kind, Result};
use zarrfs_overlay::commit::{CommitConfig, Outcome};
use zarrfs_store::tree::OpenMode;
use zarrfs_store::{Condition, Key, PutBody, Store};

use crate::overlay::fixture::{Fixture, Lower, folder, key, shown};
use crate::overlay::hooked::{Hook, Hooked, Trap};
use crate::overlay::random::assert_same;
use crate::overlay::reference::{Shown, Tree};
use crate::overlay::steps::Step;
use zarrfs_store::request_context::{RequestContext, UNLIMITED};

const KINDS: [Lower; 2] = [Lower::Memory, Lower::Local];

const HELD: [(&str, &[u8]); 5] = [
    ("a/0", b"zero"),
    ("a/1", b"one"),
    ("b/0", b"bzero"),
    ("b/1", b"bone"),
    ("z", b"zet"),
];

fn path(text: &str) -> String {
    text.to_string()
}

fn put(store: &dyn Store, at: &str, bytes: &[u8]) {
    let body = PutBody::Bytes(bytes);
    store
        .put(&UNLIMITED, &key(at), body, &Condition::Any)
        .unwrap();
}

fn erase(store: &dyn Store, at: &str) {
    store.erase(&UNLIMITED, &key(at), &Condition::Any).unwrap();
}

fn commit(fixture: &Fixture, force: bool) -> Result<Outcome> {
    let config = CommitConfig {
        force,
        ..CommitConfig::default()
    };
    fixture
        .overlay()
        .commit(&UNLIMITED, config, &|_, _| {})
        .and_then(Outcome::or_failed)
}

fn conflicts(outcome: &Outcome) -> Vec<String> {
    let conflicts = outcome.conflicts.iter();
    conflicts.map(|(key, _)| key.to_string()).collect()
}

fn files(tree: Tree) -> Tree {
    let files = tree.into_iter();
    files.filter(|(_, shown)| *shown != Shown::Folder).collect()
}

/// Makes the changes `ours` on the overlay, then `theirs` in the store. A commit must report the keys `expected` and
/// leave the store unchanged. A forced commit must make the store equal to the mount.
fn clash(ours: &[Step], theirs: &dyn Fn(&dyn Store), expected: &[&str]) {
    for kind in KINDS {
        let mut fixture = Fixture::new(kind, &HELD);
        for step in ours {
            fixture.take(step).unwrap();
        }
        fixture.write("z", b"ours too");
        fixture.close_files();
        theirs(&*fixture.lower);
        let wanted = fixture.shown();
        let before = shown(&*fixture.lower, false);
        for dry_run in [true, false] {
            let force = false;
            let config = CommitConfig { dry_run, force };
            let outcome = fixture
                .overlay()
                .commit(&UNLIMITED, config, &|_, _| {})
                .and_then(Outcome::or_failed)
                .unwrap();
            assert_eq!(conflicts(&outcome), expected, "{kind:?}, {ours:?}");
            if dry_run || !expected.is_empty() {
                assert_same(&shown(&*fixture.lower, false), &before);
            }
            assert_same(&fixture.shown(), &wanted);
        }
        fixture.remount();
        assert_eq!(conflicts(&commit(&fixture, false).unwrap()), expected);
        assert_eq!(conflicts(&commit(&fixture, true).unwrap()), [""; 0]);
        assert_same(&files(fixture.shown()), &files(wanted.clone()));
        assert_same(&files(shown(&*fixture.lower, false)), &files(wanted));
        assert_eq!(fixture.overlay().changes(&UNLIMITED).unwrap().keys, []);
    }
}

fn write(at: &str) -> [Step; 2] {
    [Step::Open(path(at), 0, true), Step::Write(0, 0, 3, b'o')]
}

fn create(at: &str) -> [Step; 2] {
    [Step::Create(path(at), 0), Step::Write(0, 0, 3, b'o')]
}

#[test]
fn a_key_changed_by_another_program_is_a_conflict() {
    let theirs = |store: &dyn Store| put(store, "a/0", b"theirs");
    clash(&write("a/0"), &theirs, &["a/0"]);
    clash(&[Step::Unlink(path("a/0"))], &theirs, &["a/0"]);
    clash(&[Step::Rename(path("a/1"), path("a/0"))], &theirs, &["a/0"]);
    let over = [Step::Unlink(path("a/0")), create("a/0")[0].clone()];
    clash(&over, &theirs, &["a/0"]);
}

#[test]
fn a_key_removed_by_another_program_is_a_conflict() {
    clash(&write("a/0"), &|store| erase(store, "a/0"), &["a/0"]);
}

#[test]
fn a_key_made_by_another_program_is_a_conflict() {
    let theirs = |store: &dyn Store| put(store, "a/2", b"theirs");
    clash(&create("a/2"), &theirs, &["a/2"]);
    clash(&[Step::Rename(path("b/0"), path("a/2"))], &theirs, &["a/2"]);
    clash(&[Step::Link(path("b/0"), path("a/2"))], &theirs, &["a/2"]);
}

#[test]
fn a_key_made_or_changed_in_a_removed_folder_is_a_conflict() {
    let removed = [
        Step::Unlink(path("a/0")),
        Step::Unlink(path("a/1")),
        Step::RemoveFolder(path("a")),
    ];
    let theirs = |store: &dyn Store| put(store, "a/new", b"theirs");
    clash(&removed, &theirs, &["a/new"]);
    let changed = |store: &dyn Store| put(store, "a/1", b"theirs");
    clash(&removed, &changed, &["a/1"]);
}

#[test]
fn a_key_changed_under_its_old_name_is_a_conflict() {
    let rename = Step::Rename(path("a"), path("new"));
    let theirs = |store: &dyn Store| put(store, "a/1", b"theirs");
    let [open, write] = write("new/1");
    clash(&[rename.clone(), open, write], &theirs, &["a/1"]);
    clash(
        &[rename.clone(), Step::Unlink(path("new/1"))],
        &theirs,
        &["a/1"],
    );
    let [open, write] = self::write("a/1");
    clash(&[open, write, rename], &theirs, &["a/1"]);
    let file = Step::Rename(path("a/1"), path("new"));
    let [open, write] = self::write("new");
    clash(&[file, open, write], &theirs, &["a/1"]);
}

/// If a folder is renamed on the mount and another program changes objects in it, the changes are visible under the new
/// name.
#[test]
fn writes_of_others_to_a_renamed_folder_are_renamed_too() {
    for kind in KINDS {
        let mut fixture = Fixture::new(kind, &HELD);
        fixture.take(&Step::Rename(path("a"), path("new"))).unwrap();
        put(&*fixture.lower, "a/1", b"theirs");
        put(&*fixture.lower, "a/2", b"theirs too");
        let wanted = files(fixture.shown());
        assert_eq!(wanted["new/1"], Shown::File(b"theirs".to_vec()));
        assert_eq!(wanted["new/2"], Shown::File(b"theirs too".to_vec()));
        assert_eq!(conflicts(&commit(&fixture, false).unwrap()), [""; 0]);
        assert_same(&files(shown(&*fixture.lower, false)), &wanted);
    }
}

#[test]
fn the_same_change_by_another_program_is_no_conflict() {
    clash(&create("a/2"), &|store| put(store, "a/2", b"ooo"), &[]);
    clash(&write("a/0"), &|store| put(store, "a/0", b"ooo"), &[]);
    clash(
        &[Step::Unlink(path("a/0"))],
        &|store| erase(store, "a/0"),
        &[],
    );
    clash(
        &write("a/0"),
        &|store| put(store, "a/1", b"another key"),
        &[],
    );
}

/// A hook that plays another program: it writes to the store once, immediately before a certain call.
struct Meddler {
    store: Arc<dyn Store>,
    call: &'static str,
    key: &'static str,
    /// The bytes that the other program writes; `None` if it removes the key.
    bytes: Option<&'static [u8]>,
    is_done: Mutex<bool>,
}

impl Hook for Meddler {
    fn before(&self, _context: &RequestContext, call: &str, at: &Key) -> Result<()> {
        let mut is_done = self.is_done.lock().unwrap();
        if !*is_done && call == self.call && *at == key(self.key) {
            *is_done = true;
            match self.bytes {
                Some(bytes) => put(&*self.store, self.key, bytes),
                None => erase(&*self.store, self.key),
            }
        }
        Ok(())
    }
}

/// Another program changes a key after the commit has compared it, and before the commit puts it. This commit and the
/// next one must report a conflict.
fn race(ours: &[Step], call: &'static str, key: &'static str, bytes: Option<&'static [u8]>) {
    for kind in KINDS {
        let plain = Fixture::new(kind, &HELD);
        let meddler = Meddler {
            store: plain.lower.clone(),
            call,
            key,
            bytes,
            is_done: Mutex::new(false),
        };
        let meddler = Arc::new(meddler);
        let (inner, hook) = (plain.lower.clone(), meddler.clone());
        let mut fixture = Fixture::over(
            crate::overlay::fixture::folder(),
            Arc::new(Hooked::new(inner, hook)),
        );
        for step in ours {
            fixture.take(step).unwrap();
        }
        fixture.flush_all();
        fixture.open = Default::default();
        let wanted = files(fixture.shown());
        let outcome = commit(&fixture, false).unwrap();
        assert!(*meddler.is_done.lock().unwrap(), "nobody has asked");
        assert_eq!(conflicts(&outcome), [key], "{kind:?}, {ours:?}");
        let held = plain.lower.get(&UNLIMITED, &self::key(key), 100).unwrap();
        assert_eq!(held.map(|held| held.bytes), bytes.map(<[u8]>::to_vec));
        assert_same(&files(fixture.shown()), &wanted);
        fixture.remount();
        assert_eq!(conflicts(&commit(&fixture, false).unwrap()), [key]);
        assert_same(&files(fixture.shown()), &wanted);
        assert_eq!(conflicts(&commit(&fixture, true).unwrap()), [""; 0]);
        assert_same(&files(shown(&*plain.lower, false)), &wanted);
    }
}

#[test]
fn a_change_between_the_check_and_the_put_is_a_conflict() {
    race(&write("a/0"), "put", "a/0", Some(b"theirs"));
    race(&write("a/0"), "put", "a/0", None);
    race(&create("a/2"), "put", "a/2", Some(b"theirs"));
    let rename = [Step::Rename(path("b"), path("a/b"))];
    race(&rename, "put", "a/b/0", Some(b"theirs"));
}

#[test]
fn a_change_between_the_check_and_the_removal_is_a_conflict() {
    race(
        &[Step::Unlink(path("a/0"))],
        "erase",
        "a/0",
        Some(b"theirs"),
    );
    let rename = [Step::Rename(path("a"), path("b/a"))];
    race(&rename, "erase", "a/1", Some(b"theirs"));
}

#[test]
fn a_commit_and_a_discard_without_changes_do_nothing() {
    let plain = Fixture::new(Lower::Memory, &HELD);
    let trap = Arc::new(Trap::new(false));
    let hooked = Hooked::new(plain.lower.clone(), trap.clone());
    let fixture = Fixture::over(folder(), Arc::new(hooked));
    // Make any request to the store fail, because none is necessary.
    trap.set(1);
    let nothing = commit(&fixture, false).unwrap();
    assert_eq!(
        (nothing.put, nothing.erased, conflicts(&nothing).len()),
        (0, 0, 0)
    );
    let nothing = fixture
        .overlay()
        .discard(&UNLIMITED, &key("a"))
        .unwrap_err();
    assert_eq!(nothing.kind(), Kind::NotFound);
    assert!(!trap.has_sprung(), "a request to the store");
}

/// A program reads an object from the upper folder, and a commit puts that object into the store. Then the program puts
/// an object that it has derived from what it read. The version that it read is not a version of the store, so the put
/// fails.
#[test]
fn a_version_of_the_upper_folder_does_not_match_the_store() {
    for kind in KINDS {
        let fixture = Fixture::new(kind, &HELD);
        let overlay: &dyn Store = fixture.overlay();
        put(overlay, "a/0", b"ours");
        let read = overlay.version(&UNLIMITED, &key("a/0")).unwrap().unwrap();
        assert_eq!(conflicts(&commit(&fixture, false).unwrap()), [""; 0]);
        let again = |version| {
            let condition = Condition::Version(version);
            overlay.put(
                &UNLIMITED,
                &key("a/0"),
                PutBody::Bytes(b"again"),
                &condition,
            )
        };
        assert_eq!(again(read).unwrap_err().kind(), Kind::Changed);
        again(overlay.version(&UNLIMITED, &key("a/0")).unwrap().unwrap()).unwrap();
        assert_eq!(conflicts(&commit(&fixture, false).unwrap()), [""; 0]);
        let stored = fixture
            .lower
            .get(&UNLIMITED, &key("a/0"), 100)
            .unwrap()
            .unwrap();
        assert_eq!(stored.bytes, b"again");
    }
}

/// A file that stays open during its commit gets the version that the store has afterwards.
#[test]
fn a_file_that_stays_open_over_a_commit_has_the_version_of_the_store() {
    for kind in KINDS {
        let fixture = Fixture::new(kind, &HELD);
        put(fixture.overlay(), "a/0", b"ours");
        let _open =
            zarrfs_store::Tree::open(fixture.overlay(), &UNLIMITED, &key("a/0"), OpenMode::Read)
                .unwrap();
        assert_eq!(conflicts(&commit(&fixture, false).unwrap()), [""; 0]);
        let overlay: &dyn Store = fixture.overlay();
        let shown = overlay.version(&UNLIMITED, &key("a/0")).unwrap();
        assert_eq!(
            shown,
            fixture.lower.version(&UNLIMITED, &key("a/0")).unwrap()
        );
        let condition = Condition::unchanged(shown);
        overlay
            .put(
                &UNLIMITED,
                &key("a/0"),
                PutBody::Bytes(b"again"),
                &condition,
            )
            .unwrap();
        assert_eq!(conflicts(&commit(&fixture, false).unwrap()), [""; 0]);
    }
}

/// A commit that finds a conflict during its puts reports which changes are in the store and which are not. A discard
/// of the rest reports the same.
#[test]
fn a_commit_with_a_conflict_reports_the_stored_changes() {
    let plain = Fixture::new(Lower::Memory, &HELD);
    let meddler = Arc::new(Meddler {
        store: plain.lower.clone(),
        call: "put",
        key: "b/0",
        bytes: Some(b"theirs"),
        is_done: Mutex::new(false),
    });
    let hooked = Arc::new(Hooked::new(plain.lower.clone(), meddler));
    let mut fixture = Fixture::over(crate::overlay::fixture::folder(), hooked);
    for at in ["a/0", "a/1", "b/0"] {
        write(at)
            .iter()
            .for_each(|step| fixture.take(step).unwrap());
        fixture.flush_all();
        fixture.open = Default::default();
    }
    let outcome = commit(&fixture, false).unwrap();
    assert_eq!(conflicts(&outcome), ["b/0"]);
    assert_eq!((outcome.put, outcome.erased, outcome.left), (2, 0, 1));
    let again = commit(&fixture, false).unwrap();
    assert_eq!(
        (again.put, again.left, conflicts(&again)),
        (0, 1, vec!["b/0".to_string()])
    );
    let discarded = fixture.overlay().discard(&UNLIMITED, &Key::root()).unwrap();
    assert_eq!((discarded.dropped, discarded.stored), (1, 2));
    assert_eq!(
        plain
            .lower
            .get(&UNLIMITED, &key("b/0"), 100)
            .unwrap()
            .unwrap()
            .bytes,
        b"theirs"
    );
}
