//! Writing: decoded files, attributes, documents and nodes, over stores in memory.

#[path = "../common/mod.rs"]
mod common;

mod array_spec;
mod arrays;
mod broken_attributes;
mod broken_nodes;
mod changed_keys;
mod conflicts;
mod consolidated;
mod contents;
mod documents;
mod files;
mod fixture;
#[path = "../dialects/hierarchies.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod hierarchies;
mod kept_documents;
mod nested;
mod nodes;
mod seen_documents;
mod shared;
mod side_by_side;
mod slow;
#[path = "../dialects/written.rs"]
mod written;
