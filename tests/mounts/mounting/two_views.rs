//! Tests one chunk in both views: a change in one shows in the other.
//!
//! The change shows at the next lookup, whatever the kernel has cached for the name.

use std::fs;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use crate::mounting::fixture::Fixture;

const HEADER: u64 = 128;

/// Invariant (mount): Names are not cached for files that can change.
///
/// The kernel caches the inode that a name got by a rename for as long as it may cache the inode of a new file. A
/// program still has the renamed file open, so a lookup that returns the cached inode would find the old file.
#[test]
fn a_chunk_renamed_into_place_shows_later_writes_to_its_elements() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let upper = fixture.path("upper");
    fixture.mount(&["--cow", upper.to_str().unwrap()]);
    let [chunk, temporary] = ["a/c/0", "a/c/new"].map(|name| fixture.dir.join(name));
    let decoded = fixture.dir.join(".zarrfs/files/a/a.npy");
    let decoded = || OpenOptions::new().write(true).open(&decoded).unwrap();
    drop(decoded());
    for round in 0..100 {
        fs::write(&temporary, [round; 16]).unwrap();
        fs::rename(&temporary, &chunk).unwrap();
        let held = File::open(&chunk).unwrap();
        decoded().write_all_at(&[100 + round; 4], HEADER).unwrap();
        let expected = [[100 + round; 4], [round; 4], [round; 4], [round; 4]];
        assert_eq!(fs::read(&chunk).unwrap(), expected.concat());
        drop(held);
    }
}
