//! Which way an axis goes in a body (RFC 4 of OME-Zarr).

use serde_json::Value;

use crate::formats::axis_kind::AxisKind;

/// The direction of an axis in a body.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Orientation {
    /// As the metadata say it.
    pub(super) text: String,
    /// The axis of ITK's space of a body (LPS) that it is parallel to: X is to the left, Y to the back, Z to the head. 1.0
    /// or -1.0 says whether it goes the same way. `None` if it goes in another direction.
    pub(super) parallel: Option<(AxisKind, f64)>,
}

/// The directions along the axes of ITK's space of a body, and their opposites. Others, such as `dorsal-to-ventral`, are
/// directions in that space which depend on the animal and on the part of its body.
const DIRECTIONS: [(&str, AxisKind, f64); 6] = [
    ("right-to-left", AxisKind::X, 1.0),
    ("left-to-right", AxisKind::X, -1.0),
    ("anterior-to-posterior", AxisKind::Y, 1.0),
    ("posterior-to-anterior", AxisKind::Y, -1.0),
    ("inferior-to-superior", AxisKind::Z, 1.0),
    ("superior-to-inferior", AxisKind::Z, -1.0),
];

/// The most letters of an orientation that is not known which are shown.
const MAX_SHOWN: usize = 40;

impl Orientation {
    /// Reads the orientation of an axis: an object with a value, or the value alone, which ngff-zarr writes of NIfTI.
    pub(super) fn of(axis: &Value) -> Option<Orientation> {
        let orientation = axis.get("orientation").filter(|told| !told.is_null())?;
        let value = orientation.get("value").unwrap_or(orientation);
        let text = value.as_str().unwrap_or("not known");
        let known = DIRECTIONS.iter().find(|(name, ..)| *name == text);
        Some(Orientation {
            text: text.chars().take(MAX_SHOWN).collect(),
            parallel: known.map(|&(_, kind, sign)| (kind, sign)),
        })
    }
}
