//! Generates random chunks and codec chains for them.

use serde_json::{Value, json};

use zarr_format::codec::Pipeline;
use zarr_format::error::Result;
use zarr_format::model::{Array, Attributes, CodecSpec, DataType, FillValue, KeyScheme};

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

/// A pseudo-random generator with the same numbers in every run.
pub struct Random(pub u64);

impl Random {
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

pub struct RandomChunk {
    pub data_type: &'static str,
    pub element: usize,
    pub shape: Vec<u64>,
    pub fill: Vec<u8>,
    pub data: Vec<u8>,
}

impl RandomChunk {
    pub fn new(random: &mut Random, least_rank: u64) -> RandomChunk {
        RandomChunk::among(random, least_rank, &TYPES)
    }

    /// Returns a random chunk with one of `types` and at least `least_rank` dimensions.
    pub fn among(random: &mut Random, least_rank: u64, types: &[&'static str]) -> RandomChunk {
        let rank = least_rank + random.below(5 - least_rank);
        let shape = (0..rank)
            .map(|_| *random.pick(&[1, 2, 3, 4, 6, 8, 12]))
            .collect();
        let data_type = *random.pick(types);
        RandomChunk::typed(random, data_type, shape)
    }

    pub fn of(random: &mut Random, shape: Vec<u64>) -> RandomChunk {
        let data_type = *random.pick(&TYPES);
        RandomChunk::typed(random, data_type, shape)
    }

    fn typed(random: &mut Random, data_type: &'static str, shape: Vec<u64>) -> RandomChunk {
        let element = DataType::from_v3(data_type).size().unwrap();
        let mask = if data_type == "bool" { 1 } else { 0xff };
        let fill: Vec<u8> = (0..element).map(|_| random.next() as u8 & mask).collect();
        let count = shape.iter().product::<u64>() as usize;
        let run = *random.pick(&[1, 7, 50]);
        let mut data = Vec::with_capacity(count * element);
        let mut value = fill.clone();
        for n in 0..count {
            if n % run == 0 {
                value = if random.below(3) == 0 {
                    fill.clone()
                } else {
                    (0..element).map(|_| random.next() as u8 & mask).collect()
                };
            }
            data.extend_from_slice(&value);
        }
        RandomChunk {
            data_type,
            element,
            shape,
            fill,
            data,
        }
    }

    /// Replaces the random bits of the chunk by numbers from 0 to 100, with fractions for floats. Complex types stay
    /// random.
    pub fn with_numbers(mut self, random: &mut Random) -> RandomChunk {
        if self.data_type.starts_with("complex") {
            return self;
        }
        let number = |random: &mut Random| {
            let number = random.below(1 << 40) as f64 / (1_u64 << 40) as f64 * 100.0;
            match self.data_type {
                "bool" => vec![u8::from(number > 50.0)],
                "float64" => number.to_le_bytes().to_vec(),
                "float32" => (number as f32).to_le_bytes().to_vec(),
                "float16" => half::f16::from_f64(number).to_le_bytes().to_vec(),
                _ => (number as u64).to_le_bytes()[..self.element].to_vec(),
            }
        };
        let count = self.data.len() / self.element;
        self.data = (0..count).flat_map(|_| number(random)).collect();
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
                is_none: false,
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
            attributes: Attributes::default(),
            undecodable: None,
        };
        Pipeline::new(&array, MAX_CHUNK)
    }

    pub fn pipeline(&self, codecs: &[Value]) -> Pipeline {
        self.try_pipeline(codecs).unwrap()
    }

    pub fn bytes(&self, random: &mut Random) -> Value {
        codec(
            "bytes",
            json!({ "endian": random.pick(&["little", "big"]) }),
        )
    }

    pub fn transpose(&self, random: &mut Random) -> Value {
        let mut order: Vec<usize> = (0..self.shape.len()).collect();
        for n in (1..order.len()).rev() {
            order.swap(n, random.below(n as u64 + 1) as usize);
        }
        codec("transpose", json!({ "order": order }))
    }

    pub fn compressor(&self, random: &mut Random) -> Value {
        match random.below(12) {
            0 => codec(
                "zstd",
                json!({ "level": 1, "checksum": random.below(2) == 0 }),
            ),
            1 => codec("gzip", json!({ "level": random.below(10) })),
            2 => codec("numcodecs.zlib", json!({ "level": random.below(10) })),
            3 => codec("crc32c", json!({})),
            4 => codec("numcodecs.bz2", json!({ "level": random.below(9) + 1 })),
            5 => codec("numcodecs.adler32", json!({})),
            _ => self.blosc(
                random,
                &["lz4", "lz4hc", "blosclz", "zstd", "zlib", "snappy"],
            ),
        }
    }

