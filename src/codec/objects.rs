//! Codecs `json2` and `msgpack2` of numcodecs: an array as one list of its elements, rank by rank, then the
//! name of numpy's type and the shape.
//!
//! Elements of any kind: text is its own bytes, bytes are too, anything else is compact JSON. What is read
//! grows only as far as a chunk may, and no value nests deeper than `MAX_DEPTH`. The two notations are
//! `json_text.rs` and `message_pack.rs`; here stands what they have in common.

use std::borrow::Cow;

use serde_json::Value;

use crate::dialect::fill;
use crate::dialect::typestr;
use crate::error::Error;
use crate::error::Result;
use crate::model::DataType;
use crate::model::MAX_RANK;

use super::config::Members;
use super::json_text;
use super::kind::ArrayToBytes;
use super::kind::COUNT;
use super::kind::Codec;
use super::kind::Data;
use super::kind::Form;
use super::kind::Length;
use super::kind::Place;
use super::message_pack;
use super::records;

/// The deepest nesting of lists and maps in an element.
pub(super) const MAX_DEPTH: usize = 100;

/// A moment or duration that is none, which Python has as `None`.
const NO_TIME: [u8; 8] = i64::MIN.to_le_bytes();

/// One element between the two notations and the chunk.
pub(super) enum Element<'a> {
    /// Text.
    Text(Cow<'a, str>),
    /// Bytes that need not be text.
    Bytes(&'a [u8]),
    /// Anything else as JSON; numbers may be `NaN`, `Infinity` and `-Infinity`, as Python writes them.
    Json(Cow<'a, str>),
}

/// How the list is written.
#[derive(Clone, Copy, Debug)]
enum Notation {
    Json,
    MessagePack,
}

/// A chunk as one list.
#[derive(Debug)]
struct Objects {
    form: Form,
    notation: Notation,
    /// numpy's name of the type, in whose byte order numcodecs takes the elements for those of the array.
    dtype: String,
    decoded: Length,
}

/// Builds `json2`, of which `json` is a form without a shape (numcodecs, `JSON`).
pub(super) fn json(members: Members<'_>, place: &Place<'_>) -> Result<Codec> {
    // Both are read as UTF-8; other encodings occur in no store.
    members.word("encoding", &["utf-8", "utf8", "UTF-8", "ascii"])?;
    build(members, place, Notation::Json)
}

/// Builds `msgpack2`, of which `msgpack` is a form without a shape (numcodecs, `MsgPack`).
pub(super) fn message_pack(members: Members<'_>, place: &Place<'_>) -> Result<Codec> {
    build(members, place, Notation::MessagePack)
}

/// Reads `endian`, which the dialect adds: the byte order of the array's type.
fn build(members: Members<'_>, place: &Place<'_>, notation: Notation) -> Result<Codec> {
    let form = place.form.clone();
    let dtype = dtype_of(&form.data_type)?;
    let is_big = members.word("endian", &["little", "big"])? == Some("big");
    let decoded = form.length(place.max_chunk)?;
    Ok(Codec::ArrayToBytes(Box::new(Objects {
        form,
        notation,
        dtype: if is_big {
            dtype.replace('<', ">")
        } else {
            dtype
        },
        decoded,
    })))
}

/// Returns numpy's name of a type whose elements such a list can hold, little-endian.
fn dtype_of(data_type: &DataType) -> Result<String> {
    Ok(match data_type {
        DataType::Object | DataType::Text | DataType::Bytes => "|O".to_string(),
        DataType::Bool => "|b1".to_string(),
        DataType::Int(width) => format!("<i{width}"),
        DataType::UInt(width) => format!("<u{width}"),
        DataType::Float(width) => format!("<f{width}"),
        DataType::DateTime(unit) => format!("<M8[{unit}]"),
        DataType::TimeDelta(unit) => format!("<m8[{unit}]"),
        DataType::FixedText(length) => format!("<U{length}"),
        DataType::FixedBytes(length) => format!("|S{length}"),
        DataType::Raw(length) => format!("|V{length}"),
        other => {
            let why = format!("a list of objects cannot hold {other}");
            return Err(Error::unsupported("codecs", why));
        }
    })
}

/// Makes sense of what stands behind the elements: the type, and the shape unless an older writer left it out.
///
/// Returns the shape in which the elements are nested: not always the chunk's, of which only the number of
/// elements has to be the same.
pub(super) fn stored_shape(form: &Form, dtype: &str, shape: Option<Vec<u64>>) -> Result<Vec<u64>> {
    let stored = typestr::parse(&Value::from(dtype))?.data_type;
    if form.data_type.size().is_some()
        && stored != form.data_type
        && !matches!(stored, DataType::Unknown(_))
    {
        let found = format!("expected elements of {}, found {stored}", form.data_type);
        return Err(Error::corrupt("chunk", found));
    }
    let Some(shape) = shape else {
        return Ok(form.shape.clone());
    };
    let product = |shape: &[u64]| shape.iter().try_fold(1_u64, |all, &n| all.checked_mul(n));
    if shape.len() > MAX_RANK || product(&shape) != product(&form.shape) {
        let found = format!(
            "expected as many elements as {:?}, found {shape:?}",
            form.shape
        );
        return Err(Error::corrupt("chunk", found));
    }
    Ok(shape)
}

/// Elements that are being read.
pub(super) struct Elements<'a> {
    form: &'a Form,
    out: Vec<u8>,
    most: usize,
}

impl Elements<'_> {
    /// Returns the array that is being read.
    pub(super) fn form(&self) -> &Form {
        self.form
    }

    /// Says `TooLarge` if so many bytes of an element are too many.
    pub(super) fn check_room(&self, bytes: usize) -> Result<()> {
        if self.out.len().saturating_add(bytes) <= self.most {
            return Ok(());
        }
        let found = format!("elements of more than {} bytes", self.most);
        Err(Error::too_large("chunk", found))
    }

    /// Appends an element; `TooLarge` if a chunk cannot have so much.
    pub(super) fn add(&mut self, element: &Element<'_>) -> Result<()> {
        if self.form.data_type.size().is_some() {
            let fixed = fixed(&self.form.data_type, element);
            self.out.extend(fixed.ok_or_else(|| self.misfit(element))?);
            return self.check_room(0);
        }
        let bytes = element.bytes();
        self.check_room(bytes.len().saturating_add(COUNT))?;
        let count = u32::try_from(bytes.len()).map_err(|error| Error::too_large("chunk", error))?;
        self.out.extend(count.to_le_bytes());
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    fn misfit(&self, element: &Element<'_>) -> Error {
        let text: String = String::from_utf8_lossy(element.bytes())
            .chars()
            .take(40)
            .collect();
        Error::corrupt("chunk", format!("{text:?} is no {}", self.form.data_type))
    }
}

impl<'a> Element<'a> {
    fn bytes(&self) -> &[u8] {
        match self {
            Element::Text(text) | Element::Json(text) => text.as_bytes(),
            Element::Bytes(bytes) => bytes,
        }
    }

    /// Reads an element of a decoded chunk. Of JSON values text is what is no JSON, so text that looks like a
    /// number becomes one.
    fn of(data_type: &DataType, bytes: &'a [u8]) -> Element<'a> {
        match (data_type, std::str::from_utf8(bytes)) {
            (DataType::FixedBytes(_), _) => Element::Bytes(trimmed(bytes)),
            (DataType::Raw(_), _) => Element::Bytes(bytes),
            (DataType::DateTime(_) | DataType::TimeDelta(_), _) if bytes == NO_TIME => {
                Element::Json("null".into())
            }
            (_, Err(_)) | (DataType::Bytes, _) if data_type.is_variable() => Element::Bytes(bytes),
            (DataType::Object, Ok(text)) if json_text::is_value(text) => Element::Json(text.into()),
            (DataType::Object | DataType::Text, Ok(text)) => Element::Text(text.into()),
            _ => match fill::to_json(data_type, bytes) {
                Value::String(word) if matches!(data_type, DataType::Float(_)) => {
                    let is_bits = word.starts_with("0x");
                    Element::Json(if is_bits { "NaN".into() } else { word.into() })
                }
                Value::String(text) => Element::Text(text.into()),
                other => Element::Json(other.to_string().into()),
            },
        }
    }
}

/// Returns the bytes of an element of fixed length.
fn fixed(data_type: &DataType, element: &Element<'_>) -> Option<Vec<u8>> {
    if let DataType::FixedBytes(length) | DataType::Raw(length) = data_type {
        let mut bytes = element.bytes().to_vec();
        let fits = !matches!(element, Element::Json(_)) && bytes.len() <= *length;
        bytes.resize(*length, 0);
        return fits.then_some(bytes);
    }
    let value = match element {
        Element::Text(text) if matches!(data_type, DataType::FixedText(_)) => Value::from(&**text),
        Element::Json(word) if matches!(&**word, "NaN" | "Infinity" | "-Infinity") => {
            Value::from(&**word)
        }
        Element::Json(text) => serde_json::from_str(text).ok()?,
        Element::Text(_) | Element::Bytes(_) => return None,
    };
    if value.is_null() {
        let is_time = matches!(data_type, DataType::DateTime(_) | DataType::TimeDelta(_));
        return is_time.then(|| NO_TIME.to_vec());
    }
    fill::parse(data_type, &value).ok().map(|fill| fill.bytes)
}

fn trimmed(bytes: &[u8]) -> &[u8] {
    let last = bytes.iter().rposition(|&byte| byte != 0);
    bytes
        .get(..last.map_or(0, |last| last + 1))
        .unwrap_or_default()
}

impl Objects {
    /// Returns the elements of a decoded chunk, `Invalid` if they are not as many as they should be.
    fn elements<'a>(&self, decoded: &'a [u8]) -> Result<Vec<Element<'a>>> {
        let data_type = &self.form.data_type;
        let element = |part| Element::of(data_type, part);
        if let Some(size) = data_type.size() {
            return Ok(decoded.chunks_exact(size).map(element).collect());
        }
        let parts = records::split(decoded, self.form.shape.iter().product())
            .map_err(|error| Error::invalid("chunk", error.detail()))?;
        let bytes = parts
            .into_iter()
            .map(|part| part.get(COUNT..).unwrap_or_default());
        Ok(bytes.map(element).collect())
    }
}

