//! Compares two states of a store, or two stores: nodes, attributes and array regions.
//!
//! If the changed keys are known, only elements in changed chunks are compared, otherwise elements in chunks that
//! either state stores. If chunks cannot be decoded, the change of the array has an error instead of regions.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use zarr_format::dialect::v3;
use zarr_format::error::{Error, Result};
use zarr_format::json_text;
use zarr_format::model::{Array, Attributes, Node};
use zarrfs_array::array::Arrays;
use zarrfs_array::hierarchy::{Hierarchy, NodeEntry};
use zarrfs_store::Key;

mod regions;

use regions::{Difference, changed_regions, differing_regions, kind_of};
use zarrfs_store::request_context::UNLIMITED;

/// One of the two states of a store that a comparison reads.
pub struct HierarchyState {
    /// The nodes (arrays and groups) of the state.
    pub hierarchy: Arc<Hierarchy>,
    /// The opened arrays of the state.
    pub arrays: Arc<Arrays>,
    /// The path of the group or array whose subtree is compared.
    pub base: Key,
}

/// Says which nodes and elements of two stores a comparison reads.
#[derive(Clone, Copy)]
pub enum Compared<'a> {
    /// Compares all nodes, and the elements of arrays with the same storage layout, in chunks with the given keys only.
    Keys(&'a HashSet<Key>),
    /// Compares all nodes, and all elements of arrays with the same data type.
    Stores,
    /// Compares only nodes, shapes and values, but no attributes, names, fill values, chunks, codecs or keys. Two data
    /// types are equal if their kinds are, such as two kinds of integers.
    Values,
}

/// A function that receives the change of one node; its error stops the comparison.
pub type TakeChange<'a> = dyn FnMut(Value) -> Result<()> + 'a;

/// Passes each changed node to `take` as a JSON object with `path`, `change` (`created`, `deleted` or `changed`) and
/// `kind`. A changed node also has lists of its changed `attributes`, `metadata` and `regions`. Fails with `NotFound`
/// if neither state has a node at its base path.
pub fn compare(
    before: &HierarchyState,
    after: &HierarchyState,
    what: Compared<'_>,
    take: &mut TakeChange<'_>,
) -> Result<()> {
    let old = before.hierarchy.node(&UNLIMITED, &before.base)?;
    let new = after.hierarchy.node(&UNLIMITED, &after.base)?;
    if old.is_none() && new.is_none() {
        return Err(Error::not_found(&before.base));
    }
    let mut open = vec![NodePair {
        path: Key::root(),
        old,
        new,
    }];
    while let Some(pair) = open.pop() {
        let children = children_of_both(before, after, &pair)?;
        if let Some(change) = node_change(before, after, pair, what) {
            take(change)?;
        }
        open.extend(children.into_iter().rev());
    }
    Ok(())
}

/// The old and the new node at a path; the path is relative to the compared subtrees.
struct NodePair {
    path: Key,
    old: Option<Arc<NodeEntry>>,
    new: Option<Arc<NodeEntry>>,
}

struct ChangedNode<'a> {
    before: &'a HierarchyState,
    after: &'a HierarchyState,
    old: &'a Arc<NodeEntry>,
    new: &'a Arc<NodeEntry>,
    what: Compared<'a>,
}

/// Returns the names and nodes of the children that a group has in at least one of the two states.
fn children_of_both(
    before: &HierarchyState,
    after: &HierarchyState,
    pair: &NodePair,
) -> Result<Vec<NodePair>> {
    let mut names = BTreeSet::new();
    for (state, found) in [(before, &pair.old), (after, &pair.new)] {
        let found = found.as_ref();
        let Some(found) = found.filter(|found| matches!(found.node(), Ok(Node::Group(_)))) else {
            continue;
        };
        let mut listing = state.hierarchy.children(&UNLIMITED, found)?;
        while let Some(name) = listing.next(&UNLIMITED)? {
            names.insert(name.name);
        }
    }
    let child = |state: &HierarchyState, found: &Option<Arc<NodeEntry>>, name: &[u8]| match found {
        Some(found) => state.hierarchy.child(&UNLIMITED, found, name),
        None => Ok(None),
    };
    names
        .iter()
        .map(|name| {
            Ok(NodePair {
                path: pair.path.child(name)?,
                old: child(before, &pair.old, name)?,
                new: child(after, &pair.new, name)?,
            })
        })
        .collect()
}

