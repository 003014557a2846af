//! The entries of an archive, sorted by name: one buffer of names, one short record per entry.
//!
//! Names have a NUL for each slash. No name holds a NUL, so byte order puts a folder directly before all that lies
//! below it: the entries below a path are one range of records, found by binary search. Each name occurs once, and no
//! file has entries below it. Parsing an archive is left to `directory`.

use std::ops::Range;

use crate::store::{EntryKind, Key, NotShown, NotShownReason};

/// How many entries of a kind that are not shown are listed by name.
pub(super) const MAX_LISTED: u64 = 100;

/// Separates the components of a name in the index.
const SEPARATOR: u8 = 0;

/// How the bytes of an entry are encoded (APPNOTE 4.4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    /// Not at all, method 0.
    Stored,
    /// Deflated, method 8.
    Deflated,
    /// Encrypted (APPNOTE 4.4.4, bit 0, 6 or 13).
    Encrypted,
    /// By another method, with this number.
    Other(u16),
    /// The entry is a folder.
    Folder,
}

/// An entry of the central directory; offsets and lengths are in bytes and not yet checked against the archive.
#[derive(Clone, Copy, Debug)]
pub(super) struct ZipEntry {
    /// Offset of its local header in the archive.
    pub(super) header: u64,
    /// Length in the archive.
    pub(super) packed: u64,
    /// Length of the object.
    pub(super) size: u64,
    /// Checksum of the object.
    pub(super) crc: u32,
    /// When it was last changed, in seconds since 1970.
    pub(super) modified: u32,
    pub(super) packing: Packing,
    name_start: u32,
    name_len: u16,
}

/// What lies under a path.
pub(super) enum IndexedPath<'a> {
    /// Nothing.
    Missing,
    /// A folder, and its record if the archive has one.
    Folder(Option<&'a ZipEntry>),
    File(&'a ZipEntry),
}

/// One name directly under a path.
pub(super) struct Child<'a> {
    pub(super) name: &'a [u8],
    pub(super) kind: EntryKind,
    /// The record after everything that lies below this name.
    pub(super) next: usize,
}

/// The entries of an archive by name.
#[derive(Default)]
pub(super) struct ZipIndex {
    names: Vec<u8>,
    entries: Vec<ZipEntry>,
}

/// Collects entries in the order of the central directory.
#[derive(Default)]
pub(super) struct IndexBuilder(ZipIndex);

impl IndexBuilder {
    /// Adds an entry; false if all names together are longer than 4 GiB.
    pub(super) fn add(&mut self, key: &Key, mut entry: ZipEntry) -> bool {
        let ZipIndex { names, entries } = &mut self.0;
        let name = key.as_bytes();
        let (Ok(start), Ok(length)) = (u32::try_from(names.len()), u16::try_from(name.len()))
        else {
            return false;
        };
        (entry.name_start, entry.name_len) = (start, length);
        names.extend(name.iter().map(|&byte| index_byte(byte)));
        entries.push(entry);
        true
    }

    /// Sorts the entries; also returns how many files were left out because folders have the same name, and how many
    /// because a later file has it. The first ones of both are added to `listed`.
    pub(super) fn finish(self, listed: &mut Vec<NotShown>) -> (ZipIndex, u64, u64) {
        let ZipIndex { names, mut entries } = self.0;
        let name = |entry: &ZipEntry| name_in(&names, entry);
        let mut list = |entry: &ZipEntry, count: u64, why: NotShownReason| {
            if count <= MAX_LISTED {
                let name = path_of(name(entry));
                listed.push(NotShown { name, why });
            }
        };
        // The sort is stable: of several entries of one name the last stays the last.
        entries.sort_by(|a, b| name(a).cmp(name(b)));
        let (mut hidden, mut repeated) = (0, 0);
        entries.dedup_by(|later, earlier| {
            let same = name(later) == name(earlier);
            let hides = !earlier.is_folder() && (is_below(name(later), name(earlier)));
            let hides = hides || same && earlier.is_folder() != later.is_folder();
            if hides {
                hidden += 1;
                let file = if earlier.is_folder() {
                    &later
                } else {
                    &earlier
                };
                list(file, hidden, NotShownReason::BehindFolder);
            } else if same && !later.is_folder() {
                repeated += 1;
                list(later, repeated, NotShownReason::Replaced);
            }
            let replaces = hides && !earlier.is_folder() || same && !hides;
            if replaces {
                *earlier = *later;
            }
            same || hides
        });
        entries.shrink_to_fit();
        (ZipIndex { names, entries }, hidden, repeated)
    }
}

impl ZipEntry {
    /// Builds a record without a name, which `IndexBuilder::add` sets.
    pub(super) fn new(packing: Packing, header: u64) -> ZipEntry {
        ZipEntry {
            header,
            packing,
            packed: 0,
            size: 0,
            crc: 0,
            modified: 0,
            name_start: 0,
            name_len: 0,
        }
    }

    /// Returns the length of the name in the archive, without the slash after that of a folder.
    pub(super) fn name_len(&self) -> u64 {
        u64::from(self.name_len)
    }

