//! Tests dialects: equal arrays, the specifications' examples, layouts, consolidated metadata, hostile hierarchies.

mod conformance;
mod consolidated;
mod everywhere;
mod examples;
pub(crate) mod hierarchies;
mod hostile;
mod layouts;
mod named_children;
pub(crate) mod written;
