//! Lookups of names: broken nodes, the control directory, implicit groups, links, and missing names.

use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::io::Errno;
use serde_json::Value;
use zarrfs_store::EntryKind;

use crate::common::sample::{GROUP, arrays};
use crate::operations::backend::{Backend, Enter};
use crate::operations::fixture::{Fixture, name};
use zarrfs_store::request_context::UNLIMITED;

fn json(backend: &dyn Backend, path: &str) -> Value {
    serde_json::from_slice(&backend.read_whole(&UNLIMITED, path).unwrap()).unwrap()
}

pub(crate) fn a_broken_node_does_not_affect_other_nodes(enter: &Enter) {
    let fixture = Fixture::new();
    let backend = enter(fixture.views.files.clone());
    let listed = backend.names(&UNLIMITED, "").unwrap();
    assert_eq!(backend.stat("broken").unwrap().kind, EntryKind::Directory);
    let (missing, unreadable) = (Errno::NOENT, Errno::OPNOTSUPP);
    for (inside, errno) in [
        ("attributes.json", unreadable),
        ("broken.raw", unreadable),
        ("chunks", unreadable),
        ("anything", missing),
    ] {
        let stat = backend.stat(&format!("broken/{inside}"));
        assert_eq!(stat, Err(errno.raw_os_error()), "{inside}");
    }
    let others = arrays();
    for (path, sample) in &others {
        let read = backend.read_whole(&UNLIMITED, &format!("{path}/{}.raw", name(path)));
        assert_eq!(read.unwrap(), sample.whole(), "{path}");
        assert!(
            listed
                .iter()
                .any(|name| path.split('/').next() == Some(name)),
            "{path}"
        );
    }
    assert!(listed.contains(&"broken".to_string()));
    let keys = [
        ("zarr.json", &b"{\"zarr_format\": 3,"[..]),
        ("c/0", b"1234"),
    ];
    for (key, bytes) in keys {
        let stored = backend.read_whole(&UNLIMITED, &format!(".zarrfs/store/broken/{key}"));
        assert_eq!(stored.unwrap(), bytes);
    }
}

