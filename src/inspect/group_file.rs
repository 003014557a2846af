//! Files of groups that hold all of their arrays, such as `GROUP.nc`: what they are made of, or why there is none.
//!
//! What such a file consists of depends on all children of the group, of nested formats on all nodes below it: all of
//! these are read to look one up.

use std::borrow::Cow;
use std::sync::Arc;

use crate::array::{Arrays, OpenArray};
use crate::error::{Error, Result};
use crate::export::GROUP_FORMATS;
use crate::export::group::{
    GroupContents, GroupFile, GroupFormat, GroupMember, GroupPlan, GroupScope, OrWhyNot, Subgroup,
};
use crate::hierarchy::{Hierarchy, NodeEntry};
use crate::model::{Attributes, LEFT_OUT, MAX_IN_FILES};
use crate::request_context::RequestContext;

/// A file of a group that opens.
pub struct PlannedFile {
    /// The arrays that it was made of.
    pub arrays: Vec<Arc<OpenArray>>,
    /// What it consists of.
    pub plan: GroupPlan,
    /// A sentence on attributes that it does not have, if there are such.
    pub left_out: Option<String>,
}

impl PlannedFile {
    /// Returns the exact length in bytes.
    pub fn length(&self) -> Result<u64> {
        self.plan.len(&self.arrays)
    }

    /// Returns the file if all of its arrays decode.
    fn decodable(self) -> OrWhyNot<PlannedFile> {
        let members = self.plan.variables.iter().map(|variable| variable.member);
        let mut arrays = members.filter_map(|member| self.arrays.get(member));
        match arrays.find_map(|array| array.check_decodable().err()) {
            Some(error) => Err(error.to_string()),
            None => Ok(self),
        }
    }

    /// Opens the file.
    pub fn open(&self) -> Result<GroupFile> {
        GroupFile::open(&self.plan, &self.arrays)
    }
}

/// A group of which files are made.
#[derive(Clone, Copy)]
pub struct GroupSource<'a> {
    /// The hierarchy that it is in.
    pub hierarchy: &'a Arc<Hierarchy>,
    /// The open arrays of the hierarchy.
    pub arrays: &'a Arrays,
    /// The group.
    pub group: &'a Arc<NodeEntry>,
}

/// The most nodes of a group that has such files.
const MAX_NODES: usize = 4096;

impl GroupSource<'_> {
    /// Returns the file of the group in a format, or why there is none: it has no arrays, or one that the format can
    /// neither hold nor leave out.
    pub fn file(
        &self,
        context: &RequestContext,
        format: &GroupFormat,
    ) -> Result<OrWhyNot<PlannedFile>> {
        match self.nodes(context, format.scope)? {
            Ok(nodes) => self.planned(format, nodes),
            Err(why) => Ok(Err(why)),
        }
    }

    /// Returns each format, and why the group has no file of it if it has none.
    ///
    /// Groups below are looked at where the arrays of the group itself do not make a file.
    pub fn formats(
        &self,
        context: &RequestContext,
    ) -> Result<Vec<(&'static GroupFormat, OrWhyNot<()>)>> {
        let answers = GROUP_FORMATS.iter().map(|&format| {
            let is_nested = matches!(format.scope, GroupScope::Below);
            let own = match self.nodes(context, GroupScope::Own)? {
                Ok(nodes) if is_nested => self.planned(format, nodes)?,
                Err(why) if is_nested => Err(why),
                _ => self.file(context, format)?,
            };
            let answer = match own {
                Err(_) if is_nested => self.file(context, format)?,
                own => own,
            };
            Ok((format, answer.map(drop)))
        });
        answers.collect()
    }

    fn planned(&self, format: &GroupFormat, nodes: NodesBelow) -> Result<OrWhyNot<PlannedFile>> {
        let is_nested = matches!(format.scope, GroupScope::Below);
        let mut left_out = nodes.left_out;
        let (mut members, mut arrays) = (Vec::new(), Vec::new());
        for node in &nodes.arrays {
            let array = self.arrays.open(node)?;
            match (member_of(self.group, node), array.check_decodable()) {
                (_, Err(error)) if is_nested => left_out.push(error.to_string()),
                (Some(member), _) => {
                    members.push(member);
                    arrays.push(array);
                }
                _ if is_nested => left_out.push(not_text(node)),
                _ => return Ok(Err(not_text(node))),
            }
        }
        if members.is_empty() && !matches!(format.scope, GroupScope::Named(_)) {
            return Ok(Err("there is no array".to_string()));
        }
        let subgroups = nodes.groups.iter();
        let contents = GroupContents {
            attributes: self.group.node()?.attributes().clone(),
            subgroups: subgroups
                .filter_map(|node| subgroup_of(self.group, node))
                .collect(),
            members,
            left_out,
        };
        let (contents, left_out) = shortened(contents);
        let file = (format.plan)(&contents).map(|plan| PlannedFile {
            arrays,
            plan,
            left_out,
        });
        Ok(file.and_then(PlannedFile::decodable))
    }

    /// Returns the nodes of a scope, or why they make no file: there are too many, or some that do not read and may not be
    /// left out.
    fn nodes(&self, context: &RequestContext, scope: GroupScope) -> Result<OrWhyNot<NodesBelow>> {
        match scope {
            GroupScope::Own => self.nodes_below(context, false),
            GroupScope::Below => self.nodes_below(context, true),
            GroupScope::Named(paths) => {
                self.nodes_at(context, &paths(self.group.node()?.attributes()))
            }
        }
    }

    /// Returns the arrays at paths from the group.
    fn nodes_at(&self, context: &RequestContext, paths: &[String]) -> Result<OrWhyNot<NodesBelow>> {
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
                        return Ok(Err(not_read(error)));
                    }
                }
                None => {}
            }
        }
        Ok(Ok(below))
    }

    /// Returns the nodes in the group, or all below it.
    fn nodes_below(
        &self,
        context: &RequestContext,
        is_nested: bool,
    ) -> Result<OrWhyNot<NodesBelow>> {
        let (mut below, mut count) = (NodesBelow::default(), 0);
        let mut open = vec![self.group.clone()];
        while let Some(group) = open.pop() {
            let mut listing = self.hierarchy.children(context, &group)?;
            while let Some(name) = listing.next(context)? {
                count += 1;
                if count > MAX_NODES {
                    return Ok(Err(format!("{MAX_NODES} nodes at most")));
                }
                let Some(child) = self.hierarchy.child(context, &group, &name.name)? else {
                    continue;
                };
                match &child.node {
                    Err(error) if !is_nested => return Ok(Err(not_read(error))),
                    Err(error) => below.left_out.push(error.to_string()),
                    Ok(_) if child.is_array() => below.arrays.push(child),
                    Ok(_) if is_nested => {
                        below.groups.push(child.clone());
                        open.push(child);
                    }
                    Ok(_) => {}
                }
            }
        }
        below.arrays.sort_by(|a, b| a.path.cmp(&b.path));
        below.groups.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Ok(below))
    }
}

