//! A node before and after it was looked at, and what it passes on to its children.

use std::sync::Arc;

use crate::consolidated::CopiedKeys;
use crate::finding::Finding;
use crate::findings::NodeFindings;
use crate::group_folder::GroupChild;
use zarrfs_array::array::OpenArray;
use zarrfs_array::hierarchy::NodeEntry;
use zarrfs_store::Key;

/// What a node has from those above it.
#[derive(Clone, Default)]
pub(super) struct NodeScope {
    /// The dialect of the nearest node above that a document describes.
    pub(super) dialect: Option<&'static str>,
    /// The consolidated metadata that should have copies of its documents.
    pub(super) copies: Vec<Arc<CopiedKeys>>,
    /// Whether a symbolic link was followed on the way here.
    pub(super) is_behind_link: bool,
    /// How many nodes are above.
    pub(super) depth: usize,
}

/// A child of a group that is to be looked at.
pub(super) struct NextChild {
    pub(super) group: Arc<NodeEntry>,
    pub(super) scope: NodeScope,
    pub(super) child: GroupChild,
}

/// A node that was looked at.
pub(super) struct CheckedNode {
    pub(super) path: Key,
    pub(super) entry: Option<Arc<NodeEntry>>,
    pub(super) findings: NodeFindings,
    /// The names of its children, sorted, until they are looked at.
    pub(super) children: Vec<GroupChild>,
    /// Whether there are any.
    pub(super) has_children: bool,
    /// What the children have from it.
    pub(super) scope: NodeScope,
    /// The array whose chunks are to be decoded, and the folder below which they lie.
    pub(super) array: Option<(Arc<OpenArray>, Key)>,
    /// How many chunks of the array are stored.
    pub(super) chunks: u64,
    /// Whether a document describes it.
    pub(super) is_described: bool,
}

impl CheckedNode {
    /// A node of which nothing is known but what was found about it.
    pub(super) fn unknown(path: &Key, finding: Option<Finding>) -> CheckedNode {
        let mut findings = NodeFindings::default();
        findings.extend(finding);
        CheckedNode {
            path: path.clone(),
            entry: None,
            findings,
            children: Vec::new(),
            has_children: false,
            scope: NodeScope::default(),
            array: None,
            chunks: 0,
            is_described: false,
        }
    }
}
