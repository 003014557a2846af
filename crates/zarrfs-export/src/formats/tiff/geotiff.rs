//! GeoTIFF: one image with bands as samples, and tags for reference system and place.

use crate::formats::maps::bands::BandFacts;
use crate::formats::maps::geo_transform::GeoTransform;
use crate::formats::maps::georeference::Georeference;
use crate::formats::maps::reference_system::ReferenceSystem;
use crate::formats::tiff::directory::{Tag, TagValue, shortest_header};
use crate::formats::tiff::stack::{ImageStack, SampleOrder, StackAxis};
use crate::formats::{FileParts, Subject};

/// Returns a map, or `None` if it has too many bands or bands of colours.
pub(super) fn parts(
    subject: &Subject,
    mut map: Georeference,
    mut stack: ImageStack,
) -> Option<FileParts> {
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

/// Turns all images of a stack into samples of one image, or returns `None` if there are too many, or they have
/// colours.
fn make_bands(stack: &mut ImageStack) -> Option<()> {
    // Bands of colours would be additional bands.
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

/// Returns the tags of a georeference, whose numbers are in the order of GDAL's geotransform.
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

/// Returns the tags of a reference system: its EPSG code, or else WKT that GDAL reads; `None` if it has neither.
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
    // GeoTIFF allows only ASCII; names do not matter, since WKT has all numbers.
    let plain = |letter: char| match letter {
        '|' => ' ',
        letter if letter.is_ascii() => letter,
        _ => '?',
    };
    let text: String = system.text.chars().map(plain).collect();
    let words = format!("ESRI PE String = {text}|");
    let length = u16::try_from(words.len()).ok()?;
    // 32767 is a system without an EPSG code.
    let model = [1024, 0, 1, 32767];
    let citation = [3073, Tag::GeoKeyTexts as u16, length, 0];
    let keys = [version, model, area, citation];
    Some(vec![
        (Tag::GeoKeys, TagValue::Short(keys.concat())),
        (Tag::GeoKeyTexts, TagValue::Text(words)),
    ])
}

/// Returns unit and packing of the numbers as GDAL writes them.
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
