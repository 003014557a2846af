//! What a command and the mount that has an upper folder open send each other: a line of JSON each.
//!
//! The socket lies in the upper folder, which only its owner may enter. A command sends one request; the mount sends
//! lines of progress, for a commit the first one at once, and then one with the answer or the error. Both ends must be of
//! one version of the protocol: the request carries its number, and a mismatch is an error that either end can show.
//! Lines are bounded and parsed, never trusted.

use std::fs;
use std::io;
use std::io::{BufRead, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use zarr_format::error::{Error, Kind, Result};

/// The version of the protocol. The first, of zarrfs 0.1.0, had requests without a number.
const VERSION: u32 = 3;

/// The name of the socket in the upper folder.
const SOCKET: &str = "socket";

/// The longest line that is read, in bytes: a list of all changed keys.
const MAX_LINE: u64 = 1 << 30;

/// What a command asks of a mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlRequest {
    /// How much was changed.
    Status,
    /// Which keys were changed.
    Diff,
    /// Which nodes, attributes and regions of arrays were changed.
    DiffArrays,
    /// Bring the changes into the store.
    Commit {
        /// Only look for conflicts.
        dry_run: bool,
        /// Overwrite what others changed.
        force: bool,
    },
    /// Throw away the changes at a path and below.
    Discard {
        /// The path, without slashes at its ends; empty for all changes.
        path: String,
    },
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlAnswer {
    /// Of `Status`.
    Status(StatusReport),
    /// Of `Diff`.
    Diff(DiffReport),
    /// Of `DiffArrays`.
    DiffArrays(ArraysReport),
    /// Of `Commit`.
    Commit(CommitReport),
    /// Of `Discard`.
    Discard(DiscardReport),
}

/// How much was changed, as `zarrfs status --json` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusReport {
    /// The store, without secrets.
    pub store: String,
    /// The upper folder.
    pub upper: String,
    /// Keys to put.
    pub put: u64,
    /// Those that the store did not have.
    pub new: u64,
    /// Keys to remove.
    pub erased: u64,
    /// Bytes to put.
    pub bytes: u64,
    /// Those of the keys with which a commit has begun. If it did not finish, the next one goes on with them.
    #[serde(default)]
    pub pending: u64,
    /// Whether a commit is at work at this moment.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub committing: bool,
    /// What stays in the upper folder, and why.
    pub kept: Vec<(String, String)>,
    /// Files of the upper folder that were not whole when zarrfs or the machine stopped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rescued: Vec<String>,
    /// What no store can hold and is gone after a commit: the keys, and what of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<(String, String)>,
    /// The arrays that are written through decoded files now, and what that means.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_writing: Vec<(String, String)>,
}

/// Which keys were changed, as `zarrfs diff --json` prints them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffReport {
    /// The keys, in order.
    pub keys: Vec<KeyDiff>,
    /// What stays in the upper folder, and why.
    pub kept: Vec<(String, String)>,
}

/// A key that was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyDiff {
    /// `A` for a new one, `M` for one with another content, `D` for one that was removed.
    pub change: char,
    /// The key.
    pub key: String,
    /// A commit that did not finish has begun with it: the next one goes on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pending: bool,
}

/// Which nodes were changed, as `zarrfs diff --arrays --json` prints them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArraysReport {
    /// An object a node, see `compare::compare`.
    pub nodes: Vec<Value>,
}

/// What a commit did or would do, as `zarrfs commit --json` prints it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitReport {
    /// Keys that were put.
    pub put: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Keys that were removed.
    pub erased: u64,
    /// Keys of which the server sends no ETag: length and digest of what was read before decide, else size and time.
    #[serde(default)]
    pub without_etag: u64,
    /// Changes that the store does not have, since the commit ended early.
    #[serde(default)]
    pub left: u64,
    /// Keys that others changed, and how.
    pub conflicts: Vec<(String, String)>,
    /// The error that ended the commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailureReport>,
    /// What stays in the upper folder, and why.
    pub kept: Vec<(String, String)>,
    /// What the store cannot hold and is gone since the commit: the keys, and what of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<(String, String)>,
    /// The arrays that were written through decoded files when it began, and what that means.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_writing: Vec<(String, String)>,
}

/// An error, as it is sent and as JSON has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureReport {
    /// The name of the error's kind.
    pub kind: String,
    /// The error.
    pub text: String,
}

impl FailureReport {
    /// Returns the report of an error.
    pub fn of(error: &Error) -> FailureReport {
        FailureReport {
            kind: format!("{:?}", error.kind()),
            text: error.to_string(),
        }
    }

    /// Returns the error.
    pub fn error(&self) -> Error {
        let mut kinds = Kind::ALL.into_iter();
        let kind = kinds.find(|known| format!("{known:?}") == self.kind);
        Error::new(kind.unwrap_or(Kind::Unavailable), "", &self.text)
    }
}

/// What a discard did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscardReport {
    /// Changes that were thrown away.
    pub discarded: u64,
    /// Keys that a commit which ended early had put before: the store keeps them.
    pub stored: u64,
}

