//! What a format is: which arrays it can hold, and what a file of one consists of.
//!
//! A format is pure. Of the metadata it makes the bytes before and after the elements, and says how the elements between
//! are written; of elements without a fixed length it makes a whole file when that is opened.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::formats::conversion::{Chained, Conversion};
use crate::formats::member::GroupMember;
use crate::formats::surroundings::{ImageGroup, Surroundings};
use zarr_format::error::{Error, Result};
use zarr_format::grid::Selection;
use zarr_format::model::{Array, bytes_of};
use zarrfs_array::array::OpenArray;
use zarrfs_array::array::ragged::{Growing, RaggedElements};
use zarrfs_store::request_context::RequestContext;

/// A file format for an array.
pub struct Format {
    /// What a file name ends with, without the dot before it.
    pub extension: &'static str,
    /// Which arrays it can hold, as it is said after "needs".
    pub needs: &'static str,
    /// Returns what a file consists of whose elements have a fixed length; nothing if the format cannot hold them. A
    /// format without it is for elements without a fixed length alone.
    pub parts: Option<PartsFn>,
    /// How a file is made when it is opened: one of elements without a fixed length, or of any; nothing if the format
    /// cannot hold them.
    pub ragged: Option<Ragged>,
    /// Whether each array and each chunk has the file, also where the format cannot hold the elements: opening it then
    /// returns the error. Other formats have files of those arrays alone which they can hold.
    pub is_basic: bool,
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.extension)
    }
}

/// Where elements begin is a multiple of this in formats that leave it open: they are aligned in a map, and copied faster.
pub(super) const ALIGNMENT: usize = 64;

type PartsFn = fn(&Subject) -> Option<FileParts>;

/// How a file is made of all elements of a box.
#[derive(Clone, Copy)]
pub enum Ragged {
    /// It is the elements with their lengths.
    Records,
    /// It is put together out of them.
    Made(RaggedFn),
    /// It is put together row by row, also of elements of a fixed length: what the metadata tell says whether there is
    /// one.
    Rows(RowsFn),
}

/// Makes a file of the elements of a box of this shape.
type RaggedFn = fn(&RaggedElements, &[u64], &mut Growing<'_>) -> Result<()>;

/// Reads the elements of an array, which is called as its path says, and makes a file of them.
type RowsFn = fn(&RequestContext, &GroupMember, &mut Growing<'_>) -> Result<()>;

/// What a file is made of, as far as the metadata tell.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The array, with its attributes.
    pub array: &'a Array,
    /// Elements along each dimension of the box that the file holds.
    pub shape: &'a [u64],
    /// What the array's files are named after.
    pub name: &'a [u8],
    /// What stands between that and the extension in the name of this file: `@0,:` and `.cf`.
    pub chosen: &'a str,
    /// What the metadata of other nodes say of the array.
    pub around: Surroundings<'a>,
    /// What the dimensions of the box are, outermost first; nothing for those of the array from their first element on.
    pub taken: Option<&'a [TakenDimension]>,
}

/// A dimension of which a box has elements at equal distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenDimension {
    /// Its place among those of the array.
    pub axis: usize,
    /// The first element.
    pub start: u64,
    /// From one element to the next.
    pub step: i64,
}

impl TakenDimension {
    /// Returns what the dimensions are that a selection leaves.
    pub fn of_selection(selection: &Selection) -> Vec<TakenDimension> {
        let kept = selection.kept().into_iter();
        kept.filter_map(|axis| {
            let selected = selection.axes.get(axis)?;
            Some(TakenDimension {
                axis,
                start: selected.start,
                step: selected.step,
            })
        })
        .collect()
    }
}

