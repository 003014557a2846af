//! Defines the protocol between commands and the mount of a changes directory: JSON lines.
//!
//! The socket is in the changes directory, which only its owner may enter. A command sends one request; the mount sends
//! lines about progress (for a commit the first one at once), then a line with the answer or the error. A request has
//! the number of its protocol version, which must be that of the mount. Lines are parsed with a limit on their length,
//! and never trusted.

use std::io;
use std::io::{BufRead, Read, Write};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use zarr_format::error::{Error, Kind, Result};

/// The protocol version. In the first version, of zarrfs 0.1.0, requests had no version number.
const VERSION: u32 = 3;

/// A request of a command to a mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlRequest {
    /// Requests the numbers of changes and of bytes.
    Status,
    /// Stores the chunks of closed decoded files that could not be stored before.
    Flush,
    /// Requests the changed keys.
    Diff,
    /// Requests the changed nodes, attributes and regions of arrays.
    DiffArrays,
    /// Commits the changes to the store.
    Commit {
        /// Whether to check for conflicts only.
        dry_run: bool,
        /// Whether to overwrite keys that other programs have changed.
        force: bool,
    },
    /// Discards the changes at a path and below.
    Discard {
        /// The path, without slashes at its ends; empty for all changes.
        path: String,
    },
}

/// The answer to a request that has succeeded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlAnswer {
    /// Answer to `ControlRequest::Status`.
    Status(StatusReport),
    /// Answer to `ControlRequest::Flush`.
    Flush(FlushReport),
    /// Answer to `ControlRequest::Diff`.
    Diff(DiffReport),
    /// Answer to `ControlRequest::DiffArrays`.
    DiffArrays(ArraysReport),
    /// Answer to `ControlRequest::Commit`.
    Commit(CommitReport),
    /// Answer to `ControlRequest::Discard`.
    Discard(DiscardReport),
}

/// The uncommitted changes in numbers, as `zarrfs status --json` prints them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusReport {
    /// Path or URL of the store, without secrets.
    pub store: String,
    /// Path of the changes directory.
    pub upper: String,
    /// Number of keys that the next commit writes.
    pub put: u64,
    /// Number of keys that the next commit writes and the store does not have.
    pub new: u64,
    /// Number of keys that the next commit removes.
    pub erased: u64,
    /// Number of bytes that the next commit writes.
    pub bytes: u64,
    /// Number of keys of a commit that is running or was interrupted; the next commit continues an interrupted one.
    #[serde(default)]
    pub pending: u64,
    /// Whether a commit is running now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub committing: bool,
    /// Paths with changes that no commit can store, and the reasons.
    pub kept: Vec<(String, String)>,
    /// Files in the changes directory that a crash of zarrfs or of the machine left incomplete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rescued: Vec<String>,
    /// Keys with data that a commit loses, since no store can store them, and the kind of data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<(String, String)>,
    /// Arrays whose decoded files have dirty chunks, and what that means for a commit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_writing: Vec<(String, String)>,
}

/// Answer to a request to store dirty chunks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlushReport {
    /// Arrays with chunks that still cannot be stored, and the reasons.
    pub failed: Vec<(String, String)>,
}

/// The changed keys, as `zarrfs diff --json` prints them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffReport {
    /// The changed keys, in order.
    pub keys: Vec<KeyDiff>,
    /// Paths with changes that no commit can store, and the reasons.
    pub kept: Vec<(String, String)>,
}

/// A changed key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyDiff {
    /// `A` for an added key, `M` for a modified key, `D` for a deleted key.
    pub change: char,
    /// The key in the store.
    pub key: String,
    /// Whether the key belongs to an interrupted commit, which the next commit continues.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pending: bool,
}

/// The changed groups and arrays, as `zarrfs diff --arrays --json` prints them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArraysReport {
    /// A JSON object for each changed node, see `compare::compare`.
    pub nodes: Vec<Value>,
}

