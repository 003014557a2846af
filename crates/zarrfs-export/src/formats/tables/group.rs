//! `GROUP.csv` and `GROUP.ndjson`: the arrays of a group as columns of a table.
//!
//! All arrays must have one dimension of the same length, as in a table of AnnData or a CF point set. A column of
//! AnnData may be a group instead of an array: with categories and a code per row, or with values and a mask. All
//! elements are read when the file is opened.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use crate::formats::cf;
use crate::formats::group::{
    GroupBody, GroupContents, GroupFormat, GroupLayout, GroupMember, GroupPlan, GroupScope,
    MadeLayout, OrReason,
};
use crate::formats::tables::cell::{RowNotation, TextCell};
use crate::formats::tables::column::{Labels, RowReader, TextColumn};
use crate::formats::tables::{MAX_COLUMNS, TextTable, unit_left_out};
use zarr_format::error::{Error, Result};
use zarr_format::model::{Attributes, DataType};
use zarrfs_store::request_context::RequestContext;

/// The format `.csv`: a line of column names, then one line of comma-separated values per row. Missing values are
/// empty.
pub(crate) const CSV: GroupFormat = GroupFormat {
    extension: "csv",
    scope: GroupScope::Columns(is_column),
    decode: cf::decoded,
    plan: |contents| {
        let make = |context: &RequestContext, contents: &GroupContents| {
            make_layout(context, contents, RowNotation::Commas)
        };
        plan(contents, make)
    },
};

/// The format `.ndjson`: one JSON object per row of the table; values that JSON lacks are null.
pub(crate) const NDJSON: GroupFormat = GroupFormat {
    extension: "ndjson",
    scope: GroupScope::Columns(is_column),
    decode: cf::decoded,
    plan: |contents| {
        let make = |context: &RequestContext, contents: &GroupContents| {
            make_layout(context, contents, RowNotation::Json)
        };
        plan(contents, make)
    },
};

/// The group in which AnnData before 0.8 stored the categories of all columns of a table.
const OLD_CATEGORIES: &str = "__categories";

/// Whether a subgroup is a column of an AnnData table, or has the categories of columns.
fn is_column(name: &str, attributes: &Attributes) -> bool {
    name == OLD_CATEGORIES || ColumnEncoding::of(attributes).is_some()
}

/// Whether a group is an AnnData table, whose values have AnnData's own encoding and no CF attributes.
pub(crate) fn is_annotated(contents: &GroupContents) -> bool {
    let names = ["_index", "encoding-type"];
    let mut names = names.iter();
    names.any(|name| contents.attributes.get(name).is_some()) || !contents.subgroups.is_empty()
}

/// How AnnData encodes a column as a group of arrays.
enum ColumnEncoding {
    /// The array `codes` has indices into the array `categories`.
    Categorical,
    /// The array `mask` says which elements of the array `values` are missing.
    Masked,
}

impl ColumnEncoding {
    fn of(attributes: &Attributes) -> Option<ColumnEncoding> {
        match attributes.get("encoding-type")?.as_str()? {
            "categorical" => Some(ColumnEncoding::Categorical),
            "nullable-integer" | "nullable-boolean" | "nullable-string-array" => {
                Some(ColumnEncoding::Masked)
            }
            _ => None,
        }
    }
}

/// The numbers of the arrays with the values and with the mask of a column.
struct Values {
    values: usize,
    mask: Option<usize>,
}

struct Column {
    name: String,
    /// The values of the rows, or their category codes.
    rows: Values,
    /// The categories, if `rows` has category codes.
    categories: Option<Values>,
    is_ordered: bool,
}

impl Column {
    fn members(&self) -> impl Iterator<Item = usize> {
        let all = std::iter::once(&self.rows).chain(&self.categories);
        all.flat_map(|values| std::iter::once(values.values).chain(values.mask))
    }
}

/// The columns of a group's table, and messages about the nodes that are not columns.
struct Columns {
    columns: Vec<Column>,
    rows: u64,
    left_out: Vec<String>,
}

