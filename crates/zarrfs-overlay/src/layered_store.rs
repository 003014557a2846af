//! A layer of changes over a store: the layer's content, else the store's.
//!
//! A whiteout in the layer hides the store's content. As a `Store` it is read-only. The store below may itself be a
//! layer over the store: a frozen one. A reader keeps one `LayeredStore`, and can read from it while its layer is
//! frozen and committed.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use rustix::fs::Stat as Native;
use rustix::io::Errno;

use crate::attribute_override::AttributeOverride;
use crate::journal_record::ContentDigest;
use crate::layer::{ChangeLayer, Located};
use crate::layer_dir::os_error;
use crate::overlay_core::mode;
use crate::{attributes, content, listing};
use zarr_format::dialect::consolidated::MAX_DOCUMENT;
use zarr_format::error::{Error, Result};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::tree::{AttrChange, Posix, Stat};
use zarrfs_store::{
    ByteRange, Condition, ETag, EncodedBy, EntryKind, FlatListing, Key, Listing, Meta, Object,
    PutBody, Reader, Store, StoreInfo, Version,
};

/// The place where a key's content or folder was found.
pub(crate) enum Resolved {
    /// In the layer.
    Upper(Native),
    /// In the store below, under this key.
    Lower(Key, Meta),
}

/// A layer of changes over a store.
#[derive(Clone)]
pub(crate) struct LayeredStore {
    pub(crate) layer: Arc<ChangeLayer>,
    /// The frozen layer if there is one, else the store.
    pub(crate) lower: Arc<dyn Store>,
    /// The layer below, if there is one; it is frozen.
    pub(crate) frozen: Option<Arc<LayeredStore>>,
    pub(crate) info: StoreInfo,
}

impl LayeredStore {
    /// Puts a layer over a frozen layer, or over the store.
    pub(crate) fn over(
        layer: Arc<ChangeLayer>,
        store: &Arc<dyn Store>,
        frozen: Option<Arc<LayeredStore>>,
        info: StoreInfo,
    ) -> LayeredStore {
        let lower = match &frozen {
            Some(frozen) => frozen.clone(),
            None => store.clone(),
        };
        LayeredStore {
            layer,
            lower,
            frozen,
            info,
        }
    }

    /// Returns the place of the content or folder of a key, or `None` if it does not exist.
    pub(crate) fn find(&self, context: &RequestContext, key: &Key) -> Result<Option<Resolved>> {
        loop {
            let lower = match self.layer.locate(key)? {
                Located::Upper(stat) => return Ok(Some(Resolved::Upper(stat))),
                Located::Hidden => return Ok(None),
                Located::Lower(lower) => lower,
            };
            let meta = self.lower.head(context, &lower)?;
            // A commit may have put the renamed object under its new name in the store since.
            if matches!(self.layer.locate(key)?, Located::Lower(now) if now == lower) {
                return Ok(meta.map(|meta| Resolved::Lower(lower, meta)));
            }
        }
    }

    /// Returns the key of the store that is visible at `key`, or `None` if a layer has or hides it.
    pub(crate) fn stored_key(&self, key: &Key) -> Option<Key> {
        match (self.layer.locate(key).ok()?, &self.frozen) {
            (Located::Lower(lower), Some(frozen)) => frozen.stored_key(&lower),
            (Located::Lower(lower), None) => Some(lower),
            (Located::Upper(_) | Located::Hidden, _) => None,
        }
    }

    /// Whether all layers map a key to the same key of the store.
    pub(crate) fn shows_own_key(&self, key: &Key) -> bool {
        let is_own = self.layer.lower_key(key).as_ref() == Some(key);
        is_own
            && self
                .frozen
                .as_ref()
                .is_none_or(|frozen| frozen.shows_own_key(key))
    }

    /// Returns the digests of contents that were sent to the store without an answer, so the store may have them.
    /// `None` stands for an erase.
    pub(crate) fn attempted(&self, key: &Key) -> Vec<Option<u128>> {
        let mut attempted = self.layer.lock().records.attempted(key).to_vec();
        attempted.extend(self.frozen.iter().flat_map(|frozen| frozen.attempted(key)));
        attempted
    }

    /// Returns length and digest of the store's object when its key was first changed, if they are known.
    pub(crate) fn base_content(&self, key: &Key) -> Option<ContentDigest> {
        let own = self.layer.base(key).and_then(|base| base.content);
        own.or_else(|| self.frozen.as_ref()?.base_content(key))
    }

