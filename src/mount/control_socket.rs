//! Sends commands over the control socket in the changes directory, and answers them.

use std::fs;
use std::io;
use std::io::BufReader;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use super::commands;
use super::protocol::{
    ControlAnswer, ControlMessage, ControlRequest, FailureReport, other_version, read_line,
    receive_request, send_message, send_request,
};
use zarr_format::error::{Error, Result};
use zarrfs_array::array::Arrays;
use zarrfs_overlay::Overlay;

/// Answers commands over the socket in the changes directory, until the process ends; `arrays` may have dirty chunks.
pub fn serve(overlay: Overlay, arrays: Arc<Arrays>) -> Result<()> {
    let failed = |error: io::Error| socket_error(overlay.path(), error);
    let (_folder, path) = socket_path(overlay.path())?;
    // An existing socket is stale: the changes directory is locked, so the mount that made the socket was killed.
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let listener = UnixListener::bind(&path).map_err(failed)?;
    thread::Builder::new()
        .name("zarrfs-commands".to_string())
        .spawn(move || accept(&overlay, &arrays, &listener))
        .map(drop)
        .map_err(|error| Error::os("cannot start a thread", error))
}

/// Removes the socket before the process ends, so that commands open the changes directory themselves.
pub fn end(overlay: &Overlay) {
    let removed = socket_path(overlay.path()).map(|(_folder, path)| fs::remove_file(path));
    if let Err(error) = removed {
        log::debug!("{error}");
    }
}

fn accept(overlay: &Overlay, arrays: &Arc<Arrays>, listener: &UnixListener) {
    for stream in listener.incoming() {
        let stream = match stream {
            Ok(stream) => stream,
            Err(error) => {
                return log::error!(
                    "control socket failed; zarrfs commands will not work on this mount: {error}"
                );
            }
        };
        let (overlay, arrays) = (overlay.clone(), arrays.clone());
        let thread = thread::Builder::new().name("zarrfs-command".to_string());
        if let Err(error) = thread.spawn(move || answer(&overlay, &arrays, &stream)) {
            log::error!("cannot answer a command: {error}");
        }
    }
}

/// Answers the request of one command, and completes it even if the command ends earlier.
fn answer(overlay: &Overlay, arrays: &Arrays, stream: &UnixStream) {
    let progress = |done, total| {
        let _ = send_message(stream, &ControlMessage::Progress { done, total });
    };
    let last = match receive_request(&mut BufReader::new(stream)) {
        Err(error) => ControlMessage::OtherVersion(error.to_string()),
        Ok(request) => {
            if matches!(request, ControlRequest::Commit { dry_run: false, .. }) {
                // Progress at the start tells the command that the mount has begun the commit, in case this process
                // ends now.
                progress(0, 0);
            }
            match commands::execute_in_mount(overlay, arrays, &request, &progress) {
                Ok(answer) => ControlMessage::Answer(answer),
                Err(error) => ControlMessage::Failure(FailureReport::of(&error)),
            }
        }
    };
    if let Err(error) = send_message(stream, &last) {
        log::debug!("a command ended before the answer: {error}");
    }
}

/// Sends a request to the mount that uses the changes directory `upper`. Returns `None` if there is no such mount, or
/// if it ends before it has sent any answer.
pub fn request(
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
        // The mount has ended without an answer, so it has not begun the request.
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

/// Returns the next line from the mount. The line is empty or incomplete if the mount has ended.
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

/// Whether an error of the socket means that the mount has ended.
fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionReset)
}

/// Whether an error of the socket means that no mount listens on it.
fn is_unserved(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, NotFound};
    matches!(error.kind(), ConnectionRefused | NotFound)
}

/// Returns a path of the socket that is short enough for the kernel's limit. The path leads through the descriptor of
/// the returned directory, and is valid as long as that is open.
fn socket_path(upper: &Path) -> Result<(fs::File, PathBuf)> {
    let folder = fs::File::open(upper).map_err(|error| Error::os(upper.display(), error))?;
    let path = format!("/proc/self/fd/{}/socket", folder.as_raw_fd());
    Ok((folder, PathBuf::from(path)))
}

