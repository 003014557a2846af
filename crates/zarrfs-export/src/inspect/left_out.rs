//! Collects the metadata that the files of a node leave out.

use crate::formats::surroundings::Surroundings;
use crate::formats::{FORMATS, Subject};
use zarr_format::error::Error;
use zarr_format::model::Array;

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
    pub fn add_unread(&mut self, name: &str, error: &Error) {
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
