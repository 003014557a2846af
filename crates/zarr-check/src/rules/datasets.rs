//! Checks the dimensions and CF attributes by which xarray opens a group as one dataset.
//!
//! In a dataset, dimensions of the same name must have the same length. The check passes nodes in the order of the
//! hierarchy, and the findings about a group are returned after the last node below it. The resolution levels of an
//! image have dimensions of the same names and different lengths, so groups with images are not checked.

use std::collections::{BTreeMap, HashSet};
use std::mem::take;

use serde_json::Value;

use crate::finding::Finding;
use crate::rules::documents::shortened;
use crate::spec::Spec;
use crate::walk::node::CheckedNode;
use zarr_format::model::{Array, DataType, Node};
use zarrfs_array::hierarchy::NodeEntry;
use zarrfs_export::formats::cf::times::unit_of;
use zarrfs_store::Key;

/// Maximum number of arrays of a group whose names are in memory. If a group has more, no missing array is reported,
/// and likewise if more than `MAX_NAMED` names are found in attributes.
const MAX_ARRAYS: usize = 10_000;
const MAX_NAMED: usize = 1000;

/// The groups that contain the current node, from the root down, each with its arrays found so far.
#[derive(Default)]
pub(crate) struct SiblingArrays {
    open: Vec<GroupArrays>,
    /// Whether the store can list names, so that all arrays of a group are known.
    are_all_known: bool,
}

/// The arrays that were found in a group, and the names of their dimensions.
struct GroupArrays {
    group: Key,
    is_image: bool,
    /// The dimensions of the group's arrays by name: at most 1000, each with at most 8 different lengths.
    dimensions: BTreeMap<String, Dimension>,
    /// The number of arrays with dimension names, and the first such array.
    named: u64,
    first_named: Option<Key>,
    /// Up to 100 arrays without dimension names. The flag is true for arrays of Zarr v3.
    unnamed: Vec<(Key, bool)>,
    /// Whether some array of the group is a coordinate: it has one dimension, and the dimension has the array's name.
    has_coordinates: bool,
    arrays: HashSet<Vec<u8>>,
    /// The names by which attributes of the group's arrays refer to other arrays.
    named_arrays: Vec<NamedArray>,
}

/// A reference to an array by its name, in an attribute of another array.
struct NamedArray {
    by: Key,
    attribute: &'static str,
    name: String,
}

/// A dimension that arrays of one group have in common.
#[derive(Default)]
struct Dimension {
    /// The lengths of the dimension, each with the first array that has it.
    lengths: BTreeMap<u64, Key>,
    has_coordinates: bool,
}

impl SiblingArrays {
    pub(crate) fn new(are_all_known: bool) -> SiblingArrays {
        SiblingArrays {
            open: Vec::new(),
            are_all_known,
        }
    }

    /// Adds the next node of the hierarchy. Returns the findings about the groups whose nodes have all been added.
    pub(crate) fn take(&mut self, node: &CheckedNode) -> Vec<Finding> {
        let mut findings = Vec::new();
        while let Some(last) = self
            .open
            .pop_if(|last| node.path.below(&last.group).is_none())
        {
            findings.extend(self.close(last));
        }
        let Some(entry) = &node.entry else {
            return findings;
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
        findings
    }

    /// Returns the findings about the remaining groups, after the last node.
    pub(crate) fn end(mut self) -> Vec<Finding> {
        let mut findings = Vec::new();
        while let Some(last) = self.open.pop() {
            findings.extend(self.close(last));
        }
        findings
    }

    /// Returns the findings about a group whose nodes are all known. References to arrays that are not in the group are
    /// passed to its parent group, since CF allows the arrays there.
    fn close(&mut self, mut group: GroupArrays) -> Vec<Finding> {
        let mut missing = group.missing_arrays();
        if let Some(above) = self.open.last_mut() {
            above.named_arrays.append(&mut missing);
        }
        let mut findings = group.findings();
        let missing = missing.iter().filter(|_| self.are_all_known);
        findings.extend(missing.map(NamedArray::missing));
        findings
    }
}

impl NamedArray {
    fn missing(&self) -> Finding {
        let NamedArray {
            by,
            attribute,
            name,
        } = self;
        let message = format!("{attribute} names the array {name:?}, which does not exist");
        let finding = Finding::warning("variable-missing", by, message);
        let remedy = "copy the array from another copy of the store, or remove its name";
        finding
            .with_part(*attribute)
            .with_remedy(remedy)
            .with_section(Spec::Cf.section("Attributes"))
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
            arrays: HashSet::new(),
            named_arrays: Vec::new(),
        }
    }

