//! Files of a group's own that hold all of its arrays: `GROUP.nc`.
//!
//! They open by name, and are listed where that was asked for. What such a file consists of depends on all children of the
//! group, so it is never resolved without waiting.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Kind, Result};
use crate::export::group::{GroupFile, GroupFormat};
use crate::hierarchy::NodeEntry;
use crate::inspect::file_ending::group_format;
use crate::inspect::group_file::{GroupSource, PlannedFile};
use crate::model::Node;
use crate::request_context::RequestContext;
use crate::view::files::FilesView;
use crate::view::text_file::file_attr;
use crate::view::{Attr, File, OpenedFile};

/// A file of a group.
pub(super) struct GroupTarget {
    /// The group.
    pub(super) found: Arc<NodeEntry>,
    pub(super) file: PlannedFile,
}

impl GroupTarget {
    /// Opens the file.
    pub(super) fn open(&self, context: &RequestContext) -> Result<OpenedFile> {
        let file = self.file.open(context)?;
        let mut version = Some(0);
        for array in file.arrays() {
            let content = array.content(context)?;
            version = version.zip(content).map(|(all, one)| joined(all, one));
        }
        Ok(OpenedFile {
            file: Arc::new(file),
            content: Some(self.file.content()),
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
        group_format(str::from_utf8(extension).ok()?).ok()
    }

    /// Returns the file of a group in a format; nothing if there is none.
    pub(super) fn group_target(
        &self,
        context: &RequestContext,
        found: Arc<NodeEntry>,
        format: &'static GroupFormat,
    ) -> Result<Option<GroupTarget>> {
        let file = self.group_source(&found).file(context, format)?;
        Ok(file.ok().map(|file| GroupTarget { found, file }))
    }

    fn group_source<'a>(&'a self, group: &'a Arc<NodeEntry>) -> GroupSource<'a> {
        GroupSource {
            hierarchy: &self.hierarchy,
            arrays: &self.arrays,
            group,
        }
    }

    /// Returns the names of a group's files of all of its arrays. One that is not known is among them: opening it says
    /// why.
    pub(super) fn group_file_names(
        &self,
        context: &RequestContext,
        found: &Arc<NodeEntry>,
        formats: &[&'static GroupFormat],
    ) -> Vec<Vec<u8>> {
        if !matches!(&found.node, Ok(Node::Group(_))) {
            return Vec::new();
        }
        let source = self.group_source(found);
        let opens = |format: &&&'static GroupFormat| match source.file(context, format) {
            Ok(answer) => answer.is_ok(),
            // The store does not list names, so there is none.
            Err(error) => error.kind() != Kind::Unsupported,
        };
        let formats = formats.iter().filter(opens);
        formats
            .map(|format| [self.name_of(found), b".", format.extension.as_bytes()].concat())
            .filter(|name| found.path.child(name).is_ok())
            .collect()
    }
}

impl File for GroupFile {
    fn version(&self) -> Option<u64> {
        let contents = self.arrays().map(|array| array.content_now());
        Some(contents.fold(0, joined))
    }

    fn may_have_changed(&self) -> bool {
        GroupFile::may_have_changed(self)
    }

    fn attr(&self, _context: &RequestContext) -> Option<Attr> {
        let newest = self.arrays().map(|array| array.modified()).max()?;
        Some(file_attr(self.len(), newest, Duration::ZERO))
    }
}
