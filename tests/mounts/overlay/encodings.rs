//! Another program replaces an array with changed chunks: chunks keep their encoding.
//!
//! No chunk may be stored in an array that it was not encoded for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use zarr_format::error::{Kind, Result};
use zarrfs_overlay::Overlay;
use zarrfs_overlay::commit::{CommitConfig, Outcome};
use zarrfs_store::layer::metadata_cache::{MetadataCache, MetadataCacheConfig};
use zarrfs_store::tree::{OpenMode, RenameMode, Tree as _};
use zarrfs_store::{Condition, Key, PutBody, Store};

use crate::overlay::fixture::{Fixture, Lower, MAKER, folder, key, opened_with};
use crate::overlay::hooked::{Hook, Hooked};
use zarrfs_store::request_context::{RequestContext, UNLIMITED};

pub(crate) const KINDS: [Lower; 2] = [Lower::Memory, Lower::Local];

/// Returns the metadata document of the array `a`. `members` replaces members of the document.
fn array(members: Value) -> String {
    let mut document = json!({
        "zarr_format": 3, "node_type": "array", "shape": [8], "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0.0, "attributes": {"a": 1},
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    });
    for (name, value) in members.as_object().unwrap() {
        document[name] = value.clone();
    }
    document.to_string()
}

fn plain() -> String {
    array(json!({}))
}

/// Returns metadata documents that differ from that of `a` so that they decode its chunks to other elements.
pub(crate) fn others() -> Vec<(&'static str, String)> {
    let bytes = |endian: &str| json!({"name": "bytes", "configuration": {"endian": endian}});
    let zstd = json!({"name": "zstd", "configuration": {"level": 1, "checksum": false}});
    let grid = |length| json!({"name": "regular", "configuration": {"chunk_shape": [length]}});
    let keys = json!({"name": "default", "configuration": {"separator": "."}});
    vec![
        (
            "type",
            array(json!({"data_type": "int32", "fill_value": 0})),
        ),
        ("length", array(json!({"data_type": "float64"}))),
        ("codecs", array(json!({"codecs": [bytes("little"), zstd]}))),
        ("order of bytes", array(json!({"codecs": [bytes("big")]}))),
        ("chunks", array(json!({"chunk_grid": grid(2)}))),
        ("fill value", array(json!({"fill_value": 1.0}))),
        ("keys", array(json!({"chunk_key_encoding": keys}))),
        (
            "dimensions",
            array(json!({
                "shape": [8, 1],
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 1]}},
            })),
        ),
        (
            "group",
            json!({"zarr_format": 3, "node_type": "group"}).to_string(),
        ),
        ("nonsense", "{".to_string()),
    ]
}

fn held() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        (
            "zarr.json",
            json!({"zarr_format": 3, "node_type": "group"})
                .to_string()
                .into(),
        ),
        ("a/zarr.json", plain().into()),
        ("a/c/0", vec![1; 16]),
        ("a/c/1", vec![1; 16]),
    ]
}

pub(crate) fn fixture(kind: Lower) -> Fixture {
    let held = held();
    let held: Vec<(&str, &[u8])> = held
        .iter()
        .map(|(name, bytes)| (*name, &bytes[..]))
        .collect();
    Fixture::new(kind, &held)
}

pub(crate) fn put(store: &dyn Store, at: &str, bytes: &[u8]) {
    let body = PutBody::Bytes(bytes);
    store
        .put(&UNLIMITED, &key(at), body, &Condition::Any)
        .unwrap();
}

pub(crate) fn stored(store: &dyn Store, at: &str) -> Vec<u8> {
    store
        .get(&UNLIMITED, &key(at), 1 << 20)
        .unwrap()
        .unwrap()
        .bytes
}

