//! Preconditions of changes, ETags, and the bodies of puts.
//!
//! A conditional change is made only if the key's content meets the condition. A store that supports this checks and
//! changes atomically; for other stores the check is made right before the change. If the condition fails, the error is
//! `Changed` and nothing is modified.

use std::fs::File;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::{Key, Version};
use zarr_format::error::{Error, Kind, Result};

/// A text that identifies one content of a key, also in other processes: the server's ETag, or the object's size and
/// times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ETag {
    /// The ETag's text, exactly as the store sends it.
    pub text: String,
    /// The version of the content that the ETag identifies.
    pub version: Version,
}

/// The state that a key must have for a put or removal to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The put or removal is made in any case.
    Any,
    /// The key must be missing.
    Absent,
    /// The key's content must have the ETag with this text.
    Match(String),
    /// The key's content must have this version.
    Version(Version),
}

impl Condition {
    /// Returns `Changed` unless the condition holds for a key with the content `current` (`None` if it is missing).
    pub fn check(&self, key: &Key, current: Option<&ETag>) -> Result<()> {
        let why = match (self, current) {
            (Condition::Any, _) | (Condition::Absent, None) => return Ok(()),
            (Condition::Match(expected), Some(current)) if *expected == current.text => {
                return Ok(());
            }
            (Condition::Version(read), Some(current)) if read.may_be(current.version) => {
                return Ok(());
            }
            (Condition::Absent, Some(_)) => "exists now, but did not exist before",
            (Condition::Match(_), Some(_)) => "has another content than before",
            (Condition::Version(_), Some(_)) => "was changed since it was read",
            (Condition::Match(_) | Condition::Version(_), None) => "no longer exists",
        };
        Err(Error::new(Kind::Changed, key, why))
    }

    /// Returns the condition that a key has not changed since it was read with the given version. `None` means that the
    /// key was missing.
    pub fn unchanged(read: Option<Version>) -> Condition {
        read.map_or(Condition::Absent, Condition::Version)
    }

    /// Returns the condition in the form that a server knows. `Version` becomes `Match` with the present ETag, which
    /// `etag` requests. The error is `Changed` if the key has another version now.
    pub(crate) fn for_server(
        &self,
        key: &Key,
        etag: impl FnOnce() -> Result<Option<ETag>>,
    ) -> Result<Condition> {
        let Condition::Version(_) = self else {
            return Ok(self.clone());
        };
        let current = etag()?;
        self.check(key, current.as_ref())?;
        Ok(current.map_or(Condition::Absent, |current| Condition::Match(current.text)))
    }
}

/// The content of an object to put.
#[derive(Clone, Copy, Debug)]
pub enum PutBody<'a> {
    /// The content, in memory.
    Bytes(&'a [u8]),
    /// The first N bytes of a file.
    File(&'a File, u64),
    /// The first N bytes of a file. The object also gets the file's owner and mode, if the store supports them.
    FileAsIs(&'a File, u64),
}

impl PutBody<'_> {
    /// Returns the length of the object to put, in bytes.
    pub fn len(&self) -> u64 {
        match self {
            PutBody::Bytes(bytes) => bytes.len() as u64,
            PutBody::File(_, length) | PutBody::FileAsIs(_, length) => *length,
        }
    }

    /// Reads the whole content into memory.
    pub fn read(&self) -> Result<Vec<u8>> {
        self.part(0..self.len())
    }

    /// Returns a range of the content. The error is `Invalid` if the content is shorter.
    pub fn part(&self, part: Range<u64>) -> Result<Vec<u8>> {
        let index = |offset| usize::try_from(offset).map_err(|error| Error::too_large("", error));
        let short = || Error::invalid("", "the data are shorter than announced");
        match self {
            PutBody::Bytes(bytes) => {
                let part = bytes.get(index(part.start)?..index(part.end)?);
                part.map(<[u8]>::to_vec).ok_or_else(short)
            }
            PutBody::File(file, _) | PutBody::FileAsIs(file, _) => {
                let mut bytes = vec![0; index(part.end.saturating_sub(part.start))?];
                match file.read_exact_at(&mut bytes, part.start) {
                    Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(short()),
                    read => read.map(|()| bytes).map_err(|error| Error::os("", error)),
                }
            }
        }
    }

    /// Whether the content to put has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn etag(version: u64) -> ETag {
        ETag {
            text: format!("\"{version}\""),
            version: Version::numbered(version),
        }
    }

    #[test]
    fn a_condition_fails_if_the_version_changed() {
        let key = Key::new("a/c/0").unwrap();
        let read = Condition::unchanged(Some(Version::numbered(1)));
        read.check(&key, Some(&etag(1))).unwrap();
        for found in [None, Some(etag(2))] {
            let error = read.check(&key, found.as_ref()).unwrap_err();
            assert_eq!(error.kind(), Kind::Changed);
            assert!(error.to_string().starts_with("a/c/0: "), "{error}");
        }
        let missing = Condition::unchanged(None);
        missing.check(&key, None).unwrap();
        missing.check(&key, Some(&etag(1))).unwrap_err();
    }

    #[test]
    fn a_version_condition_is_sent_as_an_etag() {
        let key = Key::new("a").unwrap();
        let read = Condition::Version(Version::numbered(1));
        let held = read.for_server(&key, || Ok(Some(etag(1)))).unwrap();
        assert_eq!(held, Condition::Match("\"1\"".to_string()));
        let error = read.for_server(&key, || Ok(Some(etag(2)))).unwrap_err();
        assert_eq!(error.kind(), Kind::Changed);
        let any = Condition::Any.for_server(&key, || Err(Error::not_found(&key)));
        assert_eq!(any.unwrap(), Condition::Any);
    }
}
