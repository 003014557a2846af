//! Tests checks of conventions: OME-Zarr attributes, dimension names, mixed dialects, stray copies.

use serde_json::{Value, json};
use zarr_check::Severity::{Error, Warning};
use zarr_check::{Finding, Severity};
use zarrfs_store::backend::memory::MemoryStore;

use crate::checks::fixture::{How, run};
use crate::checks::stores::{plain_array, put, v2};
use crate::dialects::hierarchies::key;

/// Checks a store. Returns the severity, the code, the key and the part of each finding.
fn found(store: &MemoryStore) -> Vec<(Severity, &'static str, String, String)> {
    let (found, _) = run(std::sync::Arc::new(store.clone()), How::default());
    let facts = |finding: &Finding| {
        let (key, part) = (finding.key.to_string(), finding.part.clone());
        (finding.severity, finding.code, key, part)
    };
    found.iter().map(facts).collect()
}

fn one(
    severity: Severity,
    code: &'static str,
    key: &str,
    part: &str,
) -> Vec<(Severity, &'static str, String, String)> {
    vec![(severity, code, key.to_string(), part.to_string())]
}

fn array(shape: &[u64]) -> Value {
    plain_array(json!(shape), json!(shape), json!([{"name": "bytes"}]))
}

/// Returns a group with the given attributes and the arrays of an image's two resolution levels.
fn image(attributes: Value) -> MemoryStore {
    let store = MemoryStore::default();
    let group = json!({"zarr_format": 3, "node_type": "group", "attributes": attributes});
    put(&store, "zarr.json", group);
    put(&store, "0/zarr.json", array(&[4, 4]));
    put(&store, "1/zarr.json", array(&[2, 2]));
    store.set(key("0/c/0/0"), vec![1; 16]);
    store.set(key("1/c/0/0"), vec![1; 4]);
    store
}

/// Returns the attribute `multiscales` for resolution levels with the given paths and numbers of scale factors.
fn multiscales(levels: &[(&str, usize)], axes: &[&str]) -> Value {
    let axes: Vec<Value> = axes.iter().map(|name| json!({"name": name})).collect();
    let level = |(path, numbers): &(&str, usize)| {
        let scale = vec![1.0; *numbers];
        json!({"path": path, "coordinateTransformations": [{"type": "scale", "scale": scale}]})
    };
    let levels: Vec<Value> = levels.iter().map(level).collect();
    json!([{"axes": axes, "datasets": levels}])
}

#[test]
fn a_correct_image_has_no_findings() {
    let right = multiscales(&[("0", 2), ("1", 2)], &["y", "x"]);
    assert!(found(&image(json!({"multiscales": right}))).is_empty());
    let ome = json!({"ome": {"version": "0.5", "multiscales": right}});
    assert!(found(&image(ome)).is_empty());
    // The attributes have names of OME-Zarr attributes, but other values, so they are not OME-Zarr.
    let others = json!({"ome": 7, "multiscales": "x", "plate": [], "well": {"images": [{}]}});
    assert!(found(&image(others)).is_empty());
}

#[test]
fn missing_levels_of_an_image_are_reported() {
    let ome = |levels: &[(&str, usize)], axes: &[&str]| {
        let levels = multiscales(levels, axes);
        found(&image(
            json!({"ome": {"version": "0.5", "multiscales": levels}}),
        ))
    };
    let part = "ome: multiscales[0]: datasets[1]";
    let (yx, zyx) = (&["y", "x"], &["z", "y", "x"]);
    for path in ["gone", "../x", "1/deeper", ""] {
        let expected = one(Error, "image-path-missing", "/", part);
        assert_eq!(ome(&[("0", 2), (path, 2)], yx), expected, "{path}");
    }
    let expected = one(Error, "image-axes-differ", "/", part);
    assert_eq!(ome(&[("0", 2), ("1", 3)], yx), expected);
    // If all resolution levels have the same fault, only that of the first level is reported.
    let first = "ome: multiscales[0]: datasets[0]";
    let expected = one(Error, "image-axes-differ", "/", first);
    assert_eq!(ome(&[("0", 2), ("1", 2)], zyx), expected);
    let expected = one(Warning, "image-levels-unordered", "/", part);
    assert_eq!(ome(&[("1", 2), ("0", 2)], yx), expected);
}

