//! The overlay as a store, and the hints that it gives: the upper folder's content of a key, else what the store has
//! where no whiteout hides it.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::FileType;

use super::journal::JournalRecord;
use super::upper::os_error;
use super::{Overlay, OverlayCore, Resolved, attributes, listing, wrong_kind};
use crate::error::{Error, Kind, Result};
use crate::known::Known;
use crate::store::{
    ByteRange, Condition, ETag, EntryKind, FlatListing, Hints, Key, Listing, Meta, Object, PutBody,
    Reader, Store, StoreInfo, Tree, Version,
};

impl Overlay {
    /// Reads part of an object of the upper folder; all bytes are of one content, or `Changed` is returned.
    fn object(
        &self,
        key: &Key,
        span: impl Fn(u64) -> Result<Range<u64>>,
    ) -> Result<Option<Object>> {
        let reader = match Store::open(self, key, None) {
            Err(error) if matches!(error.kind(), Kind::NotFound | Kind::IsADirectory) => {
                return Ok(None);
            }
            reader => reader?,
        };
        for _ in 0..MAX_READ_ATTEMPTS {
            let meta = reader.meta()?;
            let span = span(meta.size)?;
            let length = usize::try_from(span.end - span.start)
                .map_err(|error| Error::too_large(key, error))?;
            let bytes = reader.read_at(span.start, length)?;
            if reader.meta()?.version == meta.version {
                return Ok(Some(Object {
                    bytes,
                    size: meta.size,
                    version: meta.version,
                    modified: Some(meta.modified),
                }));
            }
        }
        let why = "is written each time it is read";
        Err(Error::new(Kind::Changed, key, why))
    }

    /// Returns which key of the store shows at `key`; `None` if the upper folder has it, or a whiteout hides it.
    fn below(&self, key: &Key) -> Result<Option<Key>> {
        let file = self.0.registered(key);
        let is_written = file.is_some_and(|file| file.is_pending());
        if is_written || self.0.upper.stat(key)?.is_some() {
            Ok(None)
        } else {
            Ok(self.0.lower_key(key))
        }
    }
}

/// Bytes that are copied at a time.
const COPY_BUFFER: u64 = 1 << 20;

/// How often an object is read again that is written while it is read.
const MAX_READ_ATTEMPTS: usize = 4;

impl Store for Overlay {
    fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>> {
        if let Some(lower) = self.below(key)? {
            return self.0.lower.get(&lower, limit);
        }
        self.object(key, |size| {
            if size > limit {
                let why = format!("{size} bytes, at most {limit} are read");
                return Err(Error::too_large(key, why));
            }
            Ok(0..size)
        })
    }

    fn get_range(&self, key: &Key, range: ByteRange) -> Result<Option<Object>> {
        if let Some(lower) = self.below(key)? {
            return self.0.lower.get_range(&lower, range);
        }
        self.object(key, |size| Ok(range.within(size)))
    }

    fn head(&self, key: &Key) -> Result<Option<Meta>> {
        Ok(Tree::stat(self, key)?.map(|stat| stat.meta))
    }

    fn version(&self, key: &Key) -> Result<Option<Version>> {
        let object = self
            .head(key)?
            .filter(|meta| meta.kind != EntryKind::Directory);
        Ok(object.map(|meta| meta.version))
    }

    fn open(&self, key: &Key, _known: Option<&Meta>) -> Result<Arc<dyn Reader>> {
        if let Some(stat) = self.0.upper.stat(key)?
            && FileType::from_raw_mode(stat.st_mode) == FileType::Symlink
        {
            return self.0.files.open(key, None);
        }
        Ok(self.0.open_file(key)?)
    }

    fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>> {
        listing::open(&self.0, prefix)
    }

    fn list_all(&self, _prefix: &Key, _from: &Key) -> Result<Option<Box<dyn FlatListing>>> {
        Ok(None)
    }

    fn read_link(&self, key: &Key) -> Result<Vec<u8>> {
        match self.0.find(key)? {
            None => Err(Error::not_found(key)),
            Some(Resolved::Lower(lower, _)) => self.0.lower.read_link(&lower),
            Some(Resolved::Upper(_)) => {
                let target =
                    self.0.upper.parent(key).and_then(|(folder, name)| {
                        rustix::fs::readlinkat(folder, name, Vec::new())
                    });
                let target = target.map_err(|error| os_error(key, error))?;
                Ok(target.into_bytes())
            }
        }
    }

    fn etag(&self, key: &Key) -> Result<Option<ETag>> {
        let meta = self.head(key)?;
        let meta = meta.filter(|meta| meta.kind == EntryKind::File);
        Ok(meta.map(|meta| etag_of(&meta)))
    }

