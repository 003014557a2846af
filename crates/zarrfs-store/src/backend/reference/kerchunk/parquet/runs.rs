//! Runs of small numbers: repeated, or packed in bits. Definition levels and indexes into dictionaries.

use super::{damaged, read_varint};
use zarr_format::error::Result;

/// Numbers of `width` bits.
pub(super) struct Runs<'a> {
    bytes: &'a [u8],
    width: u32,
    run: Run<'a>,
}

/// What is left of a run.
enum Run<'a> {
    Repeated {
        value: u32,
        left: u64,
    },
    Packed {
        bytes: &'a [u8],
        bit: u64,
        left: u64,
    },
}

impl<'a> Runs<'a> {
    /// Reads runs of numbers of at most 32 bits.
    pub(super) fn new(bytes: &'a [u8], width: u32) -> Result<Runs<'a>> {
        if width > 32 {
            return Err(damaged());
        }
        Ok(Runs {
            bytes,
            width,
            run: Run::Repeated { value: 0, left: 0 },
        })
    }

    /// Returns the next number.
    pub(super) fn next(&mut self) -> Result<u32> {
        loop {
            match &mut self.run {
                Run::Repeated { value, left } if *left > 0 => {
                    *left -= 1;
                    return Ok(*value);
                }
                Run::Packed { bytes, bit, left } if *left > 0 => {
                    let value = packed(bytes, *bit, self.width).ok_or_else(damaged)?;
                    *bit += u64::from(self.width);
                    *left -= 1;
                    return Ok(value);
                }
                _ => self.run = self.next_run()?,
            }
        }
    }

    fn next_run(&mut self) -> Result<Run<'a>> {
        let header = read_varint(&mut self.bytes).ok_or_else(damaged)?;
        let count = header >> 1;
        if count == 0 {
            return Err(damaged());
        }
        if header & 1 == 0 {
            let length = self.width.div_ceil(8) as usize;
            let (bytes, rest) = self.bytes.split_at_checked(length).ok_or_else(damaged)?;
            self.bytes = rest;
            let value = bytes
                .iter()
                .rev()
                .fold(0u32, |value, &byte| value << 8 | u32::from(byte));
            return Ok(Run::Repeated { value, left: count });
        }
        // Groups of 8 numbers. Some writers leave out the end of the last group.
        let length = count.checked_mul(self.width.into()).ok_or_else(damaged)?;
        let length = usize::try_from(length)
            .unwrap_or(usize::MAX)
            .min(self.bytes.len());
        let (bytes, rest) = self.bytes.split_at_checked(length).ok_or_else(damaged)?;
        self.bytes = rest;
        let left = count.checked_mul(8).ok_or_else(damaged)?;
        Ok(Run::Packed {
            bytes,
            bit: 0,
            left,
        })
    }
}

/// Returns the number of `width` bits at a bit; the lowest bit comes first.
fn packed(bytes: &[u8], bit: u64, width: u32) -> Option<u32> {
    if width == 0 {
        return Some(0);
    }
    let start = usize::try_from(bit / 8).ok()?;
    let end = usize::try_from((bit + u64::from(width)).div_ceil(8)).ok()?;
    let part = bytes.get(start..end)?;
    let whole = part
        .iter()
        .rev()
        .fold(0u64, |value, &byte| value << 8 | u64::from(byte));
    let mask = (1u64 << width) - 1;
    u32::try_from(whole >> (bit % 8) & mask).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(bytes: &[u8], width: u32, count: usize) -> Result<Vec<u32>> {
        let mut runs = Runs::new(bytes, width)?;
        (0..count).map(|_| runs.next()).collect()
    }

    #[test]
    fn runs_repeat_or_are_packed() {
        // The example of the specification: 0 to 7 in 3 bits.
        let packed = [0b11, 0b1000_1000, 0b1100_0110, 0b1111_1010];
        assert_eq!(numbers(&packed, 3, 8).unwrap(), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(numbers(&[6, 9, 4, 1], 4, 5).unwrap(), [9, 9, 9, 1, 1]);
        assert_eq!(numbers(&[4, 0x34, 0x12], 13, 2).unwrap(), [0x1234; 2]);
        assert_eq!(numbers(&[8], 0, 4).unwrap(), [0; 4]);
        assert!(numbers(&packed, 3, 9).is_err());
        assert!(numbers(&[0], 3, 1).is_err());
        assert!(numbers(&[6], 3, 1).is_err());
        assert!(numbers(&[], 33, 0).is_err());
    }
}