fn plan(
    contents: &GroupContents,
    make: fn(&RequestContext, &GroupContents) -> Result<GroupLayout>,
) -> OrReason<GroupPlan> {
    let columns = Columns::of(contents)?;
    Ok(GroupPlan {
        body: GroupBody::Made(MadeLayout {
            read: columns.columns.iter().flat_map(Column::members).collect(),
            make,
        }),
        left_out: columns.left_out,
    })
}

/// Reads the elements of all columns and writes the text of the table.
fn make_layout(
    context: &RequestContext,
    contents: &GroupContents,
    notation: RowNotation,
) -> Result<GroupLayout> {
    let columns = Columns::of(contents).map_err(|why| Error::unsupported("group", why))?;
    let mut table = TextTable {
        names: Vec::new(),
        columns: Vec::new(),
        readers: Vec::new(),
        rows: columns.rows,
    };
    let cells = notation.of_rows(columns.columns.len() as u64);
    for column in columns.columns {
        let values = contents.member(column.rows.values)?;
        let reader = table.readers.len();
        table.readers.push(RowReader::open(values)?);
        table
            .columns
            .push(match (&column.categories, column.rows.mask) {
                (Some(categories), _) => {
                    let member = contents.member(categories.values)?;
                    let mask = categories.mask.map(|mask| contents.member(mask));
                    let cell = cell_of(member)?;
                    TextColumn::Coded {
                        reader,
                        is_signed: matches!(values.array.data_type, DataType::Int(_)),
                        labels: Labels::read(context, member, mask.transpose()?, &cell, cells)?,
                        cell,
                    }
                }
                (None, Some(mask)) => {
                    table.readers.push(RowReader::open(contents.member(mask)?)?);
                    TextColumn::Masked {
                        reader,
                        mask: reader + 1,
                        cell: cell_of(values)?,
                    }
                }
                (None, None) => TextColumn::Plain {
                    reader,
                    cell: cell_of(values)?,
                    field: None,
                },
            });
        table.names.push(column.name);
    }
    let mut out = contents.growing()?;
    table.write(context, notation, &mut out)?;
    Ok(GroupLayout {
        header: Arc::new(out.finish()),
        variables: Vec::new(),
    })
}

fn cell_of(member: &GroupMember) -> Result<TextCell> {
    let data_type = &member.array.data_type;
    let cell = TextCell::of(data_type);
    cell.ok_or_else(|| {
        Error::unsupported(
            &member.path,
            format!("{data_type} cannot be written as text"),
        )
    })
}

impl Columns {
    /// Finds the columns of a group's table, at least one: in AnnData's order if the group states it, or else sorted by
    /// name.
    ///
    /// If one-dimensional arrays differ in length or dimension, the group is not a table. But if the group names an
    /// index column, it is a table, and arrays that do not fit the index are left out.
    fn of(contents: &GroupContents) -> OrReason<Columns> {
        let order = declared_order(contents);
        let mut left_out = Vec::new();
        let mut found = Vec::new();
        let nodes = TableNodes::of(contents);
        for name in nodes.names() {
            match nodes.column(name) {
                Ok(column) => found.push(column),
                Err(why) => left_out.push(format!("{name}: {why}")),
            }
        }
        let place = |column: &Column| {
            let place = order.iter().position(|name| *name == column.name);
            place.unwrap_or(order.len())
        };
        found.sort_by_key(place);
        let have_none = contents
            .members
            .iter()
            .all(|member| member.array.shape.is_empty());
        let none = || {
            match left_out.first() {
            Some(_) if have_none => {
                "no array has a dimension; select a slice such as #0:1, which keeps the dimension, instead of a number"
                    .to_string()
            }
            Some(why) => format!("no array is a column: {why}"),
            None => "no array is a column".to_string(),
        }
        };
        let first = found.first().ok_or_else(none)?;
        let extent = find_extent(contents, first);
        let is_indexed = contents
            .attributes
            .get("_index")
            .is_some_and(|index| index.as_str() == Some(first.name.as_str()));
        let (mut columns, first) = (Vec::new(), first.name.clone());
        for column in found {
            match extent.misfit(&first, &find_extent(contents, &column)) {
                Some(what) if is_indexed => {
                    left_out.push(format!("{}: has {what}", column.name));
                }
                Some(what) => {
                    let name = &column.name;
                    return Err(format!(
                        "all columns must have the same length and dimension: {name} has {what}"
                    ));
                }
                None => columns.push(column),
            }
        }
        for column in &columns {
            let values = column.categories.as_ref().unwrap_or(&column.rows).values;
            let member = contents.members.get(values);
            let unit =
                member.and_then(|member| unit_left_out(&column.name, &member.array.data_type));
            left_out.extend(unit);
            if column.is_ordered {
                let name = &column.name;
                left_out.push(format!(
                    "the order of the categories of {name}: a table has only values"
                ));
            }
        }
        left_out.extend(nodes.missing(&order));
        match columns.len() {
            0..=MAX_COLUMNS => Ok(Columns {
                columns,
                rows: extent.length,
                left_out,
            }),
            count => Err(format!(
                "a table has at most {MAX_COLUMNS} columns, not {count}"
            )),
        }
    }
}