/// Returns the change of a node as a JSON object, or `None` if the node is unchanged.
fn node_change(
    before: &HierarchyState,
    after: &HierarchyState,
    pair: NodePair,
    what: Compared<'_>,
) -> Option<Value> {
    let path = String::from_utf8_lossy(pair.path.as_bytes()).into_owned();
    let kind = |found: &NodeEntry| match found.node() {
        Ok(Node::Group(_)) => "group",
        Ok(Node::Array(_)) => "array",
        Err(_) => "broken node",
    };
    let (old, new) = match (pair.old, pair.new) {
        (None, None) => return None,
        (None, Some(new)) => {
            return Some(json!({"path": path, "change": "created", "kind": kind(&new)}));
        }
        (Some(old), None) => {
            return Some(json!({"path": path, "change": "deleted", "kind": kind(&old)}));
        }
        (Some(old), Some(new)) => (old, new),
    };
    let mut change = json!({"path": path, "change": "changed", "kind": kind(&new)});
    let members = change.as_object_mut()?;
    let unchanged_len = members.len();
    let node = ChangedNode {
        before,
        after,
        old: &old,
        new: &new,
        what,
    };
    node.add_changes(members);
    (members.len() > unchanged_len).then_some(change)
}

impl ChangedNode<'_> {
    /// Adds the changes of a node's attributes, metadata and elements to the JSON object that describes the node.
    fn add_changes(&self, members: &mut Map<String, Value>) {
        match (self.old.node(), self.new.node()) {
            (Ok(first), Ok(second)) => {
                if !matches!(self.what, Compared::Values) {
                    let differing = differing_attributes(first.attributes(), second.attributes());
                    add(members, "attributes", differing);
                }
                add(
                    members,
                    "metadata",
                    differing_members(&metadata(first, self.what), &metadata(second, self.what)),
                );
                if let (Node::Array(first), Node::Array(second)) = (first, second)
                    && is_comparable(first, second, self.what)
                {
                    self.add_regions(members);
                }
            }
            (Ok(_), Err(error)) | (Err(_), Err(error)) if self.has_changed() => {
                members.insert("error".to_string(), json!(error.to_string()));
            }
            (Err(error), Ok(_)) if !matches!(self.what, Compared::Keys(_)) => {
                members.insert("error".to_string(), json!(error.to_string()));
            }
            (Err(_), Ok(_)) => {
                members.insert("metadata".to_string(), json!([{"is": "readable"}]));
            }
            _ => {}
        }
    }

    /// Whether the metadata documents of an unreadable node may have changed. Documents of two different stores always
    /// may, since their versions cannot be compared.
    fn has_changed(&self) -> bool {
        !matches!(self.what, Compared::Keys(_)) || self.old.version != self.new.version
    }

    /// Adds the regions in which an array's elements differ, at most one box per chunk, to the array's JSON object. If
    /// the comparison fails, adds its error as `error` instead.
    fn add_regions(&self, members: &mut Map<String, Value>) {
        let mut list = Vec::new();
        let outcome = self.regions(&mut list);
        if let Err(error) = outcome {
            members.insert("error".to_string(), json!(error.to_string()));
        }
        let list = list.iter().map(|difference: &Difference| {
            json!({"start": difference.start, "stop": difference.stop, "count": difference.count})
        });
        add(members, "regions", list.collect());
    }

    fn regions(&self, list: &mut Vec<Difference>) -> Result<()> {
        let old = self.before.arrays.open(self.old)?;
        let new = self.after.arrays.open(self.new)?;
        match self.what {
            Compared::Keys(keys) => changed_regions(&old, &new, keys, list),
            Compared::Stores => differing_regions(&old, &new, false, list),
            Compared::Values => differing_regions(&old, &new, true, list),
        }
    }
}

