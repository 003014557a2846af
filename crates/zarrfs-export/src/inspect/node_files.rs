//! Lists the files that a node has or lacks, and what they leave out.

use std::sync::Arc;

use crate::formats::cf::NoValues;
use crate::formats::group::{GroupFormat, OrReason};
use crate::formats::subject::Surroundings;
use crate::formats::{FORMATS, Subject, cf};
use crate::inspect::group_file::{GroupSource, PlannedFile, VariableSource};
use crate::inspect::locate::StorePath;
use zarr_format::error::{Error, Result};
use zarr_format::model::Array;
use zarrfs_array::hierarchy::NodeEntry;
use zarrfs_store::request_context::RequestContext;

/// The extension of a format without a file, and the reason.
pub type RefusedFile = (&'static str, String);

/// Returns the formats without a file of a decodable array, with the reasons.
pub fn refused_files(array: &Array, name: &str, around: Surroundings<'_>) -> Vec<RefusedFile> {
    let subject = Subject {
        name: name.as_bytes(),
        around,
        ..Subject::alone(array, &array.shape)
    };
    let formats = FORMATS.iter();
    let refused =
        formats.filter_map(|format| Some((format.extension, format.unmet_needs(&subject)?)));
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
        answers: Vec<(&'static GroupFormat, OrReason<PlannedFile>)>,
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

/// A sentence about metadata that are left out, and the files without them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOutOfFiles {
    /// The sentence.
    pub sentence: String,
    /// Names of the files.
    pub files: Vec<String>,
}

/// The sentences for the files of a node, each once.
#[derive(Clone, Debug, Default)]
pub struct LeftOut(pub Vec<LeftOutOfFiles>);

impl LeftOut {
    /// Finds the metadata that the files of a decodable array called `name` leave out.
    pub fn of_array(array: &Array, name: &str, around: Surroundings<'_>) -> LeftOut {
        let subject = Subject {
            name: name.as_bytes(),
            around,
            ..Subject::alone(array, &array.shape)
        };
        let mut found = LeftOut::default();
        for format in FORMATS {
            let file = format!("{name}.{}", format.extension);
            found.add(&file, format.left_out(&subject).iter().map(String::as_str));
        }
        found
    }

    /// Records that files with map coordinates cannot be opened, since the coordinate variables cannot be read.
    pub(crate) fn add_unread(&mut self, name: &str, error: &Error) {
        let sentence = format!("all: {error}");
        for format in FORMATS.iter().filter(|format| format.is_map()) {
            let file = format!("{name}.{}", format.extension);
            self.add(&file, std::iter::once(&*sentence));
        }
    }

    /// Adds the sentences of other files.
    pub fn extend(&mut self, others: LeftOut) {
        for left in others.0 {
            for file in &left.files {
                self.add(file, std::iter::once(left.sentence.as_str()));
            }
        }
    }

    /// Adds the sentences of one file.
    pub fn add<'a>(&mut self, file: &str, sentences: impl Iterator<Item = &'a str>) {
        for sentence in sentences {
            let known = self.0.iter_mut().find(|known| known.sentence == sentence);
            match known {
                Some(known) => known.files.push(file.to_string()),
                None => self.0.push(LeftOutOfFiles {
                    sentence: sentence.to_string(),
                    files: vec![file.to_string()],
                }),
            }
        }
    }
}
