//! A request that timed out changes nothing afterwards: its program got an error.

use std::fs;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use tempfile::TempDir;
use zarrfs::view::store::StoreView;
use zarrfs_overlay::{Overlay, OverlayConfig};
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::{NoHints, Store};

use crate::common::sample::{Form, Keys, Sample};
use crate::common::{needs, views_of};
use crate::operations::faulty::{Faulty, Gate};
use crate::operations::fixture::{PATIENT, soon};
use crate::operations::mounted::{Mounted, errno};
use zarrfs_store::request_context::UNLIMITED;

const LIMIT: Duration = Duration::from_secs(1);

/// How long a test waits to see whether a request that timed out still changes something.
const MOMENT: Duration = Duration::from_millis(400);

/// The TTL of the kernel's caches, which is longer than the test takes.
const LONG: Duration = Duration::from_secs(3600);

/// Whether the store hangs for all keys that begin with `slow`.
static HANGS: AtomicBool = AtomicBool::new(false);

/// Whether the store hangs for chunks.
static CHUNKS_HANG: AtomicBool = AtomicBool::new(false);

fn hangs(key: &str) -> bool {
    HANGS.load(SeqCst) && key.starts_with("slow")
}

struct Hanging {
    mount: Mounted,
    overlay: Overlay,
    gate: Arc<Gate>,
    _folder: TempDir,
}

impl Hanging {
    fn new() -> Hanging {
        HANGS.store(false, SeqCst);
        let memory = MemoryStore::default();
        for key in ["slow/a", "slow/b", "slow/d/x"] {
            Keys::put(&memory, key, b"of the store");
        }
        let gate = Arc::new(Gate::new(hangs));
        let store: Arc<dyn Store> = Arc::new(Faulty::new(Arc::new(memory), gate.clone(), LONG));
        let folder = tempfile::tempdir().unwrap();
        let config = OverlayConfig {
            uid: 0,
            gid: 0,
            write_through: false,
        };
        let overlay = Overlay::open(&folder.path().join("upper"), store, "a store", config);
        let overlay = overlay.unwrap();
        let stack = overlay.stack(Arc::new(NoHints));
        let view = StoreView::new(stack.store).with_tree(stack.tree);
        Hanging {
            mount: Mounted::writable_within(Arc::new(view), LIMIT),
            overlay,
            gate,
            _folder: folder,
        }
    }

    /// Makes the store hang after all names were looked up, so that the kernel has them in its cache.
    fn hang(&self) {
        for name in ["slow", "slow/a", "slow/b", "slow/d", "slow/d/x"] {
            fs::metadata(self.mount.path(name)).unwrap();
        }
        HANGS.store(true, SeqCst);
    }
}

/// A change of the mount. Its arguments are the folder for which the store hangs, and a file in it that is open for
/// writing.
type Change = fn(&Path, &File) -> std::io::Result<()>;

const CHANGES: [(&str, Change); 10] = [
    ("unlink", |slow, _| fs::remove_file(slow.join("a"))),
    ("rename", |slow, _| {
        fs::rename(slow.join("a"), slow.join("c"))
    }),
    ("rename onto", |slow, _| {
        fs::rename(slow.join("a"), slow.join("b"))
    }),
    ("rename of a folder", |slow, _| {
        fs::rename(slow.join("d"), slow.join("e"))
    }),
    ("mkdir", |slow, _| fs::create_dir(slow.join("new"))),
    ("create", |slow, _| File::create(slow.join("new")).map(drop)),
    ("symlink", |slow, _| {
        std::os::unix::fs::symlink("a", slow.join("new"))
    }),
    ("chmod", |slow, _| {
        fs::set_permissions(slow.join("a"), fs::Permissions::from_mode(0o600))
    }),
    ("write", |_, open| open.write_all_at(b"late", 0)),
    ("truncate", |_, open| open.set_len(3)),
];

/// Invariant (mount): A request that was refused changes nothing later, and a request that changed something is not
/// refused.
#[test]
fn a_refused_change_is_not_made_later() {
    if !needs::mounts() {
        return;
    }
    for (name, change) in CHANGES {
        let hanging = Hanging::new();
        let path = hanging.mount.path("slow");
        let open = OpenOptions::new().write(true).open(path.join("a")).unwrap();
        hanging.hang();
        let refused = change(&path, &open).unwrap_err();
        assert_eq!(errno(refused), libc::EIO, "{name}");
        assert!(hanging.gate.waiting() > 0, "{name} asks the store");
        HANGS.store(false, SeqCst);
        hanging.gate.open();
        std::thread::sleep(MOMENT);
        drop(open);
        let changes = hanging.overlay.changes(&UNLIMITED).unwrap();
        assert_eq!(
            (changes.keys, changes.uncommittable),
            (vec![], vec![]),
            "{name}"
        );
        assert!(soon(
            || fs::read(path.join("a")).is_ok_and(|bytes| bytes == b"of the store")
        ));
        // The same change succeeds if the store answers within the time limit.
        fs::write(path.join("a"), "in time").unwrap();
        assert_eq!(
            hanging.overlay.changes(&UNLIMITED).unwrap().keys.len(),
            1,
            "{name}"
        );
    }
}

/// Invariant of `a_refused_change_is_not_made_later`.
///
/// A program writes a part of a chunk, and the read of the chunk that this needs hangs.
#[test]
fn refused_elements_are_not_written_later() {
    if !needs::mounts() {
        return;
    }
    let memory = MemoryStore::default();
    let sample = Sample::new(&[6, 8], &[3, 8], Form::Packed);
    sample.put(&memory, "slow");
    let gate = Arc::new(Gate::new(|key| {
        CHUNKS_HANG.load(SeqCst) && key.contains("/c/")
    }));
    let store = Faulty::new(Arc::new(memory), gate.clone(), LONG);
    let views = views_of(Arc::new(store), PATIENT);
    let mount = Mounted::writable_within(views.files, LIMIT);
    let path = mount.path("slow/slow.raw");
    let open = OpenOptions::new().write(true).open(&path).unwrap();
    CHUNKS_HANG.store(true, SeqCst);
    // The range covers parts of two chunks.
    let refused = open.write_all_at(&[7; 12], 44).unwrap_err();
    assert_eq!(errno(refused), libc::EIO);
    assert!(gate.waiting() > 0);
    gate.open();
    std::thread::sleep(MOMENT);
    drop(open);
    assert_eq!(fs::read(&path).unwrap(), sample.whole());
}
