//! Spills decoded chunks to disk: each is decoded once in a sequential read.

use std::path::Path;
use std::sync::Arc;

use zarrfs::view::View;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::stats::Stats;

use super::fixture::{entries, files_view};
use crate::common;
use crate::common::sample::{Form, GROUP, Keys, Sample};

/// Memory limit in bytes. It is less than the megabyte of a row of chunks (all chunks with the same first index).
const MEMORY: u64 = 640 << 10;
const CHUNKS: u64 = 32;

fn sample(form: Form) -> Sample {
    let chunk = match &form {
        Form::Sharded(_) => [64, 64, 64],
        _ => [32, 32, 32],
    };
    Sample::new(&[64, 128, 128], &chunk, form)
}

fn put(memory: &MemoryStore, sample: &Sample) {
    Keys::put(memory, "zarr.json", GROUP.as_bytes());
    sample.put(memory, "a");
}

fn view(memory: &MemoryStore, folder: Option<&Path>) -> (Arc<dyn View>, Arc<Stats>) {
    files_view(memory, folder, (MEMORY, 16 << 20))
}

/// Invariant (reading): A sequential read decodes each chunk once, as long as a row of chunks fits in memory or in the
/// spill file.
#[test]
fn each_chunk_is_decoded_once_in_order() {
    for form in [Form::Packed, Form::Sharded(vec![32, 32, 32])] {
        let (memory, sample) = (MemoryStore::default(), sample(form.clone()));
        put(&memory, &sample);
        let (plain, stats) = view(&memory, None);
        assert!(common::read(&plain, "a/a.raw").unwrap() == sample.whole());
        let often = stats.decoded_chunks.get();
        assert!(
            often > 2 * CHUNKS,
            "{often}: the memory is too large to show anything"
        );
        let folder = tempfile::tempdir().unwrap();
        let (spilling, stats) = view(&memory, Some(folder.path()));
        assert!(common::read(&spilling, "a/a.raw").unwrap() == sample.whole());
        // Some chunks are decoded twice, because a thread that prefetches may be late.
        let decoded = stats.decoded_chunks.get();
        assert!(decoded * 10 <= CHUNKS * 11, "{form:?}: {decoded}");
        assert!(stats.spill_hit_chunks.get() > CHUNKS, "{form:?}");
        assert!(stats.memory_peak_bytes.get() <= MEMORY);
        assert_eq!(entries(folder.path()).len(), 0, "the file has no name");
    }
}

#[test]
fn spilled_chunks_of_an_older_content_are_not_used() {
    let (memory, first) = (MemoryStore::default(), sample(Form::Packed));
    put(&memory, &first);
    let folder = tempfile::tempdir().unwrap();
    let (view, stats) = view(&memory, Some(folder.path()));
    common::read(&view, "a/a.raw").unwrap();
    // Some chunks of the array are removed, and the others are stored again with new versions.
    let second = first.clone().sparse();
    let erased = MemoryStore::clone(&memory);
    for chunk in common::sample::places(&first.counts()) {
        let key = format!("a/{}", Sample::chunk_key(&chunk));
        erased.erase(&zarrfs_store::Key::new(key).unwrap());
    }
    put(&memory, &second);
    let before = stats.decoded_chunks.get();
    assert!(common::read(&view, "a/a.raw").unwrap() == second.whole());
    assert!(stats.decoded_chunks.get() > before);
}
