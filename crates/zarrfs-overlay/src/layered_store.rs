//! A layer of changes over a store: the layer's content, else the store's.
//!
//! A whiteout in the layer hides the store's content. The combination is a read-only `Store`. Below the top layer there
//! may be a frozen layer over the store while a commit runs. A reader that holds a `LayeredStore` can go on reading
//! while the layer is frozen and committed.

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

/// Where the content or folder of a key was found.
pub(crate) enum Resolved {
    /// In the layer of changes, with this `stat`.
    Upper(Native),
    /// In the frozen layer or the store below, under this key and with this metadata.
    Lower(Key, Meta),
}

/// A layer of changes over the store, or over the frozen layer of a running commit.
#[derive(Clone)]
pub(crate) struct LayeredStore {
    pub(crate) layer: Arc<ChangeLayer>,
    /// What is directly below the layer: the frozen layer if there is one, else the store.
    pub(crate) lower: Arc<dyn Store>,
    /// The frozen layer below, if there is one.
    pub(crate) frozen: Option<Arc<LayeredStore>>,
    pub(crate) info: StoreInfo,
}

impl LayeredStore {
    /// Combines a layer with what is below it: the frozen layer if there is one, else the store.
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

    /// Returns where the content or folder of a key is, or `None` if it does not exist.
    pub(crate) fn find(&self, context: &RequestContext, key: &Key) -> Result<Option<Resolved>> {
        loop {
            let lower = match self.layer.locate(key)? {
                Located::Upper(stat) => return Ok(Some(Resolved::Upper(stat))),
                Located::Hidden => return Ok(None),
                Located::Lower(lower) => lower,
            };
            let meta = self.lower.head(context, &lower)?;
            // Look again if the layer now shows another key, because a commit may have put the renamed object under its
            // new name.
            if matches!(self.layer.locate(key)?, Located::Lower(now) if now == lower) {
                return Ok(meta.map(|meta| Resolved::Lower(lower, meta)));
            }
        }
    }

    /// Returns the key of the store's object that the mount shows at `key`. Returns `None` if a layer has its own file
    /// or hides the object.
    pub(crate) fn stored_key(&self, key: &Key) -> Option<Key> {
        match (self.layer.locate(key).ok()?, &self.frozen) {
            (Located::Lower(lower), Some(frozen)) => frozen.stored_key(&lower),
            (Located::Lower(lower), None) => Some(lower),
            (Located::Upper(_) | Located::Hidden, _) => None,
        }
    }

    /// Whether no layer hides or renames the store's object of a key.
    pub(crate) fn shows_own_key(&self, key: &Key) -> bool {
        let is_own = self.layer.lower_key(key).as_ref() == Some(key);
        is_own
            && self
                .frozen
                .as_ref()
                .is_none_or(|frozen| frozen.shows_own_key(key))
    }

    /// Returns the digests of contents whose puts got no answer, so that the store may have them; `None` stands for a
    /// removal.
    pub(crate) fn attempted(&self, key: &Key) -> Vec<Option<u128>> {
        let mut attempted = self.layer.lock().records.attempted(key).to_vec();
        attempted.extend(self.frozen.iter().flat_map(|frozen| frozen.attempted(key)));
        attempted
    }

    /// Returns length and digest of the store's object before the first change of its key, if they are known.
    pub(crate) fn base_content(&self, key: &Key) -> Option<ContentDigest> {
        let own = self.layer.base(key).and_then(|base| base.content);
        own.or_else(|| self.frozen.as_ref()?.base_content(key))
    }

    /// Returns the metadata that a chunk was encoded with, once for each layer that has changed the chunk.
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

    /// Returns the POSIX attributes of the top or frozen layer's file of a key, or `None` if no layer has one.
    pub(crate) fn stat_in_layers(&self, key: &Key) -> Result<Option<Posix>> {
        match (self.layer.locate(key)?, &self.frozen) {
            (Located::Upper(stat), _) => Ok(Some(attributes::posix_of(&stat))),
            (Located::Lower(lower), Some(frozen)) => frozen.stat_in_layers(&lower),
            _ => Ok(None),
        }
    }

