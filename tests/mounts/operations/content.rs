//! Tests contents of files: sizes, any range, many threads, and arrays that do not decode.

use std::thread;

use rustix::io::Errno;
use zarrfs_store::EntryKind;

use crate::common::sample::{Keys, Sample, arrays, places};
use crate::operations::backend::{Backend, Enter, OpenFile};
use crate::operations::fixture::{Fixture, name};
use zarrfs_store::request_context::UNLIMITED;

/// A generator of pseudorandom numbers, which are the same in each run.
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Numbers {
        Numbers(seed)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }
}

fn slice(whole: &[u8], offset: u64, len: usize) -> &[u8] {
    let start = whole.len().min(offset.try_into().unwrap_or(usize::MAX));
    &whole[start..whole.len().min(start.saturating_add(len))]
}

/// Checks the header of an `.npy` file and returns its elements (numpy, "NPY format", version 1.0).
fn elements<'a>(npy: &'a [u8], shape: &[u64]) -> &'a [u8] {
    assert_eq!(npy[..8], *b"\x93NUMPY\x01\0");
    let header = 10 + usize::from(u16::from_le_bytes([npy[8], npy[9]]));
    assert_eq!(header % 64, 0);
    let text = std::str::from_utf8(&npy[10..header]).unwrap();
    let lengths: Vec<String> = shape.iter().map(u64::to_string).collect();
    assert!(text.contains("'descr': '<u2'") && text.contains("'fortran_order': False"));
    let shown: String = text
        .chars()
        .filter(|c| c.is_ascii_digit() || *c == ',')
        .collect();
    assert!(shown.contains(&lengths.join(",")), "{text}");
    &npy[header..]
}

pub(crate) fn file_sizes_match_the_contents(enter: &Enter) {
    let fixture = Fixture::new();
    let backend = enter(fixture.views.files.clone());
    for (path, sample) in arrays() {
        let whole = sample.whole();
        let base = format!("{path}/{}", name(path));
        assert_eq!(
            backend
                .read_whole(&UNLIMITED, &format!("{base}.raw"))
                .unwrap(),
            whole
        );
        let npy = backend
            .read_whole(&UNLIMITED, &format!("{base}.npy"))
            .unwrap();
        assert_eq!(elements(&npy, &sample.shape), whole, "{path}");
        let own = ["metadata.json", "attributes.json"].map(|name| format!("{path}/{name}"));
        for file in own
            .into_iter()
            .chain(["raw", "npy"].map(|end| format!("{base}.{end}")))
        {
            let stat = backend.stat(&file).unwrap();
            let read = backend.read_whole(&UNLIMITED, &file).unwrap();
            assert_eq!(
                (stat.kind, stat.size),
                (EntryKind::File, read.len() as u64),
                "{file}"
            );
        }
        for folder in [path.to_string(), format!("{path}/chunks")] {
            assert_eq!(backend.stat(&folder).unwrap().kind, EntryKind::Directory);
        }
    }
}

pub(crate) fn any_range_is_the_slice_of_the_whole(enter: &Enter) {
    let fixture = Fixture::new();
    let backend = enter(fixture.views.files.clone());
    let mut numbers = Numbers::new(7);
    for (path, sample) in arrays() {
        for end in ["raw", "npy"] {
            let file = format!("{path}/{}.{end}", name(path));
            let whole = backend.read_whole(&UNLIMITED, &file).unwrap();
            assert!(whole.ends_with(&sample.whole()));
            let size = whole.len() as u64;
            let open = backend.open(&UNLIMITED, &file).unwrap();
            for offset in [0, size.saturating_sub(1), size, size + 1, 1 << 40, 1 << 62] {
                for len in [0, 1, 3, 4096, 100_001] {
                    assert_eq!(
                        open.read(&UNLIMITED, offset, len).unwrap(),
                        slice(&whole, offset, len)
                    );
                }
            }
            for _ in 0..60 {
                let (offset, len) = (numbers.below(size + 9), numbers.below(size + 9) as usize);
                assert_eq!(
                    open.read(&UNLIMITED, offset, len).unwrap(),
                    slice(&whole, offset, len)
                );
            }
        }
    }
}

