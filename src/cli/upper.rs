//! Finds the changes directory of a command, and executes requests about its changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::process;

use crate::cli::mount_facts::{MountFacts, PathInMount};
use crate::cli::plan::DEFAULT_TIMEOUT;
use crate::cli::progress::Progress;
use crate::cli::{PlaceArgs, mount_facts};
use crate::mount::protocol::{CommitReport, ControlAnswer, ControlRequest};
use crate::mount::{commands, control_socket};
use zarr_format::error::{Error, Kind, Result};
use zarrfs_overlay::copy;
use zarrfs_overlay::{Overlay, OverlayConfig, commit};
use zarrfs_store::request_context::UNLIMITED;
use zarrfs_store::stats::Stats;
use zarrfs_store::{RemoteConfig, Store, StoreConfig};

/// Executes a request about changes: in the mount that uses the changes directory, so that the directory does not
/// change meanwhile, or in this process if no mount uses it.
pub(super) fn execute(args: &PlaceArgs, request: &ControlRequest) -> Result<ControlAnswer> {
    let upper = find(&args.place)?;
    let bar = Progress::new("comparing with the store");
    let show = |done: usize, total: usize| bar.keys(done as u64, total as u64);
    let is_moved = names_other_place(args, &upper)?;
    // A mount still uses the old location of its store: if --store names another location, the request is executed
    // here.
    if !is_moved && let Some(answer) = control_socket::request(&upper, request, &show)? {
        return Ok(answer);
    }
    let overlay = open(args, &upper)?;
    if is_moved && matches!(request, ControlRequest::Commit { dry_run: false, .. }) {
        overlay.rebind()?;
    }
    commands::execute(&overlay, request, &show)
}

/// Fails if options of remote stores are given with a mountpoint, because the mount has its own options.
pub(super) fn refuse_remote_options(args: &PlaceArgs) -> Result<()> {
    let Some(option) = args.remote.first_given() else {
        return Ok(());
    };
    if mount_facts::mountpoint_at(&args.place)?.is_none() {
        return Ok(());
    }
    let why = format!(
        "has no effect on {}, which is mounted already: unmount it, and mount it with the option",
        args.place.display()
    );
    Err(Error::invalid(option, why))
}

/// Whether --store names another location than the one that the changes directory has recorded.
fn names_other_place(args: &PlaceArgs, upper: &Path) -> Result<bool> {
    let Some(named) = &args.store else {
        return Ok(false);
    };
    let before = zarrfs_overlay::belongs_to(upper)?;
    Ok(zarrfs_store::canonical_location(named) != zarrfs_store::canonical_location(&before))
}

/// Copies the store, with all changes, to the new store `to`.
pub(super) fn copy_to(args: &PlaceArgs, to: &str) -> Result<CommitReport> {
    let upper = find(&args.place)?;
    check_no_archive(to)?;
    if let Some(folder) = zarrfs_store::local_folder(to) {
        let folder = Path::new(&folder);
        if mount_facts::containing_mount(folder)?.is_some() {
            let why = "inside a zarrfs mount: use a path in the mounted store instead";
            return Err(Error::new(Kind::ReadOnly, folder.display(), why));
        }
        fs::create_dir_all(folder).map_err(|error| Error::os(folder.display(), error))?;
    }
    let conflicts = chunks_of_other_arrays(args)?;
    if !conflicts.is_empty() {
        return Ok(CommitReport {
            conflicts,
            ..CommitReport::default()
        });
    }
    let target = open_store(args, to, true)?;
    let bar = Progress::new("comparing with the store");
    let show = |done: usize, total: usize| bar.keys(done as u64, total as u64);
    let from: Arc<dyn Store> = match mounted_keys(&args.place)? {
        Some(keys) => open_store(args, &keys.to_string_lossy(), false)?,
        None => Arc::new(open(args, &upper)?),
    };
    let outcome = copy::copy_all(&UNLIMITED, &*from, &*target, &show)?;
    Ok(outcome.into())
}

/// Returns the changed chunks whose arrays other programs have replaced in the store: a copy would combine the old
/// chunks with the new array.
fn chunks_of_other_arrays(args: &PlaceArgs) -> Result<Vec<(String, String)>> {
    let (dry_run, force) = (true, false);
    let mut conflicts = match execute(args, &ControlRequest::Commit { dry_run, force }) {
        Ok(ControlAnswer::Commit(report)) => report.conflicts,
        Ok(_) => Vec::new(),
        // A zip archive is read-only, so a commit to it has no conflicts.
        Err(error) if error.kind() == Kind::ReadOnly => Vec::new(),
        Err(error) => return Err(error),
    };
    conflicts.retain(|(_, why)| commit::is_of_array(why));
    Ok(conflicts)
}

