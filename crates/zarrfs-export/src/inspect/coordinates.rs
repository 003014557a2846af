//! Reads coordinate variables, and resolves selections by dimension names and labels.
//!
//! The coordinate variable of a dimension is the array with the dimension's name in the group of the array, or in the
//! nearest group above. It must have one dimension of the same length. All of its values are read, but only if a
//! selection names the dimension or if the file is a map.

use std::num::NonZero;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;

use crate::formats::axes::axes_of;
use crate::formats::cf::times::{Calendar, unit_of};
use crate::formats::cf::{CountedTimes, NoValues};
use crate::formats::elements::{float, integer, text, unpadded};
use crate::formats::group::read_all;
use crate::formats::maps::coordinate_variable::{CoordinateMeaning, Line};
use crate::formats::{Export, FileParts, Subject, cf};
use crate::inspect::companions::{NamedDimension, find_coordinate_variable};
use crate::inspect::labels::Labels;
use crate::inspect::selection::SelectableDimensions;
use crate::inspect::surrounding_nodes::SurroundingNodes;
use zarr_format::error::{Error, Kind, Result};
use zarr_format::grid::{Region, Selection};
use zarr_format::model::{Array, DataType, TimeUnit};
use zarrfs_array::array::{Arrays, OpenArray};
use zarrfs_array::hierarchy::{Hierarchy, NodeEntry};
use zarrfs_store::Key;
use zarrfs_store::request_context::RequestContext;

/// An array, with the hierarchy in which the coordinate variables are found.
pub struct ArrayInGroup<'a> {
    /// The hierarchy that contains the array.
    pub hierarchy: &'a Hierarchy,
    /// The opened arrays of the hierarchy.
    pub arrays: &'a Arrays,
    /// The metadata node of the array.
    pub entry: &'a Arc<NodeEntry>,
}

/// Maximum size in bytes, and maximum number of elements, of a coordinate variable that is read. Each label takes at
/// most 32 bytes of memory in addition to its text.
const MAX_LABELS: u64 = 16 << 20;
const MAX_COUNT: u64 = 2 << 20;

/// Whether a selection may name dimensions, so that coordinate variables must be read.
pub fn names_dimensions(selection: &str) -> bool {
    selection.contains('=')
}

impl ArrayInGroup<'_> {
    /// Parses a selection of the array's elements. Fails with `Invalid` if the selection has no meaning for the array.
    pub fn select(&self, context: &RequestContext, text: &str) -> Result<Selection> {
        self.selected(context, text, false)
    }

    /// Parses a selection for a file that includes coordinate variables. In such a file, a date that is coarser than
    /// the labels selects a slice, so that the time dimension stays.
    pub fn select_with_coordinates(
        &self,
        context: &RequestContext,
        text: &str,
    ) -> Result<Selection> {
        self.selected(context, text, true)
    }

    fn selected(
        &self,
        context: &RequestContext,
        text: &str,
        has_slices_of_dates: bool,
    ) -> Result<Selection> {
        let array = self.array()?;
        let around = if names_dimensions(text) {
            SurroundingNodes::of(context, self.hierarchy, self.entry)?
        } else {
            SurroundingNodes::default()
        };
        let subject = Subject {
            around: around.attributes(),
            name: self.entry.path.name(),
            ..Subject::alone(array, &array.shape)
        };
        let axes = axes_of(&subject).into_iter();
        let names: Vec<Option<String>> = axes.map(|axis| axis.name).collect();
        let dimensions = SelectableDimensions {
            shape: &array.shape,
            names: &names,
            labels: &|axis| {
                self.labels(
                    context,
                    names.get(axis).cloned().flatten(),
                    array.shape[axis],
                )
            },
            has_slices_of_dates,
        };
        dimensions.select(text)
    }

    fn array(&self) -> Result<&Array> {
        let not_array = || Error::invalid(&self.entry.path, "is not an array");
        self.entry.array().ok_or_else(not_array)
    }

    /// Reads the labels of a dimension, or returns `None` if it has no coordinate variable.
    fn labels(
        &self,
        context: &RequestContext,
        name: Option<String>,
        length: u64,
    ) -> Result<Option<Labels>> {
        let (Some(name), Some(group)) = (name, self.entry.path.parent()) else {
            return Ok(None);
        };
        let dimension = NamedDimension {
            name: &name,
            length,
        };
        let found = find_coordinate_variable(context, self.hierarchy, &group, dimension)?;
        let Some((node, array)) = found.as_ref().and_then(|node| Some((node, node.array()?)))
        else {
            return Ok(None);
        };
        let open = self.arrays.open(node)?;
        read(context, &open, array).map(Some)
    }
}

