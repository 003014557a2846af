//! Opens the store that a command reads: its options, and the typed path or URL.
//!
//! A path in a zarrfs mount is read through the mount, with its cache and its changes. A file of the files view stands
//! for the node that contains it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgAction, Args};

use crate::cli::mount_facts::{MountFacts, control_dir};
use crate::cli::plan::{DEFAULT_MAX_CHUNK, DEFAULT_TIMEOUT, default_memory};
use crate::cli::remote::RemoteArgs;
use crate::cli::upper::open_upper;
use crate::cli::values::SpillChoice;
use crate::cli::{mount_facts, values};
use crate::fuse::kernel_mount::mountpoint;
use crate::mount::open::ViewKind;
use zarr_format::dialect::Choice;
use zarr_format::error::{Error, Result};
use zarrfs_array::hierarchy::HierarchyConfig;
use zarrfs_export::inspect::locate::{SearchBounds, StorePath, locate};
use zarrfs_export::inspect::opened_store::AccessConfig;
use zarrfs_store::request_context::UNLIMITED;
use zarrfs_store::stats::Stats;
use zarrfs_store::{Key, Revision, StoreConfig, VirtualPrefix, at_revision, split_revision};

/// Headings in the help for the options of Icechunk repositories and of reading in general.
const REPOSITORIES: &str = "Icechunk and kerchunk";
const READING: &str = "Reading";

/// Options of a command that opens a store for reading.
#[derive(Args, Debug)]
pub struct StoreArgs {
    #[command(flatten)]
    pub remote: RemoteArgs,
    #[command(flatten)]
    pub repository: RepositoryArgs,
    /// Dialect: v2, v3, draft2019, draft2020, draft2022 or n5
    ///
    /// Without this option the metadata files decide.
    #[arg(long, value_name = "DIALECT", hide_short_help = true, help_heading = READING)]
    pub dialect: Option<Choice>,
    /// Read nodes from consolidated metadata, also of a local store
    #[arg(long, hide_short_help = true, help_heading = READING)]
    pub consolidated: bool,
    /// Follow symbolic links that leave the store
    #[arg(long, hide_short_help = true, help_heading = READING)]
    pub follow_symlinks: bool,
    /// Memory limit of caches, such as 256M
    ///
    /// At least 1M [default: a quarter of the memory of the machine or container, at most 4G].
    #[arg(long, value_name = "SIZE", value_parser = values::memory, hide_short_help = true, help_heading = READING)]
    pub memory: Option<u64>,
    /// Largest decoded chunk that zarrfs reads
    #[arg(long, value_name = "SIZE", value_parser = values::size, default_value = "1G", hide_short_help = true, help_heading = READING)]
    pub max_chunk: u64,
    /// Time limit of a request to the store
    #[arg(long, value_name = "DURATION", value_parser = values::duration, default_value = "60s", hide_short_help = true, help_heading = READING)]
    pub timeout: Duration,
}

impl StoreArgs {
    /// Returns the options for a command that reads two stores: each store gets half of the default memory.
    pub(super) fn of_two(remote: &RemoteArgs, outside: &VirtualChunkArgs) -> StoreArgs {
        StoreArgs {
            dialect: None,
            consolidated: false,
            follow_symlinks: false,
            memory: Some(default_memory() / 2),
            max_chunk: DEFAULT_MAX_CHUNK,
            timeout: DEFAULT_TIMEOUT,
            remote: remote.clone(),
            repository: RepositoryArgs {
                outside: outside.clone(),
                ..RepositoryArgs::default()
            },
        }
    }

    /// Opens the store that contains the node at `typed`, a path or URL; returns the store and the path in it.
    pub(super) fn open(&self, typed: &str) -> Result<StorePath> {
        values::check_store(typed)?;
        let typed = &self.repository.location(typed)?;
        let place = MountedPath::find(typed)?;
        let source = place
            .as_ref()
            .map_or(typed.to_string(), MountedPath::source);
        let bounds = place
            .as_ref()
            .map_or_else(SearchBounds::default, |place| SearchBounds {
                base: Some(place.keys.clone()),
                unlisted: place.unlisted,
            });
        let mut located = locate(
            &UNLIMITED,
            &self.access(source)?,
            &bounds,
            &Arc::new(Stats::default()),
        )?;
        if let Some(place) = place {
            if place.shows_nodes {
                located.path = longest_node(&located, &place.path)?;
            }
            located.source = place.redacted_path(&located.source);
        }
        Ok(located)
    }