/// Reads a file through an open handle, so that the overlay knows what the program has read.
pub(crate) fn read(overlay: &Overlay, at: &str) -> Vec<u8> {
    let file = zarrfs_store::Tree::open(overlay, &UNLIMITED, &key(at), OpenMode::Read).unwrap();
    file.read_at(&UNLIMITED, 0, 1 << 16).unwrap()
}

/// Replaces a file as zarr-python does: writes a temporary file and renames it.
fn replace(overlay: &Overlay, at: &str, bytes: &[u8]) -> Result<()> {
    let temporary = key(&format!("{at}.0123.partial"));
    let file = overlay.create(&UNLIMITED, &temporary, &MAKER)?;
    file.write_at(&UNLIMITED, 0, bytes)?;
    file.flush(&UNLIMITED)?;
    drop(file);
    overlay.rename(&UNLIMITED, &temporary, &key(at), RenameMode::Replace)
}

pub(crate) fn commit(fixture: &Fixture, dry_run: bool, force: bool) -> Outcome {
    let config = CommitConfig { dry_run, force };
    let outcome = fixture
        .overlay()
        .commit(&UNLIMITED, config, &|_, _| {})
        .unwrap();
    outcome.or_failed().unwrap()
}

fn conflicts(fixture: &Fixture) -> Vec<String> {
    let conflicts = |outcome: Outcome| -> Vec<String> {
        outcome
            .conflicts
            .iter()
            .map(|(key, _)| key.to_string())
            .collect()
    };
    let found = conflicts(commit(fixture, true, false));
    assert_eq!(conflicts(commit(fixture, false, false)), found);
    found
}

/// Checks that a commit reports a conflict of the chunk `a/c/0`, also after a remount, and that a forced commit puts
/// the chunk.
fn is_conflict(mut fixture: Fixture, kind: &str) {
    for _ in 0..2 {
        let outcome = commit(&fixture, true, false);
        assert!(outcome.conflicts[0].1.contains("the array was"), "{kind}");
        assert_eq!(conflicts(&fixture), ["a/c/0"], "{kind}");
        assert_eq!(stored(&*fixture.lower, "a/c/0"), [1; 16], "{kind}");
        fixture.remount();
    }
    assert!(commit(&fixture, false, true).conflicts.is_empty());
    assert_eq!(stored(&*fixture.lower, "a/c/0"), [2; 16], "{kind}");
    assert_eq!(fixture.overlay().changes(&UNLIMITED).unwrap().keys, []);
}

/// Invariant (overlay): A chunk is committed only into the array that it was encoded for; metadata changes that do not
/// affect chunks are no conflict.
#[test]
fn chunks_of_a_replaced_array_are_a_conflict() {
    for kind in KINDS {
        for (name, other) in others() {
            let fixture = fixture(kind);
            fixture.write("a/c/0", &[2; 16]);
            put(&*fixture.lower, "a/zarr.json", other.as_bytes());
            is_conflict(fixture, name);
        }
        let fixture = fixture(kind);
        fixture.write("a/c/0", &[2; 16]);
        fixture
            .lower
            .erase(&UNLIMITED, &key("a/zarr.json"), &Condition::Any)
            .unwrap();
        let v2 = json!({"zarr_format": 2, "shape": [8], "chunks": [4], "dtype": "<f4",
            "compressor": null, "fill_value": 0, "filters": null, "order": "C"});
        put(&*fixture.lower, "a/.zarray", v2.to_string().as_bytes());
        is_conflict(fixture, "v2");
    }
}

/// Invariant of `chunks_of_a_replaced_array_are_a_conflict`.
///
/// The program has read the array's metadata before another program replaced the array, and writes the chunk
/// afterwards.
#[test]
fn chunks_written_by_outdated_metadata_are_a_conflict() {
    let consolidated = json!({"zarr_format": 3, "node_type": "group", "consolidated_metadata": {
        "kind": "inline", "must_understand": false,
        "metadata": {"a": serde_json::from_str::<Value>(&plain()).unwrap()},
    }});
    for kind in KINDS {
        for (name, other) in others() {
            for document in ["a/zarr.json", "zarr.json"] {
                let fixture = fixture(kind);
                put(
                    &*fixture.lower,
                    "zarr.json",
                    consolidated.to_string().as_bytes(),
                );
                read(fixture.overlay(), document);
                put(&*fixture.lower, "a/zarr.json", other.as_bytes());
                replace(fixture.overlay(), "a/c/0", &[2; 16]).unwrap();
                is_conflict(fixture, name);
            }
        }
    }
}

