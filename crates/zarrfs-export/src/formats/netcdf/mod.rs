//! `GROUP.nc`: the arrays of a group as one classic netCDF file (CDF-1 or CDF-2).
//!
//! CDF-2 is used if an offset exceeds 2 GiB. The header has the dimensions, the attributes and the offset of each
//! variable. After it come the variables, the smallest first, big-endian and padded to four bytes. Their definitions in
//! the header have the same order, as netCDF-C demands. The format has no groups, so arrays in subgroups are left out.
//!
//! 64-bit integers are narrowed to 32 bits, and the file cannot be opened if one does not fit. Texts become characters,
//! padded to the longest text. Elements of these two kinds are read when a file is opened, and come before the other
//! variables.

pub(crate) mod header;
pub(crate) mod names;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::formats::cf::attributes::FILL;
use crate::formats::cf::counts::NOT_A_TIME;
use crate::formats::group::{
    GroupBody, GroupContents, GroupFormat, GroupLayout, GroupMember, GroupPlan, GroupScope,
    MAX_READ_AT_OPEN, MadeLayout, MemberTexts, OrReason, PlacedVariable, read_all,
};
use crate::formats::netcdf::header::{
    ElementsIn, HeaderWriter, ListTag, NetcdfAttribute, NetcdfType, Variant, has_implied_fill,
    narrowed, unit_left_out,
};
use crate::formats::netcdf::names::{GroupDimensions, is_name, unique_names};
use crate::formats::{ElementForm, FileParts, cf, hdf5};
use zarr_format::error::{Error, Result};
use zarr_format::model::{Array, Attributes, DataType, bytes_of};
use zarrfs_array::array::vlen_elements::ReservedBytes;
use zarrfs_store::request_context::RequestContext;

/// The format `.nc`: CDF-1, or CDF-2 if an offset does not fit CDF-1.
pub(crate) const FORMAT: GroupFormat = GroupFormat {
    extension: "nc",
    scope: GroupScope::Own,
    decode: cf::decoded_but_times,
    plan: |contents| {
        let file = assemble(contents, &BTreeMap::new())?;
        let read: Vec<usize> = (0..contents.members.len())
            .filter(|&number| is_read(contents, number))
            .collect();
        let body = if read.is_empty() {
            GroupBody::Laid(GroupLayout {
                header: Arc::new(file.header.into()),
                variables: file.variables,
            })
        } else {
            GroupBody::Checked(MadeLayout {
                read,
                make: make_layout,
            })
        };
        let members = contents.members.iter();
        let units = members.filter_map(|member| unit_left_out(&member.path, &member.array));
        Ok(GroupPlan {
            body,
            left_out: units.collect(),
        })
    },
};

/// The elements of an array that were read when the netCDF file was opened, encoded for the file.
struct ReadElements {
    /// The number of characters per text after padding; unused for numbers.
    letters: u64,
    /// Whether at least one element is a missing value.
    has_none: bool,
    bytes: ReservedBytes,
}

/// The number that marks missing values in the netCDF file, if the array's own fill value does not fit 32 bits.
const NO_VALUE: i32 = i32::MIN;

/// Whether the attributes say that the numbers are times, or durations that xarray encoded.
fn counts_time(array: &Array) -> bool {
    let has = |name, is_it: fn(&str) -> bool| {
        let value = array.attributes.get(name);
        value.is_some_and(|value| value.as_str().is_some_and(is_it))
    };
    has("units", |units| units.contains(" since "))
        || has("dtype", |dtype| dtype.starts_with("timedelta64"))
}

/// Returns the element that marks missing values (NaT or the fill value), if it does not fit 32 bits.
fn wide_missing_value(array: &Array) -> Option<Vec<u8>> {
    // xarray marks missing values by NaT in encoded times and durations, too.
    let not_a_time = || NOT_A_TIME.to_le_bytes().to_vec();
    let bytes = match (array.attributes.get(FILL), &array.data_type) {
        (Some(fill), DataType::UInt(8)) => fill.as_u64()?.to_le_bytes().to_vec(),
        (Some(fill), DataType::Int(8)) => fill.as_i64()?.to_le_bytes().to_vec(),
        (None, DataType::DateTime(_) | DataType::TimeDelta(_)) => not_a_time(),
        (None, DataType::Int(8) | DataType::UInt(8)) if has_implied_fill(array) => {
            array.fill_value.bytes.clone()
        }
        (None, DataType::Int(8)) if counts_time(array) => not_a_time(),
        _ => return None,
    };
    let is_beyond = narrowed(&array.data_type, &bytes).is_none();
    is_beyond.then_some(bytes)
}

