//! Files of a group's own that hold all of its arrays: `GROUP.nc`.
//!
//! They open by name and are not listed. What such a file consists of depends on all children of the group, so it is
//! never resolved without waiting.

use std::sync::Arc;
use std::time::Duration;

use crate::array::OpenArray;
use crate::error::{Error, Kind, Result};
use crate::export::GROUP_FORMATS;
use crate::export::group::{GroupFile, GroupFormat, GroupMember, GroupPlan};
use crate::hierarchy::NodeEntry;
use crate::view::files::FilesView;
use crate::view::text_file::file_attr;
use crate::view::{Attr, File, OpenedFile, ReadBytes};

/// A file of a group.
pub(super) struct GroupTarget {
    /// The group.
    pub(super) found: Arc<NodeEntry>,
    arrays: Vec<Arc<OpenArray>>,
    plan: GroupPlan,
}

/// The most children of a group that has such files: all of them are read to look one up.
const MAX_CHILDREN: usize = 4096;

impl GroupTarget {
    /// Returns the exact length in bytes.
    pub(super) fn length(&self) -> Result<u64> {
        self.plan.len(&self.arrays)
    }

    /// Returns the number of the content.
    pub(super) fn content(&self) -> u64 {
        self.plan.content(&self.arrays)
    }

    /// Opens the file.
    pub(super) fn open(&self) -> Result<OpenedFile> {
        let file = GroupFile::open(&self.plan, &self.arrays)?;
        let mut version = Some(0);
        for array in file.arrays() {
            let content = array.content()?;
            version = version.zip(content).map(|(all, one)| joined(all, one));
        }
        Ok(OpenedFile {
            file: Arc::new(file),
            content: Some(self.content()),
            version,
            direct: false,
            tree_file: None,
        })
    }
}

/// Returns a number of the contents of several arrays.
fn joined(all: u64, one: u64) -> u64 {
    all.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ one
}

impl FilesView {
    /// Returns the format that a name within a group names, if it is that of a file of all of its arrays.
    pub(super) fn group_format(
        &self,
        found: &NodeEntry,
        name: &[u8],
    ) -> Option<&'static GroupFormat> {
        let extension = name.strip_prefix(self.name_of(found))?.strip_prefix(b".")?;
        let mut formats = GROUP_FORMATS.iter();
        let found = formats.find(|format| format.extension.as_bytes() == extension);
        found.copied()
    }

    /// Returns the file of a group in a format; nothing if the group has no arrays, or one that the format cannot hold.
    pub(super) fn group_target(
        &self,
        found: Arc<NodeEntry>,
        format: &GroupFormat,
    ) -> Result<Option<GroupTarget>> {
        let Some(nodes) = self.arrays_of(&found)? else {
            return Ok(None);
        };
        let members: Option<Vec<GroupMember>> = nodes.iter().map(|node| member_of(node)).collect();
        let attributes = found.node()?.attributes();
        let plan = members.and_then(|members| (format.plan)(attributes, &members));
        let Some(plan) = plan else {
            return Ok(None);
        };
        let arrays = nodes.iter().map(|node| self.arrays.open(node));
        Ok(Some(GroupTarget {
            arrays: arrays.collect::<Result<_>>()?,
            found,
            plan,
        }))
    }

    /// Returns the arrays of a group, at least one; nothing if there is none, or there are too many children or children
    /// that do not read.
    fn arrays_of(&self, found: &Arc<NodeEntry>) -> Result<Option<Vec<Arc<NodeEntry>>>> {
        let (mut listing, mut arrays) = (self.hierarchy.children(found)?, Vec::new());
        let mut count = 0;
        while let Some(name) = listing.next()? {
            count += 1;
            match self.hierarchy.child(found, &name.name)? {
                Some(child) if child.node.is_err() => return Ok(None),
                Some(child) if child.is_array() => arrays.push(child),
                _ => {}
            }
            if count > MAX_CHILDREN {
                return Ok(None);
            }
        }
        arrays.sort_by(|a, b| a.path.cmp(&b.path));
        Ok((!arrays.is_empty()).then_some(arrays))
    }
}

fn member_of(node: &NodeEntry) -> Option<GroupMember<'_>> {
    Some(GroupMember {
        name: std::str::from_utf8(node.path.name()).ok()?,
        array: node.array()?,
    })
}

/// Returns the error of changing such a file.
pub(super) fn read_only(found: &NodeEntry) -> Error {
    let why = "a file of all arrays of a group is not written; write those of the arrays";
    Error::new(Kind::ReadOnly, &found.path, why)
}

impl File for GroupFile {
    fn read_now(&self, offset: u64, len: usize) -> Option<ReadBytes> {
        GroupFile::read_now(self, offset, len)
    }

    fn read_at(&self, offset: u64, len: usize) -> Result<ReadBytes> {
        GroupFile::read_at(self, offset, len)
    }

    fn version(&self) -> Option<u64> {
        let contents = self.arrays().map(|array| array.content_now());
        Some(contents.fold(0, joined))
    }

    fn may_have_changed(&self) -> bool {
        GroupFile::may_have_changed(self)
    }

    fn attr(&self) -> Option<Attr> {
        let newest = self.arrays().map(|array| array.modified()).max()?;
        Some(file_attr(self.len(), newest, Duration::ZERO))
    }
}
