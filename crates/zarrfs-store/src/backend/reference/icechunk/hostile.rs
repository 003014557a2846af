//! Tests Icechunk repositories that are damaged or made to do harm.
//!
//! Whatever the files contain, opening, listing and reading must return, with an error or with bytes.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use super::file::{HEADER_LEN, Id};
use super::{Icechunk, RepositoryStores, Revision};
use crate::backend::memory::MemoryStore;
use crate::backend::reference::targets::{OpenPrefix, Targets, VirtualPrefix};
use crate::request_context::UNLIMITED;
use crate::stats::Stats;
use crate::sync::budget::MemoryBudget;
use crate::{Condition, EntryKind, Key, PutBody, Store};
use zarr_format::error::{Kind, Result};

/// Maximum number of names that a walk through a store lists in each directory.
const MAX_NAMES: usize = 5000;

/// The files of an Icechunk repository: key and content.
type Files = Vec<(String, Vec<u8>)>;

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

fn store_of(files: &Files) -> MemoryStore {
    let store = MemoryStore::default();
    for (name, bytes) in files {
        let body = PutBody::Bytes(bytes);
        store
            .put(&UNLIMITED, &key(name), body, &Condition::Any)
            .unwrap();
    }
    store
}

/// Opens an Icechunk repository at a revision. Virtual chunks may refer to objects below /allowed.
fn repository_at(store: &MemoryStore, revision: Revision) -> Arc<Icechunk> {
    let store: Arc<dyn Store> = Arc::new(store.clone());
    let open: OpenPrefix = Box::new(|_, _, _| Ok(Arc::new(MemoryStore::default())));
    let allowed = vec![VirtualPrefix::parse("/allowed").unwrap()];
    let targets = Targets::new(Some(store.clone()), allowed, open);
    let memory = MemoryBudget::new(32 << 20, Arc::new(Stats::default()));
    let stores = RepositoryStores {
        heads: store.clone(),
        objects: store,
    };
    Arc::new(Icechunk::new(stores, revision, targets, &memory))
}

fn repository(files: &Files) -> Arc<Icechunk> {
    repository_at(&store_of(files), Revision::default())
}

/// What a store answered to a question about a key.
#[derive(Clone, Debug, PartialEq)]
enum Answer {
    /// The names that the store lists below a prefix.
    Names(Vec<(Vec<u8>, EntryKind)>),
    /// Kind and size of a key, or `None` if the key is missing.
    Entry(Option<(EntryKind, u64)>),
    /// The bytes of a key's object, or `None` if the object is missing.
    Bytes(Option<Vec<u8>>),
    Log(String),
}

/// All answers of a store, by question and key, and the number of questions that failed.
#[derive(Default)]
struct Walk {
    answers: BTreeMap<(&'static str, Key), Answer>,
    errors: usize,
}

impl Walk {
    fn record(&mut self, question: &'static str, key: &Key, answer: Result<Answer>) {
        match answer {
            Ok(answer) => {
                self.answers.insert((question, key.clone()), answer);
            }
            Err(_) => self.errors += 1,
        }
    }
}

/// Returns the names below a prefix; at most `MAX_NAMES`, since a hostile repository may list forever.
fn list(store: &dyn Store, prefix: &Key) -> Result<Vec<(Vec<u8>, EntryKind)>> {
    let mut listing = store.list(&UNLIMITED, prefix)?;
    let mut names = Vec::new();
    while let Some(name) = listing.next(&UNLIMITED)? {
        prefix.child(&name.name)?;
        names.push((name.name, name.kind));
        if names.len() == MAX_NAMES {
            break;
        }
    }
    Ok(names)
}

/// Lists all directories and reads all objects of a store.
fn walk(store: &dyn Store) -> Walk {
    let (mut walk, mut open, mut count) = (Walk::default(), vec![Key::root()], 0);
    while let Some(prefix) = open.pop() {
        let names = list(store, &prefix);
        walk.record("list", &prefix, names.clone().map(Answer::Names));
        for (name, kind) in names.unwrap_or_default() {
            let key = prefix.child(&name).unwrap();
            count += 1;
            let head = store.head(&UNLIMITED, &key);
            let head = head.map(|meta| meta.map(|meta| (meta.kind, meta.size)));
            walk.record("head", &key, head.map(Answer::Entry));
            if kind == EntryKind::Directory {
                open.push(key);
            } else {
                let object = store.get(&UNLIMITED, &key, 1 << 20);
                let bytes = object.map(|object| object.map(|object| object.bytes.to_vec()));
                walk.record("get", &key, bytes.map(Answer::Bytes));
            }
        }
        if count > MAX_NAMES {
            break;
        }
    }
    walk
}

/// Lists and reads an Icechunk repository with its log, branches and tags, as a mount does.
fn use_all(files: &Files) -> [Walk; 2] {
    let repository = repository(files);
    let mut content = match repository.store(&UNLIMITED) {
        Ok(store) => walk(&*store),
        Err(_) => Walk {
            errors: 1,
            ..Walk::default()
        },
    };
    let log = repository.log(&UNLIMITED).map(Answer::Log);
    content.record("log", &Key::root(), log);
    [content, walk(&*repository.refs())]
}

/// Returns the files of a test repository, decompressed, without chunks and transaction logs.
fn fixture(name: &str) -> Files {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/icechunk");
    let folder = tempfile::tempdir().unwrap();
    let mut tar = Command::new("tar");
    tar.arg("-xzf")
        .arg(root.join(format!("{name}.tar.gz")))
        .arg("-C")
        .arg(folder.path());
    assert!(tar.status().unwrap().success());
    let (repo, mut files) = (folder.path().join("repo"), Vec::new());
    let mut open = vec![repo.clone()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let name = path.strip_prefix(&repo).unwrap().to_str().unwrap();
            if !name.starts_with("transactions") && !name.starts_with("overwritten") {
                files.push((name.to_string(), plain(std::fs::read(&path).unwrap())));
            }
        }
    }
    files.sort();
    files
}

