//! Computes digests of chunk encodings, to detect that an array was replaced.
//!
//! Attributes, dimension names and the shape of the array are excluded: chunks remain valid when these change. Digests
//! are stored and compared later, so they are computed from final-v3 metadata, whatever the dialect.

use std::cell::RefCell;
use std::collections::HashMap;

use serde_json::{Map, Value, json};
use twox_hash::XxHash3_128;

use crate::dialect::draft::{self, DocumentRole, EntryPoint, draft2019};
use crate::dialect::{DIALECTS, Dialect, Document, consolidated, v3};
use crate::error::Result;
use crate::key::Key;
use crate::model::document::{
    CONSOLIDATED_2020, ROOTS_2019, ZARR_JSON, ZMETADATA, describes_node, is_draft_document,
};
use crate::model::{Array, Node};

/// A function that reads the entry point of a v3 draft. It returns `None` if the entry point is missing.
pub type ReadEntryPoint<'a> = dyn Fn(&Key) -> Result<Option<Vec<u8>>> + 'a;

/// How the chunks of an array are encoded, according to the metadata that a program has read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EncodedBy {
    /// Key of the metadata document of the array.
    pub document: Key,
    /// Folder of the array's chunks: the folder of the document, except in the v3 drafts.
    pub folder: Key,
    /// Digest of all metadata that determine how chunks are encoded.
    pub digest: u128,
}

/// Returns how an array's chunks are encoded, or `None` for an array of a v3 draft, whose keys depend on the entry
/// point.
pub fn of_array(path: &Key, array: &Array) -> Option<EncodedBy> {
    let dialect = DIALECTS.iter().find(|known| known.name == array.dialect)?;
    let document = (dialect.documents)(path).ok()?.into_iter().next()?;
    let folder = document.parent().unwrap_or_default();
    Some(of_draft_array(document, folder, array))
}

/// Returns how the chunks of an array in `folder` are encoded. Unlike `of_array`, it works for v3 drafts too.
pub fn of_draft_array(document: Key, folder: Key, array: &Array) -> EncodedBy {
    EncodedBy {
        document,
        folder,
        digest: digest(array),
    }
}

/// Returns how an array's chunks are encoded, from a metadata document that was read or written. Returns `None` if the
/// document does not describe an array.
pub fn of_document(
    key: &Key,
    bytes: &[u8],
    read: &ReadEntryPoint<'_>,
) -> Result<Option<EncodedBy>> {
    match of_plain_document(key, bytes) {
        None if is_draft_document(key.name()) => of_draft_document(key, bytes, read),
        found => Ok(found),
    }
}

fn of_plain_document(key: &Key, bytes: &[u8]) -> Option<EncodedBy> {
    let path = key.parent()?;
    let is_of = |dialect: &&&Dialect| {
        let documents = (dialect.documents)(&path).unwrap_or_default();
        documents.first() == Some(key)
    };
    let dialect = DIALECTS.iter().find(is_of)?;
    let document = |own: Key| Document {
        bytes: (own == *key).then(|| bytes.to_vec().into()),
        key: own,
        ..Document::default()
    };
    let documents = (dialect.documents)(&path).ok()?.into_iter();
    let documents: Vec<Document> = documents.map(document).collect();
    match (dialect.parse)(&path, &documents).ok()??.node {
        Node::Array(array) => of_array(&path, &array),
        Node::Group(_) => None,
    }
}

fn of_draft_document(
    key: &Key,
    bytes: &[u8],
    read: &ReadEntryPoint<'_>,
) -> Result<Option<EncodedBy>> {
    for entry in entry_points_above(key, "meta", read)? {
        let Some(path) = entry.array_of(key) else {
            continue;
        };
        let document = Document {
            key: key.clone(),
            bytes: Some(bytes.to_vec().into()),
            ..Document::default()
        };
        let Ok(Some(members)) = document.object() else {
            return Ok(None);
        };
        if entry.name() == draft2019::DRAFT.name && !draft::is_2019(&members) {
            continue;
        }
        let parsed = entry.parse(&path, DocumentRole::Array, &document, &members);
        return Ok(match parsed.map(|parsed| parsed.node) {
            Ok(Node::Array(array)) => Some(of_draft_array(key.clone(), entry.data(&path)?, &array)),
            _ => None,
        });
    }
    Ok(None)
}

