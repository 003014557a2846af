//! Runs of a file read straight into their places in a buffer: one system call for those that lie one after another in
//! the file.

use std::io::IoSliceMut;

use crate::error::Result;
use crate::grid::Runs;

/// The most buffers that one system call fills (IOV_MAX).
const MAX_BUFFERS: usize = 1024;

/// Reads `length` bytes from an offset on into some buffers of that length together.
pub(super) type ReadRuns<'a> = &'a mut dyn FnMut(u64, usize, &mut [IoSliceMut<'_>]) -> Result<()>;

/// Reads the runs of a file into their places in `out`, by `read`.
pub(super) fn scatter(runs: &Runs, out: &mut [u8], read: ReadRuns<'_>) -> Result<()> {
    let places = runs.places();
    let size = runs.run_length();
    let mut rest = out;
    let mut consumed = 0;
    let joined = |a: &(usize, usize), b: &(usize, usize)| a.0 + size == b.0;
    for row in places.chunk_by(joined) {
        for group in row.chunks(MAX_BUFFERS) {
            let mut parts = Vec::with_capacity(group.len());
            for &(_, to) in group {
                let (_, after) = rest.split_at_mut(to - consumed);
                let (part, after) = after.split_at_mut(size);
                parts.push(IoSliceMut::new(part));
                (rest, consumed) = (after, to + size);
            }
            read(group[0].0 as u64, group.len() * size, &mut parts)?;
        }
    }
    Ok(())
}
