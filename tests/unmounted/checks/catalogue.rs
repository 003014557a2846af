//! Lists kinds of damage to stores, each with the finding of a check.

use std::sync::Arc;

use serde_json::{Value, json};
use zarr_check::Severity::{self, Advice, Error, Warning};
use zarr_check::{Finding, SpecSection};
use zarrfs_store::backend::memory::MemoryStore;

use crate::checks::fixture::{How, run};
use crate::checks::stores::*;

/// The finding that a check must report: severity, code, key, part, and the heading of the violated section (empty if
/// there is none).
type Expected = (
    Severity,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
);

/// A valid store, the damage that is done to it, the options of the check, and the finding that it must report.
struct Row(fn() -> MemoryStore, Damage, How, Expected);

const KEYS: How = How {
    data: false,
    is_remote: false,
};
const DATA: How = How {
    data: true,
    is_remote: false,
};
const REMOTE: How = How {
    data: false,
    is_remote: true,
};

/// Returns kinds of damage to Zarr v3 metadata documents.
fn documents_of_v3() -> Vec<Row> {
    const D: &str = "a/b/zarr.json";
    let invalid = |part, heading| (Error, "member-invalid", D, part, heading);
    let habit = |part, heading| (Warning, "member-invalid", D, part, heading);
    let gzip = json!({"name": "gzip", "configuration": {"level": 11}});
    let zstd = json!({"name": "zstd", "configuration": {"level": 23, "checksum": false}});
    fn blosc(shuffle: impl Into<Value>, size: u64) -> Value {
        let (shuffle, lz4): (Value, _) = (shuffle.into(), "lz4");
        json!({"name": "blosc", "configuration": {
            "cname": lz4, "clevel": 5, "shuffle": shuffle, "typesize": size, "blocksize": 0,
        }})
    }
    vec![
        Row(
            v3,
            set(D, "zarr_format", json!(4)),
            KEYS,
            invalid("zarr_format", "Array metadata"),
        ),
        Row(
            v3,
            set(D, "node_type", json!("thing")),
            KEYS,
            invalid("node_type", "Array metadata"),
        ),
        Row(
            v3,
            set("a/zarr.json", "zarr_format", json!("3")),
            KEYS,
            (
                Error,
                "member-invalid",
                "a/zarr.json",
                "zarr_format",
                "Group metadata",
            ),
        ),
        Row(
            v3,
            set(D, "shape", json!("x")),
            KEYS,
            invalid("shape", "Array metadata"),
        ),
        Row(
            v3,
            set(D, "shape", json!([-1, 5])),
            KEYS,
            invalid("shape", "Array metadata"),
        ),
        Row(
            v3,
            without(D, "shape"),
            KEYS,
            (Error, "member-missing", D, "shape", "Array metadata"),
        ),
        Row(
            v3,
            without(D, "fill_value"),
            KEYS,
            (Error, "member-missing", D, "fill_value", "Array metadata"),
        ),
        Row(
            v3,
            without(D, "codecs"),
            KEYS,
            (Warning, "member-missing", D, "codecs", "Codecs"),
        ),
        Row(
            v3,
            set(D, "data_type", json!(7)),
            KEYS,
            invalid("data_type", "Data types"),
        ),
        Row(
            v3,
            set(D, "data_type", json!("r7")),
            KEYS,
            invalid("data_type", "Data types"),
        ),
        Row(
            v3,
            set(D, "chunk_grid", json!({"configuration": {}})),
            KEYS,
            invalid("chunk_grid", "Chunk grids"),
        ),
        Row(
            v3,
            set(D, "chunk_grid/configuration/chunk_shape", json!([2])),
            KEYS,
            invalid("chunk_grid", "Chunk grids"),
        ),
        Row(
            v3,
            set(D, "chunk_grid/configuration/chunk_shape", json!([0, 2])),
            KEYS,
            invalid("chunk_grid", "Chunk grids"),
        ),
        Row(
            v3,
            set(
                D,
                "chunk_key_encoding",
                json!({"name": "default", "configuration": {"separator": "-"}}),
            ),
            KEYS,
            invalid("chunk_key_encoding", "Array metadata"),
        ),
        Row(
            v3,
            set(D, "fill_value", json!(70_000)),
            KEYS,
            invalid("fill_value", "Array metadata"),
        ),
        Row(
            v3,
            set(D, "fill_value", json!("NaN")),
            KEYS,
            invalid("fill_value", "Array metadata"),
        ),
        Row(
            v3,
            set(D, "fill_value", json!(null)),
            KEYS,
            habit("fill_value", "Array metadata"),
        ),
        Row(
            v3,
            set(D, "codecs", json!({})),
            KEYS,
            invalid("codecs", "Codecs"),
        ),
        Row(
            v3,
            set(D, "codecs", json!([])),
            KEYS,
            habit("codecs", "Codecs"),
        ),
        Row(
            v3,
            set(D, "codecs/2", json!({"configuration": {}})),
            KEYS,
            invalid("codecs", "Codecs"),
        ),
        Row(
            v3,
            set(D, "codecs/2", gzip),
            KEYS,
            invalid("codecs", "Codecs"),
        ),
        Row(
            v3,
            set(D, "codecs/2", zstd),
            KEYS,
            invalid("codecs", "Codecs"),
        ),
        Row(
            v3,
            set(D, "codecs/0/configuration/order", json!([0, 0])),
            KEYS,
            invalid("codecs", "Codecs"),
        ),
        Row(
            v3,
            set(D, "codecs/0/configuration/order", json!("F")),
            KEYS,
            habit("codecs", "Codecs"),
        ),
        Row(
            v3,
            set(D, "codecs/1/configuration/endian", json!("middle")),
            KEYS,
            invalid("codecs", "Codecs"),
        ),
        Row(
            v3,
            set(D, "codecs/1/name", json!("endian")),
            KEYS,
            habit("codecs", "Codecs"),
        ),
        Row(
            v3,
            set(D, "codecs/2", json!({"name": "bytes"})),
            KEYS,
            (Error, "codecs-impossible", "a/b", "", "Codecs"),
        ),
        Row(
            v3,
            set(
                D,
                "codecs",
                json!([{"name": "gzip", "configuration": {"level": 1}}]),
            ),
            KEYS,
            habit("codecs", "Codecs"),
        ),
        Row(
            v3,
            set(D, "codecs/2", blosc(1, 2)),
            KEYS,
            invalid("codecs", "Codecs"),
        ),
        Row(
            v3,
            set(D, "codecs/2", blosc("shuffle", 0)),
            KEYS,
            invalid("codecs", "Codecs"),
        ),
        Row(
            v3,
            set(D, "codecs/2", json!({"name": "lzw"})),
            KEYS,
            (Warning, "not-decodable", "a/b", "", "Codecs"),
        ),
        Row(
            v3,
            set(D, "storage_transformers", json!([{"name": "x"}])),
            KEYS,
            (Warning, "not-decodable", "a/b", "", "Storage transformers"),
        ),
        Row(
            v3,
            set(D, "later", json!({"name": "x"})),
            KEYS,
            (Warning, "not-decodable", "a/b", "", "must_understand"),
        ),
        Row(
            v3,
            set(D, "attributes", json!([])),
            KEYS,
            invalid("attributes", "Array metadata"),
        ),
        Row(
            v3,
            set(D, "dimension_names", json!(["x"])),
            KEYS,
            invalid("dimension_names", "Array metadata"),
        ),
        Row(
            v3,
            set(D, "dimension_names", json!([1, 2])),
            KEYS,
            invalid("dimension_names", "Array metadata"),
        ),
        Row(
            v3,
            set(D, "dimension_names", json!(["x", "x"])),
            KEYS,
            habit("dimension_names", "Array metadata"),
        ),
        Row(
            v3,
            set(D, "novel", json!({})),
            KEYS,
            (Error, "member-unknown", D, "novel", "must_understand"),
        ),
        Row(
            v3,
            set(D, "storage_transformers", json!({"name": "x"})),
            KEYS,
            invalid("storage_transformers", "Storage transformers"),
        ),
        Row(
            v3,
            holds(D, b"{\"zarr_format\": 3, \"node_type\": \"array\", "),
            KEYS,
            (Error, "not-json", D, "", "Metadata"),
        ),
        Row(
            v3,
            holds(
                "a/zarr.json",
                b"{\"zarr_format\": 3, \"node_type\": \"group\", \"attributes\": {\"x\": NaN}}",
            ),
            KEYS,
            (Warning, "strict-json", "a/zarr.json", "", "Numbers"),
        ),
        Row(
            v3,
            holds(
                "a/zarr.json",
                b"{\"zarr_format\": 3, \"node_type\": \"group\", \"node_type\": \"group\"}",
            ),
            KEYS,
            (Error, "member-twice", "a/zarr.json", "node_type", "Objects"),
        ),
        Row(
            v3,
            holds(
                "a/zarr.json",
                b"\xef\xbb\xbf{\"zarr_format\": 3, \"node_type\": \"group\"}",
            ),
            KEYS,
            (
                Warning,
                "byte-order-mark",
                "a/zarr.json",
                "",
                "Character Encoding",
            ),
        ),
        Row(
            v3_consolidated,
            set(
                "zarr.json",
                "consolidated_metadata/must_understand",
                json!(true),
            ),
            KEYS,
            (
                Error,
                "member-invalid",
                "zarr.json",
                "consolidated_metadata",
                "Additional fields",
            ),
        ),
    ]
}

