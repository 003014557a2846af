//! Checks the requirements of tests: root, /dev/fuse, servers, programs, optional folders.
//!
//! A test fails if one of its requirements is missing, unless the variable `ZARRFS_TEST_SKIP` names the requirement:
//! words separated by blanks or commas. Each skip is appended to the file in `ZARRFS_TEST_SKIPPED`; `scripts/test`
//! prints a one-line summary of the skips at its end.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each program of tests uses a part of it"
)]

use std::env;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Whether `ZARRFS_TEST_SKIP` contains one of these words.
fn is_named(words: &[&str]) -> bool {
    let named = env::var("ZARRFS_TEST_SKIP").unwrap_or_default();
    named
        .split([' ', ','])
        .any(|word| !word.is_empty() && words.contains(&word))
}

/// Records that a test was skipped because of a missing requirement: one line per test, in one write.
fn record(word: &str) {
    println!("skipped: needs {word}");
    if let Some(path) = env::var_os("ZARRFS_TEST_SKIPPED") {
        let file = OpenOptions::new().append(true).create(true).open(path);
        file.unwrap()
            .write_all(format!("{word}\n").as_bytes())
            .unwrap();
    }
}

/// Whether a test with the requirement `words[0]` runs. Each of the words in `ZARRFS_TEST_SKIP` skips the test;
/// `source` says how to get the requirement.
fn needs(words: &[&str], source: &str, is_here: bool) -> bool {
    if is_named(words) {
        record(words[0]);
        return false;
    }
    let word = words[0];
    assert!(
        is_here,
        "needs {word}, which is missing{source}; ZARRFS_TEST_SKIP={word} skips what needs it"
    );
    true
}

pub fn root() -> bool {
    needs(&["root"], "", rustix::process::geteuid().is_root())
}

/// Whether a test that mounts through the kernel, as root, runs.
pub fn mounts() -> bool {
    root() && needs(&["fuse"], "", File::open("/dev/fuse").is_ok())
}

/// Whether a test that needs a program or file of the system runs.
pub fn program(name: &str, is_here: bool) -> bool {
    needs(&[name], "", is_here)
}

/// Whether a test that needs a server runs. `variable` holds the server's address, as set by `scripts/servers`:
/// `ZARRFS_TEST_S3` for the server `s3`, `ZARRFS_TEST_NGINX_AUTOINDEX` for `nginx`. The word `servers` skips the tests
/// of all servers.
pub fn server(variable: &str) -> bool {
    let name = variable.trim_start_matches("ZARRFS_TEST_").to_lowercase();
    let name = name.split('_').next().unwrap_or_default();
    let source = " (scripts/servers COMMAND runs a command beside it)";
    needs(&[name, "servers"], source, env::var_os(variable).is_some())
}

/// Returns a folder of `../shared`. A clone of the project alone has no `../shared`: tests that need it are then
/// skipped, whether or not `ZARRFS_TEST_SKIP` names `shared`.
pub fn shared(name: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared");
    let path = folder.join(name);
    if path.exists() && !is_named(&["shared"]) {
        return Some(path);
    }
    record("shared");
    None
}
