//! Finds the archive in the path or URL of a store: `FOLDER/NAME.zip/INNER/FOLDER`.

use std::path::{Path, PathBuf};

use percent_encoding::percent_decode_str;

use crate::Key;
use zarr_format::error::Result;
use zarr_format::model::document;

/// The location of a zip archive and of a folder in the archive, split from a path or URL.
#[derive(Debug, PartialEq)]
pub(crate) struct ArchiveLocation<Folder> {
    /// The path or URL of the store that holds the archive.
    pub(crate) folder: Folder,
    /// The key of the archive in the store that holds it.
    pub(crate) archive: Key,
    /// The folder in the archive that is opened; the empty key opens the whole archive.
    pub(crate) inner: Key,
}

impl<Folder> ArchiveLocation<Folder> {
    pub(crate) fn is_named_zip(&self) -> bool {
        is_zip(self.archive.name())
    }

    pub(crate) fn is_named_json(&self) -> bool {
        is_json(self.archive.name())
    }
}

/// Finds the file that a path leads to or through, as `archive.zip/inner/folder` does, or returns `None` if there is
/// none. The error is `Invalid` if the path after the file cannot be a key.
///
/// Any file is accepted, whatever its name. Symbolic links are followed, so that a link to the newest archive works.
pub(crate) fn in_path(path: &Path) -> Result<Option<ArchiveLocation<PathBuf>>> {
    // Drops a final slash, since `FILE/` would not be found as a file.
    let path: PathBuf = path.components().collect();
    for prefix in path.ancestors() {
        let Ok(meta) = prefix.metadata() else {
            continue;
        };
        let resolved = if meta.is_file() {
            prefix.canonicalize().ok()
        } else {
            None
        };
        let Some((folder, name)) = resolved
            .as_deref()
            .and_then(|file| file.parent().zip(file.file_name()))
        else {
            return Ok(None);
        };
        let inner = path.strip_prefix(prefix).unwrap_or(Path::new(""));
        return Ok(Some(ArchiveLocation {
            folder: folder.to_path_buf(),
            archive: Key::new(name.as_encoded_bytes())?,
            inner: Key::new(inner.as_os_str().as_encoded_bytes())?,
        }));
    }
    Ok(None)
}

/// Finds the first name that ends in `.zip` or `.ozx` in the path of a URL, or returns `None` if there is none. The URL
/// of the archive's folder keeps the query. The error is `Invalid` if the path after the archive cannot be a key.
pub(crate) fn in_url(url: &str) -> Result<Option<ArchiveLocation<String>>> {
    file_in_url(url, is_zip)
}

/// Finds the first name that ends in `.json` in the path of a URL, which may be a file of kerchunk references.
pub(crate) fn json_in_url(url: &str) -> Result<Option<ArchiveLocation<String>>> {
    file_in_url(url, is_json)
}

fn file_in_url(
    url: &str,
    is_file: impl Fn(&[u8]) -> bool,
) -> Result<Option<ArchiveLocation<String>>> {
    let (path, query) = url.split_at(url.find(['?', '#']).unwrap_or(url.len()));
    let Some(host) = path.find("://").map(|end| end + 3) else {
        return Ok(None);
    };
    let mut start = host;
    for name in path.get(host..).unwrap_or_default().split('/') {
        let end = start + name.len();
        // The first component is the name of the host or bucket, which may end in `.zip` too.
        if start > host && is_file(name.as_bytes()) {
            let folder = path.get(..start).unwrap_or_default();
            let inner = path.get(end..).unwrap_or_default().trim_matches('/');
            return Ok(Some(ArchiveLocation {
                folder: format!("{folder}{query}"),
                archive: Key::new(key_bytes(url, name))?,
                inner: Key::new(key_bytes(url, inner))?,
            }));
        }
        start = end + 1;
    }
    Ok(None)
}

/// Returns the key for a part of a URL's path: percent-decoded for HTTP, unchanged for a bucket.
fn key_bytes(url: &str, part: &str) -> Vec<u8> {
    if url.starts_with("http://") || url.starts_with("https://") {
        return percent_decode_str(part).collect();
    }
    part.as_bytes().to_vec()
}

/// Whether a file name has the extension of a zip archive: `.zip`, or `.ozx` for OME-Zarr.
fn is_zip(name: &[u8]) -> bool {
    ends_in(name, b".zip") || ends_in(name, b".ozx")
}

/// Whether a file name may be that of a kerchunk reference file: it ends in `.json` and is no metadata file of Zarr.
fn is_json(name: &[u8]) -> bool {
    ends_in(name, b".json") && !document::is_document(name)
}

fn ends_in(name: &[u8], expected: &[u8]) -> bool {
    let start = name.len().checked_sub(expected.len());
    let ending = start.and_then(|start| name.get(start..));
    ending.is_some_and(|ending| ending.eq_ignore_ascii_case(expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location<F>(folder: F, archive: &str, inner: &str) -> Option<ArchiveLocation<F>> {
        Some(ArchiveLocation {
            folder,
            archive: Key::new(archive).unwrap(),
            inner: Key::new(inner).unwrap(),
        })
    }

    #[test]
    fn urls_are_split_at_the_archive() {
        let found = |url: &str| in_url(url).unwrap();
        for (url, folder, archive, inner) in [
            (
                "s3://bucket/a/b.zarr.ZIP",
                "s3://bucket/a/",
                "b.zarr.ZIP",
                "",
            ),
            (
                "https://host/b.zip/in/ner/?sig=a/b.zip",
                "https://host/?sig=a/b.zip",
                "b.zip",
                "in/ner",
            ),
            ("s3://bucket/b.ozx/c", "s3://bucket/", "b.ozx", "c"),
            ("s3://bucket/b.zip/c.zip", "s3://bucket/", "b.zip", "c.zip"),
            ("http://host/b%20c.zip/%23", "http://host/", "b c.zip", "#"),
            ("s3://bucket/b%20c.zip", "s3://bucket/", "b%20c.zip", ""),
        ] {
            let expected = location(folder.to_string(), archive, inner);
            assert_eq!(found(url), expected, "{url}");
        }
        for none in [
            "s3://bucket.zip/a",
            "s3://bucket/a?b.zip",
            "s3://b/zip",
            "memory:",
            "a.zip",
        ] {
            assert_eq!(found(none), None, "{none}");
        }
        assert!(in_url("s3://bucket/b.zip/a//b").is_err());
    }

    #[test]
    fn paths_are_split_at_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("folder.zip/x")).unwrap();
        std::fs::write(root.join("folder.zip/file"), "").unwrap();
        std::os::unix::fs::symlink("folder.zip/file", root.join("newest")).unwrap();
        let found = |path: &str| in_path(&root.join(path)).unwrap();
        let inside = root.join("folder.zip");
        for (path, inner) in [
            ("folder.zip/file", ""),
            ("folder.zip/file/a/b/", "a/b"),
            ("newest/a", "a"),
        ] {
            let expected = location(inside.clone(), "file", inner);
            assert_eq!(found(path), expected, "{path}");
        }
        for none in [
            "folder.zip",
            "folder.zip/x",
            "none.zip",
            "none/a",
            "folder.zip/none/a",
        ] {
            assert_eq!(found(none), None, "{none}");
        }
        assert!(in_path(&root.join("newest/a/../b")).is_err());
    }
}