/// Returns kinds of damage to Zarr v2 metadata documents.
fn documents_of_v2() -> Vec<Row> {
    const D: &str = "a/b/.zarray";
    let invalid = |part| (Error, "member-invalid", D, part, "Metadata");
    vec![
        Row(
            v2,
            set(D, "zarr_format", json!(3)),
            KEYS,
            invalid("zarr_format"),
        ),
        Row(v2, set(D, "chunks", json!([2])), KEYS, invalid("chunks")),
        Row(v2, set(D, "chunks", json!([2, 0])), KEYS, invalid("chunks")),
        Row(
            v2,
            set(D, "dtype", json!("i3")),
            KEYS,
            (Error, "member-invalid", D, "dtype", "Data type encoding"),
        ),
        Row(
            v2,
            set(D, "dtype", json!("<q2")),
            KEYS,
            (Error, "member-invalid", D, "dtype", "Data type encoding"),
        ),
        Row(
            v2,
            set(D, "dtype", json!("<M8")),
            KEYS,
            (Error, "member-invalid", D, "dtype", "Data type encoding"),
        ),
        Row(
            v2,
            set(D, "dtype", json!([["x"]])),
            KEYS,
            (Error, "member-invalid", D, "dtype", "Data type encoding"),
        ),
        Row(
            v2,
            set(D, "dtype", json!([["x", "<i4"], ["x", "<i4"]])),
            KEYS,
            (Error, "member-invalid", D, "dtype", "Data type encoding"),
        ),
        Row(
            v2,
            set(D, "compressor", json!({"level": 1})),
            KEYS,
            invalid("compressor"),
        ),
        Row(v2, set(D, "order", json!("K")), KEYS, invalid("order")),
        Row(v2, set(D, "filters", json!({})), KEYS, invalid("filters")),
        Row(
            v2,
            set(D, "dimension_separator", json!("-")),
            KEYS,
            invalid("dimension_separator"),
        ),
        Row(
            v2,
            set(D, "fill_value", json!(1.5)),
            KEYS,
            (
                Error,
                "member-invalid",
                D,
                "fill_value",
                "Fill value encoding",
            ),
        ),
        Row(
            v2,
            set(D, "fill_value", json!(0.0)),
            KEYS,
            (
                Warning,
                "member-invalid",
                D,
                "fill_value",
                "Fill value encoding",
            ),
        ),
        Row(
            v2,
            without(D, "order"),
            KEYS,
            (Error, "member-missing", D, "order", "Metadata"),
        ),
        Row(
            v2,
            without(D, "fill_value"),
            KEYS,
            (
                Error,
                "member-missing",
                D,
                "fill_value",
                "Fill value encoding",
            ),
        ),
        Row(
            v2,
            set(D, "novel", json!(1)),
            KEYS,
            (Warning, "member-unknown", D, "novel", "Metadata"),
        ),
        Row(
            v2,
            set(D, "_NCZARR_ARRAY", json!({})),
            KEYS,
            (Warning, "member-unknown", D, "_NCZARR_ARRAY", "Metadata"),
        ),
        Row(
            v2,
            set("a/.zgroup", "novel", json!(1)),
            KEYS,
            (Error, "member-unknown", "a/.zgroup", "novel", "Groups"),
        ),
        Row(
            v2,
            set("a/.zgroup", "_NCZARR_GROUP", json!({})),
            KEYS,
            (
                Warning,
                "member-unknown",
                "a/.zgroup",
                "_NCZARR_GROUP",
                "Groups",
            ),
        ),
        Row(
            v2,
            holds("a/b/.zattrs", b"["),
            KEYS,
            (Error, "not-json", "a/b/.zattrs", "", "Attributes"),
        ),
        Row(
            v2,
            holds("x/.zattrs", b"{}"),
            KEYS,
            (Warning, "orphan-key", "x/.zattrs", "", "Attributes"),
        ),
        Row(
            v2,
            adds("a/b/.zgroup", json!({"zarr_format": 2})),
            KEYS,
            (Error, "nodes-collide", "a/b/.zgroup", "", "Groups"),
        ),
        Row(
            v2,
            erases("a/.zgroup"),
            KEYS,
            (Warning, "group-implied", "a", "", "Groups"),
        ),
    ]
}

