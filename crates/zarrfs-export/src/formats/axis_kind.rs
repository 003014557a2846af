//! What a dimension is: a direction of space, time, channels.

/// What a dimension is, by its name or by what OME-Zarr says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AxisKind {
    /// The first direction of space: longitude, columns.
    X,
    /// The second: latitude, rows.
    Y,
    /// The third: depth, height, level.
    Z,
    /// Time.
    Time,
    /// Channels or bands.
    Channel,
    /// Anything else, or not known.
    Other,
}

impl AxisKind {
    /// Whether it is a direction of space.
    pub fn is_space(self) -> bool {
        matches!(self, AxisKind::X | AxisKind::Y | AxisKind::Z)
    }
}

/// Returns what a dimension of a name is.
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
