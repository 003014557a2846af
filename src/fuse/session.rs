//! One mounted connection: its event loops, and the thread that has the kernel drop pages.
//!
//! Pages are dropped from a thread of their own, never from a request handler: the kernel may wait for a page that a
//! pending read holds. A session ends when its mount is gone, however it was unmounted.

use std::fs::OpenOptions;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use fuser::{Config, INodeNo, Notifier, SessionACL};
use parking_lot::Mutex;

use super::adapter::FuseAdapter;
use super::kernel_readahead::KernelReadahead;
use super::mount;
use super::mount::{Connection, MountedDir};
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
    dir: Option<Arc<MountedDir>>,
}

impl MountSession {
    /// Answers the kernel's INIT request and starts the event loops; `ended` is called when the mount is gone.
    pub fn start(
        connection: Connection,
        vfs: Arc<Vfs>,
        stats: Arc<Stats>,
        settings: SessionSettings,
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<MountSession> {
        let Connection {
            device: connected,
            dir,
        } = connection;
        let dir = dir.map(Arc::new);
        let failed = |error: std::io::Error| Error::os("starting the session", error);
        let device = dir.as_ref().map(|dir| dir.device());
        let readahead = Arc::new(KernelReadahead::new(device, settings.readahead));
        let adapter = FuseAdapter::new(vfs.clone(), (stats, readahead.clone()), settings.timeout);
        let adapter = adapter.map_err(failed)?;
        let session = fuser::Session::from_fd(adapter, connected, SessionACL::All, config())
            .map_err(failed)?;
        readahead.set(true);
        let invalidations = start_invalidation(&vfs, session.notifier()).map_err(failed)?;
        // Weak: dropping the session unmounts, and the loops must not prevent that.
        let served_dir = dir.as_ref().map(Arc::downgrade);
        let serve = move || {
            match (session.run(), served_dir.and_then(|dir| dir.upgrade())) {
                (Err(error), _) => log::error!("the session ended: {error}"),
                (Ok(()), Some(dir)) => dir.set_gone(),
                (Ok(()), None) => {}
            }
            vfs.flush_all();
            invalidations.close();
            ended();
        };
        thread::Builder::new()
            .name("zarrfs-session".to_string())
            .spawn(serve)
            .map_err(failed)?;
        Ok(MountSession { dir })
    }

    /// Detaches the mount; the loops end once no program uses it any more.
    pub fn unmount(&self) -> Result<()> {
        self.dir.as_deref().map_or(Ok(()), MountedDir::unmount)
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
        .open(mount::device::DEVICE)
        .is_ok();
    config
}

/// Starts the thread that has the kernel drop pages; it ends when the queue is closed.
fn start_invalidation(vfs: &Vfs, notifier: Notifier) -> std::io::Result<InvalidationQueue> {
    let (sender, inodes) = mpsc::channel();
    let queue = InvalidationQueue(Arc::new(Mutex::new(Some(sender))));
    let (queued, immediate) = (queue.clone(), notifier.clone());
    vfs.set_invalidator(Box::new(move |ino, what| match what {
        Invalidation::Content => queued.push(ino),
        Invalidation::Length => invalidate_attributes(&immediate, ino),
    }));
    thread::Builder::new()
        .name("zarrfs-notify".to_string())
        .spawn(move || invalidate_pages(&inodes, &notifier))?;
    Ok(queue)
}

/// Inodes whose pages are to be dropped. The vfs may outlive the session; then its invalidations are ignored.
#[derive(Clone)]
struct InvalidationQueue(Arc<Mutex<Option<Sender<Ino>>>>);

impl InvalidationQueue {
    fn push(&self, ino: Ino) {
        if let Some(sender) = &*self.0.lock() {
            // The receiver is gone only when its thread failed to start.
            let _ = sender.send(ino);
        }
    }

    fn close(&self) {
        self.0.lock().take();
    }
}

/// Has the kernel ask for the attributes again. That waits for no page, so a request handler may do it.
fn invalidate_attributes(notifier: &Notifier, ino: Ino) {
    if let Err(error) = notifier.inval_inode(INodeNo(ino.0), -1, 0) {
        log::debug!("the kernel keeps the length of inode {}: {error}", ino.0);
    }
}

fn invalidate_pages(inodes: &Receiver<Ino>, notifier: &Notifier) {
    while let Ok(ino) = inodes.recv() {
        if let Err(error) = notifier.inval_inode(INodeNo(ino.0), 0, 0) {
            let number = ino.0;
            log::debug!("the kernel was not told that inode {number} changed: {error}");
        }
    }
}