/// Returns kinds of damage to metadata documents of Zarr v3 drafts and of N5.
fn documents_of_drafts() -> Vec<Row> {
    const D19: &str = "meta/a/b.array.json";
    const D20: &str = "meta/root/a/b.array.json";
    const D22: &str = "meta/a/b.array.json";
    const N: &str = "a/b/attributes.json";
    let invalid = |key, part, heading| (Error, "member-invalid", key, part, heading);
    vec![
        Row(
            draft2019,
            set(D19, "chunk_codecs", json!([{"codec": "gzip"}])),
            KEYS,
            invalid(D19, "chunk_codecs", "Array metadata"),
        ),
        Row(
            draft2019,
            set(D19, "novel", json!(1)),
            KEYS,
            (Error, "member-unknown", D19, "novel", "Array metadata"),
        ),
        Row(
            draft2019,
            without(D19, "extensions"),
            KEYS,
            (Error, "member-missing", D19, "extensions", "Array metadata"),
        ),
        Row(
            draft2019,
            set(D19, "shape", json!("3")),
            KEYS,
            invalid(D19, "shape", "Array metadata"),
        ),
        Row(
            draft2019,
            copies(D19, "meta/a/b c.array.json"),
            KEYS,
            (Error, "name-not-allowed", "a/b c", "", "Node names"),
        ),
        Row(
            draft2019,
            copies(D19, "meta/a/....array.json"),
            KEYS,
            (Error, "name-not-allowed", "a/...", "", "Node names"),
        ),
        Row(
            draft2019,
            copies(D19, "meta/a/B.array.json"),
            KEYS,
            (Error, "names-differ-in-case", "a/b", "", "Node names"),
        ),
        Row(
            draft2019,
            adds(
                "meta/a/g.group.json",
                json!({"zarr_format": crate::dialects::hierarchies::CORE_2019, "attributes": {}}),
            ),
            KEYS,
            (
                Error,
                "member-missing",
                "meta/a/g.group.json",
                "extensions",
                "Group metadata",
            ),
        ),
        Row(
            draft2020,
            without("zarr.json", "extensions"),
            KEYS,
            (
                Error,
                "member-missing",
                "zarr.json",
                "extensions",
                "Entry point metadata",
            ),
        ),
        Row(
            draft2020,
            without("zarr.json", "metadata_key_suffix"),
            KEYS,
            (
                Warning,
                "member-missing",
                "zarr.json",
                "metadata_key_suffix",
                "Entry point metadata",
            ),
        ),
        Row(
            draft2020,
            set("zarr.json", "metadata_key_suffix", json!("/x")),
            KEYS,
            invalid("zarr.json", "metadata_key_suffix", "Entry point metadata"),
        ),
        Row(
            draft2020,
            set(D20, "chunk_grid/separator", json!("-")),
            KEYS,
            invalid(D20, "chunk_grid", "Array metadata"),
        ),
        Row(
            draft2020,
            set(D20, "chunk_grid/type", json!("odd")),
            KEYS,
            invalid(D20, "chunk_grid", "Array metadata"),
        ),
        Row(
            draft2020,
            set(D20, "compressor", json!({"level": 1})),
            KEYS,
            invalid(D20, "compressor", "Array metadata"),
        ),
        Row(
            draft2020,
            set(D20, "chunk_memory_layout", json!("K")),
            KEYS,
            invalid(D20, "chunk_memory_layout", "Array metadata"),
        ),
        Row(
            draft2020,
            set(D20, "extensions", json!([{"extension": "x"}])),
            KEYS,
            invalid(D20, "extensions", "Array metadata"),
        ),
        Row(
            draft2020,
            set(D20, "fill_value", json!("x")),
            KEYS,
            invalid(D20, "fill_value", "Array metadata"),
        ),
        Row(
            draft2020,
            set(D20, "novel", json!(1)),
            KEYS,
            (Warning, "member-unknown", D20, "novel", "Array metadata"),
        ),
        Row(
            draft2020,
            without(D20, "attributes"),
            KEYS,
            (Error, "member-missing", D20, "attributes", "Array metadata"),
        ),
        Row(
            draft2020,
            adds("meta/root/g.group.json", json!({})),
            KEYS,
            (
                Error,
                "member-missing",
                "meta/root/g.group.json",
                "attributes",
                "Group metadata",
            ),
        ),
        Row(
            draft2022,
            set(D22, "novel", json!(1)),
            KEYS,
            (Error, "member-unknown", D22, "novel", "Array metadata"),
        ),
        Row(
            draft2022,
            set(D22, "fill_value", json!(null)),
            KEYS,
            (
                Warning,
                "member-invalid",
                D22,
                "fill_value",
                "Array metadata",
            ),
        ),
        Row(
            draft2022,
            set(D22, "codecs", json!([{"type": "gzip"}])),
            KEYS,
            invalid(D22, "codecs", "Array metadata"),
        ),
        Row(
            draft2022,
            set(D22, "data_type", json!({"type": "x"})),
            KEYS,
            invalid(D22, "data_type", "Array metadata"),
        ),
        Row(
            draft2022,
            set("zarr.json", "metadata_encoding", json!({"type": "json"})),
            KEYS,
            invalid("zarr.json", "metadata_encoding", "Entry point metadata"),
        ),
        Row(
            n5,
            set(N, "blockSize", json!([2])),
            KEYS,
            invalid(N, "blockSize", "Datasets"),
        ),
        Row(
            n5,
            set(N, "dimensions", json!("x")),
            KEYS,
            invalid(N, "dimensions", "Datasets"),
        ),
        Row(
            n5,
            set(N, "dataType", json!("int2")),
            KEYS,
            invalid(N, "dataType", "Datasets"),
        ),
        Row(
            n5,
            set(N, "compression", json!({"level": 1})),
            KEYS,
            invalid(N, "compression", "Datasets"),
        ),
        Row(
            n5,
            without(N, "compression"),
            KEYS,
            (Error, "member-missing", N, "compression", "Datasets"),
        ),
        Row(
            n5,
            holds("a/attributes.json", b"{"),
            KEYS,
            (Error, "not-json", "a/attributes.json", "", "Datasets"),
        ),
    ]
}

