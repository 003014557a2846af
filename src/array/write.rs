//! Writing a box of an array as a flat file: a range of bytes goes to the pieces under it.

use std::ops::Range;

use crate::array::chunk_writer::{PieceEdit, WriteSource};
use crate::array::decoder::Decoder;
use crate::array::flat_file::{FlatFile, in_buffer};
use crate::array::parts::Part;
use crate::error::{Error, Kind, Result};
use crate::grid::{Layout, Runs};
use crate::request_context::RequestContext;
use crate::sync::pool::parallel_map;

impl FlatFile {
    /// Writes bytes at an offset. Fails with `TooLarge` beyond the end, which no write moves, with `Invalid` for a value
    /// that the data type does not have, and as `OpenArray::check_writable` does. What was written before an error stays.
    pub fn write(
        &self,
        context: &RequestContext,
        offset: u64,
        bytes: &[u8],
        source: WriteSource,
    ) -> Result<()> {
        self.array.check_writable()?;
        if !self.has_own_order() {
            let why = "has its dimensions in another order, and so is not written";
            return Err(Error::new(Kind::ReadOnly, &self.array.path, why));
        }
        let decoder = self.array.decoder()?;
        let end = offset.checked_add(bytes.len() as u64);
        let Some(end) = end.filter(|&end| end <= self.length) else {
            let length = self.length;
            let found = format!("the file has {length} bytes, as many as its array");
            return Err(Error::too_large(&self.array.path, found));
        };
        self.array.writer()?.check_values(bytes)?;
        self.array.check_metadata(context)?;
        let most = self.max_read(decoder);
        let mut start = offset;
        while start < end {
            let range = start..end.min(start.saturating_add(most));
            start = range.end;
            let given = in_buffer(range.start - offset)..in_buffer(range.end - offset);
            let given = bytes.get(given).unwrap_or_default();
            let write =
                |part: Part| self.write_part(context, (decoder, &part), &range, given, source);
            let parts = self.parts(decoder, &range).into_iter();
            let (missing, others) = parts.partition(|part| self.has_to_read(decoder, part));
            let missing: Vec<Part> = missing;
            let threads = self.array.writer()?.edits_at_once();
            let written = parallel_map(threads.min(missing.len()), missing, &write);
            written.into_iter().collect::<Result<()>>()?;
            let others: Vec<Part> = others;
            others.into_iter().try_for_each(write)?;
        }
        Ok(())
    }

    /// Whether a piece is written in part and its other elements have to be read, which may take long.
    fn has_to_read(&self, decoder: &Decoder, part: &Part) -> bool {
        let indices = decoder.pieces.indices(part.piece);
        part.region != decoder.pieces.region(&indices)
            && self
                .array
                .reader()
                .is_ok_and(|it| it.written(part.piece).is_none())
    }

    /// Writes what a range of bytes has of one piece.
    fn write_part(
        &self,
        context: &RequestContext,
        (decoder, part): (&Decoder, &Part),
        range: &Range<u64>,
        bytes: &[u8],
        source: WriteSource,
    ) -> Result<()> {
        let elements = self.elements(range);
        let size = self.array.element as u64;
        let runs = self.runs_into(decoder, &elements, part);
        let is_whole_elements = range.start.is_multiple_of(size) && range.end.is_multiple_of(size);
        let indices = decoder.pieces.indices(part.piece);
        let is_whole = is_whole_elements && part.region == decoder.pieces.region(&indices);
        let skipped = in_buffer(range.start - elements.start * size);
        let copy = |piece: &mut [u8]| {
            if is_whole_elements {
                runs.copy(bytes, piece);
            } else {
                runs.copy_part(bytes, skipped, piece);
            }
        };
        let edit = PieceEdit {
            is_whole,
            source,
            apply: &copy,
        };
        self.array.writer()?.edit(context, part.piece, &edit)
    }
}

impl FlatFile {
    /// Returns where a part lies in a buffer of these elements, and in its piece.
    fn runs_into(&self, decoder: &Decoder, elements: &Range<u64>, part: &Part) -> Runs {
        let from = Layout {
            start: &self.region.start,
            shape: &self.region.shape,
            skipped: elements.start,
        };
        let to = Layout {
            start: &part.start,
            shape: &decoder.pieces.shape_of(part.piece),
            skipped: 0,
        };
        Runs::new(&part.region, from, to, self.array.element)
    }
}
