//! An array to be written to an HDF5 file: name, type and dimensions.

use crate::formats::dimensions::GroupDimensions;
use crate::formats::group::GroupMember;
use crate::formats::hdf5::attributes::HdfValue;
use crate::formats::hdf5::datatype::HdfType;

/// Maximum number of dimensions of a dataset.
const MAX_DIMENSIONS: usize = 32;

/// A member to be written to a file.
pub(super) struct PlacedMember<'a> {
    /// Its number among all members.
    pub(super) number: usize,
    pub(super) name: &'a str,
    pub(super) member: &'a GroupMember,
    pub(super) kind: HdfType,
    pub(super) lengths: Vec<u64>,
    /// The numbers of its dimensions.
    pub(super) dimensions: Vec<u64>,
}

/// Returns a member with its type, or a message if the format cannot hold it.
pub(super) fn placed<'a>(
    number: usize,
    name: &'a str,
    member: &'a GroupMember,
) -> Result<PlacedMember<'a>, String> {
    let array = &member.array;
    let no_type = || format!("{}: there is no type for {}", member.path, array.data_type);
    let kind = HdfType::of(array).ok_or_else(no_type)?;
    let mut lengths = array.shape.clone();
    lengths.extend(kind.letters);
    if lengths.len() > MAX_DIMENSIONS {
        return Err(format!(
            "{}: more than {MAX_DIMENSIONS} dimensions",
            member.path
        ));
    }
    Ok(PlacedMember {
        number,
        name,
        member,
        kind,
        lengths,
        dimensions: Vec::new(),
    })
}

impl PlacedMember<'_> {
    pub(super) fn number_dimensions(&mut self, dimensions: &mut GroupDimensions) {
        let names = &self.member.array.dimension_names;
        let rank = self.member.array.shape.len();
        let numbered = self.lengths.iter().enumerate().map(|(axis, &length)| {
            let letters = format!("string{length}");
            let name = names.get(axis).cloned().flatten();
            let name = if axis < rank { name } else { Some(letters) };
            dimensions.number(name.as_deref(), length)
        });
        self.dimensions = numbered.collect();
    }

    /// Returns the attribute with the scales of its dimensions.
    pub(super) fn scales(
        &self,
        scale_of: impl Fn(u64) -> Option<usize>,
    ) -> Option<(String, HdfValue)> {
        let scales: Vec<_> = self
            .dimensions
            .iter()
            .map(|&number| scale_of(number))
            .collect();
        let has_some = scales.iter().any(Option::is_some);
        has_some.then(|| ("DIMENSION_LIST".to_string(), HdfValue::Scales(scales)))
    }
}
