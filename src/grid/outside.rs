//! What a box has and a smaller one has not, in boxes that share nothing: what is inside is never looked at.

use crate::grid::Region;

/// Returns the boxes of indices below `counts` of which one at least is not below `kept`; the same index is in one of them
/// alone.
pub fn outside(counts: &[u64], kept: &[u64]) -> Vec<Region> {
    let axes = counts.iter().zip(kept).enumerate();
    axes.filter(|(_, (count, kept))| count > kept)
        .map(|(axis, (&count, &first))| {
            let mut part = Region::whole(counts);
            // Along the dimensions before it what is kept, along those behind it all.
            for (length, &kept) in part.shape.iter_mut().zip(kept).take(axis) {
                *length = kept.min(*length);
            }
            (part.start[axis], part.shape[axis]) = (first, count - first);
            part
        })
        .filter(|part| !part.shape.contains(&0))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns all indices of a box.
    fn indices(part: &Region) -> Vec<Vec<u64>> {
        let (mut at, mut found) = (part.start.clone(), Vec::new());
        if part.shape.contains(&0) {
            return found;
        }
        loop {
            found.push(at.to_vec());
            if !part.step(&mut at) {
                return found;
            }
        }
    }

    proptest! {
        #[test]
        fn each_index_outside_is_in_one_box(
            lengths in prop::collection::vec((0..5_u64, 0..5_u64), 1..4),
        ) {
            let (counts, kept): (Vec<u64>, Vec<u64>) = lengths.into_iter().unzip();
            let mut found: Vec<_> = outside(&counts, &kept).iter().flat_map(indices).collect();
            found.sort();
            let mut expected = indices(&Region::whole(&counts));
            expected.retain(|at| at.iter().zip(&kept).any(|(at, kept)| at >= kept));
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn boxes_of_any_size_cost_nothing() {
        let [part] = &outside(&[1 << 50, 3], &[(1 << 50) - 1, 9])[..] else {
            panic!("one box");
        };
        assert_eq!(
            (part.start[0], part.shape[0], part.shape[1]),
            ((1 << 50) - 1, 1, 3)
        );
    }
}
