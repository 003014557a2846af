//! Entries that a store has and does not show, since they are no keys.

use parking_lot::Mutex;

use crate::Key;
use zarr_format::error::printable;

/// How many entries of a bucket are remembered by name.
const MAX_REMEMBERED: usize = 100;

/// An entry that is no key of the store, by the name that it has there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotShown {
    /// The name as an archive or a bucket has it.
    pub name: Vec<u8>,
    /// The key that the name means; `None` if it is no plain path.
    pub key: Option<Key>,
    /// Why it is no key.
    pub why: NotShownReason,
}

/// Why an entry is no key, or not by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NotShownReason {
    /// The name is no plain path.
    NoPath,
    /// It is a symbolic link, a pipe or a device.
    Special,
    /// A later entry has its name.
    Replaced,
    /// It is shown, by another name than it has; the first such entry.
    Respelled,
}

/// The entries of a store that are not shown: the first ones of an archive, those of a bucket as listings find them.
#[derive(Debug, Default)]
pub struct NotShownEntries(Mutex<Vec<NotShown>>);

impl NotShownEntries {
    /// Takes the entries that an archive was found to have.
    pub(crate) fn new(entries: Vec<NotShown>) -> NotShownEntries {
        NotShownEntries(Mutex::new(entries))
    }

    /// Remembers a name of a bucket that is no plain path; the first one is logged.
    pub(crate) fn note_name(&self, name: &str) {
        let mut entries = self.0.lock();
        let is_known = |entry: &NotShown| entry.name == name.as_bytes();
        if entries.len() >= MAX_REMEMBERED || entries.iter().any(is_known) {
            return;
        }
        if entries.is_empty() {
            log::warn!(
                "keys that are no plain paths are not shown, the first '{}'",
                printable(name)
            );
        }
        entries.push(NotShown {
            name: name.as_bytes().to_vec(),
            key: None,
            why: NotShownReason::NoPath,
        });
    }

    /// Returns the entries that were found so far.
    pub fn all(&self) -> Vec<NotShown> {
        self.0.lock().clone()
    }
}
