//! Compares writes through the files of an array with writes to a plain buffer.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier};

use proptest::prelude::*;
use serde_json::json;
use zarr_format::error::Kind;
use zarrfs_export::formats::Export;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::sync::read_bytes::ReadAt;
use zarrfs_store::{Key, Store};

use crate::common::sample::{Form, Sample};
use crate::dialects::hierarchies::key;
use crate::dialects::written;
use crate::writing::array_spec::{ArraySpec, array_specs};
use crate::writing::fixture::{Fixture, Full, all, limits};
use zarrfs_store::request_context::{UNLIMITED, WITHOUT_WAITING};

/// A write or flush that a program makes.
#[derive(Clone, Debug)]
enum Step {
    /// Writes bytes that are generated from a seed, at some offset of the raw file or the npy file.
    Write(bool, u64, u64, u8),
    /// Writes a whole chunk through the file of that chunk.
    Chunk(u64, u8),
    Flush,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let write = (any::<bool>(), any::<u64>(), 1u64..200, any::<u8>());
    let step = prop_oneof![
        6 => write.prop_map(|(npy, at, length, seed)| Step::Write(npy, at, length, seed)),
        2 => (any::<u64>(), any::<u8>()).prop_map(|(chunk, seed)| Step::Chunk(chunk, seed)),
        2 => Just(Step::Flush),
    ];
    prop::collection::vec(step, 1..20)
}

fn noise(length: usize, seed: u8) -> Vec<u8> {
    (0..length)
        .map(|n| (n as u8).wrapping_mul(31).wrapping_add(seed))
        .collect()
}

/// The open files of an array, and the elements that they are expected to contain.
struct ArrayFixture {
    fixture: Fixture,
    raw: Export,
    npy: Export,
    expected: Vec<u8>,
}

impl ArrayFixture {
    fn new(memory: &MemoryStore, path: &str, budget: u64) -> ArrayFixture {
        let fixture = Fixture::new(Arc::new(memory.clone()), limits(budget));
        let (raw, npy) = (fixture.file(path, "raw"), fixture.file(path, "npy"));
        let expected = all(&raw);
        ArrayFixture {
            fixture,
            raw,
            npy,
            expected,
        }
    }

    fn header(&self) -> u64 {
        self.npy.len() - self.raw.len()
    }

    fn write(&mut self, is_npy: bool, at: u64, length: u64, seed: u8) {
        let size = self.raw.len();
        let at = at % (size + 1);
        let bytes = noise(length.min(size - at) as usize, seed);
        if is_npy {
            self.npy
                .write_at(&UNLIMITED, self.header() + at, &bytes)
                .unwrap()
        } else {
            self.raw.write_at(&UNLIMITED, at, &bytes).unwrap()
        }
        let range = at as usize..at as usize + bytes.len();
        self.expected[range].copy_from_slice(&bytes);
    }

    /// Writes a whole chunk through the file of that chunk, and updates the expected elements.
    fn write_chunk(&mut self, chunk: u64, seed: u8) {
        let array = self.raw.array().clone();
        let grid = array.stored_grid().unwrap().clone();
        let indices = grid.indices(zarr_format::grid::ChunkIndex(chunk % grid.len()));
        let file = self.fixture.chunk("a", &indices);
        let bytes = noise(file.len() as usize, seed);
        file.write_at(&UNLIMITED, 0, &bytes).unwrap();
        assert_eq!(all(&file), bytes);
        let region = grid.region(&indices);
        let (from, to) = (
            zarr_format::grid::Layout {
                start: &region.start,
                shape: &region.shape,
                skipped: 0,
            },
            zarr_format::grid::Layout {
                start: &vec![0; region.start.len()],
                shape: &array.array().shape,
                skipped: 0,
            },
        );
        let size = array.array().element_size().unwrap();
        zarr_format::grid::Runs::new(&region, from, to, size).copy(&bytes, &mut self.expected);
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Write(is_npy, at, length, seed) => self.write(is_npy, at, length, seed),
            Step::Chunk(chunk, seed) => self.write_chunk(chunk, seed),
            Step::Flush => self.raw.array().flush(&UNLIMITED).unwrap(),
        }
        assert_eq!(all(&self.raw), self.expected);
        assert_eq!(all(&self.npy)[self.header() as usize..], self.expected);
        if let Ok(now) = self.raw.read_at(&WITHOUT_WAITING, 0, self.expected.len()) {
            assert_eq!(&now[..], self.expected);
        }
    }
}

