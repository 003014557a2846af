//! The levels of a map in GeoZarr's `multiscales`, and where a level lies by the one that it was made of.

use serde_json::Value;

use crate::formats::reference_system::ReferenceSystem;
use crate::formats::told_place::Place;
use zarr_format::model::Attributes;

/// The levels that a group has.
pub struct MapLayout {
    levels: Vec<Value>,
}

/// The most levels between one and that of which all are made: each is half as long or so.
const MAX_STEPS: usize = 32;

/// The members that have the path of a level: drafts had another one.
const ASSET: &[&str] = &["asset", "group"];

/// The member that has the path of the level that one was made of.
pub(super) const DERIVED_FROM: &str = "derived_from";

/// How a level was made of another one.
#[derive(Clone, Debug)]
struct Step {
    /// Pixels of the other level along a pixel, for each dimension.
    scale: Vec<f64>,
    translation: Vec<f64>,
}

/// A level of which others were made, with its place, and how one of them was made.
#[derive(Clone, Debug)]
pub struct LevelBase {
    name: String,
    /// What the numbers of the place are.
    pub(super) system: Option<ReferenceSystem>,
    place: Place,
    /// Rows and columns.
    shape: (u64, u64),
    /// From the level itself on.
    steps: Vec<Step>,
}

/// The way from a level to the one that it was made of.
pub struct LevelSource {
    /// The path of that from the group with the layout.
    pub path: String,
    steps: Vec<Step>,
}

/// Returns the first of some members that an object has: drafts had other names.
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
    /// Returns the layout that the attributes of a group have.
    pub fn of(attributes: &Attributes) -> Option<MapLayout> {
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

    /// Returns what is said of the level at a path from the group.
    pub fn level(&self, path: &str) -> Option<Attributes> {
        let mut level = self.find(path)?.as_object()?.clone();
        // Drafts had the place beside the scale.
        if let Some(Value::Object(inner)) = level.get("transform").cloned() {
            let placed = inner
                .into_iter()
                .filter(|(name, _)| name.contains(':') && !level.contains_key(name));
            let placed: Vec<_> = placed.collect();
            level.extend(placed);
        }
        // The same of all programs, so that nobody else has to know how they say it.
        if let Some(source) = self.source_of(self.find(path)?) {
            level.insert(DERIVED_FROM.to_string(), source.into());
        }
        Some(level.into())
    }

    /// Returns the path of the level that one was made of: where there is a scale alone, that of the first one.
    fn source_of(&self, level: &Value) -> Option<String> {
        let named = path_in(level, &[DERIVED_FROM, "derived_from_asset", "from_group"]);
        let first = path_in(self.levels.first()?, ASSET);
        let relative = level
            .get("transform")
            .and_then(|told| numbers(told.get("scale")));
        let is_scaled = relative.is_some_and(|scale| scale.iter().any(|&scale| scale != 1.0));
        let is_other = |path: &&str| Some(*path) != path_in(level, ASSET);
        let first = first.filter(is_other).filter(|_| is_scaled);
        named.or(first).map(str::to_string)
    }

    /// Returns the level of which the one at a path was made, in several steps perhaps; nothing if it was made of none.
    pub fn source(&self, path: &str) -> Option<LevelSource> {
        let (mut path, mut steps) = (path.to_string(), Vec::new());
        loop {
            let level = self.find(&path);
            let Some(source) = level.and_then(|level| self.source_of(level)) else {
                return (!steps.is_empty()).then_some(LevelSource { path, steps });
            };
            if steps.len() == MAX_STEPS {
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
    /// Returns the source of a level, which has so many rows and columns and this place.
    pub(super) fn new(
        source: LevelSource,
        system: Option<ReferenceSystem>,
        place: Place,
        shape: (u64, u64),
    ) -> LevelBase {
        LevelBase {
            name: source.path,
            system,
            place,
            shape,
            steps: source.steps,
        }
    }

    /// Returns where a level of so many rows and columns lies that was made of it, or why nobody knows that; nothing if the
    /// layout does not say how it was made.
    pub(super) fn place_of(
        &self,
        shape: (u64, u64),
        plane: (usize, usize),
    ) -> Option<Result<Place, String>> {
        if self.steps.iter().any(|step| step.scale.is_empty()) {
            return None;
        }
        let unknown = |why: &str| Some(Err(format!("the place on the map: {why} {}", self.name)));
        let moves = |step: &Step| {
            // Up to half a pixel is the middle of the pixels that one was made of: programs write that, and 0.
            let most = step
                .scale
                .iter()
                .fold(1.0_f64, |most, scale| most.max(*scale))
                / 2.0;
            step.translation.iter().any(|moved| moved.abs() > most)
        };
        if self.steps.iter().any(moves) {
            return unknown("the layout moves the level against");
        }
        // Some programs write how many pixels of the first level there are along a pixel, not of the one before.
        let alone = self.steps.first().map(std::slice::from_ref);
        let ways = [Some(&self.steps[..]), alone];
        let scales = ways.into_iter().flatten().flat_map(|steps| {
            let (rows, columns) = plane;
            // Two numbers are those of rows and columns, or the other way round.
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
            fits(along_y, shape.0, self.shape.0) && fits(along_x, shape.1, self.shape.1)
        });
        let Some((along_y, along_x)) = found else {
            return unknown("the scale in the layout fits neither the level's shape nor that of");
        };
        let [x, width, skew_x, y, skew_y, height] = self.place;
        Some(Ok([
            x,
            width * along_x,
            skew_x * along_y,
            y,
            skew_y * along_x,
            height * along_y,
        ]))
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
    fn a_level_lies_where_its_base_lies() {
        let place = [100.0, 10.0, 1.0, 200.0, 2.0, -10.0];
        let made = |steps: Value, shape: (u64, u64)| {
            let source = layout(&steps).source("last").unwrap();
            assert_eq!(source.path, "0");
            let base = LevelBase::new(source, None, place, (41, 80));
            base.place_of(shape, (0, 1))
        };
        let quarter = [100.0, 40.0, 4.0, 200.0, 8.0, -40.0];
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
            for shape in [(10, 20), (11, 20)] {
                assert_eq!(made(levels.clone(), shape), Some(Ok(quarter)), "{levels}");
            }
            assert!(made(levels, (30, 60)).unwrap().is_err());
        }
        let uneven =
            json!([first, {"asset": "last", "derived_from": "0", "transform": {"scale": [4, 2]}}]);
        let expected = [100.0, 40.0, 2.0, 200.0, 8.0, -20.0];
        assert_eq!(made(uneven, (20, 20)), Some(Ok(expected)));
        let moved = made(json!([first, last("0", 4.0, 30.0)]), (10, 20));
        assert!(moved.unwrap().is_err());
        let silent = json!([first, {"asset": "last", "derived_from": "0"}]);
        assert_eq!(made(silent, (41, 80)), None);
    }

    #[test]
    fn levels_that_are_made_of_one_another_have_no_base() {
        let made = |asset: &str, from: &str| json!({"asset": asset, "derived_from": from, "transform": {"scale": [2, 2]}});
        let found = layout(&json!([made("0", "1"), made("1", "0")]));
        assert!(found.source("0").is_none());
        assert!(layout(&json!([{"asset": "0"}])).source("0").is_none());
    }
}
