//! Tracks the size of the cache folder, and evicts entries.
//!
//! All processes add their writes to an estimate in the file `usage`, where a writer reserves room first. When the room
//! is used up, or the last count is some minutes old, one process scans: it counts the files and removes the least
//! recently used, while the others read and write. The lock of the file `scan` marks a running scan; nobody waits for
//! the lock, and it expires soon. Two concurrent scans do no harm: each counts files as gone that the other removed.

use parking_lot::Mutex;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Once};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;

use super::folder;
use super::folder::CacheRoot;
use super::usage::Usage;
use crate::stats::Stats;

/// Name of the file that claims a scan.
const SCAN: &str = "scan";

/// After this many seconds a claim no longer keeps others from scanning.
const CLAIM_TIMEOUT: u64 = 60;

/// After this many seconds the count is repeated: it may miss concurrent writes of other machines.
const SCAN_INTERVAL: u64 = 300;

/// How long a write waits for a scan; a scan of 10,000 files takes less on a local disk.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long nothing is cached after there was no room.
const PAUSE: Duration = Duration::from_secs(1);

/// 1/N of the size is left for the file system's directories, and 1/N of the disk for other programs.
const SPARE_SHARE: u64 = 32;

/// Maximum share of the disk that is left for other programs, in bytes.
const MAX_SPARE: u64 = 1 << 30;

/// An eviction frees 1/N of the size.
const EVICTED_SHARE: u64 = 8;

/// 1/N of the free room is reserved at a time: few reservations, yet room for many processes.
const RESERVED_SHARE: u64 = 64;

/// The cache folder and its free room.
pub(super) struct CacheFolder {
    pub(super) root: CacheRoot,
    stats: Arc<Stats>,
    /// Limit of the folder in bytes.
    limit: u64,
    /// File sizes are rounded up to multiples of this, in bytes.
    block: u64,
    /// Seconds by which the clock of the file system is ahead.
    pub(super) clock_offset: AtomicI64,
    reserved: Mutex<Reservation>,
    /// Logs once that the disk is full.
    fullness: Once,
}

/// The room reserved by this process.
#[derive(Default)]
struct Reservation {
    /// The `usage` file that records the reservation.
    usage: Option<Usage>,
    /// Reserved bytes that are not written yet.
    left: u64,
    /// Nothing is cached before this time.
    pause: Option<Instant>,
    /// Error of a background scan.
    fault: Option<io::Error>,
}

impl CacheFolder {
    /// Opens the accounting of a folder with a limit of `size` bytes.
    pub(super) fn new(
        root: CacheRoot,
        size: u64,
        stats: &Arc<Stats>,
    ) -> io::Result<Arc<CacheFolder>> {
        let unit = rustix::fs::fstatvfs(&root)?.f_frsize;
        let folder = Arc::new(CacheFolder {
            stats: stats.clone(),
            limit: size - size / SPARE_SHARE,
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
            // A concurrent scan may have missed the file.
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
                let text = "nothing is kept in --cache-dir as long as that is so";
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

    fn pause(&self) {
        self.reserved.lock().pause = Some(Instant::now() + PAUSE);
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
        let (inode, more) = (Some(usage.inode), bytes.max(room / RESERVED_SHARE));
        usage.add(more)?;
        self.stats.disk_held_bytes.set(usage.held);
        let age = folder::now(self.clock_offset()).abs_diff(usage.counted);
        let mut reserved = self.reserved.lock();
        reserved.left = reserved.left_in(inode) + more - bytes;
        let before = reserved.usage.replace(usage);
        drop((reserved, before));
        if age > SCAN_INTERVAL {
            self.begin_scan(0);
        }
        Ok(inode)
    }

    /// Returns the number of bytes that the cache may still take of the disk.
    fn free(&self) -> io::Result<u64> {
        let disk = rustix::fs::fstatvfs(&self.root)?;
        let spare = disk.f_blocks.saturating_mul(disk.f_frsize) / SPARE_SHARE;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        Ok(free.saturating_sub(spare.min(MAX_SPARE)))
    }

    /// Starts a scan to make room for `bytes`; returns whether it ended within `PATIENCE`.
    fn scan(self: &Arc<Self>, bytes: u64) -> bool {
        self.begin_scan(bytes).recv_timeout(PATIENCE).is_ok()
    }

    /// Starts a scan in a new thread unless one is running; the channel signals its end.
    fn begin_scan(self: &Arc<Self>, bytes: u64) -> mpsc::Receiver<()> {
        let (sender, receiver) = mpsc::channel();
        let folder = self.clone();
        let scan = move || match folder.claim_scan() {
            Ok(None) => {}
            claim => {
                let scanned = claim.and_then(|claim| {
                    folder.look_through(bytes)?;
                    folder::remove(&folder.root, SCAN)?;
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
        // Without a thread nothing is sent, as if another process had the claim.
        let _ = thread::Builder::new()
            .name("cache-scan".to_string())
            .spawn(scan);
        receiver
    }

    /// Claims the scan until the file is closed; `None` if a scan is running.
    fn claim_scan(&self) -> io::Result<Option<File>> {
        let offset = self.root.clock_offset()?;
        self.clock_offset.store(offset, Ordering::Relaxed);
        let Some((file, is_new)) = self.root.open_or_create(SCAN)? else {
            return Ok(None);
        };
        let age = folder::now(offset).abs_diff(file.metadata()?.mtime());
        let lock = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        // Another machine may have died with the lock, and some file systems have no locks.
        if lock.is_err() && !is_new && age <= CLAIM_TIMEOUT {
            return Ok(None);
        }
        folder::touch(&file)?;
        Ok(Some(file))
    }

    /// Counts the folder's files, and evicts the least recently used until `bytes` more fit.
    fn look_through(&self, bytes: u64) -> io::Result<()> {
        let now = folder::now(self.clock_offset());
        // Writers reserve in the new file from here on, so that their room counts whether the scan sees their files or
        // not.
        let before = Usage::open(&self.root)?;
        let (held, counted) = before.map_or((u64::MAX, now), |usage| (usage.held, usage.counted));
        let during = match Usage::publish(&self.root, held, counted, None) {
            // The disk is full; evicting makes room.
            Err(error) if is_full(&error) => None,
            published => published?,
        };
        let found = folder::look_through(&self.root, self.block, now)?;
        let mut held = found.held;
        let limit = self.limit.min(held.saturating_add(self.free()?));
        let share = limit / EVICTED_SHARE;
        let is_short = held.saturating_add(bytes.max(share / 2)) > limit;
        let enough = limit.saturating_sub(bytes.max(share));
        for candidate in found.candidates.iter().filter(|_| is_short) {
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

/// Whether the disk or the user's quota is full.
fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

/// Whether another machine replaced an open file on NFS.
fn is_stale(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::StaleNetworkFileHandle
}
