//! Entries of a store that are not shown, since their names are not keys.

use parking_lot::Mutex;

use crate::Key;
use zarr_format::error::printable;

/// Maximum number of names of a bucket to remember.
const MAX_REMEMBERED: usize = 100;

/// An entry whose name in the store is not a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotShown {
    /// The name in the archive or bucket.
    pub name: Vec<u8>,
    /// The key that the name means; `None` if it is not a plain path.
    pub key: Option<Key>,
    /// Why the name is not a key.
    pub why: NotShownReason,
}

/// Why an entry is not shown, or not under its own name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NotShownReason {
    /// The name is not a plain path.
    NoPath,
    /// It is a symbolic link, a pipe or a device.
    Special,
    /// A later entry has the same name.
    Replaced,
    /// It is shown under a corrected name; only the first such entry is recorded.
    Respelled,
}

/// The entries that are not shown: the first ones of an archive; those of a bucket as listings find them.
#[derive(Debug, Default)]
pub struct NotShownEntries(Mutex<Vec<NotShown>>);

impl NotShownEntries {
    /// Takes the entries found in an archive.
    pub(crate) fn new(entries: Vec<NotShown>) -> NotShownEntries {
        NotShownEntries(Mutex::new(entries))
    }

    /// Records a name of a bucket that is not a plain path; logs the first one.
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

    /// Returns the entries found so far.
    pub fn all(&self) -> Vec<NotShown> {
        self.0.lock().clone()
    }
}
