//! Attributes that have a meaning by convention: the names of dimensions in v2, and images of OME-Zarr.
//!
//! A path that an attribute has is that of a node, counted from the node whose attribute it is. What is said of an image
//! names the text of OME-Zarr that has its attributes where they are: beside others, or in one of their own.

use std::sync::Arc;

use serde_json::Value;

use crate::check::context::CheckContext;
use crate::check::finding::{Finding, OME_0_4, OME_0_5, SpecSection, XARRAY, section};
use crate::error::Result;
use crate::hierarchy::NodeEntry;
use crate::model::{Array, Attributes, Node};
use crate::request_context::UNLIMITED;
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
    let finding = finding.by(XARRAY, "Zarr Encoding Specification");
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
    /// The text that has such an attribute.
    section: SpecSection,
}

/// What is looked at of an image: the group, and which text its attributes are of.
struct ImageCheck<'a> {
    context: &'a CheckContext,
    group: &'a Key,
    document: &'static str,
}

/// Images, labels, plates and wells of OME-Zarr: the nodes that they name, and the levels of images.
fn image(context: &CheckContext, path: &Key, attributes: &Attributes) -> Vec<Finding> {
    let outer = attributes.get("ome");
    let (outer, prefix, document) = match &outer {
        Some(ome) if ome.is_object() => (Some(ome), "ome: ", OME_0_5),
        _ => (None, "", OME_0_4),
    };
    let check = ImageCheck {
        context,
        group: path,
        document,
    };
    let member = |name: &str| match outer {
        Some(ome) => ome.get(name).cloned(),
        None => attributes.get(name),
    };
    let mut found = Vec::new();
    for (number, image) in items(member("multiscales").as_ref()).iter().enumerate() {
        let part = format!("{prefix}multiscales[{number}]");
        found.extend(check.levels(&part, image));
    }
    let named = [
        check.labels(prefix, member("labels").as_ref()),
        check.listed(prefix, (PLATE, "plate", "wells"), member("plate").as_ref()),
        check.listed(prefix, (WELL, "well", "images"), member("well").as_ref()),
    ];
    let named = named.into_iter().flatten().collect();
    let looked_for = check.look_for(named).into_iter();
    found.extend(looked_for.filter_map(|looked_for| looked_for.fault));
    found
}

/// The headings of the texts, which both versions have.
const MULTISCALES: &str = "multiscales metadata";
const AXES: &str = "axes metadata";
const LABELS: &str = "labels metadata";
const PLATE: &str = "plate metadata";
const WELL: &str = "well metadata";

fn items(list: Option<&Value>) -> Vec<Value> {
    list.and_then(Value::as_array).cloned().unwrap_or_default()
}

/// A node that was looked for.
struct LookedFor {
    named: NamedNode,
    /// The node; nothing as well if it does not read, which is told with the node.
    node: Option<Arc<NodeEntry>>,
    fault: Option<Finding>,
}

/// Returns the key of a path that is counted from a group.
fn key_of(group: &Key, path: &str) -> Result<Key> {
    match (group.is_root(), path.trim_matches('/')) {
        (_, "" | ".") => Ok(group.clone()),
        (true, below) => Key::new(below),
        (false, below) => Key::new([group.as_bytes(), b"/", below.as_bytes()].concat()),
    }
}

