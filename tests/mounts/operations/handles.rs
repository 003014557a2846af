//! Descriptors of the store are closed again and do not accumulate.

use std::fs;
use std::path::Path;

use rustix::io::Errno;

use crate::common::sample::arrays;
use crate::operations::backend::{Backend, Enter};
use crate::operations::fixture::{Fixture, name, soon};
use zarrfs_store::request_context::UNLIMITED;

/// Counts the descriptors of this process for files below a folder, because other tests open other files.
fn descriptors(folder: &Path) -> usize {
    let entries = fs::read_dir("/proc/self/fd").unwrap();
    let targets = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    targets.filter(|target| target.starts_with(folder)).count()
}

/// Opens a file and lists a directory in each view, and reads some bytes.
fn use_once(backend: &dyn Backend, round: usize) {
    let arrays = arrays();
    let (path, _) = &arrays[round % arrays.len()];
    for file in [
        format!(".zarrfs/files/{path}/{}.raw", name(path)),
        format!(".zarrfs/files/{path}/metadata.json"),
        format!("{path}/zarr.json"),
        ".zarrfs/stats.json".to_string(),
    ] {
        backend.read(&UNLIMITED, &file, 1, 100).unwrap();
    }
    backend.list(&UNLIMITED, path).unwrap();
    backend
        .list(&UNLIMITED, &format!(".zarrfs/files/{path}"))
        .unwrap();
    assert!(
        backend
            .open(&UNLIMITED, ".zarrfs/files/strange/strange.raw")
            .is_err()
    );
    assert!(backend.open(&UNLIMITED, "none").is_err());
}

pub(crate) fn descriptors_of_the_store_are_closed_after_use(enter: &Enter) {
    let fixture = Fixture::new();
    let backend = enter(fixture.views.stored.clone());
    let folder = fixture.store().canonicalize().unwrap();
    let held = backend.open(&UNLIMITED, "plain/zarr.json").unwrap();
    // The first rounds open descriptors that may stay open, such as those of chunks of arrays in use.
    (0..50).for_each(|round| use_once(&*backend, round));
    drop(held);
    let usual = descriptors(&folder);
    assert!(usual > 0, "the store itself is open");
    (0..1000).for_each(|round| use_once(&*backend, round));
    // Wait, because the kernel releases files asynchronously.
    assert!(
        soon(|| descriptors(&folder) <= usual),
        "{} descriptors, before {usual}",
        descriptors(&folder)
    );
}

pub(crate) fn a_deleted_file_stays_readable_while_it_is_open(enter: &Enter) {
    let fixture = Fixture::new();
    let backend = enter(fixture.views.stored.clone());
    let path = "deep/er/packed/zarr.json";
    let whole = backend.read_whole(&UNLIMITED, path).unwrap();
    let (file, unread) = (
        backend.open(&UNLIMITED, path).unwrap(),
        backend.open(&UNLIMITED, path).unwrap(),
    );
    assert_eq!(file.read(&UNLIMITED, 0, 10).unwrap(), whole[..10]);
    fs::remove_dir_all(fixture.store().join("deep/er")).unwrap();
    let gone = Err(Errno::NOENT.raw_os_error());
    assert!(soon(|| backend.stat(path) == gone), "it is still there");
    for open in [&file, &unread] {
        assert_eq!(open.read(&UNLIMITED, 0, whole.len() + 1).unwrap(), whole);
        assert!(
            open.read(&UNLIMITED, whole.len() as u64, 1)
                .unwrap()
                .is_empty()
        );
    }
    drop((file, unread));
    assert!(backend.open(&UNLIMITED, path).is_err());
}
