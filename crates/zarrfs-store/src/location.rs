//! Parses store locations: paths and URLs, without secrets, in a canonical form.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use zarr_format::error::Result;

use crate::backend::reference::icechunk::Revision;
use crate::backend::zip;

/// Returns a location without its secrets: the user, password and query of a URL. The revision of an Icechunk
/// repository stays.
pub fn redacted(location: &str) -> String {
    let Ok((place, revision)) = split_revision(location) else {
        return redacted_url(location);
    };
    let shown = match local_folder(&place) {
        Some(_) => place,
        None => redacted_url(&place),
    };
    at_revision(shown, revision)
}

/// Splits a path or URL from the revision of an Icechunk repository in its query: `s3://bucket/repo?branch=dev`. The
/// error is `Invalid` if the query names several revisions. A local path that exists, with its question mark, is not
/// split.
pub fn split_revision(location: &str) -> Result<(String, Option<Revision>)> {
    let Some((place, query)) = location.split_once('?') else {
        return Ok((location.to_string(), None));
    };
    let is_path = scheme(location).is_none_or(|(scheme, _)| scheme.eq_ignore_ascii_case("file"));
    if is_path && Path::new(location).exists() {
        return Ok((location.to_string(), None));
    }
    let Some(revision) = Revision::in_query(query)? else {
        return Ok((location.to_string(), None));
    };
    let is_revision = |part: &&str| matches!(Revision::in_query(part), Ok(Some(_)));
    let rest: Vec<&str> = query.split('&').filter(|part| !is_revision(part)).collect();
    let place = match rest.as_slice() {
        [] => place.to_string(),
        rest => format!("{place}?{}", rest.join("&")),
    };
    Ok((place, Some(revision)))
}

/// Adds the revision of an Icechunk repository to the query of a path or URL.
pub fn at_revision(place: String, revision: Option<Revision>) -> String {
    match revision {
        Some(revision) if place.contains('?') => format!("{place}&{revision}"),
        Some(revision) => format!("{place}?{revision}"),
        None => place,
    }
}

/// Returns the canonical location of a store, the same for all spellings, without secrets. A local path is absolute,
/// and symbolic links in its existing part are resolved.
pub fn canonical_location(location: &str) -> String {
    let (place, revision) =
        split_revision(location).unwrap_or_else(|_| (location.to_string(), None));
    let canonical = match local_folder(&place) {
        Some(folder) => resolved(Path::new(&folder)).to_string_lossy().into_owned(),
        None => canonical_url(&redacted_url(&normalized(&place))),
    };
    at_revision(canonical, revision)
}

/// Returns an absolute path with the symbolic links of its existing part resolved.
fn resolved(path: &Path) -> PathBuf {
    // A folder in an archive cannot be resolved itself, so the longest path that exists is resolved: the archive's.
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let resolved = absolute.ancestors().find_map(|there| {
        let rest = absolute.strip_prefix(there).ok()?;
        Some(there.canonicalize().ok()?.join(rest))
    });
    // `components` drops the final slash of a path that was joined with an empty rest.
    resolved.unwrap_or(absolute).components().collect()
}

/// Returns a URL without trailing slashes, and with one slash before the prefix in a bucket. The host name of a web
/// server is in lower case.
fn canonical_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_string();
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let path = path.trim_end_matches('/');
    if matches!(scheme, "http" | "https") {
        return format!("{scheme}://{}{path}", authority.to_ascii_lowercase());
    }
    match path.trim_start_matches('/') {
        "" => format!("{scheme}://{authority}"),
        path => format!("{scheme}://{authority}/{path}"),
    }
}

