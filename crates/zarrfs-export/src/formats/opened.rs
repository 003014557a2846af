//! Opens selected elements of an array as a file of header, elements and trailer.
//!
//! Reading a range reads only the elements in this range. If the file has the elements as they are decoded, they are
//! not copied, and can be written in place. Otherwise each read converts them.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::formats::Subject;
use crate::formats::conversion::Conversion;
use crate::formats::format::{FileParts, Format, Ragged};
use crate::formats::group::{GroupMember, MemberSource};
use zarr_format::buffer::Buffer;
use zarr_format::error::{Error, Kind, Result};
use zarr_format::grid::{Region, Selection};
use zarrfs_array::array::flat_file::FlatFile;
use zarrfs_array::array::strided_file::StridedFile;
use zarrfs_array::array::vlen_elements::ReservedBytes;
use zarrfs_array::array::{ArrayState, OpenArray, WriteSource};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::budget::Reservation;
use zarrfs_store::sync::read_bytes::{ReadAt, ReadBytes, part};

/// An open file that shows elements of an array in a format.
pub struct Export {
    array: Arc<OpenArray>,
    header: Vec<u8>,
    body: FileBody,
    /// The byte range of the elements in the file, between header and trailer.
    body_range: Range<u64>,
    trailer: Vec<u8>,
    left_out: Vec<String>,
    content: u64,
    /// Reserves memory for a long header as long as the file is open.
    _room: Option<Reservation>,
    /// The array's state when `may_have_changed` was last called.
    last_state: Mutex<ArrayState>,
}

/// The bytes of the file between header and trailer.
enum FileBody {
    /// No bytes, because the elements are in another file.
    Empty,
    /// Fixed-length elements as they are decoded, which are read on demand.
    Flat(SourceElements),
    /// Fixed-length elements in a converted form, which are read and converted on demand.
    Converted(ConvertedFile),
    /// All bytes of the file, which were made when it was opened.
    Whole(ReservedBytes),
}

/// Elements that are converted on each read.
struct ConvertedFile {
    decoded: SourceElements,
    conversion: Arc<dyn Conversion>,
    /// Size of an element in bytes before and after the conversion; `written_size` is at least 1.
    decoded_size: u64,
    written_size: u64,
    length: u64,
}

impl ConvertedFile {
    fn new(
        decoded: SourceElements,
        conversion: Arc<dyn Conversion>,
        length: u64,
    ) -> Result<ConvertedFile> {
        let size = decoded.array().array().element_size()? as u64;
        Ok(ConvertedFile {
            decoded,
            decoded_size: size,
            written_size: conversion.written_size().max(1) as u64,
            conversion,
            length,
        })
    }

    /// Returns the byte range of the decoded elements that are converted to give a byte range of the file's elements.
    fn source(&self, range: &Range<u64>) -> Range<u64> {
        let first = range.start / self.written_size;
        let end = range.end.div_ceil(self.written_size);
        first * self.decoded_size..end * self.decoded_size
    }

    /// Converts whole decoded elements, and cuts off the bytes of the first and last element that are outside `range`.
    fn convert(&self, range: &Range<u64>, decoded: &[u8]) -> ReadBytes {
        let count = decoded.len() as u64 / self.decoded_size.max(1);
        let in_buffer = |bytes: u64| usize::try_from(bytes).unwrap_or(0);
        let mut bytes = Buffer::of_length(in_buffer(count * self.written_size));
        let first = range.start / self.written_size;
        self.conversion.convert_at(first, decoded, &mut bytes);
        let skipped = range.start % self.written_size;
        bytes.cut(in_buffer(skipped)..in_buffer(skipped + range.end - range.start));
        ReadBytes::Own(bytes)
    }
}

/// Reserves memory for a header of more than 16 KiB. Shorter headers are not counted, because the rest of an open
/// file's state takes more.
pub(super) fn room_of(array: &OpenArray, length: usize) -> Result<Option<Reservation>> {
    let is_long = length > 16 << 10;
    is_long.then(|| array.room(length as u64)).transpose()
}

impl FileBody {
    fn len(&self) -> u64 {
        match self {
            FileBody::Empty => 0,
            FileBody::Flat(flat) => flat.len(),
            FileBody::Converted(converted) => converted.length,
            FileBody::Whole(bytes) => bytes.len() as u64,
        }
    }

