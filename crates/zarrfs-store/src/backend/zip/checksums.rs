//! Checksums of stored entries that are read in ranges, in any order.
//!
//! An archive has only the checksum of a whole entry, so a range alone cannot be checked. The checksums of all ranges
//! that were read, by any reader, are kept and combined (CRC-32 can be combined for adjacent ranges). The read that
//! completes an entry thus verifies it. By then the page cache may hold the other ranges, so an entry whose checksum is
//! wrong is recorded: it cannot be opened until the whole entry has been read again. If the checksum is wrong again,
//! the entry is not read for a minute, since each check reads the whole entry.

use std::ops::Range;
use std::time::{Duration, Instant};

use flate2::Crc;
use lru::LruCache;
use parking_lot::Mutex;

use super::index::ZipEntry;

/// Maximum number of entries with range checksums in memory, and of entries recorded as having a wrong checksum.
const MAX_ENTRIES: usize = 4096;

/// How long an entry of an archive is not read again after its checksum was wrong twice.
const RECHECK_INTERVAL: Duration = Duration::from_secs(60);

/// The checksums of the ranges that were read of an archive's entries. The key is the offset of the entry's local
/// header.
pub(super) struct EntryChecksums(Mutex<ChecksumTable>);

struct ChecksumTable {
    read: LruCache<u64, Vec<CheckedRange>>,
    /// The total capacity of the vectors in `read`, in elements.
    capacity: usize,
    wrong: LruCache<u64, WrongSum>,
}

/// The wrong checksum that an entry had when all of it had been read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct WrongSum {
    pub(super) sum: u32,
    /// When the whole entry was last read again, if its checksum was then still wrong.
    confirmed: Option<Instant>,
}

impl WrongSum {
    /// Whether the entry was read again less than a minute (`RECHECK_INTERVAL`) ago, and its checksum was still wrong.
    pub(super) fn is_confirmed(&self, now: Instant) -> bool {
        let age = |confirmed| now.saturating_duration_since(confirmed);
        self.confirmed
            .is_some_and(|confirmed| age(confirmed) < RECHECK_INTERVAL)
    }
}

struct CheckedRange {
    range: Range<u64>,
    crc: Crc,
}

impl Default for EntryChecksums {
    fn default() -> EntryChecksums {
        EntryChecksums(Mutex::new(ChecksumTable {
            read: LruCache::unbounded(),
            capacity: 0,
            wrong: LruCache::unbounded(),
        }))
    }
}

impl EntryChecksums {
    /// Returns the recorded wrong checksum of an entry, or `None` if none is recorded.
    pub(super) fn wrong(&self, entry: &ZipEntry) -> Option<WrongSum> {
        self.0.lock().wrong.get(&entry.header).copied()
    }

    pub(super) fn record_whole(&self, entry: &ZipEntry, sum: u32, now: Instant) {
        let mut sums = self.0.lock();
        if sum == entry.crc {
            sums.wrong.pop(&entry.header);
            return;
        }
        let confirmed = sums.wrong.contains(&entry.header).then_some(now);
        sums.wrong.put(entry.header, WrongSum { sum, confirmed });
        if sums.wrong.len() > MAX_ENTRIES {
            sums.wrong.pop_lru();
        }
    }

    /// Records that a range of an entry was read. Returns the checksum of the entry if all of it has been read by now.
    pub(super) fn record_range(&self, entry: &ZipEntry, offset: u64, bytes: &[u8]) -> Option<u32> {
        if bytes.is_empty() {
            return None;
        }
        let end = offset + bytes.len() as u64;
        let is_known = |parts: &Vec<CheckedRange>| {
            let behind = parts.partition_point(|part| part.range.start <= offset);
            let part = behind.checked_sub(1).and_then(|at| parts.get(at));
            part.is_some_and(|part| end <= part.range.end)
        };
        if self.0.lock().read.get(&entry.header).is_some_and(is_known) {
            return None;
        }
        let mut crc = Crc::new();
        crc.update(bytes);
        let range = offset..end;
        self.0.lock().add(entry, CheckedRange { range, crc }, bytes)
    }
}

