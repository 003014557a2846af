//! Finds the nodes around an array that affect its files.
//!
//! These are its group, the group of OME-Zarr or GeoZarr that names it as a level of an image, the image that it has
//! labels for, its grid mapping, and the coordinate variables of its dimensions.

use std::sync::Arc;

use serde_json::Value;

use crate::formats::elements;
use crate::formats::maps::coordinate_variable::CoordinateVariable;
use crate::formats::maps::levels::LevelBase;
use crate::formats::member::read_all;
use crate::formats::ome_zarr::{
    has_systems, is_scene, labelled_image, names_level, number_paths, scene_number_paths,
};
use crate::formats::subject::{ImageGroup, SceneGroup, StoredNumbers, Surroundings};
use crate::formats::{Export, FileParts};
use zarr_format::error::{Kind, Result};
use zarr_format::grid::Region;
use zarr_format::model::{Array, Attributes, DataType, MAX_RANK};
use zarrfs_array::array::Arrays;
use zarrfs_array::hierarchy::{Hierarchy, NodeEntry};
use zarrfs_store::Key;
use zarrfs_store::request_context::RequestContext;

/// Maximum number of groups above its own that are searched for a group or variable.
const MAX_ABOVE: usize = 4;

/// The nodes around an array.
#[derive(Clone, Default)]
pub struct SurroundingNodes {
    /// The group of the array.
    pub group: Option<Arc<NodeEntry>>,
    /// The group of its image and the array's path from there, if that is not its own group.
    pub(super) image: Option<(Arc<NodeEntry>, Key)>,
    /// The group of the image that the array has labels for, and the path from there to the group that names the
    /// array as a level.
    labelled: Option<(Arc<NodeEntry>, Key)>,
    /// The numbers of transformations of these two images that are stored in arrays.
    numbers: Vec<StoredNumbers>,
    labelled_numbers: Vec<StoredNumbers>,
    /// The scenes that contain these two images.
    scene: Option<SceneNode>,
    labelled_scene: Option<SceneNode>,
    pub(super) mapping: Option<Arc<NodeEntry>>,
    /// The entry of the array's level in the GeoZarr layout.
    pub(super) level: Option<Attributes>,
    /// The group with that layout, if it is above the array's own.
    pub(super) levels: Option<Arc<NodeEntry>>,
    /// The level that this one was derived from.
    pub(super) base: Option<LevelBase>,
    /// The root of the hierarchy, if it is not the array's own group.
    pub(super) root: Option<Arc<NodeEntry>>,
    /// The coordinate variables, in the order of the dimensions.
    pub(super) coordinates: Vec<Option<CoordinateVariable>>,
}

/// A group that defines how the images below it are placed relative to one another.
#[derive(Clone)]
struct SceneNode {
    group: Arc<NodeEntry>,
    /// The path of an image relative to the group.
    image: Key,
    numbers: Vec<StoredNumbers>,
}

/// Finds the node at a path.
pub type FindNode<'a> = &'a dyn Fn(&Key) -> Result<Option<Arc<NodeEntry>>>;

impl SurroundingNodes {
    /// Builds the nodes around an array from only its group.
    pub fn of_group(group: Option<Arc<NodeEntry>>) -> SurroundingNodes {
        SurroundingNodes {
            group,
            ..SurroundingNodes::default()
        }
    }

    /// Finds the nodes around an array.
    pub fn of(
        context: &RequestContext,
        hierarchy: &Hierarchy,
        array: &NodeEntry,
    ) -> Result<SurroundingNodes> {
        let group = match array.path.parent() {
            Some(group) => hierarchy.node(context, &group)?,
            None => None,
        };
        let alone = SurroundingNodes::of_group(group);
        alone.with_others(array, &|path| hierarchy.node(context, path))
    }

    /// Finds the nodes other than the group; fails as `find` does.
    pub fn with_others(
        mut self,
        array: &NodeEntry,
        find: FindNode<'_>,
    ) -> Result<SurroundingNodes> {
        if self.group.is_none() {
            return Ok(self);
        }
        self.image = self.find_image_above(array, find)?;
        self.labelled = self.find_labelled_image(find)?;
        self.mapping = find_mapping(array, find)?;
        let image = self.image.as_ref().map(|(group, _)| group);
        self.scene = find_scene_above(image.or(self.group.as_ref()), find)?;
        self.labelled_scene =
            find_scene_above(self.labelled.as_ref().map(|(group, _)| group), find)?;
        Ok(self)
    }