    /// Returns the metadata that the chunk of a key was encoded with, in each layer that has changed the chunk.
    pub(crate) fn encoded_by(&self, key: &Key) -> Vec<EncodedBy> {
        let state = self.layer.lock();
        let mut found: Vec<EncodedBy> = Vec::new();
        if state.records.base(key).is_some() {
            found.extend(state.records.encoded_by(key).map(|(_, by)| by.clone()));
        }
        drop(state);
        found.extend(self.frozen.iter().flat_map(|frozen| frozen.encoded_by(key)));
        found
    }

    /// Returns owner and mode of the file that this layer or a frozen layer has of a key, or `None` if neither has one.
    pub(crate) fn stat_in_layers(&self, key: &Key) -> Result<Option<Posix>> {
        match (self.layer.locate(key)?, &self.frozen) {
            (Located::Upper(stat), _) => Ok(Some(attributes::posix_of(&stat))),
            (Located::Lower(lower), Some(frozen)) => frozen.stat_in_layers(&lower),
            _ => Ok(None),
        }
    }

    /// Returns owner and mode of the store's file at a key if the store is a local folder, else only the default mode.
    pub(crate) fn stored_attributes(&self, key: &Key) -> AttrChange {
        let usual = mode(0o644);
        self.stored_file(key).map_or(usual, |found| {
            let mode = found.mode() & attributes::PERMISSIONS;
            attributes::change_of(mode, found.uid(), found.gid())
        })
    }

    fn stored_file(&self, key: &Key) -> Option<std::fs::Metadata> {
        let lower = self.stored_key(key)?;
        let store = self
            .frozen
            .as_ref()
            .map_or(&self.lower, |frozen| &frozen.lower);
        let path = store.info().folder.as_ref()?;
        let path = path.join(OsStr::from_bytes(lower.as_bytes()));
        let found = std::fs::symlink_metadata(path).ok()?;
        found.is_file().then_some(found)
    }

    /// Returns the kind of the found file or folder.
    pub(crate) fn kind(found: &Resolved) -> EntryKind {
        match found {
            Resolved::Upper(stat) => attributes::kind_of(stat),
            Resolved::Lower(_, meta) => meta.kind,
        }
    }

    /// Returns the `stat` of a key as its content has it, and the attributes that override it because they were set
    /// while the layer had no content of the key.
    pub(crate) fn stat(
        &self,
        context: &RequestContext,
        key: &Key,
    ) -> Result<(Option<Stat>, Option<Arc<AttributeOverride>>)> {
        loop {
            let overrides = self.layer.attribute_override(key)?;
            let found = self.find(context, key)?;
            let is_below = matches!(found, Some(Resolved::Lower(..)));
            let stat = self.stat_of(context, key, found)?;
            // A rename moves the overriding attributes, and a new content takes them over.
            if self.layer.attribute_override(key)? == overrides {
                return Ok((stat, overrides.filter(|_| is_below)));
            }
        }
    }

    /// Returns the `stat` of a found key. Files of a layer have their own owner and mode.
    fn stat_of(
        &self,
        context: &RequestContext,
        key: &Key,
        found: Option<Resolved>,
    ) -> Result<Option<Stat>> {
        Ok(match found {
            None => None,
            Some(Resolved::Upper(stat)) => Some(self.upper_stat(key, &stat)),
            Some(Resolved::Lower(lower, meta)) => match &self.frozen {
                Some(frozen) => frozen.stat_of(context, &lower, frozen.find(context, &lower)?)?,
                None => Some(stat_of_stored(meta)),
            },
        })
    }

    /// Returns the `stat` of a file or folder of the layer.
    pub(crate) fn upper_stat(&self, key: &Key, stat: &Native) -> Stat {
        Stat {
            meta: self.layer.meta(key, stat),
            posix: Some(attributes::posix_of(stat)),
            content: stat.st_ino,
        }
    }

    /// Opens the file of a key in this layer or a frozen layer below; also returns the number of its last write. `None`
    /// if no layer has the file.
    pub(crate) fn frozen_file(&self, key: &Key) -> Result<Option<(File, u64)>> {
        loop {
            match (self.layer.locate(key)?, &self.frozen) {
                (Located::Upper(_), _) => match self.layer.dir.open_file(key) {
                    // The file has left the layer since the lookup.
                    Err(Errno::NOENT) => {}
                    opened => {
                        let file = opened.map_err(|error| os_error(key, error))?;
                        return Ok(Some((file, self.layer.generation(key))));
                    }
                },
                (Located::Lower(lower), Some(frozen)) => return frozen.frozen_file(&lower),
                _ => return Ok(None),
            }
        }
    }

