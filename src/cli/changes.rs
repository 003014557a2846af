//! `zarrfs status`, `diff`, `commit` and `discard`: send requests about changes, and print the answers.

use std::io;
use std::io::IsTerminal;
use std::path::Path;

use serde::Serialize;
use serde_json::json;

use crate::cli::mount_facts::{MountFacts, control_dir};
use crate::cli::upper::ChangesLocation;
use crate::cli::{
    CommitArgs, DiffArgs, DiscardArgs, PlaceArgs, StatusArgs, diff, format, mount_facts, report,
    upper,
};
use crate::mount::protocol::{
    CommitReport, ControlAnswer, ControlRequest, DiscardReport, StatusReport,
};
use crate::view::control::FAILURES_ATTRIBUTE;
use zarr_format::error::{Error, Result, printable};

pub(super) fn status(args: &StatusArgs) -> Result<bool> {
    upper::refuse_remote_options(&args.place)?;
    let path = &args.place.place;
    let location = upper::locate(path)?;
    let failures = count_failures(path)?;
    match location {
        ChangesLocation::ReadOnly(store) if args.json => {
            print_status_json(&read_only_status(&store), failures.as_ref());
        }
        ChangesLocation::ReadOnly(store) => {
            let store = printable(&store);
            report::print(format_args!("{store}: mounted read-only"));
        }
        ChangesLocation::Upper(_) => {
            let ControlAnswer::Status(status) =
                upper::execute(&args.place, &ControlRequest::Status)?
            else {
                return Err(mismatch());
            };
            if args.json {
                print_status_json(&status, failures.as_ref());
            } else {
                let writes_through = failures.as_ref().is_some_and(|mount| mount.writes_through);
                print_status(&status, writes_through);
            }
        }
    }
    if let Some(failures) = failures.filter(|_| !args.json) {
        print_failures(path, &failures);
    }
    Ok(true)
}

/// The number of failed requests that a mount has recorded.
struct FailureCount {
    count: u64,
    /// Whether failures are only in the log: a key `.zarrfs` of the store hides the mount's control directory.
    hides_control: bool,
    /// Whether the mount writes changes to the store when files are closed.
    writes_through: bool,
}

/// Prints the status of changes as JSON, with the number of recorded failures if the changes belong to a mount.
fn print_status_json(status: &StatusReport, failures: Option<&FailureCount>) {
    let mut report = json!(status);
    if let (Some(members), Some(failures)) = (report.as_object_mut(), failures) {
        members.insert("failures".to_string(), failures.count.into());
    }
    report::print_json(&report);
}

/// Returns the status of a read-only mount, which has no changes.
fn read_only_status(store: &str) -> StatusReport {
    StatusReport {
        store: store.to_string(),
        upper: String::new(),
        put: 0,
        new: 0,
        erased: 0,
        bytes: 0,
        pending: 0,
        committing: false,
        kept: Vec::new(),
        rescued: Vec::new(),
        lost: Vec::new(),
        in_writing: Vec::new(),
    }
}

/// Returns the number of failures that a mount has recorded, or `None` if `path` is not a mountpoint.
fn count_failures(path: &Path) -> Result<Option<FailureCount>> {
    let Some(mount) = mount_facts::mountpoint_at(path)? else {
        return Ok(None);
    };
    let count = mount_facts::attribute(&mount, FAILURES_ATTRIBUTE)?;
    let count = str::from_utf8(&count)
        .ok()
        .and_then(|text| text.parse().ok());
    let facts = MountFacts::ask(&mount)?;
    Ok(Some(FailureCount {
        count: count.unwrap_or_default(),
        hides_control: facts.hides_control(),
        writes_through: facts.option("write_through") == "true",
    }))
}

/// Prints the number of recorded failures, unless it is zero, and the file or log that lists them.
fn print_failures(path: &Path, failures: &FailureCount) {
    if failures.count == 0 {
        return;
    }
    let count = format::count(failures.count, "failure");
    if failures.hides_control {
        report::print(format_args!("{count}, see the log of the mount"));
    } else {
        let errors = control_dir(path).join("errors");
        let errors = printable(&errors.display().to_string());
        report::print(format_args!("{count}, see {errors}"));
    }
}

