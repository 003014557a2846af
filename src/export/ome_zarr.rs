//! OME-Zarr's description of an image: the axes of its levels, and where these lie.
//!
//! Up to 0.5 an image has axes, and the transformations of a level and then those of the image apply. From 0.6 (RFC-5) on
//! it has coordinate systems: a level's transformation leads to one of them, the image's own ("intrinsic"), and those of
//! the image lead from there to others.

use serde_json::Value;

use crate::export::affine::AffineMap;
use crate::export::axis_kind::{AxisKind, kind_of};
use crate::export::surroundings::{ImageGroup, StoredNumbers};
use crate::export::transformation::{MAX_STEPS, NUMBERED, TransformationReader, items};
use crate::model::{Attributes, MAX_RANK};

/// Returns the multiscale images of a group of OME-Zarr.
pub(super) fn multiscales(group: &Attributes) -> Vec<Value> {
    let of_root = group.get("ome");
    let of_root = of_root.and_then(|mut root| Some(root.get_mut("multiscales")?.take()));
    match of_root.or_else(|| group.get("multiscales")) {
        Some(Value::Array(images)) => images,
        _ => Vec::new(),
    }
}

/// Whether a group has a multiscale image of which the array at a path from the group is a level.
pub fn names_level(group: &Attributes, path: &[u8]) -> bool {
    let images = multiscales(group);
    images.iter().any(|image| level_at(image, path).is_some())
}

/// Returns the path of the image that a group has the labels of, counted from the group; nothing if it has no labels.
pub fn labelled_image(group: &Attributes) -> Option<String> {
    let label = match group.get("ome") {
        Some(mut ome) => ome.get_mut("image-label").map(Value::take),
        None => group.get("image-label"),
    };
    let source = label.as_ref()?.get("source");
    let path = source.and_then(|source| source.get("image")?.as_str());
    Some(path.unwrap_or("../../").to_string())
}

/// Returns the paths of the arrays that have the numbers of transformations of a group's images, counted from the group.
pub fn number_paths(group: &Attributes) -> Vec<String> {
    let mut found = Vec::new();
    for image in &multiscales(group) {
        let of_levels = items(image, "datasets").flat_map(transformations);
        for step in of_levels.chain(transformations(image)) {
            add_number_paths(step, &mut found);
        }
    }
    found
}

/// Adds the paths of the arrays that a transformation has its numbers in.
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

/// The most arrays of numbers of a group's transformations that are read.
const MAX_ARRAYS: usize = 16;

/// Returns the paths of the levels of a multiscale image, in their order.
pub(super) fn level_paths(image: &Value) -> impl Iterator<Item = &str> {
    let levels = items(image, "datasets");
    levels.filter_map(|level| level.get("path")?.as_str())
}

/// Returns what a multiscale image says of its level at a path, if it has that.
fn level_at<'a>(image: &'a Value, path: &[u8]) -> Option<&'a Value> {
    items(image, "datasets").find(|level| {
        let own = level.get("path").and_then(Value::as_str);
        own.is_some_and(|own| own.as_bytes() == path)
    })
}

/// An axis of a coordinate system.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DescribedAxis {
    pub(super) name: String,
    pub(super) kind: AxisKind,
    pub(super) unit: Option<String>,
    /// Whether it counts elements.
    is_array: bool,
}

/// Where a level lies in a coordinate system.
#[derive(Clone, Debug)]
pub(super) struct LevelPlace {
    /// The name of the coordinate system, from 0.6 on.
    pub(super) system: Option<String>,
    /// Its axes; nothing if these are not described.
    pub(super) axes: Option<Vec<DescribedAxis>>,
    /// Leads from indices to coordinates.
    pub(super) map: AffineMap,
}

/// What an image says of one of its levels.
#[derive(Default)]
pub(super) struct Level {
    /// The axes of the dimensions, if they are described.
    pub(super) axes: Option<Vec<DescribedAxis>>,
    /// Where it lies, in the coordinate system that is to be shown first.
    pub(super) places: Vec<LevelPlace>,
    /// What no file has, and why.
    pub(super) left_out: Vec<String>,
}

