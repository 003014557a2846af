//! Commits beside a program that has a decoded file open for writing: the array is named as long as it is open.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::process::Command;

use crate::fixture::{Fixture, PROGRAM};

#[test]
fn an_array_that_is_written_meanwhile_is_named() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let upper = fixture.path("upper");
    fixture.mount(&["--cow", upper.to_str().unwrap()]);
    let say = |command: &str| {
        let output = Command::new(PROGRAM)
            .arg(command)
            .arg(&fixture.dir)
            .output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    let stored = || std::fs::read(fixture.store.join("a/c/0")).unwrap();
    let named = "1 array being written:\n    a: open for writing as a decoded file: what is not stored yet is for the \
        next commit\n";
    let file = OpenOptions::new()
        .write(true)
        .open(fixture.dir.join(".zarrfs/files/a/a.npy"))
        .unwrap();
    file.write_all_at(&[8; 4], 128).unwrap();
    assert!(say("status").ends_with(named));
    assert_eq!(say("commit"), format!("1 put (16), 0 removed\n{named}"));
    assert_eq!(stored(), [[8; 4], [7; 4], [7; 4], [7; 4]].concat());
    file.write_all_at(&[9; 4], 132).unwrap();
    drop(file);
    assert_eq!(say("commit"), "1 put (16), 0 removed\n");
    assert_eq!(stored(), [[8; 4], [9; 4], [7; 4], [7; 4]].concat());
    assert!(say("status").ends_with(": nothing to commit\n"));
}
