//! The resolution levels of a map in GeoZarr's `multiscales`, and geotransforms of derived levels.

use serde_json::Value;

use crate::formats::maps::geo_transform::GeoTransform;
use crate::formats::maps::reference_system::ReferenceSystem;
use crate::formats::maps::{PlaneAxes, PlaneSize};
use zarr_format::model::Attributes;

/// The resolution levels that a group lists in GeoZarr's `layout`.
pub(crate) struct MapLayout {
    levels: Vec<Value>,
}

/// JSON members with the path of a resolution level; drafts of GeoZarr used the second name.
const ASSET: &[&str] = &["asset", "group"];

/// The JSON member with the path of the resolution level from which a level was derived.
pub(crate) const DERIVED_FROM: &str = "derived_from";

/// How a resolution level was derived from another level.
#[derive(Clone, Debug)]
struct Step {
    /// For each dimension, the number of the other level's pixels per pixel of the derived level.
    scale: Vec<f64>,
    translation: Vec<f64>,
}

/// A resolution level whose geotransform is known, and the steps by which another level was derived from it.
#[derive(Clone, Debug)]
pub struct LevelBase {
    name: String,
    /// The reference system of the known geotransform.
    pub(crate) system: Option<ReferenceSystem>,
    place: GeoTransform,
    size: PlaneSize,
    /// The derivations from level to level; the first one leads to the derived level itself.
    steps: Vec<Step>,
}

/// The base level from which a resolution level was derived, over one or several levels.
pub(crate) struct LevelSource {
    /// The path of the base level, relative to the group that lists the levels.
    pub path: String,
    steps: Vec<Step>,
}

/// Returns the first of the named members that a JSON object has, because drafts of GeoZarr had other names.
fn member<'a>(object: &'a Value, names: &[&str]) -> Option<&'a Value> {
    names.iter().find_map(|name| object.get(*name))
}

fn path_in<'a>(level: &'a Value, names: &[&str]) -> Option<&'a str> {
    let path = member(level, names)?.as_str()?;
    let path = path.strip_prefix("./").unwrap_or(path);
    Some(path.trim_matches('/')).filter(|path| !path.is_empty())
}

fn numbers(list: Option<&Value>) -> Option<Vec<f64>> {
    list?.as_array()?.iter().map(Value::as_f64).collect()
}

impl MapLayout {
    /// Returns the resolution levels that a group's attributes list, or `None` if they list none.
    pub(crate) fn of(attributes: &Attributes) -> Option<MapLayout> {
        let mut multiscales = attributes.get("multiscales")?;
        match multiscales.get_mut("layout")?.take() {
            Value::Array(levels) => Some(MapLayout { levels }),
            _ => None,
        }
    }

    fn find(&self, path: &str) -> Option<&Value> {
        let mut levels = self.levels.iter();
        levels.find(|level| path_in(level, ASSET) == Some(path))
    }

    /// Returns what a group says about the resolution level at a path, which is relative to the group.
    pub(crate) fn level(&self, path: &str) -> Option<Attributes> {
        let mut level = self.find(path)?.as_object()?.clone();
        // In drafts of GeoZarr, the geotransform was stored next to the scale, in `transform`.
        if let Some(Value::Object(inner)) = level.get("transform").cloned() {
            let placed = inner
                .into_iter()
                .filter(|(name, _)| name.contains(':') && !level.contains_key(name));
            let placed: Vec<_> = placed.collect();
            level.extend(placed);
        }
        // The name of the source level is stored under its current name, because callers do not know the names in
        // drafts.
        if let Some(source) = self.source_of(self.find(path)?) {
            level.insert(DERIVED_FROM.to_string(), source.into());
        }
        Some(level.into())
    }

    /// Returns the path of the level from which a level was derived. If the metadata have a scale but no path, it is
    /// the first level.
    fn source_of(&self, level: &Value) -> Option<String> {
        let named = path_in(level, &[DERIVED_FROM, "derived_from_asset", "from_group"]);
        let first = path_in(self.levels.first()?, ASSET);
        let relative = level
            .get("transform")
            .and_then(|transform| numbers(transform.get("scale")));
        let is_scaled = relative.is_some_and(|scale| scale.iter().any(|&scale| scale != 1.0));
        let is_other = |path: &&str| Some(*path) != path_in(level, ASSET);
        let first = first.filter(is_other).filter(|_| is_scaled);
        named.or(first).map(str::to_string)
    }

    /// Follows the derivations from the resolution level at a path to a level that is not derived. Returns `None` if
    /// the level itself is not derived, or after 32 derivations.
    pub(crate) fn source(&self, path: &str) -> Option<LevelSource> {
        let (mut path, mut steps) = (path.to_string(), Vec::new());
        loop {
            let level = self.find(&path);
            let Some(source) = level.and_then(|level| self.source_of(level)) else {
                return (!steps.is_empty()).then_some(LevelSource { path, steps });
            };
            // Each derivation about halves the length of a dimension, so more than 32 can only be a loop.
            if steps.len() == 32 {
                return None;
            }
            let relative = level.and_then(|level| level.get("transform")).or(level)?;
            steps.push(Step {
                scale: numbers(member(relative, &["scale", "factors"])).unwrap_or_default(),
                translation: numbers(relative.get("translation")).unwrap_or_default(),
            });
            path = source;
        }
    }
}

impl LevelBase {
    /// Describes a base level by its size, its geotransform and the derivations from it.
    pub(crate) fn new(
        source: LevelSource,
        system: Option<ReferenceSystem>,
        place: GeoTransform,
        size: PlaneSize,
    ) -> LevelBase {
        LevelBase {
            name: source.path,
            system,
            place,
            size,
            steps: source.steps,
        }
    }

