//! A zip archive as a store: an object of any other store, read by ranges.
//!
//! Only the directory is kept in memory. An entry's bytes are fetched when they are read, and nothing is unpacked to
//! disk. Stored and deflated entries can be read; reading another one is `Unsupported`. `directory` converts names to
//! keys, and leaves out names that lead out of the archive. Of several entries with the same name, the last one is
//! used. A name may be both a file and a folder. Section numbers refer to APPNOTE 6.3.10, the specification of zip.

use std::sync::Arc;

use crate::backend::current::{Checked, Current, Source};
use crate::backend::{is_a_directory, too_long};
use crate::request_context::RequestContext;
use crate::{
    ByteRange, ETag, EntryKind, HiddenEntries, Key, Listing, Meta, Name, Object, Reader, Store,
    StoreInfo, Version,
};
use zarr_format::error::{Error, Kind, Result, printable};

mod archive;
mod checksums;
mod directory;
mod index;
pub(crate) mod location;
mod reader;

use archive::Archive;
pub use directory::ArchiveLayout;
use directory::OmittedEntries;
use index::{Compression, IndexedPath, ZipEntry};
use reader::{DeflatedReader, Inflate, InflateCache, StoredReader};

/// Number of compressed bytes per request when a whole entry is read.
const FETCH_SIZE: u64 = 4 << 20;

/// A zip archive, or a folder in one, as a store.
pub struct ZipStore {
    current: Current<ArchiveObject>,
    inner: Key,
    inflate_cache: InflateCache,
    info: StoreInfo,
}

impl ZipStore {
    /// Opens the folder `inner` of the archive that is the object `archive` of the store `base`, called `display_name`
    /// in messages.
    ///
    /// The error is `NotFound` if there is no such object or folder, `Invalid` if `inner` is a file, `Corrupt` if the
    /// object is not a zip archive or is truncated.
    pub fn open(
        context: &RequestContext,
        base: Arc<dyn Store>,
        archive: &Key,
        inner: &Key,
        display_name: &str,
    ) -> Result<ZipStore> {
        let clock = base.info().clock.clone();
        let info = StoreInfo {
            server: base.info().server.clone(),
            ..StoreInfo::new(base.info().freshness)
        };
        let replacements = info.archive_generation.clone();
        let object = ArchiveObject {
            base,
            key: archive.clone(),
            display_name: display_name.to_string(),
        };
        let base_info = object.base.info();
        let (opened, stamp) = base_info.ask(context, |context| object.read(context, inner));
        let (opened, omitted) = opened?;
        let layout = opened.layout.clone();
        let first = Checked::new(opened, stamp.request_time);
        let not_shown = omitted.list.into_entries();
        let current = Current::new(object, first, replacements);
        let is_ozx = is_named_ozx(archive) && inner.is_root();
        let info = StoreInfo {
            ozx_layout: is_ozx.then(|| Arc::new(layout)),
            clock,
            hidden_entries: Arc::new(HiddenEntries::new(not_shown)),
            unchangeable: Some(
                "zip archives are read-only: use --cow CHANGES for changes, and 'zarrfs commit --to' to write a new store",
            ),
            ..info
        };
        let zip = ZipStore {
            current,
            info,
            inner: inner.clone(),
            inflate_cache: InflateCache::default(),
        };
        let archive = zip.current.get(context)?;
        match archive.index.find(inner) {
            IndexedPath::Folder(_) | IndexedPath::Both(_) => {}
            IndexedPath::File(_) => {
                let text = format!("{inner} is a file in the zip archive, not a directory");
                return Err(Error::invalid(display_name, text));
            }
            IndexedPath::Missing => {
                let text = format!("no directory {inner} in the zip archive");
                return Err(Error::new(Kind::NotFound, display_name, text));
            }
        }
        if let Some(folder) = archive.index.only_folder().filter(|_| inner.is_root()) {
            let folder = printable(&String::from_utf8_lossy(folder));
            let display_name = printable(display_name);
            log::warn!(
                "{display_name}: contains only the directory {folder}; use {display_name}/{folder} as the store"
            );
        }
        Ok(zip)
    }