fn is_comparable(first: &Array, second: &Array, what: Compared<'_>) -> bool {
    match what {
        Compared::Keys(_) => first.is_stored_like(second),
        Compared::Stores => {
            first.data_type == second.data_type && first.shape.len() == second.shape.len()
        }
        Compared::Values => {
            kind_of(first) == kind_of(second) && first.shape.len() == second.shape.len()
        }
    }
}

fn add(members: &mut Map<String, Value>, name: &str, list: Vec<Value>) {
    if !list.is_empty() {
        members.insert(name.to_string(), Value::Array(list));
    }
}

/// Returns the attributes whose JSON values differ in meaning, with their old and new values. Numbers in the result
/// have the same digits as in the stores.
fn differing_attributes(before: &Attributes, after: &Attributes) -> Vec<Value> {
    let (before, after) = (before.members(), after.members());
    let of = |members: &[(String, &str)], others: &[(String, &str)]| {
        let others: HashMap<&str, &str> = others
            .iter()
            .map(|(name, text)| (name.as_str(), *text))
            .collect();
        let is_same = |(name, text): &&(String, &str)| {
            let other = others.get(name.as_str());
            other.is_some_and(|other| json_text::is_equivalent(text, other))
        };
        let members = members.iter().filter(|member| !is_same(member));
        let value = |text: &str| json_text::parse(text.as_bytes()).unwrap_or_default();
        members
            .map(|(name, text)| (name.clone(), value(text)))
            .collect::<Map<_, _>>()
    };
    let (old, new) = (of(&before, &after), of(&after, &before));
    selected_members(&old, &new, |_| true)
}

/// Returns the metadata of a node in the form of Zarr v3, without attributes. If only values are compared, returns only
/// the node type, the shape and the kind of data type.
fn metadata(node: &Node, what: Compared<'_>) -> Map<String, Value> {
    if matches!(what, Compared::Values) {
        let facts = match node {
            Node::Group(_) => json!({"node_type": "group"}),
            Node::Array(array) => {
                json!({"node_type": "array", "shape": array.shape, "data_type": kind_of(array)})
            }
        };
        return facts.as_object().cloned().unwrap_or_default();
    }
    let mut members = match v3::render(node) {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    members.shift_remove("attributes");
    members
}

/// Returns the differing members of two JSON objects. Each has its `name`, the old value `before` and the new value
/// `after`; the value of a missing member is left out.
fn differing_members(before: &Map<String, Value>, after: &Map<String, Value>) -> Vec<Value> {
    selected_members(before, after, |name| before.get(name) != after.get(name))
}

/// Returns the members of two JSON objects whose names `wanted` accepts, with their old and new values.
fn selected_members(
    before: &Map<String, Value>,
    after: &Map<String, Value>,
    wanted: impl Fn(&str) -> bool,
) -> Vec<Value> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let differ = names.into_iter().filter(|name| wanted(name));
    differ
        .map(|name| {
            let mut found = Map::from_iter([("name".to_string(), json!(name))]);
            for (which, members) in [("before", before), ("after", after)] {
                if let Some(value) = members.get(name) {
                    found.insert(which.to_string(), value.clone());
                }
            }
            Value::Object(found)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_compared_by_meaning() {
        let read = |text: &str| Attributes::parse(text).unwrap_or_default();
        let before =
            r#"{"a": 1, "b": 123456789012345678901234567890, "c": NaN, "d": {"x": 1.0, "y": 2}}"#;
        let after =
            r#"{"c": NaN, "a": 1.0, "b": 123456789012345678901234567891, "d": {"y": 2, "x": 1e0}}"#;
        let (before, after) = (read(before), read(after));
        let names = differing_attributes(&before, &after);
        let names: Vec<_> = names.iter().map(|found| &found["name"]).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn differing_members_are_listed() {
        let object = |value: Value| value.as_object().cloned().unwrap_or_default();
        let before = object(json!({"a": 1, "b": {"c": 2}, "d": 3}));
        let after = object(json!({"a": 1, "b": {"c": 4}, "e": 5}));
        assert_eq!(
            differing_members(&before, &after),
            [
                json!({"name": "b", "before": {"c": 2}, "after": {"c": 4}}),
                json!({"name": "d", "before": 3}),
                json!({"name": "e", "after": 5}),
            ]
        );
    }
}