fn print_status(status: &StatusReport, writes_through: bool) {
    let store = printable(&status.store);
    if status.put + status.erased == 0 && writes_through {
        report::print(format_args!(
            "{store}: writes go to the store at once; nothing to commit"
        ));
    } else if status.put + status.erased == 0 {
        report::print(format_args!("{store}: nothing to commit"));
    } else {
        let changed = status.put.saturating_sub(status.new);
        report::print(format_args!(
            "{store}: {} new, {changed} changed, {} removed, {} to write",
            status.new,
            status.erased,
            format::bytes(status.bytes),
        ));
    }
    if status.pending > 0 && status.committing {
        report::print(format_args!(
            "a commit of {} is running",
            format::count(status.pending, "key")
        ));
    } else if status.pending > 0 {
        report::print(format_args!(
            "a commit was interrupted with {} left: run `zarrfs commit` to finish",
            format::count(status.pending, "key")
        ));
    }
    print_staying(&status.kept);
    print_rescued(&status.rescued);
    print_lost(&status.lost, "will lose");
    print_in_writing(&status.in_writing);
}

/// Lists files in the changes directory that a crash of zarrfs or of the machine left incomplete.
fn print_rescued(paths: &[String]) {
    if paths.is_empty() {
        return;
    }
    let count = format::count(paths.len() as u64, "file");
    report::print(format_args!(
        "{count} incomplete after a crash and not part of the changes; check and remove:"
    ));
    for path in paths {
        report::print(format_args!("    {}", printable(path)));
    }
}

/// Lists changes that cannot be committed and stay in the changes directory.
fn print_staying(kept: &[(String, String)]) {
    let count = format::count(kept.len() as u64, "change");
    let stay = if kept.len() == 1 { "stays" } else { "stay" };
    print_reasons(
        kept,
        format_args!("{count} cannot be committed and {stay} in the changes directory"),
    );
}

/// Lists keys whose extended attributes are lost in a commit, because the store cannot store them.
fn print_lost(lost: &[(String, String)], lose: &str) {
    let count = format::count(lost.len() as u64, "name");
    print_reasons(
        lost,
        format_args!("{count} {lose} attributes that the store cannot store"),
    );
}

/// Lists the arrays whose decoded files programs are still writing.
fn print_in_writing(arrays: &[(String, String)]) {
    let count = format::count(arrays.len() as u64, "array");
    print_reasons(arrays, format_args!("{count} being written"));
}

/// Lists keys, each with a reason, under a title; prints nothing if the list is empty.
fn print_reasons(keys: &[(String, String)], title: std::fmt::Arguments<'_>) {
    if keys.is_empty() {
        return;
    }
    report::print(format_args!("{title}:"));
    for (key, why) in keys {
        report::print(format_args!("    {}: {}", printable(key), printable(why)));
    }
}

fn print_json(report: &impl Serialize) {
    report::print_json(&json!(report));
}

/// Lists uncommitted changes, or differences of two stores; returns whether there are none.
pub(super) fn diff(args: &DiffArgs) -> Result<bool> {
    if let Some(other) = &args.other {
        return diff::diff(args, other);
    }
    if args.arrays {
        return diff_of_arrays(args);
    }
    let ControlAnswer::Diff(diff) = upper::execute(&args.place, &ControlRequest::Diff)? else {
        return Err(mismatch());
    };
    if args.json {
        print_json(&diff);
        return Ok(diff.keys.is_empty());
    }
    for change in &diff.keys {
        report::print(format_args!("{} {}", change.change, printable(&change.key)));
    }
    Ok(diff.keys.is_empty())
}

fn diff_of_arrays(args: &DiffArgs) -> Result<bool> {
    let ControlAnswer::DiffArrays(diff) = upper::execute(&args.place, &ControlRequest::DiffArrays)?
    else {
        return Err(mismatch());
    };
    if args.json {
        print_json(&diff);
    } else {
        diff::print(&diff.nodes);
    }
    Ok(diff.nodes.is_empty())
}

/// Commits the changes, or copies the store with them; returns whether there were no conflicts.
pub(super) fn commit(args: &CommitArgs) -> Result<bool> {
    let report = match &args.to {
        Some(to) => upper::copy_to(&args.place, to)?,
        None => execute_commit(args)?,
    };
    if args.json {
        print_json(&report);
    } else if let Some(failure) = &report.failed {
        print_rest(&report);
        return Err(failure.error());
    } else if report.conflicts.is_empty() {
        print_commit(&report, args.dry_run);
    } else {
        print_conflicts(&report, args);
    }
    match &report.failed {
        Some(failure) => Err(failure.error()),
        None => Ok(report.conflicts.is_empty()),
    }
}

fn execute_commit(args: &CommitArgs) -> Result<CommitReport> {
    upper::refuse_remote_options(&args.place)?;
    let (dry_run, force) = (args.dry_run, args.force);
    match upper::execute(&args.place, &ControlRequest::Commit { dry_run, force })? {
        ControlAnswer::Commit(report) => Ok(report),
        _ => Err(mismatch()),
    }
}

