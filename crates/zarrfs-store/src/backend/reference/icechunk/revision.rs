//! The version of a repository that a user names: a branch, a tag or a snapshot.

use std::fmt;

use percent_encoding::percent_decode_str;

use zarr_format::error::{Error, Result};

/// The version of a repository that is read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Revision {
    /// The tip of a branch, which moves.
    Branch(String),
    /// The snapshot that a tag names.
    Tag(String),
    /// A snapshot, by its identifier.
    Snapshot(String),
}

impl Default for Revision {
    fn default() -> Revision {
        Revision::Branch("main".to_string())
    }
}

impl Revision {
    /// Parses the query of a URL: `branch=NAME`, `tag=NAME` or `snapshot=ID`. Returns `None` if it names no version;
    /// `Invalid` if it names two, or an empty one.
    pub fn in_query(query: &str) -> Result<Option<Revision>> {
        let mut named = query.split('&').filter_map(|part| {
            let (kind, name) = part.split_once('=')?;
            let kind: fn(String) -> Revision = match kind {
                "branch" => Revision::Branch,
                "tag" => Revision::Tag,
                "snapshot" => Revision::Snapshot,
                _ => return None,
            };
            Some(kind(
                percent_decode_str(name).decode_utf8_lossy().into_owned(),
            ))
        });
        let Some(first) = named.next() else {
            return Ok(None);
        };
        if named.next().is_some() {
            return Err(Error::invalid(
                query,
                "name one branch, tag or snapshot, not several",
            ));
        }
        first.checked().map(Some)
    }

    /// Returns the revision; `Invalid` if its name cannot be one.
    pub fn checked(self) -> Result<Revision> {
        let name = self.name();
        if name.is_empty() || name.contains('/') || name == "." || name == ".." {
            let why = "names of branches, tags and snapshots are not empty and have no slash";
            return Err(Error::invalid(name, why));
        }
        Ok(self)
    }

    /// Returns the name of the branch or tag, or the identifier of the snapshot.
    pub fn name(&self) -> &str {
        match self {
            Revision::Branch(name) | Revision::Tag(name) | Revision::Snapshot(name) => name,
        }
    }

    /// Returns the word for it: `branch`, `tag` or `snapshot`.
    pub fn kind(&self) -> &'static str {
        match self {
            Revision::Branch(_) => "branch",
            Revision::Tag(_) => "tag",
            Revision::Snapshot(_) => "snapshot",
        }
    }
}

impl fmt::Display for Revision {
    /// Writes it as in a URL: `branch=main`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.kind(), self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_names_one_version() {
        let branch = Revision::Branch("dev".to_string());
        assert_eq!(Revision::in_query("x=1&branch=dev").unwrap(), Some(branch));
        let tag = Revision::Tag("a b".to_string());
        assert_eq!(Revision::in_query("tag=a%20b").unwrap(), Some(tag));
        assert_eq!(Revision::in_query("sig=1").unwrap(), None);
        for query in ["branch=a&tag=b", "branch=", "tag=a%2fb", "tag=.."] {
            assert!(Revision::in_query(query).is_err(), "{query}");
        }
    }
}
