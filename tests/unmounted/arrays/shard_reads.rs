//! Counts the reads of a shard, and replaces shards while they are read.

use std::collections::{HashMap, HashSet};
use std::io::IoSliceMut;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use zarr_format::error::{Kind, Result};
use zarr_format::grid::Region;
use zarrfs_array::array::flat_file::FlatFile;
use zarrfs_array::array::{Arrays, Engine, Limits};
use zarrfs_array::hierarchy::Hierarchy;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::layer::Layer;
use zarrfs_store::{ByteRange, Key, Meta, Object, Reader, Store, StoreInfo};

use crate::arrays::flat::{Case, write};
use zarrfs_store::request_context::{RequestContext, UNLIMITED};

type Hook = Box<dyn Fn(&MemoryStore) + Send + Sync>;

/// A store that counts reads, and calls a function before the read with a given number.
struct CountedStore {
    memory: MemoryStore,
    info: StoreInfo,
    reads: AtomicUsize,
    bytes: AtomicUsize,
    /// The key and the byte range of each read.
    ranges: Mutex<Vec<(Key, Range<u64>)>>,
    hook: Mutex<Option<(usize, Hook)>>,
}

impl CountedStore {
    fn new(memory: MemoryStore) -> CountedStore {
        CountedStore {
            memory,
            info: StoreInfo::new(Duration::from_secs(60)),
            reads: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            ranges: Mutex::default(),
            hook: Mutex::default(),
        }
    }

    fn count(&self, key: &Key, range: Range<u64>) {
        let bytes = (range.end - range.start) as usize;
        self.bytes.fetch_add(bytes, Ordering::SeqCst);
        let read = self.reads.fetch_add(1, Ordering::SeqCst) + 1;
        self.ranges.lock().unwrap().push((key.clone(), range));
        let mut hook = self.hook.lock().unwrap();
        if let Some((_, hook)) = hook.take_if(|(turn, _)| *turn == read) {
            hook(&self.memory);
        }
    }
}

/// A reference to the counting store that can be cloned, and that implements `Layer`.
#[derive(Clone)]
struct Counted(Arc<CountedStore>);

impl Layer for Counted {
    fn below(&self) -> &dyn Store {
        &self.0.memory
    }