    /// Converts a key of the store to a name in the archive. They differ if the store is a folder in the archive.
    fn entry_name(&self, key: &Key) -> Result<Key> {
        match (self.inner.is_root(), key.is_root()) {
            (true, _) => Ok(key.clone()),
            (_, true) => Ok(self.inner.clone()),
            _ => Key::new([self.inner.as_bytes(), b"/", key.as_bytes()].concat()),
        }
    }

    /// Runs a query on the entry of a file in the archive, or returns `None` if there is no such file. The query's
    /// errors get the name of the key.
    fn query_file<T>(
        &self,
        context: &RequestContext,
        key: &Key,
        query: impl Fn(&Arc<Archive>, &Key, &ZipEntry) -> Result<T>,
    ) -> Result<Option<T>> {
        let full = self.entry_name(key)?;
        self.current
            .query(context, |archive| match archive.index.find(&full) {
                IndexedPath::File(entry) | IndexedPath::Both(entry) => query(archive, &full, entry)
                    .map(Some)
                    .map_err(|error| error.about(key)),
                _ => Ok(None),
            })
    }
}

impl Store for ZipStore {
    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        self.query_file(context, key, |archive, full, entry| {
            if entry.size > limit {
                return Err(too_long("", entry.size, limit));
            }
            let data = archive.data(context, full, entry, true)?;
            let bytes = match entry.compression {
                Compression::Deflated => {
                    Inflate::new(entry, data, FETCH_SIZE).whole(context, archive)?
                }
                _ => archive.stored(context, entry, data)?,
            };
            Ok(object(archive, entry, bytes))
        })
    }

    fn get_range(
        &self,
        context: &RequestContext,
        key: &Key,
        range: ByteRange,
    ) -> Result<Option<Object>> {
        self.query_file(context, key, |archive, full, entry| {
            let span = range.within(entry.size);
            let data = archive.data(context, full, entry, false)?;
            let bytes = match entry.compression {
                Compression::Deflated => {
                    let mut inflate = Inflate::new(entry, data, FETCH_SIZE);
                    inflate.skip_to(context, archive, span.start)?;
                    inflate.take(context, archive, span.end - span.start)?
                }
                _ => {
                    archive.recheck_wrong(context, entry, data.start)?;
                    archive.read_part(context, entry, data.start, span)?
                }
            };
            Ok(object(archive, entry, bytes))
        })
    }

    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        let full = self.entry_name(key)?;
        self.current.query(context, |archive| {
            Ok(match archive.index.find(&full) {
                IndexedPath::Missing => None,
                IndexedPath::Folder(entry) => Some(archive.folder_meta(entry)),
                IndexedPath::Both(entry) => Some(Meta {
                    kind: EntryKind::Directory,
                    ..archive.meta_of(entry)
                }),
                IndexedPath::File(entry) => Some(archive.meta_of(entry)),
            })
        })
    }

    fn version(&self, context: &RequestContext, key: &Key) -> Result<Option<Version>> {
        self.query_file(context, key, |archive, _, entry| {
            Ok(archive.version_of(entry))
        })
    }

    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        _known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>> {
        let reader = self.query_file(context, key, |archive, full, entry| {
            let start = archive.data(context, full, entry, false)?.start;
            let (archive, key) = (archive.clone(), key.clone());
            let reader: Arc<dyn Reader> = match entry.compression {
                Compression::Deflated => Arc::new(DeflatedReader::new(
                    archive,
                    key,
                    entry,
                    start,
                    self.inflate_cache.clone(),
                )),
                _ => {
                    archive.recheck_wrong(context, entry, start)?;
                    Arc::new(StoredReader {
                        entry: *entry,
                        archive,
                        key,
                        start,
                    })
                }
            };
            Ok(reader)
        })?;
        match reader {
            Some(reader) => Ok(reader),
            None if self.head(context, key)?.is_some() => Err(is_a_directory(key)),
            None => Err(Error::not_found(key)),
        }
    }

    fn list(&self, context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>> {
        let full = self.entry_name(prefix)?;
        self.current
            .query(context, |archive| match archive.index.find(&full) {
                IndexedPath::Missing => Err(Error::not_found(prefix)),
                IndexedPath::File(_) => Err(Error::new(
                    Kind::NotADirectory,
                    prefix,
                    "is a file, not a directory",
                )),
                IndexedPath::Folder(_) | IndexedPath::Both(_) => {
                    let below = archive.index.below(&full);
                    let listing: Box<dyn Listing> = Box::new(ZipListing {
                        archive: archive.clone(),
                        depth: full.as_bytes().len(),
                        start: below.start,
                        position: below.start,
                        end: below.end,
                    });
                    Ok(listing)
                }
            })
    }

    /// Makes the ETag from checksum, length and time, not from the version of the archive, since a rewritten archive
    /// may have the same entry.
    fn etag(&self, context: &RequestContext, key: &Key) -> Result<Option<ETag>> {
        self.query_file(context, key, |archive, _, entry| {
            let (size, crc, modified) = (entry.size, entry.crc, entry.modified);
            Ok(ETag {
                text: format!("size {size}, crc32 {crc:08x}, time {modified}"),
                version: archive.version_of(entry),
            })
        })
    }

    fn info(&self) -> &StoreInfo {
        &self.info
    }
}

