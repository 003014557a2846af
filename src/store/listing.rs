//! A listing of names that are all known at once, for small directories.

use crate::error::Result;
use crate::store::{EntryKind, Listing, Meta, Name};

/// Known names in a fixed order; each one's cursor is its place, counted from 1.
pub struct NameList {
    names: Vec<Name>,
    place: usize,
}

impl NameList {
    /// Builds a listing of files and directories in the given order.
    pub fn new(names: impl IntoIterator<Item = (Vec<u8>, EntryKind)>) -> NameList {
        let plain = names.into_iter();
        NameList::described(plain.map(|(name, kind)| (name, kind, None)))
    }

    /// The same with what `head` would say, where that is known.
    pub(in crate::store) fn described(
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
            place: 0,
        }
    }
}

impl Listing for NameList {
    fn next(&mut self) -> Result<Option<Name>> {
        let name = self.names.get(self.place).cloned();
        self.place += usize::from(name.is_some());
        Ok(name)
    }

    fn seek(&mut self, cursor: u64) -> Result<()> {
        self.place = usize::try_from(cursor).unwrap_or(usize::MAX);
        Ok(())
    }
}
