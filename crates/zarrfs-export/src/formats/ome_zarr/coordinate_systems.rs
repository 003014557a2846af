//! The coordinate systems of an OME-Zarr image and its scene, and maps between them (RFC-5).
//!
//! Coordinate systems and transformations form a graph. A transformation of an image connects a coordinate system of
//! the image with another one, or with a system of the image's labels. A transformation of the scene above the image
//! connects systems of images with each other or with systems of the scene.

use std::collections::{HashMap, HashSet, VecDeque};

use serde_json::Value;

use crate::formats::axes::{AxisKind, kind_of};
use crate::formats::ome_zarr::affine::AffineMap;
use crate::formats::ome_zarr::orientation::Orientation;
use crate::formats::ome_zarr::transformation::{MAX_STEPS, TransformationReader, items};
use crate::formats::subject::StoredNumbers;
use zarr_format::model::MAX_RANK;

/// An axis of an OME-Zarr coordinate system.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DescribedAxis {
    pub(crate) name: String,
    pub(crate) kind: AxisKind,
    pub(crate) unit: Option<String>,
    /// The anatomical orientation of the axis, such as `right-to-left`.
    pub(crate) orientation: Option<Orientation>,
    /// Whether the axis has the type `array`: it counts elements.
    is_array: bool,
}

/// The position of a resolution level in a coordinate system.
#[derive(Clone, Debug)]
pub(crate) struct LevelPlace {
    /// The name of the coordinate system, which OME-Zarr has from 0.6 on.
    pub(crate) system: Option<String>,
    /// The axes of the coordinate system; `None` if the metadata do not describe them.
    pub(crate) axes: Option<Vec<DescribedAxis>>,
    /// Maps indices of the level's elements to coordinates.
    pub(crate) map: AffineMap,
}

/// Maximum number of coordinate systems that are read of an image or a scene. Real images have a few.
const MAX_SYSTEMS: usize = 64;

/// Maximum number of transformations that are read of a scene. A scene with a tiled image has one per tile.
pub(crate) const MAX_LINKS: usize = 1 << 16;

/// The OME-Zarr metadata of an image or a scene, and the numbers of its transformations that are stored in arrays.
#[derive(Clone, Copy)]
pub(crate) struct Described<'a> {
    pub(crate) value: &'a Value,
    pub(crate) stored: &'a [StoredNumbers],
}

/// A coordinate system of an image or a scene.
struct System {
    /// The path of the group that describes the coordinate system, relative to the scene's group (or to the image's
    /// group, if there is no scene).
    group: String,
    name: String,
    axes: Vec<DescribedAxis>,
}

/// The coordinate system at one end of a transformation: the path of its group, and its name.
type End = (String, String);

/// A transformation between two coordinate systems.
struct Link<'a> {
    ends: (End, End),
    step: &'a Value,
    stored: &'a [StoredNumbers],
}

/// The coordinate systems in which an image can be shown: first those of its scene, then those of the image.
pub(crate) struct Systems<'a> {
    all: Vec<System>,
    links: Vec<Link<'a>>,
    /// The path of the image relative to the scene's group; empty if there is no scene.
    image: String,
    stored: &'a [StoredNumbers],
}

/// The result of a search for a coordinate system that is better than the image's own one.
#[derive(Default)]
pub(crate) struct OtherSystems {
    /// The position of the image in the better coordinate system; `None` if the image's own system is best.
    pub(crate) chosen: Option<LevelPlace>,
    pub(crate) left_out: Vec<String>,
}

/// The map from the image's own coordinate system to another system, or the reason why there is none.
type Way = Result<AffineMap, String>;

