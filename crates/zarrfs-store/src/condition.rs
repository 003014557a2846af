//! Conditions of changes, ETags, and the bodies of puts.
//!
//! A change with a condition is made only if the key holds what the condition says: in one step where the store can do
//! that, else the key is checked just before. A condition that does not hold is `Changed`, and nothing is changed.

use std::fs::File;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::{Key, Version};
use zarr_format::error::{Error, Kind, Result};

/// Names one content of a key by a text that outlives the process: the server's ETag, or size and times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ETag {
    /// The text, as the store spells it.
    pub text: String,
    /// The version of the same content.
    pub version: Version,
}

/// What a key must hold for a change to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Anything, or nothing.
    Any,
    /// Nothing.
    Absent,
    /// The content whose ETag has this text.
    Match(String),
    /// The content that readers of this process know by this version: what was read is still there.
    Version(Version),
}

impl Condition {
    /// Returns `Changed` unless the condition holds for a key with the content `found`.
    pub fn check(&self, key: &Key, found: Option<&ETag>) -> Result<()> {
        let why = match (self, found) {
            (Condition::Any, _) | (Condition::Absent, None) => return Ok(()),
            (Condition::Match(held), Some(found)) if *held == found.text => return Ok(()),
            (Condition::Version(read), Some(found)) if read.may_be(found.version) => return Ok(()),
            (Condition::Absent, Some(_)) => "is there, though it was not before",
            (Condition::Match(_), Some(_)) => "holds something else than before",
            (Condition::Version(_), Some(_)) => "was changed since it was read",
            (Condition::Match(_) | Condition::Version(_), None) => "is no longer there",
        };
        Err(Error::new(Kind::Changed, key, why))
    }

    /// Returns the condition of a key that was read: that it still holds this version, or is still missing.
    pub fn unchanged(read: Option<Version>) -> Condition {
        read.map_or(Condition::Absent, Condition::Version)
    }

    /// Returns the condition in a server's own words; `etag` asks it for what the key holds now. `Changed` if that is
    /// not the version that the condition names.
    pub fn in_words(
        &self,
        key: &Key,
        etag: impl FnOnce() -> Result<Option<ETag>>,
    ) -> Result<Condition> {
        let Condition::Version(_) = self else {
            return Ok(self.clone());
        };
        let found = etag()?;
        self.check(key, found.as_ref())?;
        Ok(found.map_or(Condition::Absent, |found| Condition::Match(found.text)))
    }
}

/// What is put under a key.
#[derive(Clone, Copy, Debug)]
pub enum PutBody<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// As many first bytes of a file.
    File(&'a File, u64),
    /// The same of a file whose owner and mode the object gets, where the store has such things.
    FileAsIs(&'a File, u64),
}

impl PutBody<'_> {
    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            PutBody::Bytes(bytes) => bytes.len() as u64,
            PutBody::File(_, length) | PutBody::FileAsIs(_, length) => *length,
        }
    }

    /// Returns all of it in memory.
    pub fn read(&self) -> Result<Vec<u8>> {
        self.part(0..self.len())
    }

    /// Returns a part of it; `Invalid` if it has no such part.
    pub fn part(&self, part: Range<u64>) -> Result<Vec<u8>> {
        let index = |offset| usize::try_from(offset).map_err(|error| Error::too_large("", error));
        let short = || Error::invalid("", "is shorter than was promised");
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

    /// Whether there is nothing in it.
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
    fn a_version_that_was_read_is_still_there_or_the_key_has_changed() {
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
    fn a_server_is_told_the_words_of_a_version() {
        let key = Key::new("a").unwrap();
        let read = Condition::Version(Version::numbered(1));
        let held = read.in_words(&key, || Ok(Some(etag(1)))).unwrap();
        assert_eq!(held, Condition::Match("\"1\"".to_string()));
        let error = read.in_words(&key, || Ok(Some(etag(2)))).unwrap_err();
        assert_eq!(error.kind(), Kind::Changed);
        let any = Condition::Any.in_words(&key, || Err(Error::not_found(&key)));
        assert_eq!(any.unwrap(), Condition::Any);
    }
}
