//! A store that hangs under some keys: other requests succeed, waiting ones return EIO.
//!
//! A request about such a key fails with EIO after the time limit. An unmount does not wait for requests.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use zarrfs::fuse::kernel_mount::mountinfo;
use zarrfs_store::backend::memory::MemoryStore;

use crate::common::sample::{Form, Sample, arrays, put_store};
use crate::common::{BothViews, needs, views_of};
use crate::operations::backend::Backend;
use crate::operations::faulty::{Faulty, Gate};
use crate::operations::fixture::{PATIENT, name, soon};
use crate::operations::in_process;
use crate::operations::mounted::Mounted;
use zarrfs_store::request_context::UNLIMITED;

const EIO: Errno = Errno::IO;

/// The time limit of requests, long enough for a busy machine to answer the requests that do not hang.
const LIMIT: Duration = Duration::from_secs(4);

/// Number of threads with a hanging request, each for its own array: the kernel lets readers of the same page or name
/// wait for each other.
const WAITING: usize = 12;

/// Returns the views of the sample store with the arrays `slow0`, `slow1`, and so on. Calls under the keys that `holds`
/// selects hang until the gate opens.
fn hanging(holds: fn(&str) -> bool, timeout: Duration) -> (BothViews, Arc<Gate>) {
    let memory = MemoryStore::default();
    put_store(&memory);
    (0..WAITING).for_each(|number| slow().put(&memory, &format!("slow{number}")));
    let gate = Arc::new(Gate::new(holds));
    let store = Faulty::new(Arc::new(memory), gate.clone(), Duration::ZERO);
    (views_of(Arc::new(store), timeout), gate)
}

fn is_slow(key: &str) -> bool {
    key.starts_with("slow")
}

fn is_slow_chunk(key: &str) -> bool {
    is_slow(key) && key.contains("/c/")
}

fn slow() -> Sample {
    Sample::new(&[6, 8], &[1, 8], Form::Packed)
}

/// Uses all arrays and directories whose requests do not hang.
fn use_the_rest(backend: &dyn Backend) {
    for (path, sample) in arrays() {
        let read = backend.read_whole(&UNLIMITED, &format!("{path}/{}.raw", name(path)));
        assert_eq!(read.unwrap(), sample.whole(), "{path}");
        assert!(
            backend
                .names(&UNLIMITED, path)
                .unwrap()
                .contains(&"metadata.json".to_string())
        );
    }
    assert!(
        backend
            .names(&UNLIMITED, "")
            .unwrap()
            .contains(&"slow0".to_string())
    );
    assert!(backend.read_whole(&UNLIMITED, ".zarrfs/stats.json").is_ok());
}

/// Runs `hang` in many threads, which must all fail with EIO, and uses the rest of the store at the same time.
fn hang_beside(mount: &Mounted, gate: &Gate, hang: impl Fn(&Mounted, usize) -> i32 + Sync) {
    let started = Instant::now();
    thread::scope(|scope| {
        let hang = &hang;
        let waiting: Vec<_> = (0..WAITING)
            .map(|number| scope.spawn(move || hang(mount, number)))
            .collect();
        assert!(soon(|| gate.waiting() >= WAITING));
        use_the_rest(mount);
        assert!(
            waiting.iter().all(|thread| !thread.is_finished()),
            "the rest waited for what hangs"
        );
        for thread in waiting {
            assert_eq!(thread.join().unwrap(), EIO.raw_os_error());
        }
    });
    assert!(started.elapsed() < LIMIT * 3);
}

#[test]
fn hanging_chunks_do_not_block_other_requests() {
    if !needs::mounts() {
        return;
    }
    for is_local in [false, true] {
        let (views, gate) = hanging(is_slow_chunk, PATIENT);
        let mount = Mounted::of(views.files, LIMIT, is_local);
        hang_beside(&mount, &gate, |mount, number| {
            let file = match number % 2 {
                0 => format!("slow{number}/slow{number}.raw"),
                _ => format!("slow{number}/chunks/5.0.npy"),
            };
            mount.read_whole(&UNLIMITED, &file).unwrap_err()
        });
        let size = mount.stat("slow0/slow0.raw").unwrap().size;
        assert_eq!(size, 96, "sizes need no chunk");
        gate.open();
        assert!(soon(
            || mount.read_whole(&UNLIMITED, "slow0/slow0.raw") == Ok(slow().whole())
        ));
    }
}

