//! Freezes a layer of the upper folder, and drops it after its commit.
//!
//! Both are sequences of renames; the names that exist after a crash show how far a sequence came. The folders and the
//! journal of the next layer are made ahead, because the disk may be full later.

use std::fs;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use super::{FROZEN, JOURNAL, KEYS, Upper};
use crate::journal::Journal;
use crate::journal_line::JournalRecord;
use crate::keys_dir::KeysDir;
use zarr_format::error::{Error, Result};

/// The folder of the next layer, made ahead.
const NEXT: &str = "next";
/// Prefix of frozen layers that were committed and still have readers; a number follows.
const COMMITTED: &str = "committed-";

impl Upper {
    /// Returns the path of the frozen layer's journal, or `None` if there is no frozen layer.
    pub(crate) fn frozen_journal(&self) -> Option<PathBuf> {
        let journal = self.path.join(FROZEN).join(JOURNAL);
        journal.exists().then_some(journal)
    }

    /// Returns the path of the frozen layer's folder of keys.
    pub(crate) fn frozen_keys(&self) -> PathBuf {
        self.path.join(FROZEN).join(KEYS)
    }

    /// Makes the next layer ahead, unless there is a frozen layer: then a commit can begin even if the disk is full. If
    /// this fails, the commit makes the layer itself.
    pub(crate) fn make_next_ahead(&self) {
        // With both folders, `finish_freezing` would take this for a freeze that has begun.
        if self.path.join(FROZEN).exists() {
            return;
        }
        if let Err(error) = self.make_next() {
            log::debug!("nothing is made ahead for a commit: {error}");
        }
    }

    /// Creates the missing parts of the next layer: an empty folder of keys, an empty folder for the layer that is
    /// frozen, and a journal with reserved space. Returns the journal.
    fn make_next(&self) -> Result<Journal> {
        let next = self.path.join(NEXT);
        let failed = |error| Error::os(next.display(), error);
        for folder in [KEYS, FROZEN] {
            fs::create_dir_all(next.join(folder)).map_err(failed)?;
        }
        let journal = next.join(JOURNAL);
        if journal.metadata().is_ok_and(|found| found.len() > 0) {
            fs::remove_file(&journal).map_err(failed)?;
        }
        let mut journal = Journal::open(&journal, &mut |_| {})?;
        journal.reserve(0);
        Ok(journal)
    }

    /// Prepares the next layer for the exchange, with these records in its journal.
    pub(crate) fn prepare_next(&self, records: &[JournalRecord]) -> Result<()> {
        let prepared = self.make_next().and_then(|mut journal| {
            let mut records = records.chunks(1);
            records.try_for_each(|record| journal.append(record))?;
            journal.end().sync()
        });
        prepared.inspect_err(|_| self.drop_next())
    }

    /// Drops the prepared layer.
    pub(crate) fn drop_next(&self) {
        let _ = fs::remove_dir_all(self.path.join(NEXT));
        // This fails if it holds a frozen layer, which is right.
        let _ = fs::remove_dir(self.path.join(FROZEN));
    }

    /// Opens the folder of keys of the prepared layer; also returns the path of its journal.
    pub(crate) fn open_next(&self) -> Result<(KeysDir, PathBuf)> {
        let next = self.path.join(NEXT);
        Ok((KeysDir::open(&next.join(KEYS))?, next.join(JOURNAL)))
    }

    /// Replaces the current layer by the prepared one; the current layer becomes the frozen layer. After a crash in
    /// between, `finish_freezing` finds out from the existing names how far it came, and completes it.
    pub(crate) fn swap_in_next(&self) -> Result<()> {
        let (next, frozen) = (self.path.join(NEXT), self.path.join(FROZEN));
        let rename = |from: PathBuf, to: PathBuf| {
            fs::rename(&from, to).map_err(|error| Error::os(from.display(), error))
        };
        if !frozen.exists() {
            rename(next.join(FROZEN), frozen.clone())?;
        }
        if next.join(KEYS).exists() {
            if !frozen.join(KEYS).exists() {
                rename(self.path.join(KEYS), frozen.join(KEYS))?;
            }
            rename(next.join(KEYS), self.path.join(KEYS))?;
        }
        if self.journal().exists() {
            rename(self.journal(), frozen.join(JOURNAL))?;
        }
        rename(next.join(JOURNAL), self.journal())?;
        fs::remove_dir_all(&next).map_err(|error| Error::os(next.display(), error))
    }