/// Fails with `Unsupported` if the new store would have the name of a zip archive.
fn check_no_archive(to: &str) -> Result<()> {
    let place = zarrfs_store::canonical_location(to).to_ascii_lowercase();
    let is_named = place.ends_with(".zip") || place.ends_with(".ozx");
    if !is_named || zarrfs_store::local_folder(to).is_some_and(|folder| Path::new(&folder).is_dir())
    {
        return Ok(());
    }
    let why = "zip archives are read-only: write to a directory, then run 'zip -r -0 FILE .' in that directory";
    Err(Error::unsupported(zarrfs_store::redacted(to), why))
}

/// Opens a changes directory that no mount uses, together with its store.
fn open(args: &PlaceArgs, upper: &Path) -> Result<Overlay> {
    if let Some(named) = &args.store {
        let store = open_store(args, named, false)?;
        return Overlay::open_moved(
            &UNLIMITED,
            upper,
            store,
            &zarrfs_store::redacted(named),
            config(),
        );
    }
    let source = zarrfs_overlay::belongs_to(upper)?;
    let store = open_store(args, &source, false).map_err(|error| match error.kind() {
        Kind::NotFound => {
            let why = format!(
                "{}; if the store was moved, use --store URL",
                error.detail()
            );
            Error::new(Kind::NotFound, error.subject(), why)
        }
        _ => error,
    })?;
    open_upper(upper, store, &source)
}

/// Opens a changes directory together with its store, whose path or URL is `place`.
pub(super) fn open_upper(upper: &Path, store: Arc<dyn Store>, place: &str) -> Result<Overlay> {
    Overlay::open(upper, store, place, config())
}

/// Returns the configuration with which a command, not a mount, opens a changes directory.
fn config() -> OverlayConfig {
    OverlayConfig {
        uid: process::geteuid().as_raw(),
        gid: process::getegid().as_raw(),
        write_through: false,
    }
}

fn open_store(args: &PlaceArgs, source: &str, is_new: bool) -> Result<Arc<dyn Store>> {
    let config = StoreConfig {
        remote: RemoteConfig {
            may_be_empty: is_new,
            ..args.remote.config(DEFAULT_TIMEOUT)?
        },
        ..StoreConfig::default()
    };
    zarrfs_store::open(&UNLIMITED, source, &config, &Arc::new(Stats::default()))
}

/// Returns the folder in which a mount shows all keys, or `None` if `place` is not a mountpoint.
fn mounted_keys(place: &Path) -> Result<Option<PathBuf>> {
    let mount = mount_facts::mountpoint_at(place)?;
    mount
        .map(|mount| MountFacts::ask(&mount)?.keys())
        .transpose()
}

/// Where the changes of a command are.
pub(super) enum ChangesLocation {
    /// The changes are in this changes directory, whether a mount uses it or not.
    Upper(PathBuf),
    /// There are no changes: the mount of this store is read-only.
    ReadOnly(String),
}

/// Returns where the changes of a mountpoint or of a changes directory are.
pub(super) fn locate(path: &Path) -> Result<ChangesLocation> {
    let Some(PathInMount {
        mountpoint,
        path: resolved,
    }) = mount_facts::containing_mount(path)?
    else {
        return unmounted_upper(path);
    };
    if resolved != mountpoint {
        let why = format!(
            "inside the mount {0}; use the mountpoint {0}",
            mountpoint.display()
        );
        return Err(Error::invalid(path.display(), why));
    }
    let facts = MountFacts::ask(&mountpoint)?;
    Ok(match facts.upper() {
        Some(upper) => ChangesLocation::Upper(upper),
        None => ChangesLocation::ReadOnly(facts.source().to_string()),
    })
}

/// Checks that a path outside of mounts is a changes directory.
fn unmounted_upper(path: &Path) -> Result<ChangesLocation> {
    fs::metadata(path).map_err(|error| Error::os(path.display(), error))?;
    if !path.join("zarrfs.json").is_file() {
        let why = "neither a zarrfs mount nor a changes directory";
        return Err(Error::invalid(path.display(), why));
    }
    path.canonicalize()
        .map(ChangesLocation::Upper)
        .map_err(|error| Error::os(path.display(), error))
}

/// Returns the changes directory of a mountpoint, or the path itself if it is a changes directory.
fn find(path: &Path) -> Result<PathBuf> {
    match locate(path)? {
        ChangesLocation::Upper(upper) => Ok(upper),
        ChangesLocation::ReadOnly(_) => Err(Error::invalid(
            path.display(),
            "mounted without --cow, so there are no changes",
        )),
    }
}
