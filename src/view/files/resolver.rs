//! Resolves the paths of the files view.
//!
//! The files of an array are `NAME.EXT`, `NAME.cf.EXT` and `NAME@SELECTION.EXT`, and the files in `chunks/`. Names are
//! not cached: each lookup evaluates the selection again. `GROUP.nc` has all arrays of a group, `NAME.nc` an array with
//! its coordinates. Files of these two kinds depend on other nodes, so their names are never resolved in a call that
//! must not wait.

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

/// The name of a node's metadata document in the directory of the node, which Zarr libraries open.
const PLAIN_DOCUMENT: &[u8] = ZARR_JSON.as_bytes();

/// Resolves the paths of the files view to nodes of a hierarchy and their files.
pub(super) struct PathResolver {
    pub(super) hierarchy: Arc<Hierarchy>,
    pub(super) arrays: Arc<Arrays>,
    /// The hierarchy as an uncompressed Zarr v3 store.
    pub(super) plain: PlainView,
    /// The base name of the files of the root node.
    pub(super) root_name: Box<[u8]>,
    pub(super) lines: CoordinateLines,
    pub(super) scratch_files: ScratchFiles,
    pub(super) pairs: HeaderDataPairs,
}

impl PathResolver {
    /// Returns the file or directory at a path, or `None` if the path does not exist.
    pub(super) fn lookup(&self, context: &RequestContext, path: &Key) -> Result<Option<PathEntry>> {
        no_file_is_none(self.lookup_or_reason(context, path))
    }

    /// Returns the file or directory at a path, or `None` if it does not exist. Fails with `NoFile` and the reason if
    /// the path names a decoded file that cannot be generated.
    pub(super) fn lookup_or_reason(
        &self,
        context: &RequestContext,
        path: &Key,
    ) -> Result<Option<PathEntry>> {
        self.lookup_with(path, || self.resolve_or_reason(context, path))
    }

    /// Returns the file or directory at a path. What `resolve` finds in the store takes precedence over a scratch file,
    /// except for an `attributes.json` that a program has unlinked.
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

    /// Returns the state of an `attributes.json` that was unlinked or renamed, or `None` for any other file.
    fn replacement(&self, path: &Key) -> Option<Replacement> {
        let is_document = path.name() == ATTRIBUTES;
        is_document
            .then(|| self.scratch_files.replacement(path))
            .flatten()
    }

    /// Returns the names of the generated documents that a node's directory has.
    pub(super) fn document_names(&self, node: &Key) -> Vec<Vec<u8>> {
        let attributes = node.child(ATTRIBUTES).ok();
        let replacement = attributes.and_then(|path| self.scratch_files.replacement(&path));
        let mut names = vec![METADATA.to_vec()];
        if !matches!(replacement, Some(Replacement::Nothing)) {
            names.push(ATTRIBUTES.to_vec());
        }
        names
    }

    /// Returns what a path names in the store, or `None` if the path does not exist. Resolves the path from the root.
    pub(super) fn resolve(
        &self,
        context: &RequestContext,
        path: &Key,
    ) -> Result<Option<PathTarget>> {
        no_file_is_none(self.resolve_or_reason(context, path))
    }

    /// Returns what a path names in the store, or `None` if the path does not exist. Fails with `NoFile` and the reason
    /// for a decoded file that cannot be generated.
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

    /// Returns what a name in a resolved directory refers to, or `None`. Fails with `NoFile` for a decoded file that
    /// cannot be generated. If the directory has changed, resolves the whole path again.
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

    /// Resolves a path relative to the node `node`, whose parent is `group`.
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

    /// Resolves the path `rest` in the directory of a node that cannot be read. Fails with `Unsupported` for the files
    /// that a readable node would have, and for all paths below an unreadable entry point of a Zarr v3 draft, so that
    /// they do not look missing.
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
        // The names of metadata files are treated as missing, which Zarr libraries accept when they look for one. They
        // accept no other error.
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

    /// Resolves the path `rest` in the directory of an array.
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
            // In a node's directory, `zarr.json` and `c/` are the files of an uncompressed Zarr v3 store.
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

    /// Resolves the path `rest` in a node's directory as in an uncompressed Zarr v3 store.
    fn plain_place(
        &self,
        context: &RequestContext,
        entry: &Arc<NodeEntry>,
        rest: &[&[u8]],
    ) -> Result<Option<PathTarget>> {
        let place = self.plain.below_node(context, entry.clone(), rest)?;
        Ok(place.map(|place| PathTarget::Plain(entry.clone(), Box::new(place))))
    }