fn check(spec: &ArraySpec, steps: &[Step], budget: u64) {
    let memory = spec.store();
    let mut fixture = ArrayFixture::new(&memory, "a", budget);
    steps.iter().for_each(|step| fixture.step(step));
    fixture.raw.array().flush(&UNLIMITED).unwrap();
    assert_eq!(all(&fixture.raw), fixture.expected);
    assert_eq!(Fixture::of(&memory).read("a"), fixture.expected);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    /// Invariant (writing): Any write of any range has the effect of the same write to a plain buffer, before and after
    /// it is stored.
    #[test]
    fn any_write_equals_the_write_to_a_buffer(spec in array_specs(), steps in steps()) {
        check(&spec, &steps, 64 << 20);
    }

    #[test]
    fn little_memory_only_stores_chunks_sooner(spec in array_specs(), steps in steps()) {
        // The memory budget has room for three of the largest chunks.
        check(&spec, &steps, 3 * 8 * 32 * 32 * 32 + 400_000);
    }
}

#[test]
fn every_dialect_is_written_in_its_own_form() {
    let all_stores = written::STORES
        .iter()
        .map(|(dialect, variant, store)| (format!("{dialect} {variant}"), store()))
        .chain([
            ("sharded2020".to_string(), written::sharded2020()),
            ("n5".to_string(), written::n5()),
        ]);
    for (name, memory) in all_stores {
        let mut fixture = ArrayFixture::new(&memory, "a/b", 64 << 20);
        let before: Vec<String> = keys(&memory);
        // The writes change two bytes of one element, one and a half elements across a chunk boundary, and an element
        // of a missing chunk.
        fixture.write(false, 0, 2, 1);
        fixture.write(true, 9, 3, 2);
        fixture.write(false, 4, 2, 3);
        fixture.raw.array().flush(&UNLIMITED).unwrap();
        assert_eq!(Fixture::of(&memory).read("a/b"), fixture.expected, "{name}");
        let after = keys(&memory);
        let added: Vec<&String> = after.iter().filter(|key| !before.contains(key)).collect();
        let most = if name == "sharded2020" { 0 } else { 1 };
        assert_eq!(added.len(), most, "{name}: {added:?}");
        let is_like = |key: &String| before.iter().any(|known| known.len() == key.len());
        assert!(added.iter().all(|key| is_like(key)), "{name}: {added:?}");
    }
}

fn keys(memory: &MemoryStore) -> Vec<String> {
    fn walk(memory: &MemoryStore, prefix: &Key, found: &mut Vec<String>) {
        let mut listing = memory.list(&UNLIMITED, prefix).unwrap();
        while let Some(name) = listing.next(&UNLIMITED).unwrap() {
            let key = prefix.child(&name.name).unwrap();
            match name.kind {
                zarrfs_store::EntryKind::Directory => walk(memory, &key, found),
                _ => found.push(key.to_string()),
            }
        }
    }
    let mut found = Vec::new();
    walk(memory, &Key::root(), &mut found);
    found
}

fn sample(form: Form) -> (MemoryStore, Sample) {
    let memory = MemoryStore::default();
    let sample = Sample::new(&[20, 24], &[8, 8], form);
    sample.put(&memory, "a");
    (memory, sample)
}