    /// Calls `ask` with the store below and the key that is visible at `key`. Returns `None` if the layer has the key,
    /// or a whiteout hides it.
    pub(crate) fn query_below<T>(
        &self,
        key: &Key,
        ask: impl Fn(&dyn Store, &Key) -> Result<T>,
    ) -> Result<Option<T>> {
        loop {
            let Located::Lower(lower) = self.layer.locate(key)? else {
                return Ok(None);
            };
            let answer = ask(&*self.lower, &lower);
            // A commit may have put the renamed object under its new name in the store since, and the old key may have
            // another content.
            if lower == *key
                || matches!(self.layer.locate(key)?, Located::Lower(now) if now == lower)
            {
                return answer.map(Some);
            }
        }
    }

    /// Returns the layer's own file of a key, or `None` if the layer has no file or one of more than `MAX_DOCUMENT`
    /// bytes.
    pub(crate) fn own_object(&self, context: &RequestContext, key: &Key) -> Result<Option<Object>> {
        match self.own_reader(key)? {
            Some(reader) if reader.meta.size <= MAX_DOCUMENT => {
                reader.object(context, key, 0, reader.meta.size).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Opens the layer's file of a key, or returns `None` if it has none.
    pub(crate) fn own_reader(&self, key: &Key) -> Result<Option<FrozenReader>> {
        let file = match self.layer.dir.open_file(key) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO) => return Ok(None),
            Err(error) => return Err(os_error(key, error)),
        };
        let stat = rustix::fs::fstat(&file).map_err(|error| os_error(key, error))?;
        let meta = self.layer.meta(key, &stat);
        let is_file = meta.kind == EntryKind::File;
        Ok(is_file.then_some(FrozenReader { file, meta }))
    }

    /// Calls `below` if the store below has a key, `own` if the layer has a file of it. Returns `None` if neither has
    /// it.
    fn read<T>(
        &self,
        key: &Key,
        below: impl Fn(&dyn Store, &Key) -> Result<Option<T>>,
        own: impl Fn(FrozenReader) -> Result<T>,
    ) -> Result<Option<T>> {
        loop {
            if let Some(found) = self.query_below(key, &below)? {
                return Ok(found);
            }
            if let Some(reader) = self.own_reader(key)? {
                return own(reader).map(Some);
            }
            // If the file existed, a commit or a discard removed it between the two lookups.
            let is_gone = match self.layer.locate(key)? {
                Located::Lower(_) => true,
                Located::Upper(stat) => attributes::kind_of(&stat) == EntryKind::File,
                Located::Hidden => false,
            };
            if !is_gone {
                return Ok(None);
            }
        }
    }

    /// Whether a directory shows exactly what one folder of the store below has, under the same names: no whiteout
    /// below it hides or adds a name.
    pub(crate) fn shows_all(&self, prefix: &Key) -> bool {
        let state = self.layer.lock();
        let records = &state.records;
        records.hides_nothing() || {
            let below = records.whiteouts(prefix);
            below.iter().all(|whiteout| whiteout.at == *prefix)
        }
    }

    /// Returns the key of the store that is visible at `key` because of renames in this layer or in the frozen layer;
    /// `None` if nothing was renamed to `key`.
    pub(crate) fn renamed_from(&self, key: &Key) -> Option<Key> {
        let lower = self.layer.lower_key(key)?;
        let source = match &self.frozen {
            Some(frozen) => frozen.renamed_from(&lower).unwrap_or(lower),
            None => lower,
        };
        (source != *key).then_some(source)
    }
}

/// Returns the `stat` of a key of the store, with the mount's owner and mode.
pub(crate) fn stat_of_stored(meta: Meta) -> Stat {
    Stat {
        meta,
        posix: None,
        content: meta.version.number(),
    }
}

/// Returns an ETag of the content of a layer's file, made from its version.
pub(crate) fn etag_of(meta: &Meta) -> ETag {
    ETag {
        text: format!("{:016x}", meta.version.number()),
        version: meta.version,
    }
}

impl Store for LayeredStore {
    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        let below = |store: &dyn Store, lower: &Key| store.get(context, lower, limit);
        self.read(key, below, |reader| {
            let size = reader.meta.size;
            if size > limit {
                let why = format!("{size} bytes exceed the limit of {limit}");
                return Err(Error::too_large(key, why));
            }
            reader.object(context, key, 0, size)
        })
    }

