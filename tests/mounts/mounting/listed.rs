//! Tests listings by programs and kernels that have small buffers for names.

use std::collections::BTreeSet;
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, RawDir, SeekFrom};

use crate::mounting::fixture::Fixture;

/// The size of a buffer in bytes that is much too short for all names.
const ROOM: usize = 4096;

/// Returns the names of an open directory after the cursor `from`, each with its own cursor.
fn names(dir: &OwnedFd, from: u64) -> Vec<(Vec<u8>, u64)> {
    rustix::fs::seek(dir, SeekFrom::Start(from)).unwrap();
    let mut room = [MaybeUninit::uninit(); ROOM];
    let (mut read, mut names) = (RawDir::new(dir, &mut room), Vec::new());
    while let Some(entry) = read.next() {
        let entry = entry.unwrap();
        names.push((
            entry.file_name().to_bytes().to_vec(),
            entry.next_entry_cookie(),
        ));
    }
    names
}

#[test]
fn small_reads_of_a_directory_list_each_name_once() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    for number in 0..600 {
        fs::write(fixture.store.join(format!("a/c/a name {number}")), "").unwrap();
    }
    fixture.mount(&[]);
    let path = fixture.dir.join("a/c");
    let dir = rustix::fs::open(path, OFlags::RDONLY, Mode::empty()).unwrap();
    let whole = names(&dir, 0);
    let different: BTreeSet<_> = whole.iter().map(|(name, _)| name).collect();
    assert_eq!((whole.len(), different.len()), (603, 603));
    for at in [10, 250, 500] {
        assert_eq!(names(&dir, whole[at].1), whole[at + 1..]);
    }
    assert_eq!(names(&dir, 0), whole);
}
