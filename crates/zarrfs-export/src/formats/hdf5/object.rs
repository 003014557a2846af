//! Writes low-level HDF5 structures: the superblock, and object headers with messages.
//!
//! Uses superblock version 0 and object headers version 2 (HDF5 File Format Specification, II.A and IV.A.1.b), which
//! every reader since HDF5 1.8 supports. All numbers are little-endian; addresses and lengths have eight bytes.

use zarr_format::codec::lookup3;

/// The undefined address.
pub(super) const UNDEFINED: u64 = u64::MAX;

/// Size of the superblock in bytes.
pub(super) const SUPERBLOCK: u64 = 96;

/// The type of a message in an object header.
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

/// Returns the superblock of a file of `length` bytes whose root group is at `root`.
pub(super) fn superblock(length: u64, root: u64) -> Vec<u8> {
    // All version numbers are 0, and addresses and lengths have eight bytes. Then come the ranks of group B-trees,
    // which this file does not use, and no flags. Later versions of the superblock have a checksum, which programs
    // rewrite even if they only change elements.
    let mut out = b"\x89HDF\r\n\x1a\n\0\0\0\0\0\x08\x08\0\x04\0\x10\0\0\0\0\0".to_vec();
    for address in [0, UNDEFINED, length, UNDEFINED] {
        out.extend(address.to_le_bytes());
    }
    // The root group's symbol table entry: no name, the address of its header, no cache.
    for word in [0, root, 0, 0, 0] {
        out.extend(u64::to_le_bytes(word));
    }
    out
}

/// An object header under construction.
#[derive(Default)]
pub(super) struct ObjectHeader {
    messages: Vec<u8>,
}

impl ObjectHeader {
    /// Maximum length of a message.
    pub(super) const MAX_MESSAGE: usize = u16::MAX as usize;

    /// Adds a message, or returns `None` if it is too long.
    pub(super) fn add(&mut self, kind: MessageKind, body: &[u8]) -> Option<()> {
        self.add_flagged(kind, 0, body)
    }

    /// Adds a message that only refers to the object at `address`, which has the shared message itself.
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

    /// Returns the header, padded to eight bytes, or `None` if it is too long.
    pub(super) fn finish(self) -> Option<Vec<u8>> {
        // The size of all messages is stored in four bytes. The header has no times.
        let mut out = b"OHDR\x02\x02".to_vec();
        out.extend(u32::try_from(self.messages.len()).ok()?.to_le_bytes());
        out.extend(self.messages);
        out.extend(lookup3(&out, 0).to_le_bytes());
        out.resize(out.len().next_multiple_of(8), 0);
        Some(out)
    }
}

/// Returns the dataspace message of a dataset or an attribute. Without dimensions, it is a scalar.
pub(super) fn dataspace(lengths: &[u64]) -> Option<Vec<u8>> {
    let kind = u8::from(!lengths.is_empty());
    let mut out = vec![2, u8::try_from(lengths.len()).ok()?, 0, kind];
    for length in lengths {
        out.extend(length.to_le_bytes());
    }
    Some(out)
}

/// Returns the dataspace message of an attribute without any elements.
pub(super) fn null_dataspace() -> Vec<u8> {
    vec![2, 0, 0, 2]
}

/// Returns the fill value message. A value of zeros is not written, since it is the default.
pub(super) fn fill_value(bytes: &[u8]) -> Option<Vec<u8>> {
    // The flags say that space is allocated late, and that the fill value is written if it is defined.
    if bytes.iter().all(|&byte| byte == 0) {
        return Some(vec![3, 0x0a]);
    }
    let length = u32::try_from(bytes.len()).ok()?;
    Some([&[3, 0x2a], &length.to_le_bytes()[..], bytes].concat())
}

/// Returns the data layout message of a contiguous dataset.
pub(super) fn data_layout(address: u64, length: u64) -> Vec<u8> {
    let (address, length) = (address.to_le_bytes(), length.to_le_bytes());
    [&[3, 1], &address[..], &length[..]].concat()
}

/// Returns the link info message of a group whose `count` links are in its header, in creation order.
pub(super) fn link_info(count: u64) -> Vec<u8> {
    let mut out = vec![0, 1];
    for number in [count, UNDEFINED, UNDEFINED] {
        out.extend(number.to_le_bytes());
    }
    out
}

/// Returns the link message of an object, the `order`th of its group.
pub(super) fn link(name: &str, order: u64, address: u64) -> Option<Vec<u8>> {
    // The flags say that the link has a creation order and a character set (UTF-8), and that its name's length has two
    // bytes.
    let mut out = vec![1, 0x15];
    out.extend(order.to_le_bytes());
    out.push(1);
    out.extend(u16::try_from(name.len()).ok()?.to_le_bytes());
    out.extend_from_slice(name.as_bytes());
    out.extend(address.to_le_bytes());
    Some(out)
}

/// Returns the attribute message: name, datatype, dataspace and value; `None` if it is too long.
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
