//! Opens a folder of Parquet files with chunk references, as fsspec writes it.
//!
//! `.zmetadata` has the metadata documents and the number of references in a file, `record_size`. The references of an
//! array's chunks are in `ARRAY/refs.N.parq`, in the order of their coordinates. A Parquet file is read when one of its
//! references is needed. If it is missing, its chunks have no references.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use crate::backend::current::Source;
use crate::backend::reference::{Entry, Reference, ReferenceTable};
use crate::request_context::RequestContext;
use crate::sync::budget::{MemoryBudget, Priority};
use crate::sync::cache::Cache;
use crate::sync::single_flight::JOIN_TIMEOUT;
use crate::{
    EntryKind, HiddenEntries, Key, Listing, Meta, Name, Object, Store, StoreInfo, Version,
};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::document::ZMETADATA;

use super::json::{JsonReader, WholeText};
use super::records::Records;
use super::table::{Table, TableBuilder, TableListing};
use super::targets::TargetBase;

/// Maximum number of chunk references in a Parquet file.
const MAX_RECORD: u64 = 1 << 24;

/// This bit marks the cursors (positions for a seek) of chunks. A listing returns metadata documents first, then
/// chunks.
const OF_CHUNK: u64 = 1 << 62;

/// A folder of Parquet files with chunk references, and how to read it.
pub(super) struct ParquetFolder {
    pub(super) base: Arc<dyn Store>,
    pub(super) targets: TargetBase,
    pub(super) memory: Arc<MemoryBudget>,
    pub(super) hidden: Arc<HiddenEntries>,
    pub(super) display_name: String,
}

/// The chunk references of one version of a folder of Parquet files.
pub(super) struct ParquetReferences {
    folder: Arc<ParquetFolder>,
    documents: Arc<Table>,
    record_size: u64,
    meta: Meta,
    records: Arc<Cache<RecordId, Arc<Records>>>,
}

/// Identifies a Parquet file with references to an array's chunks.
#[derive(Clone, PartialEq, Eq, Hash)]
struct RecordId {
    array: Key,
    number: u64,
}

/// The content of `.zmetadata` in a folder of Parquet files.
struct FolderMetadata {
    documents: Table,
    record_size: u64,
}

impl ParquetFolder {
    /// Reads `.zmetadata`. Returns `None` if it is missing or is the consolidated metadata of an ordinary Zarr store.
    pub(super) fn read(
        self: &Arc<ParquetFolder>,
        context: &RequestContext,
    ) -> Result<Option<Arc<ParquetReferences>>> {
        let key = Key::new(ZMETADATA)?;
        let limit = self.memory.limit() / 4;
        let object = match self.base.get(context, &key, limit) {
            // A `.zmetadata` of more than a quarter of the memory budget is taken for that of an ordinary Zarr store,
            // which zarrfs never reads as a whole.
            Err(error) if error.kind() == Kind::TooLarge => return Ok(None),
            object => object?,
        };
        let Some(object) = object else {
            return Ok(None);
        };
        let meta = Object::without_bytes(&object.meta()).meta();
        let metadata = self.metadata(object.bytes);
        let metadata = metadata.map_err(|error| error.about(&self.display_name))?;
        Ok(metadata.map(|metadata| {
            Arc::new(ParquetReferences {
                folder: self.clone(),
                documents: Arc::new(metadata.documents),
                record_size: metadata.record_size,
                meta,
                records: Cache::new(self.memory.clone(), Priority::Metadata, None),
            })
        }))
    }

    /// Parses `.zmetadata`; `None` if it has no `record_size`, which every folder of Parquet files states.
    fn metadata(&self, text: Vec<u8>) -> Result<Option<FolderMetadata>> {
        let word: &[u8] = b"\"record_size\"";
        if !text.windows(word.len()).any(|part| part == word) {
            return Ok(None);
        }
        let mut builder = TableBuilder::new(&self.memory, &self.hidden);
        let mut reader = JsonReader::new(WholeText(text), builder.limit());
        let (mut is_first, mut name, mut value) = (true, Vec::new(), Vec::new());
        let mut record_size = None;
        reader.expect(b'{')?;
        while reader.next_member(&mut is_first, &mut name)? {
            if name != b"metadata" {
                reader.value(&mut value)?;
                if name == b"record_size" {
                    record_size = Some(parse_size(&value)?);
                }
                continue;
            }
            reader.expect(b'{')?;
            let mut is_first = true;
            while reader.next_member(&mut is_first, &mut name)? {
                reader.scalar(&mut value)?;
                builder.add_value(&name, &value)?;
            }
        }
        reader.end()?;
        let Some(record_size) = record_size else {
            return Ok(None);
        };
        Ok(Some(FolderMetadata {
            documents: builder.finish(|target| Ok(target.to_string()))?,
            record_size,
        }))
    }
}

