//! OME-TIFF: a stack with OME-XML, and the reduced copies of OME-Zarr's pyramid.
//!
//! OME-XML in the first directory states the order of the images, so the images stay in the order of the array, and
//! only rows and columns may have to be moved. A reduced copy belongs to one image, so a resolution level that does not
//! have as many images as the first level is left out.

use std::collections::{HashMap, HashSet};
use std::iter;
use std::sync::Arc;

use serde_json::Value;

use crate::formats::axes::{AxisKind, AxisMeaning, dimensions_of};
use crate::formats::cf;
use crate::formats::group::{
    GroupContents, GroupFormat, GroupLayout, GroupMember, GroupPlan, GroupScope, PlacedVariable,
};
use crate::formats::maps::georeference::escaped;
use crate::formats::ome_zarr::{level_paths, multiscales};
use crate::formats::subject::Surroundings;
use crate::formats::tiff::directory::{Tag, TagValue, TiffPage, shortest_header};
use crate::formats::tiff::stack::{ImageStack, MAX_PAGES, StackKind, image_axes};
use crate::formats::units::{self, Quantity, Unit};
use crate::formats::{ElementForm, FileParts, Subject};
use zarr_format::model::{Attributes, DataType, bytes_of};

/// The format `.ome.tif` of a group: the first image of an OME-Zarr group, with its other resolution levels as reduced
/// copies.
pub(crate) const PYRAMID: GroupFormat = GroupFormat {
    extension: "ome.tif",
    scope: GroupScope::Named(named_levels),
    decode: cf::decoded,
    plan: |contents| match levels(contents)[..] {
        [] => Err("the group has no multiscales attribute that names an array".to_string()),
        [(_, first), ..] => pyramid(contents).ok_or_else(|| {
            let (name, data_type) = (&first.path, &first.array.data_type);
            let rank = first.array.shape.len();
            format!(
                "OME-TIFF cannot store {name}: {data_type}, {rank} dimensions, or too many images"
            )
        }),
    },
};

/// Maximum number of resolution levels of an image that are read.
const MAX_LEVELS: usize = 32;

fn type_name(data_type: &DataType) -> Option<&'static str> {
    Some(match data_type {
        DataType::Bool | DataType::UInt(1) => "uint8",
        DataType::UInt(2) => "uint16",
        DataType::UInt(4) => "uint32",
        DataType::Int(1) => "int8",
        DataType::Int(2) => "int16",
        DataType::Int(4) => "int32",
        DataType::Float(4) => "float",
        DataType::Float(8) => "double",
        DataType::Complex(8) => "complex",
        DataType::Complex(16) => "double-complex",
        _ => return None,
    })
}

/// Returns an array as a stack of images, or `None` if OME-TIFF cannot hold it.
fn stack_of(subject: &Subject, axes: &[AxisMeaning]) -> Option<ImageStack> {
    type_name(&subject.array.data_type)?;
    let stack = ImageStack::of(subject, axes)?;
    (stack.is_known() && stack.pages()? <= MAX_PAGES).then_some(stack)
}

/// Makes the `.ome.tif` file of a single array; `None` if OME-TIFF cannot hold it.
pub(crate) fn parts(subject: &Subject) -> Option<FileParts> {
    let axes = image_axes(subject);
    let stack = stack_of(subject, &axes)?;
    let pages = described_pages(subject, &axes, &stack)?;
    let pixels = stack.page_size()?.checked_mul(stack.pages()?)?;
    Some(FileParts {
        left_out: left_out(subject, &axes, &stack),
        header: shortest_header(&pages, pixels)?,
        elements: Some(stack.elements()),
        ..FileParts::default()
    })
}

/// Returns messages about metadata that the OME-XML of an image omits.
fn left_out(subject: &Subject, axes: &[AxisMeaning], stack: &ImageStack) -> Vec<String> {
    let mut left_out = dimensions_of(subject).left_out_without_directions();
    let backwards = axes.iter().filter(|axis| axis.step() < 0.0);
    let backwards = backwards.filter_map(|axis| axis.name.as_deref());
    let backwards: Vec<&str> = backwards.collect();
    if !backwards.is_empty() {
        let names = backwards.join(", ");
        left_out.push(format!(
            "direction of {names}: OME cannot store reversed axes"
        ));
    }
    let is_supported = |axis: &&AxisMeaning| match axis.kind {
        AxisKind::Time => unit(axis, Quantity::Time).is_some(),
        _ => unit(axis, Quantity::Length).is_some(),
    };
    let others = axes.iter().filter(|axis| !is_supported(axis));
    left_out.extend(units::left_out(
        others,
        "OME supports only lengths, and times of frames",
    ));
    let spacings = spacings(axes, stack);
    let unitless = spacings.iter().filter_map(|spacing| {
        let axis = spacing.axis.filter(|axis| axis.scale.is_some());
        axis.filter(|axis| unit(axis, spacing.quantity).is_none())?
            .name
            .as_deref()
    });
    let unitless: Vec<&str> = unitless.collect();
    if !unitless.is_empty() {
        left_out.push(format!(
            "spacing of {}: OME would read a spacing without a unit as micrometres or seconds",
            unitless.join(", ")
        ));
    }
    left_out
}

