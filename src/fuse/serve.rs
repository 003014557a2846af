//! Serves this process's mount until it is unmounted or a signal arrives.
//!
//! The first signal or a `StopHandle` detaches the mount. The process continues to serve programs that still use the
//! mount: for at most `GRACE` after a signal, without a limit after a `StopHandle`. A second signal ends the process at
//! once, even while it stores writes of these programs.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::kernel_mount::Connection;
use super::session::{MountSession, SessionSettings};
use crate::vfs::Vfs;
use zarr_format::error::{Error, Result};
use zarrfs_store::stats::Stats;

/// How long the process serves programs that still use the mount after a signal has detached it.
const GRACE: Duration = Duration::from_secs(3);

enum Event {
    Signal(i32),
    Ended,
    Stopped,
}

/// Stops a server, which continues to serve files until programs have closed them.
pub struct StopHandle(Sender<Event>);

impl StopHandle {
    /// Stops the server; does nothing if the server has ended.
    pub fn stop(&self) {
        let _ = self.0.send(Event::Stopped);
    }
}

/// A server that is ready to serve a mount and to handle signals.
pub struct MountServer {
    sender: Sender<Event>,
    events: Receiver<Event>,
}

/// The mount that this process serves.
pub struct ServedMount {
    session: MountSession,
    events: Receiver<Event>,
}

impl MountServer {
    /// Handles SIGINT and SIGTERM, and SIGHUP if `ends_at_hangup`: these signals now end the mount, not the process.
    pub fn new(ends_at_hangup: bool) -> Result<MountServer> {
        let (sender, events) = mpsc::channel();
        let signals = sender.clone();
        let listen = || -> io::Result<()> {
            let mut listener = Signals::new([SIGINT, SIGTERM])?;
            if ends_at_hangup {
                listener.add_signal(SIGHUP)?;
            }
            thread::Builder::new()
                .name("zarrfs-signals".to_string())
                .spawn(move || {
                    listener
                        .forever()
                        .all(|signal| signals.send(Event::Signal(signal)).is_ok())
                })?;
            Ok(())
        };
        listen().map_err(|error| Error::os("cannot listen for signals", error))?;
        Ok(MountServer { sender, events })
    }

    /// Returns a handle that stops the server from another thread.
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle(self.sender.clone())
    }

    /// Starts to serve a mount in new threads.
    pub fn serve(
        self,
        connection: Connection,
        vfs: Arc<Vfs>,
        stats: &Arc<Stats>,
        settings: SessionSettings,
    ) -> Result<ServedMount> {
        let MountServer { sender, events } = self;
        let ended = move || {
            // The result is ignored: the receiver is missing only while the process ends.
            let _ = sender.send(Event::Ended);
        };
        let session = MountSession::start(connection, vfs, stats.clone(), settings, ended)?;
        Ok(ServedMount { session, events })
    }
}

impl ServedMount {
    /// Waits until the mount ends, a signal arrives or a handle stops the server. Then calls `stopping`, and unmounts.
    pub fn wait(self, stopping: impl FnOnce()) {
        let event = self.events.recv();
        if let Ok(Event::Signal(signal)) = event {
            log::info!("signal {signal}: unmounting");
        }
        stopping();
        if let Err(error) = self.session.unmount() {
            log::error!("cannot unmount: {error}");
        }
        match &event {
            Ok(Event::Ended) => {}
            Ok(Event::Stopped) => self.wait_for_users(None),
            Ok(Event::Signal(_)) | Err(_) => self.wait_for_users(Some(Instant::now() + GRACE)),
        }
        end_by_signal(self.events, matches!(event, Ok(Event::Signal(_))));
    }

    /// Waits until no program uses the detached mount, or until the time `end`.
    fn wait_for_users(&self, end: Option<Instant>) {
        loop {
            match self.next_event(end) {
                Ok(Event::Ended) => return,
                Ok(Event::Signal(signal)) => exit_by(signal),
                Ok(Event::Stopped) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    log::warn!("programs still use the mount; their requests fail now");
                    return;
                }
            }
        }
    }

    fn next_event(&self, end: Option<Instant>) -> std::result::Result<Event, RecvTimeoutError> {
        match end {
            Some(end) => {
                let left = end.saturating_duration_since(Instant::now());
                self.events.recv_timeout(left)
            }
            None => self.events.recv().map_err(RecvTimeoutError::from),
        }
    }
}

/// Ends the process with 128 + `signal`, the exit status that shells give a process that a signal has ended.
fn exit_by(signal: i32) -> ! {
    std::process::exit(128 + signal)
}

/// Starts a thread that ends the process at the next signal after the first; `is_second` if one has already arrived.
fn end_by_signal(events: Receiver<Event>, mut is_second: bool) {
    let watch = move || {
        while let Ok(event) = events.recv() {
            match event {
                Event::Signal(signal) if is_second => exit_by(signal),
                Event::Signal(_) => is_second = true,
                Event::Ended | Event::Stopped => {}
            }
        }
    };
    let thread = thread::Builder::new().name("zarrfs-ending".to_string());
    if let Err(error) = thread.spawn(watch) {
        log::error!("cannot start a thread for a second signal: {error}");
    }
}
