//! GeoTIFF: one image whose samples are the bands, with the tags of its reference system and place.

use crate::export::axes::AxisMeaning;
use crate::export::band_facts::BandFacts;
use crate::export::georeference::{place, reference_system, transform};
use crate::export::raster::no_data;
use crate::export::tiff::directory::{TagValue, shortest_header};
use crate::export::tiff::stack::{ImageStack, SampleOrder, StackAxis};
use crate::export::{FileParts, Subject};

const PIXEL_SCALE: u16 = 33550;
const TIE_POINT: u16 = 33922;
const TRANSFORMATION: u16 = 34264;
const KEYS: u16 = 34735;
const KEY_TEXTS: u16 = 34737;
const GDAL_METADATA: u16 = 42112;
const GDAL_NO_DATA: u16 = 42113;

/// The number of a system that has none.
const USER_DEFINED: u16 = 32767;

/// Returns a map; nothing if no attribute says where the array lies, or it has too many bands.
pub(super) fn parts(
    subject: &Subject,
    axes: &[AxisMeaning],
    mut stack: ImageStack,
) -> Option<FileParts> {
    let system = reference_system(subject);
    if system.is_none() && transform(subject).is_none() {
        return None;
    }
    let elements = stack.elements();
    if !stack.others.is_empty() {
        make_bands(&mut stack)?;
    }
    let mut page = stack.page(0)?;
    let (y, x) = (axes.get(stack.rows.axis)?, axes.get(stack.columns.axis)?);
    if let Some(place) = place(subject, y, x) {
        page.tags.extend(placed(place));
    }
    if let Some(system) = system {
        page.tags.extend(system_tags(&system));
    }
    if let Some(number) = no_data(subject) {
        page.tags.push((GDAL_NO_DATA, TagValue::Text(number)));
    }
    if let Some(xml) = band_lines(subject, stack.sample_count()) {
        page.tags.push((GDAL_METADATA, TagValue::Text(xml)));
    }
    let header = shortest_header(&[page], stack.page_size()?)?;
    Some(FileParts {
        header,
        elements: Some(elements),
        ..FileParts::default()
    })
}

/// Makes all images of a stack the samples of one; nothing if there are too many, or they have colours.
fn make_bands(stack: &mut ImageStack) -> Option<()> {
    // Bands of colours are bands too.
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

/// Returns the tags of the place of the first pixel, given as GDAL has it.
fn placed([x, width, skew_x, y, skew_y, height]: [f64; 6]) -> Vec<(u16, TagValue)> {
    if skew_x == 0.0 && skew_y == 0.0 && width > 0.0 && height < 0.0 {
        return vec![
            (PIXEL_SCALE, TagValue::Double(vec![width, -height, 0.0])),
            (TIE_POINT, TagValue::Double(vec![0.0, 0.0, 0.0, x, y, 0.0])),
        ];
    }
    let rows = [
        [width, skew_x, 0.0, x],
        [skew_y, height, 0.0, y],
        [0.0; 4],
        [0.0, 0.0, 0.0, 1.0],
    ];
    vec![(TRANSFORMATION, TagValue::Double(rows.concat()))]
}

/// Returns the tags of a reference system: by its number at EPSG, or else as text that GDAL reads.
fn system_tags(system: &str) -> Vec<(u16, TagValue)> {
    let is_text = system.contains('[');
    let upper = system.trim_start().to_ascii_uppercase();
    let is_projected = |code: Option<u16>| match (is_text, code) {
        (true, _) => upper.starts_with("PROJ"),
        // Most systems of longitude and latitude have these numbers.
        (false, Some(code)) => !(4000..5000).contains(&code),
        (false, None) => true,
    };
    let code = epsg(system);
    let (model, key) = if is_projected(code) {
        (1, 3072)
    } else {
        (2, 2048)
    };
    let mut text = None;
    let keys = match code {
        Some(code) => [
            [1, 1, 0, 3],
            [1024, 0, 1, model],
            [1025, 0, 1, 1],
            [key, 0, 1, code],
        ],
        None if is_text && system.is_ascii() => {
            let words = format!("ESRI PE String = {}|", system.replace('|', " "));
            let Ok(length) = u16::try_from(words.len()) else {
                return Vec::new();
            };
            text = Some((KEY_TEXTS, TagValue::Text(words)));
            let (model, citation) = ([1024, 0, 1, USER_DEFINED], [3073, KEY_TEXTS, length, 0]);
            [[1, 1, 0, 3], model, [1025, 0, 1, 1], citation]
        }
        None => return Vec::new(),
    };
    let keys = (KEYS, TagValue::Short(keys.concat()));
    std::iter::once(keys).chain(text).collect()
}

/// Returns the number of a system at EPSG: of `EPSG:32633` and the like, and of the last identifier of a text.
fn epsg(system: &str) -> Option<u16> {
    let upper = system.to_ascii_uppercase();
    let (_, after) = upper.rsplit_once("EPSG")?;
    let is_text = system.contains('[');
    let digits = |letter: char| letter.is_ascii_digit();
    let end = after.trim_end_matches([']', ' ', '\n', '"']);
    let start = end
        .rfind(|letter| !digits(letter))
        .map_or(0, |place| place + 1);
    let between = end.get(..start)?;
    let allowed: &[char] = if is_text {
        &['"', ',', ' ']
    } else {
        &[':', '/', '0']
    };
    let is_plain = between
        .chars()
        .all(|letter| allowed.contains(&letter) || letter == '.' || digits(letter));
    // The one of the whole is closed with it alone.
    let closed = after.chars().filter(|&letter| letter == ']').count();
    let is_whole = !is_text || closed == 2;
    (is_plain && is_whole)
        .then(|| end.get(start..)?.parse().ok())
        .flatten()
}

/// Returns unit and packing of the numbers as GDAL writes them.
fn band_lines(subject: &Subject, bands: u64) -> Option<String> {
    let facts = BandFacts::of(subject);
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