    /// Reads a byte range, which must lie between header and trailer.
    fn read(&self, context: &RequestContext, range: Range<u64>) -> Result<ReadBytes> {
        match self {
            FileBody::Empty => Ok(ReadBytes::default()),
            FileBody::Flat(SourceElements::Box(flat)) => flat.read_for_pages(context, range),
            FileBody::Flat(strided) => strided.read(context, range),
            FileBody::Converted(converted) => {
                let decoded = converted.decoded.read(context, converted.source(&range))?;
                Ok(converted.convert(&range, &decoded))
            }
            FileBody::Whole(bytes) => Ok(part(bytes, range).into()),
        }
    }
}

impl Export {
    /// Opens an index range of an array in a format that needs no metadata of other nodes. Fails as `Format::parts_of`
    /// and `open_made` do.
    pub fn open(
        context: &RequestContext,
        array: &Arc<OpenArray>,
        format: &Format,
        region: Region,
    ) -> Result<Export> {
        if format.is_made(array.array()) {
            let member = GroupMember::alone(array, &Selection::of_region(&region));
            return Export::open_made(context, format, &member);
        }
        let parts = format.parts_of(array, &Subject::alone(array.array(), &region.shape))?;
        let content = format.content(array, &parts);
        Export::of_parts(array, parts, region, content)
    }

    /// Reads all selected elements and makes the whole file of them. Fails with `TooLarge` if they do not fit in
    /// memory, and with `Unsupported` if the format cannot hold them. `member` has the array, its name in the file and
    /// the selection.
    pub fn open_made(
        context: &RequestContext,
        format: &Format,
        member: &GroupMember,
    ) -> Result<Export> {
        let MemberSource {
            array, selection, ..
        } = member.source()?;
        array.check_decodable()?;
        let (last_state, shape) = (Mutex::new(array.state()), selection.shape());
        let subject = Subject::alone(&member.array, &shape);
        let refused = |why: String| {
            let found = format!("{}: {why}", format.extension);
            Error::unsupported(array.path(), found)
        };
        if let Some(why) = format.unmet_needs(&subject) {
            return Err(refused(why));
        }
        let ragged = format
            .ragged
            .ok_or_else(|| refused(format!("needs {}", format.needs)))?;
        let bytes = whole(context, member, ragged)?;
        Ok(Export {
            array: array.clone(),
            header: Vec::new(),
            body_range: 0..bytes.len() as u64,
            body: FileBody::Whole(bytes),
            trailer: Vec::new(),
            left_out: format.left_out(&subject),
            content: array.id(),
            _room: None,
            last_state,
        })
    }

    /// Opens an index range of an array as a file with the given header, trailer and element form. `content` identifies
    /// the file's content. Fails with `TooLarge` if the file exceeds the maximum length.
    pub fn of_parts(
        array: &Arc<OpenArray>,
        parts: FileParts,
        region: Region,
        content: u64,
    ) -> Result<Export> {
        Export::of_selection(array, parts, &Selection::of_region(&region), content)
    }

    /// Opens selected elements of an array as a file with the given header, trailer and element form.
    pub fn of_selection(
        array: &Arc<OpenArray>,
        parts: FileParts,
        selection: &Selection,
        content: u64,
    ) -> Result<Export> {
        let last_state = Mutex::new(array.state());
        let length = parts.elements_len(&selection.shape(), array.array().element_size()?)?;
        let room = room_of(array, parts.header.len() + parts.trailer.len())?;
        let body = match parts.elements {
            None => FileBody::Empty,
            Some(form) => {
                let elements = SourceElements::open(array, selection, form.order.as_deref())?;
                match form.conversion {
                    None => FileBody::Flat(elements),
                    Some(conversion) => {
                        FileBody::Converted(ConvertedFile::new(elements, conversion, length)?)
                    }
                }
            }
        };
        let start = parts.header.len() as u64;
        Ok(Export {
            _room: room,
            array: array.clone(),
            body_range: start..start + body.len(),
            body,
            header: parts.header,
            trailer: parts.trailer,
            left_out: parts.left_out,
            content,
            last_state,
        })
    }

    /// Whether a reader that opens the file now is likely to read it sequentially.
    pub fn expects_sequential(&self) -> bool {
        match &self.body {
            FileBody::Empty | FileBody::Whole(_) => true,
            FileBody::Flat(flat) => flat.expects_sequential(),
            FileBody::Converted(converted) => converted.decoded.expects_sequential(),
        }
    }

