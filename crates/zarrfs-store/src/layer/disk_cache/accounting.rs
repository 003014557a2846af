//! Tracks the size of the cache folder, and evicts entries.
//!
//! All processes add their writes to an estimate in the file `usage`, where a writer reserves room first. When the room
//! is used up, or the last count is some minutes old, one process scans: it counts the files and removes the least
//! recently used, while the others read and write. A running scan holds the lock of the file `scan`. Nobody waits for
//! this lock, and it counts for at most 60 s. Two concurrent scans do no harm: each counts files as gone that the other
//! removed.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Once};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::folder;
use super::folder::CacheRoot;
use crate::stats::Stats;

/// Name of the file with the number of bytes at the last scan, and the reservations since.
const USAGE: &str = "usage";

/// The start of the file `usage`: name and number of the format.
pub(super) const FORMAT: &str = "zarrfs-cache 2";

/// Maximum length of the file `usage`, in bytes. A longer one is invalid.
const MAX_LENGTH: u64 = 256 << 10;

/// Accounts for the bytes in the cache folder, and keeps them below its limit.
pub(super) struct Accounting {
    pub(super) root: CacheRoot,
    stats: Arc<Stats>,
    /// Limit of the folder in bytes.
    limit: u64,
    /// File sizes are rounded up to multiples of this, in bytes.
    block: u64,
    /// Seconds by which the clock of the file system is ahead of this machine's.
    pub(super) clock_offset: AtomicI64,
    reserved: Mutex<Reservation>,
    /// Used to log only once that the disk is full.
    fullness: Once,
}

/// The room reserved by this process.
#[derive(Default)]
struct Reservation {
    /// The file `usage` in which the room was reserved.
    usage: Option<Usage>,
    /// Reserved bytes that are not written yet.
    left: u64,
    /// Nothing is cached before this time.
    pause: Option<Instant>,
    /// Error of a background scan.
    fault: Option<io::Error>,
}

impl Accounting {
    /// Opens the accounting of a folder with a limit of `size` bytes.
    pub(super) fn new(
        root: CacheRoot,
        size: u64,
        stats: &Arc<Stats>,
    ) -> io::Result<Arc<Accounting>> {
        let unit = rustix::fs::fstatvfs(&root)?.f_frsize;
        let folder = Arc::new(Accounting {
            stats: stats.clone(),
            // The rest, 1/32, is for the directories of the file system.
            limit: size - size / 32,
            // NFS and Ceph report blocks of megabytes, but small files take less.
            block: unit.clamp(4 << 10, 64 << 10),
            clock_offset: AtomicI64::new(root.clock_offset()?),
            reserved: Mutex::default(),
            fullness: Once::new(),
            root,
        });
        let usage = Usage::open(&folder.root)?;
        let held = usage.map(|usage| usage.held);
        folder.stats.disk_held_bytes.set(held.unwrap_or(0));
        // A process with a larger limit may have filled the folder beyond this limit.
        if held.is_none_or(|held| held > folder.limit) {
            folder.scan(0);
        }
        Ok(folder)
    }

    /// Returns the seconds by which the clock of the folder's file system is ahead of this machine's.
    pub(super) fn clock_offset(&self) -> i64 {
        self.clock_offset.load(Ordering::Relaxed)
    }

    /// Writes or replaces a file; returns false if there is no room for it.
    pub(super) fn put(
        self: &Arc<Self>,
        folder: impl AsFd,
        name: &str,
        parts: [&[u8]; 2],
    ) -> io::Result<bool> {
        let length = parts.iter().map(|part| part.len() as u64).sum();
        let charge = folder::charge(length, self.block);
        let placed = self.reserve(charge).and_then(|inode| {
            let Some(inode) = inode else {
                return Ok(false);
            };
            self.root.write(folder, name, parts)?;
            // If a scan has replaced `usage` since the reservation, it may have missed this file, so the size of the
            // file is added to the new count.
            if Usage::inode_of(&self.root)? != Some(inode)
                && let Some(mut usage) = Usage::open(&self.root)?
            {
                usage.add(charge)?;
            }
            self.stats.disk_written_bytes.add(length);
            Ok(true)
        });
        match placed {
            Err(error) if is_full(&error) => {
                let text = "--cache-dir is not used until there is room: free some space or set --cache-size";
                self.fullness.call_once(|| log::warn!("{error}; {text}"));
                self.pause();
                Ok(false)
            }
            // The file exceeds this process's file size limit; other files may fit.
            Err(error) if error.raw_os_error() == Some(libc::EFBIG) => Ok(false),
            Err(error) if is_stale(&error) => Ok(false),
            placed => placed,
        }
    }

