//! Commits in which each store call fails once: a retry gives the same store.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use zarr_format::error::{Kind, Result};
use zarrfs_overlay::commit::{CommitConfig, Outcome};
use zarrfs_store::Key;

use crate::overlay::fixture::{Fixture, Lower, key, shown};
use crate::overlay::hooked::{Hook, Hooked, Trap};
use crate::overlay::random::assert_same;
use crate::overlay::reference::{Shown, Tree};
use crate::overlay::steps::Step;
use zarrfs_store::request_context::{RequestContext, UNLIMITED};

const HELD: [(&str, &[u8]); 9] = [
    ("changed/zarr.json", b"{}"),
    ("changed/c/0", b"old"),
    ("changed/c/1", b"stays"),
    ("gone/zarr.json", b"{}"),
    ("gone/c/0", b"1"),
    ("moved/zarr.json", b"{}"),
    ("moved/c/0", b"2"),
    ("file", b"3"),
    ("folder/x", b"4"),
];

/// Metadata documents, and consolidated metadata with copies of them.
const COPIED: [(&str, &[u8]); 10] = [
    (
        "zarr.json",
        br#"{"node_type":"group","consolidated_metadata":{"metadata":{"a":{"n":1},"b":{"n":2},"x":{}}}}"#,
    ),
    ("a/zarr.json", br#"{"n":1}"#),
    ("b/zarr.json", br#"{"n":2}"#),
    (
        ".zmetadata",
        br#"{"zarr_consolidated_format":1,"metadata":{"c/.zattrs":{"n":3},"f/.zattrs":{"n":4}}}"#,
    ),
    ("c/.zgroup", b"{}"),
    ("c/.zattrs", br#"{"n":3}"#),
    ("c/.zmetadata", br#"{"metadata":{".zattrs":{"n":3},".zgroup":{}}}"#),
    ("f/.zarray", b"{}"),
    ("f/.zattrs", br#"{"n":4}"#),
    ("f/0", b"chunk"),
];

/// Makes a fixture whose store has a hook that makes one call fail.
type MakeFixture = fn(Lower, &Arc<Trap>) -> Fixture;

/// Returns a fixture whose store has the given objects, and a hook that makes one call fail.
fn trapped(lower: Lower, trap: &Arc<Trap>, held: &[(&str, &[u8])]) -> Fixture {
    let plain = Fixture::new(lower, held);
    let (folder, inner) = (crate::overlay::fixture::folder(), plain.lower.clone());
    let hook = trap.clone();
    let mut fixture = Fixture::over(folder, Arc::new(Hooked::new(inner, hook)));
    fixture.keep(plain);
    fixture
}

fn changed_documents(lower: Lower, trap: &Arc<Trap>) -> Fixture {
    let mut fixture = trapped(lower, trap, &COPIED);
    let path = |text: &str| text.to_string();
    fixture.write("a/zarr.json", br#"{"n":10}"#);
    for step in [
        Step::Unlink(path("b/zarr.json")),
        Step::RemoveFolder(path("b")),
        Step::Rename(path("c"), path("d")),
        Step::MakeFolder(path("e")),
    ] {
        fixture.take(&step).unwrap();
    }
    fixture.write("e/zarr.json", br#"{"n":50}"#);
    fixture.write("e/.zattrs", br#"{"n":51}"#);
    fixture.write("f/.zattrs", br#"{"n":40}"#);
    let shown = fixture.shown();
    for (name, copies) in [
        ("zarr.json", r#"{"a":{"n":10},"x":{},"e":{"n":50}}"#),
        (
            ".zmetadata",
            r#"{"f/.zattrs":{"n":40},"d/.zattrs":{"n":3},"d/.zgroup":{},"e/.zattrs":{"n":51}}"#,
        ),
        ("d/.zmetadata", r#"{".zattrs":{"n":3},".zgroup":{}}"#),
    ] {
        let Some(Shown::File(bytes)) = shown.get(name) else {
            panic!("{name} is missing");
        };
        let text = String::from_utf8(bytes.clone()).unwrap();
        assert!(text.contains(copies), "{name}: {text}");
    }
    fixture
}

fn changed(lower: Lower, trap: &Arc<Trap>) -> Fixture {
    let mut fixture = trapped(lower, trap, &HELD);
    let path = |text: &str| text.to_string();
    fixture.write("changed/c/0", b"new");
    fixture.write("changed/zarr.json", b"{\"new\": 1}");
    for step in [
        Step::MakeFolder(path("made")),
        Step::Unlink(path("gone/c/0")),
        Step::RemoveFolder(path("gone/c")),
        Step::Unlink(path("gone/zarr.json")),
        Step::RemoveFolder(path("gone")),
        Step::Rename(path("moved"), path("here")),
        Step::Unlink(path("file")),
        Step::MakeFolder(path("file")),
        Step::Unlink(path("folder/x")),
        Step::RemoveFolder(path("folder")),
    ] {
        fixture.take(&step).unwrap();
    }
    for name in ["made/zarr.json", "made/0", "file/y", "folder", "here/c/1"] {
        fixture.write(name, name.as_bytes());
    }
    fixture
}

fn commit(fixture: &Fixture) -> zarr_format::error::Result<Outcome> {
    fixture
        .overlay()
        .commit(&UNLIMITED, CommitConfig::default(), &|_, _| {})
        .and_then(Outcome::or_failed)
}

fn files(tree: Tree) -> Tree {
    let files = tree.into_iter();
    files.filter(|(_, shown)| *shown != Shown::Folder).collect()
}

/// For each call of a commit, makes this call fail and then commits again. Returns the number of calls of a commit.
fn each_call_fails(
    make: MakeFixture,
    lower: Lower,
    is_late: bool,
    again: &dyn Fn(&mut Fixture),
) -> i64 {
    for calls in 1.. {
        let trap = Arc::new(Trap::new(is_late));
        let mut fixture = make(lower, &trap);
        let wanted = fixture.shown();
        trap.set(calls);
        let first = commit(&fixture);
        let has_sprung = trap.has_sprung();
        trap.set(i64::MAX);
        assert_eq!(first.is_err(), has_sprung, "call {calls}: {first:?}");
        assert_same(&fixture.shown(), &wanted);
        again(&mut fixture);
        assert_same(&fixture.shown(), &wanted);
        let second = commit(&fixture).unwrap();
        assert_eq!(second.conflicts, [], "call {calls}");
        assert_same(&fixture.shown(), &wanted);
        assert_same(&files(shown(&*fixture.lower, false)), &files(wanted));
        assert_eq!(fixture.overlay().changes(&UNLIMITED).unwrap().keys, []);
        if !has_sprung {
            return calls;
        }
    }
    0
}

#[test]
fn a_commit_with_a_failed_store_call_can_be_retried() {
    for lower in [Lower::Memory, Lower::Local] {
        assert!(each_call_fails(changed, lower, false, &|_| {}) > 50);
        each_call_fails(changed, lower, false, &|fixture| fixture.remount());
    }
}

#[test]
fn a_commit_with_a_lost_answer_can_be_retried() {
    for lower in [Lower::Memory, Lower::Local] {
        assert!(each_call_fails(changed, lower, true, &|_| {}) > 20);
        each_call_fails(changed, lower, true, &|fixture| fixture.remount());
    }
}

#[test]
fn a_failed_commit_of_consolidated_documents_can_be_retried() {
    let make: MakeFixture = changed_documents;
    assert!(each_call_fails(make, Lower::Memory, false, &|_| {}) > 20);
    each_call_fails(make, Lower::Local, true, &|fixture| fixture.remount());
}

/// Checks the order of a commit: metadata is put after its chunks, and removed before them.
#[test]
fn chunks_are_put_before_metadata_and_removed_after_it() {
    use std::sync::Mutex;
    use zarrfs_store::Key;

    #[derive(Default)]
    struct Order(Mutex<Vec<String>>);
    impl crate::overlay::hooked::Hook for Order {
        fn before(
            &self,
            _context: &RequestContext,
            call: &str,
            key: &Key,
        ) -> zarr_format::error::Result<()> {
            if ["put", "erase"].contains(&call) {
                self.0.lock().unwrap().push(format!("{call} {key}"));
            }
            Ok(())
        }
    }
    let plain = Fixture::new(Lower::Memory, &HELD);
    let (hook, inner) = (Arc::new(Order::default()), plain.lower.clone());
    let lower = Hooked::new(inner, hook.clone());
    let mut fixture = Fixture::over(crate::overlay::fixture::folder(), Arc::new(lower));
    let path = |text: &str| text.to_string();
    fixture
        .take(&Step::Rename(path("gone"), path("made")))
        .unwrap();
    fixture.write("made/c/5", b"5");
    fixture.write("zarr.json", b"{}");
    commit(&fixture).unwrap();
    let order = hook.0.lock().unwrap().clone();
    let place = |text: &str| order.iter().position(|found| found == text).unwrap();
    for (before, after) in [
        ("put made/c/0", "put made/zarr.json"),
        ("put made/c/5", "put made/zarr.json"),
        ("put made/zarr.json", "put zarr.json"),
        ("put zarr.json", "erase gone/zarr.json"),
        ("erase gone/zarr.json", "erase gone/c/0"),
    ] {
        assert!(place(before) < place(after), "{order:?}");
    }
}

/// A hook that waits when a key is about to be put, long enough for a discard to run if nothing blocks it.
struct Slow {
    is_putting: Barrier,
    is_discarded: AtomicBool,
    was_between: AtomicBool,
}

impl Hook for Slow {
    fn before(&self, _context: &RequestContext, call: &str, at: &Key) -> Result<()> {
        if call == "put" && *at == key("file") {
            self.is_putting.wait();
            std::thread::sleep(Duration::from_millis(200));
            self.was_between
                .store(self.is_discarded.load(SeqCst), SeqCst);
        }
        Ok(())
    }
}

#[test]
fn a_discard_waits_for_a_commit() {
    let plain = Fixture::new(Lower::Memory, &HELD);
    let slow = Arc::new(Slow {
        is_putting: Barrier::new(2),
        is_discarded: AtomicBool::new(false),
        was_between: AtomicBool::new(false),
    });
    let hooked = Hooked::new(plain.lower.clone(), slow.clone());
    let fixture = Fixture::over(crate::overlay::fixture::folder(), Arc::new(hooked));
    fixture.write("file", b"new");
    std::thread::scope(|scope| {
        let committed = scope.spawn(|| commit(&fixture).unwrap().put);
        slow.is_putting.wait();
        let discarded = fixture.overlay().discard(&UNLIMITED, &Key::root());
        slow.is_discarded.store(true, SeqCst);
        assert_eq!(discarded.unwrap_err().kind(), Kind::NotFound);
        assert_eq!(committed.join().unwrap(), 1);
    });
    assert!(!slow.was_between.load(SeqCst));
    let found = plain.lower.get(&UNLIMITED, &key("file"), 100).unwrap();
    assert_eq!(found.unwrap().bytes, b"new");
}