    fn get_range(
        &self,
        context: &RequestContext,
        key: &Key,
        range: ByteRange,
    ) -> Result<Option<Object>> {
        if let Some(meta) = self.0.memory.head(context, key)? {
            self.0.count(key, range.within(meta.size));
        }
        self.0.memory.get_range(context, key, range)
    }

    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>> {
        let (inner, store) = (self.0.memory.open(context, key, known)?, self.0.clone());
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

impl Reader for CountedReader {
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.store.count(&self.key, offset..offset + len as u64);
        self.inner.read_at(context, offset, len)
    }

    fn read_vectored(
        &self,
        context: &RequestContext,
        offset: u64,
        parts: &mut [IoSliceMut<'_>],
    ) -> Result<usize> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        self.store.count(&self.key, offset..offset + length as u64);
        self.inner.read_vectored(context, offset, parts)
    }

    // The metadata of an open reader are those of the current object, as for a file that was overwritten in place.
    fn meta(&self, context: &RequestContext) -> Result<Meta> {
        match self.store.memory.head(context, &self.key)? {
            Some(meta) => Ok(meta),
            None => self.inner.meta(context),
        }
    }
}

/// Returns an array of one shard with 256 inner chunks of 1 KiB each, compressed or not.
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

/// Writes an array into a counted store. Returns the store, the bytes of the array and those of the shard.
fn counted(case: &Case, folder: &Path) -> (Counted, Vec<u8>, Vec<u8>) {
    let whole = write(case, folder);
    let memory = MemoryStore::default();
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    let shard = read("c/0");
    memory.set(Key::new("zarr.json").unwrap(), read("zarr.json"));
    memory.set(Key::new("c/0").unwrap(), shard.clone());
    (Counted(Arc::new(CountedStore::new(memory))), whole, shard)
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
    let root = hierarchy.root(&UNLIMITED).unwrap().unwrap();
    let arrays = Arrays::new(hierarchy, Engine::new(limits, Arc::default()));
    FlatFile::new(arrays.open(&root).unwrap(), region).unwrap()
}

/// Invariant (reading): Adjacent subchunks are read in one request, and all subchunks of a read are of the same version
/// as their index.
#[test]
fn adjacent_inner_chunks_are_read_together() {
    for (compressed, fetches) in [(false, 0), (true, 0), (false, 8), (true, 8)] {
        let folder = tempfile::tempdir().unwrap();
        let (store, whole, _) = counted(&case(compressed), folder.path());
        let file = flat_file(&store, 64 << 20, fetches);
        assert!(file.read(&UNLIMITED, 0..256 << 10).unwrap()[..] == whole[..]);
        let reads = store.0.reads.load(Ordering::SeqCst);
        // The reads are the index, one run of inner chunks, and the inner chunks before the reader counted as
        // sequential.
        assert!(
            reads <= 8,
            "{reads} reads, compressed {compressed}, fetches {fetches}"
        );
        assert!(file.read(&UNLIMITED, 300..9000).unwrap()[..] == whole[300..9000]);
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
    assert!(file.read(&UNLIMITED, 70_000..70_010).unwrap()[..] == whole[70_000..70_010]);
    assert_eq!(
        store.0.reads.load(Ordering::SeqCst),
        2,
        "the index and the inner chunk"
    );
}

#[test]
fn a_run_larger_than_memory_is_read_in_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let (store, whole, _) = counted(&case(true), folder.path());
    let file = flat_file(&store, 64 << 10, 8);
    for start in (0..256 << 10).step_by(16 << 10) {
        let range = start as u64..start as u64 + (16 << 10);
        assert!(file.read(&UNLIMITED, range).unwrap()[..] == whole[start..start + (16 << 10)]);
    }
}

/// Invariant of `adjacent_inner_chunks_are_read_together`.
#[test]
fn a_shard_that_is_overwritten_while_a_run_is_read_is_never_mixed() {
    let mut overwritten = 0;
    for (turn, fetches) in (1..6).flat_map(|turn| [(turn, 0), (turn, 8)]) {
        let folder = tempfile::tempdir().unwrap();
        let (store, whole, shard) = counted(&case(false), folder.path());
        let other: Vec<u8> = whole.iter().map(|byte| byte ^ 0xff).collect();
        let mut rewritten = shard.clone();
        rewritten[..other.len()].copy_from_slice(&other);
        let rewrite: Hook = Box::new(move |memory| {
            memory.set(Key::new("c/0").unwrap(), rewritten.clone());
        });
        *store.0.hook.lock().unwrap() = Some((turn, rewrite));
        let file = flat_file(&store, 64 << 20, fetches);
        let read = |range: Range<u64>| match file.read(&UNLIMITED, range.clone()) {
            Ok(bytes) => Some(bytes.to_vec()),
            Err(error) => {
                assert_eq!(error.kind(), Kind::Changed, "{error}");
                None
            }
        };
        let bytes = read(0..256 << 10).unwrap_or_default();
        let is_one = bytes.is_empty() || bytes == whole || bytes == other;
        assert!(is_one, "turn {turn}: two contents");
        if store.0.hook.lock().unwrap().is_none() {
            overwritten += 1;
            // A program that opens the array after the replacement reads the new elements.
            let file = flat_file(&store, 64 << 20, 0);
            assert!(
                file.read(&UNLIMITED, 0..256 << 10).unwrap()[..] == other[..],
                "turn {turn}"
            );
        }
    }
    assert!(overwritten > 0, "no read came at any of these turns");
}

/// The old and the new shard lack different inner chunks: none and half, one half and the other half, all but one and
/// none.
#[test]
fn a_shard_that_is_replaced_while_it_is_read_is_never_mixed() {
    let lacking = |shard: &[u8], inner: Range<usize>, flip: u8| {
        let mut shard = shard.to_vec();
        let index = shard.len() - 256 * 16 - 4;
        shard[..index].iter_mut().for_each(|byte| *byte ^= flip);
        for inner in inner {
            let at = index + inner * 16;
            shard[at..at + 16].fill(0xff);
        }
        let end = shard.len() - 4;
        let checksum = crc32c::crc32c(&shard[index..end]);
        shard[end..].copy_from_slice(&checksum.to_le_bytes());
        shard
    };
    let mut replaced = 0;
    for (turn, fetches) in (1..12).flat_map(|turn| [(turn, 0), (turn, 8)]) {
        for (first, later) in [(0..0, 128..256), (0..128, 128..256), (0..255, 0..0)] {
            let folder = tempfile::tempdir().unwrap();
            let (store, _, shard) = counted(&case(false), folder.path());
            let key = Key::new("c/0").unwrap();
            let contents = [lacking(&shard, first, 0), lacking(&shard, later, 0xff)];
            let [one, other] = contents.clone().map(|content| {
                store.0.memory.set(key.clone(), content);
                flat_file(&store, 64 << 20, 0)
                    .read(&UNLIMITED, 0..256 << 10)
                    .unwrap()
                    .to_vec()
            });
            store.0.memory.set(key.clone(), contents[0].clone());
            let last = contents[1].clone();
            let replace: Hook = Box::new(move |memory| memory.set(key.clone(), last.clone()));
            store.0.reads.store(0, Ordering::SeqCst);
            *store.0.hook.lock().unwrap() = Some((turn, replace));
            let bytes = flat_file(&store, 64 << 20, fetches)
                .read(&UNLIMITED, 0..256 << 10)
                .unwrap();
            replaced += usize::from(store.0.hook.lock().unwrap().is_none());
            let is_one = bytes[..] == one[..] || bytes[..] == other[..];
            assert!(is_one, "turn {turn}, fetches {fetches}: two contents");
        }
    }
    assert!(replaced > 0, "no read came at any of these turns");
}

#[test]
fn inner_chunks_before_the_end_of_a_short_shard_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let (store, whole, shard) = counted(&case(false), folder.path());
    // The index says that the last inner chunk is beyond the end of the shard.
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
    assert!(file.read(&UNLIMITED, sound).unwrap()[..] == whole[..255 << 10]);
    let error = file.read(&UNLIMITED, 250 << 10..256 << 10).err().unwrap();
    assert_eq!(error.kind(), Kind::Corrupt, "{error}");
}