fn is_named_ozx(archive: &Key) -> bool {
    let name = archive.name().to_ascii_lowercase();
    name.ends_with(b".ozx")
}

fn object(archive: &Archive, entry: &ZipEntry, bytes: Vec<u8>) -> Object {
    Object {
        bytes,
        size: entry.size,
        version: archive.version_of(entry),
        modified: Some(archive.meta_of(entry).modified),
    }
}

/// A listing of a folder in the archive. Its cursor is the position after all index entries below the last name that
/// was returned.
struct ZipListing {
    archive: Arc<Archive>,
    depth: usize,
    start: usize,
    position: usize,
    end: usize,
}

impl Listing for ZipListing {
    fn next(&mut self, _context: &RequestContext) -> Result<Option<Name>> {
        if self.position >= self.end {
            return Ok(None);
        }
        let Some(child) = self.archive.index.child(self.position, self.depth) else {
            return Ok(None);
        };
        self.position = child.next;
        Ok(Some(Name {
            name: child.name.to_vec(),
            kind: child.kind,
            cursor: child.next as u64,
            meta: None,
        }))
    }

    fn seek(&mut self, _context: &RequestContext, cursor: u64) -> Result<()> {
        let position = usize::try_from(cursor).unwrap_or(usize::MAX);
        self.position = position.clamp(self.start, self.end);
        Ok(())
    }

    fn may_wait(&self) -> bool {
        false
    }
}

/// The object of another store that is the zip archive. It is read again when it has changed.
struct ArchiveObject {
    base: Arc<dyn Store>,
    key: Key,
    display_name: String,
}

impl ArchiveObject {
    /// Reads the central directory of the archive, and logs a warning if entries are left out. Also returns the
    /// left-out entries in `folder`.
    fn read(
        &self,
        context: &RequestContext,
        folder: &Key,
    ) -> Result<(Arc<Archive>, OmittedEntries)> {
        let opened = Archive::open(context, &*self.base, &self.key, folder);
        let (archive, omitted) = opened.map_err(|error| error.about(&self.display_name))?;
        let text = omitted.to_string();
        if !text.is_empty() {
            log::warn!("{}: hidden entries: {text}", printable(&self.display_name));
        }
        Ok((Arc::new(archive), omitted))
    }
}

impl Source for ArchiveObject {
    type Content = Archive;

    fn info(&self) -> &StoreInfo {
        self.base.info()
    }

    /// Returns the archive as it was read before if it has not changed, or else reads the central directory of the new
    /// one.
    fn refresh(&self, context: &RequestContext, old: &Arc<Archive>) -> Result<Arc<Archive>> {
        let display_name = &self.display_name;
        let meta = self.base.head(context, &self.key);
        match meta.map_err(|error| archive::failed(error).about(display_name))? {
            Some(meta) if meta.version == old.meta.version => Ok(old.clone()),
            Some(meta) if meta.kind == EntryKind::File => match self.read(context, &Key::root()) {
                Ok((new, _)) if new.has_content_of(old) => Ok(old.clone()),
                Ok((new, _)) => Ok(new),
                // A changed archive without a valid directory may still be being written, so its entries are
                // unavailable, not corrupt.
                Err(error) => Err(match archive::failed(error) {
                    error if error.kind() == Kind::Corrupt => {
                        Error::unavailable(display_name, error.detail())
                    }
                    error => error,
                }),
            },
            _ => Err(Error::unavailable(display_name, "the zip archive is gone")),
        }
    }
}
