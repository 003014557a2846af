//! Reads the branches, tags and other files of an Icechunk repository.
//!
//! Specification 2 has branches, tags and history in one file, `repo`; specification 1 has an object for each branch
//! and tag. All other files never change once written, so they are read through a separate store whose caches have no
//! TTL.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;

use crate::request_context::RequestContext;
use crate::sync::budget::{MemoryBudget, Priority, Reservation};
use crate::sync::cache::Cache;
use crate::sync::single_flight::JOIN_TIMEOUT;
use crate::{EntryKind, Key, Store, Version};
use zarr_format::error::{Error, Kind, Result};

use super::Revision;
use super::file::{FileKind, Id, content, content_len};
use super::flatbuffer::{FlexValue, Table, damaged};
use super::manifest::Manifest;
use super::snapshot::Snapshot;

/// The file in which Icechunk specification 2 stores branches, tags and history.
const REPO_FILE: &str = "repo";

/// Maximum number of commits in the history.
const MAX_HISTORY: usize = 10_000;

/// Maximum time for which the read of an Icechunk file waits for memory.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(30);

/// Reads and caches the files of an Icechunk repository.
pub(crate) struct Repository {
    heads: Arc<dyn Store>,
    objects: Arc<dyn Store>,
    memory: Arc<MemoryBudget>,
    manifests: Arc<Cache<Id, Arc<Manifest>>>,
    repo_file: Mutex<Option<Arc<RepoFile>>>,
    /// The history that was computed last.
    history: Mutex<Option<History>>,
}

/// The `repo` file of Icechunk specification 2, which has branches, tags and history.
struct RepoFile {
    version: Version,
    buffer: Bytes,
    _memory: Reservation,
}

/// A commit in the history of an Icechunk repository.
pub(crate) struct Commit {
    pub(crate) id: String,
    /// Time of the commit, in microseconds since 1970.
    pub(crate) time: u64,
    /// The first line of the commit message.
    pub(crate) title: String,
}

/// The commits that led to the snapshot `first`.
#[derive(Clone)]
struct History {
    first: Id,
    commits: Arc<Vec<Commit>>,
}

/// Returns the first line of a commit message, without control characters, at most 200 characters of it.
fn title(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    line.chars()
        .filter(|letter| !letter.is_control())
        .take(200)
        .collect()
}

/// The decompressed content of an Icechunk file, and the reservation of the memory for it.
struct Content {
    buffer: Vec<u8>,
    memory: Reservation,
}

impl Repository {
    /// Opens the repository whose changing files are in `heads` and whose immutable files are in `objects`.
    pub(crate) fn new(
        heads: Arc<dyn Store>,
        objects: Arc<dyn Store>,
        memory: &Arc<MemoryBudget>,
    ) -> Repository {
        Repository {
            heads,
            objects,
            memory: memory.clone(),
            manifests: Cache::new(memory.clone(), Priority::Metadata, None),
            repo_file: Mutex::default(),
            history: Mutex::default(),
        }
    }

    /// Returns the memory budget for the repository's snapshots and manifests.
    pub(super) fn memory(&self) -> &Arc<MemoryBudget> {
        &self.memory
    }

    pub(super) fn heads(&self) -> &Arc<dyn Store> {
        &self.heads
    }

    /// Returns the identifier of the revision's snapshot. The error is `NotFound` if there is no such branch or tag.
    pub(super) fn resolve(&self, context: &RequestContext, revision: &Revision) -> Result<Id> {
        if let Revision::Snapshot(name) = revision {
            let why = "is no identifier of a snapshot, which has 20 digits and capital letters";
            return Id::parse(name).ok_or_else(|| Error::invalid(name, why));
        }
        match self.find(context, revision)? {
            Some(id) => Ok(id),
            None => Err(self.no_such(context, revision)),
        }
    }

    /// Returns the identifier of the snapshot of a branch or tag, or `None` if the branch or tag does not exist.
    fn find(&self, context: &RequestContext, revision: &Revision) -> Result<Option<Id>> {
        let is_known = self.repo_file.lock().is_some();
        if is_known || !context.may_wait() {
            return match self.repo_file(context)? {
                Some(file) => file.resolve(revision),
                None => self.resolve_ref(context, revision),
            };
        }
        // It is unknown which specification the repository has. The requests for both are sent concurrently, since each
        // takes a round trip to the server.
        let (file, found) = thread::scope(|scope| {
            let resolve = || self.resolve_ref(context, revision);
            let started = thread::Builder::new().spawn_scoped(scope, resolve);
            let file = self.repo_file(context);
            let found = match started.map(|thread| thread.join()) {
                Ok(Ok(found)) => found,
                // The thread could not be started or panicked, so the request is sent again from this thread.
                Ok(Err(_)) | Err(_) => resolve(),
            };
            (file, found)
        });
        match file? {
            Some(file) => file.resolve(revision),
            None => found,
        }
    }

