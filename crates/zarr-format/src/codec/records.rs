//! Splits and joins records: elements without a fixed length.
//!
//! A record is an element's length in bytes (u32, little-endian) followed by its bytes. Reading stops at a truncated
//! record; the caller notices that from the number of records.

use crate::error::{Error, Result};

/// Size of a record's length field (u32, little-endian) in bytes.
pub(super) const LENGTH_PREFIX: usize = size_of::<u32>();

/// Splits off the first record of `data`. Returns `None` if it is truncated or missing.
pub(super) fn split_first(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (count, _) = data.split_first_chunk::<LENGTH_PREFIX>()?;
    let count = usize::try_from(u32::from_le_bytes(*count)).ok()?;
    data.split_at_checked(count.checked_add(LENGTH_PREFIX)?)
}

/// Returns an element as a record; `TooLarge` if its length does not fit 32 bits.
pub(super) fn encode(element: &[u8]) -> Result<Vec<u8>> {
    let mut record = Vec::with_capacity(element.len().saturating_add(LENGTH_PREFIX));
    append(&mut record, element)?;
    Ok(record)
}

/// Appends an element as a record; `TooLarge` if its length does not fit 32 bits.
pub(super) fn append(records: &mut Vec<u8>, element: &[u8]) -> Result<()> {
    let count = u32::try_from(element.len()).map_err(|error| Error::too_large("chunk", error))?;
    records.extend_from_slice(&count.to_le_bytes());
    records.extend_from_slice(element);
    Ok(())
}

/// Splits `data` into exactly `count` records; fails with `Corrupt` if there are more or fewer.
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
    fn records_must_fill_the_data_exactly() {
        let data = b"\x01\0\0\0a\0\0\0\0\x02\0\0\0bc";
        let records = split(data, 3).unwrap();
        assert_eq!(records, [&data[..5], &data[5..9], &data[9..]]);
        assert!(split(data, 2).is_err());
        assert!(split(&data[..14], 3).is_err());
        assert!(split(b"\xff\xff\xff\xff", 1).is_err());
        assert!(split(b"", 0).unwrap().is_empty());
    }
}