    /// Removes and returns the references in attributes to arrays that are not in the group.
    fn missing_arrays(&mut self) -> Vec<NamedArray> {
        let mut named = take(&mut self.named_arrays);
        if self.arrays.len() >= MAX_ARRAYS || named.len() >= MAX_NAMED {
            return Vec::new();
        }
        let group = &self.group;
        // If none of the referenced arrays is in the group, the attributes may not be CF attributes.
        let mut names = named.iter().map(|named| named.name.as_bytes());
        let is_dataset = self.has_coordinates || names.any(|name| self.arrays.contains(name));
        named.retain(|named| {
            let is_own = named.by.parent().as_ref() == Some(group);
            !self.arrays.contains(named.name.as_bytes()) && (is_dataset || !is_own)
        });
        named
    }

    fn add(&mut self, path: &Key, array: &Array) {
        let names = &array.dimension_names;
        if self.arrays.len() < MAX_ARRAYS {
            self.arrays.insert(path.name().to_vec());
        }
        if self.is_image || array.shape.is_empty() {
            return;
        }
        if names.iter().all(Option::is_none) {
            // A wrong `_ARRAY_DIMENSIONS` is reported for the array itself, so the array is not reported as one without
            // names.
            let attributes = &array.attributes;
            let is_reported =
                attributes.fault().is_some() || attributes.get("_ARRAY_DIMENSIONS").is_some();
            if !is_reported && self.unnamed.len() < 100 {
                self.unnamed.push((path.clone(), array.dialect == "v3"));
            }
            return;
        }
        let named_arrays = named_arrays(array).into_iter();
        let named_arrays = named_arrays.map(|(attribute, name)| NamedArray {
            by: path.clone(),
            attribute,
            name,
        });
        let free = MAX_NAMED.saturating_sub(self.named_arrays.len());
        self.named_arrays.extend(named_arrays.take(free));
        self.named += 1;
        self.first_named.get_or_insert_with(|| path.clone());
        let is_own = |name: &str| names.len() == 1 && path.name() == name.as_bytes();
        for (name, &length) in names.iter().zip(&array.shape) {
            let Some(name) = name else { continue };
            // A dimension name that occurs twice in an array is reported for the array itself.
            if names
                .iter()
                .flatten()
                .filter(|other| *other == name)
                .count()
                > 1
            {
                continue;
            }
            if self.dimensions.len() >= 1000 && !self.dimensions.contains_key(name) {
                continue;
            }
            let dimension = self.dimensions.entry(name.clone()).or_default();
            dimension.has_coordinates |= is_own(name);
            self.has_coordinates |= is_own(name);
            if dimension.lengths.len() < 8 {
                dimension.lengths.entry(length).or_insert(path.clone());
            }
        }
    }

    fn findings(self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (name, dimension) in &self.dimensions {
            findings.extend(self.lengths_differ(name, dimension));
        }
        let names_needed = self.named >= self.unnamed.len() as u64;
        for (path, is_v3) in self.unnamed.iter().filter(|_| self.named > 0) {
            let is_error = names_needed && (!is_v3 || self.has_coordinates);
            findings.extend(self.names_missing(path, *is_v3, is_error));
        }
        findings
    }

