//! Reads OME-Zarr image metadata: axes of an image, and positions of its resolution levels.
//!
//! Up to version 0.5, an image has axes; the transformations of a level are applied first, then those of the image.
//! From 0.6 (RFC-5) on, an image has coordinate systems instead (`coordinate_systems.rs`). The transformation of a
//! level leads to a coordinate system that the specification calls "intrinsic".

pub(crate) mod affine;
pub(crate) mod coordinate_systems;
pub(crate) mod orientation;
pub(crate) mod transformation;

use serde_json::Value;

use crate::formats::ome_zarr::affine::TakenInput;
use crate::formats::ome_zarr::coordinate_systems::{
    Described, DescribedAxis, LevelPlace, MAX_LINKS, Systems, axes_of, transformations,
};
use crate::formats::ome_zarr::orientation::{FirstVoxel, orientation_text};
use crate::formats::ome_zarr::transformation::{MAX_STEPS, NUMBERED, TransformationReader, items};
use crate::formats::subject::{ImageGroup, StoredNumbers};
use zarr_format::model::Attributes;

/// Returns the multiscale images that a group's attributes describe.
pub(crate) fn multiscales(group: &Attributes) -> Vec<Value> {
    let of_root = group.get("ome");
    let of_root = of_root.and_then(|mut root| Some(root.get_mut("multiscales")?.take()));
    match of_root.or_else(|| group.get("multiscales")) {
        Some(Value::Array(images)) => images,
        _ => Vec::new(),
    }
}

/// Whether an image of the group has a resolution level at a path, which is relative to the group.
pub(crate) fn names_level(group: &Attributes, path: &[u8]) -> bool {
    let images = multiscales(group);
    images.iter().any(|image| level_at(image, path).is_some())
}

/// Returns the path from a group of labels to its image, or `None` if the group has no labels.
pub(crate) fn labelled_image(group: &Attributes) -> Option<String> {
    let label = match group.get("ome") {
        Some(mut ome) => ome.get_mut("image-label").map(Value::take),
        None => group.get("image-label"),
    };
    let source = label.as_ref()?.get("source");
    let path = source.and_then(|source| source.get("image")?.as_str());
    Some(path.unwrap_or("../../").to_string())
}

/// Returns the scene that a group's attributes describe, or `None` if they describe none. A scene (RFC-5) places the
/// images below the group relative to one another.
fn scene_of(group: &Attributes) -> Option<Value> {
    let mut ome = group.get("ome")?;
    let scene = ome.get_mut("scene").map(Value::take)?;
    scene.is_object().then_some(scene)
}

/// Whether the group has an OME-Zarr scene.
pub(crate) fn is_scene(group: &Attributes) -> bool {
    scene_of(group).is_some()
}

/// Whether an image of the group has coordinate systems, which transformations of a scene can refer to by name.
pub(crate) fn has_systems(group: &Attributes) -> bool {
    let images = multiscales(group);
    images
        .iter()
        .any(|image| items(image, "coordinateSystems").next().is_some())
}

/// Returns the paths of the arrays that hold numbers of a scene's transformations, relative to the scene's group. The
/// transformations of the image at the path `image` come first.
pub(crate) fn scene_number_paths(group: &Attributes, image: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let scene = scene_of(group);
    let steps = || {
        scene
            .iter()
            .flat_map(|scene| items(scene, "coordinateTransformations"))
    };
    let is_near = |step: &&Value| {
        let mut ends = ["input", "output"].into_iter();
        ends.any(|end| {
            let path = step.get(end).and_then(|end| end.get("path")?.as_str());
            path.is_some_and(|path| path.trim_matches('/').as_bytes() == image)
        })
    };
    let others = steps().filter(|step| !is_near(step));
    for step in steps().filter(is_near).chain(others).take(MAX_LINKS) {
        add_number_paths(step, &mut found);
    }
    found
}

