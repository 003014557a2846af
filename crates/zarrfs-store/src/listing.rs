//! A listing of names in memory, for small directories.

use crate::request_context::RequestContext;
use crate::{EntryKind, LeftOut, Listing, Meta, Name};
use zarr_format::error::Result;

/// A listing of names in a fixed order; the cursor of a name is its position, counted from 1.
pub struct NameList {
    names: Vec<Name>,
    next: usize,
    left_out: LeftOut,
}

impl NameList {
    /// Builds a listing of files and directories in the given order.
    pub fn new(names: impl IntoIterator<Item = (Vec<u8>, EntryKind)>) -> NameList {
        let plain = names.into_iter();
        NameList::with_meta(plain.map(|(name, kind)| (name, kind, None)))
    }

    /// Like `new`, with the metadata that `head` would return, if known.
    pub(crate) fn with_meta(
        names: impl IntoIterator<Item = (Vec<u8>, EntryKind, Option<Meta>)>,
    ) -> NameList {
        let numbered = names.into_iter().zip(1..);
        NameList {
            names: numbered
                .map(|((name, kind, meta), cursor)| Name {
                    name,
                    kind,
                    cursor,
                    meta,
                })
                .collect(),
            next: 0,
            left_out: LeftOut::Nothing,
        }
    }

    /// Sets the names that the listing omits.
    pub fn leaving_out(self, left_out: LeftOut) -> NameList {
        NameList { left_out, ..self }
    }
}

impl Listing for NameList {
    fn next(&mut self, _context: &RequestContext) -> Result<Option<Name>> {
        let name = self.names.get(self.next).cloned();
        self.next += usize::from(name.is_some());
        Ok(name)
    }

    fn seek(&mut self, _context: &RequestContext, cursor: u64) -> Result<()> {
        self.next = usize::try_from(cursor).unwrap_or(usize::MAX);
        Ok(())
    }

    fn may_wait(&self) -> bool {
        false
    }

    fn left_out(&self) -> LeftOut {
        self.left_out
    }
}
