//! Tests changes of the store below: new opens show a change within three seconds.
//!
//! Before that they show the old content or an error, never a mixture.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde_json::json;

use crate::common::sample::{Form, GROUP, Keys, Sample};
use crate::operations::backend::{Backend, Enter};
use crate::operations::fixture::{Fixture, soon};
use zarrfs_store::request_context::UNLIMITED;

/// The length in bytes of each array of the store (`WHOLE`), and of each of its two chunks.
const WHOLE: usize = 4096;
const CHUNK: usize = WHOLE / 2;

/// Returns an array of two chunks of 1024 elements; its rows are long enough to be read directly from the store.
fn sample(form: Form) -> Sample {
    Sample::new(&[2, 1024], &[1, 1024], form)
}

fn put(store: &Path) {
    store.put("zarr.json", GROUP.as_bytes());
    for (name, form) in forms() {
        sample(form).put(store, name);
    }
}

fn forms() -> [(&'static str, Form); 3] {
    [
        ("plain", Form::Plain),
        ("packed", Form::Packed),
        ("shards", Form::Sharded(vec![1, 256])),
    ]
}

/// Replaces the first chunk of an array by a copy of the second, by a rename, as a writer with temporary files does.
fn replace_first(store: &Path, name: &str) {
    let arriving = store.parent().unwrap().join("arriving");
    fs::copy(store.join(name).join("c/1/0"), &arriving).unwrap();
    fs::rename(arriving, store.join(name).join("c/0/0")).unwrap();
}

/// Reads the file of an array until it has the content `new`; each read before that must return `old` or an error.
fn becomes(backend: &dyn Backend, file: &str, old: &[u8], new: &[u8]) {
    assert_ne!(old, new);
    let is_new = || match backend.read_whole(&UNLIMITED, file) {
        Ok(read) if read == new => true,
        Ok(read) => {
            assert!(read == old, "{file}: neither the old content nor the new");
            false
        }
        Err(_) => false,
    };
    assert!(soon(is_new), "{file} does not change");
}

pub(crate) fn a_changed_chunk_is_seen(enter: &Enter) {
    let fixture = Fixture::with(put);
    let backend = enter(fixture.views.files.clone());
    for (name, form) in forms() {
        let old = sample(form).whole();
        let file = format!("{name}/{name}.raw");
        assert_eq!(backend.read_whole(&UNLIMITED, &file).unwrap(), old);
        replace_first(&fixture.store(), name);
        let new = [&old[CHUNK..], &old[CHUNK..]].concat();
        becomes(&*backend, &file, &old, &new);
        let chunk = backend.read_whole(&UNLIMITED, &format!("{name}/chunks/0.0.raw"));
        assert_eq!(chunk.unwrap(), new[..CHUNK]);
    }
}

const INNER: usize = 4096;

/// Returns the bytes of a shard with two inner chunks of `uint8`, stored in the given order, and the elements of its
/// array.
fn shard(order: [usize; 2], first: u8) -> (Vec<u8>, Vec<u8>) {
    let whole = [vec![first; INNER], vec![first + 1; INNER]];
    let mut bytes = order.map(|inner| whole[inner].clone()).concat();
    for inner in 0..2 {
        let place = order.iter().position(|&other| other == inner).unwrap();
        bytes.extend(((place * INNER) as u64).to_le_bytes());
        bytes.extend((INNER as u64).to_le_bytes());
    }
    (bytes, whole.concat())
}

/// Overwrites a file in place, again and again until its ctime has changed.
fn overwrite(path: &Path, bytes: &[u8]) {
    let changed = || {
        let meta = fs::metadata(path).unwrap();
        (meta.ctime(), meta.ctime_nsec())
    };
    let before = changed();
    while changed() == before {
        fs::write(path, bytes).unwrap();
    }
}

pub(crate) fn a_shard_overwritten_in_place_never_reads_as_a_mixture(enter: &Enter) {
    let (old, before) = shard([0, 1], 10);
    let (new, after) = shard([1, 0], 20);
    let bytes = json!([{"name": "bytes", "configuration": {"endian": "little"}}]);
    let metadata = json!({
        "zarr_format": 3, "node_type": "array", "shape": [2 * INNER], "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2 * INNER]}},
        "chunk_key_encoding": "default", "fill_value": 0,
        "codecs": [{"name": "sharding_indexed", "configuration": {
            "chunk_shape": [INNER], "codecs": bytes, "index_codecs": bytes,
        }}],
    });
    let fixture = Fixture::with(|store| {
        store.put("zarr.json", GROUP.as_bytes());
        store.put("a/zarr.json", metadata.to_string().as_bytes());
        store.put("a/c/0", &old);
    });
    let backend = enter(fixture.views.files.clone());
    let file = backend.open(&UNLIMITED, "a/a.raw").unwrap();
    // From this read on, the index of the shard is in memory.
    assert_eq!(file.read(&UNLIMITED, 0, INNER).unwrap(), before[..INNER]);
    overwrite(&fixture.store().join("a/c/0"), &new);
    if let Ok(read) = file.read(&UNLIMITED, INNER as u64, INNER) {
        let mixture = read != before[INNER..] && read != after[INNER..];
        assert!(
            !mixture,
            "{} where an inner chunk of another content is due",
            read[0]
        );
    }
    drop(file);
    becomes(&*backend, "a/a.raw", &before, &after);
}

pub(crate) fn an_added_and_a_removed_chunk_are_seen(enter: &Enter) {
    let fixture = Fixture::with(put);
    let backend = enter(fixture.views.files.clone());
    for (name, form) in forms() {
        let whole = sample(form).whole();
        let filled = [&[0xff; CHUNK][..], &whole[CHUNK..]].concat();
        let file = format!("{name}/{name}.raw");
        assert_eq!(backend.read_whole(&UNLIMITED, &file).unwrap(), whole);
        let (chunk, away) = (
            fixture.store().join(name).join("c/0/0"),
            fixture.beside(name),
        );
        fs::rename(&chunk, &away).unwrap();
        becomes(&*backend, &file, &whole, &filled);
        fs::rename(&away, &chunk).unwrap();
        becomes(&*backend, &file, &filled, &whole);
    }
}

pub(crate) fn a_longer_array_is_seen(enter: &Enter) {
    let fixture = Fixture::with(put);
    let backend = enter(fixture.views.files.clone());
    for (name, form) in forms() {
        let sample = sample(form);
        let file = format!("{name}/{name}.raw");
        assert_eq!(backend.stat(&file).unwrap().size, WHOLE as u64);
        let mut metadata = sample.metadata();
        metadata["shape"] = json!([3, 1024]);
        metadata["attributes"] = json!({"unit": "K"});
        fixture.store().as_path().put(
            &format!("{name}/zarr.json"),
            metadata.to_string().as_bytes(),
        );
        let longer = (WHOLE + CHUNK) as u64;
        assert!(
            soon(|| backend.stat(&file).unwrap().size == longer),
            "{file} does not grow"
        );
        let read = backend.read_whole(&UNLIMITED, &file).unwrap();
        assert_eq!(read, [sample.whole(), vec![0xff; CHUNK]].concat());
        let missing = backend.stat(&format!("{name}/chunks/2.0.raw"));
        assert_eq!(missing.unwrap().size, CHUNK as u64);
        // The array has grown, but its new chunk is not stored and therefore not listed.
        assert_eq!(
            backend
                .list(&UNLIMITED, &format!("{name}/chunks"))
                .unwrap()
                .len(),
            4
        );
        let attributes = backend.read_whole(&UNLIMITED, &format!("{name}/attributes.json"));
        let attributes: serde_json::Value = serde_json::from_slice(&attributes.unwrap()).unwrap();
        assert_eq!(attributes, json!({"unit": "K"}));
    }
}

pub(crate) fn added_changed_and_removed_keys_are_seen(enter: &Enter) {
    let fixture = Fixture::with(put);
    let (stored, files) = (
        enter(fixture.views.stored.clone()),
        enter(fixture.views.files.clone()),
    );
    assert!(stored.stat("late/zarr.json").is_err() && files.stat("late").is_err());
    let store = fixture.store();
    sample(Form::Plain).put(store.as_path(), "late");
    assert!(soon(|| stored.stat("late/zarr.json").is_ok()));
    assert!(soon(|| files
        .read_whole(&UNLIMITED, "late/late.raw")
        .is_ok()));
    assert!(
        files
            .names(&UNLIMITED, "")
            .unwrap()
            .contains(&"late".to_string())
    );
    let read = stored.read_whole(&UNLIMITED, "late/c/0/0").unwrap();
    store
        .as_path()
        .put("late/c/0/0", b"another content of another length");
    let changed = || {
        stored
            .read_whole(&UNLIMITED, "late/c/0/0")
            .is_ok_and(|now| now != read)
    };
    assert!(soon(changed));
    assert_eq!(
        stored.read_whole(&UNLIMITED, "late/c/0/0").unwrap(),
        b"another content of another length"
    );
    fs::remove_dir_all(store.join("late")).unwrap();
    assert!(soon(
        || stored.stat("late").is_err() && files.stat("late").is_err()
    ));
    assert!(
        !files
            .names(&UNLIMITED, "")
            .unwrap()
            .contains(&"late".to_string())
    );
}

pub(crate) fn a_file_that_grew_is_read_to_its_end(enter: &Enter) {
    let fixture = Fixture::with(|_| ());
    let backend = enter(fixture.views.stored.clone());
    let note = fixture.store().join("note");
    for size in 1..60 {
        fs::write(&note, b"x".repeat(10 * size)).unwrap();
        // The kernel caches the length of the file for a second.
        backend.stat("note").unwrap();
        let longer = b"y".repeat(20 * size);
        fs::write(&note, &longer).unwrap();
        assert!(
            backend.read_whole(&UNLIMITED, "note").unwrap() == longer,
            "{size}"
        );
    }
}

pub(crate) fn bytes_of_a_replaced_file_never_reach_new_readers(enter: &Enter) {
    const SIZE: usize = 16 << 20;
    let fixture = Fixture::with(|store| store.put("big", &b"o".repeat(SIZE)));
    let backend = enter(fixture.views.stored.clone());
    let old = backend.open(&UNLIMITED, "big").unwrap();
    assert_eq!(old.read(&UNLIMITED, 0, 1).unwrap(), b"o");
    let arriving = fixture.beside("arriving");
    fs::write(&arriving, b"n".repeat(SIZE)).unwrap();
    fs::rename(arriving, fixture.store().join("big")).unwrap();
    // A new open of the name reads the new content; a file that was opened before still has the old content.
    let new = backend.open(&UNLIMITED, "big").unwrap();
    assert_eq!(new.read(&UNLIMITED, 0, 1).unwrap(), b"n");
    let middle = 9 << 20;
    assert!(old.read(&UNLIMITED, middle, 4096).unwrap() == b"o".repeat(4096));
    assert!(new.read(&UNLIMITED, middle, 1 << 20).unwrap() == b"n".repeat(1 << 20));
    assert!(old.read(&UNLIMITED, middle, 1 << 20).unwrap() == b"o".repeat(1 << 20));
}

pub(crate) fn bytes_of_an_overwritten_file_never_reach_old_readers(enter: &Enter) {
    const SIZE: usize = 16 << 20;
    let fixture = Fixture::with(|store| store.put("big", &b"o".repeat(SIZE)));
    let backend = enter(fixture.views.stored.clone());
    let old = backend.open(&UNLIMITED, "big").unwrap();
    assert!(old.read(&UNLIMITED, 0, SIZE / 2).unwrap() == b"o".repeat(SIZE / 2));
    overwrite(&fixture.store().join("big"), &b"n".repeat(SIZE));
    let new = backend.open(&UNLIMITED, "big").unwrap();
    assert!(new.read(&UNLIMITED, 0, SIZE).unwrap() == b"n".repeat(SIZE));
    for offset in [0, 5 << 20, 9 << 20, SIZE as u64 - 1] {
        match old.read(&UNLIMITED, offset, 1) {
            Ok(read) => assert_eq!(read, b"o", "at {offset}"),
            Err(errno) => assert_eq!(errno, libc::ESTALE),
        }
    }
}
