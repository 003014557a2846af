//! `zarrfs check`: prints each finding at once, and a summary at the end.
//!
//! With `--json` the output is one object, but each finding is written into it at once, so that the findings take no
//! memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::cli::progress::{SHOW_AFTER, SHOW_EVERY};
use crate::cli::report::json_line;
use crate::cli::terminal::{wrap_width, wrapped};
use crate::cli::{CheckArgs, Mendable, format, report};
use crate::view::plain;
use zarr_check::{
    CheckContext, CheckCounts, CheckProgress, CheckSummary, Finding, INDENT, Severity,
    check as check_store, rebuild_consolidated,
};
use zarr_format::error::{Error, Result, printable};
use zarrfs_array::array::Arrays;
use zarrfs_array::hierarchy::{NodeEntry, ReconsolidatedDocument};
use zarrfs_export::inspect::locate::StorePath;
use zarrfs_store::request_context::UNLIMITED;

/// Runs `zarrfs check`; returns whether the store has no errors.
pub(super) fn check(args: &CheckArgs) -> Result<bool> {
    let located = open(args)?;
    let rebuilt = match args.fix {
        Some(Mendable::Consolidated) => {
            // The rebuild of consolidated metadata has its own context, since the context of the check must count names
            // from zero.
            let context = context(args, &located);
            rebuild_consolidated(&context, &start(&context, &located)?)?
        }
        None => Vec::new(),
    };
    let context = context(args, &located);
    let start = start(&context, &located)?;
    let bar = ProgressBar::new_spinner();
    let mut printer = Printer {
        is_json: args.json,
        count: 0,
        bar: &bar,
    };
    let is_done = AtomicBool::new(false);
    printer.begin(&located, args.fix.is_some().then_some(rebuilt.as_slice()));
    let summary = thread::scope(|scope| {
        let show = || show_progress(&bar, &context.progress, &is_done);
        // If no thread can be started, the check runs without showing its progress.
        let drawing = thread::Builder::new().spawn_scoped(scope, show).ok();
        let summary = check_store(&context, &start, &mut |finding| printer.finding(finding));
        is_done.store(true, Ordering::Release);
        if let Some(drawing) = drawing {
            drawing.thread().unpark();
        }
        summary
    });
    bar.finish_and_clear();
    printer.end(&located, &summary, &context.progress);
    Ok(summary.count(Severity::Error) == 0)
}

/// Opens the store to check; with --fix it is opened for writing, or for writing to the changes directory of --cow.
fn open(args: &CheckArgs) -> Result<StorePath> {
    match (&args.cow, args.yes) {
        _ if args.fix.is_none() => args.store.open(&args.path),
        (None, false) => {
            let why =
                "add --yes to change the store, or --cow CHANGES to write to a changes directory";
            Err(Error::invalid("--fix", why))
        }
        (upper, _) => args.store.open_to_write(&args.path, upper.as_deref()),
    }
}

/// Returns the group or array where the check starts.
fn start(context: &CheckContext, located: &StorePath) -> Result<Arc<NodeEntry>> {
    let missing = || Error::not_found(format!("{}/{}", located.source, located.path));
    context
        .hierarchy
        .node(&UNLIMITED, &located.path)?
        .ok_or_else(missing)
}

fn context(args: &CheckArgs, located: &StorePath) -> CheckContext {
    CheckContext {
        hierarchy: located.opened.hierarchy.clone(),
        arrays: located.opened.arrays.clone(),
        memory: located.opened.memory.clone(),
        data: args.data,
        is_remote: zarrfs_store::local_folder(&located.source).is_none(),
        threads: located.concurrency,
        notes,
        progress: Arc::default(),
    }
}

/// Returns sentences that say which plain Zarr views omit a node, and why.
fn notes(arrays: &Arc<Arrays>, entry: &Arc<NodeEntry>) -> Vec<String> {
    let limits = plain::limits_of(arrays, entry).into_iter();
    let left_out = limits.filter(|limit| limit.is_left_out);
    left_out
        .map(|limit| format!("not in the view {}: {}", limit.target.name, limit.reason))
        .collect()
}

/// Shows the progress of a long check until it is done; indicatif draws nothing if stderr is not a terminal.
fn show_progress(bar: &ProgressBar, progress: &CheckProgress, is_done: &AtomicBool) {
    let started = Instant::now();
    let style = ProgressStyle::with_template("{spinner} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    while !is_done.load(Ordering::Acquire) {
        thread::park_timeout(SHOW_EVERY);
        if started.elapsed() >= SHOW_AFTER {
            let CheckCounts {
                nodes,
                keys,
                chunks,
                bytes,
            } = progress.counts();
            let data = match chunks {
                0 => String::new(),
                _ => format!(", {chunks} chunks decoded, {}", format::size(bytes)),
            };
            bar.set_message(format!("{nodes} nodes, {keys} keys{data}"));
            bar.tick();
        }
    }
}