#[test]
fn a_removed_chunk_is_a_conflict_if_the_fill_value_changed() {
    for kind in KINDS {
        let fixture = fixture(kind);
        fixture.overlay().unlink(&UNLIMITED, &key("a/c/0")).unwrap();
        put(
            &*fixture.lower,
            "a/zarr.json",
            array(json!({"fill_value": 9.0})).as_bytes(),
        );
        assert_eq!(conflicts(&fixture), ["a/c/0"]);
        put(&*fixture.lower, "a/zarr.json", plain().as_bytes());
        assert!(conflicts(&fixture).is_empty());
    }
}

/// Invariant of `chunks_of_a_replaced_array_are_a_conflict`.
#[test]
fn metadata_changes_that_do_not_affect_chunks_are_no_conflict() {
    let pretty: Value = serde_json::from_str(&plain()).unwrap();
    for kind in KINDS {
        for same in [
            array(json!({"attributes": {"b": [1, 2]}})),
            array(json!({"shape": [16]})),
            array(json!({"dimension_names": ["x"]})),
            array(json!({"storage_transformers": []})),
            array(json!({"fill_value": "0x00000000", "chunk_key_encoding": "default"})),
            serde_json::to_string_pretty(&pretty).unwrap(),
        ] {
            let fixture = fixture(kind);
            read(fixture.overlay(), "a/zarr.json");
            fixture.write("a/c/0", &[2; 16]);
            put(&*fixture.lower, "a/zarr.json", same.as_bytes());
            fixture.write("a/c/1", &[2; 16]);
            assert!(conflicts(&fixture).is_empty(), "{same}");
            assert_eq!(stored(&*fixture.lower, "a/c/0"), [2; 16]);
        }
    }
}

/// If an array is replaced, a file whose name does not look like a chunk is no conflict. Neither is a chunk that the
/// store already has.
#[test]
fn other_files_of_a_replaced_array_are_no_conflict() {
    for kind in KINDS {
        let fixture = fixture(kind);
        fixture.write("a/c/0", &[2; 16]);
        fixture.write("a/README", b"text");
        put(&*fixture.lower, "a/zarr.json", others()[0].1.as_bytes());
        assert_eq!(conflicts(&fixture), ["a/c/0"]);
        put(&*fixture.lower, "a/c/0", &[2; 16]);
        assert!(conflicts(&fixture).is_empty());
        assert_eq!(stored(&*fixture.lower, "a/README"), b"text");
    }
}

/// Invariant of `chunks_of_a_replaced_array_are_a_conflict`.
///
/// If an array is replaced on the mount, whichever way, its chunks are not in conflict.
#[test]
fn an_array_replaced_on_the_mount_is_no_conflict() {
    let other = &others()[0].1;
    for kind in KINDS {
        for way in 0..5 {
            let fixture = fixture(kind);
            let overlay = fixture.overlay();
            if way > 0 {
                read(overlay, "a/zarr.json");
            }
            fixture.write("a/c/0", &[2; 16]);
            match way {
                0 | 1 => fixture.write("a/zarr.json", other.as_bytes()),
                2 => replace(overlay, "a/zarr.json", other.as_bytes()).unwrap(),
                3 => {
                    for name in ["a/zarr.json", "a/c/0", "a/c/1"] {
                        overlay.unlink(&UNLIMITED, &key(name)).unwrap();
                    }
                    replace(overlay, "a/zarr.json", other.as_bytes()).unwrap();
                }
                _ => {
                    overlay
                        .rename(&UNLIMITED, &key("a"), &key("old"), RenameMode::Replace)
                        .unwrap();
                    overlay.make_folder(&UNLIMITED, &key("a"), &MAKER).unwrap();
                    fixture.write("a/zarr.json", other.as_bytes());
                    overlay
                        .make_folder(&UNLIMITED, &key("a/c"), &MAKER)
                        .unwrap();
                }
            }
            fixture.write("a/c/1", &[3; 16]);
            assert!(conflicts(&fixture).is_empty(), "{way}");
            // The program still encodes with the metadata that it wrote, so the store's other array is a conflict.
            put(&*fixture.lower, "a/zarr.json", plain().as_bytes());
            fixture.write("a/c/1", &[4; 16]);
            assert_eq!(conflicts(&fixture), ["a/c/1"], "{way}");
        }
    }
}

