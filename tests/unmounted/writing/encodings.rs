//! Tests that no elements are written into an array that replaced the opened one.

use std::sync::Arc;

use serde_json::{Value, json};
use zarrfs_store::Store;
use zarrfs_store::tree::OpenMode;

use crate::common::sample::{Form, Sample};
use crate::dialects::hierarchies::key;
use crate::dialects::written;
use crate::dialects::written::STORES;
use crate::writing::shared::{Mode, Shared, everywhere, folder, is_changed};
use zarrfs_store::request_context::UNLIMITED;

/// Returns metadata with which the chunks of `sample` have other elements.
fn others(sample: &Sample) -> Vec<Value> {
    let changed = |name: &str, value: Value| {
        let mut document = sample.metadata();
        document[name] = value;
        document
    };
    let grid = |length: u64| json!({"name": "regular", "configuration": {"chunk_shape": [length]}});
    let keys = json!({"name": "default", "configuration": {"separator": "."}});
    let big = json!([{"name": "bytes", "configuration": {"endian": "big"}}]);
    let packed = json!([{"name": "bytes", "configuration": {"endian": "little"}}, "crc32c"]);
    let mut signed = changed("data_type", json!("int16"));
    signed["fill_value"] = json!(-1);
    vec![
        signed,
        changed("data_type", json!("float64")),
        changed("chunk_grid", grid(2)),
        changed("codecs", big),
        changed("codecs", packed),
        changed("fill_value", json!(3)),
        changed("chunk_key_encoding", keys),
    ]
}

fn samples() -> [Sample; 2] {
    [Form::Plain, Form::Sharded(vec![2])].map(|form| Sample::new(&[8], &[4], form))
}

fn edit_attributes(mount: &Shared) {
    let path = key("a/attributes.json");
    let file = mount
        .tree
        .open(&UNLIMITED, &path, OpenMode::Truncate)
        .unwrap();
    file.write_at(&UNLIMITED, 0, b"{\"edited\": 1}").unwrap();
    file.flush(&UNLIMITED).unwrap();
}

/// Invariant of `chunks_of_a_replaced_array_are_a_conflict`.
#[test]
fn elements_of_an_array_replaced_since_are_a_conflict() {
    for sample in samples() {
        for other in others(&sample) {
            let mount = Shared::of(Mode::Cow, "local", &sample);
            let file = mount.open("a/a.raw");
            file.write_at(&UNLIMITED, 0, &[1, 1]).unwrap();
            file.flush(&UNLIMITED).unwrap();
            mount.put_outside("a/zarr.json", other.to_string().as_bytes());
            assert_eq!(mount.conflicts(), ["a/c/0"], "{other}");
            // An edit of attributes through the mount must not make the commit store the chunk in the new array.
            edit_attributes(&mount);
            assert_eq!(mount.conflicts(), ["a/c/0"], "{other}");
        }
    }
}

/// Invariant of `chunks_of_a_replaced_array_are_a_conflict`.
#[test]
fn elements_are_not_stored_in_an_array_that_was_replaced() {
    for sample in samples() {
        for other in others(&sample) {
            for (mode, kind) in everywhere() {
                let mount = Shared::of(mode, kind, &sample);
                let file = mount.open("a/a.raw");
                file.write_at(&UNLIMITED, 0, &[1, 1]).unwrap();
                let before = mount.stored("a/c/0");
                mount.put_outside("a/zarr.json", other.to_string().as_bytes());
                match file.flush(&UNLIMITED) {
                    Ok(()) => {
                        assert_eq!(mode, Mode::Cow, "{other}");
                        assert_eq!(mount.conflicts(), ["a/c/0"], "{other}");
                    }
                    Err(error) => is_changed(&error, "a"),
                }
                assert_eq!(mount.stored("a/c/0"), before, "{mode:?} {kind} {other}");
            }
        }
    }
}

