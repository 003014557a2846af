//! Parses the six-number place of a map in attributes of GDAL, GeoZarr and STAC.
//!
//! The attributes are `GeoTransform` of GDAL, `spatial:transform` of GeoZarr, and `proj:transform` of STAC, which
//! EOPF uses.

use serde_json::Value;

use zarr_format::model::Attributes;

/// The affine map from pixels to the map, in GDAL's order: x of the first pixel's corner, its change along a row and
/// along a column, and the same for y.
pub(crate) type Place = [f64; 6];

/// Returns the place in attributes, and the name of the attribute that has it.
pub(crate) fn told(attributes: &Attributes) -> Option<(Place, &'static str)> {
    let own = |name: &str| attributes.get(name).as_ref().and_then(numbers);
    let of_gdal = || own("GeoTransform").map(|told| (told, "GeoTransform"));
    let of_geozarr = || of_geozarr(attributes).map(|told| (told, "spatial:transform"));
    let of_stac = || {
        let told = attributes.get("proj:transform").or_else(|| {
            let mut geo = attributes.get("geo")?;
            Some(geo.get_mut("proj")?.get_mut("transform")?.take())
        })?;
        let place = match told {
            // Some programs write GDAL's order as text.
            Value::String(_) => numbers(&told)?,
            told => of_affine(&told)?,
        };
        Some((place, "proj:transform"))
    };
    let told = of_gdal().or_else(of_geozarr).or_else(of_stac);
    told.filter(|(place, _)| is_place(place))
}

/// Whether attributes contain a place.
pub(crate) fn is_told(attributes: &Attributes) -> bool {
    told(attributes).is_some()
}

/// Whether attributes contain a shape or bounds, and a place that fits a plane of this shape (rows, columns).
pub(crate) fn has_shape(attributes: &Attributes, shape: (u64, u64)) -> bool {
    tells_shape(attributes)
        && told(attributes).is_some_and(|(place, _)| fits(attributes, &place, shape))
}

/// Whether attributes define the place in another way than by six numbers.
pub(crate) fn is_other(attributes: &Attributes) -> bool {
    let kind = attributes.get("spatial:transform_type");
    kind.is_some_and(|kind| !kind.is_null() && kind != "affine")
}

fn of_geozarr(attributes: &Attributes) -> Option<Place> {
    if is_other(attributes) {
        return None;
    }
    let [x, width, skew_x, y, skew_y, height] = of_affine(&attributes.get("spatial:transform")?)?;
    if !is_of_nodes(attributes) {
        return Some([x, width, skew_x, y, skew_y, height]);
    }
    // The place is the first pixel's centre.
    let (x, y) = (x - (width + skew_x) / 2.0, y - (skew_y + height) / 2.0);
    Some([x, width, skew_x, y, skew_y, height])
}

/// Returns the first two rows of a matrix in GDAL's order.
fn of_affine(value: &Value) -> Option<Place> {
    let list = value
        .as_array()
        .filter(|list| [6, 9].contains(&list.len()))?;
    let [a, b, c, d, e, f] = numbers(&Value::from(list.get(..6)?.to_vec()))?;
    Some([c, a, b, f, d, e])
}

/// Parses six numbers from a list, or from text separated by spaces.
fn numbers(value: &Value) -> Option<Place> {
    let numbers: Vec<f64> = match value {
        Value::String(text) => text
            .split_whitespace()
            .map(|word| word.parse().ok())
            .collect::<Option<_>>()?,
        Value::Array(list) => list.iter().map(Value::as_f64).collect::<Option<_>>()?,
        _ => return None,
    };
    Place::try_from(numbers).ok()
}

/// Whether six numbers are a place: the pixels must not overlap, and the numbers must not be plain pixel indices,
/// which programs write if they know no place.
fn is_place(place: &Place) -> bool {
    let [_, width, skew_x, _, skew_y, height] = place;
    let area = width * height - skew_x * skew_y;
    let is_identity = *place == [0.0, 1.0, 0.0, 0.0, 0.0, 1.0];
    place.iter().all(|number| number.is_finite()) && area != 0.0 && area.is_finite() && !is_identity
}

/// Returns the place of a plane of this shape (rows, columns) by the bounds of a map. The first row is at the top.
pub(crate) fn by_bounds(attributes: &Attributes, (rows, columns): (u64, u64)) -> Option<Place> {
    let told = |name: &str| attributes.get(name)?.as_array().cloned();
    let bounds = told("spatial:bbox").or_else(|| told("proj:bbox"))?;
    let bounds: Vec<f64> = bounds.iter().map(Value::as_f64).collect::<Option<_>>()?;
    let &[left, bottom, right, top] = &bounds[..] else {
        return None;
    };
    // The bounds of nodes are the centres of the outer pixels.
    let is_node = is_of_nodes(attributes);
    let steps = |count: u64| if is_node { count.saturating_sub(1) } else { count } as f64;
    let (width, height) = (
        (right - left) / steps(columns),
        (bottom - top) / steps(rows),
    );
    let half = if is_node { 0.5 } else { 0.0 };
    let place = [
        left - half * width,
        width,
        0.0,
        top - half * height,
        0.0,
        height,
    ];
    (is_place(&place) && width > 0.0 && height < 0.0).then_some(place)
}