/// Returns the possible keys, in order of precedence, of the metadata document of a v3-draft array whose chunks are in
/// `folder`.
pub fn draft_documents(folder: &Key, read: &ReadEntryPoint<'_>) -> Result<Vec<Key>> {
    let mut found = Vec::new();
    for entry in entry_points_above(folder, "data", read)? {
        if let Some(path) = entry.node_of_data(folder) {
            let documents = entry.documents(&path)?.into_iter();
            let of_arrays = documents.filter(|(role, _)| *role == DocumentRole::Array);
            found.extend(of_arrays.map(|(_, document)| document));
        }
    }
    Ok(found)
}

/// Returns the entry points of v3 drafts in all folders whose subfolder `name` contains the key or is the key, the
/// outermost first. In a folder without an entry point, the hierarchy may be of the draft of 2019, so an entry point of
/// that draft is returned.
fn entry_points_above(key: &Key, name: &str, read: &ReadEntryPoint<'_>) -> Result<Vec<EntryPoint>> {
    let folders = std::iter::successors(Some(key.clone()), Key::parent);
    let named = folders.filter(|folder| folder.name() == name.as_bytes());
    let mut tops: Vec<Key> = named.filter_map(|folder| folder.parent()).collect();
    if name == "meta" && ROOTS_2019.map(str::as_bytes).contains(&key.name()) {
        tops.extend(key.parent());
    }
    let mut entries = Vec::new();
    for top in tops.into_iter().rev() {
        entries.extend(entry_point(&top, read)?);
    }
    Ok(entries)
}

/// Returns the entry point in a folder. Without a `zarr.json`, it is an entry point of the v3 draft of 2019. Returns
/// `None` if `zarr.json` does not parse or is a final-v3 document.
fn entry_point(top: &Key, read: &ReadEntryPoint<'_>) -> Result<Option<EntryPoint>> {
    let key = top.child(ZARR_JSON.as_bytes())?;
    let Some(bytes) = read(&key)? else {
        return draft::entry_2019(top).map(Some);
    };
    let document = Document {
        key,
        bytes: Some(bytes.into()),
        ..Document::default()
    };
    let members = document.object().ok().flatten();
    let entry = members.and_then(|members| {
        let draft = draft::draft_of(&members).ok()??;
        EntryPoint::new(draft, top, Some(&members)).ok()
    });
    Ok(entry)
}

/// Returns how the chunks of all arrays in consolidated metadata are encoded. The result is empty for documents without
/// consolidated metadata.
pub fn of_copies(key: &Key, bytes: &[u8], read: &ReadEntryPoint<'_>) -> Vec<EncodedBy> {
    let places = match key.name() {
        name if name == ZMETADATA.as_bytes() => consolidated::parse_document(bytes),
        name if name == ZARR_JSON.as_bytes() => {
            consolidated::parse_member(bytes).map(Option::unwrap_or_default)
        }
        _ => return Vec::new(),
    };
    let folder = copies_are_below(key);
    let known = RefCell::new(HashMap::new());
    let read_once = |key: &Key| {
        let read_before = known.borrow().get(key).cloned();
        read_before.unwrap_or_else(|| {
            let found = read(key);
            known.borrow_mut().insert(key.clone(), found.clone());
            found
        })
    };
    let encoding_of = |document: &Key, place| -> Option<EncodedBy> {
        if !describes_node(document.name()) && !is_draft_document(document.name()) {
            return None;
        }
        let below = document
            .names()
            .try_fold(folder.clone(), |above, name| above.child(name));
        of_document(&below.ok()?, bytes.get(place)?, &read_once).ok()?
    };
    places
        .unwrap_or_default()
        .into_iter()
        .filter_map(|(document, place)| encoding_of(&document, place))
        .collect()
}

/// Returns the folder to which keys in consolidated metadata are relative: the folder of the document or, in a v3
/// draft, of the entry point.
fn copies_are_below(key: &Key) -> Key {
    let names = CONSOLIDATED_2020.split('/').rev();
    let mut folder = Some(key.clone());
    for name in names {
        folder = folder.filter(|at| at.name() == name.as_bytes());
        folder = folder.and_then(|at| at.parent());
    }
    folder.or_else(|| key.parent()).unwrap_or_default()
}

fn digest(array: &Array) -> u128 {
    let mut rendered = v3::render(&Node::Array(Box::new(array.without_attributes())));
    if let Some(codecs) = rendered.get_mut("codecs") {
        normalize(codecs, array.fill_value.bytes.len(), array.data_type.word());
    }
    let members = ["data_type", "chunk_grid", "chunk_key_encoding", "codecs"]
        .map(|name| rendered.get(name).unwrap_or(&Value::Null));
    let fill = &array.fill_value.bytes;
    let mut all = json!([members, fill, array.shape.len(), array.undecodable]);
    all.sort_all_objects();
    XxHash3_128::oneshot(all.to_string().as_bytes())
}