    /// Reads the numbers of image transformations that are stored in arrays; arrays that cannot be decoded are
    /// skipped.
    pub fn with_numbers(
        mut self,
        context: &RequestContext,
        hierarchy: &Hierarchy,
        arrays: &Arrays,
    ) -> Result<SurroundingNodes> {
        let read = |group: Option<&Arc<NodeEntry>>, paths: Option<Vec<String>>| {
            let paths = paths.unwrap_or_default();
            let mut found = Vec::new();
            for path in paths {
                let mut names = path.split('/').filter(|name| !["", "."].contains(name));
                let from = group.map(|group| group.path.clone()).unwrap_or_default();
                let key = names.try_fold(from, |above, name| above.child(name.as_bytes()));
                let Ok(key) = key else { continue };
                let Some(node) = hierarchy.node(context, &key)? else {
                    continue;
                };
                match read_numbers(context, arrays, &node) {
                    Ok(list) => found.extend(list.map(|list| StoredNumbers { path, list })),
                    Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::Unsupported) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(found)
        };
        let image = self.image.as_ref().map(|(group, _)| group);
        let image = image.or(self.group.as_ref());
        let labelled = self.labelled.as_ref().map(|(group, _)| group);
        let of_image = read(image, attributes(image).map(number_paths))?;
        self.labelled_numbers = read(labelled, attributes(labelled).map(number_paths))?;
        self.numbers = of_image;
        for scene in [&mut self.scene, &mut self.labelled_scene]
            .into_iter()
            .flatten()
        {
            let group = Some(&scene.group);
            let paths = attributes(group);
            let paths = paths.map(|scene_of| scene_number_paths(scene_of, scene.image.as_bytes()));
            scene.numbers = read(group, paths)?;
        }
        Ok(self)
    }

    /// Returns the attributes of these nodes.
    pub fn attributes(&self) -> Surroundings<'_> {
        Surroundings {
            group: attributes(self.group.as_ref()),
            image: image_group(self.image.as_ref(), &self.numbers, self.scene.as_ref()),
            labelled: image_group(
                self.labelled.as_ref(),
                &self.labelled_numbers,
                self.labelled_scene.as_ref(),
            ),
            numbers: &self.numbers,
            scene: scene_group(self.scene.as_ref()),
            mapping: attributes(self.mapping.as_ref()),
            level: self.level.as_ref(),
            levels: attributes(self.levels.as_ref()),
            base: self.base.as_ref(),
            root: attributes(self.root.as_ref()),
            coordinates: &self.coordinates,
        }
    }

    /// Finds the nearest group above the array's own that names it as a level of an image, if its own group does not.
    fn find_image_above(
        &self,
        array: &NodeEntry,
        find: FindNode<'_>,
    ) -> Result<Option<(Arc<NodeEntry>, Key)>> {
        let own = attributes(self.group.as_ref());
        if own.is_some_and(|own| names_level(own, array.path.name())) {
            return Ok(None);
        }
        for above in groups_above(&array.path).into_iter().skip(1) {
            let Some(group) = find(&above)? else { continue };
            let path = array.path.below(&above);
            let named = path.filter(|path| {
                let group = attributes(Some(&group));
                group.is_some_and(|group| names_level(group, path.as_bytes()))
            });
            if let Some(path) = named {
                return Ok(Some((group, path)));
            }
        }
        Ok(None)
    }

    /// Finds the group of the image that the array has labels for.
    fn find_labelled_image(&self, find: FindNode<'_>) -> Result<Option<(Arc<NodeEntry>, Key)>> {
        let labels = self.image.as_ref().map(|(group, _)| group);
        let Some(labels) = labels.or(self.group.as_ref()) else {
            return Ok(None);
        };
        let Some(path) = attributes(Some(labels)).and_then(labelled_image) else {
            return Ok(None);
        };
        let mut names = path.split('/').filter(|name| !["", "."].contains(name));
        let image = names.try_fold(labels.path.clone(), |above, name| match name {
            ".." => above.parent(),
            name => above.child(name.as_bytes()).ok(),
        });
        let Some((image, path)) = image.and_then(|image| {
            let path = labels.path.below(&image)?;
            Some((image, path))
        }) else {
            return Ok(None);
        };
        Ok(find(&image)?.map(|image| (image, path)))
    }
}