fn stored(memory: &MemoryStore, name: &str) -> Option<Vec<u8>> {
    let object = memory.get(&UNLIMITED, &key(name), 1 << 20).unwrap();
    object.map(|object| object.bytes)
}

#[test]
fn a_chunk_that_is_written_whole_is_not_read() {
    let (memory, _) = sample(Form::Packed);
    memory.set(key("a/c/0/1"), b"no chunk".to_vec());
    let fixture = Fixture::of(&memory);
    let chunk = fixture.chunk("a", &[0, 1]);
    assert_eq!(
        chunk.read_at(&UNLIMITED, 0, 1).err().unwrap().kind(),
        Kind::Corrupt
    );
    // A write to a part of the chunk fails, since the rest of the chunk cannot be decoded.
    assert_eq!(
        chunk.write_at(&UNLIMITED, 0, &[1]).unwrap_err().kind(),
        Kind::Corrupt
    );
    chunk.write_at(&UNLIMITED, 0, &[5; 128]).unwrap();
    chunk.array().flush(&UNLIMITED).unwrap();
    assert_eq!(all(&Fixture::of(&memory).chunk("a", &[0, 1])), [5; 128]);
}

#[test]
fn only_written_chunks_are_stored() {
    let (memory, _) = sample(Form::Packed);
    let before: Vec<_> = ["a/c/0/0", "a/c/0/1"]
        .map(|name| stored(&memory, name))
        .into();
    let fixture = Fixture::of(&memory);
    let file = fixture.file("a", "raw");
    file.write_at(&UNLIMITED, 16, &[1, 2]).unwrap();
    assert_eq!(stored(&memory, "a/c/0/1"), before[1]);
    file.array().flush(&UNLIMITED).unwrap();
    assert_eq!(stored(&memory, "a/c/0/0"), before[0]);
    assert_ne!(stored(&memory, "a/c/0/1"), before[1]);
    assert_eq!(fixture.stats.encoded_chunks.get(), 1);
    // A second flush does not store the unmodified chunk again.
    file.array().flush(&UNLIMITED).unwrap();
    assert_eq!(fixture.stats.encoded_chunks.get(), 1);
}

/// Invariant (writing): Subchunks that are not written keep their bytes.
#[test]
fn inner_chunks_that_are_not_written_keep_their_bytes() {
    let (memory, sample) = sample(Form::Sharded(vec![4, 4]));
    let before = stored(&memory, "a/c/0/0").unwrap();
    let fixture = Fixture::of(&memory);
    let file = fixture.file("a", "raw");
    file.write_at(&UNLIMITED, 0, &[9; 4]).unwrap();
    file.array().flush(&UNLIMITED).unwrap();
    let after = stored(&memory, "a/c/0/0").unwrap();
    let inner = |shard: &[u8], n: usize| {
        let index = &shard[shard.len() - 4 - 64..][n * 16..][..16];
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap()) as usize;
        shard[number(&index[..8])..][..number(&index[8..])].to_vec()
    };
    assert_ne!(inner(&after, 0), inner(&before, 0));
    for n in 1..4 {
        assert_eq!(inner(&after, n), inner(&before, n));
    }
    let mut expected = sample.whole();
    expected[..4].fill(9);
    assert_eq!(Fixture::of(&memory).read("a"), expected);
    assert_eq!(fixture.stats.decoded_chunks.get(), 1);
}

#[test]
fn a_write_keeps_padding_at_the_edge() {
    let (memory, _) = sample(Form::Plain);
    let mut chunk = stored(&memory, "a/c/2/0").unwrap();
    // The chunk has rows beyond the edge of the array.
    chunk[64..].fill(0x77);
    memory.set(key("a/c/2/0"), chunk);
    memory.erase(&key("a/c/2/1"));
    let fixture = Fixture::of(&memory);
    let file = fixture.file("a", "raw");
    let row = 16 * 48;
    file.write_at(&UNLIMITED, row, &[1]).unwrap();
    file.write_at(&UNLIMITED, row + 16, &[1]).unwrap();
    file.array().flush(&UNLIMITED).unwrap();
    assert!(
        stored(&memory, "a/c/2/0").unwrap()[64..]
            .iter()
            .all(|&byte| byte == 0x77)
    );
    assert!(
        stored(&memory, "a/c/2/1").unwrap()[1..]
            .iter()
            .all(|&byte| byte == 0xff)
    );
}

