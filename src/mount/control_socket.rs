//! Serves commands on the control socket in the upper folder.

use std::fs;
use std::io;
use std::io::BufReader;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread;

use super::commands;
use super::protocol::{
    ControlMessage, ControlRequest, FailureReport, receive_request, send_message, socket_error,
    socket_path,
};
use zarr_format::error::{Error, Result};
use zarrfs_array::array::Arrays;
use zarrfs_overlay::Overlay;

/// Serves commands about an upper folder and the dirty decoded files of `arrays`, until the process ends.
pub fn serve(overlay: Overlay, arrays: Arc<Arrays>) -> Result<()> {
    let failed = |error: io::Error| socket_error(overlay.path(), error);
    let (_folder, path) = socket_path(overlay.path())?;
    // An existing socket was left by a mount that was killed: the folder is locked, so no other mount has it open.
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

/// Removes the socket before the process ends: then commands open the upper folder themselves.
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

/// Answers the request on a stream. A request that has begun is completed even if the command goes away.
fn answer(overlay: &Overlay, arrays: &Arrays, stream: &UnixStream) {
    let progress = |done, total| {
        let _ = send_message(stream, &ControlMessage::Progress { done, total });
    };
    let last = match receive_request(&mut BufReader::new(stream)) {
        Err(error) => ControlMessage::OtherVersion(error.to_string()),
        Ok(request) => {
            if matches!(request, ControlRequest::Commit { dry_run: false, .. }) {
                // Tells the command, in case this process ends now, that the mount had begun the commit.
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

#[cfg(test)]
mod tests {
    use std::io::{BufRead, Write};
    use std::path::Path;
    use std::time::Duration;

    use super::super::protocol::{ControlAnswer, send_request};
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

    /// A command of version 1 shows the text in the member `error`.
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
}
