//! Makes the file for the next write: an object's copy or the spare file.
//!
//! An open file is not locked while its content is copied from the store, so a slow store blocks only the writers of
//! this file. A second writer waits for the first writer's copy.
//!
//! Each flush publishes a file with the whole content, and the file that it replaces becomes the spare file. The next
//! write reuses the spare file and copies only the ranges that differ, instead of the whole content to a new file. The
//! spare file may be reused only after a sync, because until then it has the content that survives a power loss.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use crate::content::StoredContent;
use crate::layer_dir::os_error;
use crate::overlay_core::OverlayCore;
use crate::upper::Upper;
use crate::{attributes, content};
use zarr_format::error::{Error, Result};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{Key, Reader};

/// Maximum number of recorded ranges of a file; if there are more, the nearest ranges are merged.
const MAX_RANGES: usize = 128;

/// The ranges of a file that were written, sorted and disjoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WrittenRanges(Vec<Range<u64>>);

impl WrittenRanges {
    /// Returns a single range that covers the whole file, whatever its length.
    pub(crate) fn all() -> WrittenRanges {
        let mut ranges = WrittenRanges::default();
        ranges.add(0..u64::MAX);
        ranges
    }

    pub(crate) fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let start = self.0.partition_point(|other| other.end < range.start);
        let end = self.0.partition_point(|other| other.start <= range.end);
        let touched = self.0.drain(start..end.max(start));
        let joined = touched.fold(range, |all, other| {
            all.start.min(other.start)..all.end.max(other.end)
        });
        self.0.insert(start, joined);
        if self.0.len() > MAX_RANGES {
            // Merge the two ranges that have the smallest gap between them.
            let gap = |at: &usize| self.0[at + 1].start - self.0[*at].end;
            if let Some(at) = (0..self.0.len() - 1).min_by_key(gap) {
                let next = self.0.remove(at + 1);
                self.0[at].end = next.end;
            }
        }
    }
}

/// A replaced file in `pending/`, which the next write can reuse.
pub(crate) struct SpareFile {
    pub(crate) name: String,
    pub(crate) file: Arc<File>,
    /// The ranges in which this file's content is older than that of the file that replaced it.
    pub(crate) stale: WrittenRanges,
    /// Whether the file that replaced this one is on disk. Before, recovery may need this file.
    pub(crate) is_free: bool,
}

impl SpareFile {
    /// Makes the content and the attributes equal to those of `current`, by copying the stale ranges.
    pub(crate) fn catch_up(&self, current: &File) -> std::io::Result<()> {
        let length = current.metadata()?.len();
        self.file.set_len(length)?;
        for range in &self.stale.0 {
            let range = range.start.min(length)..range.end.min(length);
            content::copy_range(current, &self.file, range)?;
        }
        Ok(content::copy_attributes(current, &self.file)?)
    }

    /// Removes the spare file, unless recovery may need it after a power loss.
    pub(crate) fn discard(self, upper: &Upper) {
        if self.is_free {
            upper.pending.discard(&self.name);
        }
    }
}

/// What is needed to reuse a replaced file for the next write.
#[derive(Default)]
pub(crate) struct FileReuse {
    /// The ranges in which the pending file differs from `previous`.
    pub(crate) written: WrittenRanges,
    /// The file of the upper folder that the pending file was copied from.
    previous: Option<Arc<File>>,
    pub(crate) spare: Option<SpareFile>,
}

impl FileReuse {
    /// Starts to record the writes to a pending file that was copied from `previous`.
    pub(crate) fn start(&mut self, previous: Option<Arc<File>>) {
        self.previous = previous;
        self.written = WrittenRanges::default();
    }

    /// Makes a replaced file, whose name in `pending/` is given, the spare file for the next write.
    pub(crate) fn keep_replaced(&mut self, name: String, inode: u64) {
        let stale = std::mem::take(&mut self.written);
        let file = self.previous.take();
        let is_it =
            |file: &Arc<File>| rustix::fs::fstat(file).is_ok_and(|stat| stat.st_ino == inode);
        self.spare = file.filter(is_it).map(|file| SpareFile {
            name,
            file,
            stale,
            is_free: false,
        });
    }
}

/// A copy of a store's object, which a program is about to write to.
pub(crate) struct PendingCopy {
    pub(crate) name: String,
    pub(crate) file: File,
    /// Version, length and digest of the object in the store, if they are known. The object may be one that the write
    /// replaces completely, so that its bytes were not copied.
    pub(crate) content: Option<StoredContent>,
}

impl PendingCopy {
    /// Copies an object of the store to a new pending file. If `empty`, only its attributes are copied.
    pub(crate) fn of(
        core: &OverlayCore,
        context: &RequestContext,
        reader: &dyn Reader,
        key: &Key,
        empty: bool,
    ) -> Result<PendingCopy> {
        let pending = core.upper.pending.create(key);
        let (name, file) = pending.map_err(|error| os_error(key, error))?;
        match PendingCopy::fill(core, context, reader, key, &file, empty) {
            Ok(content) => Ok(PendingCopy {
                name,
                file,
                content,
            }),
            Err(error) => {
                core.upper.pending.discard(&name);
                Err(error.about(key))
            }
        }
    }

