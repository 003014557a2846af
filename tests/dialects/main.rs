//! Dialects: one array in all of them, the texts' own examples, layouts of the drafts, consolidated metadata,
//! and hostile hierarchies.

#[path = "../common/mod.rs"]
mod common;

mod conformance;
mod consolidated;
mod everywhere;
mod examples;
mod hierarchies;
mod hostile;
mod layouts;
mod written;
