//! How much a cache's folder holds: an estimate that all its processes add to, corrected by a scan of one of them.
//!
//! Whoever writes reserves room first, in `usage`. When the room is gone, or was not counted for some minutes, one process
//! counts the files and removes what was used least recently, while the others read and write. The lock of the file
//! `scan` says that one does; nobody waits for it, and it does not count for long. Two scans at once do no harm: each counts
//! as gone what the other removed.

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

/// The name of the file that claims a scan.
const SCAN: &str = "scan";

/// For how many seconds a claim keeps others from scanning whose lock cannot be had.
const CLAIM_TIMEOUT: u64 = 60;

/// After how many seconds a count is made anew: it may lack what machines wrote at the same moment.
const SCAN_INTERVAL: u64 = 300;

/// How long a write waits for a scan; one of 10,000 files takes less on a local disk.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long nothing is kept where there was no room.
const PAUSE: Duration = Duration::from_secs(1);

/// One part in so many of the size is left to the file system's tables of names, and of the disk to other programs.
const SPARE_SHARE: u64 = 32;

/// The most of the disk that is left to other programs.
const MAX_SPARE: u64 = 1 << 30;

/// One part in so many of the size is free after an eviction.
const EVICTED_SHARE: u64 = 8;

/// One part in so many of the room is reserved at once: few reservations, and room for many processes.
const RESERVED_SHARE: u64 = 64;

/// The folder of a cache, and the room in it.
pub(super) struct CacheFolder {
    pub(super) root: CacheRoot,
    stats: Arc<Stats>,
    /// Bytes that the folder may hold.
    limit: u64,
    /// Room is taken in units of this many bytes.
    block: u64,
    /// By how many seconds the clock of the file system is ahead.
    pub(super) clock_offset: AtomicI64,
    reserved: Mutex<Reservation>,
    /// Said that the disk is full.
    fullness: Once,
}

/// The room that this process has.
#[derive(Default)]
struct Reservation {
    /// Where it is written down.
    usage: Option<Usage>,
    /// Bytes that are not written yet.
    left: u64,
    /// Until when nothing is kept.
    pause: Option<Instant>,
    /// Why a scan failed that nobody waited for.
    fault: Option<io::Error>,
}

impl CacheFolder {
    /// Takes a folder that may hold `size` bytes.
    pub(super) fn new(
        root: CacheRoot,
        size: u64,
        stats: &Arc<Stats>,
    ) -> io::Result<Arc<CacheFolder>> {
        let unit = rustix::fs::fstatvfs(&root)?.f_frsize;
        let folder = Arc::new(CacheFolder {
            stats: stats.clone(),
            limit: size - size / SPARE_SHARE,
            // NFS and Ceph name blocks of megabytes, and files take less.
            block: unit.clamp(4 << 10, 64 << 10),
            clock_offset: AtomicI64::new(root.clock_offset()?),
            reserved: Mutex::default(),
            fullness: Once::new(),
            root,
        });
        let usage = Usage::open(&folder.root)?;
        let held = usage.map(|usage| usage.held);
        folder.stats.disk_held_bytes.set(held.unwrap_or(0));
        // A process with a larger limit may have left more than fits now.
        if held.is_none_or(|held| held > folder.limit) {
            folder.scan(0);
        }
        Ok(folder)
    }

    /// Returns by how many seconds the clock that all users of the folder go by is ahead of this machine's.
    pub(super) fn clock_offset(&self) -> i64 {
        self.clock_offset.load(Ordering::Relaxed)
    }

    /// Writes a file, which replaces one of its name; false if there is no room for it.
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
            // A scan that began or ended meanwhile may not have counted the file.
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
            // A file that is longer than this process may write does not fit; others may.
            Err(error) if error.raw_os_error() == Some(libc::EFBIG) => Ok(false),
            Err(error) if is_stale(&error) => Ok(false),
            placed => placed,
        }
    }

    /// Reserves room; returns the inode of the file that says so, or nothing if there is no room.
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

    /// Takes room from the reservation, or reserves more; nothing if there is none without a scan.
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

    /// Returns how many bytes of the disk the cache may still take.
    fn free(&self) -> io::Result<u64> {
        let disk = rustix::fs::fstatvfs(&self.root)?;
        let spare = disk.f_blocks.saturating_mul(disk.f_frsize) / SPARE_SHARE;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        Ok(free.saturating_sub(spare.min(MAX_SPARE)))
    }

    /// Has a scan make room for `bytes`; returns whether one did within a moment.
    fn scan(self: &Arc<Self>, bytes: u64) -> bool {
        self.begin_scan(bytes).recv_timeout(PATIENCE).is_ok()
    }

    /// Begins a scan on a thread of its own, unless one is under way; it sends its end.
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
                // Whoever waited may have gone on.
                let _ = sender.send(());
            }
        };
        // Without a thread nothing is sent, as if another process had the claim.
        let _ = thread::Builder::new()
            .name("cache-scan".to_string())
            .spawn(scan);
        receiver
    }

    /// Claims a scan for as long as the file is open; nothing if one is under way.
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

    /// Counts what the folder holds, and evicts what was used least recently until `bytes` more fit.
    fn look_through(&self, bytes: u64) -> io::Result<()> {
        let now = folder::now(self.clock_offset());
        // From here on whoever writes reserves anew, and that counts whether the file is found below or not.
        let before = Usage::open(&self.root)?;
        let (held, counted) = before.map_or((u64::MAX, now), |usage| (usage.held, usage.counted));
        let during = match Usage::publish(&self.root, held, counted, None) {
            // Evicting makes room.
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
    /// Returns what is left of a reservation in the file `usage` of this inode.
    fn left_in(&self, inode: Option<u64>) -> u64 {
        let is_valid = self.usage.as_ref().map(|usage| usage.inode) == inode;
        if is_valid { self.left } else { 0 }
    }
}

/// Whether an error says that there is no room on the disk, for this user at least.
fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

/// Whether an error says that another machine replaced a file of NFS that was open.
fn is_stale(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::StaleNetworkFileHandle
}
