//! A file that is open: the same content for all who have it open, whatever happens to its name.
//!
//! What is written first goes into a pending file, a copy of what was there, and gets its key in one step when it
//! is flushed: until then a cut leaves the old content. A file that was just made lies at its key at once, marked
//! as not whole. Files with several names, and very large ones, are changed in place.

use std::fs::File;
use std::io::IoSliceMut;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;

use rustix::fs::FallocateFlags;

use super::Shared;
use super::attributes;
use super::content;
use super::journal::Record;
use super::lock;
use super::upper::failed;
use crate::error::Error;
use crate::error::Result;
use crate::store::Key;
use crate::store::Meta;
use crate::store::Reader;
use crate::store::Version;
use crate::store::tree::Change;
use crate::store::tree::Stat;
use crate::store::tree::TreeFile;

/// A file of the overlay that is open.
pub(super) struct Live {
    shared: Arc<Shared>,
    body: Mutex<Body>,
}

pub(super) struct Body {
    /// Nothing once the file has no name any more.
    key: Option<Key>,
    pub(super) source: Source,
    /// The file's name in `pending`, if its content is not under its key yet.
    pending: Option<String>,
    /// It was made and is not marked as whole.
    pub(super) is_born: bool,
    /// Something was written since the last flush.
    pub(super) is_dirty: bool,
    /// Which key of the store it showed when it was opened, and what the store held there.
    held: Option<(Key, Version)>,
}

#[derive(Clone)]
pub(super) enum Source {
    Lower(Arc<dyn Reader>),
    Upper(Arc<File>),
}

/// Files that take more than this are changed in place, in bytes on disk.
const MOST_COPIED: u64 = 256 << 20;

impl Live {
    pub(super) fn new(
        shared: &Arc<Shared>,
        key: &Key,
        source: Source,
        held: Option<(Key, Version)>,
    ) -> Live {
        Live {
            shared: shared.clone(),
            body: Mutex::new(Body {
                key: Some(key.clone()),
                source,
                pending: None,
                is_born: false,
                is_dirty: false,
                held,
            }),
        }
    }