#[test]
fn a_chunk_that_could_not_be_stored_stays_dirty() {
    let store = Arc::new(Full::default());
    let sample = Sample::new(&[4], &[2], Form::Packed);
    sample.put(&store.memory, "a");
    let fixture = Fixture::new(store.clone(), limits(64 << 20));
    let file = fixture.file("a", "raw");
    file.write_at(&UNLIMITED, 2, &[1, 2, 3, 4]).unwrap();
    store.is_full.store(true, Ordering::SeqCst);
    for _ in 0..2 {
        let error = file.array().flush(&UNLIMITED).unwrap_err();
        assert_eq!(error.kind(), Kind::NoSpace);
        assert!(error.to_string().contains("a/c/"), "{error}");
    }
    let mut expected = sample.whole();
    expected[2..6].copy_from_slice(&[1, 2, 3, 4]);
    assert_eq!(all(&file), expected);
    // Another handle reads the chunks that are not stored yet, though the handle that wrote them is closed.
    drop(file);
    assert_eq!(fixture.arrays.written_arrays(), [(key("a"), false)]);
    store.is_full.store(false, Ordering::SeqCst);
    let again = fixture.file("a", "raw");
    assert_eq!(all(&again), expected);
    again.array().flush(&UNLIMITED).unwrap();
    assert_eq!(fixture.arrays.written_arrays(), []);
    assert_eq!(Fixture::of(&store.memory).read("a"), expected);
}

#[test]
fn chunks_that_cannot_be_stored_do_not_exceed_memory() {
    let store = Arc::new(Full::default());
    Sample::new(&[1 << 20], &[1 << 15], Form::Packed).put(&store.memory, "a");
    let fixture = Fixture::new(store.clone(), limits(1 << 20));
    let file = fixture.file("a", "raw");
    store.is_full.store(true, Ordering::SeqCst);
    let written = (0..32).map(|chunk| file.write_at(&UNLIMITED, chunk << 16, &[1; 1 << 16]));
    let errors: Vec<_> = written.filter_map(Result::err).collect();
    assert!(!errors.is_empty() && errors.len() < 32);
    assert!(errors.iter().all(|error| error.kind() == Kind::NoSpace));
    assert!(fixture.stats.memory_peak_bytes.get() <= 1 << 20);
    store.is_full.store(false, Ordering::SeqCst);
    file.array().flush(&UNLIMITED).unwrap();
}

/// Invariant of `any_write_equals_the_write_to_a_buffer`.
#[test]
fn concurrent_writes_to_one_chunk_are_all_kept() {
    for form in [Form::Packed, Form::Sharded(vec![16])] {
        let memory = MemoryStore::default();
        Sample::new(&[64], &[64], form).put(&memory, "a");
        let fixture = Fixture::of(&memory);
        let start = Barrier::new(4);
        std::thread::scope(|scope| {
            for writer in 0..4u64 {
                let (fixture, start) = (&fixture, &start);
                scope.spawn(move || {
                    let file = fixture.file("a", "raw");
                    start.wait();
                    // Each thread writes every fourth byte, so that the threads write into the same elements.
                    for round in 0..8u8 {
                        for at in (writer..128).step_by(4) {
                            file.write_at(&UNLIMITED, at, &[round ^ at as u8]).unwrap();
                        }
                        file.array().flush(&UNLIMITED).unwrap();
                    }
                });
            }
        });
        let expected: Vec<u8> = (0..128).map(|at| 7 ^ at).collect();
        assert_eq!(fixture.read("a"), expected);
        assert_eq!(Fixture::of(&memory).read("a"), expected);
    }
}

