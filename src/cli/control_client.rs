//! Sends requests to the mount of an upper folder, over the folder's socket.

use std::io;
use std::io::BufReader;
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::mount::protocol::{
    ControlAnswer, ControlMessage, ControlRequest, other_version, read_line, send_request,
    socket_error, socket_path,
};
use zarr_format::error::{Error, Result};

/// Sends a request to the mount that has `upper` open; returns `None` if there is no such mount.
pub(super) fn request(
    upper: &Path,
    request: &ControlRequest,
    progress: &dyn Fn(usize, usize),
) -> Result<Option<ControlAnswer>> {
    let (_folder, path) = socket_path(upper)?;
    let stream = match UnixStream::connect(path) {
        Err(error) if is_unserved(&error) => return Ok(None),
        stream => stream.map_err(|error| socket_error(upper, error))?,
    };
    match send_request(&stream, request) {
        Err(error) if is_closed(&error) => return Ok(None),
        sent => sent.map_err(|error| socket_error(upper, error))?,
    }
    let mut lines = BufReader::new(&stream);
    let mut line = receive_line(upper, &mut lines)?;
    if line.is_empty() {
        // It was unmounted before it received the request.
        return Ok(None);
    }
    loop {
        match parse(upper, &line)? {
            ControlMessage::Progress { total: 0, .. } => {}
            ControlMessage::Progress { done, total } => progress(done, total),
            ControlMessage::Answer(answer) => return Ok(Some(answer)),
            ControlMessage::Failure(failure) => return Err(failure.error()),
            ControlMessage::OtherVersion(_) => return Err(other_version().about(upper.display())),
        }
        line = receive_line(upper, &mut lines)?;
    }
}

/// Returns the next line; it is incomplete if the mount has ended.
fn receive_line(upper: &Path, lines: &mut BufReader<&UnixStream>) -> Result<String> {
    match read_line(lines) {
        Err(error) if is_closed(&error) => Ok(String::new()),
        line => line.map_err(|error| socket_error(upper, error)),
    }
}

fn parse(upper: &Path, line: &str) -> Result<ControlMessage> {
    if !line.ends_with('\n') {
        let why = "the mount ended before the command was finished; run the command again";
        return Err(Error::unavailable(upper.display(), why));
    }
    serde_json::from_str(line).map_err(|_| other_version().about(upper.display()))
}

/// Whether an error means that the mount has ended.
fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionReset)
}

/// Whether an error means that no mount listens.
fn is_unserved(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, NotFound};
    matches!(error.kind(), ConnectionRefused | NotFound)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, Write};
    use std::os::unix::net::UnixListener;
    use std::sync::Mutex;
    use std::thread;

    use super::*;
    use crate::mount::protocol::DiscardReport;
    use zarr_format::error::Kind;

    /// Sends a request to a mount that replies with these bytes.
    fn ask_mount(reply: &'static [u8]) -> (Result<Option<ControlAnswer>>, Vec<(usize, usize)>) {
        let upper = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(upper.path().join("socket")).unwrap();
        let mount = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            BufReader::new(&stream)
                .read_line(&mut String::new())
                .unwrap();
            stream.write_all(reply).unwrap();
        });
        let steps = Mutex::default();
        let progress = |done, total| {
            let mut steps: std::sync::MutexGuard<'_, Vec<_>> = steps.lock().unwrap();
            steps.push((done, total));
        };
        let answer = request(upper.path(), &ControlRequest::Status, &progress);
        mount.join().unwrap();
        (answer, steps.into_inner().unwrap())
    }

    #[test]
    fn progress_and_the_answer_are_received() {
        let reply = b"{\"progress\":{\"done\":1,\"total\":2}}\n{\"answer\":{\"discard\":{\"discarded\":3,\"stored\":0}}}\n";
        let (answer, steps) = ask_mount(reply);
        assert_eq!(
            answer.unwrap(),
            Some(ControlAnswer::Discard(DiscardReport {
                discarded: 3,
                stored: 0
            }))
        );
        assert_eq!(steps, [(1, 2)]);
    }

    #[test]
    fn an_error_is_that_of_the_mount() {
        let (answer, _) =
            ask_mount(b"{\"failure\":{\"kind\":\"NoSpace\",\"text\":\"a/0: disk is full\"}}\n");
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), Kind::NoSpace);
        assert_eq!(error.to_string(), "a/0: disk is full");
    }

    #[test]
    fn a_mount_of_another_version_is_said_so() {
        for reply in [
            &b"{\"error\":\"is no command that a mount knows\"}\n"[..],
            b"{\"done\":1,\"total\":2}\n",
        ] {
            let error = ask_mount(reply).0.unwrap_err();
            assert_eq!(error.kind(), Kind::Unsupported);
            assert!(error.to_string().contains("another version"), "{error}");
        }
    }

    #[test]
    fn a_mount_that_ends_early_is_told_from_one_that_has_ended() {
        assert_eq!(ask_mount(b"").0.unwrap(), None);
        let (answer, _) = ask_mount(b"{\"progress\":{\"done\":1,\"total\":2}}\n{\"answ");
        assert_eq!(answer.unwrap_err().kind(), Kind::Unavailable);
        // The mount had received the request.
        let (answer, steps) = ask_mount(b"{\"progress\":{\"done\":0,\"total\":0}}\n");
        let error = answer.unwrap_err();
        assert!(error.to_string().contains("run the command again"));
        assert_eq!((error.kind(), steps), (Kind::Unavailable, Vec::new()));
        let upper = tempfile::tempdir().unwrap();
        let nothing = request(upper.path(), &ControlRequest::Status, &|_, _| ());
        assert_eq!(nothing.unwrap(), None);
    }
}