impl<'a> Subject<'a> {
    /// Returns an array of which nothing but its own metadata is known.
    pub fn alone(array: &'a Array, shape: &'a [u64]) -> Subject<'a> {
        Subject {
            array,
            shape,
            name: b"",
            chosen: "",
            around: Surroundings::default(),
            taken: None,
        }
    }

    /// Returns the group of the image of OME-Zarr that the array is a level of, if it is one.
    pub fn image(&self) -> Option<ImageGroup<'a>> {
        self.around.image_of(self.name)
    }

    /// Returns the name as text, for formats that write it into a file; nothing if it is no text of one line.
    pub fn text_name(&self) -> Option<&'a str> {
        std::str::from_utf8(self.name)
            .ok()
            .filter(|name| is_plain(name))
    }

    /// Returns the name of the file beside this one that has the same elements and nothing else; nothing if a header
    /// cannot say it.
    pub fn raw_file(&self) -> Option<String> {
        let name = self.text_name()?;
        is_plain(self.chosen).then(|| format!("{name}{}.raw", self.chosen))
    }

    /// Returns the same name for headers that take one with `%` for a pattern of several.
    pub fn raw_file_alone(&self) -> Option<String> {
        self.raw_file().filter(|file| !file.contains('%'))
    }

    /// Whether the box has elements and at least one and at most `most` dimensions, as formats of images want.
    pub fn is_image(&self, most: usize) -> bool {
        (1..=most).contains(&self.shape.len()) && !self.shape.contains(&0)
    }
}

/// Returns how many bytes are to be added to so many for the elements behind them to be aligned.
pub(super) fn filling(length: usize) -> usize {
    length.next_multiple_of(ALIGNMENT) - length
}

/// Whether text can stand in a line of any header.
fn is_plain(text: &str) -> bool {
    !text.contains(|letter: char| letter.is_control() || "\"<>&".contains(letter))
}

/// What a file of elements of a fixed length consists of.
#[derive(Clone, Default)]
pub struct FileParts {
    /// The bytes before the elements.
    pub header: Vec<u8>,
    /// How the elements are written; nothing for a file beside the one that has them.
    pub elements: Option<ElementForm>,
    /// The bytes after the elements.
    pub trailer: Vec<u8>,
    /// What the metadata say and the file does not have: each thing, a colon and the reason.
    pub left_out: Vec<String>,
}

/// How elements are written.
#[derive(Clone, Default)]
pub struct ElementForm {
    /// The dimension of the array that each dimension of the file is, outermost first; nothing for their own order.
    pub order: Option<Vec<usize>>,
    /// What becomes of each element; nothing if it is written as it is decoded, little-endian.
    pub conversion: Option<Arc<dyn Conversion>>,
}

impl FileParts {
    /// Returns a file of elements as they are decoded, in C order, behind a header.
    pub fn plain(header: Vec<u8>) -> FileParts {
        FileParts {
            header,
            elements: Some(ElementForm::default()),
            ..FileParts::default()
        }
    }

    /// Returns a file of elements as they are decoded, the first dimension fastest, behind a header.
    pub fn fortran(header: Vec<u8>, shape: &[u64]) -> FileParts {
        let order = Some((0..shape.len()).rev().collect());
        FileParts {
            header,
            elements: Some(ElementForm {
                order,
                conversion: None,
            }),
            ..FileParts::default()
        }
    }

    /// Returns a file without elements.
    pub fn text(text: String) -> FileParts {
        FileParts {
            header: text.into_bytes(),
            ..FileParts::default()
        }
    }

    /// Has elements of `size` bytes converted before the format writes them.
    pub fn after(mut self, first: &Arc<dyn Conversion>, size: usize) -> FileParts {
        if let Some(form) = &mut self.elements {
            let second = form.conversion.take();
            form.conversion = Some(match second {
                None => first.clone(),
                Some(second) => Arc::new(Chained {
                    first: first.clone(),
                    second,
                    size,
                }),
            });
        }
        self
    }

    /// Returns the length in bytes of all elements of a box, which have `size` bytes when they are decoded.
    pub fn elements_len(&self, shape: &[u64], size: usize) -> Result<u64> {
        // Also where the file has none of them, so that no array has a side file alone.
        let decoded = bytes_of(shape, size)?;
        match &self.elements {
            None => Ok(0),
            Some(ElementForm {
                conversion: None, ..
            }) => Ok(decoded),
            Some(ElementForm {
                conversion: Some(conversion),
                ..
            }) => bytes_of(shape, conversion.written_size()),
        }
    }

