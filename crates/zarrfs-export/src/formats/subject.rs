//! The input of a format: metadata of an array, and of the nodes around it.

use serde_json::Value;

use crate::formats::maps::coordinate_variable::CoordinateVariable;
use crate::formats::maps::levels::LevelBase;
use zarr_format::grid::Selection;
use zarr_format::model::{Array, Attributes};

/// The input of a format: metadata of the exported elements, and of the nodes around the array.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The array, with its attributes.
    pub array: &'a Array,
    /// Length of each dimension of the exported elements.
    pub shape: &'a [u64],
    /// The name of the array, with which the names of its files begin.
    pub name: &'a [u8],
    /// The part of the file name between the name of the array and the extension, such as `@0,:` or `.cf`.
    pub chosen: &'a str,
    /// Metadata of other nodes that concern the array.
    pub around: Surroundings<'a>,
    /// The exported dimensions of the array, outermost first; `None` if all dimensions are exported and begin at index
    /// 0.
    pub taken: Option<&'a [TakenDimension]>,
}

/// An exported dimension: elements along one dimension of the array, at a fixed step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenDimension {
    /// The index of the dimension in the array.
    pub axis: usize,
    /// The index of the first exported element along the dimension.
    pub start: u64,
    /// The distance between the indices of exported elements.
    pub step: i64,
}

impl TakenDimension {
    /// Returns the dimensions that remain after a selection.
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
    /// Makes the input of a format from an array alone, without metadata of other nodes.
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

    /// Returns the OME-Zarr group that has the array as a resolution level, or `None` if the array is not a level of an
    /// image.
    pub fn image(&self) -> Option<ImageGroup<'a>> {
        self.around.image_of(self.name)
    }

    /// Returns the array's name for the header of a file. Returns `None` if it is not UTF-8, or has a character that a
    /// line of a header cannot contain.
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

    /// Returns the name of the `.raw` file for headers in which `%` stands for several files; `None` if the name has a
    /// `%`.
    pub(crate) fn raw_file_alone(&self) -> Option<String> {
        self.raw_file().filter(|file| !file.contains('%'))
    }

    /// Whether the exported elements have 1 to `most` dimensions, none of length 0, as image formats require.
    pub fn is_image(&self, most: usize) -> bool {
        (1..=most).contains(&self.shape.len()) && !self.shape.contains(&0)
    }
}

/// Whether a text can be part of a line in every text header, including XML.
fn is_plain(text: &str) -> bool {
    !text.contains(|letter: char| letter.is_control() || "\"<>&".contains(letter))
}

/// Metadata of nodes around an array; `None` for a node that does not exist.
#[derive(Clone, Copy, Default)]
pub struct Surroundings<'a> {
    /// The attributes of the array's group.
    pub group: Option<&'a Attributes>,
    /// The OME-Zarr group that has the array as a resolution level; `None` if it is the array's own group.
    pub image: Option<ImageGroup<'a>>,
    /// The OME-Zarr group of the image that the array has labels for. Its path leads to the group that has the array as
    /// a resolution level.
    pub labelled: Option<ImageGroup<'a>>,
    /// The numbers of the transformations of the array's image that are stored in arrays.
    pub numbers: &'a [StoredNumbers],
    /// The OME-Zarr scene above the array's image, if the image is in the array's own group.
    pub scene: Option<SceneGroup<'a>>,
    /// The attributes of the variable that the array's `grid_mapping` names.
    pub mapping: Option<&'a Attributes>,
    /// The entry of the array in the list of GeoZarr resolution levels of its group, or of a group above.
    pub level: Option<&'a Attributes>,
    /// The attributes of the group that lists the GeoZarr resolution levels; `None` if it is the array's own group.
    pub levels: Option<&'a Attributes>,
    /// The GeoZarr level from which the array was derived, if the metadata do not state a geotransform for the array
    /// itself.
    pub base: Option<&'a LevelBase>,
    /// The attributes of the hierarchy's root; `None` if the root is the array's own group.
    pub root: Option<&'a Attributes>,
    /// The coordinate variables of the array's dimensions; empty if they were not requested.
    pub coordinates: &'a [Option<CoordinateVariable>],
}

/// An OME-Zarr group that has a multiscale image.
#[derive(Clone, Copy)]
pub struct ImageGroup<'a> {
    /// The attributes of the group.
    pub attributes: &'a Attributes,
    /// The path from the group to the array, or to another node.
    pub path: &'a [u8],
    /// The numbers of the group's transformations that were read from arrays.
    pub numbers: &'a [StoredNumbers],
    /// The scene above the group, if there is one.
    pub scene: Option<SceneGroup<'a>>,
}

/// An OME-Zarr group with a scene, which places the images below it relative to one another.
#[derive(Clone, Copy)]
pub struct SceneGroup<'a> {
    /// The attributes of the group.
    pub attributes: &'a Attributes,
    /// The path from the scene's group to the group of the image.
    pub path: &'a [u8],
    /// The numbers of the scene's transformations that were read from arrays.
    pub numbers: &'a [StoredNumbers],
}

/// The numbers of an OME-Zarr transformation that are stored in an array.
#[derive(Clone)]
pub struct StoredNumbers {
    /// The path of the array with the numbers, relative to the group with the transformation.
    pub path: String,
    /// The numbers as a JSON list, or as a list of rows.
    pub list: Value,
}

impl<'a> Surroundings<'a> {
    /// Makes the surroundings of an array of which only the group's attributes are known.
    pub fn of_group(group: Option<&'a Attributes>) -> Surroundings<'a> {
        Surroundings {
            group,
            ..Surroundings::default()
        }
    }

    /// Returns the OME-Zarr group that has the array `name` as a resolution level, or `None` if the array is not a
    /// level of an image.
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