/// Prints the findings of a check, as text or JSON, as they are found.
struct Printer<'a> {
    is_json: bool,
    count: u64,
    bar: &'a ProgressBar,
}

impl Printer<'_> {
    fn begin(&self, located: &StorePath, rebuilt: Option<&[ReconsolidatedDocument]>) {
        if !self.is_json {
            rebuilt.unwrap_or_default().iter().for_each(print_rebuilt);
            return;
        }
        let path = String::from_utf8_lossy(located.path.as_bytes()).into_owned();
        let [store, path] = [json!(located.source), json!(path)].map(|name| json_line(&name));
        let rebuilt = match rebuilt {
            Some(rebuilt) => {
                let rebuilt: Vec<Value> = rebuilt.iter().map(rebuilt_to_json).collect();
                format!("\"fixed\": {}, ", json_line(&json!(rebuilt)))
            }
            None => String::new(),
        };
        report::print(format_args!(
            "{{\"store\": {store}, \"path\": {path}, {rebuilt}\"findings\": ["
        ));
    }

    fn finding(&mut self, finding: &Finding) {
        self.bar.suspend(|| match (self.is_json, self.count) {
            (false, _) => print_text(finding),
            (true, 0) => report::print(json_line(&finding.to_json())),
            (true, _) => report::print(format_args!(", {}", json_line(&finding.to_json()))),
        });
        self.count += 1;
    }

    fn end(&self, located: &StorePath, summary: &CheckSummary, progress: &CheckProgress) {
        if self.is_json {
            let summary = json_line(&to_json(summary, progress));
            report::print(format_args!("], \"summary\": {summary}}}"));
        } else {
            let line = in_words(located, summary, progress);
            match wrap_width() {
                Some(width) => wrapped(&line, width).iter().for_each(report::print),
                None => report::print(line),
            }
        }
    }
}

/// Prints a finding as text; on a terminal, lines are wrapped at the terminal's width.
fn print_text(finding: &Finding) {
    let text = finding.to_text();
    let Some(width) = wrap_width() else {
        return report::print(text);
    };
    for line in text.lines() {
        let pieces = wrapped(line.trim_start(), width.saturating_sub(INDENT.len()));
        for (place, piece) in pieces.iter().enumerate() {
            let is_first = place == 0 && !line.starts_with(INDENT);
            report::print(format_args!(
                "{}{piece}",
                if is_first { "" } else { INDENT }
            ));
        }
    }
}

fn print_rebuilt(rebuilt: &ReconsolidatedDocument) {
    let ReconsolidatedDocument {
        key,
        made,
        changed,
        removed,
        is_put,
    } = rebuilt;
    if *is_put {
        report::print(format_args!(
            "fixed: {key}: copies: {made} added, {changed} changed, {removed} removed"
        ));
    } else {
        report::print(format_args!("{key}: nothing to fix"));
    }
}

fn rebuilt_to_json(rebuilt: &ReconsolidatedDocument) -> Value {
    json!({
        "key": String::from_utf8_lossy(rebuilt.key.as_bytes()),
        "made": rebuilt.made,
        "changed": rebuilt.changed,
        "removed": rebuilt.removed,
        "is_put": rebuilt.is_put,
    })
}

fn to_json(summary: &CheckSummary, progress: &CheckProgress) -> Value {
    let counts = progress.counts();
    json!({
        "dialects": summary.dialects,
        "arrays": summary.arrays,
        "groups": summary.groups,
        "unreadable": summary.unreadable,
        "keys": counts.keys,
        "chunks_decoded": counts.chunks,
        "bytes_decoded": counts.bytes,
        "errors": summary.count(Severity::Error),
        "warnings": summary.count(Severity::Warning),
        "advice": summary.count(Severity::Advice),
    })
}

/// Returns the summary of a check as one line of text.
fn in_words(located: &StorePath, summary: &CheckSummary, progress: &CheckProgress) -> String {
    let mut place = printable(&located.source);
    if !located.path.is_root() {
        place.push_str(&format!("/{}", located.path));
    }
    let dialects: Vec<&str> = summary.dialects.iter().copied().collect();
    let dialects = match dialects.as_slice() {
        [] => String::new(),
        some => format!("{}, ", some.join(" and ")),
    };
    let CheckCounts { keys, chunks, .. } = progress.counts();
    let arrays = format::count(summary.arrays, "array");
    let groups = format::count(summary.groups, "group");
    let decoded = match chunks {
        0 => String::new(),
        _ => format!(", {} decoded", format::count(chunks, "chunk")),
    };
    let errors = format::count(summary.count(Severity::Error), "error");
    let warnings = format::count(summary.count(Severity::Warning), "warning");
    let advice = summary.count(Severity::Advice);
    let keys = format::count(keys, "name");
    format!(
        "{place}: {dialects}{arrays} in {groups}, {keys}{decoded}: {errors}, {warnings}, {advice} advice"
    )
}