/// A metadata document that is open for writing is committed by the next commit. Chunks that were written for that
/// document are not in conflict until then.
#[test]
fn a_document_open_during_a_commit_is_committed_by_the_next() {
    let other = &others()[0].1;
    for kind in KINDS {
        let fixture = fixture(kind);
        fixture.write("a/c/0", &[2; 16]);
        let path = key("a/zarr.json");
        let document =
            zarrfs_store::Tree::open(fixture.overlay(), &UNLIMITED, &path, OpenMode::Truncate);
        let document = document.unwrap();
        document.write_at(&UNLIMITED, 0, other.as_bytes()).unwrap();
        document.flush(&UNLIMITED).unwrap();
        fixture.write("a/c/1", &[3; 16]);
        assert!(conflicts(&fixture).is_empty());
        assert_eq!(stored(&*fixture.lower, "a/zarr.json"), plain().as_bytes());
        drop(document);
        assert!(conflicts(&fixture).is_empty());
        assert_eq!(stored(&*fixture.lower, "a/zarr.json"), other.as_bytes());
    }
}

/// Another program has replaced an array. If the array's attributes are edited on the mount, a chunk of the old array
/// must not be put into the new array.
#[test]
fn an_attribute_edit_stores_no_old_chunk_in_a_new_array() {
    let other = json!({"data_type": "int32", "fill_value": 0});
    let mut edited = other.clone();
    edited["attributes"] = json!({"edited": true});
    for kind in KINDS {
        let fixture = fixture(kind);
        fixture.write("a/c/0", &[2; 16]);
        put(
            &*fixture.lower,
            "a/zarr.json",
            array(other.clone()).as_bytes(),
        );
        read(fixture.overlay(), "a/zarr.json");
        replace(
            fixture.overlay(),
            "a/zarr.json",
            array(edited.clone()).as_bytes(),
        )
        .unwrap();
        assert_eq!(conflicts(&fixture), ["a/c/0"]);
        // A chunk is not in conflict if its program has read the new array's metadata.
        fixture.write("a/c/1", &[3; 16]);
        assert_eq!(conflicts(&fixture), ["a/c/0"]);
        fixture
            .overlay()
            .discard(&UNLIMITED, &key("a/c/0"))
            .unwrap();
        assert!(conflicts(&fixture).is_empty());
        assert_eq!(stored(&*fixture.lower, "a/c/1"), [3; 16]);
        assert_eq!(stored(&*fixture.lower, "a/c/0"), [1; 16]);
    }
}

/// A chunk of a replaced array is not in conflict any more after it is rewritten with the new metadata.
#[test]
fn a_chunk_rewritten_for_the_new_array_is_no_conflict() {
    for kind in KINDS {
        let fixture = fixture(kind);
        fixture.write("a/c/0", &[2; 16]);
        fixture.write("a/c/1", &[2; 16]);
        put(&*fixture.lower, "a/zarr.json", others()[0].1.as_bytes());
        read(fixture.overlay(), "a/zarr.json");
        replace(fixture.overlay(), "a/c/1", &[3; 16]).unwrap();
        let found = commit(&fixture, true, false).conflicts;
        assert!(found.len() == 1 && found[0].0 == key("a/c/0"), "{found:?}");
        replace(fixture.overlay(), "a/c/0", &[3; 16]).unwrap();
        assert!(conflicts(&fixture).is_empty());
    }
}

