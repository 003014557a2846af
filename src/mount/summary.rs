//! Summarizes a store at mount time: its dialect and its number of nodes.
//!
//! Only the root is read, and the nodes below it if they are in consolidated metadata or the store is local, within
//! limits of time and number.

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use zarr_format::error::Result;
use zarr_format::model::{Array, Node};
use zarrfs_array::hierarchy::{Hierarchy, NodeEntry, OtherFormat};
use zarrfs_store::request_context::UNLIMITED;

/// The dialect of a store, its numbers of arrays and groups, and an example.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct StoreSummary {
    root: Root,
    /// The dialect of the root or, if the root has none, of the first node with a dialect.
    dialect: Option<&'static str>,
    arrays: usize,
    /// Number of groups that have a metadata document.
    groups: usize,
    /// Whether the numbers include all nodes of the store.
    is_whole: bool,
    /// The array that `zarrfs mount` names as an example.
    example: Option<Example>,
    /// The format other than Zarr to which the file names in the root belong, if any.
    other: Option<&'static OtherFormat>,
}

/// An array that `zarrfs mount` names as an example.
#[derive(Debug, PartialEq, Eq)]
struct Example {
    /// Path, in the files view, of the file that contains the whole array.
    path: String,
    /// Number of groups above the array, including the root.
    depth: usize,
    /// Number of elements of the array.
    size: u128,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Root {
    /// The root is a group or an array with a metadata document.
    Node,
    /// The root has no metadata document.
    #[default]
    Folder,
    /// The root has metadata that cannot be read.
    Broken,
}

/// Limits of the search for nodes.
struct WalkBounds {
    nodes: usize,
    time: Duration,
}

impl StoreSummary {
    /// Reads the root, and the nodes below it if `is_local` or if they are in consolidated metadata.
    pub(super) fn read(hierarchy: &Arc<Hierarchy>, is_local: bool) -> Result<StoreSummary> {
        let mut summary = StoreSummary::default();
        let Some(root) = hierarchy.root(&UNLIMITED)? else {
            return Ok(summary);
        };
        summary.root = match &root.node {
            Err(_) => Root::Broken,
            Ok(_) if root.version == 0 => Root::Folder,
            Ok(_) => Root::Node,
        };
        summary.count(&root);
        if summary.root == Root::Folder {
            summary.other = OtherFormat::of(&UNLIMITED, &**hierarchy.store());
        }
        let bounds = match summary.root {
            Root::Broken => return Ok(summary),
            _ if is_local || root.is_consolidated() => WalkBounds {
                nodes: 300,
                time: Duration::from_millis(30),
            },
            // The nodes below a root without metadata show whether this is a Zarr store: the root of an N5 container,
            // for example, may have no metadata.
            Root::Folder if hierarchy.store().info().lists => WalkBounds {
                nodes: 8,
                time: Duration::from_secs(2),
            },
            _ => return Ok(summary),
        };
        // An error below the root is ignored here: it is reported when a program looks up the path.
        summary.is_whole = summary.walk(hierarchy, root, &bounds).unwrap_or(false);
        Ok(summary)
    }

    /// Counts the nodes below the root within limits; returns whether all were counted.
    fn walk(
        &mut self,
        hierarchy: &Arc<Hierarchy>,
        root: Arc<NodeEntry>,
        bounds: &WalkBounds,
    ) -> Result<bool> {
        let end = Instant::now() + bounds.time;
        let mut visited = 0;
        let mut groups = vec![root];
        while let Some(group) = groups.pop() {
            if group.node.is_err() || group.array().is_some() {
                continue;
            }
            let mut children = hierarchy.children(&UNLIMITED, &group)?;
            while let Some(name) = children.next(&UNLIMITED)? {
                if visited == bounds.nodes || Instant::now() > end {
                    return Ok(false);
                }
                visited += 1;
                if let Some(child) = hierarchy.child(&UNLIMITED, &group, &name.name)? {
                    self.count(&child);
                    groups.push(child);
                }
            }
        }
        Ok(true)
    }

    fn count(&mut self, node: &NodeEntry) {
        let dialect = node.dialect();
        self.dialect = self.dialect.or(dialect);
        match &node.node {
            Ok(Node::Array(array)) => {
                self.arrays += 1;
                self.propose(node, array);
            }
            Ok(Node::Group(_)) if dialect.is_some() => self.groups += 1,
            Ok(Node::Group(_)) | Err(_) => {}
        }
    }

    /// Takes an array as the example if it is nearer to the root than the current example, or as near and larger.
    fn propose(&mut self, node: &NodeEntry, array: &Array) {
        let lengths = array.shape.iter().map(|&length| u128::from(length));
        let size = lengths.fold(1, u128::saturating_mul);
        let depth = node.path.names().count();
        let is_better = match &self.example {
            None => true,
            Some(example) => (depth, Reverse(size)) < (example.depth, Reverse(example.size)),
        };
        if depth > 0 && is_better {
            let name = String::from_utf8_lossy(node.path.name());
            let extension = if array.data_type.size().is_some() {
                "npy"
            } else {
                "txt"
            };
            let path = format!("{}/{name}.{extension}", node.path);
            self.example = Some(Example { path, depth, size });
        }
    }

    /// Returns the path of an array's file in the files view, or `None` if no array below the root is known.
    pub(super) fn example(&self) -> Option<&str> {
        self.example.as_ref().map(|example| example.path.as_str())
    }

