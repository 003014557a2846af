//! Resolves names of array files: `NAME.EXT`, `NAME.cf.EXT`, `NAME@SELECTION.EXT`, and files in `chunks/`.
//!
//! Nothing is cached by name: each lookup evaluates the selection again.

use std::fmt::Write;
use std::sync::Arc;

use crate::view::files::{FilesView, is_untold};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::grid::{Coordinates, NumberedName, Region, Selection};
use zarrfs_array::array::OpenArray;
use zarrfs_array::hierarchy::NodeEntry;
use zarrfs_export::formats::cf::NoValues;
use zarrfs_export::formats::group::{GroupMember, MemberSource};
use zarrfs_export::formats::{FileParts, Format, Subject, TakenDimension};
use zarrfs_export::formats::{cf, npy, raw};
use zarrfs_export::inspect::coordinates::{ArrayInGroup, names_dimensions};
use zarrfs_export::inspect::file_ending::{FileEnding, SELECTED, format_of};
use zarrfs_export::inspect::map_nodes::MapSource;
use zarrfs_export::inspect::surrounding_nodes::SurroundingNodes;
use zarrfs_store::Key;
use zarrfs_store::request_context::RequestContext;

/// A decoded file: the whole array, one chunk or a selection, in a format.
pub(super) struct DecodedTarget {
    /// The array.
    pub(super) found: Arc<NodeEntry>,
    pub(super) array: Arc<OpenArray>,
    pub(super) format: &'static Format,
    pub(super) part: ArrayPart,
    /// Whether the file has CF-decoded values (scale, offset, missing values).
    is_meant: bool,
    /// The parts of the file, if they are known without the elements.
    parts: Result<FileParts>,
}

/// The part of an array that a file contains.
pub(super) enum ArrayPart {
    /// All elements.
    Whole,
    /// The chunk with these indices, which is in the grid.
    Chunk(Coordinates),
    /// A selection.
    Selected(Selection),
}

/// The array of a file name, and the nodes that the file is made from.
pub(super) struct ArrayPlace {
    /// The array.
    pub(super) found: Arc<NodeEntry>,
    /// The nodes around it that the file needs.
    pub(super) around: SurroundingNodes,
}

impl ArrayPlace {
    /// Returns the array as formats see it: a box of this shape, in files with the base name `name`.
    pub(super) fn subject<'a>(&'a self, name: &'a [u8], shape: &'a [u64]) -> Option<Subject<'a>> {
        Some(Subject {
            array: self.found.array()?,
            shape,
            name,
            chosen: "",
            around: self.around.attributes(),
            taken: None,
        })
    }
}

impl DecodedTarget {
    /// Returns the elements that the file contains.
    pub(super) fn selection(&self) -> Result<Selection> {
        Ok(match &self.part {
            ArrayPart::Whole => Selection::whole(&self.array.array().shape),
            ArrayPart::Chunk(indices) => {
                Selection::of_region(&self.array.stored_grid()?.region(indices))
            }
            ArrayPart::Selected(selection) => selection.clone(),
        })
    }

    /// Returns the smallest box that contains all elements of the file.
    pub(super) fn bounds(&self) -> Result<Region> {
        Ok(self.selection()?.bounds())
    }

    /// Whether the file is writable: it is `NAME.npy` or `NAME.raw`.
    pub(super) fn is_writable(&self) -> bool {
        let is_whole = matches!(self.part, ArrayPart::Whole) && !self.is_meant;
        let formats = [&npy::FORMAT, &raw::FORMAT];
        is_whole && !self.is_made() && formats.iter().any(|format| self.format.is(format))
    }

    /// Whether the file is generated when it is opened, so that its length needs all of its elements.
    pub(super) fn is_made(&self) -> bool {
        self.format.is_made(self.array.array())
    }

    /// Returns the array as the source of a generated file, with the base name of its files.
    pub(super) fn member(&self, name: &[u8]) -> Result<GroupMember> {
        let described = self.found.array().unwrap_or(self.array.array());
        let meant = self.is_meant.then(|| cf::decoded(described));
        // If the attributes cannot be applied, the file does not exist.
        let meant = meant.and_then(std::result::Result::ok);
        let conversion = meant.as_ref().and_then(|meant| meant.conversion.clone());
        Ok(GroupMember {
            path: String::from_utf8_lossy(name).into_owned(),
            array: Arc::new(meant.map_or_else(|| described.clone(), |meant| meant.array)),
            source: Some(MemberSource {
                array: self.array.clone(),
                selection: self.selection()?,
                conversion,
            }),
        })
    }

