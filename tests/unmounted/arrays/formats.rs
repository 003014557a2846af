//! Tests that any range of a file in any format is a slice of it.
//!
//! The size of a file is known before it is read, and its header is cheap.

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use zarr_format::error::Kind;
use zarrfs::view::View;
use zarrfs_export::formats::{FORMATS, GROUP_FORMATS};
use zarrfs_store::Key;

use crate::arrays::flat::{Case, cases, write};
use crate::arrays::stored::{default_keys, key, memory, names, strings, v3, view_of};
use crate::common;
use zarrfs_store::request_context::{UNLIMITED, WITHOUT_WAITING, is_answer};

/// Adds the names of dimensions to the metadata of an array, and the attributes that some formats need.
pub fn name_dimensions(store: &Path, names: &[&str]) {
    let path = store.join("zarr.json");
    let mut document: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let rank = document["shape"].as_array().unwrap().len();
    document["dimension_names"] = json!(names[..rank.min(names.len())]);
    // `sample_rate` makes a sound file possible, and `scale_factor` makes CF-decoded files differ from the stored
    // values.
    document["attributes"] = json!({"sample_rate": 8000, "scale_factor": 0.5, "missing_value": 7});
    if rank <= names.len() {
        std::fs::write(path, document.to_string()).unwrap();
    }
}

/// Returns the elements of an array in Fortran order (first dimension fastest).
fn fortran(case: &Case, whole: &[u8]) -> Vec<u8> {
    let count = case.shape.iter().product::<u64>() as usize;
    let size = whole.len().checked_div(count).unwrap_or(0);
    let mut out = Vec::new();
    for place in 0..count {
        let (mut rest, mut at) = (place as u64, vec![0; case.shape.len()]);
        for (axis, &length) in case.shape.iter().enumerate() {
            at[axis] = rest % length;
            rest /= length;
        }
        let number = at
            .iter()
            .zip(&case.shape)
            .fold(0, |number, (at, length)| number * length + at);
        out.extend_from_slice(&whole[number as usize * size..][..size]);
    }
    out
}

/// Reads ranges of a file and checks that they are slices of the whole file. Returns the whole file.
pub fn check(
    view: &Arc<dyn View>,
    name: &str,
    ranges: &[(u64, u64)],
) -> Result<Vec<u8>, TestCaseError> {
    let key = Key::new(name).unwrap();
    let size = view.lookup(&UNLIMITED, &key).unwrap().unwrap().size;
    let whole = common::read(view, name).unwrap();
    prop_assert_eq!(whole.len() as u64, size, "{}", name);
    let file = view.open(&UNLIMITED, &key).unwrap().file;
    prop_assert!(file.read_at(&UNLIMITED, size, 9).unwrap().is_empty());
    for (a, b) in ranges {
        let (a, b) = (a % (size + 9), b % (size + 9));
        let (start, end) = (a.min(b), a.max(b));
        let expected = &whole[whole.len().min(start as usize)..whole.len().min(end as usize)];
        let read = file
            .read_at(&UNLIMITED, start, (end - start) as usize)
            .unwrap();
        prop_assert_eq!(&read[..], expected, "{} {}..{}", name, start, end);
        if let Ok(now) = file.read_at(&WITHOUT_WAITING, start, (end - start) as usize) {
            prop_assert_eq!(&now[..], expected);
        }
    }
    Ok(whole)
}

