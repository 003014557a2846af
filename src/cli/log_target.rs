//! Where log records go: stderr in the foreground; a file, syslog or nowhere in the background.

use std::fs::OpenOptions;
use std::io;
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::panic;
use std::path::Path;

use env_logger::{Builder, Target};
use log::{Level, LevelFilter};

use crate::error::{Error, Result};

/// The socket of syslog.
const SYSLOG: &str = "/dev/log";

/// syslog's facility of daemons, as the upper bits of a priority.
const DAEMON: u8 = 3 << 3;

/// Sends records to `file`, or to stderr (`foreground`), or to syslog; an error if the file cannot be opened.
/// `verbose` is how often `-v` was given. Panics are logged like errors.
pub(super) fn start(file: Option<&Path>, foreground: bool, verbose: u8) -> Result<()> {
    let mut builder = Builder::new();
    builder.filter_level(level(verbose));
    // fuser's warnings about requests repeat ours or are of no use.
    builder.filter_module(
        "fuser",
        if verbose > 2 {
            LevelFilter::Trace
        } else {
            LevelFilter::Error
        },
    );
    match file {
        Some(path) => {
            let opened = OpenOptions::new().append(true).create(true).open(path);
            let opened = opened.map_err(|error| Error::os(path.display(), error))?;
            builder.target(Target::Pipe(Box::new(opened)));
        }
        None if foreground => {
            builder.format(|out, record| {
                writeln!(
                    out,
                    "zarrfs: {}: {}",
                    level_name(record.level()),
                    record.args()
                )
            });
        }
        None => to_syslog(&mut builder),
    }
    // Fails where a logger is set already, as in tests.
    let _ = builder.try_init();
    panic::set_hook(Box::new(|panicked| log::error!("{panicked}")));
    Ok(())
}

fn level(verbose: u8) -> LevelFilter {
    match verbose {
        0 => LevelFilter::Warn,
        1 => LevelFilter::Info,
        2 => LevelFilter::Debug,
        _ => LevelFilter::Trace,
    }
}

fn level_name(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warn => "warning",
        Level::Info => "info",
        Level::Debug => "debug",
        Level::Trace => "trace",
    }
}

fn to_syslog(builder: &mut Builder) {
    let Ok(socket) = UnixDatagram::unbound() else {
        return;
    };
    builder.target(Target::Pipe(Box::new(Syslog(socket))));
    builder.format(|out, record| {
        let priority = DAEMON | severity(record.level());
        write!(
            out,
            "<{priority}>zarrfs[{}]: {}",
            std::process::id(),
            record.args()
        )
    });
}

fn severity(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    }
}

/// One datagram per record. A record that syslog does not take is lost, and nothing waits for it.
struct Syslog(UnixDatagram);

impl Write for Syslog {
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        let _ = self.0.send_to(record, SYSLOG);
        Ok(record.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
