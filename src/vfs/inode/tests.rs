//! Tests the inode table without a view.

use std::time::{Duration, SystemTime};

use super::*;
use zarr_format::error::Kind;
use zarrfs_store::EntryKind;

fn attr(kind: EntryKind, content: Option<u64>) -> Attr {
    Attr {
        kind,
        content,
        ..Attr::of_file(0, SystemTime::now(), Duration::ZERO)
    }
}

fn directory() -> Attr {
    attr(EntryKind::Directory, None)
}

fn file(content: u64) -> Attr {
    attr(EntryKind::File, Some(content))
}

fn open(inodes: &Inodes, ino: Ino, fh: u64, content: u64) {
    assert_eq!(inodes.bind(ino, Fh(fh), Some(content)), Binding::Added);
}

#[test]
fn listings_and_lookups_agree() {
    let inodes = Inodes::new();
    for name in [&b"a"[..], b"0.1", b"zarr.json", b"\xff"] {
        let listed = inodes.number_of(Ino::ROOT, name);
        assert_eq!(inodes.look_up(Ino::ROOT, name, &file(1)), listed);
    }
}

#[test]
fn paths_lead_through_directories_named_by_numbers() {
    let inodes = Inodes::new();
    let outer = inodes.look_up(Ino::ROOT, b"0", &directory());
    let inner = inodes.look_up(outer, b"c.1", &directory());
    let file = inodes.look_up(inner, b"2", &file(1));
    assert_eq!(inodes.path(file).unwrap().as_bytes(), b"0/c.1/2");
    assert_eq!(inodes.number_of(outer, b"c.1"), inner);
}

#[test]
fn children_of_a_renamed_folder_move_with_it() {
    let inodes = Inodes::new();
    let folder = inodes.look_up(Ino::ROOT, b"a", &directory());
    let file = inodes.look_up(folder, b"0.1", &file(1));
    let other = inodes.look_up(Ino::ROOT, b"b", &directory());
    inodes.rename(NameIn::new(Ino::ROOT, b"a"), NameIn::new(Ino::ROOT, b"b"));
    assert_eq!(inodes.path(file).unwrap().as_bytes(), b"b/0.1");
    assert_eq!(inodes.path(other).unwrap_err().kind(), Kind::Changed);
    for (ino, count) in [(other, 1), (file, 1), (folder, 1)] {
        inodes.forget(ino, count, || ());
    }
    assert_eq!(inodes.len(), 1);
}

#[test]
fn a_forgotten_parent_stays_until_its_children_are_forgotten() {
    let inodes = Inodes::new();
    let outer = inodes.look_up(Ino::ROOT, b"a", &directory());
    let inner = inodes.look_up(outer, b"b", &file(1));
    inodes.forget(outer, 1, || ());
    assert_eq!(inodes.path(inner).unwrap().as_bytes(), b"a/b");
    inodes.forget(inner, 1, || ());
    assert_eq!(inodes.len(), 1);
    assert!(inodes.path(inner).is_err());
}

#[test]
fn a_name_with_another_content_gets_another_inode() {
    for name in ["0.1", "note"] {
        let inodes = Inodes::new();
        let name = name.as_bytes();
        let old = inodes.look_up(Ino::ROOT, name, &file(2));
        open(&inodes, old, 1, 2);
        assert_eq!(inodes.look_up_same(Ino::ROOT, name, &file(2)), Some(old));
        assert_eq!(inodes.look_up_same(Ino::ROOT, name, &file(3)), None);
        let new = inodes.look_up(Ino::ROOT, name, &file(3));
        assert_ne!(new, old);
        assert_eq!(inodes.number_of(Ino::ROOT, name), new);
        assert_eq!(inodes.path(old).unwrap_err().kind(), Kind::Changed);
        for ino in [old, new] {
            assert_eq!(inodes.last_path(ino).unwrap().as_bytes(), name);
        }
        assert!(!inodes.can_show(old, &file(3)) && inodes.can_show(new, &file(3)));
        // The old file has the name again, so a lookup returns its old inode.
        assert_eq!(inodes.look_up(Ino::ROOT, name, &file(2)), old);
        inodes.release(old, Fh(1));
        // The inode is not open any more, and still does not get a different file.
        assert_ne!(inodes.look_up(Ino::ROOT, name, &file(4)), old);
        for ino in [old, new] {
            inodes.forget(ino, 9, || ());
        }
        let last = inodes.look_up(Ino::ROOT, name, &file(4));
        inodes.forget(last, 9, || ());
        assert_eq!(inodes.len(), 1);
        assert_eq!(inodes.look_up(Ino::ROOT, name, &file(5)), old);
    }
}

