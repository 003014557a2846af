//! Tests daemons that are killed, stopped or hang: no user waits for ever.

use std::fs;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process;
use rustix::process::Signal;

use crate::common::scripted::{Answer, Request, Scripted, answer};
use crate::mounting::fixture::{Fixture, PROGRAM, soon, stderr, stop};

const CHUNK: usize = 64 << 10;

/// Starts a server with an array of two chunks; while `holds` is set, it does not answer requests for the second chunk.
fn store_that_hangs(holds: &Arc<AtomicBool>) -> Scripted {
    let holds = holds.clone();
    Scripted::start(move |_, request: &Request| {
        if request.target.ends_with("/c/1") && request.method == "GET" {
            while holds.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(10));
            }
        }
        content(&request.target).map_or_else(|| answer(404, b""), |body| with_etag(&body))
    })
}

fn content(target: &str) -> Option<Vec<u8>> {
    let array = format!(
        r#"{{"zarr_format": 3, "node_type": "array", "shape": [{}], "data_type": "uint8", "fill_value": 0,
            "chunk_grid": {{"name": "regular", "configuration": {{"chunk_shape": [{CHUNK}]}}}},
            "chunk_key_encoding": {{"name": "default"}}, "codecs": ["bytes"]}}"#,
        2 * CHUNK
    );
    match target.split_once("/s.zarr/")?.1 {
        "zarr.json" => Some(array.into_bytes()),
        "c/0" | "c/1" => Some(vec![1; CHUNK]),
        _ => None,
    }
}

fn with_etag(body: &[u8]) -> Answer {
    let mut answer = answer(200, body);
    answer.headers.push(("etag", "\"1\"".to_string()));
    answer
}

/// Reads a range of a file in a child process, because the read may never end.
fn start_reader(file: &Path, offset: usize) -> std::process::Child {
    let (offset, len) = (format!("skip={offset}"), format!("count={CHUNK}"));
    let flags = "iflag=skip_bytes,count_bytes";
    let mut command = Command::new("dd");
    command.arg(format!("if={}", file.display()));
    command.args(["of=/dev/null", "status=none", flags, &offset, &len]);
    command.spawn().unwrap()
}

#[test]
fn no_reader_hangs_if_a_daemon_is_killed_while_it_drops_pages() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let holds = Arc::new(AtomicBool::new(true));
    let server = store_that_hangs(&holds);
    let upper = fixture.path("upper");
    let mounted = Command::new(PROGRAM)
        .args(["mount", &server.url("s.zarr")])
        .arg(&fixture.dir)
        .arg("--cow")
        .arg(&upper)
        .output()
        .unwrap();
    assert!(mounted.status.success(), "{}", stderr(&mounted));
    let npy = fixture.dir.join(".zarrfs/files/s.npy");
    let mut open = fs::File::open(&npy).unwrap();
    open.read_exact(&mut [0; 4096]).unwrap();
    let mut reader = start_reader(&npy, CHUNK + 4096);
    let asked = || {
        let seen = server.requests.lock().unwrap();
        seen.iter()
            .any(|request| request.method == "GET" && request.target.ends_with("/c/1"))
    };
    assert!(soon(asked), "the second chunk is not read");
    // A change of the first chunk makes the kernel drop the file's pages, for some of which the reader waits.
    let chunk = fs::File::options()
        .write(true)
        .open(fixture.dir.join("c/0"))
        .unwrap();
    chunk.write_all_at(&[2; CHUNK], 0).unwrap();
    drop(chunk);
    thread::sleep(Duration::from_millis(300));
    let daemons = fixture.daemons();
    for &daemon in &daemons {
        process::kill_process(daemon, Signal::KILL).unwrap();
    }
    let ended = || reader.try_wait().unwrap().is_some();
    let is_free = soon(ended);
    holds.store(false, Ordering::SeqCst);
    let end = fixture.umount(&fixture.dir);
    assert!(is_free, "the reader waits for the daemon that was killed");
    assert!(end.status.success(), "{}", stderr(&end));
    assert_eq!(stderr(&end), "");
}

#[test]
fn a_hanging_mount_is_refused_by_mount_and_ended_by_umount() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fixture.mount(&[]);
    let daemons = fixture.daemons();
    for &daemon in &daemons {
        stop(daemon);
    }
    // A thread that reads from the mount waits until the mount is ended.
    let (sender, read) = mpsc::channel();
    let chunk = fixture.dir.join("a/c/0");
    thread::spawn(move || sender.send(fs::read(chunk).map_err(|error| error.raw_os_error())));
    let refused = fixture.try_mount(&[]);
    assert_eq!(refused.status.code(), Some(2));
    let dir = fixture.dir.display();
    let why = format!("a zarrfs mount here does not respond; run 'zarrfs umount {dir}'");
    assert_eq!(stderr(&refused), format!("zarrfs: {dir}: {why}\n"));
    let end = fixture.umount(&fixture.dir);
    assert!(end.status.success(), "{}", stderr(&end));
    let note = "the mount did not respond; ended the connection";
    assert_eq!(stderr(&end), format!("zarrfs: {dir}: {note}\n"));
    assert!(fixture.mounted().is_none());
    let read = read.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(read.is_err(), "the mount is gone");
    for daemon in daemons {
        // The daemon may have ended already.
        let _ = process::kill_process(daemon, Signal::CONT);
    }
    assert!(soon(|| fixture.daemons().is_empty()));
}
