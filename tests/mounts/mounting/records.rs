//! Tests failure records in syslog, and on stderr of a mount in the foreground.

use std::fs;
use std::fs::File;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;

use crate::mounting::fixture::{Fixture, end_of, signal, soon};

/// The failure record for a read of the fixture's array when its chunk is too short.
const RECORD: &str = "read of /.zarrfs/files/a/a.npy: a/c/0: bytes: expected 16 bytes, found 3";

fn damage(store: &Path) {
    fs::write(store.join("a/c/0"), [7; 3]).unwrap();
}

#[test]
fn repeated_failures_are_one_syslog_record() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    damage(&fixture.store);
    let socket = UnixDatagram::bind(fixture.path("socket")).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    // The script mounts its own /dev with another log socket, so that the machine's log stays unchanged.
    let script = r#"
        unset JOURNAL_STREAM
        touch fuse null
        mount --bind /dev/fuse fuse
        mount --bind /dev/null null
        mount -t tmpfs tmpfs /dev
        touch /dev/fuse /dev/null
        mount --bind fuse /dev/fuse
        mount --bind null /dev/null
        ln -s "$PWD/socket" /dev/log
        "$PROGRAM" mount s.zarr second >/dev/null
        for time in 1 2 3; do
            ! cat second/.zarrfs/files/a/a.npy >/dev/null 2>&1
        done
        "$PROGRAM" umount second
    "#;
    let output = fixture.in_namespace(script);
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    let mut room = [0; 4096];
    let length = socket.recv(&mut room).unwrap();
    let record = String::from_utf8_lossy(&room[..length]).into_owned();
    let (process, text) = record.split_once("]: ").unwrap();
    let number = process.strip_prefix("<28>zarrfs[").unwrap();
    assert!(number.parse::<u32>().is_ok(), "{record}");
    assert_eq!(text, RECORD);
    socket.set_nonblocking(true).unwrap();
    assert!(socket.recv(&mut room).is_err(), "one record is enough");
}

#[test]
fn a_failure_in_the_foreground_is_a_line_on_stderr() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    damage(&fixture.store);
    let errors = fixture.path("stderr");
    let mut command = fixture.foreground_command();
    command.env_remove("JOURNAL_STREAM").stdout(Stdio::null());
    let mut child = command
        .stderr(File::create(&errors).unwrap())
        .spawn()
        .unwrap();
    assert!(soon(|| fixture.mounted().is_some()));
    for _ in 0..3 {
        let read = fs::read(fixture.dir.join(".zarrfs/files/a/a.npy"));
        assert_eq!(read.unwrap_err().raw_os_error(), Some(5), "EIO");
    }
    signal(&child, Signal::TERM);
    end_of(&mut child);
    let expected = format!("zarrfs: warning: {RECORD}\n");
    assert_eq!(fs::read_to_string(errors).unwrap(), expected);
}
