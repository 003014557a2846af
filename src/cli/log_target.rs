//! Selects the log target: file, systemd's journal, stderr or syslog.
//!
//! stderr is used in the foreground and syslog in the background. Until the mount is ready, warnings of a background
//! process are also written to the terminal.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::{env, io, panic};

use env_logger::fmt::Formatter;
use env_logger::{Builder, Logger, Target};
use log::{Level, LevelFilter, Log, Metadata, Record};
use parking_lot::Mutex;

use crate::cli::output;
use zarr_format::error::{Error, Result, without_os_numbers};

/// Whether warnings are also written to the terminal, as long as the mount is not ready.
static COPIES_TO_TERMINAL: AtomicBool = AtomicBool::new(false);

/// Starts the log; returns the log file, which can be reopened. Without `file` the log goes to the journal if stderr is
/// connected to it, else to stderr if `foreground`, else to syslog. `verbose` is the number of `-v`; `RUST_LOG`
/// overrides the levels. Panics are logged as errors. Fails if the file cannot be opened.
pub(super) fn start(file: Option<&Path>, foreground: bool, verbose: u8) -> Result<LogPlace> {
    let mut builder = Builder::new();
    filter(&mut builder, verbose);
    if let Ok(targets) = env::var("RUST_LOG") {
        builder.parse_filters(&targets);
    }
    let journal = journal_stream();
    let is_on_stderr = file.is_none() && (foreground || journal.is_some());
    COPIES_TO_TERMINAL.store(!is_on_stderr, Relaxed);
    let mut place = LogPlace(None);
    match (file, journal) {
        (Some(path), _) => {
            let file = Arc::new(LogFile::open(path)?);
            builder.target(Target::Pipe(Box::new(LogWriter(file.clone()))));
            // A log path such as `/dev/fd/3` is never reopened, because descriptor 3 may by then be another file, even
            // one with data.
            let is_descriptor = output::named_descriptor(path).is_some();
            place = LogPlace(Some(file).filter(|_| !is_descriptor));
        }
        (None, Some(stream)) => {
            builder.target(Target::Pipe(Box::new(stream)));
            builder.format(journal_record);
        }
        (None, None) if foreground => {
            builder.format(|out, record| writeln!(out, "{}", terminal_line(record)));
        }
        (None, None) => to_syslog(&mut builder),
    }
    let logger = builder.build();
    let level = logger.filter();
    // Fails only if the process already has a logger, as in tests.
    if log::set_boxed_logger(Box::new(MountLogger(logger))).is_ok() {
        log::set_max_level(level);
    }
    panic::set_hook(Box::new(|panicked| log::error!("{panicked}")));
    Ok(place)
}

/// The log file; `None` if the log cannot be reopened.
pub(super) struct LogPlace(Option<Arc<LogFile>>);

impl LogPlace {
    /// Opens the log file again, as SIGHUP requests: logrotate or another program has renamed or removed the old file.
    pub(super) fn reopen(&self) {
        let Some(log) = &self.0 else { return };
        match LogFile::open(&log.path) {
            Ok(opened) => *log.file.lock() = opened.file.into_inner(),
            Err(error) => log::error!("cannot reopen the log, writing to the old file: {error}"),
        }
    }
}

/// The log file, to which records are appended.
struct LogFile {
    path: PathBuf,
    file: Mutex<File>,
}

impl LogFile {
    fn open(path: &Path) -> Result<LogFile> {
        let opened = OpenOptions::new().append(true).create(true).open(path);
        let opened = opened.map_err(|error| Error::os(path.display(), error))?;
        Ok(LogFile {
            path: path.to_path_buf(),
            file: Mutex::new(opened),
        })
    }
}

struct LogWriter(Arc<LogFile>);

impl Write for LogWriter {
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        self.0.file.lock().write(record)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.file.lock().flush()
    }
}

/// Stops copying warnings to the terminal, because the mount is ready.
pub(super) fn leave_terminal() {
    COPIES_TO_TERMINAL.store(false, Relaxed);
}

/// The logger of the process: passes records to env_logger, and copies warnings to the terminal until the mount is
/// ready.
struct MountLogger(Logger);

