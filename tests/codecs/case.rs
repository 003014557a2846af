//! Random chunks and random codecs for them.

use serde_json::{Map, Value, json};

use zarrfs::codec::Pipeline;
use zarrfs::error::Result;
use zarrfs::model::{Array, CodecSpec, DataType, FillValue, KeyScheme};

pub const MAX_CHUNK: u64 = 64 << 20;
pub const ROUNDS: u64 = 200;
pub const TYPES: [&str; 15] = [
    "bool",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "float16",
    "int32",
    "uint32",
    "float32",
    "int64",
    "uint64",
    "float64",
    "complex64",
    "complex128",
    "r24",
];

/// Numbers that look random and are the same in every run.
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}

/// One random chunk.
pub struct Case {
    pub data_type: &'static str,
    pub element: usize,
    pub shape: Vec<u64>,
    pub fill: Vec<u8>,
    pub data: Vec<u8>,
}

impl Case {
    pub fn new(dice: &mut Dice, least_rank: u64) -> Case {
        Case::among(dice, least_rank, &TYPES)
    }

    /// A chunk of one of these types.
    pub fn among(dice: &mut Dice, least_rank: u64, types: &[&'static str]) -> Case {
        let rank = least_rank + dice.below(5 - least_rank);
        let shape = (0..rank)
            .map(|_| *dice.pick(&[1, 2, 3, 4, 6, 8, 12]))
            .collect();
        let data_type = *dice.pick(types);
        Case::typed(dice, data_type, shape)
    }

    pub fn of(dice: &mut Dice, shape: Vec<u64>) -> Case {
        let data_type = *dice.pick(&TYPES);
        Case::typed(dice, data_type, shape)
    }

    fn typed(dice: &mut Dice, data_type: &'static str, shape: Vec<u64>) -> Case {
        let element = DataType::from_v3(data_type).size().unwrap();
        let mask = if data_type == "bool" { 1 } else { 0xff };
        let fill: Vec<u8> = (0..element).map(|_| dice.next() as u8 & mask).collect();
        let count = shape.iter().product::<u64>() as usize;
        let run = *dice.pick(&[1, 7, 50]);
        let mut data = Vec::with_capacity(count * element);
        let mut value = fill.clone();
        for n in 0..count {
            if n % run == 0 {
                value = if dice.below(3) == 0 {
                    fill.clone()
                } else {
                    (0..element).map(|_| dice.next() as u8 & mask).collect()
                };
            }
            data.extend_from_slice(&value);
        }
        Case {
            data_type,
            element,
            shape,
            fill,
            data,
        }
    }

    /// The same chunk with numbers from 0 to 100 in it, unless they are complex; floats have fractions.
    pub fn with_numbers(mut self, dice: &mut Dice) -> Case {
        if self.data_type.starts_with("complex") {
            return self;
        }
        let number = |dice: &mut Dice| {
            let number = dice.below(1 << 40) as f64 / (1_u64 << 40) as f64 * 100.0;
            match self.data_type {
                "bool" => vec![u8::from(number > 50.0)],
                "float64" => number.to_le_bytes().to_vec(),
                "float32" => (number as f32).to_le_bytes().to_vec(),
                "float16" => half::f16::from_f64(number).to_le_bytes().to_vec(),
                _ => (number as u64).to_le_bytes()[..self.element].to_vec(),
            }
        };
        let count = self.data.len() / self.element;
        self.data = (0..count).flat_map(|_| number(dice)).collect();
        self.fill = vec![0; self.element];
        self
    }

    pub fn try_pipeline(&self, codecs: &[Value]) -> Result<Pipeline> {
        let codecs = codecs.iter().map(|codec| {
            let members = codec.get("configuration").cloned().unwrap_or(Value::Null);
            CodecSpec::new(codec["name"].as_str().unwrap(), members)
        });
        let array = Array {
            dialect: "v3",
            shape: self.shape.clone(),
            chunk_shape: self.shape.clone(),
            chunk_edges: Vec::new(),
            data_type: DataType::from_v3(self.data_type),
            fill_value: FillValue {
                bytes: self.fill.clone(),
                json: Value::Null,
            },
            codecs: codecs.collect(),
            keys: KeyScheme {
                prefix: "c/".into(),
                separator: '/',
                other_separator: None,
                scalar_keys: Vec::new(),
                v3: Value::Null,
            },
            dimension_names: Vec::new(),
            attributes: Map::new(),
            undecodable: None,
        };
        Pipeline::new(&array, MAX_CHUNK)
    }

    pub fn pipeline(&self, codecs: &[Value]) -> Pipeline {
        self.try_pipeline(codecs).unwrap()
    }

    /// A byte order, or none where it may be absent.
    pub fn bytes(&self, dice: &mut Dice) -> Value {
        codec("bytes", json!({ "endian": dice.pick(&["little", "big"]) }))
    }

    pub fn transpose(&self, dice: &mut Dice) -> Value {
        let mut order: Vec<usize> = (0..self.shape.len()).collect();
        for n in (1..order.len()).rev() {
            order.swap(n, dice.below(n as u64 + 1) as usize);
        }
        codec("transpose", json!({ "order": order }))
    }

    pub fn compressor(&self, dice: &mut Dice) -> Value {
        match dice.below(12) {
            0 => codec(
                "zstd",
                json!({ "level": 1, "checksum": dice.below(2) == 0 }),
            ),
            1 => codec("gzip", json!({ "level": dice.below(10) })),
            2 => codec("numcodecs.zlib", json!({ "level": dice.below(10) })),
            3 => codec("crc32c", json!({})),
            4 => codec("numcodecs.bz2", json!({ "level": dice.below(9) + 1 })),
            5 => codec("numcodecs.adler32", json!({})),
            _ => self.blosc(dice, &["lz4", "lz4hc", "blosclz", "zstd", "zlib", "snappy"]),
        }
    }

    /// A codec from bytes to bytes that zarrs does not have.
    pub fn unshared(&self, dice: &mut Dice) -> Value {
        let lzma2 = json!({ "id": 33, "preset": dice.below(3) });
        let delta = json!({ "id": 3, "dist": dice.below(9) + 1 });
        let inner = vec![self.compressor(dice), self.compressor(dice)];
        match dice.below(16) {
            0 => codec("numcodecs.lzma", json!({ "preset": 0 })),
            1 => codec("numcodecs.lzma", json!({ "format": 2, "preset": 0 })),
            2 => codec(
                "numcodecs.lzma",
                json!({ "format": 3, "filters": [delta, lzma2] }),
            ),
            3 => codec("lz4", json!({})),
            4 => codec("numcodecs.lz4", json!({})),
            5 => codec("numcodecs.base64", json!({})),
            6 => codec(
                "numcodecs.crc32",
                json!({ "location": dice.pick(&["start", "end"]) }),
            ),
            7 => codec("numcodecs.fletcher32", json!({})),
            8 => codec(
                "numcodecs.jenkins_lookup3",
                json!({ "initval": dice.below(1 << 32) }),
            ),
            9 => codec("numcodecs.delta", json!({ "dtype": "|u1" })),
            10 => codec("numcodecs.packbits", json!({})),
            11 => codec("conditional", json!({ "codecs": inner })),
            12 => codec("numcodecs.bz2", json!({})),
            14 => codec("n5.lz4", json!({ "blockSize": dice.below(2000) })),
            13 => codec(
                "numcodecs.shuffle",
                json!({ "elementsize": dice.below(20) }),
            ),
            _ => codec("numcodecs.zlib", json!({})),
        }
    }

    /// Codecs that calculate, for any type of array.
    pub fn calculation(&self, dice: &mut Dice) -> Value {
        let number = *dice.pick(&["|i1", "<u2", "<i4", "<f4", "<f8", "|b1"]);
        let float = *dice.pick(&["<f2", "<f4", "<f8"]);
        match dice.below(9) {
            0 => codec("numcodecs.delta", json!({ "astype": number })),
            1 => codec("numcodecs.astype", json!({ "encode_dtype": number })),
            2 => codec(
                "numcodecs.fixedscaleoffset",
                json!({ "offset": 1, "scale": 3, "astype": number }),
            ),
            3 => codec(
                "numcodecs.quantize",
                json!({ "digits": dice.below(9), "astype": float }),
            ),
            4 => codec("bitround", json!({ "keepbits": dice.below(11) })),
            5 => codec("numcodecs.packbits", json!({})),
            6 => codec("scale_offset", json!({ "offset": 1, "scale": 2 })),
            7 => codec(
                "cast_value",
                json!({ "data_type": dice.pick(&["int32", "float32", "uint8"]) }),
            ),
            _ => codec("reshape", json!({ "shape": [-1] })),
        }
    }

    pub fn blosc(&self, dice: &mut Dice, compressors: &[&str]) -> Value {
        codec(
            "blosc",
            json!({
                "cname": dice.pick(compressors),
                "clevel": dice.below(10),
                "shuffle": dice.pick(&["noshuffle", "shuffle", "bitshuffle"]),
                "typesize": self.element,
                "blocksize": dice.pick(&[0, 0, 256, 1000]),
            }),
        )
    }

    /// A sharding codec for shards of `shape`, `depth` more inside it.
    pub fn sharding(&self, dice: &mut Dice, shape: &[u64], depth: usize) -> Value {
        let divisors = |length: u64| {
            (1..=length)
                .filter(|&n| length.is_multiple_of(n))
                .collect::<Vec<_>>()
        };
        let inner: Vec<u64> = shape
            .iter()
            .map(|&length| *dice.pick(&divisors(length)))
            .collect();
        let codecs = match depth {
            0 => match dice.below(3) {
                0 => vec![self.bytes(dice)],
                1 => vec![self.bytes(dice), self.compressor(dice)],
                _ => vec![
                    self.transpose(dice),
                    self.bytes(dice),
                    self.compressor(dice),
                ],
            },
            _ => vec![self.sharding(dice, &inner, depth - 1)],
        };
        let mut index_codecs = vec![self.bytes(dice)];
        index_codecs.extend((dice.below(2) == 0).then(|| codec("crc32c", json!({}))));
        codec(
            "sharding_indexed",
            json!({
                "chunk_shape": inner,
                "codecs": codecs,
                "index_codecs": index_codecs,
                "index_location": dice.pick(&["start", "end"]),
            }),
        )
    }
}

/// A codec as metadata have it.
pub fn codec(name: &str, configuration: Value) -> Value {
    if configuration == json!({}) {
        return json!({ "name": name });
    }
    json!({ "name": name, "configuration": configuration })
}
