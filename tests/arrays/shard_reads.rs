//! How often a shard is read whose inner chunks are wanted together, and what is read if it changes in the middle.

use std::io::IoSliceMut;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use zarrfs::array::flat_file::FlatFile;
use zarrfs::array::{Arrays, Engine, Limits};
use zarrfs::error::{Kind, Result};
use zarrfs::grid::Region;
use zarrfs::hierarchy::Hierarchy;
use zarrfs::store::backend::memory::MemoryStore;
use zarrfs::store::layer::Layer;
use zarrfs::store::{Key, Meta, Reader, Store, StoreInfo};

use crate::flat::{Case, write};

type Hook = Box<dyn Fn(&MemoryStore) + Send + Sync>;

/// A store whose reads are counted; before the `turn`-th one a hook is called.
struct CountedStore {
    memory: MemoryStore,
    info: StoreInfo,
    reads: AtomicUsize,
    bytes: AtomicUsize,
    hook: Mutex<Option<(usize, Hook)>>,
}

/// The store, and the same as a layer.
#[derive(Clone)]
struct Counted(Arc<CountedStore>);

impl Layer for Counted {
    fn below(&self) -> &dyn Store {
        &self.0.memory
    }

    fn open(&self, key: &Key, known: Option<&Meta>) -> Result<Arc<dyn Reader>> {
        let (inner, store) = (self.0.memory.open(key, known)?, self.0.clone());
        let key = key.clone();
        Ok(Arc::new(CountedReader { inner, store, key }))
    }

    fn info(&self) -> &StoreInfo {
        &self.0.info
    }
}

struct CountedReader {
    inner: Arc<dyn Reader>,
    store: Arc<CountedStore>,
    key: Key,
}

impl CountedReader {
    fn count(&self, bytes: usize) {
        self.store.bytes.fetch_add(bytes, Ordering::SeqCst);
        let read = self.store.reads.fetch_add(1, Ordering::SeqCst) + 1;
        let mut hook = self.store.hook.lock().unwrap();
        if let Some((_, hook)) = hook.take_if(|(turn, _)| *turn == read) {
            hook(&self.store.memory);
        }
    }
}

impl Reader for CountedReader {
    fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.count(len);
        self.inner.read_at(offset, len)
    }

    fn read_scattered(&self, offset: u64, parts: &mut [IoSliceMut<'_>]) -> Result<usize> {
        self.count(parts.iter().map(|part| part.len()).sum());
        self.inner.read_scattered(offset, parts)
    }

    // The object as it is now, as a file that is overwritten in place.
    fn meta(&self) -> Result<Meta> {
        match self.store.memory.head(&self.key)? {
            Some(meta) => Ok(meta),
            None => self.inner.meta(),
        }
    }
}

/// A shard of 256 inner chunks of a kilobyte, in two forms; `number` tells the contents apart.
fn case(compressed: bool) -> Case {
    Case {
        shape: vec![256 << 10],
        chunk: vec![1 << 10],
        inner: Some(vec![256]),
        edges: None,
        data_type: "uint8",
        fortran: false,
        big: false,
        compressed,
        stored: vec![true],
    }
}

/// Writes the array of a case into memory; returns its bytes and those of its shard.
fn counted(case: &Case, folder: &Path) -> (Counted, Vec<u8>, Vec<u8>) {
    let whole = write(case, folder);
    let memory = MemoryStore::default();
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    let shard = read("c/0");
    memory.set(Key::new("zarr.json").unwrap(), read("zarr.json"));
    memory.set(Key::new("c/0").unwrap(), shard.clone());
    let store = CountedStore {
        memory,
        info: StoreInfo::new(Duration::from_secs(60)),
        reads: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
        hook: Mutex::default(),
    };
    (Counted(Arc::new(store)), whole, shard)
}

fn flat_file(store: &Counted, memory: u64, fetches: usize) -> FlatFile {
    flat_file_of(store, &[256 << 10], memory, fetches)
}

fn flat_file_of(store: &Counted, shape: &[u64], memory: u64, fetches: usize) -> FlatFile {
    flat_file_of_region(store, Region::whole(shape), memory, fetches)
}

fn flat_file_of_region(store: &Counted, region: Region, memory: u64, fetches: usize) -> FlatFile {
    let limits = Limits {
        memory,
        max_chunk: 1 << 20,
        timeout: Duration::from_secs(20),
        fetches,
        lossy: false,
    };
    let hierarchy = Arc::new(Hierarchy::new(Arc::new(store.clone())));
    let root = hierarchy.root().unwrap().unwrap();
    let arrays = Arrays::new(hierarchy, Engine::new(limits, Arc::default()));
    FlatFile::new(arrays.open(&root).unwrap(), region).unwrap()
}

