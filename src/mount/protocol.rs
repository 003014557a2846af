//! The protocol between a command and the mount of an upper folder: JSON lines.
//!
//! The socket is in the upper folder, which only its owner may enter. A command sends one request; the mount sends
//! progress lines (for a commit the first one at once), then one line with the answer or the error. Both ends must use
//! the same protocol version: the request carries its number, and a mismatch is an error that either end can show.
//! Lines are bounded and parsed, never trusted.

use std::io;
use std::io::{BufRead, Read, Write};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use zarr_format::error::{Error, Kind, Result};

/// The protocol version. The first version, of zarrfs 0.1.0, had requests without a number.
const VERSION: u32 = 3;

/// A request of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlRequest {
    /// The amount of changes.
    Status,
    /// Stores the chunks of closed decoded files that could not be stored before.
    Flush,
    /// The changed keys.
    Diff,
    /// The changed nodes, attributes and regions of arrays.
    DiffArrays,
    /// Commits the changes to the store.
    Commit {
        /// Only checks for conflicts.
        dry_run: bool,
        /// Overwrites changes by others.
        force: bool,
    },
    /// Discards the changes at a path and below.
    Discard {
        /// The path, without slashes at its ends; empty for all changes.
        path: String,
    },
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlAnswer {
    /// For `Status`.
    Status(StatusReport),
    /// For `Flush`.
    Flush(FlushReport),
    /// For `Diff`.
    Diff(DiffReport),
    /// For `DiffArrays`.
    DiffArrays(ArraysReport),
    /// For `Commit`.
    Commit(CommitReport),
    /// For `Discard`.
    Discard(DiscardReport),
}

/// The amount of changes, as printed by `zarrfs status --json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusReport {
    /// The store, without secrets.
    pub store: String,
    /// The upper folder.
    pub upper: String,
    /// Keys to put.
    pub put: u64,
    /// Keys to put that the store did not have.
    pub new: u64,
    /// Keys to remove.
    pub erased: u64,
    /// Bytes to put.
    pub bytes: u64,
    /// Keys of an unfinished commit. If it was interrupted, the next commit continues with them.
    #[serde(default)]
    pub pending: u64,
    /// Whether a commit is running now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub committing: bool,
    /// The paths that stay in the upper folder, and the reasons.
    pub kept: Vec<(String, String)>,
    /// Files of the upper folder that were incomplete when zarrfs or the machine stopped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rescued: Vec<String>,
    /// Data that no store can hold and a commit loses: the keys, and the kind of data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<(String, String)>,
    /// Arrays with dirty decoded files, and the consequences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_writing: Vec<(String, String)>,
}

/// The result of a flush.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlushReport {
    /// Arrays with chunks that still cannot be stored, and the reasons.
    pub failed: Vec<(String, String)>,
}

/// The changed keys, as printed by `zarrfs diff --json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffReport {
    /// The keys, in order.
    pub keys: Vec<KeyDiff>,
    /// The paths that stay in the upper folder, and the reasons.
    pub kept: Vec<(String, String)>,
}

/// A changed key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyDiff {
    /// `A` for a new key, `M` for a key with another content, `D` for a removed key.
    pub change: char,
    /// The key.
    pub key: String,
    /// Whether the key belongs to an unfinished commit, which the next commit continues.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pending: bool,
}

/// The changed nodes, as printed by `zarrfs diff --arrays --json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArraysReport {
    /// One object for each node, see `compare::compare`.
    pub nodes: Vec<Value>,
}

/// The result of a commit or dry run, as printed by `zarrfs commit --json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitReport {
    /// Keys that were put.
    pub put: u64,
    /// Bytes of these keys.
    pub bytes: u64,
    /// Keys that were removed.
    pub erased: u64,
    /// Number of keys for which the server sent no ETag. Their conflicts are detected by the length and digest of the
    /// content that was read before or, if none was read, by size and time.
    #[serde(default)]
    pub without_etag: u64,
    /// Number of changes that were not written to the store, since the commit ended early.
    #[serde(default)]
    pub left: u64,
    /// Keys that others have changed, and how.
    pub conflicts: Vec<(String, String)>,
    /// The error that ended the commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailureReport>,
    /// The paths that stay in the upper folder, and the reasons.
    pub kept: Vec<(String, String)>,
    /// Data that the store cannot hold and the commit lost: the keys, and the kind of data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<(String, String)>,
    /// Arrays with dirty decoded files at the start of the commit, and the consequences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_writing: Vec<(String, String)>,
}

/// An error as it is sent, and as it is printed in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureReport {
    /// The name of the error's kind.
    pub kind: String,
    /// The text of the error.
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

/// The result of a discard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscardReport {
    /// Changes that were discarded.
    pub discarded: u64,
    /// Keys that an interrupted commit has already put: the store keeps them.
    pub stored: u64,
}

/// A line from a mount to a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlMessage {
    /// The number of finished keys.
    Progress {
        /// Finished keys.
        done: usize,
        /// Number of all keys; 0 before it is known.
        total: usize,
    },
    /// The last line: the result.
    Answer(ControlAnswer),
    /// The last line: the request failed.
    Failure(FailureReport),
    /// The last line: the ends have different versions. Version 1 sent all of its errors in this form.
    #[serde(rename = "error")]
    OtherVersion(String),
}

#[derive(Serialize, Deserialize)]
struct Envelope {
    version: u32,
    request: ControlRequest,
}

/// Sends a request.
pub(super) fn send_request(to: impl Write, request: &ControlRequest) -> io::Result<()> {
    let envelope = Envelope {
        version: VERSION,
        request: request.clone(),
    };
    send(to, &envelope)
}

/// Receives a request; fails if the line is not a request of this protocol version.
pub(super) fn receive_request(from: &mut impl BufRead) -> Result<ControlRequest> {
    let line = read_line(from).map_err(|error| Error::os("cannot read a command", error))?;
    match serde_json::from_str(&line) {
        Ok(Envelope { version, request }) if version == VERSION => Ok(request),
        _ => Err(other_version()),
    }
}

/// Returns the error of a version mismatch.
pub(super) fn other_version() -> Error {
    let why =
        "the mount runs another version of zarrfs; unmount and mount again, or use that version";
    Error::unsupported("", why)
}

/// Sends a message.
pub(super) fn send_message(to: impl Write, message: &ControlMessage) -> io::Result<()> {
    send(to, message)
}

fn send(mut to: impl Write, line: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(line)?;
    line.push(b'\n');
    to.write_all(&line)
}

/// Reads a line, including its newline unless the other end has gone.
pub(super) fn read_line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    // The longest lines list all changed keys.
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
