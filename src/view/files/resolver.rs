//! Resolves the paths of the files view.
//!
//! Array files are `NAME.EXT`, `NAME.cf.EXT` and `NAME@SELECTION.EXT`, and the files in `chunks/`. No name is cached:
//! each lookup evaluates the selection again. `GROUP.nc` has all arrays of a group, `NAME.nc` an array with its
//! coordinates; such a file depends on other nodes, so its name is never resolved in a call that must not wait.

use std::sync::Arc;

use crate::view::files::listed_formats::HeaderDataPairs;
use crate::view::files::node_documents::{raw_name, unreadable_error};
use crate::view::files::path_target::{
    ArrayPart, ArrayPlace, DecodedTarget, GroupTarget, PathEntry, PathTarget,
};
use crate::view::files::scratch_files::{Replacement, ScratchFiles};
use crate::view::files::{ATTRIBUTES, CHUNKS, METADATA, is_unmeasurable};
use crate::view::plain::PlainView;
use crate::view::{ChildName, ERROR_TEXT, ViewDir};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::grid::{Coordinates, NumberedName, Region, Selection};
use zarr_format::model::Node;
use zarr_format::model::document::{ZARR_JSON, is_in_node_folder};
use zarrfs_array::array::{Arrays, OpenArray};
use zarrfs_array::hierarchy::{Hierarchy, NodeEntry};
use zarrfs_export::formats::cf;
use zarrfs_export::formats::cf::NoValues;
use zarrfs_export::formats::group::{GroupFormat, OrReason};
use zarrfs_export::formats::{FileParts, Format, Subject, TakenDimension, VARIABLE_FORMATS};
use zarrfs_export::inspect::coordinates::CoordinateLines;
use zarrfs_export::inspect::coordinates::{ArrayInGroup, names_dimensions};
use zarrfs_export::inspect::file_ending::{
    FileEnding, GroupChoice, SELECTED, format_of, removed_format,
};
use zarrfs_export::inspect::group_file::VariableSource;
use zarrfs_export::inspect::group_file::{GroupSource, PlannedFile};
use zarrfs_export::inspect::surrounding_nodes::MapSource;
use zarrfs_export::inspect::surrounding_nodes::SurroundingNodes;
use zarrfs_store::Key;
use zarrfs_store::request_context::RequestContext;

/// The document of the plain v3 store in the directory of a node.
const PLAIN_DOCUMENT: &[u8] = ZARR_JSON.as_bytes();

/// The nodes of a hierarchy, by the paths of the files view.
pub(super) struct PathResolver {
    pub(super) hierarchy: Arc<Hierarchy>,
    pub(super) arrays: Arc<Arrays>,
    /// The nodes as a plain v3 store, which opens by name.
    pub(super) plain: PlainView,
    /// The base name of the root's own files.
    pub(super) root_name: Box<[u8]>,
    pub(super) lines: CoordinateLines,
    pub(super) scratch_files: ScratchFiles,
    pub(super) pairs: HeaderDataPairs,
}

impl PathResolver {
    /// Returns the entry of a path, or `None` if the path does not exist.
    pub(super) fn lookup(&self, context: &RequestContext, path: &Key) -> Result<Option<PathEntry>> {
        no_file_is_none(self.lookup_or_reason(context, path))
    }

    /// Like `lookup`; `NoFile` with the reason if the path names a decoded file that cannot be made.
    pub(super) fn lookup_or_reason(
        &self,
        context: &RequestContext,
        path: &Key,
    ) -> Result<Option<PathEntry>> {
        self.lookup_with(path, || self.resolve_or_reason(context, path))
    }

    /// Returns the entry of a path whose target `resolve` finds. The target takes precedence over a scratch file, but
    /// not over the replacement of an unlinked document.
    pub(super) fn lookup_with(
        &self,
        path: &Key,
        resolve: impl FnOnce() -> Result<Option<PathTarget>>,
    ) -> Result<Option<PathEntry>> {
        match self.replacement(path) {
            Some(Replacement::Nothing) => return Ok(None),
            Some(Replacement::File(scratch)) => return Ok(Some(PathEntry::Scratch(scratch))),
            None => {}
        }
        let scratch = || self.scratch_files.scratch(path).map(PathEntry::Scratch);
        match resolve() {
            Ok(Some(target)) => Ok(Some(PathEntry::Target(target))),
            Ok(None) => Ok(scratch()),
            Err(error) if error.kind() == Kind::NoFile => scratch().map(Some).ok_or(error),
            Err(error) => Err(error),
        }
    }

