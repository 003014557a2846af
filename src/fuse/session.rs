//! Serves a mount: runs its event loops and drops its stale pages.
//!
//! A session ends when its mount is gone, however it was unmounted, even while an event loop waits for a store.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use fuser::{Config, SessionACL};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::adapter::FuseAdapter;
use super::dispatch::Dispatcher;
use super::invalidation::PageInvalidations;
use super::kernel_mount;
use super::kernel_mount::{Connection, MountedDir};
use super::kernel_readahead::KernelReadahead;
use super::passthrough::BackingFiles;
use crate::vfs::Vfs;
use zarr_format::error::{Error, Result};
use zarrfs_store::request_context::UNLIMITED;
use zarrfs_store::stats::Stats;

/// Settings of a mount's session.
#[derive(Clone)]
pub struct SessionSettings {
    /// How long a request may take before it is refused with EIO.
    pub timeout: Duration,
    /// The kernel's read-ahead size in bytes, which only root can set.
    pub readahead: u64,
    /// Whether the kernel may read local stored files itself (FUSE_PASSTHROUGH).
    pub passthrough: bool,
    /// Whether the store is local, so that event loops may execute requests that wait for it.
    pub is_local: bool,
}

/// A mount that is being served.
#[derive(Debug)]
pub struct MountSession {
    dir: Option<Arc<MountedDir>>,
}

impl MountSession {
    /// Starts the event loops of a mount, after the kernel's INIT request; calls `ended` when the mount is gone.
    pub fn start(
        connection: Connection,
        vfs: Arc<Vfs>,
        stats: Arc<Stats>,
        settings: SessionSettings,
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<MountSession> {
        let Connection { device, dir } = connection;
        let dir = dir.map(Arc::new);
        let failed = |error: std::io::Error| Error::os("cannot start the FUSE session", error);
        let pages = Arc::new(PageInvalidations::default());
        // Only two event loops may block at a time, and only on a local store.
        let inline_workers = if settings.is_local { 2 } else { 0 };
        let dispatcher = Dispatcher::new(vfs.clone(), stats, pages.clone(), settings.timeout);
        let dispatcher = dispatcher
            .map_err(failed)?
            .with_inline_workers(inline_workers);
        let gone = MountEnd::of(&device, settings.is_local).map_err(failed)?;
        let mounted = dir.as_ref().map(|dir| dir.device());
        let readahead = Arc::new(KernelReadahead::new(mounted, settings.readahead));
        let backing = BackingFiles::new(settings.passthrough);
        let adapter = FuseAdapter::new(dispatcher, readahead.clone(), backing);
        let session =
            fuser::Session::from_fd(adapter, device, SessionACL::All, config(inline_workers))
                .map_err(failed)?;
        readahead.set(true);
        pages
            .start(vfs.clone(), session.notifier())
            .map_err(failed)?;
        // A weak reference, because dropping the session unmounts: a strong one in this thread would prevent that.
        let served_dir = dir.as_ref().map(Arc::downgrade);
        let loops = run_loops(move || session.run()).map_err(failed)?;
        let serve = move || {
            let end = gone.wait(&loops);
            record_end(end, served_dir.and_then(|dir| dir.upgrade()));
            vfs.flush_all(&UNLIMITED);
            pages.close();
            ended();
        };
        thread::Builder::new()
            .name("zarrfs-session".to_string())
            .spawn(serve)
            .map_err(failed)?;
        Ok(MountSession { dir })
    }

    /// Detaches the mount; its event loops end when no program uses it any more.
    pub fn unmount(&self) -> Result<()> {
        self.dir.as_deref().map_or(Ok(()), MountedDir::unmount)
    }
}

/// Records that a mount has ended, or logs the error of its event loops.
fn record_end(end: io::Result<()>, dir: Option<Arc<MountedDir>>) {
    match (end, dir) {
        (Err(error), _) => log::error!("the FUSE session ended: {error}"),
        (Ok(()), Some(dir)) => dir.set_gone(),
        (Ok(()), None) => {}
    }
}

/// Waits for the end of a mount or of its event loops.
struct MountEnd {
    device: OwnedFd,
    loops_wait: bool,
}

impl MountEnd {
    /// Prepares to wait for the end of the mount of `device`; `loops_wait` if its event loops may block.
    fn of(device: &OwnedFd, loops_wait: bool) -> io::Result<MountEnd> {
        Ok(MountEnd {
            device: device.try_clone()?,
            loops_wait,
        })
    }

    /// Waits until the event loops have ended, and returns their result. If the mount is gone but an event loop still
    /// blocks, the loop is abandoned.
    fn wait(&self, loops: &Receiver<io::Result<()>>) -> io::Result<()> {
        while self.loops_wait && !self.is_gone() {
            // An event loop that blocks may not notice the end of the mount, so the device is polled once a second. A
            // thread that sleeps on the device would be woken by each request.
            match loops.recv_timeout(Duration::from_secs(1)) {
                Err(RecvTimeoutError::Timeout) => {}
                ended => return end_of(ended),
            }
        }
        if self.loops_wait {
            end_of(loops.recv_timeout(Duration::from_secs(1)))
        } else {
            end_of(loops.recv().map_err(RecvTimeoutError::from))
        }
    }

    fn is_gone(&self) -> bool {
        let mut device = [PollFd::new(&self.device, PollFlags::empty())];
        poll(&mut device, Some(&Timespec::default())).is_ok_and(|count| count > 0)
    }
}

/// Returns the result of the event loops. Loops that still block after the end of the mount have no error.
fn end_of(loops: std::result::Result<io::Result<()>, RecvTimeoutError>) -> io::Result<()> {
    match loops {
        Ok(ended) => ended,
        Err(RecvTimeoutError::Timeout) => Ok(()),
        Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("an event loop panicked")),
    }
}

/// Runs the event loops in a new thread; the returned receiver gets their result.
fn run_loops(
    run: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> io::Result<Receiver<io::Result<()>>> {
    let (sender, ended) = mpsc::channel();
    thread::Builder::new()
        .name("zarrfs-loops".to_string())
        .spawn(move || {
            let _ = sender.send(run());
        })?;
    Ok(ended)
}

fn config(inline_workers: usize) -> Config {
    let mut config = Config::default();
    let cores = thread::available_parallelism().map_or(2, usize::from);
    config.n_threads = Some(cores.clamp(2, 4) + inline_workers);
    // Each event loop uses its own descriptor of /dev/fuse if this user may open the device.
    config.clone_fd = OpenOptions::new()
        .read(true)
        .write(true)
        .open(kernel_mount::DEVICE)
        .is_ok();
    config
}