    /// Reserves room, after a scan if necessary. Returns the inode of the `usage` file, or `None` if there is no room.
    fn reserve(self: &Arc<Self>, bytes: u64) -> io::Result<Option<u64>> {
        let pause = self.reserved.lock().pause;
        if bytes > self.limit || pause.is_some_and(|pause| Instant::now() < pause) {
            return Ok(None);
        }
        let mut taken = self.take(bytes)?;
        if taken.is_none() && self.scan(bytes) {
            taken = self.take(bytes)?;
        }
        if taken.is_none() {
            self.pause();
        }
        Ok(taken)
    }

    /// Caches nothing for a second, since there was no room.
    fn pause(&self) {
        self.reserved.lock().pause = Some(Instant::now() + Duration::from_secs(1));
    }

    /// Takes room from the reservation, or extends it. Returns the inode of the `usage` file, or `None` if only a scan
    /// can make room.
    fn take(self: &Arc<Self>, bytes: u64) -> io::Result<Option<u64>> {
        let inode = Usage::inode_of(&self.root)?;
        let mut reserved = self.reserved.lock();
        if let Some(fault) = reserved.fault.take() {
            return Err(fault);
        }
        if reserved.left_in(inode) >= bytes && inode.is_some() {
            reserved.left -= bytes;
            return Ok(inode);
        }
        drop(reserved);
        let Some(mut usage) = Usage::open(&self.root)? else {
            return Ok(None);
        };
        let room = self.limit.saturating_sub(usage.held).min(self.free()?);
        if bytes > room {
            return Ok(None);
        }
        // A reservation takes at least a 64th of the room, so that there are few reservations, yet room for many
        // processes.
        let (inode, more) = (Some(usage.inode), bytes.max(room / 64));
        usage.add(more)?;
        self.stats.disk_held_bytes.set(usage.held);
        let age = folder::now(self.clock_offset()).abs_diff(usage.counted);
        let mut reserved = self.reserved.lock();
        reserved.left = reserved.left_in(inode) + more - bytes;
        let before = reserved.usage.replace(usage);
        drop((reserved, before));
        // An old count is renewed, since it may miss concurrent writes of other machines.
        if age > 300 {
            self.begin_scan(0);
        }
        Ok(inode)
    }

    /// Returns the number of bytes that the cache may still take of the disk.
    fn free(&self) -> io::Result<u64> {
        let disk = rustix::fs::fstatvfs(&self.root)?;
        // 1/32 of the disk, at most 1 GiB, is left to other programs.
        let spare = disk.f_blocks.saturating_mul(disk.f_frsize) / 32;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        Ok(free.saturating_sub(spare.min(1 << 30)))
    }

    /// Starts a scan to make room for `bytes`. Returns whether it ended within a second: on a local disk, a scan of
    /// 10,000 files takes less.
    fn scan(self: &Arc<Self>, bytes: u64) -> bool {
        self.begin_scan(bytes)
            .recv_timeout(Duration::from_secs(1))
            .is_ok()
    }

    /// Starts a scan in a new thread unless one is running; the channel signals its end.
    fn begin_scan(self: &Arc<Self>, bytes: u64) -> mpsc::Receiver<()> {
        let (sender, receiver) = mpsc::channel();
        let folder = self.clone();
        let scan = move || match folder.claim_scan() {
            Ok(None) => {}
            claim => {
                let scanned = claim.and_then(|claim| {
                    folder.scan_files(bytes)?;
                    folder::remove(&folder.root, "scan")?;
                    drop(claim);
                    Ok(())
                });
                let mut reserved = folder.reserved.lock();
                reserved.fault = scanned.err().filter(|it| !is_full(it) && !is_stale(it));
                reserved.pause = None;
                drop(reserved);
                // The receiver may have stopped waiting.
                let _ = sender.send(());
            }
        };
        // If no thread starts, nothing is sent, as if another process were scanning.
        let _ = thread::Builder::new()
            .name("cache-scan".to_string())
            .spawn(scan);
        receiver
    }

