//! Plans files that hold several arrays: `GROUP.nc`, or `NAME.nc4` of a variable with its coordinates.
//!
//! The content of a group's file depends on all children of the group, and in formats with nested groups on all nodes
//! below it. So a lookup of such a file reads the metadata of all these nodes. The file of a variable also has its grid
//! mapping, the coordinate variables of its dimensions, the arrays that its attribute `coordinates` names, and the
//! bounds of these variables. Each of these arrays is in the variable's group, or else in the nearest group above that
//! has it.

use std::sync::Arc;

use crate::formats::axes::axes_of;
use crate::formats::group::{
    GroupBody, GroupContents, GroupFile, GroupFormat, GroupMember, GroupPlan, GroupScope,
    MadeLayout, MemberSource, OrReason, Subgroup,
};
use crate::formats::tables::group::is_annotated;
use crate::formats::{GROUP_FORMATS, Subject, VARIABLE_FORMATS};
use crate::inspect::companions::{find_companions, strip_coordinate_paths};
use crate::inspect::coordinates::ArrayInGroup;
use crate::inspect::file_ending::GroupChoice;
use crate::inspect::file_members;
use crate::inspect::file_members::FileSelection;
use crate::inspect::surrounding_nodes::SurroundingNodes;
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::{Array, Attributes, LEFT_OUT, MAX_IN_FILES};
use zarrfs_array::array::{Arrays, OpenArray, combined_version};
use zarrfs_array::hierarchy::{Hierarchy, NodeEntry};
use zarrfs_store::Version;
use zarrfs_store::request_context::RequestContext;

/// A file with several arrays that a format can hold, before the file is opened.
pub struct PlannedFile {
    format: &'static GroupFormat,
    contents: GroupContents,
    plan: GroupPlan,
}

impl PlannedFile {
    /// Returns the exact length of the file in bytes. If the length depends on elements, makes the file once for each
    /// version of these elements, and caches the length.
    pub fn length(&self, context: &RequestContext) -> Result<u64> {
        let made = match &self.plan.body {
            GroupBody::Laid(layout) => return layout.len(&self.contents),
            GroupBody::Made(made) | GroupBody::Checked(made) => made,
        };
        let version = |context: &RequestContext| self.version(context, made);
        let measure = |context: &RequestContext| {
            let file = GroupFile::open(context, &self.plan.body, &self.contents)?;
            Ok(file.len())
        };
        let first = self.measured_array(made)?;
        first.length_of(context, &self.measured_name(), &version, measure)
    }

    /// Whether the length of the file depends on elements.
    pub fn is_made(&self) -> bool {
        self.plan.body.made().is_some()
    }

    /// Returns a number that identifies the content of the file. It changes with the metadata, but not with the chunks.
    pub fn content(&self) -> u64 {
        self.plan.content(&self.contents)
    }

    /// Returns the metadata and arrays that the file leaves out; each text is a name, a colon and the reason.
    pub fn left_out(&self) -> impl Iterator<Item = &str> {
        let all = self.contents.left_out.iter().chain(&self.plan.left_out);
        all.map(String::as_str)
    }

    /// Returns the arrays whose changes may change the bytes of the file, in the order of `GroupFile::arrays`.
    pub fn arrays(&self) -> impl Iterator<Item = &Arc<OpenArray>> {
        self.contents.decodable()
    }

    /// Opens the file; reads elements if its layout depends on them.
    pub fn open(&self, context: &RequestContext) -> Result<GroupFile> {
        let open = || GroupFile::open(context, &self.plan.body, &self.contents);
        let Some(made) = self.plan.body.made() else {
            return open();
        };
        let version_of = |context: &RequestContext| self.version(context, made);
        let version = version_of(context)?;
        let file = open()?;
        let (first, name) = (self.measured_array(made)?, self.measured_name());
        first.record_length(context, &name, &version_of, version, file.len())?;
        Ok(file)
    }

    /// Returns the array under which the length of the file is cached: the first one that is read to make the file.
    fn measured_array(&self, made: &MadeLayout) -> Result<&Arc<OpenArray>> {
        let first = made.read.first().copied().unwrap_or_default();
        Ok(&self.contents.member(first)?.source()?.array)
    }

