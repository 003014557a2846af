//! Where the rows of inner chunks lie in a shard.
//!
//! A row is as many elements as lie side by side in both; every element of an inner chunk is in exactly one.
//! What an element is, bytes or a place in a list, is the caller's unit.

use std::ops::Range;

use crate::error::Result;

use super::index::ShardLevel;

/// The lengths of a dimension: of the shard, of an inner chunk, and how many of these there are.
#[derive(Clone, Copy, Debug)]
struct Side {
    shard: usize,
    inner: usize,
    count: usize,
}

/// A shard divided into inner chunks.
#[derive(Debug)]
pub(super) struct Rows {
    sides: Vec<Side>,
}

impl Rows {
    /// Divides a shard of `shape`, all of whose elements fit memory.
    pub(super) fn new(shape: &[u64], level: &ShardLevel) -> Rows {
        let inner = level.inner_shape().iter().zip(level.chunks_per_shard());
        let side = |(&shard, (&inner, &count)): (&u64, (&u64, &u64))| Side {
            shard: shard as usize,
            inner: inner as usize,
            count: count as usize,
        };
        Rows {
            sides: shape.iter().zip(inner).map(side).collect(),
        }
    }

    /// Calls `visit` for each row of inner chunk `n`, with its place in the shard and in the inner chunk, in
    /// C order; an element is `unit` long.
    pub(super) fn of(
        &self,
        n: usize,
        unit: usize,
        visit: &mut dyn FnMut(Range<usize>, Range<usize>),
    ) {
        let (mut origin, mut rest, mut distance) = (0, n, unit);
        let mut steps = Vec::with_capacity(self.sides.len());
        for side in self.sides.iter().rev() {
            origin += rest % side.count * side.inner * distance;
            rest /= side.count;
            steps.push((side.inner, distance));
            distance *= side.shard;
        }
        let row = steps.first().map_or(unit, |(inner, step)| inner * step);
        let mut place = 0;
        steps.iter_mut().take(1).for_each(|step| step.0 = 1);
        walk(&steps, origin, &mut |start| {
            visit(start..start + row, place..place + row);
            place += row;
        });
    }

    /// Calls `visit` for each row of the shard's elements in C order, as far as it lies in one inner chunk: with
    /// the number of that chunk and how many elements. Each inner chunk is visited in its own C order. Ends
    /// with the first error.
    pub(super) fn in_order(&self, visit: &mut dyn FnMut(usize, usize) -> Result<()>) -> Result<()> {
        let Some((last, outer)) = self.sides.split_last() else {
            return visit(0, 1);
        };
        let rows = outer.iter().map(|side| side.shard).product();
        for row in 0..rows {
            let (mut first, mut rest, mut distance) = (0, row, last.count);
            for side in outer.iter().rev() {
                first += rest % side.shard / side.inner * distance;
                rest /= side.shard;
                distance *= side.count;
            }
            for column in 0..last.count {
                visit(first + column, last.inner)?;
            }
        }
        Ok(())
    }
}

/// Calls `visit` for each combination of steps; the slowest stands last.
fn walk(steps: &[(usize, usize)], start: usize, visit: &mut dyn FnMut(usize)) {
    let Some(((count, distance), faster)) = steps.split_last() else {
        return visit(start);
    };
    for n in 0..*count {
        walk(faster, start + n * distance, visit);
    }
}
