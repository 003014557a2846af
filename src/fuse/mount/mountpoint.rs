//! Which directories may become a mountpoint.
//!
//! Nothing here waits for a file system whose daemon is gone: such a mount of ours is detached first. A
//! mountpoint inside its own store would make the daemon wait for itself, and so would a store below the
//! mountpoint. Both are refused, by path and by inode, since the same folder may be reached through a bind mount.

use std::fs;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::liveness::Liveness;
use super::mounted_dir::unmount_at;
use super::mountinfo::Mounted;
use super::{liveness, mountinfo};
use zarr_format::error::{Error, Kind, Result};

/// How long a mount may take to answer a question that needs no store.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Checks `dir` and returns its absolute path without symbolic links.
///
/// `store` is the folder or archive that is mounted, if it is on this machine.
///
/// `NotFound`, `NotADirectory`, `Exists` if a store is mounted there already, `Unavailable` if a mount there is silent, `NotEmpty` unless `nonempty`, `Invalid` if
/// one of store and mountpoint lies in the other.
pub fn prepare(dir: &Path, store: Option<&Path>, nonempty: bool) -> Result<PathBuf> {
    let path = resolve(dir)?;
    clear_stale(&path)?;
    let meta = fs::metadata(&path).map_err(|error| about(dir, error))?;
    if !meta.is_dir() {
        return Err(Error::new(
            Kind::NotADirectory,
            shown(dir),
            "the mountpoint must be a directory",
        ));
    }
    refuse_mounted(dir, &path)?;
    if let Some(store) = store {
        refuse_loops(dir, &path, store)?;
    }
    if !nonempty {
        refuse_content(dir, &path)?;
    }
    Ok(path)
}

/// Checks that the folder that `option` names, which need not be there yet, does not lie in `dir`.
pub fn check_outside(option: &str, folder: &Path, dir: &Path, what: &str) -> Result<()> {
    // A directory that cannot be resolved is refused by `prepare`.
    let Ok(dir) = resolve(dir) else {
        return Ok(());
    };
    // Links are resolved in the part of the path that exists.
    let resolved = folder.ancestors().find_map(|existing| {
        let resolved = fs::canonicalize(existing).ok()?;
        Some(resolved.join(folder.strip_prefix(existing).ok()?))
    });
    if resolved.as_deref().unwrap_or(folder).starts_with(&dir) {
        let text = format!("{option} lies in the {what} {}", shown(&dir));
        return Err(Error::invalid(shown(folder), text));
    }
    Ok(())
}

/// Returns the path without symbolic links; also that of a mount whose daemon is gone.
pub fn resolve(dir: &Path) -> Result<PathBuf> {
    let resolved = match fs::canonicalize(dir) {
        Err(error) if liveness::is_gone(&error) => {
            let absolute = std::path::absolute(dir).map_err(|error| about(dir, error))?;
            match (absolute.parent(), absolute.file_name()) {
                (Some(parent), Some(name)) => {
                    fs::canonicalize(parent).map(|parent| parent.join(name))
                }
                _ => Ok(absolute),
            }
        }
        resolved => resolved,
    };
    resolved.map_err(|error| about(dir, error))
}

/// Detaches mounts of ours at `path` whose daemon is gone. `Unavailable` if one does not answer: it may be alive.
fn clear_stale(path: &Path) -> Result<()> {
    while let Some(mounted) = mountinfo::top_at(path)?.filter(Mounted::is_ours) {
        // Not stat, which the kernel may answer from its cache.
        match liveness::ask(path, ANSWER_TIMEOUT) {
            Liveness::Answers => break,
            Liveness::Gone => {
                log::info!("{}: detaching a mount whose daemon is gone", shown(path));
                unmount_at(&mounted)?;
            }
            Liveness::Silent => {
                let why = "what is mounted there does not answer; remove it with 'zarrfs umount'";
                return Err(Error::unavailable(shown(path), why));
            }
        }
    }
    Ok(())
}

fn refuse_mounted(dir: &Path, path: &Path) -> Result<()> {
    let Some(mounted) = mountinfo::top_at(path)?.filter(Mounted::is_ours) else {
        return Ok(());
    };
    let source = mounted.source.to_string_lossy();
    let hint = format!("{source} is mounted there already; unmount it with 'zarrfs umount'");
    Err(Error::new(Kind::Exists, shown(dir), hint))
}

fn refuse_content(dir: &Path, path: &Path) -> Result<()> {
    let mut names = fs::read_dir(path).map_err(|error| about(dir, error))?;
    if names.next().is_none() {
        return Ok(());
    }
    let hint = "the mountpoint is not empty; '-o nonempty' mounts over what is there";
    Err(Error::new(Kind::NotEmpty, shown(dir), hint))
}

fn refuse_loops(dir: &Path, path: &Path, store: &Path) -> Result<()> {
    let store = fs::canonicalize(store).map_err(|error| about(store, error))?;
    let fault = if is_within(path, &store) {
        "lies inside"
    } else if is_within(&store, path) {
        "would cover"
    } else {
        return Ok(());
    };
    let text = format!("{fault} the store {}", shown(&store));
    Err(Error::invalid(shown(dir), text))
}

/// Whether `path` is `root` or lies below it.
fn is_within(path: &Path, root: &Path) -> bool {
    if path.starts_with(root) {
        return true;
    }
    let Ok(root) = fs::metadata(root) else {
        return false;
    };
    path.ancestors()
        .any(|ancestor| fs::metadata(ancestor).is_ok_and(|meta| is_same(&meta, &root)))
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn about(path: &Path, error: io::Error) -> Error {
    Error::os(shown(path), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_that_cannot_be_mountpoints_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("s.zarr");
        let inside = store.join("a");
        let free = folder.path().join("free");
        fs::create_dir_all(&inside).unwrap();
        fs::create_dir(&free).unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        let kind = |dir: &Path| prepare(dir, Some(&store), false).unwrap_err().kind();
        assert_eq!(kind(&folder.path().join("none")), Kind::NotFound);
        assert_eq!(kind(&folder.path().join("file")), Kind::NotADirectory);
        assert_eq!(kind(&inside), Kind::Invalid);
        assert_eq!(kind(&store), Kind::Invalid);
        assert_eq!(kind(folder.path()), Kind::Invalid);
        std::os::unix::fs::symlink(&inside, folder.path().join("link")).unwrap();
        assert_eq!(kind(&folder.path().join("link")), Kind::Invalid);
        assert!(prepare(&free, Some(&store), false).is_ok());
        fs::write(free.join("x"), "").unwrap();
        assert_eq!(kind(&free), Kind::NotEmpty);
        assert!(prepare(&free, Some(&store), true).is_ok());
    }
}
