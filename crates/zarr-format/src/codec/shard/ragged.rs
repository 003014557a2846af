//! Joins and splits a shard whose elements have no fixed length.
//!
//! Elements are moved in C order of the shard, in which the elements of each inner chunk also come in C order of that
//! chunk. So one read position for each inner chunk is enough. The result never exceeds the maximum of a chunk.

use crate::codec::kind::Data;
use crate::codec::records;
use crate::error::{Error, Result};

use super::index::NAME;
use super::rows::Rows;

/// The division of a shard, and its maximum length in bytes.
pub(super) struct ShardRecords<'a> {
    pub(super) rows: &'a Rows,
    pub(super) max_bytes: usize,
}

impl ShardRecords<'_> {
    /// Joins decoded inner chunks into a shard; every element of an inner chunk that is not stored is the record
    /// `fill`. `TooLarge` as soon as the elements exceed a chunk, `Corrupt` if an inner chunk has more or fewer
    /// elements than its shape.
    pub(super) fn join<'a>(
        &self,
        inner: impl Iterator<Item = Result<Option<Data<'a>>>>,
        fill: &[u8],
    ) -> Result<Vec<u8>> {
        let mut pieces = Vec::new();
        let mut bytes = 0_usize;
        for inner in inner {
            let inner = inner?;
            bytes = bytes.saturating_add(inner.as_ref().map_or(0, |inner| inner.len()));
            self.check_room(bytes)?;
            pieces.push(inner);
        }
        let mut rests: Vec<Option<&[u8]>> = pieces.iter().map(Option::as_deref).collect();
        let mut out = Vec::with_capacity(bytes);
        self.rows.for_each_in_shard_order(&mut |n, row| {
            for _ in 0..row {
                let record = match &mut rests[n] {
                    Some(rest) => take_record(rest).ok_or_else(|| miscounted(n))?,
                    None => fill,
                };
                self.check_room(out.len().saturating_add(record.len()))?;
                out.extend_from_slice(record);
            }
            Ok(())
        })?;
        let is_left = |rest: &Option<&[u8]>| rest.is_some_and(|rest| !rest.is_empty());
        match rests.iter().position(is_left) {
            Some(n) => Err(miscounted(n)),
            None => Ok(out),
        }
    }

    /// Appends the elements of a shard to its inner chunks, which are empty; `Invalid` if there are more or fewer
    /// elements than in the shard's shape.
    pub(super) fn split(&self, decoded: &[u8], mut pieces: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        let mut rest = decoded;
        let wrong = || Error::invalid(NAME, "another number of elements than the shard has");
        self.rows.for_each_in_shard_order(&mut |n, row| {
            for _ in 0..row {
                pieces[n].extend_from_slice(take_record(&mut rest).ok_or_else(wrong)?);
            }
            Ok(())
        })?;
        rest.is_empty().then_some(pieces).ok_or_else(wrong)
    }

    fn check_room(&self, bytes: usize) -> Result<()> {
        if bytes <= self.max_bytes {
            return Ok(());
        }
        let found = format!("elements of more than {} bytes", self.max_bytes);
        Err(Error::too_large(NAME, found))
    }
}

/// Removes and returns the first record.
fn take_record<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (record, after) = records::split_first(rest)?;
    *rest = after;
    Some(record)
}

