//! Tests that every test which `docs/conformance.md` lists exists.

use std::fs;
use std::path::Path;

/// The folders that contain the modules in `docs/conformance.md`, tests first.
const FOLDERS: [&str; 10] = [
    "tests/unmounted/dialects",
    "tests/unmounted/arrays",
    "crates/zarr-format/tests/codecs",
    "tests/unmounted/checks",
    "tests/stores/conformance",
    "crates/zarr-format/src/dialect",
    "crates/zarrfs-array/src/hierarchy",
    "crates/zarrfs-store/src",
    "crates/zarr-format/src/codec",
    "crates/zarr-format/src",
];

/// Whether `module::test` names a test in the sources.
fn is_test(name: &str) -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let Some((module, test)) = name.rsplit_once("::") else {
        return false;
    };
    let path = module.replace("::", "/");
    FOLDERS.iter().any(|folder| {
        [
            format!("{folder}/{path}.rs"),
            format!("{folder}/{path}/mod.rs"),
        ]
        .iter()
        .filter_map(|file| fs::read_to_string(root.join(file)).ok())
        .any(|text| {
            let before = text
                .split(&format!("fn {test}("))
                .next()
                .unwrap_or_default();
            before.len() < text.len() && before.trim_end().ends_with("#[test]")
        })
    })
}

#[test]
fn every_requirement_has_its_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("docs/conformance.md")).unwrap();
    let (text, beyond) = text.split_once("\n## Beyond the texts\n").unwrap();
    check_forms(beyond);
    let mut rows = 0;
    for row in text.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        if cells[0] == "requirement" || row.starts_with("| ---") {
            continue;
        }
        assert_eq!(cells.len(), 4, "{row}");
        let level = cells[1];
        assert!(["must", "should", "may"].contains(&level), "{row}");
        let tests: Vec<&str> = cells[3].split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty() || cells[3] == "-", "{row}");
        // A requirement without a test must be marked as not implemented.
        assert!(!tests.is_empty() || cells[2].starts_with("not "), "{row}");
        for test in tests {
            assert!(is_test(test), "{test} is no test: {row}");
        }
        rows += 1;
    }
    assert!(rows > 80, "{rows} requirements");
}

/// Checks the table of metadata forms that other readers accept, in which the last cell of each row lists tests.
fn check_forms(text: &str) {
    let mut rows = 0;
    for row in text.lines().filter(|line| line.starts_with("| ")).skip(2) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        assert_eq!(cells.len(), 4, "{row}");
        let words = cells[3].split('`').skip(1).step_by(2);
        let tests: Vec<&str> = words.filter(|word| word.contains("::")).collect();
        let is_left_alone = ["refused", "not decoded", "not read"];
        let is_left_alone = is_left_alone
            .iter()
            .any(|words| cells[3].starts_with(words));
        assert!(is_left_alone || !tests.is_empty(), "{row}");
        for test in tests {
            assert!(is_test(test), "{test} is no test: {row}");
        }
        rows += 1;
    }
    assert!(rows > 20, "{rows} forms");
}