fn parse_size(text: &[u8]) -> Result<u64> {
    let text = std::str::from_utf8(text).unwrap_or_default();
    let size = text.parse::<u64>().ok();
    let size = size.filter(|size| (1..=MAX_RECORD).contains(size));
    size.ok_or_else(|| {
        let why = format!("record_size is not a number from 1 to {MAX_RECORD}");
        Error::corrupt(ZMETADATA, why)
    })
}

/// Reads a folder of Parquet files again when it changes.
pub(super) struct FolderSource(pub(super) Arc<ParquetFolder>);

impl Source for FolderSource {
    type Content = ParquetReferences;

    fn info(&self) -> &StoreInfo {
        self.0.base.info()
    }

    fn refresh(
        &self,
        context: &RequestContext,
        old: &Arc<ParquetReferences>,
    ) -> Result<Arc<ParquetReferences>> {
        let ParquetFolder {
            base, display_name, ..
        } = &*self.0;
        let meta = base.head(context, &Key::new(ZMETADATA)?);
        let meta = meta.map_err(|error| error.about(display_name))?;
        if meta.is_some_and(|meta| meta.may_be_of(&old.meta)) {
            return Ok(old.clone());
        }
        let gone = || Error::unavailable(display_name, "the references are gone");
        match self.0.read(context) {
            // While `.zmetadata` is being written, the chunks are unavailable, not corrupt.
            Err(error) if error.kind() == Kind::Corrupt => {
                Err(Error::unavailable(display_name, error.detail()))
            }
            read => read?.ok_or_else(gone),
        }
    }
}

impl ParquetReferences {
    fn grid(&self, array: &Key) -> Result<Option<ChunkGrid>> {
        let document = self.documents.find(&array.child(b".zarray")?)?;
        match document.reference {
            Some(Reference::Inline(bytes)) => {
                let grid = ChunkGrid::parse(&bytes);
                grid.map(Some).map_err(|error| error.about(array))
            }
            _ => Ok(None),
        }
    }

    /// Returns the chunk references in a Parquet file; none if the file is missing.
    fn records(&self, context: &RequestContext, id: &RecordId) -> Result<Arc<Records>> {
        let deadline = Instant::now() + JOIN_TIMEOUT;
        self.records.load(context, id, deadline, || {
            let name = format!("refs.{}.parq", id.number);
            let key = id.array.child(name.as_bytes())?;
            let folder = &self.folder;
            let object = folder.base.get(context, &key, folder.memory.limit() / 4)?;
            let Some(object) = object else {
                return Ok(Arc::new(Records::none(&folder.memory)));
            };
            let records = Records::new(
                &object.bytes,
                self.record_size,
                &folder.targets,
                &folder.memory,
            );
            records.map(Arc::new).map_err(|error| error.about(&key))
        })
    }

    /// Returns the sorted numbers of an array's Parquet files that may have references.
    fn record_numbers(
        &self,
        context: &RequestContext,
        array: &Key,
        grid: &ChunkGrid,
    ) -> Result<Vec<u64>> {
        let base = &self.folder.base;
        let count = grid.count().div_ceil(self.record_size);
        if !base.info().lists {
            // Without a listing, each possible file must be requested, so their number is limited.
            if count > 10_000 {
                let why = format!(
                    "the server lists no names, and there may be {count} files of references"
                );
                return Err(Error::new(Kind::Unsupported, array, why));
            }
            return Ok((0..count).collect());
        }
        let mut listing = match base.list(context, array) {
            Err(error) if error.kind() == Kind::NotFound => return Ok(Vec::new()),
            listing => listing?,
        };
        let mut numbers = BTreeSet::new();
        while let Some(name) = listing.next(context)? {
            let name = String::from_utf8_lossy(&name.name).into_owned();
            let number = name
                .strip_prefix("refs.")
                .and_then(|name| name.strip_suffix(".parq"));
            let number = number.and_then(|number| number.parse::<u64>().ok());
            numbers.extend(number.filter(|&number| number < count));
        }
        Ok(numbers.into_iter().collect())
    }
}