    /// Returns the parts of the file; fails as `Format::parts_of`.
    pub(super) fn parts(&self) -> Result<&FileParts> {
        self.parts.as_ref().map_err(Error::clone)
    }

    /// Returns the exact length in bytes, if it does not depend on the elements. Fails like opening the file, except
    /// for an array that does not decode.
    pub(super) fn length(&self) -> Result<u64> {
        let size = self.array.array().element_size();
        self.parts()?.len(&self.selection()?.shape(), size?)
    }

    /// Returns the number that identifies the content.
    pub(super) fn content(&self) -> u64 {
        match &self.parts {
            // The values depend on attributes, even in formats whose headers do not.
            Ok(parts) if self.is_meant => parts.content(self.array.id()),
            Ok(parts) => self.format.content(&self.array, parts),
            Err(_) => self.array.id(),
        }
    }

    /// Returns a cache name for a generated file; it changes with attributes and names that change the content.
    pub(super) fn name(&self) -> String {
        let mut extension = self.format.extension.to_string();
        if let Ok(parts) = &self.parts {
            let _ = write!(extension, " {:x}", parts.content(0));
        }
        match &self.part {
            ArrayPart::Whole => extension,
            ArrayPart::Chunk(indices) => format!("{indices:?}.{extension}"),
            ArrayPart::Selected(selection) => format!("{:?}.{extension}", selection.axes),
        }
    }
}

impl FilesView {
    /// Finds the file of an array by its ending. An invalid selection is `NoFile`, with the reason.
    pub(super) fn named_file(
        &self,
        context: &RequestContext,
        mut place: ArrayPlace,
        ending: FileEnding<'_>,
    ) -> Result<Option<DecodedTarget>> {
        // The header of a basic format does not depend on other nodes.
        if !ending.format.is_basic {
            let find = |path: &Key| self.hierarchy.node(context, path);
            let around = place.around.with_others(&place.found, &find)?;
            place.around = around.with_numbers(context, &self.hierarchy, &self.arrays)?;
        }
        let mut fault = None;
        if ending.format.is_map() {
            let source = MapSource {
                hierarchy: &self.hierarchy,
                arrays: &self.arrays,
                lines: &self.lines,
            };
            let around = place.around.clone();
            match source.add_to(context, around, &place.found) {
                Ok(around) => place.around = around,
                // The file exists, and opening it returns the error.
                Err(error) if is_untold(error.kind()) => fault = Some(error),
                Err(error) => return Err(error),
            }
        }
        let part = match ending.selection {
            None => ArrayPart::Whole,
            Some(text) => ArrayPart::Selected(self.selected(context, &place, text)?),
        };
        let mut target = self.decoded(place, ending, part)?;
        if let (Some(target), Some(fault)) = (&mut target, fault) {
            target.parts = Err(fault);
        }
        Ok(target)
    }

    /// Parses a selection of an array; fails as `named_file`.
    pub(super) fn selected(
        &self,
        context: &RequestContext,
        place: &ArrayPlace,
        text: &str,
    ) -> Result<Selection> {
        if names_dimensions(text) {
            // Labels must be read from the store.
            context.check_may_wait()?;
        }
        let array = ArrayInGroup {
            hierarchy: &self.hierarchy,
            arrays: &self.arrays,
            entry: &place.found,
        };
        let selection = array.select(context, text);
        selection.map_err(|error| match error.kind() {
            Kind::Invalid => Error::new(Kind::NoFile, &place.found.path, error),
            _ => error,
        })
    }