    /// Reports a dimension that has different lengths in different arrays. An interrupted append leaves such a group.
    fn lengths_differ(&self, name: &str, dimension: &Dimension) -> Option<Finding> {
        if dimension.lengths.len() < 2 {
            return None;
        }
        let lengths = dimension.lengths.iter().map(|(length, path)| {
            let array = String::from_utf8_lossy(path.name());
            format!("{array} has {length}")
        });
        let lengths: Vec<String> = lengths.collect();
        let message = format!(
            "the dimension {name} has different lengths ({}); xarray cannot open the group",
            lengths.join(", ")
        );
        let remedy = "if an append was interrupted, resize the longer arrays and append again";
        let finding = if dimension.has_coordinates {
            Finding::error("dimension-lengths-differ", &self.group, message)
        } else {
            Finding::warning("dimension-lengths-differ", &self.group, message)
        };
        let finding = finding.with_part(name).with_remedy(remedy);
        Some(finding.with_section(Spec::Xarray.section(ENCODING)))
    }

    /// Reports an array without dimension names in a group in which other arrays have them.
    fn names_missing(&self, path: &Key, is_v3: bool, is_error: bool) -> Option<Finding> {
        let (member, place) = if is_v3 {
            ("dimension_names", "zarr.json")
        } else {
            ("_ARRAY_DIMENSIONS", ".zattrs")
        };
        let other = self.first_named.as_ref()?.name();
        let message = format!(
            "{member} is missing, but {} has it; xarray cannot open the group",
            String::from_utf8_lossy(other)
        );
        let remedy = format!("add {member} to its {place}: a list with one name per dimension");
        let code = "dimension-names-missing";
        let finding = if is_error {
            Finding::error(code, path, message)
        } else {
            Finding::warning(code, path, message)
        };
        Some(
            finding
                .with_part(member)
                .with_remedy(remedy)
                .with_section(Spec::Xarray.section(ENCODING)),
        )
    }
}

const ENCODING: &str = "Zarr Encoding Specification";

/// Returns the faults in the attributes that decide how an array is decoded.
pub(crate) fn check(path: &Key, array: &Array) -> Vec<Finding> {
    let is_number = matches!(
        array.data_type,
        DataType::Int(_) | DataType::UInt(_) | DataType::Float(_)
    );
    if !is_number || !is_variable(array) {
        return dimension_names(path, array).into_iter().collect();
    }
    let packing = ["scale_factor", "add_offset"].into_iter();
    let packing = packing.filter_map(|name| packing_fault(path, array, name));
    let faults = packing.chain(time_fault(path, array));
    dimension_names(path, array)
        .into_iter()
        .chain(faults)
        .collect()
}

/// Whether xarray opens an array as a variable: it is a scalar, or one of its dimensions has a name.
fn is_variable(array: &Array) -> bool {
    array.shape.is_empty() || array.dimension_names.iter().any(Option::is_some)
}

/// Reports a `scale_factor` or an `add_offset` that is not a number.
fn packing_fault(path: &Key, array: &Array, name: &str) -> Option<Finding> {
    let value = array.attributes.get(name)?;
    let is_wrong = match &value {
        Value::String(_) => !array.attributes.is_beyond_json(name, &value),
        Value::Array(list) => list.len() > 1,
        _ => false,
    };
    if !is_wrong {
        return None;
    }
    let message = format!(
        "{name} is {}, but must be a number; xarray cannot open the array",
        shortened(&value)
    );
    let finding = Finding::error("attribute-invalid", path, message);
    let finding = finding.with_remedy("write the number without quotes");
    Some(
        finding
            .with_part(name)
            .with_section(Spec::Cf.section("Packed Data")),
    )
}

