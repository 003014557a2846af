//! Dimension scales of an HDF5 file: their objects, attributes and users.
//!
//! The objects of a group are its arrays in order, followed by the dimensions without a coordinate variable: netCDF
//! does not read a dataset with scales for only some of its dimensions.

use std::collections::BTreeMap;

use crate::formats::hdf5::attributes::HdfValue;
use crate::formats::hdf5::tree::PlacedMember;
use crate::formats::netcdf::dimensions::{GroupDimensions, VisibleDimensions};

/// The dimensions of a group and their scales.
pub(super) struct GroupScales {
    /// Names and lengths of the dimensions, in the order of their numbers.
    dimensions: Vec<(String, u64)>,
    /// The object number of each dimension's scale.
    scales: Vec<usize>,
    /// The first object that is only a dimension, without a variable.
    alone: usize,
    /// The number of the group's first dimension in the file.
    first: u64,
}

impl GroupScales {
    /// Returns the scales of members whose objects begin at `base`, and whose dimensions have numbers from `first`
    /// on.
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

    /// Returns the objects of the scales, in the order of the dimensions.
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

    /// Returns the attributes of a scale without a variable.
    pub(super) fn attributes_of_dimension(
        &self,
        object: usize,
        length: u64,
    ) -> Option<Vec<(String, HdfValue)>> {
        // By this text netCDF recognizes that the dataset is not a variable.
        let label = format!("This is a netCDF dimension but not a netCDF variable. {length:>9}");
        self.attributes(object, &label)
    }

    /// Returns object, name and length of each dimension without a variable.
    pub(super) fn without_variable(&self) -> impl Iterator<Item = (usize, &str, u64)> {
        let dimensions = self.dimensions.iter().zip(&self.scales);
        let alone = dimensions.filter(|&(_, &object)| object >= self.alone);
        alone.map(|((name, length), &object)| (object, name.as_str(), *length))
    }

    /// Returns the name of a member in its group. With a prefix, netCDF recognizes a variable that has the name of a
    /// dimension but is not its scale.
    pub(super) fn link_name(&self, name: &str, object: usize) -> String {
        let mut dimensions = self.dimensions.iter().zip(&self.scales);
        let is_other =
            dimensions.any(|((dimension, _), &scale)| dimension == name && scale != object);
        let prefix = if is_other { "_nc4_non_coord_" } else { "" };
        format!("{prefix}{name}")
    }
}

/// The scales of the dimensions in all groups.
#[derive(Default)]
pub(super) struct FileScales {
    /// The object of each dimension's scale, by the number of the dimension.
    pub(super) objects: Vec<usize>,
    /// The dimensions visible to the arrays of a group, by the path of the group.
    pub(super) visible: BTreeMap<String, VisibleDimensions>,
    /// The datasets that use a scale, with their dimension indices, by the object of the scale.
    pub(super) users: BTreeMap<usize, Vec<(usize, u32)>>,
}

impl FileScales {
    /// Returns the dimensions of the groups above that a group can use.
    pub(super) fn visible_in(&self, path: &str) -> VisibleDimensions {
        let mut above = path;
        while let Some((group, _)) = above.rsplit_once('/') {
            if let Some(visible) = self.visible.get(group) {
                return visible.clone();
            }
            above = group;
        }
        let top = self.visible.get("").filter(|_| !path.is_empty());
        top.cloned().unwrap_or_default()
    }

    /// Returns the object of a dimension's scale, or `None` if it has no scale.
    pub(super) fn of(&self, number: u64) -> Option<usize> {
        self.objects.get(usize::try_from(number).ok()?).copied()
    }

    pub(super) fn add_user(&mut self, object: usize, placed: &PlacedMember) {
        for (axis, &number) in (0_u32..).zip(&placed.dimensions) {
            if let Some(scale) = self.of(number).filter(|&scale| scale != object) {
                self.users.entry(scale).or_default().push((object, axis));
            }
        }
    }
}
