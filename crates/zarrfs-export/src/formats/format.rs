//! Defines a file format: the arrays that it can hold, and the parts of its files.
//!
//! A format does no I/O. From metadata it makes the bytes before and after the elements, and says in which form the
//! elements are written between them. If elements have no fixed length, it makes the whole file when the file is
//! opened.

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

/// A file format as which an array can be exported.
pub struct Format {
    /// The extension of the format's file names, without the dot.
    pub extension: &'static str,
    /// The arrays that the format can hold, as a phrase after the word "needs" in a message.
    pub needs: &'static str,
    /// Returns the parts of a file of fixed-length elements, or `None` if the format cannot hold them. Formats without
    /// this function can only hold variable-length elements.
    pub parts: Option<PartsFn>,
    /// How the whole file is made when it is opened, which variable-length elements require. `None` if the format
    /// cannot hold such elements.
    pub ragged: Option<Ragged>,
    /// Whether every array and every chunk has a file of this format; if the format cannot hold the elements, opening
    /// the file fails. Other formats have files only for arrays that they can hold.
    pub is_basic: bool,
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.extension)
    }
}

/// The alignment of the first element in bytes, for formats that do not demand another alignment. Programs can use
/// aligned elements directly in a mapped file, and they are copied faster.
pub(super) const ALIGNMENT: usize = 64;

type PartsFn = fn(&Subject) -> Option<FileParts>;

/// How the whole file is made from the elements when it is opened.
#[derive(Clone, Copy)]
pub enum Ragged {
    /// The file has each element after its length.
    Records,
    /// The function makes the file from all elements at once.
    Made(RaggedFn),
    /// The function reads and writes the elements row by row, also those of fixed length. The metadata alone decide
    /// whether the array has such a file.
    Rows(RowsFn),
}

