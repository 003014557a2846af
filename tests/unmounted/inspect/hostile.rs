//! Tests that broken and malicious stores do not harm the person who inspects them.

use std::os::unix::fs::symlink;

use serde_json::Value;

use crate::inspect::program::{GROUP, array, command, failed, printed, run, store};

#[test]
fn control_characters_are_escaped() {
    let folder = tempfile::tempdir().unwrap();
    let group = r#"{"zarr_format": 3, "node_type": "group", "attributes": {"a\u001b[2J": "\u0007b\u202e"}}"#;
    let named = array(&[1], &[1]).replace(
        "\"zarr_format\"",
        "\"dimension_names\": [\"\\u001b]0;x\\u0007\"], \"zarr_format\"",
    );
    store(
        folder.path(),
        &[
            ("zarr.json", group.as_bytes()),
            ("e\u{1b}[31mvil\n/zarr.json", named.as_bytes()),
            ("b\u{202e}roken/zarr.json", b"{\x1b"),
        ],
    );
    let path = folder.path().to_str().unwrap();
    let node = format!("{path}/e\u{1b}[31mvil\n");
    let lines: [&[&str]; 6] = [
        &["tree", path],
        &["tree", "--json", path],
        &["ls", "-l", path],
        &["info", path],
        &["info", &node],
        &["map", &node],
    ];
    for args in lines {
        let text = printed(args);
        let is_harmful = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!text.contains(is_harmful), "{args:?}: {text:?}");
    }
}

#[test]
fn broken_nodes_are_shown_with_their_fault() {
    let folder = tempfile::tempdir().unwrap();
    store(
        folder.path(),
        &[
            ("zarr.json", GROUP),
            ("good/zarr.json", array(&[4], &[2]).as_bytes()),
            ("bad/zarr.json", b"{"),
            (
                "odd/zarr.json",
                array(&[4], &[2])
                    .replace("bytes\"}", "bytes\"}, {\"name\": \"nosuch\"}")
                    .as_bytes(),
            ),
        ],
    );
    let path = folder.path().to_str().unwrap();
    let text = printed(&["tree", path]);
    assert!(
        text.contains("bad  broken: bad/zarr.json: not JSON"),
        "{text}"
    );
    assert!(
        text.contains("odd  uint8 (4,)") && text.contains("cannot be decoded"),
        "{text}"
    );
    assert!(
        text.ends_with("1 group, 2 arrays, 1 broken node\n"),
        "{text}"
    );
    let info = printed(&["info", &format!("{path}/odd")]);
    assert!(
        info.contains("cannot be decoded") && info.contains("nosuch"),
        "{info}"
    );
    assert!(!info.contains("decoded files"), "{info}");
    let info: Value =
        serde_json::from_str(&printed(&["info", "--json", &format!("{path}/bad")])).unwrap();
    assert_eq!(
        (&info["kind"], &info["documents"]),
        (&"broken".into(), &serde_json::json!(["zarr.json"]))
    );
    assert!(failed(&["cat", "--select", "0", &format!("{path}/bad")]).contains("not JSON"));
    assert!(failed(&["map", "--data", &format!("{path}/odd")]).contains("nosuch"));
}

