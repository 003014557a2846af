//! Bytes that several hold, each a part of them: nothing is copied, and they are freed when the last holder is gone.
//!
//! How much of a memory budget they take is up to the holders.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// A range of bytes that others may hold as well.
#[derive(Clone)]
pub struct SharedBytes {
    whole: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl SharedBytes {
    /// Returns a part of these bytes, cut off at their end. One of less than half of them is copied, so that a small part
    /// does not hold a large whole.
    pub fn part(&self, range: Range<usize>) -> SharedBytes {
        let part = self.shared_part(range);
        if part.len() < self.len() / 2 {
            return part.to_vec().into();
        }
        part
    }

    /// Returns a part of these bytes, cut off at their end, without a copy: for parts that all hold one whole.
    pub fn shared_part(&self, range: Range<usize>) -> SharedBytes {
        let place = |place: usize| self.range.start + place.min(self.len());
        SharedBytes {
            whole: self.whole.clone(),
            range: place(range.start)..place(range.end),
        }
    }

    /// Returns how many bytes are held for these, all those that they are a part of.
    pub fn held(&self) -> u64 {
        self.whole.capacity() as u64
    }
}

impl Default for SharedBytes {
    fn default() -> SharedBytes {
        Vec::new().into()
    }
}

impl From<Vec<u8>> for SharedBytes {
    fn from(bytes: Vec<u8>) -> SharedBytes {
        SharedBytes {
            range: 0..bytes.len(),
            whole: Arc::new(bytes),
        }
    }
}

impl From<String> for SharedBytes {
    fn from(text: String) -> SharedBytes {
        text.into_bytes().into()
    }
}

impl Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.whole.get(self.range.clone()).unwrap_or_default()
    }
}

impl fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        String::from_utf8_lossy(self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_parts_are_shared_and_small_ones_copied() {
        let whole = SharedBytes::from(vec![7; 100]);
        let (large, small) = (whole.part(10..90), whole.part(10..20));
        assert_eq!((large.len(), small.len()), (80, 10));
        assert_eq!((large.held(), small.held()), (100, 10));
        assert_eq!(whole.shared_part(10..20).held(), 100);
        assert_eq!(large.part(5..1000).len(), 75);
    }
}