/// Returns kinds of misplaced keys: chunks under keys that no reader looks up, and files with the name of a document.
fn misplaced_keys() -> Vec<Row> {
    const SHAPE: [u64; 2] = [1 << 63, 1 << 63];
    let stated = set("a/b/.zarray", "dimension_separator", json!("."));
    vec![
        Row(
            v3,
            moves("a/b/c/1/1", "a/b/c.1.1"),
            KEYS,
            (Error, "separator-differs", "a/b", "", "Chunk encoding"),
        ),
        Row(
            v2,
            both(stated, moves("a/b/1.1", "a/b/1/1")),
            KEYS,
            (Error, "separator-differs", "a/b", "", "Chunks"),
        ),
        Row(
            n5,
            moves("a/b/0/0", "a/b/0.0"),
            KEYS,
            (Error, "separator-differs", "a/b", "", "Blocks"),
        ),
        Row(
            draft2020,
            moves("data/root/a/b/c0/0", "data/root/a/b/c0.0"),
            KEYS,
            (Error, "separator-differs", "a/b", "", "Chunk encoding"),
        ),
        Row(
            v3,
            moves("a/b/c/1/1", "a/b/1.1"),
            KEYS,
            (Error, "key-encoding-differs", "a/b", "", "Chunk encoding"),
        ),
        Row(
            v2,
            moves("a/b/1.1", "a/b/c/1/1"),
            KEYS,
            (Error, "key-encoding-differs", "a/b", "", "Chunks"),
        ),
        Row(
            v3,
            holds("a/b/zarr.json", b"null"),
            KEYS,
            (Error, "not-an-object", "a/b/zarr.json", "", "Metadata"),
        ),
        Row(
            v3,
            erases("a/b/zarr.json"),
            KEYS,
            (Error, "chunks-undescribed", "a/b", "", ""),
        ),
        Row(
            v2,
            erases("a/b/.zarray"),
            KEYS,
            (Error, "chunks-undescribed", "a/b", "", ""),
        ),
        Row(
            v3,
            moves("a/b/zarr.json", "a/b/Zarr.json"),
            KEYS,
            (Error, "document-miscased", "a/b/Zarr.json", "", ""),
        ),
        Row(
            v2,
            holds("a/b/.zattrs", b"[1]"),
            KEYS,
            (Error, "not-an-object", "a/b/.zattrs", "", "Attributes"),
        ),
        Row(
            v3,
            both(erases("a/b/zarr.json"), holds("a/b/zarr.json/x", b"x")),
            KEYS,
            (Error, "document-is-folder", "a/b/zarr.json", "", "Metadata"),
        ),
        Row(
            v2,
            both(erases("a/b/.zattrs"), holds("a/b/.zattrs/x", b"x")),
            KEYS,
            (Error, "document-is-folder", "a/b/.zattrs", "", "Metadata"),
        ),
        Row(
            v3,
            set("a/b/zarr.json", "shape", json!(SHAPE)),
            KEYS,
            (Warning, "array-too-large", "a/b", "", "Codecs"),
        ),
        Row(
            n5,
            adds("attributes.json", json!({"n5": "99.0.0"})),
            KEYS,
            (
                Error,
                "member-invalid",
                "attributes.json",
                "n5",
                "Containers",
            ),
        ),
    ]
}