fn ends_with_elements(name: &str) -> bool {
    ["npy", "raw", "nrrd", "mha", "img"].contains(&name)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Invariant (formats): Any range of a file in any format is that slice of the whole file. Its size is known before
    /// it is read; its header is bounded and needs no chunk.
    #[test]
    fn any_range_of_any_format_is_the_slice_of_the_whole(
        case in cases(),
        names in Just(vec!["x", "y", "z", "time", "band", "other"]).prop_shuffle(),
        ranges in prop::collection::vec((any::<u64>(), any::<u64>()), 8),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("a.zarr");
        std::fs::create_dir(&store).unwrap();
        let elements = write(&case, &store);
        name_dimensions(&store, &names);
        let view = common::files(&store);
        for format in FORMATS {
            let name = format!("a.{}", format.extension);
            if common::is_missing(&view, &name) {
                continue;
            }
            let whole = check(&view, &name, &ranges)?;
            if ends_with_elements(format.extension) {
                prop_assert!(whole.ends_with(&elements), "{}", name);
            }
            if format.extension.starts_with("f.") {
                prop_assert!(whole.ends_with(&fortran(&case, &elements)), "{}", name);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Invariant of `any_range_of_any_format_is_the_slice_of_the_whole`.
    #[test]
    fn any_range_of_any_file_of_a_group_is_the_slice_of_the_whole(
        arrays in prop::collection::vec(cases(), 1..4),
        rows in prop::option::of(0u64..9),
        ranges in prop::collection::vec((any::<u64>(), any::<u64>()), 8),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("a.zarr");
        std::fs::create_dir(&store).unwrap();
        std::fs::write(store.join("zarr.json"), common::sample::GROUP).unwrap();
        for (number, mut case) in arrays.into_iter().enumerate() {
            // All arrays get `rows` elements, so that they can be columns of one table.
            if let Some(rows) = rows {
                let chunk = vec![case.chunk.first().copied().unwrap_or(2)];
                case = Case { shape: vec![rows], chunk, inner: None, edges: None, ..case };
            }
            let array = store.join(format!("n{number}"));
            std::fs::create_dir(&array).unwrap();
            write(&case, &array);
        }
        let view = common::files(&store);
        for format in GROUP_FORMATS {
            let name = format!("a.{}", format.extension);
            if !common::is_missing(&view, &name) {
                check(&view, &name, &ranges)?;
            }
        }
    }
}

#[test]
fn any_range_of_a_file_of_a_group_is_the_slice_of_the_whole() {
    let document = |shape: &[u64], fill: u64| {
        let document = v3(shape, &vec![2; shape.len()], default_keys());
        let typed = document.replace("\"uint8\"", "\"int16\"");
        typed.replace("\"fill_value\":7", &format!("\"fill_value\":{fill}"))
    };
    let (a, b, c) = (document(&[5], 1), document(&[3, 3], 2), document(&[], 3));
    let store = memory(&[
        ("a/zarr.json", &a),
        ("b/zarr.json", &b),
        ("c/zarr.json", &c),
    ]);
    let (view, _) = view_of(Arc::new(store), &[]);
    let name = "root.nc";
    let size = view.lookup(&UNLIMITED, &key(name)).unwrap().unwrap().size;
    let ranges: Vec<_> = (0..size + 3)
        .flat_map(|a| [(a, a + 1), (a, size), (a, a + 9)])
        .collect();
    let whole = check(&view, name, &ranges).unwrap();
    // The format stores variables in ascending order of size, each padded to four bytes.
    let bytes = |fill: u8, count: usize| [0, fill].repeat(count);
    let expected = [
        bytes(3, 1),
        vec![0; 2],
        bytes(1, 5),
        vec![0; 2],
        bytes(2, 9),
        vec![0; 2],
    ]
    .concat();
    assert!(whole.starts_with(b"CDF") && whole.ends_with(&expected));
    assert!(!is_answer(&view.lookup(&WITHOUT_WAITING, &key(name))));
}

/// Returns byte ranges of several lengths, at offsets throughout a file of `size` bytes.
pub fn ranges_of(size: u64) -> Vec<(u64, u64)> {
    let places = (0..size + 3).step_by(7);
    places
        .flat_map(|a| [(a, a + 1), (a, size), (a, a + 9)])
        .collect()
}

#[test]
fn any_range_of_hdf5_is_the_slice_and_omitted_nodes_are_named() {
    let plain = v3(&[5], &[2], default_keys());
    let typed = |data_type: &str| plain.replace("uint8", data_type);
    let (half, complex) = (typed("float16"), typed("complex64").replace(":7", ":[7,7]"));
    let broken = plain.replace("\"shape\":[5]", "\"shape\":null");
    let group = r#"{"zarr_format":3,"node_type":"group","attributes":{"words":["a","b"],"n":1}}"#;
    let lists = strings(4, 2).replace("vlen-utf8", "vlen-bytes");
    let store = memory(&[
        ("zarr.json", group),
        ("a/zarr.json", &plain),
        ("below/zarr.json", group),
        ("below/deeper/half/zarr.json", &half),
        ("below/complex/zarr.json", &complex),
        ("broken/zarr.json", &broken),
        ("lists/.zarray", &lists),
    ]);
    let (view, _) = view_of(Arc::new(store), &[]);
    for name in ["root.h5", "root.nc4"] {
        let size = view.lookup(&UNLIMITED, &key(name)).unwrap().unwrap().size;
        let whole = check(&view, name, &ranges_of(size)).unwrap();
        assert!(whole.starts_with(b"\x89HDF\r\n\x1a\n"), "{name}");
        // The superblock of an HDF5 file contains the length of the file.
        assert_eq!(whole[40..48], size.to_le_bytes(), "{name}");
        let has = |text: &[u8]| whole.windows(text.len()).any(|part| part == text);
        assert!(has(&[7; 5]) && has(b"zarrfs_left_out"), "{name}");
        assert!(has(b"broken") && has(b"lists: HDF5 has no type"), "{name}");
        let known = view.lookup(&WITHOUT_WAITING, &key(name));
        assert!(!is_answer(&known), "{name}");
    }
    // The array is stored as five float16 values of 7, each in a big-endian float32 of four bytes, then padding.
    let padded = [0x40, 0xe0, 0, 0].repeat(5).into_iter().chain([0; 4]);
    let deeper = common::read(&view, "below/deeper/deeper.nc4").unwrap();
    assert!(deeper.ends_with(&padded.collect::<Vec<u8>>()));
    let error = view.lookup(&UNLIMITED, &key("lists/lists.h5")).unwrap_err();
    assert_eq!(error.kind(), Kind::NoFile);
    assert!(
        error
            .to_string()
            .contains("the format cannot store any of the arrays")
    );
}

#[test]
fn a_pyramid_has_every_level_of_the_group() {
    let level = |shape: &[u64], fill: u64| {
        let document = v3(shape, &[1, 4, 4], default_keys());
        document.replace("\"fill_value\":7", &format!("\"fill_value\":{fill}"))
    };
    let group = r#"{"zarr_format":3,"node_type":"group","attributes":{"ome":{"version":"0.5","multiscales":[{
        "axes":[{"name":"z","type":"space"},{"name":"y","type":"space"},{"name":"x","type":"space"}],
        "datasets":[{"path":"0"},{"path":"1"},{"path":"2"}]}]}}}"#;
    let store = memory(&[
        ("zarr.json", group),
        ("0/zarr.json", &level(&[3, 9, 7], 1)),
        ("1/zarr.json", &level(&[3, 5, 3], 2)),
        ("2/zarr.json", &level(&[2, 2, 2], 3)),
    ]);
    let (view, _) = view_of(Arc::new(store), &[]);
    let name = "root.ome.tif";
    let size = view.lookup(&UNLIMITED, &key(name)).unwrap().unwrap().size;
    let whole = check(&view, name, &ranges_of(size)).unwrap();
    let padded = |fill: u8, count: usize| {
        let mut level = vec![fill; count];
        level.resize(count.next_multiple_of(8), 0);
        level
    };
    let pixels = [padded(1, 3 * 9 * 7), padded(2, 3 * 5 * 3)].concat();
    assert!(whole.starts_with(b"II\x2a\0") && whole.ends_with(&pixels));
    let plain = v3(&[4, 4], &[2, 2], default_keys());
    let store = memory(&[("0/zarr.json", &plain)]);
    let (view, _) = view_of(Arc::new(store), &[]);
    assert!(common::is_missing(&view, name));
}

