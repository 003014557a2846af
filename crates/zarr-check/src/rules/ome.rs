//! Checks the attributes of OME-Zarr images, labels, plates and wells.
//!
//! A path in an attribute is relative to the node that has the attribute. Findings cite the specification of OME-Zarr
//! 0.5 if the attributes are in `ome`, and that of 0.4 otherwise.

use std::sync::Arc;

use serde_json::Value;

use crate::context::CheckContext;
use crate::finding::Finding;
use crate::rules::documents::shortened;
use crate::rules::key_of;
use crate::spec::{Spec, SpecSection};
use zarr_format::error::Result;
use zarr_format::model::{Array, Attributes};
use zarrfs_array::hierarchy::NodeEntry;
use zarrfs_store::Key;
use zarrfs_store::request_context::UNLIMITED;
use zarrfs_store::sync::pool::parallel_map;

/// A node to which an attribute refers by its path.
struct NamedNode {
    /// The attribute that contains the path of the node, and the position of the path in it.
    part: String,
    path: String,
    is_level: bool,
    section: SpecSection,
}

/// The check of one group's attributes by the version of OME-Zarr that they follow.
struct ImageCheck<'a> {
    context: &'a CheckContext,
    group: &'a Key,
    spec: Spec,
    /// The text before names of attributes in findings, such as `ome: `.
    prefix: &'static str,
}

/// Checks the images, labels, plates and wells in the attributes of a group: whether the nodes that the attributes
/// refer to exist, and whether the resolution levels of images are valid.
pub(crate) fn check(
    context: &CheckContext,
    entry: &NodeEntry,
    attributes: &Attributes,
) -> Vec<Finding> {
    let outer = attributes.get("ome");
    let (outer, prefix, spec) = match &outer {
        Some(ome) if ome.is_object() => (Some(ome), "ome: ", Spec::Ome05),
        _ => (None, "", Spec::Ome04),
    };
    let check = ImageCheck {
        context,
        group: &entry.path,
        spec,
        prefix,
    };
    let member = |name: &str| match outer {
        Some(ome) => ome.get(name).cloned(),
        None => attributes.get(name),
    };
    let mut findings = Vec::new();
    findings.extend(outer.and_then(|ome| version_fault(entry, ome)));
    for (number, image) in items(member("multiscales").as_ref()).iter().enumerate() {
        let part = format!("{prefix}multiscales[{number}]");
        findings.extend(check.levels(&part, image));
    }
    findings.extend(check.wells(member("plate").as_ref()));
    let named = [
        check.labels(member("labels").as_ref()),
        check.listed("plate metadata", "plate", "wells", member("plate").as_ref()),
        check.listed("well metadata", "well", "images", member("well").as_ref()),
    ];
    let named = named.into_iter().flatten().collect();
    let nodes = check.look_up(named).into_iter();
    findings.extend(nodes.filter_map(|node| node.fault));
    findings
}

/// The heading under which the specifications of OME-Zarr describe the resolution levels of images.
const MULTISCALES: &str = "multiscales metadata";

fn items(list: Option<&Value>) -> Vec<Value> {
    list.and_then(Value::as_array).cloned().unwrap_or_default()
}

/// The result of looking up a node to which an attribute refers.
struct FoundNode {
    named: NamedNode,
    /// The node, or `None` if it is missing or cannot be read. `fault` reports a missing node; an unreadable node is
    /// reported when the check reaches it.
    node: Option<Arc<NodeEntry>>,
    fault: Option<Finding>,
}

