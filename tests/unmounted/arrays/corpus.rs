//! Compares each array of the shared corpus with its manifest, through the files view.
//!
//! Arrays of other dialects or with unsupported codecs do not count.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use sha2::{Digest, Sha256};
use zarr_format::error::Kind;
use zarrfs::view::View;

use crate::common;

/// Dialects that zarrfs reads.
const DIALECTS: [&str; 5] = ["v2", "v3", "v3-2019", "v3-2020", "v3-2022"];

fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn text<'a>(entry: &'a Value, member: &str) -> &'a str {
    entry[member].as_str().unwrap_or_default()
}

/// Returns the result: `ok`, `wrong`, `unsupported` or the text of an error.
fn check(view: &std::sync::Arc<dyn View>, root: &str, entry: &Value) -> String {
    let node = text(entry, "array").trim_matches('/');
    let name = if node.is_empty() {
        root
    } else {
        node.rsplit('/').next().unwrap()
    };
    let raw = format!("{node}/{name}.raw");
    match common::read(view, raw.trim_start_matches('/')) {
        Ok(bytes) if sum(&bytes) == text(entry, "sha256") => "ok".to_string(),
        Ok(_) => "wrong".to_string(),
        Err(error) if error.kind() == Kind::Unsupported => format!("unsupported: {error}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_corpus_reads_as_its_manifest_says() {
    let Some(corpus) = common::needs::shared("corpus") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    common::unpack_corpus(&corpus, folder.path());
    let manifest = std::fs::read_to_string(corpus.join("manifest.jsonl")).unwrap();
    let mut table: BTreeMap<(String, String), u32> = BTreeMap::new();
    let mut faults = Vec::new();
    for line in manifest.lines() {
        let entry: Value = serde_json::from_str(line).unwrap();
        let in_scope = DIALECTS.contains(&text(&entry, "dialect"))
            && ["directory", "zip"].contains(&text(&entry, "store_kind"));
        if !in_scope || entry["sha256"].is_null() {
            continue;
        }
        let store = folder
            .path()
            .join(text(&entry, "source"))
            .join(text(&entry, "store"));
        let root = Path::new(&store)
            .file_name()
            .unwrap()
            .to_string_lossy()
            .into_owned();
        let root = root
            .trim_end_matches(".zip")
            .trim_end_matches(".zarr")
            .to_string();
        let found = match common::open(&store) {
            Ok((faces, _)) => check(
                &faces.view(zarrfs::mount::open::ViewKind::Files),
                &root,
                &entry,
            ),
            Err(error) => error.to_string(),
        };
        let short = found.split(':').next().unwrap_or_default();
        let short = if ["ok", "wrong", "unsupported"].contains(&short) {
            short
        } else {
            "error"
        };
        *table
            .entry((text(&entry, "dialect").to_string(), short.to_string()))
            .or_default() += 1;
        let fine = match text(&entry, "expect") {
            "ok" => found == "ok" || found.starts_with("unsupported"),
            "optional" => found != "wrong",
            "error" => found != "ok" && found != "wrong",
            _ => true,
        };
        if !fine || std::env::var_os("CORPUS_VERBOSE").is_some() && found != "ok" {
            println!("{}: {} {found}", text(&entry, "id"), entry["stored"]);
        }
        if !fine {
            faults.push(text(&entry, "id").to_string());
        }
    }
    for ((dialect, found), count) in &table {
        println!("{dialect:8} {found:12} {count}");
    }
    assert!(faults.is_empty(), "{faults:#?}");
}
