//! The sorted index of an archive's entries: a names buffer and short records.
//!
//! Names have a NUL for each slash. No name contains a NUL, so byte order puts a folder directly before all entries
//! below it. The entries below a path are thus one range of records, found by binary search. Each name occurs once. A
//! file may have entries below it, as an object may be a prefix. `directory` parses archives.

use std::ops::Range;

use crate::{EntryKind, HiddenReason, Key};

use super::directory::OmittedList;

/// Stands for the slash in the names of the index, so that a folder sorts directly before the entries in it.
const SEPARATOR: u8 = 0;

/// The compression method of an entry (APPNOTE 4.4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    /// Uncompressed, method 0.
    Stored,
    /// Compressed with Deflate, method 8.
    Deflated,
    /// Encrypted (APPNOTE 4.4.4: bit 0, 6 or 13 of the flags), so it cannot be read.
    Encrypted,
    /// Compressed with another method, of the given number, which cannot be read.
    Other(u16),
    Folder,
}

/// An entry of the central directory. Its offsets and lengths, in bytes, are not yet checked against the real length of
/// the archive.
#[derive(Clone, Copy, Debug)]
pub(super) struct ZipEntry {
    /// Offset of the local header of the entry in the archive.
    pub(super) header: u64,
    /// Length of the entry's data in the archive, in bytes.
    pub(super) compressed: u64,
    /// Length of the entry's uncompressed data, in bytes.
    pub(super) size: u64,
    /// CRC-32 of the entry's uncompressed data.
    pub(super) crc: u32,
    /// The time of the entry's last change, in seconds since 1970.
    pub(super) modified: u32,
    pub(super) compression: Compression,
    name_start: u32,
    name_len: u16,
    /// How many bytes longer the entry's name in the archive is than its name in the index, which lacks a leading `./`
    /// or a final slash.
    name_rest: u16,
}