impl ImageCheck<'_> {
    fn named_node(&self, part: String, heading: &'static str, path: &Value) -> Option<NamedNode> {
        Some(NamedNode {
            part,
            path: path.as_str()?.to_string(),
            is_level: heading == MULTISCALES,
            section: self.spec.section(heading),
        })
    }

    /// Returns the label images to which the attribute `labels` of a group refers.
    fn labels(&self, labels: Option<&Value>) -> Vec<NamedNode> {
        if self.group.name() != b"labels" {
            return Vec::new();
        }
        let labels = items(labels).into_iter().enumerate();
        let named = labels.filter_map(|(number, label)| {
            self.named_node(
                format!("{}labels[{number}]", self.prefix),
                "labels metadata",
                &label,
            )
        });
        named.collect()
    }

    /// Returns the wells of a plate or the images of a well, to which an attribute refers.
    fn listed(
        &self,
        heading: &'static str,
        name: &str,
        list: &str,
        members: Option<&Value>,
    ) -> Vec<NamedNode> {
        let listed = items(members.and_then(|members| members.get(list)));
        let named = listed.iter().enumerate().filter_map(|(number, item)| {
            let part = format!("{}{name}: {list}[{number}]", self.prefix);
            self.named_node(part, heading, item.get("path")?)
        });
        named.collect()
    }

    /// Looks up nodes in parallel, and reports those that are missing.
    fn look_up(&self, named: Vec<NamedNode>) -> Vec<FoundNode> {
        let look_up = |named: NamedNode| {
            let node = key_of(self.group, &named.path)
                .map(|key| self.context.hierarchy.node(&UNLIMITED, &key));
            let problem = match &node {
                Ok(Ok(Some(node))) if named.is_level && !node.is_array() && node.node().is_ok() => {
                    Some("is a group, not an array")
                }
                Ok(Ok(None)) | Err(_) => Some("does not exist"),
                Ok(_) => None,
            };
            FoundNode {
                fault: problem.map(|problem| self.missing_node(&named, problem)),
                node: node.ok().and_then(Result::ok).flatten(),
                named,
            }
        };
        parallel_map(self.context.threads, named, &look_up)
    }

    fn missing_node(&self, named: &NamedNode, problem: &str) -> Finding {
        let (part, path) = (&named.part, &named.path);
        let message = format!("{part} names {path:?}, which {problem}");
        let finding = Finding::error("image-path-missing", self.group, message);
        named.annotate(
            finding.with_remedy(
                "copy it from another copy of the store, or remove it from the attribute",
            ),
        )
    }

    /// Checks the resolution levels of an image: they must be arrays with one dimension per axis, in descending order
    /// of size.
    fn levels(&self, part: &str, image: &Value) -> Vec<Finding> {
        let datasets = items(image.get("datasets"));
        let named = datasets.iter().enumerate().map(|(number, dataset)| {
            let part = format!("{part}: datasets[{number}]");
            let named = self.named_node(part, MULTISCALES, dataset.get("path")?)?;
            Some((named, dataset))
        });
        let (named, datasets): (Vec<_>, Vec<_>) = named.flatten().unzip();
        let mut findings: Vec<Finding> =
            self.unnamed(part, image, named.len()).into_iter().collect();
        let mut last = None;
        let (mut scales, mut axes, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        for (level, dataset) in self.look_up(named).into_iter().zip(datasets) {
            findings.extend(level.fault);
            scales.extend(self.scale(&level.named, image, dataset));
            let Some(array) = level.node.as_ref().and_then(|node| node.array()) else {
                continue;
            };
            axes.extend(self.axes(&level.named, image, array));
            numbers.extend(self.transformations(&level.named, dataset, array));
            let sides = array.shape.iter();
            let len = sides.fold(1_u64, |len, &side| len.saturating_mul(side));
            if last.replace(len).is_some_and(|last| len > last) {
                let message = format!(
                    "{} is larger than the previous level, but levels must shrink",
                    level.named.part
                );
                let finding = Finding::warning("image-levels-unordered", self.group, message);
                findings.push(level.named.annotate(finding));
            }
        }
        let alike = [scales, axes, numbers].into_iter().filter_map(merge_alike);
        findings.extend(alike);
        findings
    }

    /// Reports an image without resolution levels, or with a level without a path. `named` is the number of levels with
    /// a path.
    fn unnamed(&self, part: &str, image: &Value, named: usize) -> Option<Finding> {
        let datasets = image.as_object()?.get("datasets");
        let is_right =
            |datasets: &Value| datasets.as_array().is_some_and(|list| list.len() == named);
        if datasets.is_some_and(is_right) {
            return None;
        }
        let stored = datasets.map_or("missing".to_string(), shortened);
        let message =
            format!("{part}: datasets is {stored}, but must be a list of objects with \"path\"");
        let finding = Finding::error("attribute-invalid", self.group, message);
        Some(
            finding
                .with_part(format!("{part}: datasets"))
                .with_section(self.spec.section(MULTISCALES)),
        )
    }

    /// Checks that the axes of an image match the dimensions of a resolution level in number and, if the dimensions
    /// have names, in name.
    fn axes(&self, named: &NamedNode, image: &Value, array: &Array) -> Option<Finding> {
        let axes = axes_of(image)?;
        let rank = array.shape.len();
        let path = &named.path;
        let (message, remedy) = if axes.len() == rank {
            let names: Vec<Option<&str>> = axes.iter().map(name_of_axis).collect();
            let own: Vec<Option<&str>> =
                array.dimension_names.iter().map(Option::as_deref).collect();
            let is_named = self.spec == Spec::Ome05 && array.dialect == "v3" && !own.is_empty();
            if !is_named || own == names {
                return None;
            }
            let message = format!(
                "the axes of the image are {}, but the dimensions of {path:?} are {}",
                list_names(&names),
                list_names(&own)
            );
            (message, "use the same names in the same order")
        } else {
            let message = format!(
                "the image has {} axes, but {path:?} has {rank} dimensions",
                axes.len()
            );
            (message, "use one axis per dimension")
        };
        let finding = Finding::error("image-axes-differ", self.group, message).with_remedy(remedy);
        Some(
            named
                .annotate(finding)
                .with_section(self.spec.section("axes metadata")),
        )
    }

    /// Reports a resolution level without a scale. OME-Zarr demands it since 0.4, since only the scale states the size
    /// of a pixel.
    fn scale(&self, named: &NamedNode, image: &Value, dataset: &Value) -> Option<Finding> {
        let version = image.get("version").and_then(Value::as_str);
        let is_older = match version.filter(|_| self.spec == Spec::Ome04) {
            Some(version) => matches!(version, "0.1" | "0.2" | "0.3"),
            // The image has no version, but the axes of images before 0.4 are only names.
            None => {
                self.spec == Spec::Ome04
                    && axes_of(image).is_none_or(|axes| !axes.iter().any(Value::is_object))
            }
        };
        let list = dataset.get("coordinateTransformations");
        let is_placing = |one: &Value| {
            let kind = one.get("type").and_then(Value::as_str).unwrap_or_default();
            !["", "translation"].contains(&kind)
        };
        let steps = list.and_then(Value::as_array);
        if is_older || steps.is_some_and(|list| list.iter().any(is_placing)) {
            return None;
        }
        let part = format!("{}: coordinateTransformations", named.part);
        let stored = list.map_or("missing".to_string(), |list| {
            format!("{}, which has no scale", shortened(list))
        });
        let message = format!("{part} is {stored}; no reader knows the pixel size");
        let remedy = "add {\"type\": \"scale\", \"scale\": [one number per axis]} to it";
        let finding = Finding::error("attribute-invalid", self.group, message).with_remedy(remedy);
        Some(
            finding
                .with_part(part)
                .with_section(self.spec.section(MULTISCALES)),
        )
    }

    /// Reports scales and translations of a resolution level that do not have one number per dimension.
    fn transformations(
        &self,
        named: &NamedNode,
        dataset: &Value,
        array: &Array,
    ) -> Option<Finding> {
        let rank = array.shape.len();
        let list = dataset.get("coordinateTransformations")?.as_array()?;
        let within = |one: &'_ Value| items(one.get("transformations"));
        let mut list: Vec<Value> = list.clone();
        list.extend(list.iter().flat_map(within).collect::<Vec<_>>());
        if let Some(fault) = self.no_scale(named, &list) {
            return Some(fault);
        }
        let numbers = list.iter().find_map(|transformation| {
            let name = ["scale", "translation"]
                .into_iter()
                .find(|name| transformation.get(name).is_some())?;
            let numbers = transformation.get(name)?.as_array()?;
            (numbers.len() != rank).then_some((name, numbers.len()))
        });
        numbers.map(|(name, count)| {
            let message = format!(
                "the {name} of {:?} has {count} numbers, but the array has {rank} dimensions",
                named.path
            );
            let remedy = format!("use one number per dimension in the {name}");
            let finding = Finding::error("image-axes-differ", self.group, message);
            named.annotate(finding.with_remedy(remedy))
        })
    }

    /// Reports a scale of a resolution level that contains 0 or a value that is not a number.
    fn no_scale(&self, named: &NamedNode, list: &[Value]) -> Option<Finding> {
        let scales = list.iter().filter_map(|one| one.get("scale"));
        scales.into_iter().find_map(|scale| {
            let numbers = scale.as_array()?;
            let is_number = numbers.iter().all(Value::is_number);
            if is_number && numbers.iter().all(|number| number.as_f64() != Some(0.0)) {
                return None;
            }
            let message = format!("the scale of {:?} is {}", named.path, shortened(scale));
            let finding = if is_number {
                let message = format!("{message}; pixels cannot have size 0");
                Finding::warning("attribute-invalid", self.group, message)
            } else {
                let message = format!("{message}, but must be a list of numbers");
                Finding::error("attribute-invalid", self.group, message)
            };
            Some(named.annotate(finding.with_remedy("use the pixel size along each axis")))
        })
    }

    /// Reports wells of a plate whose row or column number does not match the well's path.
    fn wells(&self, plate: Option<&Value>) -> Vec<Finding> {
        let plate = plate.unwrap_or(&Value::Null);
        let wells = items(plate.get("wells")).into_iter().enumerate();
        let faults = wells.filter_map(|(number, well)| {
            let mut names = well.get("path")?.as_str()?.split('/');
            let parts = [("rows", "rowIndex"), ("columns", "columnIndex")].map(|(list, index)| {
                let name = names.next()?;
                let mut known = plate.get(list)?.as_array()?.iter();
                let right = known.position(|one| one["name"] == name)?;
                let stated = well.get(index)?.as_u64()?;
                (stated != right as u64).then_some((index, stated, right))
            });
            let (index, stated, right) = parts.into_iter().flatten().next()?;
            let part = format!("{}plate: wells[{number}]", self.prefix);
            let message = format!("{part}: {index} is {stated}, but its path names number {right}");
            let finding = Finding::warning("attribute-invalid", self.group, message);
            let finding = finding.with_remedy(format!("set {index} to {right}"));
            Some(
                finding
                    .with_part(part)
                    .with_section(self.spec.section("plate metadata")),
            )
        });
        faults.collect()
    }
}

