//! Finds the nodes around an array that affect its files.
//!
//! These are its group, the group of OME-Zarr or GeoZarr that has the array as a resolution level, the image that the
//! array has labels for, its grid mapping, and the coordinate variables of its dimensions. `MapSource` adds the nodes
//! that define the position of a map: the GeoZarr level, a grid mapping that no attribute names, the root of an EOPF
//! product, and the coordinate variables of rows and columns, whose values are read.

use std::sync::Arc;

use serde_json::Value;

use crate::formats::axes::AxisKind;
use crate::formats::group::read_all;
use crate::formats::maps::coordinate_variable::{
    CoordinateMeaning, CoordinateVariable, Line, unknown_unit,
};
use crate::formats::maps::georeference::level_base;
use crate::formats::maps::levels::{LevelBase, MapLayout};
use crate::formats::ome_zarr::{
    has_systems, is_scene, labelled_image, names_level, number_paths, scene_number_paths,
};
use crate::formats::subject::{ImageGroup, SceneGroup, StoredNumbers, Surroundings};
use crate::formats::{Export, FileParts, Subject, elements};
use crate::inspect::companions::{NamedDimension, coordinate_names};
use crate::inspect::coordinates::CoordinateLines;
use zarr_format::error::{Kind, Result};
use zarr_format::grid::Region;
use zarr_format::model::{Array, Attributes, DataType, MAX_RANK};
use zarrfs_array::array::Arrays;
use zarrfs_array::hierarchy::{Hierarchy, NodeEntry};
use zarrfs_store::Key;
use zarrfs_store::request_context::RequestContext;

/// The nodes around an array that affect its files.
#[derive(Clone, Default)]
pub struct SurroundingNodes {
    /// The array's own group.
    pub group: Option<Arc<NodeEntry>>,
    /// The OME-Zarr group that has the array as a resolution level, and the path from it to the array. `None` if it is
    /// the array's own group, or if the array belongs to no image.
    image: Option<(Arc<NodeEntry>, Key)>,
    /// The OME-Zarr group of the image that the array has labels for. The path leads from it to the group that has the
    /// array as a resolution level.
    labelled: Option<(Arc<NodeEntry>, Key)>,
    /// The numbers of the transformations of the image and of the labelled image that are stored in arrays.
    numbers: Vec<StoredNumbers>,
    labelled_numbers: Vec<StoredNumbers>,
    /// The OME-Zarr scenes that contain the image and the labelled image.
    scene: Option<SceneNode>,
    labelled_scene: Option<SceneNode>,
    pub(super) mapping: Option<Arc<NodeEntry>>,
    /// The entry of the array in a GeoZarr group's list of resolution levels.
    level: Option<Attributes>,
    /// The GeoZarr group that lists the array's resolution level, if it is above the array's own group.
    levels: Option<Arc<NodeEntry>>,
    /// The GeoZarr level from which the array's resolution level was derived.
    base: Option<LevelBase>,
    /// The root of the hierarchy, if it is not the array's own group.
    root: Option<Arc<NodeEntry>>,
    /// The coordinate variable of each dimension of the array.
    coordinates: Vec<Option<CoordinateVariable>>,
}

/// An OME-Zarr group with a scene, which places the images below it relative to one another.
#[derive(Clone)]
struct SceneNode {
    group: Arc<NodeEntry>,
    /// The path of the image, relative to the scene's group.
    image: Key,
    numbers: Vec<StoredNumbers>,
}

/// A function that finds the node at a path.
pub type FindNode<'a> = &'a dyn Fn(&Key) -> Result<Option<Arc<NodeEntry>>>;

impl SurroundingNodes {
    /// Makes the surroundings of an array of which only the group is known.
    pub fn of_group(group: Option<Arc<NodeEntry>>) -> SurroundingNodes {
        SurroundingNodes {
            group,
            ..SurroundingNodes::default()
        }
    }

    /// Finds the nodes around an array, without those that only maps need.
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

    /// Finds all nodes around the array except its group, by calls of `find`. Fails as `find` does.
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

    /// Reads the numbers of the images' transformations that are stored in arrays. Skips arrays that cannot be decoded.
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

    /// Returns the attributes of the nodes around the array, as formats need them.
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

    /// Finds the nearest group above the array's own group that has the array as a resolution level of its OME-Zarr
    /// image, unless the own group has it.
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

    /// Finds the OME-Zarr group of the image that the array has labels for.
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

/// Reads an array with the numbers of an OME-Zarr transformation, as a list or a list of rows. Returns `None` if the
/// node is not an array of floats with one or two dimensions, or if it has too many elements.
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
    // No transformation has more numbers than an affine one of maximum rank.
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

/// Returns the attributes of an image's group with the path from the group to the array, as formats need them.
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

/// Returns the attributes of a scene's group with the path from the group to the image, as formats need them.
fn scene_group(scene: Option<&SceneNode>) -> Option<SceneGroup<'_>> {
    let scene = scene?;
    Some(SceneGroup {
        attributes: attributes(Some(&scene.group))?,
        path: scene.image.as_bytes(),
        numbers: &scene.numbers,
    })
}