/// Whether the elements of an array are read when the netCDF file is opened.
fn is_read(contents: &GroupContents, number: usize) -> bool {
    let member = contents.members.get(number);
    let kind = member.and_then(|member| NetcdfType::of(&member.array.data_type));
    kind.is_some_and(|(_, come)| come != ElementsIn::Store)
}

/// Makes the layout of a netCDF file, and reads the elements that the layout needs. Fails with `Unsupported` if the
/// format cannot hold one of these elements.
fn make_layout(context: &RequestContext, contents: &GroupContents) -> Result<GroupLayout> {
    let mut read = BTreeMap::new();
    for (number, member) in contents.members.iter().enumerate() {
        let elements = match NetcdfType::of(&member.array.data_type) {
            Some((_, ElementsIn::Numbers)) => read_numbers(context, contents, member)?,
            Some((_, ElementsIn::Texts)) => read_texts(context, contents, member)?,
            _ => continue,
        };
        read.insert(number, elements);
    }
    let file = assemble(contents, &read).map_err(|why| Error::unsupported("", why))?;
    let mut out = contents.growing()?;
    out.push(&file.header)?;
    for (member, padding) in file.read {
        if let Some(elements) = read.get(&member) {
            out.push(&elements.bytes)?;
            out.push([0; 4].get(..padding).unwrap_or_default())?;
        }
    }
    Ok(GroupLayout {
        header: Arc::new(out.finish()),
        variables: file.variables,
    })
}

/// Reads the integers of an array and narrows them to 32 bits.
fn read_numbers(
    context: &RequestContext,
    contents: &GroupContents,
    member: &GroupMember,
) -> Result<ReadElements> {
    let data_type = &member.array.data_type;
    let bytes = read_all(context, &member.elements()?)?;
    let (mut out, none, mut has_none) = (
        contents.growing()?,
        wide_missing_value(&member.array),
        false,
    );
    for element in bytes.chunks_exact(member.array.element_size()?.max(1)) {
        if none.as_deref() == Some(element) {
            has_none = true;
            out.push(&NO_VALUE.to_be_bytes())?;
            continue;
        }
        let number = narrowed(data_type, element);
        let number = number.filter(|&number| none.is_none() || number != NO_VALUE);
        let number = number.ok_or_else(|| {
            let why = format!(
                "{data_type} values beyond int32, as in {}, need .nc4",
                member.path
            );
            Error::unsupported("", why)
        })?;
        out.push(&number.to_be_bytes())?;
    }
    Ok(ReadElements {
        letters: 0,
        has_none,
        bytes: out.finish(),
    })
}

/// Reads the texts of an array and pads them to the length of the longest one.
fn read_texts(
    context: &RequestContext,
    contents: &GroupContents,
    member: &GroupMember,
) -> Result<ReadElements> {
    let texts = MemberTexts::read(context, member)?;
    let mut longest = 1;
    texts.each(&mut |text| {
        longest = longest.max(text.len());
        Ok(())
    })?;
    let (mut out, padding) = (contents.growing()?, vec![0; longest]);
    texts.each(&mut |text| {
        out.push(text)?;
        out.push(padding.get(text.len()..).unwrap_or_default())
    })?;
    Ok(ReadElements {
        letters: longest as u64,
        has_none: false,
        bytes: out.finish(),
    })
}

/// Returns the old and the new names of the attributes that netCDF files rename. The attributes are those of a group,
/// or of `array`.
pub(crate) fn renamed(attributes: &Attributes, array: Option<&Array>) -> Vec<(String, String)> {
    let values = attributes.in_files().to_map();
    let is_fill = array
        .zip(values.get(FILL))
        .is_none_or(|(array, value)| hdf5::is_fill(&array.data_type, value));
    let names = unique_names(values.keys(), |name| {
        is_name(name) && (name != FILL || is_fill)
    });
    let pairs = values.keys().cloned().zip(names);
    pairs.filter(|(own, unique)| own != unique).collect()
}

