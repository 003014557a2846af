//! Reads facts about a store as plain data; nothing here prints.
//!
//! `access` opens a store by its location, and `locate` splits a location into the store and the path in it. The
//! other modules each read one kind of fact from the hierarchy and its arrays.

pub mod access;
pub mod array_info;
pub mod chunk_map;
mod companions;
pub mod coordinate_lines;
pub mod coordinates;
pub mod entry_facts;
pub mod file_ending;
mod file_members;
pub mod group_file;
pub mod key_of_chunk;
pub mod labels;
pub mod left_out;
pub mod locate;
pub mod map_nodes;
pub mod named_file;
pub mod node_info;
pub mod preview;
pub mod refused_files;
pub mod root_name;
pub mod selected;
pub mod selection;
pub mod shard_info;
pub mod stored;
pub mod surrounding_nodes;
pub mod tree;
pub mod tree_walk;
mod unlisted_store;
pub mod variable_file;
pub mod written_file;