/// Returns a three-dimensional array in which a sequential reader returns to each shard once per layer of inner chunks.
fn layered() -> Case {
    Case {
        shape: vec![128, 128, 256],
        chunk: vec![16, 16, 16],
        inner: Some(vec![8, 8, 8]),
        ..case(true)
    }
}

/// Returns an array with planes of 512 KiB. Inner chunks are eight planes thick, and the only row of shards has eight
/// layers of inner chunks.
fn planes() -> Case {
    Case {
        shape: vec![64, 64, 512],
        chunk: vec![8, 8, 64],
        inner: Some(vec![8, 8, 4]),
        data_type: "complex128",
        ..case(false)
    }
}

/// Invariant of `adjacent_inner_chunks_are_read_together`.
#[test]
fn a_reader_of_single_planes_on_a_network_reads_no_whole_shards() {
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
        let store = Counted(Arc::new(CountedStore::new(memory.clone())));
        let first = region.start[0] << 19;
        let file = flat_file_of_region(&store, region, 1 << 30, 8);
        for plane in planes {
            for quarter in 0..4 {
                let range = (plane << 19) + (quarter << 17)..(plane << 19) + ((quarter + 1) << 17);
                let expected = &whole[(first + range.start) as usize..(first + range.end) as usize];
                assert!(file.read(&UNLIMITED, range).unwrap()[..] == *expected);
            }
        }
        drop(file);
        store.0.bytes.load(Ordering::SeqCst)
    };
    // Each plane needs one layer of inner chunks, and the next layer is prefetched.
    let jumps = read(Region::whole(&[64, 64, 512]), &[0, 40]);
    assert!(jumps <= stored * 5 / 8, "{jumps} of {stored} bytes");
    let part = Region {
        start: [8, 0, 0].as_slice().into(),
        shape: [16, 64, 512].as_slice().into(),
    };
    let part = read(part, &(0..16).collect::<Vec<u64>>());
    // Two of eight layers of inner chunks are needed. The other bytes depend on the order of the concurrent reads.
    assert!(part <= stored / 2, "{part} of {stored} bytes");
}

