//! Tests writes to decoded files and attributes, over stores in memory and on disk.

mod array_spec;
mod arrays;
mod broken_attributes;
mod broken_nodes;
mod changed_keys;
mod conflicts;
mod consolidated;
mod contents;
mod derived_copies;
mod discards;
mod documents;
mod encodings;
mod files;
mod fixture;
mod kept_documents;
mod seen_documents;
mod shared;
mod side_by_side;
mod slow;