#[test]
fn inner_chunks_that_lie_beside_each_other_are_read_together() {
    for (compressed, fetches) in [(false, 0), (true, 0), (false, 8), (true, 8)] {
        let folder = tempfile::tempdir().unwrap();
        let (store, whole, _) = counted(&case(compressed), folder.path());
        let file = flat_file(&store, 64 << 20, fetches);
        assert!(file.read(0..256 << 10).unwrap()[..] == whole[..]);
        let reads = store.0.reads.load(Ordering::SeqCst);
        // The index, a run, and what the reader has taken before it was one of a run.
        assert!(
            reads <= 8,
            "{reads} reads, compressed {compressed}, fetches {fetches}"
        );
        assert!(file.read(300..9000).unwrap()[..] == whole[300..9000]);
        assert_eq!(
            store.0.reads.load(Ordering::SeqCst),
            reads,
            "decoded already"
        );
    }
}

#[test]
fn one_inner_chunk_is_read_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (store, whole, _) = counted(&case(false), folder.path());
    let file = flat_file(&store, 64 << 20, 8);
    assert!(file.read(70_000..70_010).unwrap()[..] == whole[70_000..70_010]);
    assert_eq!(
        store.0.reads.load(Ordering::SeqCst),
        2,
        "the index and the inner chunk"
    );
}

#[test]
fn a_run_that_memory_has_no_room_for_is_read_piece_by_piece() {
    let folder = tempfile::tempdir().unwrap();
    let (store, whole, _) = counted(&case(true), folder.path());
    let file = flat_file(&store, 64 << 10, 8);
    for start in (0..256 << 10).step_by(16 << 10) {
        let range = start as u64..start as u64 + (16 << 10);
        assert!(file.read(range).unwrap()[..] == whole[start..start + (16 << 10)]);
    }
}

#[test]
fn a_shard_that_is_overwritten_while_a_run_is_read_is_never_mixed() {
    let mut overwritten = 0;
    for turn in 1..6 {
        let folder = tempfile::tempdir().unwrap();
        let (store, whole, shard) = counted(&case(false), folder.path());
        let other: Vec<u8> = whole.iter().map(|byte| byte ^ 0xff).collect();
        let mut rewritten = shard.clone();
        rewritten[..other.len()].copy_from_slice(&other);
        let rewrite: Hook = Box::new(move |memory| {
            memory.set(Key::new("c/0").unwrap(), rewritten.clone());
        });
        *store.0.hook.lock().unwrap() = Some((turn, rewrite));
        let file = flat_file(&store, 64 << 20, 0);
        let read = |range: std::ops::Range<u64>| match file.read(range.clone()) {
            Ok(bytes) => Some(bytes.to_vec()),
            Err(error) => {
                assert_eq!(error.kind(), Kind::Changed, "{error}");
                None
            }
        };
        // Inner chunks may be of either content, none of both.
        let bytes = read(0..256 << 10).unwrap_or_default();
        for (number, chunk) in bytes.chunks(1 << 10).enumerate() {
            let range = number << 10..(number + 1) << 10;
            let is_one = chunk == &whole[range.clone()] || chunk == &other[range];
            assert!(is_one, "turn {turn}: inner chunk {number}");
        }
        if store.0.hook.lock().unwrap().is_none() {
            overwritten += 1;
            // Who opens the array now reads the new content.
            let file = flat_file(&store, 64 << 20, 0);
            assert!(
                file.read(0..256 << 10).unwrap()[..] == other[..],
                "turn {turn}"
            );
        }
    }
    assert!(overwritten > 0, "no read came at any of these turns");
}

#[test]
fn a_shard_that_ends_early_harms_no_inner_chunk_before_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let (store, whole, shard) = counted(&case(false), folder.path());
    // The index claims that the last inner chunk lies beyond the shard's data.
    let mut broken = shard.clone();
    let index = broken.len() - 256 * 16 - 4;
    let last = index + 255 * 16;
    broken[last..last + 8].copy_from_slice(&(1u64 << 40).to_le_bytes());
    let end = broken.len() - 4;
    let checksum = crc32c::crc32c(&broken[index..end]);
    broken[end..].copy_from_slice(&checksum.to_le_bytes());
    store.0.memory.set(Key::new("c/0").unwrap(), broken);
    let file = flat_file(&store, 64 << 20, 8);
    let sound = 0..255 << 10;
    assert!(file.read(sound).unwrap()[..] == whole[..255 << 10]);
    let error = file.read(250 << 10..256 << 10).err().unwrap();
    assert_eq!(error.kind(), Kind::Corrupt, "{error}");
}