impl<'a> Systems<'a> {
    /// Reads the coordinate systems of an image. `scene` has the metadata of the scene above the image, and the path
    /// from the scene's group to the image.
    pub(crate) fn of(image: Described<'a>, scene: Option<(Described<'a>, &[u8])>) -> Systems<'a> {
        let path = scene.map_or(&b""[..], |(_, path)| path);
        let path = plain_path(&String::from_utf8_lossy(path));
        let mut systems = Systems {
            all: Vec::new(),
            links: Vec::new(),
            image: path.clone(),
            stored: image.stored,
        };
        if let Some((scene, _)) = scene {
            systems.add(scene, "");
        }
        systems.add(image, &path);
        systems
    }

    /// Adds the coordinate systems and transformations in the metadata of a group.
    fn add(&mut self, described: Described<'a>, group: &str) {
        let found = items(described.value, "coordinateSystems").take(MAX_SYSTEMS);
        self.all.extend(found.filter_map(|system| {
            let name = system.get("name").and_then(Value::as_str);
            Some(System {
                group: group.to_string(),
                name: name.unwrap_or_default().to_string(),
                axes: axes_of(system.get("axes"))?,
            })
        }));
        let steps = items(described.value, "coordinateTransformations").take(MAX_LINKS);
        self.links.extend(steps.filter_map(|step| {
            Some(Link {
                ends: (end(step, "input", group)?, end(step, "output", group)?),
                step,
                stored: described.stored,
            })
        }));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.of_image().next().is_none()
    }

    pub(crate) fn reader(&self) -> TransformationReader<'a> {
        TransformationReader::new(self.stored)
    }

    /// Returns the indices of the coordinate systems that the image itself has.
    fn of_image(&self) -> impl DoubleEndedIterator<Item = usize> + '_ {
        let all = self.all.iter().enumerate();
        // The path of an image in a scene is never empty, so the scene's own systems (whose path is empty) are not
        // found here.
        let of_image = all.filter(|(_, system)| system.group == self.image);
        of_image.map(|(place, _)| place)
    }

    /// Returns the index of the coordinate system to which a level's transformation leads, or else of the image's last
    /// system.
    pub(crate) fn own(&self, level: &Value) -> usize {
        let named = transformations(level).find_map(|step| {
            let end = end(step, "output", &self.image)?;
            self.place_of(&end)
        });
        named
            .or_else(|| self.of_image().next_back())
            .unwrap_or_default()
    }

    fn place_of(&self, (group, name): &End) -> Option<usize> {
        let is_it = |system: &System| system.group == *group && system.name == *name;
        self.all.iter().position(is_it)
    }

    pub(crate) fn name(&self, place: usize) -> Option<String> {
        self.all.get(place).map(|system| system.name.clone())
    }

    pub(crate) fn axes(&self, place: usize) -> Option<Vec<DescribedAxis>> {
        self.all.get(place).map(|system| system.axes.clone())
    }

    /// Chooses the coordinate system in which the image is shown: the first one to which transformations lead. If the
    /// axes of the image's own system have units and orientations, those of the chosen system must have them too.
    pub(crate) fn others(&self, own: usize) -> OtherSystems {
        let mut found = OtherSystems::default();
        let Some(start) = self.all.get(own) else {
            return found;
        };
        let mut ways = self.ways(start);
        let has_unit = |axes: &[DescribedAxis]| axes.iter().any(|axis| axis.unit.is_some());
        let has_side = |axes: &[DescribedAxis]| axes.iter().any(|axis| axis.orientation.is_some());
        for (place, system) in self.all.iter().enumerate() {
            let (System { group, name, axes }, rank) = (system, start.axes.len());
            let is_of_scene = *group != self.image;
            let way = ways.remove(&(group.clone(), name.clone()));
            let why = match way {
                _ if place == own => continue,
                None if is_of_scene => "no transformation leads to this system".to_string(),
                None => continue,
                Some(Err(why)) => format!("the transformation {why}"),
                Some(Ok(map)) if map.outputs() != rank || axes.len() != rank => {
                    format!("{} axes for an array of {rank} dimensions", axes.len())
                }
                Some(Ok(_)) if axes.iter().any(|axis| axis.is_array) => {
                    "an array coordinate system counts elements".to_string()
                }
                Some(Ok(_)) if has_unit(&start.axes) && !has_unit(axes) => {
                    "the axes have no units".to_string()
                }
                Some(Ok(_)) if has_side(&start.axes) && !has_side(axes) => {
                    "the axes have no orientation".to_string()
                }
                Some(Ok(_)) if found.chosen.is_some() => {
                    "a file can have only one coordinate system".to_string()
                }
                Some(Ok(map)) => {
                    found.chosen = Some(LevelPlace {
                        system: Some(name.clone()),
                        axes: Some(axes.clone()),
                        map,
                    });
                    continue;
                }
            };
            let of_scene = if is_of_scene { " of the scene" } else { "" };
            let sentence = format!("coordinate system {name:?}{of_scene}: {why}");
            found.left_out.push(sentence);
        }
        found.left_out.extend(self.of_other_images());
        found
    }

    /// Names at most 8 coordinate systems of other images to which transformations lead, if the scene has no systems of
    /// its own.
    fn of_other_images(&self) -> Vec<String> {
        if self.all.iter().any(|system| system.group != self.image) {
            return Vec::new();
        }
        let below = format!("{}/", self.image);
        let is_other = |(group, _): &&End| *group != self.image && !group.starts_with(&below);
        let is_own = |(group, _): &End| *group == self.image;
        let ends = self.links.iter().filter_map(|link| match &link.ends {
            (own, other) | (other, own) if is_own(own) && is_other(&other) => Some(other),
            _ => None,
        });
        let mut named: Vec<&End> = Vec::new();
        for other in ends.filter(|(group, _)| !group.is_empty()) {
            if named.len() < 8 && !named.contains(&other) {
                named.push(other);
            }
        }
        let said = named.into_iter().map(|(group, name)| {
            format!("coordinate system {name:?}: belongs to the image {group:?}")
        });
        said.collect()
    }

    /// Finds the maps from a coordinate system to all other systems that the metadata describe, each over as few
    /// transformations as possible.
    fn ways(&self, start: &System) -> HashMap<End, Way> {
        let mut at: HashMap<&End, Vec<&Link>> = HashMap::new();
        for link in &self.links {
            at.entry(&link.ends.0).or_default().push(link);
            at.entry(&link.ends.1).or_default().push(link);
        }
        let first = (start.group.clone(), start.name.clone());
        let identity = AffineMap::identity(start.axes.len());
        let mut ways = HashMap::from([(first.clone(), Ok(identity))]);
        let mut missing: HashSet<End> = self.all.iter().map(System::end).collect();
        missing.remove(&first);
        let (mut next, mut failed) = (VecDeque::from([first]), VecDeque::new());
        // Systems whose map failed are visited last, so that a longer path without a failure is found before.
        while let Some(end) = next.pop_front().or_else(|| failed.pop_front()) {
            if missing.is_empty() {
                break;
            }
            let Some(way) = ways.get(&end).cloned() else {
                continue;
            };
            for link in at.get(&end).into_iter().flatten() {
                let (input, output) = &link.ends;
                let other = if *input == end { output } else { input };
                if ways
                    .get(other)
                    .is_some_and(|known| known.is_ok() || way.is_err())
                {
                    continue;
                }
                let way = way.clone().and_then(|map| self.along(link, &end, &map));
                let queue = if way.is_ok() { &mut next } else { &mut failed };
                queue.push_back(other.clone());
                if way.is_ok() {
                    missing.remove(other);
                }
                ways.insert(other.clone(), way);
            }
        }
        ways
    }

    /// Continues a map from one end of a transformation to its other end.
    fn along(&self, link: &Link, from: &End, map: &AffineMap) -> Way {
        let mut reader = TransformationReader::new(link.stored);
        let next = if link.ends.0 == *from {
            reader.map_of(link.step, map.outputs())?
        } else {
            let other = self.place_of(&link.ends.0).and_then(|at| self.all.get(at));
            let rank = other.map_or(map.outputs(), |system| system.axes.len());
            let there = reader.map_of(link.step, rank)?;
            there.inverse().ok_or("has no inverse")?
        };
        let whole = map.then(&next);
        whole.ok_or_else(|| format!("does not fit {} dimensions", map.outputs()))
    }
}