#[test]
fn a_renamed_array_keeps_the_condition_of_its_chunks() {
    for kind in KINDS {
        for replaced in [false, true] {
            let mut fixture = fixture(kind);
            fixture.write("a/c/0", &[2; 16]);
            fixture
                .overlay()
                .rename(&UNLIMITED, &key("a"), &key("b"), RenameMode::Replace)
                .unwrap();
            if replaced {
                put(&*fixture.lower, "a/zarr.json", others()[0].1.as_bytes());
            }
            fixture.remount();
            let expected: &[&str] = if replaced { &["b/c/0"] } else { &[] };
            assert_eq!(conflicts(&fixture), expected);
            if !replaced {
                assert_eq!(stored(&*fixture.lower, "b/c/0"), [2; 16]);
            }
        }
    }
}

/// A file that is open during a commit moves to the next layer, and so does the record of its array's metadata.
#[test]
fn a_chunk_open_during_a_commit_keeps_the_metadata_of_its_array() {
    for kind in KINDS {
        let fixture = fixture(kind);
        let path = key("a/c/0");
        let file = zarrfs_store::Tree::open(fixture.overlay(), &UNLIMITED, &path, OpenMode::Write)
            .unwrap();
        file.write_at(&UNLIMITED, 0, &[2; 16]).unwrap();
        file.flush(&UNLIMITED).unwrap();
        fixture.write("a/c/1", &[2; 16]);
        assert!(commit(&fixture, false, false).conflicts.is_empty());
        assert_eq!(stored(&*fixture.lower, "a/c/0"), [1; 16]);
        drop(file);
        put(&*fixture.lower, "a/zarr.json", others()[0].1.as_bytes());
        is_conflict(fixture, "open");
    }
}

fn write_through(kind: Lower) -> (Fixture, Overlay) {
    let mut fixture = fixture(kind);
    fixture.close();
    let overlay = opened_with(&fixture.upper(), &fixture.lower, "/the/store", true).unwrap();
    (fixture, overlay)
}

pub(crate) fn write(overlay: &Overlay, at: &str, bytes: &[u8]) -> Result<()> {
    let file = zarrfs_store::Tree::open(overlay, &UNLIMITED, &key(at), OpenMode::Truncate)?;
    file.write_at(&UNLIMITED, 0, bytes)?;
    file.flush(&UNLIMITED)
}

/// Invariant of `chunks_of_a_replaced_array_are_a_conflict`.
#[test]
fn a_write_through_refuses_chunks_of_a_replaced_array() {
    for kind in KINDS {
        for (name, other) in others() {
            let (fixture, overlay) = write_through(kind);
            let lower = &*fixture.lower;
            read(&overlay, "a/zarr.json");
            write(&overlay, "a/c/0", &[2; 16]).unwrap();
            put(lower, "a/zarr.json", other.as_bytes());
            let error = write(&overlay, "a/c/0", &[3; 16]).unwrap_err();
            assert_eq!(error.kind(), Kind::Changed, "{name}");
            assert!(error.to_string().contains("the array was"), "{error}");
            assert_eq!(stored(lower, "a/c/0"), [2; 16]);
            // It is no conflict if only the array's attributes have changed since the program read the metadata.
            put(
                lower,
                "a/zarr.json",
                array(json!({"attributes": {}})).as_bytes(),
            );
            write(&overlay, "a/c/0", &[4; 16]).unwrap();
            assert_eq!(stored(lower, "a/c/0"), [4; 16]);
        }
    }
}

