//! What a table of inodes does, without a view.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::*;
use crate::error::Kind;
use crate::store::tree::Posix;
use crate::view::ChildName;

/// Returns what is found behind a name.
fn attr(kind: EntryKind, posix: Option<Posix>, content: Option<u64>) -> Attr {
    Attr {
        kind,
        size: 0,
        is_exact: true,
        piece: 0,
        stored: 0,
        modified: SystemTime::now(),
        fresh: Duration::ZERO,
        is_read_only: false,
        posix,
        content,
    }
}

fn directory() -> Attr {
    attr(EntryKind::Directory, None, None)
}

/// Returns a file of a content.
fn file(content: u64) -> Attr {
    attr(EntryKind::File, None, Some(content))
}

/// Returns a file with several names, or one.
fn linked(identity: u64, links: u32) -> Attr {
    let posix = Posix {
        mode: 0o644,
        uid: 0,
        gid: 0,
        links,
        accessed: UNIX_EPOCH,
        changed: UNIX_EPOCH,
        identity,
    };
    attr(EntryKind::File, Some(posix), Some(identity))
}

/// Opens an inode; it must be possible.
fn open(inodes: &Inodes, ino: Ino, fh: u64, content: u64) {
    assert_eq!(inodes.bind(ino, Fh(fh), Some(content)), Binding::Added);
}

fn child(name: &[u8]) -> ChildName<'_> {
    name.into()
}

#[test]
fn listings_and_lookups_agree() {
    let inodes = Inodes::new(true);
    for name in [&b"a"[..], b"0.1", b"zarr.json", b"\xff"] {
        let listed = inodes.peek(Ino::ROOT, name, EntryKind::File);
        assert_eq!(inodes.look_up(Ino::ROOT, &child(name), &file(1)), listed);
    }
}

#[test]
fn a_million_chunks_need_no_entry() {
    let inodes = Inodes::new(true);
    let directory = inodes.look_up(Ino::ROOT, &child(b"array"), &directory());
    for name in ["999999", "0.1023.1023", "c.7", "c0", "12.npy", "1.2.3.raw"] {
        let ino = inodes.look_up(directory, &child(name.as_bytes()), &file(1));
        assert_eq!(
            inodes.path(ino).unwrap(),
            Key::new(format!("array/{name}")).unwrap()
        );
    }
    assert_eq!(inodes.len(), 2);
}

#[test]
fn other_spellings_of_a_number_are_other_names() {
    let inodes = Inodes::new(true);
    let numbers: Vec<Ino> = [
        "01",
        "1",
        "1.",
        ".1",
        "1..2",
        "c",
        "99999999999999",
        "1.npyx",
    ]
    .iter()
    .map(|name| inodes.look_up(Ino::ROOT, &child(name.as_bytes()), &file(1)))
    .collect();
    for (place, ino) in numbers.iter().enumerate() {
        assert!(!numbers[..place].contains(ino));
    }
    assert_eq!(inodes.path(numbers[0]).unwrap().as_bytes(), b"01");
}

#[test]
fn directories_named_by_numbers_lead_upwards() {
    let inodes = Inodes::new(true);
    let outer = inodes.look_up(Ino::ROOT, &child(b"0"), &directory());
    let inner = inodes.look_up(outer, &child(b"c.1"), &directory());
    let file = inodes.look_up(inner, &child(b"2"), &file(1));
    assert_eq!(inodes.path(file).unwrap().as_bytes(), b"0/c.1/2");
    assert_eq!(inodes.peek(outer, b"c.1", EntryKind::Directory), inner);
}

#[test]
fn renamed_folders_take_what_is_in_them_along() {
    let inodes = Inodes::new(false);
    let folder = inodes.look_up(Ino::ROOT, &child(b"a"), &directory());
    let file = inodes.look_up(folder, &child(b"0.1"), &file(1));
    let other = inodes.look_up(Ino::ROOT, &child(b"b"), &directory());
    inodes.rename((Ino::ROOT, b"a"), (Ino::ROOT, b"b"), false);
    assert_eq!(inodes.path(file).unwrap().as_bytes(), b"b/0.1");
    assert_eq!(inodes.path(other).unwrap_err().kind(), Kind::Changed);
    let third = inodes.look_up(Ino::ROOT, &child(b"c"), &directory());
    inodes.rename((Ino::ROOT, b"b"), (Ino::ROOT, b"c"), true);
    assert_eq!(inodes.path(file).unwrap().as_bytes(), b"c/0.1");
    assert_eq!(inodes.path(third).unwrap().as_bytes(), b"b");
    for (ino, count) in [(other, 1), (file, 1), (folder, 1), (third, 1)] {
        inodes.forget(ino, count);
    }
    assert_eq!(inodes.len(), 1);
}

