//! Files of several arrays: of a whole group, or of an array with coordinates.
//!
//! `GROUP.nc` has all arrays of a group, `NAME.nc` an array with its coordinates. They open by name and are listed only
//! if the options say so. The parts of such a file depend on other nodes, so it is never resolved without waiting.

use std::sync::Arc;
use std::time::Duration;

use crate::view::files::FilesView;
use crate::view::text_file::file_attr;
use crate::view::{Attr, File, OpenedFile};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::Node;
use zarrfs_array::hierarchy::NodeEntry;
use zarrfs_export::formats::VARIABLE_FORMATS;
use zarrfs_export::formats::group::{GroupFile, GroupFormat, OrWhyNot};
use zarrfs_export::inspect::file_ending::GroupChoice;
use zarrfs_export::inspect::group_file::{GroupSource, PlannedFile};
use zarrfs_export::inspect::variable_file::VariableSource;
use zarrfs_store::request_context::RequestContext;

/// A file of a group, or of an array with its coordinates.
pub(super) struct GroupTarget {
    /// The group or the array.
    pub(super) found: Arc<NodeEntry>,
    pub(super) file: Box<PlannedFile>,
}

impl GroupTarget {
    /// Opens the file.
    pub(super) fn open(&self, context: &RequestContext) -> Result<OpenedFile> {
        // Taken before elements are read: if they change during the read, the version is already stale.
        let mut version = Some(0);
        for array in self.file.arrays() {
            let content = array.content(context)?;
            version = version.zip(content).map(|(all, one)| joined(all, one));
        }
        let file = self.file.open(context)?;
        Ok(OpenedFile {
            file: Arc::new(file),
            content: Some(self.file.content()),
            version,
            direct: false,
            tree_file: None,
        })
    }
}

/// Returns the file of a node, or `NoFile` with the reason if it cannot be made.
fn target_of(
    found: Arc<NodeEntry>,
    choice: &GroupChoice<'_>,
    answer: Result<OrWhyNot<PlannedFile>>,
) -> Result<GroupTarget> {
    let extension = choice.format.extension;
    let no_file = |why: String| {
        let why = format!("{extension}: {why}");
        Err(Error::new(Kind::NoFile, &found.path, why))
    };
    match answer {
        Ok(Ok(file)) => Ok(GroupTarget {
            found,
            file: Box::new(file),
        }),
        Ok(Err(why)) => no_file(why),
        Err(error) if error.kind() == Kind::Invalid => no_file(error.to_string()),
        Err(error) => Err(error),
    }
}

/// Combines the content versions of several arrays.
fn joined(all: u64, one: u64) -> u64 {
    all.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ one
}

impl FilesView {
    /// Returns the file of a group for a name; `NoFile` with the reason if it cannot be made.
    pub(super) fn group_target(
        &self,
        context: &RequestContext,
        found: Arc<NodeEntry>,
        choice: &GroupChoice<'_>,
    ) -> Result<GroupTarget> {
        let answer = self.group_source(&found).file(context, choice);
        target_of(found, choice, answer)
    }

    /// Returns the file of an array with its coordinates for a name; fails as `group_target`.
    pub(super) fn variable_target(
        &self,
        context: &RequestContext,
        found: Arc<NodeEntry>,
        choice: &GroupChoice<'_>,
    ) -> Result<GroupTarget> {
        let answer = self.variable_source(&found).file(context, choice);
        target_of(found, choice, answer)
    }

    fn variable_source<'a>(&'a self, array: &'a Arc<NodeEntry>) -> VariableSource<'a> {
        VariableSource {
            hierarchy: &self.hierarchy,
            arrays: &self.arrays,
            array,
            name: self.name_of(array),
        }
    }

    fn group_source<'a>(&'a self, group: &'a Arc<NodeEntry>) -> GroupSource<'a> {
        GroupSource {
            hierarchy: &self.hierarchy,
            arrays: &self.arrays,
            group,
        }
    }

    /// Returns the names of a group's files with all of its arrays, or of an array's files with its coordinates.
    /// Includes a file that fails to be planned: opening it returns the error.
    pub(super) fn group_file_names(
        &self,
        context: &RequestContext,
        found: &Arc<NodeEntry>,
        formats: &[&'static GroupFormat],
    ) -> Vec<Vec<u8>> {
        let is_variable = |format: &GroupFormat| {
            let mut formats = VARIABLE_FORMATS.iter();
            formats.any(|known| known.extension == format.extension)
        };
        let file = |format: &'static GroupFormat| {
            let choice = GroupChoice::whole(format);
            match &found.node {
                Ok(Node::Group(_)) => Some(self.group_source(found).file(context, &choice)),
                Ok(Node::Array(_)) if is_variable(format) => {
                    Some(self.variable_source(found).file(context, &choice))
                }
                _ => None,
            }
        };
        let opens = |format: &&&'static GroupFormat| match file(format) {
            Some(Ok(answer)) => answer.is_ok(),
            // The store cannot list names, so the file cannot be made.
            Some(Err(error)) => error.kind() != Kind::Unsupported,
            None => false,
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
        let contents = self.arrays().map(|array| array.content_number());
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
