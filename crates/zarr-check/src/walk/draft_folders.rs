//! Checks the folders of a Zarr v3 draft: separate trees for documents and for chunks.

use std::collections::BTreeMap;

use crate::context::CheckContext;
use crate::finding::Finding;
use crate::node_findings::NodeFindings;
use crate::rules::keys::{empty_folder, orphan_or_leftover};
use crate::spec::Spec;
use crate::walk::folder::{FolderContent, GroupChild};
use zarr_format::dialect::draft::{DocumentRole, EntryPoint};
use zarr_format::error::Result;
use zarr_format::model::document::ZARR_JSON;
use zarrfs_store::Key;

/// The documents of a child node in the document tree of a draft, and whether the child has a folder there.
#[derive(Default)]
struct NamedChild {
    array: Option<Key>,
    group: Option<Key>,
    has_folder: bool,
    is_link: bool,
}

/// Returns the children of a group in a Zarr v3 draft. Reports names in the group's folders that belong to no node.
pub(crate) fn children(
    context: &CheckContext,
    entry: &EntryPoint,
    group: &Key,
    findings: &mut NodeFindings,
) -> Result<Vec<GroupChild>> {
    if entry.top() == group {
        check_top(context, entry, findings)?;
    }
    let named = named_children(context, entry, group, findings)?;
    let spec = Spec::of(Some(entry.name()));
    for child in named.values() {
        findings.extend(collision(child, spec));
    }
    check_data(context, entry, group, &named, findings)?;
    let is_node =
        |child: &NamedChild| child.array.is_some() || child.group.is_some() || child.has_folder;
    let children = named.into_iter().filter(|(_, child)| is_node(child));
    let children = children.map(|(name, child)| GroupChild {
        name,
        is_link: child.is_link,
    });
    Ok(children.collect())
}

/// Returns the children of a group that have a metadata document or a folder in the draft's document tree.
fn named_children(
    context: &CheckContext,
    entry: &EntryPoint,
    group: &Key,
    findings: &mut NodeFindings,
) -> Result<BTreeMap<Vec<u8>, NamedChild>> {
    let folder = entry.folder(group)?;
    let documents = entry.documents(group)?.into_iter().map(|(_, key)| key);
    let own: Vec<Key> = documents.chain(copies(entry)?).collect();
    let is_wanted = |key: &Key| entry.child(key.name()).is_some() && !own.contains(key);
    let is_known = |key: &Key| own.contains(key) || is_wanted(key);
    let content = FolderContent::read(context, &folder, &is_known, findings);
    let mut named: BTreeMap<Vec<u8>, NamedChild> = BTreeMap::new();
    for folder in content.folders {
        let child = named.entry(folder.name).or_default();
        (child.has_folder, child.is_link) = (true, folder.is_link);
    }
    for key in content.objects.into_iter().filter(is_wanted) {
        let Some(name) = entry.child(key.name()) else {
            continue;
        };
        let documents = entry.documents(&group.child(name)?)?;
        let role = documents
            .into_iter()
            .find(|(_, other)| *other == key)
            .map(|(role, _)| role);
        let child = named.entry(name.to_vec()).or_default();
        match role {
            Some(DocumentRole::Array) => child.array = Some(key),
            Some(DocumentRole::Group) => child.group = Some(key),
            None => findings.add(orphan_or_leftover(&key)),
        }
    }
    Ok(named)
}

/// Returns the key of the draft's consolidated metadata, or nothing if the draft does not define them.
fn copies(entry: &EntryPoint) -> Result<Vec<Key>> {
    Ok(entry.consolidated()?.into_iter().collect())
}

/// Reports a node with metadata documents of both an array and a group, and an array with nodes below it.
fn collision(child: &NamedChild, spec: Spec) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let (Some(array), Some(group)) = (&child.array, &child.group) {
        let message = format!("the node has two metadata files, this one and {array}");
        let finding = Finding::error("nodes-collide", group, message);
        findings.push(finding.with_section(spec.hierarchy()));
    }
    if let Some(array) = child.array.as_ref().filter(|_| child.has_folder) {
        let message = "a directory has the name of the array, but an array cannot contain nodes";
        let finding = Finding::error("node-in-array", array, message);
        findings.push(finding.with_section(spec.hierarchy()));
    }
    findings
}

/// Checks a group's folder in the draft's tree of chunks, which may only contain folders of child nodes.
fn check_data(
    context: &CheckContext,
    entry: &EntryPoint,
    group: &Key,
    named: &BTreeMap<Vec<u8>, NamedChild>,
    findings: &mut NodeFindings,
) -> Result<()> {
    let folder = entry.data(group)?;
    let content = FolderContent::read(context, &folder, &|_| false, findings);
    for GroupChild { name, .. } in content.folders {
        if !named.contains_key(&name) {
            let key = folder.child(&name)?;
            findings.add(orphan_folder(
                &key,
                "no metadata file describes these chunks",
            ));
        }
    }
    Ok(())
}

fn orphan_folder(key: &Key, why: &str) -> Finding {
    Finding::warning("orphan-folder", key, format!("stray directory: {why}"))
}

/// Checks the folder of a draft's entry point, which is the root, and the folders from the root to the trees of
/// documents and of chunks.
fn check_top(
    context: &CheckContext,
    entry: &EntryPoint,
    findings: &mut NodeFindings,
) -> Result<()> {
    let top = entry.top();
    let mut known = vec![
        top.child(ZARR_JSON.as_bytes())?,
        entry.folder(top)?,
        entry.data(top)?,
    ];
    known.extend(entry.documents(top)?.into_iter().map(|(_, key)| key));
    known.extend(copies(entry)?);
    let ends = [entry.folder(top)?, entry.data(top)?];
    let mut open = vec![top.clone()];
    while let Some(folder) = open.pop() {
        let content = FolderContent::read(context, &folder, &|key| known.contains(key), findings);
        if content.is_empty && !folder.is_root() && context.store().info().folder.is_some() {
            findings.add(empty_folder(&folder));
        }
        for GroupChild { name, .. } in content.folders {
            let key = folder.child(&name)?;
            if ends.contains(&key) {
                continue;
            }
            if known.iter().any(|known| known.below(&key).is_some()) {
                open.push(key);
            } else {
                findings.add(orphan_folder(
                    &key,
                    "the draft has no directory of this name",
                ));
            }
        }
    }
    Ok(())
}