/// Drops the user, password and query of a URL.
fn redacted_url(url: &str) -> String {
    let plain = url.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = plain.split_once("://") else {
        return plain.to_string();
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

/// Returns the local path of a store's folder or archive, or `None` for a URL of a remote store.
pub fn local_path(location: &str) -> Option<PathBuf> {
    let path = PathBuf::from(local_folder(location)?);
    match zip::location::in_path(&path) {
        Ok(Some(zipped)) => Some(
            zipped
                .folder
                .join(OsStr::from_bytes(zipped.archive.as_bytes())),
        ),
        _ => Some(path),
    }
}

/// Returns the path of a local location without the revision of an Icechunk repository. The path may lead into an
/// archive. Returns `None` for a URL other than `file:`.
pub fn local_folder(location: &str) -> Option<String> {
    if location.contains('?')
        && let Ok((place, Some(_))) = split_revision(location)
    {
        return local_folder(&place);
    }
    match scheme(location) {
        None => Some(location.to_string()),
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("file") => Some(file_url_path(rest)),
        Some(_) => None,
    }
}

/// Returns a path or URL with its scheme in lower case.
pub fn normalized(location: &str) -> String {
    match scheme(location) {
        Some((scheme, rest)) => format!("{}:{rest}", scheme.to_ascii_lowercase()),
        None => location.to_string(),
    }
}

/// Splits `scheme:rest`; a scheme has at least two letters, so that `c:x` stays a path.
pub(super) fn scheme(location: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = location.split_once(':')?;
    let is_scheme = scheme.len() > 1
        && scheme
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'+');
    let is_bare = |name| scheme.eq_ignore_ascii_case(name);
    let is_url = rest.starts_with("//") || is_bare("file") || is_bare("memory");
    (is_scheme && is_url).then_some((scheme, rest))
}

/// Returns the path of a `file:` URL: authority dropped, percent escapes decoded.
fn file_url_path(rest: &str) -> String {
    let path = match rest.strip_prefix("//") {
        Some(rest) => rest.find('/').map_or("", |start| &rest[start..]),
        None => rest,
    };
    let mut bytes = Vec::with_capacity(path.len());
    let mut input = path.as_bytes();
    while let Some((&byte, rest)) = input.split_first() {
        input = rest;
        let escape = (byte == b'%').then(|| rest.get(..2)).flatten();
        match escape.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()) {
            Some(value) => {
                bytes.push(value);
                input = rest.get(2..).unwrap_or_default();
            }
            None => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_urls_are_paths() {
        assert_eq!(local_folder("file:///a%20b").as_deref(), Some("/a b"));
        assert_eq!(local_folder("file://host/a").as_deref(), Some("/a"));
        assert_eq!(local_folder("./a:b").as_deref(), Some("./a:b"));
        assert_eq!(local_folder("s3://a"), None);
        assert_eq!(local_folder("File:///a").as_deref(), Some("/a"));
    }

    #[test]
    fn the_case_of_a_scheme_is_ignored() {
        assert_eq!(normalized("S3://Bucket/A"), "s3://Bucket/A");
        assert_eq!(normalized("HTTPS://Host/A"), "https://Host/A");
        assert_eq!(normalized("MEMORY:"), "memory:");
        for path in ["/A/B", "C:x", "./A:b"] {
            assert_eq!(normalized(path), path);
        }
    }

    #[test]
    fn spellings_of_a_path_have_one_canonical_location() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let store = root.join("data.zarr");
        std::fs::create_dir(&store).unwrap();
        std::fs::write(root.join("all.zip"), "").unwrap();
        std::os::unix::fs::symlink("data.zarr", root.join("latest")).unwrap();
        std::os::unix::fs::symlink("all.zip", root.join("latest.zip")).unwrap();
        let text = |path: &str| root.join(path).to_str().unwrap().to_string();
        let expected = store.to_str().unwrap();
        for spelled in [
            "data.zarr",
            "data.zarr/",
            "./data.zarr/.",
            "latest",
            "latest/",
        ] {
            assert_eq!(canonical_location(&text(spelled)), expected, "{spelled}");
        }
        assert_eq!(canonical_location(&format!("file://{expected}")), expected);
        assert_eq!(
            canonical_location(&text("latest.zip/a/b/")),
            text("all.zip/a/b")
        );
        assert_eq!(canonical_location(&text("none/a/")), text("none/a"));
        let here = std::env::current_dir().unwrap().canonicalize().unwrap();
        assert_eq!(
            canonical_location("none.zarr"),
            here.join("none.zarr").to_str().unwrap()
        );
    }

    #[test]
    fn spellings_of_a_url_have_one_canonical_location() {
        for (url, expected) in [
            ("s3://bucket/a/", "s3://bucket/a"),
            ("S3://bucket//a", "s3://bucket/a"),
            ("s3://bucket/", "s3://bucket"),
            ("https://me:pw@Host:81/A/b/?sig=x", "https://host:81/A/b"),
            ("https://host//a", "https://host//a"),
            ("memory:", "memory:"),
        ] {
            assert_eq!(canonical_location(url), expected);
        }
    }

    #[test]
    fn a_revision_is_part_of_the_location() {
        let split = |location: &str| split_revision(location).unwrap();
        let dev = Some(Revision::Branch("dev".to_string()));
        for (location, place) in [
            ("s3://b/repo?branch=dev", "s3://b/repo"),
            ("https://h/r?sig=1&branch=dev", "https://h/r?sig=1"),
            ("./repo?branch=dev", "./repo"),
        ] {
            assert_eq!(
                split(location),
                (place.to_string(), dev.clone()),
                "{location}"
            );
        }
        for location in ["s3://b/repo", "https://h/r?sig=1", "/a/b?c"] {
            assert_eq!(split(location), (location.to_string(), None));
        }
        assert!(split_revision("s3://b/r?branch=a&tag=b").is_err());
        assert_eq!(local_folder("/a/repo?tag=v1").as_deref(), Some("/a/repo"));
        assert_eq!(
            redacted("https://me@h/r?sig=1&tag=v1"),
            "https://h/r?tag=v1"
        );
        assert_eq!(canonical_location("s3://b/r/?tag=v1"), "s3://b/r?tag=v1");
    }

    #[test]
    fn secrets_are_not_shown() {
        assert_eq!(
            redacted_url("https://me:pw@host/a/b?sig=x#y"),
            "https://host/a/b"
        );
        assert_eq!(redacted_url("s3://bucket/a"), "s3://bucket/a");
        assert_eq!(redacted("/a/me:pw@b?c"), "/a/me:pw@b?c");
    }
}
