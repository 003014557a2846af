//! `.fits`: one image of FITS 4.0, big-endian, in blocks of 2880 bytes.
//!
//! FITS has unsigned bytes and signed longer integers. Other integers are stored with an offset of half their range,
//! which readers remove because of `BZERO`. There are no checksums, since these would require reading all elements.

use std::sync::Arc;

use crate::formats::axes::{AxisMeaning, dimensions_of};
use crate::formats::conversion::{BigEndian, Conversion, Widened};
use crate::formats::units::Unit;
use crate::formats::{ElementForm, FileParts, Subject};
use zarr_format::model::{DataType, bytes_of};

const BLOCK: usize = 2880;
const CARD: usize = 80;

struct StoredType {
    bitpix: i32,
    bzero: Option<&'static str>,
    conversion: Option<Arc<dyn Conversion>>,
}

fn stored_type(data_type: &DataType) -> Option<StoredType> {
    let stored = |bitpix, bzero: Option<&'static str>, size| StoredType {
        bitpix,
        bzero,
        conversion: (size > 1 || bzero.is_some()).then(|| {
            let inverts_top = bzero.is_some();
            Arc::new(BigEndian {
                size,
                word: size,
                inverts_top,
            }) as Arc<dyn Conversion>
        }),
    };
    Some(match data_type {
        DataType::Bool | DataType::UInt(1) => stored(8, None, 1),
        DataType::Int(1) => stored(8, Some("-128"), 1),
        DataType::Int(2) => stored(16, None, 2),
        DataType::UInt(2) => stored(16, Some("32768"), 2),
        DataType::Int(4) => stored(32, None, 4),
        DataType::UInt(4) => stored(32, Some("2147483648"), 4),
        DataType::Int(8) => stored(64, None, 8),
        DataType::UInt(8) => stored(64, Some("9223372036854775808"), 8),
        DataType::Float(4) => stored(-32, None, 4),
        DataType::Float(8) => stored(-64, None, 8),
        DataType::Float(2) => StoredType {
            conversion: Some(Arc::new(Widened::HalfFloat)),
            ..stored(-32, None, 4)
        },
        _ => return None,
    })
}

/// Makes a `.fits` file of header and elements, padded to a whole block; `None` if FITS cannot hold the array.
pub(crate) fn parts(subject: &Subject) -> Option<FileParts> {
    let stored = stored_type(&subject.array.data_type)?;
    if !subject.is_image(zarr_format::model::MAX_RANK) {
        return None;
    }
    let size = usize::try_from(stored.bitpix.unsigned_abs() / 8).ok()?;
    let length = bytes_of(subject.shape, size).ok()?;
    let padding = usize::try_from(length.next_multiple_of(BLOCK as u64) - length).ok()?;
    let dimensions = dimensions_of(subject);
    Some(FileParts {
        left_out: dimensions.left_out_without_directions(),
        header: header(subject, &dimensions.axes, &stored),
        elements: Some(ElementForm {
            order: None,
            conversion: stored.conversion,
        }),
        trailer: vec![0; padding],
    })
}

fn header(subject: &Subject, axes: &[AxisMeaning], stored: &StoredType) -> Vec<u8> {
    let mut cards = vec![
        card("SIMPLE", "T"),
        card("BITPIX", &stored.bitpix.to_string()),
        card("NAXIS", &subject.shape.len().to_string()),
    ];
    for (place, length) in subject.shape.iter().rev().enumerate() {
        cards.push(card(&format!("NAXIS{}", place + 1), &length.to_string()));
    }
    if let Some(bzero) = stored.bzero {
        cards.push(card("BSCALE", "1"));
        cards.push(card("BZERO", bzero));
    }
    let unit = subject.array.attributes.get("units");
    if let Some(unit) = unit.as_ref().and_then(|unit| unit.as_str()) {
        cards.extend(text_card("BUNIT", unit));
    }
    for (place, axis) in axes.iter().rev().enumerate() {
        cards.extend(axis_cards(place + 1, axis));
    }
    cards.push(format!("{:CARD$}", "END"));
    let mut bytes = cards.concat().into_bytes();
    bytes.resize(bytes.len().next_multiple_of(BLOCK), b' ');
    bytes
}

/// Returns a FITS header card with a number or a boolean.
fn card(name: &str, value: &str) -> String {
    format!("{:CARD$}", format!("{name:8}= {value:>20}"))
}

/// Returns a FITS header card with text, or `None` if FITS cannot hold the text.
fn text_card(name: &str, text: &str) -> Option<String> {
    let text = text.replace('\'', "''");
    let is_plain = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    (is_plain && !text.is_empty() && text.len() <= 66)
        .then(|| format!("{:CARD$}", format!("{name:8}= '{text:8}'")))
}

/// Returns the FITS header cards of a dimension: its name, and the position of its elements.
fn axis_cards(number: usize, axis: &AxisMeaning) -> Vec<String> {
    let mut cards = Vec::new();
    if let Some(name) = &axis.name {
        cards.extend(text_card(&format!("CTYPE{number}"), name));
    }
    if let Some(scale) = axis.scale {
        cards.push(card(&format!("CRPIX{number}"), "1.0"));
        cards.push(card(&format!("CRVAL{number}"), &real(axis.origin)));
        cards.push(card(&format!("CDELT{number}"), &real(scale)));
        cards.extend(unit(axis).and_then(|unit| text_card(&format!("CUNIT{number}"), &unit)));
    }
    cards
}

fn real(number: f64) -> String {
    let text = format!("{number:E}");
    if text.contains('.') {
        text
    } else {
        text.replace('E', ".0E")
    }
}

/// Returns the unit of a dimension in FITS notation; `None` if FITS does not have it.
fn unit(axis: &AxisMeaning) -> Option<String> {
    match Unit::of(axis)?.symbol {
        "\u{c5}" => Some("Angstrom".to_string()),
        "in" | "ft" | "yd" | "mi" => None,
        symbol => Some(symbol.replace('\u{b5}', "u")),
    }
}
