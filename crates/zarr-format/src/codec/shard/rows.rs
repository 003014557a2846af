//! Finds the rows of inner chunks in a shard.
//!
//! A row is a run of elements that are contiguous in the shard and in the inner chunk; every element of an inner chunk
//! is in exactly one row. The caller chooses the unit of ranges, bytes or elements.

use std::ops::Range;

use crate::error::{Error, Result};

use super::level::ShardLevel;

/// Elements of the shard and of an inner chunk along one dimension, and the number of inner chunks.
#[derive(Clone, Copy, Debug)]
struct ShardDimension {
    shard: usize,
    inner: usize,
    count: usize,
}

/// A shard divided into inner chunks.
#[derive(Debug)]
pub(super) struct Rows {
    dimensions: Vec<ShardDimension>,
}

impl Rows {
    /// Divides a shard of `shape`; `TooLarge` if its lengths do not fit `usize`.
    pub(super) fn new(shape: &[u64], level: &ShardLevel) -> Result<Rows> {
        let length = |length: u64| {
            usize::try_from(length).map_err(|error| Error::too_large("chunk_shape", error))
        };
        let inner = level.inner_shape().iter().zip(level.chunks_per_shard());
        let dimensions = shape.iter().zip(inner).map(|(&shard, (&inner, &count))| {
            Ok(ShardDimension {
                shard: length(shard)?,
                inner: length(inner)?,
                count: length(count)?,
            })
        });
        Ok(Rows {
            dimensions: dimensions.collect::<Result<_>>()?,
        })
    }

    /// Calls `visit` for each row of inner chunk `n` in C order, with its range in the shard and in the inner chunk. An
    /// element has `unit` units.
    pub(super) fn for_each(
        &self,
        n: usize,
        unit: usize,
        visit: &mut dyn FnMut(Range<usize>, Range<usize>),
    ) {
        let (mut origin, mut rest, mut distance) = (0, n, unit);
        let mut steps = Vec::with_capacity(self.dimensions.len());
        for dimension in self.dimensions.iter().rev() {
            origin += rest % dimension.count * dimension.inner * distance;
            rest /= dimension.count;
            steps.push((dimension.inner, distance));
            distance *= dimension.shard;
        }
        let row = steps.first().map_or(unit, |(inner, step)| inner * step);
        let mut place = 0;
        steps.iter_mut().take(1).for_each(|step| step.0 = 1);
        walk(&steps, origin, &mut |start| {
            visit(start..start + row, place..place + row);
            place += row;
        });
    }

    /// Calls `visit` for each row in C order of the shard, with the number of its inner chunk and its number of
    /// elements. The rows of each inner chunk come in C order of that chunk. Stops at the first error.
    pub(super) fn for_each_in_shard_order(
        &self,
        visit: &mut dyn FnMut(usize, usize) -> Result<()>,
    ) -> Result<()> {
        let Some((last, outer)) = self.dimensions.split_last() else {
            return visit(0, 1);
        };
        let rows = outer.iter().map(|dimension| dimension.shard).product();
        for row in 0..rows {
            let (mut first, mut rest, mut distance) = (0, row, last.count);
            for dimension in outer.iter().rev() {
                first += rest % dimension.shard / dimension.inner * distance;
                rest /= dimension.shard;
                distance *= dimension.count;
            }
            for column in 0..last.count {
                visit(first + column, last.inner)?;
            }
        }
        Ok(())
    }
}

/// Calls `visit` with the offset of each combination of steps, which are pairs of a count and a distance; the last is
/// the slowest.
fn walk(steps: &[(usize, usize)], start: usize, visit: &mut dyn FnMut(usize)) {
    let Some(((count, distance), faster)) = steps.split_last() else {
        return visit(start);
    };
    for n in 0..*count {
        walk(faster, start + n * distance, visit);
    }
}