/// The length of a column, and the name of its dimension.
struct Extent {
    length: u64,
    dimension: Option<String>,
}

impl Extent {
    /// Returns the reason why a column with the extent `other` does not fit into the table, or `None` if it does.
    /// `name` is the column whose extent is `self`.
    fn misfit(&self, name: &str, other: &Extent) -> Option<String> {
        if self.length != other.length {
            let (own, others) = (self.length, other.length);
            return Some(format!("{others} elements, and {name} has {own}"));
        }
        match (&self.dimension, &other.dimension) {
            (Some(own), Some(others)) if own != others => {
                Some(format!("the dimension {others}, and {name} has {own}"))
            }
            _ => None,
        }
    }
}

fn find_extent(contents: &GroupContents, column: &Column) -> Extent {
    let array = contents.members.get(column.rows.values);
    let array = array.map(|member| &member.array);
    let dimension = array.and_then(|array| array.dimension_names.first().cloned().flatten());
    Extent {
        length: array
            .and_then(|array| array.shape.first().copied())
            .unwrap_or(0),
        dimension: dimension.filter(|name| !name.is_empty()),
    }
}

/// The arrays and subgroups of a table, by their paths relative to the table's group.
struct TableNodes<'a> {
    contents: &'a GroupContents,
    arrays: HashMap<&'a str, usize>,
    groups: HashMap<&'a str, &'a Attributes>,
}

impl<'a> TableNodes<'a> {
    fn of(contents: &'a GroupContents) -> TableNodes<'a> {
        let arrays = contents.members.iter().enumerate();
        let groups = contents.subgroups.iter();
        TableNodes {
            contents,
            arrays: arrays
                .map(|(number, member)| (member.path.as_str(), number))
                .collect(),
            groups: groups
                .map(|group| (group.path.as_str(), &group.attributes))
                .collect(),
        }
    }

    /// Returns the sorted names of the arrays and groups directly in the table's group.
    fn names(&self) -> Vec<&'a str> {
        let all = self.arrays.keys().chain(self.groups.keys()).copied();
        let mut names: Vec<&str> = all
            .filter(|path| !path.contains('/') && *path != OLD_CATEGORIES)
            .collect();
        names.sort_unstable();
        names
    }

    /// Returns a message for each name in AnnData's order of columns that the group does not contain.
    fn missing(&self, order: &[String]) -> Vec<String> {
        let is_missing = |name: &&String| {
            let name = name.as_str();
            let mut sentences = self.contents.left_out.iter();
            !self.arrays.contains_key(name)
                && !self.groups.contains_key(name)
                && !sentences.any(|sentence| is_about(sentence, name))
        };
        let missing = order.iter().filter(is_missing);
        missing
            .map(|name| format!("{name}: the group has no such column"))
            .collect()
    }