/// Fails with `TooLarge` if a coordinate variable exceeds the limits of what is read. The limits do not depend on
/// memory, so that the same files exist on every machine.
pub(super) fn check_length(path: &Key, array: &Array) -> Result<()> {
    if array.shape.first().is_some_and(|&count| count > MAX_COUNT) {
        let found = format!(
            "a coordinate variable with more than {MAX_COUNT} elements is too large for labels"
        );
        return Err(Error::too_large(path, found));
    }
    if !array.data_type.is_variable() && array.byte_length()? > MAX_LABELS {
        let found = format!(
            "a coordinate variable with more than {MAX_LABELS} bytes is too large for labels"
        );
        return Err(Error::too_large(path, found));
    }
    Ok(())
}

/// Reads the values of a coordinate variable as labels. `array` has the attributes by which the values are decoded.
pub(super) fn read(
    context: &RequestContext,
    open: &Arc<OpenArray>,
    array: &Array,
) -> Result<Labels> {
    open.check_decodable()?;
    let region = Region::whole(&array.shape);
    check_length(open.path(), array)?;
    if array.data_type.is_variable() {
        let records = open.records(context, &region)?;
        let texts = records
            .iter()
            .map(|text| String::from_utf8_lossy(text).into_owned());
        return Ok(Labels::Texts(texts.collect()));
    }
    let wrong = |why: NoValues| Error::new(Kind::NoFile, open.path(), why);
    let counted = CountedTimes::of(array).map_err(wrong)?;
    let decoded = match counted {
        Some(_) => None,
        None => match cf::decoded(array) {
            Ok(decoded) => Some(decoded),
            Err(NoValues::NotNumbers) => None,
            Err(why) => return Err(wrong(why)),
        },
    };
    let described = decoded.as_ref().map_or(array, |decoded| &decoded.array);
    let conversion = decoded
        .as_ref()
        .and_then(|decoded| decoded.conversion.as_ref());
    let mut parts = FileParts::plain(Vec::new());
    if let Some(conversion) = conversion {
        parts = parts.after(conversion, array.element_size()?);
    }
    let values = Export::of_parts(open, parts, region, 0)?;
    let bytes = read_all(context, &values)?;
    let labels = match counted {
        Some(counted) => Some(Labels::Times(counted.times(&bytes), counted.calendar())),
        None => labels_of(&described.data_type, &bytes),
    };
    labels.ok_or_else(|| {
        let found = format!("elements of {} cannot be labels", described.data_type);
        Error::unsupported(open.path(), found)
    })
}

/// Converts values of a coordinate variable to labels; `None` if the data type has no labels.
fn labels_of(data_type: &DataType, bytes: &[u8]) -> Option<Labels> {
    let size = data_type.size().filter(|&size| size > 0)?;
    let elements = bytes.chunks_exact(size);
    let integers = |is_signed| elements.clone().map(move |one| integer(one, is_signed));
    let floats = || elements.clone().map(|one| float(one).unwrap_or(f64::NAN));
    Some(match data_type {
        DataType::Bool | DataType::UInt(_) => Labels::Integers(integers(false).collect()),
        DataType::Int(_) => Labels::Integers(integers(true).collect()),
        DataType::Float(size @ (4 | 8)) => Labels::Floats(floats().collect(), *size == 4),
        DataType::DateTime(unit) => {
            let step = nanoseconds(unit)?;
            let time = |count: i128| {
                let is_time = count != i128::from(i64::MIN);
                is_time.then(|| count.checked_mul(step))?
            };
            Labels::Times(integers(true).map(time).collect(), Calendar::Gregorian)
        }
        DataType::FixedBytes(_) => {
            let texts = elements.map(|one| String::from_utf8_lossy(unpadded(one)).into_owned());
            Labels::Texts(texts.collect())
        }
        DataType::FixedText(_) => Labels::Texts(elements.map(text).collect()),
        _ => return None,
    })
}