    /// Copies an object of the store to the file `to`, or only its attributes if `empty`. Returns version and digest of
    /// the object, if they are known.
    fn fill(
        core: &OverlayCore,
        context: &RequestContext,
        reader: &dyn Reader,
        key: &Key,
        to: &File,
        empty: bool,
    ) -> Result<Option<StoredContent>> {
        let mut content = None;
        if !empty {
            content = Some(core.with_room(|| content::copy_stored(context, reader, to))?);
        } else if core.takes_digests() {
            content = content::short_content(context, reader, content::MAX_REPLACED)?;
        }
        let stored = core.top().stored_attributes(key);
        let change = core.initial_attributes(stored, Some(reader.meta(context)?.modified));
        attributes::set_open(to, &change).map_err(|error| Error::os("", error))?;
        Ok(content.filter(|stored| core.takes_digest_of(stored.version)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use std::collections::BTreeSet;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use crate::Overlay;
    use zarrfs_store::backend::memory::MemoryStore;
    use zarrfs_store::request_context::UNLIMITED;
    use zarrfs_store::tree::{AttrChange, OpenMode, Setting, Tree, TreeFile};
    use zarrfs_store::{Key, Store};

    fn open(folder: &Path) -> Overlay {
        let store = Arc::new(MemoryStore::default());
        store.set(Key::new("a").unwrap(), vec![7; 30_000]);
        testing::open(&folder.join("upper"), &store)
    }

    fn open_a(overlay: &Overlay) -> Arc<dyn TreeFile> {
        Tree::open(
            overlay,
            &UNLIMITED,
            &Key::new("a").unwrap(),
            OpenMode::Write,
        )
        .unwrap()
    }

    #[test]
    fn synced_writes_alternate_between_two_files() {
        let folder = tempfile::tempdir().unwrap();
        let overlay = open(folder.path());
        let file = open_a(&overlay);
        let inodes = (0..8).map(|round| {
            file.write_at(&UNLIMITED, round, &[1]).unwrap();
            file.sync(&UNLIMITED).unwrap();
            let path = overlay.path().join("keys/a");
            std::fs::metadata(path).unwrap().ino()
        });
        assert_eq!(inodes.collect::<BTreeSet<u64>>().len(), 2);
        drop(file);
        let pending = std::fs::read_dir(overlay.path().join("pending"));
        assert_eq!(pending.unwrap().count(), 0);
    }

    #[test]
    fn a_removed_attribute_does_not_return_with_the_spare_file() {
        let folder = tempfile::tempdir().unwrap();
        let overlay = open(folder.path());
        let (file, key) = (open_a(&overlay), Key::new("a").unwrap());
        let names = || Tree::attributes(&overlay, &UNLIMITED, &key).unwrap();
        let write = |byte: u8| {
            file.write_at(&UNLIMITED, 0, &[byte]).unwrap();
            file.sync(&UNLIMITED).unwrap();
        };
        write(1);
        Tree::set_attribute(&overlay, &UNLIMITED, &key, b"user.note", b"x", Setting::Any).unwrap();
        write(2);
        write(3);
        assert_eq!(names().len(), 1);
        Tree::remove_attribute(&overlay, &UNLIMITED, &key, b"user.note").unwrap();
        write(4);
        write(5);
        assert!(names().is_empty());
    }

    /// Compares a file with a vector that gets the same random writes and truncations, with syncs in between.
    #[test]
    fn a_spare_file_catches_up_with_every_change() {
        let folder = tempfile::tempdir().unwrap();
        let overlay = open(folder.path());
        let file = open_a(&overlay);
        let mut expected = vec![7; 30_000];
        let mut state = 1_u64;
        let mut random = |below: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as usize % below
        };
        for round in 0..2000 {
            let at = random(60_000);
            match random(8) {
                0 => {
                    let size = Some(at as u64);
                    let cut = AttrChange {
                        size,
                        ..AttrChange::default()
                    };
                    file.change(&UNLIMITED, &cut).unwrap();
                    expected.resize(at, 0);
                }
                1 | 2 => file.sync(&UNLIMITED).unwrap(),
                3 => file.flush(&UNLIMITED).unwrap(),
                _ => {
                    let bytes = vec![round as u8; random(3000)];
                    file.write_at(&UNLIMITED, at as u64, &bytes).unwrap();
                    if !bytes.is_empty() {
                        expected.resize(expected.len().max(at + bytes.len()), 0);
                        expected[at..at + bytes.len()].copy_from_slice(&bytes);
                    }
                }
            }
            if round % 16 == 0 {
                file.flush(&UNLIMITED).unwrap();
                let key = Key::new("a").unwrap();
                let found = Store::get(&overlay, &UNLIMITED, &key, 1 << 20)
                    .unwrap()
                    .unwrap();
                assert!(found.bytes == expected, "round {round}");
            }
        }
    }

    #[test]
    fn touching_ranges_are_merged() {
        let mut ranges = WrittenRanges::default();
        for range in [10..20, 30..40, 0..5, 20..30, 50..50, 4..6] {
            ranges.add(range);
        }
        assert_eq!(ranges.0, [0..6, 10..40]);
        ranges.add(1..100);
        assert_eq!((ranges.0.len(), ranges.0[0].clone()), (1, 0..100));
    }

    #[test]
    fn the_number_of_ranges_is_bounded() {
        let mut ranges = WrittenRanges::default();
        for at in 0..10_000 {
            ranges.add(at * 10..at * 10 + 1);
        }
        assert_eq!(ranges.0.len(), MAX_RANGES);
        assert_eq!(
            (ranges.0[0].start, ranges.0[MAX_RANGES - 1].end),
            (0, 99_991)
        );
    }
}
