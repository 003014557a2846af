//! Implements stores whose keys refer to bytes of other objects.
//!
//! An Icechunk repository and a kerchunk reference file describe a hierarchy in tables of references: the bytes of a
//! key are in the table itself, or a range of an object elsewhere. A `ReferenceTable` is one version of such a
//! description; `ReferenceStore` reads the bytes to which it refers. Objects outside the repository are read only below
//! the prefixes that the user allows.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::backend::current::{Current, Source};
use crate::backend::{is_a_directory, not_a_directory, slice, too_long};
use crate::request_context::RequestContext;
use crate::sync::budget::MemoryBudget;
use crate::{
    ByteRange, ETag, EntryKind, Key, Listing, Meta, Object, Reader, Store, StoreInfo, Version,
};
use zarr_format::error::{Error, Result};

pub mod icechunk;
pub(crate) mod kerchunk;
mod part;
pub(crate) mod targets;

use part::{Blocks, PartReader, is_side_by_side};
pub(crate) use part::{Location, Part, PartIdentity};
use targets::Targets;

/// One version of a hierarchy whose keys refer to bytes of other objects.
pub(crate) trait ReferenceTable: Send + Sync {
    /// Returns the reference of a key, and whether other keys are below the key.
    fn find(&self, context: &RequestContext, key: &Key) -> Result<Entry>;

    /// Lists the direct children of a prefix.
    fn list(self: Arc<Self>, context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>>;

    /// Returns the time at which the table of references was written, or `UNIX_EPOCH` if it does not state the time.
    fn modified(&self) -> SystemTime;

    /// Returns the version of the table of references. All its prefixes have that version too.
    fn version(&self) -> Version;
}

/// What a table of references contains about a key.
#[derive(Default)]
pub(crate) struct Entry {
    /// Where the bytes of the key are; `None` if the key is only a prefix or missing.
    pub(crate) reference: Option<Reference>,
    /// Whether other keys are below the key.
    pub(crate) is_prefix: bool,
}

/// Where the bytes of a key are.
pub(crate) enum Reference {
    /// The table itself contains the bytes.
    Inline(Bytes),
    /// The bytes are a range of another object.
    Part(Part),
}

/// Reads the keys of a table of references, as a store.
pub(super) struct ReferenceStore<S: Source> {
    current: Current<S>,
    targets: Arc<Targets>,
    /// The cache through which small adjacent ranges are read; `None` if each range is requested alone.
    blocks: Option<Arc<Blocks>>,
    info: StoreInfo,
}

impl<S: Source> ReferenceStore<S>
where
    S::Content: ReferenceTable,
{
    /// Creates a store that reads the current table of references. `info` has the store's properties.
    pub(super) fn new(
        current: Current<S>,
        targets: Arc<Targets>,
        info: StoreInfo,
    ) -> ReferenceStore<S> {
        ReferenceStore {
            current,
            targets,
            blocks: None,
            info,
        }
    }

    /// Makes the store fetch small adjacent ranges together.
    pub(super) fn with_blocks(self, memory: &Arc<MemoryBudget>) -> ReferenceStore<S> {
        ReferenceStore {
            blocks: Some(Arc::new(Blocks::new(memory))),
            ..self
        }
    }

    /// Returns the cache through which a key's range is read, or `None` if the range is requested alone.
    fn blocks_of(
        &self,
        context: &RequestContext,
        table: &S::Content,
        key: &Key,
        part: &Part,
    ) -> Option<Arc<Blocks>> {
        let blocks = self.blocks.as_ref()?;
        let is_one = is_side_by_side(key, part, |key| table.find(context, key));
        is_one.then(|| blocks.clone())
    }

    /// Runs a query on the reference of a key, or returns `None` if the key is no object. Errors name the key.
    fn query<T>(
        &self,
        context: &RequestContext,
        key: &Key,
        query: impl Fn(&S::Content, Reference) -> Result<T>,
    ) -> Result<Option<T>> {
        self.current.query(context, |table| {
            let entry = table.find(context, key)?;
            let found = entry.reference.map(|found| query(table, found));
            found.transpose().map_err(|error| error.about(key))
        })
    }

    /// Returns the metadata of the bytes to which a reference leads.
    fn meta(
        &self,
        context: &RequestContext,
        table: &S::Content,
        reference: &Reference,
    ) -> Result<Meta> {
        match reference {
            Reference::Inline(bytes) => Ok(inline_meta(table, bytes)),
            Reference::Part(part) => {
                let mut meta = part.meta(context, &self.targets)?;
                if meta.modified == UNIX_EPOCH {
                    meta.modified = table.modified();
                }
                Ok(meta)
            }
        }
    }

    /// Returns the bytes, or only those in `span`, to which a key's reference leads.
    fn read(
        &self,
        context: &RequestContext,
        table: &S::Content,
        key: &Key,
        reference: &Reference,
        span: Option<&ByteRange>,
    ) -> Result<Object> {
        match reference {
            Reference::Inline(bytes) => {
                let size = bytes.len() as u64;
                let span = span.map_or(0..size, |span| span.within(size));
                let bytes_of_span = slice(bytes, span.start, span.end);
                Ok(Object {
                    bytes: bytes_of_span,
                    ..Object::without_bytes(&inline_meta(table, bytes))
                })
            }
            Reference::Part(part) => {
                let blocks = self.blocks_of(context, table, key, part);
                part.read_from(context, blocks.as_deref(), &self.targets, span)
            }
        }
    }
}

/// Returns the metadata of bytes that the table of references itself contains.
fn inline_meta(table: &impl ReferenceTable, bytes: &Bytes) -> Meta {
    Meta {
        kind: EntryKind::File,
        size: bytes.len() as u64,
        stored: bytes.len() as u64,
        modified: table.modified(),
        version: Version::of(bytes),
    }
}

impl<S: Source + 'static> Store for ReferenceStore<S>
where
    S::Content: ReferenceTable,
{
    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        self.query(context, key, |table, reference| {
            let size = match &reference {
                Reference::Inline(bytes) => bytes.len() as u64,
                Reference::Part(part) => part.length(context, &self.targets)?,
            };
            if size > limit {
                return Err(too_long("", size, limit));
            }
            self.read(context, table, key, &reference, None)
        })
    }