#[test]
fn names_of_one_file_have_one_number() {
    let inodes = Inodes::new(false);
    let first = inodes.look_up(Ino::ROOT, &child(b"a"), &linked(7, 2));
    assert_eq!(
        inodes.look_up(Ino::ROOT, &child(b"b"), &linked(7, 2)),
        first
    );
    inodes.unlink(Ino::ROOT, b"a");
    assert_eq!(inodes.path(first).unwrap().as_bytes(), b"b");
    inodes.unlink(Ino::ROOT, b"b");
    assert_eq!(inodes.path(first).unwrap_err().kind(), Kind::Changed);
    assert_ne!(inodes.look_up(Ino::ROOT, &child(b"a"), &file(1)), first);
    inodes.forget(first, 2);
    assert_eq!(inodes.len(), 2);
}

#[test]
fn names_that_are_linked_no_more_part() {
    let file = |inodes: &Inodes, name: &[u8], identity: Option<u64>| {
        let attr = identity.map_or(file(1), |identity| linked(identity, 1));
        inodes.look_up(Ino::ROOT, &child(name), &attr)
    };
    let path = |inodes: &Inodes, ino| inodes.path(ino).unwrap().as_bytes().to_vec();
    let both_names = || {
        let inodes = Inodes::new(false);
        let both = inodes.look_up(Ino::ROOT, &child(b"a"), &linked(7, 2));
        assert_eq!(inodes.look_up(Ino::ROOT, &child(b"b"), &linked(7, 2)), both);
        (inodes, both)
    };
    // Both are files of the store now.
    let (inodes, _) = both_names();
    let (first, second) = (file(&inodes, b"a", None), file(&inodes, b"b", None));
    assert_ne!(first, second);
    assert_eq!(
        (path(&inodes, first), path(&inodes, second)),
        (b"a".to_vec(), b"b".to_vec())
    );
    // One is another file, and the other one what it was.
    let (inodes, both) = both_names();
    assert_ne!(file(&inodes, b"a", Some(8)), both);
    assert_eq!(file(&inodes, b"b", Some(7)), both);
    assert_eq!(path(&inodes, both), b"b");
    // One is gone without a notice.
    let (inodes, both) = both_names();
    assert_eq!(file(&inodes, b"b", Some(7)), both);
    assert_eq!(path(&inodes, both), b"b");
    // One is linked to another file.
    let (inodes, both) = both_names();
    assert_ne!(inodes.look_up(Ino::ROOT, &child(b"a"), &linked(9, 2)), both);
    assert_eq!(inodes.look_up(Ino::ROOT, &child(b"b"), &linked(7, 2)), both);
}

#[test]
fn forgotten_entries_go_with_their_parents() {
    let inodes = Inodes::new(true);
    let outer = inodes.look_up(Ino::ROOT, &child(b"a"), &directory());
    let inner = inodes.look_up(outer, &child(b"b"), &file(1));
    inodes.forget(outer, 1);
    assert_eq!(inodes.path(inner).unwrap().as_bytes(), b"a/b");
    inodes.forget(inner, 1);
    assert_eq!(inodes.len(), 1);
    assert!(inodes.path(inner).is_err());
}

