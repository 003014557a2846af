//! Compares each array of the shared corpus with its manifest, through the files view.
//!
//! Arrays in dialects that zarrfs does not read or with unsupported codecs do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest, Sha256};
use zarr_format::error::Kind;
use zarrfs::mount::open::ViewKind;
use zarrfs::view::View;
use zarrfs_store::request_context::UNLIMITED;
use zarrfs_store::{EntryKind, Key};
use zarrs::array::{Array, ArrayBytes, ArraySubset};
use zarrs::filesystem::FilesystemStore;

use crate::common;

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

/// Compares an array with its entry in the manifest. Returns `ok`, `wrong`, `unsupported` or the text of an error.
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

/// Copies the directory of a node into a local folder, without those of child nodes.
fn copy_node(view: &Arc<dyn View>, path: &Key, folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    let mut listing = view.list(&UNLIMITED, path).unwrap();
    while let Some(name) = listing.next(&UNLIMITED).unwrap() {
        let child = path.child(&name.name).unwrap();
        let place = folder.join(String::from_utf8(name.name).unwrap());
        if name.kind == EntryKind::Directory {
            copy_node(view, &child, &place);
        } else {
            let bytes = common::read(view, &child.to_string()).unwrap();
            std::fs::write(place, bytes).unwrap();
        }
    }
}

/// Returns the elements of a copied array as the zarrs crate reads them, or the reason why it cannot.
fn read_by_zarrs(folder: &Path) -> Result<Vec<u8>, String> {
    let store = Arc::new(FilesystemStore::new(folder).unwrap());
    let array = Array::open(store, "/").map_err(|error| error.to_string())?;
    let whole = ArraySubset::new_with_shape(array.shape().to_vec());
    let bytes = array.retrieve_array_subset::<ArrayBytes>(&whole);
    let bytes = bytes.map_err(|error| error.to_string())?;
    Ok(bytes
        .into_fixed()
        .map_err(|error| error.to_string())?
        .into_owned())
}

/// Data types of Zarr v3 that the zarrs crate does not support.
const NOT_OF_ZARRS: [&str; 3] = ["null_terminated_bytes", "raw_bytes", "structured"];

#[test]
fn zarrs_reads_the_corpus_through_the_plain_view() {
    let Some(corpus) = common::needs::shared("corpus") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    common::unpack_corpus(&corpus, folder.path());
    let manifest = std::fs::read_to_string(corpus.join("manifest.jsonl")).unwrap();
    let (mut refused, mut equal) = (BTreeSet::new(), 0);
    let mut opened: Option<(std::path::PathBuf, Arc<dyn View>)> = None;
    for (number, line) in manifest.lines().enumerate() {
        let entry: Value = serde_json::from_str(line).unwrap();
        if text(&entry, "expect") != "ok"
            || entry["sha256"].is_null()
            || !entry["regions"].is_null()
        {
            continue;
        }
        let store = folder
            .path()
            .join(text(&entry, "source"))
            .join(text(&entry, "store"));
        let view = match &opened {
            Some((last, view)) if *last == store => view.clone(),
            _ => {
                let view = common::open(&store).unwrap().0.view(ViewKind::V3);
                opened = Some((store, view.clone()));
                view
            }
        };
        let copied = folder.path().join(number.to_string());
        let path = Key::new(text(&entry, "array").trim_matches('/')).unwrap();
        if path.name() == b"zarr.json" {
            // The name is not valid for a node in Zarr v3.
            continue;
        }
        copy_node(&view, &path, &copied);
        match read_by_zarrs(&copied) {
            Ok(bytes) => {
                assert_eq!(sum(&bytes), text(&entry, "sha256"), "{}", entry["id"]);
                equal += 1;
            }
            Err(_) => {
                let document = std::fs::read(copied.join("zarr.json")).unwrap();
                let document: Value = serde_json::from_slice(&document).unwrap();
                let name = &document["data_type"];
                let name = name.as_str().or(name["name"].as_str()).unwrap();
                refused.insert(name.to_string());
            }
        }
        std::fs::remove_dir_all(copied).unwrap();
    }
    assert!(equal > 500, "{equal}");
    assert_eq!(refused, BTreeSet::from(NOT_OF_ZARRS.map(String::from)));
}
