//! Open objects: reads at any offset, and changes of the key while it is open.

use std::io::IoSliceMut;

use zarr_format::error::Kind as Fault;
use zarrfs_store::Reader;

use crate::conformance::fixture::{Kind, key, pattern};
use zarrfs_store::request_context::UNLIMITED;

const FAR: [u64; 3] = [1 << 40, i64::MAX as u64, u64::MAX];

fn slice(whole: &[u8], offset: u64, length: usize) -> &[u8] {
    let start = whole.len().min(offset.try_into().unwrap_or(usize::MAX));
    &whole[start..whole.len().min(start.saturating_add(length))]
}

pub(crate) fn an_open_object_is_read_anywhere(kind: &Kind) {
    for length in [0, 1, 9, 70_000] {
        let whole = pattern(length);
        let fixture = (kind.holding)(&[(b"a/b", &whole)]);
        let reader = fixture.store.open(&UNLIMITED, &key("a/b"), None).unwrap();
        assert_eq!(reader.meta(&UNLIMITED).unwrap().size, length as u64);
        let edges = [0, 1, 8, 9, 10, 4095, 4097, 69_999, 70_000, 70_001];
        for offset in edges.into_iter().chain(FAR) {
            for wanted in [0, 1, 2, 9, 4096, 1 << 20] {
                let read = reader.read_at(&UNLIMITED, offset, wanted).unwrap();
                assert_eq!(
                    read,
                    slice(&whole, offset, wanted),
                    "{wanted} at {offset} of {length}"
                );
            }
        }
    }
}

/// Reads into buffers of the given lengths and compares them with the object. Bytes behind its end must stay unchanged.
fn scatter(reader: &dyn Reader, whole: &[u8], offset: u64, lengths: &[usize]) {
    let mut pieces: Vec<Vec<u8>> = lengths.iter().map(|&length| vec![0xee; length]).collect();
    let mut parts: Vec<IoSliceMut> = pieces
        .iter_mut()
        .map(|piece| IoSliceMut::new(piece))
        .collect();
    let read = reader
        .read_vectored(&UNLIMITED, offset, &mut parts)
        .unwrap();
    let mut expected = slice(whole, offset, lengths.iter().sum()).to_vec();
    assert_eq!(read, expected.len(), "{} pieces at {offset}", lengths.len());
    expected.resize(lengths.iter().sum(), 0xee);
    assert_eq!(pieces.concat(), expected, "{lengths:?} at {offset}");
}

pub(crate) fn scattered_reads_fill_buffers_up_to_the_end(kind: &Kind) {
    let whole = pattern(10_000);
    let fixture = (kind.holding)(&[(b"a", &whole), (b"empty", b"")]);
    let reader = fixture.store.open(&UNLIMITED, &key("a"), None).unwrap();
    // Use more buffers than one system call accepts, and long and short ones.
    let many = vec![3; 2500];
    let long = vec![1100; 1100];
    let shapes: [&[usize]; 9] = [
        &[],
        &[0],
        &[0, 0, 5, 0],
        &[1, 2, 3],
        &[10_000],
        &[9_999, 2],
        &[4096, 0, 4096, 4096],
        &many,
        &long,
    ];
    for lengths in shapes {
        for offset in [0, 1, 4999, 9_998, 9_999, 10_000, 10_001]
            .into_iter()
            .chain(FAR)
        {
            scatter(&*reader, &whole, offset, lengths);
        }
    }
    scatter(
        &*fixture.store.open(&UNLIMITED, &key("empty"), None).unwrap(),
        b"",
        0,
        &[4],
    );
}

pub(crate) fn an_open_object_that_is_replaced_reads_as_before_or_fails(kind: &Kind) {
    let (old, new) = (vec![1; 100_000], vec![2; 100_000]);
    let Some(fixture) = kind.changing(&[(b"a/b", &old)]) else {
        return;
    };
    let reader = fixture.store.open(&UNLIMITED, &key("a/b"), None).unwrap();
    let version = reader.meta(&UNLIMITED).unwrap().version;
    assert_eq!(reader.read_at(&UNLIMITED, 0, 10).unwrap(), old[..10]);
    fixture.writer().replace(&key("a/b"), &new);
    for offset in [0, 50_000, 99_999] {
        match reader.read_at(&UNLIMITED, offset, 10) {
            Ok(read) => assert_eq!(read, slice(&old, offset, 10)),
            Err(error) => assert_eq!(error.kind(), Fault::Changed, "{error}"),
        }
    }
    let fresh = fixture.store.open(&UNLIMITED, &key("a/b"), None).unwrap();
    assert_eq!(fresh.read_at(&UNLIMITED, 0, 10).unwrap(), new[..10]);
    assert_ne!(fresh.meta(&UNLIMITED).unwrap().version, version);
}

pub(crate) fn an_open_object_shows_new_content_only_with_a_new_version(kind: &Kind) {
    let (old, new) = ([1; 1000], [2; 1000]);
    let Some(fixture) = kind.changing(&[(b"a/b", &old)]) else {
        return;
    };
    let reader = fixture.store.open(&UNLIMITED, &key("a/b"), None).unwrap();
    let version = reader.meta(&UNLIMITED).unwrap().version;
    fixture.writer().overwrite(&key("a/b"), &new);
    match reader.read_at(&UNLIMITED, 10, 100) {
        Ok(read) if read == old[10..110] => {}
        Ok(read) => {
            assert_eq!(read, new[10..110]);
            assert_ne!(reader.meta(&UNLIMITED).unwrap().version, version);
        }
        Err(error) => assert_eq!(error.kind(), Fault::Changed, "{error}"),
    }
}

pub(crate) fn an_open_object_survives_its_removal(kind: &Kind) {
    let old = pattern(1000);
    let Some(fixture) = kind.changing(&[(b"a/b", &old)]) else {
        return;
    };
    let reader = fixture.store.open(&UNLIMITED, &key("a/b"), None).unwrap();
    fixture.writer().erase(&key("a/b"));
    match reader.read_at(&UNLIMITED, 10, 100) {
        Ok(read) => assert_eq!(read, old[10..110]),
        Err(error) => assert_eq!(error.kind(), Fault::Changed, "{error}"),
    }
}
