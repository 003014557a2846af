//! Tests that no store of the corpus, which real software wrote, has an error.
//!
//! Deviations of the writers from the specification are warnings.

use serde_json::Value;
use zarr_check::Severity;

use crate::checks::fixture::{How, open, run};
use crate::common;

/// The stores of the corpus that are broken on purpose or by their writer, with the codes of the errors.
const BROKEN: [(&str, &[&str]); 0] = [];

/// Invariant of `each_kind_of_damage_is_found`.
#[test]
fn healthy_stores_have_no_errors() {
    let Some(corpus) = common::needs::shared("corpus") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    common::unpack_corpus(&corpus, folder.path());
    let stores = std::fs::read_to_string(corpus.join("stores.jsonl")).unwrap();
    let mut faults = Vec::new();
    for line in stores.lines() {
        let entry: Value = serde_json::from_str(line).unwrap();
        let text = |member: &str| entry[member].as_str().unwrap_or_default();
        let name = format!("{}/{}", text("source"), text("store"));
        let (findings, _) = run(
            open(&folder.path().join(&name)),
            How {
                data: true,
                is_remote: false,
            },
        );
        let mut errors: Vec<&str> = Vec::new();
        for finding in &findings {
            if finding.severity == Severity::Error {
                errors.push(finding.code);
            }
            if std::env::var_os("CORPUS_VERBOSE").is_some() {
                println!("{name}: {}", finding.to_text());
            }
        }
        errors.sort_unstable();
        errors.dedup();
        let expected = BROKEN.iter().find(|(broken, _)| *broken == name);
        if errors != expected.map_or(&[] as &[&str], |(_, codes)| codes) {
            faults.extend(
                findings
                    .iter()
                    .filter(|f| f.severity == Severity::Error)
                    .map(|finding| format!("{name}: {}", finding.to_text())),
            );
        }
    }
    assert!(faults.is_empty(), "{} faults: {faults:#?}", faults.len());
}
