//! Attributes that have a meaning by convention: the names of dimensions in v2, and images of OME-Zarr.
//!
//! Their texts are not those of Zarr, so that findings name no section. A path that an attribute has is that of a node,
//! counted from the node whose attribute it is.

use std::sync::Arc;

use serde_json::Value;

use crate::check::context::CheckContext;
use crate::check::finding::Finding;
use crate::error::Result;
use crate::hierarchy::NodeEntry;
use crate::model::{Array, Attributes, Node};
use crate::store::Key;
use crate::sync::pool::parallel_map;

/// Returns what is wrong with the attributes of a node.
pub(super) fn check(context: &CheckContext, entry: &NodeEntry) -> Vec<Finding> {
    match entry.node() {
        Ok(Node::Array(array)) => dimension_names(&entry.path, array).into_iter().collect(),
        Ok(Node::Group(group)) => image(context, &entry.path, &group.attributes),
        Err(_) => Vec::new(),
    }
}

/// xarray's names of the dimensions of an array in v2.
fn dimension_names(path: &Key, array: &Array) -> Option<Finding> {
    const NAME: &str = "_ARRAY_DIMENSIONS";
    let names = array
        .attributes
        .get(NAME)
        .filter(|_| array.dialect == "v2")?;
    let rank = array.shape.len();
    let list = names.as_array();
    if list.is_some_and(|list| list.len() == rank && list.iter().all(Value::is_string)) {
        return None;
    }
    let expected = format!("a list of {rank} names, one a dimension");
    let finding = Finding::warning("attribute-invalid", path, expected, shown(&names));
    Some(finding.of_part(NAME))
}

/// Longest text of a value that is shown, in characters.
const MAX_SHOWN: usize = 100;

fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(MAX_SHOWN) {
        None => text,
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
    }
}

/// A node that an attribute names.
struct NamedNode {
    /// The attribute, and the place in it.
    part: String,
    path: String,
    is_level: bool,
}

/// Images, labels, plates and wells of OME-Zarr: the nodes that they name, and the levels of images.
fn image(context: &CheckContext, path: &Key, attributes: &Attributes) -> Vec<Finding> {
    let outer = attributes.get("ome");
    let (outer, prefix) = match &outer {
        Some(ome) if ome.is_object() => (Some(ome), "ome: "),
        _ => (None, ""),
    };
    let member = |name: &str| match outer {
        Some(ome) => ome.get(name).cloned(),
        None => attributes.get(name),
    };
    let mut found = Vec::new();
    for (number, image) in items(member("multiscales").as_ref()).iter().enumerate() {
        let part = format!("{prefix}multiscales[{number}]");
        found.extend(levels(context, (path, &part), image));
    }
    let mut named = Vec::new();
    if path.name() == b"labels" {
        let labels = member("labels");
        named.extend(
            items(labels.as_ref())
                .iter()
                .enumerate()
                .filter_map(|(number, label)| {
                    named_node(format!("{prefix}labels[{number}]"), label, false)
                }),
        );
    }
    for (name, list) in [("plate", "wells"), ("well", "images")] {
        let members = member(name);
        let list_of = items(members.as_ref().and_then(|members| members.get(list)));
        named.extend(list_of.iter().enumerate().filter_map(|(number, item)| {
            named_node(
                format!("{prefix}{name}: {list}[{number}]"),
                item.get("path")?,
                false,
            )
        }));
    }
    let looked_for = look_for(context, path, named).into_iter();
    found.extend(looked_for.filter_map(|looked_for| looked_for.fault));
    found
}

fn items(list: Option<&Value>) -> Vec<Value> {
    list.and_then(Value::as_array).cloned().unwrap_or_default()
}

fn named_node(part: String, path: &Value, is_level: bool) -> Option<NamedNode> {
    let path = path.as_str()?.to_string();
    Some(NamedNode {
        part,
        path,
        is_level,
    })
}

/// A node that was looked for.
struct LookedFor {
    named: NamedNode,
    /// The node; nothing as well if it does not read, which is told with the node.
    node: Option<Arc<NodeEntry>>,
    fault: Option<Finding>,
}