impl ReferenceTable for ParquetReferences {
    fn find(&self, context: &RequestContext, key: &Key) -> Result<Entry> {
        let found = self.documents.find(key)?;
        if found.is_prefix || found.reference.is_some() {
            return Ok(found);
        }
        let Some(array) = key.parent() else {
            return Ok(found);
        };
        let Some(grid) = self.grid(&array)? else {
            return Ok(found);
        };
        let Some(number) = grid.number(key.name()) else {
            return Ok(found);
        };
        let id = RecordId {
            array,
            number: number / self.record_size,
        };
        let records = self.records(context, &id)?;
        let reference = records.get(number % self.record_size);
        Ok(Entry {
            reference: reference.map_err(|error| error.about(key))?,
            is_prefix: false,
        })
    }

    fn list(self: Arc<Self>, context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>> {
        let documents = self.documents.clone().list(prefix);
        let Some(grid) = self.grid(prefix)? else {
            return Ok(Box::new(documents));
        };
        Ok(Box::new(ArrayListing {
            files: self.record_numbers(context, prefix, &grid)?,
            references: self,
            array: prefix.clone(),
            grid,
            documents: Some(documents),
            next: 0,
        }))
    }

    fn modified(&self) -> SystemTime {
        self.meta.modified
    }

    fn version(&self) -> Version {
        self.meta.version
    }
}

/// Lists the metadata documents of an array, and then its chunks.
struct ArrayListing {
    references: Arc<ParquetReferences>,
    array: Key,
    grid: ChunkGrid,
    /// The sorted numbers of the array's Parquet files.
    files: Vec<u64>,
    /// The listing of the metadata documents; `None` after its end.
    documents: Option<TableListing>,
    /// Number of the next chunk, in C order.
    next: u64,
}

impl ArrayListing {
    /// Returns the number of the next chunk that has a reference.
    fn next_chunk(&mut self, context: &RequestContext) -> Result<Option<u64>> {
        let size = self.references.record_size;
        while self.next < self.grid.count() {
            let file = self.next / size;
            let position = self.files.partition_point(|&number| number < file);
            let Some(&number) = self.files.get(position) else {
                break;
            };
            if number > file {
                self.next = number.saturating_mul(size);
            }
            let id = RecordId {
                array: self.array.clone(),
                number,
            };
            let records = self.references.records(context, &id)?;
            let end = (number + 1).saturating_mul(size).min(self.grid.count());
            while self.next < end {
                self.next += 1;
                if records.has((self.next - 1) % size) {
                    return Ok(Some(self.next - 1));
                }
            }
        }
        self.next = self.grid.count();
        Ok(None)
    }
}

impl Listing for ArrayListing {
    fn next(&mut self, context: &RequestContext) -> Result<Option<Name>> {
        if let Some(documents) = &mut self.documents {
            if let Some(name) = documents.next(context)? {
                return Ok(Some(name));
            }
            self.documents = None;
        }
        let chunk = self.next_chunk(context)?;
        Ok(chunk.map(|chunk| Name {
            name: self.grid.name(chunk).into_bytes(),
            kind: EntryKind::File,
            cursor: OF_CHUNK | (chunk + 1),
            meta: None,
        }))
    }

