//! Virtual files of a box of an array: some header bytes, then the flat bytes. The table of formats.
//!
//! A format is pure: it says for which arrays it exists and what its header is. To add one: a file and a
//! line in `FORMATS`.

use std::sync::Arc;

use crate::array::OpenArray;
use crate::array::flat::Flat;
use crate::array::flat::Span;
use crate::buffer::Buffer;
use crate::error::Error;
use crate::error::Result;
use crate::grid::Region;
use crate::model::Array;

pub mod npy;
pub mod raw;

/// A file format for an array.
pub struct Format {
    /// What a file name ends with, without the dot.
    pub extension: &'static str,
    /// Returns the bytes before the elements of a box of that shape; nothing if the format cannot hold
    /// such elements.
    pub header: fn(&Array, &[u64]) -> Option<Vec<u8>>,
}

/// Every format.
pub const FORMATS: &[&Format] = &[&npy::FORMAT, &raw::FORMAT];

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
    header: Vec<u8>,
    body: Flat,
}

impl Export {
    /// Opens a box of an array in a format; `Unsupported` if the elements have no fixed size or the format
    /// cannot hold them.
    pub fn open(array: &Arc<OpenArray>, format: &Format, region: Region) -> Result<Export> {
        let header = (format.header)(array.array(), &region.shape).ok_or_else(|| {
            let name = array.array().data_type.v3_name();
            Error::unsupported(
                &array.found().path,
                format!("{} cannot hold {name}", format.extension),
            )
        })?;
        Ok(Export {
            header,
            body: Flat::new(array.clone(), region)?,
        })
    }

    /// Returns the length in bytes, known without decoding.
    pub fn len(&self) -> u64 {
        self.body.len() + self.header.len() as u64
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the array.
    pub fn array(&self) -> &Arc<OpenArray> {
        self.body.array()
    }

    /// Returns the bytes at `offset` if memory has them.
    pub fn read_now(&self, offset: u64, len: usize) -> Option<Span> {
        let end = offset.saturating_add(len as u64).min(self.len());
        let header = self.header.len() as u64;
        if offset >= end {
            return Some(Span::Own(Buffer::default()));
        }
        match offset.checked_sub(header) {
            Some(start) => self.body.read_now(start..end - header),
            None if end <= header => Some(Span::Own(self.header_part(offset, end).into())),
            None => None,
        }
    }

    /// Returns the bytes at `offset`, fewer than `len` only at the end.
    pub fn read_at(&self, offset: u64, len: usize) -> Result<Span> {
        let end = offset.saturating_add(len as u64).min(self.len());
        let header = self.header.len() as u64;
        if offset >= end {
            return Ok(Span::Own(Buffer::default()));
        }
        if let Some(start) = offset.checked_sub(header) {
            return self.body.read(start..end - header);
        }
        let mut out = self.header_part(offset, end.min(header));
        if end > header {
            out.extend_from_slice(&self.body.read(0..end - header)?);
        }
        Ok(Span::Own(out.into()))
    }

    fn header_part(&self, start: u64, end: u64) -> Vec<u8> {
        self.header
            .get(start as usize..end as usize)
            .unwrap_or_default()
            .to_vec()
    }
}
