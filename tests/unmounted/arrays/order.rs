//! Tests the prediction whether a program will read a flat file to its end.

use std::fs;
use std::path::Path;

use serde_json::json;
use tempfile::TempDir;
use zarrfs::mount::open::ViewKind;
use zarrfs::view::OpenedFile;
use zarrfs_store::Key;

use crate::common;
use zarrfs_store::request_context::UNLIMITED;

/// Writes the metadata of an array with chunks of 1,000 x 1,000 elements, none of which is stored.
fn write(folder: &Path, shape: [u64; 2]) {
    let array = json!({
        "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1000, 1000]}},
        "chunk_key_encoding": {"name": "default"}, "fill_value": 0,
        "codecs": [
            {"name": "bytes", "configuration": {"endian": "little"}},
            {"name": "zstd", "configuration": {"level": 1, "checksum": false}},
        ],
    });
    fs::write(folder.join("zarr.json"), array.to_string()).unwrap();
}

struct Fixture {
    _folder: TempDir,
    views: zarrfs::mount::open::Views,
}

impl Fixture {
    fn new(shape: [u64; 2]) -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("a.zarr");
        fs::create_dir(&store).unwrap();
        write(&store, shape);
        let (views, _) = common::open(&store).unwrap();
        Fixture {
            _folder: folder,
            views,
        }
    }

    fn open(&self) -> OpenedFile {
        let view = self.views.view(ViewKind::Files);
        view.open(&UNLIMITED, &Key::new("a.raw").unwrap()).unwrap()
    }
}

/// Invariant of `rows_of_a_window_are_not_sequential`.
#[test]
fn a_huge_file_is_not_expected_to_be_read_sequentially() {
    let side = 1_000_000;
    let fixture = Fixture::new([side, side]);
    let opened = fixture.open();
    assert!(!opened.file.expects_sequential(), "nobody reads 4 TB");
    for row in 0..1000 {
        let offset = (500_000 + row) * side * 4 + 2_000_000;
        assert_eq!(
            opened.file.read_at(&UNLIMITED, offset, 8192).unwrap().len(),
            8192
        );
    }
}

/// Invariant of `rows_of_a_window_are_not_sequential`.
#[test]
fn the_next_reader_is_expected_to_read_like_the_last() {
    let fixture = Fixture::new([10_000, 10_000]);
    assert!(fixture.open().file.expects_sequential(), "nothing is known");
    let windows = fixture.open();
    for row in 0..100 {
        windows
            .file
            .read_at(&UNLIMITED, row * 40_000 * 50, 4096)
            .unwrap();
    }
    drop(windows);
    let in_order = fixture.open();
    assert!(!in_order.file.expects_sequential());
    for place in 0..16 {
        in_order
            .file
            .read_at(&UNLIMITED, place << 20, 1 << 20)
            .unwrap();
    }
    drop(in_order);
    assert!(fixture.open().file.expects_sequential());
}