/// Whether chunks encoded by a codec contain all that a decoder needs, whatever the configuration.
fn is_self_describing(codec: &str) -> bool {
    matches!(
        codec,
        "blosc"
            | "bz2"
            | "bzip2"
            | "gzip"
            | "lz4"
            | "numcodecs.blosc"
            | "numcodecs.bz2"
            | "numcodecs.gzip"
            | "numcodecs.lz4"
            | "numcodecs.zlib"
            | "numcodecs.zstd"
            | "xz"
            | "zlib"
            | "zstd"
    )
}

/// Removes all parameters that do not affect decoding from codecs, so that two documents compare equal if a library
/// only rewrote one of them: zarr-python adds the defaults of compressors when it changes an attribute or consolidates
/// metadata, and drops the byte order if elements are single bytes. `element` is the size of an element in bytes,
/// `word` the size of a word, the unit of byte order.
fn normalize(codecs: &mut Value, element: usize, word: usize) {
    for codec in codecs.as_array_mut().into_iter().flatten() {
        let Some(members) = codec.as_object_mut() else {
            continue;
        };
        let name = members.get("name").and_then(Value::as_str);
        let name = name.unwrap_or_default().to_string();
        let mut configuration = members.remove("configuration");
        let options = configuration.as_mut().and_then(Value::as_object_mut);
        match (name.as_str(), options) {
            (name, _) if is_self_describing(name) => configuration = None,
            ("bytes" | "endian", Some(options)) if element == 1 => {
                options.remove("endian");
            }
            ("sharding_indexed", Some(options)) => {
                options.entry("index_location").or_insert(json!("end"));
                if let Some(codecs) = options.get_mut("codecs") {
                    normalize(codecs, element, word);
                }
                if let Some(codecs) = options.get_mut("index_codecs") {
                    // The numbers in a shard index have 64 bits, whatever the elements of the array are.
                    normalize(codecs, 8, 8);
                }
            }
            _ => {}
        }
        // Without `endian` the byte order is little; data types without byte order, such as `r16`, have no `endian`.
        if ["bytes", "endian"].contains(&name.as_str()) && word > 1 {
            let options = configuration.get_or_insert_with(|| json!({}));
            if let Some(options) = options.as_object_mut() {
                options.entry("endian").or_insert(json!("little"));
            }
        }
        let is_empty = |configuration: &Value| configuration.as_object().is_some_and(Map::is_empty);
        if let Some(configuration) = configuration.filter(|found| !is_empty(found)) {
            members.insert("configuration".to_string(), configuration);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::new(text).unwrap()
    }

    fn v3(changes: &Value) -> Value {
        let mut document = json!({
            "zarr_format": 3, "node_type": "array", "shape": [4], "data_type": "int16",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": 0, "codecs": [
                {"name": "bytes", "configuration": {"endian": "little"}},
                {"name": "gzip", "configuration": {"level": 1}},
            ],
        });
        for (name, value) in changes.as_object().unwrap() {
            document[name] = value.clone();
        }
        document
    }

    fn digest_of(name: &str, document: &Value) -> Option<u128> {
        let by = of_document(&key(name), document.to_string().as_bytes(), &|_| Ok(None));
        let by = by.unwrap()?;
        assert_eq!(by.document, key(name));
        Some(by.digest)
    }

    #[test]
    fn the_digest_covers_only_members_that_encode_chunks() {
        let of = |changes: Value| digest_of("a/zarr.json", &v3(&changes)).unwrap();
        let plain = of(json!({}));
        for same in [
            json!({"shape": [7], "attributes": {"x": 1}, "dimension_names": ["x"]}),
            json!({"storage_transformers": [], "chunk_key_encoding": "default"}),
        ] {
            assert_eq!(of(same.clone()), plain, "{same}");
        }
        for other in [
            json!({"data_type": "uint16"}),
            json!({"fill_value": 1}),
            json!({"codecs": ["bytes"]}),
            json!({"shape": [4, 4], "chunk_grid":
                {"name": "regular", "configuration": {"chunk_shape": [2, 2]}}}),
            json!({"chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}}}),
        ] {
            assert_ne!(of(other.clone()), plain, "{other}");
        }
        let zstd = |configuration: Value| {
            let codecs = json!(["bytes", {"name": "zstd", "configuration": configuration}]);
            let shard = json!([{"name": "sharding_indexed", "configuration":
                {"chunk_shape": [1], "codecs": codecs, "index_codecs": ["bytes", "crc32c"]}}]);
            [codecs, shard].map(|codecs| of(json!({"data_type": "uint8", "codecs": codecs})))
        };
        let respelled = |endian: bool| {
            let bytes = if endian {
                json!({"name": "bytes", "configuration": {"endian": "little"}})
            } else {
                json!("bytes")
            };
            let blosc = json!({"name": "blosc", "configuration": if endian {
                json!({"cname": "zstd", "clevel": 1})
            } else {
                json!({"cname": "zstd", "clevel": 1, "typesize": 1, "shuffle": "noshuffle", "blocksize": 0})
            }});
            of(json!({"data_type": "uint8", "codecs": [bytes, blosc]}))
        };
        assert_eq!(
            zstd(json!({"level": 3})),
            zstd(json!({"level": 3, "checksum": false}))
        );
        assert_eq!(respelled(true), respelled(false));
        let order = |endian: &str| {
            let bytes = json!({"name": "bytes", "configuration": {"endian": endian}});
            of(json!({"codecs": [bytes, "gzip"]}))
        };
        assert_ne!(order("little"), order("big"));
        assert_eq!(order("little"), of(json!({"codecs": ["bytes", "gzip"]})));
        // Later versions of the program must compute the same digests, since digests are stored.
        assert_eq!(plain, 0x3abd_0a63_4223_0b41_f556_61fc_932d_c1ac);
        let structure = json!({"name": "structured", "configuration":
            {"fields": [["a", "int16"], ["b", "uint8"]]}});
        for (data_type, fill, digest) in [
            (
                json!("r16"),
                json!([0, 0]),
                0x17bc_2b7a_5670_e093_155c_924c_f605_b21a,
            ),
            (
                structure,
                json!("AAAA"),
                0xd782_d106_b9e7_ea6c_1d00_8f6c_c764_6772,
            ),
        ] {
            let codecs = json!(["bytes", "gzip"]);
            let document = json!({"data_type": data_type, "fill_value": fill, "codecs": codecs});
            assert_eq!(of(document), digest, "{data_type}");
        }
        for (data_type, digest) in [
            (json!("|S3"), 0xba5b_178f_fd3d_aab1_1fc6_1d84_ef21_2bdf),
            (json!("|V2"), 0x5a1a_8a5d_8174_343d_1e52_4edb_e4a1_d5fd),
            (json!("<U2"), 0x65b1_5704_93cf_9484_2fde_7ea3_c280_f5c1),
            (json!("<M8[s]"), 0x06b6_df10_692f_b6d6_5dec_1d24_23ec_a5b9),
            (
                json!([["a", "<i2"], ["b", "|u1"]]),
                0x1996_86bd_7b19_89b4_6183_4060_7081_0c99,
            ),
            (
                json!([["a", "|S2"], ["b", "|u1"]]),
                0x60cd_bcdd_059b_b3b6_c691_3991_6d37_70c6,
            ),
        ] {
            let v2 = json!({"zarr_format": 2, "shape": [4], "chunks": [2], "dtype": data_type,
                "compressor": null, "filters": null, "fill_value": null, "order": "C"});
            assert_eq!(digest_of("a/.zarray", &v2), Some(digest), "{data_type}");
        }
        let group = json!({"zarr_format": 3, "node_type": "group"});
        assert_eq!(digest_of("a/zarr.json", &group), None);
        assert_eq!(digest_of("a/zarr.json", &json!({})), None);
        assert_eq!(digest_of("a/c/0", &v3(&json!({}))), None);
    }

    #[test]
    fn consolidated_copies_have_the_digest_of_their_document() {
        let own = v3(&json!({}));
        let v2 = json!({"zarr_format": 2, "shape": [4], "chunks": [2], "dtype": "<i2",
            "compressor": null, "filters": null, "fill_value": 0, "order": "C"});
        let group = json!({"zarr_format": 3, "node_type": "group", "consolidated_metadata":
            {"kind": "inline", "metadata": {"a/b": own, "g": {"node_type": "group"}}}});
        let consolidated = json!({"zarr_consolidated_format": 1, "metadata":
            {"a/.zarray": v2, "a/.zattrs": {}, ".zgroup": {"zarr_format": 2}}});
        for (holder, text, name, document) in [
            ("r/zarr.json", group, "r/a/b/zarr.json", own),
            (".zmetadata", consolidated, "a/.zarray", v2),
        ] {
            let found = of_copies(&key(holder), text.to_string().as_bytes(), &|_| Ok(None));
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].document, key(name));
            assert_eq!(Some(found[0].digest), digest_of(name, &document));
        }
    }
}