/// A line from a mount to a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlMessage {
    /// How many of the keys are done.
    Progress {
        /// Those.
        done: usize,
        /// All; 0 before they are known.
        total: usize,
    },
    /// The last line: the result.
    Answer(ControlAnswer),
    /// The last line: the request failed.
    Failure(FailureReport),
    /// The last line: the ends are of different versions. Version 1 sent all of its errors in this form.
    #[serde(rename = "error")]
    OtherVersion(String),
}

#[derive(Serialize, Deserialize)]
struct Envelope {
    version: u32,
    request: ControlRequest,
}

/// Sends a request.
pub fn send_request(to: impl Write, request: &ControlRequest) -> io::Result<()> {
    let envelope = Envelope {
        version: VERSION,
        request: request.clone(),
    };
    send(to, &envelope)
}

/// Receives a request; an error if the line is none of this version of the protocol.
pub fn receive_request(from: &mut impl BufRead) -> Result<ControlRequest> {
    let line = read_line(from).map_err(|error| Error::os("a command", error))?;
    match serde_json::from_str(&line) {
        Ok(Envelope { version, request }) if version == VERSION => Ok(request),
        _ => Err(other_version()),
    }
}

/// The error where the other end is of another version.
pub fn other_version() -> Error {
    let why = "the command and the mount are of different versions of zarrfs; unmount and mount again, or use the \
        zarrfs that mounted";
    Error::unsupported("", why)
}

/// Sends a message.
pub fn send_message(to: impl Write, message: &ControlMessage) -> io::Result<()> {
    send(to, message)
}

fn send(mut to: impl Write, line: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(line)?;
    line.push(b'\n');
    to.write_all(&line)
}

/// Reads a line, with its end unless the other end has gone.
pub fn read_line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    from.take(MAX_LINE).read_line(&mut line)?;
    Ok(line)
}

/// Returns a path to the socket that is short enough for the kernel, wherever the upper folder is. It is valid while the
/// file, the opened folder, lives.
pub fn socket_path(upper: &Path) -> Result<(fs::File, PathBuf)> {
    let folder = fs::File::open(upper).map_err(|error| Error::os(upper.display(), error))?;
    let path = format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd());
    Ok((folder, PathBuf::from(path)))
}

/// Translates an error of the socket in `upper`.
pub fn socket_error(upper: &Path, error: io::Error) -> Error {
    Error::os(upper.join(SOCKET).display(), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(message: &ControlMessage) -> ControlMessage {
        let mut line = Vec::new();
        send_message(&mut line, message).unwrap();
        assert!(line.ends_with(b"\n") && line.iter().filter(|&&byte| byte == b'\n').count() == 1);
        serde_json::from_slice(&line).unwrap()
    }

    #[test]
    fn each_request_arrives_as_it_was_sent() {
        let path = "a/\n\"b\"".to_string();
        let (dry_run, force) = (true, false);
        for request in [
            ControlRequest::Status,
            ControlRequest::Diff,
            ControlRequest::DiffArrays,
            ControlRequest::Commit { dry_run, force },
            ControlRequest::Discard { path },
        ] {
            let mut line = Vec::new();
            send_request(&mut line, &request).unwrap();
            assert_eq!(receive_request(&mut line.as_slice()).unwrap(), request);
        }
    }

    #[test]
    fn the_kind_of_an_error_arrives() {
        for kind in Kind::ALL {
            let sent = Error::new(kind, "a/\u{1b}", "why");
            let ControlMessage::Failure(failure) =
                parse(&ControlMessage::Failure(FailureReport::of(&sent)))
            else {
                panic!("not a failure");
            };
            let error = failure.error();
            assert_eq!(error.kind(), kind);
            assert_eq!(error.to_string(), sent.to_string());
        }
    }

    #[test]
    fn reports_have_the_form_of_the_printed_json() {
        let report = CommitReport {
            put: 1,
            bytes: 2,
            erased: 3,
            without_etag: 1,
            left: 4,
            failed: None,
            conflicts: vec![("a".to_string(), "was changed".to_string())],
            kept: Vec::new(),
            lost: Vec::new(),
            in_writing: Vec::new(),
        };
        let printed = r#"{"put":1,"bytes":2,"erased":3,"without_etag":1,"left":4,"conflicts":[["a","was changed"]],"kept":[]}"#;
        assert_eq!(serde_json::to_string(&report).unwrap(), printed);
        let message = ControlMessage::Answer(ControlAnswer::Commit(report));
        assert_eq!(parse(&message), message);
        let change = 'A';
        let key = "a/0.0".to_string();
        let printed = r#"{"change":"A","key":"a/0.0"}"#;
        assert_eq!(
            serde_json::to_string(&KeyDiff {
                change,
                key,
                pending: false,
            })
            .unwrap(),
            printed
        );
    }

    #[test]
    fn other_versions_are_refused() {
        let lines = [
            r#"{"command":"commit","dry_run":false,"force":true}"#,
            r#"{"version":1,"request":"status"}"#,
            r#"{"version":4,"request":"status"}"#,
            r#"{"version":3,"request":"frobnicate"}"#,
            "",
        ];
        for line in lines {
            let error = receive_request(&mut line.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), Kind::Unsupported, "{line}");
        }
        let old = r#"{"error":"is no command that a mount knows"}"#;
        let message: ControlMessage = serde_json::from_str(old).unwrap();
        assert!(matches!(message, ControlMessage::OtherVersion(_)));
    }
}
