//! Checks AnnData tables and matrices: missing parts and lengths that differ.
//!
//! With these faults, anndata opens neither the table or matrix nor the object that contains it.

use std::sync::Arc;

use crate::context::CheckContext;
use crate::finding::Finding;
use crate::rules::key_of;
use crate::spec::Spec;
use zarr_format::error::Result;
use zarr_format::model::{Attributes, Node};
use zarrfs_array::hierarchy::NodeEntry;
use zarrfs_store::Key;
use zarrfs_store::request_context::UNLIMITED;

/// Maximum number of children, and of table columns, that are checked in one group.
const MAX_LOOKED_AT: usize = 1000;

/// Returns the faults in a group that is an AnnData object, table or matrix, as its attribute `encoding-type` tells.
pub(crate) fn check(
    context: &CheckContext,
    entry: &NodeEntry,
    attributes: &Attributes,
) -> Vec<Finding> {
    let group = |heading| Group {
        context,
        path: &entry.path,
        attributes,
        heading,
    };
    let matrix = group("Sparse arrays");
    match encoding_of(attributes).as_deref() {
        Some("anndata") => group("AnnData specification (v0.1.0)").whole(),
        Some("dataframe") => group("DataFrames").frame(),
        Some("csr_matrix") => matrix.sparse(0),
        Some("csc_matrix") => matrix.sparse(1),
        Some("categorical") => group("Categorical arrays").pair(["codes", "categories"], false),
        Some("nullable-integer" | "nullable-boolean" | "nullable-string-array") => {
            group("Nullable integers and booleans").pair(["values", "mask"], true)
        }
        _ => Vec::new(),
    }
}

fn encoding_of(attributes: &Attributes) -> Option<String> {
    let encoding = attributes.get("encoding-type")?;
    Some(encoding.as_str()?.to_string())
}

struct Group<'a> {
    context: &'a CheckContext,
    path: &'a Key,
    attributes: &'a Attributes,
    /// The heading in anndata's documentation of the encoding that the group has.
    heading: &'static str,
}

enum Part {
    Missing,
    /// A node is stored. The lengths are the node's shape, and empty if the shape is unknown.
    Stored(Vec<u64>),
}

