//! Reads facts about a store as plain data; nothing here prints.
//!
//! `access` opens a store at its location. `locate` splits a location into a store and a path in it. Each of the other
//! modules reads one kind of fact from the hierarchy and its arrays.

mod companions;
pub mod coordinates;
pub mod entry_facts;
pub mod file_ending;
mod file_members;
pub mod group_file;
mod labels;
pub mod locate;
pub mod named_file;
pub mod node_info;
pub mod opened_store;
pub mod preview;
pub mod selected_elements;
pub mod selection;
pub mod shard_info;
pub mod stored_chunks;
pub mod surrounding_nodes;
pub mod tree;
