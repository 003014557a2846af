//! Elements as text of a fixed width: the cells of `.csv` and `.ndjson`.
//!
//! Each number has the width of the longest one of its type, spaces before it, so that the length of a file is known and
//! any range of it can be made. Numbers are as short as they can be for others to read the same ones.

use std::fmt::Write;

use half::f16;
use serde_json::Value;

use crate::export::calendar::Calendar;
use crate::export::times::time_text;
use crate::model::DataType;

/// The furthest time that is written, in nanoseconds: as many seconds as eight bytes count.
const FURTHEST: i128 = (1 << 63) * 1_000_000_000;

/// The most code points or bytes of a text of a fixed length.
const MAX_TEXT: usize = 1 << 14;

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowNotation {
    Commas,
    /// Rows of one value: an empty one would be a blank line, which readers of CSV pass over.
    Alone,
    Json,
}

/// What an element is, as far as its text depends on that.
#[derive(Clone, Copy, Debug)]
pub(super) enum TextCell {
    Truth,
    Signed(usize),
    Unsigned(usize),
    Half,
    Single,
    Double,
    /// Counts of so many nanoseconds since 1970.
    Time(i64),
    /// So many code points of UTF-32.
    Text(usize),
    /// So many bytes.
    Bytes(usize),
}

impl TextCell {
    /// Returns the cell of elements of a type; nothing if they have no text of a fixed width.
    pub(super) fn of(data_type: &DataType) -> Option<TextCell> {
        Some(match data_type {
            DataType::Bool => TextCell::Truth,
            DataType::Int(size) => TextCell::Signed(*size),
            DataType::UInt(size) => TextCell::Unsigned(*size),
            DataType::Float(2) => TextCell::Half,
            DataType::Float(4) => TextCell::Single,
            DataType::Float(8) => TextCell::Double,
            DataType::DateTime(unit) if unit.scale == 1 => TextCell::Time(nanoseconds(&unit.name)?),
            DataType::FixedText(points @ 1..=MAX_TEXT) => TextCell::Text(*points),
            DataType::FixedBytes(bytes @ 1..=MAX_TEXT) => TextCell::Bytes(*bytes),
            _ => return None,
        })
    }

    /// Returns the letters of the longest value.
    pub(super) fn width(self, notation: RowNotation) -> usize {
        match self {
            TextCell::Truth => 5,
            TextCell::Signed(1) => 4,
            TextCell::Unsigned(1) => 3,
            TextCell::Signed(2) => 6,
            TextCell::Unsigned(2) => 5,
            TextCell::Signed(4) => 11,
            TextCell::Unsigned(4) => 10,
            TextCell::Signed(_) | TextCell::Unsigned(_) => 20,
            TextCell::Half => 15,
            TextCell::Single => 19,
            TextCell::Double => 24,
            // With quotes; the longer the unit, the more digits years have and the fewer fractions.
            TextCell::Time(_) => 31,
            // With quotes; letters take four bytes at most, or as in JSON `\u0001`.
            TextCell::Text(points) => notation.longest_letter() * points + 2,
            // Or a list of numbers, in CSV with quotes.
            TextCell::Bytes(bytes) => notation.longest_letter() * bytes + 3,
        }
    }

    /// Returns the bytes of a decoded element.
    pub(super) fn size(self) -> usize {
        match self {
            TextCell::Truth => 1,
            TextCell::Signed(size) | TextCell::Unsigned(size) => size,
            TextCell::Half => 2,
            TextCell::Single => 4,
            TextCell::Double | TextCell::Time(_) => 8,
            TextCell::Text(points) => 4 * points,
            TextCell::Bytes(bytes) => bytes,
        }
    }

    /// Writes an element; what is no number is `nothing`.
    fn write(self, element: &[u8], notation: RowNotation, text: &mut String) {
        match self {
            TextCell::Text(_) => return text.push_str(&notation.text(&utf32(element))),
            TextCell::Bytes(_) => return text.push_str(&notation.bytes(element)),
            _ => {}
        }
        let mut wide = [0; 8];
        let size = element.len().min(8);
        wide[..size].copy_from_slice(&element[..size]);
        let word = u64::from_le_bytes(wide);
        let low = |word: u64| u32::try_from(word & u64::from(u32::MAX)).unwrap_or_default();
        // Writing into a text does not fail.
        let _ = match self {
            TextCell::Truth => write!(text, "{}", word != 0),
            TextCell::Unsigned(_) => write!(text, "{word}"),
            TextCell::Signed(size) => {
                let unused = 64 - 8 * u32::try_from(size).unwrap_or(8).min(8);
                write!(text, "{}", (word << unused).cast_signed() >> unused)
            }
            TextCell::Half => {
                let bits = u16::try_from(word & 0xffff).unwrap_or_default();
                float(f16::from_bits(bits).to_f32(), notation, text)
            }
            TextCell::Single => float(f32::from_bits(low(word)), notation, text),
            TextCell::Double => float(f64::from_bits(word), notation, text),
            TextCell::Time(unit) => write_time(word.cast_signed(), unit, notation, text),
            TextCell::Text(_) | TextCell::Bytes(_) => Ok(()),
        };
    }