    /// Opens as a store the highest group above an array: this group, and all groups between it and the array, have
    /// metadata documents. Tries at most five levels, since an OME-Zarr image may be described three groups above its
    /// labels.
    pub(super) fn open_in_top_group(&self, path: &str) -> Option<StorePath> {
        let mut highest: Option<StorePath> = None;
        let mut folder = path.trim_end_matches('/');
        let mut names: Vec<&[u8]> = Vec::new();
        while names.len() < 5 {
            let (group, name) = folder.rsplit_once('/').unwrap_or((".", folder));
            names.push(name.as_bytes());
            let is_described = |opened: &StorePath| {
                let node = opened.opened.hierarchy.node(&UNLIMITED, &opened.path);
                let node = node.ok().flatten();
                node.is_some_and(|node| !node.described_by().is_empty())
            };
            let Some(mut opened) = self.open(group).ok().filter(is_described) else {
                break;
            };
            let is_whole = !opened.path.is_root();
            let mut below = names.iter().rev();
            let array = below.try_fold(opened.path.clone(), |path, name| path.child(name));
            let Ok(array) = array else { break };
            opened.path = array;
            let node = opened.opened.hierarchy.node(&UNLIMITED, &opened.path);
            if !matches!(node, Ok(Some(_))) {
                break;
            }
            highest = Some(opened);
            if is_whole || group == "." {
                break;
            }
            folder = group;
        }
        highest
    }

    /// Opens the parent folder of a path, as a store or in one; returns `None` if the path is no node in that store.
    pub(super) fn open_in_parent(&self, path: &str) -> Option<StorePath> {
        let (folder, name) = match path.trim_end_matches('/').rsplit_once('/') {
            Some((folder, name)) => (folder, name),
            None => (".", path),
        };
        let mut above = self.open(folder).ok()?;
        above.path = above.path.child(name.as_bytes()).ok()?;
        let node = above.opened.hierarchy.node(&UNLIMITED, &above.path).ok()?;
        node.map(|_| above)
    }

    /// Opens the store that contains a path for writing; with `upper`, changes go to this changes directory, which is
    /// created if it is missing.
    ///
    /// Fails with `Invalid` for a path in a mount, and for a changes directory in the store.
    pub(super) fn open_to_write(&self, typed: &str, upper: Option<&Path>) -> Result<StorePath> {
        if MountedPath::find(typed)?.is_some() {
            let why = "is in a mount of zarrfs; write to its store, or unmount it and give its upper folder to --cow";
            return Err(Error::invalid(typed, why));
        }
        let located = self.open(typed)?;
        let Some(upper) = upper else {
            return Ok(located);
        };
        if let Some(store) = zarrfs_store::local_path(&located.config.source) {
            mountpoint::check_outside("--cow", upper, &store, "store")?;
        }
        let upper = values::absolute(upper)?;
        let name = located.source.clone();
        located.reopened(&UNLIMITED, &Arc::default(), |stack| {
            let overlay = open_upper(&upper, stack.store, &name)?;
            Ok(overlay.stack(stack.hints))
        })
    }

    fn access(&self, source: String) -> Result<AccessConfig> {
        let remote = self.remote.config(self.timeout)?;
        let cache_dir = remote.cache_dir.as_deref();
        Ok(AccessConfig {
            source,
            spill: SpillChoice::Usual.config(cache_dir),
            memory: self.memory.unwrap_or_else(default_memory),
            max_chunk: self.max_chunk,
            timeout: self.timeout,
            store: StoreConfig {
                follow_symlinks: self.follow_symlinks,
                remote,
                virtual_chunks: self.repository.outside.virtual_chunks.clone(),
                ..StoreConfig::default()
            },
            hierarchy: HierarchyConfig {
                dialect: self.dialect,
                consolidated: self.consolidated,
            },
            lossy: false,
        })
    }
}

/// Options that select a version of an Icechunk repository, and the virtual chunks that may be read.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = REPOSITORIES)]
pub struct RepositoryArgs {
    /// Branch of an Icechunk repository [default: main]
    ///
    /// The same as ?branch=NAME after the path or URL.
    #[arg(long, value_name = "NAME", hide_short_help = true, conflicts_with_all = ["tag", "snapshot"])]
    pub branch: Option<String>,
    /// Tag of an Icechunk repository
    ///
    /// The same as ?tag=NAME after the path or URL.
    #[arg(
        long,
        value_name = "NAME",
        hide_short_help = true,
        conflicts_with = "snapshot"
    )]
    pub tag: Option<String>,
    /// Snapshot of an Icechunk repository
    ///
    /// The same as ?snapshot=ID after the path or URL.
    #[arg(long, value_name = "ID", hide_short_help = true)]
    pub snapshot: Option<String>,
    #[command(flatten)]
    pub outside: VirtualChunkArgs,
}

/// URLs below which virtual chunks, which are outside a repository, may be read.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = REPOSITORIES)]
pub struct VirtualChunkArgs {
    /// Read chunks in files below this URL or directory; repeatable
    ///
    /// An Icechunk repository or a kerchunk reference file names files elsewhere. zarrfs reads them only below the
    /// prefixes that you give. Options for a prefix follow it after commas: anon, netrc, endpoint=URL, region=NAME,
    /// header=LINE, bearer_token_file=FILE, or a backend option such as access_key_id=.... Credentials of the store
    /// itself are not sent there.
    #[arg(long, value_name = "PREFIX", value_parser = prefix, action = ArgAction::Append, hide_short_help = true)]
    pub virtual_chunks: Vec<VirtualPrefix>,
}

