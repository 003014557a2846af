//! Tests diagnostics: the nodes that were found, recorded failures, and the list of mounts.

use std::fs;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::mounting::fixture::{Fixture, PROGRAM, soon, stderr};

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn zarrfs(words: &[&str], path: &Path) -> Output {
    Command::new(PROGRAM)
        .args(words)
        .arg(path)
        .output()
        .unwrap()
}

/// Reads a decoded file that has a truncated chunk, `times` times; each read fails.
fn read_broken_array(fixture: &Fixture, times: usize) {
    for _ in 0..times {
        let read = fs::read(fixture.dir.join(".zarrfs/files/a/a.npy"));
        assert_eq!(read.unwrap_err().raw_os_error(), Some(5), "EIO");
    }
}

/// Invariant of `failures_take_bounded_memory`.
#[test]
fn failures_are_listed_in_the_mount_and_logged_once() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fs::write(fixture.store.join("a/c/0"), [7; 3]).unwrap();
    let log = fixture.path("log");
    fixture.mount(&["--log", log.to_str().unwrap()]);
    let errors = fixture.dir.join(".zarrfs/errors");
    assert_eq!(fs::read_to_string(&errors).unwrap(), "");
    read_broken_array(&fixture, 3);
    let text = fs::read_to_string(&errors).unwrap();
    assert_eq!(text.len() as u64, fs::metadata(&errors).unwrap().len());
    let cells: Vec<&str> = text.trim_end().split('\t').collect();
    let [time, operation, path, key, cause, count] = cells[..] else {
        panic!("{text}");
    };
    assert!(time.starts_with("20") && time.ends_with('Z'), "{time}");
    assert_eq!(
        (operation, path, key),
        ("read", "/.zarrfs/files/a/a.npy", "a/c/0")
    );
    assert!(
        !cause.is_empty() && count.parse::<u64>().unwrap() >= 3,
        "{text}"
    );
    let logged = fs::read_to_string(&log).unwrap();
    let sentence = format!("read of {path}: {key}: {cause}\n");
    assert!(logged.ends_with(&sentence), "{logged}");
    assert_eq!(logged.lines().count(), 1, "{logged}");
    let status = zarrfs(&["status"], &fixture.dir);
    let (store, errors) = (fixture.store.display(), errors.display());
    let expected = format!("{store}: mounted read-only\n1 failure, see {errors}\n");
    assert_eq!(stdout(&status), expected);
}

#[test]
fn failures_go_to_the_journal_if_systemd_reads_stderr() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fs::write(fixture.store.join("a/c/0"), [7; 3]).unwrap();
    for is_foreground in [false, true] {
        let journal = fixture.path("journal");
        let file = File::create(&journal).unwrap();
        let meta = file.metadata().unwrap();
        let stream = format!("{}:{}", meta.dev(), meta.ino());
        let mut command = Command::new(PROGRAM);
        command.arg("mount").arg(&fixture.store).arg(&fixture.dir);
        command.env("JOURNAL_STREAM", stream).stderr(file);
        if is_foreground {
            command.arg("-f").stdout(std::process::Stdio::null());
        }
        let mut child = command.spawn().unwrap();
        assert!(soon(|| fixture.mounted().is_some()));
        if !is_foreground {
            assert!(child.wait().unwrap().success());
        }
        read_broken_array(&fixture, 2);
        let text = fs::read_to_string(&journal).unwrap();
        let record = "<4>read of /.zarrfs/files/a/a.npy: a/c/0: ";
        assert!(
            text.starts_with(record) && text.lines().count() == 1,
            "{text}"
        );
        assert!(fixture.umount(&fixture.dir).status.success());
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn a_journal_stream_other_than_stderr_is_ignored() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fs::remove_file(fixture.store.join("zarr.json")).unwrap();
    fs::remove_dir_all(fixture.store.join("a")).unwrap();
    let output = Command::new(PROGRAM)
        .arg("mount")
        .arg(&fixture.store)
        .arg(&fixture.dir)
        .env("JOURNAL_STREAM", "1:1")
        .output()
        .unwrap();
    assert!(stderr(&output).starts_with("zarrfs: warning: "));
}