    fn is_folder(&self) -> bool {
        self.packing == Packing::Folder
    }
}

impl ZipIndex {
    /// Returns how many names there are.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns what lies under a path; the empty one is the archive itself.
    pub(super) fn find(&self, path: &Key) -> IndexedPath<'_> {
        let wanted = index_name(path);
        let at = self.entries.partition_point(|e| self.name(e) < &wanted[..]);
        match self.entries.get(at) {
            _ if path.is_root() => IndexedPath::Folder(None),
            Some(entry) if self.name(entry) == wanted => match entry.packing {
                Packing::Folder => IndexedPath::Folder(Some(entry)),
                _ => IndexedPath::File(entry),
            },
            Some(entry) if is_below(self.name(entry), &wanted) => IndexedPath::Folder(None),
            _ => IndexedPath::Missing,
        }
    }

    /// Returns the records below a path.
    pub(super) fn below(&self, path: &Key) -> Range<usize> {
        if path.is_root() {
            return 0..self.len();
        }
        self.range_below(0, &index_name(path))
    }

    /// Returns the records below a name, all of which are at `start` or later.
    fn range_below(&self, start: usize, name: &[u8]) -> Range<usize> {
        let rest = self.entries.get(start..).unwrap_or_default();
        let first = rest.partition_point(|e| self.name(e) <= name);
        let rest = rest.get(first..).unwrap_or_default();
        let length = rest.partition_point(|e| is_below(self.name(e), name));
        start + first..start + first + length
    }

    /// Returns the name directly under a path of `depth` bytes that the record at `position` has or lies below.
    pub(super) fn child(&self, position: usize, depth: usize) -> Option<Child<'_>> {
        let entry = self.entries.get(position)?;
        let full = self.name(entry);
        let start = if depth == 0 { 0 } else { depth + 1 };
        let rest = full.get(start..)?;
        let length = rest
            .iter()
            .position(|&byte| byte == SEPARATOR)
            .unwrap_or(rest.len());
        let is_folder = length < rest.len() || entry.is_folder();
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

    /// Returns the name of the only folder at the top, if nothing else is there.
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

/// Returns the path of a name in the index.
fn path_of(name: &[u8]) -> Vec<u8> {
    let byte = |&byte: &u8| if byte == SEPARATOR { b'/' } else { byte };
    name.iter().map(byte).collect()
}

/// Returns the name of a path in the index.
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

    /// Builds an index; a name with a slash at its end is a folder, the offset is its number in the list.
    fn index(names: &[&str]) -> (ZipIndex, u64) {
        let (index, hidden, _) = counted(names);
        (index, hidden)
    }

    fn counted(names: &[&str]) -> (ZipIndex, u64, u64) {
        let mut builder = IndexBuilder::default();
        for (number, name) in names.iter().enumerate() {
            let packing = if name.ends_with('/') {
                Packing::Folder
            } else {
                Packing::Stored
            };
            assert!(builder.add(
                &key(name.trim_end_matches('/')),
                ZipEntry::new(packing, number as u64)
            ));
        }
        builder.finish(&mut Vec::new())
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
            IndexedPath::File(entry) => Some(entry.header),
            _ => None,
        }
    }

    #[test]
    fn folders_without_entries_are_listed_once_each() {
        let (index, _) = index(&["b/c/1", "b-", "b/c.", "b/c/0", "a", "b/d/", "empty/"]);
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
    fn of_several_entries_of_one_name_the_last_counts() {
        let (index, hidden, repeated) = counted(&["a", "x/y", "a", "x/", "x/y", "x/", "a"]);
        assert_eq!(
            (offset(&index, "a"), offset(&index, "x/y")),
            (Some(6), Some(4))
        );
        assert_eq!((index.len(), hidden, repeated), (3, 0, 3));
    }

    #[test]
    fn a_folder_hides_a_file_of_its_name() {
        for names in [
            &["a", "a/b", "a-"][..],
            &["a/b", "a", "a-"],
            &["a", "a/", "a-", "a/b"],
            &["a/", "a", "a-", "a/b"],
        ] {
            let (index, hidden) = index(names);
            assert_eq!(list(&index, ""), ["a/", "a-"], "{names:?}");
            assert_eq!(list(&index, "a"), ["b"], "{names:?}");
            assert_eq!((offset(&index, "a"), hidden), (None, 1), "{names:?}");
        }
        let (index, hidden) = index(&["a", "a/b", "a/b/c"]);
        assert_eq!((list(&index, "a/b"), hidden), (vec!["c".to_string()], 2));
    }

    #[test]
    fn a_record_is_small() {
        assert!(size_of::<ZipEntry>() <= 48);
    }

    #[test]
    fn a_big_folder_is_walked_and_searched() {
        let names: Vec<_> = (0..70_000).map(|n| format!("a/c/{n}")).collect();
        let (index, _) = index(&names.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(index.below(&key("a/c")).len(), names.len());
        assert_eq!(index.only_folder(), Some(&b"a"[..]));
        for n in (0..70_000).step_by(997) {
            assert_eq!(offset(&index, &names[n]), Some(n as u64));
        }
    }
}
