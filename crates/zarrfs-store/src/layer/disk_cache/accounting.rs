//! Tracks the size of the cache folder, and evicts entries.
//!
//! All processes add their writes to an estimate in the file `usage`, in which a process reserves bytes before it
//! writes them. When the reservations reach the limit, or the last count is some minutes old, one process scans: it
//! counts the files and removes the least recently used, while the others read and write. The scanning process locks
//! the file `scan`. Nobody waits for this lock, and it counts for at most 60 s. Two concurrent scans do no harm: each
//! counts files as gone that the other removed.

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

/// Name of the file with the number of bytes at the last scan, and the bytes that processes have reserved since.
const USAGE: &str = "usage";

/// The first words of the file `usage`: name and number of the cache format.
pub(super) const FORMAT: &str = "zarrfs-cache 2";

const MAX_LENGTH: u64 = 256 << 10;

/// Counts the bytes in the cache folder, and keeps them below the limit.
pub(super) struct Accounting {
    pub(super) root: CacheRoot,
    stats: Arc<Stats>,
    limit: u64,
    /// Cache files are counted in blocks of this many bytes.
    block: u64,
    /// By how many seconds the clock of the cache folder's file system is ahead of this machine's.
    pub(super) clock_offset: AtomicI64,
    reserved: Mutex<Reservation>,
    /// Makes sure that a full disk is logged only once.
    fullness: Once,
}

/// The bytes of the cache folder that this process has reserved.
#[derive(Default)]
struct Reservation {
    /// The file `usage` that contains the reservation.
    usage: Option<Usage>,
    left: u64,
    /// After a failure to reserve bytes, nothing is cached before this time.
    pause: Option<Instant>,
    /// The error of a scan in the background, for the next write to return.
    fault: Option<io::Error>,
}

impl Accounting {
    pub(super) fn new(
        root: CacheRoot,
        size: u64,
        stats: &Arc<Stats>,
    ) -> io::Result<Arc<Accounting>> {
        let unit = rustix::fs::fstatvfs(&root)?.f_frsize;
        let folder = Arc::new(Accounting {
            stats: stats.clone(),
            // 1/32 of the size is left for directories, which are not counted.
            limit: size - size / 32,
            // NFS and Ceph report blocks of megabytes, but a small file takes less there.
            block: unit.clamp(4 << 10, 64 << 10),
            clock_offset: AtomicI64::new(root.clock_offset()?),
            reserved: Mutex::default(),
            fullness: Once::new(),
            root,
        });
        let usage = Usage::open(&folder.root)?;
        let held = usage.map(|usage| usage.held);
        folder.stats.disk_held_bytes.set(held.unwrap_or(0));
        // A process with a higher limit may have filled the cache folder beyond this process's limit.
        if held.is_none_or(|held| held > folder.limit) {
            folder.scan(0);
        }
        Ok(folder)
    }

    pub(super) fn clock_offset(&self) -> i64 {
        self.clock_offset.load(Ordering::Relaxed)
    }

