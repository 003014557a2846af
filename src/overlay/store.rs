//! The overlay as a store: what the upper folder has, then what the store below has and nothing hides.

use std::sync::Arc;

use rustix::fs::{AtFlags, FileType};

use super::journal::JournalRecord;
use super::upper::failed;
use super::{Overlay, Resolved, listing};
use crate::error::{Error, Kind, Result};
use crate::known::Known;
use crate::store::{
    ByteRange, Condition, ETag, EntryKind, FlatListing, Hints, Key, Listing, Meta, Object, PutBody,
    Reader, Store, StoreInfo, Tree, Version,
};

impl Overlay {
    /// Reads part of an object of the upper folder, of one content.
    fn object(
        &self,
        key: &Key,
        span: impl Fn(u64) -> Result<std::ops::Range<u64>>,
    ) -> Result<Option<Object>> {
        let reader = match Store::open(self, key, None) {
            Err(error) if matches!(error.kind(), Kind::NotFound | Kind::IsADirectory) => {
                return Ok(None);
            }
            reader => reader?,
        };
        for _ in 0..MOST_READS {
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

    /// Returns which key of the store has the object at `key`, if the store and not the upper folder has it.
    fn below(&self, key: &Key) -> Result<Option<Key>> {
        let is_written = self.0.live(key).is_some_and(|live| live.is_pending());
        match is_written || self.0.upper.stat(key)?.is_some() {
            true => Ok(None),
            false => Ok(self.0.lower_key(key)),
        }
    }
}

/// How much is copied at a time, in bytes.
const PIECE: u64 = 1 << 20;

/// How often an object is read that is written meanwhile.
const MOST_READS: usize = 4;

impl Store for Overlay {
    fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>> {
        if let Some(lower) = self.below(key)? {
            return self.0.lower.get(&lower, limit);
        }
        self.object(key, |size| match size > limit {
            true => {
                let why = format!("{size} bytes, at most {limit} are read");
                Err(Error::too_large(key, why))
            }
            false => Ok(0..size),
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
        Ok(self.0.open_live(key)?)
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
                let target = target.map_err(|error| failed(key, error))?;
                Ok(target.into_bytes())
            }
        }
    }

    fn etag(&self, key: &Key) -> Result<Option<ETag>> {
        let meta = self.head(key)?;
        let meta = meta.filter(|meta| meta.kind == EntryKind::File);
        Ok(meta.map(|meta| stamp_of(&meta)))
    }

    fn put(&self, key: &Key, body: PutBody<'_>, condition: &Condition) -> Result<ETag> {
        let names = self.0.names.lock();
        condition.check(key, self.etag(key)?.as_ref())?;
        self.0.replace(key, body)?;
        drop(names);
        self.0.pass_on(std::slice::from_ref(key))?;
        let stamp = self.etag(key)?;
        stamp.ok_or_else(|| Error::not_found(key))
    }

    fn erase(&self, key: &Key, condition: &Condition) -> Result<()> {
        let names = self.0.names.lock();
        condition.check(key, self.etag(key)?.as_ref())?;
        if self.0.find(key)?.is_some() {
            self.0.remove_name(key)?;
        }
        drop(names);
        self.0.pass_on(std::slice::from_ref(key))
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
        let shared = &self.overlay.0;
        // The attributes of an open file may have to come from the store.
        if shared.live(key).is_some() {
            return Known::Unknown;
        }
        let position = shared.info.changes.position();
        let known = match shared.upper.stat(key) {
            Err(_) => Known::Unknown,
            Ok(Some(stat)) => Known::Is(shared.meta(key, &stat)),
            Ok(None) => match shared.lower_key(key) {
                None => Known::Missing,
                Some(lower) => self.below.head_now(&lower),
            },
        };
        match shared.info.changes.changed_since(position, key) {
            true => Known::Unknown,
            false => known,
        }
    }

    fn prefetch(&self, keys: &[Key]) {
        let state = self.overlay.0.state.lock();
        let keys: Vec<Key> = keys
            .iter()
            .filter_map(|key| state.records.lower(key))
            .collect();
        drop(state);
        self.below.prefetch(&keys);
    }
}

fn is_no_empty_folder(error: &Error) -> bool {
    use Kind::{NotADirectory, NotEmpty, NotFound};
    matches!(error.kind(), NotFound | NotEmpty | NotADirectory)
}

fn stamp_of(meta: &Meta) -> ETag {
    ETag {
        text: format!("{:016x}", meta.version.0),
        version: meta.version,
    }
}

impl super::Shared {
    /// Puts an object in the place of what has a key. The names must be locked.
    fn replace(self: &Arc<Self>, key: &Key, body: PutBody<'_>) -> Result<()> {
        if let Some(found) = self.find(key)?
            && self.kind(key, &found) == EntryKind::Directory
        {
            return Err(super::wrong_kind(key, true));
        }
        let (name, file) = self.upper.begin(key).map_err(|error| failed(key, error))?;
        let filled = self.fill_object(key, body, &file);
        if let Err(error) = filled.and_then(|()| self.give_key(key, &name)) {
            self.upper.drop_pending(&name);
            return Err(error.about(key));
        }
        if let Some(live) = self.live(key) {
            live.lose_name();
            self.state.lock().live.remove(key);
        }
        self.written(key);
        Ok(())
    }

    fn fill_object(&self, key: &Key, body: PutBody<'_>, file: &std::fs::File) -> Result<()> {
        use std::os::unix::fs::FileExt;
        let mut at = 0;
        while at < body.len() {
            let end = body.len().min(at.saturating_add(PIECE));
            let piece = body.part(at..end)?;
            let written = file.write_all_at(&piece, at);
            written.map_err(|error| Error::os("", error))?;
            at = end;
        }
        let mode = self.upper.stat(key)?.map_or(0o644, |stat| stat.st_mode);
        let change = self.first_change(mode, None);
        super::attributes::set_open(file, &change).map_err(Error::from)
    }

    fn give_key(&self, key: &Key, pending: &str) -> Result<()> {
        let mut records: Vec<JournalRecord> = self.hold(key)?.into_iter().collect();
        if self.upper.stat(key)?.is_none() && self.lower_key(key).as_ref() != Some(key) {
            let stored = self.find_lower(key)?;
            records.extend(stored.and_then(|(from, meta)| self.hold_moved(&from, meta.version)));
        }
        if self.state.lock().records.is_born(key) {
            // What was being written there has no name any more.
            records.push(JournalRecord::Whole(key.clone()));
        }
        self.make_parents(key)?;
        self.note(records)?;
        self.upper
            .publish(pending, key)
            .map_err(|error| failed(key, error))
    }

    /// Removes a file's name. The names must be locked.
    pub(super) fn remove_name(&self, key: &Key) -> Result<()> {
        let upper = self.upper.stat(key)?;
        let mut records = Vec::new();
        if let Some((stored, meta)) = self.find_lower(key)? {
            records.extend(self.hold(key)?);
            if stored != *key && upper.is_none() {
                records.extend(self.hold_moved(&stored, meta.version));
            }
            let (key, of) = (key.clone(), None);
            records.push(JournalRecord::White { key, of });
        }
        self.note(records)?;
        if upper.is_some() {
            self.remove_native(key, AtFlags::empty())?;
        }
        self.forget_new(key)?;
        if let Some(live) = self.live(key) {
            live.lose_name();
            self.state.lock().live.remove(key);
        }
        self.written(key);
        Ok(())
    }

    /// Forgets a file that was made and is gone again: the store never had it.
    pub(super) fn forget_new(&self, key: &Key) -> Result<()> {
        let state = self.state.lock();
        let mut records = Vec::new();
        if state.records.is_born(key) {
            records.push(JournalRecord::Whole(key.clone()));
        }
        let held = state.records.held(key);
        if held.is_some_and(|held| held.version.is_none()) {
            records.push(JournalRecord::Let(key.clone()));
        }
        drop(state);
        self.note(records)
    }
}
