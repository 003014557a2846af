//! Names that are replaced while programs use them, on kernel mounts.
//!
//! A program that has a file open keeps its content; a later open of the name gets the current content.

use std::fs;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use zarrfs::mount::open::{ViewKind, Views, ViewsConfig, open_views};
use zarrfs_array::array::SpillConfig;
use zarrfs_overlay::OverlayConfig;
use zarrfs_store::Key;
use zarrfs_store::backend::memory::MemoryStore;

use zarrfs::view::store::StoreView;

use crate::common::sample::{GROUP, Keys};
use crate::common::{mapped, needs};
use crate::operations::fixture::{Fixture, PATIENT};
use crate::operations::mounted::Mounted;
use crate::operations::swapping::SwappedTree;
use zarrfs_store::request_context::UNLIMITED;

/// Opens the views of a fixture's store, with an overlay for writes.
pub(crate) fn overlaid(fixture: &Fixture) -> Views {
    let how = OverlayConfig {
        uid: 0,
        gid: 0,
        write_through: false,
    };
    let config = ViewsConfig {
        source: fixture.store().display().to_string(),
        list: Vec::new(),
        memory: 64 << 20,
        max_chunk: 16 << 20,
        spill: SpillConfig::default(),
        timeout: PATIENT,
        hierarchy: zarrfs_array::hierarchy::HierarchyConfig::default(),
        store: zarrfs_store::StoreConfig::default(),
        overlay: Some((fixture.beside("upper"), how)),
        rebind: false,
        lossy: false,
        options: Vec::new(),
    };
    open_views(&config, &Arc::default()).unwrap()
}

/// Returns the content number `turn` of a file: one letter, repeated. Each letter has its own length.
fn content(turn: u64) -> Vec<u8> {
    let letter = turn % 26;
    vec![b'a' + letter as u8; 5000 + 700 * letter as usize]
}

/// Whether `bytes` is one of the contents that `content` returns, and not a mixture.
fn is_content(bytes: &[u8]) -> bool {
    bytes
        .first()
        .is_some_and(|first| bytes == content(u64::from(first - b'a')))
}

/// Threads that use a name while it is replaced repeatedly.
struct Readers {
    is_over: AtomicBool,
    looks: AtomicU64,
}

impl Readers {
    /// Calls `replace` for `turns` turns, while threads call each of `looks` in a loop. Continues until they have made
    /// a tenth as many calls.
    fn beside(turns: u64, replace: impl Fn(u64), looks: &[&(dyn Fn() + Sync)]) {
        let readers = Readers {
            is_over: AtomicBool::new(false),
            looks: AtomicU64::new(0),
        };
        thread::scope(|scope| {
            for look in looks {
                scope.spawn(|| {
                    let over = Over(&readers);
                    while !readers.is_over.load(Ordering::Relaxed) {
                        look();
                        readers.looks.fetch_add(1, Ordering::Relaxed);
                    }
                    drop(over);
                });
            }
            let over = Over(&readers);
            let is_over = || readers.is_over.load(Ordering::Relaxed);
            let looks = || readers.looks.load(Ordering::Relaxed);
            let goes_on = |turn: &u64| !is_over() && (*turn < turns || looks() < turns / 10);
            (0..MAX_FACTOR * turns)
                .take_while(goes_on)
                .for_each(replace);
            drop(over);
        });
        assert!(readers.looks.into_inner() >= turns / 10);
    }
}

/// Ends all threads when it is dropped, because one thread is done or has failed.
struct Over<'a>(&'a Readers);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

/// Replaces a file: writes a temporary file and renames it over the old one.
fn replace(path: &Path, turn: u64) {
    let temporary = path.with_extension("tmp");
    fs::write(&temporary, content(turn)).unwrap();
    fs::rename(&temporary, path).unwrap();
}

/// Reads a file with several requests, none of which may fail.
fn read_whole(path: &Path) {
    let mut file = File::open(path).expect("opening for reading");
    let size = file.metadata().expect("asking an open file").len();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).expect("reading");
    let runs = bytes
        .chunk_by(|one, next| one == next)
        .map(|run| (run[0], run.len()));
    assert!(
        is_content(&bytes),
        "a mixture: {:?}",
        runs.collect::<Vec<_>>()
    );
    assert_eq!(bytes.len() as u64, size);
}

const TURNS: u64 = 4000;

/// Maximum factor by which a test runs longer, because threads on a busy machine may come late.
const MAX_FACTOR: u64 = 100;

/// Invariant (mount): An inode has one content: a name that is being replaced always exists, and no handle reads a
/// mixture.
#[test]
fn a_name_always_exists_while_it_is_replaced() {
    if !needs::mounts() {
        return;
    }
    let fixture = Fixture::with(|store| store.put("kept", b"x"));
    let views = overlaid(&fixture);
    let mount = Mounted::writable(views.view(ViewKind::Store));
    let path = mount.path("file");
    replace(&path, 0);
    let read = || read_whole(&path);
    let stat = || {
        fs::metadata(&path).expect("asking by name");
    };
    let create = || {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true);
        drop(options.open(&path).expect("opening for writing"));
    };
    let set = || {
        let times = fs::FileTimes::new().set_modified(std::time::SystemTime::UNIX_EPOCH);
        let file = File::open(&path).expect("opening to set times");
        file.set_times(times).expect("setting times");
    };
    let looks: [&(dyn Fn() + Sync); 5] = [&read, &stat, &create, &read, &set];
    Readers::beside(TURNS, |turn| replace(&path, turn), &looks);
}

