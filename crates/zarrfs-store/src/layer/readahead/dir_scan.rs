//! Tracks sequential use of a directory's names, and returns the next ones to prefetch.
//!
//! Two sort orders are recognized: by bytes, as programs list, and with numbers by value, as programs count chunks.
//! Concurrent requests may overtake each other a little. This module makes no requests except for listings.

use std::cmp::Ordering;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;

use super::{BlockCache, BlockId};
use crate::layer::name_sequence::NameSequence;
use crate::request_context::UNLIMITED;
use crate::{EntryKind, Key, Store};
use zarr_format::error::Result;

/// A directory in which a program uses names in sequence: its files or its subdirectories.
#[derive(Clone, PartialEq, Eq, Hash)]
struct ScanId {
    directory: Key,
    kind: EntryKind,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct SizedName {
    name: Vec<u8>,
    size: Option<u64>,
}

/// The names of a directory in two sort orders.
struct DirNames {
    lexical: Vec<SizedName>,
    /// Indices into `lexical`, sorted so that numbers in names are compared by value.
    numeric: Vec<usize>,
}

impl DirNames {
    fn new(mut lexical: Vec<SizedName>) -> DirNames {
        lexical.sort();
        let mut numeric: Vec<usize> = (0..lexical.len()).collect();
        numeric.sort_by(|&one, &other| compare(&lexical[one].name, &lexical[other].name));
        DirNames { lexical, numeric }
    }

    /// Lists the names of a directory's files or of its subdirectories.
    fn list(store: &dyn Store, scanned: &ScanId) -> Result<DirNames> {
        let mut listing = store.list(&UNLIMITED, &scanned.directory)?;
        let mut names = Vec::new();
        while let Some(name) = listing.next(&UNLIMITED)?
            && names.len() < 100_000
        {
            if name.kind == scanned.kind {
                names.push(SizedName {
                    size: name.meta.map(|meta| meta.size),
                    name: name.name,
                });
            }
        }
        Ok(DirNames::new(names))
    }

    fn at(&self, sorting: Sorting, index: usize) -> Option<&SizedName> {
        let index = match sorting {
            Sorting::Lexical => index,
            Sorting::Numeric => *self.numeric.get(index)?,
        };
        self.lexical.get(index)
    }

    fn index_of(&self, sorting: Sorting, name: &[u8]) -> Option<usize> {
        let index = match sorting {
            Sorting::Lexical => self
                .lexical
                .binary_search_by(|known| known.name.as_slice().cmp(name)),
            Sorting::Numeric => self
                .numeric
                .binary_search_by(|&index| compare(&self.lexical[index].name, name)),
        };
        index.ok()
    }

    fn len(&self) -> usize {
        self.lexical.len()
    }
}

/// A sort order of names: by bytes, or with numbers by value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sorting {
    Lexical,
    Numeric,
}

/// Compares two names; numbers in them are compared by value. The result is equal only if the names are identical.
fn compare(one: &[u8], other: &[u8]) -> Ordering {
    let (mut a, mut b) = (one, other);
    while let (Some(x), Some(y)) = (a.first(), b.first()) {
        let (digits, others) = (count_digits(a), count_digits(b));
        let is_number = digits > 0 && others > 0;
        let order = if is_number {
            number(&a[..digits]).cmp(&number(&b[..others]))
        } else {
            x.cmp(y)
        };
        if order != Ordering::Equal {
            return order;
        }
        (a, b) = if is_number {
            (&a[digits..], &b[others..])
        } else {
            (&a[1..], &b[1..])
        };
    }
    a.len().cmp(&b.len()).then_with(|| one.cmp(other))
}

fn count_digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// Returns a form of a decimal number that sorts by value: its length without leading zeros, then its digits.
fn number(digits: &[u8]) -> (usize, &[u8]) {
    let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
    let digits = &digits[zeros..];
    (digits.len(), digits)
}

/// A program that has used this many names of a directory in sequence is expected to use the next names too.
const MIN_SEQUENTIAL: usize = 2;

/// How far a program has gone through the files or subdirectories of a directory.
struct DirScan {
    /// The program counts as sequential after this many names in sequence.
    least: usize,
    names: Option<Arc<DirNames>>,
    /// How far the program has gone in each of the two sort orders.
    sorted: [SortedSequence; 2],
    /// Names that the program used before the directory was listed.
    before_listing: Vec<Vec<u8>>,
    /// Whether the scan has already returned the end of the directory.
    has_ended: bool,
}

struct SortedSequence {
    sorting: Sorting,
    sequence: NameSequence,
}

impl SortedSequence {
    fn both(sequence: NameSequence) -> [SortedSequence; 2] {
        [Sorting::Lexical, Sorting::Numeric].map(|sorting| SortedSequence { sorting, sequence })
    }
}

/// The next names of a directory to prefetch.
struct Upcoming {
    sorting: Sorting,
    /// The indices of the names in the sort order. No index is returned twice.
    indices: Range<usize>,
    /// Whether the names reach the end of the directory, so that the next directory can be prefetched. True only once.
    ends: bool,
}

