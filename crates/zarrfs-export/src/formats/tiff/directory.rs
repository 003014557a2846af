//! Writes TIFF directories of tags, with 32-bit offsets or, as BigTIFF, 64-bit ones.
//!
//! A value that does not fit into its entry follows the directory. All directories come before the pixels, so that a
//! file is a header and elements.

use crate::formats::format::ALIGNMENT;

/// The size of the offsets in a TIFF file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OffsetSize {
    /// 32-bit offsets, for files of less than 4 GiB.
    Classic,
    /// 64-bit offsets (BigTIFF).
    Big,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tag {
    SubfileType = 254,
    Width = 256,
    Height = 257,
    Bits = 258,
    Compression = 259,
    Photometric = 262,
    Description = 270,
    Offsets = 273,
    Samples = 277,
    RowsPerStrip = 278,
    ByteCounts = 279,
    XResolution = 282,
    YResolution = 283,
    Planar = 284,
    ResolutionUnit = 296,
    SubIfds = 330,
    ExtraSamples = 338,
    SampleFormat = 339,
    PixelScale = 33550,
    TiePoint = 33922,
    Transformation = 34264,
    GeoKeys = 34735,
    GeoKeyTexts = 34737,
    GdalMetadata = 42112,
    GdalNoData = 42113,
}

/// The value of a TIFF tag.
#[derive(Clone, Debug)]
pub(super) enum TagValue {
    Text(String),
    Short(Vec<u16>),
    Long(u32),
    Rational(u32, u32),
    Double(Vec<f64>),
    /// Byte offsets relative to the first pixel of the file; they are written relative to the beginning of the file.
    Places(Vec<u64>),
    Sizes(Vec<u64>),
}

/// The TIFF directory of an image, and the directories of its copies with a lower resolution.
#[derive(Clone, Debug, Default)]
pub(super) struct TiffPage {
    pub(super) tags: Vec<(Tag, TagValue)>,
    pub(super) smaller: Vec<TiffPage>,
}

/// An encoded value of a TIFF tag: its data type, its number of items, and its bytes.
struct EncodedValue {
    kind: u16,
    count: usize,
    bytes: Vec<u8>,
}

/// The bytes of a TIFF directory, and of the values that do not fit into its entries.
struct WrittenPage {
    bytes: Vec<u8>,
    /// The index in `bytes` at which the offset of the next directory stands.
    next: usize,
}

impl OffsetSize {
    fn width(self) -> usize {
        match self {
            OffsetSize::Classic => 4,
            OffsetSize::Big => 8,
        }
    }

    /// Returns TIFF's number for the data type of offsets.
    fn kind(self) -> u16 {
        match self {
            OffsetSize::Classic => 4,
            OffsetSize::Big => 16,
        }
    }

    /// Encodes a number in the size of an offset; `None` if it is too large.
    fn offset(self, number: u64) -> Option<Vec<u8>> {
        Some(match self {
            OffsetSize::Classic => u32::try_from(number).ok()?.to_le_bytes().to_vec(),
            OffsetSize::Big => number.to_le_bytes().to_vec(),
        })
    }

    /// Returns the signature of a TIFF file, which comes before the first directory.
    fn signature(self) -> Vec<u8> {
        match self {
            OffsetSize::Classic => b"II\x2a\0\x08\0\0\0".to_vec(),
            OffsetSize::Big => b"II\x2b\0\x08\0\0\0\x10\0\0\0\0\0\0\0".to_vec(),
        }
    }
}

impl TagValue {
    /// Encodes the value of a tag. `data` is the offset of the first pixel in the file.
    fn encoded(&self, size: OffsetSize, data: u64) -> Option<EncodedValue> {
        let numbers = |numbers: &[u64], base: u64| {
            let numbers = numbers
                .iter()
                .map(|&number| size.offset(number.checked_add(base)?));
            Some(numbers.collect::<Option<Vec<_>>>()?.concat())
        };
        let (kind, count, bytes) = match self {
            TagValue::Text(text) => (2, text.len() + 1, [text.as_bytes(), b"\0"].concat()),
            TagValue::Short(list) => {
                let bytes: Vec<_> = list
                    .iter()
                    .flat_map(|number| number.to_le_bytes())
                    .collect();
                (3, list.len(), bytes)
            }
            TagValue::Long(number) => (4, 1, number.to_le_bytes().to_vec()),
            TagValue::Rational(over, under) => {
                (5, 1, [over.to_le_bytes(), under.to_le_bytes()].concat())
            }
            TagValue::Double(list) => {
                let bytes: Vec<_> = list
                    .iter()
                    .flat_map(|number| number.to_le_bytes())
                    .collect();
                (12, list.len(), bytes)
            }
            TagValue::Places(list) => (size.kind(), list.len(), numbers(list, data)?),
            TagValue::Sizes(list) => (size.kind(), list.len(), numbers(list, 0)?),
        };
        Some(EncodedValue { kind, count, bytes })
    }
}