impl NamedNode {
    /// Sets the attribute of a finding, and the section of the specification that defines the attribute.
    fn annotate(&self, finding: Finding) -> Finding {
        finding
            .with_part(self.part.clone())
            .with_section(self.section)
    }
}

/// Merges findings about resolution levels with the same fault into the first one, whose message tells the number of
/// the others.
fn merge_alike(alike: Vec<Finding>) -> Option<Finding> {
    let more = alike.len().saturating_sub(1);
    let mut first = alike.into_iter().next()?;
    match more {
        0 => {}
        1 => first.message.push_str("; the same for another level"),
        _ => first
            .message
            .push_str(&format!("; the same for {more} other levels")),
    }
    Some(first)
}

/// Returns the axes of an OME-Zarr image. Since version 0.6, they are those of its first coordinate system.
fn axes_of(image: &Value) -> Option<&Vec<Value>> {
    let systems = image.get("coordinateSystems").and_then(Value::as_array);
    let first = systems.and_then(|systems| systems.first()?.get("axes"));
    image.get("axes").or(first)?.as_array()
}

/// Reports an attribute `ome` without a valid version, or in a Zarr v2 store. OME-Zarr 0.5 introduced the attribute for
/// Zarr v3.
fn version_fault(entry: &NodeEntry, ome: &Value) -> Option<Finding> {
    let names = ["version", "multiscales", "plate", "well", "labels"];
    let is_ome = names.iter().any(|name| ome.get(name).is_some());
    let version = ome.get("version").filter(|_| is_ome);
    // Groups of labels and wells may lack the version, because readers do not need it there and some writers leave it
    // out.
    let needs_version = ["multiscales", "plate"]
        .iter()
        .any(|name| ome.get(name).is_some());
    if needs_version && version.is_none() && entry.dialect() == Some("v3") {
        let message = "the attribute ome has no version; readers cannot tell how to read it";
        let finding = Finding::error("attribute-invalid", &entry.path, message);
        let finding = finding.with_remedy("add \"version\": \"0.5\" to it");
        return Some(
            finding
                .with_part("ome: version")
                .with_section(Spec::Ome05.section("OME-Zarr Metadata")),
        );
    }
    let stated = version.map_or("0.5".to_string(), |version| {
        version.as_str().map_or(shortened(version), str::to_string)
    });
    let (part, message, remedy) = if is_ome && entry.dialect() == Some("v2") {
        let message =
            format!("the attribute ome of OME-Zarr {stated} needs Zarr v3, but this is Zarr v2");
        let remedy =
            "move its members out of ome and set version 0.4, or convert the store to Zarr v3";
        ("ome", message, remedy)
    } else {
        let version = version?;
        let first = version.as_str().and_then(|version| {
            // In the version of a pre-release, letters follow the numbers: 0.6.dev3, 0.6rc0.
            let mut numbers = version.split(['.', '-']).map(|part| {
                let end = part.find(|letter: char| !letter.is_ascii_digit());
                part.get(..end.unwrap_or(part.len()))?.parse::<u32>().ok()
            });
            Some((numbers.next()??, numbers.next()??))
        });
        if first.is_some_and(|first| first >= (0, 5)) {
            return None;
        }
        let message = format!(
            "ome: version is {}, but must be \"0.5\" or later: earlier versions have no ome",
            shortened(version)
        );
        (
            "ome: version",
            message,
            "set \"0.5\" if the members follow OME-Zarr 0.5",
        )
    };
    let finding = Finding::error("attribute-invalid", &entry.path, message).with_remedy(remedy);
    Some(
        finding
            .with_part(part)
            .with_section(Spec::Ome05.section("OME-Zarr Metadata")),
    )
}

fn name_of_axis(axis: &Value) -> Option<&str> {
    axis.get("name")?.as_str()
}

fn list_names(names: &[Option<&str>]) -> String {
    let names: Vec<&str> = names.iter().map(|name| name.unwrap_or("none")).collect();
    names.join(", ")
}