    /// Returns the geotransform of a derived level with the given size, or the reason why it is unknown. Returns `None`
    /// if the metadata do not say how the level was derived.
    pub(crate) fn place_of(
        &self,
        size: PlaneSize,
        plane: PlaneAxes,
    ) -> Option<Result<GeoTransform, String>> {
        if self.steps.iter().any(|step| step.scale.is_empty()) {
            return None;
        }
        let unknown = |why: &str| Some(Err(format!("the georeference: {why} {}", self.name)));
        let moves = |step: &Step| {
            // As the offset of a derived level, programs write 0 or the centre of the source pixels under a derived
            // pixel, which is at most half a derived pixel. Neither of the two moves the level.
            let most = step
                .scale
                .iter()
                .fold(1.0_f64, |most, scale| most.max(*scale))
                / 2.0;
            step.translation.iter().any(|moved| moved.abs() > most)
        };
        if self.steps.iter().any(moves) {
            return unknown("the layout shifts the level relative to");
        }
        // Some programs write the scale relative to the first level instead of the previous level.
        let alone = self.steps.first().map(std::slice::from_ref);
        let ways = [Some(&self.steps[..]), alone];
        let scales = ways.into_iter().flatten().flat_map(|steps| {
            let PlaneAxes { rows, columns } = plane;
            // A scale of two numbers is in the order of either (rows, columns) or (columns, rows).
            let orders = [(rows, columns, 0, 1), (columns, rows, 1, 0)];
            orders.map(|(rows, columns, first, second)| {
                let product = |axis: usize, of_two: usize| {
                    let scale = |step: &Step| {
                        let of_plane = step.scale.len() == 2;
                        let number = step.scale.get(if of_plane { of_two } else { axis });
                        number.copied().unwrap_or(f64::NAN)
                    };
                    steps.iter().map(scale).product::<f64>()
                };
                (product(rows, first), product(columns, second))
            })
        });
        let fits = |scale: f64, own: u64, base: u64| {
            scale > 0.0 && (base as f64 / scale - own as f64).abs() < 1.0
        };
        let found = scales.into_iter().find(|&(along_y, along_x)| {
            fits(along_y, size.rows, self.size.rows)
                && fits(along_x, size.columns, self.size.columns)
        });
        let Some((along_y, along_x)) = found else {
            return unknown("the scale in the layout fits neither the level's shape nor that of");
        };
        Some(Ok(self.place.coarsened(along_x, along_y)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn layout(levels: &Value) -> MapLayout {
        let text = json!({"multiscales": {"layout": levels}}).to_string();
        MapLayout::of(&Attributes::parse(&text).unwrap()).unwrap()
    }

    #[test]
    fn a_level_covers_the_same_place_as_its_base() {
        let place = GeoTransform::from([100.0, 10.0, 1.0, 200.0, 2.0, -10.0]);
        let size = |rows, columns| PlaneSize { rows, columns };
        let plane = PlaneAxes {
            rows: 0,
            columns: 1,
        };
        let made = |steps: Value, size_of_level: PlaneSize| {
            let source = layout(&steps).source("last").unwrap();
            assert_eq!(source.path, "0");
            let base = LevelBase::new(source, None, place, size(41, 80));
            base.place_of(size_of_level, plane)
        };
        let quarter = GeoTransform::from([100.0, 40.0, 4.0, 200.0, 8.0, -40.0]);
        let last = |from: &str, scale: f64, moved: f64| json!({"asset": "last", "derived_from": from, "transform": {"scale": [scale, scale], "translation": [moved, moved]}});
        let first = json!({"asset": "0"});
        let middle = json!({"asset": "1", "derived_from": "0", "transform": {"scale": [2, 2]}});
        for levels in [
            json!([first, last("0", 4.0, 0.0)]),
            json!([first, middle, last("1", 2.0, 0.5)]),
            json!([first, middle, last("1", 4.0, 0.5)]),
            json!([{"group": "0"}, {"group": "last", "from_group": "0", "factors": [4, 4]}]),
            json!([{"asset": "0", "transform": {"scale": [1, 1]}}, {"asset": "last", "transform": {"scale": [4, 4]}}]),
        ] {
            for size in [size(10, 20), size(11, 20)] {
                assert_eq!(made(levels.clone(), size), Some(Ok(quarter)), "{levels}");
            }
            assert!(made(levels, size(30, 60)).unwrap().is_err());
        }
        let uneven =
            json!([first, {"asset": "last", "derived_from": "0", "transform": {"scale": [4, 2]}}]);
        let expected = GeoTransform::from([100.0, 40.0, 2.0, 200.0, 8.0, -20.0]);
        assert_eq!(made(uneven, size(20, 20)), Some(Ok(expected)));
        let moved = made(json!([first, last("0", 4.0, 30.0)]), size(10, 20));
        assert!(moved.unwrap().is_err());
        let silent = json!([first, {"asset": "last", "derived_from": "0"}]);
        assert_eq!(made(silent, size(41, 80)), None);
    }

    #[test]
    fn levels_derived_from_each_other_have_no_base() {
        let made = |asset: &str, from: &str| json!({"asset": asset, "derived_from": from, "transform": {"scale": [2, 2]}});
        let found = layout(&json!([made("0", "1"), made("1", "0")]));
        assert!(found.source("0").is_none());
        assert!(layout(&json!([{"asset": "0"}])).source("0").is_none());
    }
}
