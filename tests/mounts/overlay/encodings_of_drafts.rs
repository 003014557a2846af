//! Another program replaces an array of a version 3 draft.
//!
//! In these drafts of Zarr v3, the metadata documents are not in a folder above the chunks.

use serde_json::{Value, json};
use zarr_format::error::Kind;
use zarrfs_store::Condition;
use zarrfs_store::tree::{RenameMode, Tree as _};

use crate::overlay::encodings::{KINDS, commit, put, read, stored, write};
use crate::overlay::fixture::{Fixture, Lower, MAKER, key, opened_with};
use zarrfs_store::request_context::UNLIMITED;

/// A hierarchy of a Zarr v3 draft with one array.
struct Hierarchy {
    name: &'static str,
    /// The hierarchy's entry point document (`zarr.json`), if the draft has one.
    entry: Option<Value>,
    document: &'static str,
    array: Value,
    chunks: [&'static str; 2],
}

/// Returns hierarchies with the same array, as each draft of Zarr v3 stores it, at the root or below it.
fn hierarchies() -> Vec<Hierarchy> {
    let uri = "https://purl.org/zarr/spec/protocol/core/3.0";
    let grid = json!({"type": "regular", "chunk_shape": [4], "separator": "/"});
    let plain = json!({"shape": [8], "data_type": "<f4", "chunk_grid": grid, "chunk_memory_layout": "C",
        "fill_value": 0, "extensions": [], "attributes": {"a": 1}});
    let with = |members: Value| {
        let mut array = plain.clone();
        for (name, value) in members.as_object().unwrap() {
            array[name] = value.clone();
        }
        array
    };
    let entry = |encoding: Value| json!({"zarr_format": uri, "metadata_encoding": encoding});
    let mut october = entry(json!(uri));
    october["metadata_key_suffix"] = json!(".json");
    let mut may = entry(json!({"type": "json", "metadata_key_suffix": ".json"}));
    may["extensions"] = json!([]);
    let of_2019 = with(json!({"zarr_format": uri, "chunk_codecs": []}));
    let of_2020 = with(json!({"compressor": null}));
    let of_2022 = with(json!({"codecs": []}));
    vec![
        Hierarchy {
            name: "2019",
            entry: None,
            document: "meta/g/a.array.json",
            array: of_2019.clone(),
            chunks: ["data/g/a/0", "data/g/a/1"],
        },
        Hierarchy {
            name: "the root in 2019",
            entry: None,
            document: "root.array.json",
            array: of_2019,
            chunks: ["data/0", "data/1"],
        },
        Hierarchy {
            name: "July 2020",
            entry: Some(entry(json!("application/json"))),
            document: "meta/root/g/a.array",
            array: of_2020.clone(),
            chunks: ["data/g/a/0", "data/g/a/1"],
        },
        Hierarchy {
            name: "October 2020",
            entry: Some(october.clone()),
            document: "meta/root/g/a.array.json",
            array: of_2020.clone(),
            chunks: ["data/root/g/a/c0", "data/root/g/a/c1"],
        },
        Hierarchy {
            name: "the root in October 2020",
            entry: Some(october),
            document: "meta/root.array.json",
            array: of_2020,
            chunks: ["data/root/c0", "data/root/c1"],
        },
        Hierarchy {
            name: "May 2022",
            entry: Some(may.clone()),
            document: "meta/g/a.array.json",
            array: of_2022.clone(),
            chunks: ["data/g/a/c0", "data/g/a/c1"],
        },
        Hierarchy {
            name: "the root in May 2022",
            entry: Some(may),
            document: "meta/array.json",
            array: of_2022,
            chunks: ["data/c0", "data/c1"],
        },
    ]
}

impl Hierarchy {
    fn each(test: impl Fn(&Hierarchy, Lower)) {
        for hierarchy in hierarchies() {
            KINDS.into_iter().for_each(|kind| test(&hierarchy, kind));
        }
    }

    fn fixture(&self, kind: Lower) -> Fixture {
        let entry = self.entry.as_ref().map(|entry| entry.to_string());
        let array = self.array.to_string();
        let mut held = vec![(self.document, array.as_bytes())];
        held.extend(entry.iter().map(|entry| ("zarr.json", entry.as_bytes())));
        held.extend(self.chunks.map(|chunk| (chunk, &[1; 16][..])));
        Fixture::new(kind, &held)
    }

    fn other(&self, members: &Value) -> String {
        let mut array = self.array.clone();
        for (name, value) in members.as_object().unwrap() {
            array[name] = value.clone();
        }
        array.to_string()
    }

