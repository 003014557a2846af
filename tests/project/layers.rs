//! Imports point one way: a module may use only those that stand above it in `lib.rs`, and its own folder.
use std::path::{Path, PathBuf};

/// Returns the modules in the order of `lib.rs`.
fn order(src: &Path) -> Vec<String> {
    let lib = std::fs::read_to_string(src.join("lib.rs")).unwrap();
    let modules = lib
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    modules.map(str::to_string).collect()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// Returns the module after each `crate::`, tests left out.
fn imports(text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let after = code.split("crate::").skip(1);
    after
        .map(|rest| {
            rest.chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect()
        })
        .collect()
}

#[test]
fn imports_point_upwards() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let order = order(&src);
    let mut files = Vec::new();
    sources(&src, &mut files);
    assert!(files.len() > 30 && order.len() > 10);
    let mut faults = Vec::new();
    for file in files {
        let path = file
            .strip_prefix(&src)
            .unwrap()
            .to_string_lossy()
            .into_owned();
        let module = path
            .split('/')
            .next()
            .unwrap()
            .trim_end_matches(".rs")
            .to_string();
        let Some(place) = order.iter().position(|known| *known == module) else {
            assert!(
                ["lib", "main"].contains(&module.as_str()),
                "{path} is not in lib.rs"
            );
            continue;
        };
        let text = std::fs::read_to_string(&file).unwrap();
        if text.contains("crate::{") {
            faults.push(format!("{path}: several imports in one line"));
        }
        for import in imports(&text) {
            match order.iter().position(|known| *known == import) {
                Some(above) if above <= place => {}
                _ => faults.push(format!("{path} imports {import}")),
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}