#[test]
fn a_name_made_and_removed_in_turn_is_whole_or_missing() {
    if !needs::mounts() {
        return;
    }
    let fixture = Fixture::with(|store| store.put("kept", b"x"));
    let views = overlaid(&fixture);
    let mount = Mounted::writable(views.view(ViewKind::Store));
    let path = mount.path("file");
    let is_missing = |error: &std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
    let read = || match fs::read(&path) {
        Ok(bytes) => assert!(is_content(&bytes)),
        Err(error) => assert!(is_missing(&error), "reading: {error}"),
    };
    let stat = || match fs::metadata(&path) {
        Ok(meta) => assert!(meta.len() >= 5000),
        Err(error) => assert!(is_missing(&error), "asking: {error}"),
    };
    let come_and_go = |turn| {
        replace(&path, turn);
        fs::remove_file(&path).expect("removing");
    };
    Readers::beside(TURNS, come_and_go, &[&read, &stat, &read]);
}

#[test]
fn concurrent_creates_succeed_but_only_one_exclusive_create() {
    if !needs::mounts() {
        return;
    }
    let fixture = Fixture::with(|store| store.put("kept", b"x"));
    let views = overlaid(&fixture);
    let mount = Mounted::writable(views.view(ViewKind::Store));
    let path = mount.path("file");
    // Open the file in eight threads at once, so that most of them find no file and try to create it.
    let opened = |options: &OpenOptions| {
        let start = std::sync::Barrier::new(8);
        let open = || {
            start.wait();
            options.open(&path).map(drop)
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
            let done = threads.into_iter().map(|thread| thread.join().unwrap());
            done.filter(Result::is_ok).count()
        })
    };
    for _ in 0..200 {
        assert_eq!(opened(OpenOptions::new().write(true).create(true)), 8);
        fs::remove_file(&path).unwrap();
        assert_eq!(opened(OpenOptions::new().write(true).create_new(true)), 1);
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_writer_of_a_discarded_file_does_not_show_in_the_store_view() {
    if !needs::mounts() {
        return;
    }
    let fixture = Fixture::with(|store| store.put("file", b"of the store"));
    let views = overlaid(&fixture);
    let mount = Mounted::writable(views.view(ViewKind::Store));
    let path = mount.path("file");
    let options = OpenOptions::new().read(true).write(true).open(&path);
    let mut old = options.unwrap();
    old.write_all(b"written").unwrap();
    views
        .overlay()
        .unwrap()
        .discard(&UNLIMITED, &Key::new("file").unwrap())
        .unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"of the store");
    // A further write fails with ESTALE, so that the program learns that its writes are lost.
    let refused = old.write_all(b" and written again").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::ESTALE));
    let mut kept = vec![0; 12];
    old.read_exact_at(&mut kept, 0).unwrap();
    assert_eq!(kept, b"writtenstore");
    drop(old);
    assert_eq!(fs::read(&path).unwrap(), b"of the store");
}

/// Invariant of `a_name_always_exists_while_it_is_replaced`.
#[test]
fn new_openers_get_the_new_file_while_the_old_one_is_open() {
    const SIZE: usize = 8 << 20;
    if !needs::mounts() {
        return;
    }
    let tree = Arc::new(SwappedTree::default());
    let [first, second] = [b"o", b"n"].map(|letter| letter.repeat(SIZE));
    tree.put("file", &first);
    let view = StoreView::new(Arc::new(MemoryStore::default()));
    let mount = Mounted::writable(Arc::new(view.with_tree(Some(tree.clone()))));
    let path = mount.path("file");
    let old = File::open(&path).unwrap();
    let mapping = mapped::Mapping::of(&old, SIZE).unwrap();
    let mut half = vec![0; SIZE / 2];
    old.read_exact_at(&mut half, 0).unwrap();
    assert!(half == first[..SIZE / 2]);
    assert_eq!(mapping.byte(SIZE - 1), b'o');
    tree.put("file", &second);
    let new = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    assert_ne!(old.metadata().unwrap().ino(), new.metadata().unwrap().ino());
    assert!(fs::read(&path).unwrap() == second);
    old.read_exact_at(&mut half, SIZE as u64 / 2).unwrap();
    assert!(half == first[SIZE / 2..]);
    assert!(
        (0..SIZE)
            .step_by(4096)
            .all(|place| mapping.byte(place) == b'o')
    );
    // Writes to the new file must not appear in the old file, and the other way around.
    new.write_all_at(b"x", 0).unwrap();
    OpenOptions::new()
        .append(true)
        .open(&path)
        .unwrap()
        .write_all(b"y")
        .unwrap();
    old.read_exact_at(&mut half, 0).unwrap();
    assert!(half == first[..SIZE / 2]);
    assert_eq!(old.metadata().unwrap().len(), SIZE as u64);
    assert_eq!(fs::metadata(&path).unwrap().len(), SIZE as u64 + 1);
}

