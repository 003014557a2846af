//! Shows a box of an array as one flat file, little-endian, without a header.
//!
//! The dimensions may be in another order than the array's. `FileReader` reads the file, `ChunkWriter` writes its
//! chunks.

use std::ops::Range;
use std::sync::Arc;

use crate::array::OpenArray;
use crate::array::chunk_writer::{ChunkEdit, ChunkWriter, WriteSource};
use crate::array::file_layout::{ChunkSlice, FileLayout, in_buffer};
use crate::array::file_reader::FileReader;
use crate::array::read_ahead::MAX_READ_WHOLE;
use zarr_format::error::{Error, Kind, Result};
use zarr_format::grid::{ChunkIndex, Region};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::pool::parallel_map;
use zarrfs_store::sync::read_bytes::ReadBytes;

/// A box of an array as a flat file.
pub struct FlatFile {
    array: Arc<OpenArray>,
    layout: Arc<FileLayout>,
    /// The reader of the file; `Err` if the array cannot be decoded.
    reader: Result<FileReader>,
}

impl FlatFile {
    /// Creates the flat file of a box; `Unsupported` or `TooLarge` if the file's length cannot be computed.
    pub fn new(array: Arc<OpenArray>, region: Region) -> Result<FlatFile> {
        FlatFile::build(array, region, None)
    }

    fn build(
        array: Arc<OpenArray>,
        region: Region,
        order: Option<Box<[usize]>>,
    ) -> Result<FlatFile> {
        let element = array.stored.metadata.element_size()?;
        let layout = Arc::new(FileLayout::new(region, order, element)?);
        let prefetcher = array.prefetcher();
        let reader = prefetcher.map(|it| FileReader::new(it.clone(), layout.clone()));
        Ok(FlatFile {
            array,
            layout,
            reader,
        })
    }

    /// Creates the read-only flat file of a box with permuted dimensions: `order` has the array's dimension for each
    /// dimension of the file, outermost first, each dimension once. `Invalid` if `order` is no permutation,
    /// `Unsupported` or `TooLarge` if the file's length cannot be computed.
    pub fn permuted(array: Arc<OpenArray>, region: Region, order: &[usize]) -> Result<FlatFile> {
        let rank = region.shape.len();
        if order.len() != rank || (0..rank).any(|axis| !order.contains(&axis)) {
            let found = format!("{order:?} is not a permutation of {rank} dimensions");
            return Err(Error::invalid(&array.stored.path, found));
        }
        let is_own = order.iter().enumerate().all(|(place, &axis)| place == axis);
        FlatFile::build(array, region, (!is_own).then(|| order.into()))
    }

    /// Whether the file has its dimensions in the order of the array's dimensions.
    pub fn has_own_order(&self) -> bool {
        self.layout.order.is_none()
    }

    /// Returns the length of the file in bytes.
    pub fn len(&self) -> u64 {
        self.layout.length
    }

