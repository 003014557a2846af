//! Reads several adjacent or nearby ranges of an object at once.

use std::io::IoSliceMut;
use std::ops::Range;

use bytes::Bytes;

use zarr_format::buffer::Buffer;
use zarr_format::error::{Error, Result};

/// Fills buffers one after the other, until the bytes or the buffers end.
pub fn deal_out(bytes: &[u8], parts: &mut [IoSliceMut<'_>]) {
    let mut rest = bytes;
    for part in parts {
        let (now, later) = rest.split_at(part.len().min(rest.len()));
        part[..now.len()].copy_from_slice(now);
        rest = later;
    }
}

/// Reads ascending ranges without overlap by one call of `read`, which gets an offset and a length. The results share
/// the memory of its buffer; `Invalid` if the ranges overlap or descend.
pub(crate) fn read_together(
    ranges: &[Range<u64>],
    read: impl FnOnce(u64, usize) -> Result<Vec<u8>>,
) -> Result<Vec<Bytes>> {
    let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else {
        return Ok(Vec::new());
    };
    let ascend = |pair: &[Range<u64>]| matches!(pair, [a, b] if a.end <= b.start);
    let is_ordered = ranges.iter().all(|range| range.start <= range.end);
    if !is_ordered || !ranges.windows(2).all(ascend) {
        return Err(Error::invalid("", "ranges that do not ascend"));
    }
    let length = usize::try_from(last.end - first.start);
    let length = length.map_err(|error| Error::too_large("", error))?;
    let bytes = Bytes::from_owner(Buffer::from(read(first.start, length)?));
    let place =
        |at: u64| usize::try_from(at - first.start).map_or(bytes.len(), |at| at.min(bytes.len()));
    let part = |range: &Range<u64>| bytes.slice(place(range.start)..place(range.end));
    Ok(ranges.iter().map(part).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(ranges: &[Range<u64>], object: &[u8]) -> Result<Vec<Bytes>> {
        read_together(ranges, |offset, length| {
            let from = object.get(offset as usize..).unwrap_or_default();
            Ok(from[..length.min(from.len())].to_vec())
        })
    }

    #[test]
    fn each_range_has_its_own_bytes() {
        let object: Vec<u8> = (0..20).collect();
        let found = read(&[2..4, 4..5, 9..9, 10..13], &object).unwrap();
        assert_eq!(found, [vec![2, 3], vec![4], vec![], vec![10, 11, 12]]);
        assert!(read(&[], &object).unwrap().is_empty());
    }

    #[test]
    fn ranges_end_with_the_object() {
        let object: Vec<u8> = (0..6).collect();
        let found = read(&[1..3, 4..8, 9..12], &object).unwrap();
        assert_eq!(found, [vec![1, 2], vec![4, 5], vec![]]);
    }

    #[test]
    fn ranges_that_share_bytes_are_refused() {
        assert!(read(&[0..3, 2..4], &[0; 8]).is_err());
        assert!(read(&[4..6, 0..3], &[0; 8]).is_err());
        let backward = Range { start: 6, end: 5 };
        assert!(read(&[0..3, backward, 7..8], &[0; 8]).is_err());
    }
}
