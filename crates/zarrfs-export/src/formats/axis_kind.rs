//! The kind of a dimension: a direction of space, time or channels.

/// The kind of a dimension, by its name or by OME-Zarr.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AxisKind {
    /// The first direction of space: longitude, easting, columns.
    X,
    /// The second direction of space: latitude, northing, rows.
    Y,
    /// The third direction of space: depth, height, level.
    Z,
    /// Time.
    Time,
    /// Channels or bands.
    Channel,
    /// Another kind, or unknown.
    Other,
}

impl AxisKind {
    /// Whether it is a direction of space.
    pub fn is_space(self) -> bool {
        matches!(self, AxisKind::X | AxisKind::Y | AxisKind::Z)
    }
}

/// Returns the kind of a dimension by its name.
pub(super) fn kind_of(name: &str) -> AxisKind {
    match name.to_ascii_lowercase().as_str() {
        "x" | "lon" | "longitude" | "easting" | "col" | "cols" | "column" | "columns" => {
            AxisKind::X
        }
        "y" | "lat" | "latitude" | "northing" | "row" | "rows" => AxisKind::Y,
        "z" | "depth" | "height" | "altitude" | "lev" | "level" | "plev" => AxisKind::Z,
        "t" | "time" => AxisKind::Time,
        "c" | "channel" | "channels" | "band" | "bands" | "wavelength" => AxisKind::Channel,
        _ => AxisKind::Other,
    }
}