/// Three dimensions, so that a reader in order comes back to each shard for every layer of its inner chunks.
fn layered() -> Case {
    Case {
        shape: vec![128, 128, 256],
        chunk: vec![16, 16, 16],
        inner: Some(vec![8, 8, 8]),
        ..case(true)
    }
}

/// Planes of half a MiB, eight of which make a layer of inner chunks, in one row of shards of eight layers.
fn planes() -> Case {
    Case {
        shape: vec![64, 64, 512],
        chunk: vec![8, 8, 64],
        inner: Some(vec![8, 8, 4]),
        data_type: "complex128",
        ..case(false)
    }
}

#[test]
fn who_reads_single_planes_over_a_network_has_no_whole_shards_read() {
    let folder = tempfile::tempdir().unwrap();
    let whole = write(&planes(), folder.path());
    let memory = MemoryStore::default();
    let mut stored = 0;
    for name in ["zarr.json", "c/0/0/0", "c/0/0/1"] {
        let bytes = std::fs::read(folder.path().join(name)).unwrap();
        stored += bytes.len();
        memory.set(Key::new(name).unwrap(), bytes);
    }
    let read = |region: Region, planes: &[u64]| {
        let store = Counted(Arc::new(CountedStore {
            memory: memory.clone(),
            info: StoreInfo::new(Duration::from_secs(60)),
            reads: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            hook: Mutex::default(),
        }));
        let first = region.start[0] << 19;
        let file = flat_file_of_region(&store, region, 1 << 30, 8);
        for plane in planes {
            for quarter in 0..4 {
                let range = (plane << 19) + (quarter << 17)..(plane << 19) + ((quarter + 1) << 17);
                let expected = &whole[(first + range.start) as usize..(first + range.end) as usize];
                assert!(file.read(range).unwrap()[..] == *expected);
            }
        }
        drop(file);
        store.0.bytes.load(Ordering::SeqCst)
    };
    // Each plane needs a layer, and the next one is read ahead.
    let jumps = read(Region::whole(&[64, 64, 512]), &[0, 40]);
    assert!(jumps <= stored * 5 / 8, "{jumps} of {stored} bytes");
    let part = Region {
        start: [8, 0, 0].as_slice().into(),
        shape: [16, 64, 512].as_slice().into(),
    };
    let part = read(part, &(0..16).collect::<Vec<u64>>());
    assert!(part <= stored * 3 / 8, "{part} of {stored} bytes");
}

/// Returns a shard of 512 inner chunks with those of one layer far apart, as in Morton order.
fn interleaved(shard: &[u8]) -> Vec<u8> {
    let (data, index) = shard.split_at(shard.len() - 512 * 16 - 4);
    let number = |at: usize| u64::from_le_bytes(index[at..at + 8].try_into().unwrap());
    let mut order: Vec<usize> = (0..512).collect();
    order.sort_by_key(|inner| (inner % 64, inner / 64));
    let (mut out, mut places) = (Vec::new(), vec![0; 512 * 16]);
    for inner in order {
        let (start, length) = (number(inner * 16), number(inner * 16 + 8));
        places[inner * 16..inner * 16 + 8].copy_from_slice(&(out.len() as u64).to_le_bytes());
        places[inner * 16 + 8..inner * 16 + 16].copy_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&data[start as usize..(start + length) as usize]);
    }
    let checksum = crc32c::crc32c(&places);
    out.extend(places);
    out.extend(checksum.to_le_bytes());
    out
}

#[test]
fn a_reader_in_order_over_a_network_has_each_shard_read_once() {
    let folder = tempfile::tempdir().unwrap();
    let whole = write(&layered(), folder.path());
    let memory = MemoryStore::default();
    let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    memory.set(Key::new("zarr.json").unwrap(), read("zarr.json"));
    for name in ["c/0/0/0", "c/0/0/1"] {
        memory.set(Key::new(name).unwrap(), interleaved(&read(name)));
    }
    let store = Counted(Arc::new(CountedStore {
        memory,
        info: StoreInfo::new(Duration::from_secs(60)),
        reads: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
        hook: Mutex::default(),
    }));
    let file = flat_file_of(&store, &[128, 128, 256], 256 << 20, 8);
    for start in (0..whole.len()).step_by(128 << 10) {
        let range = start as u64..start as u64 + (128 << 10);
        assert!(file.read(range).unwrap()[..] == whole[start..start + (128 << 10)]);
    }
    let reads = store.0.reads.load(Ordering::SeqCst);
    // The first layer has 128, which are wanted before it shows that the reader goes on.
    assert!(reads <= 160, "{reads} reads of 1024 inner chunks");
}
