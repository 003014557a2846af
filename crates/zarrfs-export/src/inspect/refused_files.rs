//! Lists the files that a node has or lacks, with reasons.

use std::sync::Arc;

use crate::formats::cf;
use crate::formats::cf::NoValues;
use crate::formats::group::{GroupFormat, OrWhyNot};
use crate::formats::surroundings::Surroundings;
use crate::formats::{FORMATS, Subject};
use crate::inspect::group_file::{GroupSource, PlannedFile};
use crate::inspect::left_out::LeftOut;
use crate::inspect::locate::StorePath;
use crate::inspect::variable_file::VariableSource;
use zarr_format::error::Result;
use zarr_format::model::Array;
use zarrfs_array::hierarchy::NodeEntry;
use zarrfs_store::request_context::RequestContext;

/// The extension of a format without a file, and the reason.
pub type RefusedFile = (&'static str, String);

/// Returns the formats without a file of a decodable array, with the reasons.
pub fn of_array(array: &Array, name: &str, around: Surroundings<'_>) -> Vec<RefusedFile> {
    let subject = Subject {
        name: name.as_bytes(),
        around,
        ..Subject::alone(array, &array.shape)
    };
    let formats = FORMATS.iter();
    let refused = formats.filter_map(|format| Some((format.extension, format.why_not(&subject)?)));
    let mut refused: Vec<RefusedFile> = refused.collect();
    if let Err(why @ NoValues::Attribute(_)) = cf::decoded(array) {
        refused.push(("cf", why.to_string()));
    }
    refused
}

/// The files of a group with all of its arrays, or of an array with its coordinates.
#[derive(Clone, Debug, Default)]
pub struct GroupFiles {
    /// Names of the files that can be opened, for a node of this name.
    pub names: Vec<String>,
    /// The formats without a file.
    pub refused: Vec<RefusedFile>,
    /// The metadata that the files leave out.
    pub left_out: LeftOut,
}

impl GroupFiles {
    /// Finds the files of a group.
    pub fn of(
        context: &RequestContext,
        located: &StorePath,
        group: &Arc<NodeEntry>,
        name: &str,
    ) -> Result<GroupFiles> {
        let source = GroupSource {
            hierarchy: &located.opened.hierarchy,
            arrays: &located.opened.arrays,
            group,
        };
        Ok(GroupFiles::of_answers(name, source.formats(context)?))
    }

    /// Finds the files of an array with its coordinates.
    pub fn of_variable(
        context: &RequestContext,
        located: &StorePath,
        array: &Arc<NodeEntry>,
        name: &str,
    ) -> Result<GroupFiles> {
        let source = VariableSource {
            hierarchy: &located.opened.hierarchy,
            arrays: &located.opened.arrays,
            array,
            name: name.as_bytes(),
        };
        Ok(GroupFiles::of_answers(name, source.formats(context)?))
    }

    fn of_answers(
        name: &str,
        answers: Vec<(&'static GroupFormat, OrWhyNot<PlannedFile>)>,
    ) -> GroupFiles {
        let mut files = GroupFiles::default();
        for (format, answer) in answers {
            match answer {
                Ok(file) => {
                    let name = format!("{name}.{}", format.extension);
                    files.left_out.add(&name, file.left_out());
                    files.names.push(name);
                }
                Err(why) => files.refused.push((format.extension, why)),
            }
        }
        files
    }
}
