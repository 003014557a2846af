//! A cache file: data, checksums, key and version.
//!
//! A file is identified by the key in it, never by its name. A block of data is returned only after its checksum was
//! verified. `cache_dir` creates and removes the files.

use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::folder;
use crate::{ByteRange, Key, Version};
use zarr_format::buffer;

/// Number of data bytes that share a checksum.
const BLOCK: usize = 64 << 10;

const MAGIC: &[u8; 8] = b"zarrfs\0\x01";

/// Length of the fixed-size end of a cache file: magic, version, size, time, data length, key length, and checksum of
/// everything but the data.
const TAIL: usize = 48;

/// What a cache entry contains: which object, and which part of it.
pub struct EntryKey(Vec<u8>);

impl EntryKey {
    fn new(kind: u8, first: u64, second: u64, key: &Key) -> EntryKey {
        let mut bytes = vec![kind];
        bytes.extend_from_slice(&first.to_le_bytes());
        bytes.extend_from_slice(&second.to_le_bytes());
        bytes.extend_from_slice(key.as_bytes());
        EntryKey(bytes)
    }

    /// Returns the entry key of a whole object.
    pub fn whole(key: &Key) -> EntryKey {
        EntryKey::new(0, 0, 0, key)
    }

    /// Returns the entry key of a range of an object, exactly as requested.
    pub fn range(key: &Key, range: &ByteRange) -> EntryKey {
        match range {
            ByteRange::Span(span) => EntryKey::new(1, span.start, span.end, key),
            ByteRange::Suffix(length) => EntryKey::new(2, *length, 0, key),
        }
    }

    /// Returns the entry key for the length of a file that the mount generates from the array at `key`. `file`
    /// identifies the generated file, `metadata` the array metadata.
    pub fn length(key: &Key, file: u64, metadata: u64) -> EntryKey {
        // Kind 3 stays unused: earlier versions used it for decoded chunks, and their caches still contain them.
        EntryKey::new(4, file, metadata, key)
    }

    /// Returns the file name of the entry: 32 hexadecimal digits.
    pub(super) fn name(&self) -> String {
        let half = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u8(salt);
            hasher.write(&self.0);
            hasher.finish()
        };
        format!("{:016x}{:016x}", half(0), half(1))
    }
}

/// Version, size and request time of the object that a cache entry is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryHeader {
    /// Version of the cached object.
    pub version: Version,
    /// Length of the whole object, in bytes.
    pub size: u64,
    /// Time of the request for the bytes, in seconds since 1970 by the clock of the cache folder's file system.
    pub request_time: u64,
}

impl EntryHeader {
    /// Builds the header of a cache entry whose bytes were requested just now.
    pub fn now(version: Version, size: u64) -> EntryHeader {
        EntryHeader {
            version,
            size,
            request_time: seconds(SystemTime::now()),
        }
    }

    /// Returns the age that the cached answer has at most, or `None` if its time is in the future.
    pub fn age(&self, now: SystemTime) -> Option<Duration> {
        // Both times are truncated to seconds, so the age may be a second more than their difference.
        let age = seconds(now)
            .checked_sub(self.request_time)?
            .saturating_add(1);
        Some(Duration::from_secs(age))
    }
}

pub(super) fn seconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Returns the part of a cache file after the data: checksums, key, and the end with its lengths.
pub(super) fn seal(key: &EntryKey, header: &EntryHeader, bytes: &[u8]) -> Vec<u8> {
    let mut end = Vec::with_capacity(bytes.len().div_ceil(BLOCK) * 4 + key.0.len() + TAIL);
    for block in bytes.chunks(BLOCK) {
        end.extend_from_slice(&crc32c::crc32c(block).to_le_bytes());
    }
    end.extend_from_slice(&key.0);
    end.extend_from_slice(MAGIC);
    for number in [
        header.version.number(),
        header.size,
        header.request_time,
        bytes.len() as u64,
    ] {
        end.extend_from_slice(&number.to_le_bytes());
    }
    let key_length = u32::try_from(key.0.len()).unwrap_or(u32::MAX);
    end.extend_from_slice(&key_length.to_le_bytes());
    let sum = crc32c::crc32c(&end);
    end.extend_from_slice(&sum.to_le_bytes());
    end
}

/// An open cache file whose key and checksums (not the data) were verified.
pub struct CacheFile {
    file: File,
    header: EntryHeader,
    length: u64,
    sums: Vec<u32>,
}

fn damaged() -> io::Error {
    io::Error::from(io::ErrorKind::InvalidData)
}

fn number(bytes: &[u8], at: usize) -> u64 {
    let eight = bytes.get(at..at + 8).and_then(|part| part.try_into().ok());
    eight.map_or(0, u64::from_le_bytes)
}

fn short(bytes: &[u8]) -> u32 {
    bytes.try_into().map_or(0, u32::from_le_bytes)
}