    /// Returns metadata documents of arrays that would decode the chunks to other elements.
    fn others(&self) -> Vec<String> {
        let grid = json!({"type": "regular", "chunk_shape": [2], "separator": "/"});
        [
            json!({"data_type": "<i4"}),
            json!({"data_type": ">f4"}),
            json!({"fill_value": 3}),
            json!({"chunk_grid": grid}),
        ]
        .iter()
        .map(|members| self.other(members))
        .chain(["{".to_string()])
        .collect()
    }
}

/// Checks that a commit, and a dry run of it, report exactly the given keys as conflicts with their arrays.
fn expect_conflicts(fixture: &Fixture, keys: &[&str], why: &str) {
    for dry_run in [true, false] {
        let outcome = commit(fixture, dry_run, false);
        let found: Vec<String> = outcome
            .conflicts
            .iter()
            .map(|(key, _)| key.to_string())
            .collect();
        assert_eq!(found, keys, "{why}");
        let is_of_array = |why: &String| why.contains("the array was");
        assert!(outcome.conflicts.iter().all(|(_, why)| is_of_array(why)));
    }
}

/// Invariant of `chunks_of_a_replaced_array_are_a_conflict`.
#[test]
fn chunks_of_a_replaced_draft_array_are_a_conflict() {
    Hierarchy::each(|hierarchy, kind| {
        let [chunk, other_chunk] = hierarchy.chunks;
        for other in hierarchy.others() {
            for has_read in [false, true] {
                let mut fixture = hierarchy.fixture(kind);
                if has_read {
                    read(fixture.overlay(), hierarchy.document);
                    put(&*fixture.lower, hierarchy.document, other.as_bytes());
                }
                fixture.write(chunk, &[2; 16]);
                put(&*fixture.lower, hierarchy.document, other.as_bytes());
                expect_conflicts(&fixture, &[chunk], hierarchy.name);
                fixture.remount();
                expect_conflicts(&fixture, &[chunk], hierarchy.name);
                assert_eq!(stored(&*fixture.lower, chunk), [1; 16]);
                assert!(commit(&fixture, false, true).conflicts.is_empty());
                assert_eq!(stored(&*fixture.lower, chunk), [2; 16]);
            }
        }
        let fixture = hierarchy.fixture(kind);
        fixture.write(chunk, &[2; 16]);
        let document = key(hierarchy.document);
        let lower = &fixture.lower;
        lower.erase(&UNLIMITED, &document, &Condition::Any).unwrap();
        expect_conflicts(&fixture, &[chunk], hierarchy.name);
        // Other attributes or another shape are no conflict, because they do not affect how chunks are decoded.
        let same = hierarchy.other(&json!({"attributes": {}, "shape": [16]}));
        put(&**lower, hierarchy.document, same.as_bytes());
        fixture.write(other_chunk, &[3; 16]);
        expect_conflicts(&fixture, &[], hierarchy.name);
        assert_eq!(stored(&**lower, other_chunk), [3; 16]);
    });
}

/// Invariant of `chunks_of_a_replaced_array_are_a_conflict`.
#[test]
fn a_write_through_refuses_chunks_of_a_replaced_draft_array() {
    Hierarchy::each(|hierarchy, kind| {
        let chunk = hierarchy.chunks[0];
        for other in hierarchy.others() {
            let mut fixture = hierarchy.fixture(kind);
            fixture.close();
            let lower = &fixture.lower;
            let overlay = opened_with(&fixture.upper(), lower, "/the/store", true).unwrap();
            read(&overlay, hierarchy.document);
            write(&overlay, chunk, &[2; 16]).unwrap();
            put(&**lower, hierarchy.document, other.as_bytes());
            let error = write(&overlay, chunk, &[3; 16]).unwrap_err();
            assert_eq!(error.kind(), Kind::Changed, "{}", hierarchy.name);
            assert!(error.to_string().contains("the array was"), "{error}");
            assert_eq!(stored(&**lower, chunk), [2; 16]);
            let same = hierarchy.other(&json!({"attributes": {}}));
            put(&**lower, hierarchy.document, same.as_bytes());
            write(&overlay, chunk, &[4; 16]).unwrap();
            assert_eq!(stored(&**lower, chunk), [4; 16]);
        }
    });
}

/// Invariant of `chunks_of_a_replaced_array_are_a_conflict`.
///
/// If an array is replaced, removed or renamed on the mount, its chunks are not in conflict.
#[test]
fn a_draft_array_changed_on_the_mount_is_no_conflict() {
    Hierarchy::each(|hierarchy, kind| {
        let [chunk, other_chunk] = hierarchy.chunks;
        let document = key(hierarchy.document);
        let folder = key(chunk).parent().unwrap();
        for way in [
            "replaced",
            "removed",
            "renamed",
            "chunks first",
            "the document",
            "the folders",
        ] {
            for known in ["found", "read", "not in memory"] {
                let mut fixture = hierarchy.fixture(kind);
                let why = format!("{} {way} {known}", hierarchy.name);
                if known == "read" {
                    read(fixture.overlay(), hierarchy.document);
                }
                fixture.write(chunk, &[2; 16]);
                if known == "not in memory" {
                    fixture.remount();
                }
                let overlay = fixture.overlay();
                let move_document = || {
                    let to = hierarchy.document.replace("a.array", "b.array");
                    let to = key(&to.replace("root.array", "other.array"));
                    overlay.rename(&UNLIMITED, &document, &to, RenameMode::Replace)
                };
                let move_chunks = || {
                    let to = folder.parent().unwrap().child(b"b").unwrap();
                    overlay.rename(&UNLIMITED, &folder, &to, RenameMode::Replace)
                };
                match way {
                    "replaced" => {
                        let other = &hierarchy.others()[0];
                        fixture.write(hierarchy.document, other.as_bytes());
                        fixture.write(other_chunk, &[3; 16]);
                    }
                    "removed" => overlay.unlink(&UNLIMITED, &document).unwrap(),
                    "renamed" => {
                        move_document().unwrap();
                        move_chunks().unwrap();
                    }
                    "chunks first" => {
                        move_chunks().unwrap();
                        move_document().unwrap();
                    }
                    "the document" => move_document().unwrap(),
                    _ => {
                        for below in [hierarchy.document, chunk] {
                            let Some((folder, _)) = below.split_once("/g/") else {
                                continue;
                            };
                            let from = key(&format!("{folder}/g"));
                            let to = key(&format!("{folder}/h"));
                            overlay
                                .rename(&UNLIMITED, &from, &to, RenameMode::Replace)
                                .unwrap();
                        }
                    }
                }
                expect_conflicts(&fixture, &[], &why);
            }
        }
    });
}

/// After a rename of the whole hierarchy, chunks are still compared with the metadata that they were encoded with.
#[test]
fn a_renamed_draft_hierarchy_keeps_the_condition_of_its_chunks() {
    for hierarchy in hierarchies().iter().filter(|found| found.entry.is_some()) {
        let below = |name: &str| format!("h/{name}");
        let entry = hierarchy.entry.as_ref().unwrap().to_string();
        let chunk = below(hierarchy.chunks[0]);
        let fixture = Fixture::new(
            Lower::Local,
            &[
                ("h/zarr.json", entry.as_bytes()),
                (
                    &below(hierarchy.document),
                    hierarchy.array.to_string().as_bytes(),
                ),
                (&chunk, &[1; 16]),
            ],
        );
        fixture.write(&chunk, &[2; 16]);
        let (from, to) = (key("h"), key("n"));
        let overlay = fixture.overlay();
        overlay
            .rename(&UNLIMITED, &from, &to, RenameMode::Replace)
            .unwrap();
        expect_conflicts(&fixture, &[], hierarchy.name);
        let chunk = chunk.replace("h/", "n/");
        fixture.write(&chunk, &[3; 16]);
        let document = below(hierarchy.document).replace("h/", "n/");
        put(&*fixture.lower, &document, hierarchy.others()[0].as_bytes());
        expect_conflicts(&fixture, &[&chunk], hierarchy.name);
    }
}

/// A new array, whose metadata document is written under a temporary name before its chunks.
#[test]
fn a_new_draft_array_is_no_conflict_until_it_is_replaced() {
    for hierarchy in hierarchies()
        .iter()
        .filter(|found| found.document.contains("/g/"))
    {
        let fixture = hierarchy.fixture(Lower::Memory);
        let overlay = fixture.overlay();
        let document = hierarchy.document.replace("a.array", "n.array");
        let chunk = hierarchy.chunks[0].replace("/a/", "/n/");
        let temporary = key(&format!("{document}.0123.partial"));
        let file = overlay.create(&UNLIMITED, &temporary, &MAKER).unwrap();
        file.write_at(&UNLIMITED, 0, hierarchy.array.to_string().as_bytes())
            .unwrap();
        file.flush(&UNLIMITED).unwrap();
        drop(file);
        overlay
            .rename(&UNLIMITED, &temporary, &key(&document), RenameMode::Replace)
            .unwrap();
        let folder = key(&chunk).parent().unwrap();
        overlay.make_folder(&UNLIMITED, &folder, &MAKER).unwrap();
        fixture.write(&chunk, &[2; 16]);
        expect_conflicts(&fixture, &[], hierarchy.name);
        put(&*fixture.lower, &document, hierarchy.others()[0].as_bytes());
        fixture.write(&chunk, &[3; 16]);
        expect_conflicts(&fixture, &[&chunk], hierarchy.name);
    }
}

/// A program has read the hierarchy's consolidated metadata and not the array's own document.
#[test]
fn consolidated_metadata_of_a_draft_count_as_its_documents() {
    let hierarchies = hierarchies();
    let found = hierarchies
        .iter()
        .find(|found| found.name == "October 2020");
    let hierarchy = found.unwrap();
    let fixture = hierarchy.fixture(Lower::Memory);
    let copies = json!({"zarr_consolidated_format": 1,
        "metadata": {hierarchy.document: hierarchy.array}});
    let holder = "meta/root/consolidated/.zmetadata";
    put(&*fixture.lower, holder, copies.to_string().as_bytes());
    read(fixture.overlay(), holder);
    put(
        &*fixture.lower,
        hierarchy.document,
        hierarchy.others()[0].as_bytes(),
    );
    fixture.write(hierarchy.chunks[0], &[2; 16]);
    expect_conflicts(&fixture, &[hierarchy.chunks[0]], "consolidated");
}