/// Returns the shard with its 512 inner chunks stored such that those of one layer are as far apart as possible.
fn interleaved(shard: &[u8]) -> Vec<u8> {
    sorted(shard, |inner| (inner % 64) * 8 + inner / 64)
}

/// Returns the shard with its 8 x 8 x 8 inner chunks stored in Morton order, as zarr-python stores them.
fn in_morton_order(shard: &[u8]) -> Vec<u8> {
    let spread = |number: usize| (number & 1) | (number & 2) << 2 | (number & 4) << 4;
    let place = |inner: usize| {
        let (z, y, x) = (inner / 64, inner / 8 % 8, inner % 8);
        spread(z) | spread(y) << 1 | spread(x) << 2
    };
    sorted(shard, place)
}

/// Returns the shard with its 512 inner chunks stored in the order of `place`, from which the index follows.
fn sorted(shard: &[u8], place: impl Fn(usize) -> usize) -> Vec<u8> {
    let ranges = places(shard, 512);
    let mut order: Vec<usize> = (0..512).collect();
    order.sort_by_key(|&inner| place(inner));
    let (mut out, mut index) = (Vec::new(), vec![0; 512 * 16]);
    for inner in order {
        let range = ranges[inner + 1].start as usize..ranges[inner + 1].end as usize;
        let entry = &mut index[inner * 16..(inner + 1) * 16];
        entry[..8].copy_from_slice(&(out.len() as u64).to_le_bytes());
        entry[8..].copy_from_slice(&(range.len() as u64).to_le_bytes());
        out.extend_from_slice(&shard[range]);
    }
    let checksum = crc32c::crc32c(&index);
    out.extend(index);
    out.extend(checksum.to_le_bytes());
    out
}

/// Invariant of `adjacent_inner_chunks_are_read_together`.
#[test]
fn a_sequential_reader_on_a_network_reads_each_shard_once() {
    let folder = tempfile::tempdir().unwrap();
    let whole = write(&layered(), folder.path());
    let memory = MemoryStore::default();
    let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    memory.set(Key::new("zarr.json").unwrap(), read("zarr.json"));
    for name in ["c/0/0/0", "c/0/0/1"] {
        memory.set(Key::new(name).unwrap(), interleaved(&read(name)));
    }
    let store = Counted(Arc::new(CountedStore::new(memory)));
    let file = flat_file_of(&store, &[128, 128, 256], 256 << 20, 8);
    for start in (0..whole.len()).step_by(128 << 10) {
        let range = start as u64..start as u64 + (128 << 10);
        assert!(file.read(&UNLIMITED, range).unwrap()[..] == whole[start..start + (128 << 10)]);
    }
    let reads = store.0.reads.load(Ordering::SeqCst);
    // The 128 inner chunks of the first layer are read one by one, before the reader counts as sequential.
    assert!(reads <= 160, "{reads} reads of 1024 inner chunks");
}

/// Returns the byte ranges of a shard's index and of its inner chunks, in this order.
fn places(shard: &[u8], inner: usize) -> Vec<Range<u64>> {
    let start = shard.len() - inner * 16 - 4;
    let number = |at: usize| u64::from_le_bytes(shard[at..at + 8].try_into().unwrap());
    let index = start as u64..shard.len() as u64;
    let place = |inner: usize| {
        let (offset, length) = (number(start + inner * 16), number(start + inner * 16 + 8));
        offset..offset + length
    };
    std::iter::once(index)
        .chain((0..inner).map(place))
        .collect()
}

/// An array of shards with 8 x 8 x 8 inner chunks in Morton order each.
struct MortonArray {
    shape: [u64; 3],
    whole: Vec<u8>,
    memory: MemoryStore,
    shards: HashMap<Key, Vec<Range<u64>>>,
}