fn keys() -> Vec<Row> {
    let fields = "Additional fields";
    let copied = |code, part| (Error, code, ".zmetadata", part, "");
    vec![
        Row(
            v3,
            holds("a/readme", b"x"),
            KEYS,
            (Warning, "orphan-key", "a/readme", "", ""),
        ),
        Row(
            v3,
            holds("a/b/c/7", b"x"),
            KEYS,
            (Warning, "orphan-key", "a/b/c/7", "", ""),
        ),
        Row(
            v3,
            holds("a/b/c/0/00", b"x"),
            KEYS,
            (Warning, "orphan-key", "a/b/c/0/00", "", ""),
        ),
        Row(
            v3,
            holds("a/b/x/y", b"x"),
            KEYS,
            (Warning, "orphan-folder", "a/b/x", "", ""),
        ),
        Row(
            v3,
            holds("a/b/attributes.json", b"{}"),
            KEYS,
            (Warning, "orphan-key", "a/b/attributes.json", "", ""),
        ),
        Row(
            v3,
            copies("zarr.json", "a/b/n/zarr.json"),
            KEYS,
            (
                Error,
                "node-in-array",
                "a/b/n",
                "",
                "Concepts and terminology",
            ),
        ),
        Row(
            v3,
            copies("a/b/c/0/0", "a/b/c/9/9"),
            KEYS,
            (Warning, "chunk-outside", "a/b/c/9/9", "", "Resizing"),
        ),
        Row(
            v3,
            holds("a/b/c/0/0.1f.partial", b""),
            KEYS,
            (Warning, "leftover", "a/b/c/0/0.1f.partial", "", ""),
        ),
        Row(
            v3,
            holds("a/.DS_Store", b""),
            KEYS,
            (Warning, "leftover", "a/.DS_Store", "", ""),
        ),
        Row(
            v3,
            holds("a/b/c/0/0", b""),
            KEYS,
            (Error, "chunk-empty", "a/b/c/0/0", "", "Chunk encoding"),
        ),
        Row(
            v3,
            both(erases("a/b/c/0/0"), holds("a/b/c/0/0/x", b"x")),
            KEYS,
            (Error, "chunk-is-folder", "a/b/c/0/0", "", "Chunk encoding"),
        ),
        Row(
            v3,
            erases("a/zarr.json"),
            KEYS,
            (Warning, "group-implied", "a", "", "Group metadata"),
        ),
        Row(
            v3,
            copies("a/zarr.json", "__x/zarr.json"),
            KEYS,
            (Error, "name-reserved", "__x", "", "Node names"),
        ),
        Row(
            v3,
            copies("a/zarr.json", ".../zarr.json"),
            KEYS,
            (Error, "name-not-allowed", "...", "", "Node names"),
        ),
        Row(
            v3,
            both(
                copies("a/zarr.json", "cafe\u{301}/zarr.json"),
                copies("a/zarr.json", "caf\u{e9}/zarr.json"),
            ),
            KEYS,
            (Warning, "names-differ-in-form", "caf\u{e9}", "", ""),
        ),
        Row(
            v3,
            copies("a/zarr.json", "x y/zarr.json"),
            KEYS,
            (Warning, "name-not-recommended", "x y", "", "Node names"),
        ),
        Row(
            v3,
            copies("a/zarr.json", "nul.x/zarr.json"),
            KEYS,
            (Warning, "name-not-portable", "nul.x", "", ""),
        ),
        Row(
            v3,
            copies("a/zarr.json", "A/zarr.json"),
            KEYS,
            (Warning, "names-differ-in-case", "a", "", ""),
        ),
        Row(
            v3,
            adds("a/.zgroup", json!({"zarr_format": 2})),
            KEYS,
            (
                Warning,
                "nodes-collide",
                "a/zarr.json",
                "",
                "Comparison with Zarr v2",
            ),
        ),
        Row(
            v3_consolidated,
            set(
                "zarr.json",
                "consolidated_metadata/metadata/a~1b/shape",
                json!([3, 6]),
            ),
            KEYS,
            (
                Error,
                "consolidated-differs",
                "zarr.json",
                "a/b/zarr.json: shape",
                fields,
            ),
        ),
        Row(
            v3_consolidated,
            copies("a/zarr.json", "new/zarr.json"),
            KEYS,
            (
                Error,
                "consolidated-missing",
                "zarr.json",
                "new/zarr.json",
                fields,
            ),
        ),
        Row(
            v3_consolidated,
            erases("a/b/zarr.json"),
            KEYS,
            (
                Error,
                "consolidated-extra",
                "zarr.json",
                "a/b/zarr.json",
                fields,
            ),
        ),
        Row(
            v3_consolidated,
            set(
                "zarr.json",
                "consolidated_metadata/kind",
                json!("elsewhere"),
            ),
            KEYS,
            (Error, "consolidated-unreadable", "zarr.json", "", fields),
        ),
        Row(
            v2_consolidated,
            set("a/b/.zattrs", "foo", json!(43)),
            KEYS,
            copied("consolidated-differs", "a/b/.zattrs: foo"),
        ),
        Row(
            v2_consolidated,
            adds("a/.zattrs", json!({"foo": 42})),
            KEYS,
            copied("consolidated-missing", "a/.zattrs"),
        ),
        Row(
            v2_consolidated,
            set(".zmetadata", "metadata/..", json!({})),
            KEYS,
            copied("consolidated-extra", ".."),
        ),
        Row(
            v2_consolidated,
            erases("a/b/.zattrs"),
            KEYS,
            copied("consolidated-extra", "a/b/.zattrs"),
        ),
        Row(
            v2_consolidated,
            set(".zmetadata", "zarr_consolidated_format", json!(2)),
            KEYS,
            copied("consolidated-unreadable", ""),
        ),
        Row(
            v2,
            moves("a/b/1.1", "a/b/1/1"),
            KEYS,
            (Error, "separator-not-stated", "a/b", "", "Metadata"),
        ),
        Row(
            v2,
            copies("a/b/0.0", "a/b/7.0"),
            KEYS,
            (Warning, "chunk-outside", "a/b/7.0", "", "Chunks"),
        ),
        Row(
            v2,
            copies("a/.zgroup", "a/b/c/.zgroup"),
            KEYS,
            (Error, "node-in-array", "a/b/c", "", "Groups"),
        ),
        Row(
            v2,
            copies("a/.zgroup", "c/.zgroup"),
            REMOTE,
            (Advice, "not-consolidated", "", "", ""),
        ),
        Row(
            draft2019,
            copies("data/a/b/0.0", "data/a/b/5.0"),
            KEYS,
            (Warning, "chunk-outside", "data/a/b/5.0", "", "Chunk grids"),
        ),
        Row(
            draft2020,
            copies("data/root/a/b/c0/0", "data/root/a/b/c5/0"),
            KEYS,
            (
                Warning,
                "chunk-outside",
                "data/root/a/b/c5/0",
                "",
                "Chunk encoding",
            ),
        ),
        Row(
            draft2020,
            adds("meta/root/a/b.group.json", json!({"attributes": {}})),
            KEYS,
            (
                Error,
                "nodes-collide",
                "meta/root/a/b.group.json",
                "",
                "Concepts and terminology",
            ),
        ),
        Row(
            draft2020,
            adds("meta/root/a/b/c.group.json", json!({"attributes": {}})),
            KEYS,
            (
                Error,
                "node-in-array",
                "meta/root/a/b.array.json",
                "",
                "Concepts and terminology",
            ),
        ),
        Row(
            draft2020,
            copies("data/root/a/b/c0/0", "data/root/a/x/c0/0"),
            KEYS,
            (Warning, "orphan-folder", "data/root/a/x", "", ""),
        ),
        Row(
            draft2020,
            holds("meta/root/a/b.array.json.tmp", b""),
            KEYS,
            (Warning, "leftover", "meta/root/a/b.array.json.tmp", "", ""),
        ),
        Row(
            draft2020,
            holds("stray/x", b""),
            KEYS,
            (Warning, "orphan-folder", "stray", "", ""),
        ),
        Row(
            draft2020,
            holds("meta/acquire.json", b"{}"),
            KEYS,
            (Warning, "orphan-key", "meta/acquire.json", "", ""),
        ),
        Row(
            draft2020,
            copies("meta/root/a/b.array.json", "meta/root/a/x y.array.json"),
            KEYS,
            (Error, "name-not-allowed", "a/x y", "", "Node names"),
        ),
        Row(
            draft2022,
            copies("data/a/b/c0/0", "data/a/b/c0/9"),
            KEYS,
            (
                Warning,
                "chunk-outside",
                "data/a/b/c0/9",
                "",
                "Chunk encoding",
            ),
        ),
        Row(
            n5,
            copies("a/b/0/0", "a/b/0/9"),
            KEYS,
            (Warning, "chunk-outside", "a/b/0/9", "", "Blocks"),
        ),
        Row(
            n5,
            holds("a/b/stray", b"x"),
            KEYS,
            (Warning, "orphan-key", "a/b/stray", "", ""),
        ),
        Row(
            raw,
            erases("zarr.json"),
            KEYS,
            (Error, "no-store", "", "", ""),
        ),
    ]
}

