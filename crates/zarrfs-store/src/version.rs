//! Versions tell one content of a key from another.
//!
//! A store makes them of the ETag, or of inode, size and times. A server that sends no ETag tells size and time alone,
//! and two contents of one second may have the same: its versions are transient, so that no content outlives them. A file
//! that was written and is not in the store yet has a version of another type: the two are never equal, and what a change
//! expects of the store can only be a version that the store has told.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use twox_hash::XxHash64;

use crate::Key;
use zarr_format::error::{Error, Result};

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
        let number = XxHash64::oneshot(0, name);
        if number & TRANSIENT == TRANSIENT {
            return Version::numbered(number ^ 1 << 63);
        }
        Version::numbered(number)
    }

    /// Returns the version of a content of the store that has this number.
    pub const fn numbered(number: u64) -> Version {
        Version::Store(StoreVersion(number))
    }

    /// Returns the version of a content of an upper folder that these bytes name.
    pub fn of_upper(name: &[u8]) -> Version {
        Version::Upper(UpperVersion(XxHash64::oneshot(0, name)))
    }

    /// Returns the version of a content of which the store tells size and time of change alone, or not even that: another
    /// one after a moment, as the content may have changed.
    pub(crate) fn transient(size: u64, modified: Option<SystemTime>) -> Version {
        static START: OnceLock<Instant> = OnceLock::new();
        let moments = START.get_or_init(Instant::now).elapsed().as_nanos() / MOMENT.as_nanos();
        let moment = XxHash64::oneshot(0, &moments.to_le_bytes());
        let modified = modified.map(|time| time.duration_since(UNIX_EPOCH).unwrap_or_default());
        let name = format!("{:?} {size}", modified.map(|since| since.as_secs()));
        let seen = XxHash64::oneshot(0, name.as_bytes());
        Version::numbered(TRANSIENT | seen & SEEN | moment & !(TRANSIENT | SEEN))
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

    /// Whether two versions may be of one content: they are equal, or transient with the same size and time.
    pub fn may_be(self, other: Version) -> bool {
        let are_transient = !self.is_lasting() && !other.is_lasting();
        self == other || are_transient && (self.number() ^ other.number()) & SEEN == 0
    }
}

impl From<StoreVersion> for Version {
    fn from(version: StoreVersion) -> Version {
        Version::Store(version)
    }
}

/// The bits that all transient versions have, and no version that names a content for good.
const TRANSIENT: u64 = 0xffff << 48;

/// The bits of a transient version that follow from size and time; those below them are another number each moment.
const SEEN: u64 = 0xff_ffff << 24;

/// How long a transient version stays the same: long enough for one answer to be made of several requests.
const MOMENT: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transient_version_passes_and_is_known_by_size_and_time() {
        let time = UNIX_EPOCH.checked_add(Duration::from_secs(7));
        let first = Version::transient(1, time);
        std::thread::sleep(MOMENT);
        let later = Version::transient(1, time);
        assert!(first != later && first.may_be(later));
        assert!(!first.is_lasting() && Version::of(b"x").is_lasting());
        for other in [
            Version::transient(2, time),
            Version::transient(1, None),
            Version::transient(1, Some(UNIX_EPOCH)),
            Version::of(b"x"),
        ] {
            assert!(!first.may_be(other) && !other.may_be(first));
        }
    }

    #[test]
    fn no_name_has_a_transient_version() {
        let mut names = (0u64..1 << 18).map(|number| Version::of(&number.to_le_bytes()));
        assert!(names.all(Version::is_lasting));
    }
}
