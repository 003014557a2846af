//! The directory of an array: its listing, and the names that open in it.
//!
//! It lists the array once, so that a recursive program reads each element once: as one file, or as the stored chunks
//! of a large array that is nearly empty. A listing does not affect the names that open.

use std::sync::Arc;

use crate::view::files::array_files::ArrayPlace;
use crate::view::files::listings::ChunkListing;
use crate::view::files::{CHUNKS, FilesView};
use zarr_format::error::{Kind, Result};
use zarrfs_array::hierarchy::NodeEntry;
use zarrfs_export::formats::{FORMATS, GROUP_FORMATS, Subject, VARIABLE_FORMATS};
use zarrfs_export::inspect::file_ending::FileEnding;
use zarrfs_export::inspect::surrounding_nodes::SurroundingNodes;
use zarrfs_store::listing::NameList;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{EntryKind, Listing};

/// Returns names as lines.
fn lines(names: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let lines = names.into_iter().map(|name| [&name[..], b"\n"].concat());
    lines.flatten().collect()
}

impl FilesView {
    /// Lists the directory of an array.
    pub(super) fn list_array(
        &self,
        context: &RequestContext,
        found: &Arc<NodeEntry>,
    ) -> Result<Box<dyn Listing>> {
        let is_sparse = self.is_sparse(context, found);
        let place = self.place_of(context, found)?;
        let subject = self.whole_of(&place);
        let formats = match &subject {
            None => Vec::new(),
            Some(subject) if is_sparse => self.forms.asked(subject),
            Some(subject) => self.forms.listed(subject),
        };
        let file = |name| (name, EntryKind::File);
        let documents = self.documents_shown(&found.path).into_iter().map(file);
        let scratch = self.unstored.names_in(&found.path).into_iter().map(file);
        let files = formats
            .into_iter()
            .map(|format| (self.file_name(found, format), EntryKind::File));
        // A name that is too long cannot be looked up.
        let files = files.filter(|(name, _)| found.path.child(name).is_ok());
        let with_coordinates = self.group_file_names(context, found, &self.forms.of_groups);
        let files = files.chain(with_coordinates.into_iter().map(file));
        let chunks = (CHUNKS.to_vec(), EntryKind::Directory);
        let chunks = (is_sparse || self.forms.chunks).then_some(chunks);
        let names = documents.chain(files).chain(chunks).chain(scratch);
        let mut names: Vec<_> = names.collect();
        for pair in self.pairs_of(context, found)?.into_iter().map(file) {
            if !names.contains(&pair) {
                names.push(pair);
            }
        }
        Ok(Box::new(NameList::new(names)))
    }

    /// Returns the names of both files of each pair of which one was looked up.
    fn pairs_of(&self, context: &RequestContext, found: &Arc<NodeEntry>) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        for ending in self.pairs.endings(&found.path) {
            let Some(parsed) = FileEnding::parse(ending.as_bytes()) else {
                continue;
            };
            let place = self.place_of(context, found)?;
            match self.named_file(context, place, parsed) {
                Ok(Some(_)) => names.push([self.name_of(found), ending.as_bytes()].concat()),
                // The caller retries where waiting is allowed.
                Err(error) if error.kind() == Kind::WouldWait => return Err(error),
                // The path has another array now.
                Ok(None) | Err(_) => {}
            }
        }
        Ok(names)
    }

    /// Returns the names that open, one a line: a group's files of all its arrays, or an array's files and its chunk
    /// directory.
    pub(super) fn names_that_open(
        &self,
        context: &RequestContext,
        found: &Arc<NodeEntry>,
    ) -> Result<Option<Vec<u8>>> {
        let place = self.place_of(context, found)?;
        let Some(subject) = self.whole_of(&place) else {
            let names = self.group_file_names(context, found, GROUP_FORMATS);
            return Ok(Some(lines(names)));
        };
        let decodes = self.arrays.open(found)?.check_decodable().is_ok();
        let with_coordinates = self.group_file_names(context, found, VARIABLE_FORMATS);
        let formats = FORMATS
            .iter()
            .filter(|format| decodes && format.fits(&subject));
        let files = formats.map(|format| self.file_name(found, format));
        let files = files.filter(|name| found.path.child(name).is_ok());
        let names = files.chain(with_coordinates);
        let names = names.chain([[CHUNKS, b"/"].concat()]);
        Ok(Some(lines(names)))
    }

    /// Returns an array and its surrounding nodes.
    pub(super) fn place_of(
        &self,
        context: &RequestContext,
        found: &Arc<NodeEntry>,
    ) -> Result<ArrayPlace> {
        let around = SurroundingNodes::of(context, &self.hierarchy, found)?;
        let found = found.clone();
        Ok(ArrayPlace { found, around })
    }

    /// Returns the whole array as formats see it, or `None` for a group.
    pub(super) fn whole_of<'a>(&'a self, place: &'a ArrayPlace) -> Option<Subject<'a>> {
        let shape = &place.found.array()?.shape;
        place.subject(self.name_of(&place.found), shape)
    }

    /// Whether an array is listed as its stored chunks; false if that is unknown.
    fn is_sparse(&self, context: &RequestContext, found: &Arc<NodeEntry>) -> bool {
        let array = self.arrays.open(found);
        array.is_ok_and(|array| array.is_sparse(context).unwrap_or(false))
    }

    /// Lists the stored chunks of an array.
    pub(super) fn list_chunks(&self, found: &Arc<NodeEntry>) -> Result<Box<dyn Listing>> {
        let array = self.arrays.open(found)?;
        let alone = Subject::alone(array.array(), &array.array().shape);
        let mut formats = self.forms.listed(&alone);
        formats.retain(|format| format.is_basic);
        Ok(Box::new(ChunkListing::new(array, formats)?))
    }
}
