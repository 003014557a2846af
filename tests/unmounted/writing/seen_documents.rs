//! Tests conflicts: another program changes a document between a mount's read and its save.
//!
//! A change may only be lost if its writer gets an error.

use serde_json::{Value, json};
use zarr_format::error::Result;
use zarrfs_store::tree::{OpenMode, RenameMode};

use crate::common;
use crate::common::sample::{Form, Sample};
use crate::dialects::hierarchies::key;
use crate::writing::documents::{read_json, write};
use crate::writing::files::sized;
use crate::writing::fixture::MAKER;
use crate::writing::shared::{Shared, everywhere};
use zarrfs_store::request_context::UNLIMITED;

/// Changes the attributes of the array `a` in the store, as another program.
fn annotate_outside(mount: &Shared, attributes: &Value) {
    let mut document: Value = serde_json::from_slice(&mount.stored("a/zarr.json")).unwrap();
    document["attributes"] = attributes.clone();
    mount.put_outside("a/zarr.json", document.to_string().as_bytes());
}

/// Checks that `edit` does not undo a change that another program makes after `begin` has read the attributes.
fn edited<T>(
    begin: impl Fn(&Shared) -> T,
    edit: impl Fn(&Shared, T) -> Result<()>,
    check: impl Fn(&Shared),
) {
    let sample = Sample::new(&[4], &[4], Form::Plain);
    for (mode, kind) in everywhere() {
        let mount = Shared::of(mode, kind, &sample);
        let begun = begin(&mount);
        annotate_outside(&mount, &json!({"theirs": 2}));
        let before = mount.stored("a/zarr.json");
        let closed = edit(&mount, begun);
        mount.is_conflict(closed.clone(), "a/zarr.json");
        assert_eq!(mount.stored("a/zarr.json"), before, "{mode:?} {kind}");
        if closed.is_err() {
            mount.check_key_is_not_kept("a/zarr.json");
            let shown = read_json(&mount.view, "a/attributes.json");
            assert_eq!(shown, json!({"theirs": 2}), "{mode:?} {kind}");
            check(&mount);
        }
    }
}

const PATH: &str = "a/attributes.json";

/// Returns a text of attributes with one more member.
fn annotated(text: &[u8]) -> String {
    let mut value: Value = serde_json::from_slice(text).unwrap();
    value["ours"] = json!(1);
    value.to_string()
}

#[test]
fn a_document_open_to_read_and_write_keeps_a_change_of_others() {
    edited(
        |mount| mount.open(PATH),
        |_, file| {
            let text = annotated(&file.read_at(&UNLIMITED, 0, 1 << 16).unwrap());
            file.change(&UNLIMITED, &sized(0)).unwrap();
            file.write_at(&UNLIMITED, 0, text.as_bytes()).unwrap();
            let closed = file.flush(&UNLIMITED);
            // The kernel flushes a file again when its last handle is released.
            let _ = file.flush(&UNLIMITED);
            closed
        },
        |mount| {
            let file = mount.open(PATH);
            let text = annotated(&file.read_at(&UNLIMITED, 0, 1 << 16).unwrap());
            file.write_at(&UNLIMITED, 0, text.as_bytes()).unwrap();
            file.change(&UNLIMITED, &sized(text.len() as u64)).unwrap();
            file.flush(&UNLIMITED).unwrap();
            let shown = read_json(&mount.view, "a/attributes.json");
            assert_eq!(shown, json!({"theirs": 2, "ours": 1}));
        },
    );
}

/// Invariant of `a_chunk_that_another_program_changed_is_not_overwritten`.
///
/// A Python program calls `json.load(open(path))`, and then `json.dump(value, open(path, "w"))`.
#[test]
fn a_save_of_an_older_document_keeps_a_change_of_others() {
    edited(
        |mount| annotated(&common::read(&mount.view, PATH).unwrap()),
        |mount, text| write(&mount.tree, PATH, &text),
        |mount| {
            let text = annotated(&common::read(&mount.view, PATH).unwrap());
            write(&mount.tree, PATH, &text).unwrap();
            // A program that has saved a document knows its content, as if it had read the document.
            write(&mount.tree, PATH, &text).unwrap();
        },
    );
}

/// Editors write a new file and rename it onto the document. The kernel repeats a rename that fails with ESTALE.
#[test]
fn a_rename_onto_an_older_document_keeps_a_change_of_others() {
    let beside = key(&format!("{PATH}.tmp"));
    edited(
        |mount| annotated(&common::read(&mount.view, PATH).unwrap()),
        |mount, text| {
            let file = mount.tree.create(&UNLIMITED, &beside, &MAKER).unwrap();
            file.write_at(&UNLIMITED, 0, text.as_bytes()).unwrap();
            file.flush(&UNLIMITED).unwrap();
            let rename = || {
                mount
                    .tree
                    .rename(&UNLIMITED, &beside, &key(PATH), RenameMode::Replace)
            };
            let renamed = rename();
            if renamed.is_err() {
                rename().unwrap_err();
            }
            renamed
        },
        |mount| {
            mount.tree.unlink(&UNLIMITED, &beside).unwrap();
            let text = annotated(&common::read(&mount.view, PATH).unwrap());
            let file = mount.tree.create(&UNLIMITED, &beside, &MAKER).unwrap();
            file.write_at(&UNLIMITED, 0, text.as_bytes()).unwrap();
            mount
                .tree
                .rename(&UNLIMITED, &beside, &key(PATH), RenameMode::Replace)
                .unwrap();
        },
    );
}

