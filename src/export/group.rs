//! Virtual files of a group: a header, and the arrays of the group behind it, one after the other or as columns of a table.
//!
//! A format of groups is pure, as one of arrays is: of names, metadata and attributes it makes the header and says where
//! each array begins. `GroupFile` is such a file open.

use std::borrow::Cow;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use crate::array::OpenArray;
use crate::error::{Error, Result};
use crate::export::opened::room_of;
use crate::export::{Export, FileParts};
use crate::grid::Region;
use crate::model::{Array, Attributes};
use crate::request_context::RequestContext;
use crate::sync::budget::Reservation;
use crate::sync::read_bytes::{ReadAt, ReadBytes, part};

/// An array of a group, or of a group below it.
#[derive(Clone, Debug)]
pub struct GroupMember<'a> {
    /// Its path from the group: its name where it is in the group itself.
    pub path: String,
    /// Its metadata, with the attributes that the file has.
    pub array: Cow<'a, Array>,
}

/// A group below the group.
#[derive(Clone, Debug)]
pub struct Subgroup {
    /// Its path from the group.
    pub path: String,
    /// The attributes that the file has of it.
    pub attributes: Attributes,
}

/// What a file of a group is made of.
#[derive(Debug)]
pub struct GroupContents<'a> {
    /// The attributes of the group that the file has.
    pub attributes: Attributes,
    /// The groups below it, each after the one that it is in; none for formats without groups.
    pub subgroups: Vec<Subgroup>,
    /// Its arrays, at least one.
    pub members: Vec<GroupMember<'a>>,
    /// A sentence on each node that is left out; none for formats without groups, which leave nothing out.
    pub left_out: Vec<String>,
}

/// What a format makes of a group, or why it cannot, as it is said after the name of the format and a colon.
pub type OrWhyNot<T> = std::result::Result<T, String>;

/// Which arrays the files of a format have.
#[derive(Clone, Copy)]
pub enum GroupScope {
    /// Those in the group itself.
    Own,
    /// Those of the groups below it as well. Nodes that cannot be read are left out.
    Below,
    /// Those at the paths that the attributes of the group name.
    Named(fn(&Attributes) -> Vec<String>),
}

/// A file format for all arrays of a group.
pub struct GroupFormat {
    /// What a file name ends with, without the dot before it.
    pub extension: &'static str,
    /// Which arrays a file has.
    pub scope: GroupScope,
    /// Returns what a file of a group consists of, or why the format cannot hold it.
    pub plan: fn(&GroupContents) -> OrWhyNot<GroupPlan>,
}

impl fmt::Debug for GroupFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.extension)
    }
}

/// What a file of a group consists of.
#[derive(Clone)]
pub struct GroupPlan {
    /// The bytes before the first array.
    pub header: Vec<u8>,
    /// The arrays in order of their places, which leave no gaps.
    pub variables: Vec<PlacedVariable>,
    /// The bytes of a row, if the arrays are columns: of each the first element, then of each the second. All have one
    /// dimension and the same length.
    pub row: Option<u64>,
}

/// An array in a file of its group.
#[derive(Clone)]
pub struct PlacedVariable {
    /// Its number among the members that the plan was made of.
    pub member: usize,
    /// Where its bytes begin, in the file or in a row.
    pub offset: u64,
    /// What they consist of.
    pub parts: FileParts,
}

impl GroupPlan {
    /// Returns the length of the file in bytes, where `arrays` are the members; `TooLarge` beyond that of any file.
    pub fn len(&self, arrays: &[Arc<OpenArray>]) -> Result<u64> {
        let Some(last) = self.variables.last() else {
            return Ok(self.header.len() as u64);
        };
        let array = member(arrays, last)?.array();
        let end = match (self.row, &array.shape[..]) {
            (Some(row), &[rows, ..]) => row
                .checked_mul(rows)
                .and_then(|rows| rows.checked_add(self.header.len() as u64)),
            _ => {
                let length = last.parts.len(&array.shape, array.element_size()?)?;
                last.offset.checked_add(length)
            }
        };
        end.filter(|&end| i64::try_from(end).is_ok())
            .ok_or_else(|| Error::too_large("group", "a file of its arrays"))
    }

    /// Returns a number of the content, which stays while chunks change.
    pub fn content(&self, arrays: &[Arc<OpenArray>]) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.header.hash(&mut hasher);
        let order = self.variables.iter();
        order.for_each(|variable| variable.member.hash(&mut hasher));
        arrays.iter().for_each(|array| array.id().hash(&mut hasher));
        hasher.finish()
    }
}

fn member<'a>(arrays: &'a [Arc<OpenArray>], of: &PlacedVariable) -> Result<&'a Arc<OpenArray>> {
    let array = arrays.get(of.member);
    array.ok_or_else(|| Error::invalid("group", "a file of other arrays"))
}

