//! What a person means by STORE/PATH: the store, and the path in it.
//!
//! The longest leading part with metadata at its root is the store, so that a group or an array opens by itself, and a
//! key or a node of a draft, whose documents lie elsewhere, opens by way of the store that it is in. A folder without
//! metadata in it or above it is a store as it stands.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use percent_encoding::percent_decode_str;

use crate::inspect::access::{AccessConfig, OpenedStore};
use crate::inspect::unlisted_store::UnlistedStore;
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::stats::Stats;
use zarrfs_store::{Key, StoreStack};

/// What a person pointed at.
pub struct StorePath {
    /// The store.
    pub opened: OpenedStore,
    /// Its path or URL, without secrets.
    pub source: String,
    /// The path in it, of a node or a key; whether there is anything is not known.
    pub path: Key,
    /// How many things of the store are asked for at a time.
    pub concurrency: usize,
    /// How it was opened; holds secrets.
    pub config: AccessConfig,
}

impl StorePath {
    /// Opens the store once more; `put_over` puts on it what lies below the hierarchy. Fails as `OpenedStore::open` does.
    pub fn reopened(
        self,
        context: &RequestContext,
        stats: &Arc<Stats>,
        put_over: impl FnOnce(StoreStack) -> Result<StoreStack>,
    ) -> Result<StorePath> {
        let opened = OpenedStore::open(context, &self.config, stats, |stack, _| put_over(stack))?;
        Ok(StorePath { opened, ..self })
    }
}

/// Where to look for the store, beside the path or URL itself.
#[derive(Clone, Debug, Default)]
pub struct SearchBounds {
    /// A folder that the path begins with and that is a store whatever it holds: nothing above it is looked at.
    pub base: Option<PathBuf>,
    /// Whether the store does not list all keys that it has.
    pub unlisted: bool,
}

/// The most parts of a URL that are looked at from its end: each costs requests.
const MAX_URL_PARTS: usize = 16;

/// Opens the store that a location means, and finds the path in it.
///
/// Fails as `OpenedStore::open` does for the location itself if no part of it is a store.
pub fn locate(
    context: &RequestContext,
    config: &AccessConfig,
    bounds: &SearchBounds,
    stats: &Arc<Stats>,
) -> Result<StorePath> {
    let mut own = None;
    for (source, path) in candidates(&config.source, bounds)? {
        let found = open(context, config, bounds, &source, path, stats);
        let is_whole = own.is_none();
        match found {
            Ok((found, true)) => return Ok(found),
            // The location itself, or the folder that is a store in any case.
            Ok((found, false)) if is_whole || is_base(bounds, &source) => own = Some(Ok(found)),
            Ok(_) => {}
            Err(error) if may_be_above(error.kind()) || !is_whole => {
                own = Some(own.unwrap_or(Err(error)));
            }
            Err(error) => return Err(error),
        }
    }
    own.unwrap_or_else(|| Err(Error::not_found(zarrfs_store::shown(&config.source))))
}

/// Opens a part of the location; returns whether its root has metadata, too.
fn open(
    context: &RequestContext,
    config: &AccessConfig,
    bounds: &SearchBounds,
    source: &str,
    path: Result<Key>,
    stats: &Arc<Stats>,
) -> Result<(StorePath, bool)> {
    let config = AccessConfig {
        source: source.to_string(),
        ..config.clone()
    };
    let opened = OpenedStore::open(context, &config, stats, |mut stack, _| {
        if bounds.unlisted {
            stack.store = Arc::new(UnlistedStore::new(stack.store));
        }
        Ok(stack)
    })?;
    let root = opened.hierarchy.root(context)?;
    let located = StorePath {
        opened,
        source: zarrfs_store::shown(source),
        path: path?,
        concurrency: config.concurrency(),
        config,
    };
    Ok((located, root.is_some_and(|root| root.version != 0)))
}

/// Whether a location that fails in this way may be a path in a store above it.
fn may_be_above(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::NotFound | Kind::NotADirectory | Kind::Invalid | Kind::Denied | Kind::NameTooLong
    )
}

