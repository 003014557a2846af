//! Attributes that were set on a key whose content the top layer does not have.
//!
//! The content is in the store or in a frozen layer. The journal records the attributes. They override the attributes
//! of the content, which other programs may change. When a commit freezes the top layer, they move to the new top
//! layer. When the top layer gets its own file of the key, that file gets the attributes and the record is ignored. The
//! record remains until the file is synced, because a power loss may lose the file and make the old content visible
//! again. `NameChange::override_attributes` sets the attributes.

use std::fs::File;
#[cfg(test)]
use std::sync::Arc;
#[cfg(test)]
use std::time::Duration;
use std::time::SystemTime;

use crate::attributes;
use crate::attributes::Xattrs;
use zarrfs_store::tree::{AttrChange, Posix, Stat, Time};
use zarrfs_store::{EntryKind, Meta, StoreVersion, Version};

/// Owner, mode, times and extended attributes of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AttributeOverride {
    /// Type and permission bits, as in `st_mode`.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) accessed: SystemTime,
    pub(crate) modified: SystemTime,
    /// The time when the attributes were set, which `stat` shows as `st_ctime`.
    pub(crate) changed: SystemTime,
    /// The version of the content whose times are `accessed` and `modified`, or `None` if the store did not have that
    /// content yet.
    pub(crate) version: Option<StoreVersion>,
    pub(crate) xattrs: Xattrs,
    /// Whether the layer of changes has a file of the key that is only a copy of the store's object. That file has the
    /// same attributes.
    pub(crate) is_of_copy: bool,
}

impl AttributeOverride {
    /// Returns the attributes of an open file. `version` is the version of the content that its times belong to.
    pub(crate) fn of(file: &File, version: Version) -> rustix::io::Result<AttributeOverride> {
        let stat = rustix::fs::fstat(file)?;
        let posix = attributes::posix_of(&stat);
        Ok(AttributeOverride {
            mode: posix.mode,
            uid: posix.uid,
            gid: posix.gid,
            accessed: posix.accessed,
            modified: attributes::meta_of(&stat, 0).modified,
            changed: posix.changed,
            version: version.stored(),
            xattrs: attributes::xattrs(file)?,
            is_of_copy: false,
        })
    }

    /// Sets owner, mode and extended attributes of a file from this record, but not its times.
    pub(crate) fn apply_to(&self, file: &File) -> rustix::io::Result<()> {
        attributes::set_all(file, &self.xattrs, &self.owner_and_mode())
    }

    /// Sets the recorded attributes on a copy of an object. The copy gets the recorded times only if they belong to the
    /// object's `version`.
    pub(crate) fn apply_to_copy(&self, file: &File, version: Version) -> rustix::io::Result<()> {
        self.apply_to(file)?;
        if !self.has_times_of(version) {
            return Ok(());
        }
        let times = AttrChange {
            accessed: Some(Time::At(self.accessed)),
            modified: Some(Time::At(self.modified)),
            ..AttrChange::default()
        };
        attributes::set_open(file, &times)
    }

    /// Returns owner and mode as an argument for the functions that set attributes.
    pub(crate) fn owner_and_mode(&self) -> AttrChange {
        let is_root = rustix::process::geteuid().is_root();
        AttrChange {
            mode: Some(self.mode),
            uid: is_root.then_some(self.uid),
            // The group is set even without root, because a file's owner may change it to another of the owner's
            // groups.
            gid: Some(self.gid),
            ..AttrChange::default()
        }
    }

    /// Returns the `stat` of a file with its attributes replaced by the recorded ones. The recorded times count only as
    /// long as the content has the version that they belong to.
    pub(crate) fn applied_to(&self, below: Stat) -> Stat {
        if below.meta.kind != EntryKind::File {
            return below;
        }
        let written = below.meta.modified;
        let (accessed, modified, changed) = if self.has_times_of(below.meta.version) {
            (self.accessed, self.modified, self.changed)
        } else {
            (written, written, written.max(self.changed))
        };
        let posix = Posix {
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            links: below.posix.map_or(1, |posix| posix.links),
            accessed,
            changed,
            identity: below.posix.map_or(0, |posix| posix.identity),
        };
        let meta = Meta {
            modified,
            ..below.meta
        };
        Stat {
            meta,
            posix: Some(posix),
            ..below
        }
    }

    fn has_times_of(&self, version: Version) -> bool {
        match (self.version.map(Version::from), version) {
            (None, version) => version.stored().is_none(),
            (Some(own), version) => own.may_be(version),
        }
    }

    #[cfg(test)]
    pub(crate) fn sample() -> Arc<AttributeOverride> {
        let time = SystemTime::UNIX_EPOCH - Duration::from_nanos(1);
        let xattrs = [(b"user.\xff".to_vec(), b"a \0 value".to_vec())];
        Arc::new(AttributeOverride {
            mode: 0o100_640,
            uid: u32::MAX - 1,
            gid: 1,
            accessed: SystemTime::UNIX_EPOCH,
            modified: time,
            changed: time,
            version: Some(StoreVersion(u64::MAX)),
            xattrs: xattrs.into_iter().collect(),
            is_of_copy: true,
        })
    }

    /// Returns the approximate memory of the recorded extended attributes, in bytes.
    pub(crate) fn xattr_bytes(&self) -> usize {
        let xattrs = self.xattrs.iter();
        xattrs.map(|(name, value)| name.len() + value.len()).sum()
    }
}