/// Returns the paths of the arrays that hold numbers of the images' transformations, relative to the group.
pub(crate) fn number_paths(group: &Attributes) -> Vec<String> {
    let mut found = Vec::new();
    for image in &multiscales(group) {
        let of_levels = items(image, "datasets").flat_map(transformations);
        for step in of_levels.chain(transformations(image)) {
            add_number_paths(step, &mut found);
        }
    }
    found
}

/// Adds the paths of the arrays that hold the numbers of a transformation and of the transformations nested in it.
fn add_number_paths(step: &Value, found: &mut Vec<String>) {
    let of_type = step.get("type").and_then(Value::as_str).unwrap_or_default();
    let path = step.get("path").and_then(Value::as_str);
    if let Some(path) = path
        && NUMBERED.contains(&of_type)
        && step.get(of_type).is_none()
        && found.len() < MAX_ARRAYS
        && !found.iter().any(|known| known == path)
    {
        found.push(path.to_string());
    }
    let parts = items(step, "transformations").take(MAX_STEPS);
    let parts = parts.chain(
        ["forward", "transformation"]
            .iter()
            .filter_map(|name| step.get(name)),
    );
    for part in parts {
        add_number_paths(part, found);
    }
}

/// Maximum number of arrays that are read to get the numbers of a group's transformations.
const MAX_ARRAYS: usize = 16;

/// Returns the paths of the resolution levels of a multiscale image, in order.
pub(crate) fn level_paths(image: &Value) -> impl Iterator<Item = &str> {
    let levels = items(image, "datasets");
    levels.filter_map(|level| level.get("path")?.as_str())
}

/// Returns the metadata of the resolution level at a path, or `None` if the image has no such level.
fn level_at<'a>(image: &'a Value, path: &[u8]) -> Option<&'a Value> {
    items(image, "datasets").find(|level| {
        let own = level.get("path").and_then(Value::as_str);
        own.is_some_and(|own| own.as_bytes() == path)
    })
}

/// What the metadata of an OME-Zarr image say about one of its resolution levels.
#[derive(Default)]
pub(crate) struct Level {
    /// The axis of each dimension; `None` if the metadata do not describe the axes.
    pub(crate) axes: Option<Vec<DescribedAxis>>,
    /// The positions of the level in the coordinate systems, with that in the chosen system first.
    pub(crate) places: Vec<LevelPlace>,
    /// The position of the first voxel of the image's first level, if ngff-zarr wrote it for axes with anatomical
    /// orientations.
    pub(crate) first: Option<FirstVoxel>,
    /// Messages about metadata that no file format can express, with the reasons.
    pub(crate) left_out: Vec<String>,
}

/// Describes a resolution level with `rank` dimensions; `None` if the group has no such level. If the array has labels,
/// `labelled` is the labelled image, whose position may become that of the level.
pub(crate) fn level_of(
    group: &ImageGroup,
    labelled: Option<&ImageGroup>,
    rank: usize,
) -> Option<Level> {
    let images = multiscales(group.attributes);
    // If several images have a level at the same path, the first image counts.
    let mut found = images
        .iter()
        .filter_map(|image| Some((image, level_at(image, group.path)?)));
    let (image, level) = found.next()?;
    let scene = group.scene.and_then(|scene| scene_of(scene.attributes));
    let systems = systems_of(image, group, scene.as_ref());
    let mut found = if systems.is_empty() {
        read_level_of_axes(image, group.numbers, level, rank)
    } else {
        read_level_of_systems(image, &systems, level, labelled, rank)
    };
    if let Some(labelled) = labelled {
        found.take_orientation(labelled);
    }
    found.first = first_voxel(image, &systems, group.numbers, rank);
    Some(found)
}

/// Reads the coordinate systems of an image and of its scene.
fn systems_of<'a>(
    image: &'a Value,
    group: &ImageGroup<'a>,
    scene: Option<&'a Value>,
) -> Systems<'a> {
    let stored = group.numbers;
    let scene = group.scene.zip(scene).map(|(group, value)| {
        let stored = group.numbers;
        (Described { value, stored }, group.path)
    });
    Systems::of(
        Described {
            value: image,
            stored,
        },
        scene,
    )
}