    /// Returns the replacement of a document that was unlinked or renamed, or `None` if the document is in place.
    fn replacement(&self, path: &Key) -> Option<Replacement> {
        let is_document = path.name() == ATTRIBUTES;
        is_document
            .then(|| self.scratch_files.replacement(path))
            .flatten()
    }

    /// Returns the names of the documents in the directory of a node.
    pub(super) fn document_names(&self, node: &Key) -> Vec<Vec<u8>> {
        let attributes = node.child(ATTRIBUTES).ok();
        let replacement = attributes.and_then(|path| self.scratch_files.replacement(&path));
        let mut names = vec![METADATA.to_vec()];
        if !matches!(replacement, Some(Replacement::Nothing)) {
            names.push(ATTRIBUTES.to_vec());
        }
        names
    }

    /// Resolves a path from the root down; `None` if the path does not exist.
    pub(super) fn resolve(
        &self,
        context: &RequestContext,
        path: &Key,
    ) -> Result<Option<PathTarget>> {
        no_file_is_none(self.resolve_or_reason(context, path))
    }

    /// Like `resolve`; `NoFile` with the reason if the path names a decoded file that cannot be made.
    fn resolve_or_reason(
        &self,
        context: &RequestContext,
        path: &Key,
    ) -> Result<Option<PathTarget>> {
        let Some(root) = self.hierarchy.root(context)? else {
            return Ok(None);
        };
        let names: Vec<&[u8]> = path.names().collect();
        self.resolve_below(context, root, None, &names)
    }

    /// Like `resolve_or_reason`, for a name in a directory. If the directory has changed since it was resolved, the
    /// whole path is resolved again.
    pub(super) fn resolve_child(
        &self,
        context: &RequestContext,
        dir: &ViewDir,
        name: &ChildName<'_>,
    ) -> Result<Option<PathTarget>> {
        match (dir, &name.numbered, dir.path().parent()) {
            (ViewDir::Node(path), _, parent) => {
                if let Some(node) = self.hierarchy.node(context, path)? {
                    let group = match parent {
                        Some(parent) if node.is_array() => self.hierarchy.node(context, &parent)?,
                        _ => None,
                    };
                    return self.resolve_below(context, node, group, &[name.bytes]);
                }
            }
            (ViewDir::Chunks(_), Some(numbered), Some(array)) => {
                let entry = self.hierarchy.node(context, &array)?;
                if let Some(entry) = entry.filter(|entry| entry.array().is_some()) {
                    let around = SurroundingNodes::default();
                    let file = self.chunk_file(ArrayPlace { entry, around }, numbered)?;
                    return Ok(file.map(PathTarget::Decoded));
                }
            }
            _ => {}
        }
        self.resolve_or_reason(context, &dir.path().child(name.bytes)?)
    }

    /// Resolves names below a node whose parent is `group`.
    fn resolve_below(
        &self,
        context: &RequestContext,
        mut node: Arc<NodeEntry>,
        mut group: Option<Arc<NodeEntry>>,
        names: &[&[u8]],
    ) -> Result<Option<PathTarget>> {
        let mut rest = names;
        while let Some((name, after)) = rest.split_first() {
            if node.array().is_some() {
                let around = SurroundingNodes::of_group(group);
                let place = ArrayPlace {
                    entry: node,
                    around,
                };
                return self.within_array(context, place, rest);
            }
            match self.hierarchy.child(context, &node, name)? {
                Some(child) => group = Some(std::mem::replace(&mut node, child)),
                None if node.broken.is_some() => return self.within_unreadable(node, rest),
                None => return self.group_file(context, node, rest),
            }
            rest = after;
        }
        Ok(Some(PathTarget::Node(node)))
    }