/// The shape of an array with two rows of two shards.
const TWO_ROWS: [u64; 3] = [256, 128, 256];

impl MortonArray {
    fn new(shape: [u64; 3]) -> MortonArray {
        let folder = tempfile::tempdir().unwrap();
        let case = Case {
            shape: shape.to_vec(),
            compressed: false,
            ..layered()
        };
        let whole = write(&case, folder.path());
        let memory = MemoryStore::default();
        let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
        memory.set(Key::new("zarr.json").unwrap(), read("zarr.json"));
        let mut shards = HashMap::new();
        let [rows, columns, layers] = shape.map(|length| length / 128);
        for place in 0..rows * columns * layers {
            let (row, column) = (place / layers / columns, place / layers % columns);
            let name = format!("c/{row}/{column}/{}", place % layers);
            let (key, shard) = (Key::new(&*name).unwrap(), in_morton_order(&read(&name)));
            shards.insert(key.clone(), places(&shard, 512));
            memory.set(key, shard);
        }
        MortonArray {
            shape,
            whole,
            memory,
            shards,
        }
    }

    fn counted(&self) -> Counted {
        Counted(Arc::new(CountedStore::new(self.memory.clone())))
    }

    fn open(&self, store: &Counted, memory: u64) -> FlatFile {
        flat_file_of(store, &self.shape, memory, 8)
    }

    fn read(&self, file: &FlatFile, range: Range<usize>) {
        let found = file
            .read(&UNLIMITED, range.start as u64..range.end as u64)
            .unwrap();
        assert!(found[..] == self.whole[range.clone()], "{range:?}");
    }

    /// Reads the whole file in order. The reads have the given lengths, of which the last one is repeated.
    fn read_whole(&self, file: &FlatFile, lengths: &[usize]) {
        let (mut start, mut lengths) = (0, lengths.iter());
        let mut length = 0;
        while start < self.whole.len() {
            length = lengths.next().copied().unwrap_or(length);
            let end = (start + length).min(self.whole.len());
            self.read(file, start..end);
            start = end;
        }
    }

    /// Returns the number of requests for each shard, and how often the most frequently fetched inner chunk was
    /// fetched.
    fn counts(&self, store: &Counted) -> (Vec<usize>, usize) {
        let ranges = store.0.ranges.lock().unwrap();
        let of = |key: &Key| ranges.iter().filter(|(other, _)| other == key).count();
        let fetches = self.shards.iter().flat_map(|(key, places)| {
            let ranges = ranges.iter().filter(move |(other, _)| other == key);
            let fetched = move |place: &&Range<u64>| {
                let all = ranges
                    .clone()
                    .filter(|(_, range)| range.start <= place.start && place.end <= range.end);
                all.count()
            };
            places.iter().map(move |place| fetched(&place))
        });
        (self.shards.keys().map(of).collect(), fetches.max().unwrap())
    }
}

/// Invariant of `adjacent_inner_chunks_are_read_together`.
#[test]
fn a_sequential_reader_on_a_network_makes_at_most_three_requests_per_shard() {
    let rows = MortonArray::new(TWO_ROWS);
    // The lengths of the kernel's reads for `cat`, for a program that maps the file or reads it with one call (after a
    // header), and for a program that reads 128 KiB at a time.
    let kernel_sizes: [&[usize]; 3] = [
        &[1 << 20],
        &[(1 << 20) - 128, 1 << 20],
        &[(256 << 10) - 128, 512 << 10, 1 << 20],
    ];
    for lengths in kernel_sizes {
        let store = rows.counted();
        let file = rows.open(&store, 64 << 20);
        rows.read_whole(&file, lengths);
        let (requests, most) = rows.counts(&store);
        assert!(
            requests.iter().all(|&requests| requests <= 3),
            "{requests:?} requests for reads of {lengths:?}"
        );
        assert!(
            most <= 2,
            "an inner chunk was fetched {most} times for reads of {lengths:?}"
        );
    }
}

