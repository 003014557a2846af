//! Tests `zarrfs check` as a command: output, JSON, exit status, and the manual's examples.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::checks::stores::{put, v2_consolidated, v3, write_to};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn run(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
    command.current_dir(root()).args(args).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Writes a store for which a check reports an error, a warning and a key with control characters.
fn damaged(folder: &Path) -> String {
    let store = v3();
    let member = ("zarr_format", json!(4));
    let mut document: Value =
        serde_json::from_slice(&crate::checks::stores::bytes(&store, "a/b/zarr.json")).unwrap();
    document[member.0] = member.1;
    put(&store, "a/b/zarr.json", document);
    put(&store, "a/\u{1b}[2J", json!({}));
    write_to(&store, &folder.join("s.zarr"));
    folder.join("s.zarr").to_str().unwrap().to_string()
}

#[test]
fn the_samples_are_healthy() {
    let output = run(&["check", "--data", "samples/climate.zarr"]);
    let place = root().join("samples/climate.zarr");
    let line =
        "v3, 7 arrays in 2 groups, 54 names, 17 chunks decoded: 0 errors, 0 warnings, 0 advice";
    assert_eq!(text(&output), format!("{}: {line}\n", place.display()));
    assert_eq!(
        (output.status.code(), output.stderr.as_slice()),
        (Some(0), b"".as_slice())
    );
    for name in ["relief", "cells"] {
        let output = run(&["check", "--data", &format!("samples/{name}.zarr")]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        assert!(text(&output).ends_with("0 errors, 0 warnings, 0 advice\n"));
    }
}

#[test]
fn each_finding_begins_a_line_and_errors_are_the_exit_status() {
    let folder = tempfile::tempdir().unwrap();
    let place = damaged(folder.path());
    let output = run(&["check", &place]);
    let lines = [
        "warning: a/\\u{1b}[2J: stray file: belongs to no array or group".to_string(),
        "error: a/b/zarr.json: zarr_format is 4, but must be 3".to_string(),
        "    see Zarr v3 core 3.1, \"Array metadata\"".to_string(),
        format!("{place}: v3, 0 arrays in 2 groups, 5 names: 1 error, 1 warning, 0 advice"),
    ];
    let expected: String = lines.iter().map(|line| format!("{line}\n")).collect();
    assert_eq!(text(&output), expected);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn json_has_every_field_of_a_finding() {
    let folder = tempfile::tempdir().unwrap();
    let place = damaged(folder.path());
    let output = run(&["check", "--json", &place]);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["store"], json!(place));
    assert_eq!(found["findings"][0]["key"], json!("a/\u{1b}[2J"));
    let error = json!({
        "severity": "error", "code": "member-invalid", "key": "a/b/zarr.json", "part": "zarr_format",
        "message": "zarr_format is 4, but must be 3", "remedy": null, "specification": "Zarr v3 core 3.1", "section": "Array metadata",
        "habit": null,
    });
    assert_eq!(found["findings"][1], error);
    assert_eq!(found["summary"]["errors"], json!(1));
    assert_eq!(found["summary"]["dialects"], json!(["v3"]));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn names_in_json_have_no_control_characters() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("s \u{9b}2J.zarr");
    let store = v3();
    put(&store, "a/\u{9b}2J\u{202e}", json!({}));
    write_to(&store, &place);
    let output = text(&run(&["check", "--json", place.to_str().unwrap()]));
    assert!(!output.contains(['\u{9b}', '\u{202e}']), "{output}");
    let found: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(found["store"], json!(place));
    assert_eq!(found["findings"][0]["key"], json!("a/\u{9b}2J\u{202e}"));
}

#[test]
fn a_node_is_checked_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let store = v2_consolidated();
    put(&store, "stray", json!({}));
    write_to(&store, folder.path());
    let place = folder.path().to_str().unwrap();
    let whole = text(&run(&["check", place]));
    assert!(whole.contains("warning: stray:"), "{whole}");
    let part = run(&["check", &format!("{place}/a")]);
    assert!(!text(&part).contains("warning:"), "{}", text(&part));
    assert_eq!(part.status.code(), Some(0));
}

#[test]
fn a_store_that_cannot_be_opened_is_an_error_of_one_line() {
    for args in [
        &["check", "/none/at/all"][..],
        &["check"],
        &["check", "samples/climate.zarr/none"],
    ] {
        let output = run(args);
        let line = String::from_utf8(output.stderr).unwrap();
        assert!(
            line.starts_with("zarrfs: ") && line.lines().count() == 1,
            "{line}"
        );
        assert_eq!(
            (output.status.code(), output.stdout.as_slice()),
            (Some(2), b"".as_slice())
        );
    }
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let store = v3();
    for number in 0..500 {
        put(&store, &format!("stray{number}"), json!({}));
    }
    write_to(&store, folder.path());
    let mut child = Command::new(env!("CARGO_BIN_EXE_zarrfs"))
        .args(["check", folder.path().to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), output.stderr.as_slice()),
        (Some(0), b"".as_slice())
    );
}

/// Invariant of `each_kind_of_damage_is_found`.
#[test]
fn a_check_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let place = damaged(folder.path());
    let state = || {
        let command = Command::new("find")
            .args([&place, "-printf", "%p %s %T@ %C@\n"])
            .output();
        command.unwrap().stdout
    };
    let before = state();
    run(&["check", "--data", &place]);
    assert!(before == state());
}