    /// Finds `0.3.1.npy`, a chunk in the grid in a basic format, and `0.3.1@2.0.1.npy`, an inner chunk of a shard. The
    /// chunk of a 0-dimensional array is `0`.
    pub(super) fn chunk_file(
        &self,
        place: ArrayPlace,
        name: &NumberedName<'_>,
    ) -> Result<Option<DecodedTarget>> {
        let array = self.arrays.open(&place.found)?;
        let indices = |name: &NumberedName<'_>| match &name.indices[..] {
            [0] if array.array().shape.is_empty() => Coordinates::new(),
            indices => indices.into(),
        };
        let inner = name.suffix.strip_prefix(SELECTED);
        let inner = inner.map(|inner| NumberedName::parse(inner.as_bytes()));
        let (suffix, part) = match inner {
            None => (name.suffix, Some(ArrayPart::Chunk(indices(name)))),
            Some(Some(inner)) if inner.prefix.is_empty() => {
                let region = inner_chunk(&array, &indices(name), &indices(&inner));
                let selection = region.map(|region| Selection::of_region(&region));
                (inner.suffix, selection.map(ArrayPart::Selected))
            }
            Some(_) => return Ok(None),
        };
        let extension = suffix.strip_prefix('.');
        let format = format_of(suffix).filter(|format| {
            format.is_basic && name.prefix.is_empty() && extension == Some(format.extension)
        });
        match format.zip(part) {
            Some((format, part)) => self.decoded(place, FileEnding::whole(format), part),
            None => Ok(None),
        }
    }

    /// Returns the file of a part of an array, or `None` if the array has no such part. `NoFile` if the format does not
    /// fit.
    fn decoded(
        &self,
        place: ArrayPlace,
        ending: FileEnding<'_>,
        part: ArrayPart,
    ) -> Result<Option<DecodedTarget>> {
        let array = self.arrays.open(&place.found)?;
        let Some(selection) = selection_of(&array, &part) else {
            return Ok(None);
        };
        let (shape, name) = (selection.shape(), self.name_of(&place.found));
        let Some(mut subject) = place.subject(name, &shape) else {
            return Ok(None);
        };
        let taken = TakenDimension::of_selection(&selection);
        subject.chosen = ending.chosen;
        subject.taken = matches!(part, ArrayPart::Selected(_)).then_some(&taken[..]);
        let Some(parts) = parts_of(&array, subject, &ending)? else {
            let format = ending.format;
            let why = format.why_not(&subject);
            let why = why.unwrap_or_else(|| format!("needs {}", format.needs));
            let why = format!("{}: {why}", format.extension);
            return Err(Error::new(Kind::NoFile, &place.found.path, why));
        };
        Ok(Some(DecodedTarget {
            found: place.found.clone(),
            array,
            format: ending.format,
            part,
            is_meant: ending.is_meant,
            parts,
        }))
    }
}

/// Returns the parts of a file, or the reason why it cannot be read; `None` if the file does not exist. `NoFile` if an
/// attribute cannot be applied to the elements.
fn parts_of(
    array: &OpenArray,
    subject: Subject<'_>,
    ending: &FileEnding<'_>,
) -> Result<Option<Result<FileParts>>> {
    let format = ending.format;
    let meant = match ending.is_meant.then(|| cf::decoded(subject.array)) {
        Some(Err(NoValues::NotNumbers)) => return Ok(None),
        Some(Err(why)) => return Err(Error::new(Kind::NoFile, array.path(), why)),
        meant => meant.and_then(std::result::Result::ok),
    };
    let described = meant.as_ref().map_or(subject.array, |meant| &meant.array);
    let subject = Subject {
        array: described,
        ..subject
    };
    // Made only once: for a format that is not basic, the parts say whether the file exists.
    let parts = format.parts_of(array, &subject);
    if (parts.is_err() || !format.is_basic) && !format.fits(&subject) {
        return Ok(None);
    }
    let conversion = meant.as_ref().and_then(|meant| meant.conversion.as_ref());
    Ok(Some(match conversion {
        Some(conversion) => {
            parts.and_then(|parts| Ok(parts.after(conversion, array.array().element_size()?)))
        }
        None => parts,
    }))
}

/// Returns the elements of a part of an array, or `None` if the chunk is not in the grid.
fn selection_of(array: &OpenArray, part: &ArrayPart) -> Option<Selection> {
    match part {
        ArrayPart::Whole => Some(Selection::whole(&array.array().shape)),
        ArrayPart::Chunk(indices) => {
            let grid = array.stored_grid().ok()?;
            grid.index(indices)?;
            Some(Selection::of_region(&grid.region(indices)))
        }
        ArrayPart::Selected(selection) => Some(selection.clone()),
    }
}

/// Returns the elements of an inner chunk of a shard, or `None` if the array has no such chunk.
fn inner_chunk(array: &OpenArray, shard: &[u64], inner: &[u64]) -> Option<Region> {
    let (stored, pieces) = (array.stored_grid().ok()?, array.decoded_grid().ok()?);
    if array.shard_levels().ok()? == 0 || inner.len() != shard.len() {
        return None;
    }
    stored.index(shard)?;
    let mut indices = Coordinates::new();
    for (axis, (&shard, &inner)) in shard.iter().zip(inner).enumerate() {
        let (start, length) = stored.span(axis, shard);
        let piece = pieces
            .chunk_shape()
            .get(axis)
            .copied()
            .filter(|&piece| piece > 0)?;
        if inner >= length / piece {
            return None;
        }
        indices.push(start / piece + inner);
    }
    pieces.index(&indices)?;
    Some(pieces.region(&indices))
}