/// Returns an Icechunk file with its content decompressed, so that tests can damage the content.
fn plain(file: Vec<u8>) -> Vec<u8> {
    if !super::file::is_icechunk(&file) || file[HEADER_LEN - 1] == 0 {
        return file;
    }
    let content = zstd::decode_all(&file[HEADER_LEN..]).unwrap();
    let mut header = file[..HEADER_LEN].to_vec();
    header[HEADER_LEN - 1] = 0;
    [header, content].concat()
}

/// Returns a generator of pseudo-random numbers that are the same in each run.
fn numbers(mut state: u64) -> impl FnMut() -> usize {
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 11).unwrap()
    }
}

#[test]
fn fixtures_read_without_errors() {
    for name in ["expired1", "expired2", "history1", "history2"] {
        let files = fixture(name);
        let store = repository(&files).store(&UNLIMITED).unwrap();
        let found = walk(&*store);
        let (names, errors) = (found.answers.len(), found.errors);
        assert!(names > 6 && errors == 0, "{name}: {errors} errors");
    }
}

/// If a file of a repository is truncated, every answer of the store is right or an error.
#[test]
fn truncated_files_give_errors_and_no_wrong_answers() {
    for fixture_name in ["expired1", "expired2"] {
        let files = fixture(fixture_name);
        let whole = use_all(&files);
        for (number, (name, bytes)) in files.iter().enumerate() {
            if name.starts_with("chunks") {
                continue;
            }
            // The file is cut at each of the first 40 bytes, where most FlatBuffers tables are, and then at every 97th
            // byte.
            for length in (0..bytes.len()).filter(|length| *length < 40 || length % 97 == 0) {
                let mut files = files.clone();
                files[number].1.truncate(length);
                let cut = use_all(&files);
                let case = format!(
                    "{fixture_name}: {length} of {} bytes of {name}",
                    bytes.len()
                );
                for (cut, whole) in cut.iter().zip(&whole) {
                    for (question, answer) in &cut.answers {
                        assert_eq!(
                            Some(answer),
                            whole.answers.get(question),
                            "{case}: {question:?}"
                        );
                    }
                }
                // An error is expected, except that reads do not need config.yaml, and the last bytes of a file may be
                // in no field that is read.
                let is_needed = name != "config.yaml" && length + 32 < bytes.len();
                let errors: usize = cut.iter().map(|cut| cut.errors).sum();
                assert!(errors > 0 || !is_needed, "{case}");
            }
        }
    }
}

