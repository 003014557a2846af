//! Virtual files of a box of an array: header bytes, then the elements as a flat file. The table of formats.
//!
//! A format is pure: it says which arrays it can hold and what its header is; of elements without a fixed length it
//! makes a whole file when that is opened. To add one: a file and a line in `FORMATS`.

use parking_lot::Mutex;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::array::flat_file::FlatFile;
use crate::array::ragged::{Growing, RaggedElements, ReservedBytes};
use crate::array::{ArrayState, OpenArray, WriteSource};
use crate::error::{Error, Kind, Result};
use crate::grid::Region;
use crate::model::{Array, bytes_of};
use crate::sync::read_bytes::{ReadBytes, part};

pub mod descr;
pub mod npy;
pub mod raw;
pub mod txt;

/// A file format for an array.
pub struct Format {
    /// What a file name ends with, without the dot.
    pub extension: &'static str,
    /// Returns the bytes before the elements of a box of that shape; nothing if the format cannot hold
    /// such elements. A format without it is for elements without a fixed length alone.
    pub header: Option<HeaderFn>,
    /// How a file of elements without a fixed length is made.
    pub ragged: Ragged,
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.extension)
    }
}

type HeaderFn = fn(&Array, &[u64]) -> Option<Vec<u8>>;

/// How a file is made of all elements of a box.
#[derive(Clone, Copy)]
pub enum Ragged {
    /// It is the elements with their lengths.
    Records,
    /// It is put together out of them.
    Made(fn(&RaggedElements, &[u64], &mut Growing<'_>) -> Result<()>),
}

impl Format {
    /// Whether the format has files of an array.
    pub fn fits(&self, array: &Array) -> bool {
        // An array that does not decode has its files all the same; opening them returns the error.
        self.header.is_some() || array.data_type.is_variable()
    }

    /// Whether this is another format.
    pub fn is(&self, other: &Format) -> bool {
        self.extension == other.extension
    }

    /// Returns the bytes before the elements of a box; `Unsupported` if the format cannot hold them, or with the error
    /// that stops the array from being decoded.
    fn header_of(&self, array: &OpenArray, shape: &[u64]) -> Result<Vec<u8>> {
        let described = array.array();
        let header = self.header.and_then(|make| make(described, shape));
        header.ok_or_else(|| match array.check_decodable() {
            // Why an array does not decode says more than that its type has no form here.
            Err(error) => error,
            Ok(()) => Error::unsupported(
                array.path(),
                format!("{} cannot hold {}", self.extension, described.data_type),
            ),
        })
    }

    /// Returns the length in bytes of the file of a box of this shape, whose elements have a fixed length. Fails as
    /// opening it does, but for an array that does not decode.
    pub fn file_len(&self, array: &OpenArray, shape: &[u64]) -> Result<u64> {
        let header = self.header_of(array, shape)?.len() as u64;
        let elements = bytes_of(shape, array.array().element_size()?)?;
        Ok(header + elements)
    }
}

/// Every format.
pub const FORMATS: &[&Format] = &[&npy::FORMAT, &raw::FORMAT, &txt::FORMAT];

/// Returns the format of an extension.
pub fn format(extension: &str) -> Result<&'static Format> {
    let known = FORMATS.iter().find(|format| format.extension == extension);
    known.copied().ok_or_else(|| {
        let names: Vec<_> = FORMATS.iter().map(|format| format.extension).collect();
        Error::invalid(
            extension,
            format!("not a format; there are {}", names.join(", ")),
        )
    })
}

/// A file made of a box of an array.
pub struct Export {
    array: Arc<OpenArray>,
    pub(crate) header: Vec<u8>,
    pub(crate) body: FileBody,
    /// The array's state when somebody last asked whether the file may have changed.
    seen: Mutex<ArrayState>,
}

/// The bytes after the header.
pub(crate) enum FileBody {
    /// Elements of a fixed length, put together as they are read.
    Flat(Box<FlatFile>),
    /// A file that was made when it was opened.
    Whole(ReservedBytes),
}

impl FileBody {
    fn len(&self) -> u64 {
        match self {
            FileBody::Flat(flat) => flat.len(),
            FileBody::Whole(bytes) => bytes.len() as u64,
        }
    }

