//! The mounts of one process, served until one of them is gone or a signal comes.
//!
//! The first signal, the end of any mount, or a `StopHandle` detaches all of them. The process then lives on while programs
//! still use them: for `GRACE`, or, where a handle asked, as long as they do. A second signal ends it at once. The network
//! is never waited for.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::mount::Connection;
use super::session::{MountSession, SessionSettings};
use crate::error::{Error, Result};
use crate::stats::Stats;
use crate::vfs::Vfs;

/// How long the process outlives its detached mounts while programs still use them.
const GRACE: Duration = Duration::from_secs(3);

/// The exit status of a program that a signal ended is this and the number of the signal, as in a shell.
const SIGNAL_STATUS: i32 = 128;

enum Event {
    Signal(i32),
    Ended,
    Stopped,
}

/// Asks a server to end its mounts; what programs still have open is served to its end.
pub struct StopHandle(Sender<Event>);

impl StopHandle {
    /// Asks the server to end; nothing happens if it has ended.
    pub fn stop(&self) {
        let _ = self.0.send(Event::Stopped);
    }
}

/// The mounts of this process.
pub struct MountServer {
    sessions: Vec<MountSession>,
    sender: Sender<Event>,
    events: Receiver<Event>,
}

impl MountServer {
    /// Starts to listen for SIGINT, SIGTERM and SIGHUP; from here on they do not end the process by themselves.
    pub fn new() -> Result<MountServer> {
        let (sender, events) = mpsc::channel();
        let signals = sender.clone();
        let listen = || -> io::Result<()> {
            let mut listener = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
            thread::Builder::new()
                .name("zarrfs-signals".to_string())
                .spawn(move || {
                    listener
                        .forever()
                        .all(|signal| signals.send(Event::Signal(signal)).is_ok())
                })?;
            Ok(())
        };
        listen().map_err(|error| Error::os("listening for signals", error))?;
        Ok(MountServer {
            sessions: Vec::new(),
            sender,
            events,
        })
    }

    /// Returns what ends the mounts as a signal does.
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle(self.sender.clone())
    }

    /// Serves one more mount.
    pub fn serve(
        &mut self,
        connection: Connection,
        vfs: Arc<Vfs>,
        stats: &Arc<Stats>,
        settings: SessionSettings,
    ) -> Result<()> {
        let sender = self.sender.clone();
        let ended = move || {
            // The receiver is gone only when the process is about to end.
            let _ = sender.send(Event::Ended);
        };
        self.sessions.push(MountSession::start(
            connection,
            vfs,
            stats.clone(),
            settings,
            ended,
        )?);
        Ok(())
    }

    /// Waits until a mount ends, a signal comes or a handle asks, calls `stopping`, then ends all mounts.
    pub fn wait(self, stopping: impl FnOnce()) {
        let mut running = self.sessions.len();
        let mut grace = Some(GRACE);
        match self.events.recv() {
            Ok(Event::Signal(signal)) => log::info!("signal {signal}: unmounting"),
            Ok(Event::Ended) => running -= 1,
            Ok(Event::Stopped) => grace = None,
            Err(_) => {}
        }
        stopping();
        for session in &self.sessions {
            if let Err(error) = session.unmount() {
                log::error!("cannot unmount: {error}");
            }
        }
        self.wait_for_users(running, grace.map(|grace| Instant::now() + grace));
    }

    /// Waits until programs have let go of `running` detached mounts, or until `end`.
    fn wait_for_users(&self, mut running: usize, end: Option<Instant>) {
        while running > 0 {
            match self.next_event(end) {
                Ok(Event::Ended) => running -= 1,
                Ok(Event::Signal(signal)) => std::process::exit(SIGNAL_STATUS + signal),
                Ok(Event::Stopped) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    log::warn!("programs still use the mount; they are cut off");
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