fn miscounted(n: usize) -> Error {
    let found = "another number of elements than its shape says";
    Error::corrupt(format!("inner chunk {n}"), found)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::codec::Pipeline;
    use crate::codec::shard::tests::{open_shard, sharding};
    use crate::codec::tests::array;
    use crate::error::Kind;

    /// Returns a pipeline for text; missing elements are `nn`.
    fn of_text(shape: &[u64], codecs: Value, max_chunk: u64) -> Pipeline {
        let mut array = array("string", shape, codecs);
        array.fill_value.bytes = b"nn".to_vec();
        Pipeline::new(&array, max_chunk).unwrap()
    }

    /// Returns the record of element `n`: the missing value for the first ones, then varying text.
    fn element(n: usize) -> Vec<u8> {
        match n {
            0..9 => b"\x02\0\0\0nn".to_vec(),
            n => [
                &[n as u8 % 5, 0, 0, 0],
                b"abcdefgh"[n % 4..][..n % 5].as_ref(),
            ]
            .concat(),
        }
    }

    fn text(count: usize) -> Vec<u8> {
        (0..count).flat_map(element).collect()
    }

    #[test]
    fn elements_of_any_length_lie_in_shards_between_other_codecs() {
        let turn = json!({ "name": "transpose", "configuration": { "order": [1, 0] } });
        let text_shards = sharding(&[2, 3], json!(["vlen-utf8", "crc32c"]), "start");
        let nested = sharding(&[4, 3], json!([text_shards.clone()]), "end");
        for codecs in [
            json!([turn, text_shards.clone()]),
            json!([text_shards.clone(), "gzip"]),
            json!([turn, text_shards, "zstd", "crc32c"]),
            json!([nested, "gzip"]),
        ] {
            let pipeline = of_text(&[12, 12], codecs.clone(), 1 << 16);
            assert!(pipeline.shards().is_empty());
            let data = text(144);
            let shard = pipeline.encode(&data).unwrap();
            assert!(pipeline.decode(shard).unwrap() == data, "{codecs}");
        }
        let scalar = sharding(&[], json!(["vlen-utf8"]), "end");
        let scalar = of_text(&[], json!([scalar, "crc32c"]), 1 << 16);
        for text in [&b"\x02\0\0\0nn"[..], b"\x01\0\0\0a"] {
            assert_eq!(scalar.decode(scalar.encode(text).unwrap()).unwrap(), text);
        }
    }

    #[test]
    fn whole_shards_of_text_are_those_that_open_piece_by_piece() {
        let shards = sharding(&[2, 3], json!(["vlen-utf8"]), "end");
        let turned = json!({ "name": "transpose", "configuration": { "order": [0, 1] } });
        let whole = of_text(&[4, 6], json!([turned, shards.clone()]), 1 << 16);
        let peeled = of_text(&[4, 6], json!([shards]), 1 << 16);
        let shard = whole.encode(&text(24)).unwrap();
        let mut pieces = Vec::new();
        open_shard(&peeled, 0, &shard, &mut pieces);
        let expected = |first: usize| {
            let places = [0, 1, 2, 6, 7, 8].map(|place| first + place);
            Some(places.map(element).concat())
        };
        assert_eq!(pieces, [None, expected(3), expected(12), expected(15)]);
    }

    #[test]
    fn text_of_shards_stays_within_a_chunk() {
        let shards =
            |inner: u64, codec: &str| json!([sharding(&[inner], json!([codec]), "end"), "crc32c"]);
        let large = of_text(&[8], shards(2, "vlen-utf8"), 1 << 16);
        let small = of_text(&[8], shards(2, "vlen-utf8"), 80);
        let shard = large.encode(&b"\x08\0\0\0abcdefgh".repeat(8)).unwrap();
        assert_eq!(small.decode(shard).unwrap_err().kind(), Kind::TooLarge);
        // Missing elements count too.
        for (count, kind) in [(12, None), (16, Some(Kind::TooLarge))] {
            let missing = b"\x02\0\0\0nn".repeat(count as usize);
            let large = of_text(&[count], shards(count, "vlen-utf8"), 1 << 16);
            let small = of_text(&[count], shards(count, "vlen-utf8"), 80);
            let found = small.decode(large.encode(&missing).unwrap());
            assert_eq!(found.err().map(|error| error.kind()), kind);
        }
    }

    #[test]
    fn inner_chunks_of_another_number_of_elements_are_corrupt() {
        let shards = |inner: u64| json!([sharding(&[inner], json!(["vlen-bytes"]), "end"), "gzip"]);
        let pairs = of_text(&[4], shards(2), 1 << 16);
        let fours = of_text(&[4], shards(4), 1 << 16);
        let data = b"\x01\0\0\0a".repeat(4);
        assert!(fours.decode(fours.encode(&data).unwrap()).is_ok());
        let error = fours.decode(pairs.encode(&data).unwrap()).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt);
        assert!(pairs.encode(&b"\x01\0\0\0a".repeat(3)).is_err());
        assert!(pairs.encode(&b"\x01\0\0\0a".repeat(5)).is_err());
    }
}
