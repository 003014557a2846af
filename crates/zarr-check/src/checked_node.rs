//! A node before and after its check, and the state that its children inherit.

use std::sync::Arc;

use crate::consolidated::CopiedKeys;
use crate::finding::Finding;
use crate::findings::NodeFindings;
use crate::group_folder::GroupChild;
use zarrfs_array::array::OpenArray;
use zarrfs_array::hierarchy::NodeEntry;
use zarrfs_store::Key;

/// The state that a node inherits from its ancestors.
#[derive(Clone, Default)]
pub(super) struct NodeScope {
    /// The dialect of the nearest ancestor with a document.
    pub(super) dialect: Option<&'static str>,
    /// The consolidated metadata that should contain copies of its documents.
    pub(super) copies: Vec<Arc<CopiedKeys>>,
    /// Whether a symbolic link was followed on the way to the node.
    pub(super) is_behind_link: bool,
    /// The number of ancestors.
    pub(super) depth: usize,
}

/// A child of a group that waits to be checked.
pub(super) struct NextChild {
    pub(super) group: Arc<NodeEntry>,
    pub(super) scope: NodeScope,
    pub(super) child: GroupChild,
}

/// A node that was checked.
pub(super) struct CheckedNode {
    pub(super) path: Key,
    pub(super) entry: Option<Arc<NodeEntry>>,
    pub(super) findings: NodeFindings,
    /// Its children, sorted by name, until they are checked.
    pub(super) children: Vec<GroupChild>,
    /// Whether it has children.
    pub(super) has_children: bool,
    /// The state that its children inherit.
    pub(super) scope: NodeScope,
    /// The array whose chunks will be decoded, and the folder that contains them.
    pub(super) array: Option<(Arc<OpenArray>, Key)>,
    /// The number of stored chunks of the array.
    pub(super) chunks: u64,
    /// Whether a document describes the node.
    pub(super) is_described: bool,
}

impl CheckedNode {
    /// Builds a node of which nothing is known but an optional finding.
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