#[test]
fn mount_prints_the_nodes_found_and_the_paths_of_arrays_and_keys() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let (store, dir) = (fixture.store.display(), fixture.dir.display());
    let summary = "Zarr v3, 1 array in 1 group, read-only";
    for (more, files, keys) in [
        (vec![], format!("{dir}/.zarrfs/files"), dir.to_string()),
        (
            vec!["--view", "files"],
            dir.to_string(),
            format!("{dir}/.zarrfs/store"),
        ),
    ] {
        let expected = format!(
            "Mounted {store} ({summary}) at {dir}\n  \
               arrays:  {files}/a/a.npy  (and .raw .nc .tif ...; see zarrfs info)\n  \
               keys:    {keys}   unmount: zarrfs umount {dir}\n"
        );
        let output = fixture.try_mount(&more);
        assert_eq!(
            (stdout(&output), stderr(&output)),
            (expected, String::new())
        );
        assert!(Path::new(&files).join("a/a.npy").is_file());
        assert!(Path::new(&keys).join("a/zarr.json").is_file());
        assert!(fixture.umount(&fixture.dir).status.success());
        assert!(soon(|| fixture.daemons().is_empty()));
    }
    let helper = fixture.path("mount.zarrfs");
    std::os::unix::fs::symlink(PROGRAM, &helper).unwrap();
    let mut command = Command::new(&helper);
    let output = command
        .arg(&fixture.store)
        .arg(&fixture.dir)
        .output()
        .unwrap();
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty());
}

#[test]
fn a_writable_mount_prints_where_changes_go() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let upper = fixture.path("upper");
    let (dir, place) = (fixture.dir.display(), upper.display());
    let reviewed = format!("{place}   review: zarrfs diff {dir}");
    for (more, mode, said) in [
        (&[][..], "writable", reviewed.clone()),
        (&["-r"][..], "read-only", reviewed),
        (
            &["--write-through"][..],
            "writable",
            format!("to the store when a file is closed; refused ones stay in {place}"),
        ),
    ] {
        let words = [&["--cow", upper.to_str().unwrap()][..], more].concat();
        let output = fixture.try_mount(&words);
        let text = stdout(&output);
        let first = text.lines().next().unwrap();
        assert!(
            first.ends_with(&format!("1 group, {mode}) at {dir}")),
            "{text}"
        );
        let changes = text.lines().nth(2).unwrap();
        assert_eq!(changes, format!("  changes: {said}"));
        assert!(fixture.umount(&fixture.dir).status.success());
        assert!(soon(|| fixture.daemons().is_empty()));
    }
}

#[test]
fn mount_reports_a_store_with_its_own_zarrfs_folder() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fs::create_dir(fixture.store.join(".zarrfs")).unwrap();
    fs::write(fixture.store.join(".zarrfs/mine"), "text").unwrap();
    let output = fixture.try_mount(&[]);
    let (store, dir) = (fixture.store.display(), fixture.dir.display());
    let said = format!(
        "Mounted {store} (Zarr v3, 1 array in 1 group, read-only) at {dir}\n  \
           arrays:  mount with --view files: DIR/.zarrfs is hidden, since the store has a key of this name\n  \
           keys:    {dir}   unmount: zarrfs umount {dir}\n"
    );
    assert_eq!((stdout(&output), stderr(&output)), (said, String::new()));
    let mine = fs::read_to_string(fixture.dir.join(".zarrfs/mine"));
    assert_eq!(mine.unwrap(), "text");
}

#[test]
fn a_folder_without_zarr_metadata_is_mounted_with_a_warning() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let (folder, dir) = (fixture.path("folder"), fixture.dir.display());
    fs::create_dir_all(folder.join("x")).unwrap();
    let output = Command::new(PROGRAM)
        .arg("mount")
        .arg(&folder)
        .arg(&fixture.dir)
        .output()
        .unwrap();
    let folder = folder.display();
    let warning = format!(
        "zarrfs: warning: {folder}: no Zarr metadata found; check the path (directories are shown as groups)\n"
    );
    let line = format!(
        "Mounted {folder} (no Zarr metadata, read-only) at {dir}\n  \
           arrays:  {dir}/.zarrfs/files\n  \
           keys:    {dir}   unmount: zarrfs umount {dir}\n"
    );
    assert_eq!((stdout(&output), stderr(&output)), (line, warning));
    assert!(output.status.success() && fixture.dir.join("x").is_dir());
}

