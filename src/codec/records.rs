//! Elements without a fixed length, one after the other: each a count (u32, little-endian) and its bytes.
//!
//! What is cut short ends the chunk; whether there are as many elements as there should be is checked by
//! whoever knows how many that is.

use crate::error::{Error, Result};

use super::kind::COUNT;

/// Splits the first element off, its count included; nothing at the end or if it is cut short.
pub(super) fn split_first(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let count = u32::from_le_bytes(*data.first_chunk::<COUNT>()?) as usize;
    data.split_at_checked(count.checked_add(COUNT)?)
}

/// Returns an element with its count.
pub(super) fn record(bytes: &[u8]) -> Result<Vec<u8>> {
    let count = u32::try_from(bytes.len()).map_err(|error| Error::too_large("chunk", error))?;
    Ok([&count.to_le_bytes(), bytes].concat())
}

/// Returns exactly `count` elements, their counts included; `Corrupt` if there are not as many.
pub(super) fn split(data: &[u8], count: u64) -> Result<Vec<&[u8]>> {
    let mut rest = data;
    let mut records = Vec::new();
    while let Some((record, after)) = split_first(rest) {
        records.push(record);
        rest = after;
    }
    if records.len() as u64 == count && rest.is_empty() {
        return Ok(records);
    }
    let found = format!("expected {count} elements, found {}", records.len());
    Err(Error::corrupt("chunk", found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_counted_to_the_last_byte() {
        let data = b"\x01\0\0\0a\0\0\0\0\x02\0\0\0bc";
        let records = split(data, 3).unwrap();
        assert_eq!(records, [&data[..5], &data[5..9], &data[9..]]);
        assert!(split(data, 2).is_err());
        assert!(split(&data[..14], 3).is_err());
        assert!(split(b"\xff\xff\xff\xff", 1).is_err());
        assert!(split(b"", 0).unwrap().is_empty());
    }
}