/// What the index has at a path.
pub(super) enum IndexedPath<'a> {
    Missing,
    /// A folder, with its own entry if the archive has one.
    Folder(Option<&'a ZipEntry>),
    File(&'a ZipEntry),
    /// A file, with other entries below its name.
    Both(&'a ZipEntry),
}

/// The file or folder directly below a path in the index.
pub(super) struct Child<'a> {
    pub(super) name: &'a [u8],
    pub(super) kind: EntryKind,
    /// The position of the first index entry after the child and everything below it.
    pub(super) next: usize,
}

/// The index of an archive: all its entries, sorted by name.
#[derive(Default)]
pub(super) struct ZipIndex {
    names: Vec<u8>,
    entries: Vec<ZipEntry>,
}

/// Builds the index of an archive from the entries in the order of the central directory.
#[derive(Default)]
pub(super) struct IndexBuilder(ZipIndex);

impl IndexBuilder {
    /// Adds an entry to the index. The entry's name in the archive has `stored` bytes. Returns false if all names
    /// together exceed 4 GiB.
    pub(super) fn add(&mut self, key: &Key, mut entry: ZipEntry, stored: usize) -> bool {
        let ZipIndex { names, entries } = &mut self.0;
        let name = key.as_bytes();
        let (Ok(start), Ok(length)) = (u32::try_from(names.len()), u16::try_from(name.len()))
        else {
            return false;
        };
        (entry.name_start, entry.name_len) = (start, length);
        entry.name_rest = u16::try_from(stored.saturating_sub(name.len())).unwrap_or(u16::MAX);
        names.extend(name.iter().map(|&byte| index_byte(byte)));
        entries.push(entry);
        true
    }

    /// Sorts the entries and builds the index. Also returns the number of files that are left out because a later file
    /// has the same name, and adds the first of these files to `list`.
    pub(super) fn finish(self, list: &mut OmittedList) -> (ZipIndex, u64) {
        let ZipIndex { names, mut entries } = self.0;
        let name = |entry: &ZipEntry| name_in(&names, entry);
        // The sort is stable: of several entries with the same name, the last one in the archive stays last.
        entries.sort_by(|a, b| name(a).cmp(name(b)));
        let mut repeated = 0;
        entries.dedup_by(|later, earlier| {
            let same = name(later) == name(earlier);
            // A folder entry can be replaced by a file of the same name, since the entries below it make the folder
            // exist anyway.
            let replaces = same && (earlier.is_folder() || !later.is_folder());
            if replaces && !earlier.is_folder() {
                repeated += 1;
                let path = path_of(name(later));
                list.add(&path, &path, HiddenReason::Replaced);
            }
            if replaces {
                *earlier = *later;
            }
            same
        });
        entries.shrink_to_fit();
        (ZipIndex { names, entries }, repeated)
    }
}

impl ZipEntry {
    /// Creates an entry with an empty name, which is set when the entry is added to the index.
    pub(super) fn new(compression: Compression, header: u64) -> ZipEntry {
        ZipEntry {
            header,
            compression,
            compressed: 0,
            size: 0,
            crc: 0,
            modified: 0,
            name_start: 0,
            name_len: 0,
            name_rest: 0,
        }
    }

    /// Returns the length of the entry's name in the archive, including the slash after a folder's name.
    pub(super) fn stored_name_len(&self) -> u64 {
        u64::from(self.name_len) + u64::from(self.name_rest)
    }

    fn is_folder(&self) -> bool {
        self.compression == Compression::Folder
    }
}

impl ZipIndex {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Looks up a path in the index. The empty path is the root of the archive.
    pub(super) fn find(&self, path: &Key) -> IndexedPath<'_> {
        let wanted = index_name(path);
        let at = self.entries.partition_point(|e| self.name(e) < &wanted[..]);
        match self.entries.get(at) {
            _ if path.is_root() => IndexedPath::Folder(None),
            Some(entry) if self.name(entry) == wanted => match entry.compression {
                Compression::Folder => IndexedPath::Folder(Some(entry)),
                _ if self.has_below(at) => IndexedPath::Both(entry),
                _ => IndexedPath::File(entry),
            },
            Some(entry) if is_below(self.name(entry), &wanted) => IndexedPath::Folder(None),
            _ => IndexedPath::Missing,
        }
    }

    /// Whether the archive has entries below the name of the index entry at position `at`.
    fn has_below(&self, at: usize) -> bool {
        let name = self.entries.get(at).map(|entry| self.name(entry));
        let next = self.entries.get(at + 1).map(|entry| self.name(entry));
        name.zip(next)
            .is_some_and(|(name, next)| is_below(next, name))
    }

    /// Returns the positions of all index entries below a path.
    pub(super) fn below(&self, path: &Key) -> Range<usize> {
        if path.is_root() {
            return 0..self.len();
        }
        self.range_below(0, &index_name(path))
    }

    /// Returns the positions of all index entries below a name, searching from `start` on.
    fn range_below(&self, start: usize, name: &[u8]) -> Range<usize> {
        let rest = self.entries.get(start..).unwrap_or_default();
        let first = rest.partition_point(|e| self.name(e) <= name);
        let rest = rest.get(first..).unwrap_or_default();
        let length = rest.partition_point(|e| is_below(self.name(e), name));
        start + first..start + first + length
    }

    /// Returns the file or folder directly below a path to which the index entry at `position` belongs. The path has
    /// `depth` bytes.
    pub(super) fn child(&self, position: usize, depth: usize) -> Option<Child<'_>> {
        let entry = self.entries.get(position)?;
        let full = self.name(entry);
        let start = if depth == 0 { 0 } else { depth + 1 };
        let rest = full.get(start..)?;
        let length = rest
            .iter()
            .position(|&byte| byte == SEPARATOR)
            .unwrap_or(rest.len());
        let is_folder = length < rest.len() || entry.is_folder() || self.has_below(position);
        let (kind, next) = if is_folder {
            let below = self.range_below(position, full.get(..start + length)?);
            (EntryKind::Directory, below.end)
        } else {
            (EntryKind::File, position + 1)
        };
        Some(Child {
            name: rest.get(..length)?,
            kind,
            next,
        })
    }

    /// Returns the name of the only folder at the root of the archive, or `None` if the root has anything else.
    pub(super) fn only_folder(&self) -> Option<&[u8]> {
        let child = self.child(0, 0)?;
        (child.kind == EntryKind::Directory && child.next == self.len()).then_some(child.name)
    }

    fn name(&self, entry: &ZipEntry) -> &[u8] {
        name_in(&self.names, entry)
    }
}

fn name_in<'a>(names: &'a [u8], entry: &ZipEntry) -> &'a [u8] {
    let start = entry.name_start as usize;
    names
        .get(start..start + usize::from(entry.name_len))
        .unwrap_or_default()
}

fn index_byte(byte: u8) -> u8 {
    if byte == b'/' { SEPARATOR } else { byte }
}

/// Converts a name in the index, whose separator is NUL, to a path.
fn path_of(name: &[u8]) -> Vec<u8> {
    let byte = |&byte: &u8| if byte == SEPARATOR { b'/' } else { byte };
    name.iter().map(byte).collect()
}

/// Converts a path to a name in the index, whose separator is NUL.
fn index_name(path: &Key) -> Vec<u8> {
    path.as_bytes()
        .iter()
        .map(|&byte| index_byte(byte))
        .collect()
}

