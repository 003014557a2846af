//! Steps of the random tests: operations on a file tree, generated and shrunk.
//!
//! There are few names, so that operations often affect the same file. An operation that is impossible is tried too,
//! and must be refused as on a plain directory.

use proptest::prelude::*;

/// A path of one to three names.
pub(crate) type Path = String;

/// Path and length of a file that the store has at the start.
pub(crate) type Held = (Path, usize);

/// Maximum number of open files.
pub(crate) const SLOTS: usize = 4;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    Create(Path, usize),
    Open(Path, usize, bool),
    Write(usize, u64, usize, u8),
    Append(usize, usize, u8),
    Resize(usize, u64),
    ResizePath(Path, u64),
    Flush(usize),
    Sync(usize),
    Close(usize),
    Unlink(Path),
    MakeFolder(Path),
    RemoveFolder(Path),
    Rename(Path, Path),
    RenameNew(Path, Path),
    Link(Path, Path),
    Symlink(Path, Path),
    Chmod(Path, u32),
    /// Puts a whole object without an open file, as edits of metadata do.
    Put(Path, usize, u8),
    Erase(Path),
    /// Closes the overlay and opens it again.
    Remount,
    /// Commits all changes. If the value is true, all files are closed before.
    Commit(bool),
    Discard,
    DiscardPath(Path),
}

fn path() -> impl Strategy<Value = Path> {
    let name = prop::sample::select(vec!["a", "b", "c"]);
    let names = prop::collection::vec(name, 1..=3);
    names.prop_map(|names| names.join("/"))
}

fn slot() -> impl Strategy<Value = usize> {
    0..SLOTS
}

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 0u64..40, 1 => 4000u64..9000]
}

fn files() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (path(), slot()).prop_map(|(path, slot)| Step::Create(path, slot)),
        4 => (path(), slot(), any::<bool>()).prop_map(|(path, slot, empty)| Step::Open(path, slot, empty)),
        6 => (slot(), size(), 1usize..30, any::<u8>())
            .prop_map(|(slot, at, length, byte)| Step::Write(slot, at, length, byte)),
        2 => (slot(), 1usize..30, any::<u8>())
            .prop_map(|(slot, length, byte)| Step::Append(slot, length, byte)),
        1 => (slot(), size()).prop_map(|(slot, size)| Step::Resize(slot, size)),
        1 => (path(), size()).prop_map(|(path, size)| Step::ResizePath(path, size)),
        1 => slot().prop_map(Step::Flush),
        1 => slot().prop_map(Step::Sync),
        2 => slot().prop_map(Step::Close),
    ]
}

fn names() -> impl Strategy<Value = Step> {
    let two = || (path(), path());
    prop_oneof![
        3 => path().prop_map(Step::Unlink),
        3 => path().prop_map(Step::MakeFolder),
        2 => path().prop_map(Step::RemoveFolder),
        8 => two().prop_map(|(from, to)| Step::Rename(from, to)),
        1 => two().prop_map(|(from, to)| Step::RenameNew(from, to)),
        1 => two().prop_map(|(from, to)| Step::Link(from, to)),
        1 => two().prop_map(|(at, target)| Step::Symlink(at, target)),
        1 => (path(), 0u32..0o1000).prop_map(|(path, mode)| Step::Chmod(path, mode | 0o600)),
    ]
}

fn stores() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (path(), 0usize..50, any::<u8>())
            .prop_map(|(path, length, byte)| Step::Put(path, length, byte)),
        1 => path().prop_map(Step::Erase),
    ]
}

fn turns() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Remount),
        3 => any::<bool>().prop_map(Step::Commit),
        1 => Just(Step::Discard),
        1 => path().prop_map(Step::DiscardPath),
    ]
}

/// Generates operations that a plain directory supports too.
pub(crate) fn of_programs() -> impl Strategy<Value = Step> {
    prop_oneof![files(), names()]
}

/// Generates all kinds of operations.
pub(crate) fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![20 => files(), 20 => names(), 3 => stores(), 2 => turns()]
}

/// Generates the files of a store at the start, none of which is below another one.
pub(crate) fn held() -> impl Strategy<Value = Vec<Held>> {
    let some = prop::collection::btree_map(path(), 0usize..5000, 0..16);
    some.prop_map(|some| {
        let mut kept: Vec<Held> = Vec::new();
        for (path, size) in some {
            let is_below = |of: &Path| path.starts_with(&format!("{of}/"));
            if !kept.iter().any(|(of, _)| is_below(of)) {
                kept.push((path, size));
            }
        }
        kept
    })
}

pub(crate) fn first_bytes(path: &str, size: usize) -> Vec<u8> {
    let letters = path.bytes().chain([b'\n']).cycle();
    letters.take(size).collect()
}