/// A netCDF variable whose offset is not known yet.
struct Variable<'a> {
    /// The index of the array of which the variable is made.
    member: usize,
    name: &'a str,
    dimensions: Vec<u64>,
    kind: NetcdfType,
    /// Whether the variable's elements are read when the file is opened.
    is_read: bool,
    attributes: Vec<NetcdfAttribute>,
    /// Size of the variable's elements in bytes, without padding.
    length: u64,
}

impl Variable<'_> {
    fn padded(&self) -> Option<u64> {
        self.length.checked_next_multiple_of(4)
    }

    /// Returns the number of padding bytes after the variable's elements.
    fn padding(&self) -> Option<usize> {
        usize::try_from(self.padded()? - self.length).ok()
    }

    /// Gives the variable an offset in the file.
    fn placed(&self, contents: &GroupContents, offset: u64) -> Option<PlacedVariable> {
        let padding = self.padding()?;
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

/// The elements that were read when the file was opened, by the index of the array. Empty until the file is opened.
type ReadMembers = BTreeMap<usize, ReadElements>;

/// The header and the variables of a netCDF file, with their final offsets.
struct AssembledFile {
    header: Vec<u8>,
    /// The indices of the arrays whose elements were read, each with its number of padding bytes. These elements
    /// directly follow the header.
    read: Vec<(usize, usize)>,
    /// The variables whose elements are read from the store on demand.
    variables: Vec<PlacedVariable>,
}

/// Assembles a netCDF file as CDF-1, or as CDF-2 if it does not fit. The error names the array that does not fit CDF-2
/// either.
fn assemble(contents: &GroupContents, read: &ReadMembers) -> OrReason<AssembledFile> {
    let first = assemble_variant(contents, read, Variant::First);
    first.or_else(|_| assemble_variant(contents, read, Variant::Second))
}

fn assemble_variant(
    contents: &GroupContents,
    read: &ReadMembers,
    variant: Variant,
) -> OrReason<AssembledFile> {
    let (dimensions, variables) = variables_of(contents, read)?;
    if let Some(long) = longest_misfit(&variables, variant) {
        let (name, length) = (long.name, long.length);
        return Err(format!("{name} with {length} bytes is too long; use .nc4",));
    }
    let too_long =
        || "names, attributes or offsets are too large for the format; use .nc4".to_string();
    let layout = lay_out(contents, variant, &dimensions, &variables);
    let (header, placed) = layout.ok_or_else(too_long)?;
    let behind = variables.iter().filter(|variable| variable.is_read);
    let behind = behind.map(|variable| (variable.member, variable.padding().unwrap_or_default()));
    Ok(AssembledFile {
        header,
        read: behind.collect(),
        variables: placed,
    })
}

/// Makes variables of the arrays, and their dimensions. Variables whose elements are read when the file is opened come
/// first; apart from that, smaller ones come first.
fn variables_of<'a>(
    contents: &'a GroupContents,
    read: &ReadMembers,
) -> OrReason<(GroupDimensions, Vec<Variable<'a>>)> {
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
        .map(|(place, member)| variable_of(place, read.get(&place), member, &mut dimensions));
    let mut variables: Vec<Variable> = variables.collect::<OrReason<_>>()?;
    variables.sort_by(|a, b| (!a.is_read, a.length, a.name).cmp(&(!b.is_read, b.length, b.name)));
    Ok((dimensions, variables))
}

