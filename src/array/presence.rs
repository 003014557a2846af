//! Whether an array is still in its store: a chunk that the store does not have is the fill value only while it is.
//!
//! Metadata are taken for true as long as the user says, a minute on a network. When a chunk is found missing the store
//! is asked for the array's document, unless it was there a second before: a store that is gone answers like one that
//! never had the chunk.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::array::OpenArray;
use crate::error::{Error, Kind, Result};
use crate::store::{QueryStamp, Version};

/// How long an array counts as there that was there. What is looked at as often in any case is not asked for here.
const COUNTS: Duration = Duration::from_secs(1);

/// When the document of an array was last there.
#[derive(Default)]
pub(super) struct LastSeen(Mutex<Option<Instant>>);

impl OpenArray {
    /// Notes the version of a stored chunk that the store returned. Fails with `Changed` if the chunk is missing and the
    /// array is as well, or with the error of asking for it.
    pub(super) fn note_version(
        &self,
        stored: u64,
        version: Option<Version>,
        stamp: QueryStamp,
    ) -> Result<()> {
        if version.is_none() {
            self.check_there(stamp.asked)?;
        }
        self.versions.note(stored, version, stamp);
        Ok(())
    }

    /// Fails if the store has no document of the array; asks it if `asked` is more than `COUNTS` after the last answer.
    fn check_there(&self, asked: Instant) -> Result<()> {
        let store = self.hierarchy.store().info();
        let seen = *self.seen.0.lock();
        let counts = seen.is_some_and(|seen| asked.saturating_duration_since(seen) < COUNTS);
        if counts || store.freshness <= COUNTS || store.never_changes() {
            return Ok(());
        }
        let now = self.versions.now();
        if !self.is_there()? {
            let why = "a chunk is missing, and so are the array's metadata by now";
            return Err(Error::new(Kind::Changed, &self.path, why));
        }
        *self.seen.0.lock() = Some(now);
        Ok(())
    }

    /// Whether the store has a document of the array now.
    fn is_there(&self) -> Result<bool> {
        let Some(node) = self.hierarchy.node(&self.path)? else {
            return Ok(false);
        };
        let documents = node.described_by();
        for key in &documents {
            if self.hierarchy.store().etag(key)?.is_some() {
                return Ok(true);
            }
        }
        // Nothing can be asked about an array that is still to be stored.
        Ok(documents.is_empty())
    }
}
