//! Tests that inode numbers and directory cursors fit into 32 bits, for 32-bit programs.

use std::fs;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{RawDir, SeekFrom, seek};

use crate::mounting::fixture::Fixture;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Listed {
    name: String,
    ino: u64,
    cursor: u64,
}

/// Reads the entries after the present cursor of an open directory, at most `buffer` bytes at a time.
fn listed(dir: &File, buffer: usize) -> Vec<Listed> {
    let mut buffer = vec![MaybeUninit::uninit(); buffer];
    let mut entries = RawDir::new(dir, &mut buffer);
    let mut names = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry.unwrap();
        names.push(Listed {
            name: entry.file_name().to_string_lossy().into_owned(),
            ino: entry.ino(),
            cursor: entry.next_entry_cookie(),
        });
    }
    names
}

/// Fails if an entry below a directory has an inode number or cursor that does not fit; returns the number of entries.
fn check_below(root: &Path, dir: PathBuf) -> usize {
    let (mut count, mut waiting) = (0, vec![dir]);
    while let Some(dir) = waiting.pop() {
        for listed in listed(&File::open(&dir).unwrap(), 1 << 15) {
            let path = dir.join(&listed.name);
            let small = 1..1 << 31;
            assert!(small.contains(&listed.ino), "{path:?}: {listed:?}");
            assert!(small.contains(&listed.cursor), "{path:?}: {listed:?}");
            count += 1;
            if listed.name == ".." && dir == root {
                continue;
            }
            let meta = fs::symlink_metadata(&path).unwrap();
            assert_eq!(meta.ino(), listed.ino, "{path:?}");
            if meta.is_dir() && !listed.name.starts_with('.') {
                waiting.push(path);
            }
        }
    }
    count
}

/// Invariant (mount): 32-bit programs can read any listing and continue from each entry.
#[test]
fn inode_numbers_and_cursors_of_listings_fit_into_32_bits() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let upper = fixture.path("upper");
    for options in [
        &[][..],
        &["--list", "all"],
        &["--cow", upper.to_str().unwrap()],
    ] {
        fixture.mount(options);
        let control = fixture.dir.join(".zarrfs");
        for dir in [&fixture.dir, &control, &control.join("files")] {
            let count = check_below(&fixture.dir, dir.clone());
            assert!(count > 8, "{dir:?}: {count} names");
        }
        assert!(fixture.umount(&fixture.dir).status.success());
    }
}

/// Invariant of `inode_numbers_and_cursors_of_listings_fit_into_32_bits`.
#[test]
fn a_listing_continues_from_each_cursor() {
    const NAMES: usize = 3000;
    let Some(fixture) = Fixture::new() else {
        return;
    };
    for number in 1..=NAMES {
        fs::write(fixture.store.join(format!("a/c/{number}")), "").unwrap();
    }
    let upper = fixture.path("upper");
    for options in [&[][..], &["--cow", upper.to_str().unwrap()]] {
        fixture.mount(options);
        let dir = File::open(fixture.dir.join("a/c")).unwrap();
        let all = listed(&dir, 1 << 15);
        let mut names: Vec<&str> = all.iter().map(|listed| &*listed.name).collect();
        names.sort_unstable();
        names.dedup();
        // The other three names are the first chunk, `.` and `..`.
        assert_eq!(names.len(), NAMES + 3);
        for place in [2, 3, 700, 1500, 1023, 2999, 3001, 1024, 1025] {
            seek(&dir, SeekFrom::Start(all[place].cursor)).unwrap();
            assert_eq!(listed(&dir, 4000), all[place + 1..], "after name {place}");
        }
        seek(&dir, SeekFrom::Start(0)).unwrap();
        assert_eq!(listed(&dir, 2000), all);
        // Names that are removed during a listing must not make it skip other names.
        let folder = if options.is_empty() {
            fixture.store.join("a/c")
        } else {
            fixture.dir.join("a/c")
        };
        for listed in all[..300]
            .iter()
            .filter(|listed| !listed.name.starts_with('.'))
        {
            fs::remove_file(folder.join(&listed.name)).unwrap();
        }
        seek(&dir, SeekFrom::Start(all[1999].cursor)).unwrap();
        assert_eq!(listed(&dir, 1 << 15), all[2000..]);
        for number in 1..=NAMES {
            fs::write(fixture.store.join(format!("a/c/{number}")), "").unwrap();
        }
        drop(dir);
        assert!(fixture.umount(&fixture.dir).status.success());
    }
}
