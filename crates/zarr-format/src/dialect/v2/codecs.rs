//! Converts memory order, filters, byte order and compressor of v2 to v3 codecs.
//!
//! Filters of v2 work on bytes in the stored byte order, so codec `bytes` is placed before the first filter that
//! depends on the byte order. The data type of object arrays is derived from their filters.

use serde_json::{Map, Value, json};

use crate::dialect::typestr::{self, StoredType};
use crate::error::{Error, Result};
use crate::model::{CodecSpec, DataType};

/// Returns the data type of an object array, which depends on the filter that encodes the objects.
pub(crate) fn object_type(filters: &[Value]) -> Result<DataType> {
    for filter in filters {
        match filter.get("id").and_then(Value::as_str).unwrap_or_default() {
            "vlen-utf8" | "categorize" => return Ok(DataType::Text),
            "vlen-bytes" => return Ok(DataType::Bytes),
            "vlen-array" => {
                let element = typestr::parse(filter.get("dtype").unwrap_or(&Value::Null))?;
                return Ok(DataType::List(Box::new(element.data_type)));
            }
            "json2" | "msgpack2" | "msgpack" | "json" => return Ok(DataType::Object),
            _ => {}
        }
    }
    Ok(DataType::Unknown("|O".to_string()))
}

/// Returns why the chunks of an array can never be decoded, or `None` if they can.
pub(crate) fn undecodable(filters: &[Value], data_type: &DataType) -> Option<String> {
    let ids: Vec<&str> = filters.iter().map(id_of).collect();
    if ids.contains(&"pickle") {
        let why = "not supported, since a pickle can run any program";
        return Some(format!("codecs: filter pickle: {why}"));
    }
    let objects = DataType::Unknown("|O".to_string());
    (*data_type == objects).then(|| match ids.as_slice() {
        [] => "codecs: data type object needs a filter such as vlen-utf8".to_string(),
        ids => format!("codecs: filter {} does not encode objects", ids.join(", ")),
    })
}

/// Whether a filter works on bytes, not on elements. All filters after it work on bytes too.
fn takes_bytes(id: &str) -> bool {
    matches!(
        id,
        "adler32"
            | "base64"
            | "blosc"
            | "bz2"
            | "crc32"
            | "crc32c"
            | "fletcher32"
            | "gzip"
            | "jenkins_lookup3"
            | "lz4"
            | "lzma"
            | "shuffle"
            | "zlib"
            | "zstd"
    )
}

/// Whether a filter encodes elements as bytes itself, so that codec `bytes` must not precede it. Some of these filters
/// are also used as compressors.
pub(crate) fn makes_bytes(id: &str) -> bool {
    matches!(
        id,
        "json"
            | "json2"
            | "msgpack"
            | "msgpack2"
            | "pcodec"
            | "vlen-array"
            | "vlen-bytes"
            | "vlen-utf8"
            | "zfpy"
    )
}

/// Whether a filter stores the shape and the data type of an array. The memory order then has no meaning, and the byte
/// order is part of the stored type.
pub(crate) fn stores_shape(id: &str) -> bool {
    matches!(id, "json" | "json2" | "msgpack" | "msgpack2")
}

/// Builds the codec chain of a v2 array: memory order, filters, byte order, compressor.
pub(super) fn codecs(
    members: &Map<String, Value>,
    rank: usize,
    typed: &StoredType,
) -> Result<Vec<CodecSpec>> {
    let list = filters(members)?;
    let first = list.first().map_or("", id_of);
    let transposition = memory_order(members, rank)?;
    let mut chain = Vec::new();
    chain.extend(transposition.filter(|_| !stores_shape(first)));
    chain.extend(filtered(list, typed)?);
    let compressor = members.get("compressor").filter(|value| !value.is_null());
    if let Some(compressor) = compressor {
        // A compressor of numbers, such as `pcodec`, encodes elements itself, so `bytes` must not precede it.
        let is_of_elements = makes_bytes(id_of(compressor));
        chain.pop_if(|last| is_of_elements && last.name == "bytes");
        chain.push(numcodec(compressor, &typed.data_type)?);
    }
    Ok(chain)
}