/// Returns what a group says of a level with `rank` dimensions; nothing if it does not name it. If it has the labels of
/// an image, they lie where that lies.
pub(super) fn level_of(
    group: &ImageGroup,
    labelled: Option<&ImageGroup>,
    rank: usize,
) -> Option<Level> {
    let images = multiscales(group.attributes);
    // If there are several, the first one is meant unless a user chooses.
    let mut found = images
        .iter()
        .filter_map(|image| Some((image, level_at(image, group.path)?)));
    let (image, level) = found.next()?;
    let systems = Systems::of(image, group.numbers);
    let mut found = if systems.all.is_empty() {
        level_of_axes((image, group.numbers), level, rank)
    } else {
        level_of_systems(image, &systems, level, (labelled, rank))
    };
    found.left_out.extend(orientation(image));
    Some(found)
}

/// Returns what a file leaves out of an image whose axes lead from one side of a body to the other (RFC-4).
fn orientation(image: &Value) -> Option<String> {
    let systems = items(image, "coordinateSystems").take(MAX_SYSTEMS);
    let mut told: Vec<String> = Vec::new();
    for axis in std::iter::once(image)
        .chain(systems)
        .flat_map(|of| items(of, "axes"))
    {
        let Some(orientation) = axis.get("orientation") else {
            continue;
        };
        let value = orientation.get("value").unwrap_or(orientation);
        let name = axis.get("name").and_then(Value::as_str).unwrap_or_default();
        let value = value.as_str().unwrap_or("not known").chars().take(40);
        let sentence = format!("{name} ({})", value.collect::<String>());
        if told.len() < MAX_RANK && !told.contains(&sentence) {
            told.push(sentence);
        }
    }
    let told = (!told.is_empty()).then(|| told.join(", "))?;
    Some(format!(
        "orientation of {told}: it is not read, and left and right may be exchanged"
    ))
}

/// Returns what an image of up to 0.5 says of a level.
fn level_of_axes((image, stored): (&Value, &[StoredNumbers]), level: &Value, rank: usize) -> Level {
    let axes = described(image.get("axes")).filter(|axes| axes.len() == rank);
    let steps: Vec<&Value> = transformations(level)
        .chain(transformations(image))
        .collect();
    let mut found = Level {
        axes: axes.clone(),
        ..Level::default()
    };
    if steps.is_empty() {
        return found;
    }
    match TransformationReader::new(stored).sequence(steps.into_iter(), rank) {
        Ok(map) => found.places.push(LevelPlace {
            system: None,
            axes,
            map,
        }),
        Err(why) => found.left_out.push(no_place(&why)),
    }
    found
}

