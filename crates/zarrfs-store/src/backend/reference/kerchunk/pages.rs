//! Stores sorted keys, and where their bytes are, in compressed pages.
//!
//! Most keys begin like the key before them, and only the rest of each key is stored. A chunk of a reference file thus
//! takes some 14 bytes instead of 60, and 10 million chunks take 140 MB. Stored keys have a NUL for each slash, so that
//! a folder stands directly before everything below it.

/// Separates the components of a stored key.
pub(super) const SEPARATOR: u8 = 0;

/// Where the bytes of a key are, as the table stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the reference file itself, copied to a block of memory.
    Inline { block: u32, start: u32, length: u32 },
    /// Nowhere, since the reference is damaged. `reason` is the index of the message.
    Damaged { reason: u32 },
    /// In a range of another object; `url` is the index of its URL. Without a length, the range ends with the object.
    Part {
        url: u32,
        offset: u64,
        length: Option<u64>,
    },
}

/// Sorted keys and the places of their bytes, in compressed pages.
#[derive(Default)]
pub(super) struct Pages {
    pages: Vec<Box<[u8]>>,
}

/// Compresses keys into pages. Keys must be added in order.
#[derive(Default)]
pub(super) struct PageWriter {
    pages: Vec<Box<[u8]>>,
    page: Vec<u8>,
    last: Vec<u8>,
    /// Number of bytes in use by the complete pages.
    length: u64,
}

/// An entry of the pages (a key and the place of its bytes), and the position of the next entry.
#[derive(Clone, Default)]
pub(super) struct Cursor {
    page: usize,
    /// Index of the entry in its page.
    index: u32,
    /// Where the next entry begins in the page, in bytes.
    next: usize,
    pub(super) name: Vec<u8>,
    /// The place of the key's bytes; `None` after the last entry.
    pub(super) place: Option<Place>,
}

impl PageWriter {
    /// Adds a key and the place of its bytes.
    pub(super) fn push(&mut self, name: &[u8], place: Place) {
        // A page ends at 2 KiB, because a search decodes one page, which should take only a few microseconds.
        if self.page.len() >= 2 << 10 {
            self.flush();
        }
        let shared = if self.page.is_empty() {
            0
        } else {
            self.last
                .iter()
                .zip(name)
                .take_while(|(a, b)| a == b)
                .count()
        };
        let rest = name.get(shared..).unwrap_or_default();
        write_number(&mut self.page, shared as u64);
        write_number(&mut self.page, rest.len() as u64);
        self.page.extend_from_slice(rest);
        place.write(&mut self.page);
        self.last.clear();
        self.last.extend_from_slice(name);
    }

    fn flush(&mut self) {
        if !self.page.is_empty() {
            // A page also needs about 32 bytes for its pointer and its allocation.
            self.length += self.page.len() as u64 + 32;
            self.pages.push(self.page.as_slice().into());
            self.page.clear();
        }
    }

    /// Returns the number of bytes in use by the complete pages.
    pub(super) fn held(&self) -> u64 {
        self.length
    }

    pub(super) fn finish(mut self) -> Pages {
        self.flush();
        Pages { pages: self.pages }
    }
}

impl Place {
    fn write(self, out: &mut Vec<u8>) {
        match self {
            Place::Inline {
                block,
                start,
                length,
            } => {
                write_number(out, 0);
                for number in [block, start, length] {
                    write_number(out, number.into());
                }
            }
            Place::Damaged { reason } => {
                write_number(out, 1);
                write_number(out, reason.into());
            }
            Place::Part {
                url,
                offset,
                length,
            } => {
                write_number(out, u64::from(url) + 2);
                write_number(out, offset);
                write_number(out, length.map_or(0, |length| length.saturating_add(1)));
            }
        }
    }

