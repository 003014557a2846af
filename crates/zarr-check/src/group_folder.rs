//! Reads the folder of a group: documents, children and keys of no node.

use std::mem::take;

use crate::context::CheckContext;
use crate::finding::Finding;
use crate::findings::NodeFindings;
use crate::key_findings::{
    broken_link, document_is_folder, folder_link, folder_unlisted, hidden, leftover, orphan,
};
use crate::leftovers;
use crate::stored_keys::{StoredEntry, is_followed_link, visit_folder};
use zarr_format::model::document::{ZARR_JSON, ZARRAY, ZATTRS, ZGROUP, is_in_node_folder};
use zarr_format::model::{MAX_RANK, is_like_chunk};
use zarrfs_array::hierarchy::NodeEntry;
use zarrfs_store::Key;
use zarrfs_store::request_context::UNLIMITED;
use zarrfs_store::sync::pool::parallel_map;

/// Maximum number of children of a group that are checked.
pub(super) const MAX_CHILDREN: usize = 1_000_000;

/// A child of a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupChild {
    pub(super) name: Vec<u8>,
    /// Whether it is a symbolic link; only one is followed on the way to a node.
    pub(super) is_link: bool,
}

/// The direct content of a folder.
#[derive(Default)]
pub(super) struct FolderContent {
    /// Objects that the caller wants, such as documents.
    pub(super) objects: Vec<Key>,
    /// Folders, sorted by name.
    pub(super) folders: Vec<GroupChild>,
    /// Whether the folder has no entries.
    pub(super) is_empty: bool,
}

impl FolderContent {
    /// Whether the folder has an object of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        let mut names = self.objects.iter().map(Key::name);
        names.any(|other| other == name.as_bytes())
    }
}

/// Reads a folder; objects that are not `wanted` are reported as keys of no node.
pub(super) fn read_folder(
    context: &CheckContext,
    folder: &Key,
    wanted: &dyn Fn(&Key) -> bool,
    findings: &mut NodeFindings,
) -> FolderContent {
    let mut content = FolderContent {
        is_empty: true,
        ..FolderContent::default()
    };
    let visited = visit_folder(context.store(), folder, &mut |entry| {
        content.is_empty = false;
        context.progress.add_key();
        match entry {
            StoredEntry::Object(key, _) if wanted(&key) => content.objects.push(key),
            StoredEntry::Object(key, _) => findings.add(of_nobody(&key)),
            StoredEntry::Folder(key) => match leftovers::origin_of(key.name()) {
                Some(origin) => findings.add(leftover(&key, origin)),
                None if content.folders.len() < MAX_CHILDREN => content.folders.push(GroupChild {
                    is_link: is_followed_link(context.store(), &key),
                    name: key.name().to_vec(),
                }),
                None => findings.add(too_many(folder)),
            },
            StoredEntry::FolderLink(key) => findings.add(folder_link(&key)),
            StoredEntry::BrokenLink(key, error) => {
                findings.add(broken_link(context.store(), &key, &error));
            }
            StoredEntry::Hidden(key, what) => findings.add(hidden(&key, what)),
            StoredEntry::EmptyFolder(_) | StoredEntry::Unlisted(..) => {}
        }
    });
    if let Err(error) = visited {
        findings.add(folder_unlisted(folder, &error));
        content.is_empty = false;
    }
    content.folders.sort();
    content.objects.sort();
    content
}

/// Reports folders that are named like documents, and removes them; returns whether there are any.
pub(super) fn take_documents(
    group: &Key,
    content: &mut FolderContent,
    document: &'static str,
    findings: &mut NodeFindings,
) -> bool {
    let is_document = |folder: &GroupChild| is_in_node_folder(&folder.name);
    let (named, others): (Vec<_>, Vec<_>) = take(&mut content.folders)
        .into_iter()
        .partition(is_document);
    content.folders = others;
    let keys = named
        .iter()
        .filter_map(|folder| group.child(&folder.name).ok());
    findings.extend(keys.map(|key| document_is_folder(&key, document)));
    !named.is_empty()
}

/// Removes names that look like chunks, in the folder of a node that may be an array. Returns their number and the
/// first of them. A folder with such a name and a document is a node, and stays.
pub(super) fn take_chunks(
    context: &CheckContext,
    node: &NodeEntry,
    content: &mut FolderContent,
    findings: &mut NodeFindings,
) -> Option<(u64, Key)> {
    let look = |folder: GroupChild| {
        let is_described = || match context.hierarchy.child(&UNLIMITED, node, &folder.name) {
            Ok(Some(child)) => child.node.is_err() || child.dialect().is_some(),
            Ok(None) | Err(_) => true,
        };
        let is_bare = is_like_chunk(&folder.name) && !is_described();
        (is_bare, folder)
    };
    let looked_at = parallel_map(context.threads, take(&mut content.folders), &look);
    let (bare, others): (Vec<_>, Vec<_>) = looked_at.into_iter().partition(|(is_bare, _)| *is_bare);
    content.folders = others.into_iter().map(|(_, folder)| folder).collect();
    let objects = findings.take("orphan-key", &|key| is_like_chunk(key.name()));
    let (first, count) = objects.map_or((None, 0), |(first, count)| (Some(first), count));
    let folder = bare.first();
    let folder = folder.and_then(|(_, folder)| node.path.child(&folder.name).ok());
    let first = first.or(folder)?;
    Some((count + bare.len() as u64, first))
}

/// Whether a folder without a document contains only chunks of an array, and nothing that may be a node: folders
/// named like indices down to objects named like indices.
pub(super) fn holds_chunks_alone(context: &CheckContext, folder: &Key) -> bool {
    let mut folder = folder.clone();
    for _ in 0..=MAX_RANK {
        let (mut first, mut has_object, mut is_alike) = (None, false, true);
        let visited = visit_folder(context.store(), &folder, &mut |entry| match entry {
            StoredEntry::Object(key, _) if is_like_chunk(key.name()) => has_object = true,
            StoredEntry::Folder(key) if is_like_chunk(key.name()) => {
                first.get_or_insert(key);
            }
            StoredEntry::Object(key, _) | StoredEntry::Folder(key) => {
                is_alike &=
                    key.name() == ZATTRS.as_bytes() || leftovers::origin_of(key.name()).is_some();
            }
            _ => {}
        });
        if visited.is_err() || !is_alike || has_object {
            return visited.is_ok() && is_alike;
        }
        let Some(first) = first else { return false };
        folder = first;
    }
    false
}

/// Removes the finding about a document whose name is only wrong in case; returns its key and the right name.
pub(super) fn take_miscased(findings: &mut NodeFindings) -> Option<(Key, &'static str)> {
    let mut names = [ZARR_JSON, ZARRAY, ZGROUP].into_iter();
    names.find_map(|name| {
        let is_it = |key: &Key| key.name().eq_ignore_ascii_case(name.as_bytes());
        let (key, _) = findings.take("orphan-key", &is_it)?;
        Some((key, name))
    })
}

/// Reports a key that belongs to no node, or a leftover of a writer.
pub(super) fn of_nobody(key: &Key) -> Finding {
    match leftovers::origin_of(key.name()) {
        Some(origin) => leftover(key, origin),
        None => orphan(key),
    }
}

fn too_many(folder: &Key) -> Finding {
    let message = format!(
        "the group has more than {MAX_CHILDREN} children, and those after them are not checked"
    );
    Finding::error("too-many-children", folder, message)
}