#[test]
fn an_inode_has_handles_of_one_content() {
    let inodes = Inodes::new();
    let name = b"a";
    let ino = inodes.look_up(Ino::ROOT, name, &file(1));
    assert_eq!(inodes.bind(ino, Fh(1), Some(2)), Binding::Replaced);
    assert_eq!(inodes.bind(ino, Fh(1), Some(1)), Binding::Added);
    assert_eq!(inodes.bind(ino, Fh(2), Some(2)), Binding::Different);
    assert_eq!(inodes.bind_mixed(ino, Fh(2), Some(2)), Binding::Different);
    assert_eq!(inodes.bind(ino, Fh(2), Some(1)), Binding::Added);
    assert_eq!(inodes.handles(ino).as_slice(), [Fh(1), Fh(2)]);
    inodes.release(ino, Fh(1));
    inodes.release(ino, Fh(2));
    assert_eq!(inodes.bind_mixed(ino, Fh(3), Some(2)), Binding::Added);
    assert!(inodes.can_show(ino, &file(2)) && !inodes.can_show(ino, &file(1)));
    // The kernel requests the attributes of a closed inode, and gets those of the file that has the inode's name.
    inodes.release(ino, Fh(3));
    assert!(inodes.can_show(ino, &file(3)));
    assert_eq!(inodes.bind(ino, Fh(4), Some(3)), Binding::Replaced);
    assert_ne!(inodes.look_up(Ino::ROOT, name, &file(3)), ino);
}

#[test]
fn an_open_content_has_one_inode_under_its_name() {
    let inodes = Inodes::new();
    let old = inodes.look_up(Ino::ROOT, b"a", &file(1));
    let new = inodes.look_up(Ino::ROOT, b"new", &file(2));
    inodes.rename(NameIn::new(Ino::ROOT, b"new"), NameIn::new(Ino::ROOT, b"a"));
    // A program that looked up the first file opens the inode after the replacement, and gets the second file.
    assert_eq!(inodes.bind(old, Fh(1), Some(2)), Binding::Replaced);
    assert_eq!(inodes.bind_mixed(old, Fh(1), Some(2)), Binding::Added);
    assert_eq!(inodes.bind(new, Fh(2), Some(2)), Binding::Elsewhere);
    assert_eq!(inodes.look_up(Ino::ROOT, b"a", &file(2)), old);
    assert_eq!(inodes.path(new).unwrap_err().kind(), Kind::Changed);
}

/// The kernel returns EIO for an inode if a reply has attributes of another file type.
#[test]
fn an_open_inode_never_shows_a_link_of_the_same_name() {
    let inodes = Inodes::new();
    let ino = inodes.create(Ino::ROOT, b"a", Some(1), Fh(1));
    inodes.unlink(Ino::ROOT, b"a");
    let link = attr(EntryKind::Link, None);
    assert!(!inodes.can_show(ino, &link));
    let new = inodes.look_up(Ino::ROOT, b"a", &link);
    assert_ne!(new, ino);
    // The name gets another file without an unlink through the mount.
    assert_ne!(inodes.look_up(Ino::ROOT, b"a", &file(2)), new);
}

