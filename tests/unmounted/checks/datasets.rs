//! Tests the check of datasets: inconsistent dimensions, missing names, missing groups or chunks.

use std::sync::Arc;

use serde_json::{Value, json};
use zarr_check::Severity::{Advice, Error, Warning};
use zarr_check::{Finding, Severity};
use zarrfs_store::backend::memory::MemoryStore;

use crate::checks::fixture::{How, run};
use crate::checks::stores::{
    bytes, erases, plain_array, put, v2, v2_consolidated, v3, v3_consolidated,
};
use crate::dialects::hierarchies::key;

type Facts = (Severity, &'static str, String, String);

fn findings(store: &MemoryStore) -> Vec<Finding> {
    run(Arc::new(store.clone()), How::default()).0
}

fn found(store: &MemoryStore) -> Vec<Facts> {
    let facts = |finding: Finding| {
        let key = finding.key.to_string();
        (finding.severity, finding.code, key, finding.part)
    };
    findings(store).into_iter().map(facts).collect()
}

fn one(severity: Severity, code: &'static str, key: &str, part: &str) -> Vec<Facts> {
    vec![(severity, code, key.to_string(), part.to_string())]
}

fn array(store: &MemoryStore, path: &str, shape: &[u64], names: Option<&[&str]>) {
    let mut document = plain_array(json!(shape), json!(shape), json!([{"name": "bytes"}]));
    if let Some(names) = names {
        document["dimension_names"] = json!(names);
    }
    put(store, &format!("{path}/zarr.json"), document);
    let count = usize::try_from(shape.iter().product::<u64>()).unwrap();
    let chunk = format!("{path}/c{}", "/0".repeat(shape.len()));
    store.set(key(&chunk), vec![1; count]);
}

fn array_of_v2(store: &MemoryStore, path: &str, shape: &[u64], names: Option<&[&str]>) {
    put(
        store,
        &format!("{path}/.zarray"),
        json!({
            "zarr_format": 2, "shape": shape, "chunks": shape, "dtype": "|u1", "compressor": null, "fill_value": 0,
            "order": "C", "filters": null,
        }),
    );
    if let Some(names) = names {
        put(
            store,
            &format!("{path}/.zattrs"),
            json!({"_ARRAY_DIMENSIONS": names}),
        );
    }
    let count = usize::try_from(shape.iter().product::<u64>()).unwrap();
    let chunk = format!("{path}/{}", vec!["0"; shape.len()].join("."));
    store.set(key(&chunk), vec![1; count]);
}

fn group(attributes: Value) -> MemoryStore {
    let store = MemoryStore::default();
    let document = json!({"zarr_format": 3, "node_type": "group", "attributes": attributes});
    put(&store, "zarr.json", document.clone());
    put(&store, "g/zarr.json", document);
    store
}

/// Returns a group with a variable and its coordinate variable, in which the dimension `time` has the given lengths.
fn dataset(lengths: [u64; 2]) -> MemoryStore {
    let store = group(json!({}));
    array(&store, "g/t", &[lengths[0], 2], Some(&["time", "x"]));
    array(&store, "g/time", &[lengths[1]], Some(&["time"]));
    array(&store, "g/crs", &[], Some(&[]));
    store
}

#[test]
fn a_half_finished_append_is_reported() {
    assert_eq!(found(&dataset([3, 3])), []);
    let store = dataset([4, 3]);
    let expected = one(Error, "dimension-lengths-differ", "g", "time");
    assert_eq!(found(&store), expected);
    let line = findings(&store)[0].to_text();
    assert!(
        line.contains("time has different lengths (time has 3, t has 4)"),
        "{line}"
    );
    // Dimensions of the same name may differ between groups, and between the resolution levels of an image.
    let store = dataset([3, 3]);
    put(
        &store,
        "h/zarr.json",
        json!({"zarr_format": 3, "node_type": "group"}),
    );
    array(&store, "h/t", &[9], Some(&["time"]));
    assert_eq!(found(&store), []);
    let store = group(json!({"multiscales": []}));
    array(&store, "0", &[4, 4], Some(&["y", "x"]));
    array(&store, "1", &[2, 2], Some(&["y", "x"]));
    assert_eq!(found(&store), []);
    // Without coordinate variables, two dimensions of the same name may be different ones, so the finding is a warning.
    let store = group(json!({}));
    array(&store, "g/a", &[4], Some(&["n"]));
    array(&store, "g/b", &[2], Some(&["n"]));
    assert_eq!(
        found(&store),
        one(Warning, "dimension-lengths-differ", "g", "n")
    );
}

#[test]
fn one_array_without_dimension_names_is_reported() {
    let store = dataset([3, 3]);
    array(&store, "g/q", &[3], None);
    assert_eq!(
        found(&store),
        one(Error, "dimension-names-missing", "g/q", "dimension_names")
    );
    let store = group(json!({}));
    array(&store, "g/a", &[3], Some(&["n"]));
    array(&store, "g/b", &[3], None);
    assert_eq!(
        found(&store),
        one(Warning, "dimension-names-missing", "g/b", "dimension_names")
    );
    // If no array of a group has dimension names, missing names are not reported.
    let store = group(json!({}));
    array(&store, "g/a", &[3], None);
    array(&store, "g/b", &[4], None);
    assert_eq!(found(&store), []);
    let store = MemoryStore::default();
    put(&store, ".zgroup", json!({"zarr_format": 2}));
    array_of_v2(&store, "a", &[3], Some(&["n"]));
    array_of_v2(&store, "b", &[3], None);
    assert_eq!(
        found(&store),
        one(Error, "dimension-names-missing", "b", "_ARRAY_DIMENSIONS")
    );
    put(&store, "b/.zattrs", json!({"_ARRAY_DIMENSIONS": ["n"]}));
    assert_eq!(found(&store), []);
    // netcdf-c stores a scalar as an array of one element without dimension names.
    put(&store, "b/.zattrs", json!({"_ARRAY_DIMENSIONS": []}));
    assert_eq!(
        found(&store),
        one(Warning, "attribute-invalid", "b", "_ARRAY_DIMENSIONS")
    );
}

#[test]
fn a_missing_root_group_is_reported() {
    let gone = |store: fn() -> MemoryStore, documents: &[&'static str]| {
        let store = store();
        documents
            .iter()
            .for_each(|document| erases(document)(&store));
        found(&store)
    };
    // zarrs and tensorstore write no parent group of an array, so its absence is a warning.
    let habit = one(Warning, "group-implied", "/", "");
    assert_eq!(gone(v3, &["zarr.json"]), habit);
    assert_eq!(gone(v3_consolidated, &["zarr.json"]), habit);
    assert_eq!(gone(v2, &[".zgroup"]), habit);
    let expected = one(Error, "group-implied", "/", "");
    let found_of_v2 = gone(v2_consolidated, &[".zgroup"]);
    assert!(found_of_v2.contains(&expected[0]), "{found_of_v2:?}");
    // All writers of datasets write the root group, so its absence is an error.
    let store = MemoryStore::default();
    array(&store, "t", &[3], Some(&["time"]));
    array(&store, "time", &[3], Some(&["time"]));
    assert_eq!(found(&store), expected);
    let store = v2();
    erases(".zgroup")(&store);
    put(&store, ".zattrs", json!({"title": "x"}));
    assert!(found(&store).contains(&expected[0]), "{:?}", found(&store));
    // A folder that only contains stores is not a dataset, so it needs no group.
    let store = MemoryStore::default();
    array(&store, "a.zarr", &[3], None);
    array(&store, "b.zarr", &[3], None);
    assert_eq!(found(&store), []);
}

#[test]
fn an_array_without_any_chunks_is_reported() {
    let store = dataset([3, 3]);
    store.erase(&key("g/t/c/0/0"));
    // All elements of an integer array with a single chunk, such as a mask or a count, may equal the fill value, so a
    // missing chunk is only advice.
    assert_eq!(found(&store), one(Advice, "chunks-missing", "g/t", ""));
    for (member, value) in [
        ("data_type", json!("float32")),
        (
            "chunk_grid",
            json!({"name": "regular", "configuration": {"chunk_shape": [1, 2]}}),
        ),
    ] {
        let mut document: Value = serde_json::from_slice(&bytes(&store, "g/t/zarr.json")).unwrap();
        document[member] = value;
        document["codecs"] = json!([{"name": "bytes", "configuration": {"endian": "little"}}]);
        let other = dataset([3, 3]);
        other.erase(&key("g/t/c/0/0"));
        put(&other, "g/t/zarr.json", document);
        assert_eq!(found(&other), one(Warning, "chunks-missing", "g/t", ""));
    }
    let line = findings(&store)[0].to_text();
    assert!(
        line.contains("all elements read as the fill value 0"),
        "{line}"
    );
    // An array without elements has no chunks, so none is missing.
    let store = group(json!({}));
    let mut document = plain_array(json!([0]), json!([1]), json!([{"name": "bytes"}]));
    document["shape"] = json!([0]);
    put(&store, "a/zarr.json", document);
    assert_eq!(found(&store), []);
}

#[test]
fn defaults_in_consolidated_metadata_are_not_findings() {
    let store = v2_consolidated();
    let mut copies: Value = serde_json::from_slice(&bytes(&store, ".zmetadata")).unwrap();
    let metadata = &mut copies["metadata"];
    metadata["a/b/.zarray"]["dimension_separator"] = json!(".");
    metadata["a/.zattrs"] = json!({});
    metadata.as_object_mut().unwrap().remove("a/b/.zattrs");
    put(&store, ".zmetadata", copies.clone());
    put(&store, "a/b/.zattrs", json!({}));
    assert_eq!(found(&store), []);
    copies["metadata"]["a/b/.zarray"]["dimension_separator"] = json!("/");
    put(&store, ".zmetadata", copies);
    let codes: Vec<_> = found(&store).into_iter().map(|found| found.1).collect();
    assert_eq!(codes, ["consolidated-differs"]);
}

/// Returns a dataset in which the array `g/t` has the given attributes.
fn with_attributes(attributes: Value) -> MemoryStore {
    let store = dataset([3, 3]);
    let mut document = plain_array(json!([3, 2]), json!([3, 2]), json!([{"name": "bytes"}]));
    document["dimension_names"] = json!(["time", "x"]);
    document["attributes"] = attributes;
    put(&store, "g/t/zarr.json", document);
    store
}

#[test]
fn times_and_packing_that_xarray_cannot_decode_are_reported() {
    for (units, expected) in [
        ("days since 2000-01-01", None),
        ("Hours since 2000-1-1T06:00:00Z", None),
        ("seconds since 1970-01-01 00:00:00.0 +0:00", None),
        ("d since 2000", None),
        ("days since 20000101", None),
        ("days since 01-01-2000", None),
        ("days since -4713-01-01", None),
        ("days since 2000-01-01_00:00:00", None),
        ("days since 1 Jan 2000", None),
        ("days since Oct 1 2000", None),
        ("kg m-2", None),
        ("months since 2000-01-01", Some(Warning)),
        ("day since 20x0", Some(Error)),
        ("days since", Some(Error)),
        ("days since epoch", Some(Error)),
        ("days since 2000-13-01", Some(Error)),
        ("dyas since 2000-01-01", Some(Error)),
    ] {
        let found = found(&with_attributes(json!({"units": units})));
        let expected = expected.map(|severity| one(severity, "attribute-invalid", "g/t", "units"));
        assert_eq!(found, expected.unwrap_or_default(), "{units}");
    }
    for (calendar, is_right) in [("noleap", true), ("GREGORIAN", true), ("gregroian", false)] {
        let attributes = json!({"units": "days since 2000-01-01", "calendar": calendar});
        let found = found(&with_attributes(attributes));
        assert_eq!(found.is_empty(), is_right, "{calendar}: {found:?}");
    }
    let counted = json!({"units": "months since 2000-01-01", "calendar": "360_day"});
    assert_eq!(found(&with_attributes(counted)), []);
    for (factor, is_right) in [
        (json!(0.1), true),
        (json!([0.1]), true),
        (json!("0.1"), false),
        (json!([0.1, 0.2]), false),
    ] {
        let store = with_attributes(json!({"scale_factor": factor}));
        let expected = one(Error, "attribute-invalid", "g/t", "scale_factor");
        let expected = if is_right { Vec::new() } else { expected };
        assert_eq!(found(&store), expected, "{factor}");
    }
}

#[test]
fn missing_arrays_named_by_attributes_are_reported() {
    for (attribute, name, is_there) in [
        ("coordinates", "time crs", true),
        ("coordinates", "time gone", false),
        ("bounds", "t_bnds", false),
        ("grid_mapping", "crs: time", true),
        ("grid_mapping", "crs: gone", false),
        ("grid_mapping", "crs_above", true),
        ("coordinates", "/other/lat", true),
        ("comment", "gone", true),
    ] {
        let store = with_attributes(json!({ attribute: name }));
        array(&store, "crs_above", &[], None);
        let expected = one(Warning, "variable-missing", "g/t", attribute);
        let expected = if is_there { Vec::new() } else { expected };
        assert_eq!(found(&store), expected, "{attribute}: {name}");
    }
    // A group without coordinate variables is not a dataset, so references to other arrays are not checked.
    let store = with_attributes(json!({"coordinates": "gone"}));
    store.erase(&key("g/time/zarr.json"));
    store.erase(&key("g/time/c/0"));
    assert_eq!(found(&store), []);
}
