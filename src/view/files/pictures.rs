//! `NAME.png`: a plane of an array as a picture, which is made when it is opened.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::array::OpenArray;
use crate::error::Result;
use crate::hierarchy::NodeEntry;
use crate::inspect::plane_picture::PlanePicture;
use crate::view::OpenedFile;
use crate::view::files::FilesView;
use crate::view::files::array_files::ArrayPlace;
use crate::view::text_file::TextFile;

/// A picture of an array.
pub(super) struct PictureTarget {
    /// The array.
    pub(super) found: Arc<NodeEntry>,
    array: Arc<OpenArray>,
    picture: PlanePicture,
}

impl PictureTarget {
    /// Returns the exact length in bytes.
    pub(super) fn length(&self) -> Result<u64> {
        self.picture.length()
    }

    /// Returns the number of the content.
    pub(super) fn content(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        ("picture", self.array.id()).hash(&mut hasher);
        hasher.finish()
    }

    /// Opens the picture; fails as reading the elements does.
    pub(super) fn open(&self) -> Result<OpenedFile> {
        let version = self.array.content()?;
        Ok(OpenedFile {
            file: Arc::new(TextFile {
                bytes: self.picture.read(&self.array)?.into(),
                version: version.unwrap_or_default(),
                modified: self.array.modified(),
            }),
            content: Some(self.content()),
            version,
            direct: false,
            tree_file: None,
        })
    }
}

impl FilesView {
    /// Returns the picture of an array, or of selected elements; nothing if they are no numbers. Fails as `named_file`.
    pub(super) fn picture(
        &self,
        place: &ArrayPlace,
        selection: &str,
        may_wait: bool,
    ) -> Result<Option<PictureTarget>> {
        let found = place.found.clone();
        let array = self.arrays.open(&found)?;
        let selection = self.selected(place, selection, may_wait)?;
        let picture = PlanePicture::of(array.array(), selection);
        Ok(picture.map(|picture| PictureTarget {
            found,
            array,
            picture,
        }))
    }
}
