//! Versions tell one content of a key from another.
//!
//! A store makes them of the ETag, or of inode, size and times. A file that was written and is not in the store yet has
//! a version of another type: the two are never equal, and what a change expects of the store can only be a version that
//! the store has told.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use twox_hash::XxHash64;

use crate::error::{Error, Result};
use crate::store::Key;

/// Which content of a key it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// A content of the store.
    Store(StoreVersion),
    /// A content of an upper folder.
    Upper(UpperVersion),
}

/// Which content of the store it is. The same in every process: these versions are written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreVersion(pub u64);

/// Which content of an upper folder it is. It counts in one process only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UpperVersion(u64);

impl Version {
    /// The version of something without content.
    pub const NONE: Version = Version::numbered(0);

    /// Returns the version of a content of the store that these bytes name.
    pub fn of(name: &[u8]) -> Version {
        Version::numbered(XxHash64::oneshot(0, name))
    }

    /// Returns the version of a content of the store that has this number.
    pub const fn numbered(number: u64) -> Version {
        Version::Store(StoreVersion(number))
    }

    /// Returns the version of a content of an upper folder that these bytes name.
    pub fn of_upper(name: &[u8]) -> Version {
        Version::Upper(UpperVersion(XxHash64::oneshot(0, name)))
    }

    /// Returns the version of a content of which the store tells no more than its size: another one after a moment, as
    /// the content may have changed.
    pub(crate) fn transient(size: u64) -> Version {
        static START: OnceLock<Instant> = OnceLock::new();
        let moments = START.get_or_init(Instant::now).elapsed().as_nanos() / MOMENT.as_nanos();
        let name = format!("{moments} {size}");
        Version::numbered(TRANSIENT | XxHash64::oneshot(0, name.as_bytes()) & !TRANSIENT)
    }

    /// Returns a number that tells the version from nearly all others.
    pub fn number(self) -> u64 {
        match self {
            Version::Store(StoreVersion(number)) | Version::Upper(UpperVersion(number)) => number,
        }
    }

    /// Returns the store's version; `None` if the content is one of an upper folder.
    pub fn stored(self) -> Option<StoreVersion> {
        match self {
            Version::Store(version) => Some(version),
            Version::Upper(_) => None,
        }
    }

    /// Returns the version that the store told of a key; `Invalid` if it is none of a store.
    pub fn told_of(self, key: &Key) -> Result<StoreVersion> {
        let why = "the store below told a version of an upper folder";
        self.stored().ok_or_else(|| Error::invalid(key, why))
    }

    /// Whether the version tells another content from this one for good, so that its bytes may be kept.
    pub fn is_lasting(self) -> bool {
        self.number() & TRANSIENT != TRANSIENT
    }
}

impl From<StoreVersion> for Version {
    fn from(version: StoreVersion) -> Version {
        Version::Store(version)
    }
}

/// The bits that all transient versions have; next to none of the others has them.
const TRANSIENT: u64 = 0xffff_ffff << 32;

/// How long a transient version stays the same: long enough for one answer to be made of several requests.
const MOMENT: Duration = Duration::from_millis(100);
