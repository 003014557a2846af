//! Another program replaces an array while its elements are written: nothing of them comes into the new one.

use serde_json::{Value, json};
use zarrfs::store::tree::OpenMode;

use crate::common::sample::{Form, Sample};
use crate::hierarchies::key;
use crate::shared::{Mode, Shared, everywhere, is_changed};
use zarrfs::request_context::UNLIMITED;

/// Documents of arrays that read other elements of the chunks of `sample`.
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

#[test]
fn a09_an_array_that_was_replaced_after_its_elements_were_stored_here() {
    for sample in samples() {
        for other in others(&sample) {
            let mount = Shared::of(Mode::Cow, "local", &sample);
            let file = mount.open("a/a.raw");
            file.write_at(&UNLIMITED, 0, &[1, 1]).unwrap();
            file.flush(&UNLIMITED).unwrap();
            mount.put_outside("a/zarr.json", other.to_string().as_bytes());
            assert_eq!(mount.conflicts(), ["a/c/0"], "{other}");
            // Attributes that are edited here do not bring the chunk into the new array.
            edit_attributes(&mount);
            assert_eq!(mount.conflicts(), ["a/c/0"], "{other}");
        }
    }
}

#[test]
fn a09_an_array_that_was_replaced_before_its_elements_are_stored() {
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
fn a09_another_shape_and_other_attributes_are_no_conflict() {
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
