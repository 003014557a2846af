//! Tests that reading a file's header or end decodes few chunks, in every format.

use std::collections::HashSet;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use zarrfs::mount::open::ViewKind;
use zarrfs_export::formats::{FORMATS, Format, Ragged};
use zarrfs_store::Key;

use crate::arrays::stored::{default_keys, key, memory, v3, view_of};
use crate::common;
use zarrfs_store::request_context::UNLIMITED;

/// The shape of an array, the shape of its chunks (which divides it), and its dimension names.
type Arrangement = (&'static [u64], &'static [u64], &'static [&'static str]);

/// An array whose chunks contain 8 x 8 whole rows each.
const CUBE: Arrangement = (&[64, 64, 64], &[8, 8, 64], &["z", "y", "x"]);
const LINES: Arrangement = (&[64, 64, 64], &[8, 8, 64], &["y", "band", "x"]);
const PIXELS: Arrangement = (&[64, 64, 64], &[8, 8, 64], &["y", "x", "band"]);
const PLANE: Arrangement = (&[1024, 64], &[64, 64], &["y", "x"]);

/// Writes an array whose chunks contain 8 x 8 whole rows each and all have the same bytes.
pub fn write_rows(store: &Path, data_type: &str, size: usize) {
    write_alike(store, CUBE, data_type, size);
}

fn write_alike(store: &Path, (shape, chunk, names): Arrangement, data_type: &str, size: usize) {
    let bytes = json!({"name": "bytes", "configuration": {"endian": "little"}});
    let gzip = json!({"name": "gzip", "configuration": {"level": 1}});
    let document = json!({
        "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
        "chunk_key_encoding": {"name": "default"}, "fill_value": 7, "codecs": [bytes, gzip],
        "dimension_names": names, "attributes": {"sample_rate": 8000},
    });
    std::fs::create_dir_all(store).unwrap();
    std::fs::write(store.join("zarr.json"), document.to_string()).unwrap();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let elements = chunk.iter().product::<u64>() as usize;
    encoder.write_all(&vec![1; elements * size]).unwrap();
    let encoded = encoder.finish().unwrap();
    let counts = shape
        .iter()
        .zip(chunk)
        .map(|(length, chunk)| length / chunk);
    let counts: Vec<u64> = counts.collect();
    for number in 0..counts.iter().product() {
        let (mut rest, mut indices) = (number, Vec::new());
        for count in counts.iter().rev() {
            indices.push((rest % count).to_string());
            rest /= count;
        }
        indices.reverse();
        let place = store.join(format!("c/{}", indices.join("/")));
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::write(place, &encoded).unwrap();
    }
}

/// Returns the formats with a fixed layout, whose files are opened without reading elements.
fn laid_formats() -> impl Iterator<Item = &'static Format> {
    let is_made = |format: &&Format| matches!(format.ragged, Some(Ragged::Rows(_)));
    FORMATS
        .iter()
        .copied()
        .filter(move |format| !is_made(format))
}

/// Invariant of `any_range_of_any_format_is_the_slice_of_the_whole`.
#[test]
fn a_header_and_an_end_cost_two_chunks() {
    let mut seen = HashSet::new();
    for (data_type, size) in [
        ("uint8", 1),
        ("int16", 2),
        ("uint16", 2),
        ("float32", 4),
        ("float16", 2),
    ] {
        for arrangement in [CUBE, LINES, PIXELS, PLANE] {
            let folder = tempfile::tempdir().unwrap();
            let store = folder.path().join("a.zarr");
            write_alike(&store, arrangement, data_type, size);
            for format in laid_formats() {
                let (views, stats) = common::open(&store).unwrap();
                let view = views.view(ViewKind::Files);
                let key = Key::new(format!("a.{}", format.extension)).unwrap();
                let Ok(Some(attr)) = view.lookup(&UNLIMITED, &key) else {
                    continue;
                };
                let file = view.open(&UNLIMITED, &key).unwrap().file;
                // A read of the first bytes makes zarrfs generate the whole header of formats that have one.
                file.read_at(&UNLIMITED, 0, 64).unwrap();
                file.read_at(&UNLIMITED, attr.size - 1, 1).unwrap();
                let chunks = stats.decoded_chunks.get();
                assert!(chunks <= 2, "{key} of {data_type}: {chunks}");
                seen.insert(format.extension);
            }
        }
    }
    for format in laid_formats().filter(|format| format.parts.is_some()) {
        assert!(seen.contains(format.extension), "{format:?}");
    }
}

#[test]
fn the_header_and_the_end_of_a_group_cost_two_chunks() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("a.zarr");
    write_rows(&store.join("first"), "float32", 4);
    write_rows(&store.join("second"), "int16", 2);
    for name in ["a.nc", "a.h5", "a.nc4"] {
        let (views, stats) = common::open(&store).unwrap();
        let view = views.view(ViewKind::Files);
        let attr = view.lookup(&UNLIMITED, &key(name)).unwrap().unwrap();
        let file = view.open(&UNLIMITED, &key(name)).unwrap().file;
        let header = attr.size - 64 * 64 * 64 * 6;
        file.read_at(&UNLIMITED, 0, header as usize).unwrap();
        assert_eq!(stats.decoded_chunks.get(), 0, "{name}");
        file.read_at(&UNLIMITED, attr.size - 1, 1).unwrap();
        assert!(stats.decoded_chunks.get() <= 2, "{name}");
    }
}

#[test]
fn elements_are_aligned_in_formats_that_allow_it() {
    let formats = [
        "npy", "f.npy", "nrrd", "mha", "vti", "mrc", "h5", "tif", "ome.tif",
    ];
    for (length, name) in (1..70).map(|length| (length, "n".repeat(length as usize))) {
        let mut document: Value =
            serde_json::from_str(&v3(&[length, 2], &[1, 2], default_keys())).unwrap();
        document["data_type"] = json!("int8");
        document["attributes"] =
            json!({"long_name": name, "units": name, "spacing": [1.5, length]});
        let store = memory(&[("a/zarr.json", &document.to_string())]);
        let (view, _) = view_of(Arc::new(store), &[]);
        for format in formats {
            let file = common::read(&view, &format!("a/a.{format}")).unwrap();
            // Each element is the fill value 7. Text headers contain no such byte, and their padding consists of zeros.
            let elements = vec![7; 2 * length as usize];
            let start = file
                .windows(elements.len())
                .rposition(|part| part == elements);
            let is_aligned = start.is_some_and(|start| start % 64 == 0);
            assert!(is_aligned, "{format} of {length} rows: {start:?}");
        }
    }
}
