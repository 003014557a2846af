//! Reads maps and strings of a FlexBuffers value, the form of a repository's stored configuration.
//!
//! Every position is checked against the buffer; what does not fit is `None`.

/// A value in a buffer.
#[derive(Clone, Copy)]
pub(super) struct Value<'a> {
    bytes: &'a [u8],
    /// Where the value, or the offset to it, is.
    position: usize,
    /// The width of numbers at `position`, in bytes.
    width: usize,
    /// The type, and the width of numbers in the value.
    packed: u8,
}

impl<'a> Value<'a> {
    /// Returns the root value of a buffer.
    pub(super) fn root(bytes: &'a [u8]) -> Option<Value<'a>> {
        let (&width, rest) = bytes.split_last()?;
        let (&packed, rest) = rest.split_last()?;
        let width = usize::from(width);
        Some(Value {
            bytes,
            position: rest.len().checked_sub(width)?,
            width,
            packed,
        })
    }

    /// Returns the text of a string, or `None` for another type.
    pub(super) fn text(self) -> Option<&'a str> {
        // The type of strings.
        if self.packed >> 2 != 5 {
            return None;
        }
        let start = self.target()?;
        let width = self.inner_width();
        let length = number(self.bytes, start.checked_sub(width)?, width)?;
        std::str::from_utf8(self.bytes.get(start..start.checked_add(length)?)?).ok()
    }

    /// Returns the value of a key in a map; `None` for another type.
    pub(super) fn get(self, key: &str) -> Option<Value<'a>> {
        let mut entries = self.entries()?;
        entries.find_map(|(name, value)| (name == key.as_bytes()).then_some(value))
    }

    /// Returns the keys and values of a map; `None` for another type.
    pub(super) fn entries(self) -> Option<impl Iterator<Item = (&'a [u8], Value<'a>)>> {
        // The type of maps.
        if self.packed >> 2 != 9 {
            return None;
        }
        let (start, width) = (self.target()?, self.inner_width());
        let length = number(self.bytes, start.checked_sub(width)?, width)?;
        let keys_at = start.checked_sub(width.checked_mul(3)?)?;
        let keys = keys_at.checked_sub(number(self.bytes, keys_at, width)?)?;
        let key_width = number(self.bytes, start.checked_sub(width.checked_mul(2)?)?, width)?;
        let types = start.checked_add(length.checked_mul(width)?)?;
        let bytes = self.bytes;
        let entry = move |index: usize| {
            let key_at = keys.checked_add(index.checked_mul(key_width)?)?;
            let key = bytes.get(key_at.checked_sub(number(bytes, key_at, key_width)?)?..)?;
            // A longer key is not read.
            let end = key.iter().take(1024).position(|&byte| byte == 0)?;
            let value = Value {
                bytes,
                position: start.checked_add(index.checked_mul(width)?)?,
                width,
                packed: *bytes.get(types.checked_add(index)?)?,
            };
            Some((key.get(..end)?, value))
        };
        // A hostile map has entries without end.
        Some((0..length.min(10_000)).map_while(entry))
    }

    /// Returns the position that the offset leads to.
    fn target(self) -> Option<usize> {
        let distance = number(self.bytes, self.position, self.width)?;
        self.position.checked_sub(distance)
    }

    /// Returns the width of numbers in the value.
    fn inner_width(self) -> usize {
        1 << (self.packed & 3)
    }
}

/// Returns the unsigned number of `width` bytes at `start`.
fn number(bytes: &[u8], start: usize, width: usize) -> Option<usize> {
    if !matches!(width, 1 | 2 | 4 | 8) {
        return None;
    }
    let digits = bytes.get(start..start.checked_add(width)?)?;
    let value = digits
        .iter()
        .rev()
        .fold(0u64, |value, &byte| (value << 8) | u64::from(byte));
    usize::try_from(value).ok()
}