impl System {
    fn end(&self) -> End {
        (self.group.clone(), self.name.clone())
    }
}

/// Returns the coordinate system at an end of a transformation. `group` is the path of the group that has the
/// transformation.
fn end(step: &Value, member: &str, group: &str) -> Option<End> {
    let end = step.get(member)?;
    // Drafts of RFC-5 stated only the name of the system at an end.
    let name = end.as_str().or_else(|| end.get("name")?.as_str())?;
    let path = end.get("path").and_then(Value::as_str).unwrap_or_default();
    let path = plain_path(&format!("{group}/{path}"));
    Some((path, name.to_string()))
}

/// Removes empty and `.` components from a path.
fn plain_path(path: &str) -> String {
    let names = path.split('/').filter(|name| !["", "."].contains(name));
    names.collect::<Vec<_>>().join("/")
}

/// Returns the `coordinateTransformations` of an image or a level.
pub(crate) fn transformations(described: &Value) -> impl Iterator<Item = &Value> {
    items(described, "coordinateTransformations").take(MAX_STEPS + 1)
}

/// Parses a list of axes, or returns `None` if it is invalid. Before OME-Zarr 0.4, an axis was only a name.
pub(crate) fn axes_of(list: Option<&Value>) -> Option<Vec<DescribedAxis>> {
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
            orientation: Orientation::of(axis),
            is_array: of_type.as_deref() == Some("array"),
            name,
        });
        is_space.push(of_type.as_deref() == Some("space"));
    }
    // No name of an axis tells its direction of space, so the order of the axes decides: z, y, x.
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
    fn space_axes_with_unknown_names_are_z_y_and_x() {
        use AxisKind::{Channel, Other, Time, X, Y, Z};
        let kinds = |axes: Value| -> Vec<AxisKind> {
            let axes = axes_of(Some(&axes)).unwrap();
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
