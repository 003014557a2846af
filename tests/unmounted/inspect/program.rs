//! Runs zarrfs as a child process, and compares its output with golden files.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_zarrfs");

pub(crate) fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("samples")
        .join(name)
}

/// Returns the command that runs zarrfs with the given arguments and without colours.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(args);
    command
        .env("NO_COLOR", "1")
        .env_remove("COLUMNS")
        .env("LC_ALL", "C.UTF-8");
    command
}

pub(crate) fn run(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

/// Runs zarrfs, which must succeed, and returns its output.
pub(crate) fn printed(args: &[&str]) -> String {
    let output = run(args);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs zarrfs, which must fail with status 2, and returns the only line on stderr.
pub(crate) fn failed(args: &[&str]) -> String {
    let output = run(args);
    assert_eq!(output.status.code(), Some(2), "{args:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.lines().count(), 1, "{args:?}: {text}");
    text.trim_start_matches("zarrfs: ").trim_end().to_string()
}

/// Replaces the characters that draw trees by similar ASCII characters, and other non-ASCII characters by escapes.
fn ascii(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        match letter {
            '\u{251c}' => out.push('+'),
            '\u{2514}' => out.push('`'),
            '\u{2500}' => out.push('-'),
            '\u{2502}' => out.push('|'),
            letter if letter.is_ascii() => out.push(letter),
            letter => out.extend(letter.escape_unicode()),
        }
    }
    out
}

/// Compares a text with a golden file. If the variable `BLESS` is set, rewrites the golden file instead.
pub(crate) fn compare(name: &str, text: &str) {
    let text = ascii(text);
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/unmounted/inspect/golden")
        .join(name);
    if env::var_os("BLESS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    let first = golden
        .lines()
        .zip(text.lines())
        .find(|(old, new)| old != new);
    assert!(
        golden == text,
        "{name} differs, first in {first:#?}; BLESS=1 writes it"
    );
}

pub(crate) fn store(folder: &Path, files: &[(&str, &[u8])]) {
    for (key, bytes) in files {
        let path = folder.join(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

pub(crate) fn array(shape: &[u64], chunk: &[u64]) -> String {
    format!(
        r#"{{"zarr_format": 3, "node_type": "array", "shape": {shape:?}, "data_type": "uint8",
        "chunk_grid": {{"name": "regular", "configuration": {{"chunk_shape": {chunk:?}}}}},
        "chunk_key_encoding": {{"name": "default"}}, "fill_value": 0, "codecs": [{{"name": "bytes"}}]}}"#
    )
}

pub(crate) const GROUP: &[u8] = br#"{"zarr_format": 3, "node_type": "group"}"#;