    /// Returns the error for a missing branch or tag, which names the existing ones.
    fn no_such(&self, context: &RequestContext, revision: &Revision) -> Error {
        let kind = revision.kind();
        let names = self.names(context, kind).unwrap_or_default();
        let why = match names.as_slice() {
            [] if self.repo_file.lock().is_none() && !self.has_branch(context) => {
                "not an Icechunk repository, or none whose names the server lists: there is no file 'repo', and no such \
                 branch or tag in 'refs'"
                    .to_string()
            }
            [] => format!("the Icechunk repository has no such {kind}, and no other"),
            names => {
                let shown: Vec<&str> = names.iter().take(10).map(String::as_str).collect();
                let more = if names.len() > 10 { ", ..." } else { "" };
                let shown = shown.join(", ");
                format!("the Icechunk repository has no such {kind}; it has {shown}{more}")
            }
        };
        Error::new(Kind::NotFound, revision, why)
    }

    /// Whether the repository has a branch as specification 1 stores it.
    fn has_branch(&self, context: &RequestContext) -> bool {
        self.names(context, "branch")
            .is_ok_and(|names| !names.is_empty())
    }

    /// Returns the snapshot of a branch or tag as specification 1 stores it, or `None` if the branch or tag does not
    /// exist.
    fn resolve_ref(&self, context: &RequestContext, revision: &Revision) -> Result<Option<Id>> {
        let folder = Key::new(format!("refs/{}.{}", revision.kind(), revision.name()))?;
        if matches!(revision, Revision::Tag(_)) {
            let deleted = folder.child(b"ref.json.deleted")?;
            if self.heads.version(context, &deleted)?.is_some() {
                return Ok(None);
            }
        }
        let key = folder.child(b"ref.json")?;
        // A valid `ref.json` contains only an identifier, far less than 64 KiB.
        let Some(object) = self.heads.get(context, &key, 64 << 10)? else {
            return Ok(None);
        };
        let document: Option<Value> = serde_json::from_slice(&object.bytes).ok();
        let id = document
            .as_ref()
            .and_then(|document| document.get("snapshot")?.as_str());
        let id = id.and_then(Id::parse);
        id.map(Some)
            .ok_or_else(|| Error::corrupt(&key, "names no snapshot"))
    }

    /// Returns the sorted names of all branches, tags or snapshots; `kind` is `branch`, `tag` or `snapshot`.
    pub(super) fn names(&self, context: &RequestContext, kind: &str) -> Result<Vec<String>> {
        if let Some(file) = self.repo_file(context)? {
            return file.names(kind);
        }
        let (folder, prefix) = match kind {
            "snapshot" => ("snapshots", String::new()),
            kind => ("refs", format!("{kind}.")),
        };
        let folder = Key::new(folder)?;
        let mut names = Vec::new();
        let mut listing = match self.heads.list(context, &folder) {
            Err(error) if error.kind() == Kind::NotFound => return Ok(names),
            listing => listing?,
        };
        while let Some(name) = listing.next(context)? {
            let name = String::from_utf8_lossy(&name.name).into_owned();
            let Some(name) = name.strip_prefix(&prefix) else {
                continue;
            };
            // A directory does not prove that the tag or branch exists: that of a deleted tag contains a mark, and a
            // local directory of a deleted branch may remain.
            let revision = match kind {
                "tag" => Some(Revision::Tag(name.to_string())),
                "branch" if self.heads.info().folder.is_some() => {
                    Some(Revision::Branch(name.to_string()))
                }
                _ => None,
            };
            if let Some(revision) = revision
                && self.resolve_ref(context, &revision)?.is_none()
            {
                continue;
            }
            names.push(name.to_string());
        }
        names.sort();
        Ok(names)
    }

    /// Returns the current `repo` file, or `None` in a repository of specification 1.
    fn repo_file(&self, context: &RequestContext) -> Result<Option<Arc<RepoFile>>> {
        let key = Key::new(REPO_FILE)?;
        let last = self.repo_file.lock().clone();
        if let Some(last) = last
            && self.heads.version(context, &key)? == Some(last.version)
        {
            return Ok(Some(last));
        }
        let Some(object) = self.heads.get(context, &key, self.memory.limit())? else {
            return Ok(None);
        };
        let content = self.content(&object.bytes, FileKind::Repository);
        let content = content.map_err(|error| error.about(&key))?;
        let file = Arc::new(RepoFile {
            version: object.version,
            buffer: content.buffer.into(),
            _memory: content.memory,
        });
        *self.repo_file.lock() = Some(file.clone());
        Ok(Some(file))
    }

