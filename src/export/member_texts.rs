//! The texts of a member of a group, one element after the other.

use crate::array::ragged::RaggedElements;
use crate::error::{Error, Result};
use crate::export::group::GroupMember;
use crate::grid::{Region, Selection};
use crate::model::DataType;
use crate::request_context::RequestContext;
use crate::sync::read_bytes::{ReadAt, ReadBytes};

/// Takes a text.
pub(super) type TakeText<'a> = dyn FnMut(&[u8]) -> Result<()> + 'a;

/// The selected texts of an array, which are in memory.
pub(super) enum MemberTexts {
    /// Of any length, all of them.
    Ragged(RaggedElements),
    /// Of any length; those whose numbers are given.
    Picked(RaggedElements, Vec<usize>),
    /// Of a fixed length in bytes, in UTF-32.
    Fixed(ReadBytes, usize),
}

impl MemberTexts {
    /// Reads the texts of a member; fails as `GroupMember::records`.
    pub(super) fn read(context: &RequestContext, member: &GroupMember) -> Result<MemberTexts> {
        let source = member.source()?;
        if let DataType::FixedText(length) = source.array.array().data_type {
            let elements = member.elements()?;
            let bytes = usize::try_from(elements.len())
                .map_err(|error| Error::too_large(source.array.path(), error))?;
            let texts = elements.read_at(context, 0, bytes)?;
            return Ok(MemberTexts::Fixed(texts, 4 * length));
        }
        if source.selection.region().is_some() {
            return Ok(MemberTexts::Ragged(member.records(context)?));
        }
        source.array.check_decodable()?;
        let around = around(&source.selection);
        let texts = source.array.records(context, &around)?;
        let numbers = numbers_within(&source.selection, &around);
        Ok(MemberTexts::Picked(texts, numbers))
    }

    /// Gives out each text, in UTF-8 where it is UTF-32 in the store.
    pub(super) fn each(&self, take: &mut TakeText<'_>) -> Result<()> {
        match self {
            MemberTexts::Ragged(texts) => texts.iter().try_for_each(take),
            MemberTexts::Picked(texts, numbers) => {
                let all: Vec<&[u8]> = texts.iter().collect();
                let mut picked = numbers.iter().filter_map(|&number| all.get(number));
                picked.try_for_each(|text| take(text))
            }
            MemberTexts::Fixed(texts, size) => {
                let mut elements = texts.chunks_exact((*size).max(1));
                elements.try_for_each(|element| take(utf8(element).as_bytes()))
            }
        }
    }
}

/// Returns the smallest box around selected elements.
fn around(selection: &Selection) -> Region {
    let ends = selection.axes.iter().map(|axis| {
        let last = axis.at(axis.count.saturating_sub(1));
        let first = axis.start.min(last);
        let count = axis.start.max(last) - first + 1;
        (first, if axis.count == 0 { 0 } else { count })
    });
    let (start, shape): (Vec<u64>, Vec<u64>) = ends.unzip();
    Region {
        start: start.into(),
        shape: shape.into(),
    }
}

/// Returns the numbers of selected elements within a box around them.
fn numbers_within(selection: &Selection, around: &Region) -> Vec<usize> {
    let mut numbers = vec![0];
    let axes = selection.axes.iter().zip(&around.start).zip(&around.shape);
    for ((axis, &start), &length) in axes {
        let row = numbers.iter().flat_map(|&before: &u64| {
            (0..axis.count).map(move |number| before * length + axis.at(number) - start)
        });
        numbers = row.collect();
    }
    let numbers = numbers.into_iter();
    numbers
        .map(|number| usize::try_from(number).unwrap_or(usize::MAX))
        .collect()
}

fn utf8(element: &[u8]) -> String {
    let (points, _) = element.as_chunks::<4>();
    let length = points.iter().rposition(|point| *point != [0; 4]);
    let points = points.iter().take(length.map_or(0, |last| last + 1));
    let letter = |point: &[u8; 4]| char::from_u32(u32::from_le_bytes(*point));
    points
        .map(|point| letter(point).unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_with_steps_are_found_in_the_box_around_them() {
        let selection = Selection::parse("::-2,1:6:3", &[5, 7]).unwrap();
        let around = around(&selection);
        assert_eq!(
            (&around.start[..], &around.shape[..]),
            (&[0, 1][..], &[5, 4][..])
        );
        let numbers = numbers_within(&selection, &around);
        assert_eq!(numbers, [16, 19, 8, 11, 0, 3]);
    }
}
