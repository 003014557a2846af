//! ImageJ TIFF: a hyperstack, described by lines of text in the first directory.
//!
//! If 32-bit offsets are too short for all images, or there are too many images, one directory is followed by all
//! images, which ImageJ and tifffile read regardless of their size.

use crate::formats::axes::AxisMeaning;
use crate::formats::tiff::directory::{OffsetSize, Tag, TagValue, TiffPage, header};
use crate::formats::tiff::stack::{ImageStack, MAX_PAGES, SampleOrder, StackKind};
use crate::formats::units::Unit;
use crate::formats::{FileParts, Subject};
use zarr_format::model::DataType;

/// Returns an ImageJ stack, or `None` if ImageJ does not support such images.
pub(super) fn parts(
    subject: &Subject,
    axes: &[AxisMeaning],
    mut stack: ImageStack,
) -> Option<FileParts> {
    if !is_supported(&subject.array.data_type, &stack) || !stack.is_known() {
        return None;
    }
    // ImageJ's order is frames of slices of channels.
    stack.others.sort_by_key(|axis| axis.kind);
    let (pages, page) = (stack.pages()?, stack.page_size()?);
    let pixels = page.checked_mul(pages)?;
    i32::try_from(page).ok()?;
    let described = description_tags(axes, &stack, pages)?;
    let make = |count: u64| {
        let made = (0..count).map(|number| stack.page(number * page));
        let mut made = made.collect::<Option<Vec<TiffPage>>>()?;
        made.first_mut()?.tags.extend(described.clone());
        Some(made)
    };
    let each = (pages <= MAX_PAGES && pixels <= u64::from(u32::MAX)).then(|| make(pages));
    let each = each
        .flatten()
        .and_then(|pages| header(&pages, OffsetSize::Classic, pixels));
    let header = match each {
        Some(header) => header,
        // The directory has the offsets of the first image only.
        None => header(&make(1)?, OffsetSize::Classic, page)?,
    };
    Some(FileParts {
        header,
        elements: Some(stack.elements()),
        ..FileParts::default()
    })
}

/// Whether ImageJ supports images of this data type with these samples.
fn is_supported(data_type: &DataType, stack: &ImageStack) -> bool {
    match (data_type, stack.samples) {
        (DataType::UInt(1), Some((axis, SampleOrder::Chunky))) => axis.length == 3,
        (_, Some(_)) => false,
        (data_type, None) => matches!(
            data_type,
            DataType::Bool | DataType::UInt(1 | 2) | DataType::Float(4)
        ),
    }
}

/// Returns the first image's tags that describe the stack.
fn description_tags(
    axes: &[AxisMeaning],
    stack: &ImageStack,
    pages: u64,
) -> Option<[(Tag, TagValue); 4]> {
    let text = description(axes, stack, pages)?;
    Some([
        (Tag::Description, TagValue::Text(text)),
        (Tag::XResolution, resolution(axes.get(stack.columns.axis))),
        (Tag::YResolution, resolution(axes.get(stack.rows.axis))),
        (Tag::ResolutionUnit, TagValue::Short(vec![1])),
    ])
}

fn description(axes: &[AxisMeaning], stack: &ImageStack, pages: u64) -> Option<String> {
    i32::try_from(pages).ok()?;
    let mut text = format!("ImageJ=1.53t\nimages={pages}\n");
    for (name, kind) in [
        ("channels", StackKind::Channels),
        ("slices", StackKind::Slices),
        ("frames", StackKind::Frames),
    ] {
        if stack.length(kind) > 1 {
            text += &format!("{name}={}\n", stack.length(kind));
        }
    }
    let is_composite = (2..=7).contains(&stack.length(StackKind::Channels));
    let mode = if is_composite {
        "composite"
    } else {
        "grayscale"
    };
    text += &format!("hyperstack=true\nmode={mode}\nloop=false\n");
    if let Some(unit) = axes.get(stack.columns.axis).and_then(unit) {
        text += &format!("unit={unit}\n");
    }
    for other in &stack.others {
        let axis = axes.get(other.axis);
        let step = axis.and_then(|axis| axis.scale).map(f64::abs);
        match (other.kind, step) {
            (Some(StackKind::Slices), Some(step)) => text += &format!("spacing={step}\n"),
            (Some(StackKind::Frames), Some(step)) => text += &format!("finterval={step}\n"),
            _ => {}
        }
    }
    Some(text)
}

/// Returns the name of a unit in ImageJ's notation, or `None` if it is not plain text.
fn unit(axis: &AxisMeaning) -> Option<&str> {
    let own = axis.unit.as_deref()?;
    let is_plain = own.chars().all(|letter| letter.is_ascii_alphanumeric());
    match Unit::of(axis).map(|unit| unit.symbol) {
        Some("\u{b5}m") => Some("um"),
        Some(symbol @ ("nm" | "mm" | "cm")) => Some(symbol),
        _ => is_plain.then_some(own),
    }
}

/// Returns pixels per unit as a fraction.
fn resolution(axis: Option<&AxisMeaning>) -> TagValue {
    let step = axis.and_then(|axis| axis.scale).map_or(1.0, f64::abs);
    let number = 1.0 / step;
    let mut under = 1_u32;
    while under < 1_000_000_000
        && number * f64::from(under) * 10.0 < 4e9
        && (number * f64::from(under)).fract() != 0.0
    {
        under *= 10;
    }
    let over = (number * f64::from(under)).round();
    if !(1.0..4e9).contains(&over) {
        return TagValue::Rational(1, 1);
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the number is checked"
    )]
    TagValue::Rational(over as u32, under)
}
