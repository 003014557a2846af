//! Lists the first entries of each kind that are left out of the opened folder.

use std::collections::HashMap;

use crate::{HiddenEntry, HiddenReason, Key};

/// Maximum number of listed entries of each kind.
const MAX_LISTED: usize = 100;

/// Entries of one folder in the archive, in the order in which they were found.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ListedEntries {
    folder: Key,
    entries: Vec<HiddenEntry>,
    counts: HashMap<HiddenReason, usize>,
}

impl ListedEntries {
    /// Creates an empty list for a folder.
    pub(super) fn of(folder: &Key) -> ListedEntries {
        ListedEntries {
            folder: folder.clone(),
            ..ListedEntries::default()
        }
    }

    /// Adds an entry if it is in the folder and the limit for its kind is not reached. `plain` is its name as a
    /// relative path with slashes.
    pub(super) fn add(&mut self, name: &[u8], plain: &[u8], why: HiddenReason) {
        let Some(path) = self.path_in_folder(plain) else {
            return;
        };
        let limit = match why {
            HiddenReason::Respelled => 1,
            _ => MAX_LISTED,
        };
        let count = self.counts.entry(why).or_default();
        if *count == limit {
            return;
        }
        *count += 1;
        let key = match why {
            HiddenReason::NoPath => None,
            _ => Key::new(path).ok(),
        };
        let name = name.to_vec();
        self.entries.push(HiddenEntry { name, key, why });
    }

    fn path_in_folder<'a>(&self, plain: &'a [u8]) -> Option<&'a [u8]> {
        if self.folder.is_root() {
            return Some(plain);
        }
        let rest = plain.strip_prefix(self.folder.as_bytes())?;
        rest.strip_prefix(b"/")
    }

    /// Returns the entries.
    pub(super) fn into_entries(self) -> Vec<HiddenEntry> {
        self.entries
    }
}
