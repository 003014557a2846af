//! Formats elements as text for the cells of `.csv` and `.ndjson`.
//!
//! Numbers get the fewest digits that read back as the same number.

use std::fmt::Write;

use half::f16;
use serde_json::Value;

use crate::formats::cf::times::Calendar;
use crate::formats::cf::times::time_text;
use crate::formats::elements;
use crate::formats::plain;
use zarr_format::model::{Coding, DataType, NumberType, TimeUnit};

/// The notation of a table's rows: CSV or JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RowNotation {
    Commas,
    /// CSV with a single column. An empty cell would make an empty line here, which CSV readers skip.
    Alone,
    Json,
}

/// The kind of an element, which decides how it is written as text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TextCell {
    Truth,
    Signed(usize),
    Unsigned(usize),
    /// A duration, written as a number without unit. The smallest 64-bit number is NaT.
    Duration,
    Half,
    Single,
    Double,
    Small(&'static NumberType),
    Time(TimeCell),
    /// Fixed-length text in UTF-32.
    Text,
    /// Fixed-length bytes.
    Bytes,
    /// Elements of variable length.
    Variable(DataType),
}

/// The unit in which the numbers of a data type count times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeCell {
    /// Each number counts periods of this many months since 1970.
    Months(i64),
    /// Each number counts periods of `unit` nanoseconds since 1970.
    Nanoseconds {
        unit: i128,
        /// Number of decimals of the seconds; `None` for days, which are written as dates. All times get the same
        /// number of decimals, since pandas reads a column of times in several forms as text.
        digits: Option<usize>,
    },
}

impl TextCell {
    /// Returns how the elements of a data type are written as text, or `None` if they have no text form.
    pub(crate) fn of(data_type: &DataType) -> Option<TextCell> {
        Some(match data_type {
            DataType::Bool => TextCell::Truth,
            DataType::Int(size) => TextCell::Signed(*size),
            DataType::UInt(size) => TextCell::Unsigned(*size),
            DataType::Float(2) => TextCell::Half,
            DataType::Float(4) => TextCell::Single,
            DataType::Float(8) => TextCell::Double,
            DataType::Small(number) if number.word == number.size => TextCell::Small(number),
            DataType::DateTime(unit) => TextCell::Time(TimeCell::of(unit)?),
            // Durations are written as numbers, because readers disagree on their text form.
            DataType::TimeDelta(_) => TextCell::Duration,
            DataType::FixedText(_) => TextCell::Text,
            DataType::FixedBytes(_) => TextCell::Bytes,
            data_type if data_type.is_variable() => TextCell::Variable(data_type.clone()),
            _ => return None,
        })
    }

    /// Appends an element to the text of a table.
    pub(crate) fn write(&self, element: &[u8], notation: RowNotation, text: &mut String) {
        match self {
            TextCell::Text => return notation.push_text(&elements::text(element), text),
            TextCell::Bytes => return notation.push_bytes(elements::unpadded(element), text),
            TextCell::Variable(data_type) => {
                return push_variable(data_type, element, notation, text);
            }
            _ => {}
        }
        let mut wide = [0; 8];
        let size = element.len().min(8);
        wide[..size].copy_from_slice(&element[..size]);
        let word = u64::from_le_bytes(wide);
        let low = |word: u64| u32::try_from(word & u64::from(u32::MAX)).unwrap_or_default();
        // A write to a string cannot fail, so the result is ignored.
        let _ = match self {
            TextCell::Truth => write!(text, "{}", word != 0),
            TextCell::Unsigned(_) => write!(text, "{word}"),
            TextCell::Signed(size) => {
                let unused = 64 - 8 * u32::try_from(*size).unwrap_or(8).min(8);
                write!(text, "{}", (word << unused).cast_signed() >> unused)
            }
            TextCell::Duration => match word.cast_signed() {
                i64::MIN => text.write_str(notation.nothing()),
                count => write!(text, "{count}"),
            },
            TextCell::Half => {
                let bits = u16::try_from(word & 0xffff).unwrap_or_default();
                let is_same = |value| f16::from_f64(value).to_bits() == bits;
                let value = f16::from_bits(bits).to_f64();
                push_float(shortest(value, is_same), notation, text)
            }
            TextCell::Single => push_float(f32::from_bits(low(word)), notation, text),
            TextCell::Double => push_float(f64::from_bits(word), notation, text),
            TextCell::Small(number) => push_small(number, element, notation, text),
            TextCell::Time(cell) => cell.write(word.cast_signed(), notation, text),
            TextCell::Text | TextCell::Bytes | TextCell::Variable(_) => Ok(()),
        };
    }

