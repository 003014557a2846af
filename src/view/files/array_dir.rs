//! The directory of an array: what it lists, and what opens in it.
//!
//! It lists the array once, so that a recursive program costs what the array is worth: as a file of all of it, or as its
//! stored chunks where that is next to nothing of a large array. Listing a file or not changes nothing about opening it.

use std::sync::Arc;

use crate::error::Result;
use crate::export::FORMATS;
use crate::hierarchy::NodeEntry;
use crate::model::Array;
use crate::store::listing::NameList;
use crate::store::{EntryKind, Listing};
use crate::view::files::listings::ChunkListing;
use crate::view::files::{ATTRIBUTES, CHUNKS, FilesView, METADATA};

impl FilesView {
    /// Lists the directory of an array.
    pub(super) fn list_array(
        &self,
        found: &Arc<NodeEntry>,
        array: &Array,
    ) -> Result<Box<dyn Listing>> {
        let is_sparse = self.is_sparse(found);
        let formats = if is_sparse {
            self.forms.asked(array)
        } else {
            self.forms.listed(array)
        };
        let documents = [METADATA, ATTRIBUTES].map(|name| (name.to_vec(), EntryKind::File));
        let files = formats
            .into_iter()
            .map(|format| (self.file_name(found, format), EntryKind::File));
        // A name that is too long could not be looked up.
        let files = files.filter(|(name, _)| found.path.child(name).is_ok());
        let chunks = (CHUNKS.to_vec(), EntryKind::Directory);
        let chunks = (is_sparse || self.forms.chunks).then_some(chunks);
        let names = documents.into_iter().chain(files).chain(chunks);
        Ok(Box::new(NameList::new(names)))
    }

    /// Returns the names of an array's files and of the directory of its chunks, each with a newline; nothing for a group.
    pub(super) fn names_that_open(&self, found: &Arc<NodeEntry>) -> Result<Option<Vec<u8>>> {
        let Some(array) = found.array() else {
            return Ok(None);
        };
        let decodes = self.arrays.open(found)?.check_decodable().is_ok();
        let formats = FORMATS
            .iter()
            .filter(|format| decodes && format.fits(array));
        let files = formats.map(|format| self.file_name(found, format));
        let files = files.filter(|name| found.path.child(name).is_ok());
        let names = files.chain([[CHUNKS, b"/"].concat()]);
        Ok(Some(
            names.flat_map(|name| [&name[..], b"\n"].concat()).collect(),
        ))
    }

    /// Whether an array is listed as its stored chunks. One of which that is not known is listed as a file.
    fn is_sparse(&self, found: &Arc<NodeEntry>) -> bool {
        let array = self.arrays.open(found);
        array.is_ok_and(|array| array.is_sparse().unwrap_or(false))
    }

    /// Lists the stored chunks of an array.
    pub(super) fn list_chunks(&self, found: &Arc<NodeEntry>) -> Result<Box<dyn Listing>> {
        let array = self.arrays.open(found)?;
        let formats = self.forms.listed(array.array());
        Ok(Box::new(ChunkListing::new(array, formats)?))
    }
}
