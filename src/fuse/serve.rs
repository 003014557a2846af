//! The life of the mounts of one process: until one is gone or a signal comes.
//!
//! The first signal, or the end of any mount, detaches all of them and waits a little for programs that
//! still use them; a second signal ends the process at once. The network is never waited for.

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

/// How long the process outlives its mounts while programs still use them.
const GRACE: Duration = Duration::from_secs(3);

/// What a shell adds to the number of the signal that ended a program.
const SIGNAL_STATUS: i32 = 128;

enum Event {
    Signal(i32),
    Ended,
}

/// The mounts of this process.
pub struct MountServer {
    sessions: Vec<MountSession>,
    sender: Sender<Event>,
    events: Receiver<Event>,
}

impl MountServer {
    /// Starts to listen for SIGINT, SIGTERM and SIGHUP; from here on they end no process by themselves.
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
            // The receiver is gone only when the process is about to be.
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

    /// Waits for the first mount to end or for a signal, then ends the others; calls `stopping` in between.
    pub fn wait(self, stopping: impl FnOnce()) {
        let mut running = self.sessions.len();
        if let Ok(event) = self.events.recv() {
            match event {
                Event::Signal(signal) => log::info!("signal {signal}: unmounting"),
                Event::Ended => running -= 1,
            }
        }
        stopping();
        for session in &self.sessions {
            if let Err(error) = session.unmount() {
                log::error!("cannot unmount: {error}");
            }
        }
        self.drain(running);
    }

    fn drain(&self, mut running: usize) {
        let end = Instant::now() + GRACE;
        while running > 0 {
            match self
                .events
                .recv_timeout(end.saturating_duration_since(Instant::now()))
            {
                Ok(Event::Ended) => running -= 1,
                Ok(Event::Signal(signal)) => std::process::exit(SIGNAL_STATUS + signal),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    log::warn!("programs still use the mount; they are cut off");
                    return;
                }
            }
        }
    }
}
