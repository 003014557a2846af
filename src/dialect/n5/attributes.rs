//! The user's attributes of an N5 node, which stand in one object with the members that N5 defines.

use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// Members that N5 defines: those of a dataset, and the version of a container.
const OWN: [&str; 6] = [
    "dimensions",
    "blockSize",
    "dataType",
    "compression",
    "compressionType",
    "n5",
];

/// Whether a member is one that N5 defines.
pub(super) fn is_own(name: &str) -> bool {
    OWN.contains(&name)
}

/// Returns the members that N5 does not define.
pub(super) fn user_attributes(mut members: Map<String, Value>) -> Map<String, Value> {
    members.retain(|name, _| !is_own(name));
    members
}

/// Fails with `Invalid` if an attribute has the name of a member that N5 defines.
pub(super) fn check_own(attributes: &Map<String, Value>) -> Result<()> {
    match attributes.keys().find(|name| is_own(name)) {
        None => Ok(()),
        Some(name) => Err(Error::invalid(
            name,
            "is a member of N5's own, and no attribute may have its name",
        )),
    }
}
