//! Virtual files of a box of an array: some header bytes, then the flat bytes. The table of formats.
//!
//! A format is pure: it says for which arrays it exists and what its header is; of elements without a fixed
//! length it makes a whole file when that is opened. What is written behind a header are elements as they are. To add one: a file and a line in `FORMATS`.

use std::ops::Range;
use std::sync::Arc;

use crate::array::OpenArray;
use crate::array::flat_file::{FlatFile, ReadSpan};
use crate::array::ragged::{Growing, RaggedElements, ReservedBytes};
use crate::error::{Error, Kind, Result};
use crate::grid::Region;
use crate::model::Array;
use crate::sync::buffer::Buffer;

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
    /// Makes a whole file of a box of elements without a fixed length.
    pub ragged: Ragged,
    /// Whether a directory shows such a file before anybody asked for it.
    pub lists_ragged: bool,
}

type HeaderFn = fn(&Array, &[u64]) -> Option<Vec<u8>>;

/// How a file is made of all elements of a box of a shape.
#[derive(Clone, Copy)]
pub enum Ragged {
    /// It is the elements with their counts.
    Records,
    /// It is put together out of them.
    Made(fn(&RaggedElements, &[u64], &mut Growing<'_>) -> Result<()>),
}

impl Format {
    /// Whether the format has files of an array.
    pub fn fits(&self, array: &Array) -> bool {
        // An array that does not decode has its files all the same; they say why.
        self.header.is_some() || array.data_type.is_variable()
    }

    /// Whether the directory of an array shows its file.
    pub fn is_listed(&self, array: &Array) -> bool {
        self.fits(array) && (self.lists_ragged || !array.data_type.is_variable())
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

/// A file that does not exist in the store.
pub struct Export {
    array: Arc<OpenArray>,
    header: Vec<u8>,
    body: FileBody,
}

/// What comes after the header.
enum FileBody {
    /// Elements of one length, put together where somebody reads.
    Flat(Box<FlatFile>),
    /// A file made when it was opened.
    Whole(ReservedBytes),
}

impl FileBody {
    fn len(&self) -> u64 {
        match self {
            FileBody::Flat(flat) => flat.len(),
            FileBody::Whole(bytes) => bytes.len() as u64,
        }
    }

    /// Returns bytes that memory has; the range must lie in the body.
    fn read_now(&self, range: Range<u64>) -> Option<ReadSpan> {
        match self {
            FileBody::Flat(flat) => flat.read_now(range),
            FileBody::Whole(bytes) => {
                let part = bytes.get(range.start as usize..range.end as usize);
                Some(ReadSpan::Own(part.unwrap_or_default().to_vec().into()))
            }
        }
    }

    fn read(&self, range: Range<u64>) -> Result<ReadSpan> {
        match self {
            FileBody::Flat(flat) => flat.read(range),
            FileBody::Whole(_) => Ok(self
                .read_now(range)
                .unwrap_or(ReadSpan::Own(Buffer::default()))),
        }
    }
}

impl Export {
    /// Opens a box of an array in a format; `Unsupported` if the array does not decode or the format cannot
    /// hold its elements. Elements without a fixed length are all read now, `TooLarge` if they are too many.
    pub fn open(array: &Arc<OpenArray>, format: &Format, region: Region) -> Result<Export> {
        let described = array.array();
        // Why an array does not decode says more than that its type has no form here.
        let cannot_hold = || match array.check_decodable() {
            Err(error) => error,
            Ok(()) => Error::unsupported(
                &array.found().path,
                format!("{} cannot hold {}", format.extension, described.data_type),
            ),
        };
        let (header, body) = if described.data_type.is_variable() {
            (Vec::new(), whole(array, format.ragged, &region)?)
        } else {
            let header = format
                .header
                .and_then(|make| make(described, &region.shape));
            let header = header.ok_or_else(cannot_hold)?;
            let flat = FlatFile::new(array.clone(), region)?;
            (header, FileBody::Flat(Box::new(flat)))
        };
        Ok(Export {
            array: array.clone(),
            header,
            body,
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

    /// Returns the bytes at `offset` if memory has them.
    pub fn read_now(&self, offset: u64, len: usize) -> Option<ReadSpan> {
        let end = offset.saturating_add(len as u64).min(self.len());
        let header = self.header.len() as u64;
        if offset >= end {
            return Some(ReadSpan::Own(Buffer::default()));
        }
        match offset.checked_sub(header) {
            Some(start) => self.body.read_now(start..end - header),
            None if end <= header => Some(ReadSpan::Own(self.header_part(offset, end).into())),
            None => None,
        }
    }

    /// Returns the bytes at `offset`, fewer than `len` only at the end.
    pub fn read_at(&self, offset: u64, len: usize) -> Result<ReadSpan> {
        let end = offset.saturating_add(len as u64).min(self.len());
        let header = self.header.len() as u64;
        if offset >= end {
            return Ok(ReadSpan::Own(Buffer::default()));
        }
        if let Some(start) = offset.checked_sub(header) {
            return self.body.read(start..end - header);
        }
        let mut out = self.header_part(offset, end.min(header));
        if end > header {
            out.extend_from_slice(&self.body.read(0..end - header)?);
        }
        Ok(ReadSpan::Own(out.into()))
    }

    /// Says why nothing can be written to the file, if that is so: what `OpenArray::check_writable` says.
    pub fn check_writable(&self) -> Result<()> {
        self.array.check_writable()
    }

    /// Writes bytes at an offset into the array. `Invalid` if that would change the header, `TooLarge` beyond
    /// the end, which no write moves.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check_writable()?;
        let FileBody::Flat(flat) = &self.body else {
            let why = "is made of all elements together, and so is not written";
            return Err(Error::new(Kind::ReadOnly, &self.array.found().path, why));
        };
        let header = self.header.len() as u64;
        let in_header = header.saturating_sub(offset).min(bytes.len() as u64);
        let (head, elements) = bytes.split_at(in_header as usize);
        if !head.is_empty() && head != self.header_part(offset, offset + in_header) {
            let why = "the header says what the array is, and only its metadata change that";
            return Err(Error::invalid(&self.array.found().path, why));
        }
        if elements.is_empty() {
            return Ok(());
        }
        flat.write(offset.saturating_sub(header), elements)
    }

    fn header_part(&self, start: u64, end: u64) -> Vec<u8> {
        self.header
            .get(start as usize..end as usize)
            .unwrap_or_default()
            .to_vec()
    }
}

/// Reads all elements of a box and makes a file of them.
fn whole(array: &OpenArray, ragged: Ragged, region: &Region) -> Result<FileBody> {
    let records = array.records(region)?;
    let Ragged::Made(make) = ragged else {
        return Ok(FileBody::Whole(records.into_bytes()));
    };
    let mut out = array.growing();
    make(&records, &region.shape, &mut out).map_err(|error| error.about(&array.found().path))?;
    Ok(FileBody::Whole(out.finish()))
}