    pub(super) fn body(&self) -> MutexGuard<'_, Body> {
        lock(&self.body)
    }

    /// Whether its content is not that of its key yet.
    pub(super) fn is_pending(&self) -> bool {
        self.body().pending.is_some()
    }

    /// Returns the key; nothing once the file has no name.
    pub(super) fn key(&self) -> Option<Key> {
        self.body().key.clone()
    }

    /// Takes the name away: what is open stays, and goes when it is closed.
    pub(super) fn lose_name(&self) {
        self.body().key = None;
    }

    /// Returns the version that a key of the store had when this file showed it, if it did.
    pub(super) fn shown_version(&self, from: &Key) -> Option<Version> {
        let body = self.body();
        let held = body.held.as_ref();
        held.filter(|(key, _)| key == from)
            .map(|(_, version)| *version)
    }

    /// Says that the store has its content now, under this version.
    pub(super) fn was_sent(&self, version: Option<Version>) {
        let mut body = self.body();
        body.held = body.key.clone().zip(version);
    }

    /// Gives it another key.
    pub(super) fn set_key(&self, key: Key) {
        self.body().key = Some(key);
    }

    /// Makes a file that can be written: a copy of what is there, or an empty one.
    pub(super) fn begin(&self, body: &mut Body, empty: bool) -> Result<()> {
        if body.pending.is_some() || body.is_born {
            return Ok(());
        }
        if let Source::Upper(file) = &body.source {
            let stat = rustix::fs::fstat(file).map_err(Error::from)?;
            let size = u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
            // One that has a key and no name was committed and is in the upper folder no more.
            let is_there = stat.st_nlink > 0;
            if stat.st_nlink > 1 || body.key.is_none() || (is_there && !empty && size > MOST_COPIED)
            {
                return Ok(());
            }
        }
        let key = body.key.clone().unwrap_or_default();
        let (name, file) = self
            .shared
            .upper
            .begin(&key)
            .map_err(|error| failed(&key, error))?;
        if let Err(error) = self.fill(body, &file, empty) {
            self.shared.upper.drop_pending(&name);
            return Err(error.about(&key));
        }
        body.source = Source::Upper(Arc::new(file));
        body.pending = Some(name);
        Ok(())
    }

    /// Gives a pending file what the one before it has: its content, if asked to, and its attributes.
    fn fill(&self, body: &Body, to: &File, empty: bool) -> Result<()> {
        match &body.source {
            Source::Upper(from) => {
                if !empty {
                    content::copy_data(from, to).map_err(|error| Error::os("", error))?;
                }
                content::copy_attributes(from, to).map_err(Error::from)
            }
            Source::Lower(reader) => {
                if !empty {
                    content::copy_stored(&**reader, to)?;
                }
                let meta = reader.meta()?;
                let change = self.shared.first_change(0o644, Some(meta.modified));
                attributes::set_open(to, &change).map_err(Error::from)
            }
        }
    }

    /// Gives a pending file its key. The names must be locked.
    pub(super) fn publish(&self, body: &mut Body) -> Result<()> {
        let Some(key) = body.key.clone() else {
            return Ok(());
        };
        let mut records = Vec::new();
        if body.is_dirty || body.pending.is_some() {
            records.extend(self.held(&key, body)?);
        }
        if body.is_born {
            records.push(Record::Whole(key.clone()));
        }
        self.shared.make_parents(&key)?;
        self.shared.note(records)?;
        body.is_born = false;
        if let Some(name) = &body.pending {
            let upper = &self.shared.upper;
            upper
                .publish(name, &key)
                .map_err(|error| failed(&key, error))?;
            body.pending = None;
            self.shared.written(&key);
        }
        body.is_dirty = false;
        Ok(())
    }

    /// Returns the records of what the store held, as far as something new is to be said.
    fn held(&self, key: &Key, body: &Body) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        let mut same = !body.is_dirty;
        let mut shown = None;
        match &body.held {
            Some((from, version)) if from == key => shown = Some(*version),
            // What was renamed is another content for its new key, and the old one goes with it.
            Some((from, version)) => {
                same = false;
                records.extend(self.shared.hold_moved(from, *version));
            }
            None => {}
        }
        let known = lock(&self.shared.state).records.held(key);
        let version = match known {
            Some(known) if known.same == same || same => return Ok(records),
            Some(known) => known.version,
            None if shown.is_some() => shown,
            None => self.shared.lower.version(key)?,
        };
        let key = key.clone();
        records.push(Record::Held { key, version, same });
        Ok(records)
    }

    /// Gives what was written its key, if something was. The names must be locked.
    pub(super) fn settle(&self) -> Result<()> {
        let mut body = self.body();
        match body.is_dirty || body.pending.is_some() {
            true => self.publish(&mut body),
            false => Ok(()),
        }
    }

    fn pass_on(&self) -> Result<()> {
        match self.key() {
            Some(key) => self.shared.pass_on(&[key]),
            None => Ok(()),
        }
    }

    fn resize(&self, size: u64) -> Result<()> {
        let mut body = self.body();
        let file = self.writable(&mut body, size == 0)?;
        file.set_len(size).map_err(|error| self.about(&body, error))
    }

    /// Returns the file to write to, marked as written.
    fn writable(&self, body: &mut Body, empty: bool) -> Result<Arc<File>> {
        self.begin(body, empty)?;
        if !body.is_dirty {
            body.is_dirty = true;
            if body.pending.is_none() && !body.is_born {
                // It is changed in place: that has to be known before.
                if let Some(key) = body.key.clone() {
                    let held = self.held(&key, body)?;
                    self.shared.note(held)?;
                }
            }
        }
        if let Some(key) = &body.key {
            self.shared.written(key);
        }
        match &body.source {
            Source::Upper(file) => Ok(file.clone()),
            Source::Lower(_) => Err(Error::read_only(body.key.clone().unwrap_or_default())),
        }
    }

    fn about(&self, body: &Body, error: std::io::Error) -> Error {
        Error::os(body.key.clone().unwrap_or_default(), error)
    }

    fn source(&self) -> Source {
        self.body().source.clone()
    }

    /// Returns the file itself for extended attributes, brought into the upper folder if `change`.
    pub(super) fn native(&self, change: bool) -> Result<Option<Arc<File>>> {
        if change {
            let _names = lock(&self.shared.names);
            let mut body = self.body();
            if matches!(body.source, Source::Lower(_)) || is_committed(&body)? {
                self.begin(&mut body, false)?;
                self.publish(&mut body)?;
            }
        }
        match self.source() {
            Source::Upper(file) => Ok(Some(file)),
            Source::Lower(_) => Ok(None),
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let body = self.body.get_mut().unwrap_or_else(|body| body.into_inner());
        if let Some(name) = &body.pending {
            match body.is_dirty && body.key.is_some() {
                true => log::error!("pending/{name}: could not be given its key, and stays there"),
                false => self.shared.upper.drop_pending(name),
            }
        }
        let Some(key) = &body.key else { return };
        let mut state = lock(&self.shared.state);
        if state
            .live
            .get(key)
            .is_some_and(|live| live.strong_count() == 0)
        {
            state.live.remove(key);
        }
    }
}