    /// Resolves `rest` in the directory of a broken node. Fails with `Unsupported` for the files that the directory
    /// would have if the node could be read, and for all paths below a broken entry point: these paths must not look
    /// missing.
    fn within_unreadable(
        &self,
        entry: Arc<NodeEntry>,
        rest: &[&[u8]],
    ) -> Result<Option<PathTarget>> {
        let [name, ref below @ ..] = *rest else {
            return Ok(None);
        };
        let mut documents = entry.broken.iter().flat_map(|broken| &broken.documents);
        let document = documents
            .find(|document| raw_name(document) == name)
            .cloned();
        let ending = name.strip_prefix(self.name_of(&entry));
        let broken = entry.broken.as_ref();
        let is_entry_point = broken.is_some_and(|broken| broken.is_entry_point);
        // Names of metadata files are not included: a Zarr library that looks for one accepts that it is missing, but
        // no other error.
        let is_hidden = is_entry_point && !is_in_node_folder(name);
        let is_own = [METADATA, ATTRIBUTES, CHUNKS].contains(&name)
            || ending.is_some_and(|ending| {
                FileEnding::parse(ending).is_some() || GroupChoice::of_variable(ending).is_some()
            });
        Ok(match document {
            Some(document) if below.is_empty() => Some(PathTarget::RawDocument(entry, document)),
            None if below.is_empty() && name == ERROR_TEXT.as_bytes() => {
                Some(PathTarget::ErrorText(entry))
            }
            None if is_own || is_hidden => return Err(unreadable_error(&entry)),
            _ => None,
        })
    }

    /// Resolves `rest` in an array's directory.
    fn within_array(
        &self,
        context: &RequestContext,
        place: ArrayPlace,
        rest: &[&[u8]],
    ) -> Result<Option<PathTarget>> {
        let entry = &place.entry;
        Ok(match *rest {
            [name @ (METADATA | ATTRIBUTES)] => {
                Some(PathTarget::Document(entry.clone(), name.to_vec()))
            }
            [CHUNKS] => Some(PathTarget::Chunks(entry.clone())),
            // `c` has the chunks of the plain v3 store.
            [PLAIN_DOCUMENT | b"c", ..] => self.plain_place(context, entry, rest)?,
            [name] => {
                let ending = name.strip_prefix(self.name_of(entry));
                self.array_file(context, place, ending.unwrap_or_default())?
            }
            [CHUNKS, name] => {
                let file = match NumberedName::parse(name) {
                    Some(name) => self.chunk_file(place, &name)?,
                    None => None,
                };
                file.map(PathTarget::Decoded)
            }
            _ => None,
        })
    }

    /// Resolves names in a node's folder of the plain v3 store.
    fn plain_place(
        &self,
        context: &RequestContext,
        entry: &Arc<NodeEntry>,
        rest: &[&[u8]],
    ) -> Result<Option<PathTarget>> {
        let place = self.plain.below_node(context, entry.clone(), rest)?;
        Ok(place.map(|place| PathTarget::Plain(entry.clone(), Box::new(place))))
    }

    /// Resolves the file of an array by its ending after the array's name.
    fn array_file(
        &self,
        context: &RequestContext,
        place: ArrayPlace,
        ending: &[u8],
    ) -> Result<Option<PathTarget>> {
        if let Some(removed) = removed_format(ending) {
            return Err(removed.error(&place.entry.path));
        }
        if let Some(ending) = FileEnding::parse(ending) {
            let file = self.named_file(context, place, ending)?;
            if let Some(file) = &file {
                self.pairs.record_lookup(&file.entry.path, &ending);
            }
            return Ok(file.map(PathTarget::Decoded));
        }
        let Some(choice) = GroupChoice::of_variable(ending) else {
            return Ok(None);
        };
        // The file also depends on the array's coordinates.
        context.check_may_wait()?;
        let target = self.variable_target(context, place.entry, &choice)?;
        Ok(Some(PathTarget::GroupFile(Box::new(target))))
    }

    /// Resolves a group's own file.
    fn group_file(
        &self,
        context: &RequestContext,
        entry: Arc<NodeEntry>,
        rest: &[&[u8]],
    ) -> Result<Option<PathTarget>> {
        let [name] = *rest else {
            return Ok(None);
        };
        if [METADATA, ATTRIBUTES].contains(&name) {
            return Ok(Some(PathTarget::Document(entry, name.to_vec())));
        }
        if name == PLAIN_DOCUMENT {
            return self.plain_place(context, &entry, rest);
        }
        let Some(ending) = name.strip_prefix(self.name_of(&entry)) else {
            return Ok(None);
        };
        if let Some(removed) = removed_format(ending) {
            return Err(removed.error(&entry.path));
        }
        let Some(choice) = GroupChoice::of_group(ending) else {
            return Ok(None);
        };
        // The file depends on all nodes of the group.
        context.check_may_wait()?;
        let target = self.group_target(context, entry, &choice)?;
        Ok(Some(PathTarget::GroupFile(Box::new(target))))
    }

