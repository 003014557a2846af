//! The codecs against another implementation (the zarrs crate), and against input made to break them.
//!
//! Random arrays: what zarrs encodes decodes here to the same bytes, and the other way round; shards are
//! opened piece by piece as well as whole. Left out is what zarrs 0.23.14 is known to get wrong (several
//! gzip members), and what it has no name for. The address space is limited for the whole process, so a
//! codec that allocates by what a frame claims aborts the test.

// clippy.toml lets #[test] functions unwrap, not what they call.
#![allow(clippy::unwrap_used)]

use std::num::NonZeroU64;
use std::ops::Range;
use std::time::Instant;

use serde_json::Map;
use serde_json::Value;
use serde_json::json;
use zarrs::array::ArrayBytes;
use zarrs::array::ArrayToBytesCodecTraits;
use zarrs::array::CodecChain;
use zarrs::array::CodecOptions;
use zarrs::metadata::v3::MetadataV3;

use zarrfs::codec::Pipeline;
use zarrfs::error::Kind;
use zarrfs::model::Array;
use zarrfs::model::CodecSpec;
use zarrfs::model::DataType;
use zarrfs::model::FillValue;
use zarrfs::model::KeyScheme;

const MAX_CHUNK: u64 = 64 << 20;
const ROUNDS: u64 = 200;
const TYPES: [&str; 15] = [
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
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}

/// One random chunk.
struct Case {
    data_type: &'static str,
    element: usize,
    shape: Vec<u64>,
    fill: Vec<u8>,
    data: Vec<u8>,
}

impl Case {
    fn new(dice: &mut Dice, least_rank: u64) -> Case {
        let rank = least_rank + dice.below(5 - least_rank);
        let shape = (0..rank)
            .map(|_| *dice.pick(&[1, 2, 3, 4, 6, 8, 12]))
            .collect();
        Case::of(dice, shape)
    }