fn print_commit(report: &CommitReport, dry_run: bool) {
    let is_empty = report.put + report.erased == 0;
    if is_empty && report.kept.is_empty() && report.in_writing.is_empty() {
        report::print("nothing to commit");
        return;
    }
    report::print(format_args!(
        "{}{} put ({}), {} removed",
        if dry_run { "dry run: " } else { "" },
        report.put,
        format::bytes(report.bytes),
        report.erased,
    ));
    print_without_etag(report);
    print_staying(&report.kept);
    print_lost(&report.lost, if dry_run { "would lose" } else { "lost" });
    print_in_writing(&report.in_writing);
}

/// Prints for how many keys conflicts were detected without ETags.
fn print_without_etag(report: &CommitReport) {
    if report.without_etag > 0 {
        let keys = format::count(report.without_etag, "key");
        report::print(format_args!(
            "{keys} without ETag: conflicts detected by digest of the content, or by size and time"
        ));
    }
}

/// Lists the keys in conflict, and suggests --force unless the store is only copied.
fn print_conflicts(report: &CommitReport, args: &CommitArgs) {
    for (key, why) in &report.conflicts {
        report::print(format_args!("{}: {}", printable(key), printable(why)));
    }
    print_without_etag(report);
    let count = format::count(report.conflicts.len() as u64, "conflict");
    let is_copy = args.to.is_some();
    let hint = if is_copy {
        ""
    } else {
        "; use --force to overwrite"
    };
    // A dry run writes no keys and a copy overwrites none: only a real commit can be half done after a conflict.
    let is_begun = !is_copy && !args.dry_run && report.put + report.erased > 0;
    let done = if is_begun {
        print_rest(report);
        "keys in conflict were not overwritten"
    } else {
        "nothing was overwritten"
    };
    report::fail(report::NO, format_args!("{count}; {done}{hint}"));
}

/// Prints how many keys an interrupted commit has written, and which command continues it.
fn print_rest(report: &CommitReport) {
    report::print(format_args!(
        "commit interrupted: {} put ({}), {} removed, {} left; run `zarrfs commit` to finish",
        report.put,
        format::bytes(report.bytes),
        report.erased,
        format::count(report.left, "change"),
    ));
}

/// Discards the changes at a path, or all changes; returns false if the user answered no.
pub(super) fn discard(args: &DiscardArgs) -> Result<bool> {
    upper::refuse_remote_options(&args.place)?;
    let path = match &args.path {
        Some(path) => {
            let path = path.strip_prefix("./").unwrap_or(path).trim_matches('/');
            if matches!(path, "" | ".") {
                let why = "this path would discard all changes: name another path, or use --all";
                return Err(Error::invalid("discard", why));
            }
            path.to_string()
        }
        None if args.all || confirm_all(&args.place)? => String::new(),
        None => {
            report::print("nothing was discarded");
            return Ok(false);
        }
    };
    match upper::execute(&args.place, &ControlRequest::Discard { path })? {
        ControlAnswer::Discard(report) => {
            print_discard(&report);
            Ok(true)
        }
        _ => Err(mismatch()),
    }
}

fn print_discard(report: &DiscardReport) {
    if report.discarded + report.stored == 0 {
        report::print("nothing to discard");
        return;
    }
    let count = format::count(report.discarded, "change");
    report::print(format_args!("{count} discarded"));
    if report.stored > 0 {
        let keys = format::count(report.stored, "key");
        report::print(format_args!(
            "{keys} already committed by an interrupted commit; the store keeps the new content"
        ));
    }
}

/// Asks on a terminal whether to discard all changes. Without a terminal the answer is yes only if there are no
/// changes, and `Invalid` otherwise.
fn confirm_all(place: &PlaceArgs) -> Result<bool> {
    let ControlAnswer::Status(status) = upper::execute(place, &ControlRequest::Status)? else {
        return Err(mismatch());
    };
    let others = status.kept.len() + status.in_writing.len();
    let count = status.put + status.erased + others as u64;
    if count == 0 {
        return Ok(true);
    }
    let changes = format::count(count, "change");
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        let why =
            format!("{changes} would be lost: name a path, or use --all to discard all changes");
        return Err(Error::invalid("discard", why));
    }
    report::prompt(format_args!(
        "Discard {changes} of {}? [y/N] ",
        status.store
    ));
    let mut answer = String::new();
    let read = io::stdin().read_line(&mut answer);
    read.map_err(|error| Error::os("the answer", error))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes" | "Yes"))
}

/// Returns the error if a mount answers a request with an answer of another kind.
fn mismatch() -> Error {
    Error::corrupt(
        "the mount",
        "unexpected response of the mount; unmount and mount again",
    )
}
