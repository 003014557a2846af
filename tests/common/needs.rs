//! What tests need of the machine: root, /dev/fuse, servers, programs, folders that only some machines have.
//!
//! A test fails where something that it needs is missing, unless the variable `ZARRFS_TEST_SKIP` names it: words
//! with a blank or a comma between them. What was skipped is appended to the file that `ZARRFS_TEST_SKIPPED`
//! names, from which `scripts/test` prints one line at its end.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each program of tests uses a part of it"
)]

use std::env;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Whether `ZARRFS_TEST_SKIP` names one of these words.
fn is_named(words: &[&str]) -> bool {
    let named = env::var("ZARRFS_TEST_SKIP").unwrap_or_default();
    named
        .split([' ', ','])
        .any(|word| !word.is_empty() && words.contains(&word))
}

/// Records that tests were skipped for want of something; one line a test, in one write.
fn record(word: &str) {
    println!("skipped: needs {word}");
    if let Some(path) = env::var_os("ZARRFS_TEST_SKIPPED") {
        let file = OpenOptions::new().append(true).create(true).open(path);
        file.unwrap()
            .write_all(format!("{word}\n").as_bytes())
            .unwrap();
    }
}

/// Whether a test runs that needs what the first word says, which comes as `source` tells; any of the words skips it.
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

/// Whether a test runs that only root can do.
pub fn root() -> bool {
    needs(&["root"], "", rustix::process::geteuid().is_root())
}

/// Whether a test runs that mounts by the kernel, as root.
pub fn mounts() -> bool {
    root() && needs(&["fuse"], "", File::open("/dev/fuse").is_ok())
}

/// Whether a test runs that needs a program or file of the system.
pub fn program(name: &str, is_here: bool) -> bool {
    needs(&[name], "", is_here)
}

/// Whether a test runs that needs the server of which a variable of `scripts/servers` tells the address:
/// `ZARRFS_TEST_S3` is that of `s3`, `ZARRFS_TEST_NGINX_AUTOINDEX` that of `nginx`. The word `servers` stands for all.
pub fn server(variable: &str) -> bool {
    let name = variable.trim_start_matches("ZARRFS_TEST_").to_lowercase();
    let name = name.split('_').next().unwrap_or_default();
    let source = " (scripts/servers COMMAND runs a command beside it)";
    needs(&[name, "servers"], source, env::var_os(variable).is_some())
}

/// Returns a folder of `../shared`. A clone of the project alone has none: tests on it are then skipped, whether or
/// not `ZARRFS_TEST_SKIP` names `shared`.
pub fn shared(name: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared");
    let path = folder.join(name);
    if path.exists() && !is_named(&["shared"]) {
        return Some(path);
    }
    record("shared");
    None
}