#[test]
fn readers_do_not_bring_back_older_elements() {
    for form in [Form::Packed, Form::Sharded(vec![8])] {
        let memory = MemoryStore::default();
        Sample::new(&[256], &[32], form).put(&memory, "a");
        let fixture = Fixture::of(&memory);
        let file = fixture.file("a", "raw");
        let is_done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let file = fixture.file("a", "raw");
                    while !is_done.load(Ordering::SeqCst) {
                        all(&file);
                    }
                });
            }
            for round in 0..200u8 {
                file.write_at(&UNLIMITED, 0, &[round; 512]).unwrap();
                file.array().flush(&UNLIMITED).unwrap();
                let read = all(&file);
                is_done.fetch_or(read != [round; 512], Ordering::SeqCst);
                assert_eq!(read, [round; 512]);
            }
            is_done.store(true, Ordering::SeqCst);
        });
    }
}

#[test]
fn writes_beyond_the_end_or_to_the_header_are_refused() {
    let (memory, _) = sample(Form::Packed);
    let fixture = Fixture::of(&memory);
    let (raw, npy) = (fixture.file("a", "raw"), fixture.file("a", "npy"));
    for at in [raw.len(), raw.len() - 1, u64::MAX - 1] {
        assert_eq!(
            raw.write_at(&UNLIMITED, at, &[1, 2]).unwrap_err().kind(),
            Kind::TooLarge
        );
    }
    let header = (npy.len() - raw.len()) as usize;
    let mut whole = all(&npy);
    whole[header] = 1;
    npy.write_at(&UNLIMITED, 0, &whole).unwrap();
    assert_eq!(all(&npy), whole);
    whole[20] ^= 1;
    assert_eq!(
        npy.write_at(&UNLIMITED, 0, &whole).unwrap_err().kind(),
        Kind::Invalid
    );
    assert_eq!(
        npy.write_at(&UNLIMITED, 20, &[1]).unwrap_err().kind(),
        Kind::Invalid
    );
}

/// Returns a store with an array of four elements of a given type.
fn array(data_type: &str, codecs: &serde_json::Value) -> MemoryStore {
    let memory = MemoryStore::default();
    let document = json!({
        "zarr_format": 3, "node_type": "array", "shape": [4], "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}},
        "chunk_key_encoding": {"name": "default"}, "fill_value": 0, "codecs": codecs,
    });
    memory.set(key("a/zarr.json"), document.to_string().into_bytes());
    memory
}

/// Returns a store with an array whose lossy codec keeps three bits of each element's mantissa.
fn rounded() -> MemoryStore {
    let round = json!({"name": "numcodecs.bitround", "configuration": {"keepbits": 3}});
    let bytes = json!({"name": "bytes", "configuration": {"endian": "little"}});
    array("float32", &json!([round, bytes]))
}

/// The kernel keeps the pages as they were written, although the store has rounded elements.
#[test]
fn pages_of_a_lossy_array_are_written_back_repeatedly() {
    let mut allowed = limits(64 << 20);
    allowed.lossy = true;
    let fixture = Fixture::new(Arc::new(rounded()), allowed);
    let array = fixture.array("a");
    array.begin_writing("a.raw").unwrap();
    let file = fixture.file("a", "raw");
    let mut page = file.read_at(&UNLIMITED, 0, 16).unwrap().to_vec();
    for value in [1.001f32, 2.003, 3.007] {
        page[..4].copy_from_slice(&value.to_le_bytes());
        file.write_pages(&UNLIMITED, 0, &page).unwrap();
        array.flush(&UNLIMITED).unwrap();
        assert_eq!(array.lost().0, 0, "{value}");
    }
    array.end_writing();
}