    /// Returns a warning if the store does not look like a Zarr hierarchy.
    pub(super) fn warning(&self) -> Option<String> {
        if self.root != Root::Folder || self.dialect.is_some() {
            return None;
        }
        if let Some(other) = self.other {
            return Some(other.sentence());
        }
        let place = if self.is_whole { "" } else { " at the root" };
        Some(format!(
            "no Zarr metadata found{place}; check the path (directories are shown as groups)"
        ))
    }
}

impl fmt::Display for StoreSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.root == Root::Broken {
            return f.write_str("unreadable metadata");
        }
        let Some(dialect) = self.dialect else {
            return f.write_str("no Zarr metadata");
        };
        if dialect.starts_with('v') {
            f.write_str("Zarr ")?;
        }
        match dialect {
            "n5" => f.write_str("N5, ")?,
            dialect => write!(f, "{dialect}, ")?,
        }
        let groups = counted(self.groups, "group");
        match (self.arrays, self.is_whole, &self.root) {
            (1, _, Root::Node) if self.groups == 0 => f.write_str("an array"),
            (0, false, _) => f.write_str("a group"),
            (arrays, false, _) => write!(f, "more than {}", counted(arrays, "array")),
            (arrays, true, Root::Folder) if self.groups == 0 => {
                write!(f, "{} in folders", counted(arrays, "array"))
            }
            (arrays, true, _) => write!(f, "{} in {groups}", counted(arrays, "array")),
        }
    }
}

fn counted(count: usize, what: &str) -> String {
    let end = if count == 1 { "" } else { "s" };
    format!("{count} {what}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use zarrfs_store::Key;
    use zarrfs_store::backend::memory::MemoryStore;

    const GROUP: &str = r#"{"zarr_format": 3, "node_type": "group"}"#;
    const ARRAY: &str = r#"{"zarr_format": 2, "shape": [1], "chunks": [1], "dtype": "<i4", "fill_value": 0,
        "order": "C", "compressor": null, "filters": null}"#;

    fn summary(documents: &[(&str, &str)], is_local: bool) -> StoreSummary {
        let memory = MemoryStore::default();
        for (key, text) in documents {
            memory.set(Key::new(*key).unwrap(), text.as_bytes().to_vec());
        }
        let hierarchy = Arc::new(Hierarchy::new(Arc::new(memory)));
        StoreSummary::read(&hierarchy, is_local).unwrap()
    }

    fn words(documents: &[(&str, &str)]) -> String {
        summary(documents, true).to_string()
    }

    #[test]
    fn the_summary_counts_arrays_and_groups() {
        let group = ("zarr.json", GROUP);
        let (one, two) = (("a/.zarray", ARRAY), ("b/c/.zarray", ARRAY));
        assert_eq!(words(&[group]), "Zarr v3, 0 arrays in 1 group");
        assert_eq!(words(&[group, one]), "Zarr v3, 1 array in 1 group");
        let below = ("b/zarr.json", GROUP);
        assert_eq!(
            words(&[group, below, one, two]),
            "Zarr v3, 2 arrays in 2 groups"
        );
        assert_eq!(words(&[(".zarray", ARRAY)]), "Zarr v2, an array");
        assert_eq!(words(&[one, two]), "Zarr v2, 2 arrays in folders");
        assert_eq!(words(&[("zarr.json", "{")]), "unreadable metadata");
        assert_eq!(
            summary(&[group, one], false).to_string(),
            "Zarr v3, a group"
        );
        let names: Vec<String> = (0..400).map(|number| format!("{number}/.zarray")).collect();
        let mut many: Vec<_> = names.iter().map(|name| (name.as_str(), ARRAY)).collect();
        many.push(group);
        let text = words(&many);
        assert!(
            text.starts_with("Zarr v3, more than ") && text.ends_with(" arrays"),
            "{text}"
        );
    }

    #[test]
    fn a_store_without_zarr_metadata_is_warned_about() {
        let folder = [("a/b/text", "no metadata")];
        assert_eq!(words(&folder), "no Zarr metadata");
        let warning = |documents: &[(&str, &str)], is_local| summary(documents, is_local).warning();
        let whole = "no Zarr metadata found; check the path (directories are shown as groups)";
        assert_eq!(warning(&folder, true).as_deref(), Some(whole));
        let root =
            "no Zarr metadata found at the root; check the path (directories are shown as groups)";
        let names: Vec<String> = (0..9).map(|number| format!("{number}/text")).collect();
        let many: Vec<_> = names.iter().map(|name| (name.as_str(), "")).collect();
        assert_eq!(warning(&many, false).as_deref(), Some(root));
        assert_eq!(warning(&folder, false).as_deref(), Some(whole));
        let dataset = r#"{"dimensions": [4], "blockSize": [2], "dataType": "uint8",
            "compression": {"type": "raw"}}"#;
        let container = summary(&[("a/attributes.json", dataset)], false);
        assert_eq!(container.to_string(), "N5, 1 array in folders");
        let volume = [
            ("info", r#"{"type": "image", "scales": []}"#),
            ("8_8_8/0-64", "x"),
        ];
        let other = "this is a Neuroglancer precomputed volume, not a Zarr store; use cloud-volume or tensorstore to read the data, \
                     or to write a Zarr store";
        assert_eq!(warning(&volume, false).as_deref(), Some(other));
        for document in [("zarr.json", GROUP), ("a/.zarray", ARRAY)] {
            assert_eq!(warning(&[document], true), None);
        }
    }
}