/// With write-through, chunks of a replaced array that were refused do not prevent writes to the new array.
#[test]
fn a_write_through_continues_with_the_new_array() {
    for kind in KINDS {
        let (fixture, overlay) = write_through(kind);
        let lower = &*fixture.lower;
        read(&overlay, "a/zarr.json");
        put(lower, "a/zarr.json", others()[0].1.as_bytes());
        write(&overlay, "a/c/0", &[2; 16]).unwrap_err();
        read(&overlay, "a/zarr.json");
        write(&overlay, "a/c/1", &[3; 16]).unwrap();
        assert_eq!(stored(lower, "a/c/1"), [3; 16]);
        assert_eq!(stored(lower, "a/c/0"), [1; 16]);
        write(&overlay, "a/c/0", &[3; 16]).unwrap();
        assert_eq!(stored(lower, "a/c/0"), [3; 16]);
        assert_eq!(overlay.changes(&UNLIMITED).unwrap().keys, []);
    }
}

/// If a program writes chunks without reading metadata, the metadata that the store has at the first such write after a
/// commit counts.
#[test]
fn chunks_belong_to_the_array_stored_at_their_first_change() {
    let other = &others()[0].1;
    for kind in KINDS {
        let fixture = fixture(kind);
        fixture.write("a/c/0", &[2; 16]);
        assert!(conflicts(&fixture).is_empty());
        put(&*fixture.lower, "a/zarr.json", other.as_bytes());
        fixture.write("a/c/1", &[3; 16]);
        assert!(conflicts(&fixture).is_empty());
        fixture.write("a/c/0", &[4; 16]);
        put(&*fixture.lower, "a/zarr.json", plain().as_bytes());
        fixture.write("a/c/1", &[4; 16]);
        assert_eq!(conflicts(&fixture), ["a/c/0", "a/c/1"]);

        let (fixture, overlay) = write_through(kind);
        for document in [other, &plain()] {
            put(&*fixture.lower, "a/zarr.json", document.as_bytes());
            write(&overlay, "a/c/0", document.as_bytes()).unwrap();
        }
    }
}

/// Libraries write the same metadata in another form, for example when they consolidate metadata.
#[test]
fn equivalent_metadata_describe_the_same_array() {
    let zstd = |configuration: Value| {
        let bytes = json!({"name": "bytes", "configuration": {"endian": "little"}});
        let zstd = json!({"name": "zstd", "configuration": configuration});
        array(json!({"codecs": [bytes, zstd]}))
    };
    let (own, other) = (
        zstd(json!({"level": 3})),
        zstd(json!({"level": 3, "checksum": false})),
    );
    for kind in KINDS {
        let fixture = fixture(kind);
        let copy: Value = serde_json::from_str(&other).unwrap();
        let root = json!({"zarr_format": 3, "node_type": "group", "consolidated_metadata":
            {"kind": "inline", "must_understand": false, "metadata": {"a": copy}}});
        put(&*fixture.lower, "zarr.json", root.to_string().as_bytes());
        put(&*fixture.lower, "a/zarr.json", own.as_bytes());
        read(fixture.overlay(), "zarr.json");
        replace(fixture.overlay(), "a/c/0", &[2; 16]).unwrap();
        assert!(conflicts(&fixture).is_empty());
        put(&*fixture.lower, "a/zarr.json", other.as_bytes());
        assert!(commit(&fixture, false, false).conflicts.is_empty());
    }
}

/// A hook that counts the requests to a store by call and key.
#[derive(Default)]
struct Counter(Mutex<BTreeMap<String, usize>>);

impl Counter {
    /// Returns the number of requests for metadata documents and for other keys since it was last called.
    fn take(&self) -> (usize, usize) {
        let asked = std::mem::take(&mut *self.0.lock().unwrap());
        let is_document = |what: &str| what.ends_with(".json") || what.contains("/.z");
        let of_documents: usize = asked
            .iter()
            .filter(|(what, _)| is_document(what))
            .map(|(_, count)| count)
            .sum();
        (of_documents, asked.values().sum::<usize>() - of_documents)
    }
}

