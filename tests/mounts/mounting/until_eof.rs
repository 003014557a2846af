//! Tests mounts that end with the program that started them, and remove their mountpoints.

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::mounting::fixture::{Fixture, PROGRAM, end_of, soon};

/// Returns a command that mounts a store until the other end of `input` is closed.
fn mount_until_eof(store: &str, fixture: &Fixture, input: impl Into<Stdio>) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .args(["mount", "--until-eof", "--rmdir", store])
        .arg(&fixture.dir)
        .stdin(input)
        .stdout(Stdio::null());
    command
}

/// Invariant (mount): A mount with `--until-eof` ends with the program that started it, in every state.
#[test]
fn a_mount_ends_with_the_last_writer_of_its_input() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let store = fixture.store.to_str().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = mount_until_eof(store, &fixture, reader);
    assert!(command.status().unwrap().success());
    drop(command);
    assert_eq!(fs::read(fixture.dir.join("a/c/0")).unwrap(), [7; 16]);
    let second_writer = writer.try_clone().unwrap();
    drop(writer);
    thread::sleep(Duration::from_millis(100));
    assert!(fixture.mounted().is_some(), "one writer is left");
    drop(second_writer);
    assert!(soon(|| fixture.daemons().is_empty()));
    assert!(fixture.mounted().is_none());
    assert!(!fixture.dir.exists());
}

#[test]
fn a_foreground_mount_ends_when_its_socket_is_shut_down() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let (ours, theirs) = UnixStream::pair().unwrap();
    let store = fixture.store.to_str().unwrap();
    let mut command = mount_until_eof(store, &fixture, std::os::fd::OwnedFd::from(theirs));
    let mut child = command.arg("-f").spawn().unwrap();
    drop(command);
    assert!(soon(|| fixture.mounted().is_some()));
    ours.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(end_of(&mut child).code(), Some(0));
    assert!(!fixture.dir.exists());
    // The connection of the daemon is closed, so the other side sees that the process is gone.
    assert_eq!((&ours).read(&mut [0]).unwrap(), 0);
}

#[test]
fn an_open_file_stays_readable_after_the_end_of_input() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let store = fixture.store.to_str().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    assert!(
        mount_until_eof(store, &fixture, reader)
            .status()
            .unwrap()
            .success()
    );
    let file = fs::File::open(fixture.dir.join("a/c/0")).unwrap();
    drop(writer);
    assert!(soon(|| fixture.mounted().is_none()));
    // The time is longer than a mount that is ended by a signal would wait for its users.
    thread::sleep(Duration::from_millis(3500));
    let mut bytes = [0; 16];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, [7; 16]);
    drop(file);
    assert!(soon(|| fixture.daemons().is_empty()));
}

/// Invariant of `a_mount_ends_with_the_last_writer_of_its_input`.
#[test]
fn the_end_of_input_ends_a_mount_whose_store_hangs() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/x.zarr", server.local_addr().unwrap());
    let (reader, writer) = std::io::pipe().unwrap();
    let mut child = mount_until_eof(&url, &fixture, reader)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // The daemon has sent its first request, which the server never answers.
    let _asked = server.accept().unwrap();
    drop(writer);
    assert_eq!(end_of(&mut child).code(), Some(2));
    assert!(soon(|| fixture.daemons().is_empty()));
    assert!(!fixture.dir.exists());
}