impl ImageCheck<'_> {
    fn named_node(
        &self,
        (part, heading): (String, &'static str),
        path: &Value,
    ) -> Option<NamedNode> {
        Some(NamedNode {
            part,
            path: path.as_str()?.to_string(),
            is_level: heading == MULTISCALES,
            section: section(self.document, heading),
        })
    }

    /// The images that a group of labels names.
    fn labels(&self, prefix: &str, labels: Option<&Value>) -> Vec<NamedNode> {
        if self.group.name() != b"labels" {
            return Vec::new();
        }
        let labels = items(labels).into_iter().enumerate();
        let named = labels.filter_map(|(number, label)| {
            self.named_node((format!("{prefix}labels[{number}]"), LABELS), &label)
        });
        named.collect()
    }

    /// The wells of a plate, or the images of a well.
    fn listed(
        &self,
        prefix: &str,
        (heading, name, list): (&'static str, &str, &str),
        members: Option<&Value>,
    ) -> Vec<NamedNode> {
        let listed = items(members.and_then(|members| members.get(list)));
        let named = listed.iter().enumerate().filter_map(|(number, item)| {
            let part = format!("{prefix}{name}: {list}[{number}]");
            self.named_node((part, heading), item.get("path")?)
        });
        named.collect()
    }

    /// Looks for nodes side by side; that one is not there is a fault.
    fn look_for(&self, named: Vec<NamedNode>) -> Vec<LookedFor> {
        let look = |named: NamedNode| {
            let node = key_of(self.group, &named.path)
                .map(|key| self.context.hierarchy.node(&UNLIMITED, &key));
            let found = match &node {
                Ok(Ok(Some(node))) if named.is_level && !node.is_array() && node.node().is_ok() => {
                    Some("a group")
                }
                Ok(Ok(None)) | Err(_) => Some("nothing"),
                Ok(_) => None,
            };
            LookedFor {
                fault: found.map(|found| self.not_there(&named, found)),
                node: node.ok().and_then(Result::ok).flatten(),
                named,
            }
        };
        parallel_map(self.context.threads, named, &look)
    }

    fn not_there(&self, named: &NamedNode, found: &str) -> Finding {
        let what = if named.is_level { "an array" } else { "a node" };
        let expected = format!("{what} at {:?}", named.path);
        let finding = Finding::error("image-path-missing", self.group, expected, found);
        named.tell(finding)
    }

    /// The levels of an image: arrays of as many dimensions as there are axes, from the largest to the smallest.
    fn levels(&self, part: &str, image: &Value) -> Vec<Finding> {
        let datasets = items(image.get("datasets"));
        let named = datasets.iter().enumerate().map(|(number, dataset)| {
            let part = format!("{part}: datasets[{number}]");
            let named = self.named_node((part, MULTISCALES), dataset.get("path")?)?;
            Some((named, dataset))
        });
        let (named, datasets): (Vec<_>, Vec<_>) = named.flatten().unzip();
        let mut found: Vec<Finding> = self.unnamed(part, image, named.len()).into_iter().collect();
        let mut last = None;
        for (level, dataset) in self.look_for(named).into_iter().zip(datasets) {
            found.extend(level.fault);
            let Some(array) = level.node.as_ref().and_then(|node| node.array()) else {
                continue;
            };
            found.extend(self.axes(&level.named, image, array));
            found.extend(self.transformations(&level.named, dataset, array));
            let sides = array.shape.iter();
            let len = sides.fold(1_u64, |len, &side| len.saturating_mul(side));
            if last.replace(len).is_some_and(|last| len > last) {
                let expected = "levels from the largest to the smallest";
                let larger = "one that is larger than the level before";
                let finding =
                    Finding::warning("image-levels-unordered", self.group, expected, larger);
                found.push(level.named.tell(finding));
            }
        }
        found
    }

    /// An image without levels, or with one that has no path: `named` have one.
    fn unnamed(&self, part: &str, image: &Value, named: usize) -> Option<Finding> {
        let datasets = image.as_object()?.get("datasets");
        let is_right =
            |datasets: &Value| datasets.as_array().is_some_and(|list| list.len() == named);
        if datasets.is_some_and(is_right) {
            return None;
        }
        let found = datasets.map_or("no such member".to_string(), shown);
        let expected = "a list of levels, each an object with \"path\"";
        let finding = Finding::error("attribute-invalid", self.group, expected, found);
        Some(
            finding
                .of_part(format!("{part}: datasets"))
                .by(self.document, MULTISCALES),
        )
    }

    /// The axes of an image against the dimensions of a level, and against their names where it has some.
    fn axes(&self, named: &NamedNode, image: &Value, array: &Array) -> Option<Finding> {
        let axes = image.get("axes")?.as_array()?;
        let rank = array.shape.len();
        let (expected, found) = if axes.len() == rank {
            let names: Vec<Option<&str>> = axes.iter().map(name_of_axis).collect();
            let own: Vec<Option<&str>> =
                array.dimension_names.iter().map(Option::as_deref).collect();
            let is_named = self.document == OME_0_5 && array.dialect == "v3" && !own.is_empty();
            if !is_named || own == names {
                return None;
            }
            (
                format!(
                    "dimensions with the names of the axes, {}",
                    in_words(&names)
                ),
                in_words(&own),
            )
        } else {
            let expected = format!("an array of {} dimensions, as there are axes", axes.len());
            (expected, format!("{:?}, which has {rank}", named.path))
        };
        let finding = Finding::error("image-axes-differ", self.group, expected, found);
        Some(named.tell(finding).by(self.document, AXES))
    }

    /// The scales and translations of a level against its dimensions.
    fn transformations(
        &self,
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
            let finding = Finding::error(
                "image-axes-differ",
                self.group,
                expected,
                format!("{count}"),
            );
            named.tell(finding)
        })
    }
}

impl NamedNode {
    /// Says which attribute a finding is about, and which text has it.
    fn tell(&self, finding: Finding) -> Finding {
        let SpecSection { document, heading } = self.section;
        finding.of_part(self.part.clone()).by(document, heading)
    }
}

fn name_of_axis(axis: &Value) -> Option<&str> {
    axis.get("name")?.as_str()
}

fn in_words(names: &[Option<&str>]) -> String {
    let names: Vec<&str> = names.iter().map(|name| name.unwrap_or("none")).collect();
    names.join(", ")
}
