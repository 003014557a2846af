//! The global heap of an HDF5 file, which holds the texts of arrays.
//!
//! A heap stores values without a fixed length. It consists of collections with a limited number of objects (File
//! Format Specification, III.E). The position of an object depends only on the objects before it and on the address of
//! the heap.

use crate::formats::group::{GroupContents, MemberTexts};
use crate::formats::hdf5::tree::HdfTree;
use zarr_format::error::{Error, Result};
use zarrfs_array::array::vlen_elements::ReservedBytes;
use zarrfs_store::request_context::RequestContext;

/// Size in bytes of the header of a collection in the heap, and of the header of an object in a collection.
const HEAD: usize = 16;

/// Builds the global heap of an HDF5 file.
#[derive(Default)]
pub(super) struct GlobalHeap {
    /// The address of the heap's first collection in the file.
    address: u64,
    /// Total bytes of the completed collections of the heap that were already handed out.
    taken: u64,
    /// The bytes of completed collections of the heap that were not handed out yet.
    closed: Vec<u8>,
    /// The encoded objects of the heap collection that is being filled.
    objects: Vec<u8>,
    count: u16,
}

impl GlobalHeap {
    /// Starts an empty heap at an address of the file.
    pub(super) fn at(address: u64) -> GlobalHeap {
        GlobalHeap {
            address,
            ..GlobalHeap::default()
        }
    }

    /// Adds an object of `count` elements and returns a reference to it: the count, and the position of the object. An
    /// empty text is stored as an object too, since R crashes without one.
    pub(super) fn put(&mut self, count: usize, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut out = u32::try_from(count).ok()?.to_le_bytes().to_vec();
        // As in the HDF5 library, an object that would make the collection exceed 64 KiB starts a new collection.
        if self.objects.len() + bytes.len() > 1 << 16 || self.count == u16::MAX {
            self.close();
        }
        self.count = self.count.checked_add(1)?;
        let collection = self.address + self.taken + self.closed.len() as u64;
        out.extend(collection.to_le_bytes());
        out.extend(u32::from(self.count).to_le_bytes());
        self.objects.extend(self.count.to_le_bytes());
        self.objects.extend([1, 0, 0, 0, 0, 0]);
        self.objects.extend((bytes.len() as u64).to_le_bytes());
        self.objects.extend_from_slice(bytes);
        self.objects
            .resize(self.objects.len().next_multiple_of(8), 0);
        Some(out)
    }

    /// Completes the current collection of the heap, if it has objects.
    fn close(&mut self) {
        if self.objects.is_empty() {
            return;
        }
        let used = HEAD + self.objects.len();
        // HDF5 demands that a collection of the heap has at least 4096 bytes.
        let length = used.max(4096);
        self.closed.extend(b"GCOL\x01\0\0\0");
        self.closed.extend((length as u64).to_le_bytes());
        self.closed.append(&mut self.objects);
        let free = length - used;
        if free >= HEAD {
            // In a collection, the object with number 0 stands for the free space.
            self.closed.extend([0; 8]);
            self.closed.extend((free as u64).to_le_bytes());
            self.closed.resize(self.closed.len() + free - HEAD, 0);
        } else {
            self.closed.resize(self.closed.len() + free, 0);
        }
        self.count = 0;
    }

    /// Hands out the bytes of the completed collections of the heap, so that they need not stay in memory.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.taken += self.closed.len() as u64;
        std::mem::take(&mut self.closed)
    }

    /// Completes the heap and returns the bytes that were not handed out yet.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.close();
        self.closed
    }
}

/// The texts of all arrays in an HDF5 file, as a heap and references to its objects.
#[derive(Default)]
pub(super) struct TextsOfFile {
    heap: ReservedBytes,
    references: ReservedBytes,
    /// The object number of each dataset of texts, and the offset of its first reference in `references`.
    begins: Vec<(usize, u64)>,
}

impl TextsOfFile {
    /// Reads all texts of an HDF5 file. The heap will be at the address `begin`, and the references after it.
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
                let too_large = || Error::too_large(&member.path, "a string is too long for HDF5");
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

    /// Returns the size in bytes of the heap and the references together.
    pub(super) fn len(&self) -> u64 {
        (self.heap.len() + self.references.len()) as u64
    }

    /// Returns the object number of each dataset of texts, and the offset of its references from the beginning of the
    /// heap.
    pub(super) fn places(&self) -> impl Iterator<Item = (usize, u64)> {
        let heap = self.heap.len() as u64;
        let begins = self.begins.iter();
        begins.map(move |&(object, begin)| (object, heap + begin))
    }

    /// Returns the bytes for the file: the heap, then the references.
    pub(super) fn parts(&self) -> impl Iterator<Item = &[u8]> {
        [&*self.heap, &*self.references].into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_give_the_address_and_index_of_objects() {
        let mut heap = GlobalHeap::at(1000);
        let texts: Vec<String> = (0..9000).map(|n| format!("text {n}")).collect();
        let put = |text: &String| heap.put(text.len(), text.as_bytes()).unwrap();
        let references: Vec<Vec<u8>> = texts.iter().map(put).collect();
        let bytes = heap.finish();
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        for (text, reference) in texts.iter().zip(references) {
            let address = u64::from_le_bytes(reference[4..12].try_into().unwrap());
            let index = u16::from_le_bytes(reference[12..14].try_into().unwrap());
            let collection = usize::try_from(address - 1000).unwrap();
            assert_eq!(&bytes[collection..collection + 5], b"GCOL\x01");
            let mut at = collection + HEAD;
            while bytes[at..at + 2] != index.to_le_bytes() {
                at += HEAD + usize::try_from(number(at + 8)).unwrap().next_multiple_of(8);
            }
            assert_eq!(&bytes[at + HEAD..][..text.len()], text.as_bytes());
        }
    }
}