#[test]
fn a_new_shape_or_new_attributes_do_not_conflict() {
    for sample in samples() {
        for (name, value) in [("shape", json!([16])), ("attributes", json!({"x": 1}))] {
            for (mode, kind) in everywhere() {
                let mount = Shared::of(mode, kind, &sample);
                let file = mount.open("a/a.raw");
                file.write_at(&UNLIMITED, 0, &[1, 1]).unwrap();
                let mut document = sample.metadata();
                document[name] = value.clone();
                mount.put_outside("a/zarr.json", document.to_string().as_bytes());
                file.flush(&UNLIMITED).unwrap();
                assert!(mount.conflicts().is_empty(), "{name} {mode:?} {kind}");
                assert_eq!(mount.outside().read("a")[..2], [1, 1]);
            }
        }
    }
}

/// Returns the key of the metadata document of the array `a/b`, and its text.
fn document(store: &dyn Store) -> (String, String) {
    let names = [
        "a/b/zarr.json",
        "a/b/.zarray",
        "a/b/attributes.json",
        "meta/a/b.array.json",
        "meta/root/a/b.array.json",
        "meta/root/a/b.array",
        "meta/root/a/b.array.data",
    ];
    let found = names.iter().find_map(|name| {
        let object = store.get(&UNLIMITED, &key(name), 1 << 20).unwrap()?;
        Some((name.to_string(), String::from_utf8(object.bytes).unwrap()))
    });
    found.unwrap()
}

/// Invariant of `chunks_of_a_replaced_array_are_a_conflict`.
///
/// In each dialect, elements are not written into an array that another program has put in place of the opened one.
#[test]
fn elements_are_not_stored_in_a_replaced_array_of_any_dialect() {
    for (dialect, variant, store) in STORES.into_iter().chain([("n5", "", written::n5 as _)]) {
        for (mode, kind) in everywhere() {
            let why = format!("{dialect} {variant} {mode:?} {kind}");
            let mount = Shared::over(mode, kind, &store());
            let (name, text) = document(&*mount.lower);
            let write = |value: u8| {
                let file = mount.open("a/b/b.raw");
                file.write_at(&UNLIMITED, 0, &[value, value]).unwrap();
                file.flush(&UNLIMITED)
            };
            write(1).unwrap();
            assert!(mount.conflicts().is_empty(), "{why}");
            let mut same: Value = serde_json::from_str(&text).unwrap();
            same["shape"] = json!([3, 5]);
            mount.put_outside(
                &name,
                serde_json::to_string_pretty(&same).unwrap().as_bytes(),
            );
            write(2).unwrap();
            assert!(mount.conflicts().is_empty(), "{why}");
            let mut other = same.clone();
            let filled = if dialect == "n5" {
                "dataType"
            } else {
                "fill_value"
            };
            other[filled] = if dialect == "n5" {
                json!("uint16")
            } else {
                json!(9)
            };
            let file = mount.open("a/b/b.raw");
            file.write_at(&UNLIMITED, 0, &[3, 3]).unwrap();
            if mode == Mode::Cow {
                file.flush(&UNLIMITED).unwrap();
            }
            mount.put_outside(&name, other.to_string().as_bytes());
            match file.flush(&UNLIMITED) {
                Ok(()) => {
                    assert_eq!(mode, Mode::Cow, "{why}");
                    assert_eq!(mount.conflicts().len(), 1, "{why}");
                }
                Err(error) => is_changed(&error, "a"),
            }
        }
    }
}

/// Without the draft's entry point, an array's document alone does not define the array, so it may change before a
/// write.
#[test]
fn a_draft_without_its_entry_point_does_not_conflict() {
    for mode in [Mode::Cow, Mode::WriteThrough] {
        let store = written::october2020();
        store.erase(&key("zarr.json"));
        let dialect = Some("draft2020".parse().unwrap());
        let mount = Shared::with_dialect(mode, Arc::new(store), folder(), dialect);
        let file = mount.open("a/b/b.raw");
        file.write_at(&UNLIMITED, 0, &[1, 1]).unwrap();
        file.flush(&UNLIMITED).unwrap();
        assert!(mount.conflicts().is_empty(), "{mode:?}");
    }
}