impl ArrayToBytes for Objects {
    fn encoded_length(&self) -> Length {
        // Escapes and digits may take several times the room of what they stand for.
        Length::AtMost(self.decoded.most().saturating_mul(8)).compressed()
    }

    fn is_identity(&self) -> bool {
        false
    }

    fn decode<'a>(&self, encoded: Data<'a>) -> Result<Data<'a>> {
        let mut elements = Elements {
            form: &self.form,
            out: Vec::new(),
            most: self.decoded.most(),
        };
        match self.notation {
            Notation::Json => json_text::read(&encoded, &mut elements)?,
            Notation::MessagePack => message_pack::read(&encoded, &mut elements)?,
        }
        Ok(Cow::Owned(elements.out))
    }

    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>> {
        let elements = self.elements(&decoded)?;
        let encoded = match self.notation {
            Notation::Json => json_text::write(&elements, &self.dtype, &self.form.shape),
            Notation::MessagePack => message_pack::write(&elements, &self.dtype, &self.form.shape),
        };
        encoded.map(Cow::Owned)
    }

    /// Text that looks like a number is written as one.
    fn is_lossy(&self) -> bool {
        self.form.data_type == DataType::Object
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::codec::Pipeline;
    use crate::codec::tests::array;
    use crate::codec::tests::pipeline;
    use crate::error::Kind;
    use crate::error::Result;
    use crate::model::DataType;
    use crate::model::TimeUnit;

    const NOTATIONS: [&str; 2] = ["numcodecs.json2", "numcodecs.msgpack2"];

    fn codec(name: &str, data_type: DataType, shape: &[u64]) -> Result<Pipeline> {
        let mut array = array("uint8", shape, json!([name]));
        array.fill_value.bytes = vec![0; data_type.size().unwrap_or(0)];
        array.data_type = data_type;
        Pipeline::new(&array, 1 << 16)
    }

    fn json2(shape: &[u64]) -> Pipeline {
        codec(NOTATIONS[0], DataType::Object, shape).unwrap()
    }

    fn msgpack2(shape: &[u64]) -> Pipeline {
        codec(NOTATIONS[1], DataType::Object, shape).unwrap()
    }

    fn records(elements: &[&str]) -> Vec<u8> {
        let record = |text: &&str| [&(text.len() as u32).to_le_bytes(), text.as_bytes()].concat();
        elements.iter().flat_map(record).collect()
    }

    #[test]
    fn text_is_itself_and_the_rest_is_compact() {
        let stored =
            br#" [ "a\u00e9" , {"b": [1, 2.50, null ]} , NaN, "1", -Infinity, [], "|O", [6] ] "#;
        let elements = [
            "a\u{e9}",
            r#"{"b":[1,2.50,null]}"#,
            "NaN",
            "1",
            "-Infinity",
            "[]",
        ];
        assert_eq!(
            json2(&[6]).decode(stored.to_vec()).unwrap(),
            records(&elements)
        );
    }

    #[test]
    fn what_is_written_is_read() {
        let elements = [
            "",
            "\u{e9}\"\n",
            r#"{"b":[1,-2.5,null,true]}"#,
            "[[],{}]",
            "NaN",
            "-7",
        ];
        for name in NOTATIONS {
            for shape in [&[6][..], &[2, 3], &[1, 6, 1]] {
                let pipeline = codec(name, DataType::Object, shape).unwrap();
                let encoded = pipeline.encode(&records(&elements)).unwrap();
                assert_eq!(
                    pipeline.decode(encoded).unwrap(),
                    records(&elements),
                    "{name}"
                );
            }
            let scalar = codec(name, DataType::Object, &[]).unwrap();
            let encoded = scalar.encode(&records(&["[1]"])).unwrap();
            assert_eq!(scalar.decode(encoded).unwrap(), records(&["[1]"]), "{name}");
        }
    }

    #[test]
    fn elements_of_fixed_length_are_packed() {
        for (data_type, elements) in [
            (
                DataType::Float(4),
                [f32::NAN, -0.0, 1.5e-40, f32::INFINITY]
                    .map(f32::to_le_bytes)
                    .concat(),
            ),
            (
                DataType::Int(8),
                [i64::MIN, i64::MAX, -1, 0].map(i64::to_le_bytes).concat(),
            ),
            (
                DataType::UInt(2),
                [0, 1, 256, u16::MAX].map(u16::to_le_bytes).concat(),
            ),
            (DataType::Bool, vec![0, 1, 1, 0]),
            (
                DataType::FixedText(1),
                ["a", "\u{e9}", "\0", "0"]
                    .map(|text| (text.chars().next().unwrap() as u32).to_le_bytes())
                    .concat(),
            ),
        ] {
            for name in NOTATIONS {
                let pipeline = codec(name, data_type.clone(), &[2, 2]).unwrap();
                let encoded = pipeline.encode(&elements).unwrap();
                assert_eq!(
                    pipeline.decode(encoded).unwrap(),
                    elements,
                    "{name} {data_type}"
                );
            }
        }
        for (data_type, stored) in [
            (
                DataType::FixedBytes(2),
                &b"\x94\xc4\x01a\xc4\x02\xff\xfe\xa3|S2\x91\x02"[..],
            ),
            (
                DataType::Raw(2),
                b"\x94\xc4\x02a\0\xc4\x02\xff\xfe\xa3|V2\x91\x02",
            ),
        ] {
            let bytes = codec(NOTATIONS[1], data_type, &[2]).unwrap();
            let encoded = bytes.encode(b"a\0\xff\xfe").unwrap();
            assert_eq!(encoded, stored);
            assert_eq!(bytes.decode(encoded).unwrap(), b"a\0\xff\xfe");
        }
    }

    #[test]
    fn no_time_is_null() {
        let unit = TimeUnit {
            name: "ns".to_string(),
            scale: 1,
        };
        let times = codec(NOTATIONS[0], DataType::DateTime(unit), &[2]).unwrap();
        let decoded = [i64::MIN, 7].map(i64::to_le_bytes).concat();
        let stored = br#"[null,7,"<M8[ns]",[2]]"#;
        assert_eq!(times.encode(&decoded).unwrap(), stored);
        assert_eq!(times.decode(stored.to_vec()).unwrap(), decoded);
    }

    #[test]
    fn the_type_is_written_in_the_byte_order_of_the_array() {
        let big = json!({ "name": NOTATIONS[0], "configuration": { "endian": "big" } });
        let pipeline = pipeline("int16", &[2], json!([big])).unwrap();
        let encoded = pipeline.encode(&[1, 0, 0, 1]).unwrap();
        assert_eq!(encoded, br#"[1,256,">i2",[2]]"#);
        assert_eq!(pipeline.decode(encoded).unwrap(), [1, 0, 0, 1]);
    }

    #[test]
    fn whole_numbers_of_64_bits_are_written_and_longer_ones_are_not() {
        let most = records(&["18446744073709551615", "[-9223372036854775808]", "1e3"]);
        let encoded = msgpack2(&[3]).encode(&most).unwrap();
        let decoded = msgpack2(&[3]).decode(encoded).unwrap();
        let same = ["18446744073709551615", "[-9223372036854775808]", "1000.0"];
        assert_eq!(decoded, records(&same));
        let longer = msgpack2(&[1]).encode(&records(&["18446744073709551616"]));
        assert_eq!(longer.unwrap_err().kind(), Kind::Invalid);
        let deep = format!("{}{}", "[".repeat(150), "]".repeat(150));
        let deep = msgpack2(&[1]).encode(&records(&[&deep]));
        assert_eq!(deep.unwrap_err().kind(), Kind::Invalid);
    }

    #[test]
    fn chunks_of_older_writers_have_no_shape() {
        let decoded = records(&["a", "2"]);
        assert_eq!(
            json2(&[2]).decode(br#"["a",2,"|O"]"#.to_vec()).unwrap(),
            decoded
        );
        assert_eq!(
            msgpack2(&[2])
                .decode(b"\x93\xa1a\x02\xa2|O".to_vec())
                .unwrap(),
            decoded
        );
    }

    #[test]
    fn the_stored_shape_counts() {
        let stored = br#"[["a","b"],["c","d"],["e","f"],"|O",[3,2]]"#;
        let decoded = records(&["a", "b", "c", "d", "e", "f"]);
        assert_eq!(json2(&[2, 3]).decode(stored.to_vec()).unwrap(), decoded);
    }

    #[test]
    fn lies_about_the_elements_are_corrupt() {
        for text in [
            "",
            "[]",
            "{}",
            "7",
            "[1,2]",
            r#"["a","|O",[1]]"#,
            r#"["a","b","|O",[3]]"#,
            r#"["a","b","|O",[18446744073709551615,2]]"#,
            r#"["a","b","|O",[-2]]"#,
            r#"["a","b","|O","x",[2]]"#,
            r#"["a","b",[2],"|O"]"#,
            r#"["a","b","|O",[2]] 1"#,
            r#"["a","b","|O",[2]"#,
            r#"["a","b","|O",[1,2]]"#,
            r#"["a","\ud800","|O",[2]]"#,
            "[\"a\",\"\x01\",\"|O\",[2]]",
        ] {
            let error = json2(&[2]).decode(text.as_bytes().to_vec()).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt, "{text}: {error}");
        }
        let latin = json2(&[1])
            .decode(b"[\"\xe9\",\"|O\",[1]]".to_vec())
            .unwrap_err();
        assert_eq!(latin.kind(), Kind::Corrupt);
        for bytes in [
            &b""[..],
            b"\x07",
            b"\x90",
            b"\xdd\xff\xff\xff\xff",
            b"\x94\xa1a\xa1b\xa2|O\x91\x03",
            b"\x94\xa1a\xa1b\xa2|O\x91\x02\x00",
            b"\x94\xa1a\xdb\xff\xff\xff\xff\xa2|O\x91\x02",
            b"\x94\xa1a\xdf\xff\xff\xff\xff\xa2|O\x91\x02",
            b"\x94\xa1a\x81\x01\x02\xa2|O\x91\x02",
            b"\x94\xa1a\xc1\xa2|O\x91\x02",
            b"\x93\xa1a\xa2|O\x91\x02",
        ] {
            let error = msgpack2(&[2]).decode(bytes.to_vec()).unwrap_err();
            let kinds = [Kind::Corrupt, Kind::Unsupported];
            assert!(kinds.contains(&error.kind()), "{bytes:?}: {error}");
        }
    }

    #[test]
    fn values_that_nest_deep_are_refused() {
        let deep =
            |depth: usize| format!("[{}{},\"|O\",[1]]", "[".repeat(depth), "]".repeat(depth));
        assert!(json2(&[1]).decode(deep(100).into_bytes()).is_ok());
        for depth in [102, 10_000, 1 << 20] {
            assert!(json2(&[1]).decode(deep(depth).into_bytes()).is_err());
            let lists = [&b"\x93"[..], &vec![0x91; depth], b"\xc0\xa2|O\x91\x01"].concat();
            assert!(msgpack2(&[1]).decode(lists).is_err());
        }
    }

    #[test]
    fn no_element_outgrows_the_chunk() {
        let long = format!("[\"{}\",\"|O\",[1]]", "x".repeat(1 << 17));
        let error = json2(&[1]).decode(long.into_bytes()).unwrap_err();
        assert_eq!(error.kind(), Kind::TooLarge);
        // Each byte reads as five.
        let nulls = [
            &b"\x93\xdc\xff\xff"[..],
            &vec![0xc0; 0xffff],
            b"\xa2|O\x91\x01",
        ]
        .concat();
        assert_eq!(
            msgpack2(&[1]).decode(nulls).unwrap_err().kind(),
            Kind::TooLarge
        );
    }

    #[test]
    fn types_that_no_list_holds_are_refused() {
        for name in NOTATIONS {
            let error = codec(name, DataType::Complex(8), &[2]).unwrap_err();
            assert_eq!(error.kind(), Kind::Unsupported);
        }
        let other = br#"[1,2,"<f8",[2]]"#;
        let numbers = codec(NOTATIONS[0], DataType::Int(4), &[2]).unwrap();
        assert_eq!(
            numbers.decode(other.to_vec()).unwrap_err().kind(),
            Kind::Corrupt
        );
        for wrong in [
            r#"[1,"2","<i4",[2]]"#,
            r#"[1,null,"<i4",[2]]"#,
            r#"[1,3e9,"<i4",[2]]"#,
        ] {
            let error = numbers.decode(wrong.as_bytes().to_vec()).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt, "{wrong}");
        }
    }
}