    /// Appends a missing value to the text of a table.
    pub(crate) fn write_nothing(&self, notation: RowNotation, text: &mut String) {
        text.push_str(match self {
            TextCell::Half | TextCell::Single | TextCell::Double | TextCell::Small(_) => {
                notation.no_number()
            }
            _ => notation.nothing(),
        });
    }
}

impl RowNotation {
    /// Returns the notation for a table whose rows have `values` values each.
    pub(crate) fn of_rows(self, values: u64) -> RowNotation {
        match self {
            RowNotation::Commas if values == 1 => RowNotation::Alone,
            notation => notation,
        }
    }

    /// Appends text in quotes even where CSV does not require them, because readers take an unquoted empty text for a
    /// missing value.
    pub(crate) fn push_text(self, value: &str, text: &mut String) {
        match self {
            RowNotation::Commas | RowNotation::Alone => {
                text.push('"');
                for (place, part) in value.split('"').enumerate() {
                    if place > 0 {
                        text.push_str("\"\"");
                    }
                    text.push_str(part);
                }
                text.push('"');
            }
            RowNotation::Json => text.push_str(&Value::from(value).to_string()),
        }
    }

    fn push_bytes(self, bytes: &[u8], text: &mut String) {
        match str::from_utf8(bytes) {
            Ok(value) => self.push_text(value, text),
            Err(_) => self.push_json(&Value::from(bytes.to_vec()).to_string(), text),
        }
    }

    fn push_json(self, json: &str, text: &mut String) {
        match self {
            RowNotation::Json => text.push_str(json),
            RowNotation::Commas | RowNotation::Alone => self.push_text(json, text),
        }
    }

    /// Returns the text of a cell with a missing value.
    fn nothing(self) -> &'static str {
        match self {
            RowNotation::Commas => "",
            RowNotation::Alone => "\"\"",
            RowNotation::Json => "null",
        }
    }

    /// Returns the text of a cell with NaN: that of a missing value. In a CSV table with one column it is `NaN`, which
    /// all readers know, because the line must not be empty.
    fn no_number(self) -> &'static str {
        match self {
            RowNotation::Alone => "NaN",
            RowNotation::Commas | RowNotation::Json => self.nothing(),
        }
    }
}

fn push_variable(data_type: &DataType, record: &[u8], notation: RowNotation, text: &mut String) {
    let is_object = *data_type == DataType::Object;
    match str::from_utf8(record) {
        // In arrays of Python objects, `null` is Python's `None`, and `NaN` is the float by which pandas marks a
        // missing text.
        Ok("null" | "NaN") if is_object => text.push_str(notation.nothing()),
        Ok(value) if !matches!(data_type, DataType::List(_)) => match notation {
            RowNotation::Json if is_object => text.push_str(&plain::line(data_type, record)),
            _ => notation.push_text(value, text),
        },
        _ => notation.push_json(&plain::line(data_type, record), text),
    }
}

impl TimeCell {
    /// Returns how times in a numpy unit are written; `None` for units shorter than a nanosecond, and for the generic
    /// unit.
    fn of(unit: &TimeUnit) -> Option<TimeCell> {
        let (one, digits) = match unit.name.as_str() {
            "Y" => return Some(TimeCell::Months(12 * i64::from(unit.scale))),
            "M" => return Some(TimeCell::Months(i64::from(unit.scale))),
            "ns" => (1, Some(9)),
            "us" => (1_000, Some(6)),
            "ms" => (1_000_000, Some(3)),
            "s" => (1_000_000_000, Some(0)),
            "m" => (60_000_000_000, Some(0)),
            "h" => (3_600_000_000_000, Some(0)),
            "D" => (86_400_000_000_000, None),
            "W" => (604_800_000_000_000, None),
            _ => return None,
        };
        Some(TimeCell::Nanoseconds {
            unit: one * i128::from(unit.scale),
            digits,
        })
    }

    /// Appends a time to a cell. NaT and times more than 2^63 seconds from 1970 are written as missing values.
    fn write(self, count: i64, notation: RowNotation, text: &mut String) -> std::fmt::Result {
        let count = Some(count).filter(|&count| count != i64::MIN);
        let Some(time) = count.and_then(|count| self.text(count)) else {
            return text.write_str(notation.nothing());
        };
        match notation {
            RowNotation::Commas | RowNotation::Alone => text.write_str(&time),
            RowNotation::Json => write!(text, "\"{time}\""),
        }
    }