    fn seek(&mut self, context: &RequestContext, cursor: u64) -> Result<()> {
        if cursor & OF_CHUNK != 0 {
            self.documents = None;
            self.next = cursor & !OF_CHUNK;
            return Ok(());
        }
        let mut documents = self.references.documents.clone().list(&self.array);
        documents.seek(context, cursor)?;
        self.documents = Some(documents);
        self.next = 0;
        Ok(())
    }
}

/// The chunk grid of an array: the number of chunks along each dimension.
#[derive(Debug, PartialEq)]
struct ChunkGrid {
    counts: Vec<u64>,
    count: u64,
}

impl ChunkGrid {
    /// Computes the chunk grid from `shape` and `chunks` in a `.zarray`.
    fn parse(document: &[u8]) -> Result<ChunkGrid> {
        let mut reader = JsonReader::new(WholeText(document.to_vec()), document.len() as u64);
        let (mut is_first, mut name, mut value) = (true, Vec::new(), Vec::new());
        let (mut shape, mut chunks) = (None, None);
        reader.expect(b'{')?;
        while reader.next_member(&mut is_first, &mut name)? {
            reader.value(&mut value)?;
            let lengths = || serde_json::from_slice::<Vec<u64>>(&value).ok();
            match name.as_slice() {
                b"shape" => shape = lengths(),
                b"chunks" => chunks = lengths(),
                _ => {}
            }
        }
        let grid = shape
            .zip(chunks)
            .and_then(|(shape, chunks)| ChunkGrid::new(&shape, &chunks));
        grid.ok_or_else(|| Error::corrupt("", "the metadata has no shape and chunks of numbers"))
    }

    fn new(shape: &[u64], chunks: &[u64]) -> Option<ChunkGrid> {
        if shape.len() != chunks.len() || chunks.contains(&0) {
            return None;
        }
        let counts: Vec<u64> = shape
            .iter()
            .zip(chunks)
            .map(|(length, chunk)| length.div_ceil(*chunk))
            .collect();
        // A cursor contains a chunk's number and a bit that marks chunks, so numbers must stay below that bit.
        let count = counts
            .iter()
            .try_fold(1u64, |product, count| product.checked_mul(*count));
        let count = count.filter(|count| *count < 1 << 60)?;
        Some(ChunkGrid { counts, count })
    }

    fn count(&self) -> u64 {
        self.count
    }

    /// Returns the number, in C order, of the chunk with a name such as `0.1`. Returns `None` if the grid has no such
    /// chunk.
    fn number(&self, name: &[u8]) -> Option<u64> {
        let name = std::str::from_utf8(name).ok()?;
        if self.counts.is_empty() {
            return (name == "0").then_some(0);
        }
        let mut names = name.split('.');
        let mut number = 0u64;
        for &count in &self.counts {
            let text = names.next()?;
            let at = text.parse::<u64>().ok()?;
            // `01` and `+1` parse as numbers, but they are not names of chunks.
            if at >= count || at.to_string() != text {
                return None;
            }
            number = number.checked_mul(count)?.checked_add(at)?;
        }
        names.next().is_none().then_some(number)
    }

    /// Returns the name, such as `0.1`, of the chunk with a number.
    fn name(&self, number: u64) -> String {
        let (mut names, mut rest) = (Vec::new(), number);
        for &count in self.counts.iter().rev() {
            names.push((rest % count.max(1)).to_string());
            rest /= count.max(1);
        }
        if names.is_empty() {
            return "0".to_string();
        }
        names.reverse();
        names.join(".")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_numbered_in_c_order() {
        let grid = ChunkGrid::parse(br#"{"fill_value": NaN, "shape": [5, 7], "chunks": [2, 3]}"#);
        let grid = grid.unwrap();
        assert_eq!(grid.count(), 9);
        for number in 0..9 {
            assert_eq!(grid.number(grid.name(number).as_bytes()), Some(number));
        }
        assert_eq!(grid.name(5), "1.2");
        for name in ["3.0", "0", "0.0.0", "01.0", "+1.0", "", ".zarray", "0.3"] {
            assert_eq!(grid.number(name.as_bytes()), None, "{name}");
        }
        let scalar = ChunkGrid::parse(br#"{"shape": [], "chunks": []}"#).unwrap();
        assert_eq!((scalar.count(), scalar.name(0)), (1, "0".to_string()));
        assert_eq!((scalar.number(b"0"), scalar.number(b"1")), (Some(0), None));
    }

    #[test]
    fn impossible_grids_are_errors() {
        for bad in [
            "{}",
            r#"{"shape": [1], "chunks": [0]}"#,
            r#"{"shape": [1], "chunks": [1, 1]}"#,
            r#"{"shape": [-1], "chunks": [1]}"#,
            r#"{"shape": [4294967296, 4294967296], "chunks": [1, 1]}"#,
        ] {
            assert!(ChunkGrid::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