    /// Writes an element into its place, with spaces before it; `text` is room that is used again.
    pub(super) fn put(
        self,
        element: &[u8],
        notation: RowNotation,
        text: &mut String,
        place: &mut [u8],
    ) {
        text.clear();
        self.write(element, notation, text);
        place.fill(b' ');
        let start = place.len().saturating_sub(text.len());
        let length = place.len() - start;
        place[start..].copy_from_slice(&text.as_bytes()[..length]);
    }
}

impl RowNotation {
    /// Returns the most bytes of a letter.
    fn longest_letter(self) -> usize {
        match self {
            RowNotation::Commas | RowNotation::Alone => 4,
            RowNotation::Json => 6,
        }
    }

    /// Returns text in quotes.
    pub(super) fn text(self, text: &str) -> String {
        match self {
            RowNotation::Commas | RowNotation::Alone => {
                format!("\"{}\"", text.replace('"', "\"\""))
            }
            RowNotation::Json => Value::from(text).to_string(),
        }
    }

    /// Returns bytes, without zeros at the end, as text if they are, and else as a list of numbers.
    fn bytes(self, bytes: &[u8]) -> String {
        let length = bytes.iter().rposition(|&byte| byte != 0);
        let bytes = &bytes[..length.map_or(0, |last| last + 1)];
        let list = || Value::from(bytes.to_vec()).to_string();
        match (str::from_utf8(bytes), self) {
            (Ok(text), _) => self.text(text),
            (Err(_), RowNotation::Json) => list(),
            (Err(_), RowNotation::Commas | RowNotation::Alone) => self.text(&list()),
        }
    }

    /// Returns how rows of so many values are written.
    pub(super) fn of_rows(self, values: u64) -> RowNotation {
        match self {
            RowNotation::Commas if values == 1 => RowNotation::Alone,
            notation => notation,
        }
    }

    /// Returns what stands for no number; `word` is numpy's for it.
    fn nothing(self, word: &'static str) -> &'static str {
        match self {
            RowNotation::Commas => "",
            RowNotation::Alone => word,
            RowNotation::Json => "null",
        }
    }
}

/// Returns the nanoseconds of a unit of numpy; nothing for those whose lengths differ, or are shorter.
fn nanoseconds(unit: &str) -> Option<i64> {
    Some(match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "D" => 86_400_000_000_000,
        _ => return None,
    })
}

