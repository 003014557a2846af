//! Tests a web server with several replicas behind one name, each with its own ETags.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use crate::common::scripted::{Answer, Request, Scripted, answer, answer_of};
use crate::mounting::fixture::{Fixture, PROGRAM};

/// The objects of the server by path, each with the second in which it was last changed.
type Objects = Arc<Mutex<BTreeMap<String, (Vec<u8>, usize)>>>;

/// Starts a server whose replicas answer in turn. They accept changes and ignore conditional headers.
fn replicas(objects: Objects) -> Scripted {
    Scripted::start(move |number, request: &Request| -> Answer {
        let mut objects = objects.lock().unwrap();
        match request.method.as_str() {
            "GET" | "HEAD" => {
                let Some((bytes, second)) = objects.get(&request.target) else {
                    return answer(404, b"");
                };
                let time = format!("Wed, 01 Jan 2020 00:00:{second:02} GMT");
                let tag = format!("\"{}-{second}\"", number % 2);
                answer_of(request, bytes, vec![("etag", tag), ("last-modified", time)])
            }
            "PUT" => {
                let second = objects
                    .get(&request.target)
                    .map_or(0, |(_, second)| *second);
                let content = (request.body.clone(), second + 1);
                objects.insert(request.target.clone(), content);
                answer(201, b"")
            }
            "DELETE" => match objects.remove(&request.target) {
                Some(_) => answer(204, b""),
                None => answer(404, b""),
            },
            _ => answer(405, b""),
        }
    })
}

fn commit(fixture: &Fixture) -> Output {
    let output = Command::new(PROGRAM)
        .arg("commit")
        .arg(&fixture.dir)
        .output();
    output.unwrap()
}

#[test]
fn a_store_whose_etags_differ_by_server_is_read_and_committed_to() {
    let Some(mut fixture) = Fixture::new() else {
        return;
    };
    let objects: Objects = Arc::default();
    for name in ["zarr.json", "a/zarr.json", "a/c/0"] {
        let bytes = fs::read(fixture.store.join(name)).unwrap();
        let content = (bytes, 1);
        objects.lock().unwrap().insert(format!("/{name}"), content);
    }
    let server = replicas(objects.clone());
    fixture.store = server.url("").into();
    let (upper, cache) = (fixture.path("upper"), fixture.path("cache"));
    let arguments = [
        "--cow",
        upper.to_str().unwrap(),
        "--cache-dir",
        cache.to_str().unwrap(),
    ];
    fixture.mount(&arguments);
    for _ in 0..2 {
        for name in ["a/c/0", ".zarrfs/files/a/a.raw"] {
            assert_eq!(fs::read(fixture.dir.join(name)).unwrap(), [7; 16], "{name}");
        }
    }
    let errors = fs::read_to_string(fixture.dir.join(".zarrfs/errors")).unwrap();
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(
        errors.contains("sends different ETags for the same content"),
        "{errors}"
    );
    let chunk = |objects: &Objects| objects.lock().unwrap()["/a/c/0"].0.clone();
    fs::write(fixture.dir.join("a/c/0"), [8; 16]).unwrap();
    let output = commit(&fixture);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(chunk(&objects), [8; 16]);
    // Another program puts a chunk of the same length, with a later modification time.
    fs::write(fixture.dir.join("a/c/0"), [9; 16]).unwrap();
    let other = (vec![1; 16], 9);
    objects.lock().unwrap().insert("/a/c/0".to_string(), other);
    let output = commit(&fixture);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(chunk(&objects), [1; 16]);
    assert!(fixture.umount(&fixture.dir).status.success());
    fixture.mount(&["--cache-dir", cache.to_str().unwrap()]);
    assert_eq!(fs::read(fixture.dir.join("a/c/0")).unwrap(), [1; 16]);
}