#[test]
fn concurrent_sequential_reads_make_few_requests() {
    let rows = MortonArray::new(TWO_ROWS);
    let store = rows.counted();
    let file = rows.open(&store, 64 << 20);
    // The kernel sends two reads at a time, which may arrive in reverse order.
    for pair in 0..4usize {
        std::thread::scope(|threads| {
            for number in [pair * 2 + 1, pair * 2] {
                let (rows, file) = (&rows, &file);
                threads.spawn(move || rows.read(file, number << 20..(number + 1) << 20));
            }
        });
    }
    let (requests, most) = rows.counts(&store);
    // A single reader needs at most 12 requests. On a busy machine, two readers drift apart, and inner chunks that one
    // has consumed are fetched again for the other.
    assert!(
        requests.iter().sum::<usize>() <= 24,
        "{requests:?} requests"
    );
    assert!(most <= 2, "an inner chunk was fetched {most} times");
}

/// Invariant of `adjacent_inner_chunks_are_read_together`.
#[test]
fn a_small_window_fetches_the_index_and_its_inner_chunks_alone() {
    let rows = MortonArray::new(TWO_ROWS);
    let plane = 128 * 256;
    // Windows at the start of the file, as a program reads them that looks at the first elements, and in the middle of
    // the file.
    for (start, length) in [(0, 100), (0, 16 << 10), (100 * plane + 20 * 256 + 30, 90)] {
        let store = rows.counted();
        let file = rows.open(&store, 64 << 20);
        rows.read(&file, start..start + length);
        let piece = |at: usize| (at / plane / 16, at / 256 % 128 / 16, at % 256 / 16);
        let wanted: HashSet<_> = (start..start + length).map(piece).collect();
        let shards: HashSet<_> = wanted.iter().map(|(_, _, x)| x / 8).collect();
        let ranges = store.0.ranges.lock().unwrap();
        let bytes: u64 = ranges
            .iter()
            .map(|(_, range)| range.end - range.start)
            .sum();
        // Reads may be merged over gaps, which at most doubles the bytes.
        let most = shards.len() * (512 * 16 + 4) + wanted.len() * 2 * (4 << 10);
        assert!(
            bytes as usize <= most,
            "{bytes} bytes of {most}: {ranges:?}"
        );
        assert!(ranges.len() <= shards.len() + wanted.len(), "{ranges:?}");
    }
}

/// Invariant of `adjacent_inner_chunks_are_read_together`.
#[test]
fn a_reader_of_the_header_reads_no_whole_shards() {
    // A row of 16 shards takes 32 MiB, and each plane of 256 KiB crosses all of these shards.
    let rows = MortonArray::new([128, 512, 512]);
    let layer = 4 << 20;
    // A program whose buffer has the block size reads 256 KiB in all; with a buffer of 1 MiB, it reads 2 MiB.
    for lengths in [&[(256 << 10) - 128][..], &[(1 << 20) - 128, 1 << 20]] {
        let store = rows.counted();
        let file = rows.open(&store, 1 << 30);
        let mut start = 0;
        for length in lengths {
            rows.read(&file, start..start + length);
            start += length;
        }
        drop(file);
        let (requests, _) = rows.counts(&store);
        let bytes = store.0.bytes.load(Ordering::SeqCst);
        // The indexes, the requested layer of inner chunks, one more layer, and gaps, whose size depends on the order
        // of concurrent reads.
        assert!(
            bytes <= layer * 4 + 16 * (512 * 16 + 4),
            "{bytes} bytes for reads of {lengths:?}"
        );
        assert!(
            requests.iter().all(|&requests| requests <= 6),
            "{requests:?}"
        );
    }
    // The remote file has a block size of 128 KiB, and the local file one of 1 MiB.
    let remote = rows.open(&rows.counted(), 1 << 30);
    assert_eq!(remote.array().chunk_bytes(), 128);
    let local = flat_file_of(&rows.counted(), &rows.shape, 1 << 30, 0);
    assert_eq!(local.array().chunk_bytes(), 16 * 16 * 16);
}