    /// Returns the bytes of a range, which must lie in the body.
    fn read(&self, range: Range<u64>) -> Result<ReadBytes> {
        match self {
            FileBody::Flat(flat) => flat.read_shown(range),
            FileBody::Whole(bytes) => Ok(part(bytes, range).into()),
        }
    }
}

impl Export {
    /// Opens a box of an array in a format; `Unsupported` if the format cannot hold its elements, or with the error
    /// that stops the array from being decoded. Elements without a fixed length are all read now, `TooLarge` if they
    /// are too many.
    pub fn open(array: &Arc<OpenArray>, format: &Format, region: Region) -> Result<Export> {
        let seen = Mutex::new(array.state());
        let (header, body) = if array.array().data_type.is_variable() {
            (Vec::new(), whole(array, format.ragged, &region)?)
        } else {
            let header = format.header_of(array, &region.shape)?;
            let flat = FlatFile::new(array.clone(), region)?;
            (header, FileBody::Flat(Box::new(flat)))
        };
        Ok(Export {
            array: array.clone(),
            header,
            body,
            seen,
        })
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        self.body.len() + self.header.len() as u64
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the array.
    pub fn array(&self) -> &Arc<OpenArray> {
        &self.array
    }

    /// Whether the content may have changed since this was last asked, by what is known without asking the store.
    pub fn may_have_changed(&self) -> bool {
        let now = self.array.state();
        let before = std::mem::replace(&mut *self.seen.lock(), now);
        self.array.may_have_changed(&before)
    }

    /// Returns the bytes at `offset`, fewer than `len` only at the end.
    pub fn read_at(&self, offset: u64, len: usize) -> Result<ReadBytes> {
        let end = offset.saturating_add(len as u64).min(self.len());
        let header = self.header.len() as u64;
        if offset >= end {
            return Ok(ReadBytes::default());
        }
        if let Some(start) = offset.checked_sub(header) {
            return self.body.read(start..end - header);
        }
        let mut out = part(&self.header, offset..end).to_vec();
        if end > header {
            out.extend_from_slice(&self.body.read(0..end - header)?);
        }
        Ok(out.into())
    }

    /// Fails if the file cannot be written, as `OpenArray::check_writable` does.
    pub fn check_writable(&self) -> Result<()> {
        self.array.check_writable()
    }

    /// Writes bytes at an offset into the array. `Invalid` if that would change the header, `TooLarge` beyond
    /// the end, which no write moves.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_from(WriteSource::Program, offset, bytes)
    }

    /// Writes pages of the kernel, of which a program has changed some bytes by way of a map. Those of a chunk that was
    /// changed since the pages were read are dropped, and the array says so when it is asked what was lost.
    pub fn write_pages(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_from(WriteSource::Pages, offset, bytes)
    }

    fn write_from(&self, source: WriteSource, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check_writable()?;
        let FileBody::Flat(flat) = &self.body else {
            let why = "is made of all elements together, and so is not written";
            return Err(Error::new(Kind::ReadOnly, self.array.path(), why));
        };
        let header = self.header.len() as u64;
        let in_header = usize::try_from(header.saturating_sub(offset)).unwrap_or(usize::MAX);
        let (head, elements) = bytes.split_at(in_header.min(bytes.len()));
        let end = offset.saturating_add(head.len() as u64);
        if !head.is_empty() && head != part(&self.header, offset..end) {
            let why = "the header says what the array is, and only its metadata change that";
            return Err(Error::invalid(self.array.path(), why));
        }
        if elements.is_empty() {
            return Ok(());
        }
        flat.write(offset.saturating_sub(header), elements, source)
    }
}

/// Reads all elements of a box and makes a file of them.
fn whole(array: &OpenArray, ragged: Ragged, region: &Region) -> Result<FileBody> {
    let records = array.records(region)?;
    let Ragged::Made(make) = ragged else {
        return Ok(FileBody::Whole(records.into_bytes()));
    };
    let mut out = array.growing();
    make(&records, &region.shape, &mut out).map_err(|error| error.about(array.path()))?;
    Ok(FileBody::Whole(out.finish()))
}