    /// Returns a random `bytes -> bytes` codec that the zarrs crate does not have.
    pub fn unshared(&self, random: &mut Random) -> Value {
        let lzma2 = json!({ "id": 33, "preset": random.below(3) });
        let delta = json!({ "id": 3, "dist": random.below(9) + 1 });
        let inner = vec![self.compressor(random), self.compressor(random)];
        match random.below(16) {
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
                json!({ "location": random.pick(&["start", "end"]) }),
            ),
            7 => codec("numcodecs.fletcher32", json!({})),
            8 => codec(
                "numcodecs.jenkins_lookup3",
                json!({ "initval": random.below(1 << 32) }),
            ),
            9 => codec("numcodecs.delta", json!({ "dtype": "|u1" })),
            10 => codec("numcodecs.packbits", json!({})),
            11 => codec("conditional", json!({ "codecs": inner })),
            12 => codec("numcodecs.bz2", json!({})),
            14 => codec("n5.lz4", json!({ "blockSize": random.below(2000) })),
            13 => codec(
                "numcodecs.shuffle",
                json!({ "elementsize": random.below(20) }),
            ),
            _ => codec("numcodecs.zlib", json!({})),
        }
    }

    /// Returns a random numeric codec of numcodecs for any data type.
    pub fn calculation(&self, random: &mut Random) -> Value {
        let number = *random.pick(&["|i1", "<u2", "<i4", "<f4", "<f8", "|b1"]);
        let float = *random.pick(&["<f2", "<f4", "<f8"]);
        match random.below(9) {
            0 => codec("numcodecs.delta", json!({ "astype": number })),
            1 => codec("numcodecs.astype", json!({ "encode_dtype": number })),
            2 => codec(
                "numcodecs.fixedscaleoffset",
                json!({ "offset": 1, "scale": 3, "astype": number }),
            ),
            3 => codec(
                "numcodecs.quantize",
                json!({ "digits": random.below(9), "astype": float }),
            ),
            4 => codec("bitround", json!({ "keepbits": random.below(11) })),
            5 => codec("numcodecs.packbits", json!({})),
            6 => codec("scale_offset", json!({ "offset": 1, "scale": 2 })),
            7 => codec(
                "cast_value",
                json!({ "data_type": random.pick(&["int32", "float32", "uint8"]) }),
            ),
            _ => codec("reshape", json!({ "shape": [-1] })),
        }
    }

    pub fn blosc(&self, random: &mut Random, compressors: &[&str]) -> Value {
        codec(
            "blosc",
            json!({
                "cname": random.pick(compressors),
                "clevel": random.below(10),
                "shuffle": random.pick(&["noshuffle", "shuffle", "bitshuffle"]),
                "typesize": self.element,
                "blocksize": random.pick(&[0, 0, 256, 1000]),
            }),
        )
    }

    /// Returns a sharding codec for shards of `shape`, with `depth` levels of sharding inside the inner chunks.
    pub fn sharding(&self, random: &mut Random, shape: &[u64], depth: usize) -> Value {
        let divisors = |length: u64| {
            (1..=length)
                .filter(|&n| length.is_multiple_of(n))
                .collect::<Vec<_>>()
        };
        let inner: Vec<u64> = shape
            .iter()
            .map(|&length| *random.pick(&divisors(length)))
            .collect();
        let codecs = match depth {
            0 => match random.below(3) {
                0 => vec![self.bytes(random)],
                1 => vec![self.bytes(random), self.compressor(random)],
                _ => vec![
                    self.transpose(random),
                    self.bytes(random),
                    self.compressor(random),
                ],
            },
            _ => vec![self.sharding(random, &inner, depth - 1)],
        };
        let mut index_codecs = vec![self.bytes(random)];
        index_codecs.extend((random.below(2) == 0).then(|| codec("crc32c", json!({}))));
        codec(
            "sharding_indexed",
            json!({
                "chunk_shape": inner,
                "codecs": codecs,
                "index_codecs": index_codecs,
                "index_location": random.pick(&["start", "end"]),
            }),
        )
    }
}

pub fn codec(name: &str, configuration: Value) -> Value {
    if configuration == json!({}) {
        return json!({ "name": name });
    }
    json!({ "name": name, "configuration": configuration })
}
