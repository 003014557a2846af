//! Plans `NAME.nc4`: an array with its coordinates and grid mapping in one file.
//!
//! Coordinates are the coordinate variables of its dimensions and the arrays in its attribute `coordinates`, with the
//! bounds of all of these. They are in the group of the array, or in the nearest group above that has them.

use std::sync::Arc;

use crate::formats::axes::axes_of;
use crate::formats::group::{GroupContents, GroupFormat, GroupMember, MemberSource, OrWhyNot};
use crate::formats::{Subject, VARIABLE_FORMATS};
use crate::inspect::companions::{companions, name_without_paths};
use crate::inspect::coordinates::ArrayInGroup;
use crate::inspect::file_ending::GroupChoice;
use crate::inspect::file_members::{self, Cut};
use crate::inspect::group_file::PlannedFile;
use crate::inspect::surrounding_nodes::SurroundingNodes;
use zarr_format::error::Result;
use zarr_format::model::{Array, Attributes};
use zarrfs_array::array::Arrays;
use zarrfs_array::hierarchy::{Hierarchy, NodeEntry};
use zarrfs_store::request_context::RequestContext;

/// An array whose files are made.
#[derive(Clone, Copy)]
pub struct VariableSource<'a> {
    /// The hierarchy of the array.
    pub hierarchy: &'a Hierarchy,
    /// The open arrays of the hierarchy.
    pub arrays: &'a Arrays,
    /// The array.
    pub array: &'a Arc<NodeEntry>,
    /// The name of its files, without an ending.
    pub name: &'a [u8],
}

impl VariableSource<'_> {
    /// Returns each format, with the file or the reason why the array has none.
    pub fn formats(
        &self,
        context: &RequestContext,
    ) -> Result<Vec<(&'static GroupFormat, OrWhyNot<PlannedFile>)>> {
        let formats = VARIABLE_FORMATS.iter();
        let answers = formats.map(|&format| {
            let file = self.file(context, &GroupChoice::whole(format))?;
            Ok((format, file))
        });
        answers.collect()
    }

    /// Returns the requested file, or the reason why there is none. Fails with `Invalid` if the selection has no
    /// meaning in the array.
    pub fn file(
        &self,
        context: &RequestContext,
        choice: &GroupChoice<'_>,
    ) -> Result<OrWhyNot<PlannedFile>> {
        let around = SurroundingNodes::of(context, self.hierarchy, self.array)?;
        let (Some(array), Ok(name)) = (self.array.array(), str::from_utf8(self.name)) else {
            return Ok(Err("the name is not UTF-8".to_string()));
        };
        let open = self.arrays.open(self.array)?;
        if let Err(error) = open.check_decodable() {
            return Ok(Err(error.to_string()));
        }
        let own = GroupMember {
            path: name.to_string(),
            array: Arc::new(self.named(array, &around)),
            source: Some(MemberSource::whole(open)),
        };
        let cut = match choice.selection {
            Some(text) => {
                let place = ArrayInGroup {
                    hierarchy: self.hierarchy,
                    arrays: self.arrays,
                    entry: self.array,
                };
                Cut::of_variable(&own, place.select_with_coordinates(context, text)?)?
            }
            None => Cut::default(),
        };
        let group = around
            .group
            .as_ref()
            .and_then(|group| group.node.as_ref().ok());
        let attributes = group.map_or_else(Attributes::default, |group| group.attributes().clone());
        let mut contents = GroupContents {
            attributes,
            subgroups: Vec::new(),
            members: vec![own],
            left_out: Vec::new(),
        };
        self.add_companions(context, &mut contents)?;
        if choice.is_meant
            && let Some(why) = file_members::why_not_meant(&contents.members, name, choice.format)
        {
            return Ok(Err(why.to_string()));
        }
        PlannedFile::of(context, (choice, &cut), contents)
    }

    /// Returns the array with the dimension names that its group defines.
    fn named(&self, array: &Array, around: &SurroundingNodes) -> Array {
        let axes = axes_of(&Subject {
            name: self.name,
            around: around.attributes(),
            ..Subject::alone(array, &array.shape)
        });
        Array {
            dimension_names: axes.into_iter().map(|axis| axis.name).collect(),
            ..array.clone()
        }
    }

    /// Adds the variables that belong to the array, which is the only member.
    fn add_companions(&self, context: &RequestContext, contents: &mut GroupContents) -> Result<()> {
        let Some(own) = contents.members.first() else {
            return Ok(());
        };
        for companion in companions(context, self.hierarchy, self.array, &own.array)? {
            companion.add_to(self.arrays, contents)?;
        }
        name_without_paths(&mut contents.members);
        Ok(())
    }
}