    /// Writes or replaces a cache file. Returns false if the cache folder has no room for it.
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
            // If a scan has replaced `usage` since the reservation, the scan may have missed this cache file, so the
            // file's size is added to the new count.
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
            // EFBIG: the file exceeds the file size limit of this process (RLIMIT_FSIZE), but smaller files may fit.
            Err(error) if error.raw_os_error() == Some(libc::EFBIG) => Ok(false),
            Err(error) if is_stale(&error) => Ok(false),
            placed => placed,
        }
    }

    /// Reserves bytes of the cache folder, after a scan if necessary. Returns the inode of the `usage` file with the
    /// reservation, or `None` if the cache folder is full.
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

    /// Caches nothing for a second, since the cache folder or the disk is full.
    fn pause(&self) {
        self.reserved.lock().pause = Some(Instant::now() + Duration::from_secs(1));
    }

    /// Takes bytes from this process's reservation, or extends the reservation. Returns the inode of the `usage` file,
    /// or `None` if files must be evicted first.
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
        // At least 1/64 of the free bytes are reserved at once: few reservations are made, and many processes find free
        // bytes.
        let (inode, more) = (Some(usage.inode), bytes.max(room / 64));
        usage.add(more)?;
        self.stats.disk_held_bytes.set(usage.held);
        let age = folder::now(self.clock_offset()).abs_diff(usage.counted);
        let mut reserved = self.reserved.lock();
        reserved.left = reserved.left_in(inode) + more - bytes;
        let before = reserved.usage.replace(usage);
        drop((reserved, before));
        // After five minutes the files are counted again, since the estimate may miss concurrent writes of other
        // machines.
        if age > 300 {
            self.begin_scan(0);
        }
        Ok(inode)
    }

    /// Returns the number of bytes of free disk space that the cache may use.
    fn free(&self) -> io::Result<u64> {
        let disk = rustix::fs::fstatvfs(&self.root)?;
        let spare = disk.f_blocks.saturating_mul(disk.f_frsize) / 32;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        Ok(free.saturating_sub(spare.min(1 << 30)))
    }

    /// Starts a scan of the cache folder, to evict files until `bytes` more fit. Returns whether the scan ended within
    /// a second: on a local disk, a scan of 10,000 files takes less.
    fn scan(self: &Arc<Self>, bytes: u64) -> bool {
        self.begin_scan(bytes)
            .recv_timeout(Duration::from_secs(1))
            .is_ok()
    }

    /// Starts a scan of the cache folder in a new thread, unless a scan is running. The channel signals the end of the
    /// scan.
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
                // An error means that the caller no longer waits for the scan.
                let _ = sender.send(());
            }
        };
        // If the thread cannot be started, the channel closes without a signal, as if another process were scanning.
        let _ = thread::Builder::new()
            .name("cache-scan".to_string())
            .spawn(scan);
        receiver
    }

    /// Returns the locked file `scan`, which forbids other scans until it is closed, or `None` if a scan is running.
    fn claim_scan(&self) -> io::Result<Option<File>> {
        let offset = self.root.clock_offset()?;
        self.clock_offset.store(offset, Ordering::Relaxed);
        let Some((file, is_new)) = self.root.open_or_create("scan")? else {
            return Ok(None);
        };
        let age = folder::now(offset).abs_diff(file.metadata()?.mtime());
        let lock = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        // The lock counts for 60 s: another machine may have died with it, and some file systems have no locks.
        if lock.is_err() && !is_new && age <= 60 {
            return Ok(None);
        }
        folder::touch(&file)?;
        Ok(Some(file))
    }

    /// Counts the files in the cache folder, and evicts the least recently used until `bytes` more fit.
    fn scan_files(&self, bytes: u64) -> io::Result<()> {
        let now = folder::now(self.clock_offset());
        // From here on, processes reserve bytes in the new file `usage`. The new count includes those reservations,
        // whether the scan sees the written files or not.
        let before = Usage::open(&self.root)?;
        let (held, counted) = before.map_or((u64::MAX, now), |usage| (usage.held, usage.counted));
        let during = match Usage::publish(&self.root, held, counted, None) {
            // On a full disk `usage` cannot be replaced yet, but evicting files makes room.
            Err(error) if is_full(&error) => None,
            published => published?,
        };
        let inventory = folder::scan_files(&self.root, self.block, now)?;
        let mut held = inventory.held;
        let limit = self.limit.min(held.saturating_add(self.free()?));
        // If less than a sixteenth of the cache's limit is free, files are evicted until an eighth is free.
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
    /// Returns how many reserved bytes are left, or 0 if a scan has replaced the `usage` file with the reservation.
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
    /// The inode number of the file `usage`, which no other file gets while this one is open.
    inode: u64,
    /// Bytes of all cache files at the last scan, and bytes reserved since.
    held: u64,
    /// Time of the last scan, in seconds since 1970 by the clock of the file system.
    counted: i64,
}

impl Usage {
    /// Opens the file `usage`, or returns `None` if it is missing or invalid.
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

    /// Replaces the file `usage` by one with a new count, and with the reservations that were appended to `during`
    /// while the scan ran.
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

    fn add(&mut self, bytes: u64) -> io::Result<()> {
        self.held = self.held.saturating_add(bytes);
        self.file.write_all(format!("{bytes}\n").as_bytes())?;
        // NFS sends written data to the server when any descriptor of the file is closed, even if another one stays
        // open.
        self.file.try_clone().map(drop)
    }

    fn inode_of(root: impl AsFd) -> io::Result<Option<u64>> {
        Ok(folder::stat(root, USAGE)?.map(|stat| stat.st_ino))
    }
}

fn text_of(file: &File) -> io::Result<String> {
    let mut bytes = Vec::new();
    let mut file = file;
    file.seek(SeekFrom::Start(0))?;
    file.take(MAX_LENGTH + 1).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Parses the file `usage`: returns the bytes counted and reserved, and the time of the count, or `None` if the text is
/// invalid.
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

/// Whether another machine replaced an open file on NFS (ESTALE).
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
