//! The file `usage`: bytes at the last scan, and reservations since.
//!
//! Each process appends a line before it writes. A scan replaces the file, which voids the remaining reservations of
//! the old file. Reads take no lock: a line overwritten by another machine is a small error until the next scan.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::folder;
use super::folder::CacheRoot;

/// Name of the file.
pub(super) const USAGE: &str = "usage";

/// The start of the file: name and number of the format.
pub(super) const FORMAT: &str = "zarrfs-cache 2";

/// A longer file is invalid, in bytes.
const MAX_LENGTH: u64 = 256 << 10;

/// A `usage` file as it was when it was opened.
pub(super) struct Usage {
    file: File,
    /// Its inode number; unique while this file is open.
    pub(super) inode: u64,
    /// Bytes held or reserved.
    pub(super) held: u64,
    /// Time of the count, in seconds since 1970 by the clock of the file system.
    pub(super) counted: i64,
}

impl Usage {
    /// Opens the file, or returns `None` if it is missing or invalid.
    pub(super) fn open(root: &CacheRoot) -> io::Result<Option<Usage>> {
        let flags = OFlags::RDWR | OFlags::APPEND | folder::SAFE;
        let file = match rustix::fs::openat(root, USAGE, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT | Errno::LOOP) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Ok(None);
        }
        let text = text_of(&file)?;
        Ok(parse(&text).map(|(held, counted)| Usage {
            file,
            inode: meta.ino(),
            held,
            counted,
        }))
    }

    /// Replaces the file by a new count, plus the reservations made in `during` while the scan ran; returns the new
    /// file.
    pub(super) fn publish(
        root: &CacheRoot,
        held: u64,
        counted: i64,
        during: Option<Usage>,
    ) -> io::Result<Option<Usage>> {
        let head = format!("{FORMAT} {held} {counted}\n");
        let lines = during.map_or(Ok(String::new()), |during| text_of(&during.file))?;
        let (_, reserved) = lines.split_once('\n').unwrap_or_default();
        root.write(root, USAGE, [head.as_bytes(), reserved.as_bytes()])?;
        Usage::open(root)
    }

    /// Appends a reservation.
    pub(super) fn add(&mut self, bytes: u64) -> io::Result<()> {
        self.held = self.held.saturating_add(bytes);
        self.file.write_all(format!("{bytes}\n").as_bytes())?;
        // NFS sends written data when any descriptor of the file is closed, even if another one stays open.
        self.file.try_clone().map(drop)
    }

    /// Returns the inode number of the present file.
    pub(super) fn inode_of(root: impl AsFd) -> io::Result<Option<u64>> {
        Ok(folder::stat(root, USAGE)?.map(|stat| stat.st_ino))
    }
}

/// Reads the file up to the length limit.
fn text_of(file: &File) -> io::Result<String> {
    let mut bytes = Vec::new();
    let mut file = file;
    file.seek(SeekFrom::Start(0))?;
    file.take(MAX_LENGTH + 1).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the bytes held and the time of their count, or `None` if the text is invalid.
fn parse(text: &str) -> Option<(u64, i64)> {
    let (head, lines) = text.split_once('\n')?;
    let (held, counted) = head.strip_prefix(FORMAT)?.trim().split_once(' ')?;
    let reserved = lines.lines().filter_map(|line| line.parse::<u64>().ok());
    let held = reserved.fold(held.parse().ok()?, u64::saturating_add);
    Some((held, counted.parse().ok()?)).filter(|_| text.len() as u64 <= MAX_LENGTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_reserved_counts_whatever_stands_beside_it() {
        let of = |lines: &str| parse(&format!("{FORMAT} 100 7\n{lines}"));
        assert_eq!(of(""), Some((100, 7)));
        assert_eq!(of("5\n\0\0\0\n-3\n20\n"), Some((125, 7)));
        assert_eq!(of("18446744073709551615\n1\n"), Some((u64::MAX, 7)));
        assert_eq!(of(&"1\n".repeat(1 << 18)), None);
        for text in [
            "",
            "zarrfs-cache 2 100 7",
            "zarrfs-cache 3 100 7\n",
            "zarrfs-cache 2 x 7\n",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