fn is_of_nodes(attributes: &Attributes) -> bool {
    let kind = attributes.get("spatial:registration");
    kind.is_some_and(|kind| kind == "node")
}

/// Whether attributes contain a shape or bounds that can be compared to a plane.
pub(crate) fn tells_shape(attributes: &Attributes) -> bool {
    let names = ["spatial:shape", "proj:shape", "spatial:bbox", "proj:bbox"];
    names.into_iter().any(|name| attributes.get(name).is_some())
}

/// Whether the attributes contain no shape, or this shape (rows, columns).
pub(crate) fn is_of_shape(attributes: &Attributes, (rows, columns): (u64, u64)) -> bool {
    let list = |name: &str| attributes.get(name)?.as_array().cloned();
    list("spatial:shape")
        .or_else(|| list("proj:shape"))
        .is_none_or(|shape| {
            let shape: Vec<_> = shape.iter().rev().take(2).map(Value::as_u64).collect();
            shape == [Some(columns), Some(rows)]
        })
}

/// Whether the place in a group's attributes fits a plane of this shape (rows, columns); it may belong to another
/// array.
pub(crate) fn fits(group: &Attributes, place: &Place, (rows, columns): (u64, u64)) -> bool {
    let list = |name: &str| group.get(name)?.as_array().cloned();
    if list("spatial:shape")
        .or_else(|| list("proj:shape"))
        .is_some()
    {
        return is_of_shape(group, (rows, columns));
    }
    let bounds: Option<Vec<f64>> = list("spatial:bbox")
        .or_else(|| list("proj:bbox"))
        .and_then(|list| list.iter().map(Value::as_f64).collect());
    match (bounds.as_deref(), place) {
        (Some(&[left, bottom, right, top]), &[_, width, 0.0, _, 0.0, height]) => {
            let covers = |length: f64, step: f64, count: u64| {
                (length.abs() - step.abs() * count as f64).abs() <= 1.5 * step.abs()
            };
            covers(right - left, width, columns) && covers(top - bottom, height, rows)
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    fn attributes(value: Value) -> Attributes {
        let members: Map<String, Value> = serde_json::from_value(value).unwrap();
        members.into()
    }

    #[test]
    fn places_are_told_in_two_orders() {
        let place = [5.0, 10.0, 0.5, 7.0, 0.25, -10.0];
        for told_by in [
            json!({"GeoTransform": "5 10 0.5 7 0.25 -10"}),
            json!({"GeoTransform": [5, 10, 0.5, 7, 0.25, -10]}),
            json!({"spatial:transform": [10, 0.5, 5, 0.25, -10, 7]}),
            json!({"proj:transform": [10, 0.5, 5, 0.25, -10, 7, 0, 0, 1]}),
            json!({"proj:transform": "5 10 0.5 7 0.25 -10"}),
            json!({"geo": {"proj": {"transform": [10, 0.5, 5, 0.25, -10, 7]}}}),
            json!({"spatial:transform": [10, 0.5, 10.25, 0.25, -10, 2.125], "spatial:registration": "node"}),
        ] {
            let found = told(&attributes(told_by.clone())).map(|found| found.0);
            assert_eq!(found, Some(place), "{told_by}");
        }
        for told_by in [
            json!({"GeoTransform": "0 1 0 0 0 1"}),
            json!({"GeoTransform": "0 0 0 0 0 0"}),
            json!({"GeoTransform": "1 2 3"}),
            json!({"spatial:transform": [10, 0, 5, 0, -10, 7], "spatial:transform_type": "rpc"}),
            json!({"spatial:transform": [1, 0, 0, 0, 1, 0, 0, 0]}),
            json!({"proj:transform": null}),
        ] {
            assert_eq!(told(&attributes(told_by.clone())), None, "{told_by}");
        }
    }

    #[test]
    fn what_a_group_tells_is_of_arrays_of_its_shape() {
        let place = [0.0, 10.0, 0.0, 70.0, 0.0, -10.0];
        let holds = |group: Value, shape| fits(&attributes(group), &place, shape);
        assert!(holds(json!({}), (7, 9)));
        assert!(holds(json!({"spatial:shape": [7, 9]}), (7, 9)));
        assert!(!holds(json!({"spatial:shape": [7, 9]}), (3, 4)));
        let bounds = json!({"spatial:bbox": [0, 0, 90, 70]});
        assert!(holds(bounds.clone(), (7, 9)));
        assert!(!holds(bounds, (3, 4)));
        // Arrays without dimension names have the place only if the group has a shape.
        let told = |more: Value| {
            let mut group = json!({"spatial:transform": [10, 0, 0, 0, -10, 70]});
            group
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            has_shape(&attributes(group), (7, 9))
        };
        assert!(told(json!({"spatial:shape": [7, 9]})));
        assert!(!told(json!({"spatial:shape": [3, 4]})));
        assert!(!told(json!({})));
    }
}
