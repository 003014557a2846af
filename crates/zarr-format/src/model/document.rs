//! Lists the names of metadata documents of all dialects.
//!
//! Stores, caches and commits treat metadata documents differently from chunks, and can distinguish them only by the
//! name of a key. `dialect/` reads and writes the documents themselves.

/// Metadata document of a v3 node, and entry point of a hierarchy of the v3 drafts of 2020 and 2022.
pub const ZARR_JSON: &str = "zarr.json";

/// Metadata document of a v2 group.
pub const ZGROUP: &str = ".zgroup";

/// Metadata document of a v2 array.
pub const ZARRAY: &str = ".zarray";

/// Metadata document with the user attributes of a v2 node.
pub const ZATTRS: &str = ".zattrs";

/// Consolidated metadata of v2, and of the v3 draft of 2020 as zarr-python wrote it.
pub const ZMETADATA: &str = ".zmetadata";

/// Metadata document of an N5 node.
pub const ATTRIBUTES_JSON: &str = "attributes.json";

/// File with the metadata of a node in the files view (the decoded view of a mount). No dialect has a document of this
/// name.
pub const METADATA_JSON: &str = "metadata.json";

/// Key of the consolidated metadata of the v3 draft of 2020, relative to the entry point.
pub const CONSOLIDATED_2020: &str = "meta/root/consolidated/.zmetadata";

/// Metadata documents of the root in the v3 draft of 2019, which has no entry point.
pub const ROOTS_2019: [&str; 2] = ["root.array.json", "root.group.json"];

/// Metadata documents that the folder of a node may hold. The v3 drafts have them in other folders.
pub const IN_NODE_FOLDER: [&str; 6] = [
    ZARR_JSON,
    ZGROUP,
    ZARRAY,
    ZATTRS,
    ZMETADATA,
    ATTRIBUTES_JSON,
];

/// Returns the metadata documents that the root folder of a hierarchy may hold, the likeliest first. The folder has at
/// least one of these documents, unless the root is a group that is only implied by its children.
pub fn at_root() -> impl Iterator<Item = &'static str> {
    IN_NODE_FOLDER.into_iter().chain(ROOTS_2019)
}

/// Whether a metadata document of any dialect may have this name. No chunk has such a name, but a node of v2, v3 or N5
/// may have one: `a.group`.
pub fn is_document(name: &[u8]) -> bool {
    is_in_node_folder(name) || is_draft_document(name)
}

/// Whether the folder of a node may hold a metadata document of this name. No node has such a name.
pub fn is_in_node_folder(name: &[u8]) -> bool {
    let is = |document: &str| document.as_bytes() == name;
    IN_NODE_FOLDER.into_iter().any(is)
}

/// Whether the folder of each node has a file of this name, in the store or in the files view. A child node with such a
/// name is looked up only if consolidated metadata list it.
pub fn is_in_each_node(name: &[u8]) -> bool {
    is_in_node_folder(name) || name == METADATA_JSON.as_bytes()
}

/// Whether a metadata document of this name makes its folder a node.
pub fn describes_node(name: &[u8]) -> bool {
    let is = |document: &str| document.as_bytes() == name;
    [ZARR_JSON, ZGROUP, ZARRAY, ATTRIBUTES_JSON]
        .into_iter()
        .any(is)
}

/// Whether a metadata document of a v3 draft may have this name: `NAME.array` or `NAME.group` and a suffix that the
/// entry point states (`metadata_key_suffix`).
pub fn is_draft_document(name: &[u8]) -> bool {
    let holds = |word: &[u8]| name.windows(word.len()).any(|part| part == word);
    let is = |document: &str| document.as_bytes() == name;
    // The v3 draft of 2022 has `array.json` or `group.json` at the root.
    holds(b".array") || holds(b".group") || ["array.json", "group.json"].into_iter().any(is)
}

/// Whether a document of this name holds only consolidated metadata.
pub fn is_consolidated(name: &[u8]) -> bool {
    name == ZMETADATA.as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_documents_are_distinguished_from_chunks() {
        for name in [
            "zarr.json",
            ".zgroup",
            ".zarray",
            ".zattrs",
            ".zmetadata",
            "attributes.json",
            "root.group.json",
            "a.array.json",
            ".array.json",
            "b.group",
            "group.json",
            "c.array-x",
        ] {
            assert!(is_document(name.as_bytes()), "{name}");
        }
        for name in [
            "0",
            "0.1",
            "c",
            "c0",
            "zarr.jsonx",
            "array",
            "",
            "group.txt",
        ] {
            assert!(!is_document(name.as_bytes()), "{name}");
        }
        assert!(!is_in_node_folder(b"a.group"));
        assert!(is_in_each_node(b"metadata.json") && is_in_each_node(b".zattrs"));
        assert!(!is_document(b"metadata.json") && !is_in_each_node(b"a.group"));
    }

    #[test]
    fn only_zmetadata_is_a_consolidated_document_at_the_root() {
        let names: Vec<&str> = at_root()
            .filter(|name| is_consolidated(name.as_bytes()))
            .collect();
        assert_eq!(names, [ZMETADATA]);
        assert!(CONSOLIDATED_2020.ends_with(ZMETADATA));
        assert!(!is_consolidated(b"zarr.json"));
    }
}