#[test]
fn invalid_levels_and_dimension_names_of_an_image_are_reported() {
    let axes = json!([{"name": "y"}, {"name": "x"}]);
    let part = "ome: multiscales[0]: datasets";
    let level = &multiscales(&[("0", 2)], &["y", "x"])[0]["datasets"][0];
    for image in [
        json!({"axes": axes}),
        json!({"axes": axes, "datasets": "0"}),
        json!({"axes": axes, "datasets": [level, {"name": "1"}]}),
    ] {
        let store = self::image(json!({"ome": {"version": "0.5", "multiscales": [image]}}));
        assert_eq!(
            found(&store),
            one(Error, "attribute-invalid", "/", part),
            "{image}"
        );
    }
    let levels = multiscales(&[("0", 2), ("1", 2)], &["y", "x"]);
    let named = |names: Value, attributes: Value| {
        let store = self::image(attributes);
        let mut level = array(&[4, 4]);
        level["dimension_names"] = names;
        put(&store, "0/zarr.json", level);
        found(&store)
    };
    let (ome, plain) = (
        json!({"ome": {"version": "0.5", "multiscales": levels}}),
        json!({"multiscales": levels}),
    );
    let part = "ome: multiscales[0]: datasets[0]";
    let expected = one(Error, "image-axes-differ", "/", part);
    assert_eq!(named(json!(["x", "y"]), ome.clone()), expected);
    assert!(named(json!(["y", "x"]), ome).is_empty());
    // OME-Zarr 0.4 uses Zarr v2 arrays, and says nothing about the dimension names of their metadata.
    assert!(named(json!(["x", "y"]), plain).is_empty());
}

#[test]
fn an_image_without_a_pixel_size_is_reported() {
    let levels = || multiscales(&[("0", 2), ("1", 2)], &["y", "x"]);
    let part = "multiscales[0]: datasets[1]: coordinateTransformations";
    let translation = json!([{"type": "translation", "translation": [0.0, 0.0]}]);
    for wrong in [None, Some(json!([])), Some(json!("1")), Some(translation)] {
        let mut image = levels();
        let level = image[0]["datasets"][1].as_object_mut().unwrap();
        level.remove("coordinateTransformations");
        level.extend(wrong.map(|wrong| ("coordinateTransformations".to_string(), wrong)));
        let expected = one(Error, "attribute-invalid", "/", part);
        assert_eq!(found(&self::image(json!({"multiscales": image}))), expected);
        image[0]["version"] = json!("0.4");
        assert_eq!(found(&self::image(json!({"multiscales": image}))), expected);
        let part = format!("ome: {part}");
        let ome = self::image(json!({"ome": {"version": "0.5", "multiscales": image}}));
        assert_eq!(found(&ome), one(Error, "attribute-invalid", "/", &part));
        // OME-Zarr had no coordinate transformations before 0.4.
        image[0]["version"] = json!("0.2");
        let axes = json!(["y", "x"]);
        image[0]["axes"] = axes;
        assert!(found(&self::image(json!({"multiscales": image}))).is_empty());
    }
    // Since OME-Zarr 0.6, a sequence of transformations places a resolution level, and axes belong to a coordinate
    // system.
    let sequence = json!([{"type": "sequence", "transformations": [
        {"type": "scale", "scale": [1.0, 1.0]}, {"type": "translation", "translation": [0.5, 0.5]},
    ]}]);
    let level =
        |path: &str, sequence: &Value| json!({"path": path, "coordinateTransformations": sequence});
    let ome = |sequence: &Value| {
        let levels = [level("0", sequence), level("1", sequence)];
        let systems = json!([{"name": "world", "axes": [{"name": "y"}, {"name": "x"}]}]);
        let image = json!([{"coordinateSystems": systems, "datasets": levels}]);
        found(&self::image(
            json!({"ome": {"version": "0.6", "multiscales": image}}),
        ))
    };
    assert!(ome(&sequence).is_empty());
    let mut short = sequence;
    short[0]["transformations"][0]["scale"] = json!([1.0]);
    let codes: Vec<_> = ome(&short).iter().map(|found| found.1).collect();
    assert_eq!(codes, ["image-axes-differ"]);
}

