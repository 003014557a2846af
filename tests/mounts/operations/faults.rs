//! Makes one store call fail, each call in turn: every operation succeeds or returns EIO.
//!
//! Afterwards the same operations on the same file system give the right results.

use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use zarrfs_store::Store;
use zarrfs_store::backend::memory::MemoryStore;

use crate::common::sample::arrays;
use crate::common::{needs, sample, views_of};
use crate::operations::backend::{Answer, Backend, Enter};
use crate::operations::faulty::{Faulty, Trap};
use crate::operations::fixture::{Fixture, PATIENT, local, name};
use crate::operations::in_process;
use crate::operations::mounted;
use zarrfs_store::request_context::UNLIMITED;

type Step = (String, Answer<Vec<u8>>);

/// The extensions of header files, which are listed only after their data file was looked up.
const HEADERS: [&str; 3] = [".hdr", ".mhd", ".nhdr"];

/// Lists a directory and gets the attributes of its entries. Header files are left out: they are listed only after
/// another lookup, which may be the call that fails.
fn look(backend: &dyn Backend, folder: &str, steps: &mut Vec<Step>) {
    let shown = backend.names(&UNLIMITED, folder).map(|mut names| {
        names.retain(|name| !HEADERS.iter().any(|ending| name.ends_with(ending)));
        names.join("/").into_bytes()
    });
    let names = shown.clone().unwrap_or_default();
    steps.push((format!("list {folder}"), shown));
    for name in String::from_utf8(names).unwrap().split_terminator('/') {
        let path = format!("{folder}/{name}");
        let stat = backend.stat(path.trim_start_matches('/'));
        let shown = stat.map(|stat| format!("{:?} {}", stat.kind, stat.size).into_bytes());
        steps.push((format!("stat {path}"), shown));
    }
}

/// Opens a file and reads several ranges of it.
fn read_parts(backend: &dyn Backend, file: &str, steps: &mut Vec<Step>) {
    let open = match backend.open(&UNLIMITED, file) {
        Ok(open) => open,
        Err(errno) => return steps.push((format!("open {file}"), Err(errno))),
    };
    for (offset, len) in [(1001, 3), (500, 1500), (0, 4096), (1 << 20, 1)] {
        steps.push((
            format!("read {len} at {offset} of {file}"),
            open.read(&UNLIMITED, offset, len),
        ));
    }
}

/// The parts of the script of operations: `""` stands for the directories, and each array is a part.
fn parts() -> Vec<&'static str> {
    let arrays = arrays().into_iter().map(|(path, _)| path);
    [""].into_iter().chain(arrays).collect()
}

/// Runs one part of the script: looks at directories, or at one array and reads its files. The script continues after
/// an operation that fails.
fn script(backend: &dyn Backend, part: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    if part.is_empty() {
        for folder in ["", "deep", "own", "strange", "strange/chunks"] {
            look(backend, folder, &mut steps);
        }
        return steps;
    }
    look(backend, part, &mut steps);
    let whole = format!("{part}/{}", name(part));
    read_parts(backend, &format!("{whole}.raw"), &mut steps);
    for file in [
        format!("{whole}.npy"),
        format!("{whole}.raw"),
        format!("{part}/metadata.json"),
        format!(".zarrfs/store/{part}/zarr.json"),
    ] {
        let read = backend.read_whole(&UNLIMITED, &file);
        steps.push((format!("read {file}"), read));
    }
    steps
}

/// A store, the TTL of its answers, and the function that makes a file system from its view.
struct Case<'a> {
    base: Arc<dyn Store>,
    freshness: Duration,
    enter: &'a Enter,
}

/// Runs a part of the script while call number `call` fails, then again without a failure. Returns whether that call
/// was made, and whether an operation returned its error.
fn fail_once(case: &Case, part: &str, call: i64, right: &[Step]) -> (bool, bool) {
    let trap = Arc::new(Trap::default());
    let store = Faulty::new(case.base.clone(), trap.clone(), case.freshness);
    let backend = (case.enter)(views_of(Arc::new(store), PATIENT).files);
    trap.set(call);
    let steps = script(&*backend, part);
    let sprung = trap.has_sprung();
    trap.set(0);
    let mut shown = false;
    for step in steps {
        // If opening a file fails, its reads are missing, so each result is looked for among the right ones.
        let is_fault = step.1 == Err(Errno::IO.raw_os_error());
        assert!(
            is_fault || right.contains(&step),
            "call {call} fails: {step:?}"
        );
        shown |= is_fault;
    }
    let again = script(&*backend, part);
    for (after, right) in again.iter().zip(right) {
        assert_eq!(after, right, "after call {call} failed");
    }
    assert_eq!(again.len(), right.len());
    (sprung, shown)
}

/// Runs each part of the script once for every `stride`-th store call, which fails.
fn fail_each(case: &Case, stride: usize) {
    let (mut failed, mut seen) = (0, 0);
    for part in parts() {
        let right = script(
            &*in_process::enter(views_of(case.base.clone(), PATIENT).files),
            part,
        );
        for call in (1..).step_by(stride) {
            let (sprung, shown) = fail_once(case, part, call, &right);
            if !sprung {
                break;
            }
            failed += 1;
            seen += usize::from(shown);
        }
    }
    // The failure of a prefetch need not make an operation fail, but most other failures must.
    assert!(
        failed * stride > 100 && seen * 2 > failed,
        "{seen} of {failed} shown"
    );
}

#[test]
fn the_script_succeeds_if_no_call_fails() {
    let backend = in_process::enter(views_of(memory(), PATIENT).files);
    for (path, sample) in arrays() {
        let steps = script(&*backend, path);
        let step = format!("read {path}/{}.raw", name(path));
        assert!(steps.contains(&(step, Ok(sample.whole()))), "{path}");
        assert!(steps.iter().all(|(_, answer)| answer.is_ok()), "{path}");
    }
}

fn memory() -> Arc<dyn Store> {
    let memory = MemoryStore::default();
    sample::put_store(&memory);
    Arc::new(memory)
}

const ALWAYS: Duration = Duration::from_secs(3600);

impl<'a> Case<'a> {
    fn new(base: Arc<dyn Store>, freshness: Duration, enter: &'a Enter) -> Case<'a> {
        Case {
            base,
            freshness,
            enter,
        }
    }
}

#[test]
fn a_failed_call_is_an_error_once_without_a_ttl() {
    // Without a TTL an operation makes several times as many requests, so only every second call is made to fail.
    fail_each(&Case::new(memory(), Duration::ZERO, &in_process::enter), 2);
}

#[test]
fn a_failed_call_is_not_cached() {
    fail_each(&Case::new(memory(), ALWAYS, &in_process::enter), 1);
}

#[test]
fn a_failed_call_of_a_local_store_is_an_error_once() {
    let fixture = Fixture::new();
    let folder = local(&fixture.store());
    fail_each(&Case::new(folder, ALWAYS, &in_process::enter), 1);
}

#[test]
fn a_failed_call_below_a_mount_is_an_error_once() {
    if needs::mounts() {
        fail_each(&Case::new(memory(), ALWAYS, &mounted::enter), 7);
    }
}
