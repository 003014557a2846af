//! Tests reports of AnnData objects that anndata cannot open: missing parts, inconsistent lengths.

use std::sync::Arc;

use serde_json::{Value, json};
use zarr_check::Finding;
use zarr_check::Severity::Error;
use zarrfs_store::backend::memory::MemoryStore;

use crate::checks::fixture::{How, run};
use crate::checks::stores::{plain_array, put};
use crate::dialects::hierarchies::key;

fn group(store: &MemoryStore, path: &str, attributes: Value) {
    let document = json!({"zarr_format": 3, "node_type": "group", "attributes": attributes});
    put(store, &format!("{path}zarr.json"), document);
}

fn array(store: &MemoryStore, path: &str, shape: &[u64]) {
    let document = plain_array(json!(shape), json!(shape), json!([{"name": "bytes"}]));
    put(store, &format!("{path}/zarr.json"), document);
    let count = usize::try_from(shape.iter().product::<u64>()).unwrap();
    let chunk = format!("{path}/c{}", "/0".repeat(shape.len()));
    store.set(key(&chunk), vec![1; count]);
}

fn cells() -> MemoryStore {
    let store = MemoryStore::default();
    group(
        &store,
        "",
        json!({"encoding-type": "anndata", "encoding-version": "0.1.0"}),
    );
    for (table, rows, columns) in [
        ("obs", 3, json!(["n", "kind", "age"])),
        ("var", 2, json!([])),
    ] {
        let attributes =
            json!({"encoding-type": "dataframe", "_index": "_index", "column-order": columns});
        group(&store, &format!("{table}/"), attributes);
        array(&store, &format!("{table}/_index"), &[rows]);
    }
    array(&store, "obs/n", &[3]);
    group(&store, "obs/kind/", json!({"encoding-type": "categorical"}));
    array(&store, "obs/kind/codes", &[3]);
    array(&store, "obs/kind/categories", &[9]);
    group(
        &store,
        "obs/age/",
        json!({"encoding-type": "nullable-integer"}),
    );
    array(&store, "obs/age/values", &[3]);
    array(&store, "obs/age/mask", &[3]);
    group(
        &store,
        "X/",
        json!({"encoding-type": "csr_matrix", "shape": [3, 2]}),
    );
    array(&store, "X/data", &[5]);
    array(&store, "X/indices", &[5]);
    array(&store, "X/indptr", &[4]);
    for folder in ["layers/", "obsm/", "varm/", "obsp/"] {
        group(&store, folder, json!({"encoding-type": "dict"}));
    }
    array(&store, "layers/raw", &[3, 2]);
    array(&store, "obsm/pca", &[3, 7]);
    array(&store, "varm/loadings", &[2, 7]);
    array(&store, "obsp/distances", &[3, 3]);
    store
}

fn lines_of(store: &MemoryStore) -> Vec<String> {
    let (found, _) = run(Arc::new(store.clone()), How::default());
    let line = |finding: &Finding| {
        assert_eq!(finding.severity, Error, "{}", finding.to_text());
        assert!(!finding.remedy.is_empty());
        format!("{} {}: {}", finding.code, finding.key, finding.message)
    };
    found.iter().map(line).collect()
}

#[test]
fn an_object_with_equal_lengths_has_no_findings() {
    assert_eq!(lines_of(&cells()), Vec::<String>::new());
}

#[test]
fn unequal_lengths_are_reported_with_their_place() {
    for (path, shape, key, words) in [
        (
            "obs/n",
            &[4][..],
            "obs/n",
            "the column has 4 elements, but the index \"_index\" of its table has 3",
        ),
        (
            "obs/kind/codes",
            &[2],
            "obs/kind",
            "the column has 2 elements",
        ),
        (
            "obs/age/mask",
            &[2],
            "obs/age",
            "values has shape [3], but mask has shape [2]",
        ),
        (
            "X/indptr",
            &[3],
            "X",
            "indptr has 3 elements, but a matrix of 3 rows needs 4",
        ),
        (
            "X/data",
            &[6],
            "X",
            "data has 6 elements, but indices has 5",
        ),
        (
            "layers/raw",
            &[3, 4],
            "layers/raw",
            "the matrix has 4 columns, but the table var has 2 rows",
        ),
        (
            "obsm/pca",
            &[2, 7],
            "obsm/pca",
            "the matrix has 2 rows, but the table obs has 3 rows",
        ),
        (
            "varm/loadings",
            &[3, 7],
            "varm/loadings",
            "the matrix has 3 rows, but the table var has 2 rows",
        ),
        (
            "obsp/distances",
            &[3, 2],
            "obsp/distances",
            "the matrix has 2 columns, but the table obs has 3",
        ),
    ] {
        let store = cells();
        array(&store, path, shape);
        let found = lines_of(&store);
        let expected = format!("table-lengths-differ {key}: {words}");
        assert!(
            found.len() == 1 && found[0].starts_with(&expected),
            "{path}: {found:#?}"
        );
        assert!(found[0].ends_with("; anndata cannot open it"));
    }
}

#[test]
fn missing_parts_are_reported_with_what_needs_them() {
    for (path, key, words) in [
        ("obs/_index", "obs", "the index column \"_index\""),
        ("obs/n", "obs", "the column \"n\""),
        ("obs/kind/codes", "obs/kind", "the array \"codes\""),
        (
            "obs/kind/categories",
            "obs/kind",
            "the array \"categories\"",
        ),
        ("X/indices", "X", "the array \"indices\""),
    ] {
        let store = cells();
        store.erase(&self::key(&format!("{path}/zarr.json")));
        store.erase(&self::key(&format!("{path}/c/0")));
        let expected =
            format!("table-part-missing {key}: {words} is missing; anndata cannot open this group");
        assert_eq!(lines_of(&store), [expected]);
    }
}