#[test]
fn hanging_metadata_do_not_block_other_requests() {
    if !needs::mounts() {
        return;
    }
    for is_local in [false, true] {
        let (views, gate) = hanging(is_slow, PATIENT);
        let mount = Mounted::of(views.files, LIMIT, is_local);
        hang_beside(&mount, &gate, |mount, number| match number % 3 {
            0 => mount.stat(&format!("slow{number}")).unwrap_err(),
            1 => mount
                .stat(&format!(".zarrfs/store/slow{number}"))
                .unwrap_err(),
            _ => mount
                .list(&UNLIMITED, &format!("slow{number}"))
                .unwrap_err(),
        });
        gate.open();
        assert!(soon(
            || mount.read_whole(&UNLIMITED, "slow0/slow0.raw") == Ok(slow().whole())
        ));
    }
}

/// Whether the store has stopped answering.
static HANGS: AtomicBool = AtomicBool::new(false);

#[test]
fn control_files_answer_while_the_whole_store_hangs() {
    if !needs::mounts() {
        return;
    }
    for (is_local, is_files) in [(false, false), (true, false), (false, true), (true, true)] {
        HANGS.store(false, SeqCst);
        let (views, gate) = hanging(|_| HANGS.load(SeqCst), PATIENT);
        let view = if is_files { views.files } else { views.stored };
        let mount = Mounted::of(view, LIMIT, is_local);
        HANGS.store(true, SeqCst);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| mount.stat("slow0").unwrap_err());
            assert!(soon(|| gate.waiting() > 0));
            check_control(&mount);
            assert!(!waiting.is_finished(), "the control files waited");
            assert_eq!(waiting.join().unwrap(), EIO.raw_os_error());
        });
        gate.open();
    }
}

fn check_control(mount: &Mounted) {
    for name in ["stats.json", "mount.json", "errors"] {
        let path = format!(".zarrfs/{name}");
        assert!(mount.read_whole(&UNLIMITED, &path).is_ok(), "{name}");
        assert!(mount.stat(&path).is_ok(), "{name}");
    }
    let names = mount.names(&UNLIMITED, ".zarrfs").unwrap();
    assert!(names.contains(&"errors".into()) && names.contains(&"files".into()));
    for name in names {
        assert!(mount.stat(&format!(".zarrfs/{name}")).is_ok(), "{name}");
    }
    assert!(mount.stat("").is_ok());
}

#[test]
fn unmounting_does_not_wait_for_hanging_readers() {
    if !needs::mounts() {
        return;
    }
    for is_local in [false, true] {
        let (views, gate) = hanging(is_slow_chunk, PATIENT);
        let mut mount = Mounted::of(views.files, LIMIT, is_local);
        let (dir, file) = (
            mount.dir().canonicalize().unwrap(),
            mount.path("slow0/slow0.raw"),
        );
        let reader = thread::spawn(move || std::fs::read(file));
        assert!(soon(|| gate.waiting() > 0));
        // The session still runs: it ends when the reader gets its error and closes the file.
        assert!(!mount.end_within(Duration::ZERO));
        assert!(mountinfo::top_at(&dir).unwrap().is_none(), "still mounted");
        assert!(
            !reader.is_finished(),
            "the reader waits, unmounting did not"
        );
        let read = reader.join().unwrap();
        assert_eq!(read.unwrap_err().raw_os_error(), Some(EIO.raw_os_error()));
        assert!(mount.end_within(LIMIT * 3), "the session does not end");
        gate.open();
    }
}

#[test]
fn a_second_reader_of_a_hanging_chunk_times_out() {
    let limit = Duration::from_millis(300);
    let (views, gate) = hanging(is_slow_chunk, limit);
    let backend = in_process::enter(views.files);
    let backend = &*backend;
    thread::scope(|scope| {
        let first = scope.spawn(move || backend.read_whole(&UNLIMITED, "slow0/chunks/0.0.raw"));
        assert!(soon(|| gate.waiting() > 0));
        let second = backend.read_whole(&UNLIMITED, "slow0/chunks/0.0.raw");
        let alone = first.is_finished();
        gate.open();
        assert_eq!(second, Err(EIO.raw_os_error()));
        assert!(!alone, "only the store can end the first");
        assert_eq!(first.join().unwrap().unwrap(), slow().clipped(&[0, 0]));
    });
    assert_eq!(
        backend.read_whole(&UNLIMITED, "slow0/slow0.raw"),
        Ok(slow().whole())
    );
}