    /// Returns the name under which the length of the file is cached. The name contains the content number, because the
    /// length also depends on metadata.
    fn measured_name(&self) -> String {
        let extension = self.format.extension;
        format!("group.{extension} {:x}", self.content())
    }

    /// Returns the version of the elements that are read to make the file.
    fn version(&self, context: &RequestContext, made: &MadeLayout) -> Result<Version> {
        combined_version(made.read.iter().map(|&number| {
            let source = self.contents.member(number)?.source()?;
            source
                .array
                .region_version(context, &source.selection.bounds())
        }))
    }

    /// Returns the file if all arrays that it reads can be decoded, or else the decoding error of one of these arrays.
    fn decodable(self) -> OrReason<PlannedFile> {
        let members: Vec<usize> = match &self.plan.body {
            GroupBody::Laid(layout) => layout
                .variables
                .iter()
                .map(|placed| placed.member)
                .collect(),
            GroupBody::Made(made) => made.read.clone(),
            GroupBody::Checked(_) => (0..self.contents.members.len()).collect(),
        };
        let error = members.into_iter().find_map(|number| {
            let source = self.contents.member(number).and_then(GroupMember::source);
            source
                .and_then(|source| source.array.check_decodable())
                .err()
        });
        match error {
            Some(error) => Err(error.to_string()),
            None => Ok(self),
        }
    }

    /// Plans a file after its arrays are reduced to the selected elements. Returns the reason if the format cannot hold
    /// the file.
    pub(super) fn of(
        context: &RequestContext,
        choice: &GroupChoice<'_>,
        cut: &FileSelection,
        mut contents: GroupContents,
    ) -> Result<OrReason<PlannedFile>> {
        if choice.is_cf_decoded {
            let is_table = matches!(choice.format.scope, GroupScope::Columns(_));
            if is_table && is_annotated(&contents) {
                return Ok(Err(format!(
                    "AnnData tables have no CF attributes to decode; use .{} for the stored values",
                    choice.format.extension
                )));
            }
            let lost = file_members::decode_cf(&mut contents.members, choice.format);
            let leaves_out = can_leave_out(choice.format.scope) && !contents.members.is_empty();
            if let Some(why) = lost.members.first().filter(|_| !leaves_out) {
                return Ok(Err(why.clone()));
            }
            contents.left_out.extend(lost.members);
            if !is_table {
                // A table has no attributes, so messages about lost attributes do not apply to it.
                contents.left_out.extend(lost.attributes);
            }
        }
        file_members::add_axes(&mut contents.members);
        cut.apply(&mut contents.members);
        let contents = limit_attributes(contents);
        let file = (choice.format.plan)(&contents).map(|plan| PlannedFile {
            format: choice.format,
            contents,
            plan,
        });
        let file = match file.and_then(PlannedFile::decodable) {
            Ok(file) => file,
            Err(why) => return Ok(Err(why)),
        };
        if matches!(file.plan.body, GroupBody::Checked(_))
            && let Err(error) = file.length(context)
            && error.kind() == Kind::Unsupported
        {
            return Ok(Err(error.to_string()));
        }
        Ok(Ok(file))
    }
}

/// A group of which files with several arrays are made.
#[derive(Clone, Copy)]
pub struct GroupSource<'a> {
    /// The hierarchy that contains the group.
    pub hierarchy: &'a Arc<Hierarchy>,
    /// The opened arrays of the hierarchy.
    pub arrays: &'a Arrays,
    /// The metadata node of the group.
    pub group: &'a Arc<NodeEntry>,
}

/// Maximum number of nodes in a group that is exported as one file.
const MAX_NODES: usize = 4096;

