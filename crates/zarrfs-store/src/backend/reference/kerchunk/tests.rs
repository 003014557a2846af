//! Tests tables that are made from the text of kerchunk reference files.

use std::sync::Arc;

use super::json::{Pieces, WholeText};
use super::references::ReferenceText;
use super::table::{Table, TableBuilder};
use super::targets::TargetBase;
use super::{JsonContent, json_content};
use crate::backend::reference::{Location, Reference};
use crate::request_context::UNLIMITED;
use crate::stats::Stats;
use crate::sync::budget::MemoryBudget;
use crate::{EntryKind, HiddenEntries, Key, Listing};
use zarr_format::error::{Kind, Result};

const V1: &str = r#"{"version": 1,
    "gen": [{"key": "g/{{i}}.{{j}}", "url": "{{u}}/{{f(c='x')}}", "offset": "{{(i * 2 + j) * 10}}", "length": "10",
             "dimensions": {"i": {"stop": 3}, "j": [0, 1]}}],
    "refs": {
        ".zgroup": {"zarr_format": 2, "x": NaN},
        "a/.zarray": "{\"zarr_format\": 2}",
        "a/0.0": ["s3://b/{{u}}.nc", 10, 20],
        "a/0.1": ["rel.nc"],
        "a/0.2": "base64:AAEC",
        "a/0.0": ["s3://b/later.nc", 1, 2],
        "bad/number": ["u", -1, 2], "bad/null": null, "bad/short": ["u", 1], "bad/text": [1, 2, 3],
        "bad/base64": "base64:!", "bad/template": ["{{none}}", 1, 2],
        "../up": "hidden", "": "hidden", "a//b": "hidden"
    }, "templates": {"u": "path", "f": "_{{c}}"}, "more": [1, {"refs": {}}]}"#;

struct Made {
    table: Arc<Table>,
    hidden: Arc<HiddenEntries>,
}

fn made(pieces: impl Pieces, memory: u64) -> Result<Made> {
    let budget = MemoryBudget::new(memory, Arc::new(Stats::default()));
    let hidden = Arc::new(HiddenEntries::default());
    let builder = TableBuilder::new(&budget, &hidden);
    let table = ReferenceText::new(pieces, builder).table(&TargetBase::new("/folder"))?;
    assert!(budget.held() <= memory);
    Ok(Made {
        table: Arc::new(table),
        hidden,
    })
}

fn text(text: &str) -> Result<Made> {
    made(WholeText(text.as_bytes().to_vec()), 64 << 20)
}

impl Made {
    fn find(&self, key: &str) -> String {
        match self.table.find(&Key::new(key).unwrap()) {
            Err(error) => format!("error: {}", error.detail()),
            Ok(entry) => {
                let prefix = if entry.is_prefix { "/" } else { "" };
                let found = match entry.reference {
                    None => String::new(),
                    Some(Reference::Inline(bytes)) => {
                        format!("{:?}", String::from_utf8_lossy(&bytes))
                    }
                    Some(Reference::Part(part)) => {
                        let Location::Url(url) = &part.location else {
                            panic!("in a repository");
                        };
                        format!("{url} {} {:?}", part.offset, part.length)
                    }
                };
                found + prefix
            }
        }
    }

    fn names(&self, prefix: &str) -> Vec<String> {
        let mut listing = self.table.clone().list(&Key::new(prefix).unwrap());
        let mut names = Vec::new();
        while let Some(name) = listing.next(&UNLIMITED).unwrap() {
            let slash = if name.kind == EntryKind::Directory {
                "/"
            } else {
                ""
            };
            names.push(String::from_utf8_lossy(&name.name).into_owned() + slash);
            // A listing that seeks to a name's cursor must continue with the next name.
            let rest = |listing: &mut dyn Listing| listing.next(&UNLIMITED).unwrap();
            let mut again = self.table.clone().list(&Key::new(prefix).unwrap());
            again.seek(&UNLIMITED, name.cursor).unwrap();
            let expected = rest(&mut listing);
            assert_eq!(rest(&mut again), expected);
            listing.seek(&UNLIMITED, name.cursor).unwrap();
        }
        names
    }
}