/// Finds the nearest OME-Zarr scene above the group of an image.
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

/// Returns the group of an array and at most four groups above it, the nearest first.
pub(super) fn groups_above(array: &Key) -> Vec<Key> {
    let above = std::iter::successors(array.parent(), Key::parent);
    above.take(5).collect()
}

/// Finds the variable that the array's attribute `grid_mapping` names, in the group of the array or in the nearest
/// group above that has it.
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

/// Returns the name of a grid mapping in the attribute `grid_mapping`, which may list several names, each followed by a
/// colon and coordinates. Returns the first name with a coordinate that is a dimension of the array, or else the first
/// name.
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

/// Returns the attributes of a node, shortened to the maximum size in exported files.
pub(super) fn attributes(node: Option<&Arc<NodeEntry>>) -> Option<&Attributes> {
    let node = node.and_then(|node| node.node.as_ref().ok());
    node.map(|node| node.attributes().in_files())
}

/// Where the nodes and values that define the position of a map are found.
pub struct MapSource<'a> {
    /// The hierarchy that contains the map.
    pub hierarchy: &'a Hierarchy,
    /// The opened arrays of the hierarchy.
    pub arrays: &'a Arrays,
    /// Caches the values of coordinate variables.
    pub lines: &'a CoordinateLines,
}

impl MapSource<'_> {
    /// Adds the nodes that define the position of a map to the other nodes around its array. Fails if the values of a
    /// coordinate variable cannot be read.
    pub fn add_to(
        &self,
        context: &RequestContext,
        mut around: SurroundingNodes,
        array: &NodeEntry,
    ) -> Result<SurroundingNodes> {
        let find = |path: &Key| self.hierarchy.node(context, path);
        let (Some(found), Some(group)) = (array.array(), around.group.clone()) else {
            return Ok(around);
        };
        let own = attributes(Some(&group));
        if around.image.is_some() || own.is_some_and(|own| names_level(own, array.path.name())) {
            // In OME-Zarr, coordinate variables do not place the resolution levels of an image.
            return Ok(around);
        }
        let mut unplaced = None;
        if let Some(level) = find_level(&array.path, &find)? {
            around.level = Some(level.attributes.clone());
            around.levels = Some(level.group.clone()).filter(|levels| levels.path != group.path);
            unplaced = Some(level).filter(|level| !is_placed(level));
        }
        if !group.path.is_root() {
            around.root = find(&Key::root())?;
        }
        if around.mapping.is_none() {
            around.mapping = find_unnamed_mapping(array, &find)?;
        }
        let variables = find_coordinate_variables(array, found, &find)?;
        for variable in variables {
            around.coordinates.push(match variable {
                Some((node, meaning)) => Some(CoordinateVariable {
                    name: String::from_utf8_lossy(node.path.name()).into_owned(),
                    line: match attributes(Some(&node)).and_then(unknown_unit) {
                        Some(unit) => Line::UnknownUnit(unit),
                        None => (self.lines).line(context, self.arrays, &node, &meaning)?,
                    },
                    meaning,
                }),
                None => None,
            });
        }
        // Coordinate variables of the level itself give its position, so the level from which it was derived is needed
        // only without them.
        if let Some(level) = unplaced.filter(|_| around.coordinates.iter().all(Option::is_none)) {
            around.base = self.find_base(context, &level)?;
        }
        Ok(around)
    }

    /// Finds the GeoZarr level from which `level` was derived, and that level's geotransform.
    fn find_base(&self, context: &RequestContext, level: &NamedLevel) -> Result<Option<LevelBase>> {
        let Some(source) = level.layout.source(&level.path) else {
            return Ok(None);
        };
        let names = source.path.split('/').chain(level.below.split('/'));
        let mut names = names.filter(|name| !name.is_empty());
        let from = level.group.path.clone();
        let Ok(path) = names.try_fold(from, |above, name| above.child(name.as_bytes())) else {
            return Ok(None);
        };
        let Some(node) = self.hierarchy.node(context, &path)? else {
            return Ok(None);
        };
        let Some(array) = node.array() else {
            return Ok(None);
        };
        // The recursion ends, because `MapLayout::source` returns a level that is not derived from another one.
        let around = SurroundingNodes::of(context, self.hierarchy, &node)?;
        let around = self.add_to(context, around, &node)?;
        let subject = Subject {
            name: path.name(),
            around: around.attributes(),
            ..Subject::alone(array, &array.shape)
        };
        Ok(level_base(&subject, source))
    }
}

