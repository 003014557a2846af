//! `.tif` and `.ome.tif`: uncompressed images with rows and columns in array order.
//!
//! `.tif` is a GeoTIFF if the array has a georeference. Otherwise it is an ImageJ TIFF, if ImageJ supports the array,
//! or else a file of plain images, with 64-bit offsets if necessary. `stack` finds out which dimensions are images,
//! `directory` writes the directories.

use crate::formats::axes::AxisMeaning;
use crate::formats::maps::BandFacts;
use crate::formats::maps::geo_transform::GeoTransform;
use crate::formats::maps::georeference::{Georeference, georeference};
use crate::formats::maps::reference_system::ReferenceSystem;
use crate::formats::tiff::directory::{
    OffsetSize, Tag, TagValue, TiffPage, header, shortest_header,
};
use crate::formats::tiff::stack::{
    ImageStack, MAX_PAGES, SampleOrder, StackAxis, StackKind, image_axes,
};
use crate::formats::units::Unit;
use crate::formats::{FileParts, Subject};
use zarr_format::model::DataType;

mod directory;
pub(crate) mod ome;
mod stack;

/// Makes a `.tif` file of directories and elements; `None` if TIFF cannot hold the array.
pub(crate) fn parts(subject: &Subject) -> Option<FileParts> {
    let axes = image_axes(subject);
    let stack = || ImageStack::of(subject, &axes);
    let first = stack()?;
    let mut map = georeference(subject, &axes, first.plane());
    if map.is_map {
        let mut left_out = std::mem::take(&mut map.left_out);
        match geotiff(subject, map, first) {
            Some(mut parts) => {
                parts.left_out.extend(left_out);
                return Some(parts);
            }
            None => {
                let why =
                    "the georeference: a GeoTIFF has at most 65,535 bands, and no colour bands";
                left_out.push(why.to_string());
            }
        }
        map = Georeference {
            left_out,
            ..Georeference::default()
        };
    }
    // A single image with many bands is the last choice: it needs one directory, while a file of plain images has at
    // most `MAX_PAGES` directories.
    let parts = imagej(subject, &axes, stack()?)
        .or_else(|| plain(subject, stack()?))
        .or_else(|| geotiff(subject, Georeference::default(), stack()?));
    parts.map(|mut parts| {
        parts.left_out.extend(map.left_out);
        parts
    })
}

/// Makes a TIFF file with one directory per image. A description in tifffile's form states the shape of the array.
fn plain(subject: &Subject, stack: ImageStack) -> Option<FileParts> {
    let (count, size) = (stack.pages()?, stack.page_size()?);
    if count > MAX_PAGES {
        return None;
    }
    let pages = (0..count).map(|number| stack.page(number.checked_mul(size)?));
    let mut pages = pages.collect::<Option<Vec<_>>>()?;
    let elements = stack.elements();
    let own = (0..subject.shape.len()).collect();
    let order = elements.order.as_ref().unwrap_or(&own);
    let shape: Vec<u64> = order
        .iter()
        .filter_map(|&axis| subject.shape.get(axis).copied())
        .collect();
    let text = format!("{{\"shape\": {shape:?}}}");
    pages
        .first_mut()?
        .tags
        .push((Tag::Description, TagValue::Text(text)));
    Some(FileParts {
        header: shortest_header(&pages, size.checked_mul(count)?)?,
        elements: Some(elements),
        ..FileParts::default()
    })
}