/// Returns the TIFF directories of all images in a stack; the first one has the OME-XML. The first image begins with
/// the first pixel of the file.
fn described_pages(
    subject: &Subject,
    axes: &[AxisMeaning],
    stack: &ImageStack,
) -> Option<Vec<TiffPage>> {
    let mut pages = pages_of(stack, 0)?;
    let text = TagValue::Text(xml(subject, axes, stack)?);
    pages.first_mut()?.tags.push((Tag::Description, text));
    Some(pages)
}

/// Returns the TIFF directories of all images in a stack, without OME-XML. `offset` is the distance in bytes from the
/// first pixel of the file to the first image.
fn pages_of(stack: &ImageStack, offset: u64) -> Option<Vec<TiffPage>> {
    let page = stack.page_size()?;
    let offsets = (0..stack.pages()?).map(|number| offset.checked_add(number.checked_mul(page)?));
    offsets.map(|offset| stack.page(offset?)).collect()
}

fn pyramid(contents: &GroupContents) -> Option<GroupPlan> {
    let levels = levels(contents);
    let (&(first, member), smaller) = levels.split_first()?;
    let subject = subject_of(contents, member);
    let axes = image_axes(&subject);
    let stack = stack_of(&subject, &axes)?;
    let mut pages = described_pages(&subject, &axes, &stack)?;
    let mut placed = vec![PlacedLevel {
        member: first,
        offset: 0,
        elements: stack.elements(),
    }];
    let mut others = Vec::new();
    let mut next = padded_size(member)?;
    // A file has at most 65,536 directories, so the smallest resolution levels are left out if the others need all of
    // them.
    let most = (1 << 16) / pages.len().max(1);
    for &(number, member) in smaller {
        if placed.len() >= most {
            others.push(member.path.as_str());
            continue;
        }
        let subject = subject_of(contents, member);
        let level = stack_of(&subject, &image_axes(&subject));
        let Some(level) = level.filter(|level| is_copy(&stack, level)) else {
            others.push(member.path.as_str());
            continue;
        };
        for (page, mut copy) in pages.iter_mut().zip(pages_of(&level, next)?) {
            copy.tags.push((Tag::SubfileType, TagValue::Long(1)));
            page.smaller.push(copy);
        }
        placed.push(PlacedLevel {
            member: number,
            offset: next,
            elements: level.elements(),
        });
        next = next.checked_add(padded_size(member)?)?;
    }
    let header = shortest_header(&pages, next)?;
    let begin = header.len() as u64;
    let place = |level: PlacedLevel| level.variable(contents, begin);
    let variables = placed.into_iter().map(place);
    let variables = variables.collect::<Option<_>>()?;
    let layout = GroupLayout {
        header: Arc::new(header.into()),
        variables,
    };
    let mut left_out = left_out(&subject, &axes, &stack);
    if !others.is_empty() {
        let names = others.join(", ");
        left_out.push(format!(
            "levels {names}: not reduced copies of each image, or too many images"
        ));
    }
    Some(GroupPlan {
        left_out,
        ..GroupPlan::laid(layout)
    })
}

/// A resolution level of a pyramid in the file. Its offset is relative to the end of the header.
struct PlacedLevel {
    member: usize,
    offset: u64,
    elements: ElementForm,
}

impl PlacedLevel {
    /// Gives the resolution level its offset in a file whose header has the length `header`. Zeros pad the level to a
    /// multiple of 8 bytes.
    fn variable(self, contents: &GroupContents, header: u64) -> Option<PlacedVariable> {
        let array = &contents.members.get(self.member)?.array;
        let size = bytes_of(&array.shape, array.data_type.size()?).ok()?;
        let padding = usize::try_from(size.next_multiple_of(8) - size).ok()?;
        let parts = FileParts {
            elements: Some(self.elements),
            trailer: vec![0; padding],
            ..FileParts::default()
        };
        Some(PlacedVariable {
            member: self.member,
            offset: header.checked_add(self.offset)?,
            parts,
        })
    }
}

fn subject_of<'a>(contents: &'a GroupContents, member: &'a GroupMember) -> Subject<'a> {
    Subject {
        array: &member.array,
        shape: &member.array.shape,
        name: member.path.as_bytes(),
        chosen: "",
        around: Surroundings::of_group(Some(&contents.attributes)),
        taken: None,
    }
}