/// The GeoZarr resolution level that an array belongs to.
struct NamedLevel {
    /// The GeoZarr group that lists the level.
    group: Arc<NodeEntry>,
    layout: MapLayout,
    /// The entry of the level in the group's list of levels.
    attributes: Attributes,
    /// The path from the group to the level, and the path from the level to the array.
    path: String,
    below: String,
}

/// Finds the nearest GeoZarr group that lists an array, or a group above the array, as a resolution level.
fn find_level(array: &Key, find: FindNode<'_>) -> Result<Option<NamedLevel>> {
    for above in groups_above(array) {
        let Some(group) = find(&above)? else { continue };
        let Some(layout) = attributes(Some(&group)).and_then(MapLayout::of) else {
            continue;
        };
        let paths = std::iter::successors(array.below(&above), Key::parent);
        for level in paths.take_while(|path| !path.is_root()) {
            let whole = array.below(&above).and_then(|whole| whole.below(&level));
            let text = |key: &Key| String::from_utf8_lossy(key.as_bytes()).into_owned();
            let path = text(&level);
            if let Some(attributes) = layout.level(&path) {
                let below = whole.map(|key| text(&key)).unwrap_or_default();
                return Ok(Some(NamedLevel {
                    group,
                    layout,
                    attributes,
                    path,
                    below,
                }));
            }
        }
    }
    Ok(None)
}

/// Whether the metadata of a GeoZarr level state its geotransform.
fn is_placed(level: &NamedLevel) -> bool {
    let has = |name| level.attributes.get(name).is_some();
    has("spatial:transform") || has("proj:transform")
}

/// Finds rioxarray's variable `spatial_ref` in the group of an array without `grid_mapping`, because programs that
/// compute with an array keep the variable but lose the attribute.
fn find_unnamed_mapping(array: &NodeEntry, find: FindNode<'_>) -> Result<Option<Arc<NodeEntry>>> {
    let is_named = |array: &Array| array.attributes.in_files().get("grid_mapping").is_some();
    let group = array.path.parent();
    let path = group.and_then(|group| group.child(b"spatial_ref").ok());
    let path = path.filter(|_| array.array().is_some_and(|array| !is_named(array)));
    let Some(path) = path else { return Ok(None) };
    let is_mapping = |node: &Arc<NodeEntry>| {
        let array = node.array();
        array.is_some_and(|array| array.shape.iter().all(|&length| length == 1))
    };
    Ok(find(&path)?.filter(is_mapping))
}

/// A coordinate variable, with the direction and quantity of its values.
type FoundVariable = (Arc<NodeEntry>, CoordinateMeaning);

/// Finds coordinate variables of a map, starting at the last dimension, until one runs east and one runs north. A
/// dimension's candidates are the array named like it, and one-dimensional arrays in the attribute `coordinates`.
fn find_coordinate_variables(
    array: &NodeEntry,
    found: &Array,
    find: FindNode<'_>,
) -> Result<Vec<Option<FoundVariable>>> {
    let mut variables = vec![None; found.shape.len()];
    let dimensions = found.dimension_names.iter().zip(&found.shape).enumerate();
    for (axis, (name, &length)) in dimensions.collect::<Vec<_>>().into_iter().rev() {
        let Some(name) = name.as_deref() else {
            continue;
        };
        let own = [name.to_string()];
        // Real arrays name fewer than 16 auxiliary coordinates.
        let others = coordinate_names(found.attributes.in_files()).into_iter();
        for other in own.into_iter().chain(others.take(16)) {
            let dimension = NamedDimension { name, length };
            let variable = find_variable(array, &other, dimension, find)?;
            if variable.is_some() {
                variables[axis] = variable;
                break;
            }
        }
        let has = |kind| {
            let mut found = variables.iter().flatten();
            found.any(|(_, meaning): &FoundVariable| meaning.kind == kind)
        };
        if has(AxisKind::X) && has(AxisKind::Y) {
            break;
        }
    }
    Ok(variables)
}

/// Finds the variable `name` in the group of the array or in the nearest group above. Returns `None` unless it has one
/// value for each element along the dimension, and its values increase eastward or northward.
fn find_variable(
    array: &NodeEntry,
    name: &str,
    dimension: NamedDimension<'_>,
    find: FindNode<'_>,
) -> Result<Option<FoundVariable>> {
    for group in groups_above(&array.path) {
        let Ok(path) = group.child(name.as_bytes()) else {
            return Ok(None);
        };
        let Some(node) = find(&path)? else { continue };
        let Some(variable) = node.array() else {
            return Ok(None);
        };
        let is_of = match &variable.dimension_names[..] {
            [Some(own)] => own == dimension.name,
            _ => name == dimension.name,
        };
        if variable.shape != [dimension.length] || !is_of {
            return Ok(None);
        }
        let meaning = CoordinateMeaning::of(name, variable.attributes.in_files());
        let is_of_map = matches!(meaning.kind, AxisKind::X | AxisKind::Y);
        return Ok(is_of_map.then_some((node, meaning)));
    }
    Ok(None)
}