impl Hook for Counter {
    fn before(&self, _context: &RequestContext, call: &str, at: &Key) -> Result<()> {
        *self
            .0
            .lock()
            .unwrap()
            .entry(format!("{call} {at}"))
            .or_default() += 1;
        Ok(())
    }
}

/// Closing a chunk's file makes two requests for the array's metadata. A commit makes two for each array, however many
/// chunks it has.
#[test]
fn a_close_and_a_commit_make_two_requests_for_an_array() {
    let (fixture, counter) = (fixture(Lower::Memory), Arc::new(Counter::default()));
    let hooked = Hooked::new(fixture.lower.clone(), counter.clone());
    let config = MetadataCacheConfig {
        ttl: Duration::from_secs(3600),
        ..MetadataCacheConfig::default()
    };
    let lower: Arc<dyn Store> = Arc::new(MetadataCache::new(Arc::new(hooked), &config));
    let uppers = [folder(), folder()];
    let [through, cow] = [true, false].map(|write_through| {
        let upper = uppers[usize::from(write_through)].path().join("upper");
        opened_with(&upper, &lower, "/it", write_through).unwrap()
    });
    read(&through, "a/zarr.json");
    write(&through, "a/c/0", &[2; 16]).unwrap();
    for _ in 0..3 {
        counter.take();
        write(&through, "a/c/0", &[3; 16]).unwrap();
        let (of_array, of_chunk) = counter.take();
        assert_eq!(of_array, 2, "beside {of_chunk} about the chunk");
    }
    counter.take();
    for chunk in 0..20 {
        write(&cow, &format!("a/c/{chunk}"), &[4; 16]).unwrap_or_else(|_| {
            let file = cow
                .create(&UNLIMITED, &key(&format!("a/c/{chunk}")), &MAKER)
                .unwrap();
            file.write_at(&UNLIMITED, 0, &[4; 16]).unwrap();
            file.flush(&UNLIMITED).unwrap();
        });
    }
    assert_eq!(counter.take().0, 0, "what is remembered is not asked for");
    cow.commit(&UNLIMITED, CommitConfig::default(), &|_, _| {})
        .unwrap();
    assert_eq!(counter.take().0, 2);
}

/// The metadata documents of Zarr v2 and N5 are compared with the chunks' metadata, too.
#[test]
fn chunks_of_replaced_arrays_of_v2_and_n5_are_a_conflict() {
    let v2 = |dtype: &str| {
        json!({"zarr_format": 2, "shape": [8], "chunks": [4], "dtype": dtype, "compressor": null,
            "fill_value": 0, "filters": null, "order": "C", "dimension_separator": "/"})
    };
    let n5 = |kind: &str| {
        json!({"dimensions": [8], "blockSize": [4], "dataType": kind, "attribute": 1,
            "compression": {"type": "raw"}})
    };
    for (document, old, new) in [
        ("a/.zarray", v2("<f4"), v2("<i4")),
        ("a/attributes.json", n5("float32"), n5("int32")),
    ] {
        for kind in KINDS {
            let old = old.to_string().into_bytes();
            let objects: [(&str, &[u8]); 2] = [(document, &old), ("a/0", &[1; 16])];
            let fixture = Fixture::new(kind, &objects);
            fixture.write("a/0", &[2; 16]);
            let mut same = serde_json::from_slice::<Value>(&old).unwrap();
            same["other"] = json!(1);
            put(&*fixture.lower, document, same.to_string().as_bytes());
            assert!(commit(&fixture, true, false).conflicts.is_empty());
            put(&*fixture.lower, document, new.to_string().as_bytes());
            assert_eq!(conflicts(&fixture), ["a/0"], "{document}");
        }
    }
}