pub(crate) fn many_threads_read_the_right_bytes(enter: &Enter) {
    const THREADS: u64 = 64;
    let fixture = Fixture::new();
    let backend = enter(fixture.views.files.clone());
    let files: Vec<(String, Vec<u8>)> = arrays()
        .into_iter()
        .map(|(path, sample)| (format!("{path}/{}.raw", name(path)), sample.whole()))
        .collect();
    let backend: &dyn Backend = &*backend;
    let shared: Vec<Box<dyn OpenFile>> = files
        .iter()
        .map(|(file, _)| backend.open(&UNLIMITED, file).unwrap())
        .collect();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (files, shared) = (&files, &shared);
            scope.spawn(move || {
                let mut numbers = Numbers::new(thread);
                for round in 0..40 {
                    let number = numbers.below(files.len() as u64) as usize;
                    let (file, whole) = &files[number];
                    let offset = numbers.below(whole.len() as u64 + 5);
                    let len = numbers.below(20_000) as usize;
                    let read = match round % 4 {
                        0 => backend.read(&UNLIMITED, file, offset, len),
                        _ => shared[number].read(&UNLIMITED, offset, len),
                    };
                    assert_eq!(
                        read.unwrap(),
                        slice(whole, offset, len),
                        "{file} at {offset}"
                    );
                }
            });
        }
    });
}

/// Returns the file name of a chunk in the files view, without its extension.
fn chunk_name(chunk: &[u64]) -> String {
    let indices: Vec<String> = chunk.iter().map(u64::to_string).collect();
    match indices.as_slice() {
        [] => "0".to_string(),
        indices => indices.join("."),
    }
}

/// Compares every chunk file of an array with the elements of the chunk, and the listed files with the stored chunks.
fn compare_chunks(backend: &dyn Backend, path: &str, sample: &Sample) {
    let mut expected = Vec::new();
    for chunk in places(&sample.counts()) {
        let base = format!("{path}/chunks/{}", chunk_name(&chunk));
        let clipped = sample.clipped(&chunk);
        let stat = backend.stat(&format!("{base}.raw")).unwrap();
        assert_eq!(stat.size, clipped.len() as u64, "{base}");
        assert_eq!(
            backend
                .read_whole(&UNLIMITED, &format!("{base}.raw"))
                .unwrap(),
            clipped,
            "{base}"
        );
        assert!(
            backend
                .read_whole(&UNLIMITED, &format!("{base}.npy"))
                .unwrap()
                .ends_with(&clipped)
        );
        if sample.is_stored(&chunk) {
            expected.extend(["npy", "raw"].map(|end| format!("{}.{end}", chunk_name(&chunk))));
        }
    }
    expected.sort();
    assert_eq!(
        backend
            .names(&UNLIMITED, &format!("{path}/chunks"))
            .unwrap(),
        expected
    );
}

pub(crate) fn chunk_files_are_cut_at_the_edge(enter: &Enter) {
    let fixture = Fixture::new();
    let backend = enter(fixture.views.files.clone());
    for (path, sample) in arrays()
        .into_iter()
        .filter(|(_, sample)| sample.shape.len() > 1)
    {
        compare_chunks(&*backend, path, &sample);
    }
    for other in [
        "4.0.raw",
        "0.4.raw",
        "0.raw",
        "00.0.raw",
        "0.0",
        "0.0.0.raw",
        "-1.0.raw",
        "0.0.txt",
    ] {
        let missing = backend.stat(&format!("plain/chunks/{other}"));
        assert_eq!(missing, Err(Errno::NOENT.raw_os_error()), "{other}");
    }
}

pub(crate) fn arrays_without_dimensions_or_elements_can_be_read(enter: &Enter) {
    let fixture = Fixture::new();
    let backend = enter(fixture.views.files.clone());
    assert_eq!(
        backend.names(&UNLIMITED, "point/chunks").unwrap(),
        ["0.npy", "0.raw"]
    );
    assert_eq!(
        backend
            .read_whole(&UNLIMITED, "point/chunks/0.raw")
            .unwrap()
            .len(),
        2
    );
    assert_eq!(backend.list(&UNLIMITED, "nothing/chunks").unwrap(), []);
    assert_eq!(
        backend
            .read_whole(&UNLIMITED, "nothing/nothing.raw")
            .unwrap(),
        b""
    );
    let npy = backend
        .read_whole(&UNLIMITED, "nothing/nothing.npy")
        .unwrap();
    assert_eq!(elements(&npy, &[0, 5]), b"");
}

