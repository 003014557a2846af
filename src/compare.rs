//! What differs between two states of one store, in the words of its hierarchy: nodes, attributes, regions of arrays.
//!
//! The states are given as hierarchies. Elements are compared where stored chunks were changed and nowhere else; what
//! does not decode is said and not compared. Which keys changed is the overlay's to tell.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::array::Arrays;
use crate::dialect::v3;
use crate::error::Result;
use crate::export;
use crate::export::Export;
use crate::grid::Region;
use crate::hierarchy::Found;
use crate::hierarchy::Hierarchy;
use crate::model::Array;
use crate::model::Node;
use crate::store::Key;

/// One state of a store.
pub struct State {
    /// Its nodes.
    pub hierarchy: Arc<Hierarchy>,
    /// Its arrays.
    pub arrays: Arrays,
}

/// Elements that differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The smallest box around them: its first element, and the one after its last, along each dimension.
    pub start: Vec<u64>,
    /// See `start`.
    pub stop: Vec<u64>,
    /// How many they are.
    pub count: u64,
}

/// The most chunks of an array that are looked through for those that changed.
const MOST_CHUNKS: u64 = 1 << 22;

/// Returns what differs, a JSON object a node: `path`, `change` (`created`, `deleted`, `changed`), and for what
/// changed `attributes` and `metadata` as lists of members, and `regions`.
pub fn compare(before: &State, after: &State, keys: &HashSet<Key>) -> Result<Vec<Value>> {
    let mut list = Vec::new();
    let roots = (before.hierarchy.root()?, after.hierarchy.root()?);
    let mut open = vec![(Key::root(), roots.0, roots.1)];
    while let Some((path, old, new)) = open.pop() {
        let children = union(before, after, (old.as_ref(), new.as_ref()))?;
        list.extend(node(before, after, (&path, old, new), keys));
        open.extend(children.into_iter().rev());
    }
    Ok(list)
}

type Pair = (Key, Option<Arc<Found>>, Option<Arc<Found>>);

/// Returns the children that a node has in either state.
fn union(
    before: &State,
    after: &State,
    (old, new): (Option<&Arc<Found>>, Option<&Arc<Found>>),
) -> Result<Vec<Pair>> {
    let mut names = BTreeSet::new();
    for (state, found) in [(before, old), (after, new)] {
        let Some(found) = found.filter(|found| matches!(found.node(), Ok(Node::Group(_)))) else {
            continue;
        };
        let mut listing = state.hierarchy.children(found)?;
        while let Some(name) = listing.next()? {
            names.insert(name.name);
        }
    }
    let child = |state: &State, found: Option<&Arc<Found>>, name: &[u8]| match found {
        Some(found) => state.hierarchy.child(found, name),
        None => Ok(None),
    };
    let path = old
        .or(new)
        .map(|found| found.path.clone())
        .unwrap_or_default();
    names
        .iter()
        .map(|name| {
            Ok((
                path.child(name)?,
                child(before, old, name)?,
                child(after, new, name)?,
            ))
        })
        .collect()
}

/// Returns what differs of one node, if something does.
fn node(
    before: &State,
    after: &State,
    (path, old, new): (&Key, Option<Arc<Found>>, Option<Arc<Found>>),
    keys: &HashSet<Key>,
) -> Option<Value> {
    let shown = String::from_utf8_lossy(path.as_bytes()).into_owned();
    let kind = |found: &Found| match found.node() {
        Ok(Node::Group(_)) => "group",
        Ok(Node::Array(_)) => "array",
        Err(_) => "broken node",
    };
    let (old, new) = match (old, new) {
        (None, None) => return None,
        (None, Some(new)) => {
            return Some(json!({"path": shown, "change": "created", "kind": kind(&new)}));
        }
        (Some(old), None) => {
            return Some(json!({"path": shown, "change": "deleted", "kind": kind(&old)}));
        }
        (Some(old), Some(new)) => (old, new),
    };
    let mut found = json!({"path": shown, "change": "changed", "kind": kind(&new)});
    let members = found.as_object_mut()?;
    let least = members.len();
    match (old.node(), new.node()) {
        (Ok(first), Ok(second)) => {
            add(
                members,
                "attributes",
                differing(attributes(first), attributes(second)),
            );
            add(
                members,
                "metadata",
                differing(&metadata(first), &metadata(second)),
            );
            if let (Node::Array(first), Node::Array(second)) = (first, second)
                && first.is_stored_like(second)
            {
                regions(members, (before, &old), (after, &new), keys);
            }
        }
        (Ok(_), Err(error)) | (Err(_), Err(error)) if old.version != new.version => {
            members.insert("error".to_string(), json!(error.to_string()));
        }
        (Err(_), Ok(_)) => {
            members.insert("metadata".to_string(), json!([{"is": "readable"}]));
        }
        _ => {}
    }
    (members.len() > least).then_some(found)
}

fn add(members: &mut Map<String, Value>, name: &str, list: Vec<Value>) {
    if !list.is_empty() {
        members.insert(name.to_string(), Value::Array(list));
    }
}

