//! One read of an object into several pieces of memory.

use std::io::IoSliceMut;
use std::ops::Range;

use crate::error::{Error, Result};
use crate::sync::buffer;

/// Fills pieces of memory, one after the other, as far as there are bytes.
pub(crate) fn deal_out(bytes: &[u8], parts: &mut [IoSliceMut<'_>]) {
    let mut rest = bytes;
    for part in parts {
        let (now, later) = rest.split_at(part.len().min(rest.len()));
        part[..now.len()].copy_from_slice(now);
        rest = later;
    }
}

/// Reads ranges, which ascend and share no bytes, by one call of `read`: it is given where the first begins and pieces of
/// memory for all bytes from there on, and returns how many it has filled.
pub(crate) fn read_together(
    ranges: &[Range<u64>],
    read: impl FnOnce(u64, &mut [IoSliceMut<'_>]) -> Result<usize>,
) -> Result<Vec<Vec<u8>>> {
    let Some(first) = ranges.first() else {
        return Ok(Vec::new());
    };
    let mut at = first.start;
    let mut buffers = Vec::with_capacity(ranges.len() * 2);
    for range in ranges {
        for length in [
            range.start.checked_sub(at),
            range.end.checked_sub(range.start),
        ] {
            let length = length.and_then(|length| usize::try_from(length).ok());
            let length = length.ok_or_else(|| Error::invalid("", "ranges that do not ascend"))?;
            buffers.push(buffer::of_length(length));
        }
        at = range.end;
    }
    let mut parts: Vec<_> = buffers
        .iter_mut()
        .map(|part| IoSliceMut::new(part))
        .collect();
    let mut left = read(first.start, &mut parts)?;
    for buffer in &mut buffers {
        let length = buffer.len().min(left);
        buffer.truncate(length);
        left -= length;
    }
    let mut found = Vec::with_capacity(ranges.len());
    let mut buffers = buffers.into_iter();
    while let (Some(between), Some(wanted)) = (buffers.next(), buffers.next()) {
        buffer::recycle(between);
        found.push(wanted);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(ranges: &[Range<u64>], object: &[u8]) -> Result<Vec<Vec<u8>>> {
        read_together(ranges, |offset, parts| {
            let from = object.get(offset as usize..).unwrap_or_default();
            deal_out(from, parts);
            let wanted = parts.iter().map(|part| part.len()).sum();
            Ok(from.len().min(wanted))
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
    }
}