/// A file of a group, open.
pub struct GroupFile {
    header: Vec<u8>,
    /// What a long header takes of the memory.
    _room: Option<Reservation>,
    /// Where each array begins, in order.
    variables: Vec<(u64, Export)>,
    /// The bytes of a row of a table.
    row: Option<u64>,
    length: u64,
}

impl GroupFile {
    /// Opens the file of a group whose members are `arrays`; fails with the error that stops one of them from being
    /// decoded.
    pub fn open(plan: &GroupPlan, arrays: &[Arc<OpenArray>]) -> Result<GroupFile> {
        let variables = plan.variables.iter().map(|variable| {
            let array = member(arrays, variable)?;
            array.check_decodable()?;
            let region = Region::whole(&array.array().shape);
            let export = Export::of_parts(array, variable.parts.clone(), region, array.id())?;
            Ok((variable.offset, export))
        });
        let room = arrays
            .first()
            .map(|array| room_of(array, plan.header.len()));
        Ok(GroupFile {
            _room: room.transpose()?.flatten(),
            header: plan.header.clone(),
            variables: variables.collect::<Result<_>>()?,
            row: plan.row,
            length: plan.len(arrays)?,
        })
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the arrays that are in the file.
    pub fn arrays(&self) -> impl Iterator<Item = &Arc<OpenArray>> {
        self.variables.iter().map(|(_, export)| export.array())
    }

    /// Whether the content may have changed since this was last asked, by what is known without asking the store.
    pub fn may_have_changed(&self) -> bool {
        let changed = self
            .variables
            .iter()
            .filter(|(_, export)| export.may_have_changed());
        // Each of them has to be asked.
        changed.count() > 0
    }

    /// Puts a range together out of the header and what `read` returns of arrays.
    fn gather(
        &self,
        offset: u64,
        len: usize,
        read: impl Fn(&Export, u64, usize) -> Result<ReadBytes>,
    ) -> Result<ReadBytes> {
        let end = offset.saturating_add(len as u64).min(self.length);
        if offset >= end {
            return Ok(ReadBytes::default());
        }
        let mut bytes = part(&self.header, offset..end).to_vec();
        if let Some(row) = self.row {
            let header = self.header.len() as u64;
            let range = offset.max(header) - header..end.max(header) - header;
            bytes.extend_from_slice(&self.rows(row, range, read)?);
            return Ok(bytes.into());
        }
        // The array under the first byte, and those after it.
        let after = self
            .variables
            .partition_point(|&(begin, _)| begin <= offset);
        for (begin, export) in self.variables.iter().skip(after.saturating_sub(1)) {
            if *begin >= end {
                break;
            }
            let start = offset.max(*begin) - begin;
            let wanted = (end - begin).min(export.len()).saturating_sub(start);
            let found = read(export, start, usize::try_from(wanted).unwrap_or(usize::MAX))?;
            if bytes.is_empty() && wanted == end - offset {
                return Ok(found);
            }
            bytes.extend_from_slice(&found);
        }
        Ok(bytes.into())
    }

    /// Puts a range of the rows of a table together, each of `width` bytes.
    fn rows(
        &self,
        width: u64,
        range: Range<u64>,
        read: impl Fn(&Export, u64, usize) -> Result<ReadBytes>,
    ) -> Result<Vec<u8>> {
        let too_large = |_| Error::too_large("group", "a part of a table");
        let bytes = |length: u64| usize::try_from(length).map_err(too_large);
        let (first, count) = (
            range.start / width,
            range.end.div_ceil(width) - range.start / width,
        );
        let mut rows = vec![0; bytes(count * width)?];
        let ends = self.variables.iter().skip(1).map(|&(begin, _)| begin);
        for ((begin, export), end) in self.variables.iter().zip(ends.chain([width])) {
            let cell = end - begin;
            let cells = read(export, first * cell, bytes(count * cell)?)?;
            let (begin, cell) = (bytes(*begin)?, bytes(cell)?);
            let places = rows.chunks_exact_mut(bytes(width)?);
            for (row, bytes) in places.zip(cells.chunks_exact(cell)) {
                row[begin..begin + cell].copy_from_slice(bytes);
            }
        }
        let skipped = first * width;
        Ok(part(&rows, range.start - skipped..range.end - skipped).to_vec())
    }
}

impl ReadAt for GroupFile {
    fn read_now(&self, context: &RequestContext, offset: u64, len: usize) -> Option<ReadBytes> {
        let read = |export: &Export, at, len| {
            let read = export.read_now(context, at, len);
            read.ok_or_else(|| Error::invalid("", "is not in memory"))
        };
        self.gather(offset, len, read).ok()
    }

    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<ReadBytes> {
        self.gather(offset, len, |export, at, len| {
            export.read_at(context, at, len)
        })
    }
}