/// Archivers and `install` remove the document and create it again.
#[test]
fn creating_a_removed_document_keeps_a_change_of_others() {
    edited(
        |mount| annotated(&common::read(&mount.view, PATH).unwrap()),
        |mount, text| {
            mount.tree.unlink(&UNLIMITED, &key(PATH)).unwrap();
            let file = mount.tree.create(&UNLIMITED, &key(PATH), &MAKER).unwrap();
            file.write_at(&UNLIMITED, 0, text.as_bytes()).unwrap();
            let closed = file.flush(&UNLIMITED);
            let _ = file.flush(&UNLIMITED);
            closed
        },
        |_| {},
    );
}

/// vim renames its backup to the old name if it could not write the new file.
#[test]
fn renaming_an_old_document_back_keeps_a_change_of_others() {
    let beside = key(&format!("{PATH}~"));
    edited(
        |mount| {
            common::read(&mount.view, PATH).unwrap();
            let aside = mount
                .tree
                .rename(&UNLIMITED, &key(PATH), &beside, RenameMode::Replace);
            aside.unwrap();
        },
        |mount, ()| {
            mount
                .tree
                .rename(&UNLIMITED, &beside, &key(PATH), RenameMode::Replace)
        },
        |_| {},
    );
}

#[test]
fn a_document_that_was_not_read_is_replaced() {
    let sample = Sample::new(&[4], &[4], Form::Plain);
    for (mode, kind) in everywhere() {
        let mount = Shared::of(mode, kind, &sample);
        let file = mount
            .tree
            .open(&UNLIMITED, &key(PATH), OpenMode::Truncate)
            .unwrap();
        annotate_outside(&mount, &json!({"theirs": 2}));
        file.write_at(&UNLIMITED, 0, b"{\"ours\": 1}").unwrap();
        file.flush(&UNLIMITED).unwrap();
        assert_eq!(mount.conflicts(), [""; 0]);
        let stored: Value = serde_json::from_slice(&mount.stored("a/zarr.json")).unwrap();
        assert_eq!(stored["attributes"], json!({"ours": 1}), "{mode:?} {kind}");
        // A save counts as a read, so the next save through the same file requires that the document has not changed
        // since.
        annotate_outside(&mount, &json!({"theirs": 3}));
        file.write_at(&UNLIMITED, 0, b"{\"ours\": 4}").unwrap();
        mount.is_conflict(file.flush(&UNLIMITED), "a/zarr.json");
    }
}

/// Another program changes a part of the document that the edit has not read.
#[test]
fn an_edit_of_attributes_keeps_a_shape_that_others_changed() {
    let sample = Sample::new(&[4], &[4], Form::Plain);
    for (mode, kind) in everywhere() {
        let mount = Shared::of(mode, kind, &sample);
        let file = mount.open("a/attributes.json");
        let mut document: Value = serde_json::from_slice(&mount.stored("a/zarr.json")).unwrap();
        document["shape"] = json!([6]);
        mount.put_outside("a/zarr.json", document.to_string().as_bytes());
        file.change(&UNLIMITED, &sized(0)).unwrap();
        file.write_at(&UNLIMITED, 0, b"{\"ours\": 1}").unwrap();
        file.flush(&UNLIMITED).unwrap();
        assert_eq!(mount.conflicts(), [""; 0], "{mode:?} {kind}");
        document["attributes"] = json!({"ours": 1});
        let stored: Value = serde_json::from_slice(&mount.stored("a/zarr.json")).unwrap();
        assert_eq!(stored, document, "{mode:?} {kind}");
    }
}

/// The document that a commit has stored counts as read, so the next save is no conflict.
#[test]
fn a_commit_of_a_document_does_not_conflict_with_its_writer() {
    let sample = Sample::new(&[4], &[4], Form::Plain);
    for (mode, kind) in everywhere() {
        let mount = Shared::of(mode, kind, &sample);
        write(&mount.tree, "a/attributes.json", r#"{"ours": 1}"#).unwrap();
        let file = mount.open("a/attributes.json");
        assert_eq!(mount.conflicts(), [""; 0]);
        file.write_at(&UNLIMITED, 0, b"{\"ours\": 2}").unwrap();
        file.change(&UNLIMITED, &sized(11)).unwrap();
        file.flush(&UNLIMITED).unwrap();
        assert_eq!(mount.conflicts(), [""; 0], "{mode:?} {kind}");
        let stored: Value = serde_json::from_slice(&mount.stored("a/zarr.json")).unwrap();
        assert_eq!(stored["attributes"], json!({"ours": 2}), "{mode:?} {kind}");
    }
}