#[test]
fn references_of_version_1_are_found_and_listed() {
    let made = text(V1).unwrap();
    for (key, expected) in [
        ("", "/"),
        ("a", "/"),
        (".zgroup", r#""{\"zarr_format\": 2, \"x\": NaN}""#),
        ("a/.zarray", r#""{\"zarr_format\": 2}""#),
        ("a/0.0", "s3://b/later.nc 1 Some(2)"),
        ("a/0.1", "/folder/rel.nc 0 None"),
        ("a/0.2", r#""\0\u{1}\u{2}""#),
        ("g/2.1", "/folder/path/_x 50 Some(10)"),
        ("g/3.0", ""),
        ("more", ""),
        ("a/0.0/x", ""),
        ("bad/template", "error: there is no template 'none'"),
    ] {
        assert_eq!(made.find(key), expected, "{key}");
    }
    for bad in ["number", "null", "short", "text", "base64"] {
        assert!(
            made.find(&format!("bad/{bad}")).starts_with("error: the "),
            "{bad}"
        );
    }
    assert_eq!(made.names(""), [".zgroup", "a/", "bad/", "g/"]);
    assert_eq!(made.names("a"), [".zarray", "0.0", "0.1", "0.2"]);
    assert_eq!(made.names("g"), ["0.0", "0.1", "1.0", "1.1", "2.0", "2.1"]);
    assert_eq!(made.names("none"), [""; 0]);
    assert_eq!(made.hidden.all().len(), 3);
}

#[test]
fn a_scalar_chunk_without_an_index_is_found() {
    let made = text(r#"{"refs": {"s/.zarray": "{}", "s/": ["s3://b/f.nc", 3, 8]}}"#).unwrap();
    assert_eq!(made.find("s/0"), "s3://b/f.nc 3 Some(8)");
    assert_eq!(made.names("s"), [".zarray", "0"]);
}

#[test]
fn references_of_version_0_are_found() {
    let made = text(
        r#"{"zarr.json": {"node_type": "group"}, "a/c/0": ["{{u}}", 1, 2], "a/c": "x", "a-": ""}"#,
    );
    let made = made.unwrap();
    assert_eq!(made.find("a/c"), "\"x\"/");
    assert_eq!(made.find("a/c/0"), "/folder/{{u}} 1 Some(2)");
    assert_eq!(made.names(""), ["a/", "a-", "zarr.json"]);
    assert_eq!(made.names("a"), ["c/"]);
    assert_eq!(text("{}").unwrap().names(""), [""; 0]);
}

/// Generates the text of a reference file with `count` chunks in two arrays.
struct Chunks {
    next: u64,
    count: u64,
}

impl Pieces for Chunks {
    fn next(&mut self) -> Result<Vec<u8>> {
        let mut piece = String::new();
        let end = self.count.min(self.next + 10_000);
        if self.next == 0 {
            piece.push_str("{\"refs\": {\"x\": \"\"");
        }
        for number in self.next..end {
            let (i, j) = (number / 1000, number % 1000);
            piece += &format!(
                ",\"v{}/{i}.{j}\": [\"s3://b/{i}.nc\", {}, 4096]",
                number % 2,
                j * 4096
            );
        }
        if self.next <= self.count {
            if end == self.count {
                piece.push_str("}}");
                self.next = self.count + 1;
            } else {
                self.next = end;
            }
        }
        Ok(piece.into_bytes())
    }
}

#[test]
fn batches_are_merged_within_the_memory_limit() {
    let (count, memory) = (300_000, 12 << 20);
    let made = made(Chunks { next: 0, count }, memory).unwrap();
    assert_eq!(made.find("v1/299.999"), "s3://b/299.nc 4091904 Some(4096)");
    assert_eq!(made.find("v0/7.42"), "s3://b/7.nc 172032 Some(4096)");
    let mut listing = made.table.clone().list(&Key::new("v0").unwrap());
    let mut listed = 0;
    while listing.next(&UNLIMITED).unwrap().is_some() {
        listed += 1;
    }
    assert_eq!(listed, count / 2);
}

#[test]
fn a_table_beyond_the_memory_limit_is_too_large() {
    for memory in [1 << 10, 100 << 10, 2 << 20] {
        let error = made(
            Chunks {
                next: 0,
                count: 300_000,
            },
            memory,
        )
        .err()
        .unwrap();
        assert_eq!(error.kind(), Kind::TooLarge, "{error}");
        assert!(error.to_string().contains("give more --memory"), "{error}");
    }
    let value = format!("{{\"a\": \"{}\"}}", "x".repeat(1 << 20));
    let error = made(WholeText(value.into_bytes()), 1 << 20).err().unwrap();
    assert_eq!(error.kind(), Kind::TooLarge, "{error}");
}

#[test]
fn invalid_and_oversized_generators_are_errors() {
    for dimensions in [
        r#"{"i": {"stop": 9223372036854775807}}"#,
        r#"{"i": {"start": -9223372036854775808, "stop": 9223372036854775807}}"#,
        r#"{"i": {"stop": 100000}, "j": {"stop": 100000}, "k": {"stop": 100000000000}}"#,
        r#"{"i": {"stop": 3, "step": 0}}"#,
        r#"{"i": {}}"#,
        r#"{"i": [1.5]}"#,
        "[]",
    ] {
        let rule = format!(
            r#"{{"refs": {{}}, "gen": [{{"key": "k", "url": "u", "dimensions": {dimensions}}}]}}"#
        );
        assert!(text(&rule).is_err(), "{dimensions}");
    }
    for bad in [r#""gen": [1]"#, r#""gen": [{"key": "k"}]"#] {
        assert!(
            text(&format!(r#"{{"refs": {{}}, {bad}}}"#)).is_err(),
            "{bad}"
        );
    }
    let rule = r#"{"refs": {}, "gen": [{"key": "k{{i}}", "url": "u", "dimensions": {"i": {"start": 5, "stop": 0, "step": -2}}}]}"#;
    assert_eq!(text(rule).unwrap().names(""), ["k1", "k3", "k5"]);
}

#[test]
fn a_damaged_file_causes_no_panic() {
    for length in 0..V1.len() {
        assert!(text(&V1[..length]).is_err(), "{length}");
    }
    for position in 0..V1.len() {
        for flip in [1, 128] {
            let mut bytes = V1.as_bytes().to_vec();
            bytes[position] ^= flip;
            if let Ok(made) = made(WholeText(bytes), 64 << 20) {
                for prefix in ["", "a", "bad", "g"] {
                    made.names(prefix);
                }
                made.find("a/0.0");
            }
        }
    }
}

#[test]
fn the_kind_of_a_json_file_is_found_from_its_start() {
    use JsonContent::{Document, NoObject, References, Unknown};
    for (head, expected) in [
        (r#"{"version": 1, "refs": {".zgr"#, References),
        (
            r#"{".zgroup": "{\"zarr_format\": 2}", "a/0": ["u"#,
            References,
        ),
        (r#"{"a/0": ["u", 0, 1], "a/.zarray": {"#, References),
        (r#"{"zarr.json": "{}"}"#, References),
        (r#"{"zarr_format": 2}"#, Document),
        (r#"{"node_type": "group", "zarr.json": {"#, Document),
        (
            r#"{"metadata": {".zgroup": {"zarr_format": 2}}, "zarr_consolidated_format": 1}"#,
            Document,
        ),
        (r#"{"a": 1}"#, Unknown),
        (r#"{"version": 1, "templates": {"u": "xxx"#, Unknown),
        (r#"{"refs": 1}"#, Unknown),
        ("[1]", NoObject),
        ("PK", NoObject),
        ("", NoObject),
    ] {
        assert_eq!(json_content(head.as_bytes()), expected, "{head}");
    }
}
