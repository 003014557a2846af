//! Anatomical orientations of axes (RFC 4 of OME-Zarr), and positions in a body.

use serde_json::Value;

use crate::formats::axes::AxisKind;
use crate::formats::ome_zarr::coordinate_systems::{DescribedAxis, LevelPlace};

/// The anatomical direction in which the coordinates of an axis increase.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Orientation {
    /// The direction as the metadata state it, such as `right-to-left`.
    pub(crate) text: String,
    /// The axis of ITK's LPS space that is parallel to the direction (X to the left, Y to posterior, Z to superior),
    /// with 1.0 for the same direction and -1.0 for the opposite one. `None` for any other direction.
    pub(crate) parallel: Option<(AxisKind, f64)>,
}

/// The directions that are parallel to an axis of LPS space. Other directions, such as `dorsal-to-ventral`, depend on
/// the animal and on the part of its body.
const DIRECTIONS: [(&str, AxisKind, f64); 6] = [
    ("right-to-left", AxisKind::X, 1.0),
    ("left-to-right", AxisKind::X, -1.0),
    ("anterior-to-posterior", AxisKind::Y, 1.0),
    ("posterior-to-anterior", AxisKind::Y, -1.0),
    ("inferior-to-superior", AxisKind::Z, 1.0),
    ("superior-to-inferior", AxisKind::Z, -1.0),
];

impl Orientation {
    /// Parses the orientation of an axis: an object with a `value`, or only the value, as ngff-zarr writes it for
    /// images from NIfTI.
    pub(crate) fn of(axis: &Value) -> Option<Orientation> {
        let orientation = axis
            .get("orientation")
            .filter(|orientation| !orientation.is_null())?;
        let value = orientation.get("value").unwrap_or(orientation);
        let text = value.as_str().unwrap_or("unknown");
        let known = DIRECTIONS.iter().find(|(name, ..)| *name == text);
        Some(Orientation {
            // The text is cut off because messages show it.
            text: text.chars().take(40).collect(),
            parallel: known.map(|&(_, kind, sign)| (kind, sign)),
        })
    }
}

/// Returns the orientations of all axes for a message; `None` if no axis has one.
pub(crate) fn orientation_text(axes: &[DescribedAxis]) -> Option<String> {
    let texts = axes.iter().filter_map(|axis| {
        let text = &axis.orientation.as_ref()?.text;
        Some(format!("{} ({text})", axis.name))
    });
    let texts: Vec<String> = texts.collect();
    (!texts.is_empty()).then(|| format!("orientation of {}", texts.join(", ")))
}

/// The position of an image's first voxel, if the program that wrote the image states another position than the axes
/// give.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FirstVoxel {
    /// The coordinates of the first voxel along each axis.
    pub(crate) coordinates: Vec<f64>,
    /// The factors (1 or -1) that turn the voxel's x, y and z coordinates into coordinates of ITK's LPS space.
    pub(crate) signs: [f64; 3],
}

/// Converts a position to ITK's LPS space, with axes of the kinds X, Y and Z. Returns `None` if an axis of space has no
/// orientation, if its orientation is not parallel to an axis of LPS, or if two axes are parallel to the same one.
pub(crate) fn anatomical_place(
    place: &LevelPlace,
    first: Option<&FirstVoxel>,
) -> Option<LevelPlace> {
    let axes = place.axes.as_ref()?;
    let mut body = axes.clone();
    let mut signs = vec![1.0; axes.len()];
    let mut found: Vec<AxisKind> = Vec::new();
    for (axis, sign) in body.iter_mut().zip(&mut signs) {
        if axis.orientation.is_none() && !axis.kind.is_space() {
            continue;
        }
        let (kind, own) = axis.orientation.as_ref()?.parallel?;
        if found.contains(&kind) {
            return None;
        }
        found.push(kind);
        (axis.kind, *sign) = (kind, own);
    }
    if found.is_empty() {
        return None;
    }
    let mut map = place.map.scaled(&signs)?;
    if let Some(first) = first {
        let of_kind = |kind: AxisKind| {
            let place = axes.iter().position(|axis| axis.kind == kind)?;
            let sign = first.signs.get(kind as usize)?;
            Some(first.coordinates.get(place)? * sign)
        };
        let moved = body.iter().zip(&signs).zip(&first.coordinates);
        let moved: Vec<f64> = moved
            .map(|((axis, sign), own)| match of_kind(axis.kind) {
                Some(place) if axis.orientation.is_some() => place - sign * own,
                _ => 0.0,
            })
            .collect();
        map = map.moved(&moved)?;
    }
    Some(LevelPlace {
        system: place.system.clone(),
        axes: Some(body),
        map,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::ome_zarr::affine::AffineMap;
    use serde_json::{Value, json};

    fn place(axes: &[(&str, &str)]) -> LevelPlace {
        let axes = axes.iter().map(|(name, value)| {
            json!({"name": name, "type": "space", "orientation": {"type": "anatomical", "value": value}})
        });
        let axes: Value = axes.collect();
        let described = crate::formats::ome_zarr::coordinate_systems::axes_of(Some(&axes)).unwrap();
        let map = AffineMap::scale(&vec![2.0; described.len()]);
        LevelPlace {
            system: None,
            map: map.moved(&vec![5.0; described.len()]).unwrap(),
            axes: Some(described),
        }
    }

    #[test]
    fn anatomical_orientations_set_axis_kinds_and_signs() {
        let oriented = place(&[
            ("z", "left-to-right"),
            ("y", "superior-to-inferior"),
            ("x", "anterior-to-posterior"),
        ]);
        let found = anatomical_place(&oriented, None).unwrap();
        let kinds = found.axes.unwrap().into_iter().map(|axis| axis.kind);
        assert_eq!(
            kinds.collect::<Vec<_>>(),
            [AxisKind::X, AxisKind::Z, AxisKind::Y]
        );
        let numbers = [0, 1, 2].map(|row| (found.map.factor(row, row), found.map.offset(row)));
        assert_eq!(numbers, [(-2.0, -5.0), (-2.0, -5.0), (2.0, 5.0)]);
        let first = FirstVoxel {
            coordinates: vec![3.0, 2.0, 1.0],
            signs: [1.0; 3],
        };
        let found = anatomical_place(&oriented, Some(&first)).unwrap();
        // The first voxel is at 1 along X of LPS space, as its coordinate along the axis `x` says. Along the first
        // axis, which runs in the opposite direction, it is at 3. So the offset 5 of the first axis is at 1 - (5 - 3) =
        // -1.
        assert_eq!([0, 1, 2].map(|row| found.map.offset(row)), [-1.0, 0.0, 6.0]);
        for axes in [
            [("y", "left-to-right"), ("x", "right-to-left")],
            [("y", "left-to-right"), ("x", "dorsal-to-ventral")],
        ] {
            assert_eq!(
                anatomical_place(&place(&axes), None).map(|place| place.axes),
                None
            );
        }
    }
}
