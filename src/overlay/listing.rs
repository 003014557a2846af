//! A directory of the overlay: the upper folder's names, then those of the store that are neither there nor hidden.
//!
//! Names of the upper folder are taken when the listing begins or begins again; those of the store come as a
//! stream. Cursors are places in this order. Where the upper folder has no such directory and nothing in it is
//! hidden, the store's own listing is given as it is.

use std::collections::HashSet;
use std::sync::Arc;

use rustix::fs::FileType;

use super::upper::failed;
use super::{Resolved, Shared, wrong_kind};
use crate::error::{Error, Kind, Result};
use crate::store::{EntryKind, Key, Listing, Name};

/// Opens the listing of a directory.
pub(super) fn open(shared: &Arc<Shared>, prefix: &Key) -> Result<Box<dyn Listing>> {
    let has_upper = match shared.find(prefix)? {
        None => return Err(Error::not_found(prefix)),
        Some(Resolved::Lower(_, meta)) => {
            if meta.kind != EntryKind::Directory {
                return Err(wrong_kind(prefix, false));
            }
            false
        }
        Some(Resolved::Upper(stat)) => {
            if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
                return Err(wrong_kind(prefix, false));
            }
            true
        }
    };
    let lower = shared.lower_key(prefix);
    if let (false, true, Some(lower)) = (has_upper, shared.shows_all(prefix), &lower) {
        return shared.lower.list(lower);
    }
    let mut merged = Merged {
        shared: shared.clone(),
        prefix: prefix.clone(),
        upper: Vec::new(),
        known: HashSet::new(),
        lower: None,
        place: 0,
    };
    merged.begin()?;
    Ok(Box::new(merged))
}

impl Shared {
    /// Whether everything that the store has in a directory is shown under its own name, and nothing beside it.
    fn shows_all(&self, prefix: &Key) -> bool {
        let state = self.state.lock();
        let records = &state.records;
        records.hides_nothing() || {
            let below = records.whiteouts(prefix);
            below.iter().all(|(key, _)| key == prefix)
        }
    }

    /// Returns the names and kinds that the upper folder has in a directory.
    pub(super) fn upper_names(&self, prefix: &Key) -> Result<Vec<(Vec<u8>, EntryKind)>> {
        use rustix::fs::OFlags;
        let fd = match self
            .upper
            .open_key(prefix, OFlags::RDONLY | OFlags::DIRECTORY)
        {
            Err(rustix::io::Errno::NOENT) => return Ok(Vec::new()),
            opened => opened.map_err(|error| failed(prefix, error))?,
        };
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(fd).map_err(|error| failed(prefix, error))? {
            let entry = entry.map_err(|error| failed(prefix, error))?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push((
                    name.to_vec(),
                    self.kind_of(prefix, name, entry.file_type())?,
                ));
            }
        }
        Ok(names)
    }

    fn kind_of(&self, prefix: &Key, name: &[u8], found: FileType) -> Result<EntryKind> {
        Ok(match found {
            FileType::Directory => EntryKind::Directory,
            FileType::Symlink => EntryKind::Link,
            FileType::Fifo => EntryKind::Pipe,
            FileType::Socket => EntryKind::Socket,
            FileType::Unknown => {
                let key = prefix.child(name)?;
                let stat = self.upper.stat(&key)?;
                stat.map_or(EntryKind::File, |stat| self.meta(&key, &stat).kind)
            }
            _ => EntryKind::File,
        })
    }
}

struct Merged {
    shared: Arc<Shared>,
    prefix: Key,
    upper: Vec<(Vec<u8>, EntryKind)>,
    /// Names of the store that are not shown: the upper folder has them, or they are hidden.
    known: HashSet<Vec<u8>>,
    lower: Option<Box<dyn Listing>>,
    /// How many names were given.
    place: u64,
}

impl Merged {
    /// Takes the names of the upper folder, and opens the listing of the store.
    fn begin(&mut self) -> Result<()> {
        self.place = 0;
        let mut names = self.shared.upper_names(&self.prefix)?;
        self.known = names.iter().map(|(name, _)| name.clone()).collect();
        names.extend(self.moved_here()?);
        self.upper = names;
        self.lower = match self.shared.lower_key(&self.prefix) {
            None => None,
            Some(lower) => match self.shared.lower.list(&lower) {
                Err(error) if matches!(error.kind(), Kind::NotFound | Kind::NotADirectory) => None,
                // What the store has cannot be told; what was written can.
                Err(error) if error.kind() == Kind::Unsupported && !self.upper.is_empty() => None,
                listing => Some(listing?),
            },
        };
        Ok(())
    }

    /// Returns the names of the store that were given another key in this directory, and hides those that stand
    /// under a whiteout.
    fn moved_here(&mut self) -> Result<Vec<(Vec<u8>, EntryKind)>> {
        let whiteouts = self.shared.state.lock().records.whiteouts(&self.prefix);
        let mut moved = Vec::new();
        for (key, of) in whiteouts {
            if key.parent().as_ref() != Some(&self.prefix) {
                continue;
            }
            if !self.known.insert(key.name().to_vec()) {
                continue;
            }
            if let Some(of) = of
                && let Some(meta) = self.shared.lower.head(&of)?
            {
                moved.push((key.name().to_vec(), meta.kind));
            }
        }
        Ok(moved)
    }
}

impl Listing for Merged {
    fn next(&mut self) -> Result<Option<Name>> {
        let place = usize::try_from(self.place).unwrap_or(usize::MAX);
        if let Some((name, kind)) = self.upper.get(place) {
            self.place += 1;
            return Ok(Some(Name {
                name: name.clone(),
                kind: *kind,
                cursor: self.place,
                meta: None,
            }));
        }
        let Some(lower) = &mut self.lower else {
            return Ok(None);
        };
        while let Some(name) = lower.next()? {
            if !self.known.contains(&name.name) {
                self.place += 1;
                let cursor = self.place;
                return Ok(Some(Name { cursor, ..name }));
            }
        }
        Ok(None)
    }

    fn seek(&mut self, cursor: u64) -> Result<()> {
        self.begin()?;
        while self.place < cursor && self.next()?.is_some() {}
        Ok(())
    }
}