/// Reads the numbers of a transformation as a list or a list of rows; `None` if the node is not such an array.
fn read_numbers(
    context: &RequestContext,
    arrays: &Arrays,
    node: &Arc<NodeEntry>,
) -> Result<Option<Value>> {
    let Some(array) = node.array() else {
        return Ok(None);
    };
    let size = match array.data_type {
        DataType::Float(size @ (4 | 8)) => size,
        _ => return Ok(None),
    };
    let count = array
        .shape
        .iter()
        .try_fold(1_u64, |count, &length| count.checked_mul(length));
    let columns = match array.shape[..] {
        [_] => None,
        [_, columns] if columns > 0 => usize::try_from(columns).ok(),
        _ => return Ok(None),
    };
    // An affine transformation of maximum rank has the most numbers.
    let most = (MAX_RANK * (MAX_RANK + 1)) as u64;
    if count.is_none_or(|count| count > most) {
        return Ok(None);
    }
    let open = arrays.open(node)?;
    open.check_decodable()?;
    let parts = FileParts::plain(Vec::new());
    let export = Export::of_parts(&open, parts, Region::whole(&array.shape), 0)?;
    let bytes = read_all(context, &export)?;
    let number = |bytes: &[u8]| elements::float(bytes).unwrap_or(f64::NAN);
    let numbers: Vec<Value> = bytes
        .chunks_exact(size)
        .map(|bytes| number(bytes).into())
        .collect();
    Ok(Some(match columns {
        None => numbers.into(),
        Some(columns) => numbers.chunks(columns).map(Value::from).collect(),
    }))
}

/// Returns the attributes of an OME-Zarr group, with the array's path from there.
fn image_group<'a>(
    group: Option<&'a (Arc<NodeEntry>, Key)>,
    numbers: &'a [StoredNumbers],
    scene: Option<&'a SceneNode>,
) -> Option<ImageGroup<'a>> {
    let (group, path) = group?;
    Some(ImageGroup {
        attributes: attributes(Some(group))?,
        path: path.as_bytes(),
        numbers,
        scene: scene_group(scene),
    })
}

/// Returns the attributes of a scene, with the image's path from there.
fn scene_group(scene: Option<&SceneNode>) -> Option<SceneGroup<'_>> {
    let scene = scene?;
    Some(SceneGroup {
        attributes: attributes(Some(&scene.group))?,
        path: scene.image.as_bytes(),
        numbers: &scene.numbers,
    })
}

/// Finds the nearest scene above the group of an image.
fn find_scene_above(
    image: Option<&Arc<NodeEntry>>,
    find: FindNode<'_>,
) -> Result<Option<SceneNode>> {
    let Some(image) = image.filter(|image| attributes(Some(image)).is_some_and(has_systems)) else {
        return Ok(None);
    };
    for above in groups_above(&image.path) {
        let Some(group) = find(&above)? else { continue };
        let path = image.path.below(&above);
        if let Some(image) = path.filter(|_| attributes(Some(&group)).is_some_and(is_scene)) {
            let numbers = Vec::new();
            return Ok(Some(SceneNode {
                group,
                image,
                numbers,
            }));
        }
    }
    Ok(None)
}

/// Returns the group of an array and the groups above it, the nearest first.
pub(super) fn groups_above(array: &Key) -> Vec<Key> {
    let above = std::iter::successors(array.parent(), Key::parent);
    above.take(1 + MAX_ABOVE).collect()
}

/// Finds the variable in `grid_mapping`: in the group of the array, or else in the nearest group above that has it.
pub(super) fn find_mapping(
    array: &NodeEntry,
    find: FindNode<'_>,
) -> Result<Option<Arc<NodeEntry>>> {
    let Some(found) = array.array() else {
        return Ok(None);
    };
    let Some(Value::String(named)) = found.attributes.in_files().get("grid_mapping") else {
        return Ok(None);
    };
    let first = mapping_name(&named, found);
    let from = match first.strip_prefix('/') {
        Some(_) => vec![Key::root()],
        None => groups_above(&array.path),
    };
    let names = || first.split('/').filter(|name| !name.is_empty());
    for group in from {
        let path = names().try_fold(group, |path, name| path.child(name.as_bytes()));
        let Ok(path) = path else { return Ok(None) };
        match find(&path)? {
            Some(found) if found.array().is_some() => return Ok(Some(found)),
            _ => {}
        }
    }
    Ok(None)
}

/// Returns the name of a grid mapping. If there are several, each is followed by a colon and its coordinates; the
/// mapping for the dimensions is used.
fn mapping_name<'a>(named: &'a str, array: &Array) -> &'a str {
    let mut mapping = None;
    for word in named.split_whitespace() {
        if let Some(name) = word.strip_suffix(':') {
            mapping = Some(name);
        } else if let Some(mapping) = mapping {
            let is_own = |name: &Option<String>| name.as_deref() == Some(word);
            if array.dimension_names.iter().any(is_own) {
                return mapping;
            }
        }
    }
    let first = named.split_whitespace().next().unwrap_or_default();
    first.trim_end_matches(':')
}

/// Returns the attributes of a node, limited to the size for files.
pub(super) fn attributes(node: Option<&Arc<NodeEntry>>) -> Option<&Attributes> {
    let node = node.and_then(|node| node.node.as_ref().ok());
    node.map(|node| node.attributes().in_files())
}