/// Returns the header of a netCDF file, and the variables whose elements are read on demand. Returns `None` if a number
/// is too large for the variant.
fn lay_out(
    contents: &GroupContents,
    variant: Variant,
    dimensions: &GroupDimensions,
    variables: &[Variable],
) -> Option<(Vec<u8>, Vec<PlacedVariable>)> {
    let global = NetcdfAttribute::list(&contents.attributes, None);
    let write = |begins: &[u64]| header(dimensions, &global, variables, begins, variant);
    // The header is written twice, because it contains offsets that depend on its own length. Its length does not
    // depend on them.
    let length = (write(&vec![0; variables.len()])?.len() as u64).checked_next_multiple_of(4)?;
    let begins = begins(variables, length)?;
    let mut header = write(&begins)?;
    header.resize(usize::try_from(length).ok()?, 0);
    let placed = variables.iter().zip(begins);
    let placed = placed.filter(|(variable, _)| !variable.is_read);
    let placed = placed.map(|(variable, offset)| variable.placed(contents, offset));
    Some((header, placed.collect::<Option<_>>()?))
}

/// Makes a variable of an array; fails with the reason if the format cannot hold the array.
fn variable_of<'a>(
    place: usize,
    read: Option<&ReadElements>,
    member: &'a GroupMember,
    dimensions: &mut GroupDimensions,
) -> OrReason<Variable<'a>> {
    let (array, name) = (&*member.array, &member.path);
    let no_type = || format!("{name} has data type {}, which needs .nc4", array.data_type);
    let (kind, come) = NetcdfType::of(&array.data_type).ok_or_else(no_type)?;
    if come == ElementsIn::Numbers
        && array
            .byte_length()
            .is_ok_and(|bytes| bytes > MAX_READ_AT_OPEN)
    {
        return Err(no_type());
    }
    if !is_name(name) {
        return Err(format!("the format does not allow the name {name}"));
    }
    if array.shape.contains(&0) {
        // In a netCDF header, length 0 means the record dimension, so an ordinary dimension cannot have it.
        return Err(format!(
            "the format does not allow dimensions of length 0, as in {name}"
        ));
    }
    let mut shape = array.shape.clone();
    let names = (0..shape.len()).map(|axis| array.dimension_names.get(axis).cloned().flatten());
    let mut names: Vec<Option<String>> = names.collect();
    let letters = match array.data_type {
        DataType::FixedBytes(length) => Some(length as u64),
        DataType::FixedText(length) => Some(4 * length as u64),
        _ => (come == ElementsIn::Texts).then_some(read.map_or(1, |read| read.letters)),
    };
    if let Some(letters) = letters {
        shape.push(letters);
        names.push(Some(format!("string{letters}")));
    }
    let numbers = shape.iter().zip(&names);
    let too_long = |_| format!("{name} is too long for the format; use .nc4");
    Ok(Variable {
        member: place,
        name,
        dimensions: numbers
            .map(|(&length, name)| dimensions.number(name.as_deref(), length))
            .collect(),
        attributes: NetcdfAttribute::of_variable(&with_narrow_fill(array, read), kind),
        length: bytes_of(&shape, kind.size()).map_err(too_long)?,
        is_read: come != ElementsIn::Store,
        kind,
    })
}

/// Replaces a `_FillValue` that does not fit 32 bits, and adds one if missing values need it.
fn with_narrow_fill<'a>(array: &'a Array, read: Option<&ReadElements>) -> Cow<'a, Array> {
    let is_there = array.attributes.get(FILL).is_some();
    let is_needed = is_there || read.is_some_and(|read| read.has_none);
    if !is_needed || wide_missing_value(array).is_none() {
        return Cow::Borrowed(array);
    }
    Cow::Owned(Array {
        attributes: array.attributes.with(FILL, &NO_VALUE.into()),
        ..array.clone()
    })
}

/// Returns the longest variable that does not fit the variant of the format. The last variable may have any length,
/// because no offset follows it.
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

/// Returns the offset of each variable, or `None` if an offset overflows.
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

/// Writes the header of a netCDF file; returns `None` if a number is too large for the variant.
fn header(
    dimensions: &GroupDimensions,
    global: &[NetcdfAttribute],
    variables: &[Variable],
    begins: &[u64],
    variant: Variant,
) -> Option<Vec<u8>> {
    let mut out = HeaderWriter::new(variant);
    let list = dimensions.list();
    out.list_head(ListTag::Dimensions, list.len())?;
    for (name, length) in list {
        out.name(name)?;
        out.dimension(length)?;
    }
    out.attributes(global)?;
    out.list_head(ListTag::Variables, variables.len())?;
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
