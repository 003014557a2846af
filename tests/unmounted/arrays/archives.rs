//! Tests that open files of a replaced archive fail, and never mix two archives.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use zarr_format::error::Kind;
use zarrfs::view::View;
use zarrfs_store::backend::local::LocalStore;
use zarrfs_store::backend::zip::ZipStore;
use zarrfs_store::layer::Layer;
use zarrfs_store::{Key, Store, StoreConfig, StoreInfo};

use crate::common;
use crate::common::zip_writer::{Archive, Entry};
use zarrfs_store::request_context::{UNLIMITED, WITHOUT_WAITING};

const NAME: &str = "store.zip";

/// A local store with a TTL of one minute, so that only the open archive can detect a change.
struct MinuteFolder(LocalStore, StoreInfo);

impl Layer for MinuteFolder {
    fn below(&self) -> &dyn Store {
        &self.0
    }

    fn info(&self) -> &StoreInfo {
        &self.1
    }
}

/// Returns a zip archive with an array of eight elements equal to `number`, in two chunks. Archives of different
/// numbers differ in length.
fn archive(number: u8) -> Vec<u8> {
    let array = br#"{"zarr_format": 3, "node_type": "array", "shape": [8], "data_type": "uint8", "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}},
        "chunk_key_encoding": {"name": "default"}, "codecs": ["bytes"]}"#;
    Archive::of([
        Entry::new("zarr.json", br#"{"zarr_format": 3, "node_type": "group"}"#),
        Entry::new("a/zarr.json", array),
        Entry::new("a/c/0", &[number; 4]),
        Entry::deflated("a/c/1", &[number; 4]),
        Entry::new("more", &vec![0; number.into()]),
    ])
    .bytes()
}

fn view(folder: &Path) -> Arc<dyn View> {
    let local = LocalStore::open(folder, &StoreConfig::default()).unwrap();
    let info = StoreInfo {
        freshness: Duration::from_secs(60),
        ..local.info().clone()
    };
    let base = Arc::new(MinuteFolder(local, info));
    let zip = ZipStore::open(
        &UNLIMITED,
        base,
        &Key::new(NAME).unwrap(),
        &Key::root(),
        NAME,
    )
    .unwrap();
    common::views_of(Arc::new(zip), Duration::from_secs(20)).files
}

/// Invariant of `a_new_chunk_version_gives_a_new_page_version`.
#[test]
fn chunks_of_two_archives_are_never_in_one_file() {
    for name in ["a/a.raw", "a/a@::1.raw"] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(NAME), archive(1)).unwrap();
        let view = view(folder.path());
        let file = view
            .open(&UNLIMITED, &Key::new(name).unwrap())
            .unwrap()
            .file;
        assert_eq!(
            file.read_at(&UNLIMITED, 0, 4).unwrap()[..],
            [1; 4],
            "{name}"
        );
        // The archive is overwritten in place, so the open descriptor now reads the other archive. The read of the next
        // chunk detects the change.
        fs::write(folder.path().join(NAME), archive(2)).unwrap();
        for (offset, length) in [(4, 4), (0, 4), (0, 8)] {
            let read = file
                .read_at(&UNLIMITED, offset, length)
                .map(|bytes| bytes.to_vec());
            let error = read.unwrap_err();
            assert_eq!(error.kind(), Kind::Changed, "{name} {offset}: {error}");
            assert!(error.to_string().contains("the zip archive was replaced"));
        }
        assert!(file.read_at(&WITHOUT_WAITING, 0, 4).is_err(), "{name}");
        assert_eq!(common::read(&view, name).unwrap(), [2; 8], "{name}");
    }
}