#[test]
fn a_name_with_another_content_gets_another_inode() {
    for (computes, name) in [
        (true, "0.1"),
        (true, "note"),
        (false, "0.1"),
        (false, "note"),
    ] {
        let inodes = Inodes::new(computes);
        let name = child(name.as_bytes());
        let old = inodes.look_up(Ino::ROOT, &name, &file(2));
        open(&inodes, old, 1, 2);
        assert_eq!(inodes.look_up_same(Ino::ROOT, &name, &file(2)), Some(old));
        assert_eq!(inodes.look_up_same(Ino::ROOT, &name, &file(3)), None);
        let new = inodes.look_up(Ino::ROOT, &name, &file(3));
        assert_ne!(new, old);
        assert_eq!(inodes.peek(Ino::ROOT, name.bytes, EntryKind::File), new);
        assert_eq!(inodes.path(old).unwrap_err().kind(), Kind::Changed);
        for ino in [old, new] {
            assert_eq!(inodes.last_path(ino).unwrap().as_bytes(), name.bytes);
        }
        assert!(!inodes.shows(old, &file(3)) && inodes.shows(new, &file(3)));
        // The first content comes back: it has its inode.
        assert_eq!(inodes.look_up(Ino::ROOT, &name, &file(2)), old);
        inodes.release(old, Fh(1));
        // What is not open is not given another content either.
        assert_ne!(inodes.look_up(Ino::ROOT, &name, &file(4)), old);
        for ino in [old, new] {
            inodes.forget(ino, 9);
        }
        let last = inodes.look_up(Ino::ROOT, &name, &file(4));
        inodes.forget(last, 9);
        assert_eq!(inodes.len(), 1);
        assert_eq!(inodes.look_up(Ino::ROOT, &name, &file(5)), old);
    }
}

#[test]
fn an_inode_has_handles_of_one_content() {
    let inodes = Inodes::new(false);
    let name = child(b"a");
    let ino = inodes.look_up(Ino::ROOT, &name, &file(1));
    assert_eq!(inodes.bind(ino, Fh(1), Some(2)), Binding::Replaced);
    assert_eq!(inodes.bind(ino, Fh(1), Some(1)), Binding::Added);
    assert_eq!(inodes.bind(ino, Fh(2), Some(2)), Binding::Different);
    assert_eq!(inodes.bind_anyhow(ino, Fh(2), Some(2)), Binding::Different);
    assert_eq!(inodes.bind(ino, Fh(2), Some(1)), Binding::Added);
    assert_eq!(inodes.handles(ino).as_slice(), [Fh(1), Fh(2)]);
    inodes.release(ino, Fh(1));
    inodes.release(ino, Fh(2));
    assert_eq!(inodes.bind_anyhow(ino, Fh(3), Some(2)), Binding::Added);
    assert!(inodes.shows(ino, &file(2)) && !inodes.shows(ino, &file(1)));
    // The kernel asks for attributes of an inode that is not open, and gets those of the name.
    inodes.release(ino, Fh(3));
    assert!(inodes.shows(ino, &file(3)));
    assert_eq!(inodes.bind(ino, Fh(4), Some(3)), Binding::Replaced);
    assert_ne!(inodes.look_up(Ino::ROOT, &name, &file(3)), ino);
}

#[test]
fn a_content_that_is_open_has_one_inode_of_its_name() {
    let inodes = Inodes::new(false);
    let old = inodes.look_up(Ino::ROOT, &child(b"a"), &file(1));
    let new = inodes.look_up(Ino::ROOT, &child(b"new"), &file(2));
    inodes.rename((Ino::ROOT, b"new"), (Ino::ROOT, b"a"), false);
    // A reader that has looked the name up before opens what it has now.
    assert_eq!(inodes.bind(old, Fh(1), Some(2)), Binding::Replaced);
    assert_eq!(inodes.bind_anyhow(old, Fh(1), Some(2)), Binding::Added);
    assert_eq!(inodes.bind(new, Fh(2), Some(2)), Binding::Elsewhere);
    assert_eq!(inodes.look_up(Ino::ROOT, &child(b"a"), &file(2)), old);
    assert_eq!(inodes.path(new).unwrap_err().kind(), Kind::Changed);
}

#[test]
fn b10_a_name_takes_two_hundred_bytes_and_gives_them_back() {
    const NAMES: u64 = 1_000_000;
    let inodes = Inodes::new(true);
    let name = |number: u64| format!("tas_Amon_model_{number:07}.nc");
    let mut held = Vec::new();
    for number in 0..NAMES {
        let name = name(number);
        held.push(inodes.look_up(Ino::ROOT, &child(name.as_bytes()), &file(number)));
        // Tables have most room to spare when they have just grown, beyond seven eighths of a power of two.
        if [18, 20]
            .map(|power| (7 << power >> 3) + 1)
            .contains(&number)
        {
            let bytes = inodes.lock().entries.bytes() as u64;
            assert!(bytes <= 200 * number, "{bytes} bytes for {number} names");
        }
    }
    assert!(inodes.lock().entries.bytes() as u64 <= 200 * NAMES);
    for ino in held {
        inodes.forget(ino, 1);
    }
    let left = inodes.lock().entries.bytes();
    assert!(left < 64 << 10, "{left} bytes");
}
