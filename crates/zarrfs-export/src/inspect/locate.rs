//! Splits STORE/PATH into a store and a path in it.
//!
//! The store is the longest prefix of STORE/PATH that has metadata at its root. So the path of a group or an array
//! opens that node as a store of its own, and the path of a single key opens the store above the key. The path of a
//! node in a Zarr v3 draft opens the store above the node as well, since a draft stores the documents of nodes in
//! another folder. If no prefix has metadata, STORE/PATH itself is opened as a store.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use percent_encoding::percent_decode_str;

use crate::inspect::opened_store::{AccessConfig, OpenedStore};
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::layer::Layer;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::stats::Stats;
use zarrfs_store::{Key, Store, StoreInfo, StoreStack};

/// An open store, and the path of a node or key in it.
pub struct StorePath {
    /// The open store.
    pub opened: OpenedStore,
    /// The path or URL of the store, without secrets.
    pub source: String,
    /// The path of the node or key in the store, which may not exist.
    pub path: Key,
    /// The maximum number of parallel requests to the store.
    pub concurrency: usize,
    /// The options with which the store was opened; they contain secrets.
    pub config: AccessConfig,
}

impl StorePath {
    /// Opens the store again, with additional layers that `put_over` puts between the store and the hierarchy. Fails as
    /// `OpenedStore::open` does.
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

/// Options of the search for the store in a location.
#[derive(Clone, Debug, Default)]
pub struct SearchBounds {
    /// A folder that is opened as a store even if it has no metadata. Folders above it are not searched.
    pub base: Option<PathBuf>,
    /// Whether the store is treated as one that cannot list its keys.
    pub unlisted: bool,
}

/// Opens the store in a location, and finds the rest of the location as a path in the store.
///
/// If no prefix of the location is a store, returns the error of opening the location itself.
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
            // A prefix without metadata is a store only if it is the complete location or the base folder.
            Ok((found, false)) if is_whole || is_base(bounds, &source) => own = Some(Ok(found)),
            Ok(_) => {}
            Err(error) if may_be_above(error.kind()) || !is_whole => {
                own = Some(own.unwrap_or(Err(error)));
            }
            Err(error) => return Err(error),
        }
    }
    let found =
        own.unwrap_or_else(|| Err(Error::not_found(zarrfs_store::redacted(&config.source))));
    found.map_err(|error| config.explained(context, error, stats))
}

/// Opens a prefix of the location as a store; also returns whether its root has metadata.
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
        source: zarrfs_store::redacted(source),
        path: path?,
        concurrency: config.concurrency(),
        config,
    };
    Ok((located, root.is_some_and(|root| root.version != 0)))
}

/// Whether a location that fails to open with this kind of error may be a path inside a store at one of its prefixes.
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

/// The path or URL of a folder that may be a store, and the rest of the location as a key in it.
type Candidate = (String, Result<Key>);

/// Returns the prefixes of a location that may be stores, the longest first.
fn candidates(location: &str, bounds: &SearchBounds) -> Result<Vec<Candidate>> {
    match zarrfs_store::local_folder(location) {
        Some(folder) => {
            let (_, revision) = zarrfs_store::split_revision(location)?;
            let candidates = in_path(Path::new(&folder), bounds.base.as_deref())?.into_iter();
            let at = |(place, rest)| (zarrfs_store::at_revision(place, revision.clone()), rest);
            Ok(candidates.map(at).collect())
        }
        None => Ok(in_url(&zarrfs_store::normalized(location))),
    }
}

