//! Tests stores in each kind of place: folder, archive, web server.

use std::fs;
use std::path::Path;

use crate::common::scripted::{Answer, Scripted, answer};
use crate::common::zip_writer::{Archive, Entry};
use crate::inspect::program::{GROUP, array, printed, run, sample, store};

/// Returns the output of `info` for a path, without the lines that contain the path of the store.
fn facts(path: &str) -> Vec<String> {
    let text = printed(&["info", path]);
    let is_place = |line: &&str| line.starts_with("  store  ") || line.starts_with("  metadata  ");
    let lines = text.lines().filter(|line| !is_place(line));
    // `info` prints keys relative to the root of the store, which differs between the two paths.
    lines.map(|line| line.replace("tas/c/", "c/")).collect()
}

fn tas() -> String {
    sample("climate.zarr/tas").to_str().unwrap().to_string()
}

/// Returns the files below a folder as entries of an archive.
fn keys_of(folder: &Path, prefix: &str) -> Vec<Entry> {
    let mut entries = Vec::new();
    for file in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = format!("{prefix}{}", file.file_name().to_str().unwrap());
        if file.path().is_dir() {
            entries.extend(keys_of(&file.path(), &format!("{name}/")));
        } else {
            entries.push(Entry::deflated(name, &fs::read(file.path()).unwrap()));
        }
    }
    entries
}

#[test]
fn an_archive_is_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let zip = folder.path().join("c.zarr.zip");
    let entries = keys_of(&sample("climate.zarr"), "");
    fs::write(&zip, Archive::of(entries).bytes()).unwrap();
    let path = format!("{}/tas", zip.display());
    assert_eq!(facts(&path), facts(&tas()));
    let chunk = fs::read(format!("{}/c/0/0/0", tas())).unwrap();
    assert_eq!(
        printed(&["cat", &format!("{path}/zarr.json")]).len(),
        fs::read(format!("{}/zarr.json", tas())).unwrap().len()
    );
    let decoded = printed(&["cat", "--decode", &format!("{path}/c/0/0/0")]);
    assert!(decoded.starts_with("266.0 ") && !chunk.is_empty());
}

/// Answers a request for a file in a folder, as a web server that has no listings.
fn file(folder: &Path, target: &str) -> Answer {
    let path = folder.join(target.trim_start_matches('/'));
    match fs::read(path) {
        Ok(bytes) => answer(200, &bytes),
        Err(_) => answer(404, b""),
    }
}

#[test]
fn a_server_without_listings_is_a_store() {
    let folder = sample("");
    let server = Scripted::start(move |_, request| file(&folder, &request.target));
    let url = format!("http://{}/climate.zarr/tas", server.address);
    let text = printed(&["info", &url]);
    assert!(text.contains("data type        float32"), "{text}");
    assert!(text.contains("stored           unknown: "), "{text}");
    assert_eq!(
        printed(&["cat", "--select", "0,0,:3", &url]),
        printed(&["cat", "--select", "0,0,:3", &tas()])
    );
    assert_eq!(
        printed(&["cat", &format!("{url}/zarr.json")]),
        printed(&["cat", &format!("{}/zarr.json", tas())])
    );
}

const ENTRY: &[u8] = br#"{"zarr_format": "https://purl.org/zarr/spec/protocol/core/3.0",
    "metadata_encoding": "https://purl.org/zarr/spec/protocol/core/3.0", "metadata_key_suffix": ".json", "extensions": []}"#;

#[test]
fn a_path_within_a_draft_store_names_a_node() {
    let folder = tempfile::tempdir().unwrap();
    let a = br#"{"shape": [4], "data_type": "|u1", "chunk_grid": {"type": "regular", "chunk_shape": [2], "separator": "/"},
        "chunk_memory_layout": "C", "fill_value": 7, "extensions": [], "attributes": {}}"#;
    store(
        folder.path(),
        &[
            ("zarr.json", ENTRY),
            ("meta/root/g/a.array.json", a),
            ("data/root/g/a/c1", &[5, 6]),
        ],
    );
    let path = folder.path().to_str().unwrap();
    assert_eq!(
        printed(&["cat", "--select", ":", &format!("{path}/g/a")]),
        "7 7 5 6\n"
    );
    assert_eq!(
        printed(&["cat", "--decode", &format!("{path}/data/root/g/a/c1")]),
        "5 6\n"
    );
    let text = printed(&["tree", &format!("{path}/g")]);
    assert!(
        text.contains("a  uint8 (4,)  chunks (2,)") && text.contains("in 1 of 2 chunks"),
        "{text}"
    );
}

#[test]
fn a_folder_of_stores_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    store(
        folder.path(),
        &[
            ("x/v3/zarr.json", GROUP),
            ("x/v3/a/zarr.json", array(&[2], &[2]).as_bytes()),
            ("x/v2/.zgroup", br#"{"zarr_format": 2}"#),
        ],
    );
    let text = printed(&["tree", folder.path().join("x").to_str().unwrap()]);
    assert!(
        text.contains("v2  v2 group") && text.contains("a  uint8 (2,)"),
        "{text}"
    );
}

#[test]
fn a_decoded_file_is_described_or_refused_with_the_reason() {
    let info = |name: &str| {
        let output = run(&["info", &format!("{}/{name}", tas())]);
        let text = String::from_utf8(output.stdout).unwrap();
        (output.status.code(), text)
    };
    for (name, expected) in [
        ("tas@0.nii", "length"),
        ("tas@0.cf.vrt", "length"),
        ("tas@time=2000-03.cf.npy", "float32, (36, 72)"),
        (
            "tas@lat=-20:20,time=2000-03:2000-05.cf.npy",
            "float32, (3, 8, 72)",
        ),
    ] {
        let (code, text) = info(name);
        assert!(code == Some(0) && text.contains(expected), "{name}: {text}");
    }
    for (name, expected) in [
        ("tas@9999.npy", "9999 is out of bounds for dimension 0"),
        ("tas@lat=1000.npy", "no element is labelled '1000'"),
        (
            "tas@time=1999.npy",
            "the labels are from 2000-01-16T12:00:00 to 2000-12-17T02:00:00",
        ),
        (
            "tas.xyz",
            "the file name does not end in a format; choose one of npy,",
        ),
        ("tas.csv", "csv: needs "),
        ("tas@0.wav", "zarrfs no longer has .wav files; use .raw"),
        ("tas.png", "use 'zarrfs preview -o FILE.png'"),
    ] {
        let (code, text) = info(name);
        assert!(code == Some(1) && text.contains(expected), "{name}: {text}");
    }
    let path = format!("{}/tas@0,0.cf.csv", tas());
    let json: serde_json::Value =
        serde_json::from_str(&printed(&["info", "--json", &path])).unwrap();
    assert_eq!(json["format"], "csv");
    // The length of a CSV file is unknown until the file is generated.
    assert!(json["error"].is_null() && json["bytes"].is_null());
    let missing = run(&["info", &format!("{}/tax@0.npy", tas())]);
    assert_eq!(missing.status.code(), Some(2));
}

#[test]
fn tree_says_that_a_folder_has_no_metadata() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("a")).unwrap();
    let path = folder.path().to_str().unwrap();
    let last = |text: String| text.lines().last().unwrap_or_default().to_string();
    let said = "2 groups, 0 arrays; no Zarr metadata found";
    assert_eq!(last(printed(&["tree", path])), said);
    let text = br#"{"zarr_format": 3, "node_type": "group"}"#;
    fs::write(folder.path().join("zarr.json"), text).unwrap();
    assert!(!printed(&["tree", path]).contains("no Zarr metadata"));
}