    /// Returns the URL prefix of a container of virtual chunks, or `None` if the repository does not define it. Sends a
    /// request only if the cached `repo` file does not define it.
    pub(super) fn container(&self, context: &RequestContext, name: &str) -> Result<Option<String>> {
        let last = self.repo_file.lock().clone();
        if let Some(prefix) = last.and_then(|last| last.container(name)) {
            return Ok(Some(prefix));
        }
        let file = self.repo_file(context)?;
        Ok(file.and_then(|file| file.container(name)))
    }

    pub(super) fn snapshot(
        self: &Arc<Self>,
        context: &RequestContext,
        id: Id,
    ) -> Result<Arc<Snapshot>> {
        let key = Key::new(format!("snapshots/{id}"))?;
        let content = self.read(context, &key, FileKind::Snapshot)?;
        let snapshot = Snapshot::new(content.buffer, self.clone(), content.memory);
        let snapshot = snapshot.map_err(|error| error.about(&key))?;
        if snapshot.id != id {
            // The versions of keys are made from the identifier inside the snapshot, so they would be those of another
            // snapshot.
            let why = format!("is the snapshot {}, under another name", snapshot.id);
            return Err(Error::corrupt(&key, why));
        }
        Ok(Arc::new(snapshot))
    }

    pub(super) fn has_snapshot(&self, context: &RequestContext, id: Id) -> Result<bool> {
        let key = Key::new(format!("snapshots/{id}"))?;
        Ok(self.objects.version(context, &key)?.is_some())
    }

    /// Returns a manifest, from the cache if possible.
    pub(super) fn manifest(&self, context: &RequestContext, id: Id) -> Result<Arc<Manifest>> {
        let deadline = Instant::now() + JOIN_TIMEOUT;
        self.manifests.load(context, &id, deadline, || {
            let key = Key::new(format!("manifests/{id}"))?;
            let content = self.read(context, &key, FileKind::Manifest)?;
            let manifest = Manifest::new(content.buffer, content.memory);
            manifest.map(Arc::new).map_err(|error| error.about(&key))
        })
    }

    /// Reads and decompresses a file. The error is `Unavailable` if the file is missing, because the repository refers
    /// to it.
    fn read(&self, context: &RequestContext, key: &Key, kind: FileKind) -> Result<Content> {
        let object = self.objects.get(context, key, self.memory.limit())?;
        let object = object.ok_or_else(|| {
            let why =
                "the repository names this file, but it is missing; was it garbage-collected?";
            Error::unavailable(key, why)
        })?;
        self.content(&object.bytes, kind)
            .map_err(|error| error.about(key))
    }

    /// Decompresses an Icechunk file within the memory budget.
    fn content(&self, file: &[u8], kind: FileKind) -> Result<Content> {
        let deadline = Instant::now() + MEMORY_TIMEOUT;
        let (mut memory, mut reserved) = match content_len(file) {
            Some(length) => (self.memory.reserve(length, deadline)?, length),
            None => {
                // The file does not state its decompressed length, so 8 times the compressed length is tried first.
                let length = (file.len() as u64).saturating_mul(8);
                let length = length.min(self.memory.limit() / 2);
                (self.memory.reserve(length, deadline)?, length)
            }
        };
        loop {
            match content(file, kind, reserved) {
                // The content was longer, so the file is decompressed again with twice the memory. That memory must be
                // free now: files that wait for memory while they have some could wait for each other.
                Err(error) if error.kind() == Kind::TooLarge => {
                    drop(memory);
                    reserved = reserved.saturating_mul(2);
                    memory = self.memory.try_reserve(reserved).ok_or(error)?;
                }
                buffer => {
                    let buffer = buffer?;
                    memory.shrink(buffer.len() as u64);
                    return Ok(Content { buffer, memory });
                }
            }
        }
    }

    /// Reserves memory for names that are computed from manifests.
    pub(super) fn reserve(&self, bytes: usize) -> Result<Reservation> {
        self.memory
            .reserve(bytes as u64, Instant::now() + MEMORY_TIMEOUT)
    }

    /// Returns the commits that led to a revision, the latest first, at most 10,000.
    pub(crate) fn history(
        self: &Arc<Self>,
        context: &RequestContext,
        revision: &Revision,
    ) -> Result<Arc<Vec<Commit>>> {
        let first = self.resolve(context, revision)?;
        let last = self.history.lock().clone();
        if let Some(last) = last.filter(|last| last.first == first) {
            return Ok(last.commits);
        }
        let commits = match self.repo_file(context)? {
            Some(file) => file.history(first)?,
            None => self.history_of_parents(context, first)?,
        };
        let commits = Arc::new(commits);
        *self.history.lock() = Some(History {
            first,
            commits: commits.clone(),
        });
        Ok(commits)
    }