    /// Returns the length in bytes of the file of a box; `TooLarge` beyond that of any file.
    pub fn len(&self, shape: &[u64], size: usize) -> Result<u64> {
        let around = self.header.len() as u64 + self.trailer.len() as u64;
        let whole = self.elements_len(shape, size)?.checked_add(around);
        whole
            .filter(|&length| i64::try_from(length).is_ok())
            .ok_or_else(|| Error::too_large("shape", format!("a file of {shape:?} elements")))
    }

    /// Returns a number of the content: another one where attributes have made other bytes before or after the elements
    /// of the array whose number is `array`.
    pub fn content(&self, array: u64) -> u64 {
        let mut hasher = DefaultHasher::new();
        (array, &self.header, &self.trailer).hash(&mut hasher);
        let conversion = self
            .elements
            .as_ref()
            .and_then(|form| form.conversion.as_ref());
        conversion
            .map(|conversion| conversion.digest())
            .hash(&mut hasher);
        hasher.finish()
    }
}

impl Format {
    /// Whether the format has files of an array.
    pub fn fits(&self, subject: &Subject) -> bool {
        // An array that does not decode has its files all the same; opening them returns the error.
        let is_fixed = !subject.array.data_type.is_variable();
        (self.is_basic && is_fixed && self.parts.is_some()) || self.holds(subject)
    }

    /// Whether the format has files of an array that decodes.
    pub fn holds(&self, subject: &Subject) -> bool {
        match self.ragged {
            Some(Ragged::Records | Ragged::Made(_)) if subject.array.data_type.is_variable() => {
                true
            }
            Some(Ragged::Rows(_)) => self.make(subject).is_some(),
            _ => !subject.array.data_type.is_variable() && self.make(subject).is_some(),
        }
    }

    /// Whether a file of an array is made when it is opened, so that its length is not known before.
    pub fn is_made(&self, array: &Array) -> bool {
        array.data_type.is_variable() || matches!(self.ragged, Some(Ragged::Rows(_)))
    }

    /// Returns what the format needs, or `None` if it has a file of an array that decodes.
    pub fn why_not(&self, subject: &Subject) -> Option<String> {
        (!self.holds(subject)).then(|| format!("needs {}", self.needs))
    }

    /// Returns what a file consists of, by the attributes that files have.
    fn make(&self, subject: &Subject) -> Option<FileParts> {
        let array = subject.array.in_files();
        let mut parts = (self.parts?)(&Subject {
            array: &array,
            ..*subject
        })?;
        if !self.is_basic {
            parts.left_out.extend(subject.array.attributes.left_out());
        }
        Some(parts)
    }

    /// Returns what the metadata say and a file of an array that decodes does not have.
    pub fn left_out(&self, subject: &Subject) -> Vec<String> {
        self.make(subject)
            .map_or(Vec::new(), |parts| parts.left_out)
    }

    /// Whether a file says where a map lies, which coordinate variables tell.
    pub fn is_map(&self) -> bool {
        ["tif", "vrt", "hdr"].contains(&self.extension)
    }

    /// Whether this is another format.
    pub fn is(&self, other: &Format) -> bool {
        self.extension == other.extension
    }

    /// Returns what a file of an array consists of; `Unsupported` if the format cannot hold the elements, or with the
    /// error that stops the array from being decoded.
    pub fn parts_of(&self, array: &OpenArray, subject: &Subject) -> Result<FileParts> {
        self.make(subject)
            .ok_or_else(|| match array.check_decodable() {
                // Why an array does not decode says more than that its type has no form here.
                Err(error) => error,
                Ok(()) => {
                    let held = &subject.array.data_type;
                    Error::unsupported(
                        array.path(),
                        format!("{} cannot hold {held}", self.extension),
                    )
                }
            })
    }

    /// Returns a number of the content of a file of an array, which stays while the file is written in place.
    pub fn content(&self, array: &OpenArray, parts: &FileParts) -> u64 {
        // The header of a basic format does not depend on attributes.
        if self.is_basic {
            array.id()
        } else {
            parts.content(array.id())
        }
    }
}