    /// Claims the scan until the file is closed; `None` if a scan is running.
    fn claim_scan(&self) -> io::Result<Option<File>> {
        let offset = self.root.clock_offset()?;
        self.clock_offset.store(offset, Ordering::Relaxed);
        let Some((file, is_new)) = self.root.open_or_create("scan")? else {
            return Ok(None);
        };
        let age = folder::now(offset).abs_diff(file.metadata()?.mtime());
        let lock = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        // A claim is valid for 60 s: another machine may have died with the lock, and some file systems have no locks.
        if lock.is_err() && !is_new && age <= 60 {
            return Ok(None);
        }
        folder::touch(&file)?;
        Ok(Some(file))
    }

    /// Counts the folder's files, and evicts the least recently used until `bytes` more fit.
    fn scan_files(&self, bytes: u64) -> io::Result<()> {
        let now = folder::now(self.clock_offset());
        // From here on, writers reserve in the new file. Their reservations are thus in the result, whether the scan
        // sees their files or not.
        let before = Usage::open(&self.root)?;
        let (held, counted) = before.map_or((u64::MAX, now), |usage| (usage.held, usage.counted));
        let during = match Usage::publish(&self.root, held, counted, None) {
            // The disk is full; evicting makes room.
            Err(error) if is_full(&error) => None,
            published => published?,
        };
        let inventory = folder::scan_files(&self.root, self.block, now)?;
        let mut held = inventory.held;
        let limit = self.limit.min(held.saturating_add(self.free()?));
        // If room is short, files are evicted until an eighth of the limit is free.
        let share = limit / 8;
        let is_short = held.saturating_add(bytes.max(share / 2)) > limit;
        let enough = limit.saturating_sub(bytes.max(share));
        for candidate in inventory.candidates.iter().filter(|_| is_short) {
            if held > enough && candidate.remove()? {
                held = held.saturating_sub(candidate.charge);
                self.stats.disk_evicted_entries.add(1);
            }
        }
        self.stats.disk_held_bytes.set(held);
        Usage::publish(&self.root, held, now, during).map(drop)
    }
}

impl Reservation {
    /// Returns the rest of a reservation recorded in the `usage` file with this inode.
    fn left_in(&self, inode: Option<u64>) -> u64 {
        let is_valid = self.usage.as_ref().map(|usage| usage.inode) == inode;
        if is_valid { self.left } else { 0 }
    }
}

/// The file `usage`, as it was when it was opened.
///
/// Each process appends a line before it writes. A scan replaces the file, and the unused reservations in the old file
/// become void. Reads take no lock: a line overwritten by another machine is a small error until the next scan.
struct Usage {
    file: File,
    /// Its inode number; unique while this file is open.
    inode: u64,
    /// Bytes held or reserved.
    held: u64,
    /// Time of the count, in seconds since 1970 by the clock of the file system.
    counted: i64,
}

impl Usage {
    /// Opens the file, or returns `None` if it is missing or invalid.
    fn open(root: &CacheRoot) -> io::Result<Option<Usage>> {
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

    /// Replaces the file by one with a new count and the reservations that `during` received while the scan ran;
    /// returns the new file.
    fn publish(
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
    fn add(&mut self, bytes: u64) -> io::Result<()> {
        self.held = self.held.saturating_add(bytes);
        self.file.write_all(format!("{bytes}\n").as_bytes())?;
        // NFS sends written data when any descriptor of the file is closed, even if another one stays open.
        self.file.try_clone().map(drop)
    }

    /// Returns the inode number of the present file.
    fn inode_of(root: impl AsFd) -> io::Result<Option<u64>> {
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

/// Whether the disk or the user's quota is full.
fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

/// Whether another machine replaced an open file on NFS.
fn is_stale(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::StaleNetworkFileHandle
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_are_summed_and_damaged_lines_ignored() {
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
