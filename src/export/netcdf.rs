//! `GROUP.nc`: all arrays of a group as one file of classic netCDF (CDF-1, or CDF-2 for offsets beyond 2 GiB).
//!
//! The header has dimensions, attributes and where each variable begins; variables lie one after the other, the smallest
//! first, big-endian and padded to four bytes. Their definitions are in the same order, which netCDF-C demands. The format
//! has no groups, so arrays of groups below are not in it.

use std::sync::Arc;

use crate::export::dimensions::GroupDimensions;
use crate::export::group::{
    GroupContents, GroupFormat, GroupLayout, GroupMember, GroupPlan, GroupScope, OrWhyNot,
    PlacedVariable,
};
use crate::export::hdf5;
use crate::export::netcdf_header::{FILL, HeaderWriter, NetcdfAttribute, NetcdfType, Variant};
use crate::export::netcdf_names::{held_names, is_name};
use crate::export::{ElementForm, FileParts};
use crate::model::{Array, Attributes, DataType, bytes_of};

/// CDF-1, or CDF-2 where an offset does not fit it.
pub const FORMAT: GroupFormat = GroupFormat {
    extension: "nc",
    scope: GroupScope::Own,
    plan: |contents| {
        let first = plan(contents, Variant::First);
        let layout = first.or_else(|_| plan(contents, Variant::Second));
        layout.map(GroupPlan::laid)
    },
};

/// Returns the attributes of a group, or of an array, that have other names in files of netCDF, and these.
pub fn renamed(attributes: &Attributes, array: Option<&Array>) -> Vec<(String, String)> {
    let values = attributes.in_files().to_map();
    let is_fill = array
        .zip(values.get(FILL))
        .is_none_or(|(array, value)| hdf5::is_fill(&array.data_type, value));
    let names = held_names(values.keys(), |name| {
        is_name(name) && (name != FILL || is_fill)
    });
    let pairs = values.keys().cloned().zip(names);
    pairs.filter(|(own, held)| own != held).collect()
}

/// A variable whose place is not known yet.
struct Variable<'a> {
    /// Its place among the members.
    member: usize,
    name: &'a str,
    dimensions: Vec<u64>,
    kind: NetcdfType,
    attributes: Vec<NetcdfAttribute>,
    /// Bytes of the elements, without padding.
    length: u64,
}

impl Variable<'_> {
    fn padded(&self) -> Option<u64> {
        self.length.checked_next_multiple_of(4)
    }

    /// Returns the variable at its place in the file.
    fn placed(&self, contents: &GroupContents, offset: u64) -> Option<PlacedVariable> {
        let padding = usize::try_from(self.padded()? - self.length).ok()?;
        let data_type = &contents.members.get(self.member)?.array.data_type;
        let elements = ElementForm {
            order: None,
            conversion: self.kind.conversion(data_type),
        };
        let parts = FileParts {
            elements: Some(elements),
            trailer: vec![0; padding],
            ..FileParts::default()
        };
        Some(PlacedVariable {
            member: self.member,
            offset,
            parts,
        })
    }
}

/// Returns what a file consists of; says which of the arrays stops it.
fn plan(contents: &GroupContents, variant: Variant) -> OrWhyNot<GroupLayout> {
    let (dimensions, variables) = variables_of(contents)?;
    if let Some(long) = longest_misfit(&variables, variant) {
        let (name, length) = (long.name, long.length);
        return Err(format!(
            "one array alone that is as long as {name}, which has {length} bytes"
        ));
    }
    let too_long = || "no names, attributes and offsets as long as these".to_string();
    assembled(contents, variant, &dimensions, &variables).ok_or_else(too_long)
}

/// Returns the arrays as variables, the smallest first, with their dimensions.
fn variables_of<'a>(contents: &'a GroupContents) -> OrWhyNot<(GroupDimensions, Vec<Variable<'a>>)> {
    let members = &contents.members;
    let mut dimensions = GroupDimensions::default();
    dimensions.add_coordinates(
        members
            .iter()
            .map(|member| (member.path.as_str(), &*member.array)),
    );
    let variables = members
        .iter()
        .enumerate()
        .map(|(place, member)| variable(place, member, &mut dimensions));
    let mut variables: Vec<Variable> = variables.collect::<OrWhyNot<_>>()?;
    variables.sort_by(|a, b| (a.length, a.name).cmp(&(b.length, b.name)));
    Ok((dimensions, variables))
}

