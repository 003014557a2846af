//! The input of a format: metadata of a box, and facts from other nodes.

use serde_json::Value;

use crate::formats::maps::coordinate_variable::CoordinateVariable;
use crate::formats::maps::levels::LevelBase;
use zarr_format::grid::Selection;
use zarr_format::model::{Array, Attributes};

/// The input of a format: the metadata of a box and its surroundings.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The array, with its attributes.
    pub array: &'a Array,
    /// Number of elements along each dimension of the box in the file.
    pub shape: &'a [u64],
    /// The name of the array, with which the names of its files begin.
    pub name: &'a [u8],
    /// The part of the file name between the name of the array and the extension, such as `@0,:` or `.cf`.
    pub chosen: &'a str,
    /// Facts about the array from the metadata of other nodes.
    pub around: Surroundings<'a>,
    /// The dimensions of the box, outermost first. `None` if the box has all dimensions of the array and begins at the
    /// first elements.
    pub taken: Option<&'a [TakenDimension]>,
}

/// A dimension of a box. It takes elements of one dimension of the array, at a fixed step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenDimension {
    /// The index of the array's dimension.
    pub axis: usize,
    /// Index of the first element.
    pub start: u64,
    /// Step from one element to the next.
    pub step: i64,
}

impl TakenDimension {
    /// Returns the dimensions that a selection keeps.
    pub fn of_selection(selection: &Selection) -> Vec<TakenDimension> {
        let kept = selection.remaining_axes().into_iter();
        kept.filter_map(|axis| {
            let selected = selection.axes.get(axis)?;
            Some(TakenDimension {
                axis,
                start: selected.start,
                step: selected.step,
            })
        })
        .collect()
    }
}

impl<'a> Subject<'a> {
    /// Returns the subject of an array without any surroundings.
    pub fn alone(array: &'a Array, shape: &'a [u64]) -> Subject<'a> {
        Subject {
            array,
            shape,
            name: b"",
            chosen: "",
            around: Surroundings::default(),
            taken: None,
        }
    }

    /// Returns the group whose OME-Zarr image has the array as a level, or `None` if the array is not a level of an
    /// image.
    pub fn image(&self) -> Option<ImageGroup<'a>> {
        self.around.image_of(self.name)
    }

    /// Returns the name as text, for formats that write it into a file. Returns `None` if it is not UTF-8, or cannot be
    /// in a line of a header.
    pub(crate) fn text_name(&self) -> Option<&'a str> {
        std::str::from_utf8(self.name)
            .ok()
            .filter(|name| is_plain(name))
    }

    /// Returns the name of the `.raw` file with the same elements, or `None` if a header cannot contain it.
    pub(crate) fn raw_file(&self) -> Option<String> {
        let name = self.text_name()?;
        is_plain(self.chosen).then(|| format!("{name}{}.raw", self.chosen))
    }

    /// Like `raw_file`, for headers in which a name with `%` stands for several files. Returns `None` for such a name.
    pub(crate) fn raw_file_alone(&self) -> Option<String> {
        self.raw_file().filter(|file| !file.contains('%'))
    }

    /// Whether the box has elements, and from 1 to `most` dimensions, as image formats require.
    pub fn is_image(&self, most: usize) -> bool {
        (1..=most).contains(&self.shape.len()) && !self.shape.contains(&0)
    }
}

/// Whether a text can be in a line of every text header, including XML.
fn is_plain(text: &str) -> bool {
    !text.contains(|letter: char| letter.is_control() || "\"<>&".contains(letter))
}

/// The surroundings of an array; `None` for each part that does not exist.
#[derive(Clone, Copy, Default)]
pub struct Surroundings<'a> {
    /// The attributes of the group that the array is in.
    pub group: Option<&'a Attributes>,
    /// The OME-Zarr group that names the array as a level of an image. `None` if this is the array's own group.
    pub image: Option<ImageGroup<'a>>,
    /// The group of the image that the array has labels for. Its path leads from there to the group that names the
    /// array as a level.
    pub labelled: Option<ImageGroup<'a>>,
    /// The numbers of the transformations of the array's image, as far as arrays store them.
    pub numbers: &'a [StoredNumbers],
    /// The scene above the array's image, if the image is in the array's own group.
    pub scene: Option<SceneGroup<'a>>,
    /// The attributes of the variable named by the array's `grid_mapping`.
    pub mapping: Option<&'a Attributes>,
    /// The entry of the array's resolution level in the GeoZarr layout of its group, or of a group above.
    pub level: Option<&'a Attributes>,
    /// The attributes of the group with this layout. `None` if this is the array's own group.
    pub levels: Option<&'a Attributes>,
    /// The level from which the array's level was derived, if the layout does not give a place for the array's level.
    pub base: Option<&'a LevelBase>,
    /// The attributes of the root of the hierarchy. `None` if this is the array's own group.
    pub root: Option<&'a Attributes>,
    /// The coordinate variables of the array's dimensions; empty if they were not requested.
    pub coordinates: &'a [Option<CoordinateVariable>],
}

/// An OME-Zarr group with an image.
#[derive(Clone, Copy)]
pub struct ImageGroup<'a> {
    /// Its attributes.
    pub attributes: &'a Attributes,
    /// The path from the group to the array or to another node.
    pub path: &'a [u8],
    /// The numbers of its transformations that were read from arrays.
    pub numbers: &'a [StoredNumbers],
    /// The group above it that has a scene.
    pub scene: Option<SceneGroup<'a>>,
}

/// An OME-Zarr group with a scene, which places the images below it relative to one another.
#[derive(Clone, Copy)]
pub struct SceneGroup<'a> {
    /// Its attributes.
    pub attributes: &'a Attributes,
    /// The path from this group to the group of the image.
    pub path: &'a [u8],
    /// The numbers of its transformations that were read from arrays.
    pub numbers: &'a [StoredNumbers],
}

/// The numbers of a transformation, stored in an array.
#[derive(Clone)]
pub struct StoredNumbers {
    /// The path of the array, relative to the group with the transformation.
    pub path: String,
    /// A list of numbers, or a list of rows.
    pub list: Value,
}

impl<'a> Surroundings<'a> {
    /// Returns the surroundings of an array if only its group is known.
    pub fn of_group(group: Option<&'a Attributes>) -> Surroundings<'a> {
        Surroundings {
            group,
            ..Surroundings::default()
        }
    }

    /// Returns the group whose OME-Zarr image has the array `name` as a level, or `None` if the array is not a level of
    /// an image.
    pub(crate) fn image_of(&self, name: &'a [u8]) -> Option<ImageGroup<'a>> {
        let own = self.group.map(|attributes| ImageGroup {
            attributes,
            path: name,
            numbers: self.numbers,
            scene: self.scene,
        });
        self.image.or(own)
    }
}