    /// Finds the file of an array by its ending. An invalid selection is `NoFile`, with the reason.
    pub(super) fn named_file(
        &self,
        context: &RequestContext,
        mut place: ArrayPlace,
        ending: FileEnding<'_>,
    ) -> Result<Option<Box<DecodedTarget>>> {
        // The header of a format that is not basic depends on other nodes.
        if !ending.format.is_basic {
            let find = |path: &Key| self.hierarchy.node(context, path);
            let around = place.around.with_others(&place.entry, &find)?;
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
            match source.add_to(context, around, &place.entry) {
                Ok(around) => place.around = around,
                // The file exists; opening it returns this error.
                Err(error) if is_unmeasurable(error.kind()) => fault = Some(error),
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
            entry: &place.entry,
        };
        let selection = array.select(context, text);
        selection.map_err(|error| match error.kind() {
            Kind::Invalid => Error::new(Kind::NoFile, &place.entry.path, error),
            _ => error,
        })
    }

    /// Finds `0.3.1.npy`, a chunk of the grid, and `0.3.1@2.0.1.npy`, an inner chunk of a shard, in a basic format. The
    /// chunk of a 0-dimensional array is `0`.
    pub(super) fn chunk_file(
        &self,
        place: ArrayPlace,
        name: &NumberedName<'_>,
    ) -> Result<Option<Box<DecodedTarget>>> {
        let array = self.arrays.open(&place.entry)?;
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
    ) -> Result<Option<Box<DecodedTarget>>> {
        let array = self.arrays.open(&place.entry)?;
        let Some(selection) = selection_of(&array, &part) else {
            return Ok(None);
        };
        let (shape, name) = (selection.shape(), self.name_of(&place.entry));
        let Some(mut subject) = place.subject(name, &shape) else {
            return Ok(None);
        };
        let taken = TakenDimension::of_selection(&selection);
        subject.chosen = ending.chosen;
        subject.taken = matches!(part, ArrayPart::Selected(_)).then_some(&taken[..]);
        let Some(parts) = parts_of(&array, subject, &ending)? else {
            let format = ending.format;
            let why = format.unmet_needs(&subject);
            let why = why.unwrap_or_else(|| format!("needs {}", format.needs));
            let why = format!("{}: {why}", format.extension);
            return Err(Error::new(Kind::NoFile, &place.entry.path, why));
        };
        Ok(Some(Box::new(DecodedTarget {
            entry: place.entry.clone(),
            array,
            format: ending.format,
            part,
            selection,
            is_cf_decoded: ending.is_cf_decoded,
            parts,
        })))
    }

    /// Returns the file of a group for a name; `NoFile` with the reason if it cannot be made.
    pub(super) fn group_target(
        &self,
        context: &RequestContext,
        entry: Arc<NodeEntry>,
        choice: &GroupChoice<'_>,
    ) -> Result<GroupTarget> {
        let answer = self.group_source(&entry).file(context, choice);
        target_of(entry, choice, answer)
    }

    /// Returns the file of an array with its coordinates for a name; fails as `group_target`.
    pub(super) fn variable_target(
        &self,
        context: &RequestContext,
        entry: Arc<NodeEntry>,
        choice: &GroupChoice<'_>,
    ) -> Result<GroupTarget> {
        let answer = self.variable_source(&entry).file(context, choice);
        target_of(entry, choice, answer)
    }

    fn variable_source<'a>(&'a self, array: &'a Arc<NodeEntry>) -> VariableSource<'a> {
        VariableSource {
            hierarchy: &self.hierarchy,
            arrays: &self.arrays,
            array,
            name: self.name_of(array),
        }
    }

    fn group_source<'a>(&'a self, group: &'a Arc<NodeEntry>) -> GroupSource<'a> {
        GroupSource {
            hierarchy: &self.hierarchy,
            arrays: &self.arrays,
            group,
        }
    }

    /// Returns the names of a group's files with all of its arrays, or of an array's files with its coordinates.
    /// Includes files that cannot be planned because of an error: opening them returns the error.
    pub(super) fn group_file_names(
        &self,
        context: &RequestContext,
        entry: &Arc<NodeEntry>,
        formats: &[&'static GroupFormat],
    ) -> Vec<Vec<u8>> {
        let is_variable = |format: &GroupFormat| {
            let mut formats = VARIABLE_FORMATS.iter();
            formats.any(|known| known.extension == format.extension)
        };
        let file = |format: &'static GroupFormat| {
            let choice = GroupChoice::whole(format);
            match &entry.node {
                Ok(Node::Group(_)) => Some(self.group_source(entry).file(context, &choice)),
                Ok(Node::Array(_)) if is_variable(format) => {
                    Some(self.variable_source(entry).file(context, &choice))
                }
                _ => None,
            }
        };
        let opens = |format: &&&'static GroupFormat| match file(format) {
            Some(Ok(answer)) => answer.is_ok(),
            // The store cannot list names, so the file cannot be made.
            Some(Err(error)) => error.kind() != Kind::Unsupported,
            None => false,
        };
        let formats = formats.iter().filter(opens);
        formats
            .map(|format| [self.name_of(entry), b".", format.extension.as_bytes()].concat())
            .filter(|name| entry.path.child(name).is_ok())
            .collect()
    }

