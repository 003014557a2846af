//! The user's attributes of an N5 node, stored among N5's own members.

use crate::error::{Error, Result};
use crate::json_text::{MemberChange, ObjectText};
use crate::model::Attributes;

/// Members that N5 defines: the members of a dataset, and the container's version.
const OWN: [&str; 6] = [
    "dimensions",
    "blockSize",
    "dataType",
    "compression",
    "compressionType",
    "n5",
];

/// Whether N5 defines a member.
pub(super) fn is_own(name: &str) -> bool {
    OWN.contains(&name)
}

/// Returns the changes that make `new` the attributes of a document. Existing attributes keep their place.
pub(super) fn attribute_changes(old: &ObjectText<'_>, new: &Attributes) -> Vec<MemberChange> {
    let new = new.members();
    let is_gone = |name: &str| !is_own(name) && new.iter().all(|(other, _)| other != name);
    let gone = old.members().filter(|(name, _)| is_gone(name));
    let mut changes: Vec<MemberChange> = gone.map(|(name, _)| (name.to_string(), None)).collect();
    let values = new.iter();
    changes.extend(values.map(|(name, value)| (name.clone(), Some(value.to_string()))));
    changes
}

/// Fails with `Invalid` if an attribute has the name of a member that N5 defines.
pub(super) fn check_own(attributes: &Attributes) -> Result<()> {
    match attributes.members().iter().find(|(name, _)| is_own(name)) {
        None => Ok(()),
        Some((name, _)) => Err(Error::invalid(
            name,
            "is a member of N5's own, and no attribute may have its name",
        )),
    }
}
