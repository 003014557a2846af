//! Writes zip archives byte by byte, valid and invalid.

use std::io::Write;

use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};

/// A zip entry with all fields of its headers. `Entry::new` makes the fields consistent; a test may change them.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) name: Vec<u8>,
    pub(crate) local_name: Vec<u8>,
    /// The bytes of the entry as stored in the archive, perhaps compressed.
    pub(crate) packed: Vec<u8>,
    pub(crate) method: u16,
    pub(crate) flags: u16,
    pub(crate) crc: u32,
    pub(crate) packed_size: u64,
    pub(crate) size: u64,
    /// The extra fields of the central header (`extra`) and of the local header.
    pub(crate) extra: Vec<u8>,
    pub(crate) local_extra: Vec<u8>,
    pub(crate) mode: u32,
    pub(crate) time: u16,
    pub(crate) date: u16,
    pub(crate) zip64: bool,
    /// The offset of the local header that the central header states, if it is not the true offset.
    pub(crate) header: Option<u64>,
}

impl Entry {
    pub(crate) fn new(name: impl AsRef<[u8]>, bytes: &[u8]) -> Entry {
        let mut crc = Crc::new();
        crc.update(bytes);
        Entry {
            name: name.as_ref().to_vec(),
            local_name: name.as_ref().to_vec(),
            packed: bytes.to_vec(),
            method: 0,
            flags: 0,
            crc: crc.sum(),
            packed_size: bytes.len() as u64,
            size: bytes.len() as u64,
            extra: Vec::new(),
            local_extra: Vec::new(),
            mode: 0o100_644,
            time: 0,
            date: (40 << 9) | (2 << 5) | 3,
            zip64: false,
            header: None,
        }
    }

    pub(crate) fn deflated(name: impl AsRef<[u8]>, bytes: &[u8]) -> Entry {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        let packed = encoder.finish().unwrap();
        Entry {
            packed_size: packed.len() as u64,
            packed,
            method: 8,
            ..Entry::new(name, bytes)
        }
    }

    /// Makes the entry have sizes and checksum after the data, as programs that write to a stream make it.
    pub(crate) fn streamed(mut self) -> Entry {
        self.flags |= 8;
        self
    }

    fn local(&self) -> Vec<u8> {
        let known = u32::from(self.flags & 8 == 0);
        let sizes = |size: u64| known * u32::try_from(size).unwrap_or(u32::MAX);
        let mut out = b"PK\x03\x04".to_vec();
        for number in [20, self.flags, self.method, self.time, self.date] {
            out.extend(number.to_le_bytes());
        }
        for number in [known * self.crc, sizes(self.packed_size), sizes(self.size)] {
            out.extend(number.to_le_bytes());
        }
        out.extend((self.local_name.len() as u16).to_le_bytes());
        out.extend((self.local_extra.len() as u16).to_le_bytes());
        out.extend(&self.local_name);
        out.extend(&self.local_extra);
        out.extend(&self.packed);
        if known == 0 {
            out.extend(b"PK\x07\x08");
            for number in [self.crc, self.packed_size as u32, self.size as u32] {
                out.extend(number.to_le_bytes());
            }
        }
        out
    }

    fn central(&self, header: u64) -> Vec<u8> {
        let header = self.header.unwrap_or(header);
        let mut extra = self.extra.clone();
        let small = |number: u64| if self.zip64 { u32::MAX } else { number as u32 };
        if self.zip64 {
            extra.extend([1, 0, 24, 0]);
            for number in [self.size, self.packed_size, header] {
                extra.extend(number.to_le_bytes());
            }
        }
        let mut out = b"PK\x01\x02".to_vec();
        // The first field says that the archive was made on Unix, so that `mode` counts.
        for number in [0x031e, 20, self.flags, self.method, self.time, self.date] {
            out.extend(number.to_le_bytes());
        }
        for number in [self.crc, small(self.packed_size), small(self.size)] {
            out.extend(number.to_le_bytes());
        }
        for number in [self.name.len(), extra.len(), 0, 0, 0] {
            out.extend((number as u16).to_le_bytes());
        }
        out.extend((self.mode << 16).to_le_bytes());
        out.extend(small(header).to_le_bytes());
        out.extend(&self.name);
        out.extend(&extra);
        out
    }
}

#[derive(Default)]
pub(crate) struct Archive {
    pub(crate) entries: Vec<Entry>,
    pub(crate) comment: Vec<u8>,
    pub(crate) zip64: bool,
    /// The number of entries that the end record states, if it is not the true number.
    pub(crate) claimed: Option<u64>,
}

impl Archive {
    pub(crate) fn of(entries: impl IntoIterator<Item = Entry>) -> Archive {
        Archive {
            entries: entries.into_iter().collect(),
            ..Archive::default()
        }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut central = Vec::new();
        for entry in &self.entries {
            central.extend(entry.central(out.len() as u64));
            out.extend(entry.local());
        }
        let start = out.len() as u64;
        let length = central.len() as u64;
        out.extend(central);
        let count = self.claimed.unwrap_or(self.entries.len() as u64);
        if self.zip64 {
            let record = out.len() as u64;
            out.extend(b"PK\x06\x06");
            out.extend(44u64.to_le_bytes());
            out.extend([45, 0, 45, 0]);
            out.extend([0; 8]);
            for number in [count, count, length, start] {
                out.extend(number.to_le_bytes());
            }
            out.extend(b"PK\x06\x07");
            out.extend([0; 4]);
            out.extend(record.to_le_bytes());
            out.extend(1u32.to_le_bytes());
        }
        out.extend(b"PK\x05\x06");
        out.extend([0; 4]);
        let (count, length, start) = if self.zip64 {
            (u16::MAX, u32::MAX, u32::MAX)
        } else {
            (count as u16, length as u32, start as u32)
        };
        out.extend(count.to_le_bytes());
        out.extend(count.to_le_bytes());
        out.extend(length.to_le_bytes());
        out.extend(start.to_le_bytes());
        out.extend((self.comment.len() as u16).to_le_bytes());
        out.extend(&self.comment);
        out
    }
}
