//! Tests that hostile metadata either give bounded headers or no file, in every format.

use std::sync::Arc;

use serde_json::{Value, json};
use zarr_format::error::Kind;
use zarrfs_store::backend::memory::MemoryStore;

use crate::arrays::stored::{default_keys, key, memory, v3, view_of};
use crate::common;
use zarrfs_store::request_context::UNLIMITED;

fn length(store: MemoryStore, name: &str) -> u64 {
    let (view, _) = view_of(Arc::new(store), &[]);
    view.lookup(&UNLIMITED, &key(name)).unwrap().unwrap().size
}

fn image(axes: &[&str], paths: &[String]) -> Value {
    let axes: Vec<Value> = axes.iter().map(|name| json!({"name": name})).collect();
    let datasets: Vec<Value> = paths.iter().map(|path| json!({"path": path})).collect();
    let image = json!({"axes": axes, "datasets": datasets});
    json!({"zarr_format": 3, "node_type": "group",
        "attributes": {"ome": {"version": "0.5", "multiscales": [image]}}})
}

#[test]
fn a_level_named_many_times_is_in_the_pyramid_once() {
    let array = v3(&[2, 4, 4], &[1, 4, 4], default_keys());
    let file = |times: usize| {
        let paths = vec!["0".to_string(); times];
        let group = image(&["z", "y", "x"], &paths).to_string();
        let store = memory(&[("zarr.json", &group), ("0/zarr.json", &array)]);
        length(store, "root.ome.tif")
    };
    assert_eq!(file(10_000), file(1));
}

/// Invariant of `any_range_of_any_format_is_the_slice_of_the_whole`.
#[test]
fn levels_and_images_of_a_pyramid_are_bounded_together() {
    let array = v3(&[8192, 1, 1], &[8192, 1, 1], default_keys());
    let paths: Vec<String> = (0..40).map(|level| level.to_string()).collect();
    let file = |levels: usize| {
        let group = image(&["z", "y", "x"], &paths[..levels]).to_string();
        let keys: Vec<String> = paths
            .iter()
            .map(|path| format!("{path}/zarr.json"))
            .collect();
        let arrays = keys.iter().take(levels);
        let mut objects = vec![("zarr.json", group.as_str())];
        objects.extend(arrays.map(|path| (path.as_str(), array.as_str())));
        length(memory(&objects), "root.ome.tif")
    };
    let [seven, eight, all] = [7, 8, 40].map(file);
    assert!(seven < eight && eight == all);
}

#[test]
fn many_channels_have_their_names_and_colours() {
    let array = v3(&[4096, 1, 1], &[4096, 1, 1], default_keys());
    let mut group = image(&["c", "y", "x"], &["0".to_string()]);
    let channels =
        (0..4096).map(|number| json!({"label": format!("{number:0200}"), "color": "00FF00"}));
    group["attributes"]["ome"]["omero"] = json!({"channels": channels.collect::<Vec<_>>()});
    let store = memory(&[("zarr.json", &group.to_string()), ("0/zarr.json", &array)]);
    let (view, _) = view_of(Arc::new(store), &[]);
    let file = common::read(&view, "0/0.ome.tif").unwrap();
    let text = String::from_utf8_lossy(&file);
    for number in 0..4096 {
        let line = format!("Name=\"{number:0200}\" Color=\"16711935\"");
        assert!(text.contains(&line), "{number}");
    }
}

#[test]
fn a_long_unit_is_not_written_for_each_band() {
    let file = |name: &str, unit: usize| {
        let array = v3(&[64, 4, 4], &[64, 4, 4], default_keys());
        let mut array: Value = serde_json::from_str(&array).unwrap();
        array["attributes"] = json!({"units": "m".repeat(unit), "scale_factor": 0.5,
            "GeoTransform": "0 1 0 0 0 -1"});
        length(memory(&[("0/zarr.json", &array.to_string())]), name)
    };
    for name in ["0/0.vrt", "0/0.tif"] {
        assert!(file(name, 1 << 20) < file(name, 1), "{name}");
        assert!(file(name, 1024) > file(name, 1) + 64 * 1000, "{name}");
    }
}

#[test]
fn a_group_too_long_for_any_file_has_no_file() {
    let array = v3(&[1 << 62], &[1 << 20], default_keys()).replace("uint8", "int8");
    for name in ["root.h5", "root.nc4", "root.nc"] {
        let store = memory(&[("a/zarr.json", &array), ("b/zarr.json", &array)]);
        let (view, _) = view_of(Arc::new(store), &[]);
        match view.lookup(&UNLIMITED, &key(name)) {
            Ok(found) => assert!(found.is_none(), "{name}: {found:?}"),
            Err(error) => assert!(
                matches!(error.kind(), Kind::TooLarge | Kind::NoFile),
                "{name}: {error}"
            ),
        }
    }
}