/// Returns the codecs of the filters, and `bytes` for the byte order. Codec `bytes` is placed before the first filter
/// that works on bytes, or that reads elements as another type.
pub(crate) fn filtered(filters: &[Value], typed: &StoredType) -> Result<Vec<CodecSpec>> {
    let data_type = &typed.data_type;
    let mut chain = Vec::new();
    let stored = WordOrder::new(data_type.word(), typed.is_big());
    let bytes = |order: WordOrder| {
        if order == stored {
            typed.bytes_codec()
        } else {
            order.bytes_codec()
        }
    };
    // Byte order of the elements, or `None` once a filter has encoded them as bytes.
    let mut order = Some(stored);
    for filter in filters {
        let mut codec = numcodec(filter, data_type)?;
        let id = id_of(filter);
        if stores_shape(id) && order.is_some_and(WordOrder::is_big) {
            codec
                .configuration
                .insert("endian".to_string(), json!("big"));
        }
        if makes_bytes(id) {
            order = None;
        }
        if let Some(before) = order {
            let after = before.after(id, &codec.configuration);
            order = after.filter(|_| !takes_bytes(id));
            chain.extend(order.is_none().then(|| bytes(before)));
        }
        chain.push(codec);
    }
    chain.extend(order.map(bytes));
    Ok(chain)
}

/// Returns the numcodecs id in the configuration of a codec, or an empty string if it has none.
fn id_of(configuration: &Value) -> &str {
    let id = configuration.get("id");
    id.and_then(Value::as_str).unwrap_or_default()
}

/// Reads the memory order; `F` becomes a `transpose` codec.
fn memory_order(members: &Map<String, Value>, rank: usize) -> Result<Option<CodecSpec>> {
    match members.get("order").and_then(Value::as_str) {
        Some("F") => Ok(reversed(rank)),
        Some("C") | None => Ok(None),
        Some(other) => Err(Error::corrupt(
            "order",
            format!("expected C or F, found {other}"),
        )),
    }
}

/// Returns a `transpose` codec for F order, or `None` if F and C order are the same.
pub(crate) fn reversed(rank: usize) -> Option<CodecSpec> {
    let order: Vec<usize> = (0..rank).rev().collect();
    (rank > 1).then(|| CodecSpec::new("transpose", json!({ "order": order })))
}

pub(super) fn filters(members: &Map<String, Value>) -> Result<&[Value]> {
    match members.get("filters") {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(filters)) => Ok(filters),
        Some(other) => Err(Error::corrupt(
            "filters",
            format!("expected a list or null, found {other}"),
        )),
    }
}

/// Converts the numcodecs configuration of a codec to a codec with its v3 name.
fn numcodec(configuration: &Value, data_type: &DataType) -> Result<CodecSpec> {
    let wrong = || {
        Error::corrupt(
            "codec",
            format!("expected an object with an id, found {configuration}"),
        )
    };
    let mut members = configuration.as_object().ok_or_else(wrong)?.clone();
    let id = members.remove("id").ok_or_else(wrong)?;
    let id = id.as_str().ok_or_else(wrong)?;
    if id == "blosc" {
        return Ok(blosc(members, data_type));
    }
    if id == "zstd" {
        checksum_from_word(&mut members);
    }
    let is_final = ["zstd", "gzip", "vlen-utf8", "vlen-bytes"].contains(&id);
    let name = if is_final {
        id.to_string()
    } else {
        format!("numcodecs.{id}")
    };
    Ok(CodecSpec {
        name,
        configuration: members,
    })
}

/// Converts a blosc configuration of numcodecs to v3.
fn blosc(mut members: Map<String, Value>, data_type: &DataType) -> CodecSpec {
    let size = data_type.size().unwrap_or(1);
    let shuffle = shuffle_name(members.get("shuffle"), size).unwrap_or("shuffle");
    members.insert("shuffle".to_string(), json!(shuffle));
    members.insert("typesize".to_string(), json!(size));
    members.entry("blocksize").or_insert(json!(0));
    CodecSpec {
        name: "blosc".to_string(),
        configuration: members,
    }
}