fn attributes(node: &Node) -> &Map<String, Value> {
    match node {
        Node::Group(group) => &group.attributes,
        Node::Array(array) => &array.attributes,
    }
}

/// Returns a node's metadata as final v3, without its attributes.
fn metadata(node: &Node) -> Map<String, Value> {
    let mut members = match v3::render(node) {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    members.shift_remove("attributes");
    members
}

/// Returns the members of two objects that differ: `name`, `before` and `after` as far as they are there.
fn differing(before: &Map<String, Value>, after: &Map<String, Value>) -> Vec<Value> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let differ = names
        .into_iter()
        .filter(|name| before.get(*name) != after.get(*name));
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

/// Adds the regions of an array whose elements differ, a box a stored chunk.
fn regions(
    members: &mut Map<String, Value>,
    (before, old): (&State, &Arc<Found>),
    (after, new): (&State, &Arc<Found>),
    keys: &HashSet<Key>,
) {
    let mut list = Vec::new();
    let found = changed_boxes((before, old), (after, new), keys, &mut list);
    if let Err(error) = found {
        members.insert("error".to_string(), json!(error.to_string()));
    }
    let list = list.iter().map(|difference: &Difference| {
        json!({"start": difference.start, "stop": difference.stop, "count": difference.count})
    });
    add(members, "regions", list.collect());
}

fn changed_boxes(
    (before, old): (&State, &Arc<Found>),
    (after, new): (&State, &Arc<Found>),
    keys: &HashSet<Key>,
    list: &mut Vec<Difference>,
) -> Result<()> {
    let (old, new) = (before.arrays.open(old)?, after.arrays.open(new)?);
    let array = new.array();
    let grid = new.stored_grid()?;
    let by_key = chunk_numbers(array, grid.len(), |number| {
        grid.indices(crate::grid::ChunkIndex(number)).to_vec()
    });
    let changed = keys.iter().filter_map(|key| by_key.get(key));
    let changed: BTreeSet<u64> = changed.copied().collect();
    let raw = export::format("raw")?;
    for number in changed {
        let region = grid.region(&grid.indices(crate::grid::ChunkIndex(number)));
        let read = |array: &Arc<crate::array::OpenArray>| -> Result<Vec<u8>> {
            let export = Export::open(array, raw, region.clone())?;
            let length = usize::try_from(export.len()).unwrap_or(usize::MAX);
            Ok(export.read_at(0, length)?.to_vec())
        };
        let (first, second) = (read(&old)?, read(&new)?);
        list.extend(difference(&region, &first, &second));
    }
    Ok(())
}

/// Returns the numbers of an array's stored chunks by the keys that they may have.
fn chunk_numbers(
    array: &Array,
    count: u64,
    indices: impl Fn(u64) -> Vec<u64>,
) -> BTreeMap<Key, u64> {
    let mut numbers = BTreeMap::new();
    for number in 0..count.min(MOST_CHUNKS) {
        for key in array.keys.candidates(&indices(number)) {
            numbers.extend(Key::new(key).ok().map(|key| (key, number)));
        }
    }
    numbers
}

/// Returns where two contents of a box differ, if they do; both are in C order.
fn difference(region: &Region, before: &[u8], after: &[u8]) -> Option<Difference> {
    let elements: u64 = region.shape.iter().product();
    let size = usize::try_from(after.len() as u64 / elements.max(1))
        .unwrap_or(1)
        .max(1);
    let mut found: Option<Difference> = None;
    let mut at: Vec<u64> = region.start.to_vec();
    let pairs = before.chunks(size).zip(after.chunks(size));
    for (old, new) in pairs {
        if old != new {
            let all = found.get_or_insert_with(|| Difference {
                start: at.clone(),
                stop: at.clone(),
                count: 0,
            });
            all.count += 1;
            for (axis, &index) in at.iter().enumerate() {
                all.start[axis] = all.start[axis].min(index);
                all.stop[axis] = all.stop[axis].max(index + 1);
            }
        }
        region.step(&mut at);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_box_is_found() {
        let region = Region {
            start: [10, 20].as_slice().into(),
            shape: [2, 3].as_slice().into(),
        };
        let before = [0u8; 12];
        assert_eq!(difference(&region, &before, &before), None);
        let mut after = before;
        (after[2], after[11]) = (1, 1);
        let found = difference(&region, &before, &after).unwrap();
        assert_eq!(
            (found.start, found.stop, found.count),
            (vec![10, 21], vec![12, 23], 2)
        );
    }

    #[test]
    fn members_that_differ_are_named() {
        let object = |value: Value| value.as_object().cloned().unwrap_or_default();
        let before = object(json!({"a": 1, "b": {"c": 2}, "d": 3}));
        let after = object(json!({"a": 1, "b": {"c": 4}, "e": 5}));
        assert_eq!(
            differing(&before, &after),
            [
                json!({"name": "b", "before": {"c": 2}, "after": {"c": 4}}),
                json!({"name": "d", "before": 3}),
                json!({"name": "e", "after": 5}),
            ]
        );
    }
}