impl Level {
    /// Copies anatomical orientations from the axes of an image to the axes of its labels with the same names, if the
    /// labels have none.
    fn take_orientation(&mut self, labelled: &ImageGroup) {
        let places = self.places.iter_mut().map(|place| &mut place.axes);
        let axes = std::iter::once(&mut self.axes).chain(places).flatten();
        let mut axes: Vec<_> = axes.collect();
        if axes.iter().any(|axes| orientation_text(axes).is_some()) {
            return;
        }
        let images = multiscales(labelled.attributes);
        let Some(image) = images.first() else { return };
        let systems = systems_of(image, labelled, None);
        let own = items(image, "datasets")
            .next()
            .map(|level| systems.own(level));
        let of_system = own.and_then(|own| systems.axes(own));
        let of_image = of_system.or_else(|| axes_of(image.get("axes")));
        for axis in axes.iter_mut().flat_map(|axes| axes.iter_mut()) {
            let mut same = of_image.iter().flatten();
            let same = same.find(|other| other.name == axis.name);
            axis.orientation = same.and_then(|other| other.orientation.clone());
        }
    }
}

/// Returns the position of an image's first voxel as ngff-zarr writes it: the origin of ITK or nibabel, in the
/// coordinates of that program. It does not follow the orientation of the axes, although the positions of the levels
/// relative to each other do.
fn first_voxel(
    image: &Value,
    systems: &Systems,
    stored: &[StoredNumbers],
    rank: usize,
) -> Option<FirstVoxel> {
    // ngff-zarr has written `@type` since 0.1, with another value for images from NIfTI.
    if image.get("@type")? != "ngff:Image" || image.get("coordinateTransformations").is_some() {
        return None;
    }
    let level = items(image, "datasets").next()?;
    let level = if systems.is_empty() {
        read_level_of_axes(image, stored, level, rank)
    } else {
        read_level_of_systems(image, systems, level, None, rank)
    };
    let map = &level.places.last()?.map;
    let is_of_nibabel = image
        .get("name")
        .is_some_and(|name| name == "nibabel_converted_image");
    Some(FirstVoxel {
        coordinates: (0..rank).map(|axis| map.offset(axis)).collect(),
        signs: if is_of_nibabel {
            [-1.0, -1.0, 1.0]
        } else {
            [1.0; 3]
        },
    })
}

/// Describes a resolution level of an image in OME-Zarr 0.5 or earlier.
fn read_level_of_axes(
    image: &Value,
    stored: &[StoredNumbers],
    level: &Value,
    rank: usize,
) -> Level {
    let axes = axes_of(image.get("axes")).filter(|axes| axes.len() == rank);
    let steps: Vec<&Value> = transformations(level)
        .chain(transformations(image))
        .collect();
    let mut found = Level {
        axes: axes.clone(),
        ..Level::default()
    };
    let has_orientation = axes.iter().any(|axes| orientation_text(axes).is_some());
    if steps.is_empty() && !has_orientation {
        return found;
    }
    match TransformationReader::new(stored).sequence(steps.into_iter(), rank) {
        Ok(map) => found.places.push(LevelPlace {
            system: None,
            axes,
            map,
        }),
        Err(why) => found.left_out.push(unapplied_transformation(&why)),
    }
    found
}

