//! Tests stores with their own `.zarrfs` folder: it is shown, but never trusted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::mounting::fixture::{Fixture, PROGRAM, stderr};

fn zarrfs(words: &[&str]) -> Output {
    Command::new(PROGRAM).args(words).output().unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn done(words: &[&str]) -> String {
    let output = zarrfs(words);
    assert_eq!(
        (output.status.code(), stderr(&output)),
        (Some(0), String::new()),
        "{words:?}"
    );
    String::from_utf8(output.stdout).unwrap()
}

fn refused(words: &[&str]) -> String {
    let output = zarrfs(words);
    assert_eq!(output.status.code(), Some(2), "{words:?}");
    stderr(&output).trim_end().to_string()
}

fn changes(place: &Path) -> String {
    let output = zarrfs(&["diff", text(place)]);
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stdout).unwrap()
}

/// Puts a folder `.zarrfs` with these files into the store.
fn put_control(fixture: &Fixture, files: &[(&str, &str)]) {
    let control = fixture.store.join(".zarrfs");
    fs::create_dir(&control).unwrap();
    for (name, content) in files {
        fs::write(control.join(name), content).unwrap();
    }
}

/// Returns another store and its upper folder, which has one change; files in the fixture's store claim that the upper
/// folder belongs to that store.
fn forged(fixture: &Fixture) -> (PathBuf, PathBuf) {
    let (other, upper) = (fixture.path("other.zarr"), fixture.path("other upper"));
    fs::create_dir(&other).unwrap();
    fs::copy(fixture.store.join("zarr.json"), other.join("zarr.json")).unwrap();
    let second = text(&fixture.second);
    done(&["mount", text(&other), second, "--cow", text(&upper)]);
    fs::write(fixture.second.join("precious"), "1").unwrap();
    done(&["umount", second]);
    let said = serde_json::json!({"source": "x", "options": {"cow": upper, "view": "store"}});
    put_control(
        fixture,
        &[("mount.json", &said.to_string()), ("errors", "a\nb\n")],
    );
    (other, upper)
}

#[test]
fn a_mount_of_a_mount_has_its_own_changes() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let (first, upper) = (fixture.path("first upper"), fixture.path("upper"));
    fixture.mount(&["--cow", text(&first)]);
    let (dir, second) = (text(&fixture.dir), text(&fixture.second));
    done(&["mount", dir, second, "--cow", text(&upper)]);
    fs::write(fixture.dir.join("precious"), "1").unwrap();
    fs::write(fixture.second.join("scratch"), "2").unwrap();
    assert!(changes(&fixture.dir).contains("precious"));
    done(&["discard", "--all", second]);
    assert_eq!(fs::read(fixture.dir.join("precious")).unwrap(), b"1");
    assert!(!fixture.second.join("scratch").exists());
    fs::write(fixture.second.join("scratch"), "2").unwrap();
    // The first mount may accept or refuse these writes, but the changes of the first mount must not be committed.
    zarrfs(&["commit", second]);
    assert!(changes(&fixture.dir).contains("precious"));
    assert!(!fixture.store.join("precious").exists());
    done(&["umount", second]);
}

#[test]
fn a_forged_control_directory_in_a_store_is_not_trusted() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let (other, upper) = forged(&fixture);
    let store = text(&fixture.store);
    let changed = || fs::read_to_string(other.join("precious")).is_ok();
    for command in ["status", "diff", "commit", "discard"] {
        let why = refused(&[command, store]);
        assert!(
            why.ends_with("neither a zarrfs mount nor a changes directory"),
            "{why}"
        );
    }
    assert!(refused(&["stats", store]).ends_with("is not a mount of zarrfs"));
    fixture.mount(&[]);
    let dir = text(&fixture.dir);
    assert!(fixture.dir.join(".zarrfs/mount.json").is_file());
    for command in ["diff", "commit", "discard"] {
        assert!(
            refused(&[command, dir]).ends_with("mounted without --cow, so there are no changes")
        );
    }
    assert_eq!(
        done(&["status", dir]),
        format!("{store}: mounted read-only\n")
    );
    let why = refused(&["status", text(&fixture.dir.join("a"))]);
    assert!(why.contains("; use the mountpoint "), "{why}");
    let listed = done(&["list"]);
    let line = listed.lines().find(|line| line.contains(dir)).unwrap();
    assert!(
        line.starts_with(store) && line.ends_with("read-only"),
        "{line}"
    );
    assert!(!changed());
    assert!(changes(&upper).contains("precious"));
}

#[test]
fn commands_work_if_the_store_has_its_own_zarrfs_folder() {
    for files in [
        &[][..],
        &[("mount.json", "")],
        &[("mount.json", "{\"options\": {\"cow\": \"/\"}}")],
    ] {
        let Some(fixture) = Fixture::new() else {
            return;
        };
        put_control(&fixture, files);
        let upper = fixture.path("upper");
        fixture.mount(&["--cow", text(&upper)]);
        let dir = text(&fixture.dir);
        fs::write(fixture.dir.join("a/c/0"), [1; 16]).unwrap();
        assert!(done(&["status", dir]).contains("1 changed"));
        assert!(done(&["stats", dir, "--json"]).contains("read_bytes"));
        assert!(done(&["tree", dir]).contains('a'));
        assert!(done(&["info", &format!("{dir}/a")]).contains("int32"));
        assert!(done(&["ls", dir]).contains('a'));
        let listed = done(&["list"]);
        let line = listed.lines().find(|line| line.contains(dir)).unwrap();
        assert!(line.ends_with("1 change pending"), "{line}");
        let copy = fixture.path("copy.zarr");
        done(&["commit", dir, "--to", text(&copy)]);
        assert_eq!(fs::read(copy.join("a/c/0")).unwrap(), [1; 16]);
        done(&["commit", dir]);
        assert_eq!(fs::read(fixture.store.join("a/c/0")).unwrap(), [1; 16]);
    }
}