impl DirScan {
    fn new(name: &[u8], kind: EntryKind) -> DirScan {
        // A subdirectory whose name is a number probably has chunks of an array, and the program will use the others
        // too.
        let is_number = name.iter().all(u8::is_ascii_digit);
        DirScan {
            least: if kind == EntryKind::Directory && is_number {
                1
            } else {
                MIN_SEQUENTIAL
            },
            names: None,
            sorted: SortedSequence::both(NameSequence::default()),
            before_listing: Vec::new(),
            has_ended: false,
        }
    }

    /// Begins to track a directory that the program will probably use in sequence, like the directory before. The first
    /// `fetched` names are already prefetched.
    fn sequential(names: Arc<DirNames>, fetched: usize) -> DirScan {
        DirScan {
            least: MIN_SEQUENTIAL,
            names: Some(names),
            sorted: SortedSequence::both(NameSequence::at_first(MIN_SEQUENTIAL, fetched)),
            before_listing: Vec::new(),
            has_ended: false,
        }
    }

    /// Sets the names of the directory, once it is listed, and records the names that the program used before. Returns
    /// at most `window` next names to prefetch.
    fn set_names(&mut self, names: Arc<DirNames>, window: usize) -> Option<Upcoming> {
        self.names = Some(names.clone());
        let before = std::mem::take(&mut self.before_listing);
        let (last, others) = before.split_last()?;
        for name in others {
            self.record_index(&names, name);
        }
        self.record(last, window)
    }

    fn record_index(&mut self, names: &DirNames, name: &[u8]) {
        for sorted in &mut self.sorted {
            if let Some(index) = names.index_of(sorted.sorting, name) {
                sorted.sequence.record(index);
            }
        }
    }

    /// Records that the program uses a name. Returns at most `window` next names to prefetch.
    fn record(&mut self, name: &[u8], window: usize) -> Option<Upcoming> {
        let Some(names) = self.names.clone() else {
            self.before_listing.push(name.to_vec());
            self.before_listing.truncate(16);
            return None;
        };
        self.record_index(&names, name);
        let sorted = self.sorted.iter_mut();
        let sorted = sorted.filter(|sorted| sorted.sequence.count() >= self.least);
        // If both sort orders fit equally well, prefer one in which more names follow.
        let best = sorted.min_by_key(|sorted| {
            let sequence = &sorted.sequence;
            (sequence.deviation(), sequence.next() >= names.len())
        })?;
        let indices = best.sequence.take_window(window);
        let reaches_end = indices.end >= names.len();
        let ends = reaches_end && !self.has_ended;
        self.has_ended = reaches_end;
        Some(Upcoming {
            sorting: best.sorting,
            indices: indices.start..indices.end.min(names.len()),
            ends,
        })
    }

    /// Whether to list the directory now: the program has used enough of its names, and they are not listed yet.
    fn must_list(&self) -> bool {
        self.names.is_none() && self.before_listing.len() == self.least
    }
}

/// How much to prefetch for a program that goes through a directory.
#[derive(Clone, Copy)]
struct Pace {
    /// Size of the object that was opened last, as an estimate for objects whose size the listing does not have.
    size: u64,
    window: usize,
}

/// The directories whose files or subdirectories programs use in sequence.
pub(super) struct DirScans {
    blocks: Arc<BlockCache>,
    scans: Mutex<LruCache<ScanId, DirScan>>,
    concurrency: usize,
}

impl DirScans {
    pub(super) fn new(blocks: Arc<BlockCache>, concurrency: usize) -> DirScans {
        DirScans {
            blocks,
            scans: Mutex::new(LruCache::new(const { NonZeroUsize::new(64).unwrap() })),
            concurrency,
        }
    }

    /// Records that an object of `size` bytes was opened, and prefetches the next objects.
    pub(super) fn record_open(self: &Arc<DirScans>, key: &Key, size: u64) {
        let window = self.concurrency;
        self.record_name(key, EntryKind::File, Pace { size, window });
    }

    /// Records that a program uses a name, and prefetches the next names in its directory.
    fn record_name(self: &Arc<DirScans>, key: &Key, kind: EntryKind, pace: Pace) {
        let Some(directory) = key.parent() else {
            return;
        };
        let scanned = ScanId { directory, kind };
        let mut scans = self.scans.lock();
        let new = || DirScan::new(key.name(), kind);
        let scan = scans.get_or_insert_mut(scanned.clone(), new);
        let upcoming = scan.record(key.name(), pace.window);
        let names = scan.names.clone();
        let must_list = scan.must_list();
        drop(scans);
        if let (Some(upcoming), Some(names)) = (upcoming, names) {
            self.fetch_upcoming(&scanned, &names, &upcoming, pace);
        } else if must_list && self.blocks.inner.info().lists {
            let scans = self.clone();
            self.blocks
                .pool
                .submit(move || scans.list_scanned(&scanned, pace));
        }
    }

