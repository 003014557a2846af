//! Decoded files open for reading.

use std::time::Duration;

use crate::error::Result;
use crate::export::Export;
use crate::view::text_file::file_attr;
use crate::view::{Attr, File, ReadBytes};

impl File for Export {
    fn read_now(&self, offset: u64, len: usize) -> Option<ReadBytes> {
        Export::read_now(self, offset, len)
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
        Export::is_read_on(self)
    }

    fn attr(&self) -> Option<Attr> {
        let modified = self.array().modified();
        Some(file_attr(self.len(), modified, Duration::ZERO))
    }
}
