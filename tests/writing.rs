//! Writing: decoded files, attributes, documents and nodes, over stores in memory.

mod common;

#[path = "writing/arrays.rs"]
mod arrays;
#[path = "writing/case.rs"]
mod case;
#[path = "writing/changed_keys.rs"]
mod changed_keys;
#[path = "writing/documents.rs"]
mod documents;
#[path = "writing/files.rs"]
mod files;
#[path = "writing/nodes.rs"]
mod nodes;
#[path = "dialects/shelf.rs"]
#[allow(dead_code)]
mod shelf;
#[path = "writing/slow.rs"]
mod slow;
#[path = "writing/stand.rs"]
mod stand;
#[path = "dialects/written.rs"]
mod written;
