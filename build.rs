//! Appends the commit to the version that `zarrfs --version` prints.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    // Development builds have no commit, so that they are not compiled again after each commit.
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let text = match commit().filter(|_| is_release) {
        Some(commit) => format!("{version} ({commit})"),
        None => version,
    };
    println!("cargo::rustc-env=ZARRFS_VERSION={text}");
}

/// Returns the short name of the commit; `None` outside of a clone.
fn commit() -> Option<String> {
    let head = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    println!("cargo::rerun-if-changed={head}");
    git(&["rev-parse", "--short=10", "HEAD"])
}

fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_string())
}