/// Returns v3's word for blosc's shuffle, which is a number in numcodecs and another word in GDAL. A missing shuffle is
/// `shuffle`; -1 is `bitshuffle` for elements of one byte, else `shuffle`. Returns `None` for any other text.
pub(crate) fn shuffle_name(stated: Option<&Value>, size: usize) -> Option<&'static str> {
    let number = match stated {
        Some(Value::String(word)) => match word.to_ascii_uppercase().as_str() {
            "NONE" | "NOSHUFFLE" | "0" => 0,
            "BYTE" | "SHUFFLE" | "1" => 1,
            "BIT" | "BITSHUFFLE" | "2" => 2,
            _ => return None,
        },
        other => other.and_then(Value::as_i64).unwrap_or(1),
    };
    Some(match number {
        0 => "noshuffle",
        2 => "bitshuffle",
        -1 if size == 1 => "bitshuffle",
        _ => "shuffle",
    })
}

/// Converts zstd's `checksum` to a boolean if it is text: GDAL 3.12 writes the option as the user spelled it, by
/// default `NO`, and takes all words except four for true.
fn checksum_from_word(members: &mut Map<String, Value>) {
    if let Some(checksum) = members.get_mut("checksum")
        && let Some(word) = checksum.as_str()
    {
        let words = ["NO", "FALSE", "OFF", "0"];
        let is_off = words.iter().any(|off| word.eq_ignore_ascii_case(off));
        *checksum = json!(!is_off);
    }
}

/// Byte order of elements between two filters: the size in bytes of their words (numbers), and whether the words are
/// big-endian.
///
/// A v2 filter works on stored bytes and names its own number types; a v3 filter works on numbers, and only codec
/// `bytes` has a byte order. A chain of v2 filters has an equivalent in v3 if each filter reads the type that the
/// previous filter has written. `WordOrder` checks this condition and determines the byte order of `bytes`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct WordOrder {
    word: usize,
    big: bool,
}

impl WordOrder {
    fn new(word: usize, big: bool) -> WordOrder {
        WordOrder {
            word,
            big: big && word > 1,
        }
    }

    fn is_big(self) -> bool {
        self.big
    }

    /// Returns codec `bytes` for this byte order.
    fn bytes_codec(self) -> CodecSpec {
        let configuration = match self {
            WordOrder { word: 0 | 1, .. } => Value::Null,
            WordOrder { big: true, .. } => json!({ "endian": "big" }),
            WordOrder { big: false, .. } => json!({ "endian": "little" }),
        };
        CodecSpec::new("bytes", configuration)
    }

    /// Returns the byte order after a filter, or `None` if the filter reads the elements as another type, so that it
    /// must get bytes.
    fn after(self, id: &str, filter: &Map<String, Value>) -> Option<WordOrder> {
        let named = |name: &str| {
            filter
                .get(name)
                .and_then(Value::as_str)
                .and_then(WordOrder::read)
        };
        let (read, written) = match id {
            "delta" | "fixedscaleoffset" | "quantize" => (named("dtype"), named("astype")),
            "astype" => (named("decode_dtype"), named("encode_dtype")),
            "categorize" => (None, named("astype")),
            "packbits" => (Some(WordOrder::new(1, false)), None),
            _ => return Some(self),
        };
        let read = read.unwrap_or(self);
        let same = read == self || !read.big && !self.big;
        same.then_some(written.unwrap_or(read))
    }

