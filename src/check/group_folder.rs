//! What lies in the folder of a group: its documents, its children, and what belongs to no node.

use crate::check::context::CheckContext;
use crate::check::finding::Finding;
use crate::check::findings::NodeFindings;
use crate::check::key_findings::{
    broken_link, folder_link, folder_unlisted, hidden, leftover, orphan,
};
use crate::check::leftovers;
use crate::check::stored_keys::{StoredEntry, is_followed_link, visit_folder};
use crate::store::Key;

/// The most children of a group that are looked at.
pub(super) const MAX_CHILDREN: usize = 1_000_000;

/// A child of a group, by its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupChild {
    pub(super) name: Vec<u8>,
    /// Whether a symbolic link leads there, which is followed once on the way to a node.
    pub(super) is_link: bool,
}

/// What lies directly in a folder.
#[derive(Default)]
pub(super) struct FolderContent {
    /// Objects that may be documents or keys of no node.
    pub(super) objects: Vec<Key>,
    /// Folders, sorted.
    pub(super) folders: Vec<GroupChild>,
    /// Whether there is anything at all.
    pub(super) is_empty: bool,
}

/// Reads a folder; objects of which `wanted` is false are reported as keys of no node.
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
            StoredEntry::BrokenLink(key, error) => findings.add(broken_link(&key, &error)),
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

/// A key that belongs to no node, or what a writer left behind.
pub(super) fn of_nobody(key: &Key) -> Finding {
    match leftovers::origin_of(key.name()) {
        Some(origin) => leftover(key, origin),
        None => orphan(key),
    }
}

fn too_many(folder: &Key) -> Finding {
    let expected = format!("at most {MAX_CHILDREN} children, which are checked");
    Finding::error("too-many-children", folder, expected, "one more")
}
