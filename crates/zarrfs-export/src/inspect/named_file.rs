//! Describes an exported file of a group or array by its name.

use crate::formats::group::OrReason;
use crate::formats::{FORMATS, Subject, TakenDimension, VARIABLE_FORMATS, cf};
use crate::inspect::coordinates::{ArrayInGroup, CoordinateLines};
use crate::inspect::file_ending::{FileEnding, GroupChoice, removed_format};
use crate::inspect::group_file::{GroupSource, PlannedFile, VariableSource};
use crate::inspect::locate::{StorePath, root_name};
use crate::inspect::surrounding_nodes::{MapSource, SurroundingNodes};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::Array;
use zarrfs_array::hierarchy::NodeEntry;
use zarrfs_store::request_context::RequestContext;

/// The description of an exported file, or the reason why the file does not exist.
#[derive(Clone, Debug)]
pub struct NamedFile {
    /// The name of the file.
    pub name: String,
    /// The extension of the file's format.
    pub format: &'static str,
    /// The data type and the shape of the file's elements.
    pub elements: Option<(String, Vec<u64>)>,
    /// The length of the file in bytes, `None` if it can be found only by reading elements, or the reason why the file
    /// does not exist.
    pub length: Result<Option<u64>>,
}

impl NamedFile {
    /// Describes the exported file at a path, or returns `None` if the path cannot be a file of a node.
    pub fn of(context: &RequestContext, located: &StorePath) -> Result<Option<NamedFile>> {
        let (Some(parent), name) = (located.path.parent(), located.path.name()) else {
            return Ok(None);
        };
        let hierarchy = &located.opened.hierarchy;
        let Some(entry) = hierarchy.node(context, &parent)? else {
            return Ok(None);
        };
        let node_name = if parent.is_root() {
            root_name(&located.source).into_bytes()
        } else {
            parent.name().to_vec()
        };
        let Some(ending) = name.strip_prefix(&node_name[..]) else {
            return Ok(None);
        };
        if entry.node.is_err() {
            return Ok(None);
        }
        let mut file = NamedFile {
            name: String::from_utf8_lossy(name).into_owned(),
            format: "",
            elements: None,
            length: Ok(None),
        };
        if let Some(removed) = removed_format(ending) {
            file.format = removed.extension;
            file.length = Err(removed.error(&file.name));
            return Ok(Some(file));
        }
        if let Some(array) = entry.array() {
            let place = ArrayInGroup {
                hierarchy,
                arrays: &located.opened.arrays,
                entry: &entry,
            };
            file.describe_array(context, &place, array, &node_name, ending);
            return Ok(Some(file));
        }
        let Some(choice) = GroupChoice::of_group(ending) else {
            return Ok(None);
        };
        let source = GroupSource {
            hierarchy,
            arrays: &located.opened.arrays,
            group: &entry,
        };
        file.format = choice.format.extension;
        file.length = length_of(context, &entry, &choice, source.file(context, &choice));
        Ok(Some(file))
    }

    /// Describes the file of an array whose name ends with `ending`.
    fn describe_array(
        &mut self,
        context: &RequestContext,
        place: &ArrayInGroup<'_>,
        array: &Array,
        name: &[u8],
        ending: &[u8],
    ) {
        if let Some(ending) = FileEnding::parse(ending) {
            self.format = ending.format.extension;
            let file = ArrayFile {
                array,
                name,
                ending: &ending,
            };
            self.length = file.length(context, place, &mut self.elements);
        } else if let Some(choice) = GroupChoice::of_variable(ending) {
            let source = VariableSource {
                hierarchy: place.hierarchy,
                arrays: place.arrays,
                array: place.entry,
                name,
            };
            self.format = choice.format.extension;
            self.length = length_of(context, place.entry, &choice, source.file(context, &choice));
        } else {
            let alone = FORMATS.iter().map(|format| format.extension);
            let grouped = VARIABLE_FORMATS.iter().map(|format| format.extension);
            let names: Vec<&str> = alone.chain(grouped).collect();
            let why = format!(
                "the file name does not end in a format; choose one of {}",
                names.join(", ")
            );
            self.length = Err(Error::new(Kind::NotFound, &self.name, why));
        }
    }
}

/// Returns the length in bytes of a file with several arrays. Fails with the reason if there is no such file.
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

/// An exported file of a single array.
struct ArrayFile<'a> {
    array: &'a Array,
    name: &'a [u8],
    ending: &'a FileEnding<'a>,
}

impl ArrayFile<'_> {
    /// Returns the length of the file in bytes, or `None` if it depends on elements. Fails with the reason if there is
    /// no such file.
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
