//! Compares `tree` of every corpus store, and `info` of one array per archive.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{needs, unpack_corpus};
use crate::inspect::program::{compare, run};

/// Runs a command on a path below `folder`. Returns the exit status and the output, in which the folder is replaced so
/// that it does not depend on the machine.
fn shown(args: &[&str], folder: &Path, path: &str) -> String {
    let whole = folder.join(path);
    let output = run(&[args, &[whole.to_str().unwrap()]].concat());
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(text).unwrap();
    let text = text.replace(folder.to_str().unwrap(), "CORPUS");
    format!(
        "$ zarrfs {} CORPUS/{path}\n{text}[{}]\n\n",
        args.join(" "),
        output.status.code().unwrap()
    )
}

/// Returns the paths of the corpus stores, each with the path of an array in it.
fn stores(corpus: &Path) -> Vec<(String, Option<String>)> {
    let lines = fs::read_to_string(corpus.join("stores.jsonl")).unwrap();
    let stores = lines.lines().map(|line| {
        let store: Value = serde_json::from_str(line).unwrap();
        let archive = store["archive"]
            .as_str()
            .unwrap()
            .trim_end_matches(".tar.gz");
        let name = store["store"].as_str().unwrap();
        let nodes = store["nodes"].as_object().into_iter().flatten();
        let mut arrays = nodes
            .filter(|(_, kind)| *kind == "array")
            .map(|(path, _)| path.clone());
        (format!("{archive}/{name}"), arrays.next())
    });
    stores.collect()
}

#[test]
fn trees_of_the_corpus() {
    let Some(corpus) = needs::shared("corpus") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    unpack_corpus(&corpus, folder.path());
    let stores = stores(&corpus);
    assert!(stores.len() > 80);
    let mut text = String::new();
    for (store, _) in &stores {
        text += &shown(&["tree"], folder.path(), store);
    }
    compare("corpus_trees.txt", &text);
    let mut archives = BTreeSet::new();
    let mut text = String::new();
    for (store, array) in &stores {
        let archive = store.split('/').next().unwrap();
        let Some(array) = array else { continue };
        if archives.insert(archive.to_string()) {
            let path = format!("{store}{}", array.trim_end_matches('/'));
            text += &shown(&["info"], folder.path(), &path);
            text += &shown(&["info", "--json"], folder.path(), &path);
        }
    }
    assert!(archives.len() >= 10);
    compare("corpus_arrays.txt", &text);
}
