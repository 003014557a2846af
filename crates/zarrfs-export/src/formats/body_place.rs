//! Places images with anatomical orientations (RFC 4 of OME-Zarr) in a body.

use crate::formats::axis_kind::AxisKind;
use crate::formats::coordinate_systems::{DescribedAxis, LevelPlace};

/// Returns the orientations of axes for a message; `None` if no axis has one.
pub(super) fn ways(axes: &[DescribedAxis]) -> Option<String> {
    let told = axes.iter().filter_map(|axis| {
        let text = &axis.orientation.as_ref()?.text;
        Some(format!("{} ({text})", axis.name))
    });
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| format!("orientation of {}", told.join(", ")))
}

/// The first voxel of an image, if its program wrote another place than the axes give.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FirstVoxel {
    /// Its coordinates.
    pub(super) coordinates: Vec<f64>,
    /// The signs that turn its x, y and z coordinates into ITK's LPS space.
    pub(super) signs: [f64; 3],
}

/// Returns a place in ITK's LPS space, in which the axes of space have the kinds X, Y and Z. Returns `None` if an
/// axis of space has no orientation or one that is not parallel to an LPS axis, or two axes have the same one.
pub(super) fn in_body(place: &LevelPlace, first: Option<&FirstVoxel>) -> Option<LevelPlace> {
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
            .map(|((axis, sign), told)| match of_kind(axis.kind) {
                Some(meant) if axis.orientation.is_some() => meant - sign * told,
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
    use serde_json::{Value, json};

    use super::*;
    use crate::formats::affine::AffineMap;

    fn place(axes: &[(&str, &str)]) -> LevelPlace {
        let axes = axes.iter().map(|(name, value)| {
            json!({"name": name, "type": "space", "orientation": {"type": "anatomical", "value": value}})
        });
        let axes: Value = axes.collect();
        let described = crate::formats::coordinate_systems::axes_of(Some(&axes)).unwrap();
        let map = AffineMap::scale(&vec![2.0; described.len()]);
        LevelPlace {
            system: None,
            map: map.moved(&vec![5.0; described.len()]).unwrap(),
            axes: Some(described),
        }
    }

    #[test]
    fn axes_lie_in_the_space_of_a_body() {
        let told = place(&[
            ("z", "left-to-right"),
            ("y", "superior-to-inferior"),
            ("x", "anterior-to-posterior"),
        ]);
        let found = in_body(&told, None).unwrap();
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
        let found = in_body(&told, Some(&first)).unwrap();
        // Left of the first voxel is its coordinate along x; this one is at 5 where that is at 3.
        assert_eq!([0, 1, 2].map(|row| found.map.offset(row)), [-1.0, 0.0, 6.0]);
        for axes in [
            [("y", "left-to-right"), ("x", "right-to-left")],
            [("y", "left-to-right"), ("x", "dorsal-to-ventral")],
        ] {
            assert_eq!(in_body(&place(&axes), None).map(|place| place.axes), None);
        }
    }
}
