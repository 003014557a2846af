//! Tests a mount that this process serves, whose store hangs, fails or changes.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use zarr_format::error::{Error, Result};
use zarrfs::fuse::kernel_mount;
use zarrfs::fuse::kernel_mount::MountRequest;
use zarrfs::fuse::session::{MountSession, SessionSettings};
use zarrfs::vfs::{Vfs, VfsConfig};
use zarrfs::view::{Attr, File, OpenedFile, ReadAt, ReadBytes, View};
use zarrfs_store::stats::Stats;
use zarrfs_store::{EntryKind, Key, Listing, Name};

use crate::mounting::fixture::{Fixture, soon};
use zarrfs_store::request_context::RequestContext;

/// A gate at which reads of files named `hang...` wait until the test opens it.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
    waiting: AtomicUsize,
}

impl Gate {
    fn pass(&self) {
        self.waiting.fetch_add(1, Relaxed);
        let is_open = self.is_open.lock().unwrap();
        drop(self.opened.wait_while(is_open, |open| !*open).unwrap());
    }

    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

/// A view with faulty files: reads of `hang...` wait until the gate opens, a lookup of `panic` panics, and `old` has a
/// time before 1970.
struct Faulty {
    gate: Arc<Gate>,
}

#[derive(Clone)]
struct Content {
    gate: Option<Arc<Gate>>,
}

const SIZE: u64 = 3 << 20;

impl ReadAt for Content {
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<ReadBytes> {
        context.check_may_wait()?;
        if let Some(gate) = &self.gate {
            gate.pass();
        }
        let end = SIZE.min(offset + len as u64);
        let bytes: Vec<u8> = (offset..end).map(|place| (place / 4096) as u8).collect();
        Ok(ReadBytes::Own(bytes.into()))
    }
}

impl File for Content {
    fn version(&self) -> Option<u64> {
        Some(1)
    }
}

struct Names(Vec<&'static str>, usize);

impl Listing for Names {
    fn next(&mut self, _context: &RequestContext) -> Result<Option<Name>> {
        let next = self.0.get(self.1).map(|name| Name {
            name: name.as_bytes().to_vec(),
            kind: EntryKind::File,
            cursor: self.1 as u64 + 1,
            meta: None,
        });
        self.1 += 1;
        Ok(next)
    }

    fn seek(&mut self, _context: &RequestContext, cursor: u64) -> Result<()> {
        self.1 = cursor as usize;
        Ok(())
    }
}

const FILES: [&str; 3] = ["hang", "old", "panic"];

fn is_hanging(path: &Key) -> bool {
    path.name().starts_with(b"hang")
}

impl View for Faulty {
    fn lookup(&self, context: &RequestContext, path: &Key) -> Result<Option<Attr>> {
        let kind = if path.is_root() {
            EntryKind::Directory
        } else {
            // The root is known without waiting; every other lookup is answered by the thread pool.
            context.check_may_wait()?;
            EntryKind::File
        };
        if path.name() == b"panic" {
            panic!("on purpose");
        }
        let known = path.is_root() || is_hanging(path) || path.name() == b"old";
        let modified = SystemTime::UNIX_EPOCH - Duration::from_millis(1500);
        Ok(known.then_some(Attr {
            kind,
            size: SIZE,
            is_exact: true,
            chunk_bytes: 0,
            stored: 0,
            modified,
            ttl: Duration::ZERO,
            is_read_only: false,
            posix: None,
            content: None,
        }))
    }

    fn list(&self, _context: &RequestContext, _path: &Key) -> Result<Box<dyn Listing>> {
        Ok(Box::new(Names(FILES.to_vec(), 0)))
    }

    fn open(&self, _context: &RequestContext, path: &Key) -> Result<OpenedFile> {
        let gate = is_hanging(path).then(|| self.gate.clone());
        Ok(OpenedFile {
            file: Arc::new(Content { gate }),
            content: None,
            version: Some(1),
            direct: false,
            tree_file: None,
        })
    }

    fn read_link(&self, _context: &RequestContext, path: &Key) -> Result<Vec<u8>> {
        Err(Error::invalid(path, "not a link"))
    }
}

struct Served {
    dir: PathBuf,
    session: Option<MountSession>,
    ended: mpsc::Receiver<()>,
    stats: Arc<Stats>,
    gate: Arc<Gate>,
}

fn serve(fixture: &Fixture, timeout: Duration) -> Served {
    let stats = Arc::new(Stats::default());
    let gate: Arc<Gate> = Arc::default();
    let config = VfsConfig {
        uid: 3,
        gid: 4,
        umask: 0o007,
        writable: false,
    };
    let vfs = Vfs::new(
        Arc::new(Faulty { gate: gate.clone() }),
        config,
        stats.clone(),
    );
    let connection = kernel_mount::mount(&MountRequest {
        source: "faulty".to_string(),
        path: fixture.dir.clone(),
        ..MountRequest::default()
    });
    let (sender, ended) = mpsc::channel();
    let settings = SessionSettings {
        passthrough: false,
        is_local: false,
        timeout,
        readahead: 1 << 20,
    };
    let end = move || sender.send(()).unwrap();
    let session = MountSession::start(
        connection.unwrap(),
        Arc::new(vfs),
        stats.clone(),
        settings,
        end,
    );
    Served {
        dir: fixture.dir.clone(),
        session: Some(session.unwrap()),
        ended,
        stats,
        gate,
    }
}

impl Served {
    /// Unmounts, and waits until the session with the kernel has ended.
    fn end(mut self) {
        self.gate.open();
        drop(self.session.take());
        self.ended.recv_timeout(Duration::from_secs(10)).unwrap();
    }
}

/// Starts reader threads, each with its own file, because readers of one file would wait for each other's pages.
fn hanging_readers(served: &Served, count: usize) -> Vec<JoinHandle<io::Result<Vec<u8>>>> {
    let paths = (0..count).map(|number| served.dir.join(format!("hang{number}")));
    paths
        .map(|path| thread::spawn(move || fs::read(path)))
        .collect()
}

/// The number of threads that `fuse/dispatch.rs` has for reads of content.
const CONTENT_THREADS: usize = 64;

/// Invariant of `a_request_past_its_deadline_is_refused_once`.
#[test]
fn a_hanging_store_blocks_no_names_and_its_readers_time_out() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let served = serve(&fixture, Duration::from_secs(3600));
    let readers = hanging_readers(&served, CONTENT_THREADS + 16);
    assert!(soon(|| served.gate.waiting.load(Relaxed) == CONTENT_THREADS));
    assert_eq!(fs::read_dir(&served.dir).unwrap().count(), FILES.len());
    assert!(fs::metadata(served.dir.join("old")).is_ok());
    served.gate.open();
    for reader in readers {
        assert_eq!(reader.join().unwrap().unwrap().len() as u64, SIZE);
    }
    assert_eq!(served.stats.error_requests.get(), 0);
    served.end();
    let served = serve(&fixture, Duration::from_secs(1));
    for reader in hanging_readers(&served, 8) {
        let error = reader.join().unwrap().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(5), "EIO");
    }
    assert!(served.stats.error_requests.get() >= 8);
    served.end();
}