/// Looks for nodes side by side; that one is not there is a fault.
fn look_for(context: &CheckContext, group: &Key, named: Vec<NamedNode>) -> Vec<LookedFor> {
    let look = |named: NamedNode| {
        let node = key_of(group, &named.path).map(|key| context.hierarchy.node(&key));
        let found = match &node {
            Ok(Ok(Some(node))) if named.is_level && !node.is_array() && node.node().is_ok() => {
                Some("a group")
            }
            Ok(Ok(None)) | Err(_) => Some("nothing"),
            Ok(_) => None,
        };
        LookedFor {
            fault: found.map(|found| not_there(group, &named, found)),
            node: node.ok().and_then(Result::ok).flatten(),
            named,
        }
    };
    parallel_map(context.threads, named, &look)
}

/// Returns the key of a path that is counted from a group.
fn key_of(group: &Key, path: &str) -> Result<Key> {
    match (group.is_root(), path.trim_matches('/')) {
        (_, "" | ".") => Ok(group.clone()),
        (true, below) => Key::new(below),
        (false, below) => Key::new([group.as_bytes(), b"/", below.as_bytes()].concat()),
    }
}

fn not_there(group: &Key, named: &NamedNode, found: &str) -> Finding {
    let what = if named.is_level { "an array" } else { "a node" };
    let expected = format!("{what} at {:?}", named.path);
    let finding = Finding::error("image-path-missing", group, expected, found);
    finding.of_part(named.part.clone())
}

/// The levels of an image: arrays of as many dimensions as there are axes, from the largest to the smallest.
fn levels(context: &CheckContext, (group, part): (&Key, &str), image: &Value) -> Vec<Finding> {
    let datasets = items(image.get("datasets"));
    let named = datasets.iter().enumerate().map(|(number, dataset)| {
        let part = format!("{part}: datasets[{number}]");
        Some((named_node(part, dataset.get("path")?, true)?, dataset))
    });
    let (named, datasets): (Vec<_>, Vec<_>) = named.flatten().unzip();
    let mut found = Vec::new();
    let mut last = None;
    for (level, dataset) in look_for(context, group, named).into_iter().zip(datasets) {
        found.extend(level.fault);
        let Some(array) = level.node.as_ref().and_then(|node| node.array()) else {
            continue;
        };
        found.extend(axes(group, &level.named, image, array));
        found.extend(transformations(group, &level.named, dataset, array));
        let sides = array.shape.iter();
        let len = sides.fold(1_u64, |len, &side| len.saturating_mul(side));
        if last.replace(len).is_some_and(|last| len > last) {
            let expected = "levels from the largest to the smallest";
            let larger = "one that is larger than the level before";
            let finding = Finding::warning("image-levels-unordered", group, expected, larger);
            found.push(finding.of_part(level.named.part));
        }
    }
    found
}

/// The axes of an image against the dimensions of a level.
fn axes(group: &Key, named: &NamedNode, image: &Value, array: &Array) -> Option<Finding> {
    let axes = image.get("axes")?.as_array()?;
    let rank = array.shape.len();
    (axes.len() != rank).then(|| {
        let expected = format!("an array of {} dimensions, as there are axes", axes.len());
        let found = format!("{:?}, which has {rank}", named.path);
        Finding::error("image-axes-differ", group, expected, found).of_part(named.part.clone())
    })
}

/// The scales and translations of a level against its dimensions.
fn transformations(
    group: &Key,
    named: &NamedNode,
    dataset: &Value,
    array: &Array,
) -> Option<Finding> {
    let rank = array.shape.len();
    let list = dataset.get("coordinateTransformations")?.as_array()?;
    let numbers = list.iter().find_map(|transformation| {
        let name = ["scale", "translation"]
            .into_iter()
            .find(|name| transformation.get(name).is_some())?;
        let numbers = transformation.get(name)?.as_array()?;
        (numbers.len() != rank).then_some((name, numbers.len()))
    });
    numbers.map(|(name, count)| {
        let expected = format!("a {name} of {rank} numbers, one a dimension");
        let finding = Finding::error("image-axes-differ", group, expected, format!("{count}"));
        finding.of_part(named.part.clone())
    })
}
