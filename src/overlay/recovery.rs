//! Recovery: puts an upper folder in order after a crash, before it is used.
//!
//! Afterwards each key has the state before a change or the one after it, and incomplete files lie beside the keys.

use super::journal::{Journal, JournalRecord};
use super::namespace::rename;
use super::records::Records;
use super::upper::Upper;
use crate::error::{Error, Result};
use crate::store::Key;

/// Finishes a rename that was started, and moves incomplete files to `rescued/`.
pub(super) fn recover(upper: &Upper, journal: &mut Journal, records: &mut Records) -> Result<()> {
    let mut record = |records: &mut Records, record: JournalRecord| {
        journal.append(std::slice::from_ref(&record))?;
        records.apply(record);
        Ok::<(), Error>(())
    };
    if let Some((from, to, in_upper)) = records.unfinished_rename() {
        rename::finish(upper, &from, &to, in_upper)?;
        record(records, JournalRecord::RenameFinished)?;
    }
    upper.rescue_pending()?;
    for key in records.incomplete_below(&Key::root()) {
        upper.rescue_key(&key)?;
        record(records, JournalRecord::Completed(key))?;
    }
    // A base without a change: the program ended between the record and the change.
    for (key, _) in records.bases_below(&Key::root()) {
        if records.lower_key(&key).as_ref() == Some(&key) && upper.stat(&key)?.is_none() {
            record(records, JournalRecord::Reverted(key))?;
        }
    }
    Ok(())
}