#[test]
fn list_prints_one_line_per_mount_to_a_program() {
    let Some(mut fixture) = Fixture::new() else {
        return;
    };
    let long = fixture.path(&"long".repeat(20));
    fs::rename(&fixture.store, &long).unwrap();
    fixture.store = long;
    fixture.mount(&[]);
    let has_store = |columns: Option<&str>| {
        let mut command = Command::new(PROGRAM);
        command.arg("list").env_remove("COLUMNS");
        command.envs(columns.map(|columns| ("COLUMNS", columns)));
        let text = stdout(&command.output().unwrap());
        let dir = fixture.dir.to_str().unwrap();
        let line = text.lines().find(|line| line.contains(dir)).unwrap();
        line.contains(fixture.store.to_str().unwrap())
    };
    assert!(has_store(None));
    assert!(!has_store(Some("80")), "a terminal has two lines for it");
}

#[test]
fn list_shows_the_mounts_of_this_machine() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let upper = fixture.path("upper");
    fixture.mount(&["--cow", upper.to_str().unwrap()]);
    fs::write(fixture.dir.join("new"), "x").unwrap();
    let output = Command::new(PROGRAM)
        .arg("list")
        .env("COLUMNS", "900")
        .output()
        .unwrap();
    let text = stdout(&output);
    let heading: Vec<&str> = text.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(heading, ["STORE", "DIRECTORY", "VIEW", "CHANGES"]);
    let line = |place: &Path| {
        let place = place.to_str().unwrap();
        let line = text
            .lines()
            .find(|line| line.contains(&format!(" {place} ")));
        let line = line.unwrap_or_else(|| panic!("{text}"));
        let (store, rest) = line.split_once(place).unwrap();
        (store.trim().to_string(), rest.trim().to_string())
    };
    let store = fixture.store.display().to_string();
    assert_eq!(
        line(&fixture.dir),
        (store, "store  1 change pending".to_string())
    );
    let output = Command::new(PROGRAM)
        .args(["list", "--json"])
        .output()
        .unwrap();
    let listed: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    let own = listed
        .iter()
        .find(|line| line["directory"] == fixture.dir.to_str().unwrap());
    let own = own.unwrap();
    assert_eq!(
        (&own["view"], &own["state"], &own["changes"]),
        (&"store".into(), &"writable".into(), &1.into())
    );
}

#[test]
fn a_mount_without_its_process_is_listed() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fixture.mount(&[]);
    fixture.kill_daemon();
    let output = Command::new(PROGRAM)
        .args(["list", "--json"])
        .output()
        .unwrap();
    let listed: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    let own = listed
        .iter()
        .find(|line| line["directory"] == fixture.dir.to_str().unwrap());
    assert_eq!(own.unwrap()["state"], "its process is gone");
    let output = zarrfs(&["status"], &fixture.dir);
    let dir = fixture.dir.display();
    let expected = format!(
        "zarrfs: {dir}: the process of the mount is gone; run 'zarrfs umount {dir}' to remove the mount\n"
    );
    assert_eq!((output.status.code(), stderr(&output)), (Some(2), expected));
}

#[test]
fn status_works_on_a_read_only_mount() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fixture.mount(&[]);
    let output = zarrfs(&["status"], &fixture.dir);
    let expected = format!("{}: mounted read-only\n", fixture.store.display());
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), expected));
    let output = zarrfs(&["status", "--json"], &fixture.dir);
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&status["put"], &status["upper"]), (&0.into(), &"".into()));
    assert_eq!(status["failures"], 0);
}

#[test]
fn a_read_only_mount_does_not_look_full() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fixture.mount(&[]);
    for option in ["--output=pcent", "--output=ipcent"] {
        let output = Command::new("df")
            .arg(option)
            .arg(&fixture.dir)
            .output()
            .unwrap();
        let text = stdout(&output);
        assert!(!text.contains("100%"), "{text}");
    }
}

/// Invariant of `failures_take_bounded_memory`.
#[test]
fn ordinary_errors_are_not_logged() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let [upper, log] = ["upper", "log"].map(|name| fixture.path(name));
    let [upper, log] = [&upper, &log].map(|path| path.to_str().unwrap());
    fixture.mount(&["--cow", upper, "--log", log]);
    for _ in 0..20 {
        assert!(fs::remove_dir(fixture.dir.join("a")).is_err());
        assert!(fs::create_dir(fixture.dir.join("a")).is_err());
        assert!(fs::read(fixture.dir.join("none")).is_err());
        assert!(fs::read(fixture.dir.join("n".repeat(256))).is_err());
        assert!(fs::rename(fixture.dir.join("a"), fixture.dir.join("a/c")).is_err());
    }
    assert_eq!(
        fs::read_to_string(fixture.dir.join(".zarrfs/errors")).unwrap(),
        ""
    );
    assert_eq!(fs::read_to_string(log).unwrap(), "");
}