fn is_base(bounds: &SearchBounds, source: &str) -> bool {
    let base = bounds.base.as_deref();
    base.is_some_and(|base| base == Path::new(source))
}

/// The path or URL of what may be a store, and what follows it.
type Candidate = (String, Result<Key>);

/// Returns the parts of a location that may be stores, the longest first.
fn candidates(location: &str, bounds: &SearchBounds) -> Result<Vec<Candidate>> {
    match zarrfs_store::local_folder(location) {
        Some(folder) => in_path(Path::new(&folder), bounds.base.as_deref()),
        None => Ok(in_url(&zarrfs_store::normalized(location))),
    }
}

fn in_path(path: &Path, base: Option<&Path>) -> Result<Vec<Candidate>> {
    let failed = |error| Error::os(path.display(), error);
    let mut whole = std::path::absolute(path).map_err(failed)?;
    if whole.components().any(|part| part == Component::ParentDir) {
        // What lies above a link is known to the kernel alone.
        whole = std::fs::canonicalize(&whole).map_err(failed)?;
    }
    // Drops a slash at the end.
    let whole: PathBuf = whole.components().collect();
    let parts = whole.ancestors();
    let within = parts.take_while(|part| base.is_none_or(|base| part.starts_with(base)));
    let candidates = within.map(|part| {
        let rest = whole.strip_prefix(part).unwrap_or(Path::new(""));
        let rest = Key::new(rest.as_os_str().as_encoded_bytes());
        (part.to_string_lossy().into_owned(), rest)
    });
    Ok(candidates.collect())
}

/// Cuts the path of a URL part by part; its query stays.
fn in_url(url: &str) -> Vec<Candidate> {
    let (path, query) = url.split_at(url.find(['?', '#']).unwrap_or(url.len()));
    let Some(host) = path.find("://").map(|end| end + 3) else {
        return vec![(url.to_string(), Ok(Key::root()))];
    };
    let path = path.trim_end_matches('/');
    let mut candidates = vec![(url.to_string(), Ok(Key::root()))];
    let mut end = path.len();
    while let Some(slash) = path.get(host..end).and_then(|rest| rest.rfind('/')) {
        if candidates.len() == MAX_URL_PARTS {
            break;
        }
        end = host + slash;
        let part = path.get(..end).unwrap_or_default();
        let rest = path.get(end + 1..).unwrap_or_default();
        candidates.push((format!("{part}{query}"), key_of(url, rest)));
    }
    candidates
}

/// Returns the key that a part of a URL names: escapes are undone for HTTP, and are part of the key in a bucket.
fn key_of(url: &str, part: &str) -> Result<Key> {
    if url.starts_with("http://") || url.starts_with("https://") {
        return Key::new(percent_decode_str(part).collect::<Vec<u8>>());
    }
    Key::new(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(candidates: Vec<Candidate>) -> Vec<(String, String)> {
        let shown = candidates.into_iter();
        shown
            .map(|(source, path)| (source, path.unwrap().to_string()))
            .collect()
    }

    #[test]
    fn urls_are_cut_at_their_path() {
        let found = shown(in_url("https://host:1/a.zarr/b%20c/d/?sig=x"));
        let expected = [
            ("https://host:1/a.zarr/b%20c/d/?sig=x", "/"),
            ("https://host:1/a.zarr/b%20c?sig=x", "d"),
            ("https://host:1/a.zarr?sig=x", "b c/d"),
            ("https://host:1?sig=x", "a.zarr/b c/d"),
        ];
        assert_eq!(found, expected.map(|(a, b)| (a.to_string(), b.to_string())));
        assert_eq!(in_url("memory:").len(), 1);
        assert_eq!(in_url("s3://bucket").len(), 1);
    }

    #[test]
    fn paths_are_cut_down_to_a_base() {
        let found = shown(in_path(Path::new("/a/b/c/"), Some(Path::new("/a/b"))).unwrap());
        let expected = [("/a/b/c", "/"), ("/a/b", "c")];
        assert_eq!(found, expected.map(|(a, b)| (a.to_string(), b.to_string())));
    }
}
