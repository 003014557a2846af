//! Tests that a discard drops unstored chunks of open files with the array's other changes.

use zarrfs_store::Key;

use crate::common::sample::{Form, Sample};
use crate::dialects::hierarchies::key;
use crate::writing::shared::{Mode, Shared, is_changed};
use zarrfs_store::request_context::UNLIMITED;

/// Discards the changes below a path as `zarrfs discard` does. Returns their number.
fn discard(mount: &Shared, path: &Key) -> u64 {
    let dropped = mount.arrays.discard_dirty(path);
    let discarded = mount.overlay.discard(&UNLIMITED, path);
    dropped + discarded.map_or(0, |discarded| discarded.dropped)
}

/// Invariant (writing): After a discard, unstored data of an open decoded file do not come back.
#[test]
fn unstored_writes_of_an_open_file_are_discarded() {
    let sample = Sample::new(&[8], &[4], Form::Plain);
    for path in [Key::root(), key("a"), key("a/c/0")] {
        for (written, is_synced) in [(4, false), (2, false), (4, true), (2, true)] {
            let why = format!("{path} {written} {is_synced}");
            let mount = Shared::of(Mode::Cow, "local", &sample);
            let before = mount.stored("a/c/0");
            let size = before.len() / 4;
            let file = mount.open("a/a.raw");
            let read = || file.read_at(&UNLIMITED, 0, before.len()).unwrap();
            if is_synced {
                file.write_at(&UNLIMITED, 0, &[8; 1]).unwrap();
                file.flush(&UNLIMITED).unwrap();
            }
            file.write_at(&UNLIMITED, 0, &vec![9; written * size])
                .unwrap();
            // The program also writes an element of another chunk.
            file.write_at(&UNLIMITED, 4 * size as u64, &[6]).unwrap();
            let count = if path == key("a/c/0") { 1 } else { 2 };
            assert_eq!(
                discard(&mount, &path),
                count + u64::from(is_synced),
                "{why}"
            );
            assert_eq!(read(), before, "{why}");
            is_changed(&file.flush(&UNLIMITED).unwrap_err(), &path.to_string());
            file.flush(&UNLIMITED).unwrap();
            let changes = mount.overlay.changes(&UNLIMITED).unwrap().keys;
            let left: Vec<Key> = changes.into_iter().map(|change| change.key).collect();
            let elsewhere = [key("a/c/1")];
            assert_eq!(left, elsewhere[..2 - count as usize], "{why}");
            // A write that follows the discard is stored.
            file.write_at(&UNLIMITED, 0, &[5]).unwrap();
            assert_eq!(discard(&mount, &key("a/c/7")), 0);
            file.flush(&UNLIMITED).unwrap();
            assert_eq!(mount.conflicts(), [""; 0], "{why}");
            let now = mount.stored("a/c/0");
            assert_eq!((now[0], &now[1..]), (5, &before[1..]), "{why}");
        }
    }
}

/// A discard of other keys causes no error for a program that has written an array.
#[test]
fn a_discard_of_other_keys_fails_no_write() {
    let sample = Sample::new(&[8], &[4], Form::Plain);
    let mount = Shared::of(Mode::Cow, "local", &sample);
    let file = mount.open("a/a.raw");
    file.write_at(&UNLIMITED, 0, &[9]).unwrap();
    for path in ["b", "a/c/1", "a/zarr.json"] {
        assert_eq!(discard(&mount, &key(path)), 0, "{path}");
    }
    file.flush(&UNLIMITED).unwrap();
    assert_eq!(mount.overlay.changes(&UNLIMITED).unwrap().keys.len(), 1);
}