    /// Makes a column of the array or group with a name; fails with the reason if it is not a column.
    fn column(&self, name: &str) -> OrReason<Column> {
        let group = self.groups.get(name);
        let encoding = group.and_then(|attributes| ColumnEncoding::of(attributes));
        let (rows, categories) = match &encoding {
            Some(ColumnEncoding::Masked) => (self.values_at(name)?, None),
            Some(ColumnEncoding::Categorical) => {
                let codes = self.values_at(&format!("{name}/codes"))?;
                let categories = self.values_at(&format!("{name}/categories"))?;
                (codes, Some(categories))
            }
            None => {
                let rows = self.values_at(name)?;
                let array = self
                    .contents
                    .members
                    .get(rows.values)
                    .map(|member| &member.array);
                let path = array.and_then(|array| array.attributes.get("categories"));
                let path = path.as_ref().and_then(Value::as_str);
                let path = path.filter(|path| path.starts_with(OLD_CATEGORIES));
                let categories = path.map(|path| self.values_at(path));
                (rows, categories.transpose()?)
            }
        };
        if categories.is_some() {
            let codes = self.contents.members.get(rows.values);
            let data_type = codes.map(|member| &member.array.data_type);
            if !matches!(data_type, Some(DataType::Int(_) | DataType::UInt(_))) {
                return Err("the codes are not integers".to_string());
            }
        }
        let attributes = match (encoding, &categories) {
            (Some(_), _) => group.copied(),
            (None, Some(categories)) => {
                let member = self.contents.members.get(categories.values);
                member.map(|member| &member.array.attributes)
            }
            (None, None) => None,
        };
        let is_ordered = attributes.and_then(|attributes| attributes.get("ordered"));
        Ok(Column {
            name: name.to_string(),
            rows,
            categories,
            is_ordered: is_ordered == Some(Value::Bool(true)),
        })
    }

    /// Finds the values at a path: a one-dimensional array, or a group with an array of values and a mask.
    fn values_at(&self, path: &str) -> OrReason<Values> {
        if self.groups.contains_key(path) {
            let values = self.array_at(&format!("{path}/values"))?;
            let mask = self.array_at(&format!("{path}/mask"))?;
            let shape = |number: usize| {
                self.contents
                    .members
                    .get(number)
                    .map(|member| &member.array.shape)
            };
            if shape(values) != shape(mask) {
                return Err(format!(
                    "the values and the mask of {path} have different lengths"
                ));
            }
            return Ok(Values {
                values,
                mask: Some(mask),
            });
        }
        let values = self.array_at(path)?;
        Ok(Values { values, mask: None })
    }

    /// Returns the number of the one-dimensional array at a path. Fails with the reason if its elements cannot be
    /// written as text.
    fn array_at(&self, path: &str) -> OrReason<usize> {
        let number = self.arrays.get(path).copied();
        let member = number.and_then(|number| Some((number, self.contents.members.get(number)?)));
        let (number, member) = member.ok_or_else(|| format!("no array {path}"))?;
        let array = &member.array;
        match (array.shape.len(), &array.data_type) {
            (1, DataType::Struct(_)) => {
                Err("fields become columns only in the file of the array itself".to_string())
            }
            (1, data_type) if TextCell::of(data_type).is_none() => {
                Err(format!("{data_type} cannot be written as text"))
            }
            (1, _) => Ok(number),
            (0, _) => Err("a column needs one dimension, not 0".to_string()),
            (rank, _) => Err(format!("a column needs one dimension, not {rank}")),
        }
    }
}

/// Whether a message about an omitted node, which begins with the node's path, is about the node with this name.
fn is_about(sentence: &str, name: &str) -> bool {
    let path = sentence.split_once(": ").map(|(path, _)| path);
    let before = path.and_then(|path| path.strip_suffix(name));
    before.is_some_and(|before| before.is_empty() || before.ends_with('/'))
}

/// Returns the column names in AnnData's order, the index first; empty if the group states no order.
fn declared_order(contents: &GroupContents) -> Vec<String> {
    let index = contents.attributes.get("_index");
    let order = match contents.attributes.get("column-order") {
        Some(Value::Array(order)) => order,
        _ => Vec::new(),
    };
    let names = index.into_iter().chain(order).take(MAX_COLUMNS + 1);
    names
        .filter_map(|name| name.as_str().map(str::to_string))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn omission_messages_match_the_whole_column_name() {
        for (sentence, name, expected) in [
            ("obs/age: no codec of this name", "age", true),
            ("age: a group, not a column", "age", true),
            ("average: a group, not a column", "age", false),
            ("stages: an array of age: it is large", "age", false),
            ("x: does not read", "e", false),
            ("obs/age", "age", false),
        ] {
            assert_eq!(is_about(sentence, name), expected, "{sentence} {name}");
        }
    }
}
