//! Tests commands whose output fails: a full device is an error, closed pipes are not.

use std::fs::OpenOptions;
use std::io::Read;
use std::process::{Command, Stdio};

use crate::mounting::fixture::{Fixture, PROGRAM, stderr};

#[test]
fn a_failed_write_to_stdout_is_an_error() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let store = fixture.store.to_str().unwrap();
    for words in [
        &["tree", store][..],
        &["tree", "--json", store],
        &["ls", store],
        &["info", store],
        &["check", store],
        &["list"],
        &["completions", "bash"],
        &["help"],
        &["--version"],
        &["cat", &format!("{store}/zarr.json")],
    ] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = Command::new(PROGRAM).args(words).stdout(full).output();
        let output = output.unwrap();
        let expected = "zarrfs: stdout: No space left on device\n";
        let said = (output.status.code(), stderr(&output));
        assert_eq!(said, (Some(2), expected.to_string()), "{words:?}");
    }
}

#[test]
fn a_closed_pipe_on_stdout_is_no_error() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let store = fixture.store.to_str().unwrap();
    for words in [&["tree", store][..], &["list"], &["help"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(PROGRAM);
        command.args(words).stdout(writer).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        let status = child.wait().unwrap();
        assert_eq!((status.code(), said.as_str()), (Some(0), ""), "{words:?}");
    }
}