    fn put(&self, key: &Key, body: PutBody<'_>, condition: &Condition) -> Result<ETag> {
        let names = self.0.names.lock();
        condition.check(key, self.etag(key)?.as_ref())?;
        self.0.replace(key, body)?;
        drop(names);
        self.0.write_through(std::slice::from_ref(key))?;
        let etag = self.etag(key)?;
        etag.ok_or_else(|| Error::not_found(key))
    }

    fn erase(&self, key: &Key, condition: &Condition) -> Result<()> {
        let names = self.0.names.lock();
        condition.check(key, self.etag(key)?.as_ref())?;
        if self.0.find(key)?.is_some() {
            self.0.remove_name(key)?;
        }
        drop(names);
        self.0.write_through(std::slice::from_ref(key))
    }

    fn erase_folder(&self, prefix: &Key) -> Result<()> {
        if prefix.is_root() {
            return Ok(());
        }
        match self.remove_folder(prefix) {
            Err(error) if is_no_empty_folder(&error) => Ok(()),
            done => done,
        }
    }

    fn info(&self) -> &StoreInfo {
        &self.0.info
    }
}

/// What is known of an overlay's keys: those that the upper folder has or hides, and those that the hints of the
/// store below know.
pub(super) struct OverlayHints {
    pub(super) overlay: Overlay,
    pub(super) below: Arc<dyn Hints>,
}

impl Hints for OverlayHints {
    fn head_now(&self, key: &Key) -> Known<Meta> {
        let core = &self.overlay.0;
        // The attributes of an open file may have to come from the store.
        if core.registered(key).is_some() {
            return Known::Unknown;
        }
        let position = core.info.changes.position();
        let known = match core.upper.stat(key) {
            Err(_) => Known::Unknown,
            Ok(Some(stat)) => Known::Is(core.meta(key, &stat)),
            Ok(None) => match core.lower_key(key) {
                None => Known::Missing,
                Some(lower) => self.below.head_now(&lower),
            },
        };
        if core.info.changes.changed_since(position, key) {
            Known::Unknown
        } else {
            known
        }
    }

    fn prefetch(&self, keys: &[Key]) {
        let state = self.overlay.0.state.lock();
        let keys: Vec<Key> = keys
            .iter()
            .filter_map(|key| state.records.lower_key(key))
            .collect();
        drop(state);
        self.below.prefetch(&keys);
    }
}

fn is_no_empty_folder(error: &Error) -> bool {
    use Kind::{NotADirectory, NotEmpty, NotFound};
    matches!(error.kind(), NotFound | NotEmpty | NotADirectory)
}

fn etag_of(meta: &Meta) -> ETag {
    ETag {
        text: format!("{:016x}", meta.version.0),
        version: meta.version,
    }
}

impl OverlayCore {
    /// Puts an object in the place of what has a key. The names must be locked.
    fn replace(&self, key: &Key, body: PutBody<'_>) -> Result<()> {
        if let Some(found) = self.find(key)?
            && self.kind(key, &found) == EntryKind::Directory
        {
            return Err(wrong_kind(key, true));
        }
        let (name, file) = self
            .upper
            .create_pending(key)
            .map_err(|error| os_error(key, error))?;
        let filled = self.fill_object(key, body, &file);
        if let Err(error) = filled.and_then(|()| self.publish_object(key, &name)) {
            self.upper.discard_pending(&name);
            return Err(error.about(key));
        }
        self.detach(key);
        self.note_write(key);
        Ok(())
    }

    /// Writes an object to a pending file, which gets the mode of the file that it replaces.
    fn fill_object(&self, key: &Key, body: PutBody<'_>, file: &File) -> Result<()> {
        let mut at = 0;
        while at < body.len() {
            let end = body.len().min(at.saturating_add(COPY_BUFFER));
            let piece = body.part(at..end)?;
            let written = file.write_all_at(&piece, at);
            written.map_err(|error| Error::os("", error))?;
            at = end;
        }
        let mode = self.upper.stat(key)?.map_or(0o644, |stat| stat.st_mode);
        let change = self.initial_attributes(mode, None);
        attributes::set_open(file, &change).map_err(Error::from)
    }

    /// Gives a pending file the key of its object.
    fn publish_object(&self, key: &Key, pending: &str) -> Result<()> {
        let mut records: Vec<JournalRecord> = self.base_record(key)?.into_iter().collect();
        if self.upper.stat(key)?.is_none() && self.lower_key(key).as_ref() != Some(key) {
            let replaced = self.find_lower(key)?;
            records.extend(
                replaced.and_then(|(from, meta)| self.moved_base_record(&from, meta.version)),
            );
        }
        if self.state.lock().records.is_incomplete(key) {
            // The file that was being written there is replaced.
            records.push(JournalRecord::Completed(key.clone()));
        }
        self.make_parents(key)?;
        self.record(records)?;
        let published = self.upper.publish(pending, key);
        published.map_err(|error| os_error(key, error))
    }
}