    /// Undoes a failed `swap_in_next` as far as possible.
    pub(crate) fn undo_swap(&self) {
        let (frozen, keys) = (self.path.join(FROZEN), self.path.join(KEYS));
        if frozen.join(KEYS).exists() {
            // This removes only the empty folder of the prepared layer.
            let _ = fs::remove_dir(&keys);
            let _ = fs::rename(frozen.join(KEYS), &keys);
        }
        if frozen.join(JOURNAL).exists() {
            let _ = fs::rename(frozen.join(JOURNAL), self.journal());
        }
        self.drop_next();
    }

    /// After a crash, completes a `swap_in_next` that had begun, or drops a layer that was only prepared. Removes the
    /// rest of committed layers.
    pub(crate) fn finish_freezing(&self) -> Result<()> {
        self.remove_committed()?;
        let next = self.path.join(NEXT);
        if !next.exists() {
            return Ok(());
        }
        let has_begun = self.path.join(FROZEN).join(KEYS).exists();
        if has_begun && next.join(JOURNAL).exists() {
            return self.swap_in_next();
        }
        self.drop_next();
        Ok(())
    }

    /// Renames the committed frozen layer away; returns the path of its files.
    pub(crate) fn retire_frozen(&self) -> Result<PathBuf> {
        let frozen = self.path.join(FROZEN);
        let failed = |error| Error::os(frozen.display(), error);
        loop {
            let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
            let committed = self.path.join(format!("{COMMITTED}{number}"));
            if !committed.exists() {
                fs::rename(&frozen, &committed).map_err(failed)?;
                // Free the space of its journal, which is enough for the next layer, and use it before other programs
                // do.
                let journal = File::options().write(true).open(committed.join(JOURNAL));
                let _ = journal.and_then(|journal| journal.set_len(0));
                self.make_next_ahead();
                return Ok(committed);
            }
        }
    }

    fn remove_committed(&self) -> Result<()> {
        let failed = |error| Error::os(self.path.display(), error);
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry
                .file_name()
                .as_bytes()
                .starts_with(COMMITTED.as_bytes())
            {
                match fs::remove_dir_all(entry.path()) {
                    // A thread of this process has removed it.
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                    removed => removed.map_err(failed)?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zarrfs_store::Key;

    /// The renames of `swap_in_next`, in order.
    const RENAMES: [(&str, &str); 5] = [
        ("next/frozen", "frozen"),
        ("keys", "frozen/keys"),
        ("next/keys", "keys"),
        ("journal", "frozen/journal"),
        ("next/journal", "journal"),
    ];

    #[test]
    fn a_freeze_that_was_cut_anywhere_is_finished_or_never_was() {
        for cut in 0..=RENAMES.len() {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("upper");
            let upper = Upper::open(&path, Some("x")).unwrap();
            fs::write(path.join("keys/a"), "old").unwrap();
            let record = |key: &str| JournalRecord::Created(Key::new(key).unwrap());
            let mut journal = Journal::open(&upper.journal(), &mut |_| {}).unwrap();
            journal.append(&[record("old")]).unwrap();
            upper.prepare_next(&[record("new")]).unwrap();
            for (from, to) in &RENAMES[..cut] {
                fs::rename(path.join(from), path.join(to)).unwrap();
            }
            upper.finish_freezing().unwrap();
            let first = |journal: &str| {
                let mut records = Vec::new();
                Journal::open(&path.join(journal), &mut |record| records.push(record)).unwrap();
                records
            };
            let is_frozen = cut > 1;
            let (old, journal) = if is_frozen {
                ("frozen/keys/a", "frozen/journal")
            } else {
                ("keys/a", "journal")
            };
            assert_eq!(fs::read(path.join(old)).unwrap(), b"old", "cut at {cut}");
            assert_eq!(first(journal), [record("old")], "cut at {cut}");
            assert_eq!(upper.frozen_journal().is_some(), is_frozen);
            assert!(!path.join("next").exists() && path.join("keys").exists());
            if is_frozen {
                assert_eq!(first("journal"), [record("new")], "cut at {cut}");
            }
            // With a frozen layer, the next layer is not made ahead.
            upper.make_next_ahead();
            assert_eq!(path.join("next").exists(), !is_frozen, "cut at {cut}");
            upper.finish_freezing().unwrap();
            assert_eq!(upper.frozen_journal().is_some(), is_frozen, "cut at {cut}");
        }
    }
}