#[test]
fn lossy_and_unknown_encodings_are_not_written() {
    let lossy = rounded();
    let fixture = Fixture::of(&lossy);
    let error = fixture
        .file("a", "raw")
        .write_at(&UNLIMITED, 0, &[1])
        .unwrap_err();
    assert_eq!(error.kind(), Kind::ReadOnly);
    assert!(error.to_string().contains("--lossy"), "{error}");
    let mut allowed = limits(64 << 20);
    allowed.lossy = true;
    let fixture = Fixture::new(Arc::new(lossy), allowed);
    fixture
        .file("a", "raw")
        .write_at(&UNLIMITED, 0, &[1])
        .unwrap();

    let text = Fixture::of(&array("string", &json!(["vlen-utf8"])));
    let error = text
        .file("a", "raw")
        .write_at(&UNLIMITED, 0, &[0])
        .unwrap_err();
    assert_eq!(error.kind(), Kind::ReadOnly);
    let unknown = Fixture::of(&array("uint8", &json!(["bytes", "nobody-knows"])));
    let error = unknown
        .file("a", "raw")
        .write_at(&UNLIMITED, 0, &[0])
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
}

#[test]
fn dirty_chunks_survive_new_attributes_and_a_new_shape() {
    let (memory, sample) = sample(Form::Packed);
    let fixture = Fixture::of(&memory);
    let file = fixture.file("a", "raw");
    file.write_at(&UNLIMITED, 0, &[1, 2]).unwrap();
    let mut metadata = sample.metadata();
    metadata["attributes"] = json!({"unit": "2"});
    memory.set(key("a/zarr.json"), metadata.to_string().into_bytes());
    // After the metadata were replaced, the old handle still writes, and a new handle reads the written elements.
    file.write_at(&UNLIMITED, 2, &[3, 4]).unwrap();
    assert_eq!(fixture.read("a")[..4], [1, 2, 3, 4]);
    metadata["shape"] = json!([40, 24]);
    memory.set(key("a/zarr.json"), metadata.to_string().into_bytes());
    let error = file.write_at(&UNLIMITED, 0, &[9]).unwrap_err();
    assert_eq!(error.kind(), Kind::Changed);
    assert_eq!(fixture.read("a")[..4], [1, 2, 3, 4]);
    file.array().flush(&UNLIMITED).unwrap();
    assert_eq!(Fixture::of(&memory).read("a")[..4], [1, 2, 3, 4]);
}

#[test]
fn a_value_out_of_range_of_a_type_of_few_bits_is_refused() {
    let cases: [(&str, &[u8], &[u8]); 3] = [
        ("int4", &[0, 7, 0xf8, 0xff], &[8, 100, 0xf7, 0x80]),
        ("uint2", &[0, 3], &[4, 100, 0xff]),
        ("float6_e2m3fn", &[0, 0x3f], &[0x40, 0xff]),
    ];
    for (name, held, others) in cases {
        let memory = MemoryStore::default();
        let document = json!({
            "zarr_format": 3, "node_type": "array", "shape": [8], "data_type": name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}},
            "chunk_key_encoding": {"name": "default"}, "fill_value": 0, "codecs": [{"name": "bytes"}],
        });
        memory.set(key("a/zarr.json"), document.to_string().into_bytes());
        let fixture = Fixture::new(Arc::new(memory.clone()), limits(1 << 20));
        let raw = fixture.file("a", "raw");
        raw.write_at(&UNLIMITED, 0, held).unwrap();
        raw.array().flush(&UNLIMITED).unwrap();
        for &other in others {
            let error = raw.write_at(&UNLIMITED, 2, &[held[1], other]).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid, "{name} {other}: {error}");
        }
        raw.array().flush(&UNLIMITED).unwrap();
        let stored = memory
            .get(&UNLIMITED, &key("a/c/0"), 100)
            .unwrap()
            .unwrap()
            .bytes;
        assert_eq!(all(&raw)[..held.len()], *held, "{name}: {stored:?}");
    }
}