impl CacheFile {
    /// Opens a cache file of `file_length` bytes. The error is `InvalidData` if the part after the data is damaged or
    /// has another key.
    pub(super) fn open(file: File, file_length: u64, key: &EntryKey) -> io::Result<CacheFile> {
        let mut tail = [0; TAIL];
        let at = file_length.checked_sub(TAIL as u64).ok_or_else(damaged)?;
        file.read_exact_at(&mut tail, at)?;
        let length = number(&tail, 32);
        let before = length.div_ceil(BLOCK as u64).checked_mul(4);
        let before = before.and_then(|sums| sums.checked_add(key.0.len() as u64));
        let all = before.and_then(|before| before.checked_add(length)?.checked_add(TAIL as u64));
        if &tail[..8] != MAGIC || all != Some(file_length) {
            return Err(damaged());
        }
        let before = usize::try_from(before.unwrap_or(0)).map_err(|_| damaged())?;
        let mut end = vec![0; before + TAIL];
        file.read_exact_at(&mut end, length)?;
        let (sealed, sum) = end.split_at(before + TAIL - 4);
        let (sums, rest) = end.split_at(before - key.0.len());
        if crc32c::crc32c(sealed) != short(sum) || !rest.starts_with(&key.0) {
            return Err(damaged());
        }
        Ok(CacheFile {
            file,
            header: EntryHeader {
                version: Version::numbered(number(&tail, 8)),
                size: number(&tail, 16),
                request_time: number(&tail, 24),
            },
            length,
            sums: sums.chunks_exact(4).map(short).collect(),
        })
    }

    /// Returns the version and size of the cached object, and the time of its request.
    pub fn header(&self) -> &EntryHeader {
        &self.header
    }

    /// Returns the length of the cached data in bytes.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Whether the cache file has no data.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns a range of the cached data. The error is `InvalidData` if the range exceeds the data or a checksum is
    /// wrong.
    pub(super) fn read(&self, range: Range<u64>) -> io::Result<Vec<u8>> {
        if range.start > range.end || range.end > self.length {
            return Err(damaged());
        }
        let block = BLOCK as u64;
        let first = range.start / block;
        let start = first * block;
        let end = range
            .end
            .div_ceil(block)
            .saturating_mul(block)
            .min(self.length);
        let in_memory = |length| usize::try_from(length).map_err(|_| damaged());
        let length = in_memory(end.saturating_sub(start))?;
        let mut bytes = buffer::with_capacity(length);
        if bytes.capacity() < length {
            return Err(io::Error::from(io::ErrorKind::OutOfMemory));
        }
        bytes.resize(length, 0);
        self.file.read_exact_at(&mut bytes, start)?;
        let sums = self.sums.iter().skip(in_memory(first)?);
        for (block, &sum) in bytes.chunks(BLOCK).zip(sums) {
            if crc32c::crc32c(block) != sum {
                return Err(damaged());
            }
        }
        bytes.truncate(in_memory(range.end - start)?);
        bytes.drain(..in_memory(range.start - start)?);
        Ok(bytes)
    }

    /// Sets the cache file's time to now, at most once a second, to mark it as recently used.
    pub(super) fn touch(&self) {
        let modified = self.file.metadata().and_then(|meta| meta.modified());
        let age = modified.map(|time| time.elapsed().unwrap_or(Duration::MAX));
        if age.is_ok_and(|age| age >= Duration::from_secs(1)) {
            // Without the new time, the file is only evicted too early.
            let _ = folder::touch(&self.file);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file_of(key: &EntryKey, bytes: &[u8]) -> Vec<u8> {
        let header = EntryHeader::now(Version::numbered(7), 1 << 40);
        [bytes, &seal(key, &header, bytes)].concat()
    }

    fn open(content: &[u8], key: &EntryKey) -> io::Result<CacheFile> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        CacheFile::open(file, content.len() as u64, key)
    }

    #[test]
    fn any_range_of_an_entry_is_read() {
        let key = EntryKey::whole(&Key::new("a/b").unwrap());
        for length in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5] {
            let bytes: Vec<u8> = (0..length).map(|place| (place % 251) as u8).collect();
            let entry = open(&file_of(&key, &bytes), &key).unwrap();
            assert_eq!(
                (entry.len(), entry.header().version),
                (length as u64, Version::numbered(7))
            );
            for start in [0, 1, BLOCK, length / 2, length] {
                for end in [0, 1, BLOCK + 1, length / 2, length] {
                    if start <= end && end <= length {
                        let read = entry.read(start as u64..end as u64).unwrap();
                        assert_eq!(read, bytes[start..end]);
                    }
                }
            }
            assert!(entry.read(0..length as u64 + 1).is_err());
        }
    }

    #[test]
    fn a_flipped_byte_or_a_truncation_is_detected() {
        let key = EntryKey::whole(&Key::new("a").unwrap());
        let content = file_of(&key, b"some bytes");
        for place in 0..content.len() {
            let mut wrong = content.clone();
            wrong[place] ^= 1;
            let read = open(&wrong, &key).and_then(|entry| entry.read(0..10));
            assert!(read.is_err(), "{place}");
            let read = open(&content[..place], &key).and_then(|entry| entry.read(0..10));
            assert!(read.is_err(), "{place}");
        }
    }

    #[test]
    fn a_file_of_another_key_is_refused() {
        let object = Key::new("a").unwrap();
        let keys = [
            EntryKey::whole(&object),
            EntryKey::whole(&Key::new("b").unwrap()),
            EntryKey::range(&object, &ByteRange::Span(0..3)),
            EntryKey::range(&object, &ByteRange::Suffix(3)),
            EntryKey::length(&object, 0, 3),
        ];
        for (place, key) in keys.iter().enumerate() {
            let content = file_of(key, b"abc");
            for (other, name) in keys.iter().enumerate() {
                assert_eq!(open(&content, name).is_ok(), place == other);
                assert_eq!(key.name() == name.name(), place == other);
            }
        }
    }
}