    fn read(bytes: &mut &[u8]) -> Option<Place> {
        let short = |bytes: &mut &[u8]| u32::try_from(read_number(bytes)?).ok();
        Some(match read_number(bytes)? {
            0 => Place::Inline {
                block: short(bytes)?,
                start: short(bytes)?,
                length: short(bytes)?,
            },
            1 => Place::Damaged {
                reason: short(bytes)?,
            },
            url => Place::Part {
                url: u32::try_from(url - 2).ok()?,
                offset: read_number(bytes)?,
                length: read_number(bytes)?.checked_sub(1),
            },
        })
    }
}

/// Appends a number as a varint (LEB128): groups of 7 bits, the lowest first.
fn write_number(out: &mut Vec<u8>, mut number: u64) {
    loop {
        let group = (number & 0x7f).to_le_bytes()[0];
        number >>= 7;
        if number == 0 {
            return out.push(group);
        }
        out.push(group | 0x80);
    }
}

/// Reads a varint (LEB128); `None` if the bytes end too early.
fn read_number(bytes: &mut &[u8]) -> Option<u64> {
    let (mut number, mut shift) = (0, 0);
    loop {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte < 0x80 {
            return Some(number);
        }
        shift += 7;
    }
}

impl Pages {
    /// Returns the number of bytes in use by the pages.
    pub(super) fn held(&self) -> u64 {
        self.pages.iter().map(|page| page.len() as u64 + 32).sum()
    }

    pub(super) fn first(&self) -> Cursor {
        let mut cursor = Cursor::default();
        self.enter(&mut cursor, 0);
        cursor
    }

    /// Moves the cursor to the first entry of a page.
    fn enter(&self, cursor: &mut Cursor, page: usize) {
        cursor.page = page;
        cursor.next = 0;
        cursor.index = 0;
        self.read(cursor);
    }

    /// Decodes the entry at the cursor's position `next`.
    fn read(&self, cursor: &mut Cursor) {
        cursor.place = None;
        let Some(page) = self.pages.get(cursor.page) else {
            return;
        };
        let mut bytes = page.get(cursor.next..).unwrap_or_default();
        cursor.place = read_entry(&mut bytes, &mut cursor.name);
        cursor.next = page.len() - bytes.len();
    }

    pub(super) fn advance(&self, cursor: &mut Cursor) {
        let is_last = self
            .pages
            .get(cursor.page)
            .is_none_or(|page| cursor.next >= page.len());
        if is_last {
            return self.enter(cursor, cursor.page.saturating_add(1));
        }
        cursor.index += 1;
        self.read(cursor);
    }

    /// Returns the first entry whose key is not before `name`.
    pub(super) fn first_from(&self, name: &[u8]) -> Cursor {
        let after = self.pages.partition_point(|page| first_name(page) <= name);
        let mut cursor = Cursor::default();
        self.enter(&mut cursor, after.saturating_sub(1));
        while cursor.place.is_some() && cursor.name.as_slice() < name {
            self.advance(&mut cursor);
        }
        cursor
    }

    /// Returns the entry at a position that `Cursor::position` has returned.
    pub(super) fn at(&self, position: u64) -> Cursor {
        let mut cursor = Cursor::default();
        self.enter(
            &mut cursor,
            usize::try_from(position >> 16).unwrap_or(usize::MAX),
        );
        for _ in 0..position & 0xffff {
            self.advance(&mut cursor);
        }
        cursor
    }

    pub(super) fn into_entries(self) -> Entries {
        Entries {
            rest: self.pages.into_iter(),
            page: Pages::default(),
            cursor: Cursor::default(),
        }
    }
}

/// Decodes an entry. `name` has the previous entry's key, of which the entry stores only the difference, and is
/// changed.
fn read_entry(bytes: &mut &[u8], name: &mut Vec<u8>) -> Option<Place> {
    let shared = usize::try_from(read_number(bytes)?).ok()?;
    let length = usize::try_from(read_number(bytes)?).ok()?;
    let (rest, after) = bytes.split_at_checked(length)?;
    *bytes = after;
    name.truncate(shared);
    name.extend_from_slice(rest);
    Place::read(bytes)
}