impl Group<'_> {
    /// Returns the key of a path relative to the group, and whether a node is stored there.
    fn part(&self, name: &str) -> (Key, Part) {
        let Ok(key) = key_of(self.path, name) else {
            return (self.path.clone(), Part::Stored(Vec::new()));
        };
        let part = match self.node(&key) {
            Ok(Some(node)) => Part::Stored(self.shape(&node)),
            Ok(None) => Part::Missing,
            // The error in the metadata is reported when the check reaches the node itself.
            Err(_) => Part::Stored(Vec::new()),
        };
        (key, part)
    }

    /// Returns a node, or `None` if the node has no metadata document.
    fn node(&self, key: &Key) -> Result<Option<Arc<NodeEntry>>> {
        let node = self.context.hierarchy.node(&UNLIMITED, key)?;
        Ok(node.filter(|node| node.node.is_err() || node.version != 0))
    }

    /// Returns the shape of an array, or of the table, matrix or column that a group encodes.
    fn shape(&self, node: &NodeEntry) -> Vec<u64> {
        let attributes = match node.node() {
            Ok(Node::Array(array)) => return array.shape.to_vec(),
            Ok(Node::Group(group)) => &group.attributes,
            Err(_) => return Vec::new(),
        };
        let group = Group {
            context: self.context,
            path: &node.path,
            attributes,
            ..*self
        };
        let of = |name: &str| match group.part(name).1 {
            Part::Stored(shape) => shape,
            Part::Missing => Vec::new(),
        };
        match encoding_of(attributes).as_deref() {
            Some("dataframe") => group.index().map(|index| of(&index)).unwrap_or_default(),
            Some("categorical") => of("codes"),
            Some("nullable-integer" | "nullable-boolean" | "nullable-string-array") => of("values"),
            Some("csr_matrix" | "csc_matrix") => group.sparse_shape(),
            _ => Vec::new(),
        }
    }

    fn index(&self) -> Option<String> {
        Some(self.attributes.get("_index")?.as_str()?.to_string())
    }

    /// Returns the shape of a sparse matrix, which is in its attributes.
    fn sparse_shape(&self) -> Vec<u64> {
        let shape = self.attributes.get("shape");
        let lengths = shape.as_ref().and_then(serde_json::Value::as_array);
        let lengths = lengths.into_iter().flatten();
        lengths.filter_map(serde_json::Value::as_u64).collect()
    }

    fn missing(&self, name: &str, what: &str) -> Finding {
        let message = format!("{what} {name:?} is missing; anndata cannot open this group");
        Finding::error("table-part-missing", self.path, message)
            .with_part(name)
            .with_remedy("copy it from another copy of the store")
            .with_section(Spec::Anndata.section(self.heading))
    }

    /// Checks a table: all columns must have the same length as the index.
    fn frame(&self) -> Vec<Finding> {
        let Some(index) = self.index() else {
            return Vec::new();
        };
        let rows = match self.part(&index).1 {
            Part::Missing => {
                return vec![self.missing(&index, "the index column")];
            }
            Part::Stored(shape) => shape.first().copied(),
        };
        let columns = self.attributes.get("column-order");
        let columns = columns.as_ref().and_then(serde_json::Value::as_array);
        let mut findings = Vec::new();
        for column in columns.into_iter().flatten().take(MAX_LOOKED_AT) {
            let Some(name) = column.as_str() else {
                continue;
            };
            match (self.part(name), rows) {
                ((_, Part::Missing), _) => {
                    findings.push(self.missing(name, "the column"));
                }
                ((key, Part::Stored(shape)), Some(rows)) => {
                    let length = shape.first().filter(|&&length| length != rows);
                    findings.extend(length.map(|length| {
                        let message = format!(
                            "the column has {length} elements, but the index {index:?} of its table has {rows}"
                        );
                        self.differs(&key, message)
                    }));
                }
                _ => {}
            }
        }
        findings
    }

    /// Checks that a group has two arrays with the given names, and with the same shape if `are_alike`.
    fn pair(&self, names: [&str; 2], are_alike: bool) -> Vec<Finding> {
        let shapes = names.map(|name| (name, self.part(name).1));
        let missing = shapes.iter().filter_map(|(name, part)| match part {
            Part::Missing => Some(self.missing(name, "the array")),
            Part::Stored(_) => None,
        });
        let mut findings: Vec<Finding> = missing.collect();
        if let [(one, Part::Stored(first)), (other, Part::Stored(second))] = &shapes
            && are_alike
            && !first.is_empty()
            && !second.is_empty()
            && first != second
        {
            let message = format!("{one} has shape {first:?}, but {other} has shape {second:?}");
            findings.push(self.differs(self.path, message));
        }
        findings
    }

    /// Checks a sparse matrix that is compressed along dimension `axis`.
    fn sparse(&self, axis: usize) -> Vec<Finding> {
        let names = ["data", "indices", "indptr"];
        let mut lengths = [None; 3];
        let mut findings = Vec::new();
        for (length, name) in lengths.iter_mut().zip(names) {
            match self.part(name).1 {
                Part::Missing => findings.push(self.missing(name, "the array")),
                Part::Stored(shape) => *length = shape.first().copied(),
            }
        }
        let [data, indices, pointers] = lengths;
        if let (Some(data), Some(indices)) = (data, indices)
            && data != indices
        {
            let message = format!("data has {data} elements, but indices has {indices}");
            findings.push(self.differs(self.path, message));
        }
        let shape = self.sparse_shape();
        if let (Some(pointers), Some(side)) = (pointers, shape.get(axis))
            && pointers != side.saturating_add(1)
        {
            let what = ["rows", "columns"][axis.min(1)];
            let message = format!(
                "indptr has {pointers} elements, but a matrix of {side} {what} needs {}",
                side.saturating_add(1)
            );
            findings.push(self.differs(self.path, message));
        }
        findings
    }

    /// Checks an AnnData object: the shape of each matrix must match the lengths of the tables `obs` and `var`.
    fn whole(&self) -> Vec<Finding> {
        let rows = |name: &str| match self.part(name).1 {
            Part::Stored(shape) => shape.first().copied(),
            Part::Missing => None,
        };
        let (cells, genes, raw_genes) = (rows("obs"), rows("var"), rows("raw/var"));
        let mut findings = Vec::new();
        let mut check = |name: &str, sides: [Option<(&str, u64)>; 2]| {
            if let (key, Part::Stored(shape)) = self.part(name) {
                findings.extend(self.matrix_fault(&key, &shape, sides));
            }
        };
        let [cells, genes] = [("obs", cells), ("var", genes)]
            .map(|(name, length)| length.map(|length| (name, length)));
        check("X", [cells, genes]);
        check(
            "raw/X",
            [cells, raw_genes.map(|length| ("raw/var", length))],
        );
        for (folder, sides) in [
            ("layers", [cells, genes]),
            ("obsm", [cells, None]),
            ("varm", [genes, None]),
            ("obsp", [cells, cells]),
            ("varp", [genes, genes]),
        ] {
            for name in self.names_in(folder) {
                check(&format!("{folder}/{name}"), sides);
            }
        }
        findings
    }

    fn names_in(&self, folder: &str) -> Vec<String> {
        let key = key_of(self.path, folder);
        let node = key.and_then(|key| self.node(&key)).ok().flatten();
        let hierarchy = &self.context.hierarchy;
        let listing = node.and_then(|node| hierarchy.children_or_named(&UNLIMITED, &node).ok());
        let mut names = Vec::new();
        if let Some(mut listing) = listing {
            while let Ok(Some(name)) = listing.next(&UNLIMITED) {
                if names.len() >= MAX_LOOKED_AT {
                    break;
                }
                names.extend(String::from_utf8(name.name).ok());
            }
        }
        names
    }

    /// Reports a matrix whose shape differs from the lengths of the tables that describe its rows and columns.
    fn matrix_fault(
        &self,
        key: &Key,
        shape: &[u64],
        sides: [Option<(&str, u64)>; 2],
    ) -> Option<Finding> {
        let mut sides = shape.iter().zip(sides).enumerate();
        sides.find_map(|(axis, (length, side))| {
            let (table, rows) = side.filter(|(_, rows)| rows != length)?;
            let message = format!(
                "the matrix has {length} {}, but the table {table} has {rows} rows",
                ["rows", "columns"][axis.min(1)]
            );
            Some(self.differs(key, message))
        })
    }

    fn differs(&self, key: &Key, message: String) -> Finding {
        let message = format!("{message}; anndata cannot open it");
        Finding::error("table-lengths-differ", key, message)
            .with_remedy("copy both from another copy of the store, or write the object again")
            .with_section(Spec::Anndata.section(self.heading))
    }
}