/// Makes a GeoTIFF file: one image whose samples are bands, with tags for the reference system and the geotransform.
/// Returns `None` if there are too many bands, or if the images have colours.
fn geotiff(subject: &Subject, mut map: Georeference, mut stack: ImageStack) -> Option<FileParts> {
    let elements = stack.elements();
    if !stack.others.is_empty() {
        make_bands(&mut stack)?;
    }
    let mut page = stack.page(0)?;
    page.tags.extend(map.place.into_iter().flat_map(place_tags));
    if let Some(system) = &map.system {
        match system_tags(system) {
            Some(tags) => page.tags.extend(tags),
            None => {
                let label: String = system.text.chars().take(100).collect();
                map.left_out.push(format!(
                    "the reference system {label}: GeoTIFF supports only EPSG codes; use the .vrt"
                ));
            }
        }
    }
    let mut facts = BandFacts::of(subject);
    if let Some(number) = facts.no_data.take() {
        page.tags.push((Tag::GdalNoData, TagValue::Text(number)));
    }
    if let Some(xml) = band_lines(facts, stack.sample_count()) {
        page.tags.push((Tag::GdalMetadata, TagValue::Text(xml)));
    }
    let header = shortest_header(&[page], stack.page_size()?)?;
    Some(FileParts {
        header,
        elements: Some(elements),
        left_out: map.left_out,
        ..FileParts::default()
    })
}

/// Turns all images of a stack into samples of a single image. Returns `None` if there are too many, or if the images
/// have colours.
fn make_bands(stack: &mut ImageStack) -> Option<()> {
    // The colours of an image would become bands as well, so an image with colours is not converted.
    if let Some((_, SampleOrder::Chunky)) = stack.samples {
        return None;
    }
    let bands = stack.pages()?.checked_mul(stack.sample_count())?;
    u16::try_from(bands).ok()?;
    let axis = StackAxis {
        axis: 0,
        length: bands,
        kind: None,
    };
    stack.others.clear();
    (stack.samples, stack.is_colour) = (Some((axis, SampleOrder::Planar)), false);
    Some(())
}

/// Returns the GeoTIFF tags that state a geotransform.
fn place_tags(place: GeoTransform) -> Vec<(Tag, TagValue)> {
    let [x, width, skew_x, y, skew_y, height] = place.numbers();
    if !place.is_skewed() && width > 0.0 && height < 0.0 {
        return vec![
            (Tag::PixelScale, TagValue::Double(vec![width, -height, 0.0])),
            (
                Tag::TiePoint,
                TagValue::Double(vec![0.0, 0.0, 0.0, x, y, 0.0]),
            ),
        ];
    }
    let rows = [
        [width, skew_x, 0.0, x],
        [skew_y, height, 0.0, y],
        [0.0; 4],
        [0.0, 0.0, 0.0, 1.0],
    ];
    vec![(Tag::Transformation, TagValue::Double(rows.concat()))]
}

/// Returns the GeoTIFF tags of a reference system: its EPSG code, or else WKT in a form that GDAL reads. Returns `None`
/// if the system has neither.
fn system_tags(system: &ReferenceSystem) -> Option<Vec<(Tag, TagValue)>> {
    let (model, key) = if system.is_geographic() {
        (2, 2048)
    } else {
        (1, 3072)
    };
    let (version, area) = ([1, 1, 0, 3], [1025, 0, 1, 1]);
    if let Some(code) = system.code() {
        let keys = [version, [1024, 0, 1, model], area, [key, 0, 1, code]];
        return Some(vec![(Tag::GeoKeys, TagValue::Short(keys.concat()))]);
    }
    if !system.is_text() {
        return None;
    }
    // GeoTIFF allows only ASCII. To replace letters in names is harmless, because WKT also states all numbers.
    let plain = |letter: char| match letter {
        '|' => ' ',
        letter if letter.is_ascii() => letter,
        _ => '?',
    };
    let text: String = system.text.chars().map(plain).collect();
    let words = format!("ESRI PE String = {text}|");
    let length = u16::try_from(words.len()).ok()?;
    // In the GeoTIFF key 1024, the value 32767 means a reference system without an EPSG code.
    let model = [1024, 0, 1, 32767];
    let citation = [3073, Tag::GeoKeyTexts as u16, length, 0];
    let keys = [version, model, area, citation];
    Some(vec![
        (Tag::GeoKeys, TagValue::Short(keys.concat())),
        (Tag::GeoKeyTexts, TagValue::Text(words)),
    ])
}