fn is_below(name: &[u8], folder: &[u8]) -> bool {
    name.strip_prefix(folder)
        .is_some_and(|rest| rest.first() == Some(&SEPARATOR))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(path: &str) -> Key {
        Key::new(path).unwrap()
    }

    /// Builds an index for a test. A name with a final slash is a folder, and the offset of an entry is its number in
    /// the list.
    fn index(names: &[&str]) -> ZipIndex {
        counted(names).0
    }

    fn counted(names: &[&str]) -> (ZipIndex, u64) {
        let mut builder = IndexBuilder::default();
        for (number, name) in names.iter().enumerate() {
            let compression = if name.ends_with('/') {
                Compression::Folder
            } else {
                Compression::Stored
            };
            assert!(builder.add(
                &key(name.trim_end_matches('/')),
                ZipEntry::new(compression, number as u64),
                name.len()
            ));
        }
        builder.finish(&mut OmittedList::default())
    }

    fn list(index: &ZipIndex, path: &str) -> Vec<String> {
        let below = index.below(&key(path));
        let mut names = Vec::new();
        let mut position = below.start;
        while position < below.end {
            let child = index.child(position, path.len()).unwrap();
            let end = if child.kind == EntryKind::Directory {
                "/"
            } else {
                ""
            };
            names.push(String::from_utf8_lossy(child.name).into_owned() + end);
            position = child.next;
        }
        names
    }

    fn offset(index: &ZipIndex, path: &str) -> Option<u64> {
        match index.find(&key(path)) {
            IndexedPath::File(entry) | IndexedPath::Both(entry) => Some(entry.header),
            _ => None,
        }
    }

    #[test]
    fn folders_without_own_entries_are_listed_once() {
        let index = index(&["b/c/1", "b-", "b/c.", "b/c/0", "a", "b/d/", "empty/"]);
        assert_eq!(list(&index, ""), ["a", "b/", "b-", "empty/"]);
        assert_eq!(list(&index, "b"), ["c/", "c.", "d/"]);
        assert_eq!(list(&index, "b/c"), ["0", "1"]);
        assert_eq!(list(&index, "empty"), [""; 0]);
        assert!(matches!(index.find(&key("b/c")), IndexedPath::Folder(None)));
        assert!(matches!(
            index.find(&key("b/d")),
            IndexedPath::Folder(Some(_))
        ));
        for missing in ["b/c/", "b/", "c", "b/c/2", "bb", "a/x"] {
            let path = missing.trim_end_matches('/');
            let found = index.find(&key(path));
            assert_eq!(
                matches!(found, IndexedPath::Missing),
                path == missing,
                "{missing}"
            );
        }
    }

    #[test]
    fn the_last_entry_of_a_repeated_name_is_used() {
        let (index, repeated) = counted(&["a", "x/y", "a", "x/", "x/y", "x/", "a"]);
        assert_eq!(
            (offset(&index, "a"), offset(&index, "x/y")),
            (Some(6), Some(4))
        );
        assert_eq!((index.len(), repeated), (3, 3));
    }

    #[test]
    fn a_name_can_be_file_and_folder_at_once() {
        for names in [
            &["a", "a/b", "a-"][..],
            &["a/b", "a", "a-"],
            &["a", "a/", "a-", "a/b"],
            &["a/", "a", "a-", "a/b"],
        ] {
            let index = index(names);
            assert_eq!(list(&index, ""), ["a/", "a-"], "{names:?}");
            assert_eq!(list(&index, "a"), ["b"], "{names:?}");
            let place = names.iter().position(|name| *name == "a").unwrap();
            assert_eq!(offset(&index, "a"), Some(place as u64), "{names:?}");
            assert!(matches!(index.find(&key("a")), IndexedPath::Both(_)));
        }
        let nested = index(&["a", "a/b", "a/b/c"]);
        assert_eq!(list(&nested, "a/b"), ["c"]);
        assert_eq!(
            (offset(&nested, "a"), offset(&nested, "a/b")),
            (Some(0), Some(1))
        );
        let (empty, repeated) = counted(&["a/", "a", "a/", "a"]);
        assert_eq!(
            (list(&empty, ""), offset(&empty, "a"), repeated),
            (vec!["a".to_string()], Some(3), 1)
        );
    }

    #[test]
    fn an_entry_takes_at_most_48_bytes() {
        assert!(size_of::<ZipEntry>() <= 48);
    }

    #[test]
    fn files_of_a_large_folder_are_counted_and_found() {
        let names: Vec<_> = (0..70_000).map(|n| format!("a/c/{n}")).collect();
        let index = index(&names.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(index.below(&key("a/c")).len(), names.len());
        assert_eq!(index.only_folder(), Some(&b"a"[..]));
        for n in (0..70_000).step_by(997) {
            assert_eq!(offset(&index, &names[n]), Some(n as u64));
        }
    }
}
