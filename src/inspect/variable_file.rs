//! `NAME.nc4`: an array with its coordinates and the variable of its map as one file.
//!
//! Coordinates are the coordinate variables of its dimensions and the arrays that its attribute `coordinates` names, with
//! the bounds of all of these; they are in the group of the array.

use std::sync::Arc;

use serde_json::Value;

use crate::array::Arrays;
use crate::error::Result;
use crate::export::axes::axes_of;
use crate::export::group::{GroupContents, GroupFormat, GroupMember, MemberSource, OrWhyNot};
use crate::export::{Subject, VARIABLE_FORMATS};
use crate::hierarchy::{Hierarchy, NodeEntry};
use crate::inspect::coordinates::ArrayInGroup;
use crate::inspect::file_ending::GroupChoice;
use crate::inspect::file_members::{self, COORDINATES, Cut, names_of_bounds};
use crate::inspect::group_file::PlannedFile;
use crate::inspect::surrounding_nodes::SurroundingNodes;
use crate::model::{Array, Attributes};
use crate::request_context::RequestContext;

/// An array of which such files are made.
#[derive(Clone, Copy)]
pub struct VariableSource<'a> {
    /// The hierarchy that it is in.
    pub hierarchy: &'a Hierarchy,
    /// The open arrays of the hierarchy.
    pub arrays: &'a Arrays,
    /// The array.
    pub array: &'a Arc<NodeEntry>,
    /// What its files are named after.
    pub name: &'a [u8],
}

impl VariableSource<'_> {
    /// Returns each format, and why the array has no file of it if it has none.
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

    /// Returns the file that a name asks for, or why there is none. `Invalid` for a selection that means nothing in the
    /// array.
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
                    group: around.group.as_deref(),
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
        self.add_coordinates(context, &around, &mut contents)?;
        if choice.is_meant
            && let Some(why) = file_members::why_not_meant(&contents.members, name, choice.format)
        {
            return Ok(Err(why.to_string()));
        }
        PlannedFile::of(context, (choice, &cut), contents)
    }

    /// Returns the array with the names of its dimensions that its group knows.
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

    /// Adds the coordinates of the array, which is the only member, and the variable of its map.
    fn add_coordinates(
        &self,
        context: &RequestContext,
        around: &SurroundingNodes,
        contents: &mut GroupContents,
    ) -> Result<()> {
        let Some(own) = contents.members.first() else {
            return Ok(());
        };
        let dimensions = own.array.dimension_names.iter().flatten().cloned();
        let named = own.array.attributes.in_files().get(COORDINATES);
        let named = named.as_ref().and_then(Value::as_str).unwrap_or_default();
        let named = named.split_whitespace().map(str::to_string);
        let names: Vec<String> = dimensions
            .chain(named)
            .chain(names_of_bounds(own.array.attributes.in_files()))
            .collect();
        for name in names {
            for bounds in self.add(context, around, &name, contents)? {
                self.add(context, around, &bounds, contents)?;
            }
        }
        if let Some(mapping) = &around.mapping {
            let name = String::from_utf8_lossy(mapping.path.name()).into_owned();
            self.add_node(&name, mapping, contents)?;
        }
        Ok(())
    }

    /// Adds the array of a name in the group, if there is one; returns the names of its bounds.
    fn add(
        &self,
        context: &RequestContext,
        around: &SurroundingNodes,
        name: &str,
        contents: &mut GroupContents,
    ) -> Result<Vec<String>> {
        let Some(group) = &around.group else {
            return Ok(Vec::new());
        };
        let Some(node) = (match group.path.child(name.as_bytes()) {
            Ok(path) => self.hierarchy.node(context, &path)?,
            Err(_) => None,
        }) else {
            return Ok(Vec::new());
        };
        self.add_node(name, &node, contents)?;
        let array = node.array();
        Ok(array.map_or(Vec::new(), |array| {
            names_of_bounds(array.attributes.in_files())
        }))
    }

    fn add_node(
        &self,
        name: &str,
        node: &Arc<NodeEntry>,
        contents: &mut GroupContents,
    ) -> Result<()> {
        let mut known = contents.members.iter();
        let Some(array) = node.array() else {
            return Ok(());
        };
        if known.any(|member| member.path == name) {
            return Ok(());
        }
        let open = self.arrays.open(node)?;
        match open.check_decodable() {
            Err(error) => contents.left_out.push(error.to_string()),
            Ok(()) => contents.members.push(GroupMember {
                path: name.to_string(),
                array: Arc::new(array.clone()),
                source: Some(MemberSource::whole(open)),
            }),
        }
        Ok(())
    }
}
