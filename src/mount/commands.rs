//! Executes `zarrfs status`, `diff`, `commit` and `discard` on an overlay.
//!
//! This code runs in the mount that uses the changes directory or, if there is no such mount, in the command itself.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::protocol::{
    ArraysReport, CommitReport, ControlAnswer, ControlRequest, DiffReport, DiscardReport,
    FailureReport, FlushReport, KeyDiff, StatusReport,
};
use zarr_format::error::{Kind, Result};
use zarrfs_array::array::{Arrays, Engine, Limits};
use zarrfs_array::hierarchy::Hierarchy;
use zarrfs_export::compare;
use zarrfs_export::compare::{Compared, HierarchyState};
use zarrfs_overlay::Discarded;
use zarrfs_overlay::Overlay;
use zarrfs_overlay::changes::{ChangeAction, ChangedKey};
use zarrfs_overlay::commit::{CommitConfig, Outcome, ProgressFn};
use zarrfs_store::request_context::UNLIMITED;
use zarrfs_store::stats::Stats;
use zarrfs_store::{Key, Store};

/// Executes a request without a mount. A commit reports the number of finished keys to `progress`.
pub fn execute(
    overlay: &Overlay,
    request: &ControlRequest,
    progress: &ProgressFn,
) -> Result<ControlAnswer> {
    Ok(match request {
        ControlRequest::Status => ControlAnswer::Status(status(overlay)?),
        // Nothing to flush: only a mount has dirty chunks, in its memory.
        ControlRequest::Flush => ControlAnswer::Flush(FlushReport::default()),
        ControlRequest::Diff => ControlAnswer::Diff(diff(overlay)?),
        ControlRequest::DiffArrays => ControlAnswer::DiffArrays(diff_arrays(overlay)?),
        &ControlRequest::Commit { dry_run, force } => {
            let outcome = overlay.commit(&UNLIMITED, CommitConfig { dry_run, force }, progress)?;
            ControlAnswer::Commit(outcome.into())
        }
        ControlRequest::Discard { path } => {
            let path = Key::new(path.as_str())?;
            ControlAnswer::Discard(discard(overlay, &path)?)
        }
    })
}

/// Executes a request in the mount, which may have dirty chunks of decoded files. A commit first stores the dirty
/// chunks that could not be stored before; a discard drops all dirty chunks. The answers to a status and a commit name
/// the arrays with dirty chunks.
pub(super) fn execute_in_mount(
    overlay: &Overlay,
    arrays: &Arrays,
    request: &ControlRequest,
    progress: &ProgressFn,
) -> Result<ControlAnswer> {
    let mut dropped = 0;
    match request {
        ControlRequest::Commit { dry_run: false, .. } => {
            arrays.flush_closed_arrays(&UNLIMITED);
        }
        ControlRequest::Flush => {
            let failed = arrays.flush_closed_arrays(&UNLIMITED);
            let failed = failed
                .into_iter()
                .map(|(path, error)| (shown(&path), error.to_string()));
            let failed = failed.collect();
            return Ok(ControlAnswer::Flush(FlushReport { failed }));
        }
        ControlRequest::Discard { path } => {
            dropped = arrays.discard_dirty(&Key::new(path.as_str())?);
        }
        _ => {}
    }
    let in_writing = arrays.written_arrays();
    let mut answer = match execute(overlay, request, progress) {
        Ok(ControlAnswer::Discard(report)) => ControlAnswer::Discard(DiscardReport {
            discarded: report.discarded + dropped,
            ..report
        }),
        Err(error) if dropped > 0 && error.kind() == Kind::NotFound => {
            ControlAnswer::Discard(DiscardReport {
                discarded: dropped,
                stored: 0,
            })
        }
        answer => answer?,
    };
    name_arrays(&mut answer, in_writing);
    Ok(answer)
}

/// Discards the changes at a path and below. Fails if the path has no changes, unless it is the root.
fn discard(overlay: &Overlay, path: &Key) -> Result<DiscardReport> {
    let Discarded { dropped, stored } = match overlay.discard(&UNLIMITED, path) {
        Err(error) if path.is_root() && error.kind() == Kind::NotFound => Discarded::default(),
        discarded => discarded?,
    };
    Ok(DiscardReport {
        discarded: dropped,
        stored,
    })
}