/// Invariant (mount): Inode numbers have 31 bits and survive a remount.
#[test]
fn inode_numbers_have_31_bits_and_survive_a_remount() {
    let numbers = || {
        let inodes = Inodes::new();
        let folder = inodes.look_up(Ino::ROOT, b"array", &directory());
        let chunk = |number: u64| format!("{number}.0").into_bytes();
        (0..1000)
            .map(|number| inodes.look_up(folder, &chunk(number), &file(number)).0)
            .collect::<Vec<_>>()
    };
    let first = numbers();
    assert!(first.iter().all(|&ino| (2..1 << 31).contains(&ino)));
    assert_eq!(first, numbers());
}

/// Invariant of `inode_numbers_have_31_bits_and_survive_a_remount`.
#[test]
fn names_with_equal_hashes_get_different_inodes() {
    let inodes = Inodes::new();
    let mut numbers = std::collections::HashMap::new();
    let name = |number: u64| number.to_string().into_bytes();
    // Among some ten thousand names, two have the same 31-bit hash.
    let (first, second) = (0..)
        .find_map(|number| {
            let other = numbers.insert(inodes.number_of(Ino::ROOT, &name(number)), number);
            other.map(|other| (name(other), name(number)))
        })
        .unwrap();
    let ino = inodes.look_up(Ino::ROOT, &first, &file(1));
    let next = inodes.number_of(Ino::ROOT, &second);
    assert_eq!(next, Ino(ino.0 + 1));
    assert_eq!(inodes.look_up(Ino::ROOT, &second, &file(2)), next);
    for (ino, name) in [(ino, &first), (next, &second)] {
        assert_eq!(inodes.path(ino).unwrap().as_bytes(), name);
        assert_eq!(inodes.number_of(Ino::ROOT, name), ino);
    }
}

/// Invariant (mount): A name that the kernel knows takes at most 200 bytes.
#[test]
fn a_name_takes_at_most_200_bytes_and_frees_them() {
    let names = 1_000_000;
    let inodes = Inodes::new();
    let name = |number: u64| format!("tas_Amon_model_{number:07}.nc");
    let mut inos = Vec::new();
    for number in 0..names {
        let name = name(number);
        inos.push(inodes.look_up(Ino::ROOT, name.as_bytes(), &file(number)));
        // The hash tables waste most memory just after they have grown, above 7/8 of a power of two.
        if [18, 20]
            .map(|power| (7 << power >> 3) + 1)
            .contains(&number)
        {
            let bytes = inodes.lock().entries.bytes() as u64;
            assert!(bytes <= 200 * number, "{bytes} bytes for {number} names");
        }
    }
    assert!(inodes.lock().entries.bytes() as u64 <= 200 * names);
    for ino in inos {
        inodes.forget(ino, 1, || ());
    }
    let left = inodes.lock().entries.bytes();
    assert!(left < 64 << 10, "{left} bytes");
}

/// Of two overlapping replies, the kernel may ignore either. So the kernel certainly has a length only if every reply
/// had it.
#[test]
fn a_length_is_relied_on_only_if_the_kernel_got_no_other() {
    let inodes = Inodes::new();
    let ino = inodes.look_up(Ino::ROOT, b"a", &file(1));
    assert!(!inodes.keep_length(ino, 0));
    assert!(!inodes.record_length(ino, 5) && !inodes.record_length(ino, 5));
    assert!(!inodes.keep_length(ino, 6) && inodes.keep_length(ino, 5));
    assert!(!inodes.record_length(ino, 5));
    assert!(inodes.record_length(ino, 6), "an open relies on 5");
    assert!(!inodes.keep_length(ino, 6) && !inodes.record_length(ino, 5));
    assert!(!inodes.keep_length(ino, 5));
    let mut is_forgotten = false;
    inodes.forget(ino, 1, || is_forgotten = true);
    assert!(is_forgotten);
    inodes.look_up(Ino::ROOT, b"a", &file(1));
    assert!(!inodes.keep_length(ino, 5), "the kernel has forgotten it");
}