/// Returns the length of a numpy time unit in nanoseconds; `None` if the unit has no fixed length or is shorter than a
/// nanosecond.
pub fn nanoseconds(unit: &TimeUnit) -> Option<i128> {
    let name = match unit.name.as_str() {
        "W" | "D" => "day",
        "h" => "hour",
        "m" => "minute",
        "s" => "second",
        "ms" => "millisecond",
        "us" => "microsecond",
        "ns" => "nanosecond",
        _ => return None,
    };
    let days = if unit.name == "W" { 7 } else { 1 };
    let scale = i128::from(unit.scale).checked_mul(days)?;
    i128::from(unit_of(name)?).checked_mul(scale)
}

/// Caches the positions along dimensions that were read from coordinate variables.
pub struct CoordinateLines {
    /// The cached positions, by the identifier of the coordinate variable.
    known: Mutex<LruCache<u64, KnownLine>>,
}

/// The cached positions of one coordinate variable.
struct KnownLine {
    content: u64,
    /// The version of the variable's metadata documents, because their attributes scale the values.
    documents: u64,
    line: Line,
}

impl Default for CoordinateLines {
    fn default() -> CoordinateLines {
        let capacity = const { NonZero::new(1 << 10).unwrap() };
        CoordinateLines {
            known: Mutex::new(LruCache::new(capacity)),
        }
    }
}

impl CoordinateLines {
    /// Returns the positions that a coordinate variable gives. Fails if the values cannot be read at the moment. If
    /// they can never be read, because they are too many or of an unsupported type, returns `Line::NoNumbers`.
    pub fn line(
        &self,
        context: &RequestContext,
        arrays: &Arrays,
        entry: &Arc<NodeEntry>,
        meaning: &CoordinateMeaning,
    ) -> Result<Line> {
        let Some(array) = entry.array() else {
            return Err(Error::invalid(&entry.path, "is not an array"));
        };
        let open = arrays.open(entry)?;
        // The version is taken before the values are read. If the values change during the read, the cached positions
        // have the old version and are not used again.
        let content = open.content(context)?;
        if let Some(content) = content
            && let Some(known) = self.known.lock().get(&open.id())
            && (known.content, known.documents) == (content, entry.version)
        {
            return Ok(known.line.clone());
        }
        context.check_may_wait()?;
        let values = check_length(&entry.path, array);
        let line = match values.map(|()| read(context, &open, array)) {
            Err(error) => Line::NoNumbers(error.to_string()),
            Ok(Ok(labels)) => line_of(&labels, meaning),
            Ok(Err(error)) if error.kind() == Kind::Unsupported => {
                Line::NoNumbers(error.to_string())
            }
            Ok(Err(error)) => return Err(error),
        };
        if let Some(content) = content {
            let known = KnownLine {
                content,
                documents: entry.version,
                line: line.clone(),
            };
            self.known.lock().put(open.id(), known);
        }
        Ok(line)
    }
}

/// Returns the positions that numeric labels give.
fn line_of(labels: &Labels, meaning: &CoordinateMeaning) -> Line {
    let is_longitude = meaning.is_longitude();
    match labels {
        Labels::Integers(values) => {
            let values: Vec<f64> = values.iter().map(|&value| value as f64).collect();
            Line::of(&values, false, is_longitude)
        }
        Labels::Floats(values, is_single) => Line::of(values, *is_single, is_longitude),
        Labels::Texts(_) => Line::NoNumbers("the values are strings".to_string()),
        Labels::Times(..) => Line::NoNumbers("the values are times".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_out_of_range_have_no_label() {
        let unit = TimeUnit {
            name: "W".to_string(),
            scale: u32::MAX,
        };
        let bytes = [i64::MAX, 0, i64::MIN].map(i64::to_le_bytes).concat();
        let found = labels_of(&DataType::DateTime(unit), &bytes);
        let times = vec![None, Some(0), None];
        assert_eq!(found, Some(Labels::Times(times, Calendar::Gregorian)));
    }
}