impl Log for MountLogger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.0.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        if record.level() == Level::Trace {
            return self.write(record);
        }
        let text = without_os_numbers(record.args().to_string());
        self.write(
            &Record::builder()
                .metadata(record.metadata().clone())
                .args(format_args!("{text}"))
                .module_path(record.module_path())
                .file(record.file())
                .line(record.line())
                .build(),
        );
    }

    fn flush(&self) {
        self.0.flush();
    }
}

impl MountLogger {
    fn write(&self, record: &Record<'_>) {
        self.0.log(record);
        if COPIES_TO_TERMINAL.load(Relaxed)
            && record.level() <= Level::Warn
            && self.0.matches(record)
        {
            // The result is ignored: an error of stderr cannot be reported anywhere.
            let _ = writeln!(io::stderr(), "{}", terminal_line(record));
        }
    }
}

fn filter(builder: &mut Builder, verbose: u8) {
    builder.filter_level(level(verbose));
    let is_all = verbose > 2;
    // fuser's warnings about requests are useless, or repeat those of zarrfs.
    let at_most = |level| if is_all { LevelFilter::Trace } else { level };
    builder.filter_module("fuser", at_most(LevelFilter::Error));
    // `fuser::reply` logs errors of replies to programs that were killed.
    builder.filter_module("fuser::reply", at_most(LevelFilter::Off));
    // The error of the HTTP request has the same message.
    builder.filter_module("rustls_platform_verifier", at_most(LevelFilter::Off));
}

fn level(verbose: u8) -> LevelFilter {
    match verbose {
        0 => LevelFilter::Warn,
        1 => LevelFilter::Info,
        2 => LevelFilter::Debug,
        _ => LevelFilter::Trace,
    }
}

fn terminal_line(record: &Record<'_>) -> String {
    format!("zarrfs: {}: {}", level_name(record.level()), record.args())
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

/// Returns a duplicate of stderr if stderr is connected to systemd's journal. A duplicate is needed because a
/// background process closes stderr.
fn journal_stream() -> Option<File> {
    // `JOURNAL_STREAM` has the device and inode numbers of the journal's stream, see systemd.exec(5).
    let stream = env::var("JOURNAL_STREAM").ok()?;
    let (device, inode) = stream.split_once(':')?;
    let stat = rustix::fs::fstat(rustix::stdio::stderr()).ok()?;
    if device.parse() != Ok(stat.st_dev) || inode.parse() != Ok(stat.st_ino) {
        return None;
    }
    let stderr = io::stderr();
    stderr.as_fd().try_clone_to_owned().ok().map(File::from)
}

/// Formats a log record for the journal, with the priority prefix of sd-daemon(3).
fn journal_record(out: &mut Formatter, record: &Record<'_>) -> io::Result<()> {
    let text = record.args().to_string().replace('\n', " ");
    writeln!(out, "<{}>{text}", severity(record.level()))
}

fn to_syslog(builder: &mut Builder) {
    let Ok(socket) = UnixDatagram::unbound() else {
        return;
    };
    if socket.set_nonblocking(true).is_err() {
        return;
    }
    builder.target(Target::Pipe(Box::new(Syslog(socket))));
    builder.format(|out, record| {
        // A syslog priority is the facility (3, daemons) times eight, plus the severity.
        let priority = (3 << 3) | severity(record.level());
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

/// Writer that sends each log record to syslog as one datagram. It never waits, and drops a record that syslog does not
/// accept.
struct Syslog(UnixDatagram);

impl Write for Syslog {
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        let _ = self.0.send_to(record, "/dev/log");
        Ok(record.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_logged(module: &str, level: Level, verbose: u8) -> bool {
        let mut builder = Builder::new();
        filter(&mut builder, verbose);
        let metadata = Metadata::builder().target(module).level(level).build();
        builder.build().enabled(&metadata)
    }

    #[test]
    fn failed_replies_to_killed_programs_are_not_logged() {
        assert!(!is_logged("fuser::reply", Level::Error, 0));
        assert!(is_logged("fuser::reply", Level::Error, 3));
        assert!(is_logged("fuser::session", Level::Error, 0));
        assert!(!is_logged("fuser::request", Level::Warn, 0));
        assert!(is_logged("zarrfs::failures", Level::Warn, 0));
    }
}