fn padded_size(member: &GroupMember) -> Option<u64> {
    let size = bytes_of(&member.array.shape, member.array.data_type.size()?).ok()?;
    size.checked_next_multiple_of(8)
}

/// Whether a resolution level has a reduced copy of each image in the stack of the first level.
fn is_copy(stack: &ImageStack, level: &ImageStack) -> bool {
    let others = |stack: &ImageStack| {
        let others = stack.others.iter().map(|axis| (axis.length, axis.kind));
        others.collect::<Vec<_>>()
    };
    others(stack) == others(level)
        && stack.has_samples_of(level)
        && level.rows.length <= stack.rows.length
        && level.columns.length <= stack.columns.length
}

/// Returns the paths of the resolution levels of a group's first image, at most `MAX_LEVELS`.
fn named_levels(group: &Attributes) -> Vec<String> {
    let images = multiscales(group);
    let paths = images.first().into_iter().flat_map(level_paths);
    let mut known = HashSet::new();
    let paths = paths.filter(|path| known.insert(path.to_string()));
    paths.take(MAX_LEVELS).map(str::to_string).collect()
}

/// Returns the arrays that are resolution levels of the group's first image, with their numbers. A level that is named
/// repeatedly is returned once.
fn levels(contents: &GroupContents) -> Vec<(usize, &GroupMember)> {
    let images = multiscales(&contents.attributes);
    let paths = images.first().into_iter().flat_map(level_paths);
    let members = contents.members.iter().enumerate();
    let mut unnamed: HashMap<&str, (usize, &GroupMember)> = members
        .map(|(number, member)| (member.path.as_str(), (number, member)))
        .collect();
    let found = paths.filter_map(|path| unnamed.remove(path));
    found.take(MAX_LEVELS).collect()
}

/// Returns OME's symbol for the unit of a dimension; `None` if the unit does not measure the given quantity.
fn unit(axis: &AxisMeaning, quantity: Quantity) -> Option<&'static str> {
    let unit = Unit::of(axis).filter(|unit| unit.quantity == quantity);
    unit.map(|unit| unit.symbol)
}

/// An attribute of OME-XML with a number that belongs to a dimension. The attribute `NAMEUnit` has the unit of the
/// number.
struct Measure<'a> {
    axis: Option<&'a AxisMeaning>,
    name: &'static str,
    quantity: Quantity,
}

impl Measure<'_> {
    /// Returns the dimension, if its unit measures the attribute's quantity.
    fn axis_with_unit(&self) -> Option<&AxisMeaning> {
        self.axis.filter(|axis| unit(axis, self.quantity).is_some())
    }

    fn xml(&self, axis: &AxisMeaning, number: f64) -> String {
        let name = self.name;
        let unit = unit(axis, self.quantity).map(|unit| format!(" {name}Unit=\"{unit}\""));
        format!(" {name}=\"{number}\"{}", unit.unwrap_or_default())
    }

    /// Returns the OME-XML attributes with the spacing along a dimension and its unit. Returns an empty text if the
    /// unit is unknown, because OME would assume a unit.
    fn step_xml(&self) -> String {
        let axis = self.axis_with_unit();
        let step = axis.and_then(|axis| Some(self.xml(axis, axis.scale?.abs())));
        step.unwrap_or_default()
    }
}

/// Returns the OME-XML attributes for the spacing along x, y, z and time.
fn spacings<'a>(axes: &'a [AxisMeaning], stack: &ImageStack) -> [Measure<'a>; 4] {
    let along = |kind| {
        let other = stack.others.iter().find(|axis| axis.kind == Some(kind));
        other.and_then(|other| axes.get(other.axis))
    };
    let measure = |axis, name, quantity| Measure {
        axis,
        name,
        quantity,
    };
    let (x, y) = (axes.get(stack.columns.axis), axes.get(stack.rows.axis));
    let (z, time) = (along(StackKind::Slices), along(StackKind::Frames));
    [
        measure(x, "PhysicalSizeX", Quantity::Length),
        measure(y, "PhysicalSizeY", Quantity::Length),
        measure(z, "PhysicalSizeZ", Quantity::Length),
        measure(time, "TimeIncrement", Quantity::Time),
    ]
}

/// Returns the OME-XML line with the position and the time of the first image, or an empty text if all of them are 0.
/// Programs use the position for all images.
fn place_line(spacings: &[Measure; 4]) -> String {
    let [x, y, z, time] = spacings.each_ref().map(|spacing| spacing.axis);
    if [x, y, z, time]
        .iter()
        .flatten()
        .all(|axis| axis.origin == 0.0)
    {
        return String::new();
    }
    let places = [
        (time, "DeltaT", Quantity::Time),
        (x, "PositionX", Quantity::Length),
        (y, "PositionY", Quantity::Length),
        (z, "PositionZ", Quantity::Length),
    ];
    let places = places.into_iter().filter_map(|(axis, name, quantity)| {
        let place = Measure {
            axis,
            name,
            quantity,
        };
        // OME allows a position without a unit, whose reference frame is unknown. A time without a unit would be in
        // seconds, so it is left out.
        let axis = match quantity {
            Quantity::Length => axis,
            _ => place.axis_with_unit(),
        }?;
        Some(place.xml(axis, axis.origin))
    });
    let places: String = places.collect();
    format!("<Plane TheZ=\"0\" TheC=\"0\" TheT=\"0\"{places}/>\n")
}

