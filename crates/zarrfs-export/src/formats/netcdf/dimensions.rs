//! The dimensions shared by a group's arrays, each with one name and length for netCDF.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::formats::netcdf::names::legal_name;
use zarr_format::model::Array;

/// The number and the length of each dimension, by its name.
type NumberedDimensions = BTreeMap<String, (u64, u64)>;

/// The dimensions of a group and of the groups above it, the nearest first.
pub(crate) type VisibleDimensions = Vec<Rc<NumberedDimensions>>;

/// The dimensions of a group.
#[derive(Default)]
pub(crate) struct GroupDimensions {
    numbers: NumberedDimensions,
    /// The number of the first dimension.
    first: u64,
    /// The dimensions of the groups above; `used` has the ones that this group uses.
    above: VisibleDimensions,
    used: NumberedDimensions,
    /// Names that no dimension may get.
    taken: BTreeSet<String>,
}

impl GroupDimensions {
    /// Returns the dimensions of a group below others. Their numbers start at `first`, and they get none of the names
    /// in `taken`.
    pub(crate) fn below(
        above: VisibleDimensions,
        first: u64,
        taken: BTreeSet<String>,
    ) -> GroupDimensions {
        GroupDimensions {
            numbers: BTreeMap::new(),
            first,
            above,
            used: BTreeMap::new(),
            taken,
        }
    }

    /// Returns the dimensions that groups below can use.
    pub(crate) fn visible(self) -> VisibleDimensions {
        let own = Rc::new(self.numbers);
        std::iter::once(own).chain(self.above).collect()
    }

    /// Adds the dimensions of coordinate variables first, so that they keep their names on a conflict.
    pub(crate) fn add_coordinates<'a>(
        &mut self,
        arrays: impl Iterator<Item = (&'a str, &'a Array)>,
    ) {
        for (array_name, array) in arrays {
            if let ([length], [Some(name)]) = (&array.shape[..], &array.dimension_names[..])
                && name == array_name
            {
                self.own_number(Some(name), *length);
            }
        }
    }

    /// Returns the number of a dimension: of the group's own, or of one above with this name and length. On a
    /// conflict with another length, the name gets its length as a suffix.
    pub(crate) fn number(&mut self, name: Option<&str>, length: u64) -> u64 {
        if let Some(name) = name.map(legal_name)
            && !self.numbers.contains_key(&name)
            && let Some(above) = self
                .above
                .iter()
                .find_map(|group| group.get(&name).copied())
            && above.1 == length
        {
            self.used.insert(name, above);
            return above.0;
        }
        self.own_number(name, length)
    }

    fn own_number(&mut self, name: Option<&str>, length: u64) -> u64 {
        let plain = name.filter(|name| !name.is_empty()).map(legal_name);
        let plain = plain.unwrap_or_else(|| format!("dim_{length}"));
        let suffixed = format!("{plain}_{length}");
        for name in [plain, suffixed] {
            if self.taken.contains(&name) {
                continue;
            }
            match self.numbers.get(&name).or(self.used.get(&name)) {
                Some(&(number, known)) if known == length => return number,
                Some(_) => {}
                None => return self.add(name, length),
            }
        }
        let number = self.next();
        let mut name = format!("dim_{length}_{number}");
        while self.taken.contains(&name) || self.numbers.contains_key(&name) {
            name.push('_');
        }
        self.add(name, length)
    }

    /// Returns the first unused number.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.numbers.len() as u64
    }

    fn add(&mut self, name: String, length: u64) -> u64 {
        let number = self.next();
        self.numbers.insert(name, (number, length));
        number
    }

    /// Returns names and lengths in the order of the numbers.
    pub(crate) fn list(&self) -> Vec<(&str, u64)> {
        let mut list: Vec<_> = self.numbers.iter().collect();
        list.sort_by_key(|(_, (number, _))| *number);
        list.into_iter()
            .map(|(name, (_, length))| (name.as_str(), *length))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_the_dimensions_of_those_above_that_it_does_not_hide() {
        let mut top = GroupDimensions::default();
        assert_eq!((top.number(Some("x"), 5), top.number(Some("y"), 3)), (0, 1));
        let above = top.visible();
        let below = || GroupDimensions::below(above.clone(), 2, BTreeSet::new());
        let mut shared = below();
        assert_eq!(shared.number(Some("x"), 5), 0);
        assert_eq!(shared.number(Some("x"), 7), 2);
        assert_eq!(
            (shared.number(Some("x"), 5), shared.number(None, 5)),
            (0, 3)
        );
        assert_eq!(shared.list(), [("x_7", 7), ("dim_5", 5)]);
        let mut hidden = below();
        assert_eq!(
            (hidden.number(Some("x"), 7), hidden.number(Some("x"), 5)),
            (2, 3)
        );
        assert_eq!(hidden.list(), [("x", 7), ("x_5", 5)]);
        let mut lowest = GroupDimensions::below(shared.visible(), 4, BTreeSet::new());
        assert_eq!(
            (lowest.number(Some("x_7"), 7), lowest.number(Some("y"), 3)),
            (2, 1)
        );
    }
}
