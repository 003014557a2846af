//! Tests that the same array has the same metadata and elements in every dialect.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use zarr_format::codec::Pipeline;
use zarr_format::model::Array;
use zarrfs_array::hierarchy::Hierarchy;
use zarrfs_store::backend::memory::MemoryStore;

use crate::common;
use crate::dialects::hierarchies::{array, hierarchy};
use crate::dialects::written::{CHUNK, FILL, STORES, n5, october2020, sharded2020, v3, whole};

/// Returns the array with the dialect and the chunk keys of `other`, so that all other metadata can be compared.
fn comparable(mut array: Array, other: &Array) -> Array {
    array.dialect = other.dialect;
    array.keys = other.keys.clone();
    array
}

fn decoded(store: &MemoryStore) -> Vec<u8> {
    let views = common::views_of(Arc::new(store.clone()), Duration::from_secs(20));
    common::read(&views.files, "a/b/b.raw").unwrap()
}

/// Invariant (metadata): Equal arrays are equal in every dialect; `docs/conformance.md` lists the requirements of each
/// specification.
#[test]
fn an_array_has_the_same_model_and_content_in_every_dialect() {
    let expected = array(&hierarchy(&v3()), "a/b");
    for (dialect, variant, store) in STORES {
        let store = store();
        let found = array(&hierarchy(&store), "a/b");
        assert_eq!(found.dialect, dialect, "{variant}");
        assert_eq!(
            comparable(found, &expected),
            expected,
            "{dialect} {variant}"
        );
        assert!(decoded(&store) == whole(), "{dialect} {variant}");
    }
}

#[test]
fn a_sharded_array_of_2020_becomes_one_of_final_v3() {
    let store = sharded2020();
    let found = array(&hierarchy(&store), "a/b");
    assert_eq!(found.chunk_shape, [4, 6]);
    let plain = array(&hierarchy(&october2020()), "a/b");
    let [sharding] = found.codecs.as_slice() else {
        panic!("{:?}", found.codecs)
    };
    assert_eq!(sharding.name, "sharding_indexed");
    assert_eq!(sharding.configuration["chunk_shape"], json!(CHUNK));
    let inner: Vec<Value> = plain.codecs.iter().map(|codec| codec.to_json()).collect();
    assert_eq!(sharding.configuration["codecs"], json!(inner));
    assert_eq!(sharding.configuration["index_location"], "end");
    assert!(decoded(&store) == whole());
}

#[test]
fn an_n5_array_keeps_its_axes() {
    let store = n5();
    let hierarchy: Arc<Hierarchy> = hierarchy(&store);
    let found = array(&hierarchy, "a/b");
    let expected = array(&crate::dialects::hierarchies::hierarchy(&v3()), "a/b");
    assert_eq!(found.dialect, "n5");
    assert_eq!(
        (&found.shape, &found.data_type),
        (&expected.shape, &expected.data_type)
    );
    assert_eq!(found.attributes, expected.attributes);
    assert_eq!(found.keys.candidates(&[1, 2]), [b"a/b/1/2"]);
    match Pipeline::new(&found, 1 << 20) {
        Err(error) => assert!(error.to_string().contains("n5_default"), "{error}"),
        Ok(_) => {
            let fill = FILL.to_le_bytes();
            let zeros = whole()
                .chunks(2)
                .flat_map(|e| if e == fill { [0, 0] } else { [e[0], e[1]] })
                .collect::<Vec<u8>>();
            assert!(decoded(&store) == zeros);
        }
    }
}