/// Returns the unit and the packing of the bands as XML that GDAL reads in a TIFF tag.
fn band_lines(facts: BandFacts, bands: u64) -> Option<String> {
    let items = [
        ("OFFSET", "offset", facts.offset),
        ("SCALE", "scale", facts.scale),
        ("UNITTYPE", "unittype", facts.unit),
    ];
    let mut text = String::new();
    for band in 0..bands.min(256) {
        for (name, role, value) in &items {
            if let Some(value) = value {
                text += &format!(
                    "<Item name=\"{name}\" sample=\"{band}\" role=\"{role}\">{value}</Item>\n"
                );
            }
        }
    }
    (!text.is_empty()).then(|| format!("<GDALMetadata>\n{text}</GDALMetadata>\n"))
}

/// Makes an ImageJ TIFF file: a hyperstack that lines of text in the first directory describe. Returns `None` if ImageJ
/// does not support such images.
///
/// If 32-bit offsets are too short, or if there are too many images, the file has only the directory of the first
/// image. ImageJ and tifffile then read all images, which follow each other, whatever their total size.
fn imagej(subject: &Subject, axes: &[AxisMeaning], mut stack: ImageStack) -> Option<FileParts> {
    if !is_of_imagej(&subject.array.data_type, &stack) || !stack.is_known() {
        return None;
    }
    // In ImageJ's order, channels vary fastest, then slices, then frames.
    stack.others.sort_by_key(|axis| axis.kind);
    let (pages, page) = (stack.pages()?, stack.page_size()?);
    let pixels = page.checked_mul(pages)?;
    i32::try_from(page).ok()?;
    let described = imagej_tags(axes, &stack, pages)?;
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
        // A header for the first image alone needs only the offset of this image.
        None => header(&make(1)?, OffsetSize::Classic, page)?,
    };
    Some(FileParts {
        header,
        elements: Some(stack.elements()),
        ..FileParts::default()
    })
}

/// Whether ImageJ supports images of a data type with the stack's number and order of samples.
fn is_of_imagej(data_type: &DataType, stack: &ImageStack) -> bool {
    match (data_type, stack.samples) {
        (DataType::UInt(1), Some((axis, SampleOrder::Chunky))) => axis.length == 3,
        (_, Some(_)) => false,
        (data_type, None) => matches!(
            data_type,
            DataType::Bool | DataType::UInt(1 | 2) | DataType::Float(4)
        ),
    }
}

/// Returns the tags of the first directory that describe the stack to ImageJ.
fn imagej_tags(
    axes: &[AxisMeaning],
    stack: &ImageStack,
    pages: u64,
) -> Option<[(Tag, TagValue); 4]> {
    let text = imagej_text(axes, stack, pages)?;
    Some([
        (Tag::Description, TagValue::Text(text)),
        (Tag::XResolution, resolution(axes.get(stack.columns.axis))),
        (Tag::YResolution, resolution(axes.get(stack.rows.axis))),
        (Tag::ResolutionUnit, TagValue::Short(vec![1])),
    ])
}

fn imagej_text(axes: &[AxisMeaning], stack: &ImageStack, pages: u64) -> Option<String> {
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
    if let Some(unit) = axes.get(stack.columns.axis).and_then(imagej_unit) {
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

/// Returns the unit of a dimension as ImageJ writes it; `None` if it has other characters than ASCII letters and
/// digits.
fn imagej_unit(axis: &AxisMeaning) -> Option<&str> {
    let own = axis.unit.as_deref()?;
    let is_plain = own.chars().all(|letter| letter.is_ascii_alphanumeric());
    match Unit::of(axis).map(|unit| unit.symbol) {
        Some("\u{b5}m") => Some("um"),
        Some(symbol @ ("nm" | "mm" | "cm")) => Some(symbol),
        _ => is_plain.then_some(own),
    }
}

/// Returns TIFF's resolution of a dimension: the number of pixels per unit, as a fraction.
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
