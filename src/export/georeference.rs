//! Where a map lies: the reference system and the place of the first pixel, as GDAL, GeoZarr and CF write them into
//! attributes of an array, of its grid mapping or of its group.

use serde_json::Value;

use crate::export::axes::{AxisKind, AxisMeaning, axes_of, has_scale};
use crate::export::{Subject, TakenDimension, grid_mapping};
use crate::model::Attributes;

/// Returns the dimensions of rows and columns: those with these names, or the last two.
pub(super) fn plane(axes: &[AxisMeaning]) -> Option<(usize, usize)> {
    let find = |kind| axes.iter().position(|axis| axis.kind == kind);
    match (find(AxisKind::Y), find(AxisKind::X)) {
        (Some(rows), Some(columns)) => Some((rows, columns)),
        _ => Some((axes.len().checked_sub(2)?, axes.len().checked_sub(1)?)),
    }
}

/// Returns the place of the first pixel in the order of GDAL: that of attributes, or else of the dimensions.
pub(super) fn place(subject: &Subject, y: &AxisMeaning, x: &AxisMeaning) -> Option<[f64; 6]> {
    transform(subject).or_else(|| {
        let axes = [y.clone(), x.clone()];
        let corner = |axis: &AxisMeaning| axis.origin - axis.step() / 2.0;
        let place = || [corner(x), x.step(), 0.0, corner(y), 0.0, y.step()];
        has_scale(&axes).then(|| in_metres(subject, place()))
    })
}

/// No angle at a satellite reaches this, in radians, and no map that it sees is of so few metres.
const MAX_ANGLE: f64 = 2.0;

/// Returns a place in metres: CF has angles where a satellite sees the map, which its height makes distances.
fn in_metres(subject: &Subject, place: [f64; 6]) -> [f64; 6] {
    let is_angle = place.iter().all(|number| number.abs() < MAX_ANGLE);
    let height = told_by(subject).find_map(grid_mapping::satellite_height);
    let height = height.filter(|_| is_angle).unwrap_or(1.0);
    // A sum with 0 is never -0, which would be written as such.
    place.map(|number| number * height + 0.0)
}

/// Returns the attributes that can tell where a map lies: of the array, of its grid mapping and of its group.
fn told_by<'a>(subject: &Subject<'a>) -> impl Iterator<Item = &'a Attributes> {
    let own = [Some(&subject.array.attributes)];
    let others = [subject.around.mapping, subject.around.group];
    own.into_iter().chain(others).flatten()
}

/// Returns the reference system as GDAL reads it.
pub(super) fn reference_system(subject: &Subject) -> Option<String> {
    let system = |told| told_system(told).or_else(|| grid_mapping::system_of(told));
    told_by(subject).find_map(system)
}

/// Returns the text of a reference system: GDAL's own `_CRS`, GeoZarr's `proj:`, CF's `crs_wkt` and `spatial_ref`.
fn told_system(attributes: &Attributes) -> Option<String> {
    let text = |name| match attributes.get(name) {
        Some(Value::String(text)) if !text.is_empty() => Some(text),
        _ => None,
    };
    let of_gdal = attributes.get("_CRS").and_then(|system| {
        let member = |name| system.get(name).and_then(Value::as_str).map(str::to_string);
        member("wkt").or_else(|| member("url"))
    });
    let names = ["proj:wkt2", "proj:code", "crs_wkt", "spatial_ref"];
    of_gdal.or_else(|| names.into_iter().find_map(text))
}

/// Returns the place of the first pixel as GDAL has it, by the attributes `GeoTransform` of GDAL or `spatial:transform` of
/// GeoZarr; nothing of a selection without rows or without columns.
pub(super) fn transform(subject: &Subject) -> Option<[f64; 6]> {
    let whole = in_metres(subject, told_by(subject).find_map(told_transform)?);
    let Some(taken) = subject.taken else {
        return Some(whole);
    };
    let of_array = Subject {
        taken: None,
        ..*subject
    };
    let (rows, columns) = plane(&axes_of(&of_array))?;
    let along = |axis| taken.iter().find(|taken| taken.axis == axis);
    let moved = moved(whole, along(columns)?, along(rows)?);
    moved
        .iter()
        .all(|number| number.is_finite())
        .then_some(moved)
}

/// Returns the place of the first of the pixels that are taken at equal distances, each as wide as a distance.
fn moved(whole: [f64; 6], columns: &TakenDimension, rows: &TakenDimension) -> [f64; 6] {
    let [x, width, skew_x, y, skew_y, height] = whole;
    let corner = |taken: &TakenDimension| taken.start as f64 + 0.5 - taken.step as f64 / 2.0;
    let (column, row) = (corner(columns), corner(rows));
    let (across, down) = (columns.step as f64, rows.step as f64);
    // A sum with 0 is never -0, which would be written as such.
    [
        x + width * column + skew_x * row,
        width * across,
        skew_x * down + 0.0,
        y + skew_y * column + height * row,
        skew_y * across + 0.0,
        height * down,
    ]
}

fn told_transform(attributes: &Attributes) -> Option<[f64; 6]> {
    let numbers = |value: Value| -> Option<Vec<f64>> {
        match value {
            Value::String(text) => text
                .split_whitespace()
                .map(|word| word.parse().ok())
                .collect(),
            Value::Array(list) => list.iter().map(Value::as_f64).collect(),
            _ => None,
        }
    };
    let six = |name| {
        let numbers = attributes.get(name).and_then(numbers)?;
        let is_finite = numbers.iter().all(|number| number.is_finite());
        <[f64; 6]>::try_from(numbers).ok().filter(|_| is_finite)
    };
    six("GeoTransform").or_else(|| {
        let [a, b, c, d, e, f] = six("spatial:transform")?;
        Some([c, a, b, f, d, e])
    })
}

/// Returns text as XML holds it, which has no U+FFFE and U+FFFF.
pub(super) fn escaped(text: &str) -> String {
    let plain: String = text.chars().filter(|letter| !letter.is_control()).collect();
    let plain = plain.replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}");
    let plain = plain
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    plain.replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_that_xml_lacks_are_left_out_or_replaced() {
        assert_eq!(escaped("a\u{fffe}\u{ffff}\u{1}<"), "a\u{fffd}\u{fffd}&lt;");
    }

    #[test]
    fn selected_pixels_lie_where_those_of_the_whole_do() {
        let whole = [10.0, 0.5, 0.25, 50.0, 0.125, -0.5];
        let taken = |start, step| TakenDimension {
            axis: 0,
            start,
            step,
        };
        let centre = |place: [f64; 6], column: f64, row: f64| {
            let [x, width, skew_x, y, skew_y, height] = place;
            let (column, row) = (column + 0.5, row + 0.5);
            [
                x + width * column + skew_x * row,
                y + skew_y * column + height * row,
            ]
        };
        for (columns, rows) in [(taken(0, 1), taken(0, 1)), (taken(3, 2), taken(9, -4))] {
            let place = moved(whole, &columns, &rows);
            for (column, row) in [(0.0, 0.0), (1.0, 0.0), (0.0, 2.0)] {
                let at = |taken: &TakenDimension, number: f64| {
                    taken.start as f64 + taken.step as f64 * number
                };
                let expected = centre(whole, at(&columns, column), at(&rows, row));
                assert_eq!(centre(place, column, row), expected);
            }
        }
        assert_eq!(moved(whole, &taken(0, 1), &taken(0, 1)), whole);
    }
}