#[test]
fn invalid_numbers_of_images_and_plates_are_reported() {
    let part = "ome: multiscales[0]: datasets[0]";
    for (scale, severity) in [(json!([0.0, 1.0]), Warning), (json!(["1", "1"]), Error)] {
        let mut levels = multiscales(&[("0", 2), ("1", 2)], &["y", "x"]);
        levels[0]["datasets"][0]["coordinateTransformations"][0]["scale"] = scale;
        let ome = json!({"ome": {"version": "0.5", "multiscales": levels}});
        let expected = one(severity, "attribute-invalid", "/", part);
        assert_eq!(found(&image(ome)), expected);
    }
    let plate = |row: u64| {
        let well = json!({"path": "0/1", "rowIndex": row, "columnIndex": 1});
        let names = json!([{"name": "0"}, {"name": "1"}]);
        let plate = json!({"rows": names, "columns": names, "wells": [well]});
        let store = image(json!({"ome": {"version": "0.5", "plate": plate}}));
        store.erase(&key("0/zarr.json"));
        store.erase(&key("0/c/0/0"));
        let group = json!({"zarr_format": 3, "node_type": "group"});
        put(&store, "0/zarr.json", group.clone());
        put(&store, "0/1/zarr.json", group);
        found(&store)
    };
    assert!(plate(0).is_empty());
    let expected = one(Warning, "attribute-invalid", "/", "ome: plate: wells[0]");
    assert_eq!(plate(1), expected);
}

#[test]
fn an_invalid_ome_zarr_version_is_reported() {
    let levels = multiscales(&[("0", 2), ("1", 2)], &["y", "x"]);
    for (version, is_right) in [
        (json!("0.5"), true),
        (json!("0.5.2"), true),
        (json!("0.6.dev3"), true),
        (json!("0.6rc0"), true),
        (json!("1.0"), true),
        (json!("0.4"), false),
        (json!("latest"), false),
        (json!(0.5), false),
    ] {
        let ome = image(json!({"ome": {"version": version, "multiscales": levels}}));
        let expected = if is_right {
            Vec::new()
        } else {
            one(Error, "attribute-invalid", "/", "ome: version")
        };
        assert_eq!(found(&ome), expected, "{version}");
    }
    // Without the version, readers do not know how to read the metadata of an image.
    let ome = image(json!({"ome": {"multiscales": levels}}));
    let expected = one(Error, "attribute-invalid", "/", "ome: version");
    assert_eq!(found(&ome), expected);
    let labels = image(json!({"ome": {"labels": ["0"]}}));
    assert!(found(&labels).is_empty());
    let store = v2();
    put(
        &store,
        "a/.zattrs",
        json!({"ome": {"version": "0.5", "plate": {}}}),
    );
    assert_eq!(found(&store), one(Error, "attribute-invalid", "a", "ome"));
    put(&store, "a/.zattrs", json!({"ome": "a word"}));
    assert!(found(&store).is_empty());
}

/// The headings of the OME-Zarr 0.4 and 0.5 specifications that findings cite, without quotation marks.
const HEADINGS: [&str; 5] = [
    "axes metadata",
    "multiscales metadata",
    "labels metadata",
    "plate metadata",
    "well metadata",
];