#[test]
fn flipped_bits_cause_no_panic() {
    for name in ["expired1", "expired2", "history1", "history2"] {
        let files = fixture(name);
        let mut next = numbers(49);
        let rounds = if name.starts_with("history") { 8 } else { 80 };
        for _ in 0..rounds {
            let mut files = files.clone();
            for _ in 0..1 + next() % 4 {
                let file = next() % files.len();
                let bytes = &mut files[file].1;
                let at = next() % bytes.len().max(1);
                if bytes.is_empty() {
                    continue;
                }
                bytes[at] = match next() % 3 {
                    0 => bytes[at] ^ (1 << (next() % 8)),
                    1 => 0xff,
                    _ => 0,
                };
            }
            use_all(&files);
        }
    }
}

/// The value of a field in a FlatBuffers table that a test builds.
enum Field {
    /// A number or a struct.
    Fixed(Vec<u8>),
    /// The number of elements and the bytes of a vector or string.
    Vector(usize, Vec<u8>),
    Table(Table),
    Tables(Vec<Table>),
    /// A vector of this length whose elements all refer to the same table.
    Same(usize, Table),
}

/// The fields of a FlatBuffers table that a test builds, by number.
type Table = Vec<(usize, Field)>;

fn text(text: &str) -> Field {
    Field::Vector(text.len(), text.as_bytes().to_vec())
}

/// Returns a FlatBuffers buffer with the root table `root`.
fn buffer(root: &Table) -> Vec<u8> {
    let mut out = vec![0; 4];
    let position = write_table(&mut out, root);
    patch(&mut out, 0, position);
    out
}

fn patch(out: &mut [u8], field: usize, target: usize) {
    let offset = u32::try_from(target - field).unwrap();
    out[field..field + 4].copy_from_slice(&offset.to_le_bytes());
}

fn write_table(out: &mut Vec<u8>, table: &Table) -> usize {
    let count = table
        .iter()
        .map(|(number, _)| number + 1)
        .max()
        .unwrap_or(0);
    let vtable = out.len();
    out.extend(u16::try_from(4 + 2 * count).unwrap().to_le_bytes());
    out.extend([0; 2]);
    out.resize(out.len() + 2 * count, 0);
    let start = out.len();
    out.extend(i32::try_from(start - vtable).unwrap().to_le_bytes());
    let mut offsets = Vec::new();
    for (number, field) in table {
        let at = out.len();
        let entry = vtable + 4 + 2 * number;
        out[entry..entry + 2].copy_from_slice(&u16::try_from(at - start).unwrap().to_le_bytes());
        match field {
            Field::Fixed(bytes) => out.extend(bytes),
            _ => {
                out.extend([0; 4]);
                offsets.push((at, field));
            }
        }
    }
    for (at, field) in offsets {
        let target = write_field(out, field);
        patch(out, at, target);
    }
    start
}

fn write_field(out: &mut Vec<u8>, field: &Field) -> usize {
    let position = out.len();
    let length = |length: usize| u32::try_from(length).unwrap().to_le_bytes();
    match field {
        Field::Fixed(_) => unreachable!(),
        Field::Vector(count, bytes) => {
            out.extend(length(*count));
            out.extend(bytes);
        }
        Field::Table(table) => return write_table(out, table),
        Field::Tables(tables) => {
            out.extend(length(tables.len()));
            out.resize(out.len() + 4 * tables.len(), 0);
            for (index, table) in tables.iter().enumerate() {
                let target = write_table(out, table);
                patch(out, position + 4 + 4 * index, target);
            }
        }
        Field::Same(count, table) => {
            out.extend(length(*count));
            out.resize(out.len() + 4 * count, 0);
            let target = write_table(out, table);
            for index in 0..*count {
                patch(out, position + 4 + 4 * index, target);
            }
        }
    }
    position
}

/// Returns an Icechunk file that contains a FlatBuffers buffer.
fn file(kind: u8, compression: u8, body: &[u8]) -> Vec<u8> {
    let magic = b"ICE\xf0\x9f\xa7\x8aCHUNK";
    [magic, [b' '; 24].as_slice(), &[1, kind, compression], body].concat()
}

const SNAPSHOT: Id = Id([1; 12]);
const MANIFEST: Id = Id([2; 12]);

fn node(path: &str, document: &str, array: Option<Table>) -> Table {
    let mut table = vec![
        (0, Field::Fixed(vec![7; 8])),
        (1, text(path)),
        (2, text(document)),
        (3, Field::Fixed(vec![u8::from(array.is_some())])),
    ];
    table.extend(array.map(|array| (4, Field::Table(array))));
    table
}

