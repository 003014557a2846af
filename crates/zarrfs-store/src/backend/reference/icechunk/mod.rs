//! Opens Icechunk repositories as stores: one snapshot, or all branches, tags and snapshots.
//!
//! Specifications 1, 2 and 2.1 of the format are read. The format is FlatBuffers tables in compressed files. zarrfs has
//! its own reader that checks every position, since repositories come from anybody.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use percent_encoding::percent_decode_str;

use crate::backend::current::{Checked, Current, Source};
use crate::backend::reference::ReferenceStore;
use crate::backend::reference::targets::Targets;
use crate::request_context::RequestContext;
use crate::sync::budget::MemoryBudget;
use crate::{ArchiveGeneration, FOREVER, Store, StoreInfo};
use zarr_format::error::{Error, Kind, Result};

mod file;
mod flatbuffer;
#[cfg(test)]
mod hostile;
mod manifest;
mod refs;
mod repository;
mod snapshot;

use refs::RefsStore;
use repository::Repository;
pub(crate) use repository::is_repository;
use snapshot::Snapshot;

/// The stores through which an Icechunk repository's files are read. Their caches differ, since some files change.
pub(crate) struct RepositoryStores {
    /// The store for branches, tags and the `repo` file, which change.
    pub(crate) heads: Arc<dyn Store>,
    /// The store for all other files, which never change once written.
    pub(crate) objects: Arc<dyn Store>,
}

/// An Icechunk repository that was opened at one revision.
pub struct Icechunk {
    repository: Arc<Repository>,
    revision: Revision,
    targets: Arc<Targets>,
}

impl Icechunk {
    /// Opens an Icechunk repository at a revision. `targets` has the store of its files and the allowed virtual chunks.
    pub(crate) fn new(
        stores: RepositoryStores,
        revision: Revision,
        targets: Arc<Targets>,
        memory: &Arc<MemoryBudget>,
    ) -> Icechunk {
        let RepositoryStores { heads, objects } = stores;
        Icechunk {
            repository: Arc::new(Repository::new(heads, objects, memory)),
            revision,
            targets,
        }
    }

    /// Returns the revision as a Zarr store. The error is `NotFound` if there is no such branch, tag or snapshot.
    pub(crate) fn store(&self, context: &RequestContext) -> Result<Arc<dyn Store>> {
        self.store_of(context, &self.revision)
    }

    /// Returns any revision of the repository as a Zarr store.
    fn store_of(&self, context: &RequestContext, revision: &Revision) -> Result<Arc<dyn Store>> {
        let source = RevisionSource {
            repository: self.repository.clone(),
            revision: revision.clone(),
        };
        let base = self.repository.heads().info();
        let (opened, stamp) = base.ask(context, |context| source.open(context));
        let first = Checked::new(opened?, stamp.request_time);
        let info = self.info(revision);
        let replacements = info.archive_generation.clone();
        let current = Current::new(source, first, replacements);
        let targets = self.targets.clone();
        Ok(Arc::new(ReferenceStore::new(current, targets, info)))
    }

    /// Returns the properties of a revision's store. A tag or snapshot never changes, so it may be cached forever.
    fn info(&self, revision: &Revision) -> StoreInfo {
        let base = self.repository.heads().info();
        let freshness = match revision {
            Revision::Branch(_) => base.freshness,
            Revision::Tag(_) | Revision::Snapshot(_) => FOREVER,
        };
        StoreInfo {
            concurrency: base.concurrency,
            server: base.server.clone(),
            clock: base.clock.clone(),
            unchangeable: Some(
                "Icechunk repositories are read-only: use --cow CHANGES for changes, and 'zarrfs commit --to' to write \
                 a new store",
            ),
            ..StoreInfo::new(freshness)
        }
    }

    /// Returns a store with a directory for each branch, tag and snapshot: `branch/NAME`, `tag/NAME`, `snapshot/ID`.
    pub fn refs(self: &Arc<Self>) -> Arc<dyn Store> {
        let info = StoreInfo {
            archive_generation: Arc::new(ArchiveGeneration::default()),
            ..self.info(&Revision::default())
        };
        let memory = self.repository.memory().clone();
        Arc::new(RefsStore::new(self.clone(), memory, info))
    }

    /// Returns the history of the revision as text, the latest commit first: identifier, time and first line of the
    /// message.
    pub fn log(&self, context: &RequestContext) -> Result<String> {
        let commits = self.repository.history(context, &self.revision)?;
        let line = |commit: &repository::Commit| {
            format!("{}  {}  {}\n", commit.id, utc(commit.time), commit.title)
        };
        Ok(commits.iter().map(line).collect())
    }

    /// Returns the revision at which the repository was opened.
    pub fn revision(&self) -> &Revision {
        &self.revision
    }

    fn names(&self, context: &RequestContext, kind: &str) -> Result<Vec<String>> {
        self.repository.names(context, kind)
    }
}

