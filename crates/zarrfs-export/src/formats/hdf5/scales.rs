//! The scales of the dimensions of a group in an HDF5 file: which object each one is, and the attributes that say so.
//!
//! The objects of a group are its arrays in their order, from a first number on, and behind them the dimensions that no
//! array is the coordinate variable of: netCDF reads no dataset some of whose dimensions have a scale and others have none.

use crate::formats::dimensions::GroupDimensions;
use crate::formats::hdf5::attributes::HdfValue;
use crate::formats::hdf5::member::PlacedMember;

/// The dimensions of a group and their scales.
pub(super) struct GroupScales {
    /// Names and lengths of the dimensions in the order of their numbers.
    dimensions: Vec<(String, u64)>,
    /// The object that is the scale of each dimension.
    scales: Vec<usize>,
    /// The first object that is a dimension alone.
    alone: usize,
    /// The number of the first dimension in the file.
    first: u64,
}

impl GroupScales {
    /// Returns the scales of members whose objects begin at `base`, and whose dimensions have numbers from `first` on.
    pub(super) fn new(
        dimensions: &GroupDimensions,
        members: &[PlacedMember],
        base: usize,
        first: u64,
    ) -> GroupScales {
        let list = dimensions.list().into_iter();
        let dimensions: Vec<_> = list
            .map(|(name, length)| (name.to_string(), length))
            .collect();
        let (mut scales, alone) = (Vec::new(), base + members.len());
        let mut next = alone;
        for (number, (name, _)) in (first..).zip(&dimensions) {
            let is_own =
                |placed: &PlacedMember| placed.name == name && placed.dimensions == [number];
            scales.push(match members.iter().position(is_own) {
                Some(place) => base + place,
                None => {
                    next += 1;
                    next - 1
                }
            });
        }
        GroupScales {
            dimensions,
            scales,
            alone,
            first,
        }
    }

    /// Returns the objects that are the scales of the dimensions, in the order of their numbers.
    pub(super) fn objects(&self) -> &[usize] {
        &self.scales
    }

    /// Whether an object is a scale.
    pub(super) fn is_scale(&self, object: usize) -> bool {
        self.scales.contains(&object)
    }

    /// Returns the attributes of a scale.
    pub(super) fn attributes(&self, object: usize, label: &str) -> Option<Vec<(String, HdfValue)>> {
        let fixed = |text: &str| HdfValue::FixedText(format!("{text}\0"));
        let mut list = vec![
            ("CLASS".to_string(), fixed("DIMENSION_SCALE")),
            ("NAME".to_string(), fixed(label)),
        ];
        let number = self.scales.iter().position(|&scale| scale == object)?;
        let number = HdfValue::dimension_number(self.first + number as u64)?;
        list.push(("_Netcdf4Dimid".to_string(), number));
        Some(list)
    }

    /// Returns the attributes of a scale that is a dimension alone.
    pub(super) fn attributes_of_dimension(
        &self,
        object: usize,
        length: u64,
    ) -> Option<Vec<(String, HdfValue)>> {
        // These words tell netCDF that the dataset is no variable.
        let label = format!("This is a netCDF dimension but not a netCDF variable. {length:>9}");
        self.attributes(object, &label)
    }

    /// Returns objects, names and lengths of the dimensions that are no variables.
    pub(super) fn without_variable(&self) -> impl Iterator<Item = (usize, &str, u64)> {
        let dimensions = self.dimensions.iter().zip(&self.scales);
        let alone = dimensions.filter(|&(_, &object)| object >= self.alone);
        alone.map(|((name, length), &object)| (object, name.as_str(), *length))
    }

    /// Returns the name of a member in its group. NetCDF knows by a prefix that a variable has the name of a dimension and
    /// is not its scale.
    pub(super) fn link_name(&self, name: &str, object: usize) -> String {
        let mut dimensions = self.dimensions.iter().zip(&self.scales);
        let is_other =
            dimensions.any(|((dimension, _), &scale)| dimension == name && scale != object);
        let prefix = if is_other { "_nc4_non_coord_" } else { "" };
        format!("{prefix}{name}")
    }
}