/// Invariant of `adjacent_inner_chunks_are_read_together`.
#[test]
fn little_memory_takes_more_requests() {
    let rows = MortonArray::new(TWO_ROWS);
    let stored: u64 = rows.shards.values().map(|places| places[0].end).sum();
    // The more memory, the more layers of a shard are fetched together, up to all eight. If two layers of a row of
    // shards do not fit in 1/8 of the memory, each layer is fetched alone, with the gaps between its inner chunks.
    for (mebibytes, tenths, requests) in [
        (4, 20, 520),
        (8, 20, 520),
        (16, 11, 270),
        (32, 11, 40),
        (64, 11, 12),
    ] {
        let store = rows.counted();
        let file = rows.open(&store, mebibytes << 20);
        rows.read_whole(&file, &[1 << 20]);
        let (found, most) = rows.counts(&store);
        let all: usize = found.iter().sum();
        let bytes = store.0.bytes.load(Ordering::SeqCst) as u64;
        let counts = format!("{all} requests, {bytes} of {stored} bytes, {most} times at most");
        assert!(bytes * 10 <= stored * tenths, "{mebibytes} MiB: {counts}");
        assert!(all <= requests, "{mebibytes} MiB: {counts}");
    }
}

#[test]
fn two_sequential_readers_fetch_an_inner_chunk_at_most_twice() {
    let rows = MortonArray::new(TWO_ROWS);
    let store = rows.counted();
    let first = rows.open(&store, 64 << 20);
    let second = FlatFile::new(first.array().clone(), Region::whole(&rows.shape)).unwrap();
    std::thread::scope(|threads| {
        for file in [&first, &second] {
            threads.spawn(|| rows.read_whole(file, &[256 << 10]));
        }
    });
    let (requests, most) = rows.counts(&store);
    // A single reader needs at most 12 requests. On a busy machine, two readers drift apart, and inner chunks that one
    // has consumed are fetched again for the other.
    assert!(
        requests.iter().sum::<usize>() <= 24,
        "{requests:?} requests"
    );
    assert!(most <= 2, "an inner chunk was fetched {most} times");
}

/// Invariant of `adjacent_inner_chunks_are_read_together`.
#[test]
fn a_shard_overwritten_during_a_sequential_read_is_never_mixed() {
    let rows = MortonArray::new(TWO_ROWS);
    let key = Key::new("c/0/0/0").unwrap();
    let stored = rows
        .memory
        .get(&UNLIMITED, &key, u64::MAX)
        .unwrap()
        .unwrap()
        .bytes;
    let mut inverted = stored.clone();
    let index = rows.shards[&key][0].start as usize;
    inverted[..index].iter_mut().for_each(|byte| *byte ^= 0xff);
    for turn in 1..8 {
        rows.memory.set(key.clone(), stored.clone());
        let store = rows.counted();
        let (rewritten, name) = (inverted.clone(), key.clone());
        let rewrite: Hook = Box::new(move |memory| memory.set(name.clone(), rewritten.clone()));
        *store.0.hook.lock().unwrap() = Some((turn, rewrite));
        let file = rows.open(&store, 64 << 20);
        for start in (0..rows.whole.len()).step_by(1 << 20) {
            let range = start as u64..(start as u64 + (1 << 20));
            let found = match file.read(&UNLIMITED, range) {
                Ok(found) => found,
                Err(error) => {
                    assert_eq!(error.kind(), Kind::Changed, "{error}");
                    continue;
                }
            };
            // The elements of a row that are in one inner chunk are all old or all new.
            let expected = &rows.whole[start..start + (1 << 20)];
            for (found, expected) in found.chunks(16).zip(expected.chunks(16)) {
                let is_other = || found.iter().zip(expected).all(|(a, b)| *a == b ^ 0xff);
                assert!(
                    found == expected || is_other(),
                    "turn {turn}, after {start}"
                );
            }
        }
        let has_changed = store.0.hook.lock().unwrap().is_none();
        if has_changed {
            // A program that opens the array after the overwrite reads the new elements.
            let file = rows.open(&store, 64 << 20);
            let found = file.read(&UNLIMITED, 0..128).unwrap();
            assert!(
                found.iter().zip(&rows.whole).all(|(a, b)| *a == b ^ 0xff),
                "turn {turn}"
            );
        }
    }
}