#[test]
fn findings_on_images_name_their_specification() {
    let attributes = json!({
        "version": "0.5",
        "multiscales": multiscales(&[("1", 3), ("0", 2), ("gone", 2)], &["z", "y", "x"]),
        "plate": {"wells": [{"path": "A/1"}]},
        "well": {"images": [{"path": "2"}]},
    });
    for (attributes, document) in [
        (attributes.clone(), "OME-Zarr 0.4"),
        (json!({"ome": attributes}), "OME-Zarr 0.5"),
    ] {
        let (found, _) = run(std::sync::Arc::new(image(attributes)), How::default());
        assert_eq!(found.len(), 6, "{found:#?}");
        for finding in found {
            let section = finding.section.unwrap();
            assert_eq!(section.document, document);
            assert!(HEADINGS.contains(&section.heading), "{section:?}");
        }
    }
}

#[test]
fn missing_paths_of_plates_wells_and_labels_are_reported() {
    let attributes = json!({
        "plate": {"wells": [{"path": "0"}, {"path": "A/1"}]},
        "well": {"images": [{"path": "2"}]},
    });
    let parts: Vec<String> = found(&image(attributes))
        .into_iter()
        .map(|(.., part)| part)
        .collect();
    assert_eq!(parts, ["plate: wells[1]", "well: images[0]"]);
    let store = image(json!({}));
    let labels = json!({"labels": ["cells"]});
    let group = json!({"zarr_format": 3, "node_type": "group", "attributes": labels});
    put(&store, "labels/zarr.json", group);
    let expected = one(Error, "image-path-missing", "labels", "labels[0]");
    assert_eq!(found(&store), expected);
}

#[test]
fn dimension_names_that_xarray_refuses_are_reported() {
    for (names, is_right) in [
        (json!(["y", "x"]), true),
        (json!(["x"]), false),
        (json!("x"), false),
        (json!(["x", 1]), false),
    ] {
        let store = v2();
        put(&store, "a/b/.zattrs", json!({"_ARRAY_DIMENSIONS": names}));
        let expected = if is_right {
            Vec::new()
        } else {
            one(Warning, "attribute-invalid", "a/b", "_ARRAY_DIMENSIONS")
        };
        assert_eq!(found(&store), expected, "{names}");
    }
}

#[test]
fn a_node_of_another_dialect_than_its_group_is_reported() {
    let store = image(json!({}));
    let document = json!({
        "zarr_format": 2, "shape": [1], "chunks": [1], "dtype": "|u1", "compressor": null,
        "fill_value": 0, "order": "C", "filters": null,
    });
    put(&store, "old/.zarray", document.clone());
    store.set(key("old/0"), vec![1]);
    assert_eq!(found(&store), one(Warning, "dialect-differs", "old", ""));
    // An array with documents of both dialects can be read by readers of either.
    let both = v2();
    put(&both, "a/b/zarr.json", array(&[1]));
    assert!(
        !found(&both)
            .iter()
            .any(|(_, code, ..)| *code == "dialect-differs")
    );
}

#[test]
fn consolidated_metadata_without_a_group_are_reported() {
    let store = MemoryStore::default();
    let copies = json!({".zgroup": {"zarr_format": 2}});
    let document = json!({"zarr_consolidated_format": 1, "metadata": copies});
    put(&store, ".zmetadata", document.clone());
    let codes: Vec<_> = found(&store).iter().map(|found| found.1).collect();
    assert!(codes.contains(&"group-implied"), "{codes:?}");
    assert!(codes.contains(&"consolidated-extra"), "{codes:?}");
    let left_behind = image(json!({}));
    put(&left_behind, ".zmetadata", document);
    let expected = one(Warning, "orphan-key", ".zmetadata", "");
    assert_eq!(found(&left_behind), expected);
}
