//! Defines a format: the arrays that it holds, and the parts of its files.
//!
//! A format does no I/O. From metadata it makes the bytes before and after the elements, and the form of the elements
//! between them. For elements without a fixed length it makes the whole file when the file is opened.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::formats::conversion::{Chained, Conversion};
use crate::formats::group::GroupMember;
use crate::formats::subject::Subject;
use zarr_format::error::{Error, Result};
use zarr_format::model::{Array, bytes_of};
use zarrfs_array::array::OpenArray;
use zarrfs_array::array::vlen_elements::{ReservedBuffer, VlenElements};
use zarrfs_store::request_context::RequestContext;

/// A file format for an array.
pub struct Format {
    /// The ending of file names, without the dot.
    pub extension: &'static str,
    /// The arrays that it can hold, as a phrase after "needs".
    pub needs: &'static str,
    /// Returns the parts of a file of elements with a fixed length, or `None` if the format cannot hold them. A
    /// format without this function is only for elements without a fixed length.
    pub parts: Option<PartsFn>,
    /// Makes a file when it is opened, from elements without a fixed length or from any elements; `None` if the
    /// format cannot do so.
    pub ragged: Option<Ragged>,
    /// Whether every array and every chunk has this file, even if the format cannot hold the elements: opening the
    /// file then fails. Files of other formats exist only for arrays that the format can hold.
    pub is_basic: bool,
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.extension)
    }
}

/// Alignment of the first element where a format leaves it open: aligned elements can be mapped, and are copied
/// faster.
pub(super) const ALIGNMENT: usize = 64;

type PartsFn = fn(&Subject) -> Option<FileParts>;

/// The way in which a file is made of all elements of a box.
#[derive(Clone, Copy)]
pub enum Ragged {
    /// The file is the elements, each after its length.
    Records,
    /// Made from all elements at once.
    Made(RaggedFn),
    /// Made row by row, also of elements with a fixed length. The metadata decide whether there is a file.
    Rows(RowsFn),
}

