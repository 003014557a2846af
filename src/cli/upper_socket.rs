//! How a command talks to the mount that has an upper folder open: a line of JSON each way over a socket in it.
//!
//! The socket lies in the folder, which only its owner may enter. A request is one line; the answer is lines of
//! progress and one with the result or with what was wrong. Whatever comes is parsed, never trusted: a line is
//! bounded, and an unknown request is refused.

use std::fs;
use std::io;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;

use serde_json::{Value, json};

use super::changes;
use crate::error::{Error, Result};
use crate::overlay::Overlay;

const NAME: &str = "socket";

/// The longest line that is read, in bytes: a list of all changed keys.
const LONGEST: u64 = 1 << 30;

/// A path to the socket that is short enough for the kernel, wherever the folder is; true while the folder is open.
fn short_path(upper: &Path) -> Result<(fs::File, PathBuf)> {
    let folder = fs::File::open(upper).map_err(|error| Error::os(upper.display(), error))?;
    let path = format!("/proc/self/fd/{}/{NAME}", folder.as_raw_fd());
    Ok((folder, PathBuf::from(path)))
}

/// Answers commands about an upper folder until the process ends.
pub(super) fn serve(overlay: Overlay) -> Result<()> {
    let failed = |error: io::Error| Error::os(overlay.path().join(NAME).display(), error);
    let (_folder, path) = short_path(overlay.path())?;
    // One that a mount which was killed has left; nobody else can have the folder open.
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let listener = UnixListener::bind(&path).map_err(failed)?;
    let accept = move || {
        for stream in listener.incoming() {
            let overlay = overlay.clone();
            let answer = move |stream: UnixStream| {
                if let Err(error) = answer(&overlay, &stream) {
                    log::debug!("a command went away: {error}");
                }
            };
            match stream {
                Ok(stream) => drop(thread::spawn(move || answer(stream))),
                Err(error) => return log::error!("no command can ask any more: {error}"),
            }
        }
    };
    let thread = thread::Builder::new().name("zarrfs-commands".to_string());
    thread
        .spawn(accept)
        .map(drop)
        .map_err(|error| Error::os("starting a thread", error))
}

fn answer(overlay: &Overlay, stream: &UnixStream) -> io::Result<()> {
    let mut line = String::new();
    BufReader::new(stream).take(LONGEST).read_line(&mut line)?;
    let request: Value = serde_json::from_str(&line)?;
    let progress = |done, total| {
        // Whoever asked may have gone; what was begun is ended all the same.
        let _ = send(stream, &json!({"done": done, "total": total}));
    };
    let last = match changes::answer(overlay, &request, &progress) {
        Ok(answer) => json!({ "answer": answer }),
        Err(error) => json!({"error": error.to_string()}),
    };
    send(stream, &last)
}

fn send(mut stream: &UnixStream, value: &Value) -> io::Result<()> {
    stream.write_all(format!("{value}\n").as_bytes())
}

/// Asks the mount that has an upper folder open; nothing if none has.
pub(super) fn ask(
    upper: &Path,
    request: &Value,
    progress: &dyn Fn(usize, usize),
) -> Result<Option<Value>> {
    let (_folder, path) = short_path(upper)?;
    let failed = |error: io::Error| Error::os(upper.join(NAME).display(), error);
    let stream = match UnixStream::connect(path) {
        Ok(stream) => stream,
        Err(error) if is_nobody(&error) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    match send(&stream, request) {
        Err(error) if is_gone(&error) => return Ok(None),
        sent => sent.map_err(failed)?,
    }
    let mut lines = BufReader::new(&stream);
    let mut is_heard = false;
    loop {
        let mut line = String::new();
        match (&mut lines).take(LONGEST).read_line(&mut line) {
            Err(error) if is_gone(&error) => {}
            read => drop(read.map_err(failed)?),
        }
        if line.is_empty() && !is_heard {
            // It was unmounted a moment ago.
            return Ok(None);
        }
        is_heard = true;
        if !line.ends_with('\n') {
            let why =
                "the mount ended before it answered; what was begun goes on with the next commit";
            return Err(Error::unavailable(upper.display(), why));
        }
        let value: Value = serde_json::from_str(&line)
            .map_err(|error| Error::corrupt(upper.join(NAME).display(), error))?;
        if let Some(text) = value.get("error").and_then(Value::as_str) {
            return Err(Error::unavailable("", text));
        }
        if let Some(answer) = value.get("answer") {
            return Ok(Some(answer.clone()));
        }
        let number = |name| value.get(name).and_then(Value::as_u64).unwrap_or(0) as usize;
        progress(number("done"), number("total"));
    }
}

/// Whether the mount has ended.
fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionReset)
}

/// Whether no mount listens.
fn is_nobody(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, NotFound};
    matches!(error.kind(), ConnectionRefused | NotFound)
}
