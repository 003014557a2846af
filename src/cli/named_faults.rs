//! Faults of a store as a command prints them: a key is named as it would be typed.
//!
//! Below the command line a key is counted from the store's root, which is not what was typed: the longest leading part of a
//! path with metadata is the store. What is no key (an option, a selection, another file) is named as it is.

use super::report;
use zarr_format::error::{Error, Result};
use zarr_format::model::document::is_document;
use zarrfs_export::inspect::locate::StorePath;
use zarrfs_store::Key;
use zarrfs_store::request_context::UNLIMITED;

/// Names the key that a fault of a store is about as a continuation of what was typed.
pub(super) fn named<T>(located: &StorePath, typed: &str, outcome: Result<T>) -> Result<T> {
    outcome.map_err(|error| {
        if is_key(located, error.subject()) {
            let name = joined(&base(located, typed), error.subject());
            Error::new(error.kind(), name, error.detail())
        } else {
            error
        }
    })
}

/// Prints which consolidated metadata did not read, though they were wanted.
pub(super) fn note_unread_copies(located: &StorePath) {
    for why in located.opened.hierarchy.unread_copies() {
        let store = &located.source;
        report::note(format_args!(
            "{store}: the consolidated metadata do not read: {why}"
        ));
    }
}

/// What is said of nodes that attributes name where the store cannot list.
pub(super) const NAMED_ONLY: &str = "named by attributes; other nodes are not known";

/// Whether a fault is about a key: of what was typed, of something below it, or of what the store has.
fn is_key(located: &StorePath, subject: &str) -> bool {
    let path = located.path.to_string();
    let is_below = subject
        .strip_prefix(&path)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if subject == "/" || (is_below && !located.path.is_root()) {
        return true;
    }
    let store = &located.opened.stack.store;
    Key::new(subject).is_ok_and(|key| {
        // A key that cannot be asked about is what the fault says.
        let is_stored = || !matches!(store.head(&UNLIMITED, &key), Ok(None));
        !key.is_root() && (is_document(key.name()) || is_stored())
    })
}

/// Returns the store as it was typed: what stands before the path in it. A URL may hold secrets, which are left out.
fn base(located: &StorePath, typed: &str) -> String {
    let typed = typed.trim_end_matches('/');
    if typed.is_empty() || typed.contains("://") {
        return located.source.clone();
    }
    if located.path.is_root() {
        return typed.to_string();
    }
    match typed.strip_suffix(&located.path.to_string()) {
        Some("") => String::new(),
        Some(base) if base.ends_with('/') => base.to_string(),
        _ => located.source.clone(),
    }
}

/// Puts a key behind its store.
fn joined(base: &str, key: &str) -> String {
    let base = base.trim_end_matches('/');
    match (base, key) {
        (base, "/") => base.to_string(),
        ("", key) => key.to_string(),
        (base, key) => format!("{base}/{key}"),
    }
}