    /// Resolves the name of an array's file from its ending, which follows the name of the array.
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
        // The file also contains the coordinates of the array, which must be read.
        context.check_may_wait()?;
        let target = self.variable_target(context, place.entry, &choice)?;
        Ok(Some(PathTarget::GroupFile(Box::new(target))))
    }

    /// Resolves the name of a file that contains all arrays of a group.
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
        // The file contains all nodes of the group, which must be read.
        context.check_may_wait()?;
        let target = self.group_target(context, entry, &choice)?;
        Ok(Some(PathTarget::GroupFile(Box::new(target))))
    }

    /// Returns the file of an array with the given ending. Fails with `NoFile` and the reason if the selection in the
    /// name is invalid.
    pub(super) fn named_file(
        &self,
        context: &RequestContext,
        mut place: ArrayPlace,
        ending: FileEnding<'_>,
    ) -> Result<Option<Box<DecodedTarget>>> {
        // A format that is not basic has a header that contains metadata of other nodes.
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
                // The file exists although its length is unknown, and the open returns the error.
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

    /// Parses the selection in a file name. Fails with `NoFile` and the reason if it is invalid.
    pub(super) fn selected(
        &self,
        context: &RequestContext,
        place: &ArrayPlace,
        text: &str,
    ) -> Result<Selection> {
        if names_dimensions(text) {
            // A selection by labels needs the values of coordinates from the store.
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

    /// Resolves names in the directory of chunks: `0.3.1.npy`, a chunk of the grid, and `0.3.1@2.0.1.npy`, an inner
    /// chunk of a shard. Only basic formats are found. The chunk of a 0-dimensional array is `0`.
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

    /// Returns the file of the elements `part` of an array, or `None` if the array has no such part. Fails with
    /// `NoFile` if the format cannot express them.
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

    /// Returns the file of a group that `choice` names. Fails with `NoFile` and the reason if it cannot be generated.
    pub(super) fn group_target(
        &self,
        context: &RequestContext,
        entry: Arc<NodeEntry>,
        choice: &GroupChoice<'_>,
    ) -> Result<GroupTarget> {
        let answer = self.group_source(&entry).file(context, choice);
        target_of(entry, choice, answer)
    }

    /// Returns the file of an array with its coordinates. Fails with `NoFile` and the reason if it cannot be generated.
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

    /// Returns the names of the files that contain all arrays of a group, or an array with its coordinates. Includes
    /// files that an error prevents from being generated, so that the open reports the error.
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
            // The file needs all names of the group, which the store cannot list.
            Some(Err(error)) => error.kind() != Kind::Unsupported,
            None => false,
        };
        let formats = formats.iter().filter(opens);
        formats
            .map(|format| [self.name_of(entry), b".", format.extension.as_bytes()].concat())
            .filter(|name| entry.path.child(name).is_ok())
            .collect()
    }

    /// Returns an array, and the nodes from which its files take metadata.
    pub(super) fn place_of(
        &self,
        context: &RequestContext,
        entry: &Arc<NodeEntry>,
    ) -> Result<ArrayPlace> {
        let around = SurroundingNodes::of(context, &self.hierarchy, entry)?;
        let entry = entry.clone();
        Ok(ArrayPlace { entry, around })
    }

    /// Returns the description of the whole array that file formats need, or `None` for a group.
    pub(super) fn whole_of<'a>(&'a self, place: &'a ArrayPlace) -> Option<Subject<'a>> {
        let shape = &place.entry.array()?.shape;
        place.subject(self.name_of(&place.entry), shape)
    }

    pub(super) fn file_name(&self, entry: &NodeEntry, format: &Format) -> Vec<u8> {
        [self.name_of(entry), b".", format.extension.as_bytes()].concat()
    }

    /// Returns the base name of a node's files: the node's name, or a fixed name for the root.
    pub(super) fn name_of<'a>(&'a self, entry: &'a NodeEntry) -> &'a [u8] {
        if entry.path.is_root() {
            &self.root_name
        } else {
            entry.path.name()
        }
    }
}

/// Turns the error `NoFile`, which means a decoded file that cannot be generated, into `None`.
pub(super) fn no_file_is_none<T>(entry: Result<Option<T>>) -> Result<Option<T>> {
    match entry {
        Err(error) if error.kind() == Kind::NoFile => Ok(None),
        entry => entry,
    }
}

/// Returns the planned file of a node, or the error `NoFile` with the reason why the file cannot be generated.
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

/// Returns the headers and elements that make up a file, or the error that prevents reading it. Returns `None` if the
/// file does not exist. Fails with `NoFile` if a CF attribute cannot be applied to the elements.
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
    // If the parts of a basic format can be built, the file exists, so `fits` need not build them again.
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

/// Returns the selection of an array for the elements `part`, or `None` if the chunk is not in the grid.
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

/// Returns the elements of an inner chunk of a shard, or `None` if the array has no chunk with these indices.
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
