//! Writing: decoded files, attributes, documents and nodes, over stores in memory.

#[path = "../common/mod.rs"]
mod common;

mod arrays;
mod case;
mod changed_keys;
mod documents;
mod files;
mod nodes;
#[path = "../dialects/shelf.rs"]
#[allow(dead_code)]
mod shelf;
mod slow;
mod stand;
#[path = "../dialects/written.rs"]
mod written;
