//! Attributes that were set on a key whose content is below the top layer.
//!
//! They are records of the journal. They override the attributes of the content below, which other programs may change.
//! They belong to the top layer: a freeze moves them to the next layer. When the layer gets a content of the key, its
//! file gets the attributes, and the record is ignored. The record remains until that content is synced, because a
//! power loss may lose it, and the content below is then visible again. `NameChange::override_attributes` sets them.

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
    /// The time when the attributes were set.
    pub(crate) changed: SystemTime,
    /// The version of the content that `accessed` and `modified` belong to; `None` if a frozen layer had that content.
    pub(crate) version: Option<StoreVersion>,
    pub(crate) xattrs: Xattrs,
    /// Whether the layer has a file of the key that is only a copy of the store's content. The file has these
    /// attributes too.
    pub(crate) is_of_copy: bool,
}

impl AttributeOverride {
    /// Returns the attributes of a file. Its times belong to a content of this version.
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

    /// Sets these attributes on a file, except for the times.
    pub(crate) fn apply_to(&self, file: &File) -> rustix::io::Result<()> {
        attributes::set_all(file, &self.xattrs, &self.owner_and_mode())
    }

    /// Sets these attributes on a copy of a content of this version, with the times if they belong to that version.
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

    /// Returns the change that sets owner and mode.
    pub(crate) fn owner_and_mode(&self) -> AttrChange {
        let is_root = rustix::process::geteuid().is_root();
        AttrChange {
            mode: Some(self.mode),
            uid: is_root.then_some(self.uid),
            // A user other than the daemon's may have set it, to one of their own groups.
            gid: Some(self.gid),
            ..AttrChange::default()
        }
    }

    /// Returns the `stat` of a file below with these attributes. The times of the attributes are used only as long as
    /// the content has the same version.
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

    /// Returns the approximate number of extra bytes in the record of these attributes.
    pub(crate) fn xattr_bytes(&self) -> usize {
        let xattrs = self.xattrs.iter();
        xattrs.map(|(name, value)| name.len() + value.len()).sum()
    }
}
