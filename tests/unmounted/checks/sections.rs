//! Tests that the cited sections exist, and that the manual lists all codes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::common;

/// The specifications: the variant of `Spec`, the name in findings, and the file with the text.
const TEXTS: [(&str, &str, &str); 6] = [
    ("V2", "Zarr v2", "final/v2/v2.0.rst"),
    ("V3", "Zarr v3 core 3.1", "final/v3/core/index.rst"),
    (
        "Draft2019",
        "Zarr v3 draft of 2019",
        "seeds/v3-draft-2019.rst",
    ),
    (
        "Draft2020",
        "Zarr v3 draft of October 2020",
        "seeds/v3-draft-2020-10.rst",
    ),
    (
        "Draft2022",
        "Zarr v3 draft of May 2022",
        "seeds/v3-draft-2022-05.txt",
    ),
    (
        "Sharding",
        "Zarr v3 codec sharding_indexed",
        "final/v3/codecs/sharding-indexed/index.rst",
    ),
];

/// Returns the sections that the sources of zarr-check cite, each as a variant of `Spec` and a heading.
fn named_sections() -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/zarr-check/src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(path).unwrap();
            for (variant, _, _) in TEXTS {
                let start = format!("Spec::{variant}.section(\"");
                for part in text.split(&start).skip(1) {
                    let heading = part.split('"').next().unwrap();
                    found.insert((variant.to_string(), heading.to_string()));
                }
            }
        }
    }
    found
}

#[test]
fn sections_of_findings_are_headings_of_the_specifications() {
    let Some(specs) = common::needs::shared("specs") else {
        return;
    };
    let mut sections = named_sections();
    assert!(sections.len() > 20, "{sections:?}");
    // Methods of `Spec`, not calls with a heading, cite these sections.
    let by_document = [
        ("V2", ["Chunks", "Groups", "Metadata"]),
        (
            "V3",
            ["Chunk encoding", "Concepts and terminology", "Codecs"],
        ),
        ("Draft2019", ["Chunk grids", "Conceptual model", "Codecs"]),
        (
            "Draft2020",
            ["Chunk encoding", "Concepts and terminology", "Node names"],
        ),
        (
            "Draft2022",
            ["Chunk encoding", "Concepts and terminology", "Node names"],
        ),
    ];
    for (variant, headings) in by_document {
        sections.extend(headings.map(|heading| (variant.to_string(), heading.to_string())));
    }
    let mut faults = Vec::new();
    for (variant, _, file) in TEXTS {
        let text = fs::read_to_string(specs.join(file)).unwrap();
        let lines: BTreeSet<&str> = text
            .lines()
            .map(|line| line.trim().trim_matches(['`', '#']))
            .collect();
        let named = sections.iter().filter(|(of, _)| of == variant);
        faults.extend(named.filter(|(_, heading)| !lines.contains(heading.as_str())));
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn the_page_of_findings_has_each_code() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/findings.md");
    let page = fs::read_to_string(page).unwrap();
    let part = page.split("\n## Findings\n").nth(1).unwrap();
    let part = part.split("\n## ").next().unwrap();
    let listed: Vec<&str> = part
        .lines()
        .filter_map(|line| line.strip_prefix("- `")?.split('`').next())
        .collect();
    assert_eq!(listed, zarr_check::CODES);
}
