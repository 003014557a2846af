//! Recovery: puts an upper folder in order after a crash, before it is used.
//!
//! Afterwards each key has the state before a change or the one after it, and incomplete files lie beside the keys.

use std::path::Path;

use super::journal_line::JournalRecord;
use super::layer::ChangeLayer;
use super::namespace::rename;
use super::upper::Upper;
use crate::error::Result;
use crate::store::Key;

/// Finishes a rename that was started, and moves incomplete files from the layer's folder of keys to `rescued/`. Those that
/// a freeze has moved to the layer above are in that layer's records, which know whether they were completed since.
pub(super) fn recover(upper: &Upper, layer: &ChangeLayer, keys: &Path) -> Result<()> {
    let unfinished = layer.lock().records.unfinished_rename();
    if let Some((from, to, in_upper)) = unfinished {
        rename::finish(&layer.keys, &from, &to, in_upper)?;
        layer.record(vec![JournalRecord::RenameFinished])?;
    }
    let incomplete = layer.lock().records.incomplete_below(&Key::root());
    for key in incomplete {
        upper.rescue_key(keys, &key)?;
        layer.record(vec![JournalRecord::Completed(key)])?;
    }
    // A base without a change: the program ended between the record and the change.
    let bases = layer.lock().records.bases_below(&Key::root());
    for (key, _) in bases {
        if layer.lower_key(&key).as_ref() == Some(&key) && layer.keys.stat(&key)?.is_none() {
            layer.record(vec![JournalRecord::Reverted(key)])?;
        }
    }
    layer.lock().compact()
}
