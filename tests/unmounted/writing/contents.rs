//! Tests that pages and handles of decoded files are invalidated exactly when elements change.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use zarr_format::error::{Kind, Result};
use zarrfs::vfs::{Caller, Fh, Ino, Invalidation, OpenOptions, Vfs, VfsConfig};
use zarrfs::view::View;
use zarrfs::view::store::StoreView;
use zarrfs_overlay::{Overlay, OverlayConfig};
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::layer::Layer;
use zarrfs_store::stats::Stats;
use zarrfs_store::{Key, Object, Store};

use crate::common;
use crate::common::sample::{Form, Sample};
use zarrfs_store::request_context::{RequestContext, UNLIMITED, WITHOUT_WAITING};

fn key(name: impl AsRef<str>) -> Key {
    Key::new(name.as_ref()).unwrap()
}

fn files(memory: &MemoryStore) -> Arc<dyn View> {
    common::views_of(Arc::new(memory.clone()), Duration::from_secs(20)).files
}

const CALLER: Caller = Caller(1);

/// A simulated kernel over a view, with the inodes whose pages were invalidated.
struct Kernel {
    vfs: Vfs,
    dropped: Arc<Mutex<Vec<Ino>>>,
}

impl Kernel {
    fn new(view: Arc<dyn View>) -> Kernel {
        let config = VfsConfig {
            uid: 0,
            gid: 0,
            umask: 0,
            writable: true,
        };
        let vfs = Vfs::new(view, config, Arc::new(Stats::default()));
        let dropped: Arc<Mutex<Vec<Ino>>> = Arc::default();
        let list = dropped.clone();
        vfs.set_kernel_cache(move |ino, what| {
            if !matches!(what, Invalidation::Length | Invalidation::Settled) {
                list.lock().unwrap().push(ino);
            }
            true
        });
        Kernel { vfs, dropped }
    }

    fn walk(&self, path: &str) -> Ino {
        path.split('/').fold(Ino::ROOT, |parent, name| {
            let entry = self
                .vfs
                .lookup(&UNLIMITED, parent, name.as_bytes(), CALLER)
                .unwrap();
            entry.unwrap_or_else(|| panic!("no {name}")).ino
        })
    }

    /// Opens a file. Returns the handle, and whether the kernel may keep its pages.
    fn open(&self, path: &str) -> (Fh, bool) {
        let open = self.vfs.open(&UNLIMITED, self.walk(path), CALLER).unwrap();
        (open.fh, open.keep_cache)
    }

    fn read(&self, fh: Fh, offset: u64, len: usize) -> Vec<u8> {
        let in_memory = self.vfs.read(&WITHOUT_WAITING, fh, offset, len);
        let read = in_memory.or_else(|_| self.vfs.read(&UNLIMITED, fh, offset, len));
        read.unwrap().to_vec()
    }

    fn write(&self, path: &str, offset: u64, bytes: &[u8], truncate: bool) {
        let ino = self.walk(path);
        let options = OpenOptions {
            writes: true,
            truncates: truncate,
            ..OpenOptions::default()
        };
        let open = self.vfs.open_for_writing(&UNLIMITED, ino, options, CALLER);
        let fh = open.unwrap().fh;
        self.vfs.write(&UNLIMITED, fh, offset, bytes).unwrap();
        self.vfs.flush(&UNLIMITED, fh).unwrap();
        self.vfs.release(&UNLIMITED, fh);
    }

    fn dropped(&self) -> Vec<Ino> {
        std::mem::take(&mut *self.dropped.lock().unwrap())
    }
}

