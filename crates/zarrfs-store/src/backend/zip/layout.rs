//! What an archive with the name `.ozx` looks like beside the recommendations of OME-NGFF RFC-9.

use rawzip::{CompressionMethod, ZipFileHeaderRecord};
use serde_json::Value;

use crate::Key;
use zarr_format::model::document;

/// The layout of an archive, as far as RFC-9 recommends one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchiveLayout {
    /// The first compressed entry, if there is one.
    pub compressed: Option<Key>,
    /// The first `zarr.json` that is not where RFC-9 wants it: all at the beginning, in breadth-first order.
    pub misplaced: Option<Key>,
    /// Whether the archive has the records of ZIP64.
    pub is_zip64: bool,
    /// Whether the archive's comment names the version of OME-Zarr.
    pub has_comment: bool,
}

/// Collects the layout from the entries in their order.
#[derive(Default)]
pub(super) struct LayoutBuilder {
    layout: ArchiveLayout,
    /// The number of names in the last document's key; 0 before the first entry.
    depth: usize,
    has_chunks: bool,
}

impl LayoutBuilder {
    /// Adds a file.
    pub(super) fn add(&mut self, record: &ZipFileHeaderRecord<'_>, key: &Key) {
        if record.compression_method() != CompressionMethod::STORE {
            self.layout.compressed.get_or_insert_with(|| key.clone());
        }
        let depth = key.names().count();
        if key.name() != document::ZARR_JSON.as_bytes() {
            self.has_chunks = true;
            return;
        }
        let is_in_order = depth >= self.depth && (self.depth > 0 || depth == 1);
        if self.has_chunks || !is_in_order {
            self.layout.misplaced.get_or_insert_with(|| key.clone());
        }
        self.depth = depth;
    }

    /// Returns the layout of an archive with this comment.
    pub(super) fn finish(mut self, comment: &[u8], is_zip64: bool) -> ArchiveLayout {
        let text = comment.strip_suffix(b"\0").unwrap_or(comment);
        let value: Option<Value> = serde_json::from_slice(text).ok();
        let version = value
            .as_ref()
            .and_then(|value| value.get("ome")?.get("version")?.as_str());
        self.layout.has_comment = version.is_some();
        self.layout.is_zip64 = is_zip64;
        self.layout
    }
}
