//! The chunk grid of an array, and the numbers of its chunks in C order.

use zarr_format::error::{Error, Result};

use super::json::{JsonReader, WholeText};

/// The number of chunks along each dimension.
#[derive(Debug, PartialEq)]
pub(super) struct ChunkGrid {
    counts: Vec<u64>,
    /// The number of all chunks.
    count: u64,
}

impl ChunkGrid {
    /// Reads `shape` and `chunks` of a `.zarray`.
    pub(super) fn parse(document: &[u8]) -> Result<ChunkGrid> {
        let mut reader = JsonReader::new(WholeText(document.to_vec()), document.len() as u64);
        let (mut is_first, mut name, mut value) = (true, Vec::new(), Vec::new());
        let (mut shape, mut chunks) = (None, None);
        reader.expect(b'{')?;
        while reader.next_member(&mut is_first, &mut name)? {
            reader.value(&mut value)?;
            let lengths = || serde_json::from_slice::<Vec<u64>>(&value).ok();
            match name.as_slice() {
                b"shape" => shape = lengths(),
                b"chunks" => chunks = lengths(),
                _ => {}
            }
        }
        let grid = shape
            .zip(chunks)
            .and_then(|(shape, chunks)| ChunkGrid::new(&shape, &chunks));
        grid.ok_or_else(|| Error::corrupt("", "the metadata has no shape and chunks of numbers"))
    }

    fn new(shape: &[u64], chunks: &[u64]) -> Option<ChunkGrid> {
        if shape.len() != chunks.len() || chunks.contains(&0) {
            return None;
        }
        let counts: Vec<u64> = shape
            .iter()
            .zip(chunks)
            .map(|(length, chunk)| length.div_ceil(*chunk))
            .collect();
        // No number of a chunk takes the bits of a listing's cursor.
        let count = counts
            .iter()
            .try_fold(1u64, |product, count| product.checked_mul(*count));
        let count = count.filter(|count| *count < 1 << 60)?;
        Some(ChunkGrid { counts, count })
    }

    /// Returns the number of chunks.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the number of the chunk with a name such as `0.1`; `None` if there is none.
    pub(super) fn number(&self, name: &[u8]) -> Option<u64> {
        let name = std::str::from_utf8(name).ok()?;
        if self.counts.is_empty() {
            return (name == "0").then_some(0);
        }
        let mut names = name.split('.');
        let mut number = 0u64;
        for &count in &self.counts {
            let text = names.next()?;
            let at = text.parse::<u64>().ok()?;
            // Not `01` or `+1`.
            if at >= count || at.to_string() != text {
                return None;
            }
            number = number.checked_mul(count)?.checked_add(at)?;
        }
        names.next().is_none().then_some(number)
    }

    /// Returns the name of a chunk.
    pub(super) fn name(&self, number: u64) -> String {
        let (mut names, mut rest) = (Vec::new(), number);
        for &count in self.counts.iter().rev() {
            names.push((rest % count.max(1)).to_string());
            rest /= count.max(1);
        }
        if names.is_empty() {
            return "0".to_string();
        }
        names.reverse();
        names.join(".")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_numbered_in_c_order() {
        let grid = ChunkGrid::parse(br#"{"fill_value": NaN, "shape": [5, 7], "chunks": [2, 3]}"#);
        let grid = grid.unwrap();
        assert_eq!(grid.count(), 9);
        for number in 0..9 {
            assert_eq!(grid.number(grid.name(number).as_bytes()), Some(number));
        }
        assert_eq!(grid.name(5), "1.2");
        for name in ["3.0", "0", "0.0.0", "01.0", "+1.0", "", ".zarray", "0.3"] {
            assert_eq!(grid.number(name.as_bytes()), None, "{name}");
        }
        let scalar = ChunkGrid::parse(br#"{"shape": [], "chunks": []}"#).unwrap();
        assert_eq!((scalar.count(), scalar.name(0)), (1, "0".to_string()));
        assert_eq!((scalar.number(b"0"), scalar.number(b"1")), (Some(0), None));
    }

    #[test]
    fn impossible_grids_are_errors() {
        for bad in [
            "{}",
            r#"{"shape": [1], "chunks": [0]}"#,
            r#"{"shape": [1], "chunks": [1, 1]}"#,
            r#"{"shape": [-1], "chunks": [1]}"#,
            r#"{"shape": [4294967296, 4294967296], "chunks": [1, 1]}"#,
        ] {
            assert!(ChunkGrid::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
