//! Decoded files open for reading.

use std::time::Duration;

use crate::error::Result;
use crate::export::{Export, FileBody};
use crate::sync::read_bytes::part;
use crate::view::text_file::file_attr;
use crate::view::{Attr, File, ReadBytes};

impl File for Export {
    fn read_now(&self, offset: u64, len: usize) -> Option<ReadBytes> {
        let end = offset.saturating_add(len as u64).min(self.len());
        let header = self.header.len() as u64;
        if offset >= end {
            return Some(ReadBytes::default());
        }
        match (offset.checked_sub(header), &self.body) {
            (Some(start), FileBody::Flat(flat)) => {
                let range = start..end - header;
                flat.is_shown(&range).then(|| flat.read_now(range))?
            }
            (Some(start), FileBody::Whole(bytes)) => Some(part(bytes, start..end - header).into()),
            (None, _) if end <= header => Some(part(&self.header, offset..end).into()),
            (None, _) => None,
        }
    }

    fn read_at(&self, offset: u64, len: usize) -> Result<ReadBytes> {
        Export::read_at(self, offset, len)
    }

    fn version(&self) -> Option<u64> {
        Some(self.array().content_now())
    }

    fn may_have_changed(&self) -> bool {
        Export::may_have_changed(self)
    }

    fn is_read_on(&self) -> bool {
        match &self.body {
            FileBody::Flat(flat) => flat.is_read_on(),
            FileBody::Whole(_) => true,
        }
    }

    fn attr(&self) -> Option<Attr> {
        let modified = self.array().entry().modified;
        Some(file_attr(self.len(), modified, Duration::ZERO))
    }
}