/// The result of a commit or a dry run, as `zarrfs commit --json` prints it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitReport {
    /// Number of keys that were written.
    pub put: u64,
    /// Number of bytes that were written.
    pub bytes: u64,
    /// Number of keys that were removed.
    pub erased: u64,
    /// Number of keys for which the server sent no ETag. Their conflicts are detected by length and digest of the
    /// content that was read earlier or, if it was never read, by size and time.
    #[serde(default)]
    pub without_etag: u64,
    /// Number of changes that were not written, since the commit ended early.
    #[serde(default)]
    pub left: u64,
    /// Keys that other programs have changed, and how.
    pub conflicts: Vec<(String, String)>,
    /// The error that ended the commit early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailureReport>,
    /// Paths with changes that no commit can store, and the reasons.
    pub kept: Vec<(String, String)>,
    /// Keys with data that the commit lost, since the store cannot store them, and the kind of data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<(String, String)>,
    /// Arrays whose decoded files had dirty chunks when the commit began, and what that means for the commit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_writing: Vec<(String, String)>,
}

/// An error in the form in which the mount sends it and commands print it as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureReport {
    /// Name of the error's kind, such as `NotFound`.
    pub kind: String,
    /// Text of the error.
    pub text: String,
}

impl FailureReport {
    /// Converts an error to the form that is sent.
    pub fn of(error: &Error) -> FailureReport {
        FailureReport {
            kind: format!("{:?}", error.kind()),
            text: error.to_string(),
        }
    }

    /// Converts the error that was sent back to an `Error`.
    pub fn error(&self) -> Error {
        let mut kinds = Kind::ALL.into_iter();
        let kind = kinds.find(|known| format!("{known:?}") == self.kind);
        Error::new(kind.unwrap_or(Kind::Unavailable), "", &self.text)
    }
}

/// The result of a discard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscardReport {
    /// Number of changes that were discarded.
    pub discarded: u64,
    /// Number of keys that an interrupted commit had already written: the store keeps their new content.
    pub stored: u64,
}

/// A line that a mount sends to a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlMessage {
    /// Progress of the request.
    Progress {
        /// Number of finished keys.
        done: usize,
        /// Number of all keys; 0 before it is known.
        total: usize,
    },
    /// The last line, if the request has succeeded: its answer.
    Answer(ControlAnswer),
    /// The last line, if the request has failed: its error.
    Failure(FailureReport),
    /// The last line, if mount and command have different protocol versions. Version 1 sent all its errors in this
    /// form.
    #[serde(rename = "error")]
    OtherVersion(String),
}

#[derive(Serialize, Deserialize)]
struct Envelope {
    version: u32,
    request: ControlRequest,
}

pub(super) fn send_request(to: impl Write, request: &ControlRequest) -> io::Result<()> {
    let envelope = Envelope {
        version: VERSION,
        request: request.clone(),
    };
    send(to, &envelope)
}

/// Receives a request; fails if the line is no request of this protocol version.
pub(super) fn receive_request(from: &mut impl BufRead) -> Result<ControlRequest> {
    let line = read_line(from).map_err(|error| Error::os("cannot read a command", error))?;
    match serde_json::from_str(&line) {
        Ok(Envelope { version, request }) if version == VERSION => Ok(request),
        _ => Err(other_version()),
    }
}

pub(super) fn other_version() -> Error {
    let why =
        "the mount runs another version of zarrfs; unmount and mount again, or use that version";
    Error::unsupported("", why)
}

pub(super) fn send_message(to: impl Write, message: &ControlMessage) -> io::Result<()> {
    send(to, message)
}

fn send(mut to: impl Write, line: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(line)?;
    line.push(b'\n');
    to.write_all(&line)
}

/// Reads a line with its newline, or without a newline if the other end has closed the socket.
pub(super) fn read_line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    // The limit of 1 GiB is for the longest lines, which list all changed keys.
    from.take(1 << 30).read_line(&mut line)?;
    Ok(line)
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
    fn errors_keep_their_kind_and_text_over_the_socket() {
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
    fn reports_are_sent_as_the_printed_json() {
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
    fn requests_of_other_protocol_versions_are_refused() {
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
