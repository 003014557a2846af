//! Writing: decoded files, attributes, documents and nodes, over stores in memory.

#[path = "../common/mod.rs"]
mod common;

mod array_spec;
mod arrays;
mod changed_keys;
mod contents;
mod documents;
mod files;
mod fixture;
#[path = "../dialects/hierarchies.rs"]
#[allow(dead_code)]
mod hierarchies;
mod nodes;
mod slow;
#[path = "../dialects/written.rs"]
mod written;