fn in_path(path: &Path, base: Option<&Path>) -> Result<Vec<Candidate>> {
    let failed = |error| Error::os(path.display(), error);
    let mut whole = std::path::absolute(path).map_err(failed)?;
    if whole.components().any(|part| part == Component::ParentDir) {
        // Only `canonicalize` can resolve `..`, because after a symbolic link it means the parent of the link's target.
        whole = std::fs::canonicalize(&whole).map_err(failed)?;
    }
    // Collecting the components drops a trailing slash.
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

/// Splits the path of a URL at each slash into the URL of a possible store and a key; each URL keeps the query.
fn in_url(url: &str) -> Vec<Candidate> {
    let (path, query) = url.split_at(url.find(['?', '#']).unwrap_or(url.len()));
    let Some(host) = path.find("://").map(|end| end + 3) else {
        return vec![(url.to_string(), Ok(Key::root()))];
    };
    let path = path.trim_end_matches('/');
    let mut candidates = vec![(url.to_string(), Ok(Key::root()))];
    let mut end = path.len();
    while let Some(slash) = path.get(host..end).and_then(|rest| rest.rfind('/')) {
        // At most 16 prefixes are tried, because each costs requests.
        if candidates.len() == 16 {
            break;
        }
        end = host + slash;
        let part = path.get(..end).unwrap_or_default();
        let rest = path.get(end + 1..).unwrap_or_default();
        candidates.push((format!("{part}{query}"), key_of(url, rest)));
    }
    candidates
}

/// Converts a part of a URL to a key. In HTTP URLs, percent escapes stand for bytes of the key; in the URL of a bucket,
/// a percent sign is itself a byte of the key.
fn key_of(url: &str, part: &str) -> Result<Key> {
    if url.starts_with("http://") || url.starts_with("https://") {
        return Key::new(percent_decode_str(part).collect::<Vec<u8>>());
    }
    Key::new(part)
}

/// Returns the name with which the names of the root's exported files begin: the store's name without an extension such
/// as `.zarr`.
pub fn root_name(source: &str) -> String {
    let split = zarrfs_store::split_revision(source);
    let source = &split.map_or_else(|_| source.to_string(), |(place, _)| place);
    let folder =
        zarrfs_store::local_folder(source).and_then(|folder| std::fs::canonicalize(folder).ok());
    let path = folder.map_or_else(
        || source.to_string(),
        |folder| folder.to_string_lossy().into_owned(),
    );
    let name = path
        .trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or_default();
    let bare = [".zip", ".ozx", ".zarr", ".n5"]
        .iter()
        .fold(name, |name, end| without_ending(name, end));
    if bare.is_empty() {
        "root".to_string()
    } else {
        bare.to_string()
    }
}

/// Removes an ending of a name, whose letters may be in upper or lower case.
fn without_ending<'a>(name: &'a str, ending: &str) -> &'a str {
    let parts = name
        .len()
        .checked_sub(ending.len())
        .and_then(|length| name.split_at_checked(length));
    match parts {
        Some((bare, end)) if end.eq_ignore_ascii_case(ending) => bare,
        _ => name,
    }
}

/// Hides that a store can list its keys.
pub(super) struct UnlistedStore {
    below: Arc<dyn Store>,
    info: StoreInfo,
}

impl UnlistedStore {
    pub(super) fn new(below: Arc<dyn Store>) -> UnlistedStore {
        let info = StoreInfo {
            lists: false,
            ..below.info().clone()
        };
        UnlistedStore { below, info }
    }
}

impl Layer for UnlistedStore {
    fn below(&self) -> &dyn Store {
        &*self.below
    }

    fn info(&self) -> &StoreInfo {
        &self.info
    }
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
    fn every_path_prefix_of_a_url_may_be_the_store() {
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
    fn folders_of_a_path_down_to_the_base_may_be_the_store() {
        let found = shown(in_path(Path::new("/a/b/c/"), Some(Path::new("/a/b"))).unwrap());
        let expected = [("/a/b/c", "/"), ("/a/b", "c")];
        assert_eq!(found, expected.map(|(a, b)| (a.to_string(), b.to_string())));
    }

    #[test]
    fn the_root_is_named_after_the_store() {
        assert_eq!(root_name("s3://bucket/a/data.zarr/"), "data");
        assert_eq!(root_name("s3://bucket/data.zarr.zip"), "data");
        assert_eq!(root_name("s3://bucket/data.zarr.ZIP"), "data");
        assert_eq!(root_name("s3://bucket/data.ozx?branch=main"), "data");
        assert_eq!(root_name("s3://bucket/data.zarr.zip/in/ner"), "ner");
        assert_eq!(root_name("s3://bucket/\u{e4}ip"), "\u{e4}ip");
        assert_eq!(root_name("/no/such/.zarr"), "root");
    }
}
