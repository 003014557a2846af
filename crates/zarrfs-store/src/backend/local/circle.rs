//! Detects symbolic links to an ancestor folder, which would make a recursive walk endless.
//!
//! The kernel follows at most 40 links in a path. A walk through one such link ends after 40 rounds, but a walk through
//! two of them in each folder takes 2^40 steps.

use std::ffi::OsStr;
use std::fs;
use std::iter::successors;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::Key;

/// Whether a key of the store in `folder` is a link to one of its ancestors, or to a folder above the store.
pub(super) fn is_symlink_cycle(folder: &Path, key: &Key) -> bool {
    let place = |key: &Key| folder.join(OsStr::from_bytes(key.as_bytes()));
    let is_link = fs::symlink_metadata(place(key)).is_ok_and(|meta| meta.is_symlink());
    if !is_link {
        return false;
    }
    let real = |key: &Key| -> Option<PathBuf> { fs::canonicalize(place(key)).ok() };
    let Some(target) = real(key) else {
        return false;
    };
    let mut above = successors(key.parent(), Key::parent);
    above.any(|above| real(&above).is_some_and(|above| above.starts_with(&target)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_leads_back_to_what_lies_on_its_path_alone() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().join("store");
        for name in ["a/b", "c"] {
            fs::create_dir_all(top.join(name)).unwrap();
        }
        let links = [
            ("a/up", ".."),
            ("a/self", "."),
            ("a/b/above", "../../.."),
            ("a/b/beside", "../../c"),
            ("c/back", "../a"),
            ("c/none", "none"),
        ];
        for (name, target) in links {
            symlink(target, top.join(name)).unwrap();
        }
        symlink(&top, top.join("a/root")).unwrap();
        let leads = |name: &str| is_symlink_cycle(&top, &Key::new(name).unwrap());
        for name in [
            "a/up",
            "a/self",
            "a/b/above",
            "a/root",
            "a/b/beside/back",
            "c/back/b/beside",
        ] {
            assert!(leads(name), "{name}");
        }
        for name in [
            "",
            "a",
            "a/b",
            "a/b/beside",
            "c/back",
            "c/none",
            "a/up/c",
            "none",
        ] {
            assert!(!leads(name), "{name}");
        }
    }
}
