//! Encoding ahead: a chunk that was written from end to end is encoded while its writer goes on, so that the flush has
//! only to put it.
//!
//! What is encoded counts only as long as nothing is written to the chunk, and takes memory only where there is some left.
//! Nothing is put before a flush. A shard is not encoded ahead, since the flush needs what is stored of it.

use std::sync::Arc;

use crate::array::OpenArray;
use crate::array::decoder::Decoder;
use crate::array::dirty_chunk::EncodedAhead;
use crate::grid::{ChunkIndex, Coordinates};
use crate::sync::buffer;

/// The shortest chunk that is handed to another thread, in bytes: shorter ones are encoded sooner than handed over.
const MIN_LENGTH: u64 = 64 << 10;

impl OpenArray {
    /// Has another thread encode the chunk that a piece is, if its `length` bytes were written.
    pub(super) fn encode_ahead(
        self: &Arc<Self>,
        decoder: &Decoder,
        piece: ChunkIndex,
        length: u64,
    ) {
        let pipeline = &decoder.pipeline;
        if length < MIN_LENGTH || pipeline.is_identity() || !pipeline.shards().is_empty() {
            return;
        }
        let chunk = decoder.locate(piece).indices;
        if self.dirty.is_written_through(&chunk, length) {
            let array = self.clone();
            // Where too much is queued, the flush encodes it.
            self.engine.decoders.submit(move || {
                array.encode_written(&chunk);
            });
        }
    }

    /// Encodes a chunk as it is now; nothing if there is no memory for it, or it cannot be encoded, of which the flush
    /// tells.
    fn encode_written(&self, indices: &Coordinates) -> Option<()> {
        let chunk = self.dirty.claim(indices)?;
        let decoder = self.decoder().ok()?;
        let pipeline = decoder.pipeline_of(decoder.stored.index(indices)?).ok()?;
        let piece = chunk.pieces.values().next()?;
        let length = piece.bytes().len() as u64;
        let budget = self.engine.cache.budget();
        let most = budget.try_reserve(length + length / 8)?;
        let encoded = pipeline.encode(piece.bytes()).ok()?;
        // The buffer is longer than what it holds.
        let bytes = encoded.as_slice().to_vec();
        buffer::recycle(encoded);
        drop(most);
        let room = budget.try_reserve(bytes.len() as u64)?;
        let ahead = EncodedAhead { bytes, _room: room };
        self.dirty.keep_encoded(indices, &chunk, ahead);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::array::flat_file::FlatFile;
    use crate::array::{Arrays, Engine, Limits, WriteSource};
    use crate::grid::Region;
    use crate::hierarchy::Hierarchy;
    use crate::store::backend::memory::MemoryStore;
    use crate::store::{Key, Store};

    /// Bytes of each of the two chunks.
    const CHUNK: usize = 128 << 10;
    const HALF: usize = CHUNK / 2;

    const DOCUMENT: &str = r#"{"zarr_format": 3, "node_type": "array", "shape": [262144], "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [131072]}}, "fill_value": 0,
        "chunk_key_encoding": {"name": "default"}, "codecs": ["bytes", {"name": "zstd", "configuration": {"level": 1}}]}"#;

    fn open(memory: &MemoryStore) -> FlatFile {
        let limits = Limits {
            memory: 16 << 20,
            max_chunk: 1 << 20,
            timeout: Duration::from_secs(20),
            fetches: 0,
            lossy: false,
        };
        let hierarchy = Arc::new(Hierarchy::new(Arc::new(memory.clone())));
        let root = hierarchy.root().unwrap().unwrap();
        let arrays = Arrays::new(hierarchy, Engine::new(limits, Arc::default()));
        let region = Region::whole(&[2 * CHUNK as u64]);
        FlatFile::new(arrays.open(&root).unwrap(), region).unwrap()
    }

    fn stored() -> MemoryStore {
        let memory = MemoryStore::default();
        memory.set(Key::new("zarr.json").unwrap(), DOCUMENT.into());
        memory
    }

    fn write(file: &FlatFile, at: usize, bytes: &[u8]) {
        file.write(at as u64, bytes, WriteSource::Program).unwrap();
    }

    /// Waits until the first chunk is encoded.
    fn encoded(file: &FlatFile) -> Arc<EncodedAhead> {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(encoded) = file.array.dirty.encoded(&[0].as_slice().into()) {
                return encoded;
            }
            assert!(Instant::now() < deadline, "is not encoded");
            thread::yield_now();
        }
    }

    #[test]
    fn what_was_written_whole_is_encoded_before_the_flush() {
        let memory = stored();
        let file = open(&memory);
        write(&file, 0, &[1; HALF]);
        assert!(file.array.dirty.encoded(&[0].as_slice().into()).is_none());
        write(&file, HALF, &[2; HALF]);
        let ahead = encoded(&file);
        assert!(memory.head(&Key::new("c/0").unwrap()).unwrap().is_none());
        file.array.flush().unwrap();
        let object = memory.get(&Key::new("c/0").unwrap(), 1 << 20).unwrap();
        assert!(object.unwrap().bytes == ahead.bytes);
    }

    #[test]
    fn a_write_after_it_counts() {
        let memory = stored();
        let file = open(&memory);
        for round in 0..100 {
            write(&file, 0, &[round; HALF]);
            write(&file, HALF, &[round; HALF]);
            if round % 3 == 0 {
                encoded(&file);
            }
            let mut expected = vec![round; CHUNK];
            if round % 2 == 0 {
                write(&file, usize::from(round), &[200]);
                expected[usize::from(round)] = 200;
            }
            file.array.flush().unwrap();
            let read = open(&memory).read(0..CHUNK as u64).unwrap();
            assert!(read[..] == expected, "{round}");
        }
    }
}