impl ChecksumTable {
    /// Adds a range to the ranges of an entry, and evicts the oldest entries beyond the limits. Returns the checksum of
    /// the entry if its ranges are complete.
    fn add(&mut self, entry: &ZipEntry, new: CheckedRange, bytes: &[u8]) -> Option<u32> {
        let parts = self.read.get_or_insert_mut(entry.header, Vec::new);
        let capacity = parts.capacity();
        add(parts, new, bytes);
        let whole = match parts.as_slice() {
            [whole] if whole.range == (0..entry.size) => Some(whole.crc.sum()),
            _ => None,
        };
        // An entry has at most 1024 separate ranges in memory.
        if whole.is_some_and(|sum| sum != entry.crc) || parts.len() > 1024 {
            // After a wrong checksum, a new read may be correct; after too many ranges, new reads may leave fewer gaps.
            *parts = Vec::new();
        }
        if parts.capacity() > 4 * parts.len() {
            parts.shrink_to(2 * parts.len());
        }
        self.capacity = self.capacity - capacity + parts.capacity();
        // A range takes 40 bytes in memory, so the ranges of all entries take less than 2 MB.
        while self.read.len() > MAX_ENTRIES || self.capacity > 48 << 10 {
            let oldest = self.read.pop_lru();
            self.capacity -= oldest.map_or(self.capacity, |(_, parts)| parts.capacity());
        }
        whole
    }
}

/// Adds a range that was read, with its bytes, to the sorted ranges of an entry, which neither overlap nor touch. If
/// the new range overlaps others, only the bytes that no other range has are used.
fn add(parts: &mut Vec<CheckedRange>, mut new: CheckedRange, bytes: &[u8]) {
    let (start, end) = (new.range.start, new.range.end);
    let (mut from, mut to) = (start, end);
    let mut first = parts.partition_point(|part| part.range.end <= start);
    let mut behind = parts.partition_point(|part| part.range.start < end);
    if let Some(part) = parts.get(first).filter(|part| part.range.start <= start) {
        from = part.range.end;
        first += 1;
    }
    let last = behind.checked_sub(1).and_then(|at| parts.get(at));
    if let Some(part) = last.filter(|part| part.range.end >= end) {
        to = part.range.start;
        behind -= 1;
    }
    if from >= to {
        return;
    }
    if (from, to) != (start, end) {
        let at = |place: u64| usize::try_from(place - start).unwrap_or(usize::MAX);
        new.crc.reset();
        new.crc
            .update(bytes.get(at(from)..at(to)).unwrap_or_default());
        new.range = from..to;
    }
    // The new range replaces the ranges that lie within it.
    parts.splice(first..behind, [new]);
    join(parts, first);
    if first > 0 {
        join(parts, first - 1);
    }
}