    fn of(dice: &mut Dice, shape: Vec<u64>) -> Case {
        let data_type = *dice.pick(&TYPES);
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

    fn pipeline(&self, codecs: &[Value]) -> Pipeline {
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
        Pipeline::new(&array, MAX_CHUNK).unwrap()
    }

    /// A byte order, or none where it may be absent.
    fn bytes(&self, dice: &mut Dice) -> Value {
        codec("bytes", json!({ "endian": dice.pick(&["little", "big"]) }))
    }

    fn transpose(&self, dice: &mut Dice) -> Value {
        let mut order: Vec<usize> = (0..self.shape.len()).collect();
        for n in (1..order.len()).rev() {
            order.swap(n, dice.below(n as u64 + 1) as usize);
        }
        codec("transpose", json!({ "order": order }))
    }

    fn compressor(&self, dice: &mut Dice) -> Value {
        match dice.below(5) {
            0 => codec(
                "zstd",
                json!({ "level": 1, "checksum": dice.below(2) == 0 }),
            ),
            1 => codec("gzip", json!({ "level": dice.below(10) })),
            2 => codec("numcodecs.zlib", json!({ "level": dice.below(10) })),
            3 => codec("crc32c", json!({})),
            _ => self.blosc(dice, &["lz4", "lz4hc", "blosclz", "zstd", "zlib", "snappy"]),
        }
    }

    fn blosc(&self, dice: &mut Dice, compressors: &[&str]) -> Value {
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
    fn sharding(&self, dice: &mut Dice, shape: &[u64], depth: usize) -> Value {
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

fn codec(name: &str, configuration: Value) -> Value {
    if configuration == json!({}) {
        return json!({ "name": name });
    }
    json!({ "name": name, "configuration": configuration })
}

/// The other implementation.
struct Zarrs {
    chain: CodecChain,
    shape: Vec<NonZeroU64>,
    data_type: zarrs::array::DataType,
    fill: zarrs::array::FillValue,
    options: CodecOptions,
}

impl Zarrs {
    fn new(case: &Case, codecs: &[Value]) -> Zarrs {
        let metadata: Vec<MetadataV3> = codecs
            .iter()
            .map(|codec| serde_json::from_value(codec.clone()).unwrap())
            .collect();
        let data_type: MetadataV3 = serde_json::from_value(json!(case.data_type)).unwrap();
        Zarrs {
            chain: CodecChain::from_metadata(&metadata).unwrap(),
            shape: case
                .shape
                .iter()
                .map(|&length| NonZeroU64::new(length).unwrap())
                .collect(),
            data_type: zarrs::array::DataType::from_metadata(&data_type).unwrap(),
            fill: zarrs::array::FillValue::new(case.fill.clone()),
            options: CodecOptions::default().with_concurrent_target(1),
        }
    }

    fn encode(&self, data: &[u8]) -> Vec<u8> {
        let bytes = ArrayBytes::from(data);
        self.chain
            .encode(
                bytes,
                &self.shape,
                &self.data_type,
                &self.fill,
                &self.options,
            )
            .unwrap()
            .into_owned()
    }

    fn decode(&self, encoded: &[u8]) -> Vec<u8> {
        let decoded = self.chain.decode(
            encoded.into(),
            &self.shape,
            &self.data_type,
            &self.fill,
            &self.options,
        );
        decoded.unwrap().into_fixed().unwrap().into_owned()
    }
}

/// Calls `visit` for each row of box `n` of shape `inner`, with its place in the whole and in the box.
fn for_each_row(
    shape: &[u64],
    inner: &[u64],
    n: usize,
    element: usize,
    visit: &mut impl FnMut(Range<usize>, Range<usize>),
) {
    let mut rest = n as u64;
    let mut origin = vec![0; shape.len()];
    for d in (0..shape.len()).rev() {
        let count = shape[d] / inner[d];
        origin[d] = rest % count * inner[d];
        rest /= count;
    }
    for k in 0..inner.iter().product::<u64>() {
        let (mut rest, mut place, mut distance) = (k, 0, 1);
        for d in (0..shape.len()).rev() {
            place += (origin[d] + rest % inner[d]) * distance;
            rest /= inner[d];
            distance *= shape[d];
        }
        let (place, k) = (place as usize * element, k as usize * element);
        visit(place..place + element, k..k + element);
    }
}

/// Decodes a shard piece by piece, as a program does that fetches ranges.
fn open(pipeline: &Pipeline, level: usize, case: &Case, shape: &[u64], stored: &[u8]) -> Vec<u8> {
    let Some(shard) = pipeline.shards().get(level) else {
        return pipeline.decode(stored.to_vec()).unwrap();
    };
    let start = if shard.index_at_end() {
        stored.len() - shard.index_bytes()
    } else {
        0
    };
    let index = shard
        .decode_index(
            &stored[start..start + shard.index_bytes()],
            stored.len() as u64,
        )
        .unwrap();
    let mut out = case.fill.repeat(shape.iter().product::<u64>() as usize);
    for n in 0..shard.count() {
        let Some(range) = index.range(n).unwrap() else {
            continue;
        };
        let inner = &stored[range.start as usize..range.end as usize];
        let inner = open(pipeline, level + 1, case, shard.inner_shape(), inner);
        for_each_row(
            shape,
            shard.inner_shape(),
            n,
            case.element,
            &mut |whole, part| {
                out[whole].copy_from_slice(&inner[part]);
            },
        );
    }
    out
}

/// Encodes a shard piece by piece.
fn close(pipeline: &Pipeline, level: usize, case: &Case, shape: &[u64], data: &[u8]) -> Vec<u8> {
    let Some(shard) = pipeline.shards().get(level) else {
        return pipeline.encode(data).unwrap();
    };
    let length = shard.inner_shape().iter().product::<u64>() as usize * case.element;
    let mut stored = vec![
        0;
        if shard.index_at_end() {
            0
        } else {
            shard.index_bytes()
        }
    ];
    let mut ranges = Vec::new();
    for n in 0..shard.count() {
        let mut inner = vec![0; length];
        for_each_row(
            shape,
            shard.inner_shape(),
            n,
            case.element,
            &mut |whole, part| {
                inner[part].copy_from_slice(&data[whole]);
            },
        );
        let start = stored.len() as u64;
        stored.extend(close(
            pipeline,
            level + 1,
            case,
            shard.inner_shape(),
            &inner,
        ));
        ranges.push(Some(start..stored.len() as u64));
    }
    let index = shard.encode_index(&ranges).unwrap();
    if shard.index_at_end() {
        stored.extend(index);
    } else {
        stored[..index.len()].copy_from_slice(&index);
    }
    stored
}

/// Both directions, for many random arrays and the codecs that `chain` chooses for each.
fn compare(seed: u64, least_rank: u64, chain: impl Fn(&Case, &mut Dice) -> Vec<Value>) {
    let mut dice = Dice(seed);
    for round in 0..ROUNDS {
        let case = Case::new(&mut dice, least_rank);
        let codecs = chain(&case, &mut dice);
        let context = format!(
            "round {round}: {} {:?} {}",
            case.data_type,
            case.shape,
            json!(codecs)
        );
        let (ours, theirs) = (case.pipeline(&codecs), Zarrs::new(&case, &codecs));
        let stored = theirs.encode(&case.data);
        assert!(
            open(&ours, 0, &case, &case.shape, &stored) == case.data,
            "we decode, {context}"
        );
        let stored = close(&ours, 0, &case, &case.shape, &case.data);
        assert!(
            theirs.decode(&stored) == case.data,
            "zarrs decodes, {context}"
        );
    }
}

#[test]
fn bytes_in_both_orders() {
    compare(1, 0, |case, dice| vec![case.bytes(dice)]);
}

#[test]
fn transposed() {
    compare(2, 1, |case, dice| {
        vec![case.transpose(dice), case.bytes(dice)]
    });
}

#[test]
fn transposed_twice() {
    compare(3, 1, |case, dice| {
        vec![case.transpose(dice), case.transpose(dice), case.bytes(dice)]
    });
}

#[test]
fn zstd() {
    let zstd = |dice: &mut Dice| json!({ "level": dice.below(12) as i64 - 3, "checksum": dice.below(2) == 0 });
    compare(4, 0, |case, dice| {
        vec![case.bytes(dice), codec("zstd", zstd(dice))]
    });
}

#[test]
fn gzip() {
    compare(5, 0, |case, dice| {
        vec![
            case.bytes(dice),
            codec("gzip", json!({ "level": dice.below(10) })),
        ]
    });
}

#[test]
fn zlib() {
    compare(6, 0, |case, dice| {
        vec![
            case.bytes(dice),
            codec("numcodecs.zlib", json!({ "level": dice.below(10) })),
        ]
    });
}

#[test]
fn crc32c() {
    compare(7, 0, |case, dice| {
        vec![case.bytes(dice), codec("crc32c", json!({}))]
    });
}

#[test]
fn blosc() {
    let compressors = ["lz4", "lz4hc", "blosclz", "zstd", "zlib"];
    compare(8, 0, |case, dice| {
        vec![case.bytes(dice), case.blosc(dice, &compressors)]
    });
}

#[test]
fn blosc_with_snappy_blocks() {
    compare(9, 0, |case, dice| {
        vec![case.bytes(dice), case.blosc(dice, &["snappy"])]
    });
}

#[test]
fn chains_of_everything() {
    compare(10, 1, |case, dice| {
        let mut codecs = vec![case.transpose(dice), case.bytes(dice)];
        (0..dice.below(4)).for_each(|_| codecs.push(case.compressor(dice)));
        codecs
    });
}

#[test]
fn shards() {
    compare(11, 1, |case, dice| {
        vec![case.sharding(dice, &case.shape, 0)]
    });
}

#[test]
fn nested_shards() {
    compare(12, 1, |case, dice| {
        vec![case.sharding(dice, &case.shape, 1)]
    });
    compare(13, 1, |case, dice| {
        vec![case.sharding(dice, &case.shape, 2)]
    });
}

#[test]
fn shards_between_other_codecs() {
    compare(14, 1, |case, dice| {
        // Of the same lengths in every order, so that the sharding fits whatever the transpose does.
        let same = case.shape.iter().all(|length| *length == case.shape[0]);
        let first = if same {
            case.transpose(dice)
        } else {
            codec(
                "transpose",
                json!({ "order": Vec::from_iter(0..case.shape.len()) }),
            )
        };
        let depth = dice.below(2) as usize;
        let mut codecs = vec![first, case.sharding(dice, &case.shape, depth)];
        (0..dice.below(3)).for_each(|_| codecs.push(case.compressor(dice)));
        codecs
    });
}

/// Large enough for several blosc blocks and many tiles.
#[test]
fn large_chunks() {
    let mut dice = Dice(15);
    for round in 0..30 {
        let case = Case::of(&mut dice, vec![20, 33, 70 + round as u64]);
        let cname = *["snappy", "blosclz", "lz4", "zlib", "zstd"]
            .get(round % 5)
            .unwrap();
        let codecs = [
            case.transpose(&mut dice),
            case.bytes(&mut dice),
            case.blosc(&mut dice, &[cname]),
        ];
        let (ours, theirs) = (case.pipeline(&codecs), Zarrs::new(&case, &codecs));
        assert!(
            ours.decode(theirs.encode(&case.data)).unwrap() == case.data,
            "{}",
            json!(codecs)
        );
        assert!(
            theirs.decode(&ours.encode(&case.data).unwrap()) == case.data,
            "{}",
            json!(codecs)
        );
    }
}

/// Limits the address space of this process; the largest chunk of these tests is far below.
fn limit_memory() {
    use rustix::process::Resource;
    use rustix::process::Rlimit;
    let limit = Rlimit {
        current: Some(3 << 30),
        maximum: Some(3 << 30),
    };
    rustix::process::setrlimit(Resource::As, limit).unwrap();
}

/// Decodes what may be anything: right length or `Corrupt`, nothing else.
fn survive(pipeline: &Pipeline, encoded: Vec<u8>) -> bool {
    match pipeline.decode(encoded) {
        Ok(decoded) => {
            assert_eq!(decoded.len(), pipeline.chunk_bytes());
            true
        }
        Err(error) => {
            assert_eq!(error.kind(), Kind::Corrupt, "{error}");
            false
        }
    }
}

fn mutate(dice: &mut Dice, encoded: &[u8]) -> Vec<u8> {
    let mut out = encoded.to_vec();
    let place = |dice: &mut Dice, end: usize| dice.below(end.max(1) as u64) as usize;
    match dice.below(6) {
        0 => out.truncate(place(dice, encoded.len())),
        1 => out.extend((0..=dice.below(20)).map(|_| dice.next() as u8)),
        2 => (0..4).for_each(|_| {
            if let Some(byte) = out.get_mut(place(dice, 32)) {
                *byte = dice.next() as u8
            }
        }),
        3 => {
            let at = place(dice, encoded.len());
            let wild = dice
                .pick(&[u64::MAX, u64::MAX - 8, 1 << 40, i32::MAX as u64, 1 << 31, 0])
                .to_le_bytes();
            out.iter_mut()
                .skip(at)
                .zip(wild)
                .for_each(|(byte, wild)| *byte = wild);
        }
        _ => {
            let at = place(dice, encoded.len());
            out.iter_mut()
                .skip(at)
                .take(1)
                .for_each(|byte| *byte ^= 1 << dice.below(8));
        }
    }
    out
}

#[test]
fn mutated_chunks_are_decoded_or_refused() {
    limit_memory();
    let mut dice = Dice(16);
    for _ in 0..400 {
        let case = Case::new(&mut dice, 1);
        let mut codecs = vec![codec(
            "transpose",
            json!({ "order": Vec::from_iter(0..case.shape.len()) }),
        )];
        match dice.below(3) {
            0 => codecs.push(case.sharding(&mut dice, &case.shape, 0)),
            1 => codecs.extend([case.bytes(&mut dice), case.compressor(&mut dice)]),
            _ => codecs.extend([
                case.bytes(&mut dice),
                case.compressor(&mut dice),
                case.compressor(&mut dice),
            ]),
        }
        let pipeline = case.pipeline(&codecs);
        let encoded = pipeline.encode(&case.data).unwrap();
        for _ in 0..50 {
            survive(&pipeline, mutate(&mut dice, &encoded));
        }
        assert!(!survive(&pipeline, Vec::new()), "{}", json!(codecs));
    }
}

fn kilobyte(codecs: &[Value]) -> Pipeline {
    let case = Case {
        data_type: "uint8",
        element: 1,
        shape: vec![1024],
        fill: vec![0],
        data: Vec::new(),
    };
    case.pipeline(codecs)
}

#[test]
fn frames_that_claim_too_much_are_refused() {
    limit_memory();
    let bytes = codec("bytes", json!({}));
    for claimed in [1_u64 << 40, 1 << 62, u64::MAX, 1025] {
        let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0xe0];
        frame.extend_from_slice(&claimed.to_le_bytes());
        frame.extend_from_slice(&[1, 0, 0]);
        assert!(!survive(
            &kilobyte(&[bytes.clone(), codec("zstd", json!({}))]),
            frame.clone()
        ));
        assert!(!survive(
            &kilobyte(&[
                bytes.clone(),
                codec("crc32c", json!({})),
                codec("gzip", json!({})),
                codec("zstd", json!({}))
            ]),
            frame
        ));
    }
    for claimed in [u32::MAX, i32::MAX as u32, 2_147_483_631, 1 << 30] {
        for flags in [0x31, 0x51, 0x91, 0x33] {
            let mut frame = vec![2, 1, flags, 4];
            for word in [claimed, claimed, 32, 20, 8, 0] {
                frame.extend_from_slice(&word.to_le_bytes());
            }
            frame.resize(32, 0);
            let blosc = codec("blosc", json!({}));
            assert!(!survive(
                &kilobyte(&[bytes.clone(), blosc.clone()]),
                frame.clone()
            ));
            assert!(!survive(
                &kilobyte(&[bytes.clone(), codec("gzip", json!({})), blosc]),
                frame
            ));
        }
    }
}

#[test]
fn bombs_end_at_the_promised_length() {
    limit_memory();
    let bytes = codec("bytes", json!({}));
    let large = Case {
        data_type: "uint8",
        element: 1,
        shape: vec![60 << 20],
        fill: vec![0],
        data: vec![0; 60 << 20],
    };
    for name in ["gzip", "numcodecs.zlib", "zstd", "blosc"] {
        let compressor = codec(name, json!({}));
        let bomb = large
            .pipeline(&[bytes.clone(), compressor.clone()])
            .encode(&large.data)
            .unwrap();
        let started = Instant::now();
        assert!(!survive(
            &kilobyte(&[bytes.clone(), compressor.clone()]),
            bomb.clone()
        ));
        assert!(!survive(
            &kilobyte(&[
                bytes.clone(),
                codec("crc32c", json!({})),
                codec("zstd", json!({})),
                compressor
            ]),
            bomb
        ));
        assert!(started.elapsed().as_millis() < 2000, "{name}");
    }
}

/// Decode speeds beside zarrs; `cargo test --release --test codecs speed -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn speed() {
    let shape = vec![64, 64, 64];
    let values = (0..64 * 64 * 64_u32).map(|n| {
        let noise = (n.wrapping_mul(2_654_435_761) >> 20) as f32 / 4096.0;
        let value = (n as f32 / 900.0).sin() + noise * 0.03;
        f32::from_bits(value.to_bits() & 0xffff_f800)
    });
    let data: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
    let case = Case {
        data_type: "float32",
        element: 4,
        shape,
        fill: vec![0; 4],
        data,
    };
    let bytes = |endian| codec("bytes", json!({ "endian": endian }));
    let blosc = |cname, shuffle| {
        codec(
            "blosc",
            json!({ "cname": cname, "clevel": 5, "shuffle": shuffle, "typesize": 4, "blocksize": 0 }),
        )
    };
    let zstd = codec("zstd", json!({ "level": 1, "checksum": false }));
    let fortran = codec("transpose", json!({ "order": [2, 1, 0] }));
    let still = codec("transpose", json!({ "order": [0, 1, 2] }));
    let shards = codec(
        "sharding_indexed",
        json!({
            "chunk_shape": [16, 16, 16], "codecs": [bytes("little"), zstd],
            "index_codecs": [bytes("little"), codec("crc32c", json!({}))], "index_location": "end",
        }),
    );
    let chains = [
        vec![bytes("little")],
        vec![bytes("big")],
        vec![fortran.clone(), bytes("little")],
        vec![
            codec("transpose", json!({ "order": [1, 2, 0] })),
            bytes("little"),
        ],
        vec![bytes("little"), codec("crc32c", json!({}))],
        vec![bytes("little"), zstd],
        vec![bytes("little"), codec("gzip", json!({ "level": 1 }))],
        vec![
            bytes("little"),
            codec("numcodecs.zlib", json!({ "level": 1 })),
        ],
        vec![bytes("little"), blosc("lz4", "shuffle")],
        vec![bytes("little"), blosc("zstd", "bitshuffle")],
        vec![bytes("little"), blosc("snappy", "shuffle")],
        vec![bytes("little"), blosc("snappy", "bitshuffle")],
        vec![fortran, bytes("big"), blosc("lz4", "shuffle")],
        vec![still, shards],
    ];
    for codecs in chains {
        let (ours, theirs) = (case.pipeline(&codecs), Zarrs::new(&case, &codecs));
        let stored = theirs.encode(&case.data);
        let best = |decode: &dyn Fn()| {
            let rate = (0..40).map(|_| {
                let started = Instant::now();
                decode();
                case.data.len() as f64 / started.elapsed().as_secs_f64() / 1e6
            });
            rate.fold(0.0, f64::max)
        };
        // Both get a copy that is their own, so the copy counts for both.
        let ours = best(&|| drop(ours.decode(stored.clone()).unwrap()));
        let theirs = best(&|| drop(theirs.decode(&stored)));
        let names: Vec<String> = codecs
            .iter()
            .map(|codec| format!("{} {}", codec["name"], codec["configuration"]["cname"]))
            .collect();
        println!(
            "{ours:8.0} MB/s here, {theirs:8.0} zarrs, ratio {:5.2}  {}",
            ours / theirs,
            names.join(" ")
        );
    }
}