/// The nodes below a group, in order of their paths.
#[derive(Default)]
struct NodesBelow {
    groups: Vec<Arc<NodeEntry>>,
    arrays: Vec<Arc<NodeEntry>>,
    /// A sentence on each node that does not read.
    left_out: Vec<String>,
}

/// The longest attributes that the nodes in a file have whole together, in bytes of text.
const MAX_TOGETHER: usize = 4 * MAX_IN_FILES;

fn member_of<'a>(group: &NodeEntry, node: &'a NodeEntry) -> Option<GroupMember<'a>> {
    Some(GroupMember {
        path: relative(group, node)?,
        array: Cow::Borrowed(node.array()?),
    })
}

fn subgroup_of(group: &NodeEntry, node: &NodeEntry) -> Option<Subgroup> {
    Some(Subgroup {
        path: relative(group, node)?,
        attributes: node.node.as_ref().ok()?.attributes().clone(),
    })
}

/// Returns the contents of a file with the attributes that it has: the whole ones, if those of all nodes are short enough
/// for a header; and a sentence on some that it does not have.
fn shortened(mut contents: GroupContents<'_>) -> (GroupContents<'_>, Option<String>) {
    let GroupContents {
        attributes,
        subgroups,
        members,
        ..
    } = &mut contents;
    let own = std::iter::once(&*attributes);
    let below = subgroups.iter().map(|group| &group.attributes);
    let arrays = members.iter().map(|member| &member.array.attributes);
    let lengths = own.chain(below).chain(arrays);
    let length: usize = lengths.map(|held| held.in_files().text().len()).sum();
    let mut left_out = None;
    let mut held = |attributes: &Attributes| {
        let held = match length {
            0..=MAX_TOGETHER => attributes.in_files().clone(),
            _ => attributes.of_meaning(),
        };
        if held.text().len() != attributes.text().len() {
            left_out = held
                .get(LEFT_OUT)
                .and_then(|text| Some(text.as_str()?.to_string()));
        }
        held
    };
    *attributes = held(attributes);
    for group in subgroups {
        group.attributes = held(&group.attributes);
    }
    for member in members {
        let own = &member.array.attributes;
        if length > MAX_TOGETHER || !own.is_in_files() {
            member.array.to_mut().attributes = held(&member.array.attributes);
        }
    }
    (contents, left_out)
}

/// Returns the path of a node from a group above it; nothing if it is not text.
fn relative(group: &NodeEntry, node: &NodeEntry) -> Option<String> {
    let path = node.path.below(&group.path)?;
    String::from_utf8(path.as_bytes().to_vec()).ok()
}

fn not_read(error: &Error) -> String {
    format!("nothing is left out, and a node does not read: {error}")
}

fn not_text(node: &NodeEntry) -> String {
    let path = node.path.as_bytes().escape_ascii();
    format!("{path}: the name is not UTF-8")
}
