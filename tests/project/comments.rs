//! Comments and documents are about things: a cache, a reader, a program; not about persons who know, hear or ask.

use std::fs;
use std::path::{Path, PathBuf};

/// Words for persons that no sentence about a program needs.
const PERSONS: [&str; 10] = [
    "anybody",
    "everybody",
    "hear",
    "hears",
    "herself",
    "himself",
    "nobody",
    "somebody",
    "someone",
    "whoever",
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the sources below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let below = entries.flat_map(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path)
        } else {
            vec![path]
        }
    });
    below.collect()
}

/// Returns the words of a line that are names of persons.
fn persons(line: &str) -> Vec<&'static str> {
    let words: Vec<String> = line
        .split(|c: char| !c.is_alphanumeric())
        .map(str::to_lowercase)
        .collect();
    let is_there = |person: &&&str| words.iter().any(|word| word == **person);
    PERSONS.iter().filter(is_there).copied().collect()
}

#[test]
fn comments_are_about_things() {
    let files = sources(&root().join("src"));
    assert!(files.len() > 200, "{}", files.len());
    let mut faults = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        for (number, line) in text.lines().enumerate() {
            let comment = line.trim_start();
            if comment.starts_with("//") && !persons(comment).is_empty() {
                faults.push(format!("{}:{}: {comment}", path.display(), number + 1));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn documents_are_about_things() {
    let pages = ["files", "stores", "writing"].map(|name| format!("man/zarrfs-{name}.7"));
    let others = [
        "man/zarrfs.7",
        "README.md",
        "ARCHITECTURE.md",
        "doc/invariants.md",
    ];
    let names = pages.iter().map(String::as_str).chain(others);
    for name in names {
        let text = fs::read_to_string(root().join(name)).unwrap();
        // Names of tests and files are between backquotes.
        let prose: Vec<&str> = text.split('`').step_by(2).collect();
        let found = persons(&prose.join(" "));
        assert!(found.is_empty(), "{name}: {found:?}");
    }
}
