//! Texts of arrays in an HDF5 file: a heap, followed by the references into it.

use crate::formats::group::GroupContents;
use crate::formats::hdf5::heap::GlobalHeap;
use crate::formats::hdf5::tree::HdfTree;
use crate::formats::member_texts::MemberTexts;
use zarr_format::error::{Error, Result};
use zarrfs_array::array::ragged::ReservedBytes;
use zarrfs_store::request_context::RequestContext;

/// The texts of all arrays in a file.
#[derive(Default)]
pub(super) struct TextsOfFile {
    heap: ReservedBytes,
    references: ReservedBytes,
    /// For each array its object number, and the offset of its first reference among all references.
    begins: Vec<(usize, u64)>,
}

impl TextsOfFile {
    /// Reads the texts of a file; they are placed at the address `begin`.
    pub(super) fn read(
        context: &RequestContext,
        tree: &HdfTree,
        contents: &GroupContents,
        begin: u64,
    ) -> Result<TextsOfFile> {
        let (mut bytes, mut references) = (contents.growing()?, contents.growing()?);
        let mut heap = GlobalHeap::at(begin);
        let (mut begins, mut length) = (Vec::new(), 0);
        for (object, member) in tree.texts() {
            begins.push((object, length));
            let member = contents.member(member)?;
            let texts = MemberTexts::read(context, member)?;
            texts.each(&mut |text| {
                let too_large = || Error::too_large(&member.path, "a text of such a length");
                let reference = heap.put(text.len(), text).ok_or_else(too_large)?;
                bytes.push(&heap.take())?;
                length += reference.len() as u64;
                references.push(&reference)
            })?;
        }
        bytes.push(&heap.finish())?;
        Ok(TextsOfFile {
            heap: bytes.finish(),
            references: references.finish(),
            begins,
        })
    }

    /// Returns their size in bytes.
    pub(super) fn len(&self) -> u64 {
        (self.heap.len() + self.references.len()) as u64
    }

    /// Returns for each array its object number and the offset of its references.
    pub(super) fn places(&self) -> impl Iterator<Item = (usize, u64)> {
        let heap = self.heap.len() as u64;
        let begins = self.begins.iter();
        begins.map(move |&(object, begin)| (object, heap + begin))
    }

    /// Returns the bytes: the heap, then the references.
    pub(super) fn parts(&self) -> impl Iterator<Item = &[u8]> {
        [&*self.heap, &*self.references].into_iter()
    }
}