/// All requests that the kernel makes about a broken node must succeed or fail properly.
pub(crate) fn a_broken_node_lists_its_documents_and_the_error(enter: &Enter) {
    let fixture = Fixture::with(|store| {
        let array = r#"{"zarr_format": 3, "node_type": "array", "shape": "long"}"#;
        let v2 = r#"{"zarr_format": 2, "shape": [1], "chunks": [0], "dtype": "<i4"}"#;
        for (key, text) in [
            ("zarr.json", "{\"zarr_format\": 3, \"node_type\": \"grou"),
            ("array/zarr.json", array),
            ("array/c/0/1", "chunk"),
            ("old/.zarray", v2),
            ("old/.zattrs", "{}"),
            ("old/0", "chunk"),
            ("group/zarr.json", "[]"),
            ("group/child/zarr.json", GROUP),
            ("group/ERROR.txt/zarr.json", GROUP),
        ] {
            let path = store.join(key);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    });
    let backend = enter(fixture.views.files.clone());
    for (path, names) in [
        (
            "",
            &["ERROR.txt", "array", "group", "old", "stored.zarr.json"][..],
        ),
        ("array", &["ERROR.txt", "stored.zarr.json"]),
        ("old", &["ERROR.txt", "stored.zarray", "stored.zattrs"]),
        ("group", &["ERROR.txt", "child", "stored.zarr.json"]),
        ("group/child", &["attributes.json", "metadata.json"]),
    ] {
        let mut listed = backend.names(&UNLIMITED, path).unwrap();
        listed.sort();
        assert_eq!(listed, names, "{path}");
        for name in names {
            let inside = format!("{path}/{name}");
            let inside = inside.trim_start_matches('/');
            let stat = backend.stat(inside).unwrap();
            if stat.kind == EntryKind::Directory {
                continue;
            }
            let read = backend.read_whole(&UNLIMITED, inside).unwrap();
            assert_eq!(read.len() as u64, stat.size, "{inside}");
            if let Some(key) = name.strip_prefix("stored") {
                let key = key.replace(".zarr.json", "zarr.json");
                let stored = std::fs::read(fixture.store().join(path).join(key)).unwrap();
                assert_eq!(read, stored, "{inside}");
            }
        }
    }
    let said =
        |path: &str| String::from_utf8(backend.read_whole(&UNLIMITED, path).unwrap()).unwrap();
    assert_eq!(
        said("array/ERROR.txt"),
        "The node array cannot be read: array/zarr.json: shape: expected a list of integers from 0 to 2^64 - 1, found \
         \"long\"\n"
    );
    assert!(said("old/ERROR.txt").contains("old/.zarray: chunk shape: "));
    assert!(said("ERROR.txt").starts_with("The root cannot be read: zarr.json: not JSON: "));
    let child = backend.stat("group/ERROR.txt").unwrap();
    assert_eq!(child.kind, EntryKind::Directory, "the child wins");
}

pub(crate) fn the_control_directory_resolves_and_is_not_listed(enter: &Enter) {
    let fixture = Fixture::new();
    for view in [&fixture.views.stored, &fixture.views.files] {
        let backend = enter(view.clone());
        assert!(
            !backend
                .names(&UNLIMITED, "")
                .unwrap()
                .contains(&".zarrfs".to_string())
        );
        assert_eq!(backend.stat(".zarrfs").unwrap().kind, EntryKind::Directory);
        let held = backend.names(&UNLIMITED, ".zarrfs").unwrap();
        assert_eq!(
            held,
            ["errors", "files", "mount.json", "stats.json", "store"]
        );
        for name in held {
            assert!(backend.stat(&format!(".zarrfs/{name}")).is_ok(), "{name}");
        }
        assert_eq!(json(&*backend, ".zarrfs/mount.json"), serde_json::json!({}));
        assert_eq!(
            backend
                .read_whole(&UNLIMITED, ".zarrfs/store/zarr.json")
                .unwrap(),
            GROUP.as_bytes()
        );
        assert_eq!(
            backend
                .read_whole(&UNLIMITED, ".zarrfs/files/point/point.raw")
                .unwrap()
                .len(),
            2
        );
        // The control directory exists only at the root of a mount.
        let missing = Errno::NOENT.raw_os_error();
        for nowhere in [
            "plain/.zarrfs",
            ".zarrfs/.zarrfs",
            ".zarrfs/files/.zarrfs",
            ".zarrfs/none",
        ] {
            assert_eq!(backend.stat(nowhere), Err(missing), "{nowhere}");
        }
        let inside = Errno::NOTDIR.raw_os_error();
        assert_eq!(backend.stat(".zarrfs/stats.json/x"), Err(inside));
    }
}

pub(crate) fn counters_have_a_constant_size(enter: &Enter) {
    let fixture = Fixture::new();
    let backend = enter(fixture.views.files.clone());
    let size = backend.stat(".zarrfs/stats.json").unwrap().size;
    let before = json(&*backend, ".zarrfs/stats.json");
    for (path, _) in arrays() {
        backend
            .read_whole(&UNLIMITED, &format!("{path}/{}.npy", name(path)))
            .unwrap();
        assert_eq!(backend.stat(".zarrfs/stats.json").unwrap().size, size);
    }
    let text = backend
        .read_whole(&UNLIMITED, ".zarrfs/stats.json")
        .unwrap();
    assert_eq!(text.len() as u64, size);
    let after = json(&*backend, ".zarrfs/stats.json");
    let decoded = |stats: &Value| stats["decoded_chunks"].as_u64().unwrap();
    assert!(decoded(&after) > decoded(&before), "they are current");
}

pub(crate) fn a_child_node_takes_precedence_over_a_file_of_the_group(enter: &Enter) {
    let fixture = Fixture::new();
    let backend = enter(fixture.views.files.clone());
    assert_eq!(
        backend.names(&UNLIMITED, "own").unwrap(),
        ["attributes.json", "metadata.json"]
    );
    assert_eq!(
        backend.stat("own/metadata.json").unwrap().kind,
        EntryKind::Directory
    );
    assert_eq!(
        backend.stat("own/attributes.json").unwrap().kind,
        EntryKind::File
    );
    let child = json(&*backend, "own/metadata.json/metadata.json");
    assert_eq!(child["attributes"]["child"], true);
}

pub(crate) fn folders_without_documents_are_groups(enter: &Enter) {
    let fixture = Fixture::new();
    let backend = enter(fixture.views.files.clone());
    for group in ["deep", "deep/er"] {
        assert_eq!(backend.stat(group).unwrap().kind, EntryKind::Directory);
        let metadata = json(&*backend, &format!("{group}/metadata.json"));
        assert_eq!(
            (&metadata["node_type"], &metadata["zarr_format"]),
            (&"group".into(), &3.into())
        );
        assert_eq!(
            json(&*backend, &format!("{group}/attributes.json")),
            serde_json::json!({})
        );
    }
    let names = backend.names(&UNLIMITED, "deep").unwrap();
    assert_eq!(names, ["attributes.json", "er", "metadata.json", "shards"]);
    let missing = Errno::NOENT.raw_os_error();
    assert_eq!(backend.stat(".zarrfs/store/deep/zarr.json"), Err(missing));
}

/// Creates a store with symbolic links to places inside and outside the store.
fn linked(store: &Path) {
    std::fs::create_dir_all(store.join("a/b")).unwrap();
    std::fs::write(store.join("a/b/x"), "inside").unwrap();
    std::fs::write(store.parent().unwrap().join("secret"), "secret").unwrap();
    let link = |target: &Path, name: &str| symlink(target, store.join(name)).unwrap();
    link(Path::new("a/b/x"), "near");
    link(Path::new("../a/./b/../b/x"), "a/up");
    link(Path::new("a/b"), "folder");
    link(&store.join("a/b/x"), "absolute");
    link(Path::new("../secret"), "away");
    link(&store.parent().unwrap().join("secret"), "far");
    link(Path::new(".."), "outside");
    link(Path::new("circle"), "circle");
    link(Path::new("nowhere"), "broken");
}

pub(crate) fn links_inside_the_store_are_followed(enter: &Enter) {
    let fixture = Fixture::with(linked);
    let backend = enter(fixture.views.stored.clone());
    for (path, target) in [
        ("near", &b"a/b/x"[..]),
        ("a/up", b"../a/./b/../b/x"),
        ("folder", b"a/b"),
    ] {
        let stat = backend.stat(path).unwrap();
        assert_eq!(
            (stat.kind, stat.size),
            (EntryKind::Link, target.len() as u64)
        );
        assert_eq!(backend.read_link(&UNLIMITED, path).unwrap(), target);
    }
    for path in ["near", "a/up", "folder/x", "absolute"] {
        assert_eq!(
            backend.read_whole(&UNLIMITED, path).unwrap(),
            b"inside",
            "{path}"
        );
    }
    assert_eq!(backend.stat("absolute").unwrap().kind, EntryKind::File);
    assert_eq!(backend.names(&UNLIMITED, "folder").unwrap(), ["x"]);
    assert_eq!(
        backend.read_link(&UNLIMITED, "a/b/x"),
        Err(Errno::INVAL.raw_os_error())
    );
}

pub(crate) fn links_that_leave_the_store_are_refused(enter: &Enter) {
    let fixture = Fixture::with(linked);
    let backend = enter(fixture.views.stored.clone());
    let denied = Errno::ACCESS.raw_os_error();
    for path in ["away", "far", "outside"] {
        assert_eq!(backend.stat(path).unwrap().kind, EntryKind::Link, "{path}");
        assert_eq!(backend.read_link(&UNLIMITED, path), Err(denied), "{path}");
        assert_eq!(backend.read(&UNLIMITED, path, 0, 10), Err(denied), "{path}");
    }
    assert_eq!(backend.stat("outside/secret"), Err(denied));
    assert_eq!(backend.list(&UNLIMITED, "outside"), Err(denied));
    assert_eq!(
        backend.read(&UNLIMITED, "circle", 0, 1),
        Err(Errno::LOOP.raw_os_error())
    );
    assert_eq!(
        backend.read(&UNLIMITED, "broken", 0, 1),
        Err(Errno::NOENT.raw_os_error())
    );
    let names = backend.names(&UNLIMITED, "").unwrap();
    assert_eq!(names.len(), 9, "all are listed: {names:?}");
}

pub(crate) fn missing_and_too_long_names_have_the_right_errno(enter: &Enter) {
    let fixture = Fixture::new();
    let long = "n".repeat(256);
    let views = &fixture.views;
    for (view, document) in [
        (&views.stored, "plain/zarr.json"),
        (&views.files, "plain/metadata.json"),
    ] {
        let backend = enter(view.clone());
        for path in ["none", "plain/none", "deep/none/none"] {
            assert_eq!(
                backend.stat(path),
                Err(Errno::NOENT.raw_os_error()),
                "{path}"
            );
            assert_eq!(
                backend.open(&UNLIMITED, path).err(),
                Some(Errno::NOENT.raw_os_error())
            );
            assert_eq!(
                backend.list(&UNLIMITED, path),
                Err(Errno::NOENT.raw_os_error())
            );
        }
        let inside = Errno::NOTDIR.raw_os_error();
        assert_eq!(backend.stat(&format!("{document}/x")), Err(inside));
        assert_eq!(backend.list(&UNLIMITED, document), Err(inside));
        assert_eq!(backend.stat(&long), Err(Errno::NAMETOOLONG.raw_os_error()));
        assert_eq!(backend.stat(&long[1..]), Err(Errno::NOENT.raw_os_error()));
    }
}
