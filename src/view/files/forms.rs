//! The forms in which directories list an array or a whole group.
//!
//! By default an array's directory lists one form of it, and a group's directory no file of the whole group; options
//! add forms. Every form opens by name, listed or not. A recursive program meets each array once: as one file, or as
//! its stored chunks if the file would be large and most of the array is not stored.

use std::fmt;
use std::str::FromStr;

use zarr_format::error::{Error, Result};
use zarr_format::model::Array;
use zarrfs_export::formats::group::GroupFormat;
use zarrfs_export::formats::removed::RemovedFormat;
use zarrfs_export::formats::{FORMATS, Format, GROUP_FORMATS, Subject, npy, txt};

/// A word of `--list`.
#[derive(Clone, Copy, Debug)]
pub enum ListedForm {
    /// Files with this extension: of arrays, of groups, or of both.
    Extension(&'static str),
    /// The directory of chunks.
    Chunks,
    /// All of these.
    All,
}

const CHUNKS: &str = "chunks";
const ALL: &str = "all";

impl FromStr for ListedForm {
    type Err = Error;

    fn from_str(word: &str) -> Result<ListedForm> {
        match word {
            CHUNKS => Ok(ListedForm::Chunks),
            ALL => Ok(ListedForm::All),
            _ => {
                if let Some(removed) = RemovedFormat::of_extension(word) {
                    return Err(removed.error(word));
                }
                let known = extensions().into_iter().find(|known| *known == word);
                known.map(ListedForm::Extension).ok_or_else(|| {
                    let names = [extensions(), vec![CHUNKS]].concat().join(", ");
                    Error::invalid(word, format!("not a form; there are {names} and {ALL}"))
                })
            }
        }
    }
}

/// Returns the extensions of the files of arrays and groups, each once.
fn extensions() -> Vec<&'static str> {
    let of_arrays = FORMATS.iter().map(|format| format.extension);
    let mut all: Vec<_> = of_arrays.collect();
    for format in GROUP_FORMATS {
        if !all.contains(&format.extension) {
            all.push(format.extension);
        }
    }
    all
}

impl fmt::Display for ListedForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ListedForm::Extension(extension) => extension,
            ListedForm::Chunks => CHUNKS,
            ListedForm::All => ALL,
        })
    }
}

/// The forms that directories list.
#[derive(Clone, Debug, Default)]
pub(super) struct ListedForms {
    /// Array formats that the options add.
    formats: Vec<&'static Format>,
    /// Group formats that the options add.
    pub(super) of_groups: Vec<&'static GroupFormat>,
    /// Whether the options add the directory of chunks.
    pub(super) chunks: bool,
}

impl ListedForms {
    /// Builds the forms from the words of `--list`.
    pub(super) fn new(words: &[ListedForm]) -> ListedForms {
        let mut forms = ListedForms::default();
        for word in words {
            match word {
                ListedForm::Extension(extension) => forms.add(|known| known == *extension),
                ListedForm::Chunks => forms.chunks = true,
                ListedForm::All => {
                    forms.add(|_| true);
                    forms.chunks = true;
                }
            }
        }
        forms
    }

    /// Adds the array and group formats whose extensions match.
    fn add(&mut self, is_asked: impl Fn(&str) -> bool) {
        let of_arrays = FORMATS.iter().filter(|format| is_asked(format.extension));
        self.formats.extend(of_arrays);
        for format in GROUP_FORMATS {
            let is_new = !self
                .of_groups
                .iter()
                .any(|known| known.extension == format.extension);
            if is_new && is_asked(format.extension) {
                self.of_groups.push(format);
            }
        }
    }

    /// Returns the formats of an array that the options add, each once.
    pub(super) fn asked(&self, subject: &Subject) -> Vec<&'static Format> {
        let is_asked = |format: &&&Format| self.formats.iter().any(|asked| asked.is(format));
        let asked = FORMATS.iter().filter(is_asked).copied();
        asked.filter(|format| format.fits(subject)).collect()
    }

    /// Returns the formats in which an array is listed as files, its default format first.
    pub(super) fn listed(&self, subject: &Subject) -> Vec<&'static Format> {
        let own = own_format(subject.array);
        let others = self.asked(subject).into_iter();
        let others = others.filter(|format| !format.is(own));
        std::iter::once(own).chain(others).collect()
    }
}

/// Returns the default format of an array, which is always listed.
pub(super) fn own_format(array: &Array) -> &'static Format {
    if array.data_type.is_variable() {
        &txt::FORMAT
    } else {
        &npy::FORMAT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_names_no_form_is_refused_with_those_that_do() {
        let names = extensions();
        assert!(names.contains(&"nc") && names.contains(&"nrrd"));
        for &word in [&names[..], &["chunks", "all"]].concat().iter() {
            assert_eq!(word.parse::<ListedForm>().unwrap().to_string(), word);
        }
        let error = "wav".parse::<ListedForm>().unwrap_err().to_string();
        assert!(error.contains("; use .raw"), "{error}");
        let error = "row".parse::<ListedForm>().unwrap_err().to_string();
        assert_eq!(
            error,
            format!(
                "row: not a form; there are {}, chunks and all",
                names.join(", ")
            )
        );
    }
}
