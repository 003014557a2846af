//! What the metadata of other nodes say of an array: of the groups that it is in, and of the variable of its map.

use serde_json::Value;

use crate::formats::coordinate_variable::CoordinateVariable;
use crate::formats::map_layout::LevelBase;
use zarr_format::model::Attributes;

/// What stands around an array; nothing of what is not there.
#[derive(Clone, Copy, Default)]
pub struct Surroundings<'a> {
    /// The attributes of the group that the array is in.
    pub group: Option<&'a Attributes>,
    /// The group of OME-Zarr that names the array as a level of an image, if that is another one.
    pub image: Option<ImageGroup<'a>>,
    /// The group of the image that the array has the labels of; the path is that of the group that names the array as a
    /// level.
    pub labelled: Option<ImageGroup<'a>>,
    /// The numbers of the transformations of the image that it is a level of.
    pub numbers: &'a [StoredNumbers],
    /// The scene of the image that it is a level of, if the array's own group has that image.
    pub scene: Option<SceneGroup<'a>>,
    /// The attributes of the variable that the array's attribute `grid_mapping` names.
    pub mapping: Option<&'a Attributes>,
    /// What the layout of GeoZarr, in the group or in the one above it, says of the level that the array is of.
    pub level: Option<&'a Attributes>,
    /// The attributes of the group above the array's own that has this layout, if it is there.
    pub levels: Option<&'a Attributes>,
    /// The level of which this one was made, if it has no place of its own.
    pub base: Option<&'a LevelBase>,
    /// The attributes of the root of the hierarchy, if it is not the array's own group.
    pub root: Option<&'a Attributes>,
    /// The coordinate variables of the array's dimensions; empty if nobody asked for them.
    pub coordinates: &'a [Option<CoordinateVariable>],
}

/// A group of OME-Zarr.
#[derive(Clone, Copy)]
pub struct ImageGroup<'a> {
    /// Its attributes.
    pub attributes: &'a Attributes,
    /// The path of the array from it, or of what is looked at.
    pub path: &'a [u8],
    /// The numbers of its transformations, as far as they were read.
    pub numbers: &'a [StoredNumbers],
    /// The group above it that says how its image lies to others.
    pub scene: Option<SceneGroup<'a>>,
}

/// A group of OME-Zarr that says how the images below it lie to one another.
#[derive(Clone, Copy)]
pub struct SceneGroup<'a> {
    /// Its attributes.
    pub attributes: &'a Attributes,
    /// The path of the group of the image from it.
    pub path: &'a [u8],
    /// The numbers of its transformations, as far as they were read.
    pub numbers: &'a [StoredNumbers],
}

/// The numbers of a transformation that are stored in an array.
#[derive(Clone)]
pub struct StoredNumbers {
    /// The path of the array from the group.
    pub path: String,
    /// A list, or a list of the lists of rows.
    pub list: Value,
}

impl<'a> Surroundings<'a> {
    /// Returns the surroundings of an array in a group of which nothing else is known.
    pub fn of_group(group: Option<&'a Attributes>) -> Surroundings<'a> {
        Surroundings {
            group,
            ..Surroundings::default()
        }
    }

    /// Returns the group of the image that an array called `name` is a level of, if it is one.
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
