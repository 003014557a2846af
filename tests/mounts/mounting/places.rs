//! Tests mountpoints in the output of commands, and file system features without support.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use rustix::process;
use rustix::process::Signal;

use crate::mounting::fixture::{Fixture, PROGRAM, stderr, stop};

fn fault(output: &Output, expected: &str) {
    let said = (output.status.code(), stderr(output));
    assert_eq!(said, (Some(2), format!("zarrfs: {expected}\n")));
}

/// Returns the cells in the row of a mountpoint in the output of `zarrfs list`.
fn row(list: &Output, dir: &Path) -> Vec<String> {
    let text = String::from_utf8_lossy(&list.stdout).into_owned();
    let dir = format!("  {}  ", dir.display());
    let line = text.lines().find(|line| line.contains(&dir));
    let (store, rest) = line
        .unwrap_or_else(|| panic!("{text}"))
        .split_once(&dir)
        .unwrap();
    let cells = rest
        .split("  ")
        .map(str::trim)
        .filter(|cell| !cell.is_empty());
    std::iter::once(store.trim())
        .chain(cells)
        .map(str::to_string)
        .collect()
}

#[test]
fn foreign_and_hanging_mounts_are_listed_with_the_reason() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fixture.mount(&[]);
    let store = fixture.store.to_str().unwrap();
    // The program is copied, because it may be in a folder that other users cannot enter.
    let program = fixture.path("program");
    fs::copy(PROGRAM, &program).unwrap();
    let other = Command::new(&program)
        .arg("list")
        .uid(65534)
        .gid(65534)
        .output()
        .unwrap();
    assert_eq!(row(&other, &fixture.dir), [store, "-", "of another user"]);
    let daemon = fixture.daemon();
    stop(daemon);
    let silent = Command::new(PROGRAM).arg("list").output().unwrap();
    process::kill_process(daemon, Signal::CONT).unwrap();
    assert_eq!(row(&silent, &fixture.dir), [store, "-", "does not answer"]);
}

#[test]
fn commands_on_unusable_directories_give_one_clear_error() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let (store, dir) = (fixture.store.display(), fixture.dir.display());
    let mount = |place: &Path| {
        let mut command = Command::new(PROGRAM);
        command
            .arg("mount")
            .arg(&fixture.store)
            .arg(place)
            .output()
            .unwrap()
    };
    let full = fixture.path("full");
    fs::create_dir_all(full.join("x")).unwrap();
    let why = "the mountpoint is not empty; use --allow-non-empty to mount over the content";
    fault(&mount(&full), &format!("{}: {why}", full.display()));
    let file = fixture.store.join("zarr.json");
    let why = "the mountpoint must be a directory";
    fault(&mount(&file), &format!("{}: {why}", file.display()));
    fault(
        &fixture.umount(&full),
        &format!("{}: nothing is mounted here", full.display()),
    );
    fixture.mount(&[]);
    let why = format!("is already mounted here; run 'zarrfs umount {dir}' first");
    fault(&fixture.try_mount(&[]), &format!("{dir}: {store} {why}"));
    for command in ["commit", "diff", "discard"] {
        let output = Command::new(PROGRAM)
            .arg(command)
            .arg(&fixture.dir)
            .output();
        fault(
            &output.unwrap(),
            &format!("{dir}: mounted without --cow, so there are no changes"),
        );
    }
}

#[test]
fn df_shows_no_usage_of_a_read_only_mount() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fixture.mount(&[]);
    let mut command = Command::new("df");
    command
        .arg("--output=used,pcent,iused,ipcent")
        .arg(&fixture.dir);
    let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let cells: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(cells, ["0", "-", "0", "0%"], "{text}");
}

#[test]
fn a_url_scheme_in_capitals_is_accepted() {
    let words = [
        "tree",
        "S3://b/x",
        "--anon",
        "--endpoint",
        "http://127.0.0.1:1",
    ];
    let output = Command::new(PROGRAM).args(words).output().unwrap();
    fault(&output, "s3://b/x: http://127.0.0.1:1: Connection refused");
}

#[test]
fn an_http_url_without_a_host_is_refused_with_a_hint() {
    for url in ["https://", "http://"] {
        let output = Command::new(PROGRAM).args(["tree", url]).output().unwrap();
        fault(
            &output,
            &format!("{url}: expected http://HOST/PATH or https://HOST/PATH"),
        );
    }
}

#[test]
fn tmpfile_inode_flags_and_seek_hole_behave_as_documented() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let upper = fixture.path("upper");
    fixture.mount(&["--cow", upper.to_str().unwrap()]);
    let unnamed = rustix::fs::open(&fixture.dir, OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR);
    assert_eq!(unnamed.unwrap_err(), Errno::OPNOTSUPP);
    let file = fs::File::open(fixture.dir.join("zarr.json")).unwrap();
    let flags = rustix::fs::ioctl_getflags(&file);
    assert_eq!(flags.unwrap_err(), Errno::NOTTY);
    let set = rustix::fs::ioctl_setflags(&file, rustix::fs::IFlags::IMMUTABLE);
    assert_eq!(set.unwrap_err(), Errno::NOTTY);
    let length = file.metadata().unwrap().len();
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(0)), Ok(length));
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(0)), Ok(0));
}
