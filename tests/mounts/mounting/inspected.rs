//! Tests commands that read stores, on paths in a mount.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::scripted::{Answer, Scripted, answer};
use crate::mounting::fixture::{Fixture, PROGRAM};

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("samples")
        .join(name)
}

/// Runs a zarrfs command that must succeed; returns its output.
fn printed(args: &[&str]) -> String {
    let mut command = Command::new(PROGRAM);
    command.args(args).env("NO_COLOR", "1");
    let output = command.env_remove("COLUMNS").output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the output of `zarrfs info` without the lines that name the store.
fn facts(path: &str) -> Vec<String> {
    let text = printed(&["info", path]);
    let is_place = |line: &&str| line.starts_with("  store  ") || line.starts_with("  metadata  ");
    let lines = text.lines().filter(|line| !is_place(line));
    // `info` prints keys relative to the root of the store that was opened, which is the array itself if its path is
    // given.
    lines.map(|line| line.replace("tas/c/", "c/")).collect()
}

#[test]
fn a_path_in_a_mount_is_read_by_the_mount() {
    let Some(mut fixture) = Fixture::new() else {
        return;
    };
    fixture.store = sample("climate.zarr");
    fixture.mount(&["--cow", fixture.path("upper").to_str().unwrap()]);
    let (dir, source) = (fixture.dir.to_str().unwrap(), &fixture.store);
    let tas = source.join("tas");
    for path in [
        "tas",
        ".zarrfs/store/tas",
        ".zarrfs/files/tas",
        ".zarrfs/files/tas/tas.npy",
        ".zarrfs/files/tas/chunks",
    ] {
        let found = facts(&format!("{dir}/{path}"));
        assert_eq!(found, facts(tas.to_str().unwrap()), "{path}");
    }
    let title = printed(&["tree", dir]);
    assert!(title.starts_with(source.to_str().unwrap()), "{title}");
    // The commands see uncommitted changes of the mount.
    fs::remove_file(fixture.dir.join("tas/c/0/0/0")).unwrap();
    let text = printed(&["map", &format!("{dir}/tas")]);
    assert!(text.contains("7 of 8 chunks stored"), "{text}");
    let text = printed(&["stats", "--prometheus", dir]);
    assert!(
        text.contains("# TYPE zarrfs_memory_held_bytes gauge"),
        "{text}"
    );
    let text = printed(&["stats", "--json", dir]);
    let counters: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(counters["lookup_requests"].as_u64() > Some(0));
    assert!(printed(&["stats", dir]).lines().count() > 30);
}

/// Answers a request with a file of a folder; listings are not supported.
fn file(folder: &Path, target: &str) -> Answer {
    match fs::read(folder.join(target.trim_start_matches('/'))) {
        Ok(bytes) => answer(200, &bytes),
        Err(_) => answer(404, b""),
    }
}

#[test]
fn info_of_a_mount_without_listings_says_unknown() {
    let Some(mut fixture) = Fixture::new() else {
        return;
    };
    let folder = sample("");
    let server = Scripted::start(move |_, request| file(&folder, &request.target));
    let url = format!("http://{}/climate.zarr", server.address);
    fixture.store = url.clone().into();
    fixture.mount(&[]);
    let path = fixture.dir.join("tas");
    let text = printed(&["info", path.to_str().unwrap()]);
    assert!(text.contains("stored           unknown: "), "{text}");
    let store = format!("store            {url}/tas\n");
    assert!(text.contains(&store), "{text}");
    let select = |path: &Path| printed(&["cat", "--select", "0,0,:3", path.to_str().unwrap()]);
    assert_eq!(select(&path), select(&sample("climate.zarr/tas")));
}