    /// Reads the byte order of numpy's name of a type: `>i4`, `|u1`, `complex64`.
    fn read(dtype: &str) -> Option<WordOrder> {
        let plain = dtype.trim_start_matches(['<', '>', '|', '=']);
        // A date such as `<M8[ns]` has its unit between brackets.
        let plain = plain.split('[').next().unwrap_or(plain);
        let start = plain.find(|c: char| c.is_ascii_digit());
        let (kind, size) = plain.split_at(start.unwrap_or(plain.len()));
        let size: usize = size.parse().unwrap_or(1);
        let bytes = if kind.len() > 1 { size / 8 } else { size };
        let word = if kind.starts_with('c') {
            bytes / 2
        } else {
            bytes
        };
        Some(WordOrder::new(word, dtype.starts_with('>'))).filter(|_| !kind.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::v2::tests::read;

    #[test]
    fn the_byte_order_is_that_of_the_last_array_filter() {
        let chain = |dtype: &str, filters: Value| {
            let array =
                read(json!({ "dtype": dtype, "filters": filters, "fill_value": 0 })).unwrap();
            let endian = |codec: &CodecSpec| match codec.configuration.get("endian") {
                Some(endian) => format!("{} {}", codec.name, endian.as_str().unwrap()),
                None => codec.name.clone(),
            };
            array.codecs[1..].iter().map(endian).collect::<Vec<_>>()
        };
        let cast = json!({ "id": "astype", "decode_dtype": "<f8", "encode_dtype": ">f4" });
        let delta = json!({ "id": "delta", "dtype": "<f4" });
        assert_eq!(
            chain("<f8", json!([cast])),
            ["numcodecs.astype", "bytes big", "blosc"]
        );
        assert_eq!(
            chain("<f8", json!([cast, delta])),
            ["numcodecs.astype", "bytes big", "numcodecs.delta", "blosc"]
        );
        assert_eq!(
            chain(">f8", json!([{ "id": "base64" }, delta])),
            ["bytes big", "numcodecs.base64", "numcodecs.delta", "blosc"]
        );
    }

    #[test]
    fn list_codecs_state_the_byte_order_of_their_input() {
        for (dtype, filters, endian) in [
            (">i4", json!([{ "id": "json2" }]), Some("big")),
            ("<i4", json!([{ "id": "msgpack2" }]), None),
            (">u1", json!([{ "id": "json2" }]), None),
            (
                "<i4",
                json!([{ "id": "delta", "dtype": "<i4", "astype": ">i2" }, { "id": "json2" }]),
                Some("big"),
            ),
        ] {
            let array = read(json!({ "dtype": dtype, "filters": filters, "fill_value": 0 }));
            let codecs = array.unwrap().codecs;
            let list = codecs.iter().rev().nth(1).unwrap();
            let found = list.configuration.get("endian").and_then(Value::as_str);
            assert_eq!(found, endian, "{dtype} {filters}");
        }
    }

    #[test]
    fn the_object_filter_decides_the_data_type() {
        let of = |filter: Value| {
            let array =
                read(json!({ "dtype": "|O", "fill_value": 0, "filters": [filter] })).unwrap();
            let names: Vec<_> = array
                .codecs
                .iter()
                .map(|codec| codec.name.clone())
                .collect();
            (array.data_type, names.join(" "))
        };
        assert_eq!(
            of(json!({ "id": "vlen-utf8" })),
            (DataType::Text, "transpose vlen-utf8 blosc".to_string())
        );
        let list = of(json!({ "id": "vlen-array", "dtype": "<i4" })).0;
        assert_eq!(list, DataType::List(Box::new(DataType::Int(4))));
        assert_eq!(
            of(json!({ "id": "json2" })),
            (DataType::Object, "numcodecs.json2 blosc".to_string())
        );
        let labels = json!({ "id": "categorize", "labels": ["a"], "dtype": "|O", "astype": ">u2" });
        assert_eq!(
            of(labels),
            (
                DataType::Text,
                "transpose numcodecs.categorize bytes blosc".to_string()
            )
        );
        let pickled = json!({ "dtype": "|O", "fill_value": 0, "filters": [{ "id": "pickle", "protocol": 4 }] });
        assert!(
            read(pickled)
                .unwrap()
                .undecodable
                .unwrap()
                .contains("pickle")
        );
    }

    #[test]
    fn objects_without_a_known_filter_are_not_decoded() {
        for (filters, word) in [
            (json!([{ "id": "lzw" }, { "id": "crc32" }]), "lzw, crc32"),
            (Value::Null, "needs a filter"),
        ] {
            let array = json!({ "dtype": "|O", "fill_value": null, "filters": filters });
            let why = read(array).unwrap().undecodable.unwrap();
            assert!(why.contains(word), "{why}");
        }
    }

    #[test]
    fn pcodec_replaces_the_bytes_codec() {
        let codec = json!({ "id": "pcodec", "level": 8 });
        for changes in [
            json!({ "filters": null, "compressor": codec }),
            json!({ "filters": [codec], "compressor": null }),
        ] {
            let array = read(changes).unwrap();
            let names: Vec<_> = array
                .codecs
                .iter()
                .map(|codec| codec.name.as_str())
                .collect();
            assert_eq!(names, ["transpose", "numcodecs.pcodec"]);
        }
    }

    #[test]
    fn gdal_words_in_compressors_are_read() {
        let compressor = |compressor: Value| {
            let changes = json!({ "filters": null, "compressor": compressor });
            read(changes).unwrap().codecs.pop().unwrap().configuration
        };
        for (word, name) in [
            (json!("NONE"), "noshuffle"),
            (json!("BYTE"), "shuffle"),
            (json!("bit"), "bitshuffle"),
            (json!("2"), "bitshuffle"),
            (json!(0), "noshuffle"),
            (Value::Null, "shuffle"),
            (json!("other"), "shuffle"),
        ] {
            let blosc = json!({ "id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": word });
            assert_eq!(compressor(blosc)["shuffle"], name, "{word}");
        }
        for (word, is_on) in [
            (json!("NO"), false),
            (json!("off"), false),
            (json!("YES"), true),
            (json!("TRUE"), true),
            (json!(true), true),
        ] {
            let zstd = json!({ "id": "zstd", "level": 13, "checksum": word });
            assert_eq!(compressor(zstd)["checksum"], json!(is_on), "{word}");
        }
        assert_eq!(
            compressor(json!({ "id": "zstd", "level": 1 })).get("checksum"),
            None
        );
    }

    fn after(order: WordOrder, filter: Value) -> Option<WordOrder> {
        let members = filter.as_object().unwrap();
        order.after(members["id"].as_str().unwrap(), members)
    }

    #[test]
    fn numpy_types_give_word_size_and_byte_order() {
        for (dtype, word, big) in [
            ("<i4", 4, false),
            (">f8", 8, true),
            ("|u1", 1, false),
            (">u1", 1, false),
            (">c16", 8, true),
            ("int32", 4, false),
            ("complex64", 4, false),
            (">M8[ns]", 8, true),
            ("bool", 0, false),
        ] {
            assert_eq!(
                WordOrder::read(dtype),
                Some(WordOrder { word, big }),
                "{dtype}"
            );
        }
    }

    #[test]
    fn a_filter_may_change_word_size_and_byte_order() {
        let little = WordOrder::new(8, false);
        let cast = json!({ "id": "astype", "decode_dtype": "<f8", "encode_dtype": ">f4" });
        assert_eq!(after(little, cast), Some(WordOrder::new(4, true)));
        let packed = json!({ "id": "packbits" });
        let codec = after(WordOrder::new(1, false), packed)
            .unwrap()
            .bytes_codec();
        assert!(codec.configuration.is_empty());
        let same = json!({ "id": "delta", "dtype": ">i4" });
        assert_eq!(
            after(WordOrder::new(4, true), same),
            Some(WordOrder::new(4, true))
        );
    }

    #[test]
    fn a_filter_for_another_dtype_must_get_bytes() {
        for (order, dtype) in [
            (WordOrder::new(4, false), ">i4"),
            (WordOrder::new(4, true), "<i4"),
            (WordOrder::new(4, true), "|u1"),
            (WordOrder::new(4, true), ">i8"),
            (WordOrder::new(1, false), ">i4"),
        ] {
            assert_eq!(
                after(order, json!({ "id": "delta", "dtype": dtype })),
                None,
                "{dtype}"
            );
        }
        // A filter may read little-endian `<i4` as `<i8`, since the bytes are the same.
        let view = json!({ "id": "delta", "dtype": "<i8" });
        assert!(after(WordOrder::new(1, false), view).is_some());
    }
}
