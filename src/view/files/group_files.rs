//! Files of a group's own that hold all of its arrays: `GROUP.nc`.
//!
//! They open by name and are not listed. What such a file consists of depends on all children of the group, so it is
//! never resolved without waiting.

use std::sync::Arc;
use std::time::Duration;

use crate::array::OpenArray;
use crate::error::{Error, Kind, Result};
use crate::export::GROUP_FORMATS;
use crate::export::group::{
    GroupContents, GroupFile, GroupFormat, GroupMember, GroupPlan, Subgroup,
};
use crate::hierarchy::NodeEntry;
use crate::view::files::FilesView;
use crate::view::text_file::file_attr;
use crate::view::{Attr, File, OpenedFile};

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

    /// Returns the file of a group in a format; nothing if the group has no arrays, or one that the format cannot hold
    /// or leave out.
    pub(super) fn group_target(
        &self,
        found: Arc<NodeEntry>,
        format: &GroupFormat,
    ) -> Result<Option<GroupTarget>> {
        let Some(nodes) = self.nodes_below(&found, format.is_nested)? else {
            return Ok(None);
        };
        let mut left_out = nodes.left_out;
        let (mut members, mut arrays) = (Vec::new(), Vec::new());
        for node in &nodes.arrays {
            let array = self.arrays.open(node)?;
            match (member_of(&found, node), array.check_decodable()) {
                (_, Err(error)) if format.is_nested => left_out.push(error.to_string()),
                (Some(member), _) => {
                    members.push(member);
                    arrays.push(array);
                }
                _ if format.is_nested => left_out.push(not_text(node)),
                _ => return Ok(None),
            }
        }
        let subgroups = nodes.groups.iter();
        let contents = GroupContents {
            attributes: found.node()?.attributes(),
            subgroups: subgroups
                .filter_map(|node| subgroup_of(&found, node))
                .collect(),
            members,
            left_out,
        };
        let has_arrays = !contents.members.is_empty();
        let plan = has_arrays.then(|| (format.plan)(&contents)).flatten();
        Ok(plan.map(|plan| GroupTarget {
            found,
            arrays,
            plan,
        }))
    }

    /// Returns the nodes of a group, and of those below it if that is asked for; nothing if there are too many children,
    /// or children that do not read and may not be left out.
    fn nodes_below(&self, found: &Arc<NodeEntry>, is_nested: bool) -> Result<Option<NodesBelow>> {
        let (mut below, mut count) = (NodesBelow::default(), 0);
        let mut open = vec![found.clone()];
        while let Some(group) = open.pop() {
            let mut listing = self.hierarchy.children(&group)?;
            while let Some(name) = listing.next()? {
                count += 1;
                if count > MAX_CHILDREN {
                    return Ok(None);
                }
                let Some(child) = self.hierarchy.child(&group, &name.name)? else {
                    continue;
                };
                match &child.node {
                    Err(_) if !is_nested => return Ok(None),
                    Err(error) => below.left_out.push(error.to_string()),
                    Ok(_) if child.is_array() => below.arrays.push(child),
                    Ok(_) if is_nested => {
                        below.groups.push(child.clone());
                        open.push(child);
                    }
                    Ok(_) => {}
                }
            }
        }
        below.arrays.sort_by(|a, b| a.path.cmp(&b.path));
        below.groups.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Some(below))
    }
}

/// The nodes below a group, in order of their paths.
#[derive(Default)]
struct NodesBelow {
    groups: Vec<Arc<NodeEntry>>,
    arrays: Vec<Arc<NodeEntry>>,
    /// A sentence on each node that does not read.
    left_out: Vec<String>,
}

fn member_of<'a>(group: &NodeEntry, node: &'a NodeEntry) -> Option<GroupMember<'a>> {
    Some(GroupMember {
        path: relative(group, node)?,
        array: node.array()?,
    })
}

fn subgroup_of<'a>(group: &NodeEntry, node: &'a NodeEntry) -> Option<Subgroup<'a>> {
    Some(Subgroup {
        path: relative(group, node)?,
        attributes: node.node.as_ref().ok()?.attributes(),
    })
}

/// Returns the path of a node from a group above it; nothing if it is not text.
fn relative(group: &NodeEntry, node: &NodeEntry) -> Option<String> {
    let path = node.path.below(&group.path)?;
    String::from_utf8(path.as_bytes().to_vec()).ok()
}

fn not_text(node: &NodeEntry) -> String {
    let path = node.path.as_bytes().escape_ascii();
    format!("{path}: the name is not UTF-8")
}

/// Returns the error of changing such a file.
pub(super) fn read_only(found: &NodeEntry) -> Error {
    let why = "a file of all arrays of a group is not written; write those of the arrays";
    Error::new(Kind::ReadOnly, &found.path, why)
}

impl File for GroupFile {
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
