//! A reader's listing of a cached directory, which other readers may share.
//!
//! The reader continues with its own listing if the names were evicted or do not include a cursor.

use std::sync::Arc;

use super::cached_dir::{CachedDir, Slot};
use super::flat_listing::DirLister;
use crate::request_context::RequestContext;
use crate::{LeftOut, Listing, Name};
use zarr_format::error::Result;

/// One reader of a cached directory.
pub(super) struct CachedListing {
    lister: Arc<DirLister>,
    dir: Arc<CachedDir>,
    /// Index of the next name.
    place: usize,
    /// Cursor of the previous name.
    cursor: u64,
    own: Option<Box<dyn Listing>>,
}

impl CachedListing {
    /// Starts to read a directory.
    pub(super) fn new(lister: &Arc<DirLister>, dir: Arc<CachedDir>) -> CachedListing {
        CachedListing {
            lister: lister.clone(),
            dir,
            place: 0,
            cursor: 0,
            own: None,
        }
    }

    /// Continues after `cursor` with an own listing.
    fn leave(&mut self, context: &RequestContext, cursor: u64) -> Result<&mut Box<dyn Listing>> {
        let mut own = match self.dir.take_listing() {
            Some(listing) => listing,
            None => self.lister.inner.list(context, &self.dir.prefix)?,
        };
        own.seek(context, cursor)?;
        Ok(self.own.insert(own))
    }
}

impl Listing for CachedListing {
    fn next(&mut self, context: &RequestContext) -> Result<Option<Name>> {
        if let Some(own) = &mut self.own {
            return own.next(context);
        }
        let known = self.dir.len();
        match self.dir.at(context, self.place)? {
            Slot::Entry(name) => {
                if self.place >= known {
                    self.lister.dirs.trim(&self.dir);
                }
                self.place += 1;
                self.cursor = name.cursor;
                Ok(Some(name))
            }
            Slot::End => Ok(None),
            Slot::Evicted => self.leave(context, self.cursor)?.next(context),
        }
    }

    fn seek(&mut self, context: &RequestContext, cursor: u64) -> Result<()> {
        if cursor == 0 && !self.lister.dirs.is_fresh(&self.dir) {
            // A reader that starts again after the TTL gets the present names.
            self.dir = self.lister.list(context, &self.dir.prefix)?;
        }
        let place = match cursor {
            0 => Some(0),
            cursor => self.dir.place_of_cursor(cursor).map(|place| place + 1),
        };
        match (place, &mut self.own) {
            (_, Some(own)) => own.seek(context, cursor),
            (Some(place), None) => {
                (self.place, self.cursor) = (place, cursor);
                Ok(())
            }
            (None, None) => self.leave(context, cursor).map(drop),
        }
    }

    fn left_out(&self) -> LeftOut {
        self.dir.left_out
    }
}
