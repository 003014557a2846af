//! Conditions of changes, ETags, and the bodies of puts.
//!
//! A change with a condition is made only if the key holds what the condition says: in one step where the store can do
//! that, else the key is checked just before. A condition that does not hold is `Changed`, and nothing is changed.

use std::fs::File;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::error::{Error, Kind, Result};
use crate::store::{Key, Version};

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
    Held(String),
}

impl Condition {
    /// Returns `Changed` unless the condition holds for a key with the content `found`.
    pub fn check(&self, key: &Key, found: Option<&ETag>) -> Result<()> {
        let why = match (self, found) {
            (Condition::Any, _) | (Condition::Absent, None) => return Ok(()),
            (Condition::Held(held), Some(found)) if *held == found.text => return Ok(()),
            (Condition::Absent, Some(_)) => "is there, though it was not before",
            (Condition::Held(_), Some(_)) => "holds something else than before",
            (Condition::Held(_), None) => "is no longer there",
        };
        Err(Error::new(Kind::Changed, key, why))
    }
}

/// What is put under a key.
#[derive(Clone, Copy, Debug)]
pub enum PutBody<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// As many first bytes of a file.
    File(&'a File, u64),
}

impl PutBody<'_> {
    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            PutBody::Bytes(bytes) => bytes.len() as u64,
            PutBody::File(_, length) => *length,
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
            PutBody::File(file, _) => {
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