    /// Lists a directory whose names a program uses in sequence. Errors are ignored, since readers will get them
    /// themselves.
    fn list_scanned(self: &Arc<DirScans>, scanned: &ScanId, pace: Pace) {
        let Ok(names) = DirNames::list(&*self.blocks.inner, scanned) else {
            return;
        };
        let names = Arc::new(names);
        let mut scans = self.scans.lock();
        let scan = scans.get_mut(scanned);
        let upcoming = scan.and_then(|scan| scan.set_names(names.clone(), pace.window));
        drop(scans);
        if let Some(upcoming) = upcoming {
            self.fetch_upcoming(scanned, &names, &upcoming, pace);
        }
    }

    /// Prefetches the next files of a directory, or the files in its next subdirectories.
    fn fetch_upcoming(
        self: &Arc<DirScans>,
        scanned: &ScanId,
        names: &DirNames,
        upcoming: &Upcoming,
        pace: Pace,
    ) {
        for index in upcoming.indices.clone() {
            let Some(next) = names.at(upcoming.sorting, index) else {
                return;
            };
            let Ok(key) = scanned.directory.child(&next.name) else {
                continue;
            };
            let length = next.size.unwrap_or(pace.size);
            if scanned.kind == EntryKind::Directory {
                let (scans, sorting) = (self.clone(), upcoming.sorting);
                self.blocks
                    .pool
                    .submit(move || scans.enter(&key, sorting, pace));
            } else if length <= self.blocks.max_whole_bytes() {
                self.blocks
                    .prefetch(BlockId { key, number: None }, 0..length);
            }
        }
        if upcoming.ends {
            // If the directories are small, several of the next ones are prefetched, to keep all concurrent requests
            // busy.
            let window = match scanned.kind {
                EntryKind::File => self.concurrency.div_ceil(names.len().max(1)),
                _ => pace.window.div_ceil(names.len().max(1)),
            };
            self.record_name(
                &scanned.directory,
                EntryKind::Directory,
                Pace { window, ..pace },
            );
        }
    }

    /// Prefetches the first files of a directory that the program will probably use next, and those of its first
    /// subdirectories. Errors are ignored, since readers will get them themselves.
    fn enter(self: &Arc<DirScans>, directory: &Key, sorting: Sorting, pace: Pace) {
        for (kind, window) in [
            (EntryKind::File, self.concurrency),
            (EntryKind::Directory, pace.window),
        ] {
            let scanned = ScanId {
                directory: directory.clone(),
                kind,
            };
            let Ok(names) = DirNames::list(&*self.blocks.inner, &scanned) else {
                return;
            };
            if names.len() == 0 {
                continue;
            }
            let names = Arc::new(names);
            let indices = 0..names.len().min(window);
            let mut scans = self.scans.lock();
            if !scans.contains(&scanned) {
                let scan = DirScan::sequential(names.clone(), indices.end);
                scans.put(scanned.clone(), scan);
                drop(scans);
                let upcoming = Upcoming {
                    sorting,
                    indices,
                    ends: false,
                };
                self.fetch_upcoming(&scanned, &names, &upcoming, pace);
            }
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(count: usize) -> DirScan {
        let name = |number: usize| SizedName {
            name: format!("0.{number}").into_bytes(),
            size: Some(1),
        };
        let names = DirNames::new((0..count).map(name).collect());
        let mut scan = DirScan::new(b"0.0", EntryKind::File);
        scan.set_names(Arc::new(names), 4);
        scan
    }

    fn upcoming(scan: &mut DirScan, name: &str) -> Vec<String> {
        let names = scan.names.clone().unwrap();
        let next = scan.record(name.as_bytes(), 4);
        next.map_or_else(Vec::new, |next| {
            let name = |place| names.at(next.sorting, place).unwrap().name.clone();
            next.indices
                .map(|place| String::from_utf8(name(place)).unwrap())
                .collect()
        })
    }

    #[test]
    fn numeric_and_byte_order_are_followed() {
        let mut scan = files(30);
        upcoming(&mut scan, "0.8");
        assert_eq!(upcoming(&mut scan, "0.9")[..2], ["0.10", "0.11"]);
        assert_eq!(upcoming(&mut scan, "0.10"), ["0.14"]);
        let mut scan = files(30);
        upcoming(&mut scan, "0.19");
        upcoming(&mut scan, "0.2");
        assert!(upcoming(&mut scan, "0.20").contains(&"0.24".to_string()));
    }

    #[test]
    fn numbers_are_compared_as_numbers() {
        for (one, other) in [
            ("c9", "c10"),
            ("1.2", "1.10"),
            ("a", "b"),
            ("01", "1"),
            ("a", "a1"),
        ] {
            assert_eq!(
                compare(one.as_bytes(), other.as_bytes()),
                Ordering::Less,
                "{one} {other}"
            );
        }
        assert_eq!(compare(b"c07", b"c07"), Ordering::Equal);
    }

    #[test]
    fn random_access_is_not_a_sequence() {
        let mut scan = files(2000);
        for place in [1900, 900, 1700, 100, 1400] {
            assert!(upcoming(&mut scan, &format!("0.{place}")).is_empty());
        }
    }
}
