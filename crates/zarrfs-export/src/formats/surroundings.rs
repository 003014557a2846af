//! Facts about an array from other nodes' metadata: its groups and its grid mapping.

use serde_json::Value;

use crate::formats::coordinate_variable::CoordinateVariable;
use crate::formats::map_layout::LevelBase;
use zarr_format::model::Attributes;

/// The surroundings of an array; `None` for each part that does not exist.
#[derive(Clone, Copy, Default)]
pub struct Surroundings<'a> {
    /// The attributes of the group that the array is in.
    pub group: Option<&'a Attributes>,
    /// The OME-Zarr group that names the array as a level of an image, if it is not the array's own group.
    pub image: Option<ImageGroup<'a>>,
    /// The group of the image that the array has labels of; its path leads to the group that names the array as a
    /// level.
    pub labelled: Option<ImageGroup<'a>>,
    /// The stored numbers of the transformations of the array's image.
    pub numbers: &'a [StoredNumbers],
    /// The scene of the array's image, if the image is in the array's own group.
    pub scene: Option<SceneGroup<'a>>,
    /// The attributes of the variable named by the array's `grid_mapping`.
    pub mapping: Option<&'a Attributes>,
    /// The description of the array's level in a GeoZarr layout, of its group or of a group above.
    pub level: Option<&'a Attributes>,
    /// The attributes of the group with this layout, if it is above the array's own group.
    pub levels: Option<&'a Attributes>,
    /// The base level that this level was derived from, if it has no place of its own.
    pub base: Option<&'a LevelBase>,
    /// The attributes of the hierarchy's root, if it is not the array's own group.
    pub root: Option<&'a Attributes>,
    /// The coordinate variables of the array's dimensions; empty if they were not requested.
    pub coordinates: &'a [Option<CoordinateVariable>],
}

/// An OME-Zarr group with an image.
#[derive(Clone, Copy)]
pub struct ImageGroup<'a> {
    /// Its attributes.
    pub attributes: &'a Attributes,
    /// The path of the array, or of another node, from the group.
    pub path: &'a [u8],
    /// The numbers of its transformations that were read.
    pub numbers: &'a [StoredNumbers],
    /// The group above it with its scene.
    pub scene: Option<SceneGroup<'a>>,
}

/// An OME-Zarr group with a scene, which relates the images below it.
#[derive(Clone, Copy)]
pub struct SceneGroup<'a> {
    /// Its attributes.
    pub attributes: &'a Attributes,
    /// The path of the image's group from it.
    pub path: &'a [u8],
    /// The numbers of its transformations that were read.
    pub numbers: &'a [StoredNumbers],
}

/// The numbers of a transformation, stored in an array.
#[derive(Clone)]
pub struct StoredNumbers {
    /// The path of the array from the group.
    pub path: String,
    /// A list of numbers, or a list of rows.
    pub list: Value,
}

impl<'a> Surroundings<'a> {
    /// Returns the surroundings of an array of which only the group is known.
    pub fn of_group(group: Option<&'a Attributes>) -> Surroundings<'a> {
        Surroundings {
            group,
            ..Surroundings::default()
        }
    }

    /// Returns the group of the image that the array `name` is a level of, or `None` if there is none.
    pub fn image_of(&self, name: &'a [u8]) -> Option<ImageGroup<'a>> {
        let own = self.group.map(|attributes| ImageGroup {
            attributes,
            path: name,
            numbers: self.numbers,
            scene: self.scene,
        });
        self.image.or(own)
    }
}
