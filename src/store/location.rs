//! What the text that names a store means: a path or a URL; and what others may see of it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::store::backend::zip;

/// Returns the name of a store as others may see it: without the user, password and query of a URL.
pub fn shown(location: &str) -> String {
    match local_folder(location) {
        Some(_) => location.to_string(),
        None => redact(location),
    }
}

/// Takes the user, password and query out of a URL.
fn redact(url: &str) -> String {
    let plain = url.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = plain.split_once("://") else {
        return plain.to_string();
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

/// Returns what of this machine a store stands on, if it does: its folder, or the file that is its archive.
pub fn local_place(location: &str) -> Option<PathBuf> {
    let path = PathBuf::from(local_folder(location)?);
    match zip::location::in_path(&path) {
        Ok(Some(place)) => Some(
            place
                .folder
                .join(OsStr::from_bytes(place.archive.as_bytes())),
        ),
        _ => Some(path),
    }
}

/// Returns the local path that `location` is, if it is one.
pub fn local_folder(location: &str) -> Option<String> {
    match scheme(location) {
        None => Some(location.to_string()),
        Some(("file", rest)) => Some(local_path(rest)),
        Some(_) => None,
    }
}

/// Splits `scheme:rest`; a scheme has at least two letters, so that `c:x` stays a path.
pub(super) fn scheme(location: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = location.split_once(':')?;
    let is_scheme = scheme.len() > 1
        && scheme
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'+');
    let is_url = rest.starts_with("//") || scheme == "file" || scheme == "memory";
    (is_scheme && is_url).then_some((scheme, rest))
}

/// Returns the path of a `file:` URL: authority dropped, percent escapes undone.
fn local_path(rest: &str) -> String {
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
    }

    #[test]
    fn secrets_are_not_shown() {
        assert_eq!(redact("https://me:pw@host/a/b?sig=x#y"), "https://host/a/b");
        assert_eq!(redact("s3://bucket/a"), "s3://bucket/a");
        assert_eq!(shown("/a/me:pw@b?c"), "/a/me:pw@b?c");
    }
}
