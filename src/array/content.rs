//! Which content the readers of an array see: its number, and whether it may have changed.
//!
//! The number says what the bytes of the array's files are: it depends on the stored chunks that were read, on what was
//! written, and by way of the open array on the metadata that say how chunks decode; attributes are not in it.

use crate::array::OpenArray;
use crate::error::Result;
use crate::request_context::RequestContext;
use crate::store::LogPosition;

/// What the content of an array was at some time.
pub struct ArrayState {
    /// The position of the store's change log.
    position: LogPosition,
    /// The number of the content.
    content: u64,
}

impl OpenArray {
    /// Returns a number of the present content: another one once a stored chunk that was read has changed, and never one
    /// that another content had. Asks the store about all chunks that were read, so it may wait; nothing if these are too
    /// many.
    pub fn content(&self, context: &RequestContext) -> Result<Option<u64>> {
        let Ok(decoder) = self.decoder() else {
            return Ok(None);
        };
        let keys = |stored| self.stored_keys(stored);
        let Some(stale) = self.versions.stale(keys) else {
            return Ok(None);
        };
        for number in stale {
            self.fetch_version(context, decoder, number)?;
        }
        if let Some(oldest) = self.versions.oldest() {
            context.note_memory(oldest);
        }
        Ok(Some(self.content_now()))
    }

    /// Like `content`, by what is known without asking.
    pub fn content_now(&self) -> u64 {
        self.versions.content().with(self.dirty.content())
    }

    /// Returns the state of the content by what is known without asking.
    pub fn state(&self) -> ArrayState {
        ArrayState {
            position: self.hierarchy.store().info().changes.position(),
            content: self.content_now(),
        }
    }

    /// Whether what was read may have changed since a state, by what is known without asking: something was written to
    /// the array, or a chunk that was read was changed through the store.
    pub fn may_have_changed(&self, since: &ArrayState) -> bool {
        if self.decoder.is_err() {
            return false;
        }
        let keys = |stored| self.stored_keys(stored);
        self.content_now() != since.content
            || self.chunks_may_have_changed(since.position)
                && self.versions.may_have_changed(since.position, keys)
    }
}
