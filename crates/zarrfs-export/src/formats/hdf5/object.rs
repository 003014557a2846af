//! Writes low-level HDF5 structures: the superblock, and object headers with messages.
//!
//! Uses superblock version 0 and object headers version 2 (HDF5 File Format Specification, II.A and IV.A.1.b), which
//! every reader since HDF5 1.8 supports. All numbers are little-endian; addresses and lengths have eight bytes.

use zarr_format::codec::lookup3;

/// The address that HDF5 calls undefined.
pub(super) const UNDEFINED: u64 = u64::MAX;

pub(super) const SUPERBLOCK: u64 = 96;

#[derive(Clone, Copy)]
pub(super) enum MessageKind {
    Dataspace = 1,
    LinkInfo = 2,
    Datatype = 3,
    FillValue = 5,
    Link = 6,
    DataLayout = 8,
    GroupInfo = 10,
    Attribute = 12,
}

/// Returns the superblock of an HDF5 file of `length` bytes, whose root group is at the address `root`.
pub(super) fn superblock(length: u64, root: u64) -> Vec<u8> {
    // Version 0 of the superblock is used, because later versions have a checksum, which programs rewrite even if they
    // only change elements. The ranks of group B-trees are here too, but the file has no such trees.
    let mut out = b"\x89HDF\r\n\x1a\n\0\0\0\0\0\x08\x08\0\x04\0\x10\0\0\0\0\0".to_vec();
    for address in [0, UNDEFINED, length, UNDEFINED] {
        out.extend(address.to_le_bytes());
    }
    // The symbol table entry of the root group has no name, the address of the group's header, and no cache.
    for word in [0, root, 0, 0, 0] {
        out.extend(u64::to_le_bytes(word));
    }
    out
}

/// Builds an HDF5 object header from its messages.
#[derive(Default)]
pub(super) struct ObjectHeader {
    messages: Vec<u8>,
}

impl ObjectHeader {
    /// Maximum length in bytes of a message in an object header.
    pub(super) const MAX_MESSAGE: usize = u16::MAX as usize;

    /// Adds a message to the object header, or returns `None` if the message is too long.
    pub(super) fn add(&mut self, kind: MessageKind, body: &[u8]) -> Option<()> {
        self.add_flagged(kind, 0, body)
    }

    /// Adds a shared message, which only refers to the object at `address` that has its content.
    pub(super) fn add_shared(&mut self, kind: MessageKind, address: u64) -> Option<()> {
        self.add_flagged(kind, 2, &[&[3, 2], &address.to_le_bytes()[..]].concat())
    }

    fn add_flagged(&mut self, kind: MessageKind, flags: u8, body: &[u8]) -> Option<()> {
        let length = u16::try_from(body.len()).ok()?;
        self.messages.push(kind as u8);
        self.messages.extend(length.to_le_bytes());
        self.messages.push(flags);
        self.messages.extend_from_slice(body);
        Some(())
    }

    /// Returns the object header, padded to eight bytes, or `None` if it is too long.
    pub(super) fn finish(self) -> Option<Vec<u8>> {
        // The flags say that the size of all messages has four bytes, and that the header has no times.
        let mut out = b"OHDR\x02\x02".to_vec();
        out.extend(u32::try_from(self.messages.len()).ok()?.to_le_bytes());
        out.extend(self.messages);
        out.extend(lookup3(&out, 0).to_le_bytes());
        out.resize(out.len().next_multiple_of(8), 0);
        Some(out)
    }
}

/// Returns the HDF5 dataspace message of a dataset or an attribute; without dimensions, that of a scalar.
pub(super) fn dataspace(lengths: &[u64]) -> Option<Vec<u8>> {
    let kind = u8::from(!lengths.is_empty());
    let mut out = vec![2, u8::try_from(lengths.len()).ok()?, 0, kind];
    for length in lengths {
        out.extend(length.to_le_bytes());
    }
    Some(out)
}

/// Returns the HDF5 dataspace message of an attribute without any elements.
pub(super) fn null_dataspace() -> Vec<u8> {
    vec![2, 0, 0, 2]
}

/// Returns the HDF5 fill value message. A value of zeros is omitted, because it is the default.
pub(super) fn fill_value(bytes: &[u8]) -> Option<Vec<u8>> {
    // The flags say that space is allocated late, and that the fill value is written if it is defined.
    if bytes.iter().all(|&byte| byte == 0) {
        return Some(vec![3, 0x0a]);
    }
    let length = u32::try_from(bytes.len()).ok()?;
    Some([&[3, 0x2a], &length.to_le_bytes()[..], bytes].concat())
}

/// Returns the HDF5 data layout message of a contiguous dataset.
pub(super) fn data_layout(address: u64, length: u64) -> Vec<u8> {
    let (address, length) = (address.to_le_bytes(), length.to_le_bytes());
    [&[3, 1], &address[..], &length[..]].concat()
}

/// Returns the link info message of an HDF5 group. The group has `count` links in its header, in creation order.
pub(super) fn link_info(count: u64) -> Vec<u8> {
    let mut out = vec![0, 1];
    for number in [count, UNDEFINED, UNDEFINED] {
        out.extend(number.to_le_bytes());
    }
    out
}

/// Returns the HDF5 message that links an object into its group, with the position `order` in creation order.
pub(super) fn link(name: &str, order: u64, address: u64) -> Option<Vec<u8>> {
    // The flags say that the link has a creation order, has a character set (UTF-8), and that the length of its name
    // has two bytes.
    let mut out = vec![1, 0x15];
    out.extend(order.to_le_bytes());
    out.push(1);
    out.extend(u16::try_from(name.len()).ok()?.to_le_bytes());
    out.extend_from_slice(name.as_bytes());
    out.extend(address.to_le_bytes());
    Some(out)
}

/// Returns an HDF5 attribute message: name, datatype, dataspace and value; `None` if it is too long.
pub(super) fn attribute(name: &str, kind: &[u8], lengths: &[u8], value: &[u8]) -> Option<Vec<u8>> {
    let short = |length: usize| u16::try_from(length).ok().map(u16::to_le_bytes);
    let sizes = [
        short(name.len() + 1)?,
        short(kind.len())?,
        short(lengths.len())?,
    ];
    let mut out = vec![3, 0];
    out.extend(sizes.concat());
    out.push(1);
    out.extend_from_slice(name.as_bytes());
    out.push(0);
    for part in [kind, lengths, value] {
        out.extend_from_slice(part);
    }
    (out.len() <= ObjectHeader::MAX_MESSAGE).then_some(out)
}