impl TiffPage {
    /// Encodes a directory that will stand at `address`. `smaller` has the addresses of the directories of its copies.
    fn written(
        &self,
        size: OffsetSize,
        address: u64,
        smaller: &[u64],
        data: u64,
    ) -> Option<WrittenPage> {
        let tags = self.encoded(size, smaller, data)?;
        let mut bytes = match size {
            OffsetSize::Classic => u16::try_from(tags.len()).ok()?.to_le_bytes().to_vec(),
            OffsetSize::Big => (tags.len() as u64).to_le_bytes().to_vec(),
        };
        let width = size.width();
        let next = bytes.len() + tags.len() * (4 + 2 * width);
        let mut behind = Vec::new();
        for (tag, value) in tags {
            bytes.extend((tag as u16).to_le_bytes());
            bytes.extend(value.kind.to_le_bytes());
            bytes.extend(size.offset(value.count as u64)?);
            let mut value = value.bytes;
            if value.len() <= width {
                value.resize(width, 0);
                bytes.extend(value);
            } else {
                let place = address + (next + width + behind.len()) as u64;
                bytes.extend(size.offset(place)?);
                behind.extend(value);
                behind.resize(behind.len().next_multiple_of(8), 0);
            }
        }
        bytes.resize(next + width, 0);
        bytes.extend(behind);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        Some(WrittenPage { bytes, next })
    }

    /// Encodes all tags sorted by number, including the tag with the addresses of the copies' directories.
    fn encoded(
        &self,
        size: OffsetSize,
        smaller: &[u64],
        data: u64,
    ) -> Option<Vec<(Tag, EncodedValue)>> {
        let mut tags = Vec::new();
        for (tag, value) in &self.tags {
            tags.push((*tag, value.encoded(size, data)?));
        }
        if !smaller.is_empty() {
            let offsets = smaller.iter().map(|&offset| size.offset(offset));
            let offsets = offsets.collect::<Option<Vec<_>>>()?.concat();
            let copies = EncodedValue {
                kind: size.kind(),
                count: smaller.len(),
                bytes: offsets,
            };
            tags.push((Tag::SubIfds, copies));
        }
        tags.sort_by_key(|(tag, _)| *tag);
        Some(tags)
    }
}

/// Returns the lengths in bytes of a directory and of the directories of its copies.
fn lengths(page: &TiffPage, size: OffsetSize) -> Option<Vec<u64>> {
    let all = std::iter::once(page).chain(&page.smaller);
    let own = |page: &TiffPage, copies: usize| {
        let written = page.written(size, 0, &vec![0; copies], 0)?;
        Some(written.bytes.len() as u64)
    };
    all.enumerate()
        .map(|(place, each)| own(each, if place == 0 { page.smaller.len() } else { 0 }))
        .collect()
}

/// Returns the header of a TIFF file with `pixels` bytes of pixels, or `None` if an offset does not fit. All
/// directories except the first must have the same tags, because they must have the same length.
pub(super) fn header(pages: &[TiffPage], size: OffsetSize, pixels: u64) -> Option<Vec<u8>> {
    let mut out = size.signature();
    let first = lengths(pages.first()?, size)?;
    let others = match pages.get(1) {
        Some(page) => lengths(page, size)?,
        None => Vec::new(),
    };
    let count = pages.len() as u64 - 1;
    let end = out.len() as u64 + first.iter().sum::<u64>() + count * others.iter().sum::<u64>();
    let data = end.next_multiple_of(ALIGNMENT as u64);
    size.offset(data.checked_add(pixels)?)?;
    for (number, page) in pages.iter().enumerate() {
        let lengths = if number == 0 { &first } else { &others };
        let address = out.len() as u64;
        let mut next = address;
        let ends = lengths.iter().map(|length| {
            next += length;
            next
        });
        let ends: Vec<u64> = ends.collect();
        let places = ends.get(..page.smaller.len())?;
        let mut written = page.written(size, address, places, data)?;
        if number + 1 < pages.len() {
            let offset = size.offset(*ends.last()?)?;
            written.bytes[written.next..written.next + offset.len()].copy_from_slice(&offset);
        }
        out.extend(written.bytes);
        for (smaller, &place) in page.smaller.iter().zip(places) {
            out.extend(smaller.written(size, place, &[], data)?.bytes);
        }
    }
    // A directory of another length would make the offsets of all directories after it wrong.
    (out.len() as u64 == end).then_some(())?;
    out.resize(usize::try_from(data).ok()?, 0);
    Some(out)
}

/// Returns the header of a TIFF file, with 32-bit offsets if all offsets fit, or else with 64-bit offsets.
pub(super) fn shortest_header(pages: &[TiffPage], pixels: u64) -> Option<Vec<u8>> {
    let classic = header(pages, OffsetSize::Classic, pixels);
    classic.or_else(|| header(pages, OffsetSize::Big, pixels))
}
