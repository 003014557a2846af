//! The store changes below: what is opened afterwards shows it within three seconds, and before that the old
//! content or an error, never a mixture.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::common::sample::Form;
use crate::common::sample::GROUP;
use crate::common::sample::Keys;
use crate::common::sample::Sample;
use crate::place::Enter;
use crate::place::Place;
use crate::stand::Stand;
use crate::stand::soon;

/// Bytes of each array of the store, and of one of its two chunks.
const WHOLE: usize = 4096;
const CHUNK: usize = WHOLE / 2;

/// Returns an array of two chunks of 1024 elements; rows long enough to be read straight from the store.
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

/// Puts the second chunk of an array in the place of its first, as a writer does that renames.
fn replace_first(store: &Path, name: &str) {
    let arriving = store.parent().unwrap().join("arriving");
    fs::copy(store.join(name).join("c/1/0"), &arriving).unwrap();
    fs::rename(arriving, store.join(name).join("c/0/0")).unwrap();
}

/// Reads an array until it is `new`; meanwhile it is `old` or an error.
fn becomes(place: &dyn Place, file: &str, old: &[u8], new: &[u8]) {
    assert_ne!(old, new);
    let is_new = || match place.read_whole(file) {
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
    let stand = Stand::with(put);
    let place = enter(stand.views.files.clone());
    for (name, form) in forms() {
        let old = sample(form).whole();
        let file = format!("{name}/{name}.raw");
        assert_eq!(place.read_whole(&file).unwrap(), old);
        replace_first(&stand.store(), name);
        let new = [&old[CHUNK..], &old[CHUNK..]].concat();
        becomes(&*place, &file, &old, &new);
        let chunk = place.read_whole(&format!("{name}/chunks/0.0.raw"));
        assert_eq!(chunk.unwrap(), new[..CHUNK]);
    }
}

pub(crate) fn an_added_and_a_removed_chunk_are_seen(enter: &Enter) {
    let stand = Stand::with(put);
    let place = enter(stand.views.files.clone());
    for (name, form) in forms() {
        let whole = sample(form).whole();
        let filled = [&[0xff; CHUNK][..], &whole[CHUNK..]].concat();
        let file = format!("{name}/{name}.raw");
        assert_eq!(place.read_whole(&file).unwrap(), whole);
        let (chunk, away) = (stand.store().join(name).join("c/0/0"), stand.beside(name));
        fs::rename(&chunk, &away).unwrap();
        becomes(&*place, &file, &whole, &filled);
        fs::rename(&away, &chunk).unwrap();
        becomes(&*place, &file, &filled, &whole);
    }
}

pub(crate) fn a_longer_array_is_seen(enter: &Enter) {
    let stand = Stand::with(put);
    let place = enter(stand.views.files.clone());
    for (name, form) in forms() {
        let sample = sample(form);
        let file = format!("{name}/{name}.raw");
        assert_eq!(place.stat(&file).unwrap().size, WHOLE as u64);
        let mut metadata = sample.metadata();
        metadata["shape"] = json!([3, 1024]);
        stand.store().as_path().put(
            &format!("{name}/zarr.json"),
            metadata.to_string().as_bytes(),
        );
        let longer = (WHOLE + CHUNK) as u64;
        assert!(
            soon(|| place.stat(&file).unwrap().size == longer),
            "{file} does not grow"
        );
        let read = place.read_whole(&file).unwrap();
        assert_eq!(read, [sample.whole(), vec![0xff; CHUNK]].concat());
        assert_eq!(place.list(&format!("{name}/chunks")).unwrap().len(), 6);
    }
}

pub(crate) fn keys_that_come_and_go_are_seen(enter: &Enter) {
    let stand = Stand::with(put);
    let (stored, files) = (
        enter(stand.views.stored.clone()),
        enter(stand.views.files.clone()),
    );
    assert!(stored.stat("late/zarr.json").is_err() && files.stat("late").is_err());
    let store = stand.store();
    sample(Form::Plain).put(store.as_path(), "late");
    assert!(soon(|| stored.stat("late/zarr.json").is_ok()));
    assert!(soon(|| files.read_whole("late/late.raw").is_ok()));
    assert!(files.names("").unwrap().contains(&"late".to_string()));
    let read = stored.read_whole("late/c/0/0").unwrap();
    store
        .as_path()
        .put("late/c/0/0", b"another content of another length");
    let changed = || stored.read_whole("late/c/0/0").is_ok_and(|now| now != read);
    assert!(soon(changed));
    assert_eq!(
        stored.read_whole("late/c/0/0").unwrap(),
        b"another content of another length"
    );
    fs::remove_dir_all(store.join("late")).unwrap();
    assert!(soon(
        || stored.stat("late").is_err() && files.stat("late").is_err()
    ));
    assert!(!files.names("").unwrap().contains(&"late".to_string()));
}
