//! Describes a decoded file of a group or array by its name.

use std::sync::Arc;

use crate::formats::group::OrReason;
use crate::formats::{FORMATS, Subject, TakenDimension, cf};
use crate::inspect::coordinates::ArrayInGroup;
use crate::inspect::coordinates::CoordinateLines;
use crate::inspect::file_ending::{FileEnding, GroupChoice, removed_format};
use crate::inspect::group_file::VariableSource;
use crate::inspect::group_file::{GroupSource, PlannedFile};
use crate::inspect::locate::StorePath;
use crate::inspect::locate::root_name;
use crate::inspect::map_nodes::MapSource;
use crate::inspect::surrounding_nodes::SurroundingNodes;
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::{Array, Node};
use zarrfs_array::hierarchy::NodeEntry;
use zarrfs_store::request_context::RequestContext;

/// A decoded file, or the reason why it does not exist.
#[derive(Clone, Debug)]
pub struct NamedFile {
    /// The name of the file.
    pub name: String,
    /// The extension of the format.
    pub format: &'static str,
    /// The data type of its elements, and their number along each dimension.
    pub elements: Option<(String, Vec<u64>)>,
    /// The length in bytes, `None` if that requires reading elements; or the reason why there is no such file.
    pub length: Result<Option<u64>>,
}

impl NamedFile {
    /// Describes the file at a path, or returns `None` if the path cannot be a file of a node.
    pub fn of(context: &RequestContext, located: &StorePath) -> Result<Option<NamedFile>> {
        let (Some(parent), name) = (located.path.parent(), located.path.name()) else {
            return Ok(None);
        };
        let hierarchy = &located.opened.hierarchy;
        let Some(entry) = hierarchy.node(context, &parent)? else {
            return Ok(None);
        };
        let of_array = if parent.is_root() {
            root_name(&located.source).into_bytes()
        } else {
            parent.name().to_vec()
        };
        let Some(ending) = name.strip_prefix(&of_array[..]) else {
            return Ok(None);
        };
        let Some(array) = entry.array() else {
            return of_group(context, located, &entry, name, ending);
        };
        let place = ArrayInGroup {
            hierarchy,
            arrays: &located.opened.arrays,
            entry: &entry,
        };
        describe(context, &place, array, name, ending).map(Some)
    }
}

/// Describes the file of a group with all of its arrays, or returns `None` if the ending names no format.
fn of_group(
    context: &RequestContext,
    located: &StorePath,
    group: &Arc<NodeEntry>,
    name: &[u8],
    ending: &[u8],
) -> Result<Option<NamedFile>> {
    let Ok(Node::Group(_)) = &group.node else {
        return Ok(None);
    };
    if let Some(removed) = removed_format(ending) {
        let name = String::from_utf8_lossy(name).into_owned();
        return Ok(Some(NamedFile {
            format: removed.extension,
            elements: None,
            length: Err(removed.error(&name)),
            name,
        }));
    }
    let Some(choice) = GroupChoice::of_group(ending) else {
        return Ok(None);
    };
    let source = GroupSource {
        hierarchy: &located.opened.hierarchy,
        arrays: &located.opened.arrays,
        group,
    };
    Ok(Some(NamedFile {
        name: String::from_utf8_lossy(name).into_owned(),
        format: choice.format.extension,
        elements: None,
        length: length_of(context, group, &choice, source.file(context, &choice)),
    }))
}

/// Returns the length of a file of several arrays.
fn length_of(
    context: &RequestContext,
    node: &NodeEntry,
    choice: &GroupChoice<'_>,
    answer: Result<OrReason<PlannedFile>>,
) -> Result<Option<u64>> {
    match answer? {
        Ok(file) => file.length(context).map(Some),
        Err(why) => Err(Error::unsupported(
            &node.path,
            format!("{}: {why}", choice.format.extension),
        )),
    }
}

fn describe(
    context: &RequestContext,
    place: &ArrayInGroup<'_>,
    array: &Array,
    name: &[u8],
    ending: &[u8],
) -> Result<NamedFile> {
    let mut file = NamedFile {
        name: String::from_utf8_lossy(name).into_owned(),
        format: "",
        elements: None,
        length: Ok(None),
    };
    if let Some(removed) = removed_format(ending) {
        file.format = removed.extension;
        file.length = Err(removed.error(&file.name));
        return Ok(file);
    }
    let of_array = name.strip_suffix(ending).unwrap_or_default();
    let Some(ending) = FileEnding::parse(ending) else {
        if let Some(choice) = GroupChoice::of_variable(ending) {
            let source = VariableSource {
                hierarchy: place.hierarchy,
                arrays: place.arrays,
                array: place.entry,
                name: of_array,
            };
            file.format = choice.format.extension;
            file.length = length_of(context, place.entry, &choice, source.file(context, &choice));
            return Ok(file);
        }
        let names: Vec<&str> = FORMATS.iter().map(|format| format.extension).collect();
        let why = format!("its ending names no format; there are {}", names.join(", "));
        file.length = Err(Error::new(Kind::NotFound, &file.name, why));
        return Ok(file);
    };
    file.format = ending.format.extension;
    let wanted = ArrayFile {
        array,
        name: of_array,
        ending: &ending,
    };
    file.length = wanted.length(context, place, &mut file.elements);
    Ok(file)
}

/// A file of an array.
struct ArrayFile<'a> {
    array: &'a Array,
    name: &'a [u8],
    ending: &'a FileEnding<'a>,
}

impl ArrayFile<'_> {
    /// Returns the length of the file, or `None` if it depends on elements. Fails if there is no such file.
    fn length(
        &self,
        context: &RequestContext,
        place: &ArrayInGroup<'_>,
        elements: &mut Option<(String, Vec<u64>)>,
    ) -> Result<Option<u64>> {
        let ArrayFile {
            array,
            name,
            ending,
        } = *self;
        let open = place.arrays.open(place.entry)?;
        let selection = place.select(context, ending.selection.unwrap_or("..."))?;
        let (shape, taken) = (selection.shape(), TakenDimension::of_selection(&selection));
        let refused = |why: &str| {
            let found = format!("{}: {why}", ending.format.extension);
            Error::unsupported(open.path(), found)
        };
        let decoded = ending.is_cf_decoded.then(|| cf::decoded(array)).transpose();
        let decoded = decoded.map_err(|why| refused(&why.to_string()))?;
        let described = decoded.as_ref().map_or(array, |decoded| &decoded.array);
        *elements = Some((described.data_type.to_string(), shape.clone()));
        let around = SurroundingNodes::of(context, place.hierarchy, place.entry)?;
        let mut around = around.with_numbers(context, place.hierarchy, place.arrays)?;
        if ending.format.is_map() {
            let source = MapSource {
                hierarchy: place.hierarchy,
                arrays: place.arrays,
                lines: &CoordinateLines::default(),
            };
            around = source.add_to(context, around, place.entry)?;
        }
        let subject = Subject {
            name,
            chosen: ending.chosen,
            around: around.attributes(),
            taken: ending.selection.map(|_| &taken[..]),
            ..Subject::alone(described, &shape)
        };
        open.check_decodable()?;
        if let Some(why) = ending.format.unmet_needs(&subject) {
            return Err(refused(&why));
        }
        if ending.format.is_made(described) {
            return Ok(None);
        }
        let mut parts = ending.format.parts_of(&open, &subject)?;
        let size = array.element_size()?;
        if let Some(conversion) = decoded
            .as_ref()
            .and_then(|decoded| decoded.conversion.as_ref())
        {
            parts = parts.after(conversion, size);
        }
        parts.len(&shape, size).map(Some)
    }
}