/// Returns the metadata documents of an array of four bytes in two chunks, by key, in two dialects. The attribute
/// `number` is given.
fn dialects(number: u64) -> [Vec<(&'static str, Value)>; 2] {
    let attributes = json!({ "number": number });
    let v3 = json!({
        "zarr_format": 3, "node_type": "array", "shape": [4], "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
        "chunk_key_encoding": {"name": "v2"}, "fill_value": 0, "codecs": ["bytes"],
        "attributes": attributes, "dimension_names": [if number == 0 { "x" } else { "y" }],
    });
    let v2 = json!({
        "zarr_format": 2, "shape": [4], "dtype": "|u1", "chunks": [2], "fill_value": 0, "order": "C",
        "filters": null, "compressor": null,
    });
    [
        vec![("a/zarr.json", v3)],
        vec![("a/.zarray", v2), ("a/.zattrs", attributes)],
    ]
}

fn put(memory: &MemoryStore, documents: &[(&str, Value)]) {
    for (name, document) in documents {
        memory.set(key(name), document.to_string().into_bytes());
    }
}

/// Invariant of `no_page_version_is_used_for_two_contents`.
#[test]
fn changed_attributes_keep_the_pages_of_readers() {
    for (before, after) in dialects(0).iter().zip(dialects(1)) {
        let memory = MemoryStore::default();
        put(&memory, before);
        for chunk in ["a/0", "a/1"] {
            memory.set(key(chunk), vec![1, 2]);
        }
        let kernel = Kernel::new(files(&memory));
        let (first, _) = kernel.open("a/a.raw");
        assert_eq!(kernel.read(first, 0, 1), [1]);
        // Another program changes the attributes in the store.
        put(&memory, &after);
        let (second, keeps) = kernel.open("a/a.raw");
        assert!(keeps, "pages are dropped");
        for handle in [first, second] {
            assert_eq!(kernel.read(handle, 0, 4), [1, 2, 1, 2]);
        }
        // A program changes the attributes through the mount.
        kernel.write("a/attributes.json", 0, br#"{"number": 2}"#, true);
        assert!(kernel.open("a/a.raw").1, "pages are dropped");
        assert_eq!(kernel.read(first, 0, 4), [1, 2, 1, 2]);
        assert_eq!(kernel.dropped(), [], "pages are dropped");
        let text = common::read(&files(&memory), "a/attributes.json").unwrap();
        assert_eq!(
            serde_json::from_slice::<Value>(&text).unwrap(),
            json!({"number": 2})
        );
    }
}

#[test]
fn changed_chunks_are_seen_by_every_reader() {
    let memory = MemoryStore::default();
    put(&memory, &dialects(0)[0]);
    memory.set(key("a/0"), vec![1, 2]);
    let kernel = Kernel::new(files(&memory));
    let (whole, _) = kernel.open("a/a.raw");
    assert_eq!(kernel.read(whole, 0, 4), [1, 2, 0, 0]);
    kernel.write("a/a.npy", 128 + 2, &[3, 4], false);
    assert_eq!(kernel.dropped(), [kernel.walk("a/a.raw")]);
    assert_eq!(kernel.read(whole, 0, 4), [1, 2, 3, 4]);
}

/// Invariant of `one_file_of_an_array_is_open_for_writing_at_a_time`.
///
/// Pages with old elements must not be written back over those of another program.
#[test]
fn pages_of_a_refused_write_are_dropped() {
    let memory = MemoryStore::default();
    put(&memory, &dialects(0)[0]);
    memory.set(key("a/0"), vec![1, 2]);
    let kernel = Kernel::new(files(&memory));
    let ino = kernel.walk("a/a.raw");
    let options = OpenOptions {
        writes: true,
        ..OpenOptions::default()
    };
    let open = kernel
        .vfs
        .open_for_writing(&UNLIMITED, ino, options, CALLER)
        .unwrap();
    kernel.vfs.write(&UNLIMITED, open.fh, 0, &[9]).unwrap();
    memory.set(key("a/0"), vec![3, 4]);
    let error = kernel.vfs.flush(&UNLIMITED, open.fh).unwrap_err();
    assert_eq!(error.kind(), Kind::Changed, "{error}");
    assert_eq!(kernel.dropped(), [ino]);
    assert_eq!(kernel.read(open.fh, 0, 2), [3, 4]);
}

/// The number of arrays, which is larger than the cache of open arrays.
const MANY: usize = 4200;

/// Invariant (reading): A page version is never used for two contents, and does not depend on attributes.
#[test]
fn no_page_version_is_used_for_two_contents() {
    let memory = MemoryStore::default();
    let sample = Sample::new(&[4], &[4], Form::Plain);
    sample.put(&memory, "a");
    let others: Vec<String> = (0..MANY).map(|number| format!("n{number}")).collect();
    for name in &others {
        sample.put(&memory, name);
    }
    let view = files(&memory);
    let look_at_others = || {
        for name in &others {
            let file = key(format!("{name}/{name}.raw"));
            assert!(view.lookup(&UNLIMITED, &file).unwrap().is_some());
        }
    };
    let open = || {
        let open = view.open(&UNLIMITED, &key("a/a.raw")).unwrap();
        let read = open.file.read_at(&UNLIMITED, 0, 8).unwrap().to_vec();
        // The version of the elements is known only after they were read.
        let again = view.open(&UNLIMITED, &key("a/a.raw")).unwrap();
        (again.version.unwrap(), read, again.file)
    };
    let mut seen = Vec::new();
    for round in 0..2 {
        memory.set(key("a/c/0"), vec![round; 8]);
        let (number, read, _) = open();
        assert_eq!(read, [round; 8]);
        assert!(
            !seen.contains(&number),
            "{number} is that of another content"
        );
        seen.push(number);
        if round == 0 {
            look_at_others();
        }
    }
    // An open file keeps its version, although lookups evict the array from the cache of open arrays.
    let (number, _, file) = open();
    look_at_others();
    let (again, ..) = open();
    assert_eq!((again, file.version()), (number, Some(number)));
    memory.set(key("a/c/0"), vec![9; 8]);
    assert_ne!(open().0, number);
    assert_eq!(file.read_at(&UNLIMITED, 0, 8).unwrap().to_vec(), [9; 8]);
}

#[test]
fn a_content_that_returns_has_a_new_page_version() {
    let memory = MemoryStore::default();
    put(&memory, &dialects(0)[0]);
    let view = files(&memory);
    let mut seen = Vec::new();
    for bytes in [[1, 2], [3, 4], [1, 2], [3, 4]] {
        memory.set(key("a/0"), bytes.to_vec());
        let open = view.open(&UNLIMITED, &key("a/a.raw")).unwrap();
        assert_eq!(open.file.read_at(&UNLIMITED, 0, 2).unwrap()[..], bytes);
        let number = open.file.version().unwrap();
        assert!(!seen.contains(&number));
        seen.push(number);
    }
}

/// The kernel sends RELEASE some time after close(2), so that another program may already have opened and truncated the
/// file.
#[test]
fn a_late_release_publishes_no_writes_of_the_next_handle() {
    let folder = tempfile::tempdir().unwrap();
    let memory = MemoryStore::default();
    memory.set(key("file"), b"stored".to_vec());
    let upper = folder.path().join("upper");
    let config = OverlayConfig {
        uid: 0,
        gid: 0,
        write_through: false,
    };
    let overlay = Overlay::open(&upper, Arc::new(memory.clone()), "a store", config).unwrap();
    let overlay = Arc::new(overlay);
    let view = StoreView::new(overlay.clone()).with_tree(Some(overlay));
    let kernel = Kernel::new(Arc::new(view));
    let open = || {
        let ino = kernel.walk("file");
        let options = OpenOptions {
            writes: true,
            truncates: true,
            ..OpenOptions::default()
        };
        let open = kernel
            .vfs
            .open_for_writing(&UNLIMITED, ino, options, CALLER);
        open.unwrap().fh
    };
    let published = || std::fs::read(upper.join("keys/file")).unwrap();
    let first = open();
    kernel.vfs.write(&UNLIMITED, first, 0, b"first").unwrap();
    kernel.vfs.flush(&UNLIMITED, first).unwrap();
    let second = open();
    kernel.vfs.release(&UNLIMITED, first);
    assert_eq!(published(), b"first");
    kernel.vfs.write(&UNLIMITED, second, 0, b"second").unwrap();
    assert_eq!(published(), b"first");
    // Writes through mmap that follow the close are not flushed before the release.
    kernel.vfs.release(&UNLIMITED, second);
    assert_eq!(published(), b"second");
}

/// A store in which another program replaces a chunk right after it was read.
struct Replacing {
    memory: MemoryStore,
    chunk: &'static str,
    next: Mutex<Option<Vec<u8>>>,
}

impl Layer for Replacing {
    fn below(&self) -> &dyn Store {
        &self.memory
    }

    fn get(&self, context: &RequestContext, wanted: &Key, limit: u64) -> Result<Option<Object>> {
        let object = self.memory.get(context, wanted, limit);
        if *wanted == key(self.chunk)
            && let Some(next) = self.next.lock().unwrap().take()
        {
            self.memory.set(wanted.clone(), next);
        }
        object
    }
}

/// If a chunk is replaced while a file is generated from it, the file must not get the version of the new chunk.
#[test]
fn a_generated_file_keeps_no_pages_of_older_elements() {
    let group = json!({"zarr_format": 3, "node_type": "group"});
    let array = json!({
        "zarr_format": 3, "node_type": "array", "shape": [1], "data_type": "string",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1]}},
        "chunk_key_encoding": {"name": "default"}, "fill_value": "", "codecs": ["vlen-utf8"],
    });
    let chunk = |text: &str| {
        let words = [1_u32, 3].map(u32::to_le_bytes).concat();
        [words, text.as_bytes().to_vec()].concat()
    };
    for name in ["g/a/a.txt", "g/a/a.csv", "g/g.csv", "g/g.nc4"] {
        let memory = MemoryStore::default();
        for (name, document) in [
            ("zarr.json", &group),
            ("g/zarr.json", &group),
            ("g/a/zarr.json", &array),
        ] {
            memory.set(key(name), document.to_string().into_bytes());
        }
        memory.set(key("g/a/c/0"), chunk("old"));
        let store = Arc::new(Replacing {
            memory,
            chunk: "g/a/c/0",
            next: Mutex::default(),
        });
        let view = common::views_of(store.clone(), Duration::from_secs(20)).files;
        let kernel = Kernel::new(view);
        let has = |fh: Fh, text: &str| {
            let bytes = kernel.read(fh, 0, 1 << 16);
            bytes.windows(3).any(|part| part == text.as_bytes())
        };
        let ino = kernel.walk(name);
        // The chunk was replaced after the length of the file was computed from it.
        store.memory.set(key("g/a/c/0"), chunk("zqx"));
        *store.next.lock().unwrap() = Some(chunk("new"));
        let first = kernel.vfs.open(&UNLIMITED, ino, CALLER).unwrap().fh;
        let was_replaced = store.next.lock().unwrap().is_none();
        assert!(was_replaced, "{name}");
        let is_old = has(first, "zqx");
        let (second, is_kept) = kernel.open(name);
        assert!(has(second, "new"), "{name}");
        let dropped = kernel.dropped();
        assert!(
            !is_old || !is_kept || !dropped.is_empty(),
            "{name}: the kernel keeps old pages"
        );
    }
}