/// Returns an Icechunk array node with one dimension and `chunks` chunks, whose manifest covers `extent`.
fn array(chunks: u64, extent: [u32; 2]) -> Table {
    let shape = [chunks.to_le_bytes(), 1u64.to_le_bytes()].concat();
    let extent = extent.map(u32::to_le_bytes).concat();
    let manifest = vec![
        (0, Field::Fixed(MANIFEST.0.to_vec())),
        (1, Field::Vector(1, extent)),
    ];
    vec![
        (0, Field::Vector(1, shape)),
        (2, Field::Tables(vec![manifest])),
    ]
}

fn chunk(coordinates: &[u32], more: Table) -> Table {
    let bytes: Vec<u8> = coordinates.iter().flat_map(|at| at.to_le_bytes()).collect();
    let mut table = vec![(0, Field::Vector(coordinates.len(), bytes))];
    table.extend(more);
    table
}

fn inline(coordinate: u32) -> Table {
    chunk(&[coordinate], vec![(1, text("bytes"))])
}

fn virtual_chunk(coordinate: u32, location: &str) -> Table {
    let length = Field::Fixed(5u64.to_le_bytes().to_vec());
    chunk(&[coordinate], vec![(3, length), (5, text(location))])
}

fn manifest(chunks: Field) -> Table {
    let references = vec![(0, Field::Fixed(vec![7; 8])), (1, chunks)];
    vec![(1, Field::Tables(vec![references]))]
}

fn snapshot(nodes: Field) -> Table {
    let id = Field::Fixed(SNAPSHOT.0.to_vec());
    vec![(0, id), (2, nodes), (4, text("a message"))]
}