fn join(parts: &mut Vec<CheckedRange>, place: usize) {
    let next = parts.get(place + 1).map(|next| next.range.start);
    if parts.get(place).map(|part| part.range.end) == next && next.is_some() {
        let next = parts.remove(place + 1);
        if let Some(part) = parts.get_mut(place) {
            part.crc.combine(&next.crc);
            part.range.end = next.range.end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::index::Compression;
    use super::*;

    fn entry(bytes: &[u8]) -> ZipEntry {
        let mut crc = Crc::new();
        crc.update(bytes);
        let mut entry = ZipEntry::new(Compression::Stored, 0);
        (entry.size, entry.crc) = (bytes.len() as u64, crc.sum());
        entry
    }

    #[test]
    fn ranges_in_any_order_give_the_checksum_of_the_entry() {
        let bytes: Vec<u8> = (0..100u8).collect();
        for ranges in [
            vec![0..50, 50..100],
            vec![60..100, 0..20, 20..60],
            vec![0..60, 40..100],
            vec![40..100, 0..60],
            vec![10..20, 30..40, 5..95, 0..100],
            vec![10..20, 30..40, 15..35, 0..12, 38..100],
            vec![0..10, 0..10, 90..100, 5..95],
        ] {
            let sums = EntryChecksums::default();
            let (last, others) = ranges.split_last().unwrap();
            let read = |range: &Range<usize>| {
                sums.record_range(&entry(&bytes), range.start as u64, &bytes[range.clone()])
            };
            assert!(
                others.iter().all(|range| read(range).is_none()),
                "{ranges:?}"
            );
            assert_eq!(read(last), Some(entry(&bytes).crc), "{ranges:?}");
            assert_eq!(read(last), None, "it is known");
        }
    }

    #[test]
    fn random_ranges_give_the_checksum_of_the_entry() {
        let bytes: Vec<u8> = (0..1000u32).map(|n| (n * 7 % 251) as u8).collect();
        let mut seed = 1u64;
        let mut random = |most: u64| {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (seed >> 33) % most
        };
        for _ in 0..200 {
            let (sums, mut seen) = (EntryChecksums::default(), vec![false; 1000]);
            loop {
                let start = random(1000) as usize;
                let end = (start + 1 + random(200) as usize).min(1000);
                let found = sums.record_range(&entry(&bytes), start as u64, &bytes[start..end]);
                seen[start..end].fill(true);
                if seen.iter().all(|&seen| seen) {
                    assert_eq!(found, Some(entry(&bytes).crc));
                    break;
                }
                assert_eq!(found, None);
            }
        }
    }

    #[test]
    fn an_empty_range_is_not_recorded() {
        let (sums, right) = (EntryChecksums::default(), entry(b"abcd"));
        assert_eq!(sums.record_range(&right, 2, b"cd"), None);
        assert_eq!(sums.record_range(&right, 0, b""), None);
        assert_eq!(sums.record_range(&right, 4, b""), None);
        assert_eq!(sums.record_range(&right, 0, b"ab"), Some(right.crc));
        let other = ZipEntry::new(Compression::Stored, 1);
        assert_eq!(sums.record_range(&other, 0, b""), None);
        assert_eq!(sums.0.lock().read.len(), 1);
    }

    #[test]
    fn recorded_ranges_take_bounded_memory() {
        let (sums, bytes) = (EntryChecksums::default(), vec![0; 4000]);
        let read = |header: u64, range: Range<usize>| {
            let mut entry = ZipEntry::new(Compression::Stored, header);
            entry.size = bytes.len() as u64;
            sums.record_range(&entry, range.start as u64, &bytes[range]);
        };
        let check = || {
            let sums = sums.0.lock();
            let capacity = sums.read.iter().map(|(_, parts)| parts.capacity());
            assert_eq!(capacity.sum::<usize>(), sums.capacity);
            assert!(
                sums.capacity * size_of::<CheckedRange>() < 2_000_000,
                "{}",
                sums.capacity
            );
            assert!(sums.read.len() <= MAX_ENTRIES);
        };
        let scattered = |header| (0..1000).for_each(|n| read(header, 4 * n..4 * n + 1));
        for header in 0..100 {
            scattered(header);
            check();
            assert_eq!(sums.0.lock().read.get(&header).unwrap().len(), 1000);
        }
        assert!(!sums.0.lock().read.contains(&0), "the oldest one");
        // The ranges of most entries are joined to one, which takes little memory.
        for header in 0..200 {
            scattered(header);
            read(header, 0..3990);
            check();
        }
        assert!(sums.0.lock().read.contains(&0), "they take little");
        (0..5000).for_each(|header| read(header, 0..1));
        check();
    }

    #[test]
    fn the_oldest_wrong_checksums_are_forgotten() {
        let (sums, now) = (EntryChecksums::default(), Instant::now());
        for header in 0..5000 {
            sums.record_whole(&ZipEntry::new(Compression::Stored, header), 1, now);
        }
        let is_wrong = |header| {
            sums.wrong(&ZipEntry::new(Compression::Stored, header))
                .is_some()
        };
        assert!(is_wrong(4999) && !is_wrong(0));
    }

    #[test]
    fn a_wrong_checksum_is_forgotten_after_a_right_one() {
        let sums = EntryChecksums::default();
        let right = entry(b"abcd");
        let sum = sums.record_range(&right, 0, b"abxd").unwrap();
        assert_ne!(sum, right.crc);
        let now = Instant::now();
        sums.record_whole(&right, sum, now);
        let wrong = sums.wrong(&right).unwrap();
        assert!(wrong.sum == sum && !wrong.is_confirmed(now));
        sums.record_whole(&right, sum, now);
        let wrong = sums.wrong(&right).unwrap();
        assert!(wrong.is_confirmed(now) && !wrong.is_confirmed(now + RECHECK_INTERVAL));
        sums.record_whole(&right, right.crc, now);
        assert_eq!(sums.wrong(&right), None);
        assert_eq!(sums.record_range(&right, 0, b"abcd"), Some(right.crc));
    }
}
