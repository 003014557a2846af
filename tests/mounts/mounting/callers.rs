//! Tests mounts by mount(8), fstab and systemd, and access by ordinary users.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::common::needs;
use crate::mounting::fixture::{Fixture, PROGRAM, end_of, signal, stderr};

#[test]
fn mount_options_reach_the_kernel() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fixture.mount(&[
        "-o",
        r"suid,dev,noexec,fsname=a\,b,uid=7,gid=8,umask=077,nofail,x-y=z",
    ]);
    assert_eq!(fixture.mounted().unwrap().source, "a,b");
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table
        .lines()
        .find(|line| line.contains(" fuse.zarrfs a,b "))
        .unwrap();
    assert!(line.contains(" ro,nosuid,nodev,noexec"), "{line}");
    let meta = fs::metadata(fixture.dir.join("zarr.json")).unwrap();
    assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o777), (7, 8, 0o400));
    let device = fixture.mounted().unwrap().device;
    let readahead = format!(
        "/sys/class/bdi/{}:{}/read_ahead_kb",
        device.major, device.minor
    );
    assert_eq!(fs::read_to_string(readahead).unwrap().trim(), "1024");
}

#[test]
fn other_users_have_access_only_with_allow_other() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let look = || {
        Command::new("ls")
            .arg(&fixture.dir)
            .uid(65534)
            .gid(65534)
            .output()
            .unwrap()
            .status
            .success()
    };
    fixture.mount(&[]);
    assert!(!look());
    fixture.umount(&fixture.dir);
    fixture.mount(&["--allow-other"]);
    assert!(look());
}

#[test]
fn mount_8_calls_the_program() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let helper = fixture.path("mount.zarrfs");
    symlink(PROGRAM, &helper).unwrap();
    let run = |args: &[&str]| {
        Command::new(&helper)
            .arg(&fixture.store)
            .arg(&fixture.dir)
            .args(args)
            .status()
            .unwrap()
    };
    assert!(run(&["-f", "-o", "ro"]).success());
    assert!(fixture.mounted().is_none(), "a fake mount mounts nothing");
    assert!(run(&["-sn", "-t", "zarrfs", "-o", "ro,nobody_knows_this"]).success());
    assert!(fixture.umount(&fixture.dir).status.success());
    // `mount -t fuse.zarrfs` needs the helper program mount.fuse3.
    if !needs::program("fuse3", Path::new("/usr/sbin/mount.fuse3").exists()) {
        return;
    }
    let script = r#"mount -t tmpfs tmpfs /usr/local/bin; cp "$PROGRAM" /usr/local/bin/zarrfs
        mount -t fuse.zarrfs "$1/s.zarr" second -o fsname=x,allow_other; cat second/zarr.json; umount second
        echo "$1/s.zarr $1/second fuse.zarrfs _netdev,nofail,noauto,ro,list=raw\\,chunks,x-systemd.automount 0 0" > fstab
        mount -T fstab "$1/second"; cat second/zarr.json; /usr/local/bin/zarrfs umount second"#;
    let output = fixture.in_namespace(script);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(
        output.stdout,
        fs::read(fixture.store.join("zarr.json")).unwrap().repeat(2)
    );
}

#[test]
fn the_packaged_fstab_and_unit_examples_are_valid() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let helper = fixture.path("mount.zarrfs");
    symlink(PROGRAM, &helper).unwrap();
    let packaged = |name: &str| {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging");
        fs::read_to_string(folder.join(name)).unwrap()
    };
    let (fstab, unit) = (packaged("fstab"), packaged("zarrfs.mount"));
    let lines = fstab.lines().filter(|line| line.starts_with('/'));
    let fields = lines.map(|line| line.split_whitespace().nth(3).unwrap());
    let options = unit
        .lines()
        .filter_map(|line| line.strip_prefix("Options="));
    let all: Vec<_> = fields.chain(options).collect();
    assert_eq!(all.len(), 3);
    for options in all {
        let mut command = Command::new(&helper);
        let output = command
            .args(["-f", "-o", options])
            .arg(&fixture.store)
            .arg(&fixture.dir)
            .output();
        let output = output.unwrap();
        assert!(output.status.success(), "{options}: {}", stderr(&output));
    }
}

#[test]
fn a_user_mounts_with_fusermount3() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let is_here = Command::new("fusermount3").arg("-V").output().is_ok();
    if !needs::program("fuse3", is_here) {
        return;
    }
    let script = r#"mkdir node; mount -t tmpfs -o dev tmpfs node; mknod -m 666 node/fuse c 10 229
        mount --bind node/fuse /dev/fuse; cp "$PROGRAM" node/zarrfs; chown nobody second
        as_user() { setpriv --reuid nobody --regid nogroup --clear-groups "$@"; }
        as_user node/zarrfs mount s.zarr second -o 'fsname=a\,b\\c'; as_user cat second/zarr.json
        ls second 2> /dev/null && exit 3; grep -c ' fuse.zarrfs a,b.134c ' /proc/self/mountinfo
        as_user node/zarrfs umount second; grep -c " $PWD/second " /proc/self/mountinfo || true
        as_user node/zarrfs mount s.zarr second -o allow_other || true
        mount --bind "$PWD/s.zarr/zarr.json" /usr/bin/fusermount3; as_user node/zarrfs mount s.zarr second || true"#;
    let output = fixture.in_namespace(script);
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    assert!(
        String::from_utf8_lossy(&output.stdout).ends_with("}1\n0\n"),
        "{output:?}"
    );
    assert!(said.contains("user_allow_other"), "{said}");
}

#[test]
fn a_descriptor_mounted_by_another_program_is_served() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let device = fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&device);
    let data =
        std::ffi::CString::new(format!("fd={number},rootmode=40000,user_id=0,group_id=0")).unwrap();
    let flags = rustix::mount::MountFlags::RDONLY;
    rustix::mount::mount("x", &fixture.dir, "fuse.zarrfs", flags, data.as_c_str()).unwrap();
    rustix::io::fcntl_setfd(&device, rustix::io::FdFlags::empty()).unwrap();
    let place = format!("/dev/fd/{number}");
    let mut child = Command::new(PROGRAM)
        .args(["mount", "-f"])
        .arg(&fixture.store)
        .arg(place)
        .spawn()
        .unwrap();
    drop(device);
    assert_eq!(fs::read(fixture.dir.join("a/c/0")).unwrap(), [7; 16]);
    // The unmount is lazy, because a process that another test is just starting may still have the file open.
    let unmounted = Command::new("umount").arg("-l").arg(&fixture.dir).status();
    assert!(unmounted.unwrap().success());
    assert_eq!(end_of(&mut child).code(), Some(0));
}

#[test]
fn systemd_is_notified_of_start_and_stop() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let name = fixture.path("notify");
    let socket = UnixDatagram::bind(&name).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let mut child = fixture.foreground(fixture.foreground_command().env("NOTIFY_SOCKET", &name));
    let hear = || {
        let mut bytes = [0; 64];
        let count = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    };
    assert_eq!(hear(), "READY=1");
    signal(&child, Signal::TERM);
    assert_eq!(hear(), "STOPPING=1");
    end_of(&mut child);
}