    /// Formats a time as ISO 8601, or returns `None` if it is more than 2^63 seconds from 1970.
    fn text(self, count: i64) -> Option<String> {
        let (unit, digits) = match self {
            TimeCell::Months(months) => {
                let months = count.checked_mul(months)?;
                let year = months.div_euclid(12).checked_add(1970)?;
                return Some(format!("{year:04}-{:02}-01", months.rem_euclid(12) + 1));
            }
            TimeCell::Nanoseconds { unit, digits } => (unit, digits),
        };
        let time = i128::from(count).checked_mul(unit)?;
        // Times are limited to 2^63 seconds before or after 1970.
        if time.abs() > (1 << 63) * 1_000_000_000 {
            return None;
        }
        let fraction = time.rem_euclid(1_000_000_000);
        let mut text = time_text(time - fraction, Calendar::Gregorian);
        match digits {
            None => text.truncate(text.find('T')?),
            Some(0) => {}
            Some(digits) => {
                let all = format!("{fraction:09}");
                text.push('.');
                text.push_str(all.get(..digits)?);
            }
        }
        Some(text)
    }
}

fn push_float<T: Into<f64> + Copy + std::fmt::Debug>(
    number: T,
    notation: RowNotation,
    text: &mut String,
) -> std::fmt::Result {
    let wide: f64 = number.into();
    if wide.is_nan() || (wide.is_infinite() && notation == RowNotation::Json) {
        text.push_str(notation.no_number());
        return Ok(());
    }
    // `{:?}` gives the shortest digits that read back as the same number.
    write!(text, "{number:?}")
}

fn push_small(
    number: &NumberType,
    element: &[u8],
    notation: RowNotation,
    text: &mut String,
) -> std::fmt::Result {
    let Some(value) = number.value(element) else {
        return text.write_str(notation.no_number());
    };
    match number.coding {
        Coding::Signed(_) | Coding::Unsigned(_) => write!(text, "{value:.0}"),
        _ => {
            let is_same = |value| number.code(value).as_deref() == Some(element);
            push_float(shortest(value, is_same), notation, text)
        }
    }
}