/// The kinds of dimensions along which images are stacked, each with OME's letter for it.
const KINDS: [(StackKind, char); 3] = [
    (StackKind::Channels, 'C'),
    (StackKind::Slices, 'Z'),
    (StackKind::Frames, 'T'),
];

/// Returns the letters of all dimensions of a stack as OME orders them, the fastest dimension first.
fn dimension_order(stack: &ImageStack) -> String {
    let mut order = "XY".to_string();
    let inner = stack.others.iter().rev().filter_map(|axis| axis.kind);
    for kind in inner.chain(KINDS.map(|(kind, _)| kind)) {
        let letter = KINDS.iter().find(|(known, _)| *known == kind);
        let letter = letter.map(|(_, letter)| *letter);
        order.extend(letter.filter(|&letter| !order.contains(letter)));
    }
    order
}

fn xml(subject: &Subject, axes: &[AxisMeaning], stack: &ImageStack) -> Option<String> {
    let name = std::str::from_utf8(subject.name)
        .map(escaped)
        .unwrap_or_default();
    let order = dimension_order(stack);
    let (type_name, samples) = (type_name(&subject.array.data_type)?, stack.sample_count());
    let (width, height) = (stack.columns.length, stack.rows.length);
    let [channels, slices, frames] = KINDS.map(|(kind, _)| stack.length(kind));
    let spacings = spacings(axes, stack);
    let steps = spacings.each_ref().map(Measure::step_xml);
    let place_line = place_line(&spacings);
    let channel_lines = channel_lines(subject, channels, samples);
    Some(format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <OME xmlns=\"http://www.openmicroscopy.org/Schemas/OME/2016-06\">\n\
         <Image ID=\"Image:0\" Name=\"{name}\">\n\
         <Pixels ID=\"Pixels:0\" DimensionOrder=\"{order}\" Type=\"{type_name}\" BigEndian=\"false\" \
         SizeX=\"{width}\" SizeY=\"{height}\" SizeC=\"{}\" SizeZ=\"{slices}\" SizeT=\"{frames}\"{}>\n\
         {channel_lines}<TiffData IFD=\"0\" PlaneCount=\"{}\"/>\n{place_line}\
         </Pixels>\n</Image>\n</OME>\n",
        channels * samples,
        steps.concat(),
        stack.pages()?,
    ))
}

/// Returns the OME-XML of the channels, one line for each.
fn channel_lines(subject: &Subject, channels: u64, samples: u64) -> String {
    let described = described_channels(subject);
    let described = described.iter().map(Some).chain(iter::repeat(None));
    let lines = (0..channels).zip(described);
    lines
        .map(|(number, described)| channel_line(described, number, samples))
        .collect()
}

/// Returns what OME-Zarr's `omero` metadata say about the channels of an image, in their order.
fn described_channels(subject: &Subject) -> Vec<Value> {
    let image = subject.image();
    let group = |name| image.and_then(|image| image.attributes.get(name));
    let omero = group("ome")
        .and_then(|mut ome| Some(ome.get_mut("omero")?.take()))
        .or_else(|| group("omero"));
    let channels = omero.and_then(|mut omero| Some(omero.get_mut("channels")?.take()));
    match channels {
        Some(Value::Array(channels)) => channels,
        _ => Vec::new(),
    }
}

/// Returns the OME-XML line of a channel, with the name and the colour that OME-Zarr's metadata give.
fn channel_line(described: Option<&Value>, number: u64, samples: u64) -> String {
    let text = |name| described.and_then(|channel| channel.get(name)?.as_str());
    let label = text("label").map(|label| format!(" Name=\"{}\"", escaped(label)));
    let colour = text("color").filter(|text| text.len() == 6);
    let colour = colour.and_then(|text| u32::from_str_radix(text, 16).ok());
    // A colour in OME-XML is a signed 32-bit number with the bytes red, green, blue and alpha.
    let colour = colour.map(|colour| format!(" Color=\"{}\"", (colour << 8 | 0xff).cast_signed()));
    format!(
        "<Channel ID=\"Channel:0:{number}\" SamplesPerPixel=\"{samples}\"{}{}/>\n",
        label.unwrap_or_default(),
        colour.unwrap_or_default()
    )
}