/// Returns kinds of damage to chunks and shards.
fn chunks() -> Vec<Row> {
    const NONE: u64 = u64::MAX;
    let format = "Binary shard format";
    let corrupt = |key, heading| (Error, "chunk-corrupt", key, "", heading);
    vec![
        Row(
            raw,
            holds("c/0", b"abc"),
            KEYS,
            (Error, "chunk-length", "c/0", "", "Chunk encoding"),
        ),
        Row(
            raw,
            holds("c/1", b"abcde"),
            DATA,
            (Error, "chunk-length", "c/1", "", "Chunk encoding"),
        ),
        Row(
            checksummed,
            changes("c/1", |bytes| bytes[0] ^= 1),
            DATA,
            corrupt("c/1", "Chunk encoding"),
        ),
        Row(
            zstd,
            changes("c/1", |bytes| bytes.truncate(9)),
            DATA,
            corrupt("c/1", "Chunk encoding"),
        ),
        Row(
            zstd,
            changes("c/0", |bytes| bytes.extend(b"more")),
            DATA,
            corrupt("c/0", "Chunk encoding"),
        ),
        Row(
            v3,
            changes("a/b/c/0/0", |bytes| bytes.truncate(12)),
            DATA,
            corrupt("a/b/c/0/0", "Chunk encoding"),
        ),
        Row(
            v3,
            changes("a/b/c/1/1", |bytes| bytes.extend(b"more")),
            DATA,
            corrupt("a/b/c/1/1", "Chunk encoding"),
        ),
        Row(
            v3,
            copies("a/zarr.json", "a/b/c/0/0"),
            DATA,
            corrupt("a/b/c/0/0", "Chunk encoding"),
        ),
        Row(
            v2,
            changes("a/b/0.0", |bytes| bytes[14] ^= 0xff),
            DATA,
            corrupt("a/b/0.0", "Chunks"),
        ),
        Row(
            draft2019,
            changes("data/a/b/0.0", |bytes| bytes.truncate(5)),
            DATA,
            corrupt("data/a/b/0.0", "Chunk grids"),
        ),
        Row(
            draft2020,
            changes("data/root/a/b/c0/0", |bytes| bytes.truncate(5)),
            DATA,
            corrupt("data/root/a/b/c0/0", "Chunk encoding"),
        ),
        Row(
            draft2022,
            changes("data/a/b/c0/0", |bytes| bytes.truncate(5)),
            DATA,
            corrupt("data/a/b/c0/0", "Chunk encoding"),
        ),
        Row(
            n5,
            changes("a/b/0/0", |bytes| bytes[3] = 9),
            DATA,
            corrupt("a/b/0/0", "Blocks"),
        ),
        Row(
            sharded,
            changes("c/0", |bytes| bytes[20] ^= 1),
            KEYS,
            (Error, "shard-index", "c/0", "", format),
        ),
        Row(
            sharded,
            changes("c/0", |bytes| bytes.truncate(20)),
            KEYS,
            (Error, "shard-index", "c/0", "", format),
        ),
        Row(
            sharded,
            indexed([[0, 6], [6, 99]], 0),
            KEYS,
            (Error, "shard-bounds", "c/0", "inner chunk 1", format),
        ),
        Row(
            sharded,
            indexed([[NONE, 6], [6, 6]], 0),
            KEYS,
            (Error, "shard-bounds", "c/0", "inner chunk 0", format),
        ),
        Row(
            sharded,
            indexed([[0, 6], [3, 6]], 0),
            KEYS,
            (Error, "shard-overlap", "c/0", "", format),
        ),
        Row(
            sharded,
            indexed([[0, 6], [6, 20]], 0),
            KEYS,
            (Error, "shard-overlap", "c/0", "", format),
        ),
        Row(
            sharded,
            indexed([[0, 6], [6, 6]], 5),
            KEYS,
            (Advice, "shard-unused", "c/0", "", format),
        ),
        Row(
            sharded,
            indexed([[0, 6], [NONE, NONE]], 0),
            KEYS,
            (Advice, "shard-unused", "c/0", "", format),
        ),
        Row(
            sharded,
            changes("c/0", |bytes| bytes[7] ^= 1),
            DATA,
            (
                Error,
                "chunk-corrupt",
                "c/0",
                "inner chunk 1",
                "Chunk encoding",
            ),
        ),
        Row(
            sharded,
            indexed([[0, 6], [3, 6]], 0),
            REMOTE_DATA,
            (Error, "shard-overlap", "c/0", "", format),
        ),
        Row(
            sharded2020,
            changes("data/root/a/b/c0/0", |bytes| bytes.truncate(90)),
            KEYS,
            (Error, "shard-index", "data/root/a/b/c0/0", "", format),
        ),
        Row(
            raw,
            adds(
                "zarr.json",
                plain_array(
                    json!([1_000_000_000_000_000_u64]),
                    json!([1]),
                    json!([{"name": "bytes"}]),
                ),
            ),
            KEYS,
            (Advice, "small-chunks", "", "", ""),
        ),
        Row(
            raw,
            adds(
                "zarr.json",
                plain_array(
                    json!([1_u64 << 40]),
                    json!([1_u64 << 31]),
                    json!([{"name": "bytes"}]),
                ),
            ),
            KEYS,
            (Advice, "large-chunks", "", "", ""),
        ),
        Row(
            sharded,
            adds(
                "zarr.json",
                plain_array(json!([4]), json!([4]), sharding(4)),
            ),
            KEYS,
            (Advice, "shard-without-gain", "", "", ""),
        ),
        Row(
            incompressible,
            Box::new(|_| ()),
            KEYS,
            (Advice, "compressor-idle", "", "", ""),
        ),
    ]
}

