//! Tests mounts whose daemon stops before or between requests: commands end with a clear error.

use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::thread::JoinHandle;

use rustix::mount::MountFlags;
use rustix::process;
use rustix::process::Signal;

use crate::mounting::fixture::{Fixture, PROGRAM, stderr, stop};

/// Numbers of request types (opcodes) in the kernel's `fuse.h`.
const STATFS: u32 = 17;
const GETXATTR: u32 = 22;
const INIT: u32 = 26;

fn zarrfs(command: &str, dir: &Path) -> Output {
    Command::new(PROGRAM)
        .arg(command)
        .arg(dir)
        .output()
        .unwrap()
}

/// Fails unless each command has reported that the mount does not answer.
fn check_named(fixture: &Fixture, asked: &[Output]) {
    let dir = fixture.dir.display();
    let expected = format!(
        "zarrfs: {dir}: the mount does not respond; run 'zarrfs umount {dir}' to remove the mount\n"
    );
    for output in asked {
        assert_eq!(
            (output.status.code(), stderr(output)),
            (Some(2), expected.clone())
        );
    }
}

#[test]
fn a_mount_that_does_not_answer_is_named_in_the_error() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fixture.mount(&[]);
    let daemon = fixture.daemon();
    stop(daemon);
    let asked = ["status", "stats"].map(|command| zarrfs(command, &fixture.dir));
    process::kill_process(daemon, Signal::CONT).unwrap();
    check_named(&fixture, &asked);
    assert!(zarrfs("status", &fixture.dir).status.success());
}

/// Mounts with a daemon in this process that answers only two requests: the kernel's INIT and the next. The thread
/// returns the FUSE device, which stays open.
fn mount_of_one_answer(dir: &Path) -> JoinHandle<File> {
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .unwrap();
    let data = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0\0",
        device.as_raw_fd()
    );
    let data = CStr::from_bytes_with_nul(data.as_bytes()).unwrap();
    rustix::mount::mount("s.zarr", dir, "fuse.zarrfs", MountFlags::NOSUID, data).unwrap();
    thread::spawn(move || {
        answer(&device);
        answer(&device);
        device
    })
}

/// Reads a request from the FUSE device and answers it.
fn answer(mut device: &File) {
    let mut request = vec![0; 1 << 20];
    let length = device.read(&mut request).unwrap();
    request.truncate(length);
    let opcode = u32::from_ne_bytes(request[4..8].try_into().unwrap());
    let body = match opcode {
        // The answer to INIT: version 7.31, no flags, and a maximum write length of 4096 bytes.
        INIT => [7, 31, 0, 0, 0, 4096, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
            .map(u32::to_ne_bytes)
            .concat(),
        STATFS => vec![0; 80],
        GETXATTR => b"{}".to_vec(),
        _ => panic!("request {opcode}"),
    };
    let mut answer = (16 + body.len() as u32).to_ne_bytes().to_vec();
    answer.extend([0; 4]);
    answer.extend(&request[8..16]);
    answer.extend(body);
    device.write_all(&answer).unwrap();
}

/// A daemon answers the first request of a command and not the second.
#[test]
fn a_mount_that_stops_between_two_requests_is_named() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let daemon = mount_of_one_answer(&fixture.dir);
    let mut status = Command::new("timeout");
    status.args(["60", PROGRAM, "status"]).arg(&fixture.dir);
    let asked = status.output().unwrap();
    assert!(zarrfs("umount", &fixture.dir).status.success());
    drop(daemon.join());
    check_named(&fixture, &[asked]);
}