/// Reports `units` or a `calendar` by which xarray cannot decode times.
fn time_fault(path: &Key, array: &Array) -> Option<Finding> {
    let text = |name: &str| {
        let value = array.attributes.get(name)?;
        Some(value.as_str()?.to_string())
    };
    let units = text("units")?;
    let (unit, date) = units.split_once("since")?;
    let (unit, date) = (unit.trim().to_ascii_lowercase(), date.trim());
    let calendar = text("calendar").unwrap_or_default();
    let calendar = calendar.to_ascii_lowercase();
    let refused = "xarray opens the array only with decode_times=False";
    let fault = |name: &str, value: &str, what: &str, remedy: &str| {
        let message = format!("{name} is {value:?}, which is not a {what}; {refused}");
        let heading = if name == "units" {
            "Time Coordinate"
        } else {
            "Calendar"
        };
        let finding = Finding::error("attribute-invalid", path, message).with_remedy(remedy);
        Some(
            finding
                .with_part(name)
                .with_section(Spec::Cf.section(heading)),
        )
    };
    let is_calendar = matches!(
        calendar.as_str(),
        "" | "none"
            | "standard"
            | "gregorian"
            | "proleptic_gregorian"
            | "noleap"
            | "365_day"
            | "all_leap"
            | "366_day"
            | "360_day"
            | "julian"
            | "utc"
            | "tai"
    );
    if !is_calendar {
        let remedy = "use a CF calendar, such as \"standard\"";
        return fault("calendar", &calendar, "CF calendar", remedy);
    }
    let is_counted = match calendar.as_str() {
        "360_day" => unit.starts_with("month"),
        "noleap" | "365_day" => unit.starts_with("common_year"),
        _ => false,
    };
    // xarray does not decode times in these units, because the units have no fixed length.
    let units_of_no_length = ["week", "weeks", "month", "months", "year", "years"];
    if units_of_no_length.contains(&unit.as_str()) && !is_counted {
        let message = format!("units is {units:?}, but {unit} have no fixed length; {refused}");
        let finding = Finding::warning("attribute-invalid", path, message);
        let finding = finding.with_remedy("use days since the date");
        return Some(
            finding
                .with_part("units")
                .with_section(Spec::Cf.section("Time Coordinate")),
        );
    }
    let is_right = (is_counted || unit_of(&unit).is_some()) && is_like_date(date);
    if is_right {
        return None;
    }
    let remedy = "use the form \"days since 2000-01-01\"";
    fault("units", &units, "time unit since a date", remedy)
}

/// Whether a text may begin with a date. Returns false only if no reader would accept the text as a date.
fn is_like_date(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let day = text.split([' ', 't', '_', ',']).next().unwrap_or_default();
    let is_worded = day.bytes().any(|byte| byte.is_ascii_alphabetic());
    // Readers use only the first three letters of a month's name.
    let mut months = [
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ]
    .into_iter();
    let has_month = months.any(|month| text.contains(month));
    if (is_worded && !has_month) || !text.bytes().any(|byte| byte.is_ascii_digit()) {
        return false;
    }
    let parts: Vec<Option<u32>> = day.split('-').map(|part| part.parse().ok()).collect();
    match parts.as_slice() {
        [Some(_), Some(month), Some(date)] if day.find('-') == Some(4) => {
            (1..=12).contains(month) && (1..=31).contains(date)
        }
        _ => true,
    }
}

/// Returns the references of an array to other arrays: each is an attribute and one of the names in its value.
fn named_arrays(array: &Array) -> Vec<(&'static str, String)> {
    let mut named = Vec::new();
    for name in [
        "bounds",
        "climatology",
        "coordinates",
        "grid_mapping",
        "ancillary_variables",
    ] {
        let value = array.attributes.get(name);
        let Some(text) = value.as_ref().and_then(Value::as_str) else {
            continue;
        };
        let words = text
            .split_whitespace()
            .map(|word| word.trim_end_matches(':'));
        // A path refers to an array of another group, so it is not checked here.
        let words = words.filter(|word| !word.is_empty() && !word.contains('/'));
        named.extend(words.map(|word| (name, word.to_string())));
    }
    named
}

/// Checks the attribute `_ARRAY_DIMENSIONS`, in which xarray stores dimension names in Zarr v2.
fn dimension_names(path: &Key, array: &Array) -> Option<Finding> {
    let name = "_ARRAY_DIMENSIONS";
    let names = array
        .attributes
        .get(name)
        .filter(|_| array.dialect == "v2")?;
    let rank = array.shape.len();
    let list = names.as_array();
    if list.is_some_and(|list| list.len() == rank && list.iter().all(Value::is_string)) {
        return None;
    }
    let message = format!(
        "{name} is {}, but must be a list of {rank} names, one per dimension",
        shortened(&names)
    );
    let finding = Finding::warning("attribute-invalid", path, message);
    let finding = finding.with_section(Spec::Xarray.section(ENCODING));
    Some(finding.with_part(name))
}