/// Returns text of a fixed length, without the zeros after it.
fn utf32(element: &[u8]) -> String {
    let points = element.as_chunks::<4>().0.iter();
    let letters = points.map(|point| char::from_u32(u32::from_le_bytes(*point)));
    let text: String = letters
        .map(|letter| letter.unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect();
    text.trim_end_matches('\0').to_string()
}

/// Writes a time that is so many times `unit` nanoseconds since 1970.
fn write_time(count: i64, unit: i64, notation: RowNotation, text: &mut String) -> std::fmt::Result {
    let time = i128::from(count) * i128::from(unit);
    if count == i64::MIN || time.abs() > FURTHEST {
        return text.write_str(notation.nothing("NaT"));
    }
    let time = time_text(time, Calendar::Gregorian);
    match notation {
        RowNotation::Commas | RowNotation::Alone => text.write_str(&time),
        RowNotation::Json => write!(text, "\"{time}\""),
    }
}

fn float<T: Into<f64> + Copy + std::fmt::Debug>(
    number: T,
    notation: RowNotation,
    text: &mut String,
) -> std::fmt::Result {
    let wide: f64 = number.into();
    if wide.is_nan() || (wide.is_infinite() && notation == RowNotation::Json) {
        text.push_str(notation.nothing("NaN"));
        return Ok(());
    }
    // The shortest digits that are read as the same number.
    write!(text, "{number:?}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::TimeUnit;

    #[test]
    fn every_half_float_fits_into_its_cell() {
        let mut longest = 0;
        for bits in 0..=u16::MAX {
            for notation in [RowNotation::Commas, RowNotation::Json] {
                let mut text = String::new();
                TextCell::Half.write(&bits.to_le_bytes(), notation, &mut text);
                longest = longest.max(text.len());
                let number = f16::from_bits(bits).to_f32();
                let is_same = text.parse() == Ok(number);
                assert!(is_same || !number.is_finite(), "{bits:04x}: {text}");
            }
        }
        assert_eq!(longest, TextCell::Half.width(RowNotation::Commas));
    }

    #[test]
    fn no_line_of_one_value_is_blank() {
        let unit = TimeUnit {
            name: "s".to_string(),
            scale: 1,
        };
        let time = TextCell::of(&DataType::DateTime(unit)).unwrap();
        for (cell, element, word) in [
            (TextCell::Half, f16::NAN.to_le_bytes().to_vec(), "NaN"),
            (TextCell::Double, f64::NAN.to_le_bytes().to_vec(), "NaN"),
            (time, i64::MIN.to_le_bytes().to_vec(), "NaT"),
        ] {
            let written = |values| {
                let mut text = String::new();
                let notation = RowNotation::Commas.of_rows(values);
                cell.write(&element, notation, &mut text);
                text
            };
            assert_eq!((written(1).as_str(), written(2).as_str()), (word, ""));
        }
    }

    /// Units with their least and greatest times, as numpy writes them.
    const EXTREMES: [(&str, &str, &str); 4] = [
        (
            "ns",
            "1677-09-21T00:12:43.145224193",
            "2262-04-11T23:47:16.854775807",
        ),
        (
            "us",
            "-290308-12-21T19:59:05.224193",
            "294247-01-10T04:00:54.775807",
        ),
        (
            "ms",
            "-292275055-05-16T16:47:04.193",
            "292278994-08-17T07:12:55.807",
        ),
        (
            "s",
            "-292277022657-01-27T08:29:53",
            "292277026596-12-04T15:30:07",
        ),
    ];

    #[test]
    fn times_of_any_unit_fit_into_their_cells() {
        for (unit, least, greatest) in EXTREMES {
            let unit = TimeUnit {
                name: unit.to_string(),
                scale: 1,
            };
            let cell = TextCell::of(&DataType::DateTime(unit)).unwrap();
            let written = |count: i64, notation| {
                let mut text = String::new();
                cell.write(&count.to_le_bytes(), notation, &mut text);
                assert!(text.len() <= cell.width(notation), "{text}");
                text
            };
            assert_eq!(written(i64::MIN + 1, RowNotation::Commas), least);
            assert_eq!(
                written(i64::MIN + 1, RowNotation::Json),
                format!("\"{least}\"")
            );
            assert_eq!(written(i64::MAX, RowNotation::Commas), greatest);
            assert_eq!(written(i64::MIN, RowNotation::Json), "null");
        }
    }

    #[test]
    fn days_that_are_further_than_any_time_are_none() {
        let unit = TimeUnit {
            name: "D".to_string(),
            scale: 1,
        };
        let cell = TextCell::of(&DataType::DateTime(unit)).unwrap();
        for (days, expected) in [
            (18_262, "2020-01-01T00:00:00"),
            (i64::MAX, ""),
            (1 << 48, ""),
        ] {
            let mut text = String::new();
            cell.write(&i64::to_le_bytes(days), RowNotation::Commas, &mut text);
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn texts_of_any_letters_fit_into_their_cells() {
        let letters = [
            'a',
            '"',
            '\\',
            '\u{1}',
            '\u{7f}',
            '\u{e9}',
            '\u{20ac}',
            '\u{1f600}',
            '\0',
        ];
        for (first, last) in letters.iter().flat_map(|a| letters.map(|b| (*a, b))) {
            let points = [first, last].map(|letter| u32::from(letter).to_le_bytes());
            let (text, element) = (format!("{first}{last}"), points.concat());
            let expected = text.trim_end_matches('\0');
            for notation in [RowNotation::Commas, RowNotation::Json] {
                let cell = TextCell::Text(2);
                let (mut room, mut place) = (String::new(), vec![b'x'; cell.width(notation)]);
                cell.put(&element, notation, &mut room, &mut place);
                let written = String::from_utf8(place).unwrap();
                assert_eq!(written.trim_start(), notation.text(expected));
            }
            let json = RowNotation::Json.text(expected);
            assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), expected);
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_lists_of_numbers() {
        let cell = TextCell::Bytes(3);
        for (bytes, commas, json) in [
            (b"ab\0", "\"ab\"", "\"ab\""),
            (b"\0\0\0", "\"\"", "\"\""),
            (b"\xff\xfe\xfd", "\"[255,254,253]\"", "[255,254,253]"),
        ] {
            for (notation, expected) in [(RowNotation::Commas, commas), (RowNotation::Json, json)] {
                let (mut room, mut place) = (String::new(), vec![0; cell.width(notation)]);
                cell.put(bytes, notation, &mut room, &mut place);
                assert_eq!(String::from_utf8(place).unwrap().trim_start(), expected);
            }
        }
    }
}