pub(crate) fn opening_a_file_of_an_unsupported_array_fails(enter: &Enter) {
    let fixture = Fixture::new();
    let backend = enter(fixture.views.files.clone());
    let names = backend.names(&UNLIMITED, "strange").unwrap();
    assert_eq!(
        names,
        [
            "attributes.json",
            "chunks",
            "metadata.json",
            "strange.npy",
            "strange.raw"
        ]
    );
    assert_eq!(backend.list(&UNLIMITED, "strange/chunks").unwrap().len(), 8);
    for file in [
        "strange.npy",
        "strange.raw",
        "chunks/0.0.raw",
        "chunks/1.1.npy",
    ] {
        let path = format!("strange/{file}");
        assert_eq!(backend.stat(&path).unwrap().kind, EntryKind::File);
        assert_eq!(
            backend.open(&UNLIMITED, &path).err(),
            Some(Errno::OPNOTSUPP.raw_os_error()),
            "{file}"
        );
    }
    let metadata = backend
        .read_whole(&UNLIMITED, "strange/metadata.json")
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&metadata).unwrap();
    assert_eq!(metadata["codecs"][1]["name"], "nobody-knows");
    let stored = backend
        .read_whole(&UNLIMITED, ".zarrfs/store/strange/c/0/1")
        .unwrap();
    assert_eq!(
        stored,
        std::fs::read(fixture.store().join("strange/c/0/1")).unwrap()
    );
}

/// The length of a file of variable-length elements is known only after all of them were read, however many they are.
#[test]
fn a_file_of_strings_has_its_length_before_it_is_opened() {
    const ELEMENTS: u32 = 70_000;
    let fixture = Fixture::with(|store| {
        let mut chunk = ELEMENTS.to_le_bytes().to_vec();
        for number in 0..ELEMENTS {
            let text = number.to_string();
            chunk.extend((text.len() as u32).to_le_bytes());
            chunk.extend(text.bytes());
        }
        let document = format!(
            r#"{{"zarr_format": 2, "shape": [{ELEMENTS}], "chunks": [{ELEMENTS}], "dtype": "|O", "order": "C",
            "fill_value": "", "compressor": null, "filters": [{{"id": "vlen-utf8"}}]}}"#
        );
        store.put(".zgroup", br#"{"zarr_format": 2}"#);
        store.put("names/.zarray", document.as_bytes());
        store.put("names/0", &chunk);
    });
    let backend = crate::operations::in_process::enter(fixture.views.files.clone());
    let names = backend.names(&UNLIMITED, "names").unwrap();
    let decoded = names.iter().filter(|name| name.starts_with("names."));
    let paths: Vec<String> = decoded.map(|name| format!("names/{name}")).collect();
    assert!(!paths.is_empty(), "{names:?}");
    for path in paths {
        let shown = backend.stat(&path).unwrap().size;
        let whole = backend.read(&UNLIMITED, &path, 0, 10 << 20).unwrap();
        assert_eq!(shown, whole.len() as u64, "{path}");
        assert!(shown > u64::from(ELEMENTS), "{path}");
    }
}

/// A size of 0 would be wrong here, because archivers take such a file for an empty one and do not open it.
pub(crate) fn stat_and_open_fail_for_a_file_of_unknown_length(enter: &Enter) {
    let fixture = Fixture::with(|store| {
        let strings = r#"{"zarr_format": 2, "shape": [2], "chunks": [2], "dtype": "|O", "order": "C",
            "fill_value": "", "compressor": null, "filters": [{"id": "vlen-utf8"}]}"#;
        let endless = r#"{"zarr_format": 2, "shape": [4611686018427387904, 4], "chunks": [4, 4], "dtype": "<i4",
            "order": "C", "fill_value": 0, "compressor": null, "filters": null}"#;
        store.put(".zgroup", br#"{"zarr_format": 2}"#);
        store.put("damaged/.zarray", strings.as_bytes());
        store.put("damaged/0", b"no chunk");
        store.put("endless/.zarray", endless.as_bytes());
    });
    let backend = enter(fixture.views.files.clone());
    for (path, errno) in [
        ("damaged/damaged.txt", Errno::IO),
        ("damaged/damaged.raw", Errno::IO),
        ("endless/endless.raw", Errno::FBIG),
    ] {
        let (folder, name) = path.split_once('/').unwrap();
        let listed = backend.names(&UNLIMITED, folder).unwrap();
        assert!(listed.contains(&name.to_string()), "{path}: {listed:?}");
        let errno = errno.raw_os_error();
        assert_eq!(backend.stat(path), Err(errno), "{path}");
        assert_eq!(backend.open(&UNLIMITED, path).err(), Some(errno), "{path}");
    }
}
