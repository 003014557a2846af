//! Rewrites the paths in errors to what the user typed.
//!
//! Internally a key is relative to the store's root, but the user typed a longer path: its longest leading part with
//! metadata is the store. A subject that is not a key (an option, a selection, another file) is unchanged.

use super::report;
use zarr_format::error::{Error, Result};
use zarr_format::model::document::is_document;
use zarrfs_export::inspect::locate::StorePath;
use zarrfs_store::Key;
use zarrfs_store::request_context::UNLIMITED;

/// Prefixes the key of an error with the store as typed.
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

/// Reports consolidated metadata that were requested but cannot be read.
pub(super) fn note_unread_copies(located: &StorePath) {
    for why in located.opened.hierarchy.unread_copies() {
        let store = &located.source;
        report::note(format_args!(
            "{store}: the consolidated metadata do not read: {why}"
        ));
    }
}

/// The note about nodes known only from attributes, in a store that cannot list.
pub(super) const NAMED_ONLY: &str = "named by attributes; other nodes are not known";

/// Whether an error is about a key: the typed path, a path below it, or a stored key.
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
        // If the key cannot be queried, the error is about it.
        let is_stored = || !matches!(store.head(&UNLIMITED, &key), Ok(None));
        !key.is_root() && (is_document(key.name()) || is_stored())
    })
}

/// Returns the store as typed: the part before the path in it. For a URL, which may contain secrets, returns the shown
/// source.
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

/// Appends a key to its store.
fn joined(base: &str, key: &str) -> String {
    let base = base.trim_end_matches('/');
    match (base, key) {
        (base, "/") => base.to_string(),
        ("", key) => key.to_string(),
        (base, key) => format!("{base}/{key}"),
    }
}