/// Returns what an image of 0.6 says of a level.
fn level_of_systems(
    image: &Value,
    systems: &Systems,
    level: &Value,
    (labelled, rank): (Option<&ImageGroup>, usize),
) -> Level {
    let own = systems.own(level);
    let mut found = Level {
        axes: systems.axes(own).filter(|axes| axes.len() == rank),
        ..Level::default()
    };
    let steps: Vec<&Value> = transformations(level).collect();
    // Several lead to a coordinate system each; without that they are steps as before 0.6.
    let has_ends = steps.iter().all(|step| step.get("output").is_some());
    let of_image = transformations(image).filter(|step| is_endless(step));
    let steps = steps.into_iter();
    let steps = steps.take(if has_ends { 1 } else { usize::MAX });
    let steps: Vec<&Value> = steps.chain(of_image).collect();
    if steps.is_empty() {
        return found;
    }
    let map = match systems.reader().sequence(steps.into_iter(), rank) {
        Ok(map) => map,
        Err(why) => {
            found.left_out.push(no_place(&why));
            return found;
        }
    };
    let mut others = systems.others(image, own);
    if others.shown.is_none()
        && let Some(through) = labelled.and_then(|labelled| through_image(labelled, systems, own))
    {
        others.shown = Some(through);
    }
    if let Some(shown) = others.shown
        && let Some(whole) = map.then(&shown.map)
        && whole.outputs() == rank
    {
        found.places.push(LevelPlace {
            map: whole,
            ..shown
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

/// Returns what a file leaves out whose transformations cannot be applied.
fn no_place(why: &str) -> String {
    format!("place of the elements: a transformation {why}")
}

/// Returns where the coordinate system of labels lies in the one that the image that they are of is shown in.
fn through_image(labelled: &ImageGroup, labels: &Systems, labels_own: usize) -> Option<LevelPlace> {
    let images = multiscales(labelled.attributes);
    let image = images.first()?;
    let systems = Systems::of(image, labelled.numbers);
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
    let shown = systems.others(image, own).shown;
    let Some(link) = link else {
        return same_axes(&labels.axes(labels_own)?, &axes?, shown?);
    };
    match shown {
        Some(shown) => Some(LevelPlace {
            map: link.then(&shown.map)?,
            ..shown
        }),
        None => Some(LevelPlace {
            system: systems.name(own),
            axes,
            map: link,
        }),
    }
}

/// Returns a place of an image for its labels, whose axes are those of the same names: labels may lack channels.
fn same_axes(
    labels: &[DescribedAxis],
    image: &[DescribedAxis],
    shown: LevelPlace,
) -> Option<LevelPlace> {
    let place = |label: &DescribedAxis| image.iter().position(|axis| axis.name == label.name);
    let kept: Vec<_> = labels
        .iter()
        .map(|label| Some((place(label)?, 0.0, 1.0)))
        .collect::<Option<_>>()?;
    let (map, outputs) = shown.map.taken(&kept)?;
    let axes = shown.axes?;
    let axes = outputs
        .into_iter()
        .filter_map(|output| axes.get(output).cloned());
    Some(LevelPlace {
        axes: Some(axes.collect()),
        map,
        ..shown
    })
}

fn transformations(described: &Value) -> impl Iterator<Item = &Value> {
    items(described, "coordinateTransformations").take(MAX_STEPS + 1)
}

/// Whether a transformation leads from no named coordinate system and to none.
fn is_endless(step: &Value) -> bool {
    step.get("input").is_none() && step.get("output").is_none()
}

/// The coordinate systems of an image of 0.6: names and axes.
struct Systems<'a> {
    all: Vec<(String, Vec<DescribedAxis>)>,
    stored: &'a [StoredNumbers],
}

/// What an image says of coordinate systems beside its own.
#[derive(Default)]
struct OtherSystems {
    /// The one that is shown in place of it, with the map to it.
    shown: Option<LevelPlace>,
    left_out: Vec<String>,
}

impl<'a> Systems<'a> {
    fn of(image: &Value, stored: &'a [StoredNumbers]) -> Systems<'a> {
        let all = items(image, "coordinateSystems").take(MAX_SYSTEMS);
        let all = all.filter_map(|system| {
            let name = system.get("name").and_then(Value::as_str);
            Some((
                name.unwrap_or_default().to_string(),
                described(system.get("axes"))?,
            ))
        });
        Systems {
            all: all.collect(),
            stored,
        }
    }

    fn reader(&self) -> TransformationReader<'a> {
        TransformationReader::new(self.stored)
    }

    /// Returns the place of the system that the transformation of a level leads to, or of the last one.
    fn own(&self, level: &Value) -> usize {
        let named = transformations(level).find_map(|step| self.at(step, "output"));
        named.unwrap_or(self.all.len().saturating_sub(1))
    }

    /// Returns the place of the system that an end of a transformation names; nothing of a system of another group.
    fn at(&self, step: &Value, end: &str) -> Option<usize> {
        let end = step.get(end)?;
        // Drafts had a name alone.
        let name = end.as_str().or_else(|| end.get("name")?.as_str())?;
        let path = end.get("path").and_then(Value::as_str);
        let is_here = path.is_none_or(|path| path.is_empty() || path == ".");
        let mut names = self.all.iter().map(|(name, _)| name);
        names.position(|known| is_here && known == name)
    }

    fn name(&self, place: usize) -> Option<String> {
        self.all.get(place).map(|(name, _)| name.clone())
    }

    fn axes(&self, place: usize) -> Option<Vec<DescribedAxis>> {
        self.all.get(place).map(|(_, axes)| axes.clone())
    }

    /// Finds the system that is shown: of those that the image's transformations lead to, the one that is listed first
    /// and says no less of its axes than the image's own.
    fn others(&self, image: &Value, own: usize) -> OtherSystems {
        let mut found = OtherSystems::default();
        let Some(own_axes) = self.axes(own) else {
            return found;
        };
        for (place, (name, axes)) in self.all.iter().enumerate() {
            let says_less = axes.iter().any(|axis| axis.is_array)
                || (own_axes.iter().any(|axis| axis.unit.is_some())
                    && axes.iter().all(|axis| axis.unit.is_none()));
            if place == own || says_less {
                continue;
            }
            let map = transformations(image).find_map(|step| {
                let ends = (self.at(step, "input")?, self.at(step, "output")?);
                if ends == (own, place) {
                    return Some(self.reader().map_of(step, own_axes.len()));
                }
                (ends == (place, own)).then(|| {
                    let map = self.reader().map_of(step, axes.len())?;
                    map.inverse().ok_or_else(|| "has no inverse".to_string())
                })
            });
            let why = match map {
                None => continue,
                Some(Err(why)) => format!("the transformation {why}"),
                Some(Ok(map)) if map.outputs() != own_axes.len() || axes.len() != map.outputs() => {
                    format!(
                        "it has {} axes, and the array has {}",
                        axes.len(),
                        own_axes.len()
                    )
                }
                Some(Ok(_)) if found.shown.is_some() => {
                    "a file has one coordinate system".to_string()
                }
                Some(Ok(map)) => {
                    found.shown = Some(LevelPlace {
                        system: Some(name.clone()),
                        axes: Some(axes.clone()),
                        map,
                    });
                    continue;
                }
            };
            found
                .left_out
                .push(format!("coordinate system {name:?}: {why}"));
        }
        found
    }
}

/// The most coordinate systems of an image that are read: real ones have a few.
const MAX_SYSTEMS: usize = 64;

/// Returns a list of axes; nothing if it is none. Before 0.4 an axis is a name alone.
fn described(list: Option<&Value>) -> Option<Vec<DescribedAxis>> {
    let list = list?.as_array()?;
    if list.len() > MAX_RANK {
        return None;
    }
    let text = |axis: &Value, member: &str| axis.get(member)?.as_str().map(str::to_string);
    let mut is_space = Vec::new();
    let mut axes = Vec::new();
    for axis in list {
        let own = axis.as_str().map(str::to_string);
        let name = own.or_else(|| text(axis, "name")).unwrap_or_default();
        let of_type = text(axis, "type");
        let by_name = kind_of(&name);
        axes.push(DescribedAxis {
            kind: match of_type.as_deref() {
                Some("time") => AxisKind::Time,
                Some("channel") => AxisKind::Channel,
                Some("space") if !by_name.is_space() => AxisKind::Other,
                _ => by_name,
            },
            unit: text(axis, "unit"),
            is_array: of_type.as_deref() == Some("array"),
            name,
        });
        is_space.push(of_type.as_deref() == Some("space"));
    }
    // Names are free. The order is z, y, x.
    let count = is_space.iter().filter(|&&is_space| is_space).count();
    if (1..=3).contains(&count) && !axes.iter().any(|axis| axis.kind.is_space()) {
        let kinds = [AxisKind::X, AxisKind::Y, AxisKind::Z];
        let spaces = axes.iter_mut().zip(is_space).rev();
        let spaces = spaces.filter(|(_, is_space)| *is_space);
        for ((axis, _), kind) in spaces.zip(kinds) {
            axis.kind = kind;
        }
    }
    Some(axes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_orientation_of_axes_is_told() {
        let oriented = |name: &str, value: &str| json!({"name": name, "type": "space", "orientation": {"type": "anatomical", "value": value}});
        let axes = json!([
            oriented("y", "anterior-to-posterior"),
            oriented("x", "left-to-right")
        ]);
        let levels = json!([{"path": "0"}]);
        for (image, is_told) in [
            (json!({"axes": axes, "datasets": levels}), true),
            (
                json!({"coordinateSystems": [{"name": "a", "axes": axes}], "datasets": levels}),
                true,
            ),
            (json!({"axes": ["y", "x"], "datasets": levels}), false),
        ] {
            let members = json!({"multiscales": [image]});
            let attributes = Attributes::parse(&members.to_string()).unwrap();
            let group = ImageGroup {
                attributes: &attributes,
                path: b"0",
                numbers: &[],
            };
            let level = level_of(&group, None, 2).unwrap();
            let names = "y (anterior-to-posterior), x (left-to-right)";
            let has =
                |sentence: &String| sentence.starts_with(&format!("orientation of {names}: "));
            assert_eq!(level.left_out.iter().any(has), is_told, "{image}");
        }
    }

    #[test]
    fn axes_of_space_with_other_names_are_z_y_and_x() {
        use AxisKind::{Channel, Other, Time, X, Y, Z};
        let kinds = |axes: Value| -> Vec<AxisKind> {
            let axes = described(Some(&axes)).unwrap();
            axes.into_iter().map(|axis| axis.kind).collect()
        };
        let space = |name: &str| json!({"name": name, "type": "space"});
        assert_eq!(
            kinds(json!([space("t"), space("b"), space("a")])),
            [Z, Y, X]
        );
        assert_eq!(kinds(json!([space("x"), space("q")])), [X, Other]);
        let mixed = json!([{"name": "q", "type": "time"}, {"name": "w", "type": "channel"}, space("l"), space("p")]);
        assert_eq!(kinds(mixed), [Time, Channel, Y, X]);
        assert_eq!(kinds(json!(["t", "y", "x"])), [Time, Y, X]);
    }
}
