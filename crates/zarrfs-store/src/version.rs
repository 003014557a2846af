//! Versions distinguish the contents of a key.
//!
//! A store derives them from the ETag, or from inode, size and times. A server without ETags sends only size and time,
//! which may be equal for two contents of the same second. So its versions are transient: they change every 100 ms, and
//! no cache can take an older content for the present one. The versions of an upper folder (the changes of a
//! copy-on-write mount) never equal those of a store, and the precondition of a change can only name a version of the
//! store.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use twox_hash::XxHash64;

use crate::Key;
use zarr_format::error::{Error, Result};

/// The bits that are all set in a transient version (of a server without ETags), and never all set in a lasting one.
const TRANSIENT: u64 = 0xffff << 48;

/// The bits of a transient version that depend on size and time. The lower bits change every 100 ms.
const FACTS: u64 = 0xff_ffff << 24;

/// How long a transient version stays the same: long enough for the few requests that one answer needs.
const MOMENT: Duration = Duration::from_millis(100);

/// The version of the content of an object or file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// The content is in the store.
    Store(StoreVersion),
    /// The content is in an upper folder, which has the changes of a copy-on-write mount. The number is only valid in
    /// this process.
    Upper(u64),
}

/// The version of a content in the store. It is the same in every process, so it can be written to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreVersion(pub u64);

impl Version {
    /// The version of an entry without content, such as a directory.
    pub const NONE: Version = Version::numbered(0);

    /// Returns the store version for the bytes that identify a content, such as an ETag.
    pub fn of(name: &[u8]) -> Version {
        Version::of_hash(XxHash64::oneshot(0, name))
    }

    /// Returns the lasting (not transient) version with the given hash.
    pub fn of_hash(hash: u64) -> Version {
        if hash & TRANSIENT == TRANSIENT {
            return Version::numbered(hash ^ 1 << 63);
        }
        Version::numbered(hash)
    }

    /// Returns the store version with the given number.
    pub const fn numbered(number: u64) -> Version {
        Version::Store(StoreVersion(number))
    }

    /// Returns the version in an upper folder for the bytes that identify a content.
    pub fn of_upper(name: &[u8]) -> Version {
        Version::Upper(XxHash64::oneshot(0, name))
    }

    /// Returns a transient version, for a store that sends at most size and time. It differs 100 ms later, since the
    /// content may have changed unnoticed.
    pub(crate) fn transient(size: u64, modified: Option<SystemTime>) -> Version {
        static START: OnceLock<Instant> = OnceLock::new();
        let moments = START.get_or_init(Instant::now).elapsed().as_nanos() / MOMENT.as_nanos();
        let moment = XxHash64::oneshot(0, &moments.to_le_bytes());
        let modified = modified.map(|time| time.duration_since(UNIX_EPOCH).unwrap_or_default());
        let name = format!("{:?} {size}", modified.map(|since| since.as_secs()));
        let facts = XxHash64::oneshot(0, name.as_bytes());
        Version::numbered(TRANSIENT | facts & FACTS | moment & !(TRANSIENT | FACTS))
    }

    /// Returns the version as a 64-bit number, which is unique except for hash collisions.
    pub fn number(self) -> u64 {
        match self {
            Version::Store(StoreVersion(number)) | Version::Upper(number) => number,
        }
    }

    /// Returns the store version, or `None` if the content is in an upper folder.
    pub fn stored(self) -> Option<StoreVersion> {
        match self {
            Version::Store(version) => Some(version),
            Version::Upper(_) => None,
        }
    }

    /// Returns the version that the store sent for a key. The error is `Invalid` if the content is in an upper folder.
    pub fn require_stored(self, key: &Key) -> Result<StoreVersion> {
        let why = "the version is not one of the store";
        self.stored().ok_or_else(|| Error::invalid(key, why))
    }

    /// Whether the version identifies the content for good, so that caches may store the bytes.
    pub fn is_lasting(self) -> bool {
        self.number() & TRANSIENT != TRANSIENT
    }

    /// Returns a transient version for the same content, so that caches do not store the bytes.
    pub fn as_transient(self) -> Version {
        Version::numbered(self.number() | TRANSIENT)
    }

    /// Returns the version of a part of the content. It is transient if the version of the whole content is.
    pub(crate) fn of_part(self, part: &[u8]) -> Version {
        if self.is_lasting() {
            return Version::of_hash(XxHash64::oneshot(self.number(), part));
        }
        let facts = XxHash64::oneshot(self.number() & FACTS, part);
        let moment = self.number() & !(TRANSIENT | FACTS);
        Version::numbered(TRANSIENT | facts & FACTS | moment)
    }

    /// Whether two versions may be of the same content: they are equal, or both are transient with equal size and time.
    pub fn may_be(self, other: Version) -> bool {
        let are_transient = !self.is_lasting() && !other.is_lasting();
        self == other || are_transient && (self.number() ^ other.number()) & FACTS == 0
    }
}

impl From<StoreVersion> for Version {
    fn from(version: StoreVersion) -> Version {
        Version::Store(version)
    }
}

/// The number of times that a whole store was replaced, as an open zip archive may be.
///
/// A reader takes the number before its requests to the store. Their answers belong to one state of the store if the
/// number has not changed since. It stays 0 in stores whose keys change one by one.
#[derive(Debug, Default)]
pub struct ArchiveGeneration(AtomicU64);

impl ArchiveGeneration {
    /// Returns how often the whole store was replaced.
    pub fn number(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Counts a replacement of the store. Called before the first answer from the new content is returned.
    pub(crate) fn advance(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transient_versions_of_one_size_and_time_may_match() {
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
    fn a_part_of_a_transient_version_is_transient() {
        let first = Version::transient(1, None);
        std::thread::sleep(MOMENT);
        let later = Version::transient(1, None);
        let part = |version: Version| version.of_part(b"0 4");
        assert!(part(first) != part(later) && part(first).may_be(part(later)));
        assert!(
            !part(first).is_lasting() && !part(first).may_be(part(Version::transient(2, None)))
        );
        assert!(!part(first).may_be(first.of_part(b"4 4")));
        let lasting = Version::of(b"x");
        assert!(part(lasting).is_lasting() && part(lasting) != lasting.of_part(b"4 4"));
        assert!(part(lasting) != part(Version::of(b"y")));
    }

    #[test]
    fn a_hashed_version_is_never_transient() {
        let mut names = (0u64..1 << 18).map(|number| Version::of(&number.to_le_bytes()));
        assert!(names.all(Version::is_lasting));
    }
}