/// Formats a time, in microseconds since 1970, like `2026-11-30T09:00:00Z`.
fn utc(microseconds: u64) -> String {
    // A time after the year 9999 has no such text, so it is shown as that year's last second.
    let seconds = (microseconds / 1_000_000).min(253_402_300_799);
    let time = UNIX_EPOCH + Duration::from_secs(seconds);
    humantime::format_rfc3339_seconds(time).to_string()
}

/// Reads the snapshot that a revision of an Icechunk repository names.
struct RevisionSource {
    repository: Arc<Repository>,
    revision: Revision,
}

impl RevisionSource {
    fn open(&self, context: &RequestContext) -> Result<Arc<Snapshot>> {
        let id = self.repository.resolve(context, &self.revision)?;
        let snapshot = self.repository.snapshot(context, id);
        let is_typed = matches!(self.revision, Revision::Snapshot(_));
        if is_typed && snapshot.is_err() && !self.repository.has_snapshot(context, id)? {
            let why = "the Icechunk repository has no such snapshot";
            return Err(Error::new(Kind::NotFound, &self.revision, why));
        }
        snapshot
    }
}

impl Source for RevisionSource {
    type Content = Snapshot;

    fn info(&self) -> &StoreInfo {
        self.repository.heads().info()
    }

    /// Reads the snapshot again if the revision is a branch and the branch has a new commit.
    fn refresh(&self, context: &RequestContext, old: &Arc<Snapshot>) -> Result<Arc<Snapshot>> {
        if !matches!(self.revision, Revision::Branch(_)) {
            return Ok(old.clone());
        }
        let id = self.repository.resolve(context, &self.revision);
        let id = id.map_err(|error| match error.kind() {
            // A branch that was deleted does not make its chunks missing, since missing chunks would read as the fill
            // value.
            Kind::NotFound => Error::unavailable(&self.revision, error.detail()),
            _ => error,
        })?;
        if id == old.id {
            return Ok(old.clone());
        }
        self.repository.snapshot(context, id)
    }
}

/// The version of an Icechunk repository that is read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Revision {
    /// The latest snapshot of a branch, which changes with each commit.
    Branch(String),
    /// The snapshot that a tag names.
    Tag(String),
    /// The snapshot that has this identifier.
    Snapshot(String),
}

impl Default for Revision {
    fn default() -> Revision {
        Revision::Branch("main".to_string())
    }
}

impl Revision {
    /// Parses the revision in a URL's query: `branch=NAME`, `tag=NAME` or `snapshot=ID`. Returns `None` if the query
    /// names none; the error is `Invalid` if it names two, or an empty one.
    pub fn in_query(query: &str) -> Result<Option<Revision>> {
        let mut named = query.split('&').filter_map(|part| {
            let (kind, name) = part.split_once('=')?;
            let kind: fn(String) -> Revision = match kind {
                "branch" => Revision::Branch,
                "tag" => Revision::Tag,
                "snapshot" => Revision::Snapshot,
                _ => return None,
            };
            Some(kind(
                percent_decode_str(name).decode_utf8_lossy().into_owned(),
            ))
        });
        let Some(first) = named.next() else {
            return Ok(None);
        };
        if named.next().is_some() {
            return Err(Error::invalid(
                query,
                "name one branch, tag or snapshot, not several",
            ));
        }
        first.checked().map(Some)
    }

    /// Checks the name of a branch, tag or snapshot. The error is `Invalid` if the name is not possible.
    pub fn checked(self) -> Result<Revision> {
        let name = self.name();
        if name.is_empty() || name.contains('/') || name == "." || name == ".." {
            let why = "names of branches, tags and snapshots are not empty and have no slash";
            return Err(Error::invalid(name, why));
        }
        Ok(self)
    }

    /// Returns the name of the branch or tag, or the identifier of the snapshot.
    pub fn name(&self) -> &str {
        match self {
            Revision::Branch(name) | Revision::Tag(name) | Revision::Snapshot(name) => name,
        }
    }

    /// Returns the kind of revision as a word: `branch`, `tag` or `snapshot`.
    pub fn kind(&self) -> &'static str {
        match self {
            Revision::Branch(_) => "branch",
            Revision::Tag(_) => "tag",
            Revision::Snapshot(_) => "snapshot",
        }
    }
}

impl fmt::Display for Revision {
    /// Writes the revision as it stands in a URL, such as `branch=main`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.kind(), self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_utc() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_796_029_199, "2026-11-30T08:59:59Z"),
        ] {
            assert_eq!(utc(seconds * 1_000_000), expected);
        }
        assert_eq!(utc(u64::MAX), "9999-12-31T23:59:59Z");
    }

    #[test]
    fn a_query_selects_at_most_one_revision() {
        let branch = Revision::Branch("dev".to_string());
        assert_eq!(Revision::in_query("x=1&branch=dev").unwrap(), Some(branch));
        let tag = Revision::Tag("a b".to_string());
        assert_eq!(Revision::in_query("tag=a%20b").unwrap(), Some(tag));
        assert_eq!(Revision::in_query("sig=1").unwrap(), None);
        for query in ["branch=a&tag=b", "branch=", "tag=a%2fb", "tag=.."] {
            assert!(Revision::in_query(query).is_err(), "{query}");
        }
    }
}