const REMOTE_DATA: How = How {
    data: true,
    is_remote: true,
};

/// Returns a store with chunks that are longer encoded than decoded, because they cannot be compressed.
fn incompressible() -> MemoryStore {
    let store = raw();
    let gzip = json!([{"name": "bytes"}, {"name": "gzip", "configuration": {"level": 1}}]);
    put(
        &store,
        "zarr.json",
        plain_array(json!([1 << 18]), json!([1 << 17]), gzip),
    );
    for chunk in ["c/0", "c/1"] {
        store.set(
            crate::dialects::hierarchies::key(chunk),
            vec![7; (1 << 17) + 20],
        );
    }
    store
}

fn fits(finding: &Finding, (severity, code, key, part, heading): Expected) -> bool {
    let found = finding
        .section
        .map_or("", |SpecSection { heading, .. }| heading);
    finding.severity == severity
        && finding.code == code
        && finding.key.as_bytes() == key.as_bytes()
        && finding.part.contains(part)
        && found == heading
}

/// Returns the text of a finding whose message or remedy violates the style (words of the field, no final period), or
/// `None` if the style is right.
fn odd_message(finding: &Finding) -> Option<String> {
    const UNUSUAL: [&str; 11] = [
        "so that",
        "document",
        "folder",
        "the text",
        " lies ",
        "beside",
        "alone",
        "signs",
        "does not read",
        "do not read",
        "does not decode",
    ];
    let Finding {
        message, remedy, ..
    } = finding;
    let is_odd = UNUSUAL
        .iter()
        .any(|words| message.contains(words) || remedy.contains(words))
        || message.ends_with('.')
        || remedy.ends_with('.');
    is_odd.then(|| finding.to_text())
}