impl RepositoryArgs {
    /// Returns the path or URL of the store with the revision of --branch, --tag or --snapshot; fails with `Invalid` if
    /// it already has a revision.
    pub(super) fn location(&self, typed: &str) -> Result<String> {
        let chosen = self.branch.clone().map(Revision::Branch);
        let chosen = chosen.or_else(|| self.tag.clone().map(Revision::Tag));
        let chosen = chosen.or_else(|| self.snapshot.clone().map(Revision::Snapshot));
        match chosen {
            None => Ok(typed.to_string()),
            Some(revision) => at_chosen(typed, revision),
        }
    }
}

/// Returns the path or URL of a store at a revision; fails with `Invalid` if it already has one.
pub(super) fn at_chosen(location: &str, revision: Revision) -> Result<String> {
    let (place, named) = split_revision(location)?;
    if let Some(named) = named {
        let why = format!("names {named} already; drop that, or the option");
        return Err(Error::invalid(location, why));
    }
    Ok(at_revision(place, Some(revision.checked()?)))
}

/// Parses the value of --virtual-chunks: a URL prefix and its options.
fn prefix(text: &str) -> std::result::Result<VirtualPrefix, String> {
    VirtualPrefix::parse(text).map_err(|error| error.to_string())
}

/// Returns the longest leading part of a path that is a group or an array.
fn longest_node(located: &StorePath, path: &Path) -> Result<Key> {
    let path = Key::new(path.as_os_str().as_encoded_bytes())?;
    let hierarchy = &located.opened.hierarchy;
    let mut node = hierarchy.root(&UNLIMITED)?;
    let mut longest = Key::root();
    for name in path.names() {
        let Some(parent) = node else { break };
        node = hierarchy.child(&UNLIMITED, &parent, name)?;
        if let Some(child) = &node {
            longest = child.path.clone();
        }
    }
    Ok(longest)
}

/// A path in a zarrfs mount, with facts about the mount.
struct MountedPath {
    /// The folder of the mount in which all keys of the store are files.
    keys: PathBuf,
    /// The path relative to the folder of its view.
    path: PathBuf,
    /// Whether the view of the path shows groups and arrays; the store view shows the stored keys.
    shows_nodes: bool,
    unlisted: bool,
    /// The path or URL of the mounted store, without secrets.
    store: String,
}

impl MountedPath {
    /// Finds the zarrfs mount that contains the typed path; returns `None` if the path is in no mount.
    fn find(typed: &str) -> Result<Option<MountedPath>> {
        let Some(folder) = zarrfs_store::local_folder(typed) else {
            return Ok(None);
        };
        let mount = mount_facts::containing_mount(Path::new(&folder))?;
        mount
            .map(|mount| MountedPath::within(&mount.mountpoint, &mount.path))
            .transpose()
    }

    fn within(mount: &Path, path: &Path) -> Result<MountedPath> {
        let facts = MountFacts::ask(mount)?;
        let rest = path.strip_prefix(mount).unwrap_or(Path::new(""));
        let control = path.strip_prefix(control_dir(mount)).ok();
        let (shows_nodes, rest) = match control.filter(|_| !facts.hides_control()) {
            None => (facts.shows_nodes(), rest),
            Some(control) => {
                let below = |view: ViewKind| Some((view, control.strip_prefix(view.name()).ok()?));
                let (view, rest) = ViewKind::ALL
                    .into_iter()
                    .find_map(below)
                    .ok_or_else(|| Error::invalid(path.display(), "is in no view of the store"))?;
                (view != ViewKind::Store, rest)
            }
        };
        Ok(MountedPath {
            keys: facts.keys()?,
            path: rest.to_path_buf(),
            shows_nodes,
            unlisted: !facts.lists(),
            store: facts.source().to_string(),
        })
    }

    /// Returns the path or URL in the mounted store that a folder below `keys` stands for, without secrets.
    fn redacted_path(&self, opened: &str) -> String {
        let below = Path::new(opened).strip_prefix(&self.keys);
        let below = below.unwrap_or(Path::new("")).to_string_lossy();
        let source = format!("{}/{below}", self.store.trim_end_matches('/'));
        source.trim_end_matches('/').to_string()
    }

    /// Returns the folder to open as a store: in the store view that of the typed key; in other views, where the path
    /// is no key, the folder of the whole store.
    fn source(&self) -> String {
        let folder = if self.shows_nodes {
            self.keys.clone()
        } else {
            self.keys.join(&self.path)
        };
        folder.to_string_lossy().into_owned()
    }
}
