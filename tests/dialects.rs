//! Dialects: one array in all of them, the texts' own examples, layouts of the drafts, consolidated metadata,
//! and hostile hierarchies.

mod common;

#[path = "dialects/conformance.rs"]
mod conformance;
#[path = "dialects/consolidated.rs"]
mod consolidated;
#[path = "dialects/everywhere.rs"]
mod everywhere;
#[path = "dialects/examples.rs"]
mod examples;
#[path = "dialects/hostile.rs"]
mod hostile;
#[path = "dialects/layouts.rs"]
mod layouts;
#[path = "dialects/shelf.rs"]
mod shelf;
#[path = "dialects/written.rs"]
mod written;
