//! Iterates over the texts of a member of a group.

use crate::formats::group::GroupMember;
use zarr_format::error::{Error, Result};
use zarr_format::model::DataType;
use zarrfs_array::array::ragged::RaggedElements;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::read_bytes::{ReadAt, ReadBytes};

/// Receives a text.
pub(super) type TakeText<'a> = dyn FnMut(&[u8]) -> Result<()> + 'a;

/// The selected texts of an array, in memory.
pub(super) enum MemberTexts {
    /// Variable length.
    Ragged(RaggedElements),
    /// Fixed length in bytes, in UTF-32.
    Fixed(ReadBytes, usize),
}

impl MemberTexts {
    /// Reads the texts of a member; fails as `GroupMember::records` does.
    pub(super) fn read(context: &RequestContext, member: &GroupMember) -> Result<MemberTexts> {
        let source = member.source()?;
        if let DataType::FixedText(length) = source.array.array().data_type {
            let elements = member.elements()?;
            let bytes = usize::try_from(elements.len())
                .map_err(|error| Error::too_large(source.array.path(), error))?;
            let texts = elements.read_at(context, 0, bytes)?;
            return Ok(MemberTexts::Fixed(texts, 4 * length));
        }
        Ok(MemberTexts::Ragged(member.records(context)?))
    }

    /// Passes on each text; UTF-32 is converted to UTF-8.
    pub(super) fn each(&self, take: &mut TakeText<'_>) -> Result<()> {
        match self {
            MemberTexts::Ragged(texts) => texts.iter().try_for_each(take),
            MemberTexts::Fixed(texts, size) => {
                let mut elements = texts.chunks_exact((*size).max(1));
                elements.try_for_each(|element| take(utf8(element).as_bytes()))
            }
        }
    }
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