/// Makes a file of the elements of a box with this shape.
type RaggedFn = fn(&VlenElements, &[u64], &mut ReservedBuffer<'_>) -> Result<()>;

/// Reads the elements of an array, named by the member's path, and makes a file of them.
type RowsFn = fn(&RequestContext, &GroupMember, &mut ReservedBuffer<'_>) -> Result<()>;

/// Returns the number of padding bytes after `length` bytes that align the elements behind them.
pub(super) fn filling(length: usize) -> usize {
    length.next_multiple_of(ALIGNMENT) - length
}

/// The parts of a file of elements with a fixed length.
#[derive(Clone, Default)]
pub struct FileParts {
    /// The bytes before the elements.
    pub header: Vec<u8>,
    /// The form of the elements; `None` for a header file, whose elements are in another file.
    pub elements: Option<ElementForm>,
    /// The bytes after the elements.
    pub trailer: Vec<u8>,
    /// The metadata that the file omits: each a name, a colon and the reason.
    pub left_out: Vec<String>,
}

/// The form in which elements are written.
#[derive(Clone, Default)]
pub struct ElementForm {
    /// For each dimension of the file the array's dimension, outermost first; `None` for the array's own order.
    pub order: Option<Vec<usize>>,
    /// The conversion of each element; `None` if it is written as decoded, little-endian.
    pub conversion: Option<Arc<dyn Conversion>>,
}

impl FileParts {
    /// Returns a file of a header and decoded elements in C order.
    pub fn plain(header: Vec<u8>) -> FileParts {
        FileParts {
            header,
            elements: Some(ElementForm::default()),
            ..FileParts::default()
        }
    }

    /// Returns a file of a header and decoded elements in Fortran order (first dimension fastest).
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

    /// Adds a conversion before the format's own one. Decoded elements have `size` bytes.
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

    /// Returns the length in bytes of all elements of a box as the file has them; decoded elements have `size` bytes.
    pub(crate) fn elements_len(&self, shape: &[u64], size: usize) -> Result<u64> {
        // Checked even if the file has no elements: otherwise an array that is too large would have only its header
        // file.
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

    /// Returns the length in bytes of the file of a box; `TooLarge` if it exceeds the maximum length of a file.
    pub fn len(&self, shape: &[u64], size: usize) -> Result<u64> {
        let around = self.header.len() as u64 + self.trailer.len() as u64;
        let whole = self.elements_len(shape, size)?.checked_add(around);
        whole
            .filter(|&length| i64::try_from(length).is_ok())
            .ok_or_else(|| {
                Error::too_large("shape", format!("a file of shape {shape:?} is too large"))
            })
    }

    /// Returns a content number, derived from the array's number `array`. It changes if attributes change the bytes
    /// before or after the elements.
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
    /// Returns a format only for elements of fixed length.
    pub(super) const fn of_fixed_length(
        extension: &'static str,
        needs: &'static str,
        parts: PartsFn,
    ) -> Format {
        Format {
            extension,
            needs,
            parts: Some(parts),
            ragged: None,
            is_basic: false,
        }
    }

    /// Whether the format has files of an array.
    pub fn fits(&self, subject: &Subject) -> bool {
        // A basic format has files even of an array that does not decode; opening them returns the error.
        let is_fixed = !subject.array.data_type.is_variable();
        (self.is_basic && is_fixed && self.parts.is_some()) || self.holds(subject)
    }

    /// Whether the format has files of an array, provided that the array decodes.
    pub fn holds(&self, subject: &Subject) -> bool {
        match self.ragged {
            Some(Ragged::Records | Ragged::Made(_)) if subject.array.data_type.is_variable() => {
                true
            }
            Some(Ragged::Rows(_)) => self.make(subject).is_some(),
            _ => !subject.array.data_type.is_variable() && self.make(subject).is_some(),
        }
    }

    /// Whether a file of an array is made when it is opened, so that its length is unknown before.
    pub fn is_made(&self, array: &Array) -> bool {
        array.data_type.is_variable() || matches!(self.ragged, Some(Ragged::Rows(_)))
    }

    /// Returns the requirements of the format, or `None` if it has a file of the array, provided that the array
    /// decodes.
    pub fn unmet_needs(&self, subject: &Subject) -> Option<String> {
        (!self.holds(subject)).then(|| format!("needs {}", self.needs))
    }

    /// Returns the parts of a file. The attributes are limited to those that files have.
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

    /// Returns the metadata that a file of an array omits, in the form of `FileParts::left_out`.
    pub fn left_out(&self, subject: &Subject) -> Vec<String> {
        self.make(subject)
            .map_or(Vec::new(), |parts| parts.left_out)
    }

    /// Whether a file contains a georeference, which may come from coordinate variables.
    pub fn is_map(&self) -> bool {
        ["tif", "vrt", "hdr"].contains(&self.extension)
    }

    /// Whether two formats are the same.
    pub fn is(&self, other: &Format) -> bool {
        self.extension == other.extension
    }

    /// Returns the parts of a file of an array. Fails with `Unsupported` if the format cannot hold the elements, or
    /// with the error of an array that does not decode.
    pub fn parts_of(&self, array: &OpenArray, subject: &Subject) -> Result<FileParts> {
        self.make(subject)
            .ok_or_else(|| match array.check_decodable() {
                // The decoding error is more specific than that the format cannot hold the type.
                Err(error) => error,
                Ok(()) => {
                    let data_type = &subject.array.data_type;
                    Error::unsupported(
                        array.path(),
                        format!("{} cannot hold {data_type}", self.extension),
                    )
                }
            })
    }

    /// Returns the content number of an array's file, which stays the same while the file is written in place.
    pub fn content(&self, array: &OpenArray, parts: &FileParts) -> u64 {
        // The header of a basic format does not depend on attributes.
        if self.is_basic {
            array.id()
        } else {
            parts.content(array.id())
        }
    }
}