/// Returns the key of a page's first entry, which is stored in full.
fn first_name(page: &[u8]) -> &[u8] {
    let mut bytes = page;
    let mut name = || {
        read_number(&mut bytes)?;
        let length = usize::try_from(read_number(&mut bytes)?).ok()?;
        bytes.get(..length)
    };
    name().unwrap_or_default()
}

impl Cursor {
    /// Returns the entry's position as a number, which grows from entry to entry.
    pub(super) fn position(&self) -> u64 {
        // A page has fewer than 2^16 entries, since each takes at least 4 bytes.
        (self.page as u64) << 16 | u64::from(self.index)
    }
}

/// Iterates over compressed entries. Each page is freed after its last entry.
pub(super) struct Entries {
    rest: std::vec::IntoIter<Box<[u8]>>,
    page: Pages,
    pub(super) cursor: Cursor,
}

impl Entries {
    /// Moves to the next entry, at first to the first one. Returns the number of bytes freed with a page.
    pub(super) fn advance(&mut self) -> u64 {
        if self.cursor.place.is_some() {
            self.page.advance(&mut self.cursor);
        }
        if self.cursor.place.is_some() {
            return 0;
        }
        let freed = self.page.held();
        self.page.pages = self.rest.next().into_iter().collect();
        self.cursor = self.page.first();
        freed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(offset: u64) -> Place {
        Place::Part {
            url: 3,
            offset,
            length: Some(offset * 2),
        }
    }

    fn pages(count: u64) -> Pages {
        let mut writer = PageWriter::default();
        for number in 0..count {
            writer.push(format!("a/{number:06}").as_bytes(), part(number));
        }
        writer.finish()
    }

    #[test]
    fn every_entry_is_found_by_name_and_position() {
        let pages = pages(5000);
        assert!(pages.pages.len() > 10 && pages.held() < 5000 * 14);
        let mut cursor = pages.first();
        for number in 0..5000 {
            let name = format!("a/{number:06}").into_bytes();
            assert_eq!((&cursor.name, cursor.place), (&name, Some(part(number))));
            assert_eq!(pages.first_from(&name).place, Some(part(number)));
            assert_eq!(pages.at(cursor.position()).name, name);
            assert_eq!(pages.first_from(&[&name[..], b"x"].concat()).position(), {
                pages.advance(&mut cursor);
                cursor.position()
            });
        }
        assert_eq!(cursor.place, None);
        assert_eq!(pages.first_from(b"b").place, None);
        assert_eq!(pages.first_from(b"").name, b"a/000000");
        assert_eq!(Pages::default().first().place, None);
        assert_eq!(Pages::default().first_from(b"x").place, None);
    }

    #[test]
    fn a_place_is_written_and_read_back_unchanged() {
        let places = [
            Place::Inline {
                block: 0,
                start: u32::MAX,
                length: 5,
            },
            Place::Damaged { reason: 7 },
            Place::Part {
                url: u32::MAX,
                offset: u64::MAX,
                length: None,
            },
            Place::Part {
                url: 0,
                offset: 0,
                length: Some(0),
            },
        ];
        for place in places {
            let mut bytes = Vec::new();
            place.write(&mut bytes);
            assert_eq!(Place::read(&mut &bytes[..]), Some(place));
            for length in 0..bytes.len() {
                assert_eq!(Place::read(&mut &bytes[..length]), None);
            }
        }
    }

    #[test]
    fn iterating_the_entries_frees_their_pages() {
        let pages = pages(2000);
        let held = pages.held();
        let mut entries = pages.into_entries();
        let (mut freed, mut count) = (entries.advance(), 0);
        while entries.cursor.place.is_some() {
            count += 1;
            freed += entries.advance();
        }
        assert_eq!((freed, count), (held, 2000));
    }
}
