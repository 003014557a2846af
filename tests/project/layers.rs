//! Imports point one way: a module uses those above it in `lib.rs`, and the files of a folder use each other in
//! one direction.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::sources::{Source, sources};

/// Folders whose files still import each other in circles.
const CIRCLES: [&str; 0] = [];

/// Returns the modules in the order of `lib.rs`.
fn order() -> Vec<String> {
    let lib = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
    let lib = std::fs::read_to_string(lib).unwrap();
    let modules = lib
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    modules.map(str::to_string).collect()
}

#[test]
fn imports_point_upwards() {
    let (order, sources) = (order(), sources());
    assert!(sources.len() > 30 && order.len() > 10);
    let mut faults = Vec::new();
    for source in sources {
        let (file, module) = (&source.file, &source.module[0]);
        let Some(place) = order.iter().position(|known| known == module) else {
            assert!(
                ["lib", "main"].contains(&module.as_str()),
                "{file} is not in lib.rs"
            );
            continue;
        };
        if source.code.contains("crate::{") {
            faults.push(format!("{file}: several imports in one line"));
        }
        for path in source.paths() {
            match order.iter().position(|known| *known == path[0]) {
                Some(above) if above <= place => {}
                _ => faults.push(format!("{file} imports {}", path[0])),
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

/// For each folder, which of its files and folders import which others.
type Imports = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// Returns the imports between the entries of each folder; those from a folder's `mod.rs`, which is the face of the
/// folder to its own files, are none.
fn imports(sources: &[Source]) -> Imports {
    let modules: BTreeSet<&[String]> = sources.iter().map(|source| &source.module[..]).collect();
    let mut imports = Imports::new();
    for source in sources {
        for path in source.paths() {
            let known = (0..=path.len())
                .rev()
                .find(|&length| modules.contains(&path[..length]));
            let target = &path[..known.unwrap_or(0)];
            let alike = source
                .module
                .iter()
                .zip(target)
                .take_while(|(own, other)| own == other);
            let depth = alike.count();
            if let (Some(own), Some(other)) = (source.module.get(depth), target.get(depth)) {
                let folder = imports.entry(target[..depth].join("/")).or_default();
                folder.entry(own.clone()).or_default().insert(other.clone());
            }
        }
    }
    imports
}

/// Returns the entries of a folder that import themselves by way of others.
fn circle(folder: &BTreeMap<String, BTreeSet<String>>) -> Vec<&String> {
    let reaches = |start: &String| {
        let mut seen = BTreeSet::new();
        let mut waiting = vec![start];
        while let Some(entry) = waiting.pop() {
            let next = folder.get(entry).into_iter().flatten();
            waiting.extend(next.filter(|&other| seen.insert(other)));
        }
        seen.contains(start)
    };
    folder.keys().filter(|&entry| reaches(entry)).collect()
}

#[test]
fn files_of_a_folder_import_one_way() {
    let imports = imports(sources());
    assert!(imports.len() > 15, "{}", imports.len());
    let circles: BTreeMap<&str, Vec<&String>> = imports
        .iter()
        .map(|(folder, imports)| (folder.as_str(), circle(imports)))
        .filter(|(_, circle)| !circle.is_empty())
        .collect();
    let folders: Vec<&str> = circles.keys().copied().collect();
    assert_eq!(folders, CIRCLES, "{circles:#?}");
}
