//! One mounted connection: its event loops, its readahead, and the thread that tells the kernel of changes.
//!
//! The kernel is told of new content from a thread of its own, never from a handler: it may wait for a page
//! that a read in flight holds. A session ends when its mount is gone, whoever unmounted it.

use parking_lot::Mutex;
use std::fs;
use std::fs::OpenOptions;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use fuser::{Config, INodeNo, Notifier, SessionACL};
use rustix::process;

use super::mount::mountinfo::Device;
use super::mount::{Connection, MountedDir};
use super::{FuseAdapter, mount};
use crate::error::{Error, Result};
use crate::stats::Stats;
use crate::vfs::{Ino, Invalidation, Vfs};

/// How a mount is served.
#[derive(Clone, Copy, Debug)]
pub struct SessionSettings {
    /// How long a request may wait before it is refused.
    pub timeout: Duration,
    /// How many bytes the kernel reads ahead; only root can set it.
    pub readahead: u64,
}

/// A mount that is being served.
#[derive(Debug)]
pub struct MountSession {
    place: Option<Arc<MountedDir>>,
}

impl MountSession {
    /// Answers the kernel's greeting and starts the event loops; `ended` is called when the mount is gone.
    pub fn start(
        connection: Connection,
        vfs: Arc<Vfs>,
        stats: Arc<Stats>,
        settings: SessionSettings,
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<MountSession> {
        let Connection { device, place } = connection;
        let place = place.map(Arc::new);
        let failed = |error: std::io::Error| Error::os("starting the session", error);
        let desk = FuseAdapter::new(vfs.clone(), stats, settings.timeout).map_err(failed)?;
        let session =
            fuser::Session::from_fd(desk, device, SessionACL::All, config()).map_err(failed)?;
        if let Some(place) = &place {
            raise_readahead(place.device(), settings.readahead);
        }
        let changes = announce_changes(&vfs, session.notifier()).map_err(failed)?;
        // The loops must not keep the mount: it is undone when the session is dropped.
        let served = place.as_ref().map(Arc::downgrade);
        let written = vfs.clone();
        let serve = move || {
            match (session.run(), served.and_then(|place| place.upgrade())) {
                (Err(error), _) => log::error!("the session ended: {error}"),
                (Ok(()), Some(place)) => place.set_gone(),
                (Ok(()), None) => {}
            }
            written.flush_all();
            changes.end();
            ended();
        };
        thread::Builder::new()
            .name("zarrfs-session".to_string())
            .spawn(serve)
            .map_err(failed)?;
        Ok(MountSession { place })
    }

    /// Detaches the mount; the loops end once no program uses it any more.
    pub fn unmount(&self) -> Result<()> {
        self.place.as_deref().map_or(Ok(()), MountedDir::unmount)
    }
}

fn config() -> Config {
    let mut config = Config::default();
    let cores = thread::available_parallelism().map_or(2, usize::from);
    config.n_threads = Some(cores.clamp(2, 4));
    // A loop of its own needs the device opened again, which an ordinary user may not be allowed.
    config.clone_fd = OpenOptions::new()
        .read(true)
        .write(true)
        .open(mount::DEVICE)
        .is_ok();
    config
}

/// Lets the kernel read further ahead than its 128 KiB.
fn raise_readahead(device: Device, bytes: u64) {
    let setting = format!(
        "/sys/class/bdi/{}:{}/read_ahead_kb",
        device.major, device.minor
    );
    match fs::write(&setting, (bytes >> 10).to_string()) {
        Ok(()) => log::debug!("the kernel reads {} KiB ahead", bytes >> 10),
        Err(error) if process::geteuid().is_root() => log::warn!("{setting}: {error}"),
        Err(error) => log::debug!("{setting}: {error}; only root can set it"),
    }
}

/// Starts the thread that tells the kernel; it ends when the sender is taken out.
fn announce_changes(vfs: &Vfs, notifier: Notifier) -> std::io::Result<InvalidationQueue> {
    let (sender, received) = mpsc::channel();
    let changes = InvalidationQueue(Arc::new(Mutex::new(Some(sender))));
    let (noted, at_once) = (changes.clone(), notifier.clone());
    vfs.set_invalidator(Box::new(move |ino, what| match what {
        Invalidation::Content => noted.note(ino),
        Invalidation::Length => forget_length(&at_once, ino),
    }));
    let announce = move || announce(&received, &notifier);
    thread::Builder::new()
        .name("zarrfs-notify".to_string())
        .spawn(announce)?;
    Ok(changes)
}

/// Where changed inodes are noted while the session lasts; the vfs may outlive it.
#[derive(Clone)]
struct InvalidationQueue(Arc<Mutex<Option<Sender<Ino>>>>);

impl InvalidationQueue {
    fn note(&self, ino: Ino) {
        if let Some(sender) = &*self.0.lock() {
            // The receiver is gone only when its thread failed to start.
            let _ = sender.send(ino);
        }
    }

    fn end(&self) {
        self.0.lock().take();
    }
}

/// Has the kernel ask for the attributes again. That waits for no page, so a handler may do it.
fn forget_length(notifier: &Notifier, ino: Ino) {
    if let Err(error) = notifier.inval_inode(INodeNo(ino.0), -1, 0) {
        log::debug!("the kernel keeps the length of inode {}: {error}", ino.0);
    }
}

fn announce(changes: &Receiver<Ino>, notifier: &Notifier) {
    while let Ok(ino) = changes.recv() {
        if let Err(error) = notifier.inval_inode(INodeNo(ino.0), 0, 0) {
            log::debug!(
                "the kernel was not told that inode {} changed: {error}",
                ino.0
            );
        }
    }
}
