//! Tests mounts and unmounts in every way; the daemon ends with its mount.

use std::fs;
use std::process::Command;

use rustix::process::Signal;

use crate::mounting::fixture::{Fixture, end_of, signal, soon};

#[test]
fn a_mount_answers_when_the_command_returns() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fixture.mount(&[]);
    assert_eq!(fs::read(fixture.dir.join("a/c/0")).unwrap(), [7; 16]);
    assert_eq!(
        fs::write(fixture.dir.join("x"), "")
            .unwrap_err()
            .raw_os_error(),
        Some(30),
        "EROFS"
    );
    let output = fixture.umount(&fixture.dir);
    assert!(output.status.success() && output.stderr.is_empty());
    // The daemon ends after its mount was unmounted.
    assert!(soon(|| fixture.daemons().is_empty()));
}

#[test]
fn umount_of_the_system_ends_the_daemon() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    for program in [&["umount"][..], &["fusermount3", "-u"]] {
        fixture.mount(&[]);
        let (name, args) = program.split_first().unwrap();
        match Command::new(name).args(args).arg(&fixture.dir).status() {
            Ok(status) => assert!(status.success(), "{name}"),
            Err(_) => continue,
        }
        assert!(soon(|| fixture.daemons().is_empty()), "{name}");
    }
}

/// The kernel reuses the device number of a mount that is gone for the next mount, while the daemon of the first mount
/// is still ending.
#[test]
fn consecutive_mounts_do_not_disturb_each_other() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    for _ in 0..100 {
        fixture.mount(&[]);
        assert!(fixture.umount(&fixture.dir).status.success());
    }
}

#[test]
fn signals_unmount() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    for which in [Signal::TERM, Signal::INT] {
        let mut child = fixture.foreground(&mut fixture.foreground_command());
        signal(&child, which);
        assert_eq!(end_of(&mut child).code(), Some(0), "{which:?}");
        assert!(fixture.mounted().is_none());
    }
}

#[test]
fn a_signal_detaches_a_busy_mount_and_a_second_one_ends_it() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let mut child = fixture.foreground(&mut fixture.foreground_command());
    let mut user = Command::new("sleep")
        .arg("20")
        .current_dir(&fixture.dir)
        .spawn()
        .unwrap();
    signal(&child, Signal::TERM);
    assert!(soon(|| fixture.mounted().is_none()));
    assert!(
        child.try_wait().unwrap().is_none(),
        "it waits for the user of the mount"
    );
    signal(&child, Signal::TERM);
    // The exit status names the signal; it is 0 only for a daemon that has waited for the users of its mount.
    assert_eq!(end_of(&mut child).code(), Some(128 + 15));
    assert!(user.try_wait().unwrap().is_none(), "the mount is in use");
    user.kill().unwrap();
    user.wait().unwrap();
}

#[test]
fn a_busy_mount_is_unmounted_by_command() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fixture.mount(&[]);
    let file = fs::File::open(fixture.dir.join("a/c/0")).unwrap();
    assert!(fixture.umount(&fixture.dir).status.success());
    assert!(fixture.mounted().is_none());
    let mut bytes = [0; 16];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 0).unwrap();
    assert_eq!(bytes, [7; 16], "what is open stays readable");
    drop(file);
    assert!(soon(|| fixture.daemons().is_empty()));
}

#[test]
fn a_stale_mount_is_replaced_or_unmounted() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fixture.mount(&[]);
    fixture.kill_daemon();
    assert!(fs::read_dir(&fixture.dir).is_err());
    fixture.mount(&[]);
    assert_eq!(fs::read(fixture.dir.join("a/c/0")).unwrap(), [7; 16]);
    fixture.kill_daemon();
    assert!(fixture.umount(&fixture.dir).status.success());
    assert!(fixture.mounted().is_none());
}
