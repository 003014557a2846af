//! A listing over a folder that others may read as well.
//!
//! Goes on alone, by a listing of its own, when the folder has been abandoned or does not know a cursor.

use std::sync::Arc;

use super::dir::{CachedDir, Stop};
use super::shared::MetadataCacheState;
use crate::error::Result;
use crate::store::{Listing, Name};

/// One reader of a folder.
pub(super) struct CachedListing {
    pub(super) shared: Arc<MetadataCacheState>,
    pub(super) folder: Arc<CachedDir>,
    /// The place of the next name, and the cursor of the one before.
    pub(super) place: usize,
    pub(super) cursor: u64,
    pub(super) own: Option<Box<dyn Listing>>,
}

impl CachedListing {
    /// Begins to read a folder.
    pub(super) fn new(shared: &Arc<MetadataCacheState>, folder: Arc<CachedDir>) -> CachedListing {
        CachedListing {
            shared: shared.clone(),
            folder,
            place: 0,
            cursor: 0,
            own: None,
        }
    }

    /// Goes on after `cursor` by a listing that nobody else reads.
    fn alone(&mut self, cursor: u64) -> Result<&mut Box<dyn Listing>> {
        let mut own = match self.folder.inherit() {
            Some(listing) => listing,
            None => self.shared.inner.list(&self.folder.prefix)?,
        };
        own.seek(cursor)?;
        Ok(self.own.insert(own))
    }
}

impl Listing for CachedListing {
    fn next(&mut self) -> Result<Option<Name>> {
        if let Some(own) = &mut self.own {
            return own.next();
        }
        let known = self.folder.len();
        match self.folder.at(self.place)? {
            Stop::Name(name) => {
                if self.place >= known {
                    self.shared.folders.trim(&self.folder);
                }
                self.place += 1;
                self.cursor = name.cursor;
                Ok(Some(name))
            }
            Stop::End => Ok(None),
            Stop::Alone => self.alone(self.cursor)?.next(),
        }
    }

    fn seek(&mut self, cursor: u64) -> Result<()> {
        if cursor == 0 && !self.folder.is_fresh() {
            // Who begins again wants to see what is there now.
            self.folder = self.shared.folder(&self.folder.prefix)?;
        }
        let place = match cursor {
            0 => Some(0),
            cursor => self.folder.place_of_cursor(cursor).map(|place| place + 1),
        };
        match (place, &mut self.own) {
            (_, Some(own)) => own.seek(cursor),
            (Some(place), None) => {
                (self.place, self.cursor) = (place, cursor);
                Ok(())
            }
            (None, None) => self.alone(cursor).map(drop),
        }
    }
}