/// Adds the path of the socket in the changes directory `upper` to an error.
fn socket_error(upper: &Path, error: io::Error) -> Error {
    Error::os(upper.join("socket").display(), error)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, Write};
    use std::sync::Mutex;
    use std::time::Duration;

    use super::super::protocol::DiscardReport;
    use super::*;
    use zarr_format::error::Kind;
    use zarrfs_array::array::{Engine, Limits};
    use zarrfs_array::hierarchy::Hierarchy;
    use zarrfs_overlay::OverlayConfig;
    use zarrfs_store::StoreConfig;
    use zarrfs_store::backend::local::LocalStore;

    fn served(folder: &Path) -> Overlay {
        let (store, upper) = (folder.join("s.zarr"), folder.join("upper"));
        fs::create_dir(&store).unwrap();
        let store = LocalStore::open(&store, &StoreConfig::default()).unwrap();
        let config = OverlayConfig {
            uid: 0,
            gid: 0,
            write_through: false,
        };
        let overlay = Overlay::open(&upper, Arc::new(store), "/s.zarr", config).unwrap();
        let hierarchy = Arc::new(Hierarchy::new(Arc::new(overlay.clone())));
        let limits = Limits {
            memory: 1 << 20,
            max_chunk: 1 << 20,
            timeout: Duration::from_secs(20),
            fetches: 0,
            lossy: false,
        };
        let engine = Engine::new(limits, Arc::default());
        let arrays = Arrays::new(hierarchy, engine);
        serve(overlay.clone(), Arc::new(arrays)).unwrap();
        overlay
    }

    fn last_line(overlay: &Overlay, send: impl FnOnce(&UnixStream)) -> String {
        let (_folder, path) = socket_path(overlay.path()).unwrap();
        let stream = UnixStream::connect(path).unwrap();
        send(&stream);
        BufReader::new(&stream).lines().last().unwrap().unwrap()
    }

    fn ask(overlay: &Overlay, request: &ControlRequest) -> ControlMessage {
        let line = last_line(overlay, |stream| send_request(stream, request).unwrap());
        serde_json::from_str(&line).unwrap()
    }

    #[test]
    fn requests_are_answered_and_errors_keep_their_kind() {
        let folder = tempfile::tempdir().unwrap();
        let overlay = served(folder.path());
        let ControlMessage::Answer(ControlAnswer::Status(report)) =
            ask(&overlay, &ControlRequest::Status)
        else {
            panic!("no report");
        };
        assert_eq!((report.store.as_str(), report.put), ("/s.zarr", 0));
        let path = "no/such".to_string();
        let ControlMessage::Failure(failure) = ask(&overlay, &ControlRequest::Discard { path })
        else {
            panic!("nothing was changed there");
        };
        assert_eq!(failure.error().kind(), Kind::NotFound);
    }

    /// A command with protocol version 1 expects the text of the error in the member `error`.
    #[test]
    fn a_command_of_another_version_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let overlay = served(folder.path());
        let line = last_line(&overlay, |mut stream| {
            stream.write_all(b"{\"command\":\"status\"}\n").unwrap();
        });
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert!(
            value["error"].as_str().unwrap().contains("another version"),
            "{line}"
        );
    }

    /// Sends a status request to a simulated mount that replies with the bytes `reply`.
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
    fn a_command_fails_with_the_error_of_the_mount() {
        let (answer, _) =
            ask_mount(b"{\"failure\":{\"kind\":\"NoSpace\",\"text\":\"a/0: disk is full\"}}\n");
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), Kind::NoSpace);
        assert_eq!(error.to_string(), "a/0: disk is full");
    }

    #[test]
    fn a_mount_of_another_version_is_reported() {
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
    fn a_mount_that_ends_early_is_distinguished_from_no_mount() {
        assert_eq!(ask_mount(b"").0.unwrap(), None);
        let (answer, _) = ask_mount(b"{\"progress\":{\"done\":1,\"total\":2}}\n{\"answ");
        assert_eq!(answer.unwrap_err().kind(), Kind::Unavailable);
        // The mount ends after it has received the request, but before its answer.
        let (answer, steps) = ask_mount(b"{\"progress\":{\"done\":0,\"total\":0}}\n");
        let error = answer.unwrap_err();
        assert!(error.to_string().contains("run the command again"));
        assert_eq!((error.kind(), steps), (Kind::Unavailable, Vec::new()));
        let upper = tempfile::tempdir().unwrap();
        let nothing = request(upper.path(), &ControlRequest::Status, &|_, _| ());
        assert_eq!(nothing.unwrap(), None);
    }
}
