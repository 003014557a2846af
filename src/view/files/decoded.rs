//! Decoded files open for reading.

use std::time::Duration;

use crate::view::text_file::file_attr;
use crate::view::{Attr, File};
use zarrfs_export::formats::Export;
use zarrfs_store::request_context::RequestContext;

impl File for Export {
    fn version(&self) -> Option<u64> {
        Some(self.array().content_number())
    }

    fn may_have_changed(&self) -> bool {
        Export::may_have_changed(self)
    }

    fn expects_sequential(&self) -> bool {
        Export::is_read_on(self)
    }

    fn attr(&self, _context: &RequestContext) -> Option<Attr> {
        let modified = self.array().modified();
        Some(file_attr(self.len(), modified, Duration::ZERO))
    }
}