/// Returns the decimal number with the fewest digits that `is_same` accepts, because it reads back as the same value of
/// a narrower type.
fn shortest(value: f64, is_same: impl Fn(f64) -> bool) -> f64 {
    if !value.is_finite() {
        return value;
    }
    let rounded = (0..9).map(|digits| format!("{value:.digits$e}").parse());
    let mut found = rounded.filter_map(Result::ok);
    found
        .find(|&rounded: &f64| is_same(rounded))
        .unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(cell: &TextCell, element: &[u8], notation: RowNotation) -> String {
        let mut text = String::new();
        cell.write(element, notation, &mut text);
        text
    }

    fn cell_of(name: &str) -> TextCell {
        TextCell::of(&DataType::from_v3(name)).unwrap()
    }

    fn time_cell(name: &str, scale: u32) -> TextCell {
        let name = name.to_string();
        TextCell::of(&DataType::DateTime(TimeUnit { name, scale })).unwrap()
    }

    #[test]
    fn small_number_types_are_written_in_shortest_form() {
        for bits in 0..=u16::MAX {
            let text = written(&TextCell::Half, &bits.to_le_bytes(), RowNotation::Commas);
            let number = f16::from_bits(bits);
            let read = text.parse().map(f16::from_f64);
            let is_same = read.is_ok_and(|read| read.to_bits() == bits);
            assert!(
                is_same || (number.is_nan() && text.is_empty()),
                "{bits:04x}: {text}"
            );
        }
        for (name, code, expected) in [
            ("float16", &[0x66, 0x2e][..], "0.1"),
            ("float16", &[0xff, 0x7b], "65500.0"),
            ("bfloat16", &[0xcd, 0x3d], "0.1"),
            ("float8_e4m3", &[0x7f], ""),
            ("float8_e5m2", &[0x3d], "1.2"),
            ("int4", &[0xff], "-1"),
            ("uint2", &[3], "3"),
        ] {
            let found = written(&cell_of(name), code, RowNotation::Commas);
            assert_eq!(found, expected, "{name} {code:x?}");
        }
        assert_eq!(TextCell::of(&DataType::from_v3("complex_bfloat16")), None);
    }

    #[test]
    fn numbers_are_written_without_loss() {
        for (element, name, expected) in [
            (0.1_f32.to_le_bytes().to_vec(), "float32", "0.1"),
            (f32::MAX.to_le_bytes().to_vec(), "float32", "3.4028235e38"),
            (1e16_f64.to_le_bytes().to_vec(), "float64", "1e16"),
            ((-0.0_f64).to_le_bytes().to_vec(), "float64", "-0.0"),
            (f64::INFINITY.to_le_bytes().to_vec(), "float64", "inf"),
            (
                i64::MIN.to_le_bytes().to_vec(),
                "int64",
                "-9223372036854775808",
            ),
            (
                u64::MAX.to_le_bytes().to_vec(),
                "uint64",
                "18446744073709551615",
            ),
            (vec![0x80], "int8", "-128"),
            (vec![1], "bool", "true"),
        ] {
            let found = written(&cell_of(name), &element, RowNotation::Commas);
            assert_eq!(found, expected, "{name}");
        }
    }

    fn assert_reads_back<const N: usize, T: std::str::FromStr>(
        name: &str,
        element: [u8; N],
        bytes_of: impl Fn(T) -> [u8; N],
    ) {
        for notation in [RowNotation::Commas, RowNotation::Alone, RowNotation::Json] {
            let text = written(&cell_of(name), &element, notation);
            let read = text.parse().ok().map(&bytes_of);
            assert_eq!(read, Some(element), "{name} {notation:?}: {text}");
        }
    }

    #[test]
    fn written_numbers_read_back_as_the_same_bytes() {
        // Multiples of a large odd number set every bit to both values.
        let numbers = (0..2000_u64).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for number in numbers.chain([0, 1, 1 << 31, 1 << 63, u64::MAX, u64::MAX >> 1]) {
            let wide = number.to_le_bytes();
            let narrow = *wide.first_chunk::<4>().unwrap();
            assert_reads_back("int64", wide, i64::to_le_bytes);
            assert_reads_back("uint64", wide, u64::to_le_bytes);
            assert_reads_back("int32", narrow, i32::to_le_bytes);
            assert_reads_back("uint32", narrow, u32::to_le_bytes);
            if f64::from_le_bytes(wide).is_finite() {
                assert_reads_back("float64", wide, f64::to_le_bytes);
            }
            if f32::from_le_bytes(narrow).is_finite() {
                assert_reads_back("float32", narrow, f32::to_le_bytes);
            }
        }
    }

    #[test]
    fn a_nat_duration_is_written_as_a_missing_value() {
        let unit = TimeUnit {
            name: "s".to_string(),
            scale: 1,
        };
        let cell = TextCell::of(&DataType::TimeDelta(unit)).unwrap();
        for (count, notation, expected) in [
            (i64::MIN, RowNotation::Commas, ""),
            (i64::MIN, RowNotation::Alone, "\"\""),
            (i64::MIN, RowNotation::Json, "null"),
            (i64::MIN + 1, RowNotation::Commas, "-9223372036854775807"),
            (-7, RowNotation::Json, "-7"),
        ] {
            let found = written(&cell, &count.to_le_bytes(), notation);
            assert_eq!(found, expected, "{count} {notation:?}");
        }
    }

    #[test]
    fn a_missing_value_alone_in_a_row_is_not_blank() {
        let nan = f64::NAN.to_le_bytes();
        let none = i64::MIN.to_le_bytes();
        for (cell, element, alone, among, json) in [
            (
                TextCell::Half,
                f16::NAN.to_le_bytes().to_vec(),
                "NaN",
                "",
                "null",
            ),
            (TextCell::Double, nan.to_vec(), "NaN", "", "null"),
            (time_cell("s", 1), none.to_vec(), "\"\"", "", "null"),
            (
                TextCell::Variable(DataType::Object),
                b"null".to_vec(),
                "\"\"",
                "",
                "null",
            ),
        ] {
            let found = [
                RowNotation::Commas.of_rows(1),
                RowNotation::Commas.of_rows(2),
                RowNotation::Json.of_rows(1),
            ]
            .map(|notation| written(&cell, &element, notation));
            assert_eq!(found, [alone, among, json]);
        }
        let infinite = f64::INFINITY.to_le_bytes();
        assert_eq!(
            written(&TextCell::Double, &infinite, RowNotation::Json),
            "null"
        );
    }

    /// For each time: its unit, units per count, count, and text as numpy writes it. Times in months and years are
    /// dates with a day.
    const TIMES: [(&str, u32, i64, &str); 14] = [
        ("ns", 1, i64::MIN + 1, "1677-09-21T00:12:43.145224193"),
        ("ns", 1, i64::MAX, "2262-04-11T23:47:16.854775807"),
        ("ns", 1, 0, "1970-01-01T00:00:00.000000000"),
        ("us", 1, i64::MIN + 1, "-290308-12-21T19:59:05.224193"),
        ("ms", 10, -1, "1969-12-31T23:59:59.990"),
        ("ms", 1, i64::MAX, "292278994-08-17T07:12:55.807"),
        ("s", 1, i64::MIN + 1, "-292277022657-01-27T08:29:53"),
        ("s", 1, i64::MAX, "292277026596-12-04T15:30:07"),
        ("m", 1, 1, "1970-01-01T00:01:00"),
        ("h", 6, -1, "1969-12-31T18:00:00"),
        ("D", 1, 18_262, "2020-01-01"),
        ("W", 1, -1, "1969-12-25"),
        ("M", 1, -1, "1969-12-01"),
        ("Y", 1, 50, "2020-01-01"),
    ];

    #[test]
    fn times_are_written_in_the_form_of_their_unit() {
        for (unit, scale, count, expected) in TIMES {
            let cell = time_cell(unit, scale);
            let found = |notation| written(&cell, &count.to_le_bytes(), notation);
            assert_eq!(found(RowNotation::Commas), expected, "{scale}{unit}");
            assert_eq!(found(RowNotation::Json), format!("\"{expected}\""));
        }
        for (unit, count) in [
            ("D", i64::MAX),
            ("D", 1 << 48),
            ("W", i64::MAX),
            ("Y", i64::MAX),
        ] {
            let far = written(
                &time_cell(unit, 1000),
                &i64::to_le_bytes(count),
                RowNotation::Commas,
            );
            assert_eq!(far, "", "{unit}");
        }
        let unit = |name: &str| {
            DataType::DateTime(TimeUnit {
                name: name.to_string(),
                scale: 1,
            })
        };
        assert!(
            ["ps", "generic"]
                .iter()
                .all(|name| TextCell::of(&unit(name)).is_none())
        );
    }

    #[test]
    fn texts_are_quoted_and_keep_every_character() {
        for (value, commas) in [
            ("plain", "\"plain\""),
            ("", "\"\""),
            (" a\"\"b, \r\n", "\" a\"\"\"\"b, \r\n\""),
            ("\u{e9}\u{1f600}\\\u{1}", "\"\u{e9}\u{1f600}\\\u{1}\""),
            ("007", "\"007\""),
        ] {
            let points: Vec<u8> = value
                .chars()
                .chain(['\0'])
                .flat_map(|letter| u32::from(letter).to_le_bytes())
                .collect();
            let padded = [value.as_bytes(), &[0]].concat();
            for (cell, element) in [
                (TextCell::Text, &points[..]),
                (TextCell::Bytes, &padded),
                (TextCell::Variable(DataType::Text), value.as_bytes()),
            ] {
                assert_eq!(written(&cell, element, RowNotation::Commas), commas);
                let json = written(&cell, element, RowNotation::Json);
                assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), value);
            }
        }
    }

    #[test]
    fn lists_objects_and_binary_bytes_are_written_as_json() {
        let list = TextCell::Variable(DataType::List(Box::new(DataType::UInt(1))));
        let object = TextCell::Variable(DataType::Object);
        for (cell, element, commas, json) in [
            (&TextCell::Bytes, &b"ab\0"[..], "\"ab\"", "\"ab\""),
            (&TextCell::Bytes, b"\0\0\0", "\"\"", "\"\""),
            (&TextCell::Bytes, b"\xff\xfe", "\"[255,254]\"", "[255,254]"),
            (
                &TextCell::Variable(DataType::Bytes),
                b"\xff\0",
                "\"[255,0]\"",
                "[255,0]",
            ),
            (&list, b"ab", "\"[97,98]\"", "[97,98]"),
            (&object, b"{\"a\":1}", "\"{\"\"a\"\":1}\"", "{\"a\":1}"),
            (&object, b"word", "\"word\"", "\"word\""),
        ] {
            assert_eq!(written(cell, element, RowNotation::Commas), commas);
            assert_eq!(written(cell, element, RowNotation::Json), json);
        }
    }
}