    /// Whether a program that opens the file now is expected to read it sequentially: true if the last reader was
    /// sequential, or, if there was none, if the file has at most `MAX_READ_WHOLE` bytes.
    pub fn expects_sequential(&self) -> bool {
        match &self.reader {
            Ok(reader) => reader.expects_sequential(),
            Err(_) => self.layout.length <= MAX_READ_WHOLE,
        }
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the array that the file shows.
    pub fn array(&self) -> &Arc<OpenArray> {
        &self.array
    }

    /// Returns the bytes of a range of the file; fetches and decodes missing chunks, or fails with `WouldWait` if the
    /// request may not block. The range must be inside the file.
    pub fn read(&self, context: &RequestContext, range: Range<u64>) -> Result<ReadBytes> {
        match &self.reader {
            Ok(reader) => reader.read(context, range),
            Err(error) => Err(error.clone()),
        }
    }

    /// Returns the bytes of a range that the kernel will cache as pages. While the array is open for writing, the
    /// digests of the range's chunks are recorded, to detect conflicts of write-back. The range must be inside the
    /// file.
    pub fn read_for_pages(&self, context: &RequestContext, range: Range<u64>) -> Result<ReadBytes> {
        if self.array.buffer.writers.is_open() {
            context.check_may_wait()?;
            // The digests are recorded before the read. If another program changes a chunk between the two, a
            // write-back of the chunk's pages is refused without need, but it never overwrites the change.
            self.record_pages(context, &range)?;
        }
        self.read(context, range)
    }

    /// Records the present digests of the chunks that a byte range covers.
    fn record_pages(&self, context: &RequestContext, range: &Range<u64>) -> Result<()> {
        let grid = self.array.decoded_grid()?;
        let writers = &self.array.buffer.writers;
        let mut fresh: Vec<ChunkIndex> = Vec::new();
        self.layout.visit(grid, range, |chunk, _, _| {
            if writers.needs_record(&grid.indices(chunk)) {
                fresh.push(chunk);
            }
        });
        for chunk in fresh {
            let digest = self.array.writer()?.stored_digest(context, chunk)?;
            writers.record_pages(grid.indices(chunk), digest);
        }
        Ok(())
    }

    /// Writes bytes at an offset of the file. Fails with `TooLarge` beyond the end, since the length is fixed, with
    /// `Invalid` for a value outside the data type, and as `OpenArray::check_writable` does. Bytes written before an
    /// error stay written.
    pub fn write(
        &self,
        context: &RequestContext,
        offset: u64,
        bytes: &[u8],
        source: WriteSource,
    ) -> Result<()> {
        self.array.check_writable()?;
        if !self.has_own_order() {
            let why = "files with dimensions in another order are read-only";
            return Err(Error::new(Kind::ReadOnly, &self.array.stored.path, why));
        }
        let writer = self.array.writer()?;
        let grid = self.array.decoded_grid()?;
        let end = offset.checked_add(bytes.len() as u64);
        let Some(end) = end.filter(|&end| end <= self.layout.length) else {
            let length = self.layout.length;
            let found = format!("the file cannot grow beyond the {length} bytes of the array");
            return Err(Error::too_large(&self.array.stored.path, found));
        };
        writer.check_values(bytes)?;
        self.array.stored.check_metadata(context)?;
        let most = self.layout.max_read(grid);
        let mut start = offset;
        while start < end {
            let range = start..end.min(start.saturating_add(most));
            start = range.end;
            let place = in_buffer(range.start - offset)..in_buffer(range.end - offset);
            let part = bytes.get(place).unwrap_or_default();
            let write =
                |slice: ChunkSlice| self.write_part(context, writer, &slice, &range, part, source);
            let slices = self.layout.slices(grid, &range).into_iter();
            let (missing, others) = slices.partition(|slice| self.has_to_read(writer, slice));
            let missing: Vec<ChunkSlice> = missing;
            let threads = writer.edits_at_once();
            let written = parallel_map(threads.min(missing.len()), missing, &write);
            written.into_iter().collect::<Result<()>>()?;
            let others: Vec<ChunkSlice> = others;
            others.into_iter().try_for_each(write)?;
        }
        Ok(())
    }

    /// Whether a write changes a chunk only in part, so that the chunk has to be read first, which may take long.
    fn has_to_read(&self, writer: &ChunkWriter, slice: &ChunkSlice) -> bool {
        let grid = &writer.reader.decoder.grid;
        let indices = grid.indices(slice.chunk);
        slice.region != grid.region(&indices) && writer.reader.written(slice.chunk).is_none()
    }

    fn write_part(
        &self,
        context: &RequestContext,
        writer: &Arc<ChunkWriter>,
        slice: &ChunkSlice,
        range: &Range<u64>,
        bytes: &[u8],
        source: WriteSource,
    ) -> Result<()> {
        let grid = &writer.reader.decoder.grid;
        let elements = self.layout.elements(range);
        let size = self.layout.element as u64;
        let runs = self.layout.runs_into(grid, &elements, slice);
        let is_whole_elements = range.start.is_multiple_of(size) && range.end.is_multiple_of(size);
        let indices = grid.indices(slice.chunk);
        let is_whole = is_whole_elements && slice.region == grid.region(&indices);
        let skipped = in_buffer(range.start - elements.start * size);
        let copy = |chunk: &mut [u8]| {
            if is_whole_elements {
                runs.copy(bytes, chunk);
            } else {
                runs.copy_part(bytes, skipped, chunk);
            }
        };
        let edit = ChunkEdit {
            is_whole,
            source,
            apply: &copy,
        };
        writer.edit(context, slice.chunk, &edit)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use parking_lot::Mutex;

    use super::*;
    use crate::array::WriteSource;
    use crate::array::sample_array::{SampleArray, read, values};
    use zarr_format::error::Kind;
    use zarrfs_store::Key;
    use zarrfs_store::request_context::{UNLIMITED, WITHOUT_WAITING};

    #[test]
    fn a_read_after_a_miss_reuses_its_chunk_slices() {
        let array = SampleArray::new(&[8], &[2]).open(1 << 20);
        let file = FlatFile::new(array, Region::whole(&[8])).unwrap();
        let expected = values(0..8, 0);
        assert!(file.read(&WITHOUT_WAITING, 1..5).is_err());
        let mut slices = file.reader.as_ref().unwrap().pending.take(&(1..5)).unwrap();
        let chunks: Vec<u64> = slices.iter().map(|slice| slice.chunk.0).collect();
        assert_eq!(chunks, [0, 1, 2]);
        assert!(
            file.reader
                .as_ref()
                .unwrap()
                .pending
                .take(&(1..5))
                .is_none()
        );
        // A read uses the list of chunks that an earlier attempt has remembered for its range.
        slices.truncate(2);
        file.reader.as_ref().unwrap().pending.keep(1..5, slices);
        assert_eq!(
            file.read(&UNLIMITED, 0..4).unwrap()[..],
            expected[..4],
            "another range"
        );
        let cut = file.read(&UNLIMITED, 1..5).unwrap().to_vec();
        assert!(expected[4] != 0 && cut[3] == 0 && cut[..3] == expected[1..4]);
        assert_eq!(file.read(&UNLIMITED, 1..5).unwrap()[..], expected[1..5]);
        assert_eq!(
            file.read(&WITHOUT_WAITING, 1..5).unwrap()[..],
            expected[1..5]
        );
        assert!(
            file.reader
                .as_ref()
                .unwrap()
                .pending
                .take(&(1..5))
                .is_none()
        );
    }

    #[test]
    fn a_read_from_memory_requires_current_metadata() {
        let sample = SampleArray::new(&[8], &[4]);
        let array = sample.open(1 << 20);
        let file = FlatFile::new(array.clone(), Region::whole(&[8])).unwrap();
        let info = &array.stored.info;
        let is_in_memory = || {
            let bytes = file.read(&WITHOUT_WAITING, 1..3);
            bytes.is_ok_and(|bytes| bytes[..] == values(1..3, 0))
        };
        read(&file, 0..8);
        assert!(is_in_memory() && is_in_memory());
        info.changes.record(&Key::new("other").unwrap());
        assert!(is_in_memory(), "another key was changed");
        info.clock.advance(info.freshness);
        assert!(!is_in_memory(), "the TTL has passed");
        read(&file, 0..8);
        assert!(is_in_memory());
        info.changes.record(&sample.put_document(&[7]));
        assert!(!is_in_memory());
        let changed = file.read(&UNLIMITED, 1..3);
        assert!(changed.is_err_and(|error| error.kind() == Kind::Changed));
        assert!(!is_in_memory());
    }

    /// A copy of bytes in another thread that is stopped in the middle, and goes on when this value is dropped.
    struct HeldCopy {
        begun: mpsc::Receiver<()>,
        end: Option<mpsc::Sender<()>>,
    }

    impl HeldCopy {
        /// Returns the stopped copy, and a function that the thread calls while it copies: the first call blocks.
        fn new() -> (HeldCopy, impl Fn() + Send + Sync) {
            let (begin, begun) = mpsc::channel();
            let (end, ended) = mpsc::channel();
            let (ended, is_first) = (Mutex::new(ended), AtomicBool::new(true));
            let hold = move || {
                if is_first.swap(false, Ordering::SeqCst) {
                    begin.send(()).unwrap();
                    // The channel is disconnected to let the copy go on, or when the test fails.
                    let _ = ended.lock().recv_timeout(Duration::from_secs(60));
                }
            };
            let end = Some(end);
            (HeldCopy { begun, end }, hold)
        }

        /// Fails if `read` does not return while the other thread's copy is stopped.
        fn assert_answers<T: Send>(mut self, read: impl FnOnce() -> T + Send) -> T {
            let (sender, answer) = mpsc::channel();
            self.begun.recv_timeout(Duration::from_secs(60)).unwrap();
            thread::scope(|scope| {
                scope.spawn(move || sender.send(read()));
                let answer = answer.recv_timeout(Duration::from_secs(10));
                drop(self.end.take());
                answer.expect("a read waits for the copy of another one")
            })
        }
    }

    /// Invariant (reading): In an event loop, no read waits while another read or a write copies.
    #[test]
    fn a_read_does_not_wait_while_another_read_copies() {
        let shape = [8, 256, 256];
        let array = SampleArray::new(&shape, &[8, 16, 16]).open(64 << 20);
        let mut file = FlatFile::new(array, Region::whole(&shape)).unwrap();
        let plane = 256 * 256;
        for place in 0..6 {
            read(&file, place * plane..(place + 1) * plane);
        }
        let (copy, hold) = HeldCopy::new();
        file.reader.as_mut().unwrap().while_copying = Some(Box::new(hold));
        thread::scope(|scope| {
            let long = scope.spawn(|| {
                file.read(&WITHOUT_WAITING, plane..3 * plane)
                    .unwrap()
                    .to_vec()
            });
            let short =
                copy.assert_answers(|| file.read(&WITHOUT_WAITING, 0..100).unwrap().to_vec());
            assert_eq!(short, values(0..100, 0));
            assert!(long.join().unwrap() == values(plane..3 * plane, 0));
        });
    }

    /// Invariant of `a_read_does_not_wait_while_another_read_copies`.
    #[test]
    fn a_read_does_not_wait_while_a_write_copies() {
        let array = SampleArray::new(&[8], &[4]).open(1 << 20);
        let file = FlatFile::new(array.clone(), Region::whole(&[8])).unwrap();
        read(&file, 0..8);
        file.write(&UNLIMITED, 1, &[1], WriteSource::Program)
            .unwrap();
        let (copy, hold) = HeldCopy::new();
        thread::scope(|scope| {
            let edit = |chunk: &mut [u8]| {
                hold();
                chunk[0] = 2;
            };
            let chunk = [0].as_slice().into();
            let buffer = &array.buffer;
            let write = scope.spawn(move || buffer.edit(&chunk, &[], false, &edit));
            copy.assert_answers(|| file.read(&WITHOUT_WAITING, 0..8).is_ok());
            assert!(write.join().unwrap().unwrap());
        });
        assert_eq!(file.read(&WITHOUT_WAITING, 0..2).unwrap()[..], [2, 1]);
    }

    /// Invariant of `test_a_signal_stores_the_writes_of_an_open_file`.
    #[test]
    fn writes_after_shutdown_are_refused_and_earlier_ones_stored() {
        let array = SampleArray::new(&[8], &[4]).open(1 << 20);
        let file = FlatFile::new(array.clone(), Region::whole(&[8])).unwrap();
        file.write(&UNLIMITED, 1, &[9], WriteSource::Program)
            .unwrap();
        array.stored.engine.write_budget.dirty.close();
        for (place, written) in [(1, 1), (1, 2), (5, 1)] {
            let refused = file.write(&UNLIMITED, place, &vec![7; written], WriteSource::Program);
            assert_eq!(refused.unwrap_err().kind(), Kind::Unavailable, "{place}");
        }
        array.flush(&UNLIMITED).unwrap();
        assert!(array.buffer.is_empty());
        let mut expected = values(0..8, 0);
        expected[1] = 9;
        assert_eq!(read(&file, 0..8), expected);
    }

    /// The list of arrays with dirty chunks stays locked while a write is buffered; the write then registers its array.
    #[test]
    fn an_array_is_listed_as_dirty_after_its_write_is_buffered() {
        let array = SampleArray::new(&[8], &[4]).open(1 << 20);
        let file = FlatFile::new(array.clone(), Region::whole(&[8])).unwrap();
        let list = array.stored.engine.write_budget.writers.lock();
        thread::scope(|scope| {
            let write = scope.spawn(|| file.write(&UNLIMITED, 1, &[9], WriteSource::Program));
            let is_written = || !array.buffer.is_empty();
            for _ in 0..500 {
                if is_written() {
                    break;
                }
                thread::sleep(Duration::from_millis(10));
            }
            let is_first = is_written();
            drop(list);
            write.join().unwrap().unwrap();
            assert!(is_first, "it was about to be listed");
        });
        assert_eq!(array.stored.engine.write_budget.writers.lock().len(), 1);
    }
}
