//! The dimensions that the arrays of a group share, as netCDF wants them: each has one name and one length.

use std::collections::{BTreeMap, BTreeSet};

use crate::export::netcdf_names::legal_name;
use crate::model::Array;

/// The dimensions of a group by name, with their numbers and lengths.
#[derive(Default)]
pub(super) struct GroupDimensions {
    numbers: BTreeMap<String, (u64, u64)>,
    /// Names that no dimension gets.
    taken: BTreeSet<String>,
}

impl GroupDimensions {
    /// Returns dimensions none of which gets one of these names.
    pub(super) fn beside(taken: BTreeSet<String>) -> GroupDimensions {
        let numbers = BTreeMap::new();
        GroupDimensions { numbers, taken }
    }

    /// Adds the dimensions of coordinate variables: of dimensions of one name theirs keeps it.
    pub(super) fn add_coordinates<'a>(
        &mut self,
        arrays: impl Iterator<Item = (&'a str, &'a Array)>,
    ) {
        for (array_name, array) in arrays {
            if let ([length], [Some(name)]) = (&array.shape[..], &array.dimension_names[..])
                && name == array_name
            {
                self.number(Some(name), *length);
            }
        }
    }

    /// Returns the number of a dimension. One that has the name of another, of another length, gets its length as a suffix.
    pub(super) fn number(&mut self, name: Option<&str>, length: u64) -> u64 {
        let plain = name.filter(|name| !name.is_empty()).map(legal_name);
        let plain = plain.unwrap_or_else(|| format!("dim_{length}"));
        let suffixed = format!("{plain}_{length}");
        for name in [plain, suffixed] {
            if self.taken.contains(&name) {
                continue;
            }
            match self.numbers.get(&name) {
                Some(&(number, known)) if known == length => return number,
                Some(_) => {}
                None => return self.add(name, length),
            }
        }
        let number = self.numbers.len() as u64;
        let mut name = format!("dim_{length}_{number}");
        while self.taken.contains(&name) || self.numbers.contains_key(&name) {
            name.push('_');
        }
        self.add(name, length)
    }

    fn add(&mut self, name: String, length: u64) -> u64 {
        let number = self.numbers.len() as u64;
        self.numbers.insert(name, (number, length));
        number
    }

    /// Returns names and lengths in order of the numbers.
    pub(super) fn list(&self) -> Vec<(&str, u64)> {
        let mut list: Vec<_> = self.numbers.iter().collect();
        list.sort_by_key(|(_, (number, _))| *number);
        list.into_iter()
            .map(|(name, (_, length))| (name.as_str(), *length))
            .collect()
    }
}