impl Reader for Live {
    fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        match self.source() {
            Source::Lower(reader) => reader.read_at(offset, len),
            Source::Upper(file) => content::read_native(&file, offset, len)
                .map_err(|error| self.about(&self.body(), error)),
        }
    }

    fn read_scattered(&self, offset: u64, parts: &mut [IoSliceMut<'_>]) -> Result<usize> {
        if let Source::Lower(reader) = self.source() {
            return reader.read_scattered(offset, parts);
        }
        let wanted = parts.iter().map(|part| part.len()).sum();
        let bytes = Reader::read_at(self, offset, wanted)?;
        crate::store::deal_out(&bytes, parts);
        Ok(bytes.len())
    }

    fn meta(&self) -> Result<Meta> {
        Ok(TreeFile::stat(self)?.meta)
    }
}

impl TreeFile for Live {
    fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        Reader::read_at(self, offset, len)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut body = self.body();
        let file = self.writable(&mut body, false)?;
        file.write_all_at(bytes, offset)
            .map_err(|error| self.about(&body, error))
    }

    fn write_now(&self, offset: u64, bytes: &[u8]) -> Option<Result<()>> {
        let mut body = self.body.try_lock().ok()?;
        // The first write may have to copy what was there.
        let is_ready = body.is_dirty && (body.pending.is_some() || body.is_born);
        if !is_ready {
            return None;
        }
        let file = match self.writable(&mut body, false) {
            Ok(file) => file,
            Err(error) => return Some(Err(error)),
        };
        let done = file.write_all_at(bytes, offset);
        Some(done.map_err(|error| self.about(&body, error)))
    }

    fn allocate(&self, mode: i32, range: (u64, u64)) -> Result<()> {
        let mut body = self.body();
        let file = self.writable(&mut body, false)?;
        let flags = FallocateFlags::from_bits_retain(mode as u32);
        rustix::fs::fallocate(&*file, flags, range.0, range.1)
            .map_err(|error| self.about(&body, error.into()))
    }

    fn flush(&self) -> Result<()> {
        let body = self.body();
        if !body.is_dirty && body.pending.is_none() {
            return Ok(());
        }
        drop(body);
        let names = lock(&self.shared.names);
        self.settle()?;
        drop(names);
        self.pass_on()
    }

    fn sync(&self) -> Result<()> {
        let Source::Upper(file) = self.source() else {
            return Ok(());
        };
        let synced = file.sync_all();
        synced.map_err(|error| self.about(&self.body(), error))?;
        TreeFile::flush(self)?;
        let key = self.body().key.clone();
        match key.and_then(|key| key.parent()) {
            Some(folder) => self.shared.sync_folder(&folder),
            None => Ok(()),
        }
    }

    fn stat(&self) -> Result<Stat> {
        let body = self.body();
        match &body.source {
            Source::Lower(reader) => Ok(Stat {
                meta: reader.meta()?,
                posix: None,
            }),
            Source::Upper(file) => {
                let stat = rustix::fs::fstat(file).map_err(Error::from)?;
                let writes = body.key.as_ref().map_or(0, |key| self.shared.writes(key));
                let mut posix = attributes::posix_of(&stat);
                if body.key.is_none() && body.pending.is_some() {
                    posix.links = 0;
                }
                // One that was committed has the attributes that all of the store's have.
                let is_committed = body.key.is_some() && stat.st_nlink == 0;
                Ok(Stat {
                    meta: attributes::meta_of(&stat, writes),
                    posix: (!is_committed).then_some(posix),
                })
            }
        }
    }

    fn change(&self, change: &Change) -> Result<()> {
        if let Some(size) = change.size {
            self.resize(size)?;
        }
        let rest = Change {
            size: None,
            ..*change
        };
        if rest == Change::default() {
            return Ok(());
        }
        let Some(file) = self.native(true)? else {
            return Err(Error::read_only(
                self.body().key.clone().unwrap_or_default(),
            ));
        };
        let key = self.body().key.clone().unwrap_or_default();
        attributes::set_open(&*file, &rest).map_err(|error| failed(&key, error))?;
        self.shared.changed();
        Ok(())
    }
}

/// Whether a file has a key that the upper folder has no more, since the store has it.
fn is_committed(body: &Body) -> Result<bool> {
    match &body.source {
        Source::Upper(file) if body.key.is_some() => {
            let stat = rustix::fs::fstat(file).map_err(Error::from)?;
            Ok(stat.st_nlink == 0)
        }
        _ => Ok(false),
    }
}