/// Invariant (mount): A panic fails one request.
#[test]
fn a_panic_is_an_error_of_one_request() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let served = serve(&fixture, Duration::from_secs(30));
    for _ in 0..5 {
        assert_eq!(
            fs::metadata(served.dir.join("panic"))
                .unwrap_err()
                .raw_os_error(),
            Some(5),
            "EIO"
        );
    }
    assert_eq!(fs::read(served.dir.join("old")).unwrap().len() as u64, SIZE);
    served.end();
}

#[test]
fn attributes_of_a_file_match_the_view() {
    use std::os::unix::fs::MetadataExt;
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let served = serve(&fixture, Duration::from_secs(30));
    let meta = fs::metadata(served.dir.join("old")).unwrap();
    assert_eq!((meta.uid(), meta.gid(), meta.mode()), (3, 4, 0o100440));
    assert_eq!(
        (meta.size(), meta.blocks(), meta.blksize(), meta.nlink()),
        (SIZE, 1, 1 << 20, 1)
    );
    assert_eq!((meta.mtime(), meta.mtime_nsec()), (-2, 500_000_000));
    let listed = Command::new("ls")
        .arg("-fa")
        .arg(&served.dir)
        .output()
        .unwrap();
    assert_eq!(listed.stdout, b".\n..\nhang\nold\npanic\n");
    let missing = fs::metadata(served.dir.join("none")).unwrap_err();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    served.end();
}

#[test]
fn each_byte_of_a_file_is_read_once() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let served = serve(&fixture, Duration::from_secs(30));
    let path = served.dir.join("old");
    let mut seen = HashMap::new();
    for byte in fs::read(&path).unwrap() {
        *seen.entry(byte).or_insert(0_u64) += 1;
    }
    assert_eq!(seen.len(), 256);
    assert_eq!(seen.values().sum::<u64>(), SIZE);
    assert_eq!(served.stats.read_bytes.get(), SIZE);
    served.end();
}