/// Returns the files of a repository of Icechunk specification 1.
fn files(snapshot: &Table, manifest: &Table) -> Files {
    vec![
        (
            "refs/branch.main/ref.json".to_string(),
            format!(r#"{{"snapshot": "{SNAPSHOT}"}}"#).into_bytes(),
        ),
        (
            format!("snapshots/{SNAPSHOT}"),
            file(1, 0, &buffer(snapshot)),
        ),
        (
            format!("manifests/{MANIFEST}"),
            file(2, 0, &buffer(manifest)),
        ),
    ]
}

fn with_array(array: Table, chunks: Vec<Table>) -> Files {
    let nodes = vec![node("/", "{}", None), node("/a", "{}", Some(array))];
    files(
        &snapshot(Field::Tables(nodes)),
        &manifest(Field::Tables(chunks)),
    )
}

fn names(store: &dyn Store, prefix: &str) -> Vec<String> {
    let mut listing = store.list(&UNLIMITED, &key(prefix)).unwrap();
    let next = || listing.next(&UNLIMITED).unwrap();
    std::iter::from_fn(next)
        .map(|name| String::from_utf8(name.name).unwrap())
        .collect()
}

/// Returns the kind of the error when a key is read, which must fail.
fn failure(store: &dyn Store, name: &str) -> Kind {
    store
        .get(&UNLIMITED, &key(name), 1 << 20)
        .unwrap_err()
        .kind()
}

fn opened(files: &Files) -> Arc<dyn Store> {
    repository(files).store(&UNLIMITED).unwrap()
}

/// Returns the kind of the error when the repository is opened, which must fail.
fn refusal(files: &Files) -> Kind {
    repository(files).store(&UNLIMITED).err().unwrap().kind()
}

#[test]
fn a_valid_repository_is_read() {
    let store = opened(&with_array(array(10, [0, 10]), vec![inline(2), inline(5)]));
    assert_eq!(names(&*store, "a/c"), ["2", "5"]);
    let object = store.get(&UNLIMITED, &key("a/c/5"), 100).unwrap().unwrap();
    assert_eq!(object.bytes, b"bytes");
    assert!(store.get(&UNLIMITED, &key("a/c/3"), 100).unwrap().is_none());
}

#[test]
fn unsorted_or_repeated_entries_are_corrupt() {
    let store = opened(&with_array(array(10, [0, 10]), vec![inline(5), inline(2)]));
    assert_eq!(failure(&*store, "a/c/2"), Kind::Corrupt);
    let store = opened(&with_array(array(10, [0, 10]), vec![inline(5), inline(5)]));
    assert_eq!(failure(&*store, "a/c/5"), Kind::Corrupt);
    let nodes = vec![
        node("/", "{}", None),
        node("/b", "{}", None),
        node("/a", "{}", None),
    ];
    let made = files(
        &snapshot(Field::Tables(nodes)),
        &manifest(Field::Tables(vec![])),
    );
    assert_eq!(refusal(&made), Kind::Corrupt);
    let made = files(
        &snapshot(Field::Same(9, node("/", "{}", None))),
        &Table::new(),
    );
    assert_eq!(refusal(&made), Kind::Corrupt);
}

#[test]
fn missing_files_are_errors() {
    let mut made = with_array(array(10, [0, 10]), vec![inline(2)]);
    made.retain(|(name, _)| !name.starts_with("manifests"));
    assert_eq!(failure(&*opened(&made), "a/c/2"), Kind::Unavailable);
    made.retain(|(name, _)| !name.starts_with("snapshots"));
    assert_eq!(refusal(&made), Kind::Unavailable);
    let id = Field::Fixed(vec![3; 12]);
    let length = Field::Fixed(5u64.to_le_bytes().to_vec());
    let native = chunk(&[2], vec![(3, length), (4, id)]);
    let store = opened(&with_array(array(10, [0, 10]), vec![native]));
    assert_eq!(failure(&*store, "a/c/2"), Kind::Corrupt);
}

#[test]
fn a_snapshot_under_another_name_is_corrupt() {
    let mut made = with_array(array(10, [0, 10]), vec![]);
    let name = format!("snapshots/{}", Id([9; 12]));
    let content = made[1].1.clone();
    made.push((name, content));
    let revision = Revision::Snapshot(Id([9; 12]).to_string());
    let error = repository_at(&store_of(&made), revision)
        .store(&UNLIMITED)
        .err()
        .unwrap();
    assert_eq!(error.kind(), Kind::Corrupt);
}

#[test]
fn chunks_outside_the_grid_are_hidden() {
    let chunks = || vec![inline(2), inline(10), inline(u32::MAX)];
    let store = opened(&with_array(array(10, [0, u32::MAX]), chunks()));
    assert_eq!(names(&*store, "a/c"), ["2"]);
    assert!(
        store
            .get(&UNLIMITED, &key("a/c/10"), 100)
            .unwrap()
            .is_none()
    );
    // An array with 2^64 - 1 chunks, the largest number that its shape can state, still lists.
    let store = opened(&with_array(array(u64::MAX, [0, u32::MAX]), chunks()));
    assert_eq!(names(&*store, "a/c"), ["2", "10"]);
    // A manifest's references to chunks outside the box of chunks that it covers are ignored.
    let store = opened(&with_array(array(10, [5, 8]), chunks()));
    assert!(store.get(&UNLIMITED, &key("a/c/2"), 100).unwrap().is_none());
    // Chunk references with too many coordinates or too few.
    let odd = vec![
        chunk(&[], vec![]),
        chunk(&[2, 3], vec![]),
        chunk(&[4; 300], vec![]),
    ];
    let store = opened(&with_array(array(10, [0, 10]), odd));
    assert_eq!(failure(&*store, "a/c/2"), Kind::Corrupt);
    let odd = vec![chunk(&[], vec![]), chunk(&[2, 3], vec![])];
    let store = opened(&with_array(array(10, [0, 10]), odd));
    assert!(store.get(&UNLIMITED, &key("a/c/2"), 100).unwrap().is_none());
}

#[test]
fn vectors_longer_than_the_buffer_are_corrupt() {
    let huge = || Field::Vector(u32::MAX as usize, vec![0; 8]);
    let made = files(&snapshot(huge()), &Table::new());
    assert_eq!(refusal(&made), Kind::Corrupt);
    let mut made = with_array(array(10, [0, 10]), vec![]);
    made[2].1 = file(2, 0, &buffer(&manifest(huge())));
    assert_eq!(failure(&*opened(&made), "a/c/2"), Kind::Corrupt);
}

#[test]
fn a_manifest_that_repeats_one_array_is_corrupt() {
    let chunks: Vec<Table> = (0..2000).map(inline).collect();
    let references = vec![(0, Field::Fixed(vec![8; 8])), (1, Field::Tables(chunks))];
    let mut made = with_array(array(10, [0, 10]), vec![]);
    let shared = vec![(1, Field::Same(100_000, references))];
    made[2].1 = file(2, 0, &buffer(&shared));
    assert_eq!(failure(&*opened(&made), "a/c/2"), Kind::Corrupt);
}

#[test]
fn a_decompression_bomb_is_too_large() {
    let bomb = zstd::encode_all(std::io::Read::take(std::io::repeat(0), 128 << 20), 1).unwrap();
    // The zstd frame does not state its decompressed length, so only the limit can stop the decompression.
    assert!(bomb.len() < 1 << 20);
    let mut made = with_array(array(10, [0, 10]), vec![inline(2)]);
    made[2].1 = file(2, 1, &bomb);
    assert_eq!(failure(&*opened(&made), "a/c/2"), Kind::TooLarge);
    made[1].1 = file(1, 1, &bomb);
    assert_eq!(refusal(&made), Kind::TooLarge);
    // The zstd frame states a wrong decompressed length.
    let mut liar = zstd::bulk::compress(&[0; 1000], 1).unwrap();
    let length = zstd::zstd_safe::get_frame_content_size(&liar);
    assert_eq!(length.ok().flatten(), Some(1000));
    liar[5] = 0xff;
    made[1].1 = file(1, 1, &liar);
    assert!(matches!(refusal(&made), Kind::Corrupt | Kind::TooLarge));
}

#[test]
fn locations_outside_allowed_prefixes_are_refused() {
    for (location, expected) in [
        ("file:///etc/passwd", Kind::Denied),
        ("/etc/passwd", Kind::Denied),
        ("/allowed/../etc/passwd", Kind::Invalid),
        ("file:///allowed/%2e%2e/etc/passwd", Kind::Invalid),
        ("/allowed/absent", Kind::Corrupt),
        ("vcc://none/a", Kind::Corrupt),
        ("vcc://none", Kind::Denied),
        ("s3://bucket/a", Kind::Denied),
        ("http://169.254.169.254/latest", Kind::Denied),
        ("no URL", Kind::Denied),
    ] {
        let store = opened(&with_array(
            array(10, [0, 10]),
            vec![virtual_chunk(2, location)],
        ));
        assert_eq!(failure(&*store, "a/c/2"), expected, "{location}");
        assert_eq!(names(&*store, "a/c"), ["2"]);
    }
    let offset = Field::Fixed(u64::MAX.to_le_bytes().to_vec());
    let length = Field::Fixed(u64::MAX.to_le_bytes().to_vec());
    let far = chunk(
        &[2],
        vec![(2, offset), (3, length), (5, text("/allowed/a"))],
    );
    let store = opened(&with_array(array(10, [0, 10]), vec![far]));
    let range = crate::ByteRange::Span(1..u64::MAX);
    let error = store
        .get_range(&UNLIMITED, &key("a/c/2"), range)
        .err()
        .unwrap();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(store.get(&UNLIMITED, &key("a/c/2"), 100).is_err());
}

#[test]
fn nodes_with_invalid_paths_are_hidden() {
    let nodes = vec![
        node("/", "{}", None),
        node("/../x", "{}", None),
        node("//", "{}", None),
        node("/a", "{not json", None),
        node("/b/c", "{}", None),
        node("/z/", "{}", None),
        node("/\u{0}", "{}", None),
    ];
    let mut nodes = nodes;
    nodes.sort_by_key(|node| match &node[1].1 {
        Field::Vector(_, bytes) => bytes.clone(),
        _ => Vec::new(),
    });
    let made = files(
        &snapshot(Field::Tables(nodes)),
        &manifest(Field::Tables(vec![])),
    );
    let store = opened(&made);
    assert_eq!(names(&*store, ""), ["a", "zarr.json"]);
    let document = store
        .get(&UNLIMITED, &key("a/zarr.json"), 100)
        .unwrap()
        .unwrap();
    assert_eq!(document.bytes, b"{not json");
    walk(&*store);
}

#[test]
fn messages_cannot_control_a_terminal() {
    let nodes = Field::Tables(vec![node("/", "{}", None)]);
    let id = Field::Fixed(SNAPSHOT.0.to_vec());
    let message = format!("\u{1b}[2J{}\r\nsecond", "long ".repeat(1000));
    let parent = Field::Fixed(SNAPSHOT.0.to_vec());
    // The snapshot names itself as its parent, so that its history is a cycle.
    let snapshot = vec![(0, id), (1, parent), (2, nodes), (4, text(&message))];
    let made = files(&snapshot, &Table::new());
    let log = repository(&made).log(&UNLIMITED).unwrap();
    assert_eq!(log.lines().count(), 1);
    assert!(log.contains("[2Jlong") && log.len() < 300 && !log.contains('\u{1b}'));
}