    /// Returns the length of the file in bytes.
    pub fn len(&self) -> u64 {
        self.body_range.end + self.trailer.len() as u64
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the whole file was made from elements when it was opened.
    pub fn is_made(&self) -> bool {
        matches!(self.body, FileBody::Whole(_))
    }

    /// Returns the metadata that the file omits; each text is a name, a colon and the reason.
    pub fn left_out(&self) -> impl Iterator<Item = &str> {
        self.left_out.iter().map(String::as_str)
    }

    /// Returns the array whose elements the file shows.
    pub fn array(&self) -> &Arc<OpenArray> {
        &self.array
    }

    /// Returns a number that identifies the content of the file. Writes to the file do not change the number.
    pub fn content(&self) -> u64 {
        self.content
    }

    /// Whether the file's content may have changed since the last call. Makes no request to the store.
    pub fn may_have_changed(&self) -> bool {
        let now = self.array.state();
        let before = std::mem::replace(&mut *self.last_state.lock(), now);
        self.array.may_have_changed(&before)
    }

    /// Splits a range of the file into bytes of the header, a byte range of the elements, and bytes of the trailer.
    fn cut(&self, offset: u64, len: usize) -> (&[u8], Range<u64>, &[u8]) {
        let end = offset.saturating_add(len as u64).min(self.len());
        let Range {
            start: header,
            end: body_end,
        } = self.body_range;
        let before = part(&self.header, offset.min(header)..end.min(header));
        let elements =
            offset.clamp(header, body_end) - header..end.clamp(header, body_end) - header;
        let after = offset.max(body_end) - body_end..end.max(body_end) - body_end;
        let after = part(&self.trailer, after);
        (before, elements, after)
    }

    /// Returns the elements if the file can be written: it must have them as they are decoded, in C order, without
    /// steps.
    fn writable(&self) -> Result<&FlatFile> {
        let flat = match &self.body {
            FileBody::Flat(elements) => elements.as_box().filter(|flat| flat.has_own_order()),
            FileBody::Empty | FileBody::Converted(_) | FileBody::Whole(_) => None,
        };
        let why = "this format is read-only; write NAME.npy or NAME.raw instead";
        flat.ok_or_else(|| Error::new(Kind::Denied, self.array.path(), why))
    }

    /// Checks that the file can be written. Fails as `OpenArray::check_writable` does, and with `Denied` if the file
    /// does not have the elements as they are decoded.
    pub fn check_writable(&self) -> Result<()> {
        self.array.check_writable()?;
        self.writable().map(drop)
    }

    /// Writes bytes at an offset of the file into the array. Fails with `Invalid` if the write would change the header
    /// or the trailer, and with `TooLarge` beyond the end of the file, since a write cannot extend the file.
    pub fn write_at(&self, context: &RequestContext, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_from(context, WriteSource::Program, offset, bytes)
    }

    /// Writes pages that a program changed through mmap. The kernel passes whole pages, whose other bytes are as they
    /// were read. If a chunk has changed since then, its part of the pages is dropped, and the array reports the loss.
    pub fn write_pages(&self, context: &RequestContext, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_from(context, WriteSource::Pages, offset, bytes)
    }

    fn write_from(
        &self,
        context: &RequestContext,
        source: WriteSource,
        offset: u64,
        bytes: &[u8],
    ) -> Result<()> {
        self.array.check_writable()?;
        let flat = self.writable()?;
        let end = offset.saturating_add(bytes.len() as u64);
        if end > self.len() && !bytes.is_empty() {
            let found = format!("the file cannot grow beyond {} bytes", self.len());
            return Err(Error::too_large(self.array.path(), found));
        }
        let (before, elements, after) = self.cut(offset, bytes.len());
        let rest = bytes.split_at_checked(before.len());
        let rest = rest.filter(|(written, _)| *written == before);
        let rest = rest.and_then(|(_, rest)| rest.strip_suffix(after));
        let Some(rest) = rest else {
            let why = "the header of the file cannot be changed; edit the metadata instead";
            return Err(Error::invalid(self.array.path(), why));
        };
        if rest.is_empty() {
            return Ok(());
        }
        flat.write(context, elements.start, rest, source)
    }
}

impl ReadAt for Export {
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<ReadBytes> {
        let end = offset.saturating_add(len as u64).min(self.len());
        if self.body_range.start <= offset && offset < end && end <= self.body_range.end {
            let range = offset - self.body_range.start..end - self.body_range.start;
            return self.body.read(context, range);
        }
        let (before, range, after) = self.cut(offset, len);
        if range.is_empty() {
            return Ok([before, after].concat().into());
        }
        let elements = self.body.read(context, range)?;
        let parts = [before, &elements, after];
        let mut bytes = Buffer::of_length(parts.iter().map(|part| part.len()).sum());
        let mut rest = &mut bytes[..];
        for part in parts {
            let (place, others) = rest.split_at_mut(part.len());
            place.copy_from_slice(part);
            rest = others;
        }
        Ok(ReadBytes::Own(bytes))
    }
}

impl MemberSource {
    /// Opens the elements as a file with the given header, trailer and element form.
    pub(super) fn open(&self, parts: FileParts) -> Result<Export> {
        self.array.check_decodable()?;
        let parts = match &self.conversion {
            Some(first) => parts.after(first, self.array.array().element_size()?),
            None => parts,
        };
        Export::of_selection(&self.array, parts, &self.selection, self.array.id())
    }
}

impl GroupMember {
    /// Opens fixed-length elements without a header. The bytes are in C order and little-endian, and have the data type
    /// of the member's `array`.
    pub fn elements(&self) -> Result<Export> {
        self.source()?.open(FileParts::plain(Vec::new()))
    }
}

/// Reads all selected elements of an array and makes a whole file of them.
fn whole(context: &RequestContext, member: &GroupMember, ragged: Ragged) -> Result<ReservedBytes> {
    let source = member.source()?;
    let array = &source.array;
    let mut out = array.growing();
    match ragged {
        Ragged::Records => return Ok(member.records(context)?.into_bytes()),
        Ragged::Made(make) => {
            let records = member.records(context)?;
            make(&records, &source.selection.shape(), &mut out)
        }
        Ragged::Rows(make) => make(context, member, &mut out),
    }
    .map_err(|error| error.about(array.path()))?;
    Ok(out.finish())
}

/// The decoded elements of a selection, as a sequence of bytes.
pub enum SourceElements {
    /// An index range without steps, with its dimensions in any order.
    Box(Box<FlatFile>),
    /// Elements that are selected with a step along at least one dimension.
    Strided(StridedFile),
}

impl SourceElements {
    /// Opens selected elements of an array. For each dimension of the file, `order` has the index of the dimension
    /// among those that the selection keeps. Fails as `FlatFile::permuted` does.
    pub fn open(
        array: &Arc<OpenArray>,
        selection: &Selection,
        order: Option<&[usize]>,
    ) -> Result<SourceElements> {
        let array = array.clone();
        let kept = selection.remaining_axes().len();
        let own: Vec<usize> = (0..kept).collect();
        let order = order.map(|order| selection.order_of(order));
        Ok(match (selection.region(), order) {
            (Some(region), None) => SourceElements::Box(Box::new(FlatFile::new(array, region)?)),
            (Some(region), Some(order)) => {
                SourceElements::Box(Box::new(FlatFile::permuted(array, region, &order)?))
            }
            (None, order) => {
                let order = order.unwrap_or_else(|| selection.order_of(&own));
                SourceElements::Strided(StridedFile::new(array, selection.clone(), order)?)
            }
        })
    }