/// Invariant (checks): A check finds every kind of damage, accepts what real writers make, and changes nothing; on a
/// network it requests chunks only with `--data`.
#[test]
fn each_kind_of_damage_is_found() {
    let rows: Vec<Row> = [
        documents_of_v3(),
        documents_of_v2(),
        documents_of_drafts(),
        keys(),
        misplaced_keys(),
        chunks(),
    ]
    .into_iter()
    .flatten()
    .collect();
    let count = rows.len();
    let mut faults = Vec::new();
    let mut odd: Vec<String> = Vec::new();
    for Row(base, damage, how, expected) in rows {
        let store = base();
        damage(&store);
        let (findings, summary) = run(Arc::new(store), how);
        let found = findings.iter().any(|finding| fits(finding, expected));
        odd.extend(findings.iter().filter_map(odd_message));
        if std::env::var_os("CATALOGUE_VERBOSE").is_some() {
            findings
                .iter()
                .for_each(|finding| println!("{}", finding.to_text()));
        }
        let counted = [Error, Warning, Advice]
            .map(|severity| summary.count(severity))
            .iter()
            .sum::<u64>();
        assert_eq!(counted, findings.len() as u64, "{expected:?}");
        let before = run(Arc::new(base()), how).0;
        let was_there =
            before.iter().any(|finding| fits(finding, expected)) && expected.1 != "compressor-idle";
        if !found || was_there {
            let lines: Vec<String> = findings
                .iter()
                .map(|f| format!("{} ({})", f.to_text(), f.code))
                .collect();
            faults.push(format!("{expected:?} {was_there}: {lines:#?}"));
        }
    }
    assert!(
        faults.is_empty(),
        "{} of {count}: {}",
        faults.len(),
        faults.join("\n")
    );
    assert!(odd.is_empty(), "{odd:#?}");
    assert!(count >= 120, "{count}");
}

/// The name of a store, and the function that creates it.
type Named = (&'static str, fn() -> MemoryStore);

#[test]
fn undamaged_stores_have_no_errors_or_warnings() {
    let stores: [Named; 13] = [
        ("v3", v3),
        ("v3 consolidated", v3_consolidated),
        ("v2", v2),
        ("v2 consolidated", v2_consolidated),
        ("2019", draft2019),
        ("2020", draft2020),
        ("2020 sharded", sharded2020),
        ("2022", draft2022),
        ("n5", n5),
        ("raw", raw),
        ("checksummed", checksummed),
        ("zstd", zstd),
        ("sharded", sharded),
    ];
    for (name, store) in stores {
        for how in [KEYS, DATA, REMOTE, REMOTE_DATA] {
            let (findings, summary) = run(Arc::new(store()), how);
            // Faults of known writers are allowed: for the draft of 2020, zarr-python leaves out a member of sharded
            // arrays.
            let odd = findings
                .iter()
                .filter(|finding| finding.habit.is_none() && finding.severity != Advice);
            let lines: Vec<String> = odd.map(Finding::to_text).collect();
            assert!(lines.is_empty(), "{name}: {lines:#?}");
            assert!(summary.arrays == 1, "{name}: {summary:?}");
        }
    }
}

#[test]
fn bytes_after_a_chunk_are_found_with_every_compressor() {
    let of_numcodecs = |name: &str, members: Value| json!({"name": format!("numcodecs.{name}"), "configuration": members});
    let blosc =
        json!({"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 1, "blocksize": 0});
    let compressors = [
        json!({"name": "zstd", "configuration": {"level": 1, "checksum": false}}),
        json!({"name": "gzip", "configuration": {"level": 1}}),
        json!({"name": "blosc", "configuration": blosc}),
        of_numcodecs("zlib", json!({"level": 1})),
        of_numcodecs("bz2", json!({"level": 1})),
        of_numcodecs(
            "lzma",
            json!({"format": 1, "check": -1, "preset": 1, "filters": null}),
        ),
        of_numcodecs("lz4", json!({"acceleration": 1})),
    ];
    for compressor in compressors {
        let codecs = json!([{"name": "bytes"}, compressor]);
        let store = plain(codecs, &[b"", b""]);
        let array = crate::dialects::hierarchies::array(
            &crate::dialects::hierarchies::hierarchy(&store),
            "",
        );
        let pipeline = zarr_format::codec::Pipeline::new(&array, 1 << 20).unwrap();
        let chunk = pipeline.encode(b"abcd").unwrap();
        store.set(crate::dialects::hierarchies::key("c/0"), chunk.clone());
        store.set(
            crate::dialects::hierarchies::key("c/1"),
            [chunk.as_slice(), b"more"].concat(),
        );
        let (findings, _) = run(Arc::new(store), DATA);
        let [finding] = findings.as_slice() else {
            panic!("{compressor}: {findings:#?}")
        };
        assert_eq!(finding.key.as_bytes(), b"c/1", "{compressor}");
        let is_told = match finding.code {
            "chunk-trailing" => finding.message.starts_with("4 bytes follow"),
            code => code == "chunk-corrupt",
        };
        assert!(
            is_told && finding.section.is_some(),
            "{compressor}: {finding:?}"
        );
    }
}
