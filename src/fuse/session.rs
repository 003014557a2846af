//! One mounted connection: its event loops and its readahead.
//!
//! A session ends when its mount is gone, however it was unmounted.

use std::fs::OpenOptions;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fuser::{Config, SessionACL};

use super::access_log::AccessLog;
use super::adapter::FuseAdapter;
use super::dispatch::Dispatcher;
use super::invalidation::PageInvalidations;
use super::kernel_readahead::KernelReadahead;
use super::mount;
use super::mount::{Connection, MountedDir};
use super::passthrough::BackingFiles;
use crate::error::{Error, Result};
use crate::stats::Stats;
use crate::vfs::Vfs;

/// How a mount is served.
#[derive(Clone)]
pub struct SessionSettings {
    /// How long a request may wait before it is refused.
    pub timeout: Duration,
    /// How many bytes the kernel reads ahead; only root can set it.
    pub readahead: u64,
    /// Whether the kernel may read stored files of this machine itself.
    pub passthrough: bool,
    /// Where each request is logged, if it is.
    pub access: Option<Arc<AccessLog>>,
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
        let Connection { device, dir } = connection;
        let dir = dir.map(Arc::new);
        let failed = |error: std::io::Error| Error::os("starting the session", error);
        let pages = Arc::new(PageInvalidations::default());
        let (timeout, access) = (settings.timeout, settings.access);
        let dispatch = Dispatcher::new(vfs.clone(), stats, pages.clone(), timeout, access);
        let mounted = dir.as_ref().map(|dir| dir.device());
        let readahead = Arc::new(KernelReadahead::new(mounted, settings.readahead));
        let backing = BackingFiles::new(settings.passthrough);
        let adapter = FuseAdapter::new(dispatch.map_err(failed)?, readahead.clone(), backing);
        let session =
            fuser::Session::from_fd(adapter, device, SessionACL::All, config()).map_err(failed)?;
        readahead.set(true);
        pages.start(&vfs, session.notifier()).map_err(failed)?;
        // Weak: dropping the session unmounts, and the loops must not prevent that.
        let served_dir = dir.as_ref().map(Arc::downgrade);
        let serve = move || {
            match (session.run(), served_dir.and_then(|dir| dir.upgrade())) {
                (Err(error), _) => log::error!("the session ended: {error}"),
                (Ok(()), Some(dir)) => dir.set_gone(),
                (Ok(()), None) => {}
            }
            vfs.flush_all();
            pages.close();
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