    /// Returns the elements of an index range without steps, or `None` if the elements have a step.
    pub fn as_box(&self) -> Option<&FlatFile> {
        match self {
            SourceElements::Box(flat) => Some(flat),
            SourceElements::Strided(_) => None,
        }
    }

    /// Returns the length of all elements in bytes.
    pub fn len(&self) -> u64 {
        match self {
            SourceElements::Box(flat) => flat.len(),
            SourceElements::Strided(strided) => strided.len(),
        }
    }

    /// Whether no elements are selected.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the array that the elements are read from.
    pub fn array(&self) -> &Arc<OpenArray> {
        match self {
            SourceElements::Box(flat) => flat.array(),
            SourceElements::Strided(strided) => strided.array(),
        }
    }

    /// Reads a byte range of the decoded elements.
    pub fn read(&self, context: &RequestContext, range: Range<u64>) -> Result<ReadBytes> {
        match self {
            SourceElements::Box(flat) => flat.read(context, range),
            SourceElements::Strided(strided) => {
                context.check_may_wait()?;
                strided.read(context, range)
            }
        }
    }

    /// Whether a reader that opens the elements now is likely to read them sequentially.
    pub fn expects_sequential(&self) -> bool {
        self.as_box().is_none_or(FlatFile::expects_sequential)
    }
}
