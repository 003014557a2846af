//! Checks and prepares a mountpoint.
//!
//! Nothing here blocks on a zarrfs mount whose daemon has ended: such a mount is detached first. A mountpoint inside
//! its own store, or a store below the mountpoint, is refused, because the daemon would wait for itself. Both are
//! compared by path and by inode, since a bind mount may show the same folder under another path.

use std::fs;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::liveness::{ANSWER_TIMEOUT, Liveness};
use super::mountinfo::Mounted;
use super::{liveness, mountinfo, unmount_at};
use zarr_format::error::{Error, Kind, Result};

/// Checks the mountpoint `dir`, and returns its absolute path without symbolic links.
///
/// `store` is the path of the mounted folder or archive, if it is local.
///
/// Fails with `NotFound` or `NotADirectory`; with `Exists` if a store is already mounted there, `Unavailable` if a
/// mount there does not answer, `NotEmpty` unless `nonempty`, and `Invalid` if the store is inside the mountpoint or
/// the reverse.
pub fn prepare(dir: &Path, store: Option<&Path>, nonempty: bool) -> Result<PathBuf> {
    let path = resolve(dir).map_err(|error| match error.kind() {
        Kind::NotFound => {
            let dir = display(dir);
            let why = format!(
                "{}; create the mountpoint with 'mkdir {dir}'",
                error.detail()
            );
            Error::new(Kind::NotFound, dir, why)
        }
        _ => error,
    })?;
    clear_stale(&path)?;
    let meta = fs::metadata(&path).map_err(|error| about(dir, error))?;
    if !meta.is_dir() {
        return Err(Error::new(
            Kind::NotADirectory,
            display(dir),
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

/// Fails if `folder`, the value of `option`, is in `dir`. The folder need not exist yet.
pub fn check_outside(option: &str, folder: &Path, dir: &Path, what: &str) -> Result<()> {
    // A mountpoint that cannot be resolved is not checked here, since `prepare` refuses it.
    let Ok(dir) = resolve(dir) else {
        return Ok(());
    };
    // Symbolic links are resolved in the leading part of the path that exists.
    let resolved = folder.ancestors().find_map(|existing| {
        let resolved = fs::canonicalize(existing).ok()?;
        Some(resolved.join(folder.strip_prefix(existing).ok()?))
    });
    if resolved.as_deref().unwrap_or(folder).starts_with(&dir) {
        let text = format!("{option} must not be inside the {what} {}", display(&dir));
        return Err(Error::invalid(display(folder), text));
    }
    Ok(())
}

/// Resolves the symbolic links of a path, also if it is a mountpoint whose daemon has ended.
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

/// Detaches zarrfs mounts at `path` whose daemons have ended. Fails with `Unavailable` if a mount does not answer,
/// since its daemon may be alive.
fn clear_stale(path: &Path) -> Result<()> {
    while let Some(mounted) = mountinfo::top_at(path)?.filter(Mounted::is_ours) {
        // The query is statfs, since the kernel may answer stat from its cache, without the daemon.
        match liveness::query(path, ANSWER_TIMEOUT) {
            Liveness::Answers => break,
            Liveness::Gone => {
                log::info!(
                    "{}: removing a stale mount, whose process is gone",
                    display(path)
                );
                unmount_at(&mounted)?;
            }
            Liveness::Silent => {
                let why = format!(
                    "a zarrfs mount here does not respond; run 'zarrfs umount {}'",
                    display(path)
                );
                return Err(Error::unavailable(display(path), why));
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
    let hint = format!(
        "{source} is already mounted here; run 'zarrfs umount {}' first",
        display(dir)
    );
    Err(Error::new(Kind::Exists, display(dir), hint))
}

fn refuse_content(dir: &Path, path: &Path) -> Result<()> {
    let mut names = fs::read_dir(path).map_err(|error| about(dir, error))?;
    if names.next().is_none() {
        return Ok(());
    }
    let hint = "the mountpoint is not empty; use --allow-non-empty to mount over the content";
    Err(Error::new(Kind::NotEmpty, display(dir), hint))
}

fn refuse_loops(dir: &Path, path: &Path, store: &Path) -> Result<()> {
    let store = fs::canonicalize(store).map_err(|error| about(store, error))?;
    let fault = if is_within(path, &store) {
        "the mountpoint must not be inside"
    } else if is_within(&store, path) {
        "the mountpoint must not cover"
    } else {
        return Ok(());
    };
    let text = format!("{fault} the store {}", display(&store));
    Err(Error::invalid(display(dir), text))
}

/// Whether `path` is `root` or below it, compared by path and by inode.
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

fn display(path: &Path) -> String {
    path.display().to_string()
}

fn about(path: &Path, error: io::Error) -> Error {
    Error::os(display(path), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_mountpoints_are_refused() {
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