    fn get_range(
        &self,
        context: &RequestContext,
        key: &Key,
        range: ByteRange,
    ) -> Result<Option<Object>> {
        self.query(context, key, |table, reference| {
            self.read(context, table, key, &reference, Some(&range))
        })
    }

    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        self.current.query(context, |table| {
            let entry = table.find(context, key)?;
            let meta = match (&entry.reference, entry.is_prefix) {
                (None, false) => return Ok(None),
                (None, true) => Meta {
                    modified: table.modified(),
                    version: table.version(),
                    ..Meta::prefix()
                },
                (Some(reference), is_prefix) => {
                    let found = self.meta(context, table, reference);
                    let mut meta = found.map_err(|error| error.about(key))?;
                    if is_prefix {
                        meta.kind = EntryKind::Directory;
                    }
                    meta
                }
            };
            Ok(Some(meta))
        })
    }

    fn version(&self, context: &RequestContext, key: &Key) -> Result<Option<Version>> {
        self.query(context, key, |table, reference| {
            Ok(self.meta(context, table, &reference)?.version)
        })
    }

    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        _known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>> {
        let opened = self.query(context, key, |table, reference| {
            let meta = self.meta(context, table, &reference)?;
            let reader: Arc<dyn Reader> = match reference {
                Reference::Inline(bytes) => Arc::new(InlineReader { bytes, meta }),
                Reference::Part(part) => Arc::new(PartReader {
                    blocks: self.blocks_of(context, table, key, &part),
                    part,
                    targets: self.targets.clone(),
                    key: key.clone(),
                    meta,
                }),
            };
            Ok(reader)
        })?;
        match opened {
            Some(reader) => Ok(reader),
            None if self.head(context, key)?.is_some() => Err(is_a_directory(key)),
            None => Err(Error::not_found(key)),
        }
    }

    fn list(&self, context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>> {
        self.current.query(context, |table| {
            let entry = table.find(context, prefix)?;
            match (entry.is_prefix, entry.reference) {
                (true, _) => table.clone().list(context, prefix),
                (false, Some(_)) => Err(not_a_directory(prefix)),
                (false, None) => Err(Error::not_found(prefix)),
            }
        })
    }

    fn etag(&self, context: &RequestContext, key: &Key) -> Result<Option<ETag>> {
        self.query(context, key, |table, reference| {
            let meta = self.meta(context, table, &reference)?;
            let seconds = meta.modified.duration_since(UNIX_EPOCH);
            let seconds = seconds.unwrap_or(Duration::ZERO).as_secs();
            let (size, number) = (meta.size, meta.version.number());
            Ok(ETag {
                text: format!("size {size}, version {number:016x}, time {seconds}"),
                version: meta.version,
            })
        })
    }

    fn info(&self) -> &StoreInfo {
        &self.info
    }
}

/// Reads bytes that the table of references itself contains.
struct InlineReader {
    bytes: Bytes,
    meta: Meta,
}

impl Reader for InlineReader {
    fn read_at(&self, _context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>> {
        let Range { start, end } = offset..offset.saturating_add(len as u64);
        Ok(slice(&self.bytes, start, end))
    }

    fn meta(&self, _context: &RequestContext) -> Result<Meta> {
        Ok(self.meta)
    }
}