    /// Returns the history in specification 1, in which each snapshot names its parent.
    fn history_of_parents(
        self: &Arc<Self>,
        context: &RequestContext,
        first: Id,
    ) -> Result<Vec<Commit>> {
        let (mut commits, mut seen, mut next) = (Vec::new(), HashSet::new(), Some(first));
        while let Some(id) = next {
            if commits.len() == MAX_HISTORY || !seen.insert(id) {
                break;
            }
            let snapshot = match self.snapshot(context, id) {
                // Icechunk has expired the older snapshots, so the history ends here.
                Err(error) if error.kind() == Kind::Unavailable && !commits.is_empty() => break,
                snapshot => snapshot?,
            };
            commits.push(Commit {
                id: id.to_string(),
                time: snapshot.flushed_at()?,
                title: title(snapshot.message()?),
            });
            next = snapshot.parent()?;
        }
        Ok(commits)
    }
}

impl RepoFile {
    fn root(&self) -> Result<Table<'_>> {
        Table::root(&self.buffer)
    }

    /// Returns the identifier of the snapshot of a branch or tag, or `None` if the branch or tag does not exist.
    fn resolve(&self, revision: &Revision) -> Result<Option<Id>> {
        let root = self.root()?;
        let refs = root.tables(match revision {
            Revision::Tag(_) => 1,
            _ => 2,
        })?;
        for named in refs.iter_tables() {
            let named = named?;
            if named.bytes(0)? == Some(revision.name().as_bytes()) {
                let index = usize::try_from(named.u32(1)?).map_err(|_| damaged())?;
                let snapshot = root.tables(4)?.table(index)?;
                return snapshot.fixed(0)?.map(Id).map(Some).ok_or_else(damaged);
            }
        }
        Ok(None)
    }

    fn names(&self, kind: &str) -> Result<Vec<String>> {
        let root = self.root()?;
        let mut names = Vec::new();
        if kind == "snapshot" {
            for info in root.tables(4)?.iter_tables() {
                names.push(info?.fixed(0)?.map(Id).ok_or_else(damaged)?.to_string());
            }
        } else {
            let mut length = 0;
            for named in root
                .tables(if kind == "tag" { 1 } else { 2 })?
                .iter_tables()
            {
                let name = named?.required_text(0)?;
                // A hostile file may let many names share bytes, so that a small file would give endless names. So the
                // names' total length is limited; in a valid file each name has its own bytes.
                length += name.len();
                if length > self.buffer.len() {
                    return Err(damaged());
                }
                names.push(name.to_string());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Returns the URL prefix of a container of virtual chunks, or `None` if there is no such container.
    fn container(&self, name: &str) -> Option<String> {
        let config = self.root().ok()?.bytes(9).ok()??;
        let containers = FlexValue::root(config)?.get("virtual_chunk_containers")?;
        let mut entries = containers.entries()?;
        entries.find_map(|(key, value)| {
            let own_name = value.get("name").and_then(FlexValue::text);
            let is_named = own_name.map_or(key == name.as_bytes(), |own| own == name);
            is_named.then(|| value.get("url_prefix")?.text().map(str::to_string))?
        })
    }

    fn history(&self, first: Id) -> Result<Vec<Commit>> {
        let snapshots = self.root()?.tables(4)?;
        let mut commits = Vec::new();
        let mut next = (0..snapshots.len()).find(|&index| {
            let found = snapshots.table(index).and_then(|info| info.fixed(0));
            matches!(found, Ok(Some(id)) if Id(id) == first)
        });
        while let Some(index) = next {
            // The maximum length also ends a hostile history that contains a cycle.
            if commits.len() == MAX_HISTORY.min(snapshots.len()) {
                break;
            }
            let info = snapshots.table(index)?;
            commits.push(Commit {
                id: Id(info.fixed(0)?.ok_or_else(damaged)?).to_string(),
                time: info.u64(2)?,
                title: title(info.required_text(3)?),
            });
            next = usize::try_from(info.i32(1)?).ok();
        }
        Ok(commits)
    }
}

/// Whether an Icechunk repository is at the root of a store. The test looks for directories, so it fails if the store
/// cannot list names.
pub(crate) fn is_repository(context: &RequestContext, store: &dyn Store) -> Result<bool> {
    let is = |name: &str, kind| -> Result<bool> {
        let meta = store.head(context, &Key::new(name)?)?;
        Ok(meta.is_some_and(|meta| meta.kind == kind))
    };
    Ok(is("snapshots", EntryKind::Directory)?
        && (is(REPO_FILE, EntryKind::File)? || is("refs", EntryKind::Directory)?))
}