#[test]
fn circular_links_end() {
    let folder = tempfile::tempdir().unwrap();
    store(
        folder.path(),
        &[
            ("zarr.json", GROUP),
            ("g/zarr.json", GROUP),
            ("h/zarr.json", GROUP),
        ],
    );
    let links = [
        ("g/up", ".."),
        ("g/self", "."),
        ("g/there", "../h"),
        ("h/back", "../g"),
    ];
    for (name, target) in links {
        symlink(target, folder.path().join(name)).unwrap();
    }
    symlink(folder.path(), folder.path().join("g/root")).unwrap();
    let found = run(&["tree", "--json", folder.path().to_str().unwrap()]);
    let tree: serde_json::Value = serde_json::from_slice(&found.stdout).unwrap();
    let nodes = tree["nodes"].as_array().unwrap().iter();
    let paths: Vec<&str> = nodes.map(|node| node["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["", "g", "g/there", "h", "h/back"]);
    let said = String::from_utf8(found.stderr).unwrap();
    assert!(
        said.contains("left out: a symbolic link to a parent directory"),
        "{said}"
    );
}

#[test]
fn a_missing_path_is_named() {
    let folder = tempfile::tempdir().unwrap();
    store(folder.path(), &[("s/zarr.json", GROUP)]);
    let path = folder.path().to_str().unwrap();
    assert_eq!(
        failed(&["info", &format!("{path}/s/no")]),
        format!("{path}/s/no: no such group or array")
    );
    let fault = failed(&["tree", &format!("{path}/none")]);
    assert!(
        fault.starts_with(&format!("{path}/none: No such file")),
        "{fault}"
    );
    assert!(failed(&["tree", "nosuch://x"]).contains("nosuch"));
    assert!(failed(&["stats", path]).ends_with("is not a mount of zarrfs"));
}

#[test]
fn files_of_a_root_array_are_named_after_its_store() {
    let folder = tempfile::tempdir().unwrap();
    store(
        folder.path(),
        &[("name.zarr/zarr.json", array(&[4], &[2]).as_bytes())],
    );
    let path = folder.path().join("name.zarr");
    let found = printed(&["tree", "--json", path.to_str().unwrap()]);
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["nodes"][0]["files"][0], "name.npy");
}

#[test]
fn chunk_folders_of_a_broken_array_are_not_groups() {
    let folder = tempfile::tempdir().unwrap();
    let files: [(&str, &[u8]); 6] = [
        ("zarr.json", GROUP),
        ("a/zarr.json", b"null"),
        ("a/c/0/1", b"x"),
        ("a/0/zarr.json", GROUP),
        ("b/zarr.json/x", b"x"),
        ("b/1/x", b"x"),
    ];
    store(folder.path(), &files);
    let text = printed(&["tree", folder.path().to_str().unwrap()]);
    let names: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split_once("\u{2500}\u{2500} "))
        .map(|(_, name)| name.split("  ").next().unwrap())
        .collect();
    assert_eq!(names, ["a", "0", "b", "1"], "{text}");
    let told = "a  broken: a/zarr.json: JSON, but not an object: null";
    assert!(text.contains(told), "{text}");
}

#[test]
fn faults_name_paths_as_they_were_typed() {
    let folder = tempfile::tempdir().unwrap();
    let a = array(&[4], &[4]);
    let files: [(&str, &[u8]); 5] = [
        ("s.zarr/zarr.json", GROUP),
        ("s.zarr/a/zarr.json", a.as_bytes()),
        ("s.zarr/a/c/0", b"x"),
        ("s.zarr/bad/zarr.json", b"{"),
        ("s.zarr/g/zarr.json", GROUP),
    ];
    store(folder.path(), &files);
    let fault = |args: &[&str]| {
        let output = command(args).current_dir(folder.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let lines: [(&[&str], &str); 9] = [
        (
            &["cat", "s.zarr/a/c/7"],
            "s.zarr/a/c/7: no such file or key",
        ),
        (
            &["cat", "./s.zarr/a/c/7"],
            "./s.zarr/a/c/7: no such file or key",
        ),
        (&["cat", "--select", ":", "s.zarr/a"], "s.zarr/a/c/0: "),
        (&["cp", "s.zarr/a", "a.npy"], "s.zarr/a/c/0: "),
        (&["preview", "s.zarr/a"], "s.zarr/a/c/0: "),
        (&["map", "s.zarr/bad/"], "s.zarr/bad/zarr.json: not JSON"),
        (&["map", "s.zarr/g"], "s.zarr/g: "),
        (&["info", "s.zarr/no"], "s.zarr/no: no such group or array"),
        (&["cat", "--select", "9", "s.zarr/a"], "selection '9': "),
    ];
    for (args, start) in lines {
        let fault = fault(args);
        assert!(
            fault.starts_with(&format!("zarrfs: {start}")),
            "{args:?}: {fault}"
        );
    }
}

#[test]
fn info_and_check_report_deeply_nested_attributes() {
    let folder = tempfile::tempdir().unwrap();
    let deep = format!(
        "\"attributes\": {{\"a\": {}1{}}}, \"zarr_format\"",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    let array = array(&[4], &[2]).replace("\"zarr_format\"", &deep);
    store(
        folder.path(),
        &[("zarr.json", GROUP), ("deep/zarr.json", array.as_bytes())],
    );
    let path = folder.path().to_str().unwrap();
    let words = "objects and lists nest deeper than 127 levels";
    let info = printed(&["info", &format!("{path}/deep")]);
    assert!(info.contains("shape") && info.contains(words), "{info}");
    let check = command(&["check", path]).output().unwrap();
    let told = String::from_utf8(check.stdout).unwrap();
    assert!(told.contains(words) && told.contains("1 error"), "{told}");
    assert!(told.len() < 1000, "{told}");
}