/// Invariant (formats): An array or group that a format cannot hold has no file in that format.
#[test]
fn a_group_that_a_format_cannot_hold_has_no_file() {
    let plain = v3(&[4], &[2], default_keys());
    let held = plain.replace("uint8", "int8");
    let broken = held.replace("\"shape\":[4]", "\"shape\":null");
    let zero = held.replace("\"shape\":[4]", "\"shape\":[0]");
    // The fill value is too large for the integer type of the format.
    let wide = plain
        .replace("uint8", "uint32")
        .replace(":7", ":4294967295");
    let lists = strings(4, 2).replace("vlen-utf8", "vlen-bytes");
    for (objects, is_there) in [
        (vec![("a/zarr.json", held.as_str())], true),
        (vec![("a/zarr.json", &plain)], true),
        (vec![("a/zarr.json", &wide)], false),
        (vec![("a/zarr.json", &zero)], false),
        (
            vec![("a/zarr.json", &held), ("b/zarr.json", &broken)],
            false,
        ),
        (vec![("a/.zarray", &strings(4, 2))], true),
        (vec![("a/.zarray", &lists)], false),
        (vec![], false),
    ] {
        let (view, _) = view_of(Arc::new(memory(&objects)), &[]);
        let is_missing = common::is_missing(&view, "root.nc");
        assert_eq!(is_missing, !is_there, "{objects:?}");
    }
    // A child of a group hides the generated file of the same name.
    let store = memory(&[("a/zarr.json", &held), ("root.nc/zarr.json", &held)]);
    let (view, _) = view_of(Arc::new(store), &[]);
    assert!(names(&view, "root.nc").contains("metadata.json"));
}
