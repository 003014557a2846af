//! Arrays of one group against each other: the lengths and the names of their dimensions.
//!
//! A program that opens a group as one dataset takes dimensions of one name for one dimension. Nodes come here in the order
//! of the hierarchy; what is found about a group is told once all that lies below it has come. Images are left out: their
//! levels have the same dimensions in other lengths.

use std::collections::BTreeMap;

use crate::check::checked_node::CheckedNode;
use crate::check::finding::{Finding, XARRAY};
use crate::hierarchy::NodeEntry;
use crate::model::{Array, Node};
use crate::store::Key;

/// How many names of dimensions are held of a group, how many lengths of each, and how many arrays without names.
const MAX_NAMES: usize = 1000;
const MAX_LENGTHS: usize = 8;
const MAX_UNNAMED: usize = 100;

/// The groups on the way to the node that came last.
#[derive(Default)]
pub(super) struct SiblingArrays {
    open: Vec<GroupArrays>,
}

/// What is held of the arrays of a group.
struct GroupArrays {
    group: Key,
    is_image: bool,
    dimensions: BTreeMap<String, Dimension>,
    /// How many arrays have names, and the first of them.
    named: u64,
    first_named: Option<Key>,
    /// Those that have none, and whether they are of v3.
    unnamed: Vec<(Key, bool)>,
    /// Whether an array has the name of its one dimension.
    has_coordinates: bool,
}

/// A dimension, by its name.
#[derive(Default)]
struct Dimension {
    /// Its lengths, each with the first array that has it.
    lengths: BTreeMap<u64, Key>,
    /// Whether an array of its own name has its coordinates.
    has_coordinates: bool,
}

impl SiblingArrays {
    /// Takes the next node; returns what is found about groups that are complete.
    pub(super) fn take(&mut self, node: &CheckedNode) -> Vec<Finding> {
        let mut found = Vec::new();
        while let Some(last) = self
            .open
            .pop_if(|last| node.path.below(&last.group).is_none())
        {
            found.extend(last.findings());
        }
        let Some(entry) = &node.entry else {
            return found;
        };
        if let Some(array) = entry.array() {
            let parent = self.open.last_mut();
            let parent = parent.filter(|last| entry.path.parent().as_ref() == Some(&last.group));
            if let Some(parent) = parent {
                parent.add(&entry.path, array);
            }
        } else if node.has_children {
            self.open.push(GroupArrays::of(entry));
        }
        found
    }

    /// Returns what is found about the groups that are left.
    pub(super) fn end(mut self) -> Vec<Finding> {
        let mut found = Vec::new();
        while let Some(last) = self.open.pop() {
            found.extend(last.findings());
        }
        found
    }
}

impl GroupArrays {
    fn of(group: &NodeEntry) -> GroupArrays {
        let is_image = match group.node() {
            Ok(Node::Group(group)) => ["multiscales", "ome"]
                .iter()
                .any(|name| group.attributes.get(name).is_some()),
            _ => false,
        };
        GroupArrays {
            group: group.path.clone(),
            is_image,
            dimensions: BTreeMap::new(),
            named: 0,
            first_named: None,
            unnamed: Vec::new(),
            has_coordinates: false,
        }
    }

    fn add(&mut self, path: &Key, array: &Array) {
        let names = &array.dimension_names;
        if self.is_image || array.shape.is_empty() {
            return;
        }
        if names.iter().all(Option::is_none) {
            // One that is wrong is told with the array.
            let has_attribute = array.attributes.get("_ARRAY_DIMENSIONS").is_some();
            if !has_attribute && self.unnamed.len() < MAX_UNNAMED {
                self.unnamed.push((path.clone(), array.dialect == "v3"));
            }
            return;
        }
        self.named += 1;
        self.first_named.get_or_insert_with(|| path.clone());
        let is_own = |name: &str| names.len() == 1 && path.name() == name.as_bytes();
        for (name, &length) in names.iter().zip(&array.shape) {
            let Some(name) = name else { continue };
            // A name that the array has twice is told with the array.
            if names
                .iter()
                .flatten()
                .filter(|other| *other == name)
                .count()
                > 1
            {
                continue;
            }
            if self.dimensions.len() >= MAX_NAMES && !self.dimensions.contains_key(name) {
                continue;
            }
            let dimension = self.dimensions.entry(name.clone()).or_default();
            dimension.has_coordinates |= is_own(name);
            self.has_coordinates |= is_own(name);
            if dimension.lengths.len() < MAX_LENGTHS {
                dimension.lengths.entry(length).or_insert(path.clone());
            }
        }
    }

    fn findings(self) -> Vec<Finding> {
        let mut found = Vec::new();
        for (name, dimension) in &self.dimensions {
            found.extend(self.lengths_differ(name, dimension));
        }
        let names_needed = self.named >= self.unnamed.len() as u64;
        for (path, is_v3) in self.unnamed.iter().filter(|_| self.named > 0) {
            let is_error = names_needed && (!is_v3 || self.has_coordinates);
            found.extend(self.names_missing(path, (*is_v3, is_error)));
        }
        found
    }

    /// A dimension that has two lengths: an append that was cut leaves such arrays.
    fn lengths_differ(&self, name: &str, dimension: &Dimension) -> Option<Finding> {
        if dimension.lengths.len() < 2 {
            return None;
        }
        let told = dimension.lengths.iter().map(|(length, path)| {
            let array = String::from_utf8_lossy(path.name());
            format!("{array} has {length}")
        });
        let told: Vec<String> = told.collect();
        let message = format!(
            "arrays of the group have different lengths along the dimension {name}: {}, so that xarray opens no dataset",
            told.join(", ")
        );
        let remedy =
            "if an append was cut, resize the longer arrays to the shorter length and append again";
        let finding = if dimension.has_coordinates {
            Finding::error("dimension-lengths-differ", &self.group, message)
        } else {
            Finding::warning("dimension-lengths-differ", &self.group, message)
        };
        let finding = finding.of_part(name).mended_by(remedy);
        Some(finding.by(XARRAY, ENCODING))
    }

    /// An array without names of dimensions beside others that have some.
    fn names_missing(&self, path: &Key, (is_v3, is_error): (bool, bool)) -> Option<Finding> {
        let (member, place) = if is_v3 {
            ("dimension_names", "zarr.json")
        } else {
            ("_ARRAY_DIMENSIONS", ".zattrs")
        };
        let other = self.first_named.as_ref()?.name();
        let message = format!(
            "the array has no {member}, and others of the group, such as {}, name their dimensions, so that xarray opens \
             no dataset",
            String::from_utf8_lossy(other)
        );
        let remedy = format!("add {member} to its {place}, a list of one name a dimension");
        let code = "dimension-names-missing";
        let finding = if is_error {
            Finding::error(code, path, message)
        } else {
            Finding::warning(code, path, message)
        };
        Some(
            finding
                .of_part(member)
                .mended_by(remedy)
                .by(XARRAY, ENCODING),
        )
    }
}

/// The section of xarray's documentation on names of dimensions.
const ENCODING: &str = "Zarr Encoding Specification";