#[test]
fn a_file_replaced_by_others_is_never_missing_or_a_mixture() {
    if !needs::mounts() {
        return;
    }
    let tree = Arc::new(SwappedTree::default());
    tree.put("file", &content(0));
    let view = StoreView::new(Arc::new(MemoryStore::default()));
    let mount = Mounted::writable(Arc::new(view.with_tree(Some(tree.clone()))));
    let path = mount.path("file");
    let read = || read_whole(&path);
    let held = || {
        let file = File::open(&path).expect("opening to hold");
        let mut bytes = vec![0; 1 << 20];
        let length = file.read_at(&mut bytes, 0).unwrap();
        thread::yield_now();
        let again = file.read_at(&mut bytes[length..], 0).unwrap();
        assert_eq!(length, again);
        assert!(is_content(&bytes[..length]));
        assert!(
            bytes[..length] == bytes[length..2 * length],
            "another content"
        );
    };
    let looks: [&(dyn Fn() + Sync); 3] = [&read, &held, &held];
    let put = |turn| {
        tree.put("file", &content(turn));
        thread::sleep(std::time::Duration::from_micros(100));
    };
    Readers::beside(TURNS, put, &looks);
}

/// Invariant of `a_name_always_exists_while_it_is_replaced`.
#[test]
fn open_descriptors_and_mappings_keep_their_content() {
    const SIZE: usize = 8 << 20;
    if !needs::mounts() {
        return;
    }
    let [first, second] = [b"o", b"n"].map(|letter| letter.repeat(SIZE));
    let fixture = Fixture::with(|store| store.put("big", &first));
    let mount = Mounted::new(fixture.views.stored.clone(), PATIENT, true);
    let path = mount.path("big");
    let old = File::open(&path).unwrap();
    let mapping = mapped::Mapping::of(&old, SIZE).unwrap();
    let mut half = vec![0; SIZE / 2];
    old.read_exact_at(&mut half, 0).unwrap();
    assert!(half == first[..SIZE / 2]);
    fs::write(fixture.beside("arriving"), &second).unwrap();
    fs::rename(fixture.beside("arriving"), fixture.store().join("big")).unwrap();
    // Another program opens the new file and asks for its length, which must not affect the old file.
    assert!(fs::read(&path).unwrap() == second);
    assert_eq!(fs::metadata(&path).unwrap().len(), SIZE as u64);
    old.read_exact_at(&mut half, SIZE as u64 / 2).unwrap();
    assert!(half == first[SIZE / 2..], "half of another content");
    assert!(
        (0..SIZE)
            .step_by(4096)
            .all(|place| mapping.byte(place) == b'o')
    );
}

#[test]
fn a_file_replaced_in_the_store_never_reads_as_a_mixture() {
    if !needs::mounts() {
        return;
    }
    let fixture = Fixture::with(|store| store.put("file", &content(0)));
    let mount = Mounted::new(fixture.views.stored.clone(), PATIENT, true);
    let (path, stored) = (mount.path("file"), fixture.store().join("file"));
    let read = || read_whole(&path);
    let stat = || {
        let length = fs::metadata(&path).expect("asking by name").len();
        assert!((0..26).any(|turn| content(turn).len() as u64 == length));
    };
    let turn = |turn| {
        replace(&stored, turn);
        thread::sleep(std::time::Duration::from_micros(100));
    };
    Readers::beside(TURNS, turn, &[&read, &stat, &read, &read]);
}

#[test]
fn a_change_of_attributes_does_not_disturb_readers() {
    if !needs::mounts() {
        return;
    }
    let fixture = Fixture::new();
    assert!(GROUP.contains("group"));
    let mount = Mounted::new(fixture.views.files.clone(), PATIENT, true);
    let path = mount.path("plain/plain.raw");
    let old = File::open(&path).unwrap();
    let whole = fs::read(&path).unwrap();
    let mapping = mapped::Mapping::of(&old, whole.len()).unwrap();
    let document = fixture.store().join("plain/zarr.json");
    let mut metadata: serde_json::Value =
        serde_json::from_slice(&fs::read(&document).unwrap()).unwrap();
    metadata["attributes"] = serde_json::json!({"changed": true});
    fs::write(&document, metadata.to_string()).unwrap();
    let attributes = mount.path("plain/attributes.json");
    let is_changed = || fs::read_to_string(&attributes).is_ok_and(|text| text.contains("changed"));
    assert!(crate::operations::fixture::soon(is_changed));
    assert!(fs::read(&path).unwrap() == whole);
    let mut bytes = vec![0; whole.len()];
    old.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes == whole);
    assert!((0..whole.len()).all(|place| mapping.byte(place) == whole[place]));
}