/// Describes a resolution level of an image in OME-Zarr 0.6 or later.
fn read_level_of_systems(
    image: &Value,
    systems: &Systems,
    level: &Value,
    labelled: Option<&ImageGroup>,
    rank: usize,
) -> Level {
    let own = systems.own(level);
    let mut found = Level {
        axes: systems.axes(own).filter(|axes| axes.len() == rank),
        ..Level::default()
    };
    let steps: Vec<&Value> = transformations(level).collect();
    // If each transformation has an `output`, each leads to a coordinate system of its own, and the first is used.
    // Otherwise they are applied one after the other, as before 0.6.
    let has_ends = steps.iter().all(|step| step.get("output").is_some());
    let has_no_ends = |step: &&Value| step.get("input").is_none() && step.get("output").is_none();
    let of_image = transformations(image).filter(has_no_ends);
    let steps = steps.into_iter();
    let steps = steps.take(if has_ends { 1 } else { usize::MAX });
    let steps: Vec<&Value> = steps.chain(of_image).collect();
    if steps.is_empty() {
        return found;
    }
    let map = match systems.reader().sequence(steps.into_iter(), rank) {
        Ok(map) => map,
        Err(why) => {
            found.left_out.push(unapplied_transformation(&why));
            return found;
        }
    };
    let mut others = systems.others(own);
    if others.chosen.is_none()
        && let Some(through) =
            labelled.and_then(|labelled| find_place_through_image(labelled, systems, own))
    {
        others.chosen = Some(through);
    }
    if let Some(chosen) = others.chosen
        && let Some(whole) = map.then(&chosen.map)
        && whole.outputs() == rank
    {
        found.places.push(LevelPlace {
            map: whole,
            ..chosen
        });
    }
    found.left_out.extend(others.left_out);
    found.places.push(LevelPlace {
        system: systems.name(own),
        axes: found.axes.clone(),
        map,
    });
    found
}

fn unapplied_transformation(why: &str) -> String {
    format!("position of the elements: a transformation {why}")
}

/// Finds the position of labels in the coordinate system that is chosen for the labelled image.
fn find_place_through_image(
    labelled: &ImageGroup,
    labels: &Systems,
    labels_own: usize,
) -> Option<LevelPlace> {
    let images = multiscales(labelled.attributes);
    let image = images.first()?;
    let scene = labelled.scene.and_then(|scene| scene_of(scene.attributes));
    let systems = systems_of(image, labelled, scene.as_ref());
    let own = systems.own(items(image, "datasets").next()?);
    let (axes, rank) = (systems.axes(own), labels.axes(labels_own)?.len());
    let link = transformations(image).find_map(|step| {
        let is_labels = |end: &str| {
            let path = step.get(end)?.get("path")?.as_str()?;
            (path.trim_matches('/').as_bytes() == labelled.path).then_some(())
        };
        let map = systems.reader().map_of(step, rank);
        match (is_labels("input"), is_labels("output")) {
            (Some(()), None) => map.ok(),
            (None, Some(())) => map.ok()?.inverse(),
            _ => None,
        }
    });
    let chosen = systems.others(own).chosen;
    let Some(link) = link else {
        return place_by_axis_names(&labels.axes(labels_own)?, &axes?, chosen?);
    };
    match chosen {
        Some(chosen) => Some(LevelPlace {
            map: link.then(&chosen.map)?,
            ..chosen
        }),
        None => Some(LevelPlace {
            system: systems.name(own),
            axes,
            map: link,
        }),
    }
}

/// Converts the position of an image to one of its labels. Axes are matched by name, because labels often lack axes
/// such as channels.
fn place_by_axis_names(
    labels: &[DescribedAxis],
    image: &[DescribedAxis],
    chosen: LevelPlace,
) -> Option<LevelPlace> {
    let place = |label: &DescribedAxis| image.iter().position(|axis| axis.name == label.name);
    let inputs: Vec<_> = labels
        .iter()
        .map(|label| {
            Some(TakenInput {
                input: place(label)?,
                start: 0.0,
                step: 1.0,
            })
        })
        .collect::<Option<_>>()?;
    let (map, outputs) = chosen.map.taken(&inputs)?;
    let axes = chosen.axes?;
    let axes = outputs
        .into_iter()
        .filter_map(|output| axes.get(output).cloned());
    Some(LevelPlace {
        axes: Some(axes.collect()),
        map,
        ..chosen
    })
}