/// A function that makes a file from variable-length elements, given their shape.
type RaggedFn = fn(&VlenElements, &[u64], &mut ReservedBuffer<'_>) -> Result<()>;

/// A function that makes a file from the elements of an array, whose path becomes its name in the file.
type RowsFn = fn(&RequestContext, &GroupMember, &mut ReservedBuffer<'_>) -> Result<()>;

/// Returns the number of padding bytes after `length` bytes, so that the elements after them are aligned.
pub(super) fn filling(length: usize) -> usize {
    length.next_multiple_of(ALIGNMENT) - length
}

/// The header, the form of the elements and the trailer of a file of fixed-length elements.
#[derive(Clone, Default)]
pub struct FileParts {
    /// The bytes of the file before the elements.
    pub header: Vec<u8>,
    /// The order and conversion of the elements; `None` for a header file, whose elements are in another file.
    pub elements: Option<ElementForm>,
    /// The bytes of the file after the elements.
    pub trailer: Vec<u8>,
    /// The metadata that the file omits. Each text is a name, a colon and the reason.
    pub left_out: Vec<String>,
}

/// The order and the conversion in which elements are written to a file.
#[derive(Clone, Default)]
pub struct ElementForm {
    /// The array dimension that each dimension of the file stands for, outermost first; `None` if the file has the
    /// array's order.
    pub order: Option<Vec<usize>>,
    /// The conversion of each element; `None` if elements are written as decoded, in little-endian order.
    pub conversion: Option<Arc<dyn Conversion>>,
}

impl FileParts {
    /// Describes a file with a header and the decoded elements in C order.
    pub fn plain(header: Vec<u8>) -> FileParts {
        FileParts {
            header,
            elements: Some(ElementForm::default()),
            ..FileParts::default()
        }
    }

    /// Describes a file with a header and the decoded elements in Fortran order (first dimension fastest).
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

    /// Describes a text file without elements.
    pub fn text(text: String) -> FileParts {
        FileParts {
            header: text.into_bytes(),
            ..FileParts::default()
        }
    }

    /// Adds a conversion of the decoded elements before the format's own conversion. A decoded element has `size`
    /// bytes.
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

    /// Returns the length in bytes that elements of the given shape have in the file. A decoded element has `size`
    /// bytes.
    pub(crate) fn elements_len(&self, shape: &[u64], size: usize) -> Result<u64> {
        // The length is checked even for a header file without elements, because other files of the array fail with
        // `TooLarge`.
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

    /// Returns the length in bytes of a file with elements of the given shape; `TooLarge` if it exceeds the maximum
    /// length of a file. A decoded element has `size` bytes.
    pub fn len(&self, shape: &[u64], size: usize) -> Result<u64> {
        let around = self.header.len() as u64 + self.trailer.len() as u64;
        let whole = self.elements_len(shape, size)?.checked_add(around);
        whole
            .filter(|&length| i64::try_from(length).is_ok())
            .ok_or_else(|| {
                Error::too_large("shape", format!("a file of shape {shape:?} is too large"))
            })
    }

    /// Returns a number that identifies the content of a file of the array with the id `array`. It changes when
    /// attributes change the header, the trailer or the conversion.
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
    /// Defines a format that can hold only elements of fixed length.
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

    /// Whether the array has a file of this format. Opening such a file may still fail.
    pub fn fits(&self, subject: &Subject) -> bool {
        // Every array has files of the basic formats, even if it cannot be decoded; opening such a file returns the
        // decoding error.
        let is_fixed = !subject.array.data_type.is_variable();
        (self.is_basic && is_fixed && self.parts.is_some()) || self.holds(subject)
    }

    /// Whether the format can hold the array, assuming that the array can be decoded.
    pub fn holds(&self, subject: &Subject) -> bool {
        match self.ragged {
            Some(Ragged::Records | Ragged::Made(_)) if subject.array.data_type.is_variable() => {
                true
            }
            Some(Ragged::Rows(_)) => self.make(subject).is_some(),
            _ => !subject.array.data_type.is_variable() && self.make(subject).is_some(),
        }
    }

    /// Whether the file of an array is made when it is opened; its length is unknown before that.
    pub fn is_made(&self, array: &Array) -> bool {
        array.data_type.is_variable() || matches!(self.ragged, Some(Ragged::Rows(_)))
    }

    /// Returns the format's needs as a message if it cannot hold the array, or else `None`. Assumes that the array can
    /// be decoded.
    pub fn unmet_needs(&self, subject: &Subject) -> Option<String> {
        (!self.holds(subject)).then(|| format!("needs {}", self.needs))
    }

    /// Returns the parts of a file. If the attributes are too long for a header, the header has only some of them.
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

    /// Returns the metadata that a file of an array omits; each text is a name, a colon and the reason.
    pub fn left_out(&self, subject: &Subject) -> Vec<String> {
        self.make(subject)
            .map_or(Vec::new(), |parts| parts.left_out)
    }

    /// Whether files of the format have a georeference, which may come from coordinate variables.
    pub fn is_map(&self) -> bool {
        ["tif", "vrt", "hdr"].contains(&self.extension)
    }

    /// Whether two formats are the same: whether they have the same file extension.
    pub fn is(&self, other: &Format) -> bool {
        self.extension == other.extension
    }

    /// Returns the parts of an array's file. Fails with `Unsupported` if the format cannot hold the elements, or with
    /// the decoding error if the array cannot be decoded.
    pub fn parts_of(&self, array: &OpenArray, subject: &Subject) -> Result<FileParts> {
        self.make(subject)
            .ok_or_else(|| match array.check_decodable() {
                // The decoding error tells users more than that the format cannot hold the data type.
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

    /// Returns a number that identifies the content of an array's file. Writes to the file do not change the number.
    pub fn content(&self, array: &OpenArray, parts: &FileParts) -> u64 {
        // Files of the basic formats contain no attributes, so only the array identifies their content.
        if self.is_basic {
            array.id()
        } else {
            parts.content(array.id())
        }
    }
}