impl GroupSource<'_> {
    /// Plans the requested file of the group. Returns the reason if there is none: the group has no arrays, or it has
    /// an array that the format can neither hold nor leave out. Fails with `Invalid` if the selection has no meaning in
    /// the group.
    pub fn file(
        &self,
        context: &RequestContext,
        choice: &GroupChoice<'_>,
    ) -> Result<OrReason<PlannedFile>> {
        match self.nodes(context, choice.format.scope)? {
            Ok(nodes) => self.planned(context, choice, nodes),
            Err(why) => Ok(Err(why)),
        }
    }

    /// Plans the file of the group in each format, or returns the reason why the group has none in the format.
    ///
    /// A file with nested groups is first planned with only the arrays directly in the group, which is enough to show
    /// that the format has a file. The subgroups are read only if this plan fails.
    pub fn formats(
        &self,
        context: &RequestContext,
    ) -> Result<Vec<(&'static GroupFormat, OrReason<PlannedFile>)>> {
        let answers = GROUP_FORMATS.iter().map(|&format| {
            let is_nested = matches!(format.scope, GroupScope::Below);
            let choice = GroupChoice::whole(format);
            let own = match self.nodes(context, GroupScope::Own)? {
                Ok(nodes) if is_nested => {
                    // The arrays of the subgroups are not in this plan, but in the complete file, so they are not
                    // reported as left out.
                    let left_out = Vec::new();
                    self.planned(context, &choice, NodesBelow { left_out, ..nodes })?
                }
                Err(why) if is_nested => Err(why),
                _ => self.file(context, &choice)?,
            };
            let answer = match own {
                Err(_) if is_nested => self.file(context, &choice)?,
                own => own,
            };
            Ok((format, answer))
        });
        answers.collect()
    }

    fn planned(
        &self,
        context: &RequestContext,
        choice: &GroupChoice<'_>,
        nodes: NodesBelow,
    ) -> Result<OrReason<PlannedFile>> {
        let format = choice.format;
        let leaves_out = can_leave_out(format.scope);
        let mut left_out = nodes.left_out;
        let mut members = Vec::new();
        for node in &nodes.arrays {
            let array = self.arrays.open(node)?;
            match (member_of(self.group, node, &array), array.check_decodable()) {
                (_, Err(error)) if leaves_out => left_out.push(error.to_string()),
                (Some(member), _) => members.push(member),
                _ if leaves_out => left_out.push(non_utf8_name(node)),
                _ => return Ok(Err(non_utf8_name(node))),
            }
        }
        if members.is_empty() && !matches!(format.scope, GroupScope::Named(_)) {
            let hint = match format.scope {
                GroupScope::Own if format.extension == "nc" => {
                    "; .nc4 and .h5 include the arrays of subgroups"
                }
                _ => "",
            };
            return Ok(Err(format!("the group has no array of its own{hint}")));
        }
        let subgroups = nodes.groups.iter();
        let mut contents = GroupContents {
            attributes: self.group.node()?.attributes().clone(),
            subgroups: subgroups
                .filter_map(|node| subgroup_of(self.group, node))
                .collect(),
            members,
            left_out,
        };
        if matches!(format.scope, GroupScope::Own | GroupScope::Below) {
            self.add_companions(context, &nodes.arrays, &mut contents)?;
        }
        let cut = match choice.selection {
            Some(text) => FileSelection::of_group(context, &contents.members, text)?,
            None => FileSelection::default(),
        };
        PlannedFile::of(context, choice, &cut, contents)
    }

    /// Adds variables in groups above the exported one to which its arrays refer, as xarray does when it writes a part
    /// of a tree.
    fn add_companions(
        &self,
        context: &RequestContext,
        arrays: &[Arc<NodeEntry>],
        contents: &mut GroupContents,
    ) -> Result<()> {
        if self.group.path.is_root() {
            return Ok(());
        }
        for node in arrays {
            let Some(array) = node.array() else { continue };
            for companion in find_companions(context, self.hierarchy, node, array)? {
                // Variables in the exported group or below it are in the file already.
                if companion.node.path.below(&self.group.path).is_none() {
                    companion.add_to(self.arrays, contents)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the nodes that belong to a file, or the reason why there is no file: there are too many nodes, or a node
    /// cannot be read and must not be left out.
    fn nodes(&self, context: &RequestContext, scope: GroupScope) -> Result<OrReason<NodesBelow>> {
        match scope {
            GroupScope::Own | GroupScope::Below | GroupScope::Columns(_) => {
                self.find_nodes_below(context, scope)
            }
            GroupScope::Named(paths) => {
                self.find_nodes_at(context, &paths(self.group.node()?.attributes()))
            }
        }
    }

    /// Returns the arrays at the given paths, which are relative to the group.
    fn find_nodes_at(
        &self,
        context: &RequestContext,
        paths: &[String],
    ) -> Result<OrReason<NodesBelow>> {
        let mut below = NodesBelow::default();
        for path in paths {
            let joined = path
                .split('/')
                .try_fold(self.group.path.clone(), |path, name| {
                    path.child(name.as_bytes())
                });
            let Ok(joined) = joined else { continue };
            match self.hierarchy.node(context, &joined)? {
                Some(node) if node.is_array() => below.arrays.push(node),
                Some(node) => {
                    if let Err(error) = &node.node {
                        return Ok(Err(unreadable_node(error)));
                    }
                }
                None => {}
            }
        }
        Ok(Ok(below))
    }

    /// Returns the nodes in the group, and the nodes in its subgroups that belong to a file with this scope.
    fn find_nodes_below(
        &self,
        context: &RequestContext,
        scope: GroupScope,
    ) -> Result<OrReason<NodesBelow>> {
        let leaves_out = can_leave_out(scope);
        let (mut below, mut count) = (NodesBelow::default(), 0);
        let mut open = vec![self.group.clone()];
        while let Some(group) = open.pop() {
            let mut listing = self.hierarchy.children(context, &group)?;
            while let Some(name) = listing.next(context)? {
                count += 1;
                if count > MAX_NODES {
                    return Ok(Err(format!("more than {MAX_NODES} groups and arrays")));
                }
                let Some(child) = self.hierarchy.child(context, &group, &name.name)? else {
                    continue;
                };
                match &child.node {
                    Err(error) if !leaves_out => return Ok(Err(unreadable_node(error))),
                    Err(error) => below.left_out.push(error.to_string()),
                    Ok(_) if child.is_array() => below.arrays.push(child),
                    Ok(node) => match (scope, str::from_utf8(child.path.name())) {
                        (GroupScope::Below, _) => {
                            below.groups.push(child.clone());
                            open.push(child);
                        }
                        (GroupScope::Columns(is_column), Ok(name))
                            if is_column(name, node.attributes()) =>
                        {
                            below.groups.push(child.clone());
                            open.push(child);
                        }
                        (GroupScope::Columns(_), Ok(name)) => {
                            below
                                .left_out
                                .push(format!("{name}: a group, not a column"));
                        }
                        (GroupScope::Columns(_), Err(_)) => {
                            below.left_out.push(non_utf8_name(&child))
                        }
                        (GroupScope::Own, _) => {
                            let name = String::from_utf8_lossy(child.path.name());
                            below
                                .left_out
                                .push(format!("{name}: a group; .nc4 includes groups"));
                        }
                        (GroupScope::Named(_), _) => {}
                    },
                }
            }
        }
        below.arrays.sort_by(|a, b| a.path.cmp(&b.path));
        below.groups.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Ok(below))
    }
}

/// Whether a file with this scope leaves out a node that cannot be read, instead of failing.
fn can_leave_out(scope: GroupScope) -> bool {
    matches!(scope, GroupScope::Below | GroupScope::Columns(_))
}

/// The groups and arrays below an exported group, sorted by path.
#[derive(Default)]
struct NodesBelow {
    groups: Vec<Arc<NodeEntry>>,
    arrays: Vec<Arc<NodeEntry>>,
    /// A message for each node that the file leaves out.
    left_out: Vec<String>,
}

/// Maximum total size in bytes of the attributes of all nodes in a file. Beyond it, the attributes of every node are
/// shortened.
const MAX_TOGETHER: usize = 4 * MAX_IN_FILES;

fn member_of(group: &NodeEntry, node: &NodeEntry, array: &Arc<OpenArray>) -> Option<GroupMember> {
    Some(GroupMember {
        path: relative(group, node)?,
        array: Arc::new(node.array()?.clone()),
        source: Some(MemberSource::whole(array.clone())),
    })
}

fn subgroup_of(group: &NodeEntry, node: &NodeEntry) -> Option<Subgroup> {
    Some(Subgroup {
        path: relative(group, node)?,
        attributes: node.node.as_ref().ok()?.attributes().clone(),
    })
}

/// Shortens the attributes of a node that are too long for a header, and those of all nodes if they are too long
/// together. Adds a message to `left_out` that says what was removed.
fn limit_attributes(mut contents: GroupContents) -> GroupContents {
    let GroupContents {
        attributes,
        subgroups,
        members,
        left_out,
    } = &mut contents;
    let own = std::iter::once(&*attributes);
    let below = subgroups.iter().map(|group| &group.attributes);
    let arrays = members.iter().map(|member| &member.array.attributes);
    let lengths = own.chain(below).chain(arrays);
    let length: usize = lengths
        .map(|attributes| attributes.in_files().text().len())
        .sum();
    let mut sentence = None;
    let mut limited = |attributes: &Attributes| {
        let limited = match length {
            0..=MAX_TOGETHER => attributes.in_files().clone(),
            _ => attributes.meaningful(),
        };
        if limited.text().len() != attributes.text().len() {
            sentence = limited
                .get(LEFT_OUT)
                .and_then(|text| Some(text.as_str()?.to_string()));
        }
        limited
    };
    *attributes = limited(attributes);
    for group in subgroups {
        group.attributes = limited(&group.attributes);
    }
    for member in members {
        let own = &member.array.attributes;
        if length > MAX_TOGETHER || !own.is_in_files() {
            let attributes = limited(own);
            Arc::make_mut(&mut member.array).attributes = attributes;
        }
    }
    left_out.extend(sentence);
    contents
}

/// Returns the path of a node relative to a group above the node, or `None` if the path is not UTF-8.
fn relative(group: &NodeEntry, node: &NodeEntry) -> Option<String> {
    let path = node.path.below(&group.path)?;
    String::from_utf8(path.as_bytes().to_vec()).ok()
}

fn unreadable_node(error: &Error) -> String {
    format!("cannot read all nodes: {error}")
}

fn non_utf8_name(node: &NodeEntry) -> String {
    let path = node.path.as_bytes().escape_ascii();
    format!("{path}: the name is not UTF-8")
}

/// An array of which files with its coordinate variables are made.
#[derive(Clone, Copy)]
pub struct VariableSource<'a> {
    /// The hierarchy that contains the array.
    pub hierarchy: &'a Hierarchy,
    /// The opened arrays of the hierarchy.
    pub arrays: &'a Arrays,
    /// The metadata node of the array.
    pub array: &'a Arc<NodeEntry>,
    /// The name with which the names of the array's files begin.
    pub name: &'a [u8],
}

impl VariableSource<'_> {
    /// Plans the file of the array in each format, or returns the reason why the array has none in the format.
    pub fn formats(
        &self,
        context: &RequestContext,
    ) -> Result<Vec<(&'static GroupFormat, OrReason<PlannedFile>)>> {
        let formats = VARIABLE_FORMATS.iter();
        let answers = formats.map(|&format| {
            let file = self.file(context, &GroupChoice::whole(format))?;
            Ok((format, file))
        });
        answers.collect()
    }

    /// Plans the requested file of the array, or returns the reason why there is none. Fails with `Invalid` if the
    /// selection has no meaning in the array.
    pub fn file(
        &self,
        context: &RequestContext,
        choice: &GroupChoice<'_>,
    ) -> Result<OrReason<PlannedFile>> {
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
                FileSelection::of_variable(&own, place.select_with_coordinates(context, text)?)?
            }
            None => FileSelection::default(),
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
        if choice.is_cf_decoded
            && let Some(why) = file_members::cf_fault(&contents.members, name, choice.format)
        {
            return Ok(Err(why.to_string()));
        }
        PlannedFile::of(context, choice, &cut, contents)
    }

    /// Returns the array with the dimension names that the metadata of its group give.
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

    /// Adds the variables to which the array refers. Before the call, the array is the only one in the contents.
    fn add_companions(&self, context: &RequestContext, contents: &mut GroupContents) -> Result<()> {
        let Some(own) = contents.members.first() else {
            return Ok(());
        };
        for companion in find_companions(context, self.hierarchy, self.array, &own.array)? {
            companion.add_to(self.arrays, contents)?;
        }
        strip_coordinate_paths(&mut contents.members);
        Ok(())
    }
}
