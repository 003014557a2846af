//! Where the elements of an array differ between two states: a box for each stored chunk that was changed.
//!
//! Only elements that both states have are compared; a difference of the shapes shows in the metadata.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use crate::array::OpenArray;
use crate::error::Result;
use crate::export;
use crate::export::Export;
use crate::grid::{ChunkIndex, Region};
use crate::model::Array;
use crate::store::Key;

/// Elements that differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    /// The smallest box around them: its first element, and the one after its last, along each dimension.
    pub(super) start: Vec<u64>,
    /// See `start`.
    pub(super) stop: Vec<u64>,
    /// How many they are.
    pub(super) count: u64,
}

/// The number of chunks of an array, from the first on, whose keys are matched with those that changed.
const MAX_CHUNKS: u64 = 1 << 22;

/// Adds a box for each stored chunk among these keys whose elements differ.
pub(super) fn changed_regions(
    old: &Arc<OpenArray>,
    new: &Arc<OpenArray>,
    keys: &HashSet<Key>,
    list: &mut Vec<Difference>,
) -> Result<()> {
    let grid = new.stored_grid()?;
    let by_key = chunk_numbers(new.array(), grid.len(), |number| {
        grid.indices(ChunkIndex(number)).to_vec()
    });
    let changed = keys.iter().filter_map(|key| by_key.get(key));
    let changed: BTreeSet<u64> = changed.copied().collect();
    let old_region = Region::whole(&old.array().shape);
    for number in changed {
        let region = grid.region(&grid.indices(ChunkIndex(number)));
        let both = region.overlap(&old_region);
        if both.shape.contains(&0) {
            continue;
        }
        list.extend(difference_within(&both, old, new)?);
    }
    Ok(())
}

/// Returns where two arrays differ within a box, if they do.
fn difference_within(
    region: &Region,
    old: &Arc<OpenArray>,
    new: &Arc<OpenArray>,
) -> Result<Option<Difference>> {
    if new.array().data_type.is_variable() {
        let (before, after) = (old.records(region)?, new.records(region)?);
        return Ok(difference(region, before.iter(), after.iter()));
    }
    let (before, after) = (raw(old, region)?, raw(new, region)?);
    let count: u64 = region.shape.iter().product();
    let size = usize::try_from(after.len() as u64 / count.max(1)).unwrap_or(usize::MAX);
    let (before, after) = (before.chunks(size.max(1)), after.chunks(size.max(1)));
    Ok(difference(region, before, after))
}

/// Returns the elements of a box, all of one size, in C order.
fn raw(array: &Arc<OpenArray>, region: &Region) -> Result<Vec<u8>> {
    let export = Export::open(array, export::format("raw")?, region.clone())?;
    let length = usize::try_from(export.len()).unwrap_or(usize::MAX);
    Ok(export.read_at(0, length)?.to_vec())
}

/// Returns the numbers of an array's stored chunks by the keys that they may have.
fn chunk_numbers(
    array: &Array,
    count: u64,
    indices: impl Fn(u64) -> Vec<u64>,
) -> BTreeMap<Key, u64> {
    let mut numbers = BTreeMap::new();
    for number in 0..count.min(MAX_CHUNKS) {
        for key in array.keys.candidates(&indices(number)) {
            numbers.extend(Key::new(key).ok().map(|key| (key, number)));
        }
    }
    numbers
}

/// Returns where two contents of a box differ, if they do; the elements of both are in C order.
fn difference<'a>(
    region: &Region,
    before: impl Iterator<Item = &'a [u8]>,
    after: impl Iterator<Item = &'a [u8]>,
) -> Option<Difference> {
    let mut found: Option<Difference> = None;
    let mut at: Vec<u64> = region.start.to_vec();
    for (old, new) in before.zip(after) {
        if old != new {
            let all = found.get_or_insert_with(|| Difference {
                start: at.clone(),
                stop: at.clone(),
                count: 0,
            });
            all.count += 1;
            for (axis, &index) in at.iter().enumerate() {
                all.start[axis] = all.start[axis].min(index);
                all.stop[axis] = all.stop[axis].max(index + 1);
            }
        }
        region.step(&mut at);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_box_is_found() {
        let region = Region {
            start: [10, 20].as_slice().into(),
            shape: [2, 3].as_slice().into(),
        };
        let before = [0u8; 12];
        let found = |after: &[u8; 12]| difference(&region, before.chunks(2), after.chunks(2));
        assert_eq!(found(&before), None);
        let mut after = before;
        (after[2], after[11]) = (1, 1);
        let found = found(&after).unwrap();
        assert_eq!(
            (found.start, found.stop, found.count),
            (vec![10, 21], vec![12, 23], 2)
        );
    }
}
