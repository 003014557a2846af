//! The forms in which an array's directory lists the array: one, and those that were asked for.
//!
//! Every form opens by its name, listed or not. A recursive program meets each array once, in one form: a file of all of
//! it, or its stored chunks where a file would be large and most of the array is not stored.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::export::{FORMATS, Format, Subject, format, npy, txt};
use crate::model::Array;

/// A word of `--list`.
#[derive(Clone, Copy, Debug)]
pub enum ListedForm {
    /// Files in this format.
    Format(&'static Format),
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
            _ => format(word).map(ListedForm::Format).map_err(|_| {
                let names = FORMATS.iter().map(|format| format.extension);
                let names: Vec<_> = names.chain([CHUNKS]).collect();
                let found = format!("not a form; there are {} and {ALL}", names.join(", "));
                Error::invalid(word, found)
            }),
        }
    }
}

impl fmt::Display for ListedForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ListedForm::Format(format) => format.extension,
            ListedForm::Chunks => CHUNKS,
            ListedForm::All => ALL,
        })
    }
}

/// The forms that directories of arrays list.
#[derive(Clone, Debug, Default)]
pub(super) struct ListedForms {
    /// Formats that were asked for.
    formats: Vec<&'static Format>,
    /// Whether the directory of chunks was asked for.
    pub(super) chunks: bool,
}

impl ListedForms {
    /// Returns the forms that words ask for.
    pub(super) fn new(words: &[ListedForm]) -> ListedForms {
        let mut forms = ListedForms::default();
        for word in words {
            match word {
                ListedForm::Format(format) => forms.formats.push(format),
                ListedForm::Chunks => forms.chunks = true,
                ListedForm::All => {
                    forms.formats.extend(FORMATS);
                    forms.chunks = true;
                }
            }
        }
        forms
    }

    /// Returns the formats of an array that were asked for, each once.
    pub(super) fn asked(&self, subject: &Subject) -> Vec<&'static Format> {
        let is_asked = |format: &&&Format| self.formats.iter().any(|asked| asked.is(format));
        let asked = FORMATS.iter().filter(is_asked).copied();
        asked.filter(|format| format.fits(subject)).collect()
    }

    /// Returns the formats of an array that are listed where the array is listed as files: its own first.
    pub(super) fn listed(&self, subject: &Subject) -> Vec<&'static Format> {
        let own = own_format(subject.array);
        let others = self.asked(subject).into_iter();
        let others = others.filter(|format| !format.is(own));
        std::iter::once(own).chain(others).collect()
    }
}

/// Returns the format in which an array is listed whatever was asked for.
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
    fn b9_a_word_that_names_no_form_is_refused_with_those_that_do() {
        let names: Vec<_> = FORMATS.iter().map(|format| format.extension).collect();
        for &word in [&names[..], &["chunks", "all"]].concat().iter() {
            assert_eq!(word.parse::<ListedForm>().unwrap().to_string(), word);
        }
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
