//! Tests that `--fix` rebuilds consolidated metadata and writes nothing else.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use zarr_check::{Finding, rebuild_consolidated};
use zarr_format::error::{Kind, Result};
use zarrfs_array::hierarchy::ReconsolidatedDocument;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::layer::Layer;
use zarrfs_store::{Condition, ETag, Key, PutBody, Store};

use crate::checks::fixture::{How, context, open, run};
use crate::checks::stores::*;
use crate::common;
use zarrfs_store::request_context::{RequestContext, UNLIMITED};

fn rebuild(store: Arc<dyn Store>, path: &str) -> Result<Vec<ReconsolidatedDocument>> {
    let context = context(store, How::default());
    let start = context
        .hierarchy
        .node(&UNLIMITED, &Key::new(path).unwrap())?
        .unwrap();
    rebuild_consolidated(&context, &start)
}

fn faults(store: Arc<dyn Store>) -> Vec<String> {
    let (findings, _) = run(store, How::default());
    let told = findings
        .iter()
        .filter(|finding| finding.code.starts_with("consolidated"));
    told.map(Finding::to_text).collect()
}

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_string_lossy();
                found.insert(name.into_owned(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// Returns the store `v2_consolidated` with consolidated metadata in the group `a` too, which are wrong.
fn v2_nested() -> MemoryStore {
    let store = v2_consolidated();
    let copies = json!({".zgroup": {"zarr_format": 2}, "x/.zarray": {}, "../b": {}});
    let document = json!({"metadata": copies, "zarr_consolidated_format": 1});
    put(&store, "a/.zmetadata", document);
    store
}

/// Returns the store `v3_consolidated` with consolidated metadata in the group `a` too, which are wrong.
fn v3_nested() -> MemoryStore {
    let store = v3_consolidated();
    let member = json!({"kind": "inline", "metadata": {"gone": {}, "b/": {}, "/b": {"x": 1}}});
    set("a/zarr.json", "consolidated_metadata", member)(&store);
    store
}

/// Returns a hierarchy of the Zarr v3 draft of 2020 whose consolidated metadata have a copy of a missing document.
fn drafted() -> MemoryStore {
    let store = draft2020();
    let copies = json!({"meta/root/x.array.json": {}});
    let document = json!({"metadata": copies, "zarr_consolidated_format": 1});
    put(&store, "meta/root/consolidated/.zmetadata", document);
    store
}

/// Invariant (checks): Rebuilt consolidated metadata are correct, and keep what another program writes at the same
/// time.
#[test]
fn rebuilt_consolidated_metadata_have_no_faults() {
    let number: &[u8] = br#"{"n": NaN, "i": 123456789012345678901234567890, "f": 1.0, "e": 1e5}"#;
    let nothing = || both(holds("stray", b""), erases("stray"));
    let rows: Vec<(fn() -> MemoryStore, Damage)> = vec![
        (v2, nothing()),
        (v3, nothing()),
        (draft2020, nothing()),
        (drafted, nothing()),
        (v2_nested, nothing()),
        (v3_nested, nothing()),
        (v2_consolidated, set("a/b/.zattrs", "foo", json!(43))),
        (v2_consolidated, adds("a/.zattrs", json!({}))),
        (v2_consolidated, holds("a/.zattrs", number)),
        (v2_consolidated, erases("a/b/.zattrs")),
        (v2_consolidated, holds("a/b/.zattrs", b"no JSON")),
        (
            v2_consolidated,
            set(".zmetadata", "zarr_consolidated_format", json!(2)),
        ),
        (v2_consolidated, holds(".zmetadata", b"{")),
        (
            v2_consolidated,
            holds(
                ".zmetadata",
                br#"{"metadata": {"a": 1, "a": 2}, "zarr_consolidated_format": 1}"#,
            ),
        ),
        (v2_consolidated, copies("a/.zgroup", "c/d/.zgroup")),
        (v3_consolidated, copies("a/zarr.json", "new/zarr.json")),
        (v3_consolidated, erases("a/b/zarr.json")),
        (
            v3_consolidated,
            set(
                "zarr.json",
                "consolidated_metadata/kind",
                json!("elsewhere"),
            ),
        ),
        (
            v3_consolidated,
            set("zarr.json", "consolidated_metadata", json!([])),
        ),
        (
            v3_consolidated,
            set("zarr.json", "consolidated_metadata", json!(null)),
        ),
        (v3_consolidated, holds("a/b/zarr.json", b"\xff")),
        // The folder has documents of two dialects, and a node below it has a third dialect.
        (
            v3_consolidated,
            both(
                copies("zarr.json", "old/zarr.json"),
                adds("a/.zgroup", json!({"zarr_format": 2})),
            ),
        ),
        (
            v3_consolidated,
            both(
                adds("old/.zgroup", json!({"zarr_format": 2})),
                adds("a/.zattrs", json!({})),
            ),
        ),
        (
            v2_consolidated,
            adds(
                "new/zarr.json",
                json!({"zarr_format": 3, "node_type": "group"}),
            ),
        ),
    ];
    for (number, (store, damage)) in rows.into_iter().enumerate() {
        let store = store();
        damage(&store);
        let folder = tempfile::tempdir().unwrap();
        write_to(&store, folder.path());
        let before = files(folder.path());
        let done = rebuild(open(folder.path()), "").unwrap();
        assert_eq!(faults(open(folder.path())), [""; 0], "row {number}");
        let mut after = files(folder.path());
        for rebuilt in &done {
            let key = rebuilt.key.to_string();
            let is_same = before.get(&key) == after.remove(&key).as_ref();
            assert_eq!(is_same, !rebuilt.is_put, "row {number}: {rebuilt:?}");
        }
        let others =
            |(key, _): &(&String, &Vec<u8>)| done.iter().all(|done| done.key.to_string() != **key);
        assert!(
            before.iter().filter(others).eq(after.iter()),
            "row {number}"
        );
        let again = rebuild(open(folder.path()), "").unwrap();
        assert!(
            again.iter().all(|rebuilt| !rebuilt.is_put),
            "row {number}: {again:?}"
        );
    }
}

#[test]
fn rebuilt_copies_keep_the_spelling_of_numbers_and_texts() {
    let attributes = "{\"n\": NaN, \"i\": 123456789012345678901234567890, \"f\": 1.0, \"e\": -1e+05, \"s\": \"\\u00e4\"}";
    let group =
        format!("{{\"zarr_format\":3,\"node_type\":\"group\",\"attributes\":{attributes}}}");
    let v3 = v3();
    v3.set(
        crate::dialects::hierarchies::key("a/zarr.json"),
        group.into_bytes(),
    );
    let v2 = v2_consolidated();
    v2.set(
        crate::dialects::hierarchies::key("a/.zattrs"),
        attributes.as_bytes().to_vec(),
    );
    for (store, name) in [(v3, "zarr.json"), (v2, ".zmetadata")] {
        let folder = tempfile::tempdir().unwrap();
        write_to(&store, folder.path());
        rebuild(open(folder.path()), "").unwrap();
        let text = fs::read_to_string(folder.path().join(name)).unwrap();
        let tight: String = text.split_whitespace().collect();
        let expected: String = attributes.split_whitespace().collect();
        assert!(tight.contains(&expected), "{text}");
    }
}

#[test]
fn copies_of_groups_have_no_consolidated_metadata() {
    let folder = tempfile::tempdir().unwrap();
    write_to(&v3_nested(), folder.path());
    let done = rebuild(open(folder.path()), "").unwrap();
    let root: Value =
        serde_json::from_slice(&fs::read(folder.path().join("zarr.json")).unwrap()).unwrap();
    let none = json!({"kind": "inline", "must_understand": false, "metadata": {}});
    let copies = &root["consolidated_metadata"]["metadata"];
    assert_eq!(copies["a"]["consolidated_metadata"], none);
    assert_eq!(copies["a/b"]["consolidated_metadata"], Value::Null);
    let counts: Vec<_> = done
        .iter()
        .map(|done| (done.made, done.changed, done.removed))
        .collect();
    assert_eq!(counts, [(0, 1, 0), (1, 0, 3)]);
}

/// A store, the path of a node, and the kind of the error of a rebuild.
type Refused = (fn() -> MemoryStore, &'static str, Kind);

#[test]
fn a_node_without_consolidated_metadata_is_refused() {
    let rows: [Refused; 6] = [
        (n5, "", Kind::Unsupported),
        (draft2022, "", Kind::Unsupported),
        (draft2020, "a", Kind::Invalid),
        (v3, "a/b", Kind::Invalid),
        (v2, "a/b", Kind::Invalid),
        (sharded, "", Kind::Invalid),
    ];
    for (store, path, kind) in rows {
        let folder = tempfile::tempdir().unwrap();
        write_to(&store(), folder.path());
        let before = files(folder.path());
        assert_eq!(
            rebuild(open(folder.path()), path).unwrap_err().kind(),
            kind,
            "{path}"
        );
        assert_eq!(files(folder.path()), before);
    }
    let folder = tempfile::tempdir().unwrap();
    let store = v3();
    holds(
        "zarr.json",
        br#"{"zarr_format": 3, "node_type": "group", "x": 1, "x": 2}"#,
    )(&store);
    write_to(&store, folder.path());
    let error = rebuild(open(folder.path()), "").unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().starts_with("zarr.json: "), "{error}");
}

/// A store in which another program changes a key just before zarrfs writes for the first time.
struct Contended {
    below: Arc<dyn Store>,
    is_done: AtomicBool,
}

impl Layer for Contended {
    fn below(&self) -> &dyn Store {
        &*self.below
    }

    fn put(
        &self,
        context: &RequestContext,
        key: &Key,
        body: PutBody<'_>,
        condition: &Condition,
    ) -> Result<ETag> {
        if !self.is_done.swap(true, Ordering::Relaxed) {
            let other = PutBody::Bytes(br#"{"zarr_format": 3, "node_type": "group", "mine": 1}"#);
            self.below.put(context, key, other, &Condition::Any)?;
        }
        self.below.put(context, key, body, condition)
    }
}

/// Invariant of `rebuilt_consolidated_metadata_have_no_faults`.
#[test]
fn a_concurrent_writer_keeps_what_it_wrote() {
    for (store, name) in [(v3_nested(), "zarr.json"), (v2(), ".zmetadata")] {
        let folder = tempfile::tempdir().unwrap();
        write_to(&store, folder.path());
        let below = open(folder.path());
        let contended = Contended {
            below,
            is_done: AtomicBool::new(false),
        };
        let error = rebuild(Arc::new(contended), "").unwrap_err();
        assert_eq!(error.kind(), Kind::Changed, "{error}");
        assert!(error.to_string().contains("another program"), "{error}");
        let text = fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(text.contains("mine"), "{text}");
    }
}

#[test]
fn stores_of_the_corpus_are_fixed() {
    let Some(corpus) = common::needs::shared("corpus") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    common::unpack_corpus(&corpus, folder.path());
    let stores = fs::read_to_string(corpus.join("stores.jsonl")).unwrap();
    let mut count = 0;
    for line in stores.lines() {
        let entry: Value = serde_json::from_str(line).unwrap();
        let text = |member: &str| entry[member].as_str().unwrap_or_default();
        let place = folder.path().join(text("source")).join(text("store"));
        if !place.is_dir() {
            continue;
        }
        match rebuild(open(&place), "") {
            Ok(_) => count += 1,
            Err(error) => {
                let is_refused = matches!(error.kind(), Kind::Invalid | Kind::Unsupported);
                assert!(is_refused, "{}: {error}", place.display());
            }
        }
        assert_eq!(faults(open(&place)), [""; 0], "{}", place.display());
    }
    assert!(count > 20, "{count}");
}

fn command(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
    command.args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn fix_writes_only_to_a_place_that_options_name() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("s.zarr");
    write_to(&v2_nested(), &place);
    let (before, place) = (files(&place), place.to_str().unwrap());
    for args in [
        &["check", "--fix", "consolidated", place][..],
        &["check", "--yes", place],
        &[
            "check",
            "--fix",
            "consolidated",
            "--yes",
            "--cow",
            "u",
            place,
        ],
    ] {
        let output = command(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert_eq!(text(&output.stderr).lines().count(), 1);
    }
    let output = command(&["check", "--fix", "consolidated", place]);
    let line = text(&output.stderr);
    assert!(
        line.contains("--cow CHANGES") && line.contains("--yes"),
        "{line}"
    );
    let within = format!("{place}/upper");
    let output = command(&["check", "--fix", "consolidated", "--cow", &within, place]);
    assert!(
        text(&output.stderr).contains("must not be inside the store"),
        "{output:?}"
    );
    assert_eq!(files(Path::new(place)), before);
}

#[test]
fn fix_writes_to_the_store_or_to_an_upper_folder() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("s.zarr");
    write_to(&v2_nested(), &place);
    let upper = folder.path().join("upper");
    let (before, place, upper) = (
        files(&place),
        place.to_str().unwrap(),
        upper.to_str().unwrap(),
    );
    let output = command(&["check", "--fix", "consolidated", "--cow", upper, place]);
    let lines = text(&output.stdout);
    let said = "fixed: a/.zmetadata: copies: 2 added, 0 changed, 2 removed\n";
    assert!(
        lines.contains(said) && !lines.contains("consolidated"),
        "{lines}"
    );
    assert_eq!(output.status.code(), Some(0), "{lines}");
    assert_eq!(files(Path::new(place)), before);
    let output = command(&["check", place]);
    assert!(
        text(&output.stdout).contains("a/.zmetadata: "),
        "{output:?}"
    );
    assert_eq!(command(&["commit", upper]).status.code(), Some(0));
    let output = command(&["check", place]);
    assert_eq!(
        (text(&output.stdout).lines().count(), output.status.code()),
        (1, Some(0))
    );

    write_to(&v2_nested(), Path::new(place));
    let output = command(&["check", "--fix", "consolidated", "--yes", "--json", place]);
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    let none = json!({"key": ".zmetadata", "made": 0, "changed": 0, "removed": 0, "is_put": false});
    let some =
        json!({"key": "a/.zmetadata", "made": 2, "changed": 0, "removed": 2, "is_put": true});
    assert_eq!(said["fixed"], json!([none, some]));
    assert_eq!(
        (&said["findings"], output.status.code()),
        (&json!([]), Some(0))
    );
}