    /// Returns owner and mode of a file in the store if the store is a local folder. Otherwise returns only the default
    /// mode.
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

    pub(crate) fn kind(found: &Resolved) -> EntryKind {
        match found {
            Resolved::Upper(stat) => attributes::kind_of(stat),
            Resolved::Lower(_, meta) => meta.kind,
        }
    }

    /// Returns the `stat` of a key's content, and the attributes that override it if they were set while the content
    /// was not in the layer.
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
            // Look again if the overriding attributes changed meanwhile: a rename moves them, and a new file takes them
            // over.
            if self.layer.attribute_override(key)? == overrides {
                return Ok((stat, overrides.filter(|_| is_below)));
            }
        }
    }

    /// Returns the `stat` of a key that was found. Files of the store get default attributes, files of a layer have
    /// their own.
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

    pub(crate) fn upper_stat(&self, key: &Key, stat: &Native) -> Stat {
        Stat {
            meta: self.layer.meta(key, stat),
            posix: Some(attributes::posix_of(stat)),
            content: stat.st_ino,
        }
    }

    /// Opens the file that this layer or a frozen layer has of a key. Also returns its generation. Returns `None` if no
    /// layer has a file.
    pub(crate) fn frozen_file(&self, key: &Key) -> Result<Option<(File, u64)>> {
        loop {
            match (self.layer.locate(key)?, &self.frozen) {
                (Located::Upper(_), _) => match self.layer.dir.open_file(key) {
                    // The file was moved out of the layer after the lookup, so look again.
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

    /// Calls `ask` with the store below the layer and with the key whose object is visible at `key`. Returns `None` if
    /// the layer has its own file or a whiteout there.
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
            // Ask again if the layer now shows another key. A commit may have put the renamed object under its new
            // name, and the old name may have another content.
            if lower == *key
                || matches!(self.layer.locate(key)?, Located::Lower(now) if now == lower)
            {
                return answer.map(Some);
            }
        }
    }

    /// Returns the content of the layer's own file of a key. Returns `None` if there is no file or it is longer than
    /// `MAX_DOCUMENT` bytes.
    pub(crate) fn own_object(&self, context: &RequestContext, key: &Key) -> Result<Option<Object>> {
        match self.own_reader(key)? {
            Some(reader) if reader.meta.size <= MAX_DOCUMENT => {
                reader.object(context, key, 0, reader.meta.size).map(Some)
            }
            _ => Ok(None),
        }
    }

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

    /// Calls `own` with the layer's file of a key if there is one, or else `below` with the store below. Returns `None`
    /// if the key exists in neither.
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
            // Look again if a commit or a discard has removed the file between the two lookups.
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

    /// Whether the names below a prefix are exactly those of one folder in the store, because no whiteout hides or adds
    /// a name there.
    pub(crate) fn shows_all(&self, prefix: &Key) -> bool {
        let state = self.layer.lock();
        let records = &state.records;
        records.hides_nothing() || {
            let below = records.whiteouts(prefix);
            below.iter().all(|whiteout| whiteout.at == *prefix)
        }
    }

    /// Returns the store's key of an object that was renamed to `key`, or `None` if nothing was renamed to `key`.
    pub(crate) fn renamed_from(&self, key: &Key) -> Option<Key> {
        let lower = self.layer.lower_key(key)?;
        let source = match &self.frozen {
            Some(frozen) => frozen.renamed_from(&lower).unwrap_or(lower),
            None => lower,
        };
        (source != *key).then_some(source)
    }
}

/// Returns the `stat` of an object of the store. It has no owner and mode, so the mount's defaults apply.
pub(crate) fn stat_of_stored(meta: Meta) -> Stat {
    Stat {
        meta,
        posix: None,
        content: meta.version.number(),
    }
}

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
        // Ignore an error: if the key cannot be found below, no cache there has it.
        let _ = self.query_below(key, |store: &dyn Store, lower: &Key| {
            store.drop_cached(lower, range);
            Ok(Some(()))
        });
    }

    /// Whether a symbolic link of the store leads to one of its own parents. Links in the layer are never followed.
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
                // The link was moved out of the layer after the lookup, so look again.
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

/// An open file of a layer, with the metadata that it had when it was opened.
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