/// Puts a file together; nothing if a number in it does not fit the variant.
fn assembled(
    contents: &GroupContents,
    variant: Variant,
    dimensions: &GroupDimensions,
    variables: &[Variable],
) -> Option<GroupLayout> {
    let global = NetcdfAttribute::list(&contents.attributes, None);
    let write = |begins: &[u64]| header(dimensions, &global, variables, begins, variant);
    // The length of the header does not depend on the numbers in it.
    let length = (write(&vec![0; variables.len()])?.len() as u64).checked_next_multiple_of(4)?;
    let begins = begins(variables, length)?;
    let mut header = write(&begins)?;
    header.resize(usize::try_from(length).ok()?, 0);
    let placed = variables.iter().zip(begins);
    let placed = placed.map(|(variable, offset)| variable.placed(contents, offset));
    Some(GroupLayout {
        header: Arc::new(header.into()),
        variables: placed.collect::<Option<_>>()?,
    })
}

/// Returns a member as a variable, or why the format cannot hold it.
fn variable<'a>(
    place: usize,
    member: &'a GroupMember,
    dimensions: &mut GroupDimensions,
) -> OrWhyNot<Variable<'a>> {
    let (array, name) = (&*member.array, &member.path);
    let no_type = || format!("no {}, which {name} is", array.data_type);
    let kind = NetcdfType::of(&array.data_type).ok_or_else(no_type)?;
    if !is_name(name) {
        return Err(format!("no name such as {name}"));
    }
    if array.shape.contains(&0) {
        // A fixed dimension has a length; one of 0 would be that of records.
        return Err(format!("no dimension of length 0, which {name} has"));
    }
    let mut shape = array.shape.clone();
    let names = (0..shape.len()).map(|axis| array.dimension_names.get(axis).cloned().flatten());
    let mut names: Vec<Option<String>> = names.collect();
    if let DataType::FixedBytes(length) = array.data_type {
        shape.push(length as u64);
        names.push(Some(format!("string{length}")));
    }
    let numbers = shape.iter().zip(&names);
    let too_long = |_| format!("no array as long as {name}");
    Ok(Variable {
        member: place,
        name,
        dimensions: numbers
            .map(|(&length, name)| dimensions.number(name.as_deref(), length))
            .collect(),
        attributes: NetcdfAttribute::of_variable(array, kind),
        length: bytes_of(&shape, kind.size()).map_err(too_long)?,
        kind,
    })
}

/// Returns a variable that is longer than the variant allows: only the last one has no limit.
fn longest_misfit<'a>(variables: &'a [Variable<'a>], variant: Variant) -> Option<&'a Variable<'a>> {
    let most = match variant {
        Variant::First => u64::from(u32::MAX >> 1) - 3,
        Variant::Second => u64::from(u32::MAX) - 3,
    };
    let earlier = variables
        .split_last()
        .map_or(&[][..], |(_, earlier)| earlier);
    earlier.iter().rev().find(|variable| variable.length > most)
}

/// Returns where each variable begins.
fn begins(variables: &[Variable], header: u64) -> Option<Vec<u64>> {
    let mut next = header;
    let begins = variables.iter().map(|variable| {
        let begin = next;
        next = next.checked_add(variable.padded()?)?;
        Some(begin)
    });
    let begins: Option<Vec<u64>> = begins.collect();
    begins.filter(|_| i64::try_from(next).is_ok())
}

/// Returns the header; nothing if a number in it does not fit the variant.
fn header(
    dimensions: &GroupDimensions,
    global: &[NetcdfAttribute],
    variables: &[Variable],
    begins: &[u64],
    variant: Variant,
) -> Option<Vec<u8>> {
    let mut out = HeaderWriter::new(variant);
    let list = dimensions.list();
    out.list_head(HeaderWriter::DIMENSIONS, list.len())?;
    for (name, length) in list {
        out.name(name)?;
        out.dimension(length)?;
    }
    out.attributes(global)?;
    out.list_head(HeaderWriter::VARIABLES, variables.len())?;
    for (variable, &begin) in variables.iter().zip(begins) {
        out.name(variable.name)?;
        out.count(variable.dimensions.len() as u64)?;
        for &dimension in &variable.dimensions {
            out.count(dimension)?;
        }
        out.attributes(&variable.attributes)?;
        out.kind(variable.kind);
        out.variable_size(variable.padded()?);
        out.offset(begin)?;
    }
    Some(out.finish())
}