fn status(overlay: &Overlay) -> Result<StatusReport> {
    let changes = overlay.changes(&UNLIMITED)?;
    let is_put = |change: &&ChangedKey| change.action != ChangeAction::Erase;
    let (put, erased): (Vec<_>, Vec<_>) = changes.keys.iter().partition(is_put);
    Ok(StatusReport {
        store: overlay.store_place().to_string(),
        upper: overlay.path().display().to_string(),
        put: put.len() as u64,
        new: put.iter().filter(|change| change.is_new()).count() as u64,
        erased: erased.len() as u64,
        bytes: put.iter().map(|change| change.bytes()).sum(),
        pending: changes.frozen.len() as u64,
        committing: overlay.is_at_work(),
        kept: texts(changes.uncommittable),
        rescued: overlay.rescued()?,
        lost: texts(changes.lost),
        in_writing: Vec::new(),
    })
}

fn diff(overlay: &Overlay) -> Result<DiffReport> {
    let changes = overlay.changes(&UNLIMITED)?;
    let keys = changes.keys.iter().map(|change| KeyDiff {
        change: match change.action {
            ChangeAction::Erase => 'D',
            _ if change.is_new() => 'A',
            _ => 'M',
        },
        key: text(&change.key),
        pending: changes.frozen.contains(&change.key),
    });
    Ok(DiffReport {
        keys: keys.collect(),
        kept: texts(changes.uncommittable),
    })
}

fn diff_arrays(overlay: &Overlay) -> Result<ArraysReport> {
    let changes = overlay.changes(&UNLIMITED)?.keys.into_iter();
    let keys: HashSet<Key> = changes.map(|change| change.key).collect();
    let before = state(overlay.lower().clone());
    let after = state(Arc::new(overlay.clone()));
    let mut nodes = Vec::new();
    compare::compare(&before, &after, Compared::Keys(&keys), &mut |node| {
        nodes.push(node);
        Ok(())
    })?;
    Ok(ArraysReport { nodes })
}

fn state(store: Arc<dyn Store>) -> HierarchyState {
    let hierarchy = Arc::new(Hierarchy::new(store));
    let limits = Limits {
        // 512 MiB for each of the two compared states, in addition to the memory limit of the mount.
        memory: 512 << 20,
        max_chunk: 256 << 20,
        timeout: Duration::from_secs(60),
        fetches: 0,
        lossy: false,
    };
    let engine = Engine::new(limits, Arc::new(Stats::default()));
    HierarchyState {
        arrays: Arc::new(Arrays::new(hierarchy.clone(), engine)),
        hierarchy,
        base: Key::root(),
    }
}

/// Adds to an answer the arrays that had dirty chunks when the request began; the flag is true for an array that was
/// open for writing.
fn name_arrays(answer: &mut ControlAnswer, in_writing: Vec<(Key, bool)>) {
    let named = in_writing.iter().map(|(path, is_open)| {
        let why = if *is_open {
            "open for writing as a decoded file; the next commit includes the rest"
        } else {
            "closed, but not all chunks could be stored; zarrfs will retry"
        };
        (shown(path), why.to_string())
    });
    match answer {
        ControlAnswer::Status(report) => report.in_writing = named.collect(),
        ControlAnswer::Commit(report) => report.in_writing = named.collect(),
        _ => {}
    }
}

/// Returns the path of an array as commands print it: `/` for the root.
fn shown(path: &Key) -> String {
    if path.is_root() {
        "/".into()
    } else {
        text(path)
    }
}

impl From<Outcome> for CommitReport {
    fn from(outcome: Outcome) -> CommitReport {
        CommitReport {
            put: outcome.put,
            bytes: outcome.bytes,
            erased: outcome.erased,
            without_etag: outcome.without_etag,
            left: outcome.left,
            failed: outcome.failed.as_ref().map(FailureReport::of),
            conflicts: texts(outcome.conflicts),
            kept: texts(outcome.uncommittable),
            lost: texts(outcome.lost),
            in_writing: Vec::new(),
        }
    }
}

fn texts(keys: Vec<(Key, impl Into<String>)>) -> Vec<(String, String)> {
    let pairs = keys.into_iter();
    pairs.map(|(key, why)| (text(&key), why.into())).collect()
}

fn text(key: &Key) -> String {
    String::from_utf8_lossy(key.as_bytes()).into_owned()
}
