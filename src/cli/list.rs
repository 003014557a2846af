//! `zarrfs list`: lists this machine's mounts, from the mount table and the mounts.
//!
//! A mount that does not answer is still listed: each mount is queried in its own thread with a time limit.

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::{Value, json};

use crate::cli::mount_facts::MountFacts;
use crate::cli::terminal::wrap_width;
use crate::cli::{ListArgs, format, report};
use crate::fuse::kernel_mount::liveness::{ANSWER_TIMEOUT, Liveness};
use crate::fuse::kernel_mount::mountinfo::Mounted;
use crate::fuse::kernel_mount::{liveness, mountinfo};
use crate::mount::control_socket;
use crate::mount::protocol::{ControlAnswer, ControlRequest};
use zarr_format::error::{Error, Kind, Result, printable};

/// A line of `zarrfs list`: one mount.
struct MountLine {
    store: String,
    directory: PathBuf,
    /// Name of the mount's view; `None` if the mount does not answer.
    view: Option<String>,
    changes: Changes,
}

/// The number of uncommitted changes of a mount.
enum Changes {
    ReadOnly,
    /// Number of changes that are not committed yet.
    Pending(u64),
    /// Number of changes that the store refused; for a mount with `--write-through`.
    Refused(u64),
    /// The reason why the number of changes is unknown.
    Unknown(&'static str),
}

/// Prints all zarrfs mounts that this process sees.
pub(super) fn list(args: &ListArgs) -> Result<bool> {
    let lines = find()?;
    if args.json {
        let lines: Vec<Value> = lines.iter().map(MountLine::to_json).collect();
        report::print_json(&json!(lines));
    } else {
        print_table(&lines);
    }
    Ok(true)
}

/// Queries all zarrfs mounts in parallel; returns their facts in the order of the mount table.
fn find() -> Result<Vec<MountLine>> {
    let table = mountinfo::read()?;
    let ours = table.into_iter().filter(Mounted::is_ours);
    let queries: Vec<_> = ours
        .map(|mounted| {
            let queried = mounted.clone();
            (mounted, liveness::run_query(move || describe(&queried)))
        })
        .collect();
    let end = Instant::now() + ANSWER_TIMEOUT;
    let lines = queries.into_iter().map(|(mounted, answer)| {
        let left = end.saturating_duration_since(Instant::now());
        let line = answer
            .ok()
            .and_then(|answer| answer.recv_timeout(left).ok());
        line.unwrap_or_else(|| MountLine::unknown(&mounted, "does not answer"))
    });
    Ok(lines.collect())
}

/// Queries a mount for its view and its number of changes.
fn describe(mounted: &Mounted) -> MountLine {
    let facts = match MountFacts::wait(&mounted.path) {
        Ok(facts) => facts,
        Err(error) => return MountLine::unknown(mounted, reason_of_silence(mounted, &error)),
    };
    let view = facts.option("view");
    let changes = match (facts.upper(), facts.option("read_only")) {
        (None, _) | (_, "true") => Changes::ReadOnly,
        (Some(upper), _) => pending(&upper, facts.option("write_through") == "true"),
    };
    MountLine {
        store: facts.source().to_string(),
        directory: mounted.path.clone(),
        view: Some(view.to_string()),
        changes,
    }
}

fn reason_of_silence(mounted: &Mounted, error: &Error) -> &'static str {
    match error.kind() {
        Kind::Unavailable => match liveness::query(&mounted.path, ANSWER_TIMEOUT) {
            Liveness::Gone => "its process is gone",
            Liveness::Answers | Liveness::Silent => "does not answer",
        },
        Kind::Denied => "of another user",
        _ => "unknown",
    }
}

/// Asks a mount for its number of changed keys: keys to commit or, with `--write-through`, keys that the store refused.
fn pending(upper: &Path, writes_through: bool) -> Changes {
    match control_socket::request(upper, &ControlRequest::Status, &|_, _| ()) {
        Ok(Some(ControlAnswer::Status(status))) => {
            let count = status.put + status.erased;
            if writes_through {
                Changes::Refused(count)
            } else {
                Changes::Pending(count)
            }
        }
        _ => Changes::Unknown("unknown"),
    }
}

impl MountLine {
    /// Returns the facts about a mount that does not answer: only those in the mount table, and the reason.
    fn unknown(mounted: &Mounted, why: &'static str) -> MountLine {
        MountLine {
            store: mounted.source.to_string_lossy().into_owned(),
            directory: mounted.path.clone(),
            view: None,
            changes: Changes::Unknown(why),
        }
    }

    fn to_json(&self) -> Value {
        let (changes, state) = match self.changes {
            Changes::ReadOnly => (None, "read-only"),
            Changes::Pending(count) => (Some(count), "writable"),
            Changes::Refused(count) => (Some(count), "write-through"),
            Changes::Unknown(why) => (None, why),
        };
        json!({
            "store": self.store,
            "directory": self.directory.to_string_lossy(),
            "view": self.view,
            "state": state,
            "changes": changes,
        })
    }

    fn cells(&self) -> [String; 4] {
        let changes = match self.changes {
            Changes::ReadOnly => "read-only".to_string(),
            Changes::Pending(count) => format!("{} pending", format::count(count, "change")),
            Changes::Refused(0) => "write-through".to_string(),
            Changes::Refused(count) => {
                format!("write-through, {} refused", format::count(count, "change"))
            }
            Changes::Unknown(why) => why.to_string(),
        };
        [
            printable(&self.store),
            printable(&self.directory.to_string_lossy()),
            self.view.clone().unwrap_or_else(|| "-".to_string()),
            changes,
        ]
    }
}

/// Prints the mounts as a table. If the table is wider than the terminal, each store is on a line of its own; if stdout
/// is not a terminal, each mount stays on one line, so that other programs can parse it.
fn print_table(lines: &[MountLine]) {
    let headings = ["STORE", "DIRECTORY", "VIEW", "CHANGES"].map(str::to_string);
    let rows: Vec<_> = std::iter::once(headings)
        .chain(lines.iter().map(MountLine::cells))
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let [first, second, third, last] = [0, 1, 2, 3].map(|column| width(column).unwrap_or_default());
    let is_wide = wrap_width().is_some_and(|width| first + second + third + last + 6 > width);
    for [store, directory, view, changes] in &rows {
        let row = format!("{directory:second$}  {view:third$}  {changes}");
        if is_wide {
            report::print(format_args!("{row}\n    {store}"));
        } else {
            report::print(format_args!("{store:first$}  {row}"));
        }
    }
}