    fn get_range(
        &self,
        context: &RequestContext,
        key: &Key,
        range: ByteRange,
    ) -> Result<Option<Object>> {
        let below = |store: &dyn Store, lower: &Key| store.get_range(context, lower, range.clone());
        self.read(key, below, |reader| {
            let span = range.within(reader.meta.size);
            reader.object(context, key, span.start, span.end - span.start)
        })
    }

    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        Ok(self.find(context, key)?.map(|found| match found {
            Resolved::Upper(stat) => self.layer.meta(key, &stat),
            Resolved::Lower(_, meta) => meta,
        }))
    }

    fn version(&self, context: &RequestContext, key: &Key) -> Result<Option<Version>> {
        let below = |store: &dyn Store, lower: &Key| store.version(context, lower);
        self.read(key, below, |reader| Ok(reader.meta.version))
    }

    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>> {
        let below = |store: &dyn Store, lower: &Key| store.open(context, lower, known).map(Some);
        let reader = self.read(key, below, |reader| Ok(Arc::new(reader) as Arc<dyn Reader>))?;
        reader.ok_or_else(|| Error::not_found(key))
    }

    fn list(&self, context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>> {
        let own = Arc::new(self.clone());
        listing::open(context, Arc::new(move || own.clone()), prefix)
    }

    fn list_all(
        &self,
        _context: &RequestContext,
        _prefix: &Key,
        _from: &Key,
    ) -> Result<Option<Box<dyn FlatListing>>> {
        Ok(None)
    }

    fn drop_cached(&self, key: &Key, range: Option<&ByteRange>) {
        // If the key cannot be looked up below, nothing about it is cached there.
        let _ = self.query_below(key, |store: &dyn Store, lower: &Key| {
            store.drop_cached(lower, range);
            Ok(Some(()))
        });
    }

    /// Whether a symbolic link of the store below leads to one of its ancestors. The layer's own links are never followed.
    fn is_symlink_cycle(&self, context: &RequestContext, key: &Key) -> Result<bool> {
        match self.layer.locate(key)? {
            Located::Lower(lower) => self.lower.is_symlink_cycle(context, &lower),
            Located::Upper(_) | Located::Hidden => Ok(false),
        }
    }

    fn read_link(&self, context: &RequestContext, key: &Key) -> Result<Vec<u8>> {
        loop {
            match self.find(context, key)? {
                None => return Err(Error::not_found(key)),
                Some(Resolved::Lower(lower, _)) => return self.lower.read_link(context, &lower),
                Some(Resolved::Upper(_)) => {}
            }
            let found = self.layer.dir.parent(key);
            let target =
                found.and_then(|(folder, name)| rustix::fs::readlinkat(folder, name, Vec::new()));
            match target {
                // The file has left the layer since the lookup.
                Err(Errno::NOENT) => {}
                target => return Ok(target.map_err(|error| os_error(key, error))?.into_bytes()),
            }
        }
    }

    fn etag(&self, context: &RequestContext, key: &Key) -> Result<Option<ETag>> {
        let below = |store: &dyn Store, lower: &Key| store.etag(context, lower);
        self.read(key, below, |reader| Ok(etag_of(&reader.meta)))
    }

    fn put(
        &self,
        _context: &RequestContext,
        key: &Key,
        _body: PutBody<'_>,
        _condition: &Condition,
    ) -> Result<ETag> {
        Err(Error::read_only(key))
    }

    fn erase(&self, _context: &RequestContext, key: &Key, _condition: &Condition) -> Result<()> {
        Err(Error::read_only(key))
    }

    fn erase_folder(&self, _context: &RequestContext, prefix: &Key) -> Result<()> {
        Err(Error::read_only(prefix))
    }

    fn info(&self) -> &StoreInfo {
        &self.info
    }
}

/// An open file of a layer, with its metadata when it was opened.
pub(crate) struct FrozenReader {
    file: File,
    meta: Meta,
}

impl FrozenReader {
    fn object(
        &self,
        context: &RequestContext,
        key: &Key,
        offset: u64,
        length: u64,
    ) -> Result<Object> {
        let length = usize::try_from(length).map_err(|error| Error::too_large(key, error))?;
        Ok(Object {
            bytes: self.read_at(context, offset, length)?,
            size: self.meta.size,
            version: self.meta.version,
            modified: Some(self.meta.modified),
        })
    }
}

impl Reader for FrozenReader {
    fn read_at(&self, _context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>> {
        content::read_file(&self.file, offset, len).map_err(|error| Error::os("", error))
    }

    fn meta(&self, _context: &RequestContext) -> Result<Meta> {
        Ok(self.meta)
    }
}