    /// Returns an array and its surrounding nodes.
    pub(super) fn place_of(
        &self,
        context: &RequestContext,
        entry: &Arc<NodeEntry>,
    ) -> Result<ArrayPlace> {
        let around = SurroundingNodes::of(context, &self.hierarchy, entry)?;
        let entry = entry.clone();
        Ok(ArrayPlace { entry, around })
    }

    /// Returns the whole array as formats see it, or `None` for a group.
    pub(super) fn whole_of<'a>(&'a self, place: &'a ArrayPlace) -> Option<Subject<'a>> {
        let shape = &place.entry.array()?.shape;
        place.subject(self.name_of(&place.entry), shape)
    }

    /// Returns the name of an array's file in a format.
    pub(super) fn file_name(&self, entry: &NodeEntry, format: &Format) -> Vec<u8> {
        [self.name_of(entry), b".", format.extension.as_bytes()].concat()
    }

    /// Returns the base name of a node's own files.
    pub(super) fn name_of<'a>(&'a self, entry: &'a NodeEntry) -> &'a [u8] {
        if entry.path.is_root() {
            &self.root_name
        } else {
            entry.path.name()
        }
    }
}

/// Maps `NoFile`, a decoded file that cannot be made, to `None`.
pub(super) fn no_file_is_none<T>(entry: Result<Option<T>>) -> Result<Option<T>> {
    match entry {
        Err(error) if error.kind() == Kind::NoFile => Ok(None),
        entry => entry,
    }
}

/// Returns the file of a node, or `NoFile` with the reason if it cannot be made.
fn target_of(
    entry: Arc<NodeEntry>,
    choice: &GroupChoice<'_>,
    answer: Result<OrReason<PlannedFile>>,
) -> Result<GroupTarget> {
    let extension = choice.format.extension;
    let no_file = |why: String| {
        let why = format!("{extension}: {why}");
        Err(Error::new(Kind::NoFile, &entry.path, why))
    };
    match answer {
        Ok(Ok(file)) => Ok(GroupTarget {
            entry,
            file: Box::new(file),
        }),
        Ok(Err(why)) => no_file(why),
        Err(error) if error.kind() == Kind::Invalid => no_file(error.to_string()),
        Err(error) => Err(error),
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
    let decoded = match ending.is_cf_decoded.then(|| cf::decoded(subject.array)) {
        Some(Err(NoValues::NotNumbers)) => return Ok(None),
        Some(Err(why)) => return Err(Error::new(Kind::NoFile, array.path(), why)),
        decoded => decoded.and_then(std::result::Result::ok),
    };
    let described = decoded
        .as_ref()
        .map_or(subject.array, |decoded| &decoded.array);
    let subject = Subject {
        array: described,
        ..subject
    };
    // Made only once: for a format that is not basic, the parts say whether the file exists.
    let parts = format.parts_of(array, &subject);
    if (parts.is_err() || !format.is_basic) && !format.fits(&subject) {
        return Ok(None);
    }
    let conversion = decoded
        .as_ref()
        .and_then(|decoded| decoded.conversion.as_ref());
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
    let (stored, chunks) = (array.stored_grid().ok()?, array.decoded_grid().ok()?);
    if array.shard_levels().ok()? == 0 || inner.len() != shard.len() {
        return None;
    }
    stored.index(shard)?;
    let mut indices = Coordinates::new();
    for (axis, (&shard, &inner)) in shard.iter().zip(inner).enumerate() {
        let (start, length) = stored.span(axis, shard);
        let chunk = chunks
            .chunk_shape()
            .get(axis)
            .copied()
            .filter(|&chunk| chunk > 0)?;
        if inner >= length / chunk {
            return None;
        }
        indices.push(start / chunk + inner);
    }
    chunks.index(&indices)?;
    Some(chunks.region(&indices))
}
