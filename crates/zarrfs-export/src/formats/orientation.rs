//! Parses the anatomical orientation of an axis (RFC 4 of OME-Zarr).

use serde_json::Value;

use crate::formats::axis_kind::AxisKind;

/// The anatomical direction of an axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Orientation {
    /// The text in the metadata.
    pub(super) text: String,
    /// The axis of ITK's LPS space that it is parallel to (X to the left, Y to posterior, Z to superior), with 1.0
    /// for the same direction and -1.0 for the opposite one. `None` for other directions.
    pub(super) parallel: Option<(AxisKind, f64)>,
}

/// The directions along the axes of LPS space, and their opposites. Others, such as `dorsal-to-ventral`, depend on
/// the animal and on the part of its body.
const DIRECTIONS: [(&str, AxisKind, f64); 6] = [
    ("right-to-left", AxisKind::X, 1.0),
    ("left-to-right", AxisKind::X, -1.0),
    ("anterior-to-posterior", AxisKind::Y, 1.0),
    ("posterior-to-anterior", AxisKind::Y, -1.0),
    ("inferior-to-superior", AxisKind::Z, 1.0),
    ("superior-to-inferior", AxisKind::Z, -1.0),
];

/// Maximum number of characters of an unknown orientation in a message.
const MAX_SHOWN: usize = 40;

impl Orientation {
    /// Parses the orientation of an axis: an object with a value, or only the value, as ngff-zarr writes it for
    /// NIfTI.
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
