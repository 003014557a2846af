//! Resolves the URLs of the objects that references lead to.

use std::collections::HashMap;
use std::sync::Arc;

use crate::location::{local_folder, normalized};

/// The memory of a URL besides its text, in bytes: an entry of the map and one of the list.
const OVERHEAD: u64 = 64;

/// The URLs in a reference file, each stored once, as the file writes them.
#[derive(Default)]
pub(super) struct TargetNames {
    numbers: HashMap<Arc<str>, u32>,
    names: Vec<Arc<str>>,
    length: u64,
}

/// The object that a URL in a reference file leads to.
pub(super) enum Target {
    /// The object's absolute URL or path.
    Url(Arc<str>),
    /// The URL is unusable; the text says why.
    Damaged(Arc<str>),
}

/// The resolved URLs of a reference file, in the order of their indexes.
pub(super) struct ExpandedTargets {
    pub(super) list: Vec<Target>,
    /// Number of bytes in use.
    pub(super) held: u64,
}

impl TargetNames {
    /// Returns the index of a URL, which is added if it is new. Returns `None` beyond 2^32 URLs.
    pub(super) fn number(&mut self, text: &str) -> Option<u32> {
        if let Some(number) = self.numbers.get(text) {
            return Some(*number);
        }
        let number = u32::try_from(self.names.len()).ok()?;
        let text: Arc<str> = text.into();
        self.length += text.len() as u64 + OVERHEAD;
        self.numbers.insert(text.clone(), number);
        self.names.push(text);
        Some(number)
    }

    pub(super) fn held(&self) -> u64 {
        self.length
    }

    /// Resolves all URLs. An error of `expand` says why a URL is unusable.
    pub(super) fn expand(
        &mut self,
        expand: impl Fn(&str) -> Result<String, String>,
    ) -> ExpandedTargets {
        self.numbers = HashMap::new();
        let mut held = 0;
        let mut target = |name: Arc<str>| {
            let expanded = expand(&name);
            let text = expanded.as_ref().unwrap_or_else(|why| why);
            held += text.len() as u64 + OVERHEAD;
            match expanded {
                Ok(url) => Target::Url(url.into()),
                Err(why) => Target::Damaged(why.into()),
            }
        };
        let names = std::mem::take(&mut self.names);
        let list = names.into_iter().map(&mut target).collect();
        ExpandedTargets { list, held }
    }
}

/// The folder of a reference file, against which relative URLs are resolved.
#[derive(Clone, Debug)]
pub(super) struct TargetBase(String);

impl TargetBase {
    pub(super) fn new(folder: &str) -> TargetBase {
        let folder = match local_folder(folder) {
            Some(path) => {
                let absolute = std::path::absolute(&path);
                absolute.map_or(path, |path| path.to_string_lossy().into_owned())
            }
            None => {
                let end = folder.find(['?', '#']).unwrap_or(folder.len());
                folder.get(..end).unwrap_or_default().to_string()
            }
        };
        TargetBase(folder.trim_end_matches('/').to_string())
    }

    /// Returns the folder that contains this folder.
    pub(super) fn parent(&self) -> TargetBase {
        TargetBase(self.join("..").trim_end_matches('/').to_string())
    }

    /// Returns the absolute URL or path for a URL in a reference file.
    pub(super) fn resolve(&self, target: &str) -> String {
        // In fsspec's chained URLs, such as simplecache::s3://, the object comes last.
        let target = target.rsplit("::").next().unwrap_or_default();
        let target = normalized(target);
        if let Some(rest) = target.strip_prefix("local://") {
            return rest.to_string();
        }
        let is_relative =
            local_folder(&target).as_deref() == Some(target.as_str()) && !target.starts_with('/');
        if is_relative {
            self.join(&target)
        } else {
            target
        }
    }

    /// Appends a relative path to the folder, and resolves `.` and `..`.
    fn join(&self, path: &str) -> String {
        // `..` never removes the host or bucket, so a reference cannot leave the server.
        let root = match self.0.find("://") {
            Some(scheme) => {
                let rest = self.0.get(scheme + 3..).unwrap_or_default();
                scheme + 3 + rest.find('/').unwrap_or(rest.len())
            }
            None => 0,
        };
        let (root, folder) = self.0.split_at(root);
        let mut names: Vec<&str> = folder.split('/').filter(|name| !name.is_empty()).collect();
        let is_http = root.starts_with("http://") || root.starts_with("https://");
        let encoded;
        let path = if is_http {
            encoded = percent_encoding::utf8_percent_encode(path, ENCODED).to_string();
            &encoded
        } else {
            path
        };
        for name in path.split('/') {
            match name {
                "" | "." => {}
                ".." => {
                    names.pop();
                }
                name => names.push(name),
            }
        }
        format!("{root}/{}", names.join("/"))
    }
}

/// The characters that must be escaped in the path of a URL.
const ENCODED: &percent_encoding::AsciiSet = &percent_encoding::CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?');

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_of_a_folder_is_found() {
        for (folder, expected) in [
            ("/data/refs.parq/", "/data"),
            ("/refs.parq", ""),
            ("s3://b/a/refs.parq", "s3://b/a"),
            ("s3://b", "s3://b"),
        ] {
            assert_eq!(TargetBase::new(folder).parent().0, expected);
        }
    }

    #[test]
    fn relative_targets_are_resolved_against_the_folder() {
        for (folder, target, expected) in [
            ("/data/refs", "a/b.nc", "/data/refs/a/b.nc"),
            ("/data/refs/", "../b.nc", "/data/b.nc"),
            ("/data", "../../../b.nc", "/b.nc"),
            ("/data", "/x/b.nc", "/x/b.nc"),
            ("/data", "local:///x/b.nc", "/x/b.nc"),
            ("/data", "s3://b/c", "s3://b/c"),
            ("s3://b/refs/", "./b.nc", "s3://b/refs/b.nc"),
            ("s3://b", "../../x.nc", "s3://b/x.nc"),
            ("https://h/r?sig=1", "a b%.nc", "https://h/r/a%20b%25.nc"),
            ("https://h/r", "simplecache::GS://b/c", "gs://b/c"),
            ("https://h/r", "file:///x", "file:///x"),
        ] {
            assert_eq!(
                TargetBase::new(folder).resolve(target),
                expected,
                "{folder} {target}"
            );
        }
    }
}
